//! Counts lines, words and bytes, as `wc` does in the C locale: words hold a byte that can be printed.
#![no_std]
#![no_main]

mod nearside;

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

#[unsafe(no_mangle)]
extern "C" fn run() {
    let mut buffer = [0; 64 << 10];
    let (mut lines, mut words, mut bytes) = (0u64, 0u64, 0u64);
    let mut inside = false;
    loop {
        let n = nearside::next(&mut buffer);
        if n == 0 {
            break;
        }
        // Memory is looked at, and the loop counted, once for eight.
        let (eights, rest) = buffer[..n].as_chunks::<8>();
        for eight in eights {
            let word = u64::from_le_bytes(*eight);
            lines += u64::from((at_least(word, b'\n') & !at_least(word, b'\n' + 1)).count_ones());
            let printed = at_least(word, b'!') & !at_least(word, 0x7f);
            let blank = at_least(word, b' ') & !at_least(word, b'!')
                | at_least(word, b'\t') & !at_least(word, b'\r' + 1);
            if printed | blank == HIGH {
                let before = printed << 8 | u64::from(inside) << 7;
                words += u64::from((printed & !before).count_ones());
                inside = printed >> 63 == 1;
            } else {
                eight.iter().for_each(|byte| take(*byte, &mut words, &mut inside));
            }
        }
        for byte in rest {
            lines += u64::from(*byte == b'\n');
            take(*byte, &mut words, &mut inside);
        }
        bytes += n as u64;
    }
    let mut line = [0; 64];
    let mut len = 0;
    for number in [lines, words, bytes] {
        let mut digits = [0; 20];
        let digits = nearside::decimal(number, &mut digits);
        line[len..][..digits.len()].copy_from_slice(digits);
        len += digits.len() + 1;
        line[len - 1] = b' ';
    }
    line[len - 1] = b'\n';
    nearside::emit(&line[..len]);
}
