//! A drive over memory, attached, with an ext4 of this machine's kernel mounted on it;
//! and what both say of a path.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_conformance::needs;
use nearside_conformance::volume::{self, Mounted, must, tool};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_driver::Threaded;
use nearside_embedded::{AnyStore, Embedded, Loopback, firmware};
use nearside_firmware::Fsr;
use nearside_front_fuse::{AttachOptions, Attached, attach};
use nearside_fsrlib::{
    Answer, Ask, Digest, Error, Failure, FileEntry, Operation, Record, Recovered, SearchOptions, Session,
    SocketTransport, Target,
};
use nearside_store::Dram;
use xxhash_rust::xxh3::xxh3_64;

use super::workload::NEEDLE;

/// What the test needs of the machine; it is left out where that is missing.
pub fn ready(name: &str) -> bool {
    needs::mounts(name, &["mke2fs", "e2fsck", "mount", "umount"])
}

/// The drive, its attachment and the mount; they end in this order.
pub struct Rig {
    mounted: Option<Mounted>,
    attached: Option<Attached>,
    drive: Loopback<AnyStore, Fsr, Threaded>,
    folder: tempfile::TempDir,
    pub session: Session<SocketTransport>,
    pub hits: u64,
    pub misses: u64,
    /// Files in which the drive has what recovery would, and the mount something newer.
    pub recovered: u64,
}

/// What is said of a path: equal on both sides, or the drive is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Nothing,
    Is(Box<Meta>),
}

/// Of a file, all but its access time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    ino: u64,
    mode: u32,
    links: u64,
    uid: u32,
    gid: u32,
    size: u64,
    sectors: u64,
    modified: (i64, u32),
    changed: (i64, u32),
    target: Option<Vec<u8>>,
}

impl Meta {
    fn host(path: &Path) -> io::Result<Meta> {
        let meta = fs::symlink_metadata(path)?;
        Ok(Meta {
            ino: meta.ino(),
            mode: meta.mode(),
            links: meta.nlink(),
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.size(),
            sectors: meta.blocks(),
            modified: (meta.mtime(), meta.mtime_nsec() as u32),
            changed: (meta.ctime(), meta.ctime_nsec() as u32),
            target: if meta.is_symlink() {
                Some(fs::read_link(path)?.into_os_string().into_vec())
            } else {
                None
            },
        })
    }

    fn drive(entry: FileEntry<'_>) -> Meta {
        let [_, modified, changed] = entry.times;
        Meta {
            ino: entry.ino,
            mode: entry.mode.into(),
            links: entry.links.into(),
            uid: entry.uid,
            gid: entry.gid,
            size: entry.size,
            sectors: entry.sectors,
            modified,
            changed,
            target: entry.link.map(Cow::into_owned),
        }
    }
}

/// What a file's bytes are: their hash, and how many lines hold the needle.
type Content = (Vec<u8>, u64);

impl Rig {
    /// A volume of so many bytes, made with `mke2fs` and what is added to its arguments.
    pub fn start(bytes: u64, options: &[&str], mount: &str) -> Rig {
        Rig::of(AnyStore::Dram(Dram::new(bytes, 512).unwrap()), options, mount)
    }

    /// Over a store.
    pub fn of(store: AnyStore, options: &[&str], mount: &str) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let (drive_at, volume_at) = (folder.path().join("drive"), folder.path().join("volume"));
        fs::create_dir(&drive_at).unwrap();
        fs::create_dir(&volume_at).unwrap();
        let drive = Loopback::threaded(store, firmware(), Config::default(), Rest::default()).unwrap();
        let attached = attach(drive.function.clone(), &AttachOptions::new(&drive_at)).unwrap();
        let file = attached.file();
        // All at once: nothing is initialised while the rounds run.
        let eager = "lazy_itable_init=0,lazy_journal_init=0";
        must(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-E", eager]).args(options).arg(&file));
        let mounted = Some(Mounted::new(&["-o", mount], &file, &volume_at));
        let session = session(&attached);
        Rig { mounted, attached: Some(attached), drive, folder, session, hits: 0, misses: 0, recovered: 0 }
    }

    /// A session beside the rig's own.
    pub fn another_session(&self) -> Session<SocketTransport> {
        session(self.attached.as_ref().unwrap())
    }

    /// What the drive knows.
    pub fn retriever(&self) -> &nearside_fsr::Retriever {
        self.drive.namespace.observer().retriever()
    }

    /// Where the volume is mounted.
    pub fn mount(&self) -> PathBuf {
        self.folder.path().join("volume")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.mount().join(path.trim_start_matches('/'))
    }

    /// What the host has done so far is at home on the drive:
    /// committed, and what the commits left dirty on the block device written.
    pub fn sync(&self) {
        rustix::fs::syncfs(fs::File::open(self.mount()).unwrap()).unwrap();
    }

    /// Of these files and directories what the host has done is committed, each by its own `fsync`; home
    /// locations follow when the host thinks fit.
    pub fn fsync<'a>(&self, paths: impl IntoIterator<Item = &'a String>) {
        for path in paths {
            let at = self.at(path);
            match fs::symlink_metadata(&at) {
                Ok(meta) if meta.is_file() || meta.is_dir() => {
                    fs::File::open(at).and_then(|file| file.sync_all()).unwrap();
                }
                _ => {}
            }
        }
    }

    /// All bytes of the drive at one moment between two answers to the same question that are the same, and
    /// that answer: the tree and the hash of every file. While it is taken the host may write; what it had
    /// written before is flushed.
    pub fn snapshot(&mut self) -> (Vec<u8>, Vec<Record<'static>>) {
        loop {
            let file = self.attached.as_ref().unwrap().file();
            fs::File::open(&file).and_then(|file| file.sync_all()).unwrap();
            let before = self.tree();
            let bytes = fs::read(&file).unwrap();
            if self.tree() == before {
                return (bytes, before);
            }
        }
    }

    /// Where drive and mount differ in a file's bytes: asks the kernel what it makes of the drive's bytes
    /// after a power cut. (Linux 6.18 journals the block that data in an inode move to, and writes what
    /// follows past the journal: then recovery brings back older bytes than the host has in memory. With
    /// data=journal it does so now and then of a file that was punched, lengthened and overwritten, where its
    /// writeback comes in between: seldom, unless vm.dirty_writeback_centisecs is 1.)
    pub fn compare_recovered(&mut self, path: &str, wrong: String) -> Result<(), String> {
        let there = self.content(path).map_err(|_| wrong.clone())?;
        self.is_recovered(path, &there, wrong)
    }

    fn is_recovered(&mut self, path: &str, there: &Content, wrong: String) -> Result<(), String> {
        let recovered = self.recovered_content(path);
        if Some(there) != recovered.as_ref() {
            return Err(format!("{wrong}\n after recovery {recovered:x?}"));
        }
        self.recovered += 1;
        Ok(())
    }

    /// What the kernel makes of a file on the drive's bytes of now, after its recovery; none where there is
    /// none.
    fn recovered_content(&self, path: &str) -> Option<Content> {
        let copy = self.folder.path().join("copy");
        fs::copy(self.attached.as_ref().unwrap().file(), &copy).unwrap();
        let at = self.folder.path().join("recovered");
        fs::create_dir_all(&at).unwrap();
        let _mounted = Mounted::new(&["-o", "loop"], &copy, &at);
        let file = at.join(path.trim_start_matches('/'));
        file.exists().then(|| content_of(&file))
    }

    /// The same, as a hash.
    pub fn recovered_hash(&self, path: &str) -> Option<Vec<u8>> {
        self.recovered_content(path).map(|(hash, _)| hash)
    }

    /// What the drive's view of the volume has from its journal.
    pub fn journal_view(&mut self) -> Recovered {
        let info = Ask { target: Target::Volume, operation: Operation::Info, follow: true };
        let records = self.ask(&info).unwrap();
        let volume = records.into_iter().find_map(|record| match record {
            Record::Volume(volume) => Some(volume),
            _ => None,
        });
        volume.unwrap().recovered.unwrap_or_default()
    }

    /// Compares one path of a volume with fast commits. They count a file's blocks without those of its
    /// attributes, and say nothing of a directory but its names.
    pub fn compare_fast(&mut self, path: &str) -> Result<(), String> {
        let alike = |said: Said| match said {
            Said::Is(meta) if meta.mode & 0o170_000 == 0o040_000 => Said::Is(Box::new(Meta {
                links: 0,
                size: 0,
                sectors: 0,
                modified: (0, 0),
                changed: (0, 0),
                ..*meta
            })),
            Said::Is(meta) => Said::Is(Box::new(Meta { sectors: 0, ..*meta })),
            Said::Nothing => Said::Nothing,
        };
        self.compare_as(path, alike)
    }

    fn tree(&mut self) -> Vec<Record<'static>> {
        everything(|ask| self.ask(ask))
    }

    /// Mounts anew, with nothing in the page cache, and compares everything: whether a difference is the
    /// drive's, or between the host's memory and its disk.
    pub fn compare_remounted(&mut self) -> Result<usize, String> {
        drop(self.mounted.take());
        let file = self.attached.as_ref().unwrap().file();
        self.mounted = Some(Mounted::new(&["-o", "loop,noatime"], &file, &self.mount()));
        self.compare_all()
    }

    /// Ends the mount and checks the volume with e2fsck.
    pub fn end(mut self) {
        drop(self.mounted.take());
        let attached = self.attached.take().unwrap();
        must(tool("e2fsck").args(["-f", "-n"]).arg(attached.file()));
        volume::detach(attached, Attached::detach).unwrap();
    }

    fn ask(&mut self, ask: &Ask) -> Result<Vec<Record<'static>>, Failure> {
        let mut records = Vec::new();
        let result = self.session.stream(ask, |record| {
            // A mounted volume always needs recovery, and says so; that is about no file.
            if !matches!(record, Record::Warning { .. }) {
                records.push(record.into_owned());
            }
            ControlFlow::Continue(())
        });
        match result {
            Ok(summary) => {
                self.hits += summary.counters.cache_hits;
                self.misses += summary.counters.cache_misses;
            }
            Err(Error::Refused(failure)) => return Err(failure),
            Err(error) => panic!("{ask:?}: {error}"),
        }
        let failed = records.iter().find_map(|r| match r {
            Record::Failed { failure, .. } => Some(failure.clone()),
            _ => None,
        });
        failed.map_or(Ok(records), Err)
    }

    fn records_of(&mut self, path: &str, operation: Operation) -> Result<Vec<Record<'static>>, String> {
        let ask = Ask { follow: false, ..Ask::path(path, operation) };
        self.ask(&ask).map_err(|status| format!("{path}: {:?} fails: {status:?}", ask.operation))
    }

    fn stat(&mut self, path: &str) -> Result<Said, String> {
        match self.ask(&Ask { follow: false, ..Ask::path(path, Operation::Stat) }) {
            Ok(records) => match records.into_iter().find_map(entry) {
                Some(entry) => Ok(Said::Is(Box::new(Meta::drive(entry)))),
                None => Err(format!("{path}: stat says nothing")),
            },
            Err(Failure::NotFound) => Ok(Said::Nothing),
            Err(status) => Err(format!("{path}: stat fails: {status:?}")),
        }
    }

    fn content(&mut self, path: &str) -> Result<Content, String> {
        let hash = self.records_of(path, Operation::Checksum(Digest::Xxh3))?;
        let hash = hash.into_iter().find_map(digest).ok_or(format!("{path}: no checksum"))?;
        let lines = self.records_of(path, search())?;
        Ok((hash, lines.iter().map(matches).sum()))
    }

    /// The same from the mount.
    fn content_here(&self, path: &str) -> Content {
        content_of(&self.at(path))
    }

    /// Compares what the drive says of one path with what the mount does:
    /// metadata, then the bytes or the names.
    pub fn compare(&mut self, path: &str) -> Result<(), String> {
        self.compare_as(path, |said| said)
    }

    fn compare_as(&mut self, path: &str, alike: impl Fn(Said) -> Said) -> Result<(), String> {
        let here = match Meta::host(&self.at(path)) {
            Ok(meta) => Said::Is(Box::new(meta)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Said::Nothing,
            Err(error) => panic!("{path}: {error}"),
        };
        let (there, here) = (alike(self.stat(path)?), alike(here));
        if there != here {
            return Err(format!("{path}:\n drive {there:?}\n mount {here:?}"));
        }
        let Said::Is(meta) = here else { return Ok(()) };
        match meta.mode & 0o170_000 {
            0o100_000 => {
                let (there, here) = (self.content(path)?, self.content_here(path));
                if there != here {
                    return Err(format!("{path}: {} bytes:\n drive {there:x?}\n mount {here:x?}", meta.size));
                }
            }
            0o040_000 => self.compare_names(path)?,
            _ => {}
        }
        Ok(())
    }

    fn compare_names(&mut self, path: &str) -> Result<(), String> {
        let here: BTreeMap<Vec<u8>, u64> = fs::read_dir(self.at(path))
            .unwrap()
            .map(|entry| entry.map(|e| (e.file_name().into_vec(), e.ino())).unwrap())
            .collect();
        let records = self.records_of(path, Operation::List)?;
        let there: BTreeMap<Vec<u8>, u64> =
            records.into_iter().filter_map(entry).map(|e| (e.path.into_owned(), e.ino)).collect();
        if there == here {
            return Ok(());
        }
        let only = |a: &BTreeMap<Vec<u8>, u64>, b: &BTreeMap<Vec<u8>, u64>| {
            let names = a.iter().filter(|(name, ino)| b.get(*name) != Some(ino));
            names
                .map(|(n, ino)| format!("{} = {ino}", String::from_utf8_lossy(n)))
                .take(5)
                .collect::<Vec<_>>()
        };
        let (drive, mount) = (only(&there, &here), only(&here, &there));
        Err(format!("{path}: {} and {} names: drive {drive:?}, mount {mount:?}", there.len(), here.len()))
    }

    /// Compares the whole tree: all metadata, and all bytes; of a file in which they differ, as
    /// [`compare_recovered`](Rig::compare_recovered).
    pub fn compare_all(&mut self) -> Result<usize, String> {
        let mut here = BTreeMap::new();
        let mut left = vec!["/".to_owned()];
        while let Some(path) = left.pop() {
            let at = self.at(&path);
            if at.is_dir() && !at.is_symlink() {
                for entry in fs::read_dir(&at).unwrap() {
                    let name = entry.unwrap().file_name();
                    left.push(format!("{}/{}", path.trim_end_matches('/'), name.to_str().unwrap()));
                }
            }
            let meta = Meta::host(&at).unwrap();
            here.insert(path.into_bytes(), meta);
        }
        let listed = self.ask(&Ask::tree("/", Operation::List)).map_err(|s| format!("tree: {s:?}"))?;
        let mut there = BTreeMap::new();
        for entry in listed.into_iter().filter_map(entry) {
            there.insert(entry.path.to_vec(), Meta::drive(entry));
        }
        if there != here {
            let paths = here.keys().chain(there.keys()).filter(|p| here.get(*p) != there.get(*p));
            let path = paths.min().unwrap();
            let name = String::from_utf8_lossy(path);
            return Err(format!("{name}:\n drive {:?}\n mount {:?}", there.get(path), here.get(path)));
        }
        let sums = self.ask(&Ask::tree("/", Operation::Checksum(Digest::Xxh3)));
        let lines = self.ask(&Ask::tree("/", search())).map_err(|s| format!("tree: {s:?}"))?;
        let mut contents: BTreeMap<Vec<u8>, Content> = BTreeMap::new();
        let mut file = Vec::new();
        for record in sums.map_err(|s| format!("tree: {s:?}"))?.into_iter().chain(lines) {
            if let Record::File { path, .. } = record {
                file = path.into_owned();
                continue;
            }
            let content = contents.entry(file.clone()).or_default();
            content.1 += matches(&record);
            if let Some(hash) = digest(record) {
                content.0 = hash;
            }
        }
        let files = here.iter().filter(|(_, meta)| meta.mode & 0o170_000 == 0o100_000);
        for (path, meta) in files {
            let name = std::str::from_utf8(path).unwrap();
            let (here, there) = (self.content_here(name), contents.remove(path));
            if there.as_ref() != Some(&here) {
                let wrong = format!("{name}: {} bytes:\n drive {there:x?}\n mount {here:x?}", meta.size);
                self.is_recovered(name, &there.unwrap_or_default(), wrong)?;
            }
        }
        match contents.keys().next() {
            Some(path) => Err(format!("{}: is no file here", String::from_utf8_lossy(path))),
            None => Ok(here.len()),
        }
    }

    /// The drive's hash of a file.
    pub fn hash(&mut self, path: &str) -> Vec<u8> {
        let records = self.records_of(path, Operation::Checksum(Digest::Xxh3)).unwrap();
        records.into_iter().find_map(digest).unwrap()
    }
}

fn session(attached: &Attached) -> Session<SocketTransport> {
    Session::new(SocketTransport::connect(attached.socket()).unwrap(), Arc::new(TscClock::new()))
}

fn content_of(file: &Path) -> Content {
    let bytes = fs::read(file).unwrap();
    let lines = bytes.split(|b| *b == b'\n').filter(|l| has(l)).count();
    (xxh3_64(&bytes).to_be_bytes().to_vec(), lines as u64)
}

/// The tree and the hash of every file, as an image's own drive has them.
pub fn image(bytes: &[u8]) -> Vec<Record<'static>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let drive = nearside_embedded::image(file.path(), &nearside_embedded::Options::default()).unwrap();
    all(&mut Session::new(drive, Arc::new(TscClock::new())))
}

/// All that a drive says of its files.
pub fn all(session: &mut Session<Embedded<AnyStore, Fsr>>) -> Vec<Record<'static>> {
    everything(|ask| {
        let mut records = Vec::new();
        let streamed = session.stream(ask, |record| {
            if !matches!(record, Record::Warning { .. }) {
                records.push(record.into_owned());
            }
            ControlFlow::Continue(())
        });
        streamed.map(|_| records).map_err(|error| panic!("{error}"))
    })
}

fn everything(mut ask: impl FnMut(&Ask) -> Result<Vec<Record<'static>>, Failure>) -> Vec<Record<'static>> {
    let mut all = ask(&Ask::tree("/", Operation::List)).unwrap();
    all.extend(ask(&Ask::tree("/", Operation::Checksum(Digest::Xxh3))).unwrap());
    all
}

fn search() -> Operation {
    let patterns = vec![NEEDLE.as_bytes().to_vec()];
    Operation::Search(SearchOptions {
        patterns,
        fixed: true,
        text: true,
        answer: Answer::Count,
        ..SearchOptions::default()
    })
}

fn has(line: &[u8]) -> bool {
    line.windows(NEEDLE.len()).any(|w| w == NEEDLE.as_bytes())
}

fn entry(record: Record<'_>) -> Option<FileEntry<'_>> {
    match record {
        Record::Entry(entry) => Some(entry),
        _ => None,
    }
}

fn digest(record: Record<'_>) -> Option<Vec<u8>> {
    match record {
        Record::Digest { value, .. } => Some(value.into_owned()),
        _ => None,
    }
}

fn matches(record: &Record) -> u64 {
    match record {
        Record::Matches(n) => *n,
        _ => 0,
    }
}
