//! Fast commits: what stands behind the log of a volume with the feature fast_commit.
//!
//! They say what to do (add an extent, link a name) and not what blocks hold. This is their form, and how far
//! they are whole, by the rules of `ext4_fc_replay_scan`: up to the last tail whose checksum holds. Where the
//! first one is torn the kernel refuses the volume, and this view shows what is before it.

use super::super::bytes::{le16, le32};
use super::super::csum::Crc;
use super::Reader;
use crate::{Error, Source};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    AddRange,
    DelRange,
    Create,
    Link,
    Unlink,
    Inode,
    Pad,
    Tail,
    Head,
}

impl Tag {
    fn new(raw: u16) -> Option<Tag> {
        use Tag::*;
        let known = [AddRange, DelRange, Create, Link, Unlink, Inode, Pad, Tail, Head];
        known.get(usize::from(raw.checked_sub(1)?)).copied()
    }

    /// Whether a value can be so long, on a volume of inodes of `inode_size` bytes.
    fn fits(self, len: usize, inode_size: usize) -> bool {
        match self {
            Tag::AddRange => len == 16,
            Tag::DelRange => len == 12,
            Tag::Create | Tag::Link | Tag::Unlink => (9..=8 + 255).contains(&len),
            Tag::Inode => (4 + 128..=4usize.saturating_add(inode_size)).contains(&len),
            Tag::Pad => true,
            Tag::Tail => len >= 8,
            Tag::Head => len == 8,
        }
    }
}

/// Bytes of a tag and its length.
const BASE: usize = 4;

/// The tags of a block, each with its value; what is cut short or unknown ends it.
pub(super) struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Tags<'a> {
    pub(super) fn new(block: &'a [u8]) -> Tags<'a> {
        Tags { rest: block }
    }
}

impl<'a> Iterator for Tags<'a> {
    type Item = (Tag, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, len) = (Tag::new(le16(self.rest, 0)?)?, usize::from(le16(self.rest, 2)?));
        let (value, rest) = self.rest.get(BASE..)?.split_at_checked(len)?;
        self.rest = rest;
        Some((tag, value))
    }
}

/// Where fast commits may lie, in the journal's blocks.
#[derive(Clone, Copy, Debug)]
pub(in crate::ext) struct Area {
    pub(super) first: u32,
    /// The block after the last.
    pub(super) end: u32,
    /// The transaction that they must be of: the one after the log's last.
    pub(super) tid: u32,
}

/// What is whole of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) commits: u64,
    /// Tags up to the last whole commit's tail.
    pub(super) tags: u64,
}

/// What a block of tags leaves for the next.
struct Scan {
    crc: Crc,
    seen: u64,
    live: Live,
}

impl Scan {
    /// Goes over a block; whether the next may follow.
    fn block(&mut self, block: &[u8], tid: u32, inode_size: usize) -> Result<bool, Error> {
        let mut tags = Tags::new(block);
        loop {
            let before = tags.rest;
            let Some((tag, value)) = tags.next() else {
                // Fewer bytes are left than a tag has.
                return Ok(before.len() < BASE);
            };
            if !tag.fits(value.len(), inode_size) {
                return Ok(false);
            }
            self.seen = self.seen.saturating_add(1);
            let all = before.get(..value.len().saturating_add(BASE)).unwrap_or(&[]);
            match tag {
                Tag::Tail => {
                    let crc = self.crc.over(all.get(..8).unwrap_or(&[]));
                    if le32(value, 0) != Some(tid) || le32(value, 4) != Some(crc.0) {
                        return Ok(false);
                    }
                    self.live = Live { commits: self.live.commits.saturating_add(1), tags: self.seen };
                    self.crc = Crc(0);
                }
                Tag::Head if le32(value, 4) != Some(tid) => return Ok(false),
                Tag::Head if le32(value, 0) != Some(0) => {
                    let features = le32(value, 0).unwrap_or(0);
                    return Err(Error::Unsupported(format!(
                        "fast_commit: features {features:#x} of its area"
                    )));
                }
                _ => self.crc = self.crc.over(all),
            }
        }
    }
}

/// How much of an area a mount would do.
pub(super) async fn scan<S: Source>(
    reader: &mut Reader<'_, S>,
    area: Area,
    inode_size: usize,
) -> Result<Live, Error> {
    let mut scan = Scan { crc: Crc(0), seen: 0, live: Live::default() };
    for nr in area.first..area.end {
        let (at, block) = reader.block(nr).await?;
        if !reader.is_durable(at) {
            break;
        }
        let begins = nr != area.first || Tag::new(le16(&block, 0).unwrap_or(0)) == Some(Tag::Head);
        if !begins || !scan.block(&block, area.tid, inode_size)? {
            break;
        }
    }
    Ok(scan.live)
}
