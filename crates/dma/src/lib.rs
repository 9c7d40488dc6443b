#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! Everything above reaches memory that another party (a driver, a drive, the kernel, a guest) writes at the
//! same time only through these types:
//!
//! - [`Region`]: a mapped piece of memory, shareable by file descriptor (memfd) or private;
//! - [`Memory`]: the table that turns an IOVA (what a PRP or SGL holds) into a checked [`Span`];
//! - [`Remote`](remote::Remote): memory that is reached only by asking its owner for it;
//! - [`IoBuffer`]: page-aligned memory with one owner, which moves into an operation and comes back with it;
//! - [`EventFd`]: what [`Vector`] (an interrupt) and [`Wakeup`] (of a sleeping drive) rest on.
//!
//! Words on which two parties synchronise are reached as atomics; the compiler cannot read what was copied
//! out a second time.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

pub mod accept;
mod arming;
mod buffer;
mod cached;
mod copy;
pub mod cpu;
mod event;
pub mod file;
mod function;
pub mod fuse;
pub mod guest;
pub mod in_use;
pub mod local;
pub mod loop_device;
mod memory;
pub mod passthrough;
mod patience;
pub mod persistent;
mod prefetch;
mod reach;
mod region;
pub mod remote;
pub mod socket;
pub mod system;
pub mod tsc;
pub mod uring;
pub mod userfault;
mod wait;

pub use buffer::IoBuffer;
pub use cached::{CachedFile, LentBytes};
pub use event::{EventFd, wait_any_readable, wait_readable};
pub use function::{DOORBELLS, Function, REGISTERS_SIZE, Vector, Wakeup};
pub use memory::{MAX_MAPPINGS, Memory, MemoryError, Pinned, Span};
pub use prefetch::prefetch;
pub use reach::Reach;
pub use region::Region;
pub use wait::{WaitKind, rest};

/// The atomics of the protocols that `tests/loom.rs` checks against loom's.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
}

/// The page size of the controller (`CC.MPS` = 0) and of every mapping here.
pub const PAGE_SIZE: usize = 4096;
