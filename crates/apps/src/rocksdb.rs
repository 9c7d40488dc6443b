//! RocksDB by its own db_bench (PIEEE'17 V-A): random Gets, alone and beside a writer.
//!
//! Keys of 20 bytes and values of 800, half of which compression takes, as the paper has them; the data is
//! scaled.
//! Reads are direct, so that each that misses the block cache is one of the drive's; checksums of blocks are
//! verified by every read.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::ending::goes_on;
use crate::program::{checked, number_after, number_before};
use crate::volume::drop_caches;
use crate::{Asked, Drive, Failure, Volume};

/// The program.
pub const PROGRAM: &str = "db_bench";

/// A filled database on a volume.
pub struct Database<'a> {
    volume: &'a Volume,
    keys: u64,
}

/// What a run of Gets came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gets {
    /// Gets per second of all threads.
    pub per_second: f64,
    /// Half of them took this or less, in microseconds.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// All of them at the mean.
    pub mean_us: f64,
    /// How many.
    pub count: f64,
}

/// What is done beside the Gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing: the paper's "Read".
    Nothing,
    /// One thread writes so many bytes of values a second: "Read/Write".
    Writer(u64),
}

/// Gets alone, and while the drive reads the same volume for itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disturbed {
    /// The 99th percentile of each round's Gets alone, in microseconds.
    pub alone_us: Vec<f64>,
    /// Of as many, each right after its round's, while the drive digested a table.
    pub beside_us: Vec<f64>,
    /// Those digests.
    pub digests: u64,
}

/// Its folder on the volume.
const FOLDER: &str = "rocksdb";
/// Bytes of a value.
pub const VALUE: u64 = 800;

/// "1 thread", "4 threads": as figures are named.
pub fn by(threads: u32) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

impl<'a> Database<'a> {
    /// Fills a database with so many keys, in order, without a log, and compacts it.
    ///
    /// # Errors
    /// What db_bench said, or that it is not here.
    pub fn fill(volume: &'a Volume, keys: u64) -> Result<Database<'a>, Failure> {
        let database = Database::there(volume, keys);
        let mut command = database.command("fillseq,compact")?;
        run(command.arg("--disable_wal=1"))?;
        Ok(database)
    }

    /// The database that was filled with so many keys on that volume.
    pub fn there(volume: &'a Volume, keys: u64) -> Database<'a> {
        Database { volume, keys }
    }

    /// The path in its volume of its largest table; while nothing is written it stays.
    ///
    /// # Errors
    /// The system's; a database without tables.
    pub fn table(&self) -> Result<String, Failure> {
        let mut tables = Vec::new();
        for entry in std::fs::read_dir(self.volume.path(FOLDER))? {
            let entry = entry?;
            match entry.file_name().into_string() {
                Ok(name) if name.ends_with(".sst") => tables.push((entry.metadata()?.len(), name)),
                _ => {}
            }
        }
        let (_, largest) =
            tables.into_iter().max().ok_or_else(|| format!("{PROGRAM}: no table in its folder"))?;
        Ok(format!("/{FOLDER}/{largest}"))
    }

    fn command(&self, benchmarks: &str) -> Result<Command, Failure> {
        let mut command = crate::program::named(PROGRAM)?;
        command.arg(format!("--benchmarks={benchmarks}")).arg(format!("--num={}", self.keys));
        command.arg(format!("--db={}", self.volume.path(FOLDER).display()));
        command.args([
            "--key_size=20",
            "--value_size=800",
            "--compression_ratio=0.5",
            "--compression_type=snappy",
            "--bloom_bits=10",
            // Far smaller than the data: a Get is a read of the drive.
            "--cache_size=1048576",
            // Index and filters stay in memory; in a small cache they would be read again for each Get.
            "--open_files=-1",
            "--use_direct_reads=true",
            "--use_direct_io_for_flush_and_compaction=true",
            "--verify_checksum=1",
        ]);
        Ok(command)
    }

    /// Gets of random keys by so many threads for so many seconds.
    ///
    /// # Errors
    /// What db_bench said; a key that was not found; a report that cannot be read.
    pub fn gets(&self, threads: u32, seconds: u32, beside: Beside, seed: u64) -> Result<Gets, Failure> {
        drop_caches()?;
        let name = match beside {
            Beside::Nothing => "readrandom",
            Beside::Writer(_) => "readwhilewriting",
        };
        let mut command = self.command(name)?;
        command.args(["--use_existing_db=1", "--histogram=1"]).arg(format!("--seed={}", seed.max(1)));
        command.arg(format!("--threads={threads}")).arg(format!("--duration={seconds}"));
        if let Beside::Writer(bytes) = beside {
            command.arg(format!("--benchmark_write_rate_limit={bytes}"));
        }
        gets_of(&run(&mut command)?, name)
    }

    /// Rounds of Gets by so many threads for so many seconds, each alone, and then while the drive, asked by
    /// the `nearside` program, digests the largest table again and again.
    ///
    /// # Errors
    /// As [`Database::gets`], [`Database::table`] and [`Asked::while_running`].
    pub fn disturbed(
        &self,
        (program, drive): (&Path, &Drive),
        threads: u32,
        seconds: u32,
        rounds: u32,
    ) -> Result<Disturbed, Failure> {
        let table = self.table()?;
        let asked = Asked { program, drive, volume: self.volume, path: &table };
        let mut all = Disturbed::default();
        for round in 1..=rounds {
            let gets = || self.gets(threads, seconds, Beside::Nothing, round.into());
            all.alone_us.push(gets()?.p99_us);
            let (beside, digests) = asked.while_running(gets)?;
            all.beside_us.push(beside.p99_us);
            all.digests += digests;
        }
        Ok(all)
    }
}

fn run(command: &mut Command) -> Result<String, Failure> {
    // Its progress goes to standard error, without end; where it fails, so does the reason.
    goes_on()?;
    let output = command.stdin(Stdio::null()).output()?;
    checked(command, &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// From db_bench's report.
fn gets_of(report: &str, name: &str) -> Result<Gets, Failure> {
    let unread = || format!("{PROGRAM}: {name}: its report cannot be read:\n{report}");
    let line = report.lines().find(|line| line.starts_with(name)).ok_or_else(unread)?;
    let reads = report.split("Microseconds per read:").nth(1).ok_or_else(unread)?;
    let percentiles = reads.lines().find(|line| line.starts_with("Percentiles:")).ok_or_else(unread)?;
    let found = number_after(line, "(").zip(number_after(line, " of "));
    let (found, asked) = found.ok_or_else(unread)?;
    if found != asked || asked == 0.0 {
        return Err(format!("{PROGRAM}: {name}: {found} of {asked} keys were found").into());
    }
    Ok(Gets {
        per_second: number_before(line, " ops/sec").ok_or_else(unread)?,
        p50_us: number_after(percentiles, "P50:").ok_or_else(unread)?,
        p99_us: number_after(percentiles, "P99:").ok_or_else(unread)?,
        mean_us: number_after(reads, "Average:").ok_or_else(unread)?,
        count: number_after(reads, "Count:").ok_or_else(unread)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "DB path: [/x]
readwhilewriting :      79.541 micros/op 24456 ops/sec 3.108 seconds 75998 operations;   19.1 MB/s (37999 of 37999 found)

Microseconds per read:
Count: 75998 Average: 79.5488  StdDev: 57.92
Min: 1  Median: 76.2421  Max: 4125
Percentiles: P50: 76.24 P75: 122.32 P99: 218.20 P99.9: 446.67 P99.99: 1966.70
------------------------------------------------------
Microseconds per write:
Percentiles: P50: 1.24 P75: 2.32 P99: 8.20 P99.9: 46.67 P99.99: 966.70
";

    #[test]
    fn a_report_is_read_as_db_bench_writes_it() {
        let gets = gets_of(REPORT, "readwhilewriting").unwrap();
        let expected =
            Gets { per_second: 24456.0, p50_us: 76.24, p99_us: 218.2, mean_us: 79.5488, count: 75998.0 };
        assert_eq!(gets, expected);
    }

    #[test]
    fn a_lost_key_and_a_strange_report_are_errors() {
        let lost = REPORT.replace("37999 of", "37998 of");
        assert!(gets_of(&lost, "readwhilewriting").unwrap_err().to_string().contains("37998 of 37999 keys"));
        for cut in ["Percentiles", "Microseconds per read:", "ops/sec", "Average:"] {
            assert!(gets_of(&REPORT.replace(cut, "?"), "readwhilewriting").is_err(), "{cut}");
        }
        assert!(gets_of(REPORT, "readrandom").is_err());
    }
}
