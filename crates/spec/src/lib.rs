//! NVMe on the wire (NVMe Base Specification 2.0, NVM Command Set 1.0, TCP Transport 1.0), and the opcodes of the vendor's near-data commands.
//!
//! Pure data: no I/O, no unsafe. Fields keep the specification's names; a
//! zero-based field ends in `_z`. All multi-byte fields are little-endian; an unknown value is data, not an error of this crate.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod command;
pub mod data;
pub mod entry;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod layout;
pub mod log;
pub mod opcode;
pub mod registers;
pub mod socket;
pub mod status;

pub use entry::{CompletionEntry, SubmissionEntry};
pub use status::Status;
