//! A bounded cache: a hash table over slots that are replaced by the clock algorithm (second chance).
//!
//! It allocates while it grows to its bound and never after. Hashes and equality are the caller's, so that a
//! lookup needs no key of its own.

use hashbrown::HashTable;

/// Entries that the hand of the clock passes at most for one that it takes out: a piece of work that a host's
/// I/O may wait for.
const FAR: usize = 256;

/// A cache of `V`, bounded by the sum of the weights that its user gives.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    table: HashTable<u32>,
    slots: Vec<CacheSlot<V>>,
    free: Vec<u32>,
    hand: usize,
    weight: usize,
    most: usize,
}

#[derive(Debug)]
struct CacheSlot<V> {
    hash: u64,
    weight: usize,
    used: bool,
    value: Option<V>,
}

impl<V> Cache<V> {
    /// Empty, for weights that add up to `most`.
    pub(crate) fn new(most: usize) -> Self {
        Cache { table: HashTable::new(), slots: Vec::new(), free: Vec::new(), hand: 0, weight: 0, most }
    }

    /// The entry of that hash for which `is` holds, and its slot.
    #[inline]
    pub(crate) fn find(&mut self, hash: u64, is: impl Fn(&V) -> bool) -> Option<(u32, &mut V)> {
        let slots = &self.slots;
        let index = *self.table.find(hash, |&i| {
            slots.get(i as usize).is_some_and(|s| s.hash == hash && s.value.as_ref().is_some_and(&is))
        })?;
        let slot = self.slots.get_mut(index as usize)?;
        slot.used = true;
        slot.value.as_mut().map(|v| (index, v))
    }

    /// What is in a slot now: not necessarily what was there before.
    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> Option<&mut V> {
        let slot = self.slots.get_mut(index as usize)?;
        slot.used = true;
        slot.value.as_mut()
    }

    /// Puts an entry in, in the place of others where there is no room. Its user has removed an older one of
    /// the same key.
    pub(crate) fn insert(&mut self, hash: u64, weight: usize, value: V) -> u32 {
        while self.weight > 0 && self.weight.saturating_add(weight) > self.most {
            self.evict();
        }
        self.weight += weight;
        // Not used yet: the hand has just been here, so it still lives for a whole round.
        let slot = CacheSlot { hash, weight, used: false, value: Some(value) };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, index, |&i| slots[i as usize].hash);
        index
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, index: u32) -> Option<V> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        self.weight -= slot.weight;
        if let Ok(entry) = self.table.find_entry(slot.hash, |&i| i == index) {
            entry.remove();
        }
        self.free.push(index);
        Some(value)
    }

    /// Takes all out, to be dropped in pieces.
    pub(crate) fn drain(&mut self) -> Drained<V> {
        let taken = std::mem::replace(self, Cache::new(self.most));
        Drained { slots: taken.slots }
    }

    /// Takes all out.
    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.slots.clear();
        self.free.clear();
        (self.hand, self.weight) = (0, 0);
    }

    /// How many entries there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The hand of the clock goes on to an entry that was not used since it came by last, and takes it out;
    /// not far, though: where all are in use, to the next there is.
    fn evict(&mut self) {
        let mut seen = 0;
        loop {
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            match self.slots.get_mut(self.hand) {
                Some(slot) if slot.value.is_none() => {}
                Some(slot) if slot.used && seen < FAR => (slot.used, seen) = (false, seen + 1),
                _ => break,
            }
        }
        self.remove(self.hand as u32);
    }
}

/// What was in a cache. Freeing tens of thousands of entries takes longer than a slice.
#[derive(Debug)]
pub(crate) struct Drained<V> {
    slots: Vec<CacheSlot<V>>,
}

impl<V> Drained<V> {
    /// Frees some of it; whether there is more.
    pub(crate) fn free_some(&mut self) -> bool {
        self.slots.truncate(self.slots.len().saturating_sub(64));
        !self.slots.is_empty()
    }
}

/// Hashes bytes with a seed: sixteen bytes at a time, folded by a wide multiplication. Not for adversaries
/// who see the seed.
#[inline]
pub(crate) fn hash(seed: u64, key: u64, bytes: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    #[inline]
    fn fold(a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b);
        (product as u64) ^ (product >> 64) as u64
    }
    let take = |h: u64, pair: &[u8; 16]| {
        let pair = u128::from_le_bytes(*pair);
        fold(h ^ pair as u64, (pair >> 64) as u64 ^ K.rotate_left(17) ^ seed)
    };
    let (pairs, rest) = bytes.as_chunks();
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    // The length says how much of the last counts.
    let begun = fold(seed ^ key, K) ^ bytes.len() as u64;
    take(pairs.iter().fold(begun, take), &last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_put_in_and_stays_within_its_bound() {
        let mut cache = Cache::new(100);
        for n in 0..1000u64 {
            cache.insert(hash(7, n, b""), 10, n);
            assert!(cache.len() <= 10);
            assert_eq!(cache.find(hash(7, n, b""), |v| *v == n).map(|(_, v)| *v), Some(n));
        }
    }

    #[test]
    fn what_is_used_outlives_what_is_not() {
        let mut cache = Cache::new(8);
        for n in 0..100u64 {
            cache.insert(n, 1, n);
            assert!(n == 0 || cache.find(0, |v| *v == 0).is_some(), "lost after {n}");
        }
    }

    #[test]
    fn what_is_taken_out_goes_in_pieces_and_the_hand_does_not_go_round_at_once() {
        let mut cache = Cache::new(10_000);
        for n in 0..10_000u64 {
            cache.insert(n, 1, n);
        }
        for n in 0..10_000u64 {
            assert!(cache.find(n, |v| *v == n).is_some());
        }
        // All are in use: the hand passes some, and takes one.
        cache.insert(10_000, 1, 10_000);
        let passed = cache.slots.iter().filter(|slot| !slot.used).count();
        assert!((FAR..FAR + 3).contains(&passed), "{passed}");
        let mut drained = cache.drain();
        let mut pieces = 1;
        while drained.free_some() {
            pieces += 1;
        }
        assert_eq!((cache.len(), pieces), (0, 10_000_usize.div_ceil(64)));
        cache.insert(1, 1, 1);
        assert_eq!(cache.find(1, |v| *v == 1), Some((0, &mut 1)));
    }

    #[test]
    fn a_removed_entry_is_gone_and_its_slot_is_used_again() {
        let mut cache = Cache::new(8);
        let slot = cache.insert(5, 1, "a");
        assert_eq!(cache.remove(slot), Some("a"));
        assert_eq!(cache.remove(slot), None);
        assert!(cache.find(5, |_| true).is_none());
        assert_eq!(cache.insert(6, 1, "b"), slot);
        assert_eq!(cache.at(slot), Some(&mut "b"));
    }
}
