//! The functions.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::ptr::NonNull;

use nearside_fsrlib::{
    Ask, Credentials, Digest, Error, Failure, FileEntry, Operation, Record, Session, Target, Transport,
    describe, errno, own_credentials,
};

use crate::open::How;
use crate::types::*;

/// An open drive.
pub struct nearside {
    // C may come back to it from a callback, while a call holds the session:
    // nothing here is reached but through a shared reference.
    /// Borrowed for as long as a call lasts.
    session: RefCell<Session<Box<dyn Transport>>>,
    error: RefCell<CString>,
    /// Closed from a callback: the call that it was in gives the drive up at its end.
    closed: Cell<bool>,
}

thread_local! {
    static OPEN_ERROR: RefCell<CString> = RefCell::default();
}

const EINVAL: c_int = 22;
const EIO: c_int = 5;
const EBUSY: c_int = 16;

fn words(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// What a call of C brings, checked.
pub(crate) enum Stop {
    Invalid(&'static str),
    /// A callback came back to the session that it was called from.
    Inside,
    Library(Error),
    File(Vec<u8>, Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Library(error)
    }
}

impl nearside {
    fn fail(&self, stop: Stop) -> c_int {
        let (code, text) = match stop {
            Stop::Invalid(why) => (EINVAL, why.to_owned()),
            Stop::Inside => (EBUSY, "a callback uses the session that calls it".to_owned()),
            Stop::Library(Error::Refused(failure)) => (errno(&failure), describe(&failure).into_owned()),
            Stop::Library(error) => (EIO, error.to_string()),
            Stop::File(path, failure) => {
                (errno(&failure), format!("{}: {}", String::from_utf8_lossy(&path), describe(&failure)))
            }
        };
        self.error.replace(words(&text));
        -code
    }
}

/// A string's bytes.
///
/// # Safety
/// `text` is null or a terminated string that stays as it is for `'a`.
pub(crate) unsafe fn bytes<'a>(text: *const c_char) -> Result<&'a [u8], Stop> {
    if text.is_null() {
        return Err(Stop::Invalid("a null pointer where a string is due"));
    }
    // SAFETY: as this function demands; it is not null.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Opens a drive, by the names that the command `nearside` takes: an image (raw, qcow2, also as .gz or .zst;
/// `qcow2:PATH`, `lvm:PATH?volume=VG/LV`, `file:PATH`) or a block device (a drive embedded in this process,
/// read-only), `unix:PATH` (the socket of a drive that `nearside attach` serves),
/// `nvme+tcp://HOST:PORT/NQN/NSID` (over the network; several `HOST:PORT` with commas between them are paths
/// to one drive, and a connection that is lost is made again, for ten minutes), `vfio-user:PATH` (in another
/// process), `/dev/ngXnY` (through a kernel that is connected to it). `options` may be null. Returns null
/// where it fails: `nearside_error(NULL)` says why.
///
/// # Safety
/// `drive` is a terminated string; `options` is null or valid, its `groups` valid for `groups_len` numbers,
/// its strings null or terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_open(
    drive: *const c_char,
    options: *const nearside_options,
) -> *mut nearside {
    // SAFETY: the caller's duty.
    let (drive, options) = unsafe { (bytes(drive), options.as_ref()) };
    let credentials = match options.filter(|o| o.has_credentials != 0) {
        None => own_credentials().map_err(|e| e.to_string()),
        Some(o) => {
            let groups = match o.groups.is_null() || o.groups_len == 0 {
                true => Vec::new(),
                // SAFETY: the caller's duty; it is not null.
                false => unsafe { std::slice::from_raw_parts(o.groups, o.groups_len as usize) }.to_vec(),
            };
            Ok(Credentials { uid: o.uid, gid: o.gid, groups })
        }
    };
    let opened = match drive {
        // SAFETY: the caller's duty.
        Ok(drive) => unsafe { How::of(options) }.and_then(|how| crate::open::open(drive, how)),
        Err(_) => Err("no drive is named".into()),
    };
    match opened.and_then(|session| Ok((session, credentials?))) {
        Ok((session, credentials)) => {
            let session =
                session.with_credentials(credentials).with_partition(options.map_or(0, |o| o.partition));
            Box::into_raw(Box::new(nearside {
                session: RefCell::new(session),
                error: RefCell::default(),
                closed: Cell::new(false),
            }))
        }
        Err(why) => {
            OPEN_ERROR.set(words(&why));
            std::ptr::null_mut()
        }
    }
}

/// Closes a drive. Null is nothing. From a callback: when the call that it is in returns, to which the
/// callback should then return something other than 0.
///
/// # Safety
/// `drive` comes from `nearside_open`, is not used by another thread, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_close(drive: *mut nearside) {
    // SAFETY: the caller's duty; the reference ends before the drive does.
    let in_a_call = unsafe { drive.as_ref() }.is_some_and(|drive| match drive.session.try_borrow_mut() {
        Ok(_) => false,
        Err(_) => {
            drive.closed.set(true);
            true
        }
    });
    if !drive.is_null() && !in_a_call {
        // SAFETY: it came from `Box::into_raw` in `nearside_open`, the caller gives it up,
        // and no call holds it.
        drop(unsafe { Box::from_raw(drive) });
    }
}

/// Why the last call on this session failed; for null, why the last `nearside_open` of this thread did.
/// Valid until the next call.
///
/// # Safety
/// `drive` is null or an open session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_error(drive: *const nearside) -> *const c_char {
    // SAFETY: the caller's duty.
    match unsafe { drive.as_ref() } {
        Some(drive) => drive.error.borrow().as_ptr(),
        None => OPEN_ERROR.with_borrow(|text| text.as_ptr()),
    }
}

/// Runs a call's body and turns what stops it into a negated errno.
///
/// # Safety
/// `drive` is null or what [`nearside_open`] returned and [`nearside_close`] has not had,
/// and no other thread uses it now.
pub(crate) unsafe fn call(
    drive: *mut nearside,
    body: impl FnOnce(&mut Session<Box<dyn Transport>>) -> Result<i64, Stop>,
) -> i64 {
    // SAFETY: as this function demands. It is shared: a callback within may come with the same pointer.
    let Some(open) = (unsafe { drive.as_ref() }) else { return -i64::from(EINVAL) };
    let Ok(mut session) = open.session.try_borrow_mut() else { return i64::from(open.fail(Stop::Inside)) };
    open.error.replace(CString::default());
    let result = body(&mut session).unwrap_or_else(|stop| i64::from(open.fail(stop)));
    drop(session);
    if open.closed.get() {
        // SAFETY: as in `nearside_close`, which a callback called:
        // this call was the only one, and `open` is used no more.
        drop(unsafe { Box::from_raw(drive) });
    }
    result
}

/// Where an answer goes: only written, as C need not have set it.
fn place<T>(place: *mut T, missing: &'static str) -> Result<NonNull<T>, Stop> {
    NonNull::new(place).ok_or(Stop::Invalid(missing))
}

fn target(path: &[u8]) -> Target {
    Target::Path(path.to_vec())
}

/// The one record that `want` takes of an operation on a file.
fn single_record<V>(
    session: &mut Session<Box<dyn Transport>>,
    ask: &Ask,
    want: impl Fn(Record<'_>) -> Option<V>,
) -> Result<V, Stop> {
    let mut found = None;
    records(session, ask, |record| found = found.take().or_else(|| want(record)))?;
    found.ok_or_else(|| {
        let reason = "the drive's answer lacks what was asked for".into();
        Stop::Library(Error::Form { what: "reply", reason })
    })
}

/// Every record of an operation on a file.
pub(crate) fn records(
    session: &mut Session<Box<dyn Transport>>,
    ask: &Ask,
    mut take: impl FnMut(Record<'_>),
) -> Result<(), Stop> {
    let mut failed = None;
    session.stream(ask, |record| {
        match record {
            Record::Failed { path, failure } => failed = Some(Stop::File(path.into_owned(), failure)),
            record => take(record),
        }
        ControlFlow::Continue(())
    })?;
    failed.map_or(Ok(()), Err)
}

/// Counts lines, words and bytes of a file, in the drive. Returns 0.
///
/// # Safety
/// `drive` is an open session, `path` a terminated string, `counts` valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_count(
    drive: *mut nearside,
    path: *const c_char,
    counts: *mut nearside_counts,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        // SAFETY: the caller's duty.
        let path = unsafe { bytes(path)? };
        let place = place(counts, "no place for the counts")?;
        let counts = single_record(session, &Ask::path(path, Operation::Count), |record| match record {
            Record::Count { lines, words, bytes } => Some(nearside_counts { lines, words, bytes }),
            _ => None,
        })?;
        // SAFETY: valid for writing by the caller's duty.
        unsafe { place.write(counts) };
        Ok(0)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}

/// A checksum (`digest`: NEARSIDE_CRC32C and so on) over a file, in the drive: its bytes go to `value`, which
/// has room for `room`. Returns how many there are.
///
/// # Safety
/// `drive` is an open session, `path` a terminated string, `value` valid for writing `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_checksum(
    drive: *mut nearside,
    path: *const c_char,
    digest: u32,
    value: *mut u8,
    room: usize,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        // SAFETY: the caller's duty.
        let path = unsafe { bytes(path)? };
        let kind = match digest {
            NEARSIDE_CRC32C => Digest::Crc32c,
            NEARSIDE_XXH3 => Digest::Xxh3,
            NEARSIDE_SHA256 => Digest::Sha256,
            _ => return Err(Stop::Invalid("no such checksum")),
        };
        let sum =
            single_record(session, &Ask::path(path, Operation::Checksum(kind)), |record| match record {
                Record::Digest { value, .. } => Some(value.into_owned()),
                _ => None,
            })?;
        if value.is_null() || room < sum.len() {
            return Err(Stop::Invalid("too little room for the checksum"));
        }
        // SAFETY: valid for `room` bytes by the caller's duty, and `sum` is ours.
        unsafe { std::ptr::copy_nonoverlapping(sum.as_ptr(), value, sum.len()) };
        Ok(sum.len() as i64)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}

/// An entry for C; without its name and where it leads, which do not outlive the answer, unless `named`.
pub(crate) fn entry(e: &FileEntry, named: bool) -> nearside_entry {
    let link = e.link.as_deref().filter(|_| named);
    nearside_entry {
        name: if named { e.path.as_ptr().cast() } else { std::ptr::null() },
        name_len: if named { e.path.len() } else { 0 },
        ino: e.ino,
        mode: e.mode.into(),
        links: e.links,
        uid: e.uid,
        gid: e.gid,
        size: e.size,
        sectors: e.sectors,
        seconds: e.times.map(|t| t.0),
        nanoseconds: e.times.map(|t| t.1),
        link: link.map_or(std::ptr::null(), |link| link.as_ptr().cast()),
        link_len: link.map_or(0, <[u8]>::len),
    }
}

/// Metadata of a file; `follow`: of what a symbolic link leads to. Returns 0.
///
/// # Safety
/// `drive` is an open session, `path` a terminated string, `stat` valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_stat(
    drive: *mut nearside,
    path: *const c_char,
    follow: c_int,
    stat: *mut nearside_entry,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        // SAFETY: the caller's duty.
        let path = unsafe { bytes(path)? };
        let place = place(stat, "no place for the metadata")?;
        let ask = Ask { target: target(path), operation: Operation::Stat, follow: follow != 0 };
        let found = single_record(session, &ask, |record| match record {
            Record::Entry(e) => Some(entry(&e, false)),
            _ => None,
        })?;
        // SAFETY: valid for writing by the caller's duty.
        unsafe { place.write(found) };
        Ok(0)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}

/// Entries of a directory, without "." and "..", in byte order of names, or in the directory's own where it
/// has more than 128 KiB. Returns how many the callback had.
///
/// # Safety
/// `drive` is an open session, `path` a terminated string; `callback` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_list(
    drive: *mut nearside,
    path: *const c_char,
    callback: nearside_entry_fn,
    user: *mut c_void,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        // SAFETY: the caller's duty.
        let path = unsafe { bytes(path)? };
        let callback = callback.ok_or(Stop::Invalid("no callback"))?;
        let mut count = 0;
        session.stream(&Ask::path(path, Operation::List), |record| {
            let e = match record {
                Record::Entry(e) => e,
                Record::Name { path, kind } => FileEntry::of_name(path, kind),
                _ => return ControlFlow::Continue(()),
            };
            count += 1;
            // SAFETY: the caller's duty; the entry and its name live through the call.
            match unsafe { callback(user, &entry(&e, true)) } {
                0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        })?;
        Ok(count)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}

/// Bytes `offset` to `offset + len` of a file, cut at its end, handed to the callback piece by piece.
/// Returns how many.
///
/// # Safety
/// `drive` is an open session, `path` a terminated string; `callback` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_read(
    drive: *mut nearside,
    path: *const c_char,
    offset: u64,
    len: u64,
    callback: nearside_data_fn,
    user: *mut c_void,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        // SAFETY: the caller's duty.
        let path = unsafe { bytes(path)? };
        let callback = callback.ok_or(Stop::Invalid("no callback"))?;
        let mut total = 0i64;
        let mut failed = None;
        session.stream(&Ask::path(path, Operation::Read { offset, len }), |record| {
            match record {
                Record::Failed { path, failure } => failed = Some(Stop::File(path.into_owned(), failure)),
                Record::Data { offset, bytes } => {
                    total = total.saturating_add_unsigned(bytes.len() as u64);
                    // SAFETY: the caller's duty; the bytes live through the call.
                    if unsafe { callback(user, offset, bytes.as_ptr().cast(), bytes.len()) } != 0 {
                        return ControlFlow::Break(());
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(total), Err)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}

/// What the session has moved so far. Returns 0.
///
/// # Safety
/// `drive` is an open session, `traffic` valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_moved(drive: *mut nearside, traffic: *mut nearside_traffic) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        let place = place(traffic, "no place for the figures")?;
        let drive_commands = session.transport_mut().taken()?.unwrap_or(u64::MAX);
        let t = session.totals();
        let moved = nearside_traffic {
            near_data_commands: t.near_data_commands,
            drive_commands,
            read_commands: t.read_commands,
            bytes_out: t.bytes_out,
            bytes_in: t.bytes_in,
            round_trip_ns: t.round_trip_ns,
        };
        // SAFETY: valid for writing by the caller's duty.
        unsafe { place.write(moved) };
        Ok(0)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}

/// Which completion model holds, and what it expects. Returns 0.
///
/// # Safety
/// `drive` is an open session, `completion` valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_completion_model(
    drive: *mut nearside,
    completion: *mut nearside_completion,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        let place = place(completion, "no place for the answer")?;
        let c = session.transport().completion();
        let mut model = [0; 16];
        for (to, from) in model.iter_mut().take(15).zip(c.model.bytes()) {
            *to = from as c_char;
        }
        let read_4k_ns = c.read_4k_ns.unwrap_or(0);
        // SAFETY: valid for writing by the caller's duty.
        unsafe { place.write(nearside_completion { model, read_4k_ns, spinning_ns: c.spinning_ns }) };
        Ok(0)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}
