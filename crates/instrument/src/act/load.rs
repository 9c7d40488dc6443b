//! The load: three streams at fixed rates.
//!
//! ACT's many threads keep time each by itself; their sum comes near to independent arrivals, which is what
//! users are. So arrivals are drawn (Poisson), where evenly spaced ones would never meet.

use nearside_loadgen::{Arrivals, Plan, Rw, Stream, Workload};
use serde::{Deserialize, Serialize};

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

/// Rates per second and sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Small reads per second: these are measured.
    pub reads: f64,
    /// Their size; the drive sees it rounded up to its blocks.
    pub read_bytes: u32,
    /// Large reads per second.
    pub large_reads: f64,
    /// Large writes per second.
    pub large_writes: f64,
    /// Size of a large one.
    pub large_bytes: u32,
    /// A drive that is this far behind has failed, in nanoseconds.
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
    /// No reads, so nothing to measure.
    #[error("a load without reads measures nothing")]
    NoReads,
}

/// Aerospike's record in this test.
const RECORD: u32 = 1536;
const LARGE: u32 = 128 << 10;
/// ACT's max-lag-sec.
const MAX_LAG_NS: u64 = 10_000_000_000;

impl Load {
    /// A multiple of a profile's unit.
    pub fn times(profile: Profile, multiple: u32) -> Load {
        let (reads, bytes_per_second) = match profile {
            Profile::Pieee17 => (1000.0, 1.536e6),
            // 1,000 records of 1,536 bytes a second;
            // each block is half full when it is defragmented, so all is written twice.
            Profile::Act6 => (2000.0, 1000.0 * f64::from(RECORD) * 2.0),
        };
        // The paper's 1.536 MB/s is what 1,000 records are; both count large blocks as 128 KiB.
        let large = bytes_per_second / f64::from(LARGE);
        let times = f64::from(multiple);
        Load {
            reads: reads * times,
            read_bytes: RECORD,
            large_reads: large * times,
            large_writes: large * times,
            large_bytes: LARGE,
            max_lag_ns: MAX_LAG_NS,
        }
    }

    /// The plan of a run: `runtime_ns` long with slices of `slice_ns`,
    /// on a drive of `capacity` bytes in blocks of `block_size`.
    ///
    /// # Errors
    /// [`LoadError`]: the drive holds not one large block, or the load has no reads.
    pub fn plan(
        &self,
        capacity: u64,
        block_size: u32,
        runtime_ns: u64,
        slice_ns: u64,
        seed: u64,
    ) -> Result<Plan, LoadError> {
        let block = block_size.max(1);
        let read_bytes = self.read_bytes.next_multiple_of(block);
        let large_bytes = self.large_bytes.next_multiple_of(block);
        let size = capacity - capacity % u64::from(large_bytes);
        if size < u64::from(large_bytes) || size < u64::from(read_bytes) {
            return Err(LoadError::Capacity { capacity, block: large_bytes });
        }
        if self.reads <= 0.0 {
            return Err(LoadError::NoReads);
        }
        let stream = |name: &str, rw, bytes, align, rate| {
            let workload = Workload { align, ..Workload::new(rw, bytes, size) };
            Stream { name: name.to_owned(), workload, arrivals: Arrivals::Poisson { rate } }
        };
        let streams = [
            stream("reads", Rw::RandRead, read_bytes, block, self.reads),
            stream("large reads", Rw::RandRead, large_bytes, large_bytes, self.large_reads),
            stream("large writes", Rw::RandWrite, large_bytes, large_bytes, self.large_writes),
        ];
        Ok(Plan {
            streams: streams.into_iter().filter(|s| s.arrivals.rate() > Some(0.0)).collect(),
            seed,
            runtime_ns: Some(runtime_ns),
            slice_ns,
            drain_ns: self.max_lag_ns,
            ..Plan::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_are_the_papers_and_todays() {
        let paper = Load::times(Profile::Pieee17, 1);
        assert_eq!((paper.reads, paper.read_bytes), (1000.0, 1536));
        assert_eq!(paper.large_writes * f64::from(paper.large_bytes), 1.536e6);
        let today = Load::times(Profile::Act6, 3);
        assert_eq!(today.reads, 6000.0);
        // ACT says of 3x: 3,000 writes a second make 70.3 large writes a second.
        assert!((today.large_writes - 70.3125).abs() < 1e-9, "{}", today.large_writes);
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
        assert_eq!(Load { reads: 0.0, ..load }.plan(1 << 20, 512, 1, 1, 1), Err(LoadError::NoReads));
    }
}
