//! FUSE requests and replies by io_uring (Linux 6.14, `FUSE_OVER_IO_URING`; the kernel's
//! Documentation/filesystems/fuse/fuse-io-uring.rst).
//!
//! Each entry has memory of ours for one request: a header and a payload. It is handed to the kernel with
//! FUSE_IO_URING_CMD_REGISTER, whose completion says that a request lies in it; the reply goes with
//! FUSE_IO_URING_CMD_COMMIT_AND_FETCH, whose completion says that the next does. The kernel has a queue for
//! each possible CPU and takes requests only once each has an entry; one ring may serve entries of several.
//!
//! The kernel copies in the context of the thread that owns the ring, whenever that enters it. Both memories
//! are regions, which a ring shares: they are there for as long as the kernel may write to them.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

use super::FuseDevice;
use crate::{EventFd, Region};

/// Bytes of `struct fuse_uring_req_header`: fuse_in_header or fuse_out_header, the operation's own
/// arguments, `struct fuse_uring_ent_in_out`.
const HEADER: usize = 288;
const OP_IN: usize = 128;
const ENT_IN_OUT: usize = 256;
/// What an entry's header takes in the headers' region.
const STRIDE: usize = 512;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Beyond all entries: what is watched.
const WATCHED: u64 = 1 << 32;

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEvent {
    /// A request lies in that entry.
    Request(usize),
    /// That entry is the kernel's no more, for that error.
    Gone(usize, i32),
    /// An event that is watched was raised.
    Woken,
}

/// A request, without its payload, as the kernel wrote it.
#[derive(Clone, Copy, Debug)]
pub struct RingRequest {
    /// `struct fuse_in_header`.
    pub head: [u8; 40],
    /// The operation's first argument.
    pub args: [u8; 128],
    /// Bytes of the payload, as the kernel says.
    pub payload: usize,
}

struct RingEntry {
    queue: u16,
    _payload: Arc<Region>,
    commit: u64,
    /// Whether it is the kernel's.
    out: bool,
    /// Header and payload, at an address of their own: the kernel reads the list at registration.
    _pieces: Box<[libc::iovec; 2]>,
}

/// A ring for some of a connection's entries. For the thread that made it.
pub struct FuseRing {
    ring: IoUring<squeue::Entry128>,
    device: Arc<FuseDevice>,
    headers: Arc<Region>,
    entries: Vec<RingEntry>,
    room: usize,
    out: usize,
    watched: Vec<i32>,
    unsent: bool,
    /// Why it can go on no more: something that it waits for would not come.
    broken: Option<i32>,
}

/// Whether this system lets this process use such rings, or why not.
///
/// # Errors
/// The system's.
pub fn available() -> io::Result<()> {
    build(2).map(drop)
}

fn build(entries: u32) -> io::Result<IoUring<squeue::Entry128>> {
    // The kernel's work for the ring runs when its thread enters, not whenever it likes.
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(entries)
}

impl FuseRing {
    /// A ring for up to `entries` entries of that connection.
    ///
    /// # Errors
    /// The system's: it has no such rings, or keeps them from this process.
    pub fn new(device: Arc<FuseDevice>, entries: usize) -> io::Result<FuseRing> {
        let most = u32::try_from(entries + WATCHES).map_err(io::Error::other)?;
        Ok(FuseRing {
            ring: build(most)?,
            device,
            headers: Arc::new(Region::anonymous((entries * STRIDE).max(1))?),
            entries: Vec::with_capacity(entries),
            room: entries,
            out: 0,
            watched: Vec::new(),
            unsent: false,
            broken: None,
        })
    }

    /// Hands the kernel an entry of queue `queue`, with `len` bytes of `payload` at `offset`. It goes with
    /// the next [`FuseRing::enter`]. Returns its number.
    ///
    /// # Panics
    /// Outside the region, or with more entries than the ring has.
    pub fn register(&mut self, queue: u16, payload: &Arc<Region>, offset: usize, len: usize) -> usize {
        let index = self.entries.len();
        assert!(index < self.room, "entry {index} of {}", self.room);
        let header = self.headers.pointer(index * STRIDE, HEADER);
        let pieces = Box::new([
            libc::iovec { iov_base: header.cast(), iov_len: HEADER },
            libc::iovec { iov_base: payload.pointer(offset, len).cast(), iov_len: len },
        ]);
        let list = std::ptr::from_ref(&*pieces) as u64;
        let entry = RingEntry { queue, _payload: payload.clone(), commit: 0, out: false, _pieces: pieces };
        self.entries.push(entry);
        self.push(index, REGISTER, Some(list));
        index
    }

    fn push(&mut self, index: usize, operation: u32, list: Option<u64>) {
        /// Where `struct io_uring_sqe` has its `len`.
        const LEN_AT: usize = 24;
        const { assert!(size_of::<squeue::Entry128>() == 128) };
        let entry = &mut self.entries[index];
        // struct fuse_uring_cmd_req: flags, commit_id, qid.
        let mut request = [0; 80];
        request[8..16].copy_from_slice(&entry.commit.to_ne_bytes());
        request[16..18].copy_from_slice(&entry.queue.to_ne_bytes());
        let command = opcode::UringCmd80::new(types::Fd(self.device.as_fd().as_raw_fd()), operation);
        let mut command = command.cmd(request).addr(list).build().user_data(index as u64);
        if list.is_some() {
            let at = std::ptr::from_mut(&mut command).cast::<u8>();
            // SAFETY: the entry is 128 bytes of plain data in the kernel's layout (asserted), of which these
            // four are the length; the crate has no name for it.
            unsafe { at.add(LEN_AT).cast::<u32>().write_unaligned(2) };
        }
        entry.out = true;
        self.out += 1;
        self.send(&command);
    }

    fn send(&mut self, entry: &squeue::Entry128) {
        // SAFETY: what an entry's list names are its header and payload, in regions that the ring keeps for
        // as long as the kernel may write there (see `drop`); a watch names no memory.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // The queue has a place for each entry and each watch.
        if pushed.is_err() {
            self.broken = Some(libc::EBUSY);
        }
        self.unsent = true;
    }

    /// From now on an event that is raised ends a wait, and is told ([`RingEvent::Woken`]).
    ///
    /// # Panics
    /// On more watches than a ring is made for.
    pub fn watch(&mut self, event: &EventFd) {
        assert!(self.watched.len() < WATCHES, "too many watches");
        self.watched.push(event.as_fd().as_raw_fd());
        self.arm(self.watched.len() - 1);
    }

    fn arm(&mut self, index: usize) {
        let poll = opcode::PollAdd::new(types::Fd(self.watched[index]), libc::POLLIN as u32).multi(true);
        self.send(&squeue::Entry128::from(poll.build().user_data(WATCHED + index as u64)));
    }

    /// Whether entering the kernel would do something: there is work of ours for it, or of its for us.
    pub fn has_work(&mut self) -> bool {
        self.unsent || self.ring.submission().taskrun()
    }

    /// Sends what is to be sent and lets the kernel do what it has to do here.
    ///
    /// # Errors
    /// The system's, of io_uring_enter(2), but for an interrupted call; a watch has ended.
    pub fn enter(&mut self) -> io::Result<()> {
        let entered = if self.unsent { self.ring.submit().map(drop) } else { Ok(()) };
        // SAFETY: no argument; GETEVENTS runs what waits for this thread.
        let ran =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, IORING_ENTER_GETEVENTS, None) };
        self.entered(entered.and(ran.map(drop)))
    }

    /// The same, and sleeps until something came or `timeout` is over (`None`: for ever).
    ///
    /// # Errors
    /// As [`FuseRing::enter`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if !self.ring.completion().is_empty() {
            return Ok(());
        }
        let entered = match timeout.map(types::Timespec::from) {
            Some(time) => {
                let args = types::SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
            None => self.ring.submit_and_wait(1),
        };
        self.entered(entered.map(drop))
    }

    fn entered(&mut self, entered: io::Result<()>) -> io::Result<()> {
        self.unsent = !self.ring.submission().is_empty();
        if let Some(errno) = self.broken {
            return Err(io::Error::from_raw_os_error(errno));
        }
        match entered {
            Err(e)
                if !matches!(
                    e.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) =>
            {
                Err(e)
            }
            _ => Ok(()),
        }
    }

    /// What came.
    pub fn take(&mut self) -> Option<RingEvent> {
        loop {
            let done = self.ring.completion().next()?;
            let (user, result) = (done.user_data(), done.result());
            if user >= WATCHED {
                if result < 0 {
                    self.broken = Some(result.saturating_neg());
                } else if !io_uring::cqueue::more(done.flags()) {
                    self.arm((user - WATCHED) as usize);
                }
                return Some(RingEvent::Woken);
            }
            let index = user as usize;
            let Some(entry) = self.entries.get_mut(index).filter(|entry| entry.out) else { continue };
            entry.out = false;
            self.out -= 1;
            return Some(if result < 0 {
                RingEvent::Gone(index, result.saturating_neg())
            } else {
                RingEvent::Request(index)
            });
        }
    }

    /// Entries that are the kernel's.
    pub fn out(&self) -> usize {
        self.out
    }

    /// The request that lies in an entry.
    pub fn request(&mut self, index: usize) -> RingRequest {
        let at = index * STRIDE;
        let mut request = RingRequest { head: [0; 40], args: [0; 128], payload: 0 };
        self.headers.read(at, &mut request.head);
        self.headers.read(at + OP_IN, &mut request.args);
        // struct fuse_uring_ent_in_out: flags, commit_id, payload_sz.
        let mut words = [0; 24];
        self.headers.read(at + ENT_IN_OUT, &mut words);
        let [_, _, _, _, _, _, _, _, c0, c1, c2, c3, c4, c5, c6, c7, p0, p1, p2, p3, ..] = words;
        self.entries[index].commit = u64::from_ne_bytes([c0, c1, c2, c3, c4, c5, c6, c7]);
        request.payload = u32::from_ne_bytes([p0, p1, p2, p3]) as usize;
        request
    }

    /// Replies to the request in an entry with `head` (`struct fuse_out_header`) and so many bytes of its
    /// payload, and hands the entry to the kernel again. It goes with the next [`FuseRing::enter`].
    pub fn reply(&mut self, index: usize, head: &[u8; 16], payload: u32) {
        let at = index * STRIDE;
        self.headers.write(at, head);
        self.headers.write(at + ENT_IN_OUT + 16, &payload.to_ne_bytes());
        self.push(index, COMMIT_AND_FETCH, None);
    }
}

/// Events that one ring watches at most.
const WATCHES: usize = 4;
/// `IORING_ENTER_GETEVENTS` of io_uring_enter(2).
const IORING_ENTER_GETEVENTS: u32 = 1;

impl Drop for FuseRing {
    fn drop(&mut self) {
        // Entries end with their connection. What the kernel still has of them it may write to: that memory
        // is left to it for ever.
        if self.out > 0 {
            std::mem::forget((std::mem::take(&mut self.entries), self.headers.clone()));
        }
    }
}
