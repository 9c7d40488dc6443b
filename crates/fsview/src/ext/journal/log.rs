//! The walk along the log: which transactions are committed, and where the newest copy of each block lies.
//!
//! The walk ends where the kernel's does: at the first block that does not belong to the transaction that is
//! due; and before a transaction that its host has not flushed yet, where that is known
//! ([`Source::is_durable`]). It holds at most one entry for each block of the log, and goes round it once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::bytes::{be16, be32, be64, halves, index};
use super::super::csum::crc32_be;
use super::superblock::{Sums, Superblock};
use super::{Reader, corrupt, header, kind};
use crate::pace::Pace;
use crate::{Error, Source};

/// Flags of a tag.
mod flag {
    pub(super) const ESCAPED: u16 = 1;
    pub(super) const SAME_UUID: u16 = 2;
    pub(super) const LAST: u16 = 8;
}

/// Bytes of a commit block that are written; behind them are zeros.
const COMMIT_LEN: usize = 64;
/// Where a commit block has its checksum.
const COMMIT_SUM: usize = 16;

/// The copy of a block in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoggedBlock {
    /// The volume's block that holds it.
    pub(super) at: u64,
    /// The transaction.
    pub(super) tid: u32,
    /// The checksum in its tag.
    pub(super) sum: u32,
    /// Whether its first four bytes, the magic, were zeroed.
    pub(super) escaped: bool,
}

/// What a log holds.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// By the blocks' homes.
    pub(super) copies: BTreeMap<u64, LoggedBlock>,
    /// The transaction that would be next.
    pub(super) next: u32,
    /// The last commit block: where it is in the journal, and what it holds. None where there is none.
    last: Option<LastCommit>,
    /// Of what walk from the log's tail on it is, with those that went on behind it.
    walk: u64,
    /// Homes that the last walk met, copied or revoked.
    pub(super) touched: Vec<u64>,
    /// Whether the transaction that would be next is committed and lacks a block: a commit that did not wait
    /// for what it commits. The kernel refuses a volume with such a one.
    pub(super) lacks_a_block: bool,
}

/// Walks so far that began at a log's tail.
static WALKS: AtomicU64 = AtomicU64::new(1);

/// The block that ends the last transaction: a log that still has it there goes on behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LastCommit {
    nr: u32,
    block: Box<[u8]>,
    /// Seconds.
    time: u64,
}

impl Committed {
    /// Of a log that begins there.
    fn at_start(log: &Superblock) -> Committed {
        let walk = WALKS.fetch_add(1, Ordering::Relaxed);
        Committed { next: log.sequence, walk, ..Committed::default() }
    }

    /// What is left of it in a log of which transactions before `tail` have reached home locations.
    async fn from<S: Source>(&self, tail: u32, source: &S) -> Committed {
        let pace = &mut Pace::new(source);
        let mut copies = BTreeMap::new();
        for (home, copy) in &self.copies {
            pace.step().await;
            if !later(tail, copy.tid) {
                copies.insert(*home, *copy);
            }
        }
        let (touched, lacks_a_block) = (Vec::new(), false);
        Committed {
            copies,
            next: self.next,
            last: self.last.clone(),
            walk: self.walk,
            touched,
            lacks_a_block,
        }
    }

    /// Whether it is what the other was, and what the log went on with.
    pub(super) fn follows(&self, other: &Committed) -> bool {
        self.walk == other.walk && !later(other.next, self.next)
    }

    /// Whether the log holds all of it, but for what stands before its tail.
    async fn stands<S: Source>(&self, reader: &mut Reader<'_, S>, log: &Superblock) -> Result<bool, Error> {
        let Some(last) = &self.last else { return Ok(false) };
        if !(log.first..log.end).contains(&last.nr) || later(log.sequence, self.next) {
            return Ok(false);
        }
        let (_, block) = reader.block(last.nr).await?;
        Ok(*block == *last.block)
    }
}

/// `a` is later than `b`; numbers go round.
fn later(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

/// A transaction that is not known to be committed yet.
struct Open {
    /// Copies, by their homes, in the log's order.
    copies: Vec<(u64, LoggedBlock)>,
    /// The volume's blocks that hold its revokes.
    revokes: Vec<u64>,
    /// CRC32 of all, for the first kind of checksums.
    crc: u32,
    /// The byte of a descriptor or revoke block whose checksum does not match: it may be of an older log.
    doubtful: Option<u64>,
    /// Whether a power cut may still take one of its blocks away.
    volatile: bool,
}

impl Open {
    fn new() -> Open {
        Open { copies: Vec::new(), revokes: Vec::new(), crc: u32::MAX, doubtful: None, volatile: false }
    }
}

/// What a commit block means.
enum Verdict {
    Committed,
    /// It is of an older log, or was being written.
    End,
    /// The transaction was being written, unless another follows.
    Torn,
}

struct Walk<'r, 'v, S> {
    reader: &'r mut Reader<'v, S>,
    log: &'r Superblock,
    /// The block that is next.
    at: u32,
    found: Committed,
    /// Revoke blocks of committed transactions.
    revokes: Vec<(u64, u32)>,
    /// Time of the last commit, in seconds.
    time: u64,
    /// The byte of the commit block of a transaction that was being written.
    torn: Option<u64>,
}

/// Finds what the log has committed. `known`: what was found before, behind which the walk goes on where the
/// log still has it.
pub(super) async fn scan<S: Source>(
    reader: &mut Reader<'_, S>,
    log: &Superblock,
    known: Option<&Committed>,
) -> Result<Committed, Error> {
    let (mut found, mut at, mut time) = (Committed::at_start(log), log.start, 0);
    if let Some(known) = known
        && known.stands(reader, log).await?
        && let Some(last) = &known.last
    {
        found = known.from(log.sequence, reader.source).await;
        (at, time) = (log.after(last.nr), last.time);
    }
    let mut walk = Walk { reader, log, at, found, revokes: Vec::new(), time, torn: None };
    walk.forward().await?;
    walk.revoke().await?;
    // One checksum for all of a transaction does not hold for one that is being written either.
    walk.found.lacks_a_block = walk.torn.is_some() && log.sums.seed().is_some();
    Ok(walk.found)
}

impl<S: Source> Walk<'_, '_, S> {
    /// Goes on by a block; the one that was next.
    fn step(&mut self) -> u32 {
        let after = self.log.after(self.at);
        std::mem::replace(&mut self.at, after)
    }

    async fn forward(&mut self) -> Result<(), Error> {
        let room = self.log.end.wrapping_sub(self.log.first);
        let (mut walked, mut open, mut due) = (0u32, Open::new(), self.found.next);
        // Once round, and then the block at which it began.
        while walked <= room {
            let nr = self.step();
            let (at, block) = self.reader.block(nr).await?;
            walked = walked.saturating_add(1);
            let Some((kind, _)) = header(&block).filter(|(_, tid)| *tid == due) else { return Ok(()) };
            open.volatile |= !self.reader.is_durable(at);
            match kind {
                kind::DESCRIPTOR => {
                    walked = walked.saturating_add(self.descriptor(due, at, &block, &mut open).await?);
                }
                kind::REVOKE => {
                    self.doubt(at, &block, &mut open);
                    open.revokes.push(at.wrapping_shr(self.reader.volume.sb.block_shift));
                }
                kind::COMMIT => {
                    if let Some(torn) = self.torn {
                        let what =
                            format!("transaction {} is damaged, and not the last", due.wrapping_sub(1));
                        return Err(corrupt(what, torn));
                    }
                    let done = std::mem::replace(&mut open, Open::new());
                    if done.volatile {
                        return Ok(());
                    }
                    match self.commit(due, at, &block, &done).await? {
                        Verdict::End => return Ok(()),
                        Verdict::Torn => self.torn = Some(at),
                        Verdict::Committed => {
                            self.take(due, at, done).await?;
                            let block = Box::from(&*block);
                            self.found.last = Some(LastCommit { nr, block, time: self.time });
                        }
                    }
                    due = due.wrapping_add(1);
                }
                _ => return Ok(()),
            }
        }
        let at = self.reader.volume.byte_of(self.reader.place(self.log.start).await?);
        Err(corrupt(format!("transaction {due} has no end in a log of {room} blocks"), at))
    }

    fn doubt(&self, at: u64, block: &[u8], open: &mut Open) {
        let tail = block.len().saturating_sub(self.log.sums.tail());
        if !self.log.sums.block_holds(block, tail) {
            open.doubtful.get_or_insert(at);
        }
    }

    /// Notes the copies that follow a descriptor; how many blocks they are.
    async fn descriptor(&mut self, tid: u32, at: u64, block: &[u8], open: &mut Open) -> Result<u32, Error> {
        self.doubt(at, block, open);
        let sums = self.log.sums == Sums::V1 && self.torn.is_none();
        if sums {
            open.crc = crc32_be(open.crc, block);
        }
        let mut blocks = 0u32;
        let room = self.log.end.wrapping_sub(self.log.first);
        for tag in Tags::new(self.log, block) {
            let nr = self.step();
            blocks = blocks.wrapping_add(1); // at most a block's bytes
            // More than the log holds: the walk ends behind this descriptor.
            if blocks > room {
                break;
            }
            let place = self.reader.place(nr).await?;
            open.volatile |= !self.reader.is_durable(self.reader.volume.byte_of(place));
            if sums {
                let (_, copy) = self.reader.block(nr).await?;
                open.crc = crc32_be(open.crc, &copy);
            }
            let copy = LoggedBlock { at: place, tid, sum: tag.sum, escaped: tag.flags & flag::ESCAPED != 0 };
            open.copies.push((tag.home, copy));
        }
        Ok(blocks)
    }

    /// Judges a commit block as the kernel does (`do_one_pass`, PASS_SCAN).
    async fn commit(&mut self, tid: u32, at: u64, block: &[u8], open: &Open) -> Result<Verdict, Error> {
        let time = be64(block, 48).unwrap_or(0);
        let older = time < self.time;
        if let Some(doubtful) = open.doubtful {
            // What the checksum does not match may be left of an older log: then the commit is older, too.
            return match older {
                true => Ok(Verdict::End),
                false => {
                    Err(corrupt(format!("a block's checksum in transaction {tid} does not match"), doubtful))
                }
            };
        }
        let holds = match self.log.sums {
            Sums::V1 => v1_holds(block, open.crc),
            sums => {
                // A commit block of which only the first sector was written.
                let mut first = vec![0; block.len()];
                if let (Some(to), Some(from)) = (first.get_mut(..COMMIT_LEN), block.get(..COMMIT_LEN)) {
                    to.copy_from_slice(from);
                }
                sums.block_holds(block, COMMIT_SUM) || sums.block_holds(&first, COMMIT_SUM)
            }
        };
        if !holds {
            return match (older, self.log.async_commit, self.log.sums) {
                (true, ..) => Ok(Verdict::End),
                (_, true, Sums::V1) => Ok(Verdict::Torn),
                (_, true, _) => Ok(Verdict::End),
                _ => Err(corrupt(format!("the checksum of transaction {tid}'s commit does not match"), at)),
            };
        }
        if self.log.async_commit && self.log.sums.seed().is_some() {
            // The commit was not written after what it commits: that may be missing.
            for (_, copy) in &open.copies {
                let bytes = self.reader.volume.block(self.reader.source, copy.at, "journal").await?;
                if !self.log.sums.copy_holds(tid, &bytes, copy.sum) {
                    return Ok(Verdict::Torn);
                }
            }
        }
        self.time = time;
        Ok(Verdict::Committed)
    }

    /// Takes in a transaction that is committed.
    async fn take(&mut self, tid: u32, at: u64, open: Open) -> Result<(), Error> {
        let pace = &mut Pace::new(self.reader.source);
        // Not those that the superblock at home counts: the volume may have grown.
        let blocks = self.reader.source.len().wrapping_shr(self.reader.volume.sb.block_shift);
        for (home, copy) in open.copies {
            pace.step().await;
            if home >= blocks {
                let what = format!("transaction {tid} has block {home} of a volume of {blocks} blocks");
                return Err(corrupt(what, at));
            }
            self.found.copies.insert(home, copy);
            self.found.touched.push(home);
        }
        self.revokes.extend(open.revokes.into_iter().map(|place| (place, tid)));
        self.found.next = tid.wrapping_add(1);
        Ok(())
    }

    /// Takes away the copies that a revoke of the same transaction or a later one makes void.
    async fn revoke(&mut self) -> Result<(), Error> {
        let volume = self.reader.volume;
        let number = if self.log.wide { 8 } else { 4 };
        let pace = &mut Pace::new(self.reader.source);
        for (place, tid) in std::mem::take(&mut self.revokes) {
            let block = volume.block(self.reader.source, place, "journal").await?;
            let used = be32(&block, 12).map_or(usize::MAX, |used| index(used.into()));
            let room = block.len().saturating_sub(self.log.sums.tail());
            if used > room {
                let what = format!("a revoke block of {used} bytes in transaction {tid}");
                return Err(corrupt(what, volume.byte_of(place)));
            }
            for home in block.get(16..used).unwrap_or(&[]).chunks_exact(number) {
                let home = if self.log.wide { be64(home, 0) } else { be32(home, 0).map(u64::from) };
                let Some(home) = home else { continue };
                self.found.touched.push(home);
                pace.step().await;
                if self.found.copies.get(&home).is_some_and(|copy| !later(copy.tid, tid)) {
                    self.found.copies.remove(&home);
                }
            }
        }
        Ok(())
    }
}

/// Whether a commit block has the CRC32 of its transaction, or none.
fn v1_holds(block: &[u8], crc: u32) -> bool {
    let (kind, size, stored) = (block.get(12), block.get(13), be32(block, COMMIT_SUM));
    match (kind, size, stored) {
        (Some(1), Some(4), Some(stored)) => stored == crc,
        (Some(0), Some(0), Some(stored)) => stored == 0,
        _ => false,
    }
}

/// What a descriptor says of one copy.
struct Tag {
    home: u64,
    flags: u16,
    sum: u32,
}

/// The tags of a descriptor block.
struct Tags<'a> {
    log: &'a Superblock,
    /// Those that follow; empty behind the last.
    rest: &'a [u8],
}

impl<'a> Tags<'a> {
    fn new(log: &'a Superblock, block: &'a [u8]) -> Tags<'a> {
        let end = block.len().saturating_sub(log.sums.tail());
        Tags { log, rest: block.get(12..end).unwrap_or(&[]) }
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let (tag, rest) = self.rest.split_at_checked(self.log.tag_len())?;
        let flags = be16(tag, 6)?;
        let high = if self.log.wide { be32(tag, 8)? } else { 0 };
        let home = halves(be32(tag, 0)?, high);
        let uuid = if flags & flag::SAME_UUID == 0 { 16 } else { 0 };
        self.rest = match flags & flag::LAST {
            0 => rest.get(uuid..).unwrap_or(&[]),
            _ => &[],
        };
        Some(Tag { home, flags, sum: self.log.tag_sum(tag)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{SLICE, still};

    /// Nobody waits for a full journal to be taken on from commit to commit.
    #[test]
    fn what_is_taken_on_is_taken_in_slices() {
        let copy = |tid| LoggedBlock { at: 1, tid, sum: 0, escaped: false };
        let copies = (0..32_000u32).map(|home| (home.into(), copy(home % 10))).collect();
        let known = Committed { copies, next: 10, touched: vec![1], ..Committed::default() };
        let source = still::Still::default();
        let left = still::now(known.from(4, &source));
        assert!(left.copies.iter().all(|(home, copy)| home % 10 == u64::from(copy.tid) && copy.tid >= 4));
        assert_eq!((left.copies.len(), left.next, left.touched.len()), (19_200, 10, 0));
        assert!(source.pauses.get() >= 32_000 / SLICE, "{}", source.pauses.get());
    }
}
