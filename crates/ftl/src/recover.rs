//! The power is back: everything is found from what is on the flash.
//!
//! Every unit that was programmed is looked at once, its spare bytes only: of each logical slot the version
//! with the highest sequence number counts. Then the bitmaps of deallocated slots overrule what is older than
//! they. A block that was being filled is filled on after its last unit; one whose erase was cut is erased
//! again when its turn comes.

use std::io;

use nearside_media::nand::NandDrive;

use crate::array::{Array, Cut, EMPTY};
use crate::map::Location;
use crate::trims::{Trims, bits};
use crate::{BlockState, Config, Flash};

/// What recovery did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Units whose spare bytes were read: never more than were programmed.
    pub units: u64,
    /// Units of these that could not be read.
    pub torn: u64,
    /// Slots found.
    pub slots: u64,
}

impl<P: Clone + Default + Send + 'static> Flash<P> {
    /// Cuts the power in the middle of things, after so many more operations on the flash: what comes then
    /// fails.
    pub fn cut_after(&mut self, cut: Cut) {
        self.array.cut_after(cut);
    }

    /// Takes the power away. What is left is the flash, with what capacitors could save where the drive has
    /// them.
    pub fn power_cut(mut self) -> Array<P> {
        if self.drive.controller.protected {
            self.array.saved.0.extend(self.trims.held.keys());
            let data = self.buffer.drain(..).filter(|w| w.logical < self.logical);
            self.array.saved.1.extend(data.map(|w| (w.logical, w.data)));
        }
        self.array
    }

    /// A drive from what a power cut left of it: `drive` as it was made.
    ///
    /// # Errors
    /// As of [`Flash::new`]; and where no block is free for what the capacitors had saved.
    pub fn recover(drive: NandDrive, config: Config, array: Array<P>) -> io::Result<(Flash<P>, Recovered)> {
        let mut flash = Flash::new(drive, config)?;
        flash.array = array;
        flash.array.power_on();
        let mut recovered = Recovered { units: 0, torn: 0, slots: 0 };
        flash.find_newest(&mut recovered);
        flash.apply_bitmaps();
        flash.count();
        flash.sort_blocks();
        recovered.slots = flash.counts.iter().map(|&n| u64::from(n)).sum();
        let (deallocated, written) = std::mem::take(&mut flash.array.saved);
        // A held slot that was written again is among the written ones: its order is kept.
        for logical in deallocated {
            flash.forget(logical);
        }
        for (logical, data) in written {
            flash.enter(logical, data, 0).map_err(io::Error::other)?;
        }
        Ok((flash, recovered))
    }

    fn find_newest(&mut self, recovered: &mut Recovered) {
        let (slots, block_slots) = (self.slots(), self.block_slots());
        for block in 0..self.states.len() as u32 {
            for page in 0..self.array.programmed(block) {
                recovered.units += 1;
                let first = block * block_slots + page * slots;
                let Some(sequence) = self.array.sequence_of(first) else {
                    recovered.torn += 1;
                    continue;
                };
                for slot in first..first + slots {
                    let logical = self.array.logical(slot);
                    if logical == EMPTY || logical >= self.logical + self.groups() {
                        continue;
                    }
                    let newest = match self.map.get(logical) {
                        Location::Flash(other) => {
                            self.array.sequence_of(other).is_none_or(|it| it < sequence)
                        }
                        _ => true,
                    };
                    if newest {
                        self.map.set(logical, Location::Flash(slot));
                    }
                }
            }
        }
    }

    fn apply_bitmaps(&mut self) {
        for group in 0..self.groups() {
            let Location::Flash(at) = self.map.get(self.trims.number(group)) else { continue };
            let (Some(bitmap), Some(written)) = (self.array.bitmap(at), self.array.sequence_of(at)) else {
                continue;
            };
            let mut bitmap = Box::new(*bitmap);
            let base = Trims::slots_of(group).start;
            for bit in bits(&bitmap.clone()) {
                if let Location::Flash(slot) = self.map.get(base + bit) {
                    if self.array.sequence_of(slot).is_some_and(|it| it < written) {
                        self.map.set(base + bit, Location::Nowhere);
                    } else {
                        bitmap[(bit / 64) as usize] &= !(1 << (bit % 64));
                    }
                }
            }
            self.trims.load(group, bitmap);
        }
    }

    fn count(&mut self) {
        let (all, mut logical) = (self.logical + self.groups(), 0);
        while logical < all {
            if let Location::Flash(slot) = self.map.get(logical) {
                self.validate(slot);
            }
            logical = self.map.next_mapped(logical + 1);
        }
    }

    fn sort_blocks(&mut self) {
        let blocks = self.drive.geometry.blocks;
        for (die, it) in (0u32..).zip(&mut self.dies) {
            it.free.clear();
            for block in (die * blocks..(die + 1) * blocks).rev() {
                it.most_erased = it.most_erased.max(self.array.erases(block));
                let open = it.open.iter_mut().find(|open| open.is_none());
                self.states[block as usize] = match (self.array.programmed(block), open) {
                    (0, _) => {
                        it.free.push(block);
                        BlockState::Free
                    }
                    (_, Some(open)) if !self.array.is_full(block) => {
                        *open = Some(block);
                        BlockState::Open
                    }
                    _ => BlockState::Closed,
                };
            }
        }
        for slot in 0..self.states.len() as u32 * self.block_slots() {
            let block = slot / self.block_slots();
            if slot.is_multiple_of(self.block_slots()) && self.array.programmed(block) == 0 {
                continue;
            }
            if !self.is_valid(slot) {
                self.array.forget(slot);
            }
        }
    }
}
