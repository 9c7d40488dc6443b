//! A run of whole lines, or one long line.

use memchr::{memchr, memrchr};

/// Bytes to search: whole lines (the file's last may lack its newline).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hay<'a> {
    pub bytes: &'a [u8],
    /// They are one line: its ends need no search.
    pub single: bool,
}

impl<'a> Hay<'a> {
    pub(crate) fn lines(bytes: &'a [u8]) -> Self {
        Self { bytes, single: false }
    }

    pub(crate) fn line(bytes: &'a [u8]) -> Self {
        Self { bytes, single: true }
    }

    pub(crate) fn len(self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn get(self, from: usize, to: usize) -> &'a [u8] {
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// The last line has no newline.
    pub(crate) fn is_open(self) -> bool {
        self.bytes.last().is_some_and(|b| *b != b'\n')
    }

    /// End of the line that holds the byte or newline at `at`: the first byte of the next.
    #[inline]
    pub(crate) fn next_line(self, at: usize) -> usize {
        if self.single {
            return self.len();
        }
        self.bytes.get(at..).and_then(|rest| memchr(b'\n', rest)).map_or(self.len(), |i| at + i + 1)
    }

    /// Start of the line that holds the byte or newline at `at`, where one starts at `from`.
    #[inline]
    pub(crate) fn line_start(self, from: usize, at: usize) -> usize {
        if self.single {
            return from;
        }
        memrchr(b'\n', self.get(from, at)).map_or(from, |i| from + i + 1)
    }

    /// Start of the line that ends just before `at`.
    pub(crate) fn previous_line(self, at: usize) -> usize {
        if self.single {
            return 0;
        }
        memrchr(b'\n', self.get(0, at.saturating_sub(1))).map_or(0, |i| i + 1)
    }

    /// Newlines before `at`.
    pub(crate) fn newlines(self, from: usize, to: usize) -> u64 {
        match self.single {
            true => u64::from(from < to && to == self.len() && !self.is_open()),
            false => memchr::memchr_iter(b'\n', self.get(from, to)).count() as u64,
        }
    }
}
