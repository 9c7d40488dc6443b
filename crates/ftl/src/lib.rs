#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! [`Flash`] is the drive's firmware over two things: an [`Array`], which is what the flash holds and all
//! that a power cut leaves, and a [`nearside_media::nand::Nand`], which is the time its operations take. It
//! is generic over what a physical page holds: nothing, for simulation (it is then a
//! [`nearside_media::Medium`]), or a handle of 4 KiB of data ([`Page`]), so that a wrong mapping is wrong
//! data and garbage collection copies no byte. [`FlashStore`] is a store over the latter.
//!
//! A write goes into the buffer (`host.rs`); four slots of 4 KiB, a unit's worth, are programmed together on
//! the next die (`place.rs`), and only then does the version before lose its place: whatever is not yet on
//! the flash has its last durable version still there. Dies that run short of free blocks collect
//! (`collect.rs`). What is deallocated is remembered on the flash by a bitmap for each 128 MiB (`trims.rs`).
//! After a power cut all is found again from the logical numbers and the sequence number that each unit
//! carries (`recover.rs`).
//!
//! Operations on the flash take effect in the order in which they are issued; a power cut ends that order
//! anywhere.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod array;
mod cache;
mod collect;
mod host;
mod map;
mod medium;
mod place;
mod recover;
mod store;
mod trims;

pub use array::{Array, Cut, Halt};
pub use collect::Policy;
pub use recover::Recovered;
pub use store::{FlashChannel, FlashStore, Page};

use std::collections::VecDeque;
use std::io;

use nearside_media::nand::{Nand, NandDrive, SPARE_BLOCKS, Ticket};

use cache::Cache;
use map::{Map, NONE};
use trims::Trims;

/// Bytes of a slot, the unit of mapping.
pub const SLOT_BYTES: u64 = 4096;

/// What has been done, in slots of 4 KiB where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Written by the host.
    pub host: u64,
    /// Programmed for the host.
    pub programmed: u64,
    /// Moved by garbage collection and wear levelling.
    pub moved: u64,
    /// Left empty in units that had to be programmed before they were full.
    pub padded: u64,
    /// Bitmaps of deallocated slots written.
    pub bitmaps: u64,
    /// Blocks erased.
    pub erased: u64,
}

impl Stats {
    /// Slots programmed for each slot that the host wrote.
    pub fn write_amplification(&self) -> f64 {
        (self.programmed + self.moved + self.padded + self.bitmaps) as f64 / self.host.max(1) as f64
    }
}

/// What is decided for a whole drive, beyond its preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which block is collected next.
    pub policy: Policy,
    /// Erase counts of one die's blocks may lie so far apart before a block that rests is moved.
    pub wear_spread: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { policy: Policy::Greedy, wear_spread: 32 }
    }
}

/// A slot of the write buffer.
#[derive(Clone, Debug)]
struct Waiting<P> {
    logical: u32,
    /// Where the last durable version is, or [`NONE`].
    durable: u32,
    data: P,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockState {
    Free,
    Open,
    Closed,
}

#[derive(Clone, Debug, Default)]
struct Die {
    free: Vec<u32>,
    /// Being filled: by the host, by garbage collection.
    open: [Option<u32>; 2],
    /// Being collected: the block, and the next slot of it to look at.
    victim: Option<(u32, u32)>,
    /// Units to move for each unit that the host programs, while this victim lasts.
    quota: u32,
    /// Valid slots.
    live: u32,
    /// Victims chosen so far.
    chosen: u32,
    most_erased: u32,
}

/// A drive: translation over an array, in the array's time. See the crate's documentation.
#[derive(Clone, Debug)]
pub struct Flash<P> {
    drive: NandDrive,
    config: Config,
    array: Array<P>,
    nand: Nand,
    map: Map,
    trims: Trims,
    buffer: Vec<Waiting<P>>,
    cache: Cache,
    dies: Vec<Die>,
    states: Vec<BlockState>,
    /// Valid slots of each block, and which they are.
    counts: Vec<u32>,
    valid: Vec<u64>,
    /// Slots that the host sees.
    logical: u32,
    /// Slots that a die may hold valid.
    live_limit: u32,
    next_die: u32,
    /// Host units queued on the dies and not known to have ended.
    programs: VecDeque<Ticket>,
    programs_limit: usize,
    firmware_free_at: u64,
    /// Of collecting, kept for its room.
    moving: Vec<(u32, u32)>,
    stats: Stats,
}

impl<P: Clone + Default + Send + 'static> Flash<P> {
    /// An empty drive. Errors where the capacity is none or beyond what 31 bits of slots can name (8 TiB of
    /// flash).
    ///
    /// # Errors
    /// `InvalidInput` where the capacity is none, more than the flash holds, or beyond what 31 bits of
    /// slots can name (8 TiB of flash).
    pub fn new(drive: NandDrive, config: Config) -> io::Result<Flash<P>> {
        let g = drive.geometry;
        let slots = u64::from(g.unit_bytes()) / SLOT_BYTES;
        let logical = drive.capacity.div_ceil(SLOT_BYTES);
        let all = g.units() * slots;
        let bitmaps = u64::from(Trims::groups(logical.min(u64::from(NONE)) as u32));
        let holds = u64::from(g.blocks.saturating_sub(SPARE_BLOCKS))
            * u64::from(g.dies())
            * u64::from(g.pages)
            * slots;
        if !(1..=16).contains(&slots) || logical == 0 || all >= 1 << 31 || holds < logical {
            let reason = format!("a drive of {} bytes on {} bytes of flash", drive.capacity, g.bytes());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let (logical, dies, blocks) = (logical as u32, g.dies(), g.dies() * g.blocks);
        let block_slots = g.pages * slots as u32;
        let average = (u64::from(logical) + bitmaps).div_ceil(u64::from(dies)) as u32;
        let most = (g.blocks - SPARE_BLOCKS + 1) * block_slots;
        let unit = u64::from(g.unit_bytes());
        Ok(Flash {
            array: Array::new(blocks, g.pages, slots as u32),
            nand: Nand::new(&g, drive.timings, drive.seed),
            map: Map::new(logical + bitmaps as u32),
            trims: Trims::new(logical),
            buffer: Vec::with_capacity(slots as usize),
            cache: Cache::new(drive.controller.read_buffer_bytes / SLOT_BYTES),
            dies: (0..dies)
                .map(|die| Die {
                    free: (die * g.blocks..(die + 1) * g.blocks).rev().collect(),
                    ..Die::default()
                })
                .collect(),
            states: vec![BlockState::Free; blocks as usize],
            counts: vec![0; blocks as usize],
            valid: vec![0; (all as usize).div_ceil(64)],
            logical,
            live_limit: average + (most - average.min(most)) / 2,
            next_die: 0,
            programs: VecDeque::new(),
            programs_limit: (drive.controller.write_buffer_bytes / unit).max(1) as usize,
            firmware_free_at: 0,
            moving: Vec::with_capacity(slots as usize),
            stats: Stats::default(),
            drive,
            config,
        })
    }

    /// What it was made as.
    pub fn drive(&self) -> &NandDrive {
        &self.drive
    }

    /// What was decided for it.
    pub fn config(&self) -> Config {
        self.config
    }

    /// What has been done so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Counts from zero again.
    pub fn reset_stats(&mut self) {
        self.stats = Stats::default();
    }

    /// The fewest and the most erasures of any block.
    pub fn wear(&self) -> (u32, u32) {
        let erases = || (0..self.states.len() as u32).map(|block| self.array.erases(block));
        (erases().min().unwrap_or(0), erases().max().unwrap_or(0))
    }

    /// Dies with something to do at `now`.
    pub fn busy_dies(&mut self, now: u64) -> usize {
        self.nand.busy(now)
    }

    fn slots(&self) -> u32 {
        self.array.slots()
    }

    fn block_slots(&self) -> u32 {
        self.array.block_slots()
    }

    fn die_of_block(&self, block: u32) -> u32 {
        block / self.drive.geometry.blocks
    }

    fn is_valid(&self, slot: u32) -> bool {
        self.valid[slot as usize / 64] & 1 << (slot % 64) != 0
    }

    fn validate(&mut self, slot: u32) {
        let block = slot / self.block_slots();
        let die = self.die_of_block(block);
        assert!(!self.is_valid(slot), "slot {slot} became valid twice");
        self.valid[slot as usize / 64] |= 1 << (slot % 64);
        self.counts[block as usize] += 1;
        self.dies[die as usize].live += 1;
    }

    /// A newer version is durable: this one is garbage.
    fn invalidate(&mut self, slot: u32) {
        let block = slot / self.block_slots();
        let die = self.die_of_block(block);
        // Its block would seem to hold less than it does, and be erased with what is valid.
        assert!(self.is_valid(slot), "slot {slot} became garbage twice");
        self.valid[slot as usize / 64] &= !(1 << (slot % 64));
        self.counts[block as usize] -= 1;
        self.dies[die as usize].live -= 1;
        self.array.forget(slot);
    }
}
