//! The journal (jbd2): what a mount would bring to home locations first, found without writing a byte.
//!
//! [`recover`] reads the journal's superblock (`superblock`), walks the log from its tail to the last
//! transaction that is whole (`log`), and keeps where the newest committed copy of each block lies
//! (`overlay`). Whoever then asks for a block's home gets that copy. Fast commits, where the volume has them,
//! stand behind the log (`fast`) and say what to do: [`replay`] does it (`replay`, and `names`, `entries`,
//! `linear` and `index` for directories) and keeps the blocks that come of it and the extent trees of files
//! (`changes`, `tree`). The journal's own blocks are found by its inode as it lies at home: recovery never
//! moves them.
//! What the kernel does with each case is in its fs/jbd2/recovery.c and fs/ext4/fast_commit.c; where it would
//! refuse to mount for what the log holds, so does the view, naming the block, but for a block that is
//! missing of the last commit, where that did not wait for it (`log`).

use super::Volume;
use super::bytes::{be32, index};
use super::feature::{compat, incompat};
use crate::{Error, Ino, Inode, Recovery, Source};

mod changes;
mod entries;
mod fast;
mod index;
mod linear;
mod log;
mod names;
mod overlay;
mod replay;
mod superblock;
mod tree;

pub(crate) use overlay::Recovered;
pub(super) use overlay::{Overlay, extents_of};
use superblock::Superblock;

/// Begins every block of a log that is not a copy, and stands big-endian.
const MAGIC: u32 = 0xC03B_3998;

/// Kinds of blocks.
mod kind {
    pub(super) const DESCRIPTOR: u32 = 1;
    pub(super) const COMMIT: u32 = 2;
    pub(super) const SUPERBLOCK_V1: u32 = 3;
    pub(super) const SUPERBLOCK_V2: u32 = 4;
    pub(super) const REVOKE: u32 = 5;
}

/// The kind and the transaction of a block that has the magic.
fn header(block: &[u8]) -> Option<(u32, u32)> {
    (be32(block, 0)? == MAGIC).then_some(())?;
    Some((be32(block, 4)?, be32(block, 8)?))
}

/// What a journal holds beyond home locations.
pub(super) struct Found {
    /// The copies of its transactions.
    pub(super) overlay: Overlay,
    pub(super) recovery: Recovery,
    /// Where fast commits may follow them.
    pub(super) fast: Option<fast::Area>,
    /// What is to be said of it.
    pub(super) warning: Option<String>,
}

/// What the journal holds beyond home locations, and how much that is. `volume`: as it lies at home. `known`:
/// what an earlier look at it found, of which nothing is read again that still stands there.
pub(super) async fn recover<S: Source>(
    volume: &Volume,
    source: &S,
    known: Option<&Overlay>,
) -> Result<Found, Error> {
    let mut reader = reader(volume, source).await?;
    let (at, block) = reader.block(0).await?;
    let blocks = reader.inode.size.wrapping_shr(volume.sb.block_shift);
    let superblock = Superblock::parse(&block, at, volume.sb.block_size(), blocks)?;
    if superblock.start == 0 {
        return Ok(Found {
            overlay: Overlay::default(),
            recovery: Recovery::default(),
            fast: None,
            warning: None,
        });
    }
    let known = known.filter(|known| known.sums == superblock.sums).map(Overlay::committed);
    let found = log::scan(&mut reader, &superblock, known).await?;
    let transactions = u64::from(found.next.wrapping_sub(superblock.sequence));
    let up_to = if transactions == 0 { 0 } else { u64::from(found.next.wrapping_sub(1)) };
    let recovery = Recovery { transactions, up_to, ..Recovery::default() };
    let magic = volume.byte_of(reader.place(0).await?);
    let fast = superblock.fast.map(|(first, end)| fast::Area { first, end, tid: found.next });
    let warning = found.lacks_a_block.then(|| {
        format!(
            "transaction {} is committed and lacks a block (journal_async_commit): a mount refuses the volume; \
             shown is what it was before",
            found.next
        )
    });
    let overlay = Overlay::new(found, superblock.sums, volume.sb.block_shift, magic, fast.is_some());
    Ok(Found { overlay, recovery, fast, warning })
}

/// Does what fast commits say, on top of the log's transactions; how many there are. `home`: the volume as it
/// lies at home, by which the journal is found; `volume`: with the log's transactions.
pub(super) async fn replay<S: Source>(
    home: &Volume,
    volume: &mut Volume,
    source: &S,
    area: fast::Area,
) -> Result<u64, Error> {
    let mut reader = reader(home, source).await?;
    let live = fast::scan(&mut reader, area, usize::from(volume.sb.inode_size)).await?;
    let mut replay = replay::Replay::new(volume, source);
    let mut left = live.tags;
    for nr in area.first..area.end {
        if left == 0 {
            break;
        }
        let (at, block) = reader.block(nr).await?;
        for (tag, value) in fast::Tags::new(&block).take(index(left)) {
            left = left.wrapping_sub(1); // of at least as many as are taken
            replay.apply(at, tag, value).await?;
        }
    }
    Ok(live.commits)
}

/// The journal's blocks, found by its inode.
async fn reader<'a, S: Source>(volume: &'a Volume, source: &'a S) -> Result<Reader<'a, S>, Error> {
    let place = volume.sb.journal;
    if place.inode == 0 && place.device == 0 {
        return Err(corrupt("there is none, and it is needed", super::superblock::AT));
    }
    if place.inode == 0 {
        let uuid: String = place.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let what =
            format!("an external journal that needs recovery: device {:#x}, UUID {uuid}", place.device);
        return Err(Error::Unsupported(what));
    }
    let raw = volume.raw_inode(source, Ino(place.inode)).await.map_err(|error| within("its inode", error))?;
    let parsed = volume.parse_inode(&raw, Ino(place.inode), false);
    let inode = parsed.unwrap_or_else(|| Err(raw.corrupt("its inode is cut short".into())));
    let inode = inode.map_err(|error| within("its inode", error))?;
    if inode.kind != crate::FileKind::Regular {
        return Err(within("its inode", raw.corrupt(format!("inode {} is no regular file", place.inode))));
    }
    Ok(Reader { volume, source, inode, run: (0, 0, 0) })
}

/// Whether a mount would read the journal first.
pub(super) fn needed(sb: &super::Superblock) -> bool {
    sb.features.incompat(incompat::RECOVER) && sb.features.compat(compat::HAS_JOURNAL)
}

/// The same error, of the journal.
fn within(what: &str, error: Error) -> Error {
    match error {
        Error::Corrupt { what: said, at } => Error::Corrupt { what: format!("journal: {what}: {said}"), at },
        other => other,
    }
}

fn corrupt(what: impl std::fmt::Display, at: u64) -> Error {
    Error::Corrupt { what: format!("journal: {what}"), at }
}

/// The journal's blocks, by their numbers in it.
struct Reader<'a, S> {
    volume: &'a Volume,
    source: &'a S,
    inode: Inode,
    /// The run that was found last: first block in the journal, first block in the volume, blocks.
    run: (u64, u64, u64),
}

impl<S: Source> Reader<'_, S> {
    /// The volume's block that holds a block of the journal.
    async fn place(&mut self, nr: u32) -> Result<u64, Error> {
        let nr = u64::from(nr);
        let (from, start, blocks) = self.run;
        if let Some(inside) = nr.checked_sub(from).filter(|inside| *inside < blocks) {
            return Ok(start.wrapping_add(inside)); // checked by `span` to be of the volume
        }
        let body = super::body(&self.inode)?;
        let span = self.volume.span(self.source, &self.inode, body, nr).await;
        let span = span.map_err(|error| within("its inode", error))?;
        let start = span.start.ok_or_else(|| corrupt(format!("its block {nr} is a hole"), body.at))?;
        self.run = (nr, start, span.blocks);
        Ok(start)
    }

    /// Whether a power cut would leave the block at that byte of the volume as it is.
    fn is_durable(&self, at: u64) -> bool {
        self.source.is_durable(at, self.volume.sb.block_size().into())
    }

    /// A block of the journal, and the byte of the volume at which it lies.
    async fn block(&mut self, nr: u32) -> Result<(u64, S::Block), Error> {
        let place = self.place(nr).await?;
        let block = self.volume.block(self.source, place, "journal").await?;
        Ok((self.volume.byte_of(place), block))
    }
}
