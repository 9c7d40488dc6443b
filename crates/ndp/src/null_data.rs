//! Lines that end in NUL: newlines and NULs change places on the way into a search, in its patterns and on
//! the way out, so that all between knows one end of a line.

use regex_syntax::hir::{ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange};

use crate::{Line, Sink, Taken};

/// Newlines become NULs, NULs newlines.
pub(crate) fn swap(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = match *byte {
            0 => b'\n',
            b'\n' => 0,
            other => other,
        };
    }
}

/// The same of a class of characters.
pub(crate) fn swap_characters(class: &mut ClassUnicode) {
    let has = |c: char| class.iter().any(|range| range.start() <= c && c <= range.end());
    let (newline, nul) = (has('\n'), has('\0'));
    let one = |c| ClassUnicodeRange::new(c, c);
    class.difference(&ClassUnicode::new([one('\n'), one('\0')]));
    class.union(&ClassUnicode::new(nul.then(|| one('\n')).into_iter().chain(newline.then(|| one('\0')))));
}

/// The same of a class of bytes.
pub(crate) fn swap_bytes(class: &mut ClassBytes) {
    let has = |b: u8| class.iter().any(|range| range.start() <= b && b <= range.end());
    let (newline, nul) = (has(b'\n'), has(0));
    let one = |b| ClassBytesRange::new(b, b);
    class.difference(&ClassBytes::new([one(b'\n'), one(0)]));
    class.union(&ClassBytes::new(nul.then(|| one(b'\n')).into_iter().chain(newline.then(|| one(0)))));
}

/// A sink of lines in which the two have changed places.
pub(crate) struct Back<'s, S> {
    pub sink: &'s mut S,
    pub line: Vec<u8>,
}

impl<S: Sink> Sink for Back<'_, S> {
    fn line(&mut self, line: Line<'_>) -> Taken {
        self.line.clear();
        self.line.extend_from_slice(line.bytes);
        swap(&mut self.line);
        self.sink.line(Line { bytes: &self.line, ..line })
    }

    fn binary(&mut self) -> Taken {
        self.sink.binary()
    }
}
