//! Whether fsync has left something newer than the checkpoint (S: fs/f2fs/recovery.c): a chain of node blocks
//! in the warm node log that repeat the checkpoint's version. Only its beginning is read; it is not applied.

use super::checkpoint::{CRC_RECOVERY, Checkpoint, NOCRC_RECOVERY, UMOUNT};
use super::fields::read;
use super::node::{FSYNC_FLAG, Footer};
use super::superblock::Superblock;
use crate::{Error, Source};

/// Nodes of the chain that are looked at. A chain longer than this without an fsync among them counts as
/// holding one.
const LOOKED_AT: u32 = 32;

/// Whether a node was written after this checkpoint and before the next.
fn follows(cp: &Checkpoint, footer: Footer) -> bool {
    if cp.has(NOCRC_RECOVERY) {
        return cp.version << 32 == footer.cp_version << 32;
    }
    let crc = if cp.has(CRC_RECOVERY) { u64::from(cp.crc) << 32 } else { 0 };
    cp.version | crc == footer.cp_version
}

/// Whether the volume needs recovery: what it shows is then older than its last durable state.
pub(super) async fn needed<S: Source>(source: &S, sb: &Superblock, cp: &Checkpoint) -> Result<bool, Error> {
    if cp.has(UMOUNT) {
        return Ok(false);
    }
    let mut address = cp.warm_node;
    for _ in 0..LOOKED_AT {
        if !sb.in_main(address) {
            return Ok(false);
        }
        let footer = Footer::of(&read(source, address).await?);
        if !follows(cp, footer) {
            return Ok(false);
        }
        if footer.flag & FSYNC_FLAG != 0 {
            return Ok(true);
        }
        if footer.next == address {
            return Ok(false);
        }
        address = footer.next;
    }
    Ok(true)
}
