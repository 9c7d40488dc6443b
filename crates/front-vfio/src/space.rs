//! Configuration space (PCI Local Bus 3.0, 6; PCI Express Base 3.1, 7): what a client reads of it, and which
//! bits of it a write changes. Everything else keeps its value, whatever is written.

use crate::bar;

/// Bytes that there are; those behind the capabilities are zeros (no extended capability).
pub(crate) const SIZE: usize = 4096;
/// Bytes that are not zeros for ever.
const HEADER: usize = 256;

/// Identifiers of no vendor: the project has none of the PCI-SIG. NVMe drivers bind by the class code.
const VENDOR: u16 = 0x4e53;
const DEVICE: u16 = 0x0001;
/// NVM Express I/O controller: mass storage, non-volatile memory, NVM Express (NVMe over PCIe 1.0, 3.1.5).
const CLASS: u32 = 0x01_08_02;

const COMMAND: usize = 0x04;
const BUS_MASTER: u8 = 1 << 2;
const STATUS: usize = 0x06;
const BAR0: usize = 0x10;
const CAPABILITIES: usize = 0x34;
const POWER: usize = 0x40;
const POWER_STATE: u8 = 3;
const MSIX: usize = 0x50;
const EXPRESS: usize = 0x60;
/// Device Control's second byte, and Initiate Function Level Reset in it.
const DEVICE_CONTROL_HIGH: usize = EXPRESS + 0x09;
const INITIATE_RESET: u8 = 1 << 7;

/// The space of one function.
pub(crate) struct Space {
    bytes: [u8; HEADER],
    /// Bits that a write changes.
    writable: [u8; HEADER],
}

impl Space {
    /// As after a reset, with so many MSI-X vectors.
    pub(crate) fn new(vectors: u16) -> Space {
        let mut space = Space { bytes: [0; HEADER], writable: [0; HEADER] };
        space.set(0x00, &VENDOR.to_le_bytes());
        space.set(0x02, &DEVICE.to_le_bytes());
        space.set(0x2c, &VENDOR.to_le_bytes());
        space.set(0x2e, &DEVICE.to_le_bytes());
        space.set(0x09, &CLASS.to_le_bytes()[..3]);
        // Memory space, bus master, parity, SERR, no interrupt pin: an I/O space there is not.
        space.allow(COMMAND, &0x0546u16.to_le_bytes());
        // A list of capabilities.
        space.set(STATUS, &0x0010u16.to_le_bytes());
        // Cache line size and interrupt line: the system's notes.
        space.allow(0x0c, &[0xff]);
        space.allow(0x3c, &[0xff]);
        // A 64-bit memory BAR: the bits of its size stay zeros, which is how a system learns it.
        space.set(BAR0, &4u32.to_le_bytes());
        space.allow(BAR0, &(!(bar::SIZE as u64 - 1)).to_le_bytes());
        space.set(CAPABILITIES, &[POWER as u8]);
        // Power management 1.2: D0 and D3hot, and what is configured survives (No_Soft_Reset).
        space.set(POWER, &[0x01, MSIX as u8, 0x03, 0x00, 0x08, 0x00]);
        space.allow(POWER + 4, &[0x03]);
        space.set(MSIX, &[0x11, EXPRESS as u8]);
        space.set(MSIX + 2, &(vectors - 1).to_le_bytes());
        // Function mask and enable.
        space.allow(MSIX + 3, &[0xc0]);
        // Table and pending bits in BAR 0.
        space.set(MSIX + 4, &(bar::TABLE as u32).to_le_bytes());
        space.set(MSIX + 8, &(bar::PENDING as u32).to_le_bytes());
        // An endpoint, version 2; role-based error reporting, function level reset; one lane of 2.5 GT/s.
        space.set(EXPRESS, &[0x10, 0x00, 0x02, 0x00]);
        space.set(EXPRESS + 0x04, &0x1000_8000u32.to_le_bytes());
        space.allow(EXPRESS + 0x08, &[0xff, 0x7f]);
        space.set(EXPRESS + 0x0c, &0x0000_0011u32.to_le_bytes());
        space.allow(EXPRESS + 0x10, &[0xc3, 0x01]);
        space.set(EXPRESS + 0x12, &0x0011u16.to_le_bytes());
        space
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    /// Reads from `at` on; behind the space there are zeros.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        for (to, at) in into.iter_mut().zip(at..) {
            *to = self.bytes.get(at).copied().unwrap_or(0);
        }
    }

    /// Whether the function may reach memory: Bus Master Enable, in power state D0 (PCI Local Bus 3.0, 6.2.2;
    /// PCI Power Management 1.2, 5.4.1).
    pub(crate) fn masters_the_bus(&self) -> bool {
        self.bytes[COMMAND] & BUS_MASTER != 0 && self.bytes[POWER + 4] & POWER_STATE == 0
    }

    /// Writes from `at` on what may be written. Whether the function is to be reset.
    #[must_use]
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) -> bool {
        let mut resets = false;
        for (&byte, at) in bytes.iter().zip(at..) {
            let (Some(old), Some(may)) = (self.bytes.get_mut(at), self.writable.get(at)) else { continue };
            *old = *old & !may | byte & may;
            resets |= at == DEVICE_CONTROL_HIGH && byte & INITIATE_RESET != 0;
        }
        resets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(space: &Space, at: usize) -> u32 {
        let mut bytes = [0; 4];
        space.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn golden() {
        let space = Space::new(32);
        assert_eq!(word(&space, 0x08) >> 8, 0x01_0802);
        assert_eq!(word(&space, BAR0), 4);
        // The chain of capabilities, each within the header, to its end.
        let (mut at, mut seen) = (word(&space, CAPABILITIES) as usize & 0xff, Vec::new());
        while at != 0 {
            seen.push(word(&space, at) as u8);
            at = (word(&space, at) >> 8) as usize & 0xff;
        }
        assert_eq!(seen, [0x01, 0x11, 0x10]);
        assert_eq!(word(&space, MSIX) >> 16, 31);
    }

    #[test]
    fn a_bar_is_sized_and_placed() {
        let mut space = Space::new(32);
        assert!(!space.write(BAR0, &[0xff; 8]));
        assert_eq!((word(&space, BAR0), word(&space, BAR0 + 4)), (!(bar::SIZE as u32 - 1) | 4, u32::MAX));
        assert!(!space.write(BAR0, &0xfebd_4000u32.to_le_bytes()));
        assert_eq!(word(&space, BAR0), 0xfebd_4004);
    }

    #[test]
    fn memory_is_reached_by_a_bus_master_in_d0() {
        let mut space = Space::new(32);
        assert!(!space.masters_the_bus());
        for (at, byte, masters) in
            [(COMMAND, 4, true), (POWER + 4, 3, false), (POWER + 4, 0, true), (COMMAND, 2, false)]
        {
            assert!(!space.write(at, &[byte]));
            assert_eq!(space.masters_the_bus(), masters, "{byte} at {at:#x}");
        }
    }

    #[test]
    fn wild_writes_change_what_may_be_changed() {
        let fresh = Space::new(32);
        let mut space = Space::new(32);
        assert!(space.write(0, &[0xff; SIZE]), "a function level reset was in it");
        let _ = space.write(SIZE - 2, &[0xff; 64]);
        let _ = space.write(usize::MAX - 1, &[0xff; 1]);
        for at in (0..SIZE).step_by(4) {
            let may = space.writable.get(at..at + 4).map_or(0, |w| u32::from_le_bytes(w.try_into().unwrap()));
            assert_eq!(word(&space, at) & !may, word(&fresh, at) & !may, "at {at:#x}");
        }
        assert_eq!(word(&space, COMMAND) & 0xffff, 0x0546);
        assert!(!space.write(DEVICE_CONTROL_HIGH, &[0x7f]));
    }
}
