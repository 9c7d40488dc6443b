//! A device of the kernel's driver as a carrier:
//! by io_uring commands, many at once, or by ioctls, of which each waits for its own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nearside_dma::passthrough::{self, CommandRing, Passed, Passthrough, Queue, pass};
use nearside_driver::Command;
use nearside_spec::Status;

use crate::Error;
use crate::carrier::{Carrier, DEPTH, Ended, RESULT, Stop, WAIT_MS, what};

/// How long the kernel waits for a command.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a wait looks whether it was given up. An ioctl cannot be left:
/// what it waits for waits no longer.
const LOOK: Duration = Duration::from_millis(20);

/// How commands reach the kernel.
#[derive(Debug)]
enum Interface {
    /// What has ended, until it is waited for.
    Ioctl(File, Vec<passthrough::Ended>),
    Uring(Box<CommandRing>),
}

/// A device, and the queue that its commands go to.
#[derive(Debug)]
pub(super) struct Device {
    interface: Interface,
    queue: Queue,
    path: PathBuf,
    pub(super) stop: Stop,
}

impl Device {
    /// By ioctl.
    pub(super) fn open(path: &Path, queue: Queue) -> io::Result<Device> {
        let interface = Interface::Ioctl(File::open(path)?, Vec::new());
        Ok(Device { interface, queue, path: path.to_owned(), stop: Stop::default() })
    }

    /// By io_uring from now on, if this system, the device and the user can: `harmless` is sent that way and
    /// has to end in any way that is the drive's.
    pub(super) fn prefer_uring(&mut self, harmless: &Command, data: Vec<u8>) {
        let characters = || std::fs::metadata(&self.path).is_ok_and(|m| m.file_type().is_char_device());
        let Interface::Ioctl(file, _) = &self.interface else { return };
        let ring = || CommandRing::new(file.try_clone()?, DEPTH.into());
        let Some(mut ring) = characters().then(ring).and_then(Result::ok) else { return };
        if ring.send(self.queue, &passed_through(harmless), data, 0).is_ok()
            && ring.wait(None).is_ok()
            && let Some(passthrough::Ended { passed: Ok(_), .. }) = ring.take()
        {
            self.interface = Interface::Uring(Box::new(ring));
        }
    }

    /// The interface in words.
    pub(super) fn words(&self) -> &'static str {
        match self.interface {
            Interface::Uring(_) => "sleeps in io_uring, several commands at once",
            Interface::Ioctl(..) => "sleeps in an ioctl, one command at a time",
        }
    }

    /// The namespace that the device is.
    pub(super) fn namespace(&self) -> Option<u32> {
        match &self.interface {
            Interface::Ioctl(file, _) => passthrough::namespace_of(file).ok(),
            Interface::Uring(_) => None,
        }
    }

    /// Sends one command and waits for it; its data come back.
    pub(super) fn execute(
        &mut self,
        what: &'static str,
        command: &Command,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        self.give(command, data, 0).map_err(|e| self.io(what, e))?;
        loop {
            if let Some(passthrough::Ended { passed, data, .. }) = self.take() {
                let status = Status(passed.map_err(|e| self.io(what, e))?.status);
                return if status.is_success() { Ok(data) } else { Err(Error::Nvme { what, status }) };
            }
            self.rest(None).map_err(|e| self.io(what, e))?;
        }
    }

    fn give(&mut self, command: &Command, mut data: Vec<u8>, user: u64) -> io::Result<()> {
        let command = passed_through(command);
        match &mut self.interface {
            Interface::Uring(ring) => ring.send(self.queue, &command, data, user),
            Interface::Ioctl(file, ended) => {
                let passed = Ok(pass(file, self.queue, &command, &mut data)?);
                ended.push(passthrough::Ended { user, passed, data });
                Ok(())
            }
        }
    }

    fn take(&mut self) -> Option<passthrough::Ended> {
        match &mut self.interface {
            Interface::Uring(ring) => ring.take(),
            Interface::Ioctl(_, ended) => ended.pop(),
        }
    }

    fn rest(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match &mut self.interface {
            Interface::Uring(ring) => ring.wait(timeout),
            Interface::Ioctl(..) => Ok(()),
        }
    }

    fn io(&self, what: &str, source: io::Error) -> Error {
        let hint = match source.kind() {
            io::ErrorKind::PermissionDenied => " (it needs root)",
            io::ErrorKind::InvalidInput => " (the kernel takes no buffer of that size)",
            _ => "",
        };
        Error::Io { what: format!("{}: {what} through the kernel{hint}", self.path.display()), source }
    }

    /// What a command of the carrier ended as.
    fn ended(&self, ended: passthrough::Ended) -> Ended {
        let passthrough::Ended { user: cookie, passed, data } = ended;
        let moved = match passed {
            Ok(Passed { status, result }) if Status(status).is_success() => {
                // A reply is as long as the result says; the other commands move all of their data.
                Ok(if cookie == RESULT { result as usize } else { data.len() })
            }
            Ok(Passed { status, .. }) => Err(Error::Nvme { what: what(cookie), status: Status(status) }),
            Err(e) => Err(self.io(what(cookie), e)),
        };
        Ended { cookie, moved, data }
    }
}

impl Carrier for Device {
    fn send(&mut self, command: &Command, data: Vec<u8>, cookie: u64) -> Result<(), Error> {
        self.give(command, data, cookie).map_err(|e| self.io(what(cookie), e))?;
        match &mut self.interface {
            // What failed in an ioctl is known before anything is sent that would wait for it.
            Interface::Ioctl(_, ended) => {
                let failed = ended.pop_if(|ended| {
                    !ended.passed.as_ref().is_ok_and(|passed| Status(passed.status).is_success())
                });
                failed.map_or(Ok(()), |failed| self.ended(failed).moved.map(drop))
            }
            Interface::Uring(_) => Ok(()),
        }
    }

    fn wait(&mut self, mut sink: impl FnMut(Ended)) -> Result<(), Error> {
        let timeout = self.stop.is_possible().then_some(LOOK);
        self.rest(timeout).map_err(|e| self.io("waiting for commands", e))?;
        while let Some(ended) = self.take() {
            sink(self.ended(ended));
        }
        Ok(())
    }

    fn outstanding(&self) -> usize {
        match &self.interface {
            Interface::Uring(ring) => ring.in_flight(),
            Interface::Ioctl(_, ended) => ended.len(),
        }
    }

    fn wait_ms(&self) -> u32 {
        match self.interface {
            Interface::Ioctl(..) if self.stop.is_possible() => LOOK.as_millis() as u32,
            _ => WAIT_MS,
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }
}

fn passed_through(command: &Command) -> Passthrough {
    let entry = &command.entry;
    let mut cdw = [0; 6];
    cdw.copy_from_slice(&entry.cdw[10..16]);
    Passthrough { opcode: entry.opcode(), nsid: entry.nsid(), cdw, timeout: PATIENCE }
}
