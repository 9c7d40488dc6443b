//! The write log: what a store was told to change, in the order in which it was done, so that every instant
//! of a host's life can be made again as an image.
//!
//! The format is that of Linux's dm-log-writes (drivers/md/dm-log-writes.c), which QEMU's blklogwrites and
//! xfstests' replay-log speak as well: a superblock, then entries, each in a sector of its own with the bytes
//! that were written behind it. All fields are little-endian.
//!
//! ```text
//! sector 0     magic u64, version u64, entries u64, sector size in bytes u32
//! each entry   sector u64, sectors u64, flags u64, bytes of a mark u64; a mark's text; then the data, unless
//!              it is a discard
//! ```
//!
//! [`Logged`] writes it, [`WriteLog`] holds the file, [`LogReader`] reads it, [`survivors`] says which writes
//! an instant has, and [`LogReader::replay`] and [`LogReader::apply`] make the image.
//!
//! # What the order says
//!
//! - A write, a write of zeros or a discard has its entry when it has ended well, before the host hears of
//!   it. It holds the very bytes that the store was given.
//! - A flush has its entry where it was submitted; until it has ended well, and if it fails for ever, the
//!   entry says nothing ([`Flags::NONE`], no sectors). So the writes before a flush's entry are those that
//!   had ended when it was submitted, which are the ones that it makes durable, and those behind it are not.
//! - Operations that were in flight together on the same block have no order in the store's contract; here
//!   they have the order in which they ended.
//! - Zeros are logged as data (which take no room where the log's file system has holes).
//! - A mutation that the store failed may have changed some of its blocks: a mark says which it was. What
//!   was refused before anything was done (out of range, read-only) is not there.
//! - The first entry is a mark that says how large the store is ([`capacity_of`]). What the store held
//!   before is not in the log.
//!
//! # When it cannot be written
//!
//! The log ends, the store goes on. Who runs the drive hears of it at once, as an error in the program's
//! log, and by [`WriteLog::trouble`]; the log says it in a last mark where that has room. All that is counted
//! in it is whole: it ends before the first operation that it could not take.
//!
//! An entry is written by the thread that serves the drive, before the operation ends: a log costs that time.
//! It goes through the page cache and is not made durable: it outlives the program, at any instant, but
//! not a crash of the machine. Only its owner may read it: it holds what the disk does.

mod cut;
mod format;
mod image;
mod logged;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use cut::{Cut, Part, Survivors, survivors};
pub use format::{Entry, Flags, MAGIC, VERSION, capacity_of};
pub use image::{Image, ImageFile};
pub use logged::{Logged, LoggedChannel};
pub use reader::{Entries, LogError, LogReader};
pub use writer::WriteLog;
