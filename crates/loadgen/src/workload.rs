//! What is done where: fio's words for a workload, and the places that they stand for, one after another.
//!
//! A [`Workload`] is plain data. [`Workload::places`] checks it and gives the [`Places`] of a run, which are
//! the same for the same seed. Random places are drawn independently (fio's `norandommap`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::trace::Trace;
use crate::zipf::Zipf;
use nearside_random::{Random, scatter};

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// fio's `rw=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Sequential reads and writes, mixed; each has its own cursor.
    Rw,
    /// Random reads.
    #[default]
    RandRead,
    /// Random writes.
    RandWrite,
    /// Random reads and writes, mixed.
    RandRw,
}

impl Rw {
    const NAMES: [(Rw, &'static str); 6] = [
        (Rw::Read, "read"),
        (Rw::Write, "write"),
        (Rw::Rw, "rw"),
        (Rw::RandRead, "randread"),
        (Rw::RandWrite, "randwrite"),
        (Rw::RandRw, "randrw"),
    ];

    /// Whether places are random.
    #[must_use]
    pub fn is_random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandRw)
    }

    /// Whether it writes at all.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Rw::Read | Rw::RandRead)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(rw, _)| rw == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Rw {
    type Err = WorkloadError;
    fn from_str(word: &str) -> Result<Self, WorkloadError> {
        let word = if word == "readwrite" { "rw" } else { word };
        let found = Self::NAMES.iter().find(|(_, name)| *name == word);
        found.map(|(rw, _)| *rw).ok_or_else(|| WorkloadError::Rw(word.to_owned()))
    }
}

/// How random places are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Each alike.
    #[default]
    Uniform,
    /// By Zipf's law with this theta; the frequent places are scattered over the range.
    Zipf(f64),
}

/// What one stream does. Offsets and sizes are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Kinds and order.
    pub rw: Rw,
    /// Block sizes in bytes, each with its weight (fio's `bssplit`). One entry: all alike.
    pub bs: Vec<(u32, u32)>,
    /// Of mixed kinds, how many in a hundred are reads.
    pub rwmixread: u8,
    /// First byte.
    pub offset: u64,
    /// Bytes from there.
    pub size: u64,
    /// Random places are multiples of this from `offset`; 0: of the smallest block size.
    pub align: u32,
    /// How random places are spread.
    pub distribution: Distribution,
    /// Pauses of a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think: Option<Think>,
    /// Of a replay: its operations are these, whatever else stands here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<Trace>>,
}

/// fio's `thinktime`: after so many operations a closed loop starts nothing until all in flight have
/// ended, and then nothing for a time. The next operations are due when that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Think {
    /// How long, in nanoseconds.
    pub time_ns: u64,
    /// Of this, how long CPU time is burnt first, in nanoseconds (fio's `thinktime_spin`).
    pub spin_ns: u64,
    /// After how many operations (fio's `thinktime_blocks`).
    pub blocks: u32,
    /// Which ones count.
    pub trigger: Trigger,
}

/// fio's `thinktime_blocks_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// Operations that have ended: up to the queue depth may be in flight until one does.
    #[default]
    Complete,
    /// Operations that were started.
    Issue,
}

/// What is wrong with a workload.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// Not one of fio's words that apply.
    #[error("{0:?} is none of read, write, rw, randread, randwrite, randrw")]
    Rw(String),
    /// No block size, or one of 0 bytes, or one with no weight at all.
    #[error("block sizes must be above 0 and have a weight")]
    BlockSize,
    /// More than all.
    #[error("rwmixread is a percentage, not {0}")]
    Mix(u8),
    /// The range holds no block.
    #[error("{size} bytes from {offset} hold no block of {bs} bytes")]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
        /// The largest block.
        bs: u32,
    },
    /// Zipf's theta.
    #[error("zipf takes a theta above 0, not {0}")]
    Theta(f64),
}

impl Workload {
    /// `rw` in blocks of `bs` bytes over the first `size` bytes.
    #[must_use]
    pub fn new(rw: Rw, bs: u32, size: u64) -> Self {
        let distribution = Distribution::Uniform;
        Self {
            rw,
            bs: vec![(bs, 100)],
            rwmixread: 50,
            offset: 0,
            size,
            align: 0,
            distribution,
            think: None,
            trace: None,
        }
    }

    /// The largest block in bytes; 0 without any.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.bs.iter().map(|(bs, _)| *bs).max().unwrap_or(0)
    }

    /// The places, from the first one on.
    ///
    /// # Errors
    /// What is wrong with the workload.
    pub fn places(&self, seed: u64) -> Result<Places, WorkloadError> {
        let weight: u64 = self.bs.iter().map(|(_, weight)| u64::from(*weight)).sum();
        if weight == 0 || self.bs.iter().any(|(bs, _)| *bs == 0) {
            return Err(WorkloadError::BlockSize);
        }
        if self.rwmixread > 100 {
            return Err(WorkloadError::Mix(self.rwmixread));
        }
        let smallest = self.bs.iter().map(|(bs, _)| *bs).min().unwrap_or(1);
        let align = u64::from(if self.align == 0 { smallest } else { self.align });
        let bs = self.largest();
        if self.size < u64::from(bs) || self.offset.checked_add(self.size).is_none() {
            return Err(WorkloadError::Range { offset: self.offset, size: self.size, bs });
        }
        let zipf = match self.distribution {
            Distribution::Uniform => None,
            Distribution::Zipf(theta) if theta > 0.0 && theta.is_finite() => {
                Some(Zipf::new((self.size - u64::from(bs)) / align + 1, theta))
            }
            Distribution::Zipf(theta) => return Err(WorkloadError::Theta(theta)),
        };
        let one = if self.bs.len() == 1 { smallest } else { 0 };
        Ok(Places {
            workload: self.clone(),
            random: Random::new(seed),
            weight,
            one,
            align,
            zipf,
            cursors: [0; 2],
        })
    }
}

/// The places of one run.
#[derive(Clone, Debug)]
pub struct Places {
    workload: Workload,
    random: Random,
    weight: u64,
    /// The only block size; 0 where there are several.
    one: u32,
    align: u64,
    zipf: Option<Zipf>,
    /// Of sequential reads and writes, in bytes from the range's begin.
    cursors: [u64; 2],
}

impl Places {
    /// The next: what to do, the first byte, bytes.
    #[inline]
    pub fn draw(&mut self) -> (Direction, u64, u32) {
        let rw = self.workload.rw;
        let direction = match rw {
            Rw::Read | Rw::RandRead => Direction::Read,
            Rw::Write | Rw::RandWrite => Direction::Write,
            Rw::Rw | Rw::RandRw => {
                let read = self.random.below(100) < u64::from(self.workload.rwmixread);
                if read { Direction::Read } else { Direction::Write }
            }
        };
        let len = if self.one != 0 { self.one } else { self.block_size() };
        let room = self.workload.size - u64::from(len);
        let at = if rw.is_random() {
            let places = room / self.align + 1;
            let place = match &self.zipf {
                None => self.random.below(places),
                Some(zipf) => scatter(zipf.draw(&mut self.random)) % places,
            };
            place * self.align
        } else {
            let cursor = &mut self.cursors[direction as usize];
            let at = if *cursor > room { 0 } else { *cursor };
            *cursor = at + u64::from(len);
            at
        };
        (direction, self.workload.offset + at, len)
    }

    fn block_size(&mut self) -> u32 {
        let mut left = self.random.below(self.weight);
        for (bs, weight) in &self.workload.bs {
            match left.checked_sub(u64::from(*weight)) {
                Some(less) => left = less,
                None => return *bs,
            }
        }
        self.workload.bs[0].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(workload: &Workload, n: usize) -> Vec<(Direction, u64, u32)> {
        let mut places = workload.places(5).unwrap();
        (0..n).map(|_| places.draw()).collect()
    }

    #[test]
    fn the_words_are_fios() {
        for (rw, name) in Rw::NAMES {
            assert_eq!((rw.to_string().as_str(), name.parse()), (name, Ok(rw)));
            assert_eq!(serde_json::to_string(&rw).unwrap(), format!("{name:?}"));
        }
        assert_eq!("readwrite".parse(), Ok(Rw::Rw));
        assert_eq!("trim".parse::<Rw>(), Err(WorkloadError::Rw("trim".into())));
    }

    #[test]
    fn random_places_are_aligned_within_the_range_and_all_of_it() {
        let workload = Workload { offset: 1 << 20, ..Workload::new(Rw::RandRw, 4096, 64 << 10) };
        let workload = Workload { rwmixread: 70, ..workload };
        let drawn = drawn(&workload, 20_000);
        let reads = drawn.iter().filter(|(d, ..)| *d == Direction::Read).count();
        assert!((13_600..14_400).contains(&reads), "{reads}");
        let mut places: Vec<u64> = drawn.iter().map(|(_, at, _)| *at).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places, (0..16).map(|i| (1 << 20) + i * 4096).collect::<Vec<_>>());
    }

    #[test]
    fn sequences_go_round_and_sizes_are_split() {
        let drawn1 = drawn(&Workload::new(Rw::Write, 4096, 10_000), 4);
        assert_eq!(drawn1.iter().map(|d| d.1).collect::<Vec<_>>(), [0, 4096, 0, 4096]);
        assert!(drawn1.iter().all(|d| d.0 == Direction::Write));
        let split = Workload { bs: vec![(4096, 3), (65_536, 1)], ..Workload::new(Rw::RandRead, 1, 1 << 20) };
        let drawn2 = drawn(&split, 20_000);
        let large = drawn2.iter().filter(|d| d.2 == 65_536).count();
        assert!((4_600..5_400).contains(&large), "{large}");
        assert!(drawn2.iter().all(|d| d.1 % 4096 == 0 && d.1 + u64::from(d.2) <= 1 << 20));
        let zipf =
            Workload { distribution: Distribution::Zipf(1.2), ..Workload::new(Rw::RandRead, 4096, 1 << 30) };
        let mut places: Vec<u64> = drawn(&zipf, 10_000).iter().map(|d| d.1).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() < 4_000, "a skewed draw comes back to its places: {}", places.len());
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let workload = Workload::new(Rw::Read, 4096, 4096);
        assert!(workload.places(0).is_ok());
        let wrong = |workload: Workload| workload.places(0).unwrap_err();
        assert!(matches!(wrong(Workload { size: 4095, ..workload.clone() }), WorkloadError::Range { .. }));
        assert!(matches!(
            wrong(Workload { offset: u64::MAX, ..workload.clone() }),
            WorkloadError::Range { .. }
        ));
        assert_eq!(wrong(Workload { bs: vec![], ..workload.clone() }), WorkloadError::BlockSize);
        assert_eq!(wrong(Workload { bs: vec![(0, 1)], ..workload.clone() }), WorkloadError::BlockSize);
        assert_eq!(wrong(Workload { rwmixread: 101, ..workload.clone() }), WorkloadError::Mix(101));
        let zipf = Workload { distribution: Distribution::Zipf(0.0), ..workload };
        assert_eq!(wrong(zipf), WorkloadError::Theta(0.0));
    }
}
