//! The floor: the least that two threads need to pass block requests through shared memory.
//!
//! One ring of 64-byte slots, one client, one server, nothing of NVMe. A request and its answer share a slot,
//! whose first word says whose turn it is, so that a round trip costs two transfers of one cache line and the
//! copy. The server does what a drive must do at least: take a batch, ask the cache for the data, copy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_dma::Region;

const SLOT: usize = 64;

/// What to do. Offsets and lengths are trusted, unlike a drive's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Memory to store; store to memory otherwise.
    pub write: bool,
    /// Bytes.
    pub len: u32,
    /// First byte in the store.
    pub store: u64,
    /// First byte in the memory.
    pub memory: u64,
}

/// The word of slot `n % slots` that says that request `n` waits; one more says that it is done.
#[inline]
fn posted(n: u64, mask: u64) -> u32 {
    // A lap is two steps; wrapping is harmless, as the two sides are never more than a lap apart.
    ((n & !mask) >> mask.count_ones() << 1) as u32 | 1
}

/// The client's end.
#[derive(Debug)]
pub struct RingClient {
    ring: Arc<Region>,
    mask: u64,
    next: u64,
    oldest: u64,
}

/// The server's end.
#[derive(Debug)]
pub struct RingServer {
    ring: Arc<Region>,
    mask: u64,
    next: u64,
}

/// Requests that a server takes at once.
const BATCH: u64 = 32;
/// Lines asked for ahead of a copy; beyond them the hardware follows.
const PREFETCH_LINES: usize = 16;

/// A ring of `slots`, a power of two from 2 on.
///
/// # Errors
/// The system's: no memory, no descriptors.
pub fn ring(slots: usize) -> std::io::Result<(RingClient, RingServer)> {
    assert!(slots.is_power_of_two() && slots > 1);
    let ring = Arc::new(Region::shared("ring", slots * SLOT)?);
    let mask = slots as u64 - 1;
    Ok((RingClient { ring: ring.clone(), mask, next: 0, oldest: 0 }, RingServer { ring, mask, next: 0 }))
}

impl RingClient {
    /// Posts a request; false where the ring is full.
    #[inline]
    pub fn submit(&mut self, request: &Request) -> bool {
        if self.next - self.oldest > self.mask {
            return false;
        }
        let at = (self.next & self.mask) as usize * SLOT;
        self.ring
            .word64(at + 8)
            .store(u64::from(request.len) << 1 | u64::from(request.write), Ordering::Relaxed);
        self.ring.word64(at + 16).store(request.store, Ordering::Relaxed);
        self.ring.word64(at + 24).store(request.memory, Ordering::Relaxed);
        // Release: the server's acquiring load of the word makes it see the request.
        self.ring.word32(at).store(posted(self.next, self.mask), Ordering::Release);
        self.next += 1;
        true
    }

    /// Whether the oldest request that is out is done; takes it back. Requests end in order.
    #[inline]
    pub fn complete(&mut self) -> bool {
        if self.oldest == self.next {
            return false;
        }
        let word = self.ring.word32((self.oldest & self.mask) as usize * SLOT);
        let done = word.load(Ordering::Acquire) == posted(self.oldest, self.mask) + 1;
        self.oldest += u64::from(done);
        done
    }

    /// Requests that are out.
    pub fn outstanding(&self) -> usize {
        (self.next - self.oldest) as usize
    }
}

impl RingServer {
    /// Serves what waits, at most a batch: copies between `store` and `memory`. Returns how many.
    #[inline]
    pub fn serve(&mut self, store: &Region, memory: &Region) -> usize {
        let mut requests = [Request { write: false, len: 0, store: 0, memory: 0 }; BATCH as usize];
        let mut count = 0;
        while count < BATCH.min(self.mask + 1) {
            let n = self.next + count;
            let at = (n & self.mask) as usize * SLOT;
            if self.ring.word32(at).load(Ordering::Acquire) != posted(n, self.mask) {
                break;
            }
            let what = self.ring.word64(at + 8).load(Ordering::Relaxed);
            let request = Request {
                write: what & 1 != 0,
                len: (what >> 1) as u32,
                store: self.ring.word64(at + 16).load(Ordering::Relaxed),
                memory: self.ring.word64(at + 24).load(Ordering::Relaxed),
            };
            if !request.write {
                for line in 0..(request.len as usize / 64).min(PREFETCH_LINES) {
                    store.prefetch(request.store as usize + 64 * line);
                }
            }
            requests[count as usize] = request;
            count += 1;
        }
        for (i, r) in requests[..count as usize].iter().enumerate() {
            let (at, len) = (r.store as usize, r.len as usize);
            if r.write {
                Region::copy(memory, r.memory as usize, store, at, len);
            } else {
                Region::copy(store, at, memory, r.memory as usize, len);
            }
            let n = self.next + i as u64;
            // Release: the data are in place before the client sees that they are.
            self.ring
                .word32((n & self.mask) as usize * SLOT)
                .store(posted(n, self.mask) + 1, Ordering::Release);
        }
        self.next += count;
        count as usize
    }
}
