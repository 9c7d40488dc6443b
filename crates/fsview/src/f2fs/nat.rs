//! The node address table: where each node is now. An entry in the checkpoint's journal comes before the
//! table's; of the table's two copies the checkpoint's bitmap says which counts, block by block.

use super::checkpoint::Checkpoint;
use super::fields::{Addr, Nid, corrupt, index, read, u32_at};
use super::superblock::{NAT_PER_BLOCK, SEGMENT, Superblock};
use crate::{Error, Source};

/// What the table says of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    /// The inode that the node belongs to.
    pub ino: u32,
    /// The node's block: within the main area.
    pub address: Addr,
}

/// The block of the table that holds `nid`, by the bitmap.
fn block_of(sb: &Superblock, cp: &Checkpoint, nid: Nid) -> Addr {
    let block = nid.0 / NAT_PER_BLOCK;
    // Segments of the two copies alternate.
    let pair = (block / SEGMENT).saturating_mul(SEGMENT).saturating_mul(2);
    let mut address = sb.nat.0.saturating_add(pair).saturating_add(block % SEGMENT);
    let byte = cp.nat_bitmap.get(index(block / 8)).copied().unwrap_or(0);
    if byte.checked_shr(7_u32.saturating_sub(block % 8)).unwrap_or(0) & 1 == 1 {
        address = address.saturating_add(SEGMENT);
    }
    Addr(address)
}

/// The byte of the table's entry for `nid` in its block.
fn slot_of(nid: Nid) -> u32 {
    (nid.0 % NAT_PER_BLOCK).saturating_mul(9)
}

/// Where a node is. `Error::Corrupt` for one that is free or out of range; `at` is the table's entry.
pub(super) async fn locate<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    nid: Nid,
) -> Result<Location, Error> {
    let at = || block_of(sb, cp, nid).byte().saturating_add(u64::from(slot_of(nid)));
    let found = find(source, sb, cp, nid).await?;
    found.ok_or_else(|| corrupt(format!("node {} is free", nid.0), at()))
}

/// Where a node is; `None` for one that is free.
pub(super) async fn find<S: Source>(
    source: &S,
    sb: &Superblock,
    cp: &Checkpoint,
    nid: Nid,
) -> Result<Option<Location>, Error> {
    let block = block_of(sb, cp, nid);
    let slot = slot_of(nid);
    let at = block.byte().saturating_add(u64::from(slot));
    if nid.0 < sb.root || nid.0 >= sb.max_nid() {
        return Err(corrupt(format!("node {} of {}", nid.0, sb.max_nid()), sb.nat.byte()));
    }
    let location = match cp.nat_journal.binary_search_by_key(&nid, |e| e.nid) {
        Ok(found) => cp.nat_journal.get(found).map(|e| Location { ino: e.ino, address: e.address }),
        Err(_) => {
            let bytes = read(source, block).await?;
            let slot = index(slot);
            Some(Location {
                ino: u32_at(&bytes, slot.saturating_add(1)),
                address: Addr(u32_at(&bytes, slot.saturating_add(5))),
            })
        }
    };
    let Some(location) = location.filter(|l| l.address != Addr::NULL) else { return Ok(None) };
    if !sb.in_main(location.address) {
        return Err(corrupt(
            format!("node {} at block {}, outside the main area", nid.0, location.address.0),
            at,
        ));
    }
    Ok(Some(location))
}
