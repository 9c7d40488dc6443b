#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

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
pub mod reservation;
pub mod socket;
pub mod status;

pub use entry::{CompletionEntry, SubmissionEntry};
pub use status::Status;
