//! The fields on disk, as in drivers/md/dm-log-writes.c.

use std::fmt;

/// `log_write_super.magic`.
pub const MAGIC: u64 = 0x6a_7366_7773_6872;
/// `log_write_super.version`.
pub const VERSION: u64 = 1;
/// Bytes of the superblock's fields.
pub(super) const SUPER_BYTES: usize = 28;
/// Where the superblock counts the entries.
pub(super) const ENTRIES_AT: u64 = 16;
/// Bytes of an entry's fields.
pub(super) const ENTRY_BYTES: usize = 32;
/// How the first mark begins that says how large a store is; bytes in decimal follow.
const CAPACITY: &str = "nearside capacity=";

/// What an entry is: `log_write_entry.flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u64);

impl Flags {
    /// A write, or nothing where there are no sectors.
    pub const NONE: Flags = Flags(0);
    /// What stands before it is durable.
    pub const FLUSH: Flags = Flags(1);
    /// Durable by itself.
    pub const FUA: Flags = Flags(2);
    /// Sectors are forgotten; no data follow.
    pub const DISCARD: Flags = Flags(4);
    /// A text of the user's.
    pub const MARK: Flags = Flags(8);
    /// A write that the host called metadata.
    pub const METADATA: Flags = Flags(16);

    const NAMES: [(Flags, &'static str); 5] = [
        (Flags::FLUSH, "flush"),
        (Flags::FUA, "fua"),
        (Flags::DISCARD, "discard"),
        (Flags::MARK, "mark"),
        (Flags::METADATA, "metadata"),
    ];

    /// Whether all of these are there.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those that the format does not know.
    pub(super) fn unknown(self) -> u64 {
        self.0 & !0x1f
    }

    /// Their names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join("+"))
    }
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which, from 0.
    pub index: u64,
    /// Where it begins in the log, in bytes.
    pub offset: u64,
    /// First sector of the store, in the log's sectors.
    pub sector: u64,
    /// Sectors.
    pub sectors: u64,
    /// What it is.
    pub flags: Flags,
    /// Bytes of a mark's text.
    pub mark_bytes: u64,
}

impl Entry {
    /// Whether its sectors' data follow it in the log.
    pub fn has_data(&self) -> bool {
        self.sectors > 0 && !self.flags.has(Flags::DISCARD)
    }

    /// Whether it changes the store.
    pub fn mutates(&self) -> bool {
        self.sectors > 0
    }

    /// Its fields as they lie in the log.
    pub(super) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        for (field, value) in
            bytes.chunks_exact_mut(8).zip([self.sector, self.sectors, self.flags.0, self.mark_bytes])
        {
            field.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(index: u64, offset: u64, bytes: &[u8; ENTRY_BYTES]) -> Entry {
        let [sector, sectors, flags, mark_bytes] = std::array::from_fn(|nr| word(bytes, nr * 8));
        Entry { index, offset, sector, sectors, flags: Flags(flags), mark_bytes }
    }
}

/// A little-endian word; zero beyond the end.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// The superblock of a log.
pub(super) fn superblock(entries: u64, sector_bytes: u32) -> [u8; SUPER_BYTES] {
    let mut bytes = [0; SUPER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..16].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&entries.to_le_bytes());
    bytes[24..].copy_from_slice(&sector_bytes.to_le_bytes());
    bytes
}

/// The text of the first mark, which says how large the store is.
pub(super) fn capacity_mark(bytes: u64) -> String {
    format!("{CAPACITY}{bytes}")
}

/// How many bytes the store has, where a mark says so.
pub fn capacity_of(mark: &[u8]) -> Option<u64> {
    std::str::from_utf8(mark).ok()?.strip_prefix(CAPACITY)?.parse().ok()
}
