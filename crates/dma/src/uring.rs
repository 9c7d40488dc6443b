//! File calls by io_uring: many in flight, none waited for.
//!
//! A call moves into the ring with the memory that it uses and comes back with it ([`Bytes`]): a buffer by
//! ownership, host memory by a share of each region that it lies in. So no
//! completion can write to memory that is gone; a ring that is dropped waits for its calls first, and where
//! the kernel cannot be entered any more leaves their memory to it for ever.
//!
//! A ring's completions come by the device's interrupt, or are looked for in the device's own queues
//! ([`Completion`]).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::file::{Call, Pieces, Transfer, allocate_mode, pieces};
use crate::patience::{Patience, given_up};
use crate::{IoBuffer, Memory, Span};

/// Memory of a call in flight.
#[derive(Debug, Default)]
pub enum Bytes {
    /// None.
    #[default]
    None,
    /// A buffer.
    Buffer(IoBuffer),
    /// Host memory of the ring's table, in order.
    Spans(Vec<Span>),
}

impl Bytes {
    /// This memory for a call that runs at once ([`crate::file::run`]).
    pub fn transfer(&mut self) -> Transfer<'_> {
        match self {
            Bytes::None => Transfer::None,
            Bytes::Buffer(buffer) => Transfer::Buffer(buffer),
            Bytes::Spans(spans) => Transfer::Spans(spans),
        }
    }
}

/// How a ring learns that the device is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// By the device's interrupt.
    #[default]
    Interrupt,
    /// The kernel looks into the device's queues whenever it is asked (IORING_SETUP_IOPOLL). Reads and writes
    /// with O_DIRECT only.
    Polled,
    /// The kernel looks into the queues as for `Polled`, after a sleep of half the mean time
    /// (IORING_SETUP_HYBRID_IOPOLL, Linux 6.13).
    Hybrid,
}

struct UringSlot {
    user: u64,
    /// The call's descriptor, where it is not the ring's.
    file: Option<Arc<File>>,
    bytes: Bytes,
    pieces: Pieces,
}

/// A ring for the calls on one file.
pub struct Uring {
    ring: IoUring,
    memory: Arc<Memory>,
    slots: Vec<UringSlot>,
    free: Vec<u32>,
    unsent: usize,
    completion: Completion,
    // Not registered with the ring: the kernel would let go of it (and of its lock) only some time after the
    // ring's end.
    file: Arc<File>,
}

// SAFETY: the pieces in the slots point to memory that the slots keep, which belongs to no
// thread; the ring's own pointers lead to mappings shared with the kernel, used through `&mut self` only.
unsafe impl Send for Uring {}

/// Whether this system lets this process use io_uring, or why not.
///
/// # Errors
/// The system's, or `Unsupported` where an operation is missing that is needed here.
pub fn available() -> io::Result<()> {
    let ring = IoUring::new(2)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Readv::CODE, opcode::Writev::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE];
    match needed.into_iter().find(|&code| !probe.is_supported(code)) {
        Some(code) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, format!("io_uring lacks operation {code}")))
        }
        None => Ok(()),
    }
}

impl Uring {
    /// A ring for up to `depth` calls in flight on `file`, with host memory in `memory`.
    ///
    /// # Errors
    /// The system's: no rings, or none for this process.
    pub fn new(file: Arc<File>, memory: Arc<Memory>, depth: u32) -> io::Result<Uring> {
        // Completions of a thread that runs need no interrupt of it (5.19); older kernels know neither flag.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(depth)
            .or_else(|_| IoUring::new(depth))?;
        Ok(Uring::over(ring, file, memory, depth, Completion::Interrupt))
    }

    /// A ring for up to `depth` calls in flight on `file`, with a way of completion. Whether the device can
    /// be polled shows at the first call, which ends in EOPNOTSUPP where it cannot.
    ///
    /// # Errors
    /// `Unsupported` where the kernel does not know that way; else the system's.
    pub fn with_completion(
        file: Arc<File>,
        memory: Arc<Memory>,
        depth: u32,
        completion: Completion,
    ) -> io::Result<Uring> {
        let ring = match completion {
            Completion::Interrupt => return Uring::new(file, memory, depth),
            Completion::Polled => IoUring::builder().setup_iopoll().build(depth),
            Completion::Hybrid => hybrid(depth),
        };
        let ring = ring.map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL) => {
                io::Error::new(io::ErrorKind::Unsupported, format!("this kernel has no such ring: {e}"))
            }
            _ => e,
        })?;
        Ok(Uring::over(ring, file, memory, depth, completion))
    }

    fn over(
        ring: IoUring,
        file: Arc<File>,
        memory: Arc<Memory>,
        depth: u32,
        completion: Completion,
    ) -> Uring {
        let slots = (0..depth)
            .map(|_| UringSlot { user: 0, file: None, bytes: Bytes::None, pieces: Pieces::default() })
            .collect();
        Uring { ring, memory, slots, free: (0..depth).rev().collect(), unsent: 0, completion, file }
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether another call fits.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Queues a call, leaving out the first `skip` bytes of its memory; [`Uring::poll`] sends it. Gives the
    /// memory back where the ring is full.
    ///
    /// # Errors
    /// The memory, given back: the ring is full.
    pub fn push(&mut self, call: Call, bytes: Bytes, skip: usize, user: u64) -> Result<(), Bytes> {
        self.push_on(None, call, bytes, skip, user)
    }

    /// Queues a call as [`Uring::push`] does, on the descriptor `other` where one is given.
    ///
    /// # Errors
    /// The memory, given back: the ring is full.
    pub fn push_on(
        &mut self,
        other: Option<&Arc<File>>,
        call: Call,
        bytes: Bytes,
        skip: usize,
        user: u64,
    ) -> Result<(), Bytes> {
        let Some(index) = self.free.pop() else { return Err(bytes) };
        let slot = &mut self.slots[index as usize];
        slot.user = user;
        slot.file = other.cloned();
        slot.bytes = bytes;
        pieces(&self.memory, slot.bytes.transfer(), skip, &mut slot.pieces);
        let (list, count) = (slot.pieces.list.as_ptr(), slot.pieces.list.len() as u32);
        let fd = types::Fd(other.unwrap_or(&self.file).as_raw_fd());
        let durable = |durable| if durable { libc::RWF_DSYNC } else { 0 };
        let entry = match (call, &slot.pieces.list[..]) {
            // One piece needs no list, which the kernel would copy and check.
            (Call::Read { offset }, [piece]) if piece.iov_len <= MOST_IN_ONE => {
                let into = piece.iov_base.cast();
                opcode::Read::new(fd, into, piece.iov_len as u32).offset(offset).build()
            }
            (Call::Write { offset, durable: now }, [piece]) if piece.iov_len <= MOST_IN_ONE => {
                let from = piece.iov_base.cast_const().cast();
                let write = opcode::Write::new(fd, from, piece.iov_len as u32).offset(offset);
                write.rw_flags(durable(now)).build()
            }
            (Call::Read { offset }, _) => opcode::Readv::new(fd, list, count).offset(offset).build(),
            (Call::Write { offset, durable: now }, _) => {
                opcode::Writev::new(fd, list, count).offset(offset).rw_flags(durable(now)).build()
            }
            (Call::Sync, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            (Call::PunchHole { offset, len } | Call::ZeroRange { offset, len }, _) => {
                opcode::Fallocate::new(fd, len).offset(offset).mode(allocate_mode(call)).build()
            }
        };
        // SAFETY: what the entry points to (the list, and the memory in it) stays where it is until the
        // completion: the slot owns list and buffer, and a share of each region, and is not touched before.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(u64::from(index))) };
        if pushed.is_err() {
            // Cannot be: the queue has an entry for each slot. Refuse rather than lose the call.
            let bytes = std::mem::take(&mut self.slots[index as usize].bytes);
            self.free.push(index);
            return Err(bytes);
        }
        self.unsent += 1;
        Ok(())
    }

    /// Sends what was pushed, without looking for what has ended.
    pub fn send(&mut self) {
        if let Ok(sent) = self.ring.submit() {
            self.unsent = self.unsent.saturating_sub(sent);
        }
    }

    /// Sends what was pushed and takes one finished call: its user word, the bytes moved or the error, and
    /// its memory.
    pub fn poll(&mut self) -> Option<(u64, io::Result<usize>, Bytes)> {
        if self.in_flight() == 0 {
            return None;
        }
        // The kernel is entered only where there is something for it to do.
        let looks = self.completion != Completion::Interrupt && self.ring.completion().is_empty();
        if looks || self.unsent > 0 || (self.ring.completion().is_empty() && self.ring.submission().taskrun())
        {
            self.enter(0);
        }
        self.reap()
    }

    /// Sends what was pushed and sleeps until a call has ended, or for `timeout`, or (always allowed) less. A
    /// polled ring only looks.
    pub fn wait(&mut self, timeout: Duration) {
        if self.in_flight() == 0 || self.completion != Completion::Interrupt {
            return self.enter(0);
        }
        let timespec = types::Timespec::from(timeout);
        let args = types::SubmitArgs::new().timespec(&timespec);
        if let Ok(sent) = self.ring.submitter().submit_with_args(1, &args) {
            self.unsent = self.unsent.saturating_sub(sent);
        } else {
            // The time was over, which does not tell how many were sent; or a kernel before 5.11, which takes
            // no time.
            self.unsent = self.ring.submission().len();
        }
    }

    fn enter(&mut self, want: usize) {
        // Interrupted, or the kernel is short of memory just now: the next poll tries again.
        let _ = self.try_enter(want);
    }

    fn try_enter(&mut self, want: usize) -> io::Result<()> {
        let entered = if want == 0 && self.unsent == 0 {
            // SAFETY: no argument; GETEVENTS runs the completions that wait for this thread.
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, IORING_ENTER_GETEVENTS, None) }
        } else {
            self.ring.submit_and_wait(want)
        };
        self.unsent = self.unsent.saturating_sub(entered?);
        Ok(())
    }

    fn reap(&mut self) -> Option<(u64, io::Result<usize>, Bytes)> {
        let entry = self.ring.completion().next()?;
        let index = entry.user_data() as u32;
        let slot = &mut self.slots[index as usize];
        let bytes = std::mem::take(&mut slot.bytes);
        slot.pieces.clear();
        slot.file = None;
        let user = slot.user;
        self.free.push(index);
        let result = match entry.result() {
            n @ 0.. => Ok(n as usize),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        };
        Some((user, result, bytes))
    }
}

/// `IORING_ENTER_GETEVENTS` of io_uring_enter(2).
const IORING_ENTER_GETEVENTS: u32 = 1;

/// Longest transfer of one call, less than a page below 2^31 (MAX_RW_COUNT).
const MOST_IN_ONE: usize = 0x7fff_f000;

/// `IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL`: the io-uring crate has no name for the second.
const IOPOLL_HYBRID: u32 = 1 | 1 << 17;

fn hybrid(depth: u32) -> io::Result<IoUring> {
    /// struct io_uring_params: sq_entries, cq_entries, flags, then what the kernel fills in.
    type Raw = [u32; 30];
    let mut raw: Raw = [0; 30];
    raw[2] = IOPOLL_HYBRID;
    // SAFETY: the kernel reads and writes one io_uring_params of 120 bytes, owned here.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, depth, raw.as_mut_ptr()) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: `Parameters` is a transparent wrapper of io_uring_params, made from any initialised memory of
    // its layout; the sizes are compared by transmute. The descriptor is a ring that nobody else owns, and
    // these are its parameters.
    unsafe { IoUring::from_fd(fd, std::mem::transmute::<Raw, io_uring::Parameters>(raw)) }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel may still write to the memory of calls in flight: it is freed only after them.
        let mut patience = Patience::default();
        while self.in_flight() > 0 {
            let (entered, before) = (self.try_enter(1), self.in_flight());
            while self.reap().is_some() {}
            if !patience.lasts(&entered, self.in_flight() < before) {
                given_up(self.in_flight(), &entered);
                std::mem::forget((std::mem::take(&mut self.slots), self.memory.clone()));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    #[test]
    fn bytes_go_out_and_come_back() {
        if let Err(e) = available() {
            eprintln!("LEFT OUT: bytes_go_out_and_come_back: io_uring: {e}");
            return;
        }
        // SAFETY: a constant name and known flags; the descriptor is ours alone.
        let file = unsafe {
            let fd = libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            <File as std::os::fd::FromRawFd>::from_raw_fd(fd)
        };
        let memory = Arc::new(Memory::new());
        memory.map(0x1000, Arc::new(Region::anonymous(8192).unwrap())).unwrap();
        let spans = vec![memory.resolve(0x1ff0, 100).unwrap(), memory.resolve(0x1000, 28).unwrap()];
        memory.write(spans[0], &[1; 100]);
        memory.write(spans[1], &[2; 28]);
        let mut ring = Uring::new(Arc::new(file), memory, 4).unwrap();
        let one = |ring: &mut Uring, call, bytes, skip| {
            ring.push(call, bytes, skip, 77).unwrap();
            loop {
                if let Some((user, result, bytes)) = ring.poll() {
                    assert_eq!(user, 77);
                    return (result, bytes);
                }
            }
        };
        let (n, _) = one(&mut ring, Call::Write { offset: 5, durable: true }, Bytes::Spans(spans), 0);
        assert_eq!(n.unwrap(), 128);
        let mut buffer = IoBuffer::new(160).unwrap();
        buffer.fill(9);
        let (n, bytes) = one(&mut ring, Call::Read { offset: 0 }, Bytes::Buffer(buffer), 10);
        assert_eq!(n.unwrap(), 133);
        let Bytes::Buffer(buffer) = bytes else { panic!("another kind of memory came back") };
        let mut expected = vec![9; 10];
        expected.extend([0; 5]);
        expected.extend([1; 100]);
        expected.extend([2; 28]);
        expected.extend([9; 17]);
        assert_eq!(&buffer[..], &expected[..]);
        let (n, _) = one(&mut ring, Call::Sync, Bytes::None, 0);
        assert_eq!(n.unwrap(), 0);
        let (n, _) = one(&mut ring, Call::PunchHole { offset: 0, len: 4096 }, Bytes::None, 0);
        assert_eq!(n.unwrap(), 0);
        // Full, then dropped with calls in flight.
        for _ in 0..4 {
            ring.push(Call::Read { offset: 0 }, Bytes::Buffer(IoBuffer::new(4096).unwrap()), 0, 1).unwrap();
        }
        assert!(ring.push(Call::Sync, Bytes::None, 0, 1).is_err());
    }

    #[test]
    fn a_ring_that_cannot_be_entered_gives_its_memory_up() {
        if let Err(e) = available() {
            eprintln!("LEFT OUT: a_ring_that_cannot_be_entered_gives_its_memory_up: io_uring: {e}");
            return;
        }
        let memory = Arc::new(Memory::new());
        memory.map(0x1000, Arc::new(Region::anonymous(4096).unwrap())).unwrap();
        let spans = vec![memory.resolve(0x1000, 4096).unwrap()];
        let null = File::open("/dev/null").unwrap();
        // A pipe that nobody writes to: the read does not end.
        let mut ends = [0; 2];
        // SAFETY: two descriptors come back, owned by nobody else.
        let (read, _write) = unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            use std::os::fd::FromRawFd;
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        };
        let mut ring = Uring::new(Arc::new(read), memory.clone(), 4).unwrap();
        for _ in 0..3 {
            ring.push(Call::Read { offset: 0 }, Bytes::Spans(spans.clone()), 0, 1).unwrap();
        }
        ring.send();
        // Another file in the place of the ring's descriptor: the kernel refuses to be entered by it from now
        // on. SAFETY: no memory is involved; both descriptors are open.
        assert!(unsafe { libc::dup2(null.as_raw_fd(), ring.ring.as_raw_fd()) } >= 0);
        drop(ring);
        assert_eq!(Arc::strong_count(&memory), 2, "what the kernel may write to stays");
    }
}
