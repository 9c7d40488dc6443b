//! Searches, and lists of trees.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ops::ControlFlow;

use nearside_fsrlib::{
    Answer, Ask, Failure, FileEntry, Operation, Record, SearchOptions, Session, Target, Transport, describe,
    errno,
};

use crate::calls::{Stop, bytes, call, entry, nearside};
use crate::types::*;

/// The caller's strings.
///
/// # Safety
/// `list` is null, or valid for reading `len` terminated strings.
unsafe fn strings(list: *const *const c_char, len: usize) -> Result<Vec<Vec<u8>>, Stop> {
    if list.is_null() && len > 0 {
        return Err(Stop::Invalid("a null pointer where strings are due"));
    }
    // SAFETY: as this function demands; only what is there is read.
    (0..len).map(|nth| unsafe { bytes(*list.add(nth)) }.map(<[u8]>::to_vec)).collect()
}

/// What a callback wants.
fn then(answer: c_int) -> ControlFlow<()> {
    if answer == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Whether a failure is of what was asked for as a whole, and not of a path: nothing goes on beside it.
fn is_of_the_request(failure: &Failure) -> bool {
    use Failure::*;
    matches!(
        failure,
        InvalidPattern(_) | InvalidRequest(_) | NoVolume(_) | NeedsRecovery(_) | DeniedAs(_) | Cancelled
    )
}

/// Tells the caller what failed, where it wants to hear.
///
/// # Safety
/// `failed` may be called with `user`.
unsafe fn tell(
    failed: nearside_failed_fn,
    user: *mut c_void,
    path: &[u8],
    failure: &Failure,
) -> ControlFlow<()> {
    let Some(failed) = failed else { return ControlFlow::Continue(()) };
    let words = CString::new(describe(failure).replace('\0', "\u{fffd}")).unwrap_or_default();
    let failure = nearside_failure {
        path: path.as_ptr().cast(),
        path_len: path.len(),
        code: errno(failure),
        words: words.as_ptr(),
    };
    // SAFETY: as this function demands; `failure` and what it points to live through the call.
    then(unsafe { failed(user, &failure) })
}

/// Lines on their way to the caller.
struct Lines {
    callback: nearside_line_fn,
    user: *mut c_void,
    file: Vec<u8>,
    /// A line longer than a buffer comes in parts.
    parts: Option<(u64, Vec<u8>)>,
    found: i64,
}

impl Lines {
    /// Lines of that file come, or none of the last one: what had come of a line is none.
    fn turn_to(&mut self, path: &[u8]) {
        path.clone_into(&mut self.file);
        self.parts = None;
    }

    /// # Safety
    /// The callback may be called with `user`.
    unsafe fn take(&mut self, record: Record<'_>) -> ControlFlow<()> {
        match record {
            Record::File { path, .. } => self.turn_to(&path),
            Record::Matches(n) => self.found = self.found.saturating_add_unsigned(n),
            Record::BinaryMatches => self.found += 1,
            Record::Line { number, offset, bytes, context, continues } => {
                let (offset, bytes) = match self.parts.take() {
                    Some((offset, mut whole)) => {
                        whole.extend_from_slice(&bytes);
                        (offset, whole.into())
                    }
                    None => (offset, bytes),
                };
                if continues {
                    self.parts = Some((offset, bytes.into_owned()));
                    return ControlFlow::Continue(());
                }
                self.found += i64::from(!context);
                let line = nearside_line {
                    path: self.file.as_ptr().cast(),
                    path_len: self.file.len(),
                    number,
                    offset,
                    bytes: bytes.as_ptr().cast(),
                    len: bytes.len(),
                    context: context.into(),
                };
                let Some(callback) = self.callback else { return ControlFlow::Continue(()) };
                // SAFETY: as this function demands; `line` and what it points to live through the call.
                return then(unsafe { callback(self.user, &line) });
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// A search, as the caller's structure says.
///
/// # Safety
/// Its lists are null, or valid for as many terminated strings as they say.
unsafe fn asks(query: &nearside_query, lines: bool) -> Result<Vec<Ask>, Stop> {
    let has = |bit: u32| query.flags & bit != 0;
    // SAFETY: as this function demands.
    let (paths, patterns, include, exclude) = unsafe {
        (
            strings(query.paths, query.paths_len)?,
            strings(query.patterns, query.patterns_len)?,
            strings(query.include, query.include_len)?,
            strings(query.exclude, query.exclude_len)?,
        )
    };
    let search = SearchOptions {
        patterns,
        fixed: has(NEARSIDE_FIXED),
        bytes: has(NEARSIDE_NO_UNICODE),
        ignore_case: has(NEARSIDE_IGNORE_CASE),
        invert: has(NEARSIDE_INVERT),
        word: has(NEARSIDE_WORD),
        line: has(NEARSIDE_LINE),
        text: has(NEARSIDE_TEXT),
        answer: if lines { Answer::Lines } else { Answer::Count },
        only_matching_files: true,
        numbers: lines,
        before: if lines { query.before } else { 0 },
        after: if lines { query.after } else { 0 },
        max_count: (query.max_count > 0).then_some(query.max_count),
        ..SearchOptions::default()
    };
    let max_depth = depth(query.max_depth);
    let target = |path: Vec<u8>| match has(NEARSIDE_RECURSIVE) {
        true => Target::Tree { root: path, include: include.clone(), exclude: exclude.clone(), max_depth },
        false => Target::Path(path),
    };
    let ask = |path| Ask { target: target(path), operation: Operation::Search(search.clone()), follow: true };
    Ok(paths.into_iter().map(ask).collect())
}

fn depth(most: u32) -> u32 {
    if most == 0 { u32::MAX } else { most }
}

/// Searches files, or what lies below directories, for lines that any of several patterns matches (the regex
/// crate's syntax), in the drive. Each line goes to `callback`, which may be null, in the order of the paths
/// and of names below them. Returns how many lines were found.
///
/// Without `query->failed` the call ends with the first path that cannot be searched, and files below a
/// directory that cannot be are passed over; with it both are told to that, and the rest is searched.
///
/// # Safety
/// `drive` is an open session; `query` is valid, its lists null or valid for as many terminated strings as it
/// says; `callback` and `query->failed` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_search(
    drive: *mut nearside,
    query: *const nearside_query,
    callback: nearside_line_fn,
    user: *mut c_void,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        // SAFETY: the caller's duty.
        let query = unsafe { query.as_ref() }.ok_or(Stop::Invalid("no query"))?;
        // SAFETY: the caller's duty.
        let asks = unsafe { asks(query, callback.is_some())? };
        let recursive = query.flags & NEARSIDE_RECURSIVE != 0;
        let mut lines = Lines { callback, user, file: Vec::new(), parts: None, found: 0 };
        for ask in &asks {
            let root = match &ask.target {
                Target::Path(path) | Target::Tree { root: path, .. } => path,
                _ => continue,
            };
            lines.turn_to(root);
            let (mut failed, mut ended) = (None, false);
            let done = session.stream(ask, |record| {
                let flow = match record {
                    Record::Failed { path, failure } => {
                        lines.parts = None;
                        if query.failed.is_none() && !recursive {
                            failed = Some(Stop::File(path.to_vec(), failure.clone()));
                        }
                        // SAFETY: the caller's duty.
                        unsafe { tell(query.failed, user, &path, &failure) }
                    }
                    // SAFETY: the caller's duty.
                    record => unsafe { lines.take(record) },
                };
                ended = flow.is_break();
                flow
            });
            match done {
                Err(nearside_fsrlib::Error::Refused(failure))
                    if query.failed.is_some() && !is_of_the_request(&failure) =>
                {
                    // SAFETY: the caller's duty.
                    ended = unsafe { tell(query.failed, user, root, &failure) }.is_break();
                }
                done => drop(done?),
            }
            if let Some(stop) = failed {
                return Err(stop);
            }
            if ended {
                break;
            }
        }
        Ok(lines.found)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}

/// Searches the file at `path` for `pattern` (the regex crate's syntax; `flags`: NEARSIDE_FIXED and so on),
/// in the drive, by one command. Each line goes to `callback`, which may be null. Returns how many lines were
/// found.
///
/// With NEARSIDE_RECURSIVE, files that cannot be read are passed over.
///
/// # Safety
/// `drive` is an open session; `path` and `pattern` are terminated strings; `callback` may be called with
/// `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_grep(
    drive: *mut nearside,
    path: *const c_char,
    pattern: *const c_char,
    flags: u32,
    callback: nearside_line_fn,
    user: *mut c_void,
) -> i64 {
    let query = nearside_query {
        paths: &path,
        paths_len: 1,
        patterns: &pattern,
        patterns_len: 1,
        include: std::ptr::null(),
        include_len: 0,
        exclude: std::ptr::null(),
        exclude_len: 0,
        flags,
        max_depth: 0,
        before: 0,
        after: 0,
        max_count: 0,
        failed: None,
    };
    // SAFETY: the caller's duty; the lists are of one string each.
    unsafe { nearside_search(drive, &query, callback, user) }
}

/// Which kind a mode is of.
fn kind(mode: u16) -> u32 {
    match mode & 0o170_000 {
        0o100_000 => NEARSIDE_REGULAR,
        0o040_000 => NEARSIDE_DIRECTORY,
        0o120_000 => NEARSIDE_SYMLINK,
        _ => NEARSIDE_SPECIAL,
    }
}

/// What lies at and below `path`, in byte order of names but in directories of more than 128 KiB, which have
/// an order of their own. `names` may be null: all. Returns how many the callback had.
///
/// What cannot be listed is told to `names->failed`; without that it is passed over, but for `path` itself.
///
/// # Safety
/// `drive` is an open session, `path` a terminated string; `names` is null or valid, its lists null or valid
/// for as many terminated strings as it says; `callback` and `names->failed` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearside_find(
    drive: *mut nearside,
    path: *const c_char,
    names: *const nearside_names,
    callback: nearside_entry_fn,
    user: *mut c_void,
) -> i64 {
    let body = |session: &mut Session<Box<dyn Transport>>| {
        // SAFETY: the caller's duty.
        let (root, names) = unsafe { (bytes(path)?.to_vec(), names.as_ref()) };
        let Some(callback) = callback else { return Err(Stop::Invalid("no callback")) };
        let (mut include, mut exclude) = (Vec::new(), Vec::new());
        if let Some(names) = names {
            // SAFETY: the caller's duty.
            (include, exclude) = unsafe {
                (strings(names.include, names.include_len)?, strings(names.exclude, names.exclude_len)?)
            };
        }
        let kinds = names.map_or(0, |names| names.kinds);
        let failed = names.and_then(|names| names.failed);
        let max_depth = depth(names.map_or(0, |names| names.max_depth));
        let target = Target::Tree { root: root.clone(), include, exclude, max_depth };
        let ask = Ask { target, operation: Operation::List, follow: false };
        let mut had = 0;
        let mut give = |found: &FileEntry<'_>| {
            if kinds != 0 && kinds & kind(found.mode) == 0 {
                return ControlFlow::Continue(());
            }
            had += 1;
            // SAFETY: the caller's duty; the entry and its name live through the call.
            then(unsafe { callback(user, &entry(found, true)) })
        };
        let done = session.stream(&ask, |record| match record {
            Record::Entry(found) => give(&found),
            Record::Name { path, kind } => give(&FileEntry::of_name(path, kind)),
            // SAFETY: the caller's duty.
            Record::Failed { path, failure } => unsafe { tell(failed, user, &path, &failure) },
            _ => ControlFlow::Continue(()),
        });
        match done {
            Err(nearside_fsrlib::Error::Refused(failure))
                if failed.is_some() && !is_of_the_request(&failure) =>
            {
                // SAFETY: the caller's duty.
                let _ = unsafe { tell(failed, user, &root, &failure) };
            }
            done => drop(done?),
        }
        Ok(had)
    };
    // SAFETY: the caller's duty.
    unsafe { call(drive, body) }
}
