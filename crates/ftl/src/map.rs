//! Where each logical slot is: a table of pages that exist once they are written to.

/// In the map: nowhere.
pub(crate) const NONE: u32 = u32::MAX;
const BUFFER: u32 = 1 << 31;
const CHUNK: usize = 1024;

/// Where a logical slot's newest version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Nowhere: it reads as zeros.
    Nowhere,
    /// In the write buffer, at this index.
    Buffer(usize),
    /// On the flash, in this slot.
    Flash(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Map {
    chunks: Vec<Option<Box<[u32; CHUNK]>>>,
}

impl Map {
    pub fn new(slots: u32) -> Map {
        Map { chunks: vec![None; (slots as usize).div_ceil(CHUNK)] }
    }

    #[inline]
    pub fn get(&self, logical: u32) -> Location {
        let at = logical as usize;
        match self.chunks.get(at / CHUNK) {
            Some(Some(chunk)) => match chunk[at % CHUNK] {
                NONE => Location::Nowhere,
                buffered if buffered & BUFFER != 0 => Location::Buffer((buffered & !BUFFER) as usize),
                slot => Location::Flash(slot),
            },
            _ => Location::Nowhere,
        }
    }

    #[inline]
    pub fn set(&mut self, logical: u32, place: Location) {
        let at = logical as usize;
        let word = match place {
            Location::Nowhere => NONE,
            Location::Buffer(index) => BUFFER | index as u32,
            Location::Flash(slot) => slot,
        };
        let chunk = &mut self.chunks[at / CHUNK];
        if word == NONE && chunk.is_none() {
            return;
        }
        chunk.get_or_insert_with(|| Box::new([NONE; CHUNK]))[at % CHUNK] = word;
    }

    /// From `logical` on, the first that may be mapped.
    pub fn next_mapped(&self, logical: u32) -> u32 {
        let mut at = logical as usize;
        while self.chunks.get(at / CHUNK).is_some_and(Option::is_none) {
            at = (at / CHUNK + 1) * CHUNK;
        }
        at.min(NONE as usize) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_and_absent_pages_are_stepped_over() {
        let mut map = Map::new(1 << 20);
        map.set(5, Location::Nowhere);
        assert!(map.chunks.iter().all(Option::is_none), "nothing takes no memory");
        assert_eq!(map.next_mapped(7), 1 << 20);
        for place in
            [Location::Flash(0), Location::Buffer(3), Location::Flash((1 << 31) - 1), Location::Nowhere]
        {
            map.set(70_000, place);
            assert_eq!(map.get(70_000), place);
        }
        assert_eq!((map.get(69_999), map.get(u32::MAX)), (Location::Nowhere, Location::Nowhere));
        assert_eq!((map.next_mapped(0), map.next_mapped(70_001)), (68 * 1024, 70_001));
    }
}
