//! The NAT journal (S: fs/f2fs/segment.c, `restore_curseg_summaries`): node addresses newer than the table,
//! kept in the hot data log's summary. Compact form: at the front of the block; normal form: behind 512
//! summary entries.

use super::fields::{Addr, Nid, corrupt, index, number, u16_at, u32_at};
use super::superblock::Superblock;
use crate::Error;

/// Bytes of a journal.
const JOURNAL: usize = 507;
/// Bytes before the journal in a summary block of the normal form.
const ENTRIES: usize = 3584;
/// Most entries in a journal.
const MOST: u16 = 38;
/// Bytes of an entry.
const ENTRY: usize = 13;

/// Where a node is, by the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NatEntry {
    pub nid: Nid,
    pub ino: u32,
    pub address: Addr,
}

/// The journal of a compact summary block.
pub(super) fn compact(block: &[u8], at: Addr, sb: &Superblock) -> Result<Vec<NatEntry>, Error> {
    parse(block, 0, at, sb)
}

/// The journal of the hot data log's own summary block.
pub(super) fn normal(block: &[u8], at: Addr, sb: &Superblock) -> Result<Vec<NatEntry>, Error> {
    parse(block, ENTRIES, at, sb)
}

fn parse(block: &[u8], offset: usize, at: Addr, sb: &Superblock) -> Result<Vec<NatEntry>, Error> {
    let at = at.byte().saturating_add(number(offset));
    let journal = block
        .get(offset..)
        .and_then(|b| b.get(..JOURNAL))
        .ok_or_else(|| corrupt("a summary block too short for its journal", at))?;
    let count = u16_at(journal, 0);
    if count > MOST {
        return Err(corrupt(format!("NAT journal of {count} entries"), at));
    }
    let mut entries = Vec::with_capacity(usize::from(count));
    for entry in journal.get(2..).unwrap_or(&[]).chunks_exact(ENTRY).take(usize::from(count)) {
        let nid = u32_at(entry, 0);
        if nid >= sb.max_nid() {
            return Err(corrupt(format!("NAT journal: node {nid} of {}", sb.max_nid()), at));
        }
        // Byte 4 is the node's version, which only the garbage collector asks for.
        entries.push(NatEntry { nid: Nid(nid), ino: u32_at(entry, 5), address: Addr(u32_at(entry, 9)) });
    }
    entries.sort_by_key(|e| index(e.nid.0));
    match entries.iter().zip(entries.iter().skip(1)).find(|(a, b)| a.nid == b.nid) {
        Some((twice, _)) => Err(corrupt(format!("NAT journal: node {} twice", twice.nid.0), at)),
        None => Ok(entries),
    }
}
