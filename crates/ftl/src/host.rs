//! What the host asks for: reads, writes, flushes, deallocations, each answered with the time at which it is
//! done.
//!
//! The firmware does one thing at a time: each command takes some of it, and of the link, in the order of
//! coming. A write is done once the buffer has room for it. A read is done when its last unit has come over
//! its channel. Times never go back from call to call.

use crate::map::{Location, NONE};
use crate::trims::Trims;
use crate::{Flash, Halt, SLOT_BYTES, Waiting};

/// Deallocated slots whose old versions are held at most, before the bitmaps are written unasked.
const HELD: usize = 1 << 16;

/// The part of a slot that a range touches: the slot, and the bytes within it.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> {
    let end = offset + len;
    let last = if len == 0 { 0 } else { end.div_ceil(SLOT_BYTES) };
    (offset / SLOT_BYTES..last).map(move |slot| {
        let base = slot * SLOT_BYTES;
        let from = offset.max(base) - base;
        let until = end.min(base + SLOT_BYTES) - base;
        (slot as u32, from as usize..until as usize)
    })
}

impl<P: Clone + Default + Send + 'static> Flash<P> {
    /// A range is read: when it is done. The data is with [`Flash::peek`].
    pub fn read(&mut self, offset: u64, len: u64, now: u64) -> u64 {
        let controller = self.drive.controller;
        let link_ns = len * controller.link_ns_per_kib / 1024;
        let start = self.firmware(now, controller.read_busy_ns.max(link_ns));
        let mut finish = start + controller.hit_ns;
        let slots = self.slots();
        let (mut unit, mut bytes) = (NONE, 0);
        for (logical, part) in parts(offset, len) {
            let Location::Flash(slot) = self.map.get(logical) else { continue };
            if self.cache.hit(logical) {
                continue;
            }
            if slot / slots != unit {
                finish = finish.max(self.read_unit(unit, bytes, start));
                (unit, bytes) = (slot / slots, 0);
            }
            bytes += part.len() as u32;
        }
        finish.max(self.read_unit(unit, bytes, start)) + link_ns
    }

    fn read_unit(&mut self, unit: u32, bytes: u32, start: u64) -> u64 {
        if bytes == 0 {
            return start;
        }
        let controller = self.drive.controller;
        let (die, nth) = (unit / self.units_of_die(), unit % self.units_of_die());
        if self.nand.in_flight(die, nth, start) {
            return start + controller.hit_ns;
        }
        let bytes = if controller.whole_units { self.drive.geometry.unit_bytes() } else { bytes };
        if controller.read_buffer_bytes > 0 {
            for slot in unit * self.slots()..(unit + 1) * self.slots() {
                if self.is_valid(slot) {
                    self.cache.insert(self.array.logical(slot));
                }
            }
        }
        self.nand.read(die, nth, bytes, start) + controller.read_ns
    }

    /// The newest data of a slot of 4 KiB; none where it reads as zeros.
    pub fn peek(&self, logical: u32) -> Option<&P> {
        match self.map.get(logical) {
            Location::Nowhere => None,
            Location::Buffer(index) => self.buffer.get(index).map(|w| &w.data),
            Location::Flash(slot) => self.array.data(slot),
        }
    }

    /// A range is written: when it is done. `data` makes the new data of a slot from its number, the bytes of
    /// it that are written, and what was there. `durable`: it is done when it survives a power cut (FUA).
    ///
    /// # Errors
    /// [`Halt`]: the power is gone, or no block is free.
    pub fn write(
        &mut self,
        offset: u64,
        len: u64,
        durable: bool,
        now: u64,
        mut data: impl FnMut(u32, std::ops::Range<usize>, Option<&P>) -> P,
    ) -> Result<u64, Halt> {
        let controller = self.drive.controller;
        let link_ns = len * controller.link_ns_per_kib / 1024;
        let slots = parts(offset, len).count() as u64;
        let start = self.firmware(now, (slots * controller.write_busy_ns).max(link_ns));
        let mut finish = start;
        for (logical, part) in parts(offset, len) {
            finish = finish.max(self.put(logical, part, start, &mut data)?);
        }
        if durable {
            finish = finish.max(self.make_durable(start)?);
        }
        Ok(finish + controller.write_ns + link_ns)
    }

    fn put(
        &mut self,
        logical: u32,
        part: std::ops::Range<usize>,
        now: u64,
        data: &mut impl FnMut(u32, std::ops::Range<usize>, Option<&P>) -> P,
    ) -> Result<u64, Halt> {
        if let Location::Flash(slot) = self.map.get(logical)
            && (part.len() as u64) < SLOT_BYTES
        {
            // Read, modify, write: the rest of the slot comes from the flash first.
            let (unit, units) = (slot / self.slots(), self.units_of_die());
            self.nand.background_read(unit / units, unit % units, SLOT_BYTES as u32, now);
        }
        let new = data(logical, part, self.peek(logical));
        self.stats.host += 1;
        self.cache.insert(logical);
        self.enter(logical, new, now)
    }

    /// Into the buffer; a full one is programmed.
    pub(crate) fn enter(&mut self, logical: u32, data: P, now: u64) -> Result<u64, Halt> {
        let durable = match self.map.get(logical) {
            Location::Buffer(index) => {
                self.buffer[index].data = data;
                return Ok(now);
            }
            Location::Nowhere => NONE,
            Location::Flash(slot) => slot,
        };
        self.map.set(logical, Location::Buffer(self.buffer.len()));
        self.buffer.push(Waiting { logical, durable, data });
        if self.buffer.len() as u32 == self.slots() { self.program_buffer(now) } else { Ok(now) }
    }

    /// Everything that is done becomes durable: when that is done.
    ///
    /// # Errors
    /// [`Halt`]: the power is gone, or no block is free.
    pub fn flush(&mut self, now: u64) -> Result<u64, Halt> {
        let start = self.firmware(now, self.drive.controller.read_busy_ns);
        Ok(self.make_durable(start)? + self.drive.controller.hit_ns)
    }

    /// With capacitors all that was accepted is safe. Without, the buffers are programmed, full or not.
    fn make_durable(&mut self, now: u64) -> Result<u64, Halt> {
        if self.drive.controller.protected {
            return Ok(now);
        }
        self.write_bitmaps(now)?;
        self.program_buffer(now)?;
        self.programs.clear();
        Ok(self.nand.drain(now))
    }

    /// Programs the bitmaps that are behind; what was held for them is garbage then.
    fn write_bitmaps(&mut self, now: u64) -> Result<(), Halt> {
        if self.trims.dirty.is_empty() {
            return Ok(());
        }
        let dirty = std::mem::take(&mut self.trims.dirty);
        for &group in &dirty {
            self.enter(self.trims.number(group), P::default(), now)?;
        }
        self.program_buffer(now)?;
        for (_, slot) in std::mem::take(&mut self.trims.held) {
            self.invalidate(slot);
        }
        Ok(())
    }

    /// A range is deallocated and reads as zeros: when that is done. Slots that it touches in part are
    /// written: `data` as with [`Flash::write`].
    ///
    /// # Errors
    /// [`Halt`]: the power is gone, or no block is free.
    pub fn deallocate(
        &mut self,
        offset: u64,
        len: u64,
        durable: bool,
        now: u64,
        mut data: impl FnMut(u32, std::ops::Range<usize>, Option<&P>) -> P,
    ) -> Result<u64, Halt> {
        let start = self.firmware(now, self.drive.controller.read_busy_ns);
        let mut finish = start;
        let end = offset + len;
        let first = offset.div_ceil(SLOT_BYTES) as u32;
        let last = if end.div_ceil(SLOT_BYTES) as u32 == self.logical && end == self.drive.capacity {
            self.logical
        } else {
            (end / SLOT_BYTES) as u32
        };
        let head = parts(offset, len).next();
        let tail = parts(offset, len).last().filter(|tail| Some(tail) != head.as_ref());
        for (logical, part) in head.into_iter().chain(tail) {
            if !(first..last).contains(&logical) && self.map.get(logical) != Location::Nowhere {
                finish = finish.max(self.put(logical, part, start, &mut data)?);
            }
        }
        let mut logical = self.map.next_mapped(first);
        while logical < last {
            self.forget(logical);
            if self.trims.held.len() >= HELD {
                self.write_bitmaps(start)?;
            }
            logical = self.map.next_mapped(logical + 1);
        }
        if durable {
            finish = finish.max(self.make_durable(start)?);
        }
        Ok(finish + self.drive.controller.hit_ns)
    }

    /// A slot becomes zeros. Its durable version is held until the bitmap is written.
    pub(crate) fn forget(&mut self, logical: u32) {
        let durable = match self.map.get(logical) {
            Location::Nowhere => return,
            Location::Flash(slot) => slot,
            Location::Buffer(index) => {
                let waiting = self.buffer.swap_remove(index);
                if let Some(moved) = self.buffer.get(index) {
                    self.map.set(moved.logical, Location::Buffer(index));
                }
                waiting.durable
            }
        };
        self.map.set(logical, Location::Nowhere);
        if durable != NONE {
            self.trims.hold(logical, durable);
        }
    }

    /// When the firmware takes a command that comes now and keeps it for so long.
    fn firmware(&mut self, now: u64, busy_ns: u64) -> u64 {
        let start = self.firmware_free_at.max(now);
        self.firmware_free_at = start + busy_ns;
        start
    }

    /// Slots that the groups of bitmaps are for.
    pub(crate) fn groups(&self) -> u32 {
        Trims::groups(self.logical)
    }
}
