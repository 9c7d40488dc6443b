//! A drive without payload is a medium: times and no bytes.

use nearside_media::{Medium, Request, RequestKind};
use nearside_random::draw;

use crate::{Flash, Halt, SLOT_BYTES};

impl Medium for Flash<()> {
    fn finish(&mut self, request: Request, now: u64) -> u64 {
        let Request { kind, offset, len } = request;
        // What lies beyond the drive touches nothing.
        let offset = offset.min(self.drive().capacity);
        let len = len.min(self.drive().capacity - offset);
        let done: Result<u64, Halt> = match kind {
            RequestKind::Read => Ok(self.read(offset, len, now)),
            RequestKind::Write => self.write(offset, len, false, now, |_, _, _| ()),
            RequestKind::Flush => self.flush(now),
            RequestKind::Deallocate => self.deallocate(offset, len, false, now, |_, _, _| ()),
        };
        // Only a test cuts the power.
        done.unwrap_or(now)
    }
}

impl Flash<()> {
    /// Brings the drive near its steady state in no time: every slot written once in order, then so many
    /// times its capacity in slots drawn at random. Statistics and all timelines start over.
    pub fn precondition(&mut self, rounds: f64, seed: u64) {
        let (slots, mut random) = (self.drive().capacity / SLOT_BYTES, seed);
        for slot in 0..slots {
            self.finish(Request::write(slot * SLOT_BYTES, SLOT_BYTES), 0);
        }
        for _ in 0..(slots as f64 * rounds) as u64 {
            let slot = draw(&mut random) % slots.max(1);
            self.finish(Request::write(slot * SLOT_BYTES, SLOT_BYTES), 0);
        }
        self.begin_anew();
    }

    /// All that is under way has ended, it is time 0, and nothing has been counted.
    pub fn begin_anew(&mut self) {
        self.nand.reset();
        self.programs.clear();
        self.firmware_free_at = 0;
        self.reset_stats();
    }
}
