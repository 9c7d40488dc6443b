//! Positioned reads and writes (pread, pwrite): one operation at a time, in the caller's thread.

use nearside_clock::{Clock, Nanos};
use nearside_dma::Memory;
use nearside_dma::file::{Scratch, Transfer, run};

use super::file::{Buffers, Target, TargetError, call};
use super::{Done, Engine, Io, Next, Submit};
use crate::verify::Verifier;

/// Blocks in [`Engine::submit`] until the operation is done.
pub struct Positioned<C> {
    target: Target,
    memory: Memory,
    scratch: Scratch,
    buffers: Buffers,
    done: Option<Done>,
    clock: C,
}

impl<C: Clock> Positioned<C> {
    /// For operations of up to `bytes`.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn new(
        target: &Target,
        bytes: u32,
        verifier: Option<Verifier>,
        clock: C,
    ) -> Result<Self, TargetError> {
        let (memory, scratch) = (Memory::new(), Scratch::default());
        let buffers = Buffers::new(1, bytes, verifier)?;
        Ok(Self { target: target.clone(), memory, scratch, buffers, done: None, clock })
    }
}

impl<C: Clock> Engine for Positioned<C> {
    fn depth(&self) -> usize {
        1
    }

    fn submit(&mut self, io: &Io, _now: Nanos) -> Submit {
        let Some(mut buffer) = self.buffers.take(io).filter(|_| self.done.is_none()) else {
            return Submit::Full;
        };
        let transfer = Transfer::Buffer(&mut buffer);
        let moved = run(&self.target.file, &self.memory, call(io), transfer, 0, false, &mut self.scratch);
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
        super::sleep(&self.clock, until);
    }

    fn blocks(&self) -> bool {
        true
    }
}
