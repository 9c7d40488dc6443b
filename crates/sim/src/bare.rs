//! A medium alone behind the load generator: no controller, no driver, no queues but the medium's own.
//!
//! Faster than [`crate::Drive`], which it is checked against: both give the same times as long as the drive's
//! queue has room. A figure that was taken here says so.

use nearside_clock::Nanos;
use nearside_loadgen::Direction;
use nearside_loadgen::engine::{Done, Engine, Io, Next, Submit};
use nearside_media::{Medium, Request};
use nearside_store::TimerQueue;

/// An [`Engine`] over a medium.
pub struct Bare<M> {
    medium: M,
    depth: usize,
    due: TimerQueue<u32>,
}

impl<M: Medium> Bare<M> {
    /// Up to `depth` operations in flight.
    pub fn new(medium: M, depth: usize) -> Self {
        Self { medium, depth, due: TimerQueue::default() }
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.medium
    }
}

impl<M: Medium> Engine for Bare<M> {
    fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    fn submit(&mut self, io: &Io, now: Nanos) -> Submit {
        if self.due.len() >= self.depth {
            return Submit::Full;
        }
        let request = match io.direction {
            Direction::Read => Request::read(io.offset, io.len.into()),
            Direction::Write => Request::write(io.offset, io.len.into()),
        };
        let at = self.medium.finish(request, now.0);
        self.due.push(Nanos(at).max(now), io.token);
        Submit::Taken
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Vec<Done>) {
        while let Some(token) = self.due.pop(now) {
            done.push(Done { token, at: now, result: Ok(()) });
        }
    }

    #[inline]
    fn next(&self) -> Next {
        self.due.next_due().map_or(Next::Idle, Next::At)
    }
}
