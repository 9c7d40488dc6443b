//! The checksums: CRC32c chained from a seed (feature metadata_csum), CRC16 (feature uninit_bg), and the
//! CRC32 of a journal's first kind of checksum.
//!
//! The volume's seed is CRC32c of its UUID or a field of the superblock (metadata_csum_seed); each inode has
//! its own, continued with its number and generation, for what belongs to it (inode, extent blocks, directory
//! blocks).

/// A running CRC32c without the final inversion, as ext4 chains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crc(pub(super) u32);

impl Crc {
    /// Before the first byte.
    pub(super) const START: Crc = Crc(u32::MAX);

    /// Continued over `bytes`.
    pub(super) fn over(self, bytes: &[u8]) -> Crc {
        Crc(!crc32c::crc32c_append(!self.0, bytes))
    }

    /// Continued over a little-endian number.
    pub(super) fn over_u32(self, value: u32) -> Crc {
        self.over(&value.to_le_bytes())
    }

    /// The low half, for the fields that keep only that.
    pub(super) fn low(self) -> u16 {
        low_half(self.0)
    }
}

/// The low 16 bits.
pub(super) fn low_half(value: u32) -> u16 {
    let [a, b, _, _] = value.to_le_bytes();
    u16::from_le_bytes([a, b])
}

const CRC16_TABLE: [u16; 256] = crc16_table();

#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "evaluated by the compiler"
)]
const fn crc16_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xA001 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// CRC16 (reflected polynomial A001) of `bytes`, continued from `crc`.
pub(super) fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, byte| {
        let [low, high] = crc.to_le_bytes();
        let entry = CRC16_TABLE.get(usize::from(low ^ byte)).copied().unwrap_or(0);
        u16::from(high) ^ entry
    })
}

const CRC32_TABLE: [u32; 256] = crc32_table();

#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "evaluated by the compiler"
)]
const fn crc32_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 { (crc << 1) ^ 0x04C1_1DB7 } else { crc << 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// CRC32 (polynomial 04C11DB7, the highest bit first, without inversion) of `bytes`, continued from `crc`.
pub(super) fn crc32_be(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| {
        let [high, ..] = crc.to_be_bytes();
        let entry = CRC32_TABLE.get(usize::from(high ^ byte)).copied().unwrap_or(0);
        crc.wrapping_shl(8) ^ entry
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(!Crc::START.over(b"123456789").0, 0xE306_9283);
        assert_eq!(Crc::START.over(b"1234").over(b"56789"), Crc::START.over(b"123456789"));
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        // CRC-32/MPEG-2.
        assert_eq!(crc32_be(u32::MAX, b"123456789"), 0x0376_E6E7);
    }
}
