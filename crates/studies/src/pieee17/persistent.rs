//! Section VI: what a durable update of some bytes of persistent memory costs, by each way to them: a block
//! device's, a file's, a mapping's.
//!
//! The paper gives no numbers; its statements are an order. The memory here is a file in tmpfs, whose pages
//! no power cut survives: what is measured is what the ways cost in software and stores, not a medium.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nearside_clock::{Clock, TscClock};
use nearside_device::Config;
use nearside_dma::persistent::WriteBack;
use nearside_dma::{IoBuffer, Region, file};
use nearside_driver::{Command, DriverConfig, Initiator, InitiatorConfig, Policy};
use nearside_embedded::{Loopback, Runner};
use nearside_random::Random;
use nearside_store::{FileOptions, Pmem};

use crate::{Bound, Chart, Claim, Failure, Finding, Quantity, Run, Scale, Study};

/// PIEEE'17, VI: durable updates of persistent memory.
pub const STUDY: Study = Study {
    number: "Section VI",
    title: "A durable update of persistent memory, by each way to it",
    section: "VI",
    run,
};

/// Bytes of an update.
const SIZES: [usize; 3] = [64, 512, 4096];
/// Bytes of the file: far more than a cache of the processor's nearest levels has.
const BYTES: usize = 64 << 20;
/// What a block device takes at least.
const BLOCK: usize = 512;

/// The ways, from the block layer's to the processor's own.
const DIRECT: &str = "block: O_DIRECT and O_DSYNC";
const FUA: &str = "block: our driver, write with FUA";
const FLUSH: &str = "block: our driver, write and flush";
const PWRITE: &str = "file: pwrite and fdatasync";
const MSYNC: &str = "mapping: store and msync";
const LINES: &str = "mapping: store, cache lines written back, fence";
const STREAM: &str = "mapping: stores past the cache, fence";

/// One update at a place of so many bytes.
type Update<'a> = Box<dyn FnMut(usize, &[u8]) -> Result<(), Failure> + 'a>;

fn run(run: &mut Run<'_>) -> Result<(), Failure> {
    run.chart(Chart::sides("update", "A durable update, by each way", Scale::log("ns")));
    let folder = if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let path = folder.join(format!("nearside-study-{}", std::process::id()));
    let measured = fs::write(&path, vec![1; BYTES]).map_err(Failure::from).and_then(|()| all(run, &path));
    fs::remove_file(&path)?;
    let found = measured?;
    let size = SIZES[0];
    let named = |way: &str| Quantity::named(name(way, size));
    for (text, of, over) in [
        ("The block layer adds to the latency when accesses require only small data sizes", DIRECT, LINES),
        ("Applications avoid operating system overheads in the IO path: not by msync", MSYNC, LINES),
        ("DAX mappings are faster than traditional system calls on the file", PWRITE, MSYNC),
        ("Persistent memory commits data with one to two instructions, a drive by a command", FUA, STREAM),
    ] {
        if found.contains(&of) && found.contains(&over) {
            run.claim(Claim::new(text, "VI").machine(named(of).over(named(over)), Bound::Above(1.0)));
        }
    }
    run.note(
        "The memory is a file in tmpfs: msync and fdatasync have nothing to write there, so that their times are those of the calls alone. A drive \
         takes whole blocks: an update of 64 bytes reads one, changes it and writes it. Our driver and its drive run on one thread here.",
    );
    Ok(())
}

fn name(way: &str, size: usize) -> String {
    format!("{way}, {size} bytes")
}

/// Measures all ways; those that this machine has.
fn all(run: &mut Run<'_>, path: &Path) -> Result<Vec<&'static str>, Failure> {
    let mut found = Vec::new();
    for way in [DIRECT, FUA, FLUSH, PWRITE, MSYNC, LINES, STREAM] {
        run.say(&format!("{way} ..."));
        match opened(way, path) {
            Ok(Some(mut update)) => {
                // A mapping's first touch of a page is a fault, and no update.
                for at in (0..BYTES).step_by(4096) {
                    update(at, &[1; SIZES[0]])?;
                }
                for size in SIZES {
                    let runs = timed(run, size, &mut update)?;
                    let finding = Finding::new(name(way, size), "ns").machine(&runs);
                    run.finding(finding.point("update", way, format!("{size} B").as_str()));
                }
                found.push(way);
            }
            Ok(None) => run.note(format!("{way}: this machine has none.")),
            Err(e) => run.note(format!("{way}: {e}")),
        }
    }
    Ok(found)
}

/// The mean time of an update, in each of some rounds.
fn timed(run: &Run<'_>, size: usize, update: &mut Update<'_>) -> Result<Vec<f64>, Failure> {
    let clock = TscClock::new();
    let (rounds, count) = run.sized((3, 50), (9, 20_000));
    let (mut random, mut bytes) = (Random::new(6), vec![0u8; size]);
    let mut round = |count: u64| -> Result<f64, Failure> {
        let from = clock.now();
        for _ in 0..count {
            let at = random.below((BYTES / size) as u64) as usize * size;
            bytes[0] = bytes[0].wrapping_add(1);
            update(at, &bytes)?;
        }
        Ok(clock.now().since(from) as f64 / count as f64)
    };
    round(count / 10)?;
    (0..rounds).map(|_| round(count)).collect()
}

/// A way to the file's bytes; none where this machine does not have it.
fn opened<'a>(way: &str, path: &Path) -> Result<Option<Update<'a>>, Failure> {
    let open = |flags: i32| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    Ok(Some(match way {
        DIRECT => {
            let (file, mut block) = (open(file::O_DIRECT | file::O_DSYNC)?, IoBuffer::new(4096)?);
            // Where it is taken and refused only when used.
            direct(&file, &mut block, 0, &[1; BLOCK])?;
            Box::new(move |at, bytes| direct(&file, &mut block, at, bytes))
        }
        FUA | FLUSH => by_driver(path, way == FUA)?,
        PWRITE => {
            let file = open(0)?;
            Box::new(move |at, bytes| {
                file.write_all_at(bytes, at as u64)?;
                Ok(file.sync_data()?)
            })
        }
        MSYNC => {
            let (region, _) = Region::of_file(&open(0)?, BYTES, true)?;
            Box::new(move |at, bytes| {
                region.write(at, bytes);
                Ok(region.sync(at, bytes.len())?)
            })
        }
        _ => {
            let Some(by) = WriteBack::of_this_processor() else { return Ok(None) };
            let (region, _) = Region::of_file(&open(0)?, BYTES, true)?;
            let streams = way == STREAM;
            Box::new(move |at, bytes| {
                if streams {
                    region.write_streaming(at, bytes, by);
                } else {
                    region.write(at, bytes);
                    region.write_back(at, bytes.len(), by);
                }
                Ok(())
            })
        }
    }))
}

/// Whole blocks: what is less is read, changed and written.
fn direct(file: &File, block: &mut IoBuffer, at: usize, bytes: &[u8]) -> Result<(), Failure> {
    let (first, len) = (at / BLOCK * BLOCK, bytes.len().max(BLOCK));
    block.set_len(len);
    if bytes.len() < BLOCK {
        file.read_exact_at(block, first as u64)?;
    }
    block[at - first..][..bytes.len()].copy_from_slice(bytes);
    Ok(file.write_all_at(block, first as u64)?)
}

/// A drive over the mapped file, by our driver, polled, on this thread.
fn by_driver<'a>(path: &Path, fua: bool) -> Result<Update<'a>, Failure> {
    let clock = TscClock::new();
    let store = Pmem::open(path, FileOptions::serve())?;
    let mut drive: Loopback<Pmem, (), Runner<Pmem>> = Loopback::inline(store, (), Config::default())?;
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let config = InitiatorConfig { policy: Policy::Polled, ..InitiatorConfig::default() };
    let mut io = Initiator::new(&driver, config, clock, drive.peer, None)?;
    let mut kept = Some(io.buffer(4096)?);
    let mut execute = move |command: Command, len: usize, change: Option<(usize, &[u8])>| {
        let mut buffer = kept.take().ok_or("the buffer was lost")?;
        buffer.set_len(len);
        if let Some((at, bytes)) = change {
            buffer.write(at, bytes);
        }
        // A flush has no data.
        let (sent, rest) = if len > 0 { (Some(buffer), None) } else { (None, Some(buffer)) };
        let done = io.execute(&command, sent).map_err(|e| format!("refused: {:?}", e.reason))?;
        kept = done.buffer.or(rest);
        done.outcome.map_err(|e| e.to_string())?;
        Ok::<_, Failure>(())
    };
    Ok(Box::new(move |at, bytes| {
        let (lba, len) = ((at / BLOCK) as u64, bytes.len().max(BLOCK));
        let blocks = (len / BLOCK) as u32;
        if bytes.len() < BLOCK {
            execute(Command::read(1, lba, blocks), len, None)?;
        }
        let write = Command::write(1, lba, blocks);
        execute(if fua { write.fua() } else { write }, len, Some((at % BLOCK, bytes)))?;
        if fua { Ok(()) } else { execute(Command::flush(1), 0, None) }
    }))
}
