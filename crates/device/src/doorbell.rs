//! Where doorbells are read, and when a host writes their registers.
//!
//! A host that shares no doorbell page with the drive (a virtual machine's, whose every write to a register
//! costs a way through its machine monitor) keeps them in memory: by Doorbell Buffer Config (Base 2.0, 5.8
//! and annex B.5) it names a page of shadow doorbells and one of event indexes. It stores a new value into
//! the shadow, then writes the register only where the value passes the event index. So the drive keeps the
//! index where the host does not come by while it looks at the shadow itself, and puts it at the value it has
//! seen before it sleeps.
//!
//! Who orders what: the host stores the shadow, has a full fence, loads the index. The drive stores the
//! index, has a full fence ([`Doorbells::fence`]), loads the shadow. Whichever fence comes second sees the
//! other's store: the drive finds the new value and does not sleep, or the host finds the index and writes
//! the register. It is the protocol of `dma/arming.rs`, which `dma/tests/loom.rs` proves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use nearside_dma::{Memory, PAGE_SIZE, Region};
use nearside_spec::registers::{DOORBELLS, sq_tail_doorbell};

/// Bytes of host memory that something of a controller's lies in for long: found by its address, and found
/// again where the host's mappings have changed.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    iova: u64,
    len: usize,
    found: Option<(Arc<Region>, usize)>,
    /// The host has to be asked for it.
    remote: bool,
}

impl Placed {
    pub(crate) fn at(memory: &Memory, iova: u64, len: usize) -> Placed {
        let mut placed = Placed { iova, len, found: None, remote: false };
        placed.find(memory);
        placed
    }

    /// Looks for it: within one mapping, aligned in memory as its words need.
    pub(crate) fn find(&mut self, memory: &Memory) {
        self.found = None;
        self.remote = false;
        let Ok(span) = memory.resolve(self.iova, self.len) else {
            let holds = |write| memory.remote().holds(self.iova, self.len, write);
            self.remote = holds(false) && holds(true);
            return;
        };
        let Some((region, at)) = memory.locate(span) else { return };
        self.found = at.is_multiple_of(64).then(|| (Arc::clone(&region), at));
    }

    /// Where it is in the host's addresses.
    pub(crate) fn iova(&self) -> u64 {
        self.iova
    }

    /// Whether the host has to be asked for it.
    #[inline]
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }

    #[inline]
    pub(crate) fn region(&self) -> Option<(&Region, usize)> {
        self.found.as_ref().map(|(region, at)| (&**region, *at))
    }
}

/// The two pages of Doorbell Buffer Config.
#[derive(Clone, Debug)]
pub(crate) struct ShadowPages {
    values: Placed,
    events: Placed,
}

impl ShadowPages {
    pub(crate) fn new(memory: &Memory, values: u64, events: u64) -> ShadowPages {
        let page = |iova| Placed::at(memory, iova, PAGE_SIZE);
        ShadowPages { values: page(values), events: page(events) }
    }

    /// Whether both are mapped.
    pub(crate) fn is_reachable(&self) -> bool {
        self.values.region().is_some() && self.events.region().is_some()
    }

    /// Begins with a doorbell: its value, which the host is to tell of at its next change.
    pub(crate) fn begin(&self, doorbell: usize, value: u32) {
        for page in [&self.values, &self.events] {
            if let Some(word) = word(page, doorbell) {
                word.store(value, Ordering::Release);
            }
        }
    }
}

#[inline]
fn word(page: &Placed, doorbell: usize) -> Option<&AtomicU32> {
    let (region, base) = page.region()?;
    Some(region.word32(base + (doorbell - DOORBELLS)))
}

/// Where the doorbells of one look are read.
#[derive(Clone, Copy)]
pub(crate) struct Doorbells<'a> {
    pub(crate) registers: &'a Region,
    pub(crate) shadow: Option<&'a ShadowPages>,
}

impl<'a> Doorbells<'a> {
    #[inline]
    pub(crate) fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    /// The pages, for a doorbell that stands there: hosts keep those of the admin queue in the registers
    /// alone.
    #[inline]
    fn shadow_of(&self, doorbell: usize) -> Option<&'a ShadowPages> {
        self.shadow.filter(|_| doorbell >= sq_tail_doorbell(1))
    }

    /// A doorbell's value; `None` where the memory that it stands in is not mapped just now.
    #[inline]
    pub(crate) fn value(&self, doorbell: usize) -> Option<u32> {
        match self.shadow_of(doorbell) {
            None => Some(self.registers.word32(doorbell).load(Ordering::Acquire)),
            Some(pages) => word(&pages.values, doorbell).map(|word| word.load(Ordering::Acquire)),
        }
    }

    /// Between the event indexes and the last look at the values.
    pub(crate) fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// A doorbell's event index, as it was last written.
#[derive(Debug)]
pub(crate) struct Event {
    doorbell: usize,
    /// `NOWHERE`: not by this drive.
    at: AtomicU32,
}

const NOWHERE: u32 = u32::MAX;

impl Event {
    pub(crate) const fn new(doorbell: usize) -> Event {
        Event { doorbell, at: AtomicU32::new(NOWHERE) }
    }

    /// The pages may be others than before.
    pub(crate) fn forget(&mut self) {
        *self.at.get_mut() = NOWHERE;
    }

    /// Sets the index: the host tells when it goes on from there.
    pub(crate) fn set(&self, doorbells: &Doorbells<'_>, value: u32) {
        let Some(pages) = doorbells.shadow_of(self.doorbell) else { return };
        if let Some(word) = word(&pages.events, self.doorbell) {
            word.store(value, Ordering::Release);
            self.at.store(value, Ordering::Relaxed);
        }
    }

    /// Keeps the index away from where the host goes on: `value` is what it has said last, in a queue of
    /// `size` entries. Just behind that, it would have to go all around; it is moved once half of the way is
    /// gone, so that the two seldom write to one line.
    #[inline]
    pub(crate) fn put_off(&self, doorbells: &Doorbells<'_>, value: u32, size: u32) {
        if !doorbells.has_shadow() {
            return;
        }
        let at = self.at.load(Ordering::Relaxed);
        let ahead =
            if at >= value { at.wrapping_sub(value) } else { at.wrapping_add(size).wrapping_sub(value) };
        if at >= size || ahead < size / 2 {
            self.set(doorbells, if value == 0 { size - 1 } else { value - 1 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux does (nvme_dbbuf_need_event, drivers/nvme/host/pci.c): whether a host that goes on from
    /// `old` to `new` writes the register.
    fn tells(event: u32, old: u32, new: u32) -> bool {
        let cut = |n: u32| n as u16;
        cut(new.wrapping_sub(event).wrapping_sub(1)) < cut(new.wrapping_sub(old))
    }

    struct Rig {
        memory: Memory,
        registers: Region,
    }

    impl Rig {
        fn new() -> Rig {
            let memory = Memory::new();
            memory.map(0, Arc::new(Region::anonymous(2 * PAGE_SIZE).unwrap())).unwrap();
            Rig { memory, registers: Region::anonymous(nearside_dma::REGISTERS_SIZE).unwrap() }
        }
    }

    #[test]
    fn a_host_that_is_watched_tells_nothing_and_one_that_is_not_tells_all() {
        let rig = Rig::new();
        let pages = ShadowPages::new(&rig.memory, 0, PAGE_SIZE as u64);
        assert!(pages.is_reachable());
        let doorbells = Doorbells { registers: &rig.registers, shadow: Some(&pages) };
        let index = || word(&pages.events, sq_tail_doorbell(3)).unwrap().load(Ordering::Relaxed);
        for size in [2, 3, 32, 1024, 65_536] {
            let event = Event::new(sq_tail_doorbell(3));
            let (mut told, mut steps) = (0, 0);
            event.put_off(&doorbells, 0, size);
            let mut old = 0;
            // Steps of the host that the drive sees one by one, several times around.
            while steps < 5 * size.max(20) {
                let by = 1 + steps % (size / 4).max(1);
                let new = (old + by) % size;
                told += u32::from(tells(index(), old, new));
                event.put_off(&doorbells, new, size);
                // Before the drive sleeps: whatever the host does next, it tells.
                event.set(&doorbells, new);
                for next in [1, size - 1] {
                    assert!(tells(index(), new, (new + next) % size), "{new} and {next} of {size}");
                }
                event.put_off(&doorbells, new, size);
                assert!(size < 3 || !tells(index(), new, (new + 1) % size), "{new} of {size}");
                (old, steps) = (new, steps + by);
            }
            assert!(size < 32 || told == 0, "{told} of a queue of {size}");
        }
    }

    #[test]
    fn the_admin_queue_has_registers_and_memory_that_is_gone_says_nothing() {
        let rig = Rig::new();
        let mut pages = ShadowPages::new(&rig.memory, 0, PAGE_SIZE as u64);
        pages.begin(sq_tail_doorbell(1), 7);
        rig.registers.word32(sq_tail_doorbell(0)).store(5, Ordering::Relaxed);
        let doorbells = Doorbells { registers: &rig.registers, shadow: Some(&pages) };
        let value = |id| doorbells.value(sq_tail_doorbell(id));
        assert_eq!((value(0), value(1), value(2)), (Some(5), Some(7), Some(0)));
        rig.memory.unmap(0).unwrap();
        pages = ShadowPages::new(&rig.memory, 0, PAGE_SIZE as u64);
        let doorbells = Doorbells { registers: &rig.registers, shadow: Some(&pages) };
        assert!(!pages.is_reachable());
        assert_eq!(
            (doorbells.value(sq_tail_doorbell(0)), doorbells.value(sq_tail_doorbell(1))),
            (Some(5), None)
        );
    }
}
