//! The papers' system in three acts: what `make demo` shows.

pub mod dataset;
pub mod page;
pub mod volume;
