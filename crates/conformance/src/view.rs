//! What every file-system view owes, and whole trees to compare.
//!
//! [`read`] walks a volume as the drive's firmware would and returns its [`Tree`]; on the way it holds the
//! volume to its contract: runs cover a file exactly and lie within the volume, `lookup` agrees with
//! `read_dir`, an entry's kind with its inode's, no name comes twice, no directory contains itself.
//! [`read_host`] makes the same tree from a directory of this machine, for instance a kernel's mount of the
//! same image. [`differences`] compares the two.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nearside_fsview::acl::Acl;
use nearside_fsview::{DirCursor, Error, FileKind, Ino, Inode, RunPlace, Source, Volume};
use xxhash_rust::xxh3::Xxh3;

/// Drives a future to its end on this thread; over an [`Image`] it is ready at once.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}

/// A volume in memory or in a file.
#[derive(Clone, Debug)]
pub enum Image {
    /// All of its bytes.
    Memory(Arc<[u8]>),
    /// A file, and the part of it that is the volume.
    File {
        /// Open for reading.
        file: Arc<File>,
        /// Where the volume begins.
        offset: u64,
        /// Its bytes.
        len: u64,
    },
}

impl Image {
    /// A whole file.
    ///
    /// # Errors
    /// The file cannot be opened for reading, or has no metadata to be had.
    pub fn open(path: &Path) -> std::io::Result<Image> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Image::File { file: Arc::new(file), offset: 0, len })
    }

    /// Bytes of the volume, data or metadata.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let end = at.checked_add(buffer.len() as u64).filter(|end| *end <= self.len());
        if end.is_none() {
            return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "past the volume's end"));
        }
        match self {
            Image::Memory(bytes) => {
                let at = at as usize;
                buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
                Ok(())
            }
            Image::File { file, offset, .. } => file.read_exact_at(buffer, offset + at),
        }
    }
}

/// A source through which a test can also read the data that a view only maps.
#[allow(async_fn_in_trait, reason = "used generically, never as a trait object")]
pub trait Content: Source {
    /// Fills the buffer from byte `at` of the volume.
    async fn content(&self, at: u64, buffer: &mut [u8]) -> std::io::Result<()>;
}

impl Content for Image {
    async fn content(&self, at: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.read_at(at, buffer)
    }
}

impl Source for Image {
    type Block = Arc<[u8]>;

    fn len(&self) -> u64 {
        match self {
            Image::Memory(bytes) => bytes.len() as u64,
            Image::File { len, .. } => *len,
        }
    }

    async fn metadata(&self, offset: u64, len: u32) -> Result<Arc<[u8]>, Error> {
        let mut bytes = vec![0; len as usize];
        self.read_at(offset, &mut bytes).map_err(|error| Error::Read {
            at: offset,
            len,
            reason: error.to_string(),
        })?;
        Ok(bytes.into())
    }
}

/// A file, as both a view and a kernel show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky, without the type.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Names.
    pub links: u32,
    /// Time of last change of content, in ns since 1970.
    pub mtime_ns: i128,
    /// Device numbers.
    pub rdev: (u32, u32),
    /// 512-byte units, as `st_blocks`.
    pub sectors: u64,
    /// XXH3, of 64 bits, of the content of a regular file.
    pub content: Option<u64>,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
}

/// Files by path from the root, which is the empty path.
pub type Tree = BTreeMap<Vec<u8>, Node>;

/// An obligation that a view did not keep, or an error that it gave.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Of which file.
    pub path: String,
    /// What.
    pub what: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.path, self.what)
    }
}

impl std::error::Error for Broken {}

fn broken(path: &[u8], what: impl std::fmt::Display) -> Broken {
    Broken { path: String::from_utf8_lossy(path).into_owned(), what: what.to_string() }
}

/// How far a walk goes, so that a damaged volume cannot hold it.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Files at most.
    pub files: usize,
    /// Bytes of content at most, holes included.
    pub content: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { files: 10_000_000, content: 1 << 40 }
    }
}

/// Directories larger than this have only every so many of their names looked up.
const LOOKUPS: usize = 4096;

/// Walks a volume, checks what it owes, and returns its tree.
///
/// # Errors
/// As [`read_within`], within the usual [`Bounds`].
pub fn read<S: Content>(volume: &Volume, image: &S) -> Result<Tree, Broken> {
    read_within(volume, image, Bounds::default())
}

/// Reads the whole tree, within bounds.
///
/// # Errors
/// The first thing that the volume or the view does not keep, with its path: an error of a read, answers that
/// contradict one another, more files or content than `bounds`.
pub fn read_within<S: Content>(volume: &Volume, image: &S, bounds: Bounds) -> Result<Tree, Broken> {
    let mut walk =
        Walk { volume, image, bounds, content: 0, tree: Tree::new(), contents: Default::default() };
    block_on(walk.whole_tree())?;
    Ok(walk.tree)
}

struct Walk<'a, S> {
    volume: &'a Volume,
    image: &'a S,
    bounds: Bounds,
    content: u64,
    tree: Tree,
    /// Content of files with several names, hashed once.
    contents: BTreeMap<Ino, u64>,
}

impl<S: Content> Walk<'_, S> {
    async fn whole_tree(&mut self) -> Result<(), Broken> {
        let (volume, image) = (self.volume, self.image);
        let mut seen = HashSet::from([volume.root()]);
        let mut stack = vec![(Vec::new(), volume.root())];
        while let Some((path, ino)) = stack.pop() {
            let inode = volume.inode(image, ino).await.map_err(|e| broken(&path, e))?;
            if inode.ino != ino {
                return Err(broken(&path, format!("asked for inode {}, got {}", ino.0, inode.ino.0)));
            }
            let node = self.node(&path, &inode).await?;
            self.tree.insert(path.clone(), node);
            if self.tree.len() > self.bounds.files {
                return Err(broken(&path, format!("more than {} files", self.bounds.files)));
            }
            if inode.kind != FileKind::Directory {
                self.refuses(&path, &inode).await?;
                continue;
            }
            for (name, child, kind) in self.directory(&path, &inode).await? {
                let mut below = path.clone();
                below.push(b'/');
                below.extend(&name);
                if kind == FileKind::Directory && !seen.insert(child) {
                    return Err(broken(&below, "a directory that was already seen elsewhere"));
                }
                stack.push((below, child));
            }
        }
        Ok(())
    }

    /// What is no directory says so.
    async fn refuses(&self, path: &[u8], inode: &Inode) -> Result<(), Broken> {
        match self.volume.lookup(self.image, inode, b"x").await {
            Err(Error::NotADirectory) => Ok(()),
            other => Err(broken(path, format!("lookup in what is no directory: {other:?}"))),
        }
    }

    async fn directory(&self, path: &[u8], dir: &Inode) -> Result<Vec<(Vec<u8>, Ino, FileKind)>, Broken> {
        let (volume, image) = (self.volume, self.image);
        let mut entries = Vec::new();
        let mut cursor = Some(DirCursor::default());
        let mut turns = 0u64;
        while let Some(from) = cursor {
            cursor = volume.read_dir(image, dir, from, &mut entries).await.map_err(|e| broken(path, e))?;
            turns += 1;
            if turns > volume.info().blocks + 1 || entries.len() > self.bounds.files {
                return Err(broken(path, "the listing does not end"));
            }
        }
        let mut names = HashSet::with_capacity(entries.len());
        let mut all = Vec::with_capacity(entries.len());
        let every = entries.len() / LOOKUPS + 1;
        for (nr, entry) in entries.iter().enumerate() {
            let bad = |what: String| broken(&[path, b"/", &entry.name].concat(), what);
            if !names.insert(&entry.name[..]) {
                return Err(bad("listed twice".into()));
            }
            if matches!(&entry.name[..], b"" | b"." | b"..") || entry.name.contains(&b'/') {
                return Err(bad("listed under no name".into()));
            }
            if nr % every == 0 {
                let found = volume.lookup(image, dir, &entry.name).await.map_err(|e| bad(e.to_string()))?;
                if found != Some(entry.ino) {
                    return Err(bad(format!("listed as {:?}, looked up as {found:?}", entry.ino)));
                }
            }
            let inode = volume.inode(image, entry.ino).await.map_err(|e| bad(e.to_string()))?;
            if entry.kind.is_some_and(|kind| kind != inode.kind) {
                return Err(bad(format!("listed as {:?}, is {:?}", entry.kind, inode.kind)));
            }
            all.push((entry.name.to_vec(), entry.ino, inode.kind));
        }
        for absent in [&b"nothing has this name\xFF"[..], &[b'n'; 255], &[b'n'; 256], b"", b"a/b"] {
            let found = volume.lookup(image, dir, absent).await.map_err(|e| broken(path, e))?;
            if found.is_some() && !names.contains(absent) {
                return Err(broken(path, format!("finds {:?}", String::from_utf8_lossy(absent))));
            }
        }
        Ok(all)
    }

    async fn node(&mut self, path: &[u8], inode: &Inode) -> Result<Node, Broken> {
        let mut node = Node {
            kind: inode.kind,
            mode: inode.mode & 0o7777,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            links: inode.links,
            mtime_ns: i128::from(inode.mtime.seconds) * 1_000_000_000 + i128::from(inode.mtime.nanoseconds),
            rdev: inode.rdev,
            sectors: inode.sectors,
            content: None,
            target: None,
        };
        if FileKind::from_mode(inode.mode) != Some(inode.kind) {
            return Err(broken(path, format!("{:?} with mode {:o}", inode.kind, inode.mode)));
        }
        acl(self.volume, self.image, inode).await.map_err(|e| broken(path, e))?;
        match inode.kind {
            FileKind::Regular => {
                let known = self.contents.get(&inode.ino).copied();
                let content = match known {
                    Some(content) => content,
                    None => self.content(path, inode).await?,
                };
                if inode.links > 1 {
                    self.contents.insert(inode.ino, content);
                }
                node.content = Some(content);
            }
            FileKind::Symlink => {
                let target = self.volume.read_link(self.image, inode).await.map_err(|e| broken(path, e))?;
                if target.len() as u64 != inode.size {
                    return Err(broken(path, format!("a target of {} bytes", target.len())));
                }
                node.target = Some(target);
            }
            _ => {}
        }
        Ok(node)
    }

    /// Hashes a file by its runs, which must cover it from the first byte to the last.
    async fn content(&mut self, path: &[u8], inode: &Inode) -> Result<u64, Broken> {
        let (volume, image) = (self.volume, self.image);
        let mut hash = Xxh3::new();
        let mut from = 0;
        let mut buffer = vec![0; 1 << 20];
        while let Some(run) = volume.map(image, inode, from).await.map_err(|e| broken(path, e))? {
            let left = inode.size.saturating_sub(from);
            if run.from != from || run.len == 0 || run.len > left {
                return Err(broken(path, format!("asked for {from} of {}, got {run:?}", inode.size)));
            }
            self.content = self.content.saturating_add(run.len);
            if self.content > self.bounds.content {
                return Err(broken(path, format!("more than {} bytes of content", self.bounds.content)));
            }
            match run.place {
                RunPlace::Inline => {
                    let all = volume.inline_data(image, inode).await.map_err(|e| broken(path, e))?;
                    let here = all.get(from as usize..(from + run.len) as usize);
                    hash.update(here.ok_or_else(|| broken(path, format!("{run:?} of {} bytes", all.len())))?);
                }
                RunPlace::Zeros | RunPlace::Volume(_) => {
                    let mut done = 0;
                    while done < run.len {
                        let len = (run.len - done).min(buffer.len() as u64) as usize;
                        match run.place {
                            RunPlace::Volume(at) => image
                                .content(at + done, &mut buffer[..len])
                                .await
                                .map_err(|e| broken(path, format!("{run:?}: {e}")))?,
                            _ => buffer[..len].fill(0),
                        }
                        hash.update(&buffer[..len]);
                        done += len as u64;
                    }
                }
            }
            from += run.len;
        }
        if from != inode.size {
            return Err(broken(path, format!("runs end at {from} of {}", inode.size)));
        }
        let past = volume.map(image, inode, inode.size.saturating_add(1)).await;
        if past != Ok(None) {
            return Err(broken(path, format!("past the end: {past:?}")));
        }
        Ok(hash.digest())
    }
}

async fn acl<S: Source>(volume: &Volume, image: &S, inode: &Inode) -> Result<Option<Acl>, Error> {
    let acl = volume.acl(image, inode).await?;
    let bad = |what: &str| Error::Corrupt { what: what.into(), at: 0 };
    if acl.is_some() && !inode.may_have_acl {
        return Err(bad("an ACL where the inode said there is none"));
    }
    let attributes = volume.attributes(image, inode).await?;
    let mut same = None;
    for attribute in &attributes {
        let value = volume.attribute_value(image, inode, attribute).await?;
        if value.len() != attribute.len as usize {
            return Err(bad("an attribute's value that is not as long as was said"));
        }
        if attribute.name == b"system.posix_acl_access" {
            same = Acl::of_attribute(&value);
        }
    }
    if acl != same {
        return Err(bad("another ACL among the attributes"));
    }
    Ok(acl)
}

/// The inode at a path of names from the root, without following links; `None` where a name is not there.
///
/// # Errors
/// What the view says of a volume that is damaged or cannot be read on that path.
pub fn resolve<S: Source>(volume: &Volume, image: &S, path: &[u8]) -> Result<Option<Inode>, Error> {
    block_on(async {
        let mut inode = volume.inode(image, volume.root()).await?;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            match volume.lookup(image, &inode, name).await? {
                Some(ino) => inode = volume.inode(image, ino).await?,
                None => return Ok(None),
            }
        }
        Ok(Some(inode))
    })
}

/// The tree under a directory of this machine, without crossing into other file systems.
///
/// # Errors
/// The system's, of the first file or directory that cannot be read.
pub fn read_host(root: &Path) -> std::io::Result<Tree> {
    let device = std::fs::symlink_metadata(root)?.dev();
    let mut tree = Tree::new();
    let mut contents = BTreeMap::new();
    let mut stack = vec![(Vec::new(), root.to_path_buf())];
    while let Some((path, at)) = stack.pop() {
        let meta = std::fs::symlink_metadata(&at)?;
        if meta.dev() != device {
            continue;
        }
        let kind = meta.file_type();
        let kind = match () {
            () if kind.is_dir() => FileKind::Directory,
            () if kind.is_symlink() => FileKind::Symlink,
            () if kind.is_fifo() => FileKind::Fifo,
            () if kind.is_socket() => FileKind::Socket,
            () if kind.is_block_device() => FileKind::BlockDevice,
            () if kind.is_char_device() => FileKind::CharDevice,
            () => FileKind::Regular,
        };
        let mut node = Node {
            kind,
            mode: (meta.mode() & 0o7777) as u16,
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.size(),
            links: meta.nlink() as u32,
            mtime_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
            rdev: split_device(meta.rdev()),
            sectors: meta.blocks(),
            content: None,
            target: None,
        };
        match kind {
            FileKind::Regular => {
                let content = match contents.get(&meta.ino()) {
                    Some(content) => *content,
                    None => hash_file(&at)?,
                };
                if meta.nlink() > 1 {
                    contents.insert(meta.ino(), content);
                }
                node.content = Some(content);
            }
            FileKind::Symlink => {
                node.target = Some(std::fs::read_link(&at)?.as_os_str().as_bytes().to_vec());
            }
            FileKind::Directory => {
                for entry in std::fs::read_dir(&at)? {
                    let entry = entry?;
                    let mut below = path.clone();
                    below.push(b'/');
                    below.extend(entry.file_name().as_bytes());
                    stack.push((below, entry.path()));
                }
            }
            _ => {}
        }
        tree.insert(path, node);
    }
    Ok(tree)
}

/// A device number's major and minor, as glibc takes it apart.
fn split_device(device: u64) -> (u32, u32) {
    let major = ((device >> 8) & 0xFFF) | ((device >> 32) & !0xFFF);
    let minor = (device & 0xFF) | ((device >> 12) & !0xFF);
    (major as u32, minor as u32)
}

fn hash_file(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.digest()),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// What of a node to leave out of a comparison, for tools that do not keep it.
pub type Forget<'a> = &'a dyn Fn(&mut Node);

/// Where two trees differ, at most 20 lines; none if they are equal after `forget` has been at every node.
pub fn differences(view: &Tree, host: &Tree, forget: Forget<'_>) -> Vec<String> {
    let paths: std::collections::BTreeSet<_> = view.keys().chain(host.keys()).collect();
    let known = |tree: &Tree, path: &Vec<u8>| {
        let mut node = tree.get(path)?.clone();
        forget(&mut node);
        Some(node)
    };
    paths
        .into_iter()
        .filter_map(|path| {
            let (a, b) = (known(view, path), known(host, path));
            let name = String::from_utf8_lossy(path);
            match (a, b) {
                (a, b) if a == b => None,
                (Some(a), Some(b)) => Some(format!("{name:?}: view {a:?}\n    host {b:?}")),
                (None, _) => Some(format!("{name:?}: only on the host")),
                (_, None) => Some(format!("{name:?}: only in the view")),
            }
        })
        .take(20)
        .collect()
}
