//! The way that this machine's own programs have to a drive: `nearside attach` below a loop device, beside a
//! FUSE file system with nothing behind it below the same, both with their requests by io_uring.
//!
//! A read's time stands beside that file system's and the drive's own together, a rate beside the lesser of
//! both. All of them have all cores, and take turns.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nearside_apps::Drive;
use nearside_clock::TscClock;
use nearside_dma::loop_device::{LoopDevice, LoopPlace};
use nearside_instrument::{Failure, Needs, Target};
use nearside_loadgen::record::Figure;
use nearside_loadgen::run::{Pace, real};
use nearside_loadgen::{Arrivals, Plan, Rw, Workload};

use crate::empty;
use crate::figures::Sink;

/// Whether mounts made from now on have their requests by io_uring.
const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";
const STORES: [(&str, &str); 2] =
    [("Optane prototype", "model:optane-prototype:1GiB"), ("DRAM", "dram:1GiB")];
const DEEP: u16 = 16;

/// Reads of 4 KiB at random, one at a time and sixteen.
pub fn attach(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let program = std::env::current_exe()?.with_file_name("nearside");
    let lacks = nearside_apps::lacks()
        .or_else(|| (!program.exists()).then(|| format!("{} is not built", program.display())))
        .or_else(|| {
            std::fs::read_to_string(ENABLE).err().map(|_| "the kernel has no FUSE by io_uring".into())
        });
    if let Some(lacks) = lacks {
        eprintln!("  left out: {lacks}");
        return Ok(());
    }
    let _on = Enabled::now()?;
    let floor = Empty::mount()?;
    let (rounds, seconds) = if fast { (3, 0.5) } else { (7, 2.0) };
    for (name, store) in STORES {
        eprintln!("the way to a drive: {name} ...");
        let alone: Target = store.parse()?;
        let [mut empty, mut attached, mut by_itself] = [const { Runs::new() }; 3];
        let drive = Drive::attach(&program, store, &["--transport", "uring"])?;
        written(drive.device())?;
        for _ in 0..rounds {
            empty.add(&at(floor.device())?, seconds)?;
            attached.add(&at(drive.device())?, seconds)?;
            by_itself.add(&alone, seconds)?;
        }
        let together: Vec<f64> =
            empty.median_us.iter().zip(&by_itself.median_us).map(|(way, drive)| way + drive).collect();
        let lesser: Vec<f64> =
            empty.deep.iter().zip(&by_itself.deep).map(|(way, drive)| way.min(*drive)).collect();
        let about = format!("attached, by its loop device, {name}: 4 KiB random reads");
        let median = Figure::of(&format!("{about}, QD1: median"), "us", &attached.median_us);
        let peer = "an empty FUSE file system by a loop device, and the drive alone";
        sink(median.beside(&Figure::of(peer, "us", &together)));
        let rate = Figure::of(&format!("{about}, QD{DEEP}"), "1/s", &attached.deep);
        sink(rate.beside(&Figure::of("the lesser of both", "1/s", &lesser)));
    }
    Ok(())
}

fn at(device: &Path) -> Result<Target, Failure> {
    Ok(format!("uring:{}", device.display()).parse()?)
}

/// Memory that was never written is one page of zeros, which stays in the cache.
fn written(device: &Path) -> Result<(), Failure> {
    let piece = vec![7; 1 << 20];
    let mut file = std::fs::File::options().write(true).open(device)?;
    loop {
        match std::io::Write::write(&mut file, &piece) {
            Ok(1..) => {}
            Err(e) if e.kind() != std::io::ErrorKind::StorageFull => return Err(e.into()),
            _ => return Ok(file.sync_all()?),
        }
    }
}

/// What rounds came to.
struct Runs {
    median_us: Vec<f64>,
    deep: Vec<f64>,
}

impl Runs {
    const fn new() -> Runs {
        Runs { median_us: Vec::new(), deep: Vec::new() }
    }

    fn add(&mut self, target: &Target, seconds: f64) -> Result<(), Failure> {
        self.median_us.push(reads(target, 1, seconds)?.0);
        self.deep.push(reads(target, DEEP, seconds)?.1);
        Ok(())
    }
}

/// The median in microseconds, and how many a second.
fn reads(target: &Target, depth: u16, seconds: f64) -> Result<(f64, f64), Failure> {
    let needs = Needs { depth, bytes: 4096, write: false, destroy: false, completion: None, buffered: false };
    let mut open = target.open(needs)?;
    let workload = Workload::new(Rw::RandRead, 4096, open.capacity);
    let arrivals = Arrivals::Closed { depth: depth.into() };
    let mut plan = Plan::new(workload, arrivals, (seconds * 1e9) as u64);
    plan.warm_up_ns = 100_000_000;
    let ran = real(&plan, &mut *open.engine, &TscClock::new(), Pace { may_sleep: true, ..Pace::default() })?;
    let errors = ran.outcome.errors();
    if errors > 0 {
        return Err(format!("{target}: {errors} reads failed").into());
    }
    let median_us = ran.outcome.both().response.percentile(50.0).ns as f64 / 1e3;
    Ok((median_us, ran.outcome.throughput()))
}

/// The kernel's word, as it was before when this goes.
struct Enabled(String);

impl Enabled {
    fn now() -> Result<Enabled, Failure> {
        let before = std::fs::read_to_string(ENABLE)?;
        std::fs::write(ENABLE, "Y")?;
        Ok(Enabled(before))
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        let _ = std::fs::write(ENABLE, self.0.trim());
    }
}

/// The file system with nothing behind it, in a process of its own.
struct Empty {
    device: Option<LoopDevice>,
    child: Child,
    _at: tempfile::TempDir,
}

impl Empty {
    fn mount() -> Result<Empty, Failure> {
        let at = tempfile::tempdir()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--empty").arg(at.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        if line.trim() != "mounted" {
            return Err("the empty file system was not mounted".into());
        }
        let device = LoopPlace::new()?.attach(&at.path().join(empty::FILE), 512, true)?;
        Ok(Empty { device: Some(device), child, _at: at })
    }

    fn device(&self) -> &Path {
        self.device.as_ref().map_or(Path::new(""), LoopDevice::path)
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        self.device = None;
        // It ends with its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
