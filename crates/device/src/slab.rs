//! Values under small integer keys that are used again.

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

/// A slab: insertion and removal cost a few instructions; memory grows to the most values ever held.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: usize,
    len: usize,
}

#[derive(Debug)]
enum Entry<T> {
    /// The next free key.
    Free(usize),
    Held(T),
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: 0, len: 0 }
    }

    /// The key that the next [`Slab::insert`] will give.
    #[inline]
    pub(crate) fn next_key(&self) -> usize {
        self.free
    }

    pub(crate) fn insert(&mut self, value: T) -> usize {
        let key = self.free;
        match self.entries.get_mut(key) {
            Some(entry) => {
                if let Entry::Free(next) = *entry {
                    self.free = next;
                }
                *entry = Entry::Held(value);
            }
            None => {
                self.entries.push(Entry::Held(value));
                self.free = self.entries.len();
            }
        }
        self.len += 1;
        key
    }

    pub(crate) fn remove(&mut self, key: usize) -> Option<T> {
        let entry = self.entries.get_mut(key)?;
        if matches!(entry, Entry::Free(_)) {
            return None;
        }
        let Entry::Held(value) = std::mem::replace(entry, Entry::Free(self.free)) else { return None };
        self.free = key;
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Held(value) => Some(value),
            Entry::Free(_) => None,
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(key, entry)| match entry {
            Entry::Held(value) => Some((key, value)),
            Entry::Free(_) => None,
        })
    }

    /// Takes all values out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        let entries = std::mem::take(&mut self.entries);
        (self.free, self.len) = (0, 0);
        entries.into_iter().filter_map(|entry| match entry {
            Entry::Held(value) => Some(value),
            Entry::Free(_) => None,
        })
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_used_again_and_foretold() {
        let mut slab = Slab::new();
        for round in 0..100usize {
            let foretold = slab.next_key();
            assert_eq!(slab.insert(round), foretold);
            if round % 3 == 0 {
                assert_eq!(slab.remove(foretold), Some(round));
                assert_eq!(slab.remove(foretold), None);
            }
        }
        assert_eq!(slab.len(), 66);
        assert_eq!(slab.iter_mut().count(), 66);
    }
}
