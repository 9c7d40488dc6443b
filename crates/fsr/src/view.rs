//! The crawler's eyes: metadata blocks from the cache or the store, each noted as what the answer depends on.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nearside_fsview::{Error, Source};

use crate::Retriever;
use crate::cache::hash;
use crate::crawler::OpenVolume;
use crate::media::Media;
use crate::monitor::Deps;
use crate::trace::{Span, Trace, TracePart};

/// What one request has cost so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub blocks_read: AtomicU64,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub trace: Option<Arc<Trace>>,
    /// Of all requests ([`crate::Retriever::scanned`]).
    pub scanned: Option<Arc<AtomicU64>>,
}

impl Tally {
    /// So many more bytes of file data are seen.
    #[inline]
    pub fn saw(&self, bytes: u64) {
        if let Some(scanned) = &self.scanned {
            scanned.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// A part of the work begins, which ends when the span is dropped.
    #[inline]
    pub fn span(&self, part: TracePart, units: u64) -> Option<Span<'_>> {
        self.trace.as_ref().map(|trace| trace.begin(part, units))
    }
}

pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    // One command's counters are touched by one thread at a time.
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// A metadata block as it was read.
#[derive(Debug)]
pub(crate) struct Block {
    pub offset: u64,
    pub bytes: Arc<[u8]>,
    pub deps: Deps,
    /// The monitor's count of changes up to which the block is known to be good.
    pub checked: u64,
}

/// Up to where a volume's log is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upto {
    /// What its host has flushed.
    Durable,
    /// All that is written.
    Written,
}

/// A volume's metadata, through the cache; it collects on which blocks what is read through it depends.
pub(crate) struct View<'a, M> {
    retriever: &'a Retriever,
    media: &'a M,
    tally: &'a Tally,
    base: u64,
    len: u64,
    part: TracePart,
    /// The volume's table of inodes' places; empty where it is not known yet.
    table: Range<u64>,
    /// Whether it counts what the volume shows: not while that is made of what is read.
    shown: bool,
    /// Up to where logs are taken in.
    upto: Upto,
    /// Whether some of a log was not.
    held_back: AtomicBool,
    /// The state of the volume that is read through it.
    volume: Option<&'a OpenVolume>,
    deps: Mutex<Deps>,
}

impl<'a, M: Media> View<'a, M> {
    /// Over `len` bytes at `base` of the namespace.
    pub(crate) fn new(
        retriever: &'a Retriever,
        media: &'a M,
        tally: &'a Tally,
        base: u64,
        len: u64,
    ) -> View<'a, M> {
        View {
            retriever,
            media,
            tally,
            base,
            len,
            part: TracePart::ReadInode,
            table: 0..0,
            shown: true,
            upto: Upto::Written,
            held_back: AtomicBool::new(false),
            volume: None,
            deps: Mutex::default(),
        }
    }

    /// Of an open volume.
    pub(crate) fn of_volume(
        retriever: &'a Retriever,
        media: &'a M,
        tally: &'a Tally,
        volume: &'a OpenVolume,
    ) -> View<'a, M> {
        let view = View::new(retriever, media, tally, volume.offset, volume.len);
        View { volume: Some(volume), ..view }
    }

    /// For reads of a kind; `table` are the bytes of the volume that are a kind of their own.
    pub(crate) fn of(self, part: TracePart, table: Range<u64>) -> View<'a, M> {
        View { part, table, ..self }
    }

    /// For opening a volume: how it shows its blocks depends on the bytes that are read, and on nothing else.
    pub(crate) fn opening(self, upto: Upto) -> View<'a, M> {
        View { shown: false, upto, ..self }
    }

    /// Whether some of a log was written and is not flushed, and so was not taken in.
    pub(crate) fn held_back(&self) -> bool {
        self.held_back.load(Ordering::Relaxed)
    }

    /// What was read through it.
    pub(crate) fn into_deps(self) -> Deps {
        self.deps.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    /// What was read through it, so far.
    pub(crate) fn deps(&self) -> Deps {
        self.deps.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Something that was read past it, and depends on that, counts as read through it.
    pub(crate) fn note(&self, deps: &Deps) {
        self.deps.lock().unwrap_or_else(|e| e.into_inner()).extend(deps);
    }
}

impl<M: Media> Source for View<'_, M> {
    type Block = Arc<[u8]>;

    fn shows(&self, offset: u64) {
        let Some(at) = self.base.checked_add(offset).filter(|_| self.shown) else { return };
        let retriever = self.retriever;
        let mut deps = Deps::default();
        if retriever.monitor.watch_shown(at, &mut deps).is_err() {
            retriever.forget();
            // What was noted before is of another generation now, and read again.
            let _ = retriever.monitor.watch_shown(at, &mut deps);
        }
        self.note(&deps);
    }

    fn is_durable(&self, offset: u64, len: u64) -> bool {
        let Some(at) = self.base.checked_add(offset) else { return false };
        let monitor = &self.retriever.monitor;
        if self.upto == Upto::Written || monitor.is_durable(at, len) {
            return true;
        }
        let mut deps = Deps::default();
        if monitor.watch_flushes(&mut deps).is_err() {
            self.retriever.forget();
            let _ = monitor.watch_flushes(&mut deps);
        }
        self.note(&deps);
        // Its flush may have ended before it was watched for.
        let durable = monitor.is_durable(at, len);
        if !durable {
            self.held_back.store(true, Ordering::Relaxed);
        }
        durable
    }

    fn len(&self) -> u64 {
        self.len
    }

    async fn pause(&self) {
        self.media.yield_now().await;
    }

    async fn metadata(&self, offset: u64, len: u32) -> Result<Arc<[u8]>, Error> {
        let fail = |reason: &str| Error::Read { at: offset, len, reason: reason.to_owned() };
        let size = len as usize;
        let end = offset.checked_add(len.into()).filter(|end| *end <= self.len);
        let (Some(_), Some(at)) = (end, self.base.checked_add(offset)) else {
            return Err(fail("it lies outside the volume"));
        };
        // Whatever loops over metadata, and whether the cache has it: each block is a piece of work.
        self.media.yield_now().await;
        let part = if self.table.contains(&offset) { TracePart::ReadTable } else { self.part };
        let _span = self.tally.span(part, 1);
        let retriever = self.retriever;
        let is_read = || {
            if let Some(volume) = self.volume {
                volume.reads(&retriever.monitor, at, len.into());
            }
        };
        let key = hash(retriever.seed, at, &[]);
        let is = |b: &Block| b.offset == at && b.bytes.len() == size;
        let changes = retriever.monitor.changes();
        {
            let mut caches = retriever.caches();
            if let Some((slot, block)) = caches.blocks.find(key, is) {
                if block.checked == changes || retriever.monitor.holds(&block.deps) {
                    block.checked = changes;
                    self.note(&block.deps);
                    is_read();
                    return Ok(block.bytes.clone());
                }
                caches.blocks.remove(slot);
            }
        }
        let mut deps = Deps::default();
        if retriever.monitor.watch(at, len.into(), &mut deps).is_err() {
            retriever.forget_yielding(self.media).await;
            deps = Deps::default();
            if retriever.monitor.watch(at, len.into(), &mut deps).is_err() {
                return Err(fail("the monitor cannot watch it"));
            }
        }
        let bytes: Arc<[u8]> = read_bytes(self.media, at, size).await.map_err(|reason| fail(&reason))?;
        // After it is watched: of a write before that it is known, and one after that makes it out of date.
        is_read();
        bump(&self.tally.blocks_read, 1);
        self.note(&deps);
        let mut caches = retriever.caches();
        if let Some((slot, _)) = caches.blocks.find(key, is) {
            caches.blocks.remove(slot);
        }
        let (weight, most) = (size + 128, retriever.config.block_bytes);
        if weight <= most {
            caches.blocks.insert(
                key,
                weight,
                Block { offset: at, bytes: bytes.clone(), deps, checked: changes },
            );
        }
        Ok(bytes)
    }
}

/// Any bytes of the namespace, by whole blocks of the medium.
pub(crate) async fn read_bytes<M: Media>(media: &M, offset: u64, len: usize) -> Result<Arc<[u8]>, String> {
    let unit = u64::from(media.block_size().max(1));
    let from = offset / unit * unit;
    let to = offset.saturating_add(len as u64).next_multiple_of(unit);
    if to > media.len() {
        return Err("it lies outside the namespace".to_owned());
    }
    let buffer = media.read(from, (to - from) as usize).await.map_err(|e| e.0)?;
    let start = (offset - from) as usize;
    match buffer.as_ref().get(start..start + len) {
        Some(bytes) => Ok(bytes.into()),
        None => Err("the store returned fewer bytes".to_owned()),
    }
}
