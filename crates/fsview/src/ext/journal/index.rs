//! A directory's index when a name is added: a leaf that is full is split, and so are its nodes, up to a
//! level more. Where the kernel splits decides how large a directory is, and so it is done alike.

use super::super::body;
use super::super::bytes::{index, le16, le32, put16, put32};
use super::super::dir::{Entries, Form};
use super::super::feature::incompat;
use super::super::hash::Version;
use super::super::htree::{self, PairsStart, ROOT, Step};
use super::entries::{self, NewEntry, Put};
use super::replay::Replay;
use crate::{Error, Inode, Source};

/// Bytes of a pair.
const PAIR: usize = 8;

/// The pairs of a node's block.
struct Pairs<'b> {
    block: &'b mut [u8],
    from: usize,
}

impl Pairs<'_> {
    fn new(block: &mut [u8], PairsStart(from): PairsStart) -> Pairs<'_> {
        Pairs { block, from }
    }

    fn limit(&self) -> usize {
        le16(self.block, self.from).map_or(0, usize::from)
    }

    fn count(&self) -> usize {
        le16(self.block, self.from.saturating_add(2)).map_or(0, usize::from)
    }

    fn set(&mut self, limit: usize, count: usize) -> Option<()> {
        put16(self.block, self.from, u16::try_from(limit).ok()?)?;
        put16(self.block, self.from.checked_add(2)?, u16::try_from(count).ok()?)
    }

    fn place(&self, nr: usize) -> usize {
        self.from.saturating_add(nr.saturating_mul(PAIR))
    }

    /// The bytes of pairs from `from` on.
    fn bytes(&self, from: usize) -> Option<&[u8]> {
        self.block.get(self.place(from)..self.place(self.count()))
    }

    /// Puts a pair behind pair `after`.
    fn insert(&mut self, after: usize, hash: u32, block: u64) -> Option<()> {
        let (count, limit, at) = (self.count(), self.limit(), self.place(after.checked_add(1)?));
        let end = self.place(count);
        self.block.get(..end.checked_add(PAIR)?)?;
        if count >= limit || at > end {
            return None;
        }
        self.block.copy_within(at..end, at.checked_add(PAIR)?);
        put32(self.block, at, hash)?;
        put32(self.block, at.checked_add(4)?, u32::try_from(block).ok()?)?;
        self.set(limit, count.checked_add(1)?)
    }
}

/// An entry of a leaf that is split.
struct Held {
    hash: u32,
    name: Vec<u8>,
    ino: u32,
    kind: u8,
    /// Bytes of its record.
    len: usize,
    /// Which of the leaf's it was.
    nr: usize,
}

/// A leaf's entries, in two parts, and the hash with which the second begins; the lowest bit says that it
/// continues the first's last.
struct Halves {
    first: Vec<Held>,
    second: Vec<Held>,
    hash: u32,
}

impl<S: Source> Replay<'_, S> {
    fn split_leaf(&self, leaf: &[u8], version: Version) -> Result<Halves, &'static str> {
        let end = self.leaf_end(leaf);
        let mut held = Vec::new();
        for entry in Entries::new(leaf.get(..end).unwrap_or(&[]), self.form()) {
            let entry = entry?;
            if entry.ino != 0 && !entry.name.is_empty() {
                held.push(Held {
                    hash: version.hash(entry.name, self.volume.sb.hash_seed),
                    name: entry.name.to_vec(),
                    ino: entry.ino,
                    kind: entry.kind,
                    len: entry.record,
                    nr: held.len(),
                });
            }
        }
        held.sort_by_key(|entry| entry.hash);
        // As many of the last as make up half a block.
        let half = leaf.len().wrapping_shr(1);
        let (mut size, mut moved) = (0usize, 0usize);
        for entry in held.iter().rev() {
            if size.saturating_add(entry.len.wrapping_shr(1)) > half {
                break;
            }
            size = size.saturating_add(entry.len);
            moved = moved.saturating_add(1);
        }
        let at = match moved < held.len() {
            true => held.len().saturating_sub(moved),
            false => held.len().wrapping_shr(1),
        };
        let (Some(last), Some(next)) = (at.checked_sub(1).and_then(|at| held.get(at)), held.get(at)) else {
            return Err("a block that is full has too few entries to split");
        };
        let hash = next.hash | u32::from(next.hash == last.hash);
        let second = held.split_off(at);
        // The first part stays in the order in which it lay: the last of a block has what is left of it, and
        // counts as so long when that block is split.
        held.sort_by_key(|entry| entry.nr);
        Ok(Halves { first: held, second, hash })
    }

    /// A leaf of these entries, in this order.
    fn pack(&self, dir: &Inode, held: &[Held]) -> Result<Vec<u8>, Error> {
        let mut block = self.empty_leaf()?;
        let (end, form) = (self.leaf_end(&block), self.form());
        let mut at = 0usize;
        for (nr, entry) in held.iter().enumerate() {
            let own = entries::record(entry.name.len());
            let is_last = nr.saturating_add(1) == held.len();
            let len = if is_last { end.saturating_sub(at) } else { own };
            let done = write_raw(block.get_mut(..end).unwrap_or(&mut []), at, len, form, entry);
            done.ok_or_else(|| self.bad_directory(dir, "entries of a block do not fit one"))?;
            at = at.saturating_add(own);
        }
        self.seal_leaf(dir, &mut block)?;
        Ok(block)
    }

    fn put_node(&mut self, dir: &Inode, nr: u64, mut block: Vec<u8>, place: PairsStart) -> Result<(), Error> {
        self.seal_node(dir, &mut block, place)?;
        self.put(nr, block)
    }

    fn seal_node(&self, dir: &Inode, block: &mut [u8], place: PairsStart) -> Result<(), Error> {
        let Some(seed) = body(dir)?.seed else { return Ok(()) };
        htree::seal(block, place, seed).ok_or_else(|| self.bad_directory(dir, "an index node is cut short"))
    }

    /// Adds a name to a directory with an index; `None` where there is none that is understood.
    pub(super) async fn add_by_index(
        &mut self,
        dir: &Inode,
        entry: &NewEntry<'_>,
    ) -> Result<Option<Put>, Error> {
        // Each turn but the last makes room in a node: at most one for each level, and a level more.
        for _ in 0..8 {
            let dir = &self.volume.inode(&self.now(), dir.ino).await?;
            let Some((mut way, hash, version)) = self.way(dir, entry).await? else { return Ok(None) };
            let Some(child) = way.last().map(|step| step.child) else { return Ok(None) };
            let (mut leaf, place) = self.directory_block(dir, child).await?;
            let put = self.insert(dir, &mut leaf, entry)?;
            if put == Put::Done {
                self.put(place, leaf)?;
            }
            if put != Put::Full {
                return Ok(Some(put));
            }
            if self.make_room(dir, &mut way).await? {
                continue;
            }
            let Some(last) = way.pop() else { return Ok(None) };
            let (leaf, _) = self.directory_block(dir, child).await?;
            return self.split(dir, entry, (hash, version), last, (leaf, place)).await.map(Some);
        }
        Err(self.bad_directory(dir, "its index does not come to rest"))
    }

    /// The nodes on the way to the leaf that has a name's place, the name's hash, and how it is made.
    async fn way(
        &self,
        dir: &Inode,
        entry: &NewEntry<'_>,
    ) -> Result<Option<(Vec<Step>, u32, Version)>, Error> {
        let now = self.now();
        self.volume.directory(&now, dir)?.way(entry.name).await
    }

    /// Splits a leaf that is full, and puts an entry into the half that it belongs to.
    async fn split(
        &mut self,
        dir: &Inode,
        entry: &NewEntry<'_>,
        (hash, version): (u32, Version),
        mut node: Step,
        (leaf, place): (Vec<u8>, u64),
    ) -> Result<Put, Error> {
        let halves = self.split_leaf(&leaf, version).map_err(|what| self.bad_directory(dir, what))?;
        let (mut first, mut second) = (self.pack(dir, &halves.first)?, self.pack(dir, &halves.second)?);
        let half = if hash >= halves.hash & !1 { &mut second } else { &mut first };
        let put = self.insert(dir, half, entry)?;
        if put == Put::Full {
            return Err(self.bad_directory(dir, "half a block has no room for a name"));
        }
        self.put(place, first)?;
        let nr = self.append(dir.ino.0, second).await?;
        Pairs::new(&mut node.block, node.place)
            .insert(node.at, halves.hash, nr)
            .ok_or_else(|| self.bad_directory(dir, "an index node is cut short"))?;
        self.put_node(dir, node.nr, node.block, node.place)?;
        Ok(put)
    }

    /// Splits the highest node that is in the way of a pair more in the lowest; whether one was.
    async fn make_room(&mut self, dir: &Inode, way: &mut Vec<Step>) -> Result<bool, Error> {
        let levels = way.len();
        // The highest of the full nodes that follow one another up from the lowest.
        let mut highest = None;
        while let Some(mut step) = way.pop() {
            let pairs = Pairs::new(&mut step.block, step.place);
            if pairs.count() < pairs.limit() {
                way.push(step);
                break;
            }
            highest = Some(step);
        }
        let Some(mut node) = highest else { return Ok(false) };
        let size = index(u64::from(self.volume.sb.block_size()));
        let tail = if self.volume.sb.seed.is_some() { PAIR } else { 0 };
        let limit = size.saturating_sub(PAIR).saturating_sub(tail).wrapping_shr(3);
        let mut new = vec![0; size];
        let cut = || self.bad_directory(dir, "an index node is cut short");
        entries::set_record(&mut new, 0, size, self.form()).ok_or_else(cut)?;

        let pairs = Pairs::new(&mut node.block, node.place);
        let (count, own_limit) = (pairs.count(), pairs.limit());
        let parent = way.pop();
        let keep = if parent.is_some() { count.wrapping_shr(1) } else { 0 };
        let moved = pairs.bytes(keep).ok_or_else(cut)?.to_vec();
        let hash = le32(&moved, 0).ok_or_else(cut)?;
        new.get_mut(PAIR..)
            .and_then(|room| room.get_mut(..moved.len()))
            .ok_or_else(cut)?
            .copy_from_slice(&moved);
        Pairs::new(&mut new, htree::INNER).set(limit, count.saturating_sub(keep)).ok_or_else(cut)?;
        let levels_max = if self.volume.sb.features.incompat(incompat::LARGE_DIR) { 3 } else { 2 };
        if parent.is_none() && levels >= levels_max {
            return Err(self.bad_directory(dir, "its index is full"));
        }
        self.seal_node(dir, &mut new, htree::INNER)?;
        let nr = self.append(dir.ino.0, new).await?;
        let cut = || self.bad_directory(dir, "an index node is cut short");
        match parent {
            Some(mut parent) => {
                Pairs::new(&mut node.block, node.place).set(own_limit, keep).ok_or_else(cut)?;
                Pairs::new(&mut parent.block, parent.place).insert(parent.at, hash, nr).ok_or_else(cut)?;
                self.put_node(dir, parent.nr, parent.block, parent.place)?;
            }
            None => {
                // The root leads to the new node alone, one level higher.
                let number = u32::try_from(nr).map_err(|_| cut())?;
                let mut pairs = Pairs::new(&mut node.block, node.place);
                pairs.set(own_limit, 1).ok_or_else(cut)?;
                let at = pairs.place(0).saturating_add(4);
                put32(pairs.block, at, number).ok_or_else(cut)?;
                let depth = node.block.get_mut(30).ok_or_else(cut)?;
                *depth = depth.saturating_add(1);
            }
        }
        self.put_node(dir, node.nr, node.block, node.place)?;
        Ok(true)
    }

    /// Makes an index of a directory's one block, which is full, and adds a name.
    pub(super) async fn begin_index(&mut self, dir: &Inode, entry: &NewEntry<'_>) -> Result<Put, Error> {
        let (block, place) = self.directory_block(dir, 0).await?;
        let (size, form) = (block.len(), self.form());
        let cut = || self.bad_directory(dir, "its block is cut short");
        let mut all = Entries::new(&block, form);
        all.by_ref().take(2).for_each(drop);
        let (from, end) = (all.at, self.leaf_end(&block));
        let names = block.get(from..end).ok_or_else(cut)?;
        // What follows ".." moves to a block of its own, whose last entry takes all that is left.
        let mut leaf = vec![0; size];
        leaf.get_mut(..names.len()).ok_or_else(cut)?.copy_from_slice(names);
        let last = entries::last(names, form).map_err(|what| self.bad_directory(dir, what))?.unwrap_or(0);
        entries::set_record(&mut leaf, last, end.saturating_sub(last), form).ok_or_else(cut)?;
        self.seal_leaf(dir, &mut leaf)?;

        let mut root = vec![0; size];
        root.get_mut(..24).ok_or_else(cut)?.copy_from_slice(block.get(..24).ok_or_else(cut)?);
        entries::set_record(&mut root, 12, size.saturating_sub(12), form).ok_or_else(cut)?;
        let version = self.volume.sb.hash_default;
        root.get_mut(28..30).ok_or_else(cut)?.copy_from_slice(&[version, 8]);
        let tail = if self.volume.sb.seed.is_some() { PAIR } else { 0 };
        let limit = size.saturating_sub(ROOT.0).saturating_sub(tail).wrapping_shr(3);
        Pairs::new(&mut root, ROOT).set(limit, 1).ok_or_else(cut)?;
        put32(&mut root, ROOT.0.saturating_add(4), 1).ok_or_else(cut)?;
        if self.volume.sb.hash_version(version).is_none() {
            return Err(self.bad_directory(dir, &format!("indexes are made with hash {version}")));
        }
        self.append(dir.ino.0, leaf).await?;
        self.put_node(dir, place, root, ROOT)?;
        self.set_indexed(dir.ino.0).await?;
        // The leaf is split even where the room of "." and ".." would do for the name.
        let dir = &self.volume.inode(&self.now(), dir.ino).await?;
        let way = self.way(dir, entry).await?;
        let step = way.and_then(|(mut way, hash, version)| way.pop().map(|last| (last, hash, version)));
        let Some((last, hash, version)) = step else {
            return Err(self.bad_directory(dir, "its new index is none"));
        };
        let leaf = self.directory_block(dir, last.child).await?;
        self.split(dir, entry, (hash, version), last, leaf).await
    }
}

/// Writes an entry as another block had it.
fn write_raw(area: &mut [u8], at: usize, len: usize, form: Form, entry: &Held) -> Option<()> {
    put32(area, at, entry.ino)?;
    entries::set_record(area, at, len, form)?;
    put16(area, at.checked_add(6)?, u16::try_from(entry.name.len()).ok()?)?;
    if form.typed {
        *area.get_mut(at.checked_add(7)?)? = entry.kind;
    }
    area.get_mut(at.checked_add(8)?..)?.get_mut(..entry.name.len())?.copy_from_slice(&entry.name);
    Some(())
}
