//! The load of one drive: up to five streams at fixed rates.
//!
//! Reads and committed writes of records: ACT's many threads keep time each by itself; their sum comes near
//! to independent arrivals, which is what users are. So these are drawn (Poisson), where evenly spaced ones
//! would never meet. Large operations come at a constant rate, as from ACT's one thread for each kind; the
//! tomb raider reads one large block after another.

use nearside_loadgen::{Arrivals, Plan, Rw, Stream, Think, Trigger, Workload};
use serde::{Deserialize, Serialize};

use super::derive::{Asked, Derived};

/// What 1x is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The paper's (V-B): 1,000 reads of 1.5 KB a second, 1.536 MB/s of 128 KiB reads and as much of writes.
    #[default]
    Pieee17,
    /// Today's ACT: 2,000 reads of 1.5 KB a second, and 1,000 writes whose records go to the drive in large
    /// blocks, twice over with defragmentation at half-full blocks.
    Act6,
}

impl Profile {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Pieee17 => "pieee17",
            Profile::Act6 => "act6",
        }
    }
}

/// Operations per second on one drive, and their sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Reads of records per second: these are measured.
    pub reads: f64,
    /// Writes of single records per second, which commit; measured too.
    pub writes: f64,
    /// The smallest record; the drive sees it rounded up to its blocks.
    pub record_bytes: u32,
    /// The largest: sizes in blocks up to it are all as likely.
    pub record_bytes_max: u32,
    /// A committed write is a multiple of this, where the drive's blocks are smaller.
    pub commit_bytes: u32,
    /// Large reads per second.
    pub large_reads: f64,
    /// Large writes per second.
    pub large_writes: f64,
    /// Size of a large one.
    pub large_bytes: u32,
    /// Each large read comes so many nanoseconds after a large write; 0: both come at once.
    pub large_apart_ns: u64,
    /// The tomb raider reads the drive from end to end in large blocks, over and over, with so many
    /// nanoseconds between two; none without.
    pub tomb_raider_ns: Option<u64>,
    /// A drive that is this far behind has failed, in nanoseconds; 0: it never has.
    pub max_lag_ns: u64,
}

/// A load that cannot be put on this drive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Too small.
    #[error("a drive of {capacity} bytes holds no block of {block} bytes")]
    Capacity {
        /// The drive's bytes.
        capacity: u64,
        /// The large block's.
        block: u32,
    },
    /// Nothing at all.
    #[error("a load without operations measures nothing")]
    Nothing,
}

/// The paper's and ACT's large block.
const LARGE: u32 = 128 << 10;
/// ACT kept its large operations apart in the paper's time (its versions 3 and 4); today's begins both at
/// once.
const APART_NS: u64 = 500_000;
/// ACT's max-lag-sec.
pub(super) const MAX_LAG_NS: u64 = 10_000_000_000;

/// Names of the streams: those of ACT's histograms.
pub(super) mod names {
    pub const READS: &str = "reads";
    pub const WRITES: &str = "writes";
    pub const LARGE_READS: &str = "large-block-reads";
    pub const LARGE_WRITES: &str = "large-block-writes";
    pub const TOMB_RAIDER: &str = "tomb-raider";
    /// In ACT's order.
    pub const ALL: [&str; 5] = [READS, WRITES, LARGE_READS, LARGE_WRITES, TOMB_RAIDER];
}

impl Load {
    /// A multiple of a profile's unit, from 1; 0 counts as 1.
    ///
    /// # Panics
    /// Never: the units are loads.
    pub fn times(profile: Profile, multiple: u32) -> Load {
        let record = Asked::default().record_bytes as u32;
        let multiple = multiple.max(1);
        match profile {
            Profile::Pieee17 => {
                // The paper's 1.536 MB/s is 1,000 records; it counts bytes, not records in a block.
                let large = 1000.0 * f64::from(record) / f64::from(LARGE) * f64::from(multiple);
                Load {
                    reads: 1000.0 * f64::from(multiple),
                    writes: 0.0,
                    record_bytes: record,
                    record_bytes_max: record,
                    commit_bytes: 0,
                    large_reads: large,
                    large_writes: large,
                    large_bytes: LARGE,
                    large_apart_ns: APART_NS,
                    tomb_raider_ns: None,
                    max_lag_ns: MAX_LAG_NS,
                }
            }
            Profile::Act6 => {
                let times = u64::from(multiple);
                let asked = Asked {
                    read_reqs_per_sec: 2000 * times,
                    write_reqs_per_sec: 1000 * times,
                    ..Asked::default()
                };
                Load::share(&asked.derive().expect("the unit is a load"), 1, LARGE)
            }
        }
    }

    /// What one of `devices` takes of a file's rates, which are totals.
    pub(super) fn share(derived: &Derived, devices: usize, large_bytes: u32) -> Load {
        let each = |rate: f64| rate / devices.max(1) as f64;
        Load {
            reads: each(derived.internal_read_reqs_per_sec as f64),
            writes: each(derived.internal_write_reqs_per_sec as f64),
            record_bytes: derived.record_stored_bytes,
            record_bytes_max: derived.record_stored_bytes_range_max,
            commit_bytes: 0,
            large_reads: each(derived.large_block_reads_per_sec),
            large_writes: each(derived.large_block_writes_per_sec),
            large_bytes,
            large_apart_ns: 0,
            tomb_raider_ns: None,
            max_lag_ns: MAX_LAG_NS,
        }
    }

    /// Bytes of the largest operation, on a drive of such blocks.
    pub fn largest_bytes(&self, block_size: u32) -> u32 {
        let commit = if self.writes > 0.0 { self.commit_bytes } else { 0 };
        let record = self.record_bytes_max.next_multiple_of(commit.max(1));
        self.large_bytes.max(record).next_multiple_of(block_size.max(1))
    }

    /// The plan of a run: `runtime_ns` long with slices of `slice_ns`,
    /// on a drive of `capacity` bytes in blocks of `block_size`.
    ///
    /// # Errors
    /// [`LoadError`]: the drive does not hold one large block and the largest record, or there is nothing to
    /// do.
    pub fn plan(
        &self,
        capacity: u64,
        block_size: u32,
        runtime_ns: u64,
        slice_ns: u64,
        seed: u64,
    ) -> Result<Plan, LoadError> {
        let block = block_size.max(1);
        let large_bytes = self.large_bytes.next_multiple_of(block);
        let size = capacity - capacity % u64::from(large_bytes);
        let largest = self.largest_bytes(block);
        if size < u64::from(largest) {
            return Err(LoadError::Capacity { capacity, block: largest });
        }
        let stream = |name: &str, workload, arrivals| Stream { name: name.to_owned(), workload, arrivals };
        let records = |name, rw, unit: u32, rate| {
            let sizes = sizes(self.record_bytes, self.record_bytes_max, unit);
            let workload = Workload { bs: sizes, align: unit, ..Workload::new(rw, unit, size) };
            stream(name, workload, Arrivals::Poisson { rate })
        };
        let large = |name, rw, arrivals| stream(name, Workload::new(rw, large_bytes, size), arrivals);
        let (reads, writes) =
            (Arrivals::Constant { rate: self.large_reads }, Arrivals::Constant { rate: self.large_writes });
        let mut streams = vec![
            records(names::READS, Rw::RandRead, block, self.reads),
            records(names::WRITES, Rw::RandWrite, self.commit_bytes.max(block), self.writes),
            large(names::LARGE_WRITES, Rw::RandWrite, writes),
            large(names::LARGE_READS, Rw::RandRead, reads),
        ];
        streams.retain(|s| s.arrivals.rate() > Some(0.0));
        if let Some(time_ns) = self.tomb_raider_ns {
            let think = Think { time_ns, spin_ns: 0, blocks: 1, trigger: Trigger::Complete };
            let workload = Workload { think: Some(think), ..Workload::new(Rw::Read, large_bytes, size) };
            streams.push(stream(names::TOMB_RAIDER, workload, Arrivals::Closed { depth: 1 }));
        }
        if streams.is_empty() {
            return Err(LoadError::Nothing);
        }
        Ok(Plan {
            streams,
            seed,
            runtime_ns: Some(runtime_ns),
            slice_ns,
            service_slices: true,
            apart_ns: self.large_apart_ns,
            drain_ns: self.max_lag_ns,
            ..Plan::default()
        })
    }
}

/// Sizes of records from `least` to `most` in whole units, each as likely as the others.
fn sizes(least: u32, most: u32, unit: u32) -> Vec<(u32, u32)> {
    let units = least.div_ceil(unit).max(1)..=most.div_ceil(unit).max(1);
    units.map(|n| (n * unit, 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_are_the_papers_and_todays() {
        let paper = Load::times(Profile::Pieee17, 1);
        assert_eq!((paper.reads, paper.record_bytes), (1000.0, 1536));
        assert_eq!(paper.large_writes * f64::from(paper.large_bytes), 1.536e6);
        let today = Load::times(Profile::Act6, 3);
        assert_eq!(today.reads, 6000.0);
        // 3,000 records of which 85 fit a block, twice over.
        assert_eq!(today.large_writes, 3000.0 / 85.0 * 2.0);
        assert_eq!(today.large_reads, today.large_writes);
    }

    #[test]
    fn a_plan_has_the_streams_that_there_are() {
        let load = Load::times(Profile::Pieee17, 2);
        let plan = load.plan((1 << 30) + 777, 512, 1_000_000_000, 100, 1).unwrap();
        let sizes: Vec<u32> = plan.streams.iter().map(|s| s.workload.largest()).collect();
        assert_eq!(sizes, [1536, 131_072, 131_072]);
        assert_eq!(load.plan(1 << 30, 4096, 1, 1, 1).unwrap().streams[0].workload.largest(), 4096);
        let quiet = Load { large_reads: 0.0, large_writes: 0.0, ..load };
        assert_eq!(quiet.plan(1 << 20, 512, 1, 1, 1).unwrap().streams.len(), 1);
        assert!(matches!(load.plan(4096, 512, 1, 1, 1), Err(LoadError::Capacity { .. })));
        let nothing = Load { reads: 0.0, ..quiet };
        assert_eq!(nothing.plan(1 << 20, 512, 1, 1, 1), Err(LoadError::Nothing));
    }

    #[test]
    fn large_operations_come_at_a_constant_rate_and_reads_as_they_will() {
        let plan = Load::times(Profile::Act6, 1).plan(1 << 30, 512, 1, 1, 1).unwrap();
        assert_eq!((plan.apart_ns, Load::times(Profile::Pieee17, 1).large_apart_ns), (0, 500_000));
        let [reads, large_writes, large_reads] = &plan.streams[..] else { panic!("{plan:?}") };
        assert_eq!(reads.arrivals, Arrivals::Poisson { rate: 2000.0 });
        assert_eq!(large_reads.arrivals, Arrivals::Constant { rate: 1000.0 / 85.0 * 2.0 });
        assert_eq!(large_writes.arrivals, large_reads.arrivals);
        assert_eq!((large_reads.name.as_str(), large_reads.workload.rw), ("large-block-reads", Rw::RandRead));
        assert_eq!(
            (large_writes.name.as_str(), large_writes.workload.rw),
            ("large-block-writes", Rw::RandWrite)
        );
    }

    #[test]
    fn records_of_a_range_commits_and_the_tomb_raider() {
        let load = Load {
            writes: 10.0,
            record_bytes: 1008,
            record_bytes_max: 2048,
            commit_bytes: 1024,
            tomb_raider_ns: Some(7),
            ..Load::times(Profile::Act6, 1)
        };
        let plan = load.plan(1 << 30, 512, 1, 1, 1).unwrap();
        let [reads, writes, _, _, raider] = &plan.streams[..] else { panic!("{plan:?}") };
        assert_eq!(reads.workload.bs, [(1024, 1), (1536, 1), (2048, 1)]);
        assert_eq!((reads.workload.align, writes.workload.align), (512, 1024));
        assert_eq!(
            (&writes.workload.bs[..], writes.workload.rw),
            (&[(1024, 1), (2048, 1)][..], Rw::RandWrite)
        );
        assert_eq!((raider.workload.rw, raider.arrivals), (Rw::Read, Arrivals::Closed { depth: 1 }));
        assert_eq!((raider.workload.largest(), raider.workload.think.unwrap().time_ns), (128 << 10, 7));
        // A record may be longer than a large block is.
        let long = Load { record_bytes_max: 300_000, ..load };
        assert_eq!(long.largest_bytes(512), 300_032);
        assert!(long.plan(262_144, 512, 1, 1, 1).is_err());
    }
}
