//! The same reads of one file at one rate, by this load generator and by fio.

use std::path::{Path, PathBuf};
use std::process::Command;

use nearside_clock::TscClock;
use nearside_loadgen::engine::blocking::Blocking;
use nearside_loadgen::engine::file::{OpenMode, Target, TargetError};
use nearside_loadgen::run::{Pace, real};
use nearside_loadgen::{Arrivals, Plan, Rw, Workload};

const SIZE: u64 = 64 << 20;
const RATE: u32 = 2_000;

/// A file of 64 MiB that is on the disk, and whether it can be read past the page cache.
pub fn target(folder: &Path) -> (PathBuf, bool) {
    let path = folder.join("target");
    std::fs::write(&path, vec![0x5a; SIZE as usize]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let opened = Target::open(&path, OpenMode { direct: true, write: false });
    let direct = !matches!(opened, Err(TargetError::NoDirect { .. }));
    (path, direct)
}

/// Medians of one round of `ms`, in nanoseconds:
/// this load generator's service times, fio's completion latencies.
pub fn round(path: &Path, direct: bool, ms: u64) -> (f64, f64) {
    let target = Target::open(path, OpenMode { direct, write: false }).unwrap();
    let clock = TscClock::new();
    let mut engine = Blocking::positioned(&target, 4096, None, clock).unwrap();
    let workload = Workload::new(Rw::RandRead, 4096, SIZE);
    let plan = Plan::new(workload, Arrivals::Constant { rate: f64::from(RATE) }, ms * 1_000_000);
    let ran = real(&plan, &mut engine, &clock, Pace::default()).unwrap();
    assert_eq!(ran.outcome.errors(), 0);
    let ours = ran.outcome.both().service.percentile(50.0).ns as f64;

    let out = Command::new("fio")
        .args([
            "--name=beside",
            "--rw=randread",
            "--bs=4k",
            "--norandommap",
            "--ioengine=psync",
            "--time_based",
        ])
        .args(["--output-format=json", "--readonly", &format!("--direct={}", u8::from(direct))])
        .args([format!("--rate_iops={RATE}"), format!("--runtime={ms}ms"), format!("--size={SIZE}")])
        .arg(format!("--filename={}", path.display()))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // Notes may stand before the object.
    let text = String::from_utf8_lossy(&out.stdout);
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let theirs = json["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"].as_f64().unwrap();
    (ours, theirs)
}
