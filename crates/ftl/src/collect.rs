//! Garbage collection: each die wins back its own blocks.
//!
//! A die that is down to a few free blocks chooses a victim and moves its valid slots, unit by unit, into the
//! block that collection fills, on the same die: its queue keeps the erase behind the moves. Each unit that
//! the host programs pays for its part of the victim, so that the work comes evenly. Only the handles of the
//! data move.

use nearside_media::nand::SPARE_BLOCKS;

use crate::map::Location;
use crate::place::{RESERVE, Stream};
use crate::{BlockState, Flash, Halt};

/// Which block is collected next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The one with the fewest valid slots.
    #[default]
    Greedy,
    /// The one with the best (1 - u) / 2u times its age, u being the part that is valid (Rosenblum and
    /// Ousterhout, 1992): old blocks that hold little garbage are taken before young ones that may lose more
    /// by themselves.
    CostBenefit,
}

/// With so few free blocks left a die begins to collect.
const LOW: usize = SPARE_BLOCKS as usize - 2;

/// One victim in so many is looked for among blocks that rest, where the erase counts lie too far apart.
const LEVEL_EVERY: u32 = 4;

impl<P: Clone + Default + Send + 'static> Flash<P> {
    /// Before the host's next unit on a die: this unit's part of the collecting, and a block for it if it
    /// needs one.
    pub(crate) fn collect(&mut self, die: u32, now: u64) -> Result<(), Halt> {
        let free = |it: &Self| it.dies[die as usize].free.len();
        if free(self) > LOW {
            return Ok(());
        }
        if self.dies[die as usize].victim.is_none() && !self.choose(die) {
            return Ok(());
        }
        for _ in 0..self.dies[die as usize].quota {
            if self.dies[die as usize].victim.is_none() {
                break;
            }
            self.move_unit(die, now)?;
        }
        while self.needs_block(die, Stream::Host) && free(self) <= RESERVE {
            if self.dies[die as usize].victim.is_none() && !self.choose(die) {
                break;
            }
            self.move_unit(die, now)?;
        }
        Ok(())
    }

    /// Chooses a victim, where one would win anything.
    fn choose(&mut self, die: u32) -> bool {
        let blocks = self.drive.geometry.blocks;
        let all = self.block_slots();
        let closed =
            || (die * blocks..(die + 1) * blocks).filter(|&b| self.states[b as usize] == BlockState::Closed);
        let it = &self.dies[die as usize];
        let resting = closed().min_by_key(|&b| self.array.erases(b)).filter(|&b| {
            it.chosen.is_multiple_of(LEVEL_EVERY)
                && it.free.len() > RESERVE
                && it.most_erased.saturating_sub(self.array.erases(b)) > self.config.wear_spread
        });
        let valid = |b: u32| self.counts[b as usize];
        let best = || match self.config.policy {
            Policy::Greedy => closed().min_by_key(|&b| valid(b)),
            Policy::CostBenefit => closed().min_by_key(|&b| {
                let age = u128::from(self.array.sequence() - self.array.last_sequence(b)) + 1;
                // The reciprocal of the benefit, so that an empty block is the best of all.
                let (used, won) = (u128::from(valid(b)), u128::from(all - valid(b)));
                if won == 0 { u128::MAX } else { (used << 64) / (won * age) }
            }),
        };
        let Some(victim) = resting.or_else(|| best().filter(|&b| valid(b) < all)) else { return false };
        let units = |slots: u32| slots.div_ceil(self.slots()).max(1);
        let (work, won) = (units(valid(victim)), units(all - valid(victim)));
        let it = &mut self.dies[die as usize];
        it.chosen += 1;
        it.quota = work.div_ceil(won);
        it.victim = Some((victim, 0));
        self.states[victim as usize] = BlockState::Open;
        true
    }

    /// Moves one unit's worth of the victim's valid slots, or erases the victim once there are none.
    fn move_unit(&mut self, die: u32, now: u64) -> Result<(), Halt> {
        let Some((victim, mut next)) = self.dies[die as usize].victim else { return Ok(()) };
        let (all, slots) = (self.block_slots(), self.slots());
        let base = victim * all;
        self.moving.clear();
        while next < all && self.moving.len() < slots as usize {
            let slot = base + next;
            let rest = self.valid[slot as usize / 64] >> (slot % 64);
            if rest == 0 {
                next += 64 - slot % 64;
            } else if rest & 1 == 0 {
                next += rest.trailing_zeros();
            } else {
                self.moving.push((slot, self.array.logical(slot)));
                next += 1;
            }
        }
        if !self.moving.is_empty() {
            self.move_slots(die, now)?;
        }
        if next < all {
            self.dies[die as usize].victim = Some((victim, next));
            return Ok(());
        }
        self.array.erase(victim)?;
        self.nand.erase(die, now);
        self.stats.erased += 1;
        let erases = self.array.erases(victim);
        self.states[victim as usize] = BlockState::Free;
        let it = &mut self.dies[die as usize];
        it.victim = None;
        it.free.push(victim);
        it.most_erased = it.most_erased.max(erases);
        Ok(())
    }

    fn move_slots(&mut self, die: u32, now: u64) -> Result<(), Halt> {
        let block = self.open(die, Stream::Collection)?;
        let moving = std::mem::take(&mut self.moving);
        let (array, trims) = (&mut self.array, &self.trims);
        let data: Vec<P> = if std::mem::size_of::<P>() == 0 {
            Vec::new()
        } else {
            moving.iter().map(|&(slot, _)| array.data(slot).cloned().unwrap_or_default()).collect()
        };
        let entries = moving
            .iter()
            .enumerate()
            .map(|(at, &(_, logical))| (logical, data.get(at).cloned().unwrap_or_default()));
        let first = array.program(block, entries, |logical| trims.content(logical))?;
        let (slots, units) = (self.slots(), self.units_of_die());
        let (mut unit, mut count) = (u32::MAX, 0);
        for (to, &(from, logical)) in (first..).zip(&moving) {
            self.validate(to);
            match self.map.get(logical) {
                Location::Flash(at) if at == from => self.map.set(logical, Location::Flash(to)),
                Location::Buffer(index) if self.buffer[index].durable == from => {
                    self.buffer[index].durable = to
                }
                _ => {
                    // Deallocated, and its bitmap not written yet.
                    if let Some(held) = self.trims.held.get_mut(&logical)
                        && *held == from
                    {
                        *held = to;
                    } else {
                        debug_assert!(false, "slot {from} is valid and nobody's");
                    }
                }
            }
            self.invalidate(from);
            if from / slots != unit {
                if count > 0 {
                    self.nand.background_read(die, unit - die * units, count * 4096, now);
                }
                (unit, count) = (from / slots, 0);
            }
            count += 1;
        }
        self.nand.background_read(die, unit - die * units, count * 4096, now);
        self.nand.program(die, first / slots - die * units, self.drive.geometry.unit_bytes(), now);
        self.stats.moved += moving.len() as u64;
        self.stats.padded += u64::from(slots) - moving.len() as u64;
        // Beside the host's commands: it holds up those that come while it goes on.
        self.firmware_free_at += moving.len() as u64 * self.drive.controller.move_busy_ns;
        self.moving = moving;
        Ok(())
    }
}
