//! io_uring on a file or a block device: completions by interrupt, polled, or polled after a sleep.

use std::sync::Arc;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_dma::Memory;
use nearside_dma::file::is_unsupported;
use nearside_dma::uring::{self, Bytes, Completion};

use super::file::{Buffers, Target, TargetError, call};
use super::{Done, Engine, Io, Next, Submit};
use crate::verify::Verifier;
use crate::workload::Direction;

/// A ring on a target. Each operation is sent by a system call of its own, at once.
pub struct Uring<C> {
    ring: uring::Uring,
    buffers: Buffers,
    depth: usize,
    completion: Completion,
    clock: C,
}

/// How long a try of polling may take.
const PATIENCE_NS: u64 = 5_000_000_000;

impl<C: Clock> Uring<C> {
    /// For `depth` operations of up to `bytes` each.
    /// A polled ring reads the first bytes once, to see whether the device can be polled.
    ///
    /// # Errors
    /// Where the kernel or the device refuses.
    pub fn new(
        target: &Target,
        completion: Completion,
        depth: usize,
        bytes: u32,
        verifier: Option<Verifier>,
        clock: C,
    ) -> Result<Self, TargetError> {
        let no_polling = || TargetError::NoPolling { path: target.path.clone() };
        if completion != Completion::Interrupt && !target.mode.direct {
            return Err(no_polling());
        }
        let entries = u32::try_from(depth).unwrap_or(u32::MAX).max(1);
        let ring =
            uring::Uring::with_completion(target.file.clone(), Arc::new(Memory::new()), entries, completion);
        let buffers = Buffers::new(depth.max(1), bytes.max(4096), None)?;
        let mut uring = Self { ring: ring.map_err(TargetError::Ring)?, buffers, depth, completion, clock };
        if completion != Completion::Interrupt {
            match uring.try_once() {
                Ok(()) => {}
                Err(e) if is_unsupported(&e) => return Err(no_polling()),
                Err(source) => return Err(TargetError::Io { path: target.path.clone(), source }),
            }
        }
        uring.buffers = Buffers::new(depth, bytes, verifier)?;
        Ok(uring)
    }

    fn try_once(&mut self) -> std::io::Result<()> {
        let io = Io { token: 0, direction: Direction::Read, offset: 0, len: 4096 };
        let since = self.clock.now();
        let _ = self.submit(&io, since);
        while self.clock.now().since(since) < PATIENCE_NS {
            if let Some((_, result, _)) = self.ring.poll() {
                return result.map(drop);
            }
        }
        Err(std::io::ErrorKind::TimedOut.into())
    }
}

impl<C: Clock> Engine for Uring<C> {
    fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    fn submit(&mut self, io: &Io, _now: Nanos) -> Submit {
        let Some(buffer) = self.buffers.take(io) else { return Submit::Full };
        match self.ring.push(call(io), Bytes::Buffer(buffer), 0, io.token.into()) {
            Ok(()) => {
                self.ring.send();
                Submit::Taken
            }
            Err(bytes) => {
                if let Bytes::Buffer(buffer) = bytes {
                    self.buffers.put_back(io.token, buffer);
                }
                Submit::Full
            }
        }
    }

    #[inline]
    fn poll(&mut self, _now: Nanos, done: &mut Vec<Done>) {
        while let Some((token, moved, bytes)) = self.ring.poll() {
            let token = token as u32;
            // Dated here: the system calls above take longer than a step.
            let at = self.clock.now();
            let Bytes::Buffer(buffer) = bytes else { continue };
            done.push(Done { token, at, result: self.buffers.put(token, buffer, moved) });
        }
    }

    #[inline]
    fn next(&self) -> Next {
        if self.ring.in_flight() == 0 { Next::Idle } else { Next::Poll }
    }

    fn wait(&mut self, until: Option<Nanos>) {
        if self.ring.in_flight() == 0 {
            return super::sleep(&self.clock, until);
        }
        let ns = until.map_or(1_000_000_000, |until| until.since(self.clock.now()));
        self.ring.wait(Duration::from_nanos(ns));
    }

    fn blocks(&self) -> bool {
        // Sleeps within the kernel's look; and a kernel that is asked for a buffered read may do it at once.
        self.completion == Completion::Hybrid
    }
}
