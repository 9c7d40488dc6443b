//! Lines, found.

use alloc::vec::Vec;

/// A search, with grep's meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchOptions {
    /// Patterns: a line that matches any is found; without any, no line is. The regex crate's syntax, with
    /// Unicode as ripgrep has it, `^` and `$` at a line's ends. A pattern that is not UTF-8 is one over
    /// bytes.
    pub patterns: Vec<Vec<u8>>,
    /// Patterns are literals (`-F`). One that holds newlines is several, as in grep.
    pub fixed: bool,
    /// Patterns are over bytes: Unicode is off (ripgrep's `--no-unicode`; `(?u)` turns it on).
    pub bytes: bool,
    /// Case is ignored (`-i`), as Unicode folds it; ASCII's only, over bytes.
    pub ignore_case: bool,
    /// Lines that do not match (`-v`).
    pub invert: bool,
    /// Only matches with no word character before and after them (`-w`).
    pub word: bool,
    /// Only matches of whole lines (`-x`).
    pub line: bool,
    /// What to answer.
    pub answer: Answer,
    /// Stop after that many lines in each file (`-m`).
    pub max_count: Option<u64>,
    /// Do not look for NUL bytes (`-a`). Without it, a file with a NUL where it is probed, or before the end
    /// of a found line, answers `Record::BinaryMatches` in place of that line. Counts are counts of lines
    /// either way.
    pub text: bool,
    /// A file with a NUL where it is probed, or before the end of a found line, has none (`-I`); one whose
    /// lines are only counted, with a NUL anywhere that is looked at.
    pub without_binary: bool,
    /// Lines end in NUL, and a newline is a byte as any (`-z`); no file is binary.
    pub null_data: bool,
    /// Files that begin as gzip, xz or zstd make them are searched in what they hold (`--search-zip`):
    /// offsets and numbers are those of it.
    pub decompress: bool,
    /// Lines before a match that are also wanted (`-B`; [`Answer::Lines`]).
    pub before: u32,
    /// Lines after (`-A`).
    pub after: u32,
    /// Say nothing about files without a match; at the end one `Record::Total` counts them.
    pub only_matching_files: bool,
    /// Count line numbers (`-n`; [`Answer::Lines`] and [`Answer::Matches`]): it costs a second look at every
    /// byte.
    pub numbers: bool,
}

impl SearchOptions {
    /// The flags that a request may have, by their bits on the wire.
    pub(crate) const BITS: u32 = (1 << 13) - 1;
}

/// What a search answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// The lines.
    #[default]
    Lines,
    /// Only how many lines per file (`-c`).
    Count,
    /// Only which files have any (`-l`): a file is done at its first match.
    Files,
    /// Only the totals over all files.
    Total,
    /// Only the matched parts, one record each (`-o`); empty ones are left out.
    Matches,
}

impl Answer {
    /// Whether lines or parts of them are shown.
    pub fn shows(self) -> bool {
        matches!(self, Answer::Lines | Answer::Matches)
    }
}
