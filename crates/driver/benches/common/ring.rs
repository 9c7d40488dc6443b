//! The floor: the least that two threads need to pass block requests through shared memory.
//!
//! Requests in slots of 32 bytes, two a cache line, each with a mark that says whose turn it is: no index is
//! passed beside them. Requests end in order, so that one count is all answers; the server writes it once for
//! up to eight of them, and at once where no more wait. One client, one server, huge pages where there are
//! some, nothing of NVMe. The server does what a drive must do at least: take a batch, ask the cache for the
//! data, copy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_dma::Region;

const SLOT: usize = 32;
/// The count of answers lies before the slots, away from the line beside them that some CPUs fetch with it.
const ANSWERED: usize = 0;
const SLOTS: usize = 128;

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

/// The first word of slot `n % slots` where request `n` waits: whose lap it is, the direction, the length.
/// Never 0, as the slots are at first.
#[inline]
fn posted(n: u64, mask: u64, request: u64) -> u64 {
    // Laps may wrap: the two sides are never more than one apart.
    ((n >> mask.trailing_ones() & 0x3fff_ffff) + 1) << 33 | request
}

/// A request's direction and length in a word.
const WHAT: u64 = (1 << 33) - 1;

#[inline]
fn slot(n: u64, mask: u64) -> usize {
    SLOTS + (n & mask) as usize * SLOT
}

/// The client's end.
#[derive(Debug)]
pub struct RingClient {
    ring: Arc<Region>,
    mask: u64,
    next: u64,
    oldest: u64,
    /// Requests that are known to have ended.
    answered: u64,
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
/// Requests for which it writes one answer.
const TOGETHER: u64 = 8;
/// Lines asked for ahead of a copy; beyond them the hardware follows.
const PREFETCH_LINES: usize = 16;

/// A ring of `slots`, a power of two from 2 on.
///
/// # Errors
/// The system's: no memory, no descriptors.
pub fn ring(slots: usize) -> std::io::Result<(RingClient, RingServer)> {
    assert!(slots.is_power_of_two() && slots > 1);
    let ring = Arc::new(Region::shared("ring", SLOTS + slots * SLOT)?);
    let mask = slots as u64 - 1;
    Ok((
        RingClient { ring: ring.clone(), mask, next: 0, oldest: 0, answered: 0 },
        RingServer { ring, mask, next: 0 },
    ))
}

impl RingClient {
    /// Posts a request; false where the ring is full.
    #[inline]
    pub fn submit(&mut self, request: &Request) -> bool {
        if self.next - self.oldest > self.mask {
            return false;
        }
        let at = slot(self.next, self.mask);
        self.ring.word64(at + 8).store(request.store, Ordering::Relaxed);
        self.ring.word64(at + 16).store(request.memory, Ordering::Relaxed);
        let what = u64::from(request.len) << 1 | u64::from(request.write);
        // Release: the server's acquiring load of the word makes it see the request.
        self.ring.word64(at).store(posted(self.next, self.mask, what), Ordering::Release);
        self.next += 1;
        true
    }

    /// Whether the oldest request that is out is done; takes it back. Requests end in order.
    #[inline]
    pub fn complete(&mut self) -> bool {
        if self.oldest == self.next {
            return false;
        }
        if self.oldest == self.answered {
            self.answered = self.ring.word64(ANSWERED).load(Ordering::Acquire);
        }
        let done = self.oldest < self.answered;
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
            let at = slot(n, self.mask);
            let word = self.ring.word64(at).load(Ordering::Acquire);
            if word & !WHAT != posted(n, self.mask, 0) {
                break;
            }
            let request = Request {
                write: word & 1 != 0,
                len: ((word & WHAT) >> 1) as u32,
                store: self.ring.word64(at + 8).load(Ordering::Relaxed),
                memory: self.ring.word64(at + 16).load(Ordering::Relaxed),
            };
            if !request.write {
                for line in 0..(request.len as usize / 64).min(PREFETCH_LINES) {
                    store.prefetch(request.store as usize + 64 * line, false);
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
            let ended = i as u64 + 1;
            if ended.is_multiple_of(TOGETHER) || ended == count {
                // Release: the data are in place before the client sees that they are.
                self.ring.word64(ANSWERED).store(self.next + ended, Ordering::Release);
            }
        }
        self.next += count;
        count as usize
    }
}
