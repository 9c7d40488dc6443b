//! Where a volume's structures lie: found by asking it everything and noting which blocks each question read.

use std::collections::BTreeSet;

use nearside_conformance::explore::{Bounds, Explored, ask};
use nearside_fsview::{DirCursor, FileKind, Ino, Inode, Volume};

use crate::patched::{Patched, now};

/// What a block, or a part of one, is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SiteKind {
    /// A superblock; for ext the descriptors of its groups as well.
    Superblock,
    /// What an F2FS volume is opened by, and where its nodes are:
    /// checkpoints, summaries, the node address table.
    Checkpoint,
    /// An inode.
    Inode,
    /// What a directory's entries lie in: its blocks, its index, its inode; a link's block.
    Entries,
    /// What a file is mapped by beside its inode: extent nodes, indirect blocks, direct and indirect nodes.
    Map,
    /// Extended attributes outside the inode.
    Attributes,
    /// A block of a journal that opening the volume reads.
    Journal,
}

/// A structure, and an inode whose questions read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Whom to ask.
    pub ino: Ino,
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub len: u32,
}

const F2FS_BLOCK: u32 = 4096;
/// Bytes of an inode on the ext volumes here.
const EXT_INODE: u64 = 256;
/// Structures of a kind that are enough: they are alike, and fuzzing is to come back to each.
const ENOUGH: usize = 48;

struct Finder<'a> {
    volume: &'a Volume,
    source: Patched<'a>,
    is_f2fs: bool,
    /// Where nodes and data begin, on F2FS.
    main: u64,
    found: BTreeSet<(SiteKind, u64, Site)>,
}

/// The structures of a volume, at most `ENOUGH` of each kind, spread evenly.
pub fn find(bytes: &[u8], volume: &Volume) -> Vec<(SiteKind, Site)> {
    let source = Patched::logged(bytes);
    let is_f2fs = volume.info().file_system == "f2fs";
    let main = if is_f2fs { u64::from(source.word(1024 + 92)) * 4096 } else { 0 };
    let mut finder = Finder { volume, source, is_f2fs, main, found: BTreeSet::new() };
    finder.tables();
    let (mut todo, mut seen) = (vec![volume.root()], BTreeSet::from([volume.root()]));
    while let Some(ino) = todo.pop() {
        todo.extend(finder.inode(ino).into_iter().filter(|child| seen.insert(*child)));
    }
    let all: Vec<(SiteKind, Site)> = finder.found.into_iter().map(|(kind, _, site)| (kind, site)).collect();
    // Checksums of fast commits cover what stands before them: a journal's blocks are all kept.
    let enough = |kind| if kind == SiteKind::Journal { usize::MAX } else { ENOUGH };
    all.chunk_by(|a, b| a.0 == b.0).flat_map(|of_kind| spread(of_kind, enough(of_kind[0].0))).collect()
}

fn spread<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let n = all.len().min(most);
    (0..n).map(|i| all[i * all.len() / n]).collect()
}

impl Finder<'_> {
    fn add(&mut self, kind: SiteKind, ino: Ino, at: u64, len: u32) {
        // By place first: the same structure counts once.
        if !self.found.iter().any(|(k, place, _)| (*k, *place) == (kind, at)) {
            self.found.insert((kind, at, Site { ino, at, len }));
        }
    }

    fn tables(&mut self) {
        let root = self.volume.root();
        if !self.is_f2fs {
            self.journal(root);
            return self.add(SiteKind::Superblock, root, 1024, 1024);
        }
        for at in [1024, 4096 + 1024] {
            self.add(SiteKind::Superblock, root, at, 3072);
        }
        if let Err(error) = now(Volume::open(&self.source)) {
            panic!("a volume that was open: {error}");
        }
        for (at, len) in self.source.take_log() {
            if at >= 2 * 4096 && at < self.main {
                self.add(SiteKind::Checkpoint, root, at, len);
            }
        }
    }

    /// What opening reads of the journal, by the copy of its inode's extents in the superblock.
    fn journal(&mut self, root: Ino) {
        const MAP: u64 = 1024 + 0x10C;
        if self.source.word(MAP) & 0xFFFF != 0xF30A {
            return;
        }
        let (count, shift) = (self.source.word(MAP) >> 16, self.source.word(1024 + 0x18) + 10);
        let extents = (1..=u64::from(count)).map(|nr| MAP + 12 * nr).map(|at| {
            let (len, start) = (self.source.word(at + 4) & 0xFFFF, self.source.word(at + 8));
            u64::from(start) << shift..u64::from(start + len) << shift
        });
        let extents: Vec<_> = extents.collect();
        if let Err(error) = now(Volume::open(&self.source)) {
            panic!("a volume that was open: {error}");
        }
        for (at, len) in self.source.take_log() {
            if extents.iter().any(|extent| extent.contains(&at)) {
                self.add(SiteKind::Journal, root, at, len);
            }
        }
    }

    /// Sorts what a question read. Tables are read by all.
    fn sort(&mut self, ino: Ino, kind: SiteKind, inode_at: (u64, u32)) {
        for (at, len) in self.source.take_log() {
            if self.is_f2fs && at < self.main {
                self.add(SiteKind::Checkpoint, ino, at, len);
            } else if self.is_f2fs && self.is_node(at, ino) && (at, len) != inode_at {
                let kind = if kind == SiteKind::Attributes { kind } else { SiteKind::Map };
                self.add(kind, ino, at, len);
            } else if (at, len) != inode_at {
                if !self.is_f2fs && at < inode_at.0 && at <= 4096 {
                    self.add(SiteKind::Superblock, ino, at, len);
                } else {
                    self.add(kind, ino, at, len);
                }
            }
        }
    }

    /// Whether a block of F2FS has the footer of a node of this inode.
    fn is_node(&self, at: u64, ino: Ino) -> bool {
        self.source.word(at + 4076) == ino.0 && self.source.word(at + 4072) >= 3
    }

    fn inode(&mut self, ino: Ino) -> Vec<Ino> {
        let (volume, source) = (self.volume, &self.source);
        source.take_log();
        let inode: Inode = match now(volume.inode(source, ino)) {
            Ok(inode) => inode,
            Err(error) => panic!("inode {}: {error}", ino.0),
        };
        let mut log = source.take_log();
        let Some(inode_at) = log.pop() else { panic!("inode {} was read from nowhere", ino.0) };
        if self.is_f2fs {
            self.add(SiteKind::Inode, ino, inode_at.0, inode_at.1);
        } else {
            let inside = u64::from(ino.0 - 1) * EXT_INODE % u64::from(inode_at.1);
            self.add(SiteKind::Inode, ino, inode_at.0 + inside, EXT_INODE as u32);
        }
        for (at, len) in log {
            let kind = if self.is_f2fs { SiteKind::Checkpoint } else { SiteKind::Superblock };
            self.add(kind, ino, at, len);
        }
        let _ = now(volume.acl(&self.source, &inode));
        for attribute in now(volume.attributes(&self.source, &inode)).unwrap_or_default() {
            let _ = now(volume.attribute_value(&self.source, &inode, &attribute));
        }
        self.sort(ino, SiteKind::Attributes, inode_at);
        if inode.kind == FileKind::Symlink {
            let _ = now(volume.read_link(&self.source, &inode));
            self.sort(ino, SiteKind::Entries, inode_at);
        }
        if inode.kind == FileKind::Regular {
            self.map(&inode);
            self.sort(ino, SiteKind::Map, inode_at);
            return Vec::new();
        }
        if inode.kind != FileKind::Directory {
            return Vec::new();
        }
        let mut children = Vec::new();
        let mut cursor = Some(DirCursor::default());
        let mut asked = false;
        while let Some(at) = cursor {
            cursor = now(volume.read_dir(&self.source, &inode, at, &mut children)).unwrap_or(None);
            if !asked && (children.len() > NEAR.files || cursor.is_none()) {
                asked = true;
                for child in children.iter().take(NEAR.names) {
                    let _ = now(volume.lookup(&self.source, &inode, &child.name));
                }
                self.sort(ino, SiteKind::Entries, inode_at);
            }
        }
        // An inline directory's entries lie in its inode.
        let entries = |site: &(SiteKind, u64, Site)| site.0 == SiteKind::Entries && site.2.ino == ino;
        if !children.is_empty() && !self.found.iter().any(entries) {
            let (at, len) = if self.is_f2fs { inode_at } else { self.site_of(ino) };
            self.add(SiteKind::Entries, ino, at, len);
        }
        children.into_iter().map(|child| child.ino).collect()
    }

    fn site_of(&self, ino: Ino) -> (u64, u32) {
        let site = self.found.iter().find(|(kind, _, site)| *kind == SiteKind::Inode && site.ino == ino);
        site.map_or((0, F2FS_BLOCK), |(_, _, site)| (site.at, site.len))
    }

    /// Asks where the bytes lie: the first runs and the last.
    fn map(&self, inode: &Inode) {
        let mut from = 0;
        for _ in 0..NEAR.runs {
            match now(self.volume.map(&self.source, inode, from)) {
                Ok(Some(run)) => from += run.len,
                _ => return,
            }
        }
        let _ = now(self.volume.map(&self.source, inode, inode.size - 1));
    }
}

/// What a structure's target asks of an inode: fewer names and runs than a test of a whole volume.
pub const NEAR: Bounds = Bounds { files: 200, runs: 48, names: 6 };

/// Asks everything of one inode.
pub fn question(volume: &Volume, source: &Patched<'_>, ino: Ino) {
    now(ask(volume, source, ino, NEAR, &mut Explored::default()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes;

    /// Every kind of structure is there, and the question of its inode reads it.
    #[test]
    fn volumes_have_the_structures() {
        for (images, kinds) in [
            (
                volumes::ext(),
                &[
                    SiteKind::Superblock,
                    SiteKind::Inode,
                    SiteKind::Entries,
                    SiteKind::Map,
                    SiteKind::Attributes,
                ][..],
            ),
            (
                volumes::f2fs(),
                &[
                    SiteKind::Superblock,
                    SiteKind::Checkpoint,
                    SiteKind::Inode,
                    SiteKind::Entries,
                    SiteKind::Map,
                    SiteKind::Attributes,
                ],
            ),
        ] {
            for kind in kinds {
                let sites: Vec<_> =
                    images.iter().flat_map(|i| i.sites_of(*kind).iter().map(move |s| (i, s))).collect();
                assert!(!sites.is_empty(), "no {kind:?}");
                for (image, site) in sites {
                    let source = Patched::logged(&image.bytes);
                    now(Volume::open(&source)).unwrap();
                    question(&image.volume, &source, site.ino);
                    let end = site.at + u64::from(site.len);
                    let read =
                        source.take_log().iter().any(|(at, len)| *at < end && site.at < at + u64::from(*len));
                    // The second superblock is read where the first is damaged.
                    assert!(
                        read || *kind == SiteKind::Superblock,
                        "{} {kind:?} {site:?} is not read",
                        image.name
                    );
                }
            }
        }
    }
}
