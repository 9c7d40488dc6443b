//! The overlay: a source that answers for a block's home with its committed copy in the journal.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::super::bytes::{index, wide};
use super::super::map::Span;
use super::changes::Changes;
use super::log::{Committed, LoggedBlock};
use super::superblock::Sums;
use super::{MAGIC, corrupt};
use crate::pace::Pace;
use crate::recovery::behind_all;
use crate::{Error, Run, RunPlace, Source};

/// Bytes of an escaped copy that are not its own.
const ESCAPED: u64 = 4;
/// Blocks of a file that are looked at in the journal for one run.
const RUN_MAX: u64 = 64;

/// Where committed copies of blocks lie; none for a volume that needs no recovery.
#[derive(Clone, Debug, Default)]
pub(in crate::ext) struct Overlay {
    found: Arc<Committed>,
    /// What fast commits made of all that.
    changed: Arc<Changes>,
    pub(super) sums: Sums,
    /// 0 where there is no log.
    block_shift: u32,
    /// A byte of the volume where the magic stands, with which escaped blocks begin: the journal's
    /// superblock.
    magic: u64,
    /// Whether fast commits may follow it.
    fast: bool,
}

/// What stands for the extents of an inode where blocks are named that a volume shows ([`Source::shows`]).
pub(in crate::ext) fn extents_of(ino: u32) -> u64 {
    behind_all(ino.into())
}

impl Overlay {
    pub(super) fn new(found: Committed, sums: Sums, block_shift: u32, magic: u64, fast: bool) -> Overlay {
        Overlay { found: Arc::new(found), changed: Arc::default(), sums, block_shift, magic, fast }
    }

    /// What a log that went on shows otherwise than `other`, as the bytes that [`Source::shows`] is told;
    /// `None`: it is not that log.
    pub(in crate::ext) async fn since<S: Source>(&self, other: &Overlay, source: &S) -> Option<Vec<u64>> {
        let form = |of: &Overlay| (of.sums, of.block_shift, of.magic, of.fast);
        (form(self) == form(other) && self.found.follows(&other.found)).then_some(())?;
        let (blocks, inodes) = self.changed.unlike(&other.changed, source).await;
        let blocks = blocks.iter().chain(&self.found.touched);
        let blocks = blocks.map(|nr| nr.wrapping_shl(self.block_shift)); // of the volume, or just behind it
        Some(blocks.chain(inodes.into_iter().map(extents_of)).collect())
    }

    /// Whether fast commits may say where a file's blocks lie.
    pub(in crate::ext) fn is_fast(&self) -> bool {
        self.fast
    }

    /// Gives the memory back that nobody else has, piece by piece.
    pub(in crate::ext) async fn give_back<S: Source>(self, source: &S) {
        if let Some(changed) = Arc::into_inner(self.changed) {
            changed.give_back(source).await;
        }
        if let Some(mut found) = Arc::into_inner(self.found) {
            let pace = &mut Pace::new(source);
            while found.copies.pop_first().is_some() {
                pace.step().await;
            }
        }
    }

    /// Bytes of memory, about.
    pub(in crate::ext) fn bytes(&self) -> u64 {
        let copies = wide(self.found.copies.len()).saturating_mul(wide(size_of::<(u64, LoggedBlock)>()));
        copies.saturating_add(self.changed.bytes())
    }

    /// What the log held when it was made.
    pub(super) fn committed(&self) -> &Committed {
        &self.found
    }

    /// What lies under it, with it on top.
    pub(in crate::ext) fn over<'a, S>(&'a self, source: &'a S) -> Recovered<'a, S> {
        Recovered { overlay: self, source }
    }

    /// Its changes, to add to them.
    pub(super) fn changes(&mut self) -> &mut Changes {
        Arc::make_mut(&mut self.changed)
    }

    /// Where a block of a file lies whose extents fast commits have changed; `None` of other files.
    pub(in crate::ext) fn replayed(&self, ino: u32, block: u64) -> Result<Option<Span>, Error> {
        match self.changed.is_damaged(ino) {
            Some(error) => Err(error),
            None => Ok(self.changed.trees.get(&ino).map(|tree| tree.at(block))),
        }
    }

    /// Whether a file's extents are in memory.
    pub(super) fn has_tree(&self, ino: u32) -> bool {
        self.changed.trees.contains_key(&ino)
    }

    /// Whether a block is one that fast commits made.
    pub(in crate::ext) fn made(&self, nr: u64) -> bool {
        self.changed.blocks.contains_key(&nr)
    }

    fn block_size(&self) -> u64 {
        1u64.wrapping_shl(self.block_shift)
    }

    /// The volume's block `at` as the log has it, its checksum verified.
    async fn read<S: Source>(&self, source: &S, copy: &LoggedBlock) -> Result<S::Block, Error> {
        let at = copy.at.wrapping_shl(self.block_shift); // of the volume
        let len = 1u32.wrapping_shl(self.block_shift);
        let block = source.metadata(at, len).await?;
        if wide(block.len()) != u64::from(len) {
            return Err(Error::Read { at, len, reason: format!("{} bytes came", block.len()) });
        }
        if !self.sums.copy_holds(copy.tid, &block, copy.sum) {
            let what = format!("the checksum of a block of transaction {} does not match", copy.tid);
            return Err(corrupt(what, at));
        }
        Ok(block)
    }
}

/// A source as recovery would leave it.
pub(crate) struct Recovered<'a, S> {
    overlay: &'a Overlay,
    source: &'a S,
}

impl<S: Source> Recovered<'_, S> {
    /// A run of a regular file, as far as it lies in one piece: at home, or in the journal where its data are
    /// journaled. The magic that an escaped block begins with is not in its copy, but stands elsewhere.
    pub(in crate::ext) async fn place(&self, run: Run) -> Result<Run, Error> {
        let (overlay, source) = (self.overlay, self.source);
        let RunPlace::Volume(at) = run.place else { return Ok(run) };
        if overlay.found.copies.is_empty() {
            return Ok(run);
        }
        let (first, inside) =
            (at.wrapping_shr(overlay.block_shift), at & overlay.block_size().wrapping_sub(1));
        let cut = |len: u64, place: u64| Run { len: run.len.min(len), place: RunPlace::Volume(place), ..run };
        let last = at.saturating_add(run.len).saturating_sub(1).wrapping_shr(overlay.block_shift);
        let mut copies = overlay.found.copies.range(first..=last);
        let Some((home, copy)) = copies.next() else { return Ok(run) };
        if *home != first {
            return Ok(cut(home.wrapping_shl(overlay.block_shift).saturating_sub(at), at));
        }
        overlay.read(source, copy).await?;
        let copied = copy.at.wrapping_shl(overlay.block_shift).wrapping_add(inside);
        let rest = overlay.block_size().wrapping_sub(inside);
        if copy.escaped {
            return Ok(match inside < ESCAPED {
                true => cut(ESCAPED.wrapping_sub(inside), overlay.magic.wrapping_add(inside)),
                false => cut(rest, copied),
            });
        }
        let mut more = 0u64;
        for (home, next) in copies {
            let after = more.wrapping_add(1); // at most RUN_MAX
            let follows = *home == first.wrapping_add(after) && next.at == copy.at.wrapping_add(after);
            if !follows || next.escaped || after >= RUN_MAX {
                break;
            }
            overlay.read(source, next).await?;
            more = after;
        }
        Ok(cut(rest.saturating_add(more.wrapping_shl(overlay.block_shift)), copied))
    }
}

/// A block that is at home, a part of one, or one that was put together.
#[derive(Clone)]
pub(crate) enum Piece<B> {
    Whole(B),
    Part(B, Range<usize>),
    Made(Arc<[u8]>, Range<usize>),
}

impl<B: Deref<Target = [u8]>> Deref for Piece<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Piece::Whole(block) => block,
            Piece::Part(block, range) => block.get(range.clone()).unwrap_or(&[]),
            Piece::Made(block, range) => block.get(range.clone()).unwrap_or(&[]),
        }
    }
}

impl<S: Source> Source for Recovered<'_, S> {
    type Block = Piece<S::Block>;

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn shows(&self, offset: u64) {
        self.source.shows(offset);
    }

    fn is_durable(&self, offset: u64, len: u64) -> bool {
        self.source.is_durable(offset, len)
    }

    async fn pause(&self) {
        self.source.pause().await;
    }

    async fn metadata(&self, offset: u64, len: u32) -> Result<Self::Block, Error> {
        let overlay = self.overlay;
        if overlay.block_shift > 0 {
            self.source.shows(offset.wrapping_shr(overlay.block_shift).wrapping_shl(overlay.block_shift));
        }
        if overlay.found.copies.is_empty() && overlay.changed.blocks.is_empty() {
            return Ok(Piece::Whole(self.source.metadata(offset, len).await?));
        }
        let nr = offset.wrapping_shr(overlay.block_shift);
        let (made, copy) = (overlay.changed.blocks.get(&nr), overlay.found.copies.get(&nr));
        if made.is_none() && copy.is_none() {
            return Ok(Piece::Whole(self.source.metadata(offset, len).await?));
        }
        let inside = offset & overlay.block_size().wrapping_sub(1);
        let end = inside.saturating_add(len.into());
        if end > overlay.block_size() {
            let reason = "it is more than a block of the volume".into();
            return Err(Error::Read { at: offset, len, reason });
        }
        let range = index(inside)..index(end);
        let copy = match (made, copy) {
            (None, Some(copy)) => copy,
            (made, _) => {
                self.source.pause().await;
                return Ok(Piece::Made(made.cloned().unwrap_or_default(), range));
            }
        };
        let block = overlay.read(self.source, copy).await?;
        if !copy.escaped {
            return Ok(Piece::Part(block, range));
        }
        let mut made: Arc<[u8]> = Arc::from(&*block);
        if let Some(head) = Arc::get_mut(&mut made).and_then(|bytes| bytes.first_chunk_mut::<4>()) {
            *head = MAGIC.to_be_bytes();
        }
        Ok(Piece::Made(made, range))
    }
}
