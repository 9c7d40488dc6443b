//! Millions of random operations with power cuts at any operation on the flash, against a plain map that
//! knows what was flushed.

mod common;

use common::{drive, protected};
use nearside_ftl::{Config, Cut, Flash, Halt, Policy};
use nearside_media::nand::NandDrive;
use nearside_random::draw;

/// Of one slot: the value that was durable last, and all that were written since. 0 is zeros.
#[derive(Clone, Default)]
struct SlotHistory {
    durable: u64,
    since: Vec<u64>,
}

impl SlotHistory {
    fn newest(&self) -> u64 {
        self.since.last().copied().unwrap_or(self.durable)
    }
}

struct Run {
    drive: NandDrive,
    config: Config,
    flash: Flash<u64>,
    slots: Vec<SlotHistory>,
    random: u64,
    value: u64,
    cuts: u64,
    moved: u64,
}

impl Run {
    fn below(&mut self, n: u64) -> u64 {
        draw(&mut self.random) % n
    }

    /// One operation; false where the power went.
    fn step(&mut self) -> bool {
        let count = self.slots.len() as u64;
        let long = self.below(32) == 0;
        // Most of it on a part of the drive.
        let hot = if self.below(4) > 0 { count / 4 } else { count };
        let first = self.below(hot);
        let len = 1 + self.below(if long { 200 } else { 6 });
        let range = first as usize..(first + len).min(count) as usize;
        let (offset, bytes) = (range.start as u64 * 4096, range.len() as u64 * 4096);
        let kind = self.below(100);
        let before = self.flash_state();
        let (result, new): (Result<u64, Halt>, Option<u64>) = match kind {
            0..70 => {
                let fua = self.below(16) == 0;
                self.value += 1;
                let value = self.value;
                self.begin(range.clone(), value);
                let done = self.flash.write(offset, bytes, fua, before, |_, _, _| value);
                if fua && done.is_ok() {
                    self.durable(range.clone());
                }
                (done, Some(value))
            }
            70..85 => {
                self.begin(range.clone(), 0);
                (self.flash.deallocate(offset, bytes, false, before, |_, _, _| 0), Some(0))
            }
            85..97 => {
                for at in range.clone() {
                    let found = self.flash.peek(at as u32).copied().unwrap_or(0);
                    assert_eq!(found, self.slots[at].newest(), "slot {at}");
                }
                (Ok(self.flash.read(offset, bytes, before)), None)
            }
            _ => {
                let done = self.flash.flush(before);
                if done.is_ok() {
                    self.durable(0..self.slots.len());
                }
                (done, None)
            }
        };
        if result.is_ok() && new.is_some() && self.drive.controller.protected {
            self.durable(range);
        }
        if let Ok(done) = result {
            assert!(done >= before);
        }
        result.is_ok()
    }

    fn flash_state(&mut self) -> u64 {
        // Time goes on by a little for each operation.
        self.value * 3_000
    }

    fn begin(&mut self, range: std::ops::Range<usize>, value: u64) {
        self.slots[range].iter_mut().for_each(|slot| slot.since.push(value));
    }

    fn durable(&mut self, range: std::ops::Range<usize>) {
        for slot in &mut self.slots[range] {
            slot.durable = slot.newest();
            slot.since.clear();
        }
    }

    /// The power is cut and comes back: every slot has its durable value or one written since, and that one
    /// stays.
    fn cut(&mut self, seed: u64) {
        self.cuts += 1;
        self.moved += self.flash.stats().moved;
        let empty = Flash::new(self.drive, self.config).unwrap();
        let array = std::mem::replace(&mut self.flash, empty).power_cut();
        let (flash, recovered) = Flash::recover(self.drive, self.config, array).unwrap();
        assert!(
            recovered.units <= self.drive.geometry.units()
                && recovered.slots <= self.drive.geometry.units() * 4
        );
        self.flash = flash;
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let found = self.flash.peek(at as u32).copied().unwrap_or(0);
            assert!(
                found == slot.durable || slot.since.contains(&found),
                "seed {seed}, cut {}, slot {at}: {found}, not {} or of {:?}",
                self.cuts,
                slot.durable,
                slot.since
            );
            *slot = SlotHistory { durable: found, since: Vec::new() };
        }
    }
}

/// So many operations with a cut within every so many operations on the flash. Answers how many cuts there
/// were.
fn run(drive: NandDrive, config: Config, seed: u64, operations: u64, every: u64) -> u64 {
    let slots = vec![SlotHistory::default(); (drive.capacity / 4096) as usize];
    let flash = Flash::new(drive, config).unwrap();
    let mut run = Run { drive, config, flash, slots, random: seed, value: 0, cuts: 0, moved: 0 };
    let arm = |run: &mut Run| {
        let cut = Cut { after: run.below(every), seed: run.below(u64::MAX) };
        run.flash.cut_after(cut);
    };
    arm(&mut run);
    for _ in 0..operations {
        if !run.step() || run.below(20_000) == 0 {
            run.cut(seed);
            arm(&mut run);
        }
    }
    run.cut(seed);
    assert!(run.moved > 100, "{} slots were collected", run.moved);
    run.cuts
}

const COST_BENEFIT: Config = Config { policy: Policy::CostBenefit, wear_spread: 4 };

#[test]
fn nothing_flushed_is_lost_and_nothing_older_comes_back() {
    let mut cuts = 0;
    for seed in 0..4 {
        cuts += run(drive(1024, 4, 8, 1150), Config::default(), seed, 300_000, 4000);
        cuts += run(drive(1000, 1, 16, 1070), COST_BENEFIT, seed, 100_000, 2000);
        cuts +=
            run(drive(300, 2, 4, 1300), Config { wear_spread: 2, ..Config::default() }, seed, 150_000, 300);
    }
    assert!(cuts > 2000, "{cuts} cuts");
}

#[test]
fn capacitors_save_all_that_was_accepted() {
    let mut cuts = 0;
    for seed in 0..3 {
        cuts += run(protected(drive(1024, 4, 8, 1150)), Config::default(), seed, 200_000, 3000);
        cuts += run(protected(drive(300, 2, 4, 1300)), COST_BENEFIT, seed, 100_000, 300);
    }
    assert!(cuts > 1000, "{cuts} cuts");
}

/// More than one group of bitmaps, and deallocations large enough that they are written unasked.
#[test]
fn large_deallocations_survive() {
    for seed in 0..2 {
        run(drive(140_000, 4, 64, 1200), Config::default(), seed, 40_000, 200_000);
        let mut flash: Flash<u64> = Flash::new(drive(140_000, 4, 64, 1200), Config::default()).unwrap();
        flash.write(0, 140_000 * 4096, false, 0, |at, _, _| u64::from(at) + 1).unwrap();
        flash.flush(0).unwrap();
        flash.deallocate(4096, 139_998 * 4096, false, 0, |_, _, _| 0).unwrap();
        flash.flush(0).unwrap();
        let drive = *flash.drive();
        let (flash, found) = Flash::recover(drive, Config::default(), flash.power_cut()).unwrap();
        assert_eq!(
            (flash.peek(0), flash.peek(1), flash.peek(139_998), flash.peek(139_999)),
            (Some(&1), None, None, Some(&140_000))
        );
        assert!((0..140_000).filter(|&at| flash.peek(at).is_some()).count() == 2, "{found:?}");
    }
}

/// Power cuts one after the other, within whatever the drive does first.
#[test]
fn cuts_in_quick_succession() {
    for seed in 0..4 {
        let cuts = run(drive(512, 2, 8, 1100), Config::default(), seed, 60_000, 12);
        assert!(cuts > 2000, "{cuts} cuts");
    }
}
