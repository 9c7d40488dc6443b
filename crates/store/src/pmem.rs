//! A store in a file that is mapped: persistent memory, or any file as if it were.
//!
//! Every operation is done when `submit` returns: a copy between the mapping and host memory, without a
//! block layer, a page cache's call or a lock between. Whatever else maps the file sees the same bytes, and
//! the store those that another stores there. How a write becomes durable depends on what the kernel says of
//! the mapping ([`Medium`], [`Pmem::medium`]):
//!
//! - on persistent memory (a file on a DAX file system, which is then mapped with MAP_SYNC, or a Device-DAX
//!   character device) each write's cache lines are written back, with a fence, before it completes, as
//!   Linux's own driver does: what has completed is durable, and a flush has only freed room to see to;
//! - anywhere else the bytes are the page cache's: a flush is fdatasync(2), a write with FUA msync(2), and
//!   what has completed is as durable as what the file lies on makes it (in tmpfs: until the machine ends).
//!
//! A page of a file that was shortened, or for which there is no room, raises a signal that the mapping is
//! under guard for. The operation that met it asks then what is the matter, and fails by itself; others go
//! on with a new mapping. A page that is not in memory yet is fetched while the reactor waits.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nearside_clock::Nanos;
use nearside_dma::file::{Lock, is_full, is_unsupported};
use nearside_dma::persistent::{Medium, mappable, punch, reserve};
use nearside_dma::{Memory, PAGE_SIZE, Reach, Region, in_use};

use crate::check::check;
use crate::dram::{DISCARD_FROM, transfer};
use crate::durable::Durable;
use crate::trouble::Log;
use crate::{
    Access, Backing, Beside, Channel, Completion, Data, FileOptions, Operation, Store, StoreError, Submitted,
    Token,
};

/// How often an operation is tried again whose mapping was lost, by its own doing or by another's.
const TRIES: usize = 16;

/// A store in a mapped file. Clones share it.
#[derive(Clone, Debug)]
pub struct Pmem {
    inner: Arc<Mapped>,
}

/// The file, as it was mapped at some time.
#[derive(Debug)]
struct Mapping {
    region: Region,
    /// Bytes that the file had of the store's.
    len: u64,
}

#[derive(Debug)]
struct Mapped {
    file: fs::File,
    capacity: u64,
    block_size: u32,
    read_only: bool,
    medium: Medium,
    mapping: Mutex<Arc<Mapping>>,
    /// How often it was mapped anew.
    version: AtomicU64,
    /// Calls that are to make bytes durable.
    durable: Durable,
    /// Room was freed, on persistent memory: what the file system knows of it is not durable yet.
    freed: AtomicBool,
    log: Log,
    notes: Vec<String>,
}

impl Pmem {
    /// Opens a file, or a Device-DAX character device. What is left of it after its last whole block is not
    /// part of the store. Of `options` the block size counts, whether it is only read, and beside whom.
    ///
    /// # Errors
    /// `ResourceBusy` where it is in use, with who uses it; `InvalidInput` for another block size, for what
    /// is neither file nor such a device, and for less than a block; else the system's. All name the file.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> io::Result<Pmem> {
        let path = path.as_ref();
        Pmem::open_inner(path, options)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    }

    fn open_inner(path: &Path, options: FileOptions) -> io::Result<Pmem> {
        let FileOptions { block_size, access, beside, .. } = options;
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
        if block_size != 512 && block_size != 4096 {
            return Err(invalid(format!("a block has 512 or 4096 bytes, not {block_size}")));
        }
        let read_only = access == Access::Read;
        let kind = fs::metadata(path)?.file_type();
        if kind.is_block_device() {
            return Err(invalid("a block device has no memory to map: see file:PATH".into()));
        }
        if !kind.is_file() && !kind.is_char_device() {
            return Err(invalid("neither a regular file nor a Device-DAX character device".into()));
        }
        let lock = if read_only { Lock::Shared } else { Lock::Exclusive };
        if beside == Beside::Nobody {
            in_use::refuse(path, lock)?;
        }
        let file = fs::OpenOptions::new().read(true).write(!read_only).open(path)?;
        let bytes = mappable(&file)?;
        let writer = match (read_only, beside) {
            (true, Beside::Anybody) => in_use::writer(path, &file),
            _ => in_use::take(&file, lock).map(|()| None)?,
        };
        let capacity = bytes - bytes % u64::from(block_size);
        if capacity == 0 {
            return Err(invalid(format!("it has {bytes} bytes: not one block")));
        }
        let (mapping, medium) = map(&file, capacity, !read_only)?;
        let mut notes = vec![durability(path, medium, read_only)];
        notes.extend(writer.map(|writer| format!("{}: {writer}", path.display())));
        Ok(Pmem {
            inner: Arc::new(Mapped {
                file,
                capacity,
                block_size,
                read_only,
                medium,
                mapping: Mutex::new(Arc::new(mapping)),
                version: AtomicU64::new(0),
                durable: Durable::default(),
                freed: AtomicBool::new(false),
                log: Log::of(path.to_owned()),
                notes,
            }),
        })
    }

    /// What lies under the mapping, and so how what was written becomes durable.
    pub fn medium(&self) -> Medium {
        self.inner.medium
    }

    /// Takes the mapping for another medium than the kernel has said: persistent memory that it knows nothing
    /// of, and tests.
    ///
    /// # Errors
    /// `InvalidInput` where the store is in use already.
    pub fn taken_for(mut self, medium: Medium) -> io::Result<Pmem> {
        let shared = || io::Error::new(io::ErrorKind::InvalidInput, "the store has channels, or clones");
        let inner = Arc::get_mut(&mut self.inner).ok_or_else(shared)?;
        inner.medium = medium;
        inner.notes[0] = durability(&inner.log.path, medium, inner.read_only);
        Ok(self)
    }

    /// What a user should know, one sentence each: first how what was written becomes durable.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }
}

/// How a store's writes become durable, in words.
fn durability(path: &Path, medium: Medium, read_only: bool) -> String {
    let path = path.display();
    match medium {
        _ if read_only => format!("{path}: mapped to be read"),
        Medium::Memory(by) => format!(
            "{path}: persistent memory: each write is durable when it completes, by {} and a fence",
            by.name()
        ),
        Medium::PageCache => format!(
            "{path}: no persistent memory (it has no MAP_SYNC): durable by fdatasync and msync, as what the file lies \
             on makes it"
        ),
    }
}

fn map(file: &fs::File, capacity: u64, writable: bool) -> io::Result<(Mapping, Medium)> {
    let len = usize::try_from(capacity).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let (region, medium) = Region::of_file(file, len, writable)?;
    // After it was mapped: what the file has lost since raises the guard.
    let len = mappable(file)?.min(capacity);
    Ok((Mapping { region, len }, medium))
}

impl Mapped {
    fn current(&self) -> (Arc<Mapping>, u64) {
        let mapping = self.mapping.lock().unwrap_or_else(|e| e.into_inner());
        (mapping.clone(), self.version.load(Ordering::Acquire))
    }

    /// Maps the file anew in the place of a mapping, unless another has.
    fn renew(&self, lost: &Arc<Mapping>) -> io::Result<()> {
        let mut mapping = self.mapping.lock().unwrap_or_else(|e| e.into_inner());
        if Arc::ptr_eq(&mapping, lost) {
            *mapping = Arc::new(map(&self.file, self.capacity, !self.read_only)?.0);
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Asks for what an operation needs before it touches it, and says what is the matter.
    #[cold]
    fn prepare(&self, operation: &Operation, mapping: &Arc<Mapping>) -> Result<Arc<Mapping>, StoreError> {
        let (offset, len) = operation.range().unwrap_or((0, 0));
        let size = mappable(&self.file).map_err(|e| operation.failed(e))?;
        if size < offset + len {
            return Err(operation.failed("the file has become shorter"));
        }
        if mapping.len < offset + len || mapping.region.has_failed() {
            self.renew(mapping).map_err(|e| operation.failed(e))?;
        }
        if operation.mutates() && len > 0 {
            match reserve(&self.file, offset, len) {
                Err(e) if is_full(&e) => return Err(operation.full(e)),
                Err(e) if !is_unsupported(&e) => return Err(operation.failed(e)),
                _ => {}
            }
        }
        let (mapping, _) = self.current();
        let populated = mapping.region.populate(offset as usize, len as usize, operation.mutates());
        populated.map_err(|e| operation.failed(format_args!("its pages cannot be had: {e}")))?;
        Ok(mapping)
    }

    /// Sets bytes to zero; whole pages go back to the file system where that is wanted, or spares writing
    /// many. Whether some did.
    fn zero(&self, region: &Region, operation: &Operation, thin: bool) -> Result<bool, StoreError> {
        let (offset, len) = operation.range().unwrap_or((0, 0));
        let (start, end) = (offset as usize, (offset + len) as usize);
        let first = start.next_multiple_of(PAGE_SIZE).min(end);
        let last = (end / PAGE_SIZE * PAGE_SIZE).max(first);
        if (thin || len >= DISCARD_FROM) && last > first {
            match punch(&self.file, first as u64, (last - first) as u64) {
                Ok(()) => {
                    self.store_zeros(region, start, first);
                    self.store_zeros(region, last, end);
                    return Ok(true);
                }
                Err(e) if is_unsupported(&e) => {}
                Err(e) => return Err(operation.failed(e)),
            }
        }
        self.store_zeros(region, start, end);
        Ok(false)
    }

    fn store_zeros(&self, region: &Region, start: usize, end: usize) {
        if end > start {
            region.fill(start, end - start, 0);
            self.write_back(region, start, end - start);
        }
    }

    /// Makes what this thread has stored durable, on persistent memory.
    fn write_back(&self, region: &Region, offset: usize, len: usize) {
        if let Medium::Memory(by) = self.medium {
            region.write_back(offset, len, by);
        }
    }

    /// Makes all that was written durable. A file that was shortened has lost some of it.
    fn flush(&self) -> Result<(), StoreError> {
        let operation = Operation::Flush;
        if mappable(&self.file).map_err(|e| operation.failed(e))? < self.capacity {
            return Err(operation.failed("the file has become shorter"));
        }
        let by_kernel = match self.medium {
            Medium::PageCache => !self.read_only,
            Medium::Memory(_) => self.freed.swap(false, Ordering::AcqRel),
        };
        if by_kernel { self.settle(&operation, || self.file.sync_data()) } else { Ok(()) }
    }

    /// One call that is to make bytes durable: it counts if those beside it went well.
    fn settle(&self, operation: &Operation, call: impl FnOnce() -> io::Result<()>) -> Result<(), StoreError> {
        let begun = self.durable.begin();
        let result = call();
        let unsettled = self.durable.end(begun, result.is_err());
        result.map_err(|e| operation.failed(e))?;
        match self.durable.settle(unsettled) {
            true => Ok(()),
            false => Err(operation.failed(
                "an earlier call to make bytes durable failed, or one beside it: what was lost is not known",
            )),
        }
    }
}

impl Store for Pmem {
    type Channel = PmemChannel;

    fn capacity(&self) -> u64 {
        self.inner.capacity
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size
    }

    fn read_only(&self) -> bool {
        self.inner.read_only
    }

    fn backing(&self) -> Option<Backing> {
        Some(match self.inner.medium {
            Medium::Memory(_) => Backing::PersistentMemory,
            Medium::PageCache => Backing::MappedFile,
        })
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<PmemChannel> {
        let (mapping, version) = self.inner.current();
        Ok(PmemChannel { store: self.inner.clone(), mapping, version, reach: Reach::new(memory) })
    }
}

/// A way into a [`Pmem`].
pub struct PmemChannel {
    store: Arc<Mapped>,
    mapping: Arc<Mapping>,
    version: u64,
    reach: Reach,
}

impl PmemChannel {
    /// Does an operation on the bytes of a mapping, which may be lost meanwhile.
    fn attempt(&mut self, operation: &Operation, data: &mut Data<'_>) -> Result<(), StoreError> {
        let (store, region) = (&self.store, &self.mapping.region);
        let (offset, len) = operation.range().unwrap_or((0, 0));
        let (at, bytes) = (offset as usize, len as usize);
        match *operation {
            Operation::Read { .. } => transfer(region, operation, data, &mut self.reach),
            Operation::Write { fua, .. } => {
                transfer(region, operation, data, &mut self.reach)?;
                store.write_back(region, at, bytes);
                match store.medium {
                    Medium::PageCache if fua && len > 0 => store.settle(operation, || region.sync(at, bytes)),
                    _ => Ok(()),
                }
            }
            Operation::WriteZeroes { fua, .. } => {
                let freed = store.zero(region, operation, false)?;
                match store.medium {
                    Medium::PageCache if fua => store.settle(operation, || store.file.sync_data()),
                    Medium::Memory(_) if fua && freed => store.settle(operation, || store.file.sync_data()),
                    _ => {
                        store.freed.fetch_or(freed, Ordering::AcqRel);
                        Ok(())
                    }
                }
            }
            Operation::Deallocate { .. } => {
                let freed = store.zero(region, operation, true)?;
                store.freed.fetch_or(freed, Ordering::AcqRel);
                Ok(())
            }
            Operation::Flush => store.flush(),
        }
    }

    fn run(&mut self, operation: &Operation, data: &mut Data<'_>) -> Result<(), StoreError> {
        if self.version != self.store.version.load(Ordering::Acquire) {
            (self.mapping, self.version) = self.store.current();
        }
        let end = operation.range().map_or(0, |(offset, len)| offset + len);
        if end > self.mapping.len {
            self.mapping = self.store.prepare(operation, &self.mapping)?;
        }
        for _ in 0..TRIES {
            let result = self.attempt(operation, data);
            if !self.mapping.region.has_failed() {
                return result;
            }
            // What was copied may be nobody's: whatever it came to does not count.
            self.mapping = self.store.prepare(operation, &self.mapping)?;
        }
        Err(operation.failed("its mapping was lost again and again"))
    }
}

impl Channel for PmemChannel {
    fn submit(&mut self, operation: Operation, mut data: Data<'_>, _token: Token, now: Nanos) -> Submitted {
        let Mapped { capacity, block_size, read_only, .. } = *self.store;
        let result = check(&operation, &data, capacity, block_size, read_only)
            .and_then(|()| self.run(&operation, &mut data));
        if let Err(error) = &result {
            self.store.log.report_error(error, &operation, now);
        }
        Submitted::done(result, data)
    }

    fn poll(&mut self, _now: Nanos, _sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        None
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn memory_changed(&mut self) {
        self.reach.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_dma::IoBuffer;
    use nearside_dma::persistent::WriteBack;

    fn run(channel: &mut PmemChannel, operation: Operation, byte: u8) -> Completion {
        let data = match operation {
            Operation::Read { len, .. } | Operation::Write { len, .. } => {
                let mut buffer = IoBuffer::new(len as usize).unwrap();
                buffer.fill(byte);
                Data::Owned(buffer)
            }
            _ => Data::None,
        };
        match channel.submit(operation, data, Token(0), Nanos(0)) {
            Submitted::Done(completion) => completion,
            Submitted::Pending => panic!("a mapping is never pending"),
        }
    }

    fn read(channel: &mut PmemChannel, offset: u64) -> Result<u8, StoreError> {
        let completion = run(channel, Operation::Read { offset, len: 4096 }, 0xee);
        let buffer = completion.buffer.unwrap();
        assert!(buffer.iter().all(|byte| *byte == buffer[0]));
        completion.result.map(|()| buffer[0])
    }

    fn of_sevens(bytes: usize) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        fs::write(file.path(), vec![7; bytes]).unwrap();
        file
    }

    #[test]
    fn what_an_application_stores_is_read_and_what_is_written_it_sees() {
        let file = of_sevens(1 << 20);
        let (own, _) = Region::of_file(file.as_file(), 1 << 20, true).unwrap();
        for access in [Access::Read, Access::Serve] {
            let options = FileOptions { access, ..FileOptions::read() };
            let store = Pmem::open(file.path(), options).unwrap();
            let mut channel = store.channel(Arc::default()).unwrap();
            own.fill(8192, 4096, 9);
            assert_eq!((read(&mut channel, 4096), read(&mut channel, 8192)), (Ok(7), Ok(9)));
            let written = run(&mut channel, Operation::Write { offset: 4096, len: 4096, fua: true }, 5);
            let mut byte = [0];
            own.read(4096, &mut byte);
            let expected = if access == Access::Read { (Err(StoreError::ReadOnly), 7) } else { (Ok(()), 5) };
            assert_eq!((written.result, byte[0]), expected);
            assert_eq!(run(&mut channel, Operation::Flush, 0).result, Ok(()));
        }
    }

    /// The error is that of the command which met it: on its channel and beside it all goes on, also where
    /// the file comes back.
    #[test]
    fn a_file_that_becomes_shorter_is_an_error_of_who_goes_there() {
        let memory = WriteBack::of_this_processor().map(Medium::Memory);
        for medium in [Some(Medium::PageCache), memory].into_iter().flatten() {
            for access in [Access::Read, Access::Serve] {
                let file = of_sevens(1 << 20);
                let options = FileOptions { access, ..FileOptions::read() };
                let store = Pmem::open(file.path(), options).unwrap().taken_for(medium).unwrap();
                let [mut one, mut two] = [0, 1].map(|_| store.channel(Arc::default()).unwrap());
                assert_eq!((read(&mut one, 500 << 10), read(&mut two, 0)), (Ok(7), Ok(7)));
                file.as_file().set_len(64 << 10).unwrap();
                for channel in [&mut one, &mut two] {
                    for (offset, there) in
                        [(500 << 10, false), (0, true), (64 << 10, false), (60 << 10, true)]
                    {
                        let got = read(channel, offset);
                        assert_eq!(got.is_ok(), there, "{offset}: {got:?}");
                        assert!(got.is_ok_and(|byte| byte == 7) || !there);
                        let write = Operation::Write { offset, len: 4096, fua: true };
                        let written = run(channel, write, 7).result;
                        assert_eq!(
                            written.is_ok(),
                            there && access == Access::Serve,
                            "{offset}: {written:?}"
                        );
                    }
                    let flushed = run(channel, Operation::Flush, 0).result.unwrap_err().to_string();
                    assert!(flushed.contains("shorter"), "{flushed}");
                }
                file.as_file().set_len(1 << 20).unwrap();
                assert_eq!((read(&mut one, 500 << 10), read(&mut two, 0)), (Ok(0), Ok(7)));
                assert_eq!(run(&mut two, Operation::Flush, 0).result, Ok(()));
            }
        }
    }

    /// Zeros that are nobody's are never taken for the file's, whoever met the signal.
    #[test]
    fn who_reads_beside_the_signal_gets_bytes_of_the_file() {
        let file = of_sevens(1 << 20);
        let store = Pmem::open(file.path(), FileOptions::serve()).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut channel = store.channel(Arc::default()).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(read(&mut channel, 4096), Ok(7));
                    }
                });
            }
            let mut channel = store.channel(Arc::default()).unwrap();
            for round in 0..200 {
                file.as_file().set_len(64 << 10).unwrap();
                assert!(read(&mut channel, (64 + round) << 10 & !4095).is_err(), "round {round}");
                file.as_file().set_len(1 << 20).unwrap();
                assert_eq!(read(&mut channel, 512 << 10), Ok(0));
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn what_is_no_file_that_can_be_mapped_is_refused() {
        for path in ["/dev/null", "/dev/shm", "/proc/self/no", "/dev/loop0"] {
            let error = Pmem::open(path, FileOptions::serve()).unwrap_err().to_string();
            assert!(error.contains(path), "{error}");
        }
        let file = of_sevens(100);
        assert!(Pmem::open(file.path(), FileOptions::serve()).is_err());
        let file = of_sevens(8292);
        let odd = FileOptions { block_size: 1024, ..FileOptions::serve() };
        assert!(Pmem::open(file.path(), odd).is_err());
        let store = Pmem::open(file.path(), FileOptions::serve()).unwrap();
        assert_eq!((store.capacity(), store.medium()), (8192, Medium::PageCache));
        assert_eq!(store.backing(), Some(Backing::MappedFile));
        assert!(Pmem::open(file.path(), FileOptions::read()).is_err(), "a reader beside a writer");
        assert!(store.clone().taken_for(Medium::PageCache).is_err());
    }
}
