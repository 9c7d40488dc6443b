//! What the drive's own reads do to an application that has a file system of it: RocksDB's Gets, alone and
//! while the drive digests one of the database's tables.

use nearside_apps::rocksdb::{Database, PROGRAM};
use nearside_apps::{Drive, Kind, Volume};
use nearside_instrument::Failure;
use nearside_loadgen::record::Figure;

use crate::figures::Sink;

const STORE: &str = "model:optane-prototype:2GiB";
const KEYS: u64 = 300_000;

pub fn applications(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let program = std::env::current_exe()?.with_file_name("nearside");
    let lacks = nearside_apps::lacks()
        .or_else(|| (!program.exists()).then(|| format!("{} is not built", program.display())))
        .or_else(|| nearside_apps::missing(&[PROGRAM, Kind::Ext4.maker(), "sha256sum"]));
    if let Some(lacks) = lacks {
        eprintln!("  left out: {lacks}");
        return Ok(());
    }
    let (rounds, seconds) = if fast { (3, 2) } else { (7, 6) };
    let drive = Drive::attach(&program, STORE, &[])?;
    let volume = Volume::make(&drive, Kind::Ext4)?;
    eprintln!("RocksDB: {KEYS} keys ...");
    let database = Database::fill(&volume, KEYS)?;
    for threads in [1, 4, 8] {
        let by = nearside_apps::rocksdb::by(threads);
        eprintln!("RocksDB: {by} ...");
        let found = database.disturbed((&program, &drive), threads, seconds, rounds)?;
        let name = format!("RocksDB, Optane prototype, {by}: a Get, p99, while the drive digests a table");
        let beside = Figure::of(&name, "us", &found.beside_us);
        sink(beside.beside(&Figure::of("without that", "us", &found.alone_us)));
    }
    Ok(())
}
