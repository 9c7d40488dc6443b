//! One operation at a time, in the caller's thread, over a file or block device: by positioned reads and
//! writes (pread, pwrite), or by a mapping, from and to which bytes are copied.
//!
//! A page of a mapping that is not in memory is read by the fault that the copy takes: this is the third
//! usage model of Proc. IEEE 2017 as far as a file gives it. Its writes are not made durable. A file that is
//! shortened meanwhile ends the process.

use std::io;
use std::os::fd::OwnedFd;

use nearside_clock::{Clock, Nanos};
use nearside_dma::file::{Scratch, Transfer, run};
use nearside_dma::{IoBuffer, Memory, Region};

use super::file::{Buffers, Target, TargetError, call};
use super::{Done, Engine, Io, Next, Submit};
use crate::verify::Verifier;
use crate::workload::Direction;

/// Does an operation in [`Engine::submit`].
pub struct Blocking<C> {
    method: Method,
    buffers: Buffers,
    done: Option<Done>,
    clock: C,
}

/// How an operation's bytes are moved.
enum Method {
    Calls { target: Target, memory: Box<Memory>, scratch: Box<Scratch> },
    Mapping { region: Region, size: u64, writable: bool },
}

impl<C: Clock> Blocking<C> {
    /// By positioned reads and writes, for operations of up to `bytes`.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn positioned(
        target: &Target,
        bytes: u32,
        verifier: Option<Verifier>,
        clock: C,
    ) -> Result<Self, TargetError> {
        let method = Method::Calls {
            target: target.clone(),
            memory: Box::new(Memory::new()),
            scratch: Box::default(),
        };
        Ok(Self { method, buffers: Buffers::new(1, bytes, verifier)?, done: None, clock })
    }

    /// By a mapping, for operations of up to `bytes`.
    ///
    /// # Errors
    /// Where it cannot be mapped.
    pub fn mapped(
        target: &Target,
        bytes: u32,
        verifier: Option<Verifier>,
        clock: C,
    ) -> Result<Self, TargetError> {
        let fail = |source| TargetError::Io { path: target.path.clone(), source };
        let len = usize::try_from(target.size).map_err(|e| fail(io::Error::other(e)))?;
        let writable = target.mode.write;
        let region = if writable {
            let file = target.file.try_clone().map_err(fail)?;
            Region::map(OwnedFd::from(file), len)
        } else {
            Region::view(&target.file, len)
        };
        let method = Method::Mapping { region: region.map_err(fail)?, size: target.size, writable };
        Ok(Self { method, buffers: Buffers::new(1, bytes, verifier)?, done: None, clock })
    }
}

impl Method {
    /// Moves an operation's bytes; how many it were.
    fn transfer(&mut self, io: &Io, buffer: &mut IoBuffer) -> io::Result<usize> {
        match self {
            Method::Calls { target, memory, scratch } => {
                run(&target.file, memory, call(io), Transfer::Buffer(buffer), 0, false, scratch)
            }
            Method::Mapping { region, size, writable } => copy(region, *size, *writable, io, buffer),
        }
    }
}

fn copy(region: &Region, size: u64, writable: bool, io: &Io, buffer: &mut IoBuffer) -> io::Result<usize> {
    /// errno: no space, access refused.
    const ENOSPC: i32 = 28;
    const EACCES: i32 = 13;
    let end = io.offset.checked_add(io.len.into());
    if end.is_none_or(|end| end > size) {
        return Err(io::Error::from_raw_os_error(ENOSPC));
    }
    let at = io.offset as usize;
    match io.direction {
        Direction::Read => region.read(at, buffer),
        Direction::Write if writable => region.write(at, buffer),
        Direction::Write => return Err(io::Error::from_raw_os_error(EACCES)),
    }
    Ok(buffer.len())
}

impl<C: Clock> Engine for Blocking<C> {
    fn depth(&self) -> usize {
        1
    }

    fn submit(&mut self, io: &Io, _now: Nanos) -> Submit {
        if self.done.is_some() {
            return Submit::Full;
        }
        let Some(mut buffer) = self.buffers.take(io) else { return Submit::Full };
        let moved = self.method.transfer(io, &mut buffer);
        let at = self.clock.now();
        self.done = Some(Done { token: io.token, at, result: self.buffers.put(io.token, buffer, moved) });
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
        if self.done.is_none() {
            super::sleep(&self.clock, until);
        }
    }

    fn blocks(&self) -> bool {
        true
    }
}
