//! From a byte of a file to where it lies, whichever way the inode keeps that; and links, whose content is so
//! found.

use super::bytes::index;
use super::feature::{incompat, ro_compat};
use super::inode::Body;
use super::journal::extents_of;
use super::{Volume, body};
use crate::{Error, FileKind, Inode, Run, RunPlace, Source, name};

/// Consecutive blocks of a file, from the one that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// How many; at least one.
    pub(super) blocks: u64,
    /// The volume's block that holds the first of them; `None` for a hole or unwritten blocks.
    pub(super) start: Option<u64>,
}

/// Beyond what a file can map.
pub(super) const HOLE_TO_THE_END: Span = Span { blocks: u64::MAX, start: None };

impl Volume {
    /// The run of a file, directory or link that begins at byte `from`.
    pub(super) async fn run<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        body: &Body,
        from: u64,
    ) -> Result<Option<Run>, Error> {
        if body.is_encrypted() {
            return Err(Error::Unsupported(format!("encrypt: inode {} is encrypted", inode.ino.0)));
        }
        let Some(left) = inode.size.checked_sub(from).filter(|left| *left > 0) else { return Ok(None) };
        if body.is_inline() {
            return Ok(Some(match body.inline_len.checked_sub(from).filter(|here| *here > 0) {
                Some(here) => Run { from, len: left.min(here), place: RunPlace::Inline },
                None => Run { from, len: left, place: RunPlace::Zeros },
            }));
        }
        let shift = self.sb.block_shift;
        let span = self.span(source, inode, body, from.wrapping_shr(shift)).await?;
        let inside = from & u64::from(self.sb.block_size().wrapping_sub(1));
        // A span that overflows 64 bits of bytes reaches past any file.
        let bytes =
            if span.blocks.leading_zeros() > shift { span.blocks.wrapping_shl(shift) } else { u64::MAX };
        let len = bytes.saturating_sub(inside).min(left);
        let place = match span.start {
            Some(block) => RunPlace::Volume(self.byte_of(block).wrapping_add(inside)),
            None => RunPlace::Zeros,
        };
        Ok(Some(Run { from, len, place }))
    }

    /// Where a file's block and its successors lie, checked to be within the volume.
    pub(super) async fn span<S: Source>(
        &self,
        source: &S,
        inode: &Inode,
        body: &Body,
        block: u64,
    ) -> Result<Span, Error> {
        if body.has_extents() && self.overlay.is_fast() {
            source.shows(extents_of(inode.ino.0));
        }
        let replayed = match body.has_extents() {
            true => self.overlay.replayed(inode.ino.0, block)?,
            false => None,
        };
        // Blocks that a directory has grown by are in memory, behind the volume's last.
        let grown = replayed.is_some() && inode.kind == FileKind::Directory;
        let span = match replayed {
            Some(span) => span,
            None if body.has_extents() => self.extent_span(source, inode.ino.0, body, block).await?,
            None => self.mapped_span(source, inode.ino.0, body, block).await?,
        };
        if let Some(start) = span.start
            && !grown
            && !self.holds(start, span.blocks)
        {
            let what = format!(
                "inode {}: block {block} and {} more at block {start}, the volume has {} blocks",
                inode.ino.0,
                span.blocks.saturating_sub(1),
                self.sb.blocks
            );
            return Err(Error::Corrupt { what, at: body.at });
        }
        Ok(span)
    }

    /// Whether the volume has these blocks, behind its superblock.
    fn within(&self, start: u64, blocks: u64) -> bool {
        start > u64::from(self.sb.first_data_block)
            && start.checked_add(blocks).is_some_and(|end| end <= self.sb.blocks)
    }

    /// Whether blocks of a file can lie there: within the volume, and clear of the superblock's copies, the
    /// group descriptors and the room behind them for more. (Where a group's bitmaps and inodes lie its
    /// descriptor says, whose block changes with every allocation: a mapping is not to depend on that.)
    pub(super) fn holds(&self, start: u64, blocks: u64) -> bool {
        self.within(start, blocks) && !self.sb.is_reserved(start, blocks)
    }

    /// What is wrong with the map in an inode: the kernel takes no inode with a bad one.
    pub(super) fn check_map(&self, inode: &Inode, body: &Body) -> Result<(), String> {
        let mapped = match inode.kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => !self.is_short_link(inode, body),
            _ => false,
        };
        if body.attribute_block != 0 && !self.holds(body.attribute_block, 1) {
            return Err(format!("its attribute block is block {} of the volume", body.attribute_block));
        }
        let largest = self.largest_file(body.has_extents());
        if inode.size > largest {
            return Err(format!("a size of {} bytes, of which {largest} can be mapped", inode.size));
        }
        if !mapped || body.is_inline() {
            return Ok(());
        }
        match body.has_extents() {
            true => self.check_extent_root(&body.map),
            false => self.check_direct(&body.map),
        }
    }

    /// Most bytes that a regular file can have.
    fn largest_file(&self, extents: bool) -> u64 {
        let pointers = u64::from(self.sb.block_size()).wrapping_shr(2);
        let squared = pointers.wrapping_mul(pointers);
        let mapped = match extents {
            true => super::extent::FILE_BLOCKS,
            // Of blocks of 64 KiB: 2^42 and less.
            false => {
                squared.wrapping_mul(pointers).wrapping_add(squared).wrapping_add(pointers).wrapping_add(12)
            }
        };
        // Without huge_file a file's sectors are counted in 32 bits, and the kernel holds its size to that.
        let counted = match self.sb.features.ro_compat(ro_compat::HUGE_FILE) {
            true => u64::MAX,
            false => u64::from(u32::MAX).wrapping_shr(self.sb.block_shift.wrapping_sub(9)),
        };
        mapped.min(counted).wrapping_shl(self.sb.block_shift)
    }

    /// The target of a symbolic link: in the inode where it is short and has no blocks,
    /// else inline or in one block.
    pub(crate) async fn read_link<S: Source>(&self, source: &S, inode: &Inode) -> Result<Vec<u8>, Error> {
        if inode.kind != FileKind::Symlink {
            return Err(Error::WrongKind);
        }
        let body = body(inode)?;
        if body.is_encrypted() {
            return Err(Error::Unsupported(format!("encrypt: inode {} is encrypted", inode.ino.0)));
        }
        let corrupt = |what: String| Error::Corrupt {
            what: format!("symbolic link, inode {}: {what}", inode.ino.0),
            at: body.at,
        };
        let size = index(inode.size);
        let target = if body.is_inline() {
            self.inline_bytes(source, inode, body).await?
        } else if self.is_short_link(inode, body) {
            if body.map.get(size) != Some(&0) {
                return Err(corrupt(format!("a target of more than its {size} bytes")));
            }
            body.map.get(..size).unwrap_or(&[]).to_vec()
        } else {
            if inode.size > u64::from(self.sb.block_size()) {
                return Err(corrupt(format!("a target of {} bytes", inode.size)));
            }
            match self.run(source, inode, body, 0).await? {
                Some(Run { place: RunPlace::Volume(at), len, .. }) if len == inode.size => {
                    let block =
                        self.block(source, at.wrapping_shr(self.sb.block_shift), "link target").await?;
                    block.get(..size).unwrap_or(&[]).to_vec()
                }
                _ => return Err(corrupt("no block for its target".into())),
            }
        };
        name::check_target(&target, inode.size).map_err(corrupt)?;
        Ok(target)
    }

    /// Whether reading a link's target reads its inode alone.
    pub(super) fn link_in_inode_of(&self, inode: &Inode, body: &Body) -> bool {
        body.is_inline() || self.is_short_link(inode, body)
    }

    /// Whether a link's target is in `i_block`: it is short, and no block is allocated but perhaps one of
    /// attributes. With ea_inode, the blocks of large attributes are counted as the link's: then the size
    /// alone decides, as in the kernel.
    fn is_short_link(&self, inode: &Inode, body: &Body) -> bool {
        if self.sb.features.incompat(incompat::EA_INODE) {
            return inode.size < 60;
        }
        let attributes = if body.attribute_block == 0 { 0 } else { self.sb.cluster_sectors };
        inode.size < 60 && inode.sectors <= attributes
    }
}
