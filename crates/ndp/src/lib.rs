#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! This crate knows bytes only: no I/O, no file system, no wire. A file's bytes are *fed* in pieces and in
//! order; results go to a [`Sink`] of the caller's. An operation is compiled once per command
//! ([`Search::compile`]) and its state ([`Searcher`], [`Counter`], [`Checksum`]) is made ready for the next
//! file by `begin`, which allocates nothing.
//!
//! A search passes through: [`pattern`](Search) turns patterns into one expression that cannot match across
//! lines; `engine` makes the matcher that suits it; `search` cuts pieces into whole lines and keeps what is
//! left over; `walk` finds lines, context and numbers in a run of whole lines; the sink takes them.
//! [`unordered`] does what can be done with blocks that arrive in any order. [`table`] works on rows of
//! numbers, and [`npy`] reads the header that says how they lie in a file; [`select`] works on rows of text.
//! A naive twin of the search says the same slowly and plainly (`naive` in the crate `conformance`); property
//! tests hold the two together.
//!
//! # Slices
//!
//! Nothing here looks at a clock. Work is counted in units, each about a nanosecond of the worst case, and
//! the futures of a [`Searcher`] and of [`unordered`] are pending whenever [`SLICE`] of them are spent: at
//! most [`STEP`] more where a step cannot be cut. That holds for every pattern and every line, where pieces
//! are not longer than suggested. What is not counted: compiling ([`Search::is_cheap`] says where that takes
//! no longer than a slice), a file's first probe, what the system takes to give and take back the memory of a
//! long line, and the caller's sink. [`Counter`] and [`Checksum`] work for as long as the piece is: they
//! suggest one that takes a slice or less.
//!
//! # Holes
//!
//! A file's holes are handed on as so many zeros ([`Searcher::zeros`],
//! [`Gather::zeros`](unordered::Gather::zeros)). Counts and CRC-32C are put together without a look at them;
//! a search looks at as many as its pattern can tell apart. A line with a hole is longer than [`MAX_LINE`]
//! only where it must be shown. XXH3 and SHA-256 have no short way: their zeros are fed as bytes.
//!
//! # Memory
//!
//! A searcher holds at most: one unfinished line ([`MAX_LINE`] bytes; a longer one is [`Error::LineTooLong`])
//! plus one piece; with context before, the lines that may still be wanted, at most [`MAX_HISTORY`] bytes
//! (older lines of context are dropped beyond that); and the matcher's tables (some MiB). A searcher of
//! strings that only counts or looks for the first match holds no more of an unfinished line than the longest
//! string. Counters and checksums hold under a KiB.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod automaton;
mod checksum;
mod count;
mod engine;
mod fuel;
mod hay;
mod history;
mod inner;
pub mod npy;
mod null_data;
mod pattern;
pub mod program;
mod search;
pub mod select;
pub mod table;
mod tuned;
pub mod unordered;
mod walk;
mod zeros;

pub use checksum::Checksum;
pub use count::{Counted, Counter};
pub use fuel::{SLICE, STEP};
pub use nearside_near_data::{Answer, Digest, SearchOptions};
pub use pattern::{PatternError, Search};
pub use search::Searcher;

/// Longest line, in bytes without its newline, that a search takes.
pub const MAX_LINE: usize = 64 << 20;

/// Most bytes of lines kept because they may become context before a match.
pub const MAX_HISTORY: usize = 8 << 20;

/// grep looks for a NUL in this much of a file before it shows its first line.
pub const BINARY_PROBE: usize = 32 << 10;

/// What `feed` wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// The next piece, or `finish`.
    More,
    /// Nothing: the answer for this file is complete.
    Done,
    /// The sink was full. [`Searcher::position`] says where another searcher can go on.
    Full,
}

/// A sink's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// It has what it was given.
    Yes,
    /// It has no room: it did not take this, and the search stops before it.
    Full,
}

/// A line, or a matched part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Line number, from 1; 0 where numbers were not asked for.
    pub number: u64,
    /// Byte in the file of the first of `bytes`.
    pub offset: u64,
    /// Without the newline; a carriage return before it is part of the line, as in grep.
    pub bytes: &'a [u8],
    /// A line of context, not a match.
    pub context: bool,
}

/// Where results go.
pub trait Sink {
    /// A line that was found ([`Answer::Lines`], context included) or a matched part ([`Answer::Matches`]).
    fn line(&mut self, line: Line<'_>) -> Taken;

    /// The file holds a NUL byte and a line was found at or after it: said once, then the file is done.
    fn binary(&mut self) -> Taken;
}

/// For operations that answer in numbers only.
impl Sink for () {
    fn line(&mut self, _: Line<'_>) -> Taken {
        Taken::Yes
    }

    fn binary(&mut self) -> Taken {
        Taken::Yes
    }
}

/// Where a search can go on, given the file's bytes from `offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Byte of the file at which a line begins.
    pub offset: u64,
    /// That line's number, from 1; 0 at the start of a file, or where numbers were not asked for.
    pub line: u64,
    /// Lines found before it.
    pub found: u64,
    /// [`Answer::Lines`]: lines of context after a match that are still owed. [`Answer::Matches`]: matches of
    /// this line that were already delivered.
    pub pending: u32,
}

/// Why an operation failed for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A line is longer than [`MAX_LINE`].
    #[error("the line that starts at byte {offset} is longer than 64 MiB")]
    LineTooLong {
        /// First byte of the line in the file.
        offset: u64,
    },
    /// The file begins with a byte-order mark of UTF-16, and was not to be taken for text as it is.
    #[error("UTF-16 text is not searched; as bytes it is with -a")]
    Utf16,
    /// Blocks that arrived in any order do not add up to the file.
    #[error("bytes from {offset} are missing or came twice")]
    Gap {
        /// First byte that is missing or was given twice.
        offset: u64,
    },
}
