//! Inodes: finding one in its group's table, checking it, and what all of them have.

use super::bytes::{halves, index, le16, le32, put16, wide};
use super::csum::{Crc, low_half};
use super::feature::{compat, incompat, ro_compat};
use super::xattr;
use super::{Volume, body};
use crate::{Error, FileKind, Ino, Inode, Source, Timestamp};

/// `i_flags` that matter here.
pub(super) mod flag {
    pub(in crate::ext) const IMMUTABLE: u32 = 0x10;
    pub(in crate::ext) const APPEND: u32 = 0x20;
    pub(in crate::ext) const ENCRYPT: u32 = 0x800;
    pub(in crate::ext) const INDEX: u32 = 0x1000;
    pub(in crate::ext) const HUGE_FILE: u32 = 0x4_0000;
    pub(in crate::ext) const EXTENTS: u32 = 0x8_0000;
    pub(in crate::ext) const VERITY: u32 = 0x10_0000;
    pub(in crate::ext) const EA_INODE: u32 = 0x20_0000;
    pub(in crate::ext) const INLINE_DATA: u32 = 0x1000_0000;
    pub(in crate::ext) const CASEFOLD: u32 = 0x4000_0000;
}

/// What of an inode only this file system reads.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    flags: u32,
    /// `i_block`: a block map, an extent tree's root, a short link's target, a device number, inline content.
    pub(super) map: [u8; 60],
    /// Block of extended attributes, or 0.
    pub(super) attribute_block: u64,
    /// The inode's own checksum seed, where the volume has metadata checksums.
    pub(super) seed: Option<Crc>,
    /// Byte of the volume at which the inode lies.
    pub(super) at: u64,
    /// Bytes that inline content has room for; 0 without.
    pub(super) inline_len: u64,
}

impl Body {
    pub(super) fn is_encrypted(&self) -> bool {
        self.flags & flag::ENCRYPT != 0
    }

    pub(super) fn is_indexed(&self) -> bool {
        self.flags & flag::INDEX != 0
    }

    pub(super) fn has_extents(&self) -> bool {
        self.flags & flag::EXTENTS != 0
    }

    pub(super) fn is_inline(&self) -> bool {
        self.flags & flag::INLINE_DATA != 0
    }

    pub(super) fn is_casefolded(&self) -> bool {
        self.flags & flag::CASEFOLD != 0
    }
}

/// An inode's bytes, in the block that holds them, their checksum verified.
pub(super) struct RawInode<B> {
    block: B,
    inside: usize,
    len: usize,
    /// Byte of the volume.
    pub(super) at: u64,
    seed: Option<Crc>,
    pub(super) ino: Ino,
}

impl<B: std::ops::Deref<Target = [u8]>> RawInode<B> {
    /// That of so many bytes which begins `inside` a block of the volume's.
    pub(super) fn of(block: B, inside: usize, len: u16, block_at: u64, ino: Ino) -> RawInode<B> {
        let at = block_at.wrapping_add(wide(inside));
        RawInode { block, inside, len: usize::from(len), at, seed: None, ino }
    }

    /// All of them.
    pub(super) fn bytes(&self) -> &[u8] {
        self.block.get(self.inside..).and_then(|rest| rest.get(..self.len)).unwrap_or(&[])
    }

    /// The attributes in its tail.
    pub(super) fn attributes(&self) -> Option<&[u8]> {
        let raw = self.bytes();
        xattr::inode_area(raw, extra_size(raw)?)
    }

    pub(super) fn corrupt(&self, what: String) -> Error {
        Error::Corrupt { what, at: self.at }
    }
}

/// `i_extra_isize`: bytes of fields after the first 128; 0 in small inodes.
fn extra_size(raw: &[u8]) -> Option<u16> {
    if raw.len() > 128 { le16(raw, 0x80) } else { Some(0) }
}

impl Volume {
    /// Reads and checks an inode.
    pub(crate) async fn inode<S: Source>(&self, source: &S, ino: Ino) -> Result<Inode, Error> {
        self.inode_of(source, ino, false).await
    }

    /// As [`Volume::inode`]; or one that holds an attribute's value, and no file.
    pub(super) async fn inode_of<S: Source>(
        &self,
        source: &S,
        ino: Ino,
        value: bool,
    ) -> Result<Inode, Error> {
        let reserved = ino.0 < self.sb.first_inode && ino != self.root();
        if reserved || self.sb.hidden.contains(&ino.0) {
            let what = format!("inode {} belongs to the file system itself", ino.0);
            return Err(Error::Corrupt { what, at: super::superblock::AT });
        }
        let raw = self.raw_inode(source, ino).await?;
        self.parse_inode(&raw, ino, value).unwrap_or_else(|| Err(raw.corrupt("an inode is cut short".into())))
    }

    /// The block of the inode table that an inode lies in, and at which byte of it.
    pub(super) async fn inode_place<S: Source>(&self, source: &S, ino: Ino) -> Result<(u64, usize), Error> {
        let sb = &self.sb;
        let Some(nr) = ino.0.checked_sub(1).filter(|nr| *nr < sb.inodes) else {
            let what = format!("inode {} of {}", ino.0, sb.inodes);
            return Err(Error::Corrupt { what, at: super::superblock::AT });
        };
        let group = nr.checked_div(sb.inodes_per_group).unwrap_or(0);
        let nr = nr.checked_rem(sb.inodes_per_group).unwrap_or(0);
        let table = self.group(source, group).await?.inode_table;
        if table == 0 {
            let what = format!("group {group} has its inode table at block 0");
            return Err(Error::Corrupt { what, at: super::superblock::AT });
        }
        let byte = u64::from(nr).wrapping_mul(u64::from(sb.inode_size)); // below 2^19 * 2^16
        let inside = byte & u64::from(sb.block_size().wrapping_sub(1));
        Ok((table.saturating_add(byte.wrapping_shr(sb.block_shift)), index(inside)))
    }

    /// The bytes of an inode in use.
    pub(super) async fn raw_inode<S: Source>(
        &self,
        source: &S,
        ino: Ino,
    ) -> Result<RawInode<S::Block>, Error> {
        let sb = &self.sb;
        let (block_nr, inside) = self.inode_place(source, ino).await?;
        let block = self.block(source, block_nr, "inode table").await?;
        let raw = RawInode::of(block, inside, sb.inode_size, self.byte_of(block_nr), ino);
        let bytes = raw.bytes();
        let (Some(mode), Some(links)) = (le16(bytes, 0x00), le16(bytes, 0x1A)) else {
            return Err(raw.corrupt("an inode is cut short".into()));
        };
        if links == 0 || mode == 0 {
            return Err(raw.corrupt(format!("inode {} is free", ino.0)));
        }
        self.verified(raw)
    }

    /// An inode whose checksum is right.
    pub(super) fn verified<B: std::ops::Deref<Target = [u8]>>(
        &self,
        mut raw: RawInode<B>,
    ) -> Result<RawInode<B>, Error> {
        let (ino, bytes) = (raw.ino, raw.bytes());
        let (Some(generation), Some(extra)) = (le32(bytes, 0x64), extra_size(bytes)) else {
            return Err(raw.corrupt("an inode is cut short".into()));
        };
        if !extra.is_multiple_of(4) || usize::from(extra).wrapping_add(128) > bytes.len() {
            return Err(raw.corrupt(format!("inode {} with {extra} extra bytes", ino.0)));
        }
        if let Some(seed) = self.sb.seed {
            let seed = seed.over_u32(ino.0).over_u32(generation);
            if let Some((stored, computed)) = checksum_mismatch(bytes, extra, seed) {
                let what = format!("checksum {stored:08x} of inode {}, computed {computed:08x}", ino.0);
                return Err(raw.corrupt(what));
            }
            raw.seed = Some(seed);
        }
        Ok(raw)
    }

    /// 512-byte units in use.
    fn sectors(&self, raw: &[u8], flags: u32) -> Option<u64> {
        let low = le32(raw, 0x1C)?;
        if !self.sb.features.ro_compat(ro_compat::HUGE_FILE) {
            return Some(u64::from(low));
        }
        let units = halves(low, u32::from(le16(raw, 0x74)?));
        let shift = self.sb.block_shift.wrapping_sub(9); // 48 bits, by at most 7
        Some(if flags & flag::HUGE_FILE != 0 { units.wrapping_shl(shift) } else { units })
    }

    /// Bytes of content that the inode itself has room for; 0 where it holds a map.
    fn inline_len<B: std::ops::Deref<Target = [u8]>>(
        &self,
        inode: &RawInode<B>,
        ino: Ino,
        flags: u32,
    ) -> Result<u64, Error> {
        if flags & flag::INLINE_DATA == 0 {
            return Ok(0);
        }
        let corrupt = |what: &str| Err(inode.corrupt(format!("inode {}: {what}", ino.0)));
        if !self.sb.features.incompat(incompat::INLINE_DATA) {
            return corrupt("inline data on a volume without that feature");
        }
        if flags & flag::EXTENTS != 0 {
            return corrupt("both inline data and extents");
        }
        let (head, rest) = self.inline_areas(inode)?;
        Ok(wide(head.len()).wrapping_add(wide(rest.len())))
    }

    /// What is wrong with an inode's flags: the kernel takes none with these (`__ext4_iget`).
    fn impossible_flags(&self, kind: FileKind, flags: u32, value: bool) -> Option<&'static str> {
        let has = |flag: u32| flags & flag != 0;
        let features = self.sb.features;
        match () {
            () if has(flag::EA_INODE) && !value => Some("it holds an attribute's value, and no file"),
            () if value && !has(flag::EA_INODE) => Some("it holds no attribute's value"),
            () if has(flag::CASEFOLD) && !features.incompat(incompat::CASEFOLD) => {
                Some("casefolding on a volume without that feature")
            }
            () if kind == FileKind::Symlink && has(flag::IMMUTABLE | flag::APPEND) => {
                Some("a symbolic link that is immutable or append-only")
            }
            // An index looks like empty entries to who does not know of it, and its checksums like none.
            () if has(flag::INDEX)
                && features.ro_compat(ro_compat::METADATA_CSUM)
                && !features.compat(compat::DIR_INDEX) =>
            {
                Some("an index on a volume without that feature")
            }
            () => None,
        }
    }

    /// An inode whose map can be gone by, of a file or of an attribute's value. `None` where the bytes are
    /// too few.
    pub(super) fn parse_inode<B: std::ops::Deref<Target = [u8]>>(
        &self,
        inode: &RawInode<B>,
        ino: Ino,
        value: bool,
    ) -> Option<Result<Inode, Error>> {
        let made = match self.fields(inode, ino, value)? {
            Ok(made) => made,
            Err(error) => return Some(Err(error)),
        };
        Some(match body(&made).map(|body| self.check_map(&made, body)) {
            Ok(Ok(())) => Ok(made),
            Ok(Err(what)) => Err(inode.corrupt(format!("inode {}: {what}", ino.0))),
            Err(error) => Err(error),
        })
    }

    /// What an inode says but for its map, which is not looked at. `None` where the bytes are too few.
    pub(super) fn fields<B: std::ops::Deref<Target = [u8]>>(
        &self,
        inode: &RawInode<B>,
        ino: Ino,
        value: bool,
    ) -> Option<Result<Inode, Error>> {
        let raw = inode.bytes();
        let features = self.sb.features;
        let corrupt = |what: String| Some(Err(inode.corrupt(format!("inode {}: {what}", ino.0))));
        let mode = le16(raw, 0x00)?;
        let Some(kind) = FileKind::from_mode(mode) else { return corrupt(format!("mode {mode:o}")) };
        let extra = extra_size(raw)?;
        let flags = le32(raw, 0x20)?;
        if let Some(what) = self.impossible_flags(kind, flags, value) {
            return corrupt(what.into());
        }
        let (map, _) = raw.get(0x28..)?.split_first_chunk::<60>()?;

        let wide_size = kind == FileKind::Regular || features.incompat(incompat::LARGE_DIR);
        let size = halves(le32(raw, 0x04)?, if wide_size { le32(raw, 0x6C)? } else { 0 });
        let high_block = if features.incompat(incompat::BIT64) { le16(raw, 0x76)? } else { 0 };
        let attribute_block = halves(le32(raw, 0x68)?, u32::from(high_block));

        let area = xattr::inode_area(raw, extra);
        let inline_len = match self.inline_len(inode, ino, flags) {
            Ok(len) => len,
            Err(error) => return Some(Err(error)),
        };
        let mut sectors = self.sectors(raw, flags)?;
        if flags & flag::INLINE_DATA != 0 && kind == FileKind::Regular {
            // As the kernel's stat has it: such a file takes up at least a sector.
            sectors = sectors.saturating_add(size.div_ceil(512));
        }
        let tail_acl = match area.map_or(Ok(None), |area| self.sb.attribute(area, 0, xattr::ACL_ACCESS)) {
            Ok(found) => found.is_some(),
            Err(what) => return corrupt(what.into()),
        };

        let time = |seconds: usize, extra_at: usize| {
            let low = le32(raw, seconds)?;
            Some(timestamp(low, field(raw, extra_at, extra).unwrap_or(0)))
        };
        let rdev = match kind {
            FileKind::CharDevice | FileKind::BlockDevice => device(le32(map, 0)?, le32(map, 4)?),
            _ => (0, 0),
        };
        Some(Ok(Inode {
            ino,
            kind,
            mode,
            uid: wide_id(le16(raw, 0x02)?, le16(raw, 0x78)?),
            gid: wide_id(le16(raw, 0x18)?, le16(raw, 0x7A)?),
            size,
            links: u32::from(le16(raw, 0x1A)?),
            sectors,
            rdev,
            atime: time(0x08, 0x8C)?,
            mtime: time(0x10, 0x88)?,
            ctime: time(0x0C, 0x84)?,
            crtime: field(raw, 0x90, extra).map(|low| timestamp(low, field(raw, 0x94, extra).unwrap_or(0))),
            generation: le32(raw, 0x64)?,
            may_have_acl: attribute_block != 0 || tail_acl,
            may_have_attributes: attribute_block != 0 || area.is_some_and(xattr::has_attributes),
            verity: flags & flag::VERITY != 0,
            body: crate::Body::Ext(Body {
                flags,
                map: *map,
                attribute_block,
                seed: inode.seed,
                at: inode.at,
                inline_len,
            }),
        }))
    }
}

/// Stored and computed checksum, where they differ. The stored one is 32 bits where the inode has room, else
/// 16.
fn checksum_mismatch(raw: &[u8], extra: u16, seed: Crc) -> Option<(u32, u32)> {
    let part = |from: usize, to: usize| raw.get(from..to).unwrap_or(&[]);
    let low = le16(raw, 0x7C).unwrap_or(0);
    let mut crc = seed.over(part(0, 0x7C)).over(&[0, 0]).over(part(0x7E, 0x80));
    if raw.len() == 128 {
        return (low != crc.low()).then(|| (u32::from(low), u32::from(crc.low())));
    }
    crc = crc.over(part(0x80, 0x82));
    if extra >= 4 {
        crc = crc.over(&[0, 0]).over(raw.get(0x84..).unwrap_or(&[]));
        let stored = u32::from(low) | u32::from(le16(raw, 0x82).unwrap_or(0)).wrapping_shl(16);
        return (stored != crc.0).then_some((stored, crc.0));
    }
    crc = crc.over(raw.get(0x82..).unwrap_or(&[]));
    let computed = low_half(crc.0);
    (low != computed).then(|| (u32::from(low), u32::from(computed)))
}

/// Writes an inode's own checksum. `volume`: the seed of all metadata checksums; `None` where the bytes are
/// too few.
pub(super) fn seal(raw: &mut [u8], ino: u32, volume: Crc) -> Option<()> {
    let seed = volume.over_u32(ino).over_u32(le32(raw, 0x64)?);
    let wide = extra_size(raw)? >= 4;
    put16(raw, 0x7C, 0)?;
    if wide {
        put16(raw, 0x82, 0)?;
    }
    let [a, b, c, d] = seed.over(raw).0.to_le_bytes();
    put16(raw, 0x7C, u16::from_le_bytes([a, b]))?;
    if wide {
        put16(raw, 0x82, u16::from_le_bytes([c, d]))?;
    }
    Some(())
}

/// A 32-bit field after the first 128 bytes, where the inode has it.
fn field(raw: &[u8], at: usize, extra: u16) -> Option<u32> {
    let end = usize::from(extra).checked_add(128)?;
    raw.get(..end).and_then(|raw| le32(raw, at))
}

fn wide_id(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high).wrapping_shl(16)
}

/// Signed seconds; the extra word holds two more bits above them and the nanoseconds.
fn timestamp(low: u32, extra: u32) -> Timestamp {
    let seconds = i64::from(i32::from_le_bytes(low.to_le_bytes()));
    let epoch = i64::from(extra & 3).wrapping_shl(32);
    Timestamp { seconds: seconds.wrapping_add(epoch), nanoseconds: extra.wrapping_shr(2) }
}

/// A device number: the old 16-bit form where it is not zero, else the new 32-bit one.
fn device(old: u32, new: u32) -> (u32, u32) {
    if old != 0 {
        return (old.wrapping_shr(8) & 0xFF, old & 0xFF);
    }
    (new.wrapping_shr(8) & 0xFFF, (new & 0xFF) | (new.wrapping_shr(12) & 0xF_FF00))
}
