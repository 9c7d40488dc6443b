//! Inodes that a walk comes to next, where each has a block of its own (F2FS): blocks that lie side by side
//! are read by one read, as they do where files were made one after the other. The walk's own look-ups then
//! find the inodes in the cache; one that is not there is read by itself, and what is wrong with it is said
//! then.
//!
//! The blocks are parsed where they were read to and not kept: of an inode's block nothing is asked twice.

use std::ops::Deref;
use std::sync::Arc;

use nearside_fsview::{Error, Ino, Source};

use crate::crawler::Crawler;
use crate::media::Media;
use crate::monitor::Deps;
use crate::trace::TracePart;
use crate::view::{View, bump};

/// Blocks of one read: 64 KiB of F2FS's.
pub(crate) const MOST: usize = 16;

/// A block of a volume of which some blocks were read ahead.
#[derive(Clone)]
pub(crate) enum AheadBlock<'b> {
    Read(&'b [u8]),
    Other(Arc<[u8]>),
}

impl Deref for AheadBlock<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            AheadBlock::Read(bytes) => bytes,
            AheadBlock::Other(bytes) => bytes,
        }
    }
}

/// Such a volume. All other blocks come by the view.
struct Ahead<'v, 'a, M> {
    view: &'v View<'a, M>,
    /// Where in the volume they begin.
    from: u64,
    block_size: u32,
    bytes: &'v [u8],
    /// What each depends on: versions from before the read.
    deps: &'v [Deps],
}

impl<'v, M: Media> Source for Ahead<'v, '_, M> {
    type Block = AheadBlock<'v>;

    fn len(&self) -> u64 {
        self.view.len()
    }

    fn shows(&self, offset: u64) {
        self.view.shows(offset);
    }

    async fn pause(&self) {
        self.view.pause().await;
    }

    async fn metadata(&self, offset: u64, len: u32) -> Result<AheadBlock<'v>, Error> {
        let nth = offset.checked_sub(self.from).and_then(|at| at.checked_div(self.block_size.into()));
        let nth = nth.and_then(|nth| usize::try_from(nth).ok()).unwrap_or(usize::MAX);
        match (self.bytes.chunks_exact(self.block_size as usize).nth(nth), self.deps.get(nth)) {
            (Some(block), Some(deps)) if len == self.block_size && offset.is_multiple_of(len.into()) => {
                self.view.note(deps);
                Ok(AheadBlock::Read(block))
            }
            _ => self.view.metadata(offset, len).await.map(AheadBlock::Other),
        }
    }
}

impl<M: Media> Crawler<'_, M> {
    /// Reads the inodes of those numbers, as far as one read does it, and keeps them. For how many of the
    /// numbers this need not be asked again.
    pub(crate) async fn read_ahead(&self, inos: impl Iterator<Item = Ino>) -> usize {
        if self.retriever.config.inodes < 4 * MOST {
            // They would be gone before they are asked for.
            return usize::MAX;
        }
        let changes = self.retriever.monitor.changes();
        if !self.volume.holds(&self.retriever.monitor, self.media).await {
            return 1;
        }
        let view = self.view().of(TracePart::ReadInode, self.volume.volume.table());
        let mut run: Vec<Ino> = Vec::new();
        let (mut from, mut block_size) = (0, 0);
        for ino in inos.take(MOST) {
            if run.is_empty() && self.knows(ino) {
                return MOST;
            }
            match self.volume.volume.inode_block(&view, ino).await {
                Ok(None) if run.is_empty() => return usize::MAX,
                Ok(Some(block)) if run.is_empty() => (from, block_size) = block,
                Ok(Some(block)) if block == (from + run.len() as u64 * u64::from(block_size), block_size) => {
                }
                _ => break,
            }
            run.push(ino);
        }
        if run.len() > 1 {
            // Nothing of it is missed: who needs an inode that is not there reads it.
            let _ = self.read_run(&run, (from, block_size), changes).await;
        }
        run.len().max(1)
    }

    /// Reads and keeps the inodes of blocks that follow each other. `None`: not all of them.
    async fn read_run(&self, run: &[Ino], (from, block_size): (u64, u32), changes: u64) -> Option<()> {
        let (monitor, media) = (&self.retriever.monitor, self.media);
        let len = run.len() * block_size as usize;
        let end = from.checked_add(len as u64)?;
        let at = self.volume.offset.checked_add(from)?;
        let unit = u64::from(media.block_size().max(1));
        let whole = at.is_multiple_of(unit) && (len as u64).is_multiple_of(unit);
        if !whole || end > self.volume.len || at.checked_add(len as u64)? > media.len() {
            return None;
        }
        let mut deps = Vec::with_capacity(run.len());
        for nth in 0..run.len() as u64 {
            let mut of_block = Deps::default();
            let offset = at + nth * u64::from(block_size);
            monitor.watch(offset, block_size.into(), &mut of_block).ok()?;
            deps.push(of_block);
        }
        self.volume.reads(monitor, at, len as u64);
        let buffer = media.read(at, len).await.ok()?;
        bump(&self.tally.blocks_read, run.len() as u64);
        for &ino in run {
            media.yield_now().await;
            let _span = self.tally.span(TracePart::ParseInode, 1);
            let view = self.view().of(TracePart::ReadInode, self.volume.volume.table());
            let source = Ahead { view: &view, from, block_size, bytes: buffer.as_ref(), deps: &deps };
            let inode = self.volume.volume.inode(&source, ino).await;
            // Asked after it was read: a later state is known before it tells what it shows otherwise.
            if monitor.changes() != changes || !self.volume.is_newest() {
                // Of two times, perhaps.
                return None;
            }
            if let Ok(inode) = inode {
                bump(&self.tally.misses, 1);
                self.keep(ino, inode, view.into_deps(), changes);
            }
        }
        Some(())
    }
}
