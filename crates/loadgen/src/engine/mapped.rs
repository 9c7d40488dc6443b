//! A file or block device mapped into memory: a read copies from the mapping, a write copies to it.
//!
//! A page that is not in memory is read by the fault that the copy takes: this is the third usage model of Proc. IEEE 2017 as far as a
//! file gives it. Writes are not made durable. A file that is shortened meanwhile ends the process.

use std::os::fd::OwnedFd;

use nearside_clock::{Clock, Nanos};
use nearside_dma::{IoBuffer, Region};

use super::file::{Buffers, Target, TargetError};
use super::{Done, Engine, Failure, Io, Next, Submit};
use crate::verify::Verifier;
use crate::workload::Direction;

/// Copies in [`Engine::submit`].
pub struct Mapped<C> {
    region: Region,
    size: u64,
    writable: bool,
    buffers: Buffers,
    done: Option<Done>,
    clock: C,
}

impl<C: Clock> Mapped<C> {
    /// For operations of up to `bytes`.
    ///
    /// # Errors
    /// Where it cannot be mapped.
    pub fn new(
        target: &Target,
        bytes: u32,
        verifier: Option<Verifier>,
        clock: C,
    ) -> Result<Self, TargetError> {
        let fail = |source| TargetError::Io { path: target.path.clone(), source };
        let len = usize::try_from(target.size).map_err(|e| fail(std::io::Error::other(e)))?;
        let region = if target.mode.write {
            let file = target.file.try_clone().map_err(fail)?;
            Region::map(OwnedFd::from(file), len)
        } else {
            Region::view(&target.file, len)
        };
        let buffers = Buffers::new(1, bytes, verifier)?;
        let writable = target.mode.write;
        Ok(Self { region: region.map_err(fail)?, size: target.size, writable, buffers, done: None, clock })
    }

    fn copy(&self, io: &Io, buffer: &mut IoBuffer) -> Result<usize, i32> {
        /// errno: no space, access refused.
        const ENOSPC: i32 = 28;
        const EACCES: i32 = 13;
        let end = io.offset.checked_add(io.len.into());
        if end.is_none_or(|end| end > self.size) {
            return Err(ENOSPC);
        }
        let at = io.offset as usize;
        match io.direction {
            Direction::Read => self.region.read(at, buffer),
            Direction::Write if self.writable => self.region.write(at, buffer),
            Direction::Write => return Err(EACCES),
        }
        Ok(buffer.len())
    }
}

impl<C: Clock> Engine for Mapped<C> {
    fn depth(&self) -> usize {
        1
    }

    fn submit(&mut self, io: &Io, _now: Nanos) -> Submit {
        let Some(mut buffer) = self.buffers.take(io).filter(|_| self.done.is_none()) else {
            return Submit::Full;
        };
        let moved = self.copy(io, &mut buffer).map_err(std::io::Error::from_raw_os_error);
        let at = self.clock.now();
        let result: Result<(), Failure> = self.buffers.put(io.token, buffer, moved);
        self.done = Some(Done { token: io.token, at, result });
        Submit::Taken
    }

    #[inline]
    fn poll(&mut self, _now: Nanos, done: &mut Vec<Done>) {
        done.extend(self.done.take());
    }

    fn next(&self) -> Next {
        if self.done.is_none() { Next::Idle } else { Next::Poll }
    }

    fn wait(&mut self, until: Option<Nanos>) {
        super::sleep(&self.clock, until);
    }

    fn blocks(&self) -> bool {
        true
    }
}
