//! Directory entries (S: include/linux/f2fs_fs.h): a bitmap of used slots, the slots' heads, the slots' names
//! of eight bytes each; a longer name runs on into the next slots. In a block, or smaller, in the inode.

use super::fields::{BLOCK, index, u8_at, u16_at, u32_at};
use crate::FileKind;
use crate::name::NAME_MAX;

/// Bytes of an entry's head.
const HEAD: usize = 11;
/// Bytes of a name in a slot.
const NAME: usize = 8;
/// Slots in a block.
const IN_BLOCK: usize = 214;

/// The three parts of a block of entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries<'a> {
    slots: usize,
    bitmap: &'a [u8],
    heads: &'a [u8],
    names: &'a [u8],
}

/// A used slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dentry<'a> {
    pub hash: u32,
    pub ino: u32,
    pub kind: Option<FileKind>,
    pub name: &'a [u8],
}

impl Dentry<'_> {
    /// How many slots it takes.
    pub fn slots(&self) -> usize {
        self.name.len().div_ceil(NAME)
    }
}

impl<'a> Entries<'a> {
    /// Of a directory block.
    pub fn of_block(block: &'a [u8]) -> Option<Entries<'a>> {
        Entries::split(block.get(..BLOCK)?, IN_BLOCK)
    }

    /// Of the area in an inode.
    pub fn of_inline(area: &'a [u8]) -> Option<Entries<'a>> {
        // As many slots as fit, each with one bit of the bitmap.
        let slots = area.len().checked_mul(8)?.checked_div((HEAD + NAME) * 8 + 1)?;
        Entries::split(area, slots)
    }

    /// The bitmap is at the front, heads and names at the back; what is between is reserved.
    fn split(area: &'a [u8], slots: usize) -> Option<Entries<'a>> {
        let names_from = area.len().checked_sub(slots.checked_mul(NAME)?)?;
        let heads_from = names_from.checked_sub(slots.checked_mul(HEAD)?)?;
        let bitmap = area.get(..slots.div_ceil(8))?;
        if bitmap.len() > heads_from {
            return None;
        }
        Some(Entries {
            slots,
            bitmap,
            heads: area.get(heads_from..names_from)?,
            names: area.get(names_from..)?,
        })
    }

    fn is_used(&self, slot: usize) -> bool {
        u8_at(self.bitmap, slot / 8) & 1_u8.wrapping_shl(u32::try_from(slot % 8).unwrap_or(0)) != 0
    }

    /// The used slot at `slot` or the next one, and the slot after it. `Err` says what is wrong with it.
    pub fn next(&self, mut slot: usize) -> Result<Option<(Dentry<'a>, usize)>, String> {
        while slot < self.slots {
            let byte = u8_at(self.bitmap, slot / 8);
            if byte == 0 {
                slot = (slot / 8).saturating_add(1).saturating_mul(8);
                continue;
            }
            if !self.is_used(slot) {
                slot = slot.saturating_add(1);
                continue;
            }
            let head = self.heads.get(slot.saturating_mul(HEAD)..).unwrap_or(&[]);
            let len = usize::from(u16_at(head, 8));
            let after = slot.saturating_add(len.div_ceil(NAME));
            if len == 0 || len > NAME_MAX || after > self.slots {
                return Err(format!("slot {slot} of {}: a name of {len} bytes", self.slots));
            }
            if let Some(free) = (slot..after).find(|slot| !self.is_used(*slot)) {
                return Err(format!("slot {slot}: a name of {len} bytes that runs on into free slot {free}"));
            }
            let name = self.names.get(slot.saturating_mul(NAME)..).and_then(|n| n.get(..len)).unwrap_or(&[]);
            let entry =
                Dentry { hash: u32_at(head, 0), ino: u32_at(head, 4), kind: kind(u8_at(head, 10)), name };
            return Ok(Some((entry, after)));
        }
        Ok(None)
    }

    /// The inode of a name whose hash is known.
    pub fn find(&self, hash: u32, name: &[u8]) -> Result<Option<u32>, String> {
        let mut slot = 0;
        while let Some((entry, after)) = self.next(slot)? {
            if entry.hash == hash && entry.name == name {
                return Ok(Some(entry.ino));
            }
            slot = after;
        }
        Ok(None)
    }

    /// The inode of a name, whatever the hash.
    pub fn scan(&self, name: &[u8]) -> Result<Option<u32>, String> {
        let mut slot = 0;
        while let Some((entry, after)) = self.next(slot)? {
            if entry.name == name {
                return Ok(Some(entry.ino));
            }
            slot = after;
        }
        Ok(None)
    }
}

fn kind(file_type: u8) -> Option<FileKind> {
    let kinds = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::CharDevice,
        FileKind::BlockDevice,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::Symlink,
    ];
    kinds.get(index(u32::from(file_type).checked_sub(1)?)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(block: &mut [u8], slot: usize, hash: u32, ino: u32, name: &[u8]) {
        let slots = name.len().div_ceil(8);
        for s in slot..slot + slots {
            block[s / 8] |= 1 << (s % 8);
        }
        let head = 30 + slot * HEAD;
        block[head..head + 4].copy_from_slice(&hash.to_le_bytes());
        block[head + 4..head + 8].copy_from_slice(&ino.to_le_bytes());
        block[head + 8] = name.len() as u8;
        block[head + 10] = 1;
        let at = 30 + IN_BLOCK * HEAD + slot * NAME;
        block[at..at + name.len()].copy_from_slice(name);
    }

    #[test]
    fn names_run_over_slots() {
        let mut block = vec![0; BLOCK];
        put(&mut block, 0, 1, 10, b"short");
        put(&mut block, 3, 2, 11, b"a name over three slots");
        put(&mut block, 213, 3, 12, b"last");
        let entries = Entries::of_block(&block).unwrap();
        assert_eq!(entries.find(2, b"a name over three slots").unwrap(), Some(11));
        assert_eq!(entries.find(1, b"a name over three slots").unwrap(), None);
        assert_eq!(entries.scan(b"last").unwrap(), Some(12));
        let (first, after) = entries.next(0).unwrap().unwrap();
        assert_eq!((first.name, first.kind, after), (&b"short"[..], Some(FileKind::Regular), 1));
    }

    #[test]
    fn a_name_past_the_last_slot_is_said() {
        let mut block = vec![0; BLOCK];
        put(&mut block, 213, 3, 12, b"last");
        block[30 + 213 * HEAD + 8] = 9;
        assert!(Entries::of_block(&block).unwrap().next(0).is_err());
    }

    #[test]
    fn a_name_of_no_bytes_or_over_a_free_slot_is_said() {
        let mut block = vec![0; BLOCK];
        put(&mut block, 3, 2, 11, b"a name over three slots");
        block[0] ^= 1 << 4;
        let said = Entries::of_block(&block).unwrap().next(0).unwrap_err();
        assert!(said.contains("free slot 4"), "{said}");
        block[0] |= 1 << 4;
        assert!(Entries::of_block(&block).unwrap().next(0).is_ok());
        block[30 + 3 * HEAD + 8] = 0;
        assert!(Entries::of_block(&block).unwrap().next(0).is_err());
    }

    #[test]
    fn inline_areas_of_any_size_split_or_not() {
        for len in 0..4096 {
            let area = vec![0xFF; len];
            if let Some(entries) = Entries::of_inline(&area) {
                let _ = entries.scan(b"x");
            }
        }
    }
}
