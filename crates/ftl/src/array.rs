//! What the flash holds: all that a power cut leaves.
//!
//! A unit carries, beside its data, what a real page keeps in its spare bytes: a sequence number that only
//! grows and the logical number of each slot. Units of a block are programmed in order; a block is erased as
//! a whole.
//!
//! [`Array::cut_after`] ends it at any operation: the one at the cut happens not at all, in part, or in
//! whole; none after it happens.

use std::collections::HashMap;

use nearside_random::draw;

use crate::trims::Bitmap;

/// A slot of no logical number: left empty.
pub(crate) const EMPTY: u32 = u32::MAX;

/// The sequence number of a unit that cannot be read.
const TORN: u64 = 0;

/// Why the drive stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// The power is gone.
    #[error("the power was cut")]
    PowerCut,
    /// No block is free and none can be made so: more power cuts in a row than the spare blocks outlast.
    #[error("no block of the flash is free")]
    NoBlock,
}

/// When the power goes.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Programs and erases that still happen.
    pub after: u64,
    /// Of what happens to the one after them.
    pub seed: u64,
}

#[derive(Clone, Debug)]
struct Block<P> {
    /// Of each programmed unit.
    sequences: Vec<u64>,
    /// Of each slot.
    logical: Vec<u32>,
    data: Vec<P>,
    erases: u32,
}

/// The flash.
#[derive(Clone, Debug)]
pub struct Array<P> {
    blocks: Vec<Block<P>>,
    pages: u32,
    slots: u32,
    bitmaps: HashMap<u32, Box<Bitmap>>,
    sequence: u64,
    cut: Option<Cut>,
    dead: bool,
    /// What capacitors saved of the buffers: slots deallocated, slots written.
    pub(crate) saved: (Vec<u32>, Vec<(u32, P)>),
}

impl<P: Clone + Default> Array<P> {
    /// Erased flash. A block takes memory for its slots once it is programmed.
    pub(crate) fn new(blocks: u32, pages: u32, slots: u32) -> Array<P> {
        let empty = Block { sequences: Vec::new(), logical: Vec::new(), data: Vec::new(), erases: 0 };
        Array {
            blocks: vec![empty; blocks as usize],
            pages,
            slots,
            bitmaps: HashMap::new(),
            sequence: TORN,
            cut: None,
            dead: false,
            saved: (Vec::new(), Vec::new()),
        }
    }

    /// Cuts the power after so many more operations.
    pub fn cut_after(&mut self, cut: Cut) {
        self.cut = Some(cut);
    }

    /// The power is back.
    pub(crate) fn power_on(&mut self) {
        (self.cut, self.dead) = (None, false);
    }

    /// Slots of a unit.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Slots of a block.
    pub(crate) fn block_slots(&self) -> u32 {
        self.pages * self.slots
    }

    /// Units programmed in a block.
    pub(crate) fn programmed(&self, block: u32) -> u32 {
        self.blocks[block as usize].sequences.len() as u32
    }

    pub(crate) fn is_full(&self, block: u32) -> bool {
        self.programmed(block) == self.pages
    }

    pub(crate) fn erases(&self, block: u32) -> u32 {
        self.blocks[block as usize].erases
    }

    /// The sequence number of the last unit programmed.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Of a block's last unit; 0 where there is none.
    pub(crate) fn last_sequence(&self, block: u32) -> u64 {
        self.blocks[block as usize].sequences.last().copied().unwrap_or(TORN)
    }

    /// The unit's sequence number, where it can be read.
    pub(crate) fn sequence_of(&self, slot: u32) -> Option<u64> {
        let block = &self.blocks[(slot / self.block_slots()) as usize];
        let sequence = *block.sequences.get((slot % self.block_slots() / self.slots) as usize)?;
        (sequence != TORN).then_some(sequence)
    }

    /// The logical number in a slot of a programmed unit.
    pub(crate) fn logical(&self, slot: u32) -> u32 {
        let at = slot % self.block_slots();
        self.blocks[(slot / self.block_slots()) as usize].logical.get(at as usize).copied().unwrap_or(EMPTY)
    }

    pub(crate) fn data(&self, slot: u32) -> Option<&P> {
        self.blocks[(slot / self.block_slots()) as usize].data.get((slot % self.block_slots()) as usize)
    }

    pub(crate) fn bitmap(&self, slot: u32) -> Option<&Bitmap> {
        self.bitmaps.get(&slot).map(|b| &**b)
    }

    /// Nobody will read this slot again; its memory goes now, not when the block is erased.
    pub(crate) fn forget(&mut self, slot: u32) {
        let at = slot % self.block_slots();
        let block = (slot / self.block_slots()) as usize;
        if let Some(data) = self.blocks[block].data.get_mut(at as usize) {
            *data = P::default();
        }
        if !self.bitmaps.is_empty() {
            self.bitmaps.remove(&slot);
        }
    }

    /// Programs the next unit of a block: as many (logical number, data) as it has slots, or fewer. Answers
    /// its first slot.
    pub(crate) fn program(
        &mut self,
        block: u32,
        entries: impl Iterator<Item = (u32, P)>,
        bitmap_of: impl Fn(u32) -> Option<Box<Bitmap>>,
    ) -> Result<u32, Halt> {
        let fate = self.fate()?;
        let (slots, page) = (self.slots as usize, self.programmed(block));
        let first = block * self.block_slots() + page * self.slots;
        debug_assert!(page < self.pages);
        self.sequence += 1;
        let whole = !matches!(fate, Some(Fate::Not | Fate::Partly));
        let it = &mut self.blocks[block as usize];
        if it.logical.capacity() == 0 {
            it.sequences.reserve_exact(self.pages as usize);
            it.logical.reserve_exact(self.pages as usize * slots);
            it.data.reserve_exact(self.pages as usize * slots);
        }
        let end = it.logical.len() + slots;
        if !matches!(fate, Some(Fate::Not)) {
            for (slot, (logical, data)) in (first..).zip(entries) {
                it.logical.push(if whole { logical } else { EMPTY });
                it.data.push(if whole { data } else { P::default() });
                if whole && let Some(bitmap) = bitmap_of(logical) {
                    self.bitmaps.insert(slot, bitmap);
                }
            }
            it.logical.resize(end, EMPTY);
            it.data.resize(end, P::default());
            it.sequences.push(if whole { self.sequence } else { TORN });
        }
        if fate.is_some() { Err(Halt::PowerCut) } else { Ok(first) }
    }

    /// Erases a block. One that was cut in the middle has some units that cannot be read and some that still
    /// can.
    pub(crate) fn erase(&mut self, block: u32) -> Result<(), Halt> {
        let fate = self.fate()?;
        let first = block * self.block_slots();
        let it = &mut self.blocks[block as usize];
        match fate {
            Some(Fate::Not) => {}
            Some(Fate::Partly) => {
                let mut seed = self.sequence;
                for sequence in &mut it.sequences {
                    if draw(&mut seed).is_multiple_of(2) {
                        *sequence = TORN;
                    }
                }
            }
            Some(Fate::Wholly) | None => {
                it.sequences.clear();
                it.logical.clear();
                it.data.clear();
                it.erases += 1;
                if !self.bitmaps.is_empty() {
                    for slot in first..first + self.pages * self.slots {
                        self.bitmaps.remove(&slot);
                    }
                }
            }
        }
        if fate.is_some() { Err(Halt::PowerCut) } else { Ok(()) }
    }

    /// What becomes of the next operation: nothing unusual, or the cut's choice.
    fn fate(&mut self) -> Result<Option<Fate>, Halt> {
        if self.dead {
            return Err(Halt::PowerCut);
        }
        let Some(cut) = &mut self.cut else { return Ok(None) };
        if cut.after > 0 {
            cut.after -= 1;
            return Ok(None);
        }
        self.dead = true;
        Ok(Some([Fate::Not, Fate::Partly, Fate::Wholly][draw(&mut cut.seed) as usize % 3]))
    }
}

#[derive(Clone, Copy)]
enum Fate {
    Not,
    Partly,
    Wholly,
}
