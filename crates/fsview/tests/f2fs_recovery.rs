//! Power cuts at any write of a stock kernel's F2FS: what the view shows of the volume as it is then, that
//! kernel's own recovery shows after a mount.
//!
//! One guest lives on several volumes, of which QEMU records every write in order (`lives` of
//! scripts/guest/scenarios.py). A cut is a volume with the first so many of them. A second guest mounts every
//! cut, recovers it, and lists it. `NEARSIDE_RECOVERY_SEEDS` says how many seeds are tried (1);
//! `NEARSIDE_RECOVERY_SEED` which comes first; `NEARSIDE_RECOVERY_KEEP` a folder for the cuts.

mod f2fs_support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use f2fs_support::*;
use nearside_conformance::needs;
use nearside_fsview::{State, Volume};
use nearside_random::Rng;

const MIB: u64 = 1 << 20;
/// Steps of a volume's life.
const STEPS: u32 = 120;
/// Cuts of each volume.
const CUTS: usize = 4;

/// A volume's options of mkfs.f2fs, and of its mount.
const VOLUMES: [(&[&str], &str); 3] = [
    (&[], "noatime+fsync_mode=posix"),
    (
        &["-O", "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum"],
        "noatime+fsync_mode=strict+inline_xattr_size=60",
    ),
    (
        &["-O", "extra_attr,compression"],
        "noatime+inline_dentry+compress_algorithm=lz4+compress_extension=cmp",
    ),
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

/// What QEMU's blklogwrites has recorded (dm-log-writes' format), in order.
struct Log {
    bytes: Vec<u8>,
    entries: Vec<Logged>,
}

struct Logged {
    offset: u64,
    len: u64,
    /// Where in the log its bytes are; none where they were discarded.
    data: Option<usize>,
    flush: bool,
}

impl Log {
    fn read(path: &Path) -> Log {
        const SECTOR: usize = 512;
        let bytes = fs::read(path).unwrap();
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((long(0), long(8)), (0x006A_7366_7773_6872, 1), "not a log of writes");
        let (mut at, mut entries) = (SECTOR, Vec::new());
        for _ in 0..long(16) {
            let (offset, len, flags) = (long(at) * 512, long(at + 8) * 512, long(at + 16));
            at += SECTOR;
            let data = (flags & 4 == 0).then_some(at);
            if data.is_some() {
                at += len as usize;
            }
            entries.push(Logged { offset, len, data, flush: flags & 3 != 0 });
        }
        Log { bytes, entries }
    }

    /// Makes `disk`, which has the first `from` writes, one with the first `to`.
    fn replay(&self, disk: &File, from: usize, to: usize) {
        for entry in &self.entries[from..to] {
            match entry.data {
                Some(at) => {
                    disk.write_all_at(&self.bytes[at..at + entry.len as usize], entry.offset).unwrap()
                }
                None => disk.write_all_at(&vec![0; entry.len as usize], entry.offset).unwrap(),
            }
        }
    }

    /// Instants for power cuts: some where the view says that there is much to recover, or something though
    /// the checkpoint has the mark of an unmount; the others anywhere, or behind a flush, where an fsync has
    /// ended. `disk` is the volume before the first write.
    fn cuts(&self, disk: File, random: &mut Rng) -> BTreeSet<usize> {
        let disk = Disk(disk);
        let (mut at, mut long, mut unmounted, mut flushes) = (0, Vec::new(), Vec::new(), Vec::new());
        for (nr, _) in self.entries.iter().enumerate().filter(|(_, entry)| entry.flush) {
            self.replay(&disk.0, at, nr + 1);
            at = nr + 1;
            flushes.push(at);
            let nodes = now(Volume::open(&disk)).map_or(0, |volume| volume.info().recovery.nodes);
            long.push((nodes, at));
            if nodes > 0 && checkpoint_flags(&start(&disk.0)) & UMOUNT != 0 {
                unmounted.push(at);
            }
        }
        long.sort_unstable();
        let mut cuts: BTreeSet<usize> = long.iter().rev().take(1).map(|(_, at)| *at).collect();
        cuts.extend(unmounted.last());
        while cuts.len() < CUTS {
            cuts.insert(match cuts.len() % 2 {
                0 => 1 + random.below(self.entries.len() as u64) as usize,
                _ => flushes[random.below(flushes.len() as u64) as usize],
            });
        }
        cuts
    }
}

/// A volume as a power cut leaves it.
struct Cut {
    what: String,
    path: PathBuf,
    /// Compressed files, whose content the view refuses to map.
    unread: &'static [&'static str],
}

/// Lets a guest live on the volumes, and cuts its power in many places.
fn cuts(folder: &Path, seed: u64) -> Vec<Cut> {
    let mut disks = Vec::new();
    for (nr, (options, _)) in VOLUMES.iter().enumerate() {
        let disk = folder.join(format!("volume-{nr}.img"));
        File::create(&disk).unwrap().set_len(64 * MIB).unwrap();
        must(Command::new(needs::tool("mkfs.f2fs").unwrap()).args(["-q", "-f"]).args(*options).arg(&disk));
        must(Command::new("cp").arg(&disk).arg(disk.with_extension("before")));
        disks.push(format!("{},blklog={}", disk.display(), disk.with_extension("log").display()));
    }
    let options: Vec<&str> = VOLUMES.iter().map(|(_, mount)| *mount).collect();
    boot(folder, &format!("lives,f2fs,{seed},{STEPS},{}", options.join(",")), &disks);
    let mut random = Rng(seed);
    let mut all = Vec::new();
    for (nr, (_, mount)) in VOLUMES.iter().enumerate() {
        let volume = folder.join(format!("volume-{nr}.img"));
        let log = Log::read(&volume.with_extension("log"));
        let growing = volume.with_extension("before");
        let seeking = folder.join("seeking.img");
        must(Command::new("cp").arg(&growing).arg(&seeking));
        let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
        let disk = open(&growing);
        let mut at = 0;
        for cut in log.cuts(open(&seeking), &mut random) {
            log.replay(&disk, at, cut);
            at = cut;
            let path = folder.join(format!("cut-{nr}-{cut}.img"));
            must(Command::new("cp").arg("--sparse=always").arg(&growing).arg(&path));
            let what = format!("seed {seed}, volume {nr}, {cut} of {} writes", log.entries.len());
            let unread: &[&str] = if mount.contains("compress") { &["*.cmp"] } else { &[] };
            all.push(Cut { what, path, unread });
        }
    }
    all
}

/// What the view shows.
fn shown(cut: &Cut, state: State) -> (Volume, Manifest) {
    let disk = Disk(File::open(&cut.path).unwrap());
    let volume = now(Volume::open_as(&disk, state)).unwrap_or_else(|e| panic!("{}: {e}", cut.what));
    let found = walk(&volume, &disk, cut.unread).unwrap_or_else(|e| panic!("{}, {state:?}: {e}", cut.what));
    (volume, undated(found))
}

/// The results in a guest's tar, by name: it has nothing but short names and files.
fn untar(path: &Path) -> std::collections::BTreeMap<String, String> {
    let bytes = fs::read(path).unwrap();
    let mut files = std::collections::BTreeMap::new();
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

/// What a seed's cuts showed of themselves.
#[derive(Default, Debug)]
struct Seen {
    cuts: usize,
    recovered: usize,
    nodes: u64,
    after_unmount: usize,
    /// By the checkpoint pack that counts.
    packs: [usize; 2],
    home_differs: usize,
}

fn try_seed(seed: u64, seen: &mut Seen) {
    let folder = tempfile::tempdir().unwrap();
    let cuts = cuts(folder.path(), seed);
    if let Some(kept) = std::env::var_os("NEARSIDE_RECOVERY_KEEP") {
        for cut in &cuts {
            fs::create_dir_all(&kept).unwrap();
            fs::copy(&cut.path, Path::new(&kept).join(cut.path.file_name().unwrap())).unwrap();
        }
    }
    // Copies, because the kernel writes what it recovers.
    let mounted: Vec<String> = cuts
        .iter()
        .map(|cut| {
            let copy = cut.path.with_extension("mounted");
            must(Command::new("cp").arg("--sparse=always").arg(&cut.path).arg(&copy));
            copy.display().to_string()
        })
        .collect();
    let scenario = format!("manifests{}", ",f2fs".repeat(cuts.len()));
    let results = untar(&boot(folder.path(), &scenario, &mounted));
    let kernel = &results["kernel.txt"];
    assert!(!kernel.contains("Cannot recover"), "the kernel gave a log up:\n{kernel}");
    for (nr, cut) in cuts.iter().enumerate() {
        let mut expected = undated(manifest(&results[&format!("manifest-{nr}.txt")]));
        for (path, fields) in &mut expected {
            if cut.unread.iter().any(|pattern| path.ends_with(&pattern.as_bytes()[1..])) {
                fields.clear();
            }
        }
        let (volume, found) = shown(cut, State::Recovered);
        let info = volume.info();
        assert_same(&found, &expected, &format!("{}: {:?}", cut.what, info.recovery));
        let (home, at_home) = shown(cut, State::Home);
        seen.cuts += 1;
        seen.nodes += info.recovery.nodes;
        assert!(!info.needs_recovery, "{}", cut.what);
        assert_eq!(home.info().recovery.nodes, 0);
        if info.recovery.nodes > 0 {
            seen.recovered += 1;
            assert!(home.info().needs_recovery, "{}", cut.what);
            assert_ne!(info.recovery.up_to, 0);
            assert!(info.stale.is_none() && home.info().stale.is_some(), "{}", cut.what);
            let start = start(&File::open(&cut.path).unwrap());
            seen.after_unmount += usize::from(checkpoint_flags(&start) & UMOUNT != 0);
            seen.packs[usize::from(newest(&start).0)] += 1;
            seen.home_differs += usize::from(at_home != expected);
        } else {
            assert_same(&at_home, &expected, &format!("{}, at home", cut.what));
        }
    }
}

#[test]
fn power_cuts_show_what_the_kernel_recovers() {
    let test = "power_cuts_show_what_the_kernel_recovers";
    let tools = ["qemu-system-x86_64", "busybox", "cpio", "depmod", "apt-get", "mkfs.f2fs"];
    if !needs::tools(test, &tools) {
        return;
    }
    let first = number("NEARSIDE_RECOVERY_SEED", 1);
    let mut seen = Seen::default();
    for seed in first..first + number("NEARSIDE_RECOVERY_SEEDS", 1) {
        try_seed(seed, &mut seen);
        eprintln!("seed {seed}: {seen:?}");
    }
    // The oracle tells the two states apart wherever fsync has added something.
    assert!(seen.recovered * 3 > seen.cuts, "{seen:?}");
    assert!(seen.home_differs * 2 > seen.recovered, "{seen:?}");
    assert!(seen.after_unmount > 0 && seen.packs[0] > 0 && seen.packs[1] > 0, "{seen:?}");
}
