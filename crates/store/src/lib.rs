#![doc = include_str!("../README.md")]
//!
//! # The contract
//!
//! A [`Store`] is a flat range of bytes. Each reactor works through a [`Channel`] of its own. Every store
//! owes (`nearside-conformance` checks it):
//!
//! 1. Offsets and lengths are multiples of [`Store::block_size`] and lie within [`Store::capacity`]; a
//!    channel answers [`StoreError::OutOfRange`] otherwise and changes nothing.
//! 2. An operation is either done when `submit` returns, or completes by exactly one later `poll`, in any
//!    order. Its token comes back unchanged; an owned buffer comes back with it.
//! 3. A read sees every write that completed before the read was submitted, on any channel. Operations in
//!    flight at the same time on the same block have no order, but a block of `block_size` bytes is never
//!    torn within one channel.
//! 4. Once a flush completes, every write that completed before the flush was submitted survives a power cut.
//!    A write with `fua` survives by itself when it completes.
//! 5. Bytes that were never written, and deallocated or zeroed ones, read as zeros.
//! 6. A failed operation reports its error and leaves each block of its range old or new.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod check;
mod dram;
mod due;
mod durable;
mod faulty;
mod file;
mod file_channel;
mod lossy;
mod mapped;
mod modelled;
mod null;
mod pmem;
mod qcow2;
mod reading;
mod trouble;
mod unpacked;
pub mod write_log;

pub use check::check;
pub use dram::{Dram, DramChannel, UNMAPPED};
pub use due::TimerQueue;
pub use faulty::{Fault, Faulty, FaultyChannel, Kinds, Plan, Rule};
pub use file::{Access, Backend, Beside, File, FileOptions};
pub use file_channel::FileChannel;
pub use lossy::{Lossy, LossyChannel};
pub use mapped::{Disk, Mapped};
pub use modelled::{Delayed, Modelled, ModelledChannel};
pub use null::Null;
pub use pmem::{Pmem, PmemChannel};
pub use qcow2::Qcow2;
pub use reading::{ReadAt, ReadingChannel};

pub use nearside_media::{Delay, Parametric};

use nearside_clock::Nanos;
use nearside_dma::{IoBuffer, LentBytes, Span};

/// What to do. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Store to memory.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Memory to store.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Force unit access: durable when it completes.
        fua: bool,
    },
    /// Makes completed writes durable.
    Flush,
    /// Sets bytes to zero without data.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Durable when it completes.
        fua: bool,
    },
    /// Forgets bytes; they read as zeros.
    Deallocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

/// The memory side of a read or write.
#[derive(Debug)]
pub enum Data<'a> {
    /// None: flush, write zeroes, deallocate.
    None,
    /// Host memory, in order; together as long as the operation.
    Spans(&'a [Span]),
    /// A buffer of the caller's, exactly as long as the operation; it comes back with the completion.
    Owned(IoBuffer),
}

/// The caller's name for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// How an operation ended.
#[derive(Debug)]
pub struct Completion {
    /// Success or the error.
    pub result: Result<(), StoreError>,
    /// The buffer of [`Data::Owned`].
    pub buffer: Option<IoBuffer>,
}

/// What `submit` says.
#[derive(Debug)]
pub enum Submitted {
    /// It is done, and `poll` will not report it.
    Done(Completion),
    /// `poll` will report it.
    Pending,
}

/// Where an operation was, in words; a flush is of no bytes.
fn place(len: u64, offset: u64) -> String {
    if len == 0 { String::new() } else { format!(" of {len} bytes at {offset}") }
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Not within the store, or not in whole blocks.
    #[error("{len} bytes at {offset} are not whole blocks within a store of {capacity} bytes")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes there are.
        capacity: u64,
    },
    /// The medium (or the kernel below it) failed.
    #[error("{operation}{} failed: {reason}", place(*len, *offset))]
    Medium {
        /// Which operation.
        operation: &'static str,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What the medium said.
        reason: String,
    },
    /// What holds the bytes has no room for these: its file system is full, or a quota is. Nothing that was
    /// acknowledged is lost.
    #[error("{operation}{} found no room: {reason}", place(*len, *offset))]
    Full {
        /// Which operation.
        operation: &'static str,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What the system said.
        reason: String,
    },
    /// The store may not be written.
    #[error("the store is read-only")]
    ReadOnly,
    /// The channel has no room; poll, then submit again. Nothing was done.
    #[error("the store's queue is full")]
    Busy,
}

/// What a store's bytes lie in, as users are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Memory of this process, which forgets them.
    Memory = 1,
    /// A file, by calls.
    File = 2,
    /// A block device, by calls.
    BlockDevice = 3,
    /// Persistent memory, mapped: each write is durable when it completes.
    PersistentMemory = 4,
    /// A file that is mapped without being persistent memory: pages of the page cache.
    MappedFile = 5,
    /// Memory of this process, in the time of a modelled device.
    Model = 6,
    /// A disk image in QEMU's format, with the files below it.
    Qcow2 = 7,
    /// A logical volume in a disk image.
    LogicalVolume = 8,
}

impl Backing {
    const ALL: [Backing; 8] = [
        Backing::Memory,
        Backing::File,
        Backing::BlockDevice,
        Backing::PersistentMemory,
        Backing::MappedFile,
        Backing::Model,
        Backing::Qcow2,
        Backing::LogicalVolume,
    ];

    /// Its number in log page D5h.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// What a number stands for; `None` for 0, which says nothing, and for what is not known here.
    pub fn of(number: u32) -> Option<Backing> {
        Backing::ALL.into_iter().find(|backing| backing.number() == number)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Backing::Memory => "memory",
            Backing::File => "file",
            Backing::BlockDevice => "block device",
            Backing::PersistentMemory => "persistent memory",
            Backing::MappedFile => "mapped file",
            Backing::Model => "model",
            Backing::Qcow2 => "qcow2 image",
            Backing::LogicalVolume => "logical volume",
        }
    }
}

/// What is known of bytes of which there are other copies, one sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// In what they may be other than they should be: users are warned of it with each answer.
    pub unsure: Vec<String>,
    /// As of when they are: for who asks what the volume is.
    pub known: Vec<String>,
}

impl Standing {
    /// All of it, what may be wrong first.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.unsure.iter().chain(&self.known)
    }
}

/// A flat range of bytes, shared by the reactors of a drive.
pub trait Store: Send + Sync + 'static {
    /// One reactor's way in.
    type Channel: Channel;

    /// Bytes.
    fn capacity(&self) -> u64;

    /// The unit of offsets, lengths and atomicity: 512 or 4096.
    fn block_size(&self) -> u32;

    /// Whether writes are refused.
    fn read_only(&self) -> bool {
        false
    }

    /// Makes the store so many bytes long, or, by `None`, as long as what it lies in has become; returns
    /// its bytes. Who makes it shorter sees to it first that nothing beyond the new end is in flight.
    ///
    /// # Errors
    /// `Unsupported` where a store's length is settled; `InvalidInput` where it cannot be that; else the
    /// system's. Then it is as long as before.
    fn resize(&self, bytes: Option<u64>) -> std::io::Result<u64> {
        let _ = bytes;
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "a store of this kind keeps its length"))
    }

    /// What the bytes lie in, where users should know.
    fn backing(&self) -> Option<Backing> {
        None
    }

    /// What is known of the bytes, by what they lie in, where users should know; nothing of most stores.
    fn standing(&self) -> &Standing {
        static NOTHING: Standing = Standing { unsure: Vec::new(), known: Vec::new() };
        &NOTHING
    }

    /// A channel whose host memory is `memory`.
    ///
    /// # Errors
    /// The system's: no descriptors, no memory, no ring.
    fn channel(&self, memory: std::sync::Arc<nearside_dma::Memory>) -> std::io::Result<Self::Channel>;
}

/// One reactor's way into a store. Not shared between threads at the same time.
pub trait Channel: Send + 'static {
    /// Starts an operation at time `now`.
    fn submit(&mut self, operation: Operation, data: Data<'_>, token: Token, now: Nanos) -> Submitted;

    /// Hands finished operations to `sink`; returns the time at which the next one can be due, if the store
    /// knows (a store that waits for the kernel answers `now`).
    fn poll(&mut self, now: Nanos, sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos>;

    /// Operations in flight.
    fn in_flight(&self) -> usize;

    /// A hint that `len` bytes at `offset` will be read very soon, or written where it `writes`: brings them
    /// nearer where that costs nothing.
    #[inline]
    fn prefetch(&self, _offset: u64, _len: u64, _writes: bool) {}

    /// `len` bytes at `offset` where they lie, if they are to be had without a wait and nobody is known to
    /// write them; `None`: they have to be read.
    ///
    /// Who has used them asks [`Channel::lapses`] before believing what came of them, and parses nothing in
    /// place: another program could write the file all the same.
    #[inline]
    fn lend(&mut self, _offset: u64, _len: usize) -> Option<LentBytes> {
        None
    }

    /// How often so far what was lent ([`Channel::lend`]) was the store's no more: a file that became
    /// shorter.
    #[inline]
    fn lapses(&self) -> u64 {
        0
    }

    /// The host has mapped memory or taken some away: whatever is kept of it between operations is let go of.
    fn memory_changed(&mut self) {}
}
