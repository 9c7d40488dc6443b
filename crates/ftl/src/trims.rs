//! What was deallocated, so that it stays so after a power cut.
//!
//! Versions of a slot that are garbage stay on the flash until their block is erased; after a power cut they
//! would come back. So each group of 32,768 slots (128 MiB) has a bitmap of those that are deallocated,
//! written like a slot, under a logical number above the host's. A set bit overrules every version with a
//! lower sequence number.
//!
//! The durable version of a slot that was deallocated, and whose bitmap is not written yet, is *held*: it
//! counts as valid, so that no collection takes it away before the deallocation is durable, when even older
//! versions would show again.
//!
//! A slot's bit is cleared when a new version of it is programmed, not when it is written: before that a
//! power cut must still find it deallocated.

use std::collections::HashMap;

const BITS: u32 = 32_768;

/// One bit for each slot of a group.
pub(crate) type Bitmap = [u64; BITS as usize / 64];

#[derive(Clone, Debug)]
pub(crate) struct Trims {
    logical: u32,
    groups: Vec<Option<Box<Bitmap>>>,
    /// Whose bitmaps on the flash are behind.
    pub dirty: Vec<u32>,
    /// Logical slot to the slot of its durable version.
    pub held: HashMap<u32, u32>,
    any: bool,
}

impl Trims {
    pub fn new(logical: u32) -> Trims {
        Trims {
            logical,
            groups: vec![None; Self::groups(logical) as usize],
            dirty: Vec::new(),
            held: HashMap::new(),
            any: false,
        }
    }

    /// Bitmaps for so many slots.
    pub fn groups(logical: u32) -> u32 {
        logical.div_ceil(BITS)
    }

    /// The slots of a group.
    pub fn slots_of(group: u32) -> std::ops::Range<u32> {
        group * BITS..(group + 1).saturating_mul(BITS)
    }

    /// A slot is deallocated whose durable version is at `slot`.
    pub fn hold(&mut self, logical: u32, slot: u32) {
        self.held.insert(logical, slot);
        self.any = true;
        let group = logical / BITS;
        let bitmap = self.groups[group as usize].get_or_insert_with(|| Box::new([0; BITS as usize / 64]));
        bitmap[(logical % BITS / 64) as usize] |= 1 << (logical % 64);
        if !self.dirty.contains(&group) {
            self.dirty.push(group);
        }
    }

    /// A new version is programmed. Answers the version that was held.
    #[inline]
    pub fn rewritten(&mut self, logical: u32) -> Option<u32> {
        if !self.any || logical >= self.logical {
            return None;
        }
        let bitmap = self.groups[(logical / BITS) as usize].as_mut()?;
        bitmap[(logical % BITS / 64) as usize] &= !(1 << (logical % 64));
        self.held.remove(&logical)
    }

    /// The bitmap that is written under this logical number, where it is one.
    pub fn content(&self, logical: u32) -> Option<Box<Bitmap>> {
        let group = logical.checked_sub(self.logical)?;
        self.groups.get(group as usize)?.clone()
    }

    /// The logical number of a group's bitmap.
    pub fn number(&self, group: u32) -> u32 {
        self.logical + group
    }

    /// After a power cut: a group's bitmap from the flash.
    pub fn load(&mut self, group: u32, bitmap: Box<Bitmap>) {
        self.groups[group as usize] = Some(bitmap);
        self.any = true;
    }
}

/// The set bits of a bitmap, in order.
pub(crate) fn bits(bitmap: &Bitmap) -> impl Iterator<Item = u32> {
    (0..BITS).filter(|&bit| bitmap[(bit / 64) as usize] >> (bit % 64) & 1 != 0)
}
