//! Lines, words and bytes counted as `wc` does in the C locale: a module of [`words.rs`](words.rs), and of
//! the program that stands beside it where both are measured.

/// The highest bit of each of eight bytes.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Of eight bytes, the highest bit of those that are characters of ASCII, and none before that one.
fn at_least(word: u64, first: u8) -> u64 {
    let low = word & !HIGH;
    (low + u64::from(0x80 - first) * (HIGH >> 7)) & !word & HIGH
}

/// A byte, where not all eight are printed or blank: what is neither goes on with what there is.
fn take(byte: u8, words: &mut u64, inside: &mut bool) {
    let (blank, printed) = (matches!(byte, b' ' | b'\t'..=b'\r'), byte.is_ascii_graphic());
    *words += u64::from(printed & !*inside);
    *inside = printed | (*inside & !blank);
}

/// What there is so far.
#[derive(Default)]
pub struct Counted {
    pub lines: u64,
    pub words: u64,
    pub bytes: u64,
    inside: bool,
}

impl Counted {
    pub fn add(&mut self, bytes: &[u8]) {
        // Memory is looked at, and the loop counted, once for eight.
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let word = u64::from_le_bytes(*eight);
            self.lines += u64::from((at_least(word, b'\n') & !at_least(word, b'\n' + 1)).count_ones());
            let printed = at_least(word, b'!') & !at_least(word, 0x7f);
            let blank = at_least(word, b' ') & !at_least(word, b'!')
                | at_least(word, b'\t') & !at_least(word, b'\r' + 1);
            if printed | blank == HIGH {
                let before = printed << 8 | u64::from(self.inside) << 7;
                self.words += u64::from((printed & !before).count_ones());
                self.inside = printed >> 63 == 1;
            } else {
                eight.iter().for_each(|byte| take(*byte, &mut self.words, &mut self.inside));
            }
        }
        for byte in rest {
            self.lines += u64::from(*byte == b'\n');
            take(*byte, &mut self.words, &mut self.inside);
        }
        self.bytes += bytes.len() as u64;
    }
}
