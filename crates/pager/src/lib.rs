#![doc = include_str!("../README.md")]
//!
//! # A fault's way
//!
//! A thread touches a page that is not there, and sleeps; the kernel tells the pager
//! ([`nearside_dma::userfault`]). A page that was never written to the drive is zeros at once. For any other
//! the pager sends a read, and has the kernel find memory for the page meanwhile; it polls for the read's end
//! (the drive may run on the same thread), copies the bytes there by its own mapping, and shows the page to
//! the thread, which wakes it. Pages are shown so that the first write to each is a fault as well: by it the
//! pager knows which have to be written back. Beyond its budget it takes the pages that came first, one by
//! one and while the drive reads, when the thread that waits has no CPU that must hear of it: by a hole in
//! the memory, those that are not as the drive has them after they were written, with writes to them held
//! until then.
//!
//! # What goes wrong
//!
//! A read that fails poisons its page: SIGBUS, or EFAULT in a system call, never other bytes. A page that
//! cannot be written back stays in memory, beyond the budget, and counts ([`Counts::stuck`]). Where the pager
//! ends, or its process dies, what is in memory stays readable and writable, and all other pages are
//! poisoned, so that nobody waits for ever.
//!
//! The memory is no heap: the pager's thread allocates, and would wait for itself if its allocator had pages
//! there. It holds nothing after the pager: the drive's blocks are scratch.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod awake;
mod paged;
mod pager;
mod wire;

pub use paged::Paged;
pub use pager::{Config, Counts, Pager};
pub use wire::accept;

/// Why a pager could not begin, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        error: std::io::Error,
    },
    /// The drive.
    #[error("the drive: {0}")]
    Drive(String),
    /// What was asked for cannot be.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |error| Error::System { what, error }
    }
}
