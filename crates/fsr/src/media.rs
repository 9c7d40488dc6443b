//! What the retriever needs of the drive: reads, the time, and a place to yield.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// A read failed; what the store said, with where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MediaError(pub String);

/// A namespace's bytes, and the drive's clock. One per near-data command; futures are polled by the drive's
/// slice executor.
#[allow(async_fn_in_trait, reason = "used generically, never as a trait object")]
pub trait Media {
    /// Bytes that were read; goes back to where it came from when dropped.
    type Buffer: AsRef<[u8]>;
    /// Several reads at a time.
    type Batch: Batch<Buffer = Self::Buffer>;

    /// Bytes in the namespace.
    fn len(&self) -> u64;

    /// Whether there is nothing at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offsets and lengths of reads are multiples of this.
    fn block_size(&self) -> u32;

    /// Reads `len` bytes at `offset`, which lie within the namespace.
    ///
    /// # Errors
    /// [`MediaError`]: what the drive said.
    async fn read(&self, offset: u64, len: usize) -> Result<Self::Buffer, MediaError>;

    /// An empty batch.
    fn batch(&self) -> Self::Batch;

    /// Bytes, at most, of one of several reads, if it were started now: fewer where others' I/O would wait
    /// for it.
    fn longest_read(&self) -> u64 {
        u64::MAX
    }

    /// How often so far bytes that a [batch](Batch) lent were the medium's no more. Whoever has used a
    /// batch's bytes and sees this grow begins anew.
    fn lapses(&self) -> u64 {
        0
    }

    /// Nanoseconds of the drive's clock.
    fn now_ns(&self) -> u64;

    /// Yields where the command's slice of time is spent; otherwise goes on at once. Called between pieces of
    /// work of 20 µs or less.
    async fn yield_now(&self);

    /// Does work that takes longer and cannot be cut (compiling a pattern) where no I/O waits for it. As it
    /// stands: here and at once, for a media that nobody else waits for.
    async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        work()
    }

    /// Does work that may take seconds (compiling a program), where other [offloaded](Media::offload) work
    /// does not wait for it either. `None`: there is nobody to do it.
    async fn offload_long<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        Some(work())
    }
}

/// Reads in flight at the same time, which come back in any order.
#[allow(async_fn_in_trait, reason = "used generically, never as a trait object")]
pub trait Batch {
    /// Bytes that were read; goes back to where it came from when dropped.
    type Buffer;

    /// Starts a read, as [`Media::read`]; what it gives may be lent, where the medium has the bytes in memory
    /// (see [`Media::lapses`]). `true` where it is done already, so that to start more would only
    /// use more memory.
    fn start(&mut self, offset: u64, len: usize, tag: u32) -> bool;

    /// The next that is done, with its tag; `None` where none is in flight.
    async fn next(&mut self) -> Option<(u32, Result<Self::Buffer, MediaError>)>;

    /// How many were started and not yet handed over.
    fn in_flight(&self) -> usize;
}

/// Bytes in memory as a [`Media`]: for tests, tools and fuzzing. Always ready; its time is the number of
/// bytes read.
#[derive(Clone, Debug)]
pub struct MemoryMedia {
    bytes: Arc<RwLock<Vec<u8>>>,
    time: Arc<AtomicU64>,
    yields: Arc<Yields>,
}

/// How a command over a [`MemoryMedia`] has yielded.
#[derive(Debug, Default)]
struct Yields {
    count: AtomicU64,
    /// Bytes read since the last.
    since: AtomicU64,
    /// The most that were read between two.
    most: AtomicU64,
}

impl MemoryMedia {
    /// Over these bytes, of which those after the last whole 512 are out of reach.
    pub fn new(bytes: Vec<u8>) -> MemoryMedia {
        MemoryMedia { bytes: Arc::new(RwLock::new(bytes)), time: Arc::default(), yields: Arc::default() }
    }

    /// Changes bytes, as a host's write does; the caller tells the monitor before and after. Panics outside.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.bytes.write().unwrap_or_else(|e| e.into_inner())[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// How often a command has yielded, and the most bytes that were read between two yields: what a slice is
    /// at most, without a clock.
    pub fn yields(&self) -> (u64, u64) {
        (self.yields.count.load(Ordering::Relaxed), self.yields.most.load(Ordering::Relaxed))
    }

    fn get(&self, offset: u64, len: usize) -> Result<Vec<u8>, MediaError> {
        let since = self.yields.since.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
        self.yields.most.fetch_max(since, Ordering::Relaxed);
        self.time.fetch_add(len as u64, Ordering::Relaxed);
        let bytes = self.bytes.read().unwrap_or_else(|e| e.into_inner());
        let range = usize::try_from(offset).ok().and_then(|at| Some(at..at.checked_add(len)?));
        match range.and_then(|r| bytes.get(r)) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(MediaError(format!("{len} bytes at {offset} are not all there"))),
        }
    }
}

impl Media for MemoryMedia {
    type Buffer = Vec<u8>;
    type Batch = MemoryBatch;

    fn len(&self) -> u64 {
        self.bytes.read().unwrap_or_else(|e| e.into_inner()).len() as u64 / 512 * 512
    }

    fn block_size(&self) -> u32 {
        512
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, MediaError> {
        self.get(offset, len)
    }

    fn batch(&self) -> MemoryBatch {
        MemoryBatch { media: self.clone(), done: VecDeque::new() }
    }

    fn now_ns(&self) -> u64 {
        self.time.load(Ordering::Relaxed)
    }

    async fn yield_now(&self) {
        self.yields.count.fetch_add(1, Ordering::Relaxed);
        self.yields.since.store(0, Ordering::Relaxed);
    }
}

/// A batch over memory: done at once, in order.
#[derive(Debug)]
pub struct MemoryBatch {
    media: MemoryMedia,
    done: VecDeque<(u32, Result<Vec<u8>, MediaError>)>,
}

impl Batch for MemoryBatch {
    type Buffer = Vec<u8>;

    fn start(&mut self, offset: u64, len: usize, tag: u32) -> bool {
        let result = self.media.get(offset, len);
        self.done.push_back((tag, result));
        true
    }

    async fn next(&mut self) -> Option<(u32, Result<Vec<u8>, MediaError>)> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
