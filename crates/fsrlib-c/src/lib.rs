//! FSRLib for C. Thin: each function checks its pointers, calls `nearside-fsrlib`,
//! and turns the answer into C's terms.
//!
//! A call passes: C -> a function of `calls` -> `Session::stream` of FSRLib -> one near-data command (and one
//! more per full buffer of answer) -> records -> the caller's callback or structure.
//!
//! Results are 0 or a count, or a negated `errno`; [`nearside_error`] has the words. A session is for one
//! thread at a time. A panic inside does not cross into C: it ends the process.
#![allow(non_camel_case_types, reason = "names as C has them")]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod calls;
mod open;
mod search;
mod tables;
mod types;

pub use calls::*;
pub use search::*;
pub use tables::*;
pub use types::*;
