//! The same commands by io_uring (Linux 5.19, admin commands 6.0): many in flight, none waited for by a
//! thread of its own.
//!
//! A command moves into the ring with its data and comes back with them, so that no completion can write to
//! memory that is gone; a ring that is dropped waits for its commands first, as long as the kernel can be
//! entered.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::{NvmeUringCmd, Passed, Passthrough, Queue};
use crate::patience::{Patience, given_up};

/// NVME_URING_CMD_IO, NVME_URING_CMD_ADMIN: `_IOWR('N', nr, struct nvme_uring_cmd)`.
const IO: u32 = super::iowr(0x80, size_of::<NvmeUringCmd>()) as u32;
const ADMIN: u32 = super::iowr(0x82, size_of::<NvmeUringCmd>()) as u32;

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The number that [`CommandRing::send`] was given with the command.
    pub user: u64,
    /// An error is the system's, as of [`pass`](super::pass).
    pub passed: io::Result<Passed>,
    /// Its data.
    pub data: Vec<u8>,
}

struct PassthroughSlot {
    user: u64,
    data: Vec<u8>,
}

/// A ring for the commands on one character device.
pub struct CommandRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry32>,
    slots: Vec<Option<PassthroughSlot>>,
    in_flight: usize,
    device: File,
}

impl std::fmt::Debug for CommandRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CommandRing({:?}, {} of {} in flight)", self.device, self.in_flight, self.slots.len())
    }
}

impl CommandRing {
    /// A ring for up to `depth` commands in flight. An error: this system has no such rings, or keeps them
    /// from this process. Whether the device takes such commands shows at the first, which ends in ENOTTY,
    /// EOPNOTSUPP or EINVAL where it does not.
    ///
    /// # Errors
    /// The system's: it has no such rings, or keeps them from this process.
    pub fn new(device: File, depth: u32) -> io::Result<CommandRing> {
        let ring = IoUring::builder().build(depth)?;
        Ok(CommandRing { ring, slots: (0..depth).map(|_| None).collect(), in_flight: 0, device })
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Sends a command. [`io::ErrorKind::WouldBlock`]: the ring is full.
    ///
    /// # Errors
    /// `WouldBlock` where the ring is full; else the system's.
    pub fn send(
        &mut self,
        queue: Queue,
        command: &Passthrough,
        mut data: Vec<u8>,
        user: u64,
    ) -> io::Result<()> {
        let free = self.slots.iter().position(Option::is_none);
        let index = free.ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock))?;
        let cmd = NvmeUringCmd::new(command, &mut data)?;
        let mut bytes = [0; 80];
        // SAFETY: plain integers, in the structure without padding.
        let words = unsafe { std::mem::transmute::<NvmeUringCmd, [u8; 72]>(cmd) };
        bytes[..72].copy_from_slice(&words);
        let operation = if queue == Queue::Admin { ADMIN } else { IO };
        let entry = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), operation).cmd(bytes).build();
        // SAFETY: what the entry points to stays where it is until the completion: the slot owns the data's
        // memory, which does not move with the vector, and nobody touches it before.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(index as u64)) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        self.slots[index] = Some(PassthroughSlot { user, data });
        self.in_flight += 1;
        // What is not sent now (a signal came, or the kernel is short of memory) is sent with the next wait.
        let _ = self.ring.submit();
        Ok(())
    }

    /// Sleeps until a command has ended, for `timeout` where one is given, or (always allowed) less.
    ///
    /// # Errors
    /// The system's, of io_uring_enter(2).
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self.enter(timeout) {
            Err(e) if !matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EAGAIN)) => Err(e),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.in_flight == 0 || !self.ring.completion().is_empty() {
            return Ok(());
        }
        let entered = match timeout.map(types::Timespec::from) {
            Some(timeout) => {
                let args = types::SubmitArgs::new().timespec(&timeout);
                self.ring.submitter().submit_with_args(1, &args)
            }
            None => self.ring.submit_and_wait(1),
        };
        entered.map(drop)
    }

    /// A command that has ended.
    pub fn take(&mut self) -> Option<Ended> {
        loop {
            let entry = self.ring.completion().next()?;
            let slot = self.slots.get_mut(entry.user_data() as usize).and_then(Option::take);
            let Some(PassthroughSlot { user, data }) = slot else { continue };
            self.in_flight -= 1;
            let passed = match u16::try_from(entry.result()) {
                Ok(status) => Ok(Passed { status, result: entry.big_cqe()[0] }),
                Err(_) => Err(io::Error::from_raw_os_error(entry.result().saturating_neg())),
            };
            return Some(Ended { user, passed, data });
        }
    }
}

impl Drop for CommandRing {
    fn drop(&mut self) {
        // The kernel may still write to the data of commands in flight.
        let mut patience = Patience::default();
        while self.in_flight > 0 {
            let (waited, before) = (self.enter(None), self.in_flight);
            while self.take().is_some() {}
            if !patience.lasts(&waited, self.in_flight < before) {
                given_up(self.in_flight, &waited);
                return std::mem::forget(std::mem::take(&mut self.slots));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `linux/nvme_ioctl.h` has them.
    #[test]
    fn numbers() {
        assert_eq!((IO, ADMIN), (0xc048_4e80, 0xc048_4e82));
    }

    #[test]
    fn what_is_no_drive_says_so_and_gives_the_data_back() {
        let device = File::open("/dev/zero").unwrap();
        let mut ring = match CommandRing::new(device, 2) {
            Ok(ring) => ring,
            Err(e) => {
                eprintln!("LEFT OUT: what_is_no_drive_says_so_and_gives_the_data_back: io_uring: {e}");
                return;
            }
        };
        let command = Passthrough { opcode: 0xc2, nsid: 1, cdw: [0; 6], timeout: Duration::ZERO };
        ring.send(Queue::Io, &command, vec![7; 4096], 1).unwrap();
        ring.send(Queue::Admin, &command, Vec::new(), 2).unwrap();
        let full = ring.send(Queue::Io, &command, Vec::new(), 3).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let mut ended = Vec::new();
        while ring.in_flight() > 0 {
            ring.wait(Some(Duration::from_secs(60))).unwrap();
            ended.extend(std::iter::from_fn(|| ring.take()));
        }
        ended.sort_by_key(|ended| ended.user);
        assert!(matches!(&ended[..], [a, b] if (a.user, b.user) == (1, 2)), "{ended:?}");
        assert_eq!(ended[0].data, [7; 4096]);
        let said = |e: &Ended| e.passed.as_ref().err().and_then(io::Error::raw_os_error);
        assert!(ended.iter().all(|e| said(e) == Some(libc::EOPNOTSUPP)), "{ended:?}");
    }
}
