//! Mutated metadata of ext volumes, checksums made right again: what the view answers is what the machine's
//! kernel answers on a read-only mount of the same bytes. Either may refuse where the other answers, for
//! reasons that are listed here one by one; two different answers are a failure.
//!
//! A seeded sample by default; `MUTATIONS=20000 cargo test -p nearside-hostile --test root_mutated` for a
//! longer run, `MUTATIONS_SEED=7` for another, `MUTATION=6529` for that one alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nearside_conformance::needs;
use nearside_fsview::{DirCursor, Error, FileKind, Ino, Inode, RunPlace, Volume};
use nearside_hostile::mend;
use nearside_hostile::patched::{Patched, now};
use nearside_hostile::sites::{Site, SiteKind};
use nearside_hostile::volumes::{self, Image};
use nearside_random::Rng;
use xxhash_rust::xxh3::Xxh3;

/// Mutations of one run of the tests.
const SAMPLE: u64 = 240;
/// Bytes of a file that are compared: its beginning, and as many at its end.
const COMPARED: u64 = 1 << 20;
/// Files of one volume that are looked at.
const FILES: usize = 400;
/// Names of one directory that are looked up.
const NAMES: usize = 80;

/// What is refused here and answered by the kernel: each with its reason.
const STRICTER: &[(&str, &str)] = &[
    // The kernel leaves out the names of a directory's bad block, logs that, and goes on:
    // the list looks whole and is not.
    ("list", "directory, inode"),
    // Names with a slash end the kernel's listing with an error;
    // those with a NUL are cut, and two names then look alike.
    ("list", "an entry has"),
    // One look-up is answered from a hash tree in which another's name would not be found.
    ("lookup", "directory, inode"),
    ("stat", "directory, inode"),
    // The kernel ends a link's target at its first NUL.
    ("link", "a NUL in its target"),
    // Content in the inode, which lacks what says so: the kernel takes its first bytes for pointers.
    ("lookup", "inline data without the attribute"),
    // The root's inode is read before the kernel knows which blocks are its own.
    ("stat", "which belongs to the file system"),
    // A leaf's last extent begins beyond what the parent's next index maps:
    // the kernel takes all that follows for a hole.
    ("content", "past its node"),
    // One pointer of a block of them leads out of the volume:
    // the kernel looks at the others only where it has not read the block before.
    ("content", "a pointer to block"),
];

/// What is answered here and refused by the kernel.
const LOOSER: &[(&str, &str)] = &[
    // A file's blocks among a group's bitmaps or inodes, which only its descriptor tells (see `fsview::ext`,
    // `holds`): asked for again below.
    ("content", IN_ZONE),
    ("list", IN_ZONE),
    ("lookup", IN_ZONE),
    // The kernel lists an indexed directory along its index.
    // Its blocks are read here in order, their checksums verified.
    ("list", "errno 117 along an index"),
    // A directory that an entry below it names:
    // walks end there (`Retriever`'s trees remember their ancestors).
    ("lookup", "errno 40"),
    // A flag of a verified file, and a kernel without fs-verity.
    ("content", "errno 95"),
];
/// What the kernel's refusal is called where the view can show that the blocks are a group's own.
const IN_ZONE: &str = "errno in a group's own blocks";

/// An answer, or why there is none.
type Answer<T> = Result<T, String>;

/// What both say of a file, beside its content.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    kind: FileKind,
    mode: u16,
    uid: u32,
    gid: u32,
    size: u64,
    links: u32,
}

/// One side: the view or the kernel.
trait Side {
    type File: Clone;
    fn root(&self) -> Self::File;
    fn names(&self, dir: &Self::File) -> Answer<BTreeSet<Vec<u8>>>;
    fn child(&self, dir: &Self::File, name: &[u8]) -> Answer<Self::File>;
    fn stat(&self, file: &Self::File) -> Answer<Stat>;
    fn link(&self, file: &Self::File) -> Answer<Vec<u8>>;
    /// A hash of the compared bytes.
    fn content(&self, file: &Self::File, size: u64) -> Answer<u64>;
    /// Whether blocks of it lie among what belongs to a group, and whether it is a directory with an index.
    fn about(&self, _: &Self::File) -> (bool, bool) {
        (false, false)
    }
}

/// The parts of a file that are compared.
fn parts(size: u64) -> Vec<(u64, u64)> {
    match size <= 2 * COMPARED {
        true => vec![(0, size)],
        false => vec![(0, COMPARED), (size - COMPARED, size)],
    }
}

struct View<'a> {
    volume: Volume,
    source: &'a Patched<'a>,
    /// The volume before the mutation.
    original: &'a [u8],
}

impl Side for View<'_> {
    type File = Ino;

    fn root(&self) -> Ino {
        self.volume.root()
    }

    fn names(&self, dir: &Ino) -> Answer<BTreeSet<Vec<u8>>> {
        let dir = self.permitted(*dir)?;
        let (mut entries, mut cursor) = (Vec::new(), Some(DirCursor::default()));
        while let Some(at) = cursor {
            cursor = now(self.volume.read_dir(self.source, &dir, at, &mut entries)).map_err(text)?;
        }
        Ok(entries.into_iter().map(|entry| entry.name.to_vec()).collect())
    }

    fn child(&self, dir: &Ino, name: &[u8]) -> Answer<Ino> {
        let dir = self.permitted(*dir)?;
        let found = now(self.volume.lookup(self.source, &dir, name)).map_err(text)?;
        let found = found.ok_or("no such name")?;
        // As the kernel's: a name of no inode is not found.
        self.inode(found).map(|_| found)
    }

    fn stat(&self, file: &Ino) -> Answer<Stat> {
        let inode = self.inode(*file)?;
        let Inode { kind, mode, uid, gid, size, links, .. } = inode;
        Ok(Stat { kind, mode: mode & 0o7777, uid, gid, size, links })
    }

    fn link(&self, file: &Ino) -> Answer<Vec<u8>> {
        now(self.volume.read_link(self.source, &self.inode(*file)?)).map_err(text)
    }

    fn content(&self, file: &Ino, size: u64) -> Answer<u64> {
        let inode = self.permitted(*file)?;
        let mut hash = Xxh3::new();
        for (mut from, to) in parts(size) {
            while from < to {
                let run = now(self.volume.map(self.source, &inode, from)).map_err(text)?;
                let run = run.ok_or("a file that ends before its end")?;
                let len = run.len.min(to - from);
                match run.place {
                    RunPlace::Zeros => hash.update(&vec![0; len as usize]),
                    RunPlace::Volume(at) => {
                        hash.update(&self.source.get(at, len as usize).ok_or("past the volume's end")?);
                    }
                    RunPlace::Inline => {
                        let bytes = now(self.volume.inline_data(self.source, &inode)).map_err(text)?;
                        hash.update(&bytes[from as usize..(from + len) as usize]);
                    }
                }
                from += len;
            }
        }
        Ok(hash.digest())
    }

    fn about(&self, file: &Ino) -> (bool, bool) {
        let Ok(inode) = self.inode(*file) else { return (false, false) };
        let zones = zones(self.source);
        let mut from = 0;
        // What the inode itself points to, also beyond its size: blocks, or extents; then its runs.
        let block = u64::from(self.volume.info().block_size);
        let raw = mend::ext_inode_at(self.original, file.0) as u64;
        let word = |at: u64| u64::from(self.source.word(raw + at));
        // The attribute block among them.
        let pointers = (0..15).map(|nr| (word(0x28 + nr * 4), 1)).chain([(word(0x68), 1)]);
        let extents = (1..5).map(|nr| (word(0x30 + nr * 12), word(0x2C + nr * 12) & 0x7FFF));
        let within = |at: u64, len: u64| zones.iter().any(|(start, end)| at < *end && *start < at + len);
        let mut inside = pointers.chain(extents).any(|(at, len)| within(at * block, len * block));
        while let Ok(Some(run)) = now(self.volume.map(self.source, &inode, from)) {
            if let RunPlace::Volume(at) = run.place {
                inside |= within(at, run.len);
            }
            from += run.len;
        }
        (inside, inode.kind == FileKind::Directory && word(0x20) & 0x1000 != 0)
    }
}

/// Bytes of the bitmaps and inodes of all groups.
fn zones(volume: &Patched<'_>) -> Vec<(u64, u64)> {
    let word = |at: u64| u64::from(volume.word(at));
    let block = 1024 << word(1024 + 0x18);
    let groups = word(1024) / word(1024 + 0x28);
    let table = word(1024 + 0x28) * (word(1024 + 0x58) & 0xFFFF);
    let len = if word(1024 + 0x60) & 0x80 != 0 { word(1024 + 0xFC) >> 16 } else { 32 };
    let descriptors = if block == 1024 { 2048 } else { block };
    let of = |group: u64| {
        let at = |field: u64| word(descriptors + group * len + field) * block;
        [(at(0), at(0) + block), (at(4), at(4) + block), (at(8), at(8) + table)]
    };
    (0..groups).flat_map(of).collect()
}

impl View<'_> {
    fn inode(&self, ino: Ino) -> Answer<Inode> {
        now(self.volume.inode(self.source, ino)).map_err(text)
    }

    /// One that is opened: of another's the kernel reads the ACL, though root is let by whatever it says.
    fn permitted(&self, ino: Ino) -> Answer<Inode> {
        let inode = self.inode(ino)?;
        if inode.uid != 0 && inode.mode & 0o070 != 0 {
            now(self.volume.acl(self.source, &inode)).map_err(text)?;
        }
        Ok(inode)
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

struct Kernel(PathBuf);

impl Side for Kernel {
    type File = PathBuf;

    fn root(&self) -> PathBuf {
        self.0.clone()
    }

    fn names(&self, dir: &PathBuf) -> Answer<BTreeSet<Vec<u8>>> {
        let entries = fs::read_dir(dir).map_err(said)?;
        entries.map(|entry| Ok(entry.map_err(said)?.file_name().into_vec())).collect()
    }

    fn child(&self, dir: &PathBuf, name: &[u8]) -> Answer<PathBuf> {
        let path = dir.join(OsStr::from_bytes(name));
        fs::symlink_metadata(&path).map_err(said)?;
        Ok(path)
    }

    fn stat(&self, file: &PathBuf) -> Answer<Stat> {
        let stat = fs::symlink_metadata(file).map_err(said)?;
        let is = stat.file_type();
        let kind = match () {
            () if is.is_file() => FileKind::Regular,
            () if is.is_dir() => FileKind::Directory,
            () if is.is_symlink() => FileKind::Symlink,
            () if is.is_char_device() => FileKind::CharDevice,
            () if is.is_block_device() => FileKind::BlockDevice,
            () if is.is_fifo() => FileKind::Fifo,
            () => FileKind::Socket,
        };
        let links = u32::try_from(stat.nlink()).unwrap_or(u32::MAX);
        let (uid, gid, size) = (stat.uid(), stat.gid(), stat.size());
        Ok(Stat { kind, mode: (stat.mode() & 0o7777) as u16, uid, gid, size, links })
    }

    fn link(&self, file: &PathBuf) -> Answer<Vec<u8>> {
        Ok(fs::read_link(file).map_err(said)?.into_os_string().into_vec())
    }

    fn content(&self, file: &PathBuf, size: u64) -> Answer<u64> {
        let file = fs::File::open(file).map_err(said)?;
        let mut hash = Xxh3::new();
        let mut buffer = vec![0; COMPARED as usize];
        for (mut from, to) in parts(size) {
            while from < to {
                let room = buffer.len().min((to - from) as usize);
                let n = file.read_at(&mut buffer[..room], from).map_err(said)?;
                if n == 0 {
                    return Err("ends early".into());
                }
                hash.update(&buffer[..n]);
                from += n as u64;
            }
        }
        Ok(hash.digest())
    }
}

fn said(error: std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |code| format!("errno {code}"))
}

/// The kernel's refusal, with what the view knows of the file.
fn reason(said: String, (in_zone, indexed): (bool, bool)) -> String {
    match said.as_str() {
        "errno 5" | "errno 117" if in_zone => IN_ZONE.into(),
        "errno 117" if indexed => "errno 117 along an index".into(),
        _ => said,
    }
}

/// What came out of a comparison.
#[derive(Debug, Default)]
struct Compared {
    answers: u64,
    both_refused: u64,
    /// Refused by one side, with what it said.
    stricter: BTreeMap<(&'static str, String), u64>,
    looser: BTreeMap<(&'static str, String), u64>,
    differences: Vec<String>,
}

impl Compared {
    /// Notes two answers to a question; gives both where both answered.
    fn note<A, B>(
        &mut self,
        what: &'static str,
        path: &[u8],
        view: Answer<A>,
        kernel: Answer<B>,
    ) -> Option<(A, B)> {
        let name = |said: &str| said.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        let path = String::from_utf8_lossy(path).into_owned();
        match (view, kernel) {
            (Ok(view), Ok(kernel)) => {
                self.answers += 1;
                return Some((view, kernel));
            }
            (Err(_), Err(_)) => self.both_refused += 1,
            (Err(view), Ok(_)) => {
                let known = STRICTER.iter().any(|(question, why)| *question == what && view.contains(why));
                if !known {
                    self.differences
                        .push(format!("{what} {path:?}: the kernel answers; refused here: {view}"));
                }
                *self.stricter.entry((what, name(&view))).or_default() += 1;
            }
            (Ok(_), Err(kernel)) => {
                let known = LOOSER.iter().any(|(question, why)| *question == what && kernel.contains(why));
                if !known {
                    self.differences
                        .push(format!("{what} {path:?}: the kernel refuses ({kernel}), answered here"));
                }
                *self.looser.entry((what, kernel)).or_default() += 1;
            }
        }
        None
    }

    /// Names of one directory. The kernel lists an indexed directory along its index, this reader all of its
    /// blocks in order: of a damaged index the kernel's list is short, or has names twice.
    fn lists(&mut self, path: &[u8], names: &BTreeSet<Vec<u8>>, others: &BTreeSet<Vec<u8>>) {
        if names == others {
            return;
        }
        if names.len() > NAMES && names.is_superset(others) {
            *self.stricter.entry(("list", "names that the kernel leaves out".into())).or_default() += 1;
            return;
        }
        let some = |a: &BTreeSet<Vec<u8>>, b: &BTreeSet<Vec<u8>>| {
            let of: Vec<_> = a.difference(b).map(|name| String::from_utf8_lossy(name).into_owned()).collect();
            format!("{} {:?}", of.len(), of.first())
        };
        let (here, there) = (some(names, others), some(others, names));
        let path = String::from_utf8_lossy(path);
        self.differences.push(format!("list {path:?}: here alone {here}, by the kernel alone {there}"));
    }

    fn equal<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &'static str,
        path: &[u8],
        (view, kernel): (T, T),
    ) {
        if view != kernel {
            let path = String::from_utf8_lossy(path).into_owned();
            self.differences.push(format!("{what} {path:?}: {view:?} here, by the kernel {kernel:?}"));
        }
    }

    /// Both trees, as far as both answer.
    fn trees<A: Side, B: Side>(&mut self, view: &A, kernel: &B) {
        let mut seen = 0;
        let mut todo = vec![(Vec::new(), view.root(), kernel.root())];
        while let Some((path, ours, theirs)) = todo.pop() {
            seen += 1;
            // A directory that is its own ancestor would go on for ever.
            if seen > FILES || path.len() > 2000 {
                return;
            }
            let Some((stat, other)) = self.note("stat", &path, view.stat(&ours), kernel.stat(&theirs)) else {
                continue;
            };
            let (kind, size) = (stat.kind, stat.size);
            let same = stat == other;
            self.equal("stat", &path, (stat, other));
            match kind {
                _ if !same => {}
                FileKind::Regular => {
                    let both = (view.content(&ours, size), kernel.content(&theirs, size));
                    let both = (both.0, both.1.map_err(|e| reason(e, view.about(&ours))));
                    if let Some(both) = self.note("content", &path, both.0, both.1) {
                        self.equal("content", &path, both);
                    }
                }
                FileKind::Symlink => {
                    if let Some(both) = self.note("link", &path, view.link(&ours), kernel.link(&theirs)) {
                        self.equal("link", &path, both);
                    }
                }
                FileKind::Directory => {
                    let others = kernel.names(&theirs).map_err(|e| reason(e, view.about(&ours)));
                    let names = self.note("list", &path, view.names(&ours), others);
                    let Some((names, others)) = names else { continue };
                    self.lists(&path, &names, &others);
                    // All of a small directory, as many of a large one.
                    let every = names.len() / NAMES + 1;
                    for name in names.into_iter().step_by(every) {
                        let below = [&path[..], b"/", &name].concat();
                        let (a, b) = (view.child(&ours, &name), kernel.child(&theirs, &name));
                        let about = a.as_ref().map_or((false, false), |child| view.about(child));
                        let both = (a, b.map_err(|e| reason(e, about)));
                        if let Some((a, b)) = self.note("lookup", &below, both.0, both.1) {
                            todo.push((below, a, b));
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// A few changes of one structure, and its checksum after them.
struct Mutation<'a> {
    source: Patched<'a>,
    kind: SiteKind,
    site: Site,
    /// The bytes that were changed: where in the structure, from what, to what.
    changes: Vec<(usize, u8, u8)>,
}

fn mutated<'a>(image: &'a Image, random: &mut Rng) -> Mutation<'a> {
    let kinds: Vec<SiteKind> = [
        SiteKind::Inode,
        SiteKind::Inode,
        SiteKind::Entries,
        SiteKind::Map,
        SiteKind::Map,
        SiteKind::Attributes,
    ]
    .into_iter()
    .filter(|kind| !image.sites_of(*kind).is_empty())
    .collect();
    let kind = kinds[random.below(kinds.len() as u64) as usize];
    let sites = image.sites_of(kind);
    let site = sites[random.below(sites.len() as u64) as usize];
    let mut bytes = image.bytes[site.at as usize..][..site.len as usize].to_vec();
    let used = bytes.iter().rposition(|b| *b != 0).map_or(1, |last| last + 1);
    for _ in 0..1 + random.below(3) {
        // In what is used, and of an extent tree's root, mostly.
        let at = match random.below(4) {
            0 if kind == SiteKind::Inode => 0x28 + random.below(60) as usize,
            1 => random.below(64.min(site.len.into())) as usize,
            2 => random.below(site.len.into()) as usize,
            _ => random.below(used as u64) as usize,
        };
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.draw() as u8,
            2 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF, b'/'][random.below(6) as usize],
            // Two entries exchanged, or one twice.
            3 if at + 24 <= bytes.len() && at >= 12 => {
                let first = at / 12 * 12 + if kind == SiteKind::Inode { 4 } else { 0 };
                if first + 24 <= bytes.len() {
                    let (a, b) = bytes[first..first + 24].split_at_mut(12);
                    a.swap_with_slice(b);
                }
            }
            _ => {
                let old = bytes[at];
                bytes[at] = old.wrapping_add(1);
            }
        }
    }
    let old = &image.bytes[site.at as usize..][..bytes.len()];
    let pairs = old.iter().zip(&bytes).enumerate().filter(|(_, (old, new))| old != new);
    let changes = pairs.map(|(at, (old, new))| (at, *old, *new)).collect();
    let mut source = Patched::new(&image.bytes);
    source.put(site.at, &bytes);
    mend::ext_structure(&mut source, &image.bytes, kind, site);
    Mutation { source, kind, site, changes }
}

/// A mount that goes with it.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(image: &Path, at: &'a Path) -> Option<Mounted<'a>> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop,ro,noload,noatime"]).arg(image).arg(at);
        let done = mount.stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success()).then_some(Mounted(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let gone = |flag: &[&str]| {
            let mut umount = Command::new("umount");
            umount.args(flag).arg(self.0).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        // Where its root is damaged, umount may know it by no name:
        // then it is asked of the kernel whether it is there.
        let mounts = || fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let there = || mounts().contains(&format!(" {} ", self.0.display()));
        assert!(gone(&[]) || gone(&["-l"]) || !there(), "{} stays mounted", self.0.display());
    }
}

#[test]
fn mutated_volumes_are_answered_as_by_the_kernel() {
    const TEST: &str = "mutated_volumes_are_answered_as_by_the_kernel";
    if !needs::root(TEST) || !needs::tools(TEST, &["mount", "umount"]) {
        return;
    }
    if !Path::new("/dev/loop-control").exists() {
        return needs::left_out(TEST, "no loop devices");
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (count, seed) = (number("MUTATIONS").unwrap_or(SAMPLE), number("MUTATIONS_SEED").unwrap_or(1));
    let dir = tempfile::tempdir().unwrap();
    let mut total = Compared::default();
    let mut refused = 0;
    let chosen = number("MUTATION").map_or(0..count, |nr| nr..nr + 1);
    for nr in chosen.clone() {
        let mut random = Rng(seed.wrapping_mul(0x1_0000_0001).wrapping_add(nr));
        let images = volumes::ext();
        let image = &images[nr as usize % images.len()];
        let Mutation { source, kind, site, changes } = mutated(image, &mut random);
        let mut bytes = Vec::new();
        let whole = source.get(0, image.bytes.len()).unwrap();
        (&whole[..]).read_to_end(&mut bytes).unwrap();
        // Names of its own: another's mount namespace may keep the last one's mount, and its blocks,
        // for a while.
        let (file, mount) = (dir.path().join(format!("image-{nr}")), dir.path().join(format!("mount-{nr}")));
        fs::write(&file, &bytes).unwrap();
        fs::create_dir(&mount).unwrap();
        let Some(mounted) = Mounted::new(&file, &mount) else {
            // The root directory, mostly.
            refused += 1;
            continue;
        };
        let volume = now(Volume::open(&source)).unwrap_or_else(|e| panic!("mutation {nr}: {e}"));
        let before = total.differences.len();
        total.trees(&View { volume, source: &source, original: &image.bytes }, &Kernel(mount.clone()));
        drop(mounted);
        fs::remove_file(&file).unwrap();
        for difference in &mut total.differences[before..] {
            *difference = format!(
                "mutation {nr} of seed {seed}, {}, {kind:?} {site:?}, {changes:x?}: {difference}",
                image.name
            );
        }
    }
    eprintln!(
        "{count} mutations: {} answers agree, {} refused by both, {refused} not mounted; refused here alone: {:#?}; by the kernel alone: {:#?}",
        total.answers, total.both_refused, total.stricter, total.looser
    );
    let whole = chosen.end - chosen.start == count;
    assert!(!whole || total.answers > 50 * count && total.both_refused > 0, "{total:?}");
    assert!(
        total.differences.is_empty(),
        "{} differences:\n{}",
        total.differences.len(),
        total.differences.join("\n")
    );
}
