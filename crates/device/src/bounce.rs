//! Memory of the drive's own that data go by on their way between a host that has to be asked for its memory
//! and a store: a bounded piece for each reactor that ever needs it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use nearside_dma::remote::BOUNCE_IOVA;
use nearside_dma::{Memory, PAGE_SIZE, Region};

/// Bytes of one reactor: eight of the largest transfers that are usual.
const BYTES: usize = 8 << 20;

/// A reactor's. The host's own commands could name it as well, and would reach what is theirs.
pub(crate) struct Bounce {
    iova: u64,
    region: Arc<Region>,
    /// Free runs, by where they begin.
    free: BTreeMap<usize, usize>,
}

/// A piece of it.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) at: usize,
    len: usize,
}

impl Bounce {
    /// Of a reactor of the controller that has the table.
    pub(crate) fn new(memory: &Memory, reactor: usize, at_least: usize) -> io::Result<Bounce> {
        let len = BYTES.max(at_least.next_multiple_of(PAGE_SIZE));
        let (region, iova) = (Arc::new(Region::anonymous(len)?), BOUNCE_IOVA + ((reactor as u64) << 40));
        memory.map(iova, region.clone()).map_err(io::Error::other)?;
        Ok(Bounce { iova, region, free: [(0, len)].into() })
    }

    /// Whether so much is there at all.
    pub(crate) fn has(&self, len: usize) -> bool {
        len <= self.region.len()
    }

    /// A piece of at least so many bytes, which begins a page.
    pub(crate) fn take(&mut self, len: usize) -> Option<Room> {
        let len = len.max(1).next_multiple_of(PAGE_SIZE);
        let (&at, &run) = self.free.iter().find(|(_, run)| **run >= len)?;
        self.free.remove(&at);
        if run > len {
            self.free.insert(at + len, run - len);
        }
        Some(Room { at, len })
    }

    pub(crate) fn give_back(&mut self, room: Room) {
        let (mut at, mut len) = (room.at, room.len);
        if let Some(after) = self.free.remove(&(at + len)) {
            len += after;
        }
        if let Some((&before, &run)) = self.free.range(..at).next_back()
            && before + run == at
        {
            self.free.remove(&before);
            (at, len) = (before, run + len);
        }
        self.free.insert(at, len);
    }

    /// Where a piece is for a command.
    pub(crate) fn iova(&self, room: &Room) -> u64 {
        self.iova + room.at as u64
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_whole_again() {
        let memory = Memory::new();
        let mut bounce = Bounce::new(&memory, 3, 1).unwrap();
        let mut rooms: Vec<Room> = (0..BYTES / PAGE_SIZE).map(|_| bounce.take(1).unwrap()).collect();
        assert!(bounce.take(1).is_none());
        assert_eq!(
            rooms.iter().map(|room| room.at).collect::<std::collections::BTreeSet<_>>().len(),
            rooms.len()
        );
        // Every other one first: no two pages lie together.
        let odd: Vec<Room> = (0..rooms.len() / 2).map(|n| rooms.remove(n)).collect();
        odd.into_iter().for_each(|room| bounce.give_back(room));
        assert!(bounce.take(PAGE_SIZE + 1).is_none());
        rooms.into_iter().for_each(|room| bounce.give_back(room));
        let all = bounce.take(BYTES).unwrap();
        assert_eq!((all.at, all.len), (0, BYTES));
        assert!(memory.resolve(bounce.iova(&all), BYTES).is_ok() && !bounce.has(BYTES + 1));
    }
}
