//! File calls by io_uring: many in flight, none waited for.
//!
//! A call moves into the ring with the memory that it uses and comes back with it ([`Bytes`]): a buffer by ownership, host
//! memory by the ring's hold on the IOVA table, which unmaps nothing while it lives. So no completion can write
//! to memory that is gone; a ring that is dropped waits for its calls first.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use crate::file::{Call, Transfer, allocate_mode, pieces};
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
    /// The same memory, for a call that runs at once.
    pub fn transfer(&mut self) -> Transfer<'_> {
        match self {
            Bytes::None => Transfer::None,
            Bytes::Buffer(buffer) => Transfer::Buffer(buffer),
            Bytes::Spans(spans) => Transfer::Spans(spans),
        }
    }
}

struct Slot {
    user: u64,
    bytes: Bytes,
    pieces: Vec<libc::iovec>,
}

/// A ring for the calls on one file.
pub struct Ring {
    ring: IoUring,
    memory: Arc<Memory>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    unsent: usize,
    // Not registered with the ring: the kernel would let go of it (and of its lock) only some time after the ring's end.
    file: Arc<File>,
}

// SAFETY: the pieces in the slots point to memory that the slots and the table keep, which belongs to no thread; the ring's
// own pointers lead to mappings shared with the kernel, used through `&mut self` only.
unsafe impl Send for Ring {}

/// Whether this system lets this process use io_uring, or why not.
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

impl Ring {
    /// A ring for up to `depth` calls in flight on `file`, with host memory in `memory`.
    pub fn new(file: Arc<File>, memory: Arc<Memory>, depth: u32) -> io::Result<Ring> {
        // Completions of a thread that runs need no interrupt of it (5.19); older kernels know neither flag.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(depth)
            .or_else(|_| IoUring::new(depth))?;
        let slots = (0..depth).map(|_| Slot { user: 0, bytes: Bytes::None, pieces: Vec::new() }).collect();
        Ok(Ring { ring, memory, slots, free: (0..depth).rev().collect(), unsent: 0, file })
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether another call fits.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Queues a call, leaving out the first `skip` bytes of its memory; [`Ring::poll`] sends it. Gives the memory back where
    /// the ring is full.
    pub fn push(&mut self, call: Call, bytes: Bytes, skip: usize, user: u64) -> Result<(), Bytes> {
        let Some(index) = self.free.pop() else { return Err(bytes) };
        let slot = &mut self.slots[index as usize];
        slot.user = user;
        slot.bytes = bytes;
        pieces(&self.memory, slot.bytes.transfer(), skip, &mut slot.pieces);
        let (list, count) = (slot.pieces.as_ptr(), slot.pieces.len() as u32);
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = match call {
            Call::Read { offset } => opcode::Readv::new(fd, list, count).offset(offset).build(),
            Call::Write { offset, durable } => opcode::Writev::new(fd, list, count)
                .offset(offset)
                .rw_flags(if durable { libc::RWF_DSYNC } else { 0 })
                .build(),
            Call::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Call::PunchHole { offset, len } | Call::ZeroRange { offset, len } => {
                opcode::Fallocate::new(fd, len).offset(offset).mode(allocate_mode(call)).build()
            }
        };
        // SAFETY: what the entry points to (the list, and the memory in it) stays where it is until the completion: the
        // slot owns list and buffer and is not touched before, and `memory` unmaps nothing while it lives.
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

    /// Sends what was pushed and takes one finished call: its user word, the bytes moved or the error, and its memory.
    pub fn poll(&mut self) -> Option<(u64, io::Result<usize>, Bytes)> {
        if self.in_flight() == 0 {
            return None;
        }
        // The kernel is entered only where there is something for it to do.
        if self.unsent > 0 || (self.ring.completion().is_empty() && self.ring.submission().taskrun()) {
            self.enter(0);
        }
        self.reap()
    }

    fn enter(&mut self, want: usize) {
        // Interrupted, or the kernel is short of memory just now: the next poll tries again.
        let entered = if want == 0 && self.unsent == 0 {
            // SAFETY: no argument; GETEVENTS runs the completions that wait for this thread.
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, IORING_ENTER_GETEVENTS, None) }
        } else {
            self.ring.submit_and_wait(want)
        };
        if let Ok(sent) = entered {
            self.unsent = self.unsent.saturating_sub(sent);
        }
    }

    fn reap(&mut self) -> Option<(u64, io::Result<usize>, Bytes)> {
        let entry = self.ring.completion().next()?;
        let index = entry.user_data() as u32;
        let slot = &mut self.slots[index as usize];
        let bytes = std::mem::take(&mut slot.bytes);
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

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still write to the memory of calls in flight: it is freed only after them.
        while self.in_flight() > 0 {
            self.enter(1);
            while self.reap().is_some() {}
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
        let mut ring = Ring::new(Arc::new(file), memory, 4).unwrap();
        let one = |ring: &mut Ring, call, bytes, skip| {
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
}
