//! act_storage's arithmetic: from the rates of a file's clients to those of its devices.
//!
//! Integers where ACT has them: requests per second, the size of a record as it is stored, and the records
//! that fit a large block. (ACT's README divides bytes by bytes in its example; what ACT prints as its
//! derived configuration counts whole records, since none crosses a block's end.)

use std::fmt;

use serde::{Deserialize, Serialize};

/// A stored record begins at a multiple of this, in bytes.
const RBLOCK: u64 = 16;
/// Neither a record nor a large block is longer, in bytes.
pub(super) const LARGEST: u64 = 8 << 20;

/// What clients ask of all devices together, and how the database stores it: the keys of a file that shape
/// the load, by ACT's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Clients' reads per second.
    pub read_reqs_per_sec: u64,
    /// Clients' writes per second.
    pub write_reqs_per_sec: u64,
    /// The smallest record in bytes.
    pub record_bytes: u64,
    /// The largest in bytes; 0: all are alike.
    pub record_bytes_range_max: u64,
    /// A large block in bytes: a power of two.
    pub large_block_op_bytes: u64,
    /// Nodes that keep each record.
    pub replication_factor: u64,
    /// Of the clients' writes, those that read the record first, in per cent.
    pub update_pct: u64,
    /// A block of which less than this is in use is defragmented, in per cent.
    pub defrag_lwm_pct: u64,
    /// Defragmentation reads memory, not the device.
    pub no_defrag_reads: bool,
    /// Each record is written by itself, at once.
    pub commit_to_device: bool,
}

impl Default for Asked {
    /// act_storage's; no requests.
    fn default() -> Asked {
        Asked {
            read_reqs_per_sec: 0,
            write_reqs_per_sec: 0,
            record_bytes: 1536,
            record_bytes_range_max: 0,
            large_block_op_bytes: 128 << 10,
            replication_factor: 1,
            update_pct: 0,
            defrag_lwm_pct: 50,
            no_defrag_reads: false,
            commit_to_device: false,
        }
    }
}

/// What act_storage prints as its derived configuration: rates of all devices together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Derived {
    /// The smallest record as it is stored, in bytes.
    pub record_stored_bytes: u32,
    /// The largest.
    pub record_stored_bytes_range_max: u32,
    /// Reads of records per second.
    pub internal_read_reqs_per_sec: u64,
    /// Writes of single records per second: none but with `commit-to-device`.
    pub internal_write_reqs_per_sec: u64,
    /// Reads of large blocks per second.
    pub large_block_reads_per_sec: f64,
    /// Writes of large blocks per second.
    pub large_block_writes_per_sec: f64,
}

impl fmt::Display for Derived {
    /// As act_storage prints it, a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (self.record_stored_bytes, self.record_stored_bytes_range_max);
        writeln!(f, "record-stored-bytes: {least} ... {most}")?;
        writeln!(f, "internal-read-reqs-per-sec: {}", self.internal_read_reqs_per_sec)?;
        writeln!(f, "internal-write-reqs-per-sec: {}", self.internal_write_reqs_per_sec)?;
        writeln!(f, "large-block-reads-per-sec: {:.2}", self.large_block_reads_per_sec)?;
        write!(f, "large-block-writes-per-sec: {:.2}", self.large_block_writes_per_sec)
    }
}

/// Why there is no such load: the key at fault, and in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    /// ACT's name of it.
    pub key: &'static str,
    /// What is wrong.
    pub reason: String,
}

impl Asked {
    /// The devices' rates: an update reads its record; a client's write is written on each replica; the
    /// records fill large blocks; a block is written `100 / (100 - defrag-lwm-pct)` times before it is full
    /// of what stays.
    ///
    /// # Errors
    /// [`Contradiction`]: keys that do not go together.
    pub(super) fn derive(&self) -> Result<Derived, Contradiction> {
        let wrong = |key, reason: &str| Err(Contradiction { key, reason: reason.to_owned() });
        if self.read_reqs_per_sec == 0 && self.write_reqs_per_sec == 0 {
            return wrong(
                "read-reqs-per-sec",
                "read-reqs-per-sec and write-reqs-per-sec are both 0, or not there",
            );
        }
        if self.record_bytes_range_max != 0 && self.record_bytes_range_max <= self.record_bytes {
            return wrong("record-bytes-range-max", "it has to be above record-bytes, or 0");
        }
        let stored = self.record_bytes.next_multiple_of(RBLOCK);
        let most = self.record_bytes_range_max.next_multiple_of(RBLOCK).max(stored);
        // Sizes between the two are all as likely.
        let per_block = self.large_block_op_bytes / ((stored + most) / 2);
        if per_block == 0 && self.write_reqs_per_sec > 0 {
            return wrong("large-block-op-kbytes", "not one record of the mean size fits a large block");
        }
        let replicated = self.write_reqs_per_sec * self.replication_factor;
        let written = replicated as f64 / per_block.max(1) as f64;
        let amplification = 100.0 / (100 - self.defrag_lwm_pct) as f64;
        let large = written * amplification;
        let committed = self.commit_to_device;
        Ok(Derived {
            record_stored_bytes: stored as u32,
            record_stored_bytes_range_max: most as u32,
            internal_read_reqs_per_sec: self.read_reqs_per_sec
                + self.write_reqs_per_sec * self.update_pct / 100,
            internal_write_reqs_per_sec: if committed { replicated } else { 0 },
            large_block_reads_per_sec: if self.no_defrag_reads { 0.0 } else { large },
            // What is committed by itself goes into a large block only when it is defragmented.
            large_block_writes_per_sec: if committed { written * (amplification - 1.0) } else { large },
        })
    }
}
