//! `nearside app`: an application that people run, unmodified, on a drive that this command attaches and
//! takes away again: what the application says of itself, beside what the kernel counted of the block device.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, Subcommand, ValueEnum};
use nearside_apps::memcached::{Cache, Gets, Kept};
use nearside_apps::postgres::{self, Cluster, Rounds, Workload};
use nearside_apps::redis::{self, Redis};
use nearside_apps::rocksdb::{self, Beside, Database};
use nearside_apps::swap::{Load, Swap};
use nearside_apps::{Counters, Drive, Group, Kind, Volume, in_group, memcached};
use nearside_embedded::models_help;
use nearside_instrument::words;
use nearside_loadgen::record::number;
use serde_json::json;

use crate::args::CompletionModel;
use crate::failure::{Failure, Outcome, complain};
use crate::interrupt::{is_told, to_undo};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside app swap --store model:optane-prototype:1GiB                  # what a page miss takes
  nearside app swap --store model:nand-p3700:1GiB --page-cluster 3 --dirty
  nearside app rocksdb --store model:nand-p3600:2GiB --threads 1,4,8     # Gets, and their 99th percentile
  nearside app rocksdb --store model:optane-prototype:2GiB --write-rate 8m --file-system ext4
  nearside app rocksdb --store model:optane-prototype:2GiB --near-data   # what the drive's own reads do to Gets
  nearside app memcached --store model:dram-gen2:1GiB --keep paged       # beside: memory, file
  nearside app redis --store model:optane-prototype:1GiB --share 100,50  # values in memory of which a share is there
  nearside app postgres --store file:disk.img --kills 10                 # nothing acknowledged is lost
  nearside app postgres --store model:nand-p3600:2GiB --workload tpcc    # after TPC-C, not the benchmark

Each needs root and the application's package (rocksdb-tools, memcached, redis-server, postgresql); what is missing is said by
name. The drive is made by `nearside attach` below a loop device, and gone when the command ends; everything on the store is
overwritten. Your own application: `nearside attach --help`.";

/// Run an application on a drive: a database, a cache, the kernel's paging
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(&format!("{EXAMPLES}\n\n{}", models_help())))]
pub struct AppArgs {
    #[command(subcommand)]
    app: App,
}

#[derive(Subcommand)]
enum App {
    /// RocksDB's Gets of random keys, by its own db_bench
    Rocksdb(RocksdbArgs),
    /// The kernel's paging: what a page miss takes
    Swap(SwapArgs),
    /// memcached's gets of random keys: in memory, paged, or with its values in a file
    Memcached(MemcachedArgs),
    /// Redis in memory of which only a share is there: gets of random keys, and a walk of all values
    Redis(RedisArgs),
    /// PostgreSQL's transactions by pgbench, and what is left of them after kills
    Postgres(PostgresArgs),
    /// A second process of an application
    #[command(hide = true)]
    Second {
        /// Which, and what it is told
        #[arg(num_args = 1.., allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// The drive below an application.
#[derive(Args)]
struct Below {
    /// What holds the drive's bytes, all of which are overwritten: model:NAME:SIZE, dram:SIZE, file:PATH or
    /// pmem:PATH
    #[arg(long, value_name = "STORE")]
    store: String,
    /// How the drive's host awaits commands [default: as nearside attach]
    #[arg(long, value_enum, value_name = "MODEL")]
    completion: Option<CompletionModel>,
    /// Print one JSON object per figure and line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum FileSystem {
    Xfs,
    Ext4,
}

impl From<FileSystem> for Kind {
    fn from(file_system: FileSystem) -> Kind {
        match file_system {
            FileSystem::Xfs => Kind::Xfs,
            FileSystem::Ext4 => Kind::Ext4,
        }
    }
}

#[derive(Args)]
struct RocksdbArgs {
    #[command(flatten)]
    below: Below,
    /// The file system [default: xfs, and with --near-data ext4]
    #[arg(long, value_enum, value_name = "NAME")]
    file_system: Option<FileSystem>,
    /// Keys of 20 bytes, with values of 800 that compress to half
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Percent of the drive that other data fills before
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=90))]
    full: u8,
    /// Threads that get, one run after the other
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 4, 8], value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Vec<u32>,
    /// Seconds of each run
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// A thread writes beside them, at most so many bytes of values a second (as 8m)
    #[arg(long, value_name = "BYTES", value_parser = words::bytes)]
    write_rate: Option<u64>,
    /// Each run three times alone and three times, in turn, while the drive digests one of the database's
    /// files again and again; what that does to the Gets
    #[arg(long, conflicts_with = "write_rate")]
    near_data: bool,
}

#[derive(Args)]
struct SwapArgs {
    #[command(flatten)]
    below: Below,
    /// Memory that the process may have
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = words::bytes)]
    memory: u64,
    /// Memory that it uses
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = words::bytes)]
    bytes: u64,
    /// Pages that it touches
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    touches: u64,
    /// Touches go from one page to the next, not at random
    #[arg(long)]
    in_order: bool,
    /// The kernel reads 2 to the power of this pages around a miss; 3 is its default, 0 what fast drives
    /// want
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10))]
    page_cluster: u32,
    /// Touches write: what is evicted has to be written out
    #[arg(long)]
    dirty: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Keep {
    /// All in memory
    Memory,
    /// In memory of which a half is there: the kernel pages
    Paged,
    /// Keys in memory, values in a file on the drive (extstore)
    File,
}

#[derive(Args)]
struct MemcachedArgs {
    #[command(flatten)]
    below: Below,
    /// Where values are kept
    #[arg(long, value_enum, default_value = "paged", value_name = "WHERE")]
    keep: Keep,
    /// Values of 4 KiB
    #[arg(long, value_name = "N", default_value_t = 32_768, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Connections, each with one get at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: u32,
    /// Gets of each connection
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    gets: u64,
}

#[derive(Args)]
struct RedisArgs {
    #[command(flatten)]
    below: Below,
    /// Percent of the memory that it takes which it may have, one run after the other; 100: no limit
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_values_t = [100, 75, 50, 25], value_parser = clap::value_parser!(u8).range(10..=100))]
    share: Vec<u8>,
    /// Values of 4 KiB
    #[arg(long, value_name = "N", default_value_t = 32_768, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Connections, each with one get at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: u32,
    /// Gets of each connection
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    gets: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Transactions {
    Tpcb,
    Tpcc,
}

#[derive(Args)]
struct PostgresArgs {
    #[command(flatten)]
    below: Below,
    /// The file system
    #[arg(long, value_enum, default_value = "ext4", value_name = "NAME")]
    file_system: FileSystem,
    /// Which transactions: TPC-B's, as pgbench has it, or five after TPC-C in its mix, with a tenth of its
    /// customers and items and without waits (not the benchmark itself)
    #[arg(long, value_enum, default_value = "tpcb", value_name = "NAME")]
    workload: Transactions,
    /// Branches (of 100,000 accounts), or warehouses
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    scale: u32,
    /// Clients at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: u32,
    /// Seconds of the measured run
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Instead of measuring: kill the server and the drive in turn so often, at random moments, and look for
    /// every commit that was acknowledged. Needs a store that keeps its bytes (file:PATH)
    #[arg(long, value_name = "N", default_value_t = 0)]
    kills: u32,
    /// Of the moments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// What is known by a name.
type Figure = (String, &'static str, f64);

/// Runs it.
pub fn run(args: AppArgs) -> Outcome {
    let said = |e: nearside_apps::Failure| match is_told() {
        true => Failure::Interrupted,
        false => Failure::Message(e.to_string()),
    };
    if let App::Second { words } = &args.app {
        let answer = nearside_apps::second(words).map_err(said)?;
        let mut out = Out::new();
        out.line(answer.as_bytes())?;
        out.flush()?;
        return Ok(0);
    }
    to_undo()?;
    if let Some(lacks) = nearside_apps::lacks() {
        return Err(Failure::Message(lacks));
    }
    let (json, figures) = match &args.app {
        App::Rocksdb(args) => (args.below.json, of_rocksdb(args).map_err(said)?),
        App::Swap(args) => (args.below.json, of_swap(args).map_err(said)?),
        App::Memcached(args) => (args.below.json, of_memcached(args).map_err(said)?),
        App::Redis(args) => (args.below.json, of_redis(args).map_err(said)?),
        App::Postgres(args) => (args.below.json, of_postgres(args).map_err(said)?),
        App::Second { .. } => return Ok(0),
    };
    let mut out = Out::new();
    let wide = figures.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    for (name, unit, value) in figures {
        match json {
            true => out.json(&json!({"type": "figure", "name": name, "unit": unit, "value": value}))?,
            false => {
                out.line(format!("{name:<wide$}  {:>10} {unit}", number(value)).trim_end().as_bytes())?
            }
        }
    }
    out.flush()?;
    Ok(0)
}

/// This program.
fn this() -> Result<PathBuf, nearside_apps::Failure> {
    Ok(std::env::current_exe()?)
}

impl Below {
    fn attach(&self, more: &[&str]) -> Result<Drive, nearside_apps::Failure> {
        let completion = self.completion.and_then(|c| c.to_possible_value());
        let completion = completion.as_ref().map(|value| ["--completion", value.get_name()]);
        let options: Vec<&str> = completion.into_iter().flatten().chain(more.iter().copied()).collect();
        Drive::attach(&this()?, &self.store, &options)
    }
}

/// What the kernel counted of the device, for so many operations of the application.
fn of_device(name: &str, counted: Counters) -> Vec<Figure> {
    let mean = |ms: u64, of: u64| ms as f64 * 1e3 / of.max(1) as f64;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    vec![
        (format!("{name}: the device's reads"), "", counted.reads as f64),
        (format!("{name}: the device's reads, mean"), "us", mean(counted.read_ms, counted.reads)),
        (format!("{name}: the device's writes"), "", counted.writes as f64),
        (format!("{name}: the device's bytes written"), "MiB", mib(counted.written_bytes)),
    ]
}

fn of_rocksdb(args: &RocksdbArgs) -> Result<Vec<Figure>, nearside_apps::Failure> {
    let usual = if args.near_data { FileSystem::Ext4 } else { FileSystem::Xfs };
    let kind = Kind::from(args.file_system.unwrap_or(usual));
    if args.near_data && kind == Kind::Xfs {
        return Err("--near-data: the drive reads no XFS; --file-system ext4 it does".into());
    }
    if let Some(lacks) = nearside_apps::missing(&[rocksdb::PROGRAM, kind.maker()]) {
        return Err(lacks.into());
    }
    let drive = args.below.attach(&[])?;
    let volume = Volume::make(&drive, kind)?;
    volume.fill(&drive, f64::from(args.full) / 100.0)?;
    complain(&format!("filling {} keys ...", args.keys));
    let database = Database::fill(&volume, args.keys)?;
    let mut figures = Vec::new();
    for threads in &args.threads {
        let name = rocksdb::by(*threads);
        complain(&format!("{name} ..."));
        if args.near_data {
            figures.extend(beside_near_data(&name, &drive, &database, (*threads, args.seconds))?);
            continue;
        }
        let beside = args.write_rate.map_or(Beside::Nothing, Beside::Writer);
        let before = drive.counters()?;
        let gets = database.gets(*threads, args.seconds, beside, u64::from(*threads))?;
        figures.extend([
            (format!("{name}: Gets"), "/s", gets.per_second),
            (format!("{name}: a Get, mean"), "us", gets.mean_us),
            (format!("{name}: a Get, p50"), "us", gets.p50_us),
            (format!("{name}: a Get, p99"), "us", gets.p99_us),
        ]);
        figures.extend(of_device(&name, drive.counters()?.since(before)));
    }
    Ok(figures)
}

/// The Gets' 99th percentile alone and while the drive digests a table, in turn.
fn beside_near_data(
    name: &str,
    drive: &Drive,
    database: &Database<'_>,
    (threads, seconds): (u32, u32),
) -> Result<Vec<Figure>, nearside_apps::Failure> {
    const ROUNDS: u32 = 3;
    let found = database.disturbed((&this()?, drive), threads, seconds, ROUNDS)?;
    let ratios = found.beside_us.iter().zip(&found.alone_us).map(|(beside, alone)| beside / alone).collect();
    let [alone, beside, ratios] = [found.alone_us, found.beside_us, ratios].map(|mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    });
    let (middle, last) = (ROUNDS as usize / 2, ROUNDS as usize - 1);
    Ok(vec![
        (format!("{name}: a Get, p99, alone"), "us", alone[middle]),
        (format!("{name}: a Get, p99, while the drive digests a table"), "us", beside[middle]),
        (format!("{name}: of each round the second by the first, least"), "", ratios[0]),
        (format!("{name}: of each round the second by the first, most"), "", ratios[last]),
        (format!("{name}: digests, all of them the host's"), "", found.digests as f64),
    ])
}

fn of_swap(args: &SwapArgs) -> Result<Vec<Figure>, nearside_apps::Failure> {
    let drive = args.below.attach(&["--lock-memory"])?;
    let swap = Swap::on(&drive, args.page_cluster, args.bytes)?;
    let SwapArgs { memory, bytes, touches, dirty, in_order, .. } = *args;
    let load = Load { memory, bytes, touches, dirty, in_order, seed: 1 };
    let program = this()?;
    let second = || {
        let mut command = Command::new(&program);
        command.args(["app", "second"]);
        command
    };
    let found = swap.misses(&load, &second)?;
    Ok(vec![
        ("page misses".into(), "", found.count),
        ("of touches".into(), "", found.touches),
        ("a touch, mean".into(), "us", found.touch_us),
        ("a page miss, mean".into(), "us", found.mean_us),
        ("a page miss, p50".into(), "us", found.p50_us),
        ("a page miss, p99".into(), "us", found.p99_us),
        ("a touch without a fault, mean".into(), "ns", found.hit_ns),
        ("touches of pages that came with others".into(), "", found.minor),
        ("pages read".into(), "", found.pages_read),
        ("pages written".into(), "", found.pages_written),
    ])
}

/// `before`: stands before each name.
fn of_gets(before: &str, gets: &Gets) -> Vec<Figure> {
    let us = |percent: f64| gets.response.percentile(percent).ns as f64 / 1e3;
    vec![
        (format!("{before}gets"), "/s", gets.per_second),
        (format!("{before}a get, mean"), "us", gets.response.mean_ns() / 1e3),
        (format!("{before}a get, p50"), "us", us(50.0)),
        (format!("{before}a get, p99"), "us", us(99.0)),
    ]
}

fn of_memcached(args: &MemcachedArgs) -> Result<Vec<Figure>, nearside_apps::Failure> {
    if let Some(lacks) = nearside_apps::missing(&[memcached::PROGRAM]) {
        return Err(lacks.into());
    }
    let drive = args.below.attach(&["--lock-memory"])?;
    // With what memcached needs beside the values.
    let all = args.keys.saturating_mul(memcached::VALUE as u64 / 2 * 3);
    let half = all / 3;
    let measure = |kept: &Kept<'_>| of_cache(&drive, kept, args);
    match args.keep {
        Keep::Memory => measure(&Kept::Memory),
        Keep::Paged => {
            let _swap = Swap::on(&drive, 0, all)?;
            in_group(half, |group| measure(&Kept::Paged(group)))
        }
        Keep::File => {
            let volume = Volume::make(&drive, Kind::Ext4)?;
            in_group(half, |group| measure(&Kept::File(&volume, group)))
        }
    }
}

fn of_cache(
    drive: &Drive,
    kept: &Kept<'_>,
    args: &MemcachedArgs,
) -> Result<Vec<Figure>, nearside_apps::Failure> {
    let mut cache = Cache::filled(kept, args.keys)?;
    let before = drive.counters()?;
    let gets = cache.gets(args.connections, args.gets, 1)?;
    let mut figures = of_gets("", &gets);
    figures.push(("gets that missed".into(), "", gets.missed as f64));
    figures.extend(of_device("gets", drive.counters()?.since(before)));
    Ok(figures)
}

fn of_redis(args: &RedisArgs) -> Result<Vec<Figure>, nearside_apps::Failure> {
    if let Some(lacks) = nearside_apps::missing(&[redis::PROGRAM]) {
        return Err(lacks.into());
    }
    let drive = args.below.attach(&["--lock-memory"])?;
    complain(&format!("filling {} keys ...", args.keys));
    let all = Redis::filled(None, args.keys)?.memory()?;
    let _swap = Swap::on(&drive, 0, all)?;
    let mut figures = vec![("memory that it takes".into(), "MiB", all as f64 / f64::from(1 << 20))];
    for share in &args.share {
        let name = format!("{share} %");
        complain(&format!("{name} ..."));
        let measure = |group: Option<&Group>| of_share(&name, &drive, group, args);
        figures.extend(match share {
            100 => measure(None)?,
            _ => in_group(all / 100 * u64::from(*share), |group| measure(Some(group)))?,
        });
    }
    Ok(figures)
}

/// A Redis within that group: gets of it, and a walk.
fn of_share(
    name: &str,
    drive: &Drive,
    group: Option<&Group>,
    args: &RedisArgs,
) -> Result<Vec<Figure>, nearside_apps::Failure> {
    let mut redis = Redis::filled(group, args.keys)?;
    let before = drive.counters()?;
    let gets = redis.gets(args.connections, args.gets, 1)?;
    let mut figures = of_gets(&format!("{name}: "), &gets);
    figures.extend(of_device(&format!("{name}, gets"), drive.counters()?.since(before)));
    let before = drive.counters()?;
    let ns = redis.walk()?;
    figures.push((format!("{name}: a walk of all values"), "ms", ns as f64 / 1e6));
    figures.extend(of_device(&format!("{name}, walk"), drive.counters()?.since(before)));
    Ok(figures)
}

fn of_postgres(args: &PostgresArgs) -> Result<Vec<Figure>, nearside_apps::Failure> {
    let kind = Kind::from(args.file_system);
    if let Some(lacks) = postgres::lacks().or_else(|| nearside_apps::missing(&[kind.maker()])) {
        return Err(lacks.into());
    }
    let workload = match args.workload {
        Transactions::Tpcb => Workload::TpcB,
        Transactions::Tpcc => Workload::TpcC,
    };
    let load = postgres::Load { workload, scale: args.scale, clients: args.clients, seconds: args.seconds };
    if args.kills > 0 {
        let program = this()?;
        let say = |crash: &postgres::Crash| {
            let postgres::Crash { killed, acknowledged, found } = crash;
            complain(&format!("{killed:?} killed: {acknowledged} commits acknowledged, {found} found"));
        };
        let (store, rounds, seed) = (&args.below.store, args.kills, args.seed);
        // A kill comes sooner than its load ends.
        let load = postgres::Load { seconds: args.seconds.max(60), ..load };
        let crashes = Rounds { program: &program, store, kind, rounds, load, seed, say: &say }.run()?;
        let sum = |of: fn(&postgres::Crash) -> u64| crashes.iter().map(of).sum::<u64>() as f64;
        return Ok(vec![
            ("kills".into(), "", crashes.len() as f64),
            ("commits acknowledged before a kill".into(), "", sum(|crash| crash.acknowledged)),
            ("commits found after recovery".into(), "", sum(|crash| crash.found)),
        ]);
    }
    let drive = args.below.attach(&[])?;
    let volume = Volume::make(&drive, kind)?;
    let cluster = Cluster::make(&volume)?;
    complain("filling the tables ...");
    cluster.fill(workload, args.scale)?;
    let before = drive.counters()?;
    let ran = cluster.run(&load)?;
    let mut figures = vec![
        ("transactions".into(), "/s", ran.per_second),
        ("a transaction, mean".into(), "ms", ran.mean_ms),
        ("transactions done".into(), "", ran.count),
    ];
    figures.extend(of_device("transactions", drive.counters()?.since(before)));
    cluster.verify(workload)?;
    drop(volume);
    Ok(figures)
}
