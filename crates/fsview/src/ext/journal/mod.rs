//! The journal (jbd2): what a mount would bring to home locations first, found without writing a byte.
//!
//! [`recover`] reads the journal's superblock (`superblock`), walks the log from its tail to the last
//! transaction that is whole (`log`), and keeps where the newest committed copy of each block lies
//! (`overlay`). Whoever then asks for a block's home gets that copy. The journal's own blocks are found by
//! its inode as it lies at home: recovery never moves them. What the kernel does with each case is in its
//! fs/jbd2/recovery.c; where it would refuse to mount, so does the view, naming the block.

use super::Volume;
use super::bytes::be32;
use super::feature::{compat, incompat};
use crate::{Error, Ino, Inode, Recovery, Source};

mod fast;
mod log;
mod overlay;
mod superblock;

pub(super) use overlay::Overlay;
pub(crate) use overlay::Recovered;
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

/// What the journal holds beyond home locations, and how much that is. `volume`: as it lies at home.
pub(super) async fn recover<S: Source>(volume: &Volume, source: &S) -> Result<(Overlay, Recovery), Error> {
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
    let parsed = volume.parse_inode(&raw, Ino(place.inode));
    let inode = parsed.unwrap_or_else(|| Err(raw.corrupt("its inode is cut short".into())));
    let inode = inode.map_err(|error| within("its inode", error))?;
    if inode.kind != crate::FileKind::Regular {
        return Err(within("its inode", raw.corrupt(format!("inode {} is no regular file", place.inode))));
    }
    let mut reader = Reader { volume, source, inode, run: (0, 0, 0) };

    let (at, block) = reader.block(0).await?;
    let blocks = reader.inode.size.wrapping_shr(volume.sb.block_shift);
    let superblock = Superblock::parse(&block, at, volume.sb.block_size(), blocks)?;
    if superblock.start == 0 {
        return Ok((Overlay::default(), Recovery::default()));
    }
    let found = log::scan(&mut reader, &superblock).await?;
    let live = fast::live(&mut reader, &superblock, found.next).await?;
    if live > 0 {
        let what = format!("fast_commit: {live} fast commits follow the last transaction");
        return Err(Error::Unsupported(what));
    }
    let up_to = if found.transactions == 0 { 0 } else { u64::from(found.next.wrapping_sub(1)) };
    let recovery = Recovery { transactions: found.transactions, up_to, ..Recovery::default() };
    let magic = volume.byte_of(reader.place(0).await?);
    Ok((Overlay::new(found.copies, superblock.sums, volume.sb.block_shift, magic), recovery))
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

    /// A block of the journal, and the byte of the volume at which it lies.
    async fn block(&mut self, nr: u32) -> Result<(u64, S::Block), Error> {
        let place = self.place(nr).await?;
        let block = self.volume.block(self.source, place, "journal").await?;
        Ok((self.volume.byte_of(place), block))
    }
}
