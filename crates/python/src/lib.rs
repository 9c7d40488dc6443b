//! What `import nearside` stands on: sessions with a drive, on threads of their own, and their answers as
//! Python's objects. What a Python program calls is written in Python, in `python/nearside`.
//!
//! How a question passes: a method of `drive::Drive` makes a request -> `answer::Answer` asks for it one
//! command at a time, whenever it has no more records -> `lanes::Lanes` hands the command to a thread that
//! has a session, and waits without the interpreter, looking for signals -> the reply's records become
//! Python's objects as they are asked for.
//!
//! An answer of any length takes the memory of one reply, and none of the drive's time between two commands:
//! what is not asked for any more was never begun.

mod answer;
mod drive;
mod failure;
mod files;
mod lanes;
mod open;
mod rows;

pub use drive::how;
pub use failure::{class_of, of_drive, of_word};
pub use lanes::heard;
pub use open::{AnySession, How, Refusal};

/// The native half of the package `nearside`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::drive::{Drive, drives, images, rule_parameters};
    #[pymodule_export]
    use crate::files::{Emissions, Entries, Entry, Match, Matches, Values};
    #[pymodule_export]
    use crate::rows::Streams;

    /// A drive of this process runs programs.
    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        #[cfg(feature = "wasm")]
        nearside_wasm::install();
        #[cfg(feature = "yara")]
        nearside_yara::install();
        Ok(())
    }
}
