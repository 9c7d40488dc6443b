//! Lines, words and bytes, as `LC_ALL=C wc` counts them.
//!
//! A word is a run of bytes other than white space (space, and 0x09 to 0x0d) that holds at least one
//! printable ASCII byte: coreutils 9.1 and before neither start nor end a word at a byte that the C locale
//! cannot print.

use memchr::memchr_iter;

/// Bytes looked at together.
const BLOCK: usize = 128;

/// What was counted in one stretch of a file, in a form that can be joined with its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Newlines.
    pub lines: u64,
    /// Words that hold a printable byte in this stretch.
    pub words: u64,
    /// Bytes.
    pub bytes: u64,
    /// The stretch holds white space.
    space: bool,
    /// A printable byte comes before the first white space (or the end).
    first: bool,
    /// A printable byte comes after the last white space (or the start).
    last: bool,
}

impl Counted {
    /// Counts one stretch of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut words = Words::default();
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            words.block(block);
        }
        words.bytes(rest);
        Self {
            lines: memchr_iter(b'\n', bytes).count() as u64,
            words: words.count,
            bytes: bytes.len() as u64,
            space: words.space,
            first: if words.space { words.first } else { words.inside },
            last: words.inside,
        }
    }

    /// Of so many zeros: neither white nor printable.
    #[must_use]
    pub fn zeros(bytes: u64) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Joins with the stretch that follows. Associative.
    #[must_use]
    pub fn join(self, next: Self) -> Self {
        let one_word = self.last && next.first;
        Self {
            lines: self.lines + next.lines,
            words: self.words + next.words - u64::from(one_word),
            bytes: self.bytes + next.bytes,
            space: self.space || next.space,
            first: self.first || (!self.space && next.first),
            last: next.last || (!next.space && self.last),
        }
    }
}

/// A scan for words.
#[derive(Default)]
struct Words {
    count: u64,
    /// The current run of non-white bytes holds a printable one.
    inside: bool,
    space: bool,
    first: bool,
}

fn is_space(byte: u8) -> bool {
    byte == b' ' || byte.wrapping_sub(9) < 5
}

fn is_graphic(byte: u8) -> bool {
    byte.wrapping_sub(0x21) < 0x5e
}

impl Words {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if is_space(*byte) {
                self.see_space();
                self.inside = false;
            } else if is_graphic(*byte) && !self.inside {
                self.inside = true;
                self.count += 1;
            }
        }
    }

    fn see_space(&mut self) {
        if !self.space {
            self.space = true;
            self.first = self.inside;
        }
    }

    /// Where every byte is white or printable, words are the places where one follows the other: no branch
    /// per byte.
    fn block(&mut self, block: &[u8; BLOCK]) {
        let mut space = [0u8; BLOCK];
        let mut plain = [0u8; BLOCK];
        for ((space, plain), byte) in space.iter_mut().zip(&mut plain).zip(block) {
            let white = u8::from(*byte == b' ') | u8::from(byte.wrapping_sub(9) < 5);
            *space = white;
            *plain = white | u8::from(byte.wrapping_sub(0x21) < 0x5e);
        }
        if plain.iter().sum::<u8>() != BLOCK as u8 || !self.space {
            return self.bytes(block);
        }
        let mut starts = [0u8; BLOCK];
        for (start, (before, after)) in starts.iter_mut().zip(space.iter().zip(space.iter().skip(1))) {
            *start = *before & (*after ^ 1);
        }
        let [first, ..] = space;
        self.count += u64::from(starts.iter().sum::<u8>()) + u64::from(!self.inside && first == 0);
        self.inside = space.last() == Some(&0);
    }
}

/// Counts a file fed in order.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    total: Counted,
}

impl Counter {
    /// Makes ready for the next file.
    pub fn begin(&mut self) {
        self.total = Counted::default();
    }

    /// Bytes to feed at once so that a call takes 20 µs or less, also where bytes are neither white nor
    /// printable.
    pub const SUGGESTED_PIECE: usize = 8 << 10;

    /// Takes the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        self.total = self.total.join(Counted::of(piece));
    }

    /// What was counted so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        self.total
    }
}
