//! What the F2FS tests share: images as sources, manifests as the guest writes them, and the walk that makes
//! one.
#![allow(dead_code, reason = "each test uses a part")]

pub mod damage;
pub mod noting;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::future::Future;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nearside_fsview::acl::AclEntry;
use nearside_fsview::{DirCursor, Error, FileKind, Ino, Inode, RunPlace, Source, Volume};
use sha2::{Digest as _, Sha256};

/// A future over a source that is always ready needs one poll.
pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a source in memory made someone wait"),
    }
}

/// An image in memory.
#[derive(Clone)]
pub struct Memory(pub Arc<Vec<u8>>);

impl Memory {
    pub fn new(bytes: Vec<u8>) -> Memory {
        Memory(Arc::new(bytes))
    }
}

/// Bytes that are never read twice for one question.
#[derive(Clone)]
pub struct Bytes(pub Arc<[u8]>);

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// What a test asks of an image beside metadata.
pub trait Image: Source {
    fn data(&self, offset: u64, into: &mut [u8]);
}

impl Source for Memory {
    type Block = Bytes;
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    async fn metadata(&self, offset: u64, len: u32) -> Result<Bytes, Error> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        match self.0.get(from..).and_then(|b| b.get(..len as usize)) {
            Some(bytes) => Ok(Bytes(bytes.into())),
            None => Err(Error::Read { at: offset, len, reason: "past the end".into() }),
        }
    }
}

impl Image for Memory {
    fn data(&self, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
    }
}

/// An image file.
pub struct Disk(pub File);

impl Source for Disk {
    type Block = Bytes;
    fn len(&self) -> u64 {
        self.0.metadata().unwrap().len()
    }
    async fn metadata(&self, offset: u64, len: u32) -> Result<Bytes, Error> {
        let mut bytes = vec![0; len as usize];
        self.0.read_exact_at(&mut bytes, offset).map_err(|e| Error::Read {
            at: offset,
            len,
            reason: e.to_string(),
        })?;
        Ok(Bytes(bytes.into()))
    }
}

impl Image for Disk {
    fn data(&self, offset: u64, into: &mut [u8]) {
        self.0.read_exact_at(into, offset).unwrap();
    }
}

/// Where the newer checkpoint pack's head is, found as the view finds it: whether it is the second, and its
/// byte.
pub fn newest(image: &[u8]) -> (bool, usize) {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let packs = [0, 512].map(|further| (word(1024 + 76) as usize + further) * 4096);
    let version = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let second = version(packs[1]) > version(packs[0]);
    (second, packs[usize::from(second)])
}

/// The same, only the byte.
pub fn newest_pack(image: &[u8]) -> usize {
    newest(image).1
}

/// Its flags.
pub fn checkpoint_flags(image: &[u8]) -> u32 {
    let at = newest_pack(image) + 132;
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap())
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// A fixture, decompressed.
pub fn decompressed(name: &str) -> Vec<u8> {
    let path = fixtures().join(name);
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(std::io::BufReader::new(file)).unwrap();
    let mut bytes = Vec::new();
    decoder.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A file as a manifest has it: tab-separated fields after the path, see `fixtures/README.md`.
pub type Manifest = BTreeMap<Vec<u8>, String>;

/// Parses a manifest's lines.
pub fn manifest(text: &str) -> Manifest {
    let mut manifest = Manifest::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (path, rest) = line.split_once('\t').unwrap_or_else(|| panic!("manifest line {line:?}"));
        assert!(manifest.insert(unescape(path), rest.to_owned()).is_none(), "twice: {path}");
    }
    manifest
}

/// Without the times of directories: where recovery puts an entry in one, the kernel gives it the time at
/// which it does.
pub fn undated(mut manifest: Manifest) -> Manifest {
    for fields in manifest.values_mut().filter(|fields| fields.starts_with('4')) {
        let mut all: Vec<&str> = fields.split('\t').collect();
        all[5] = "-";
        *fields = all.join("\t");
    }
    manifest
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'\\' {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&rest[1..3]).unwrap(), 16).unwrap());
            rest = &rest[3..];
        } else {
            bytes.push(*first);
        }
    }
    bytes
}

/// Bytes as a manifest writes them: `\xNN` for what is not printable ASCII.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\\' | 0..=b' ' | 127.. => write!(text, "\\x{byte:02x}").unwrap(),
            _ => text.push(char::from(*byte)),
        }
    }
    text
}

/// Everything under the root except the content of `unread` (paths, or `*` and how they end), with the
/// questions a drive asks: listed, then looked up by name, then read.
pub fn walk<I: Image>(volume: &Volume, image: &I, unread: &[&str]) -> Result<Manifest, Error> {
    let mut found = Manifest::new();
    let mut todo = vec![(Vec::new(), volume.root())];
    while let Some((path, ino)) = todo.pop() {
        let inode = now(volume.inode(image, ino))?;
        let key = if path.is_empty() { b"/".to_vec() } else { path.clone() };
        let unread = unread.iter().any(|p| match p.strip_prefix('*') {
            Some(end) => key.ends_with(end.as_bytes()),
            None => p.as_bytes() == key,
        });
        let described = if unread { String::new() } else { describe(volume, image, &inode)? };
        found.insert(key, described);
        if inode.kind != FileKind::Directory {
            continue;
        }
        for (name, child, kind) in list(volume, image, &inode)? {
            let there = now(volume.lookup(image, &inode, &name))?;
            assert_eq!(there, Some(child), "look-up of {} in {}", escape(&name), escape(&path));
            let got = now(volume.inode(image, child))?.kind;
            assert_eq!(kind, Some(got), "kind of {} in {}", escape(&name), escape(&path));
            let mut below = path.clone();
            below.push(b'/');
            below.extend_from_slice(&name);
            todo.push((below, child));
        }
        let parent = now(volume.lookup(image, &inode, b".."))?;
        assert!(parent.is_some(), "{} has no ..", escape(&path));
        assert_eq!(now(volume.lookup(image, &inode, b"."))?, Some(ino));
        assert_eq!(now(volume.lookup(image, &inode, b"no such name, surely"))?, None);
    }
    Ok(found)
}

/// A name, its inode and its kind.
pub type Listed = (Vec<u8>, Ino, Option<FileKind>);

/// A directory's entries.
pub fn list<I: Image>(volume: &Volume, image: &I, dir: &Inode) -> Result<Vec<Listed>, Error> {
    let mut entries = Vec::new();
    let mut cursor = Some(DirCursor::default());
    while let Some(at) = cursor {
        cursor = now(volume.read_dir(image, dir, at, &mut entries))?;
    }
    Ok(entries.into_iter().map(|e| (e.name.to_vec(), e.ino, e.kind)).collect())
}

/// The inode that an absolute path leads to.
pub fn resolve<I: Image>(volume: &Volume, image: &I, path: &str) -> Result<Option<Inode>, Error> {
    let mut inode = now(volume.inode(image, volume.root()))?;
    for name in path.split('/').filter(|n| !n.is_empty()) {
        match now(volume.lookup(image, &inode, name.as_bytes()))? {
            Some(ino) => inode = now(volume.inode(image, ino))?,
            None => return Ok(None),
        }
    }
    Ok(Some(inode))
}

/// The content of a file, handed on in pieces.
pub fn content<I: Image>(
    volume: &Volume,
    image: &I,
    inode: &Inode,
    mut each: impl FnMut(&[u8]),
) -> Result<(), Error> {
    const PIECE: u64 = 1 << 20;
    let zeros = vec![0; PIECE as usize];
    let mut buffer = vec![0; PIECE as usize];
    let mut at = 0;
    while let Some(run) = now(volume.map(image, inode, at))? {
        assert_eq!(run.from, at);
        assert!(run.len > 0 && at + run.len <= inode.size, "{run:?} of {}", inode.size);
        let len = run.len.min(PIECE);
        match run.place {
            RunPlace::Zeros => each(&zeros[..len as usize]),
            RunPlace::Volume(byte) => {
                image.data(byte, &mut buffer[..len as usize]);
                each(&buffer[..len as usize]);
            }
            RunPlace::Inline => {
                let bytes = now(volume.inline_data(image, inode))?;
                assert_eq!((at, bytes.len() as u64), (0, inode.size));
                each(&bytes);
            }
        }
        at += if run.place == RunPlace::Inline { run.len } else { len };
    }
    assert_eq!(at, inode.size, "mapped to its end");
    Ok(())
}

/// The fields of an inode as a manifest has them.
pub fn describe<I: Image>(volume: &Volume, image: &I, inode: &Inode) -> Result<String, Error> {
    let mut sha = "-".to_owned();
    let mut target = "-".to_owned();
    let mut rdev = "-".to_owned();
    match inode.kind {
        FileKind::Regular => {
            let mut hasher = Sha256::new();
            content(volume, image, inode, |piece| hasher.update(piece))?;
            sha = hex(&hasher.finalize());
        }
        FileKind::Symlink => target = escape(&now(volume.read_link(image, inode))?),
        FileKind::CharDevice | FileKind::BlockDevice => rdev = format!("{}:{}", inode.rdev.0, inode.rdev.1),
        _ => {}
    }
    let size = if inode.kind == FileKind::Directory { "-".to_owned() } else { inode.size.to_string() };
    let acl = match now(volume.acl(image, inode)) {
        // One half of an attribute that lies in the inode and in a node of its own: the kernel says that it
        // is corrupt, too.
        Err(Error::Corrupt { what, .. }) if what.contains("extended attribute") => corrupt_acl(inode.ino),
        Err(error) => return Err(error),
        Ok(None) => "-".to_owned(),
        Ok(Some(acl)) => acl.entries.iter().map(acl_entry).collect::<Vec<_>>().join(","),
    };
    Ok(format!(
        "{:o}\t{}\t{}\t{}\t{size}\t{}.{:09}\t{rdev}\t{sha}\t{target}\t{acl}",
        inode.mode, inode.uid, inode.gid, inode.links, inode.mtime.seconds, inode.mtime.nanoseconds
    ))
}

/// What stands for a list that cannot be read, for lack of its other half.
pub fn corrupt_acl(ino: Ino) -> String {
    format!("corrupt in inode {}", ino.0)
}

fn acl_entry(entry: &AclEntry) -> String {
    match *entry {
        AclEntry::UserObj(p) => format!("u::{p}"),
        AclEntry::User(id, p) => format!("u:{id}:{p}"),
        AclEntry::GroupObj(p) => format!("g::{p}"),
        AclEntry::Group(id, p) => format!("g:{id}:{p}"),
        AclEntry::Mask(p) => format!("m::{p}"),
        AclEntry::Other(p) => format!("o::{p}"),
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Panics with the first differences.
pub fn assert_same(found: &Manifest, expected: &Manifest, what: &str) {
    if let Some(differs) = difference(found, expected) {
        panic!("{what}: {differs}");
    }
}

/// The first differences.
pub fn difference(found: &Manifest, expected: &Manifest) -> Option<String> {
    let mut differences = Vec::new();
    for (path, fields) in expected {
        match found.get(path) {
            Some(same) if same == fields => {}
            other => differences.push(format!("{}\n  expected {fields}\n  found    {other:?}", escape(path))),
        }
    }
    for path in found.keys().filter(|p| !expected.contains_key(*p)) {
        differences.push(format!("{}\n  unexpected", escape(path)));
    }
    let (count, first) = (differences.len(), &differences[..differences.len().min(10)]);
    (count > 0).then(|| format!("{count} of {} differ:\n{}", expected.len(), first.join("\n")))
}
