//! The recovered view at every instant of a stock kernel's F2FS: a guest lives on drives that log its writes,
//! and of images as of any entry of the log, and of power cuts there, the view equals that kernel's mount,
//! which recovers them.
//!
//! One guest lives on several volumes (`lives` of scripts/guest/scenarios.py), each an attached drive's with
//! a write log. A point is an instant between two writes, or a power cut there: what was flushed, and any of
//! the writes behind it in any order, each a block, none torn (the format takes a block's write for whole).
//! Other guests mount the points, which lie one behind the other on one disk, and list them. After every
//! entry of the log the view that goes on from the one before equals one that is opened anew. And while the
//! guest lives, what the drives say is compared with what drives over snapshots of them say.
//!
//! `NEARSIDE_RECOVERY_POINTS` says how many points of each volume are looked at (6), `NEARSIDE_RECOVERY_SEED`
//! (1) and `NEARSIDE_RECOVERY_SEEDS` (1) with which seeds and how many; `NEARSIDE_RECOVERY_KEEP` is a folder
//! for the points that differ. With `NEARSIDE_RECORD` the run is recorded (`conformance::record`).

#[path = "fsview/f2fs_support/mod.rs"]
mod f2fs_support;
mod instants;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use f2fs_support::*;
use instants::{Instants, copy_to};
use nearside_clock::TscClock;
use nearside_conformance::{needs, record, volume};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_driver::Threaded;
use nearside_embedded::{AnyStore, Embedded, Loopback, Options, firmware};
use nearside_firmware::Fsr;
use nearside_front_fuse::{AttachOptions, Attached, attach};
use nearside_fsrlib::{Ask, Digest, Operation, Record, Session, SocketTransport, Transport};
use nearside_fsview::{Error, State, Volume};
use nearside_random::Rng;
use nearside_store::FileOptions;
use nearside_store::write_log::{Cut, Entry, Flags, LogReader, WriteLog, survivors};

const MIB: u64 = 1 << 20;
/// Steps of a volume's life.
const STEPS: u32 = 120;
/// Bytes of a volume.
const VOLUME: u64 = 64 * MIB;
/// Points that one guest mounts: the tar of what it says has its bounds.
const BATCH: usize = 100;

/// A volume's options of mkfs.f2fs, and of its mount.
const VOLUMES: [(&[&str], &str); 4] = [
    (&[], "noatime+fsync_mode=posix"),
    (
        &["-O", "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum"],
        "noatime+fsync_mode=strict+inline_xattr_size=60",
    ),
    (
        &["-O", "extra_attr,compression"],
        "noatime+inline_dentry+compress_algorithm=lz4+compress_extension=cmp",
    ),
    (&["-O", "extra_attr"], "noatime+noinline_dentry+noinline_data+fsync_mode=posix"),
];

/// `CP_UMOUNT_FLAG`.
const UMOUNT: u32 = 1;

/// The part of a volume in which its checkpoints are.
fn start(disk: &File) -> Vec<u8> {
    let mut bytes = vec![0; 8 << 20];
    disk.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn must(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a scenario in the guest; the tar of its results.
fn boot(folder: &Path, scenario: &str, disks: &[String]) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/guest/boot.sh");
    let out = folder.join("out.img");
    must(Command::new(script).arg(scenario).arg(&out).args(disks));
    out
}

fn number(words: &str, default: u64) -> u64 {
    std::env::var(words).map_or(default, |n| n.parse().unwrap_or_else(|e| panic!("{words}={n}: {e}")))
}

/// The results in a guest's tar, by name: it has nothing but short names and files.
fn untar(path: &Path) -> BTreeMap<String, String> {
    let bytes = fs::read(path).unwrap();
    let mut files = BTreeMap::new();
    let mut at = 0;
    while bytes[at] != 0 {
        let field = |from: usize, len: usize| {
            let bytes = &bytes[at + from..at + from + len];
            String::from_utf8(bytes.iter().copied().take_while(|b| *b != 0).collect()).unwrap()
        };
        let len = usize::from_str_radix(field(124, 12).trim(), 8).unwrap();
        let content = String::from_utf8(bytes[at + 512..at + 512 + len].to_vec()).unwrap();
        files.insert(field(0, 100), content);
        at += 512 + len.next_multiple_of(512);
    }
    files
}

/// An attached drive while its guest lives on it.
struct Living {
    front: Attached,
    served: Loopback<AnyStore, Fsr, Threaded>,
    written: WriteLog,
    /// Entries of the log when its view was last compared.
    compared: u64,
}

/// Everything that a drive says: metadata, and hashes of content. No file that is just being changed.
fn everything(session: &mut Session<impl Transport>) -> Result<Vec<Record<'static>>, String> {
    let mut records = Vec::new();
    for operation in [Operation::List, Operation::Checksum(Digest::Xxh3)] {
        let answer = session.stream(&Ask::tree("/", operation), |record| {
            if !matches!(record, Record::Warning { .. }) {
                records.push(record.into_owned());
            }
            ControlFlow::Continue(())
        });
        answer.map_err(|e| e.to_string())?;
    }
    Ok(records)
}

impl Living {
    /// Compares what the drive says now with what one says that is opened over its bytes of now, unless
    /// the guest writes meanwhile. Whether it did.
    fn compare(&mut self, snapshot: &Path) -> bool {
        /// Writes between two comparisons: copying a volume takes a guest's time.
        const APART: u64 = 40;
        let before = self.written.entries();
        if before < self.compared + APART {
            return false;
        }
        // What is not flushed is in the bytes, and not in the view.
        File::open(self.front.file()).and_then(|file| file.sync_all()).unwrap();
        let entries = self.written.entries();
        if entries != before + 1 {
            return false;
        }
        let transport = SocketTransport::connect(self.front.socket()).unwrap();
        let live = everything(&mut Session::new(transport, Arc::new(TscClock::new())));
        let bytes = fs::read(self.front.file()).unwrap();
        if self.written.entries() != entries {
            return false;
        }
        self.compared = entries;
        fs::write(snapshot, bytes).unwrap();
        let store = AnyStore::open(&format!("file:{}", snapshot.display()), FileOptions::read()).unwrap();
        let drive = Embedded::start(store, firmware(), &Options::default()).unwrap();
        let offline = everything(&mut Session::new(drive, Arc::new(TscClock::new())));
        if live != offline {
            let differs = |(a, b): &(Vec<Record<'_>>, Vec<Record<'_>>)| {
                let first = a.iter().zip(b).find(|(a, b)| a != b);
                format!("{} and {} records: {first:?}", a.len(), b.len())
            };
            let both = live.and_then(|live| Ok((live, offline?)));
            panic!(
                "after {entries} entries the live view is not the snapshot's: {}",
                both.as_ref().map_or_else(Clone::clone, differs)
            );
        }
        true
    }
}

/// Compares live views with those of snapshots until the guest's life is over; how many. It leaves the guest
/// most of the time.
fn compare_live(drives: &mut [Living], over: &Receiver<()>, folder: &Path) -> u64 {
    let mut count = 0;
    while over.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout) {
        for drive in &mut *drives {
            count += u64::from(drive.compare(&folder.join("snapshot")));
        }
    }
    count
}

/// A volume's life: how it was before, and what was written.
struct Lived {
    what: String,
    base: PathBuf,
    log: LogReader,
    /// Compressed files, whose content the view refuses to map.
    unread: &'static [&'static str],
}

/// Lets a guest live on the volumes.
fn live(folder: &Path, seed: u64) -> (Vec<Lived>, u64) {
    let (mut disks, mut drives, mut lived) = (Vec::new(), Vec::new(), Vec::new());
    for (nr, (options, mount)) in VOLUMES.iter().enumerate() {
        let base = folder.join(format!("volume-{nr}.img"));
        File::create(&base).unwrap().set_len(VOLUME).unwrap();
        must(Command::new(needs::tool("mkfs.f2fs").unwrap()).args(["-q", "-f"]).args(*options).arg(&base));
        let (drive, log) = (folder.join(format!("drive-{nr}")), folder.join(format!("log-{nr}")));
        fs::create_dir(&drive).unwrap();
        let store = AnyStore::open(&format!("dram:{}", base.display()), FileOptions::serve()).unwrap();
        let store = store.logged(&log).unwrap();
        let written = store.write_log().cloned().unwrap();
        let served = Loopback::threaded(store, firmware(), Config::default(), Rest::default()).unwrap();
        let front = attach(served.function.clone(), &AttachOptions::new(&drive)).unwrap();
        disks.push(front.file().display().to_string());
        drives.push(Living { front, served, written, compared: 0 });
        let unread: &[&str] = if mount.contains("compress") { &["*.cmp"] } else { &[] };
        lived.push((format!("seed {seed}, volume {nr}"), base, log, unread));
    }
    let options: Vec<&str> = VOLUMES.iter().map(|(_, mount)| *mount).collect();
    let scenario = format!("lives,f2fs,{seed},{STEPS},{}", options.join(","));
    let (living, over) = mpsc::channel::<()>();
    let compared = std::thread::scope(|scope| {
        let disks = &disks;
        scope.spawn(move || {
            let _living = living;
            boot(folder, &scenario, disks);
        });
        compare_live(&mut drives, &over, folder)
    });
    for Living { front, served, written, .. } in drives {
        volume::detach(front, Attached::detach).unwrap();
        drop(served);
        assert_eq!(written.trouble(), None);
    }
    let read = |(what, base, log, unread): (_, _, PathBuf, _)| Lived {
        what,
        base,
        log: LogReader::open(&log).unwrap(),
        unread,
    };
    (lived.into_iter().map(read).collect(), compared)
}

/// Goes through a life, entry by entry: the view that goes on is the one that is opened anew. Where there is
/// most to recover, and the last instant at which there is something though the checkpoint has the mark of an
/// unmount.
fn notable(lived: &Lived, entries: &[Entry], folder: &Path) -> [Option<u64>; 2] {
    let path = folder.join("going");
    let mut going = Instants::new(&lived.log, entries, &lived.base, &path);
    let disk = Disk(File::open(&path).unwrap());
    let (mut most, mut unmounted, mut known) = ((0, None), None, None::<Volume>);
    for at in 1..=entries.len() as u64 {
        going.go_on(at);
        let Ok(fresh) = now(Volume::open(&disk)) else {
            known = None;
            continue;
        };
        let on = now(Volume::open_after(&disk, State::Recovered, known.as_ref())).unwrap();
        assert_eq!(format!("{on:?}"), format!("{fresh:?}"), "{}, after {at} entries", lived.what);
        let nodes = on.info().recovery.nodes;
        if nodes > most.0 {
            most = (nodes, Some(at));
        }
        if nodes > 0 && checkpoint_flags(&start(&disk.0)) & UMOUNT != 0 {
            unmounted = Some(at);
        }
        known = Some(on);
    }
    [most.1, unmounted]
}

/// An image as of a point, with what the view shows of it.
struct Point {
    what: String,
    shown: Result<(Volume, Manifest), Error>,
    home: (Volume, Manifest),
    unread: &'static [&'static str],
    unmounted: bool,
    second_pack: bool,
    lost: u64,
    /// A copy, until it is known to be shown as it should: a mount writes what it recovers.
    kept: Option<PathBuf>,
}

/// What the view shows.
fn shown(path: &Path, state: State, unread: &[&str], what: &str) -> Result<(Volume, Manifest), Error> {
    let disk = Disk(File::open(path).unwrap());
    let volume = now(Volume::open_as(&disk, state))?;
    let found = walk(&volume, &disk, unread).unwrap_or_else(|e| panic!("{what}, {state:?}: {e}"));
    Ok((volume, undated(found)))
}

/// Makes points of a life, and hands each with its image on.
fn each_point(lived: &Lived, seed: u64, points: u64, folder: &Path, mut take: impl FnMut(Point, &File)) {
    let entries: Vec<Entry> = lived.log.entries().map(Result::unwrap).collect();
    let notable = notable(lived, &entries, folder);
    let instants = |name| Instants::new(&lived.log, &entries, &lived.base, &folder.join(name));
    let (mut random, count) = (Rng(seed), entries.len() as u64);
    let path = folder.join("point");
    let mut places: Vec<(u64, Option<Cut>)> = notable.into_iter().flatten().map(|at| (at, None)).collect();
    for nr in 0..points.saturating_sub(places.len() as u64) {
        let cut = (nr % 3 > 0).then(|| Cut { seed: random.draw(), torn: false });
        places.push((1 + (nr * count + random.below(count)) / points, cut));
    }
    places.sort_by_key(|(at, _)| *at);
    let (mut plain, mut flushed) = (instants("plain"), instants("flushed"));
    for (nr, (at, cut)) in places.into_iter().enumerate() {
        // What stands before the last flush is the same for each of its period.
        let from = entries[..at as usize].iter().rposition(|entry| entry.flags.has(Flags::FLUSH));
        let all = entries[from.unwrap_or(0)..].iter().map(|entry| Ok(*entry));
        let left = survivors(all, at, cut).unwrap();
        let whole = if cut.is_some() { &mut flushed } else { &mut plain };
        whole.go_on(left.first);
        whole.copy(&left.then, &path);
        let what = format!("{}, point {nr}: entry {at} of {count}, {cut:?} ({} lost)", lived.what, left.lost);
        let image = File::open(&path).unwrap();
        let start = start(&image);
        let point = Point {
            shown: shown(&path, State::Recovered, lived.unread, &what),
            home: shown(&path, State::Home, lived.unread, &what).unwrap_or_else(|e| panic!("{what}: {e}")),
            unread: lived.unread,
            unmounted: checkpoint_flags(&start) & UMOUNT != 0,
            second_pack: newest(&start).0,
            lost: left.lost,
            kept: std::env::var_os("NEARSIDE_RECOVERY_KEEP").map(|kept| {
                fs::create_dir_all(&kept).unwrap();
                Path::new(&kept).join(what.replace(|c: char| !c.is_alphanumeric(), "-"))
            }),
            what,
        };
        take(point, &image);
    }
}

/// What the points showed of themselves.
#[derive(Default, Debug)]
struct Seen {
    points: usize,
    /// Of which power cuts that lost something.
    cuts: usize,
    recovered: usize,
    nodes: u64,
    after_unmount: usize,
    /// By the checkpoint pack that counts.
    packs: [usize; 2],
    home_differs: usize,
    /// Attributes of which a half alone was written, by both.
    half_attributes: usize,
    /// The release of the kernel that recovered them.
    kernel: String,
    /// Snapshots with which live views were compared.
    live: u64,
    /// Whose log the kernel gave up, and the view says so.
    given_up: usize,
    differ: Vec<String>,
}

impl Seen {
    fn add_to_record(&self, seed: u64) {
        let fields = [
            ("configuration", "F2FS".into()),
            ("guest_kernel", self.kernel.as_str().into()),
            ("seed", seed.into()),
            ("points", self.points.into()),
            ("cuts", self.cuts.into()),
            ("recovered", self.recovered.into()),
            ("nodes", self.nodes.into()),
            ("half_attributes", self.half_attributes.into()),
            ("given_up_by_both", self.given_up.into()),
            ("snapshots_of_live_views", self.live.into()),
            ("unlike", self.differ.len().into()),
        ];
        record::add("view", "f2fs_recovery", &fields);
    }

    /// Compares with what the kernel says.
    fn judge(&mut self, point: Point, manifest: &str, kernel: &str) -> Result<(), String> {
        self.points += 1;
        self.cuts += usize::from(point.lost > 0);
        if manifest.starts_with("# refused") {
            return Err(format!("the kernel refuses it: {manifest}\n{kernel}"));
        }
        let mut expected = undated(f2fs_support::manifest(manifest));
        for (path, fields) in &mut expected {
            if point.unread.iter().any(|pattern| path.ends_with(&pattern.as_bytes()[1..])) {
                fields.clear();
            }
        }
        let (home, mut at_home) = point.home;
        let mut shown = point.shown;
        let found = shown.as_mut().ok().map(|(_, found)| found);
        for found in found.into_iter().chain([&mut at_home]) {
            self.half_attributes += agree_on_attributes(found, kernel)?;
        }
        let same = |found: &Manifest| difference(found, &expected).map_or(Ok(()), Err);
        if kernel.contains("Cannot recover") {
            // It then mounts the checkpoint's state.
            self.given_up += 1;
            let Err(Error::Corrupt { .. }) = shown else {
                return Err(format!("the kernel gives the log up, the view does not:\n{kernel}"));
            };
            return same(&at_home);
        }
        let (volume, found) = shown.map_err(|e| format!("the view refuses it: {e}"))?;
        let info = volume.info();
        same(&found).map_err(|what| format!("{:?}: {what}", info.recovery))?;
        self.nodes += info.recovery.nodes;
        assert!(!info.needs_recovery && home.info().recovery.nodes == 0);
        if info.recovery.nodes == 0 {
            return same(&at_home).map_err(|what| format!("at home: {what}"));
        }
        self.recovered += 1;
        assert!(home.info().needs_recovery && info.recovery.up_to != 0);
        assert!(info.stale.is_none() && home.info().stale.is_some());
        self.after_unmount += usize::from(point.unmounted);
        self.packs[usize::from(point.second_pack)] += 1;
        self.home_differs += usize::from(at_home != expected);
        Ok(())
    }
}

/// Where an access list cannot be read for lack of its other half, the kernel must have said so of that
/// inode; it then gives none. How many there are.
fn agree_on_attributes(found: &mut Manifest, kernel: &str) -> Result<usize, String> {
    let mut count = 0;
    for (path, fields) in found {
        let Some((rest, list)) = fields.rsplit_once('\t') else { continue };
        let Some(ino) = list.strip_prefix("corrupt in inode ") else { continue };
        if !kernel.contains(&format!("inode ({ino}) has corrupted xattr")) {
            return Err(format!(
                "{}: {list}, of which the kernel says nothing:\n{kernel}",
                path.escape_ascii()
            ));
        }
        *fields = format!("{rest}\t-");
        count += 1;
    }
    Ok(count)
}

/// Lets a guest mount points and compares what it says of them.
fn compare(points: &mut Vec<Point>, disk: &Path, folder: &Path, seen: &mut Seen) {
    let count = points.len();
    if count == 0 {
        return;
    }
    let scenario = format!("points,f2fs,{count},{VOLUME}");
    let results = untar(&boot(folder, &scenario, &[disk.display().to_string()]));
    seen.kernel.clone_from(&results["release.txt"]);
    for (nr, point) in points.drain(..).enumerate() {
        let (what, kept) = (point.what.clone(), point.kept.clone());
        let (manifest, kernel) =
            (&results[&format!("manifest-{nr}.txt")], &results[&format!("kernel-{nr}.txt")]);
        match seen.judge(point, manifest, kernel) {
            Ok(()) => kept.into_iter().for_each(|kept| fs::remove_file(kept).unwrap()),
            Err(why) => {
                eprintln!("DIFFERS: {what}: {why}");
                seen.differ.push(format!("{what}: {why}"));
            }
        }
    }
}

fn try_seed(seed: u64, seen: &mut Seen) {
    let folder = tempfile::tempdir().unwrap();
    let count = number("NEARSIDE_RECOVERY_POINTS", 6);
    let path = folder.path().join("points.img");
    let fresh = || File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let (mut disk, mut points) = (fresh(), Vec::new());
    let (lives, live) = live(folder.path(), seed);
    seen.live += live;
    for lived in lives {
        each_point(&lived, seed, count, folder.path(), |point, image| {
            if let Some(kept) = &point.kept {
                instants::copy_data(image, kept);
            }
            let at = points.len() as u64 * VOLUME;
            disk.set_len(at + VOLUME).unwrap();
            copy_to(image, &disk, at);
            points.push(point);
            if points.len() == BATCH {
                compare(&mut points, &path, folder.path(), seen);
                disk = fresh();
            }
        });
    }
    compare(&mut points, &path, folder.path(), seen);
}

#[test]
fn every_instant_of_a_guests_life_is_shown_as_its_kernel_recovers_it() {
    let test = "every_instant_of_a_guests_life_is_shown_as_its_kernel_recovers_it";
    let tools = ["qemu-system-x86_64", "busybox", "cpio", "depmod", "apt-get", "mkfs.f2fs"];
    if !needs::mounts(test, &tools) {
        return;
    }
    let first = number("NEARSIDE_RECOVERY_SEED", 1);
    let mut all = Vec::new();
    for seed in first..first + number("NEARSIDE_RECOVERY_SEEDS", 1) {
        let mut seen = Seen::default();
        try_seed(seed, &mut seen);
        eprintln!("seed {seed}: {seen:?}");
        seen.add_to_record(seed);
        all.push(seen);
    }
    let differ: Vec<&str> = all.iter().flat_map(|seen| &seen.differ).map(String::as_str).collect();
    assert!(differ.is_empty(), "{} points differ:\n{}", differ.len(), differ.join("\n"));
    // The oracle tells the two states apart wherever fsync has added something.
    let sum = |of: fn(&Seen) -> usize| all.iter().map(of).sum::<usize>();
    let (points, recovered) = (sum(|seen| seen.points), sum(|seen| seen.recovered));
    assert!(recovered * 3 > points && sum(|seen| seen.cuts) > 0, "{all:?}");
    assert!(all.iter().any(|seen| seen.live > 0), "{all:?}");
    assert!(sum(|seen| seen.home_differs) * 2 > recovered, "{all:?}");
    let packs = [sum(|seen| seen.packs[0]), sum(|seen| seen.packs[1])];
    assert!(sum(|seen| seen.after_unmount) > 0 && packs[0] > 0 && packs[1] > 0, "{all:?}");
}
