//! What a controller is like.

use nearside_dma::PAGE_SIZE;

/// Queue pairs that fit the doorbells, the admin pair included.
pub(crate) const MAX_QUEUES: usize = 64;

/// A controller's properties, fixed when it is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of a logical block: 512 or 4096.
    pub lba_size: u32,
    /// Reactors: 1 for an I/O path without locks.
    pub reactors: usize,
    /// I/O queue pairs offered, at most 63.
    pub io_queues: u16,
    /// Entries of an I/O queue, at most 65536 and at least 2.
    pub queue_entries: u32,
    /// Interrupt vectors.
    pub vectors: u16,
    /// Log2 of the largest transfer in 4 KiB pages (MDTS), 1 to 12; 8 is 1 MiB.
    pub mdts: u8,
    /// Whether a volatile write cache is reported, which a host then flushes.
    pub write_cache: bool,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Model, at most 40.
    pub model: String,
    /// Subsystem NQN.
    pub subsystem: String,
    /// The namespace's UUID.
    pub uuid: [u8; 16],
}

impl Default for Config {
    fn default() -> Config {
        Config {
            lba_size: 512,
            reactors: 1,
            io_queues: 32,
            queue_entries: 4096,
            vectors: 33,
            mdts: 8,
            write_cache: true,
            serial: "NEARSIDE0".into(),
            model: "Nearside".into(),
            subsystem: "nqn.2026-11.dev.nearside:drive".into(),
            uuid: *b"Nearside\x00\x01\x40\x02\x80\x03\x00\x01",
        }
    }
}

impl Config {
    /// Why it cannot be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let bounds = [
            ("reactors", self.reactors as u64, 1, 16),
            ("io_queues", self.io_queues.into(), 1, MAX_QUEUES as u64 - 1),
            ("queue_entries", self.queue_entries.into(), 2, 65536),
            ("vectors", self.vectors.into(), 1, MAX_QUEUES as u64),
            ("mdts", self.mdts.into(), 1, 12),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(format!("{name} is {value}; it can be {least} to {most}"));
            }
        }
        if self.subsystem.len() > 223 {
            return Err("a subsystem NQN has at most 223 bytes".into());
        }
        Ok(())
    }

    /// Bytes of the largest transfer.
    pub(crate) fn max_transfer(&self) -> u64 {
        (PAGE_SIZE as u64) << self.mdts
    }
}
