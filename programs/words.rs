//! Counts lines, words and bytes, as `wc` does in the C locale: words hold a byte that can be printed.
#![no_std]
#![no_main]

mod count;
mod nearside;

#[unsafe(no_mangle)]
extern "C" fn run() {
    let mut buffer = [0; 64 << 10];
    let mut counted = count::Counted::default();
    loop {
        let n = nearside::next(&mut buffer);
        if n == 0 {
            break;
        }
        counted.add(&buffer[..n]);
    }
    let mut line = [0; 64];
    let mut len = 0;
    for number in [counted.lines, counted.words, counted.bytes] {
        let mut digits = [0; 20];
        let digits = nearside::decimal(number, &mut digits);
        line[len..][..digits.len()].copy_from_slice(digits);
        len += digits.len() + 1;
        line[len - 1] = b' ';
    }
    line[len - 1] = b'\n';
    nearside::emit(&line[..len]);
}
