//! Fast commits: what stands behind the log of a volume with the feature fast_commit.
//!
//! They say what to do (add an extent, link a name) and not what blocks hold. This view does not do it: it
//! only sees whether there are any that a mount would do, by the rules of `ext4_fc_replay_scan`.

use super::super::bytes::{le16, le32};
use super::super::csum::Crc;
use super::Reader;
use super::superblock::Superblock;
use crate::{Error, Source};

mod tag {
    pub(super) const TAIL: u16 = 8;
    pub(super) const HEAD: u16 = 9;
}

/// Bytes of a tag and its length.
const BASE: usize = 4;

/// What a block of tags leaves for the next.
struct Tags {
    crc: Crc,
    commits: u64,
    ended: bool,
}

impl Tags {
    /// Goes over a block. `next`: the transaction that fast commits must be of.
    fn block(&mut self, block: &[u8], next: u32) {
        let mut rest = block;
        while let (Some(tag), Some(len)) = (le16(rest, 0), le16(rest, 2)) {
            let Some((all, after)) = rest.split_at_checked(BASE.wrapping_add(usize::from(len))) else {
                self.ended = true;
                return;
            };
            let tid = match tag {
                tag::HEAD => le32(all, 8),
                tag::TAIL => le32(all, 4),
                1..=7 => Some(next),
                _ => None,
            };
            if tid != Some(next) {
                self.ended = true;
                return;
            }
            if tag == tag::TAIL {
                let crc = self.crc.over(all.get(..8).unwrap_or(&[]));
                if le32(all, 8) != Some(crc.0) {
                    self.ended = true;
                    return;
                }
                self.commits = self.commits.saturating_add(1);
                self.crc = Crc(0);
            } else {
                self.crc = self.crc.over(all);
            }
            rest = after;
        }
    }
}

/// How many fast commits follow the log's last transaction, before `next`.
pub(super) async fn live<S: Source>(
    reader: &mut Reader<'_, S>,
    superblock: &Superblock,
    next: u32,
) -> Result<u64, Error> {
    let Some((first, end)) = superblock.fast else { return Ok(0) };
    let mut tags = Tags { crc: Crc(0), commits: 0, ended: false };
    for nr in first..end {
        let (_, block) = reader.block(nr).await?;
        if nr == first && le16(&block, 0) != Some(tag::HEAD) {
            break;
        }
        tags.block(&block, next);
        if tags.ended {
            break;
        }
    }
    Ok(tags.commits)
}
