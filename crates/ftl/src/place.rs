//! Where units are programmed: dies in turn, on each a block that the host fills and one that garbage
//! collection fills.

use crate::map::{Location, NONE};
use crate::{BlockState, Flash, Halt};

/// Who fills an open block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Host,
    Collection,
}

/// Free blocks that the host leaves to garbage collection: it needs one to go on with.
pub(crate) const RESERVE: usize = 1;

impl<P: Clone + Default + Send + 'static> Flash<P> {
    /// Programs what is in the buffer, full or not, as one unit. Answers when the unit has room in the write
    /// buffer.
    pub(crate) fn program_buffer(&mut self, now: u64) -> Result<u64, Halt> {
        if self.buffer.is_empty() {
            return Ok(now);
        }
        let accepted = self.admit(now);
        let die = self.next_die();
        self.collect(die, accepted)?;
        let block = self.open(die, Stream::Host)?;
        // Before the unit's bitmaps are taken: a slot in it is not deallocated.
        for at in 0..self.buffer.len() {
            if let Some(held) = self.trims.rewritten(self.buffer[at].logical) {
                self.buffer[at].durable = held;
            }
        }
        let entries = self.buffer.iter().map(|w| (w.logical, w.data.clone()));
        let trims = &self.trims;
        let first = self.array.program(block, entries, |logical| trims.content(logical))?;
        for at in 0..self.buffer.len() {
            let (logical, durable) = (self.buffer[at].logical, self.buffer[at].durable);
            let slot = first + at as u32;
            if durable != NONE {
                self.invalidate(durable);
            }
            self.validate(slot);
            self.map.set(logical, Location::Flash(slot));
            if logical >= self.logical {
                self.stats.bitmaps += 1;
            } else {
                self.stats.programmed += 1;
            }
        }
        self.stats.padded += u64::from(self.slots()) - self.buffer.len() as u64;
        self.buffer.clear();
        let unit = first / self.slots() - die * self.units_of_die();
        let ticket = self.nand.program(die, unit, self.drive.geometry.unit_bytes(), accepted);
        self.programs.push_back(ticket);
        Ok(accepted)
    }

    /// When there is room for one more unit in the write buffer: at once, or when the oldest of those on
    /// their way has ended.
    fn admit(&mut self, now: u64) -> u64 {
        while let Some(&oldest) = self.programs.front()
            && self.nand.ended(oldest, now)
        {
            self.programs.pop_front();
        }
        if self.programs.len() < self.programs_limit {
            return now;
        }
        match self.programs.pop_front() {
            Some(oldest) => self.nand.wait(oldest, now),
            None => now,
        }
    }

    /// The next die in turn that is not too full: what the host overwrites may all lie on some dies, and the
    /// others would choke on what is left.
    fn next_die(&mut self) -> u32 {
        let (dies, slots) = (self.dies.len() as u32, self.slots());
        for _ in 0..dies {
            let die = self.next_die;
            self.next_die = (die + 1) % dies;
            if self.dies[die as usize].live + slots <= self.live_limit {
                return die;
            }
        }
        (0..dies).min_by_key(|&die| self.dies[die as usize].live).unwrap_or(0)
    }

    pub(crate) fn units_of_die(&self) -> u32 {
        self.drive.geometry.blocks * self.drive.geometry.pages
    }

    /// Whether the stream has to take a free block for its next unit.
    pub(crate) fn needs_block(&self, die: u32, stream: Stream) -> bool {
        self.dies[die as usize].open[stream as usize].is_none_or(|block| self.array.is_full(block))
    }

    /// The block that a stream fills. A new one is the least worn of the free ones for the host, the most
    /// worn for garbage collection: what it moves has been left alone and will rest.
    pub(crate) fn open(&mut self, die: u32, stream: Stream) -> Result<u32, Halt> {
        if let Some(block) = self.dies[die as usize].open[stream as usize] {
            if !self.array.is_full(block) {
                return Ok(block);
            }
            self.states[block as usize] = BlockState::Closed;
        }
        let array = &self.array;
        let free = self.dies[die as usize].free.iter().enumerate();
        let wear = |&(_, &block): &(usize, &u32)| array.erases(block);
        let at = match stream {
            Stream::Host => free.min_by_key(wear),
            Stream::Collection => free.max_by_key(wear),
        };
        let (at, _) = at.ok_or(Halt::NoBlock)?;
        let block = self.dies[die as usize].free.swap_remove(at);
        self.dies[die as usize].open[stream as usize] = Some(block);
        self.states[block as usize] = BlockState::Open;
        Ok(block)
    }
}
