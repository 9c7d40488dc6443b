//! A store in a regular file or on a block device.
//!
//! Opened to read, it goes through the page cache, and keeps writers out by a shared lock. Opened to serve,
//! it takes the file for itself (an exclusive lock, and O_EXCL where it is a block device) and moves bytes
//! with O_DIRECT, so that the host's cache is the only one. A file or device that this machine has mounted or
//! otherwise in use is refused ([`nearside_dma::in_use`]), unless [`Beside`] says that it is wanted all the
//! same. Where the file system has no O_DIRECT at this block size, it serves through the page cache and says
//! so in [`File::notes`]. What the page cache holds of a file that is read and that nobody was writing when
//! it was opened can be lent where it lies ([`FileOptions::lends`], [`nearside_dma::CachedFile`]).
//!
//! Calls go by io_uring, or by positioned calls in the reactor's own thread where the system denies io_uring
//! ([`File::backend`]). Durability is fdatasync, and RWF_DSYNC for a single write. See [`crate::FileChannel`]
//! for a request's way.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nearside_dma::file::{self, Lock};
use nearside_dma::{CachedFile, IoBuffer, LentBytes, Memory, in_use, uring};

use crate::durable::Durable;
use crate::file_channel::FileChannel;
use crate::trouble::Log;
use crate::{Backing, Store};

/// What a [`File`] is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read, through the page cache, beside anybody.
    Read,
    /// To serve a drive: alone, with O_DIRECT where there is one.
    Serve,
    /// To serve a drive through the page cache.
    ServeBuffered,
}

/// How calls reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// By io_uring: none is waited for.
    Uring,
    /// By positioned reads and writes that block the reactor.
    Positioned,
}

/// Who else may use the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beside {
    /// While it is read nobody writes it, while it is written nobody uses it; else it is not opened.
    #[default]
    Nobody,
    /// Whoever does. Who only reads it must take nothing that was read before for what it is now, and hears
    /// in [`File::writer`] who writes it. Who writes it despite a mount or a loop device destroys what is on
    /// it; another program's lock is respected.
    Anybody,
}

/// How to open a [`File`].
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// 512 or 4096.
    pub block_size: u32,
    /// What for.
    pub access: Access,
    /// How; `None`: io_uring where it is to be had.
    pub backend: Option<Backend>,
    /// Beside whom.
    pub beside: Beside,
    /// Whether what the page cache holds of a file that nobody writes is lent where it lies. Who reads a page
    /// that has left it since waits for the medium: for a drive that serves its own process alone.
    pub lends: bool,
}

impl FileOptions {
    /// To read, in blocks of 512 bytes.
    pub fn read() -> FileOptions {
        let (access, beside) = (Access::Read, Beside::Nobody);
        FileOptions { block_size: 512, access, backend: None, beside, lends: false }
    }

    /// To serve a drive, in blocks of 512 bytes.
    pub fn serve() -> FileOptions {
        FileOptions { access: Access::Serve, ..FileOptions::read() }
    }
}

/// A store in a file or on a block device. Clones share it.
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) inner: Arc<OpenFile>,
}

#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: Arc<fs::File>,
    /// Another descriptor of a file that is written, opened at the same time. The kernel tells each
    /// descriptor once of a write-back that failed; no other call uses this one, so that it has not been
    /// told.
    pub(crate) witness: Option<Arc<fs::File>>,
    capacity: AtomicU64,
    pub(crate) block_size: u32,
    pub(crate) read_only: bool,
    pub(crate) direct: bool,
    /// `None`: to be seen once a call needs more than the page cache.
    pub(crate) backend: Option<Backend>,
    /// Calls that are to make bytes durable.
    pub(crate) durable: Durable,
    pub(crate) log: Log,
    /// The file as the page cache has it, once somebody has asked; `None` where it is not to be had so.
    pub(crate) cached: OnceLock<Option<Arc<CachedFile>>>,
    /// It is only read, nobody writes it that is known of, and its bytes may be lent.
    lends: bool,
    notes: Vec<String>,
    writer: Option<String>,
    /// The file that this one was unpacked of, with its lock: who would write that, or remove it, is to know
    /// that it is read.
    _packed: Option<File>,
}

impl File {
    /// Opens a file or block device. What is left of it after its last whole block is not part of the
    /// store.
    ///
    /// # Errors
    /// `ResourceBusy` where it is in use, with who uses it; `InvalidInput` for another block size, for what
    /// is neither file nor block device, and for less than a block; else the system's. All name the file.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> io::Result<File> {
        let path = path.as_ref();
        File::open_inner(path, options)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    fn open_inner(path: &Path, options: FileOptions) -> io::Result<File> {
        let FileOptions { block_size, access, backend, beside, lends } = options;
        let read_only = access == Access::Read;
        if block_size != 512 && block_size != 4096 {
            return Err(invalid(format!("a block has 512 or 4096 bytes, not {block_size}")));
        }
        let kind = fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(invalid("neither a regular file nor a block device".into()));
        }
        let lock = if read_only { Lock::Shared } else { Lock::Exclusive };
        // Before it is opened: the system's own refusal of a device does not say who has it.
        if beside == Beside::Nobody {
            in_use::refuse(path, lock)?;
        }
        let exclusive = if !read_only && kind.is_block_device() { file::O_EXCL } else { 0 };
        let open = |flags: i32| {
            fs::OpenOptions::new().read(true).write(!read_only).custom_flags(flags | exclusive).open(path)
        };
        let mut notes = Vec::new();
        let (file, direct) = match access {
            Access::Read | Access::ServeBuffered => (open(0)?, false),
            Access::Serve => {
                match open(file::O_DIRECT).and_then(|file| direct_works(&file, block_size).map(|()| file)) {
                    Ok(file) => (file, true),
                    Err(e) => {
                        let file = open(0)?;
                        notes.push(format!(
                        "{}: no O_DIRECT with blocks of {block_size} bytes ({e}): served through the page cache",
                        path.display()
                    ));
                        (file, false)
                    }
                }
            }
        };
        if !read_only
            && beside == Beside::Anybody
            && let Ok(Some(user)) = in_use::user(path)
        {
            let path = path.display();
            notes.push(format!(
                "{path}: {}, and is written all the same: what is on it may be destroyed",
                user.by
            ));
        }
        let writer = match (read_only, beside) {
            (true, Beside::Anybody) => in_use::writer(path, &file),
            _ => in_use::take(&file, lock).map(|()| None)?,
        };
        let witness = if read_only { None } else { Some(Arc::new(witness(path, &file)?)) };
        let capacity = whole_blocks(file::size(&file)?, block_size)?;
        let backend = backend_of(backend, access, &mut notes);
        Ok(File {
            inner: Arc::new(OpenFile {
                file: Arc::new(file),
                witness,
                capacity: capacity.into(),
                block_size,
                read_only,
                direct,
                backend,
                durable: Durable::default(),
                log: Log::of(path.to_owned()),
                cached: OnceLock::new(),
                lends: lends && read_only && writer.is_none(),
                notes,
                writer,
                _packed: None,
            }),
        })
    }

    /// A file that is this process's alone, read in the name of the one that it was unpacked of.
    pub(crate) fn nameless(file: fs::File, packed: &File, options: FileOptions) -> io::Result<File> {
        let FileOptions { block_size, backend, lends, .. } = options;
        let path = packed.path();
        let len = file::size(&file)?;
        let capacity = whole_blocks(len, block_size)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(File {
            inner: Arc::new(OpenFile {
                file: Arc::new(file),
                witness: None,
                capacity: capacity.into(),
                block_size,
                read_only: true,
                direct: false,
                backend,
                durable: Durable::default(),
                log: Log::of(path.to_owned()),
                cached: OnceLock::new(),
                lends,
                notes: Vec::new(),
                writer: None,
                _packed: Some(packed.clone()),
            }),
        })
    }

    /// How calls reach the kernel.
    pub fn backend(&self) -> Backend {
        let found = || uring::available().map_or(Backend::Positioned, |()| Backend::Uring);
        self.inner.backend.unwrap_or_else(found)
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// Who else writes the file, where it was opened to be read [beside anybody](Beside::Anybody) and
    /// somebody did.
    pub fn writer(&self) -> Option<&str> {
        self.inner.writer.as_deref()
    }

    /// `len` bytes at `offset` where the page cache has them ([`FileOptions::lends`]); `None`: they have to
    /// be read. Who has used them asks [`File::has_lapsed`] before believing them.
    pub fn lend(&self, offset: u64, len: usize) -> Option<LentBytes> {
        self.inner.lend(offset, len)
    }

    /// Whether bytes were lent that are the file's no more: it has become shorter.
    pub fn has_lapsed(&self) -> bool {
        self.inner.has_lapsed()
    }

    /// What a user should know: a fallback and its reason, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.inner.log.path
    }
}

impl OpenFile {
    #[inline]
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// `len` bytes at `offset` where they lie ([`FileOptions::lends`]); `None`: they have to be read.
    pub(crate) fn lend(&self, offset: u64, len: usize) -> Option<LentBytes> {
        self.cached()?.lend(offset, len)
    }

    /// Whether bytes were lent that are the file's no more.
    pub(crate) fn has_lapsed(&self) -> bool {
        self.cached.get().and_then(Option::as_ref).is_some_and(|cached| cached.has_failed())
    }

    /// The file as the page cache has it, where nobody writes it.
    fn cached(&self) -> Option<&Arc<CachedFile>> {
        let map = || CachedFile::map(&self.file, self.capacity()).ok().map(Arc::new);
        if self.lends { self.cached.get_or_init(map).as_ref() } else { None }
    }
}

/// Bytes of a store in a file of so many.
fn whole_blocks(len: u64, block_size: u32) -> io::Result<u64> {
    match len - len % u64::from(block_size) {
        0 => Err(invalid(format!("it has {len} bytes: not one block"))),
        capacity => Ok(capacity),
    }
}

/// How calls are to reach the kernel. Who reads through the page cache may never need to know: a ring takes
/// longer to make than a small file to search.
fn backend_of(wanted: Option<Backend>, access: Access, notes: &mut Vec<String>) -> Option<Backend> {
    match (wanted, access) {
        (None, Access::Serve | Access::ServeBuffered) => Some(match uring::available() {
            Ok(()) => Backend::Uring,
            Err(e) => {
                notes.push(format!("io_uring is denied ({e}): positioned reads and writes"));
                Backend::Positioned
            }
        }),
        (wanted, _) => wanted,
    }
}

/// Another descriptor of an open file.
fn witness(path: &Path, file: &fs::File) -> io::Result<fs::File> {
    let witness = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let (a, b) = (witness.metadata()?, file.metadata()?);
    if (a.dev(), a.ino()) != (b.dev(), b.ino()) {
        return Err(io::Error::other("another file has just taken its place"));
    }
    Ok(witness)
}

/// Reads the first blocks as a channel will: a file system may take the flag and refuse the alignment.
fn direct_works(file: &fs::File, block_size: u32) -> io::Result<()> {
    let mut buffer = IoBuffer::new(block_size as usize)?;
    for block in 0..2 {
        file.read_at(&mut buffer, block * u64::from(block_size))?;
    }
    Ok(())
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// Byte for byte the store's, for who has the kernel hand them on.
impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}

impl Store for File {
    type Channel = FileChannel;

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    /// A file is cut off or made longer, with a hole. A block device is as long as it is: it can be looked at
    /// again.
    fn resize(&self, bytes: Option<u64>) -> io::Result<u64> {
        let OpenFile { file, block_size, read_only, lends, log, .. } = &*self.inner;
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", log.path.display()));
        if *lends {
            return Err(named(io::Error::new(io::ErrorKind::Unsupported, "its bytes are lent")));
        }
        if let Some(bytes) = bytes {
            if *read_only {
                return Err(named(invalid("it is only read".into())));
            }
            if !bytes.is_multiple_of(u64::from(*block_size)) {
                return Err(named(invalid(format!("{bytes} bytes are not whole blocks of {block_size}"))));
            }
            whole_blocks(bytes, *block_size).map_err(named)?;
            if file.metadata().map_err(named)?.is_file() {
                file.set_len(bytes).map_err(named)?;
            }
        }
        let is = whole_blocks(file::size(file).map_err(named)?, *block_size).map_err(named)?;
        if let Some(bytes) = bytes.filter(|bytes| *bytes != is) {
            return Err(named(invalid(format!("it has {is} bytes, and is no file that could have {bytes}"))));
        }
        self.inner.capacity.store(is, Ordering::Relaxed);
        Ok(is)
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size
    }

    fn read_only(&self) -> bool {
        self.inner.read_only
    }

    fn backing(&self) -> Option<Backing> {
        let is_device = self.inner.file.metadata().is_ok_and(|file| file.file_type().is_block_device());
        Some(if is_device { Backing::BlockDevice } else { Backing::File })
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<FileChannel> {
        FileChannel::new(self.inner.clone(), memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, Completion, Data, Operation, StoreError, Submitted, Token};
    use nearside_clock::Nanos;

    fn run(channel: &mut FileChannel, operation: Operation) -> Completion {
        let len = operation.range().map_or(0, |(_, len)| len as usize);
        let data = match operation {
            Operation::Read { .. } | Operation::Write { .. } => Data::Owned(IoBuffer::new(len).unwrap()),
            _ => Data::None,
        };
        let mut done = match channel.submit(operation, data, Token(3), Nanos(0)) {
            Submitted::Done(completion) => return completion,
            Submitted::Pending => None,
        };
        while done.is_none() {
            channel.poll(Nanos(0), &mut |token, completion| {
                assert_eq!(token, Token(3));
                done = Some(completion);
            });
        }
        done.unwrap()
    }

    fn beside(access: Access, beside: Beside) -> FileOptions {
        FileOptions { access, beside, lends: true, ..FileOptions::read() }
    }

    #[test]
    fn a_reader_writes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let reading = File::open(file.path(), FileOptions::read()).unwrap();
        assert!(reading.read_only());
        let mut channel = reading.channel(Arc::new(Memory::new())).unwrap();
        let write = Operation::Write { offset: 0, len: 512, fua: false };
        let refused = run(&mut channel, write);
        assert_eq!(refused.result, Err(StoreError::ReadOnly));
        assert!(refused.buffer.is_some());
        let deallocate = Operation::Deallocate { offset: 0, len: 512 };
        assert_eq!(run(&mut channel, deallocate).result, Err(StoreError::ReadOnly));
        run(&mut channel, Operation::Read { offset: 0, len: 512 }).result.unwrap();
    }

    #[test]
    fn one_writes_or_many_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let open = |access, with| File::open(file.path(), beside(access, with));
        let busy = |opened: io::Result<File>| {
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
            assert!(error.to_string().contains("this process has it locked"), "{error}");
        };
        let readers = [open(Access::Read, Beside::Nobody), open(Access::Read, Beside::Anybody)];
        for reader in &readers {
            assert_eq!(reader.as_ref().unwrap().writer(), None);
        }
        for access in [Access::Serve, Access::ServeBuffered] {
            // Another program's lock is not a mount: nobody goes on despite it.
            busy(open(access, Beside::Nobody));
            busy(open(access, Beside::Anybody));
        }
        drop(readers);
        let writer = open(Access::Serve, Beside::Nobody).unwrap();
        busy(open(Access::Read, Beside::Nobody));
        busy(open(Access::Serve, Beside::Nobody));
        let aware = open(Access::Read, Beside::Anybody).unwrap();
        assert_eq!(aware.writer(), Some("this process has it locked"));
        drop(writer);
        // It took no lock that would keep the next writer out.
        open(Access::Serve, Beside::Nobody).unwrap();
    }

    #[test]
    fn only_what_nobody_writes_is_lent() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 3) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        for access in [Access::Read, Access::Serve, Access::ServeBuffered] {
            for with in [Beside::Nobody, Beside::Anybody] {
                let store = File::open(file.path(), beside(access, with)).unwrap();
                let mut channel = store.channel(Arc::default()).unwrap();
                let lent = channel.lend(4096, 200_000);
                assert_eq!(lent.is_some(), access == Access::Read);
                assert!(lent.is_none_or(|lent| lent.as_ref() == &bytes[4096..204_096]));
            }
        }
        let unasked = File::open(file.path(), FileOptions::read()).unwrap();
        assert!(unasked.channel(Arc::default()).unwrap().lend(4096, 512).is_none());
        drop(unasked);
        let _writer = File::open(file.path(), beside(Access::Serve, Beside::Nobody)).unwrap();
        let reader = File::open(file.path(), beside(Access::Read, Beside::Anybody)).unwrap();
        assert!(reader.channel(Arc::default()).unwrap().lend(4096, 512).is_none());
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error() {
        for backend in [None, Some(Backend::Positioned)] {
            for access in [Access::Read, Access::Serve] {
                let file = tempfile::NamedTempFile::new().unwrap();
                // Written: a hole is in no page cache, and is not lent.
                std::fs::write(file.path(), vec![7; 1 << 20]).unwrap();
                let options = FileOptions { access, backend, lends: true, ..FileOptions::read() };
                let mut channel = File::open(file.path(), options).unwrap().channel(Arc::default()).unwrap();
                let lent = channel.lend(0, 16384);
                assert_eq!(lent.is_some(), access == Access::Read);
                file.as_file().set_len(4096).unwrap();
                assert_eq!(channel.lapses(), lent.is_some().into());
                assert!(lent.is_none_or(|lent| lent.as_ref()[8192] == 0));
                assert!(channel.lend(0, 512).is_none());
                let completion = run(&mut channel, Operation::Read { offset: 0, len: 16384 });
                let error = completion.result.unwrap_err().to_string();
                assert!(error.contains("shorter"), "{error}");
                assert_eq!(completion.buffer.unwrap().len(), 16384);
            }
        }
    }
}
