//! Names in directories without an index. The kernel looks through all blocks for each name; here what one
//! tag has seen of them is kept for the next ([`Known`]), so that a block is looked through once, and then
//! only where it can hold the name or has room for it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::super::body;
use super::super::bytes::wide;
use super::super::dir::{Entries, Form, Found};
use super::super::feature::compat;
use super::entries::{self, NewEntry, Put};
use super::replay::Replay;
use crate::name::NAME_MAX;
use crate::{Error, Inode, Source};

/// Names and blocks that are kept, of all directories: some 50 MiB.
const KEPT_MAX: usize = 1 << 20;

/// What is known of the blocks of a directory before `end`. What is not there is a hole.
#[derive(Debug, Default)]
struct Known {
    end: u64,
    /// The first hole.
    hole: Option<u64>,
    /// The longest record that a block has room for, at most the longest that there is.
    rooms: BTreeMap<u64, usize>,
    /// The same, by room.
    free: BTreeSet<(usize, u64)>,
    /// Blocks with entries that cannot be read.
    bad: BTreeSet<u64>,
    /// Hashes of names, and the blocks that hold such.
    names: BTreeSet<(u64, u64)>,
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl Known {
    /// What is kept: names, and blocks.
    fn kept(&self) -> usize {
        self.names.len().saturating_add(self.rooms.len())
    }

    /// The first block from `from` on that can hold a name, or is not known yet.
    fn to_find(&self, from: u64, name: &[u8]) -> u64 {
        let hash = hash(name);
        let named = self.names.range((hash, from)..=(hash, u64::MAX)).next().map(|(_, nr)| *nr);
        let bad = self.bad.range(from..).next().copied();
        [named, bad].into_iter().flatten().fold(self.end, u64::min)
    }

    /// The first block from `from` on that can hold a name or has room for it, is a hole, or is not known.
    fn to_add(&self, from: u64, name: &[u8]) -> u64 {
        let rooms = (entries::record(name.len())..=entries::record(NAME_MAX)).step_by(4);
        let roomy = rooms
            .filter_map(|room| self.free.range((room, from)..=(room, u64::MAX)).next().map(|(_, nr)| *nr));
        let hole = self.hole.filter(|hole| *hole >= from);
        roomy.chain(hole).fold(self.to_find(from, name), u64::min)
    }

    /// Block `nr` was looked through, or has changed by a name.
    fn note(&mut self, nr: u64, area: &[u8], form: Form, name: &[u8]) {
        let is_new = nr >= self.end;
        if is_new {
            self.hole = self.hole.or((nr > self.end).then_some(self.end));
            self.end = nr.saturating_add(1);
        }
        let (mut room, own) = (0, hash(name));
        self.names.remove(&(own, nr));
        for entry in Entries::new(area, form) {
            let Ok(entry) = entry else {
                self.bad.insert(nr);
                break;
            };
            let used = if entry.ino == 0 { 0 } else { entries::record(entry.name.len()) };
            room = room.max(entry.record.saturating_sub(used));
            if entry.ino != 0 && (is_new || entry.name == name) {
                self.names.insert((hash(entry.name), nr));
            }
        }
        let room = room.min(entries::record(NAME_MAX));
        if let Some(before) = self.rooms.insert(nr, room) {
            self.free.remove(&(before, nr));
        }
        self.free.insert((room, nr));
    }
}

/// Directories without an index of which tags have spoken.
#[derive(Debug, Default)]
pub(super) struct Linear {
    known: BTreeMap<u32, Known>,
    /// Names and blocks of all of them.
    kept: usize,
}

impl Linear {
    /// A directory is made of other blocks, or is none any more.
    pub(super) fn forget(&mut self, ino: u32) {
        if let Some(gone) = self.known.remove(&ino) {
            self.kept = self.kept.saturating_sub(gone.kept());
        }
    }

    fn of(&mut self, dir: &Inode) -> &Known {
        self.known.entry(dir.ino.0).or_default()
    }

    fn note(&mut self, dir: &Inode, nr: u64, area: &[u8], form: Form, name: &[u8]) {
        let known = self.known.entry(dir.ino.0).or_default();
        let before = known.kept();
        known.note(nr, area, form, name);
        self.kept = self.kept.saturating_sub(before).saturating_add(known.kept());
        if self.kept > KEPT_MAX {
            *self = Linear::default();
        }
    }
}

impl<S: Source> Replay<'_, S> {
    /// Whether names of a directory are looked for block by block.
    pub(super) fn is_linear(&self, dir: &Inode) -> Result<bool, Error> {
        let now = self.now();
        let indexed = self.volume.directory(&now, dir)?.has_index();
        Ok(!indexed && !body(dir)?.is_inline())
    }

    /// Puts a name into the first block that has room, and then into a new one, or makes an index.
    pub(super) async fn add_in_blocks(&mut self, dir: &Inode, entry: &NewEntry<'_>) -> Result<Put, Error> {
        let blocks = dir.size.wrapping_shr(self.volume.sb.block_shift);
        let mut nr = self.linear.of(dir).to_add(0, entry.name);
        while nr < blocks {
            let (mut block, place) = self.directory_block(dir, nr).await?;
            let put = self.insert(dir, &mut block, entry)?;
            self.note(dir, (nr, nr), &block, entry.name)?;
            if put == Put::Done {
                self.put(place, block)?;
            }
            if put != Put::Full {
                return Ok(put);
            }
            let next = nr.saturating_add(1);
            nr = self.linear.of(dir).to_add(next, entry.name).max(next);
        }
        let features = self.volume.sb.features;
        if blocks == 1 && !body(dir)?.is_indexed() && features.compat(compat::DIR_INDEX) {
            self.linear.forget(dir.ino.0);
            return self.begin_index(dir, entry).await;
        }
        let mut block = self.empty_leaf()?;
        let put = self.insert(dir, &mut block, entry)?;
        self.append(dir.ino.0, block).await?;
        Ok(put)
    }

    /// The entry of a name in a directory without an index, and in which of its blocks that is.
    pub(super) async fn find_in_blocks(
        &mut self,
        dir: &Inode,
        name: &[u8],
    ) -> Result<Option<(Found, u64)>, Error> {
        let mut from = self.linear.of(dir).to_find(0, name);
        loop {
            let (nr, block, found) = {
                let now = self.now();
                let directory = self.volume.directory(&now, dir)?;
                let Some((nr, block, at)) = directory.block_from(from).await? else { return Ok(None) };
                let found = directory.find_in_block(&block, self.volume.byte_of(at), name)?;
                (nr, block.to_vec(), found)
            };
            self.note(dir, (from, nr), &block, name)?;
            if let Some(found) = found {
                return Ok(Some((found, nr)));
            }
            let next = nr.saturating_add(1);
            from = self.linear.of(dir).to_find(next, name).max(next);
        }
    }

    /// A directory's block `nr` was looked through, the first from block `from` on, or has changed by a name.
    pub(super) fn note(
        &mut self,
        dir: &Inode,
        (from, nr): (u64, u64),
        block: &[u8],
        name: &[u8],
    ) -> Result<(), Error> {
        let (end, form) = (self.leaf_end(block), self.form());
        // What was known of the blocks before may have been given up meanwhile: they are no holes.
        if from <= self.linear.of(dir).end {
            self.linear.note(dir, nr, block.get(..end).unwrap_or(&[]), form, name);
        }
        self.volume.overlay.changes().looked_through(wide(block.len()))
    }
}
