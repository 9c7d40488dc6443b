//! Makes a small BMP of a large one, of 24 or 32 bits a pixel: at most so many pixels wide and high as it is
//! told (`-p 128`; 64 where it is told nothing, at most 256). Each pixel is the mean of those that it stands for.
#![no_std]
#![no_main]

mod nearside;

const MOST: usize = 256;
/// Bytes before the pixels of what is written.
const HEADS: usize = 54;

static mut SUMS: [[[u64; 3]; MOST]; MOST] = [[[0; 3]; MOST]; MOST];
static mut OUT: [u8; HEADS + MOST * MOST * 3] = [0; HEADS + MOST * MOST * 3];

#[unsafe(no_mangle)]
extern "C" fn run() {
    let mut text = [0; 8];
    let most = match nearside::parameters(&mut text) {
        b"" => 64,
        text if text.iter().all(u8::is_ascii_digit) => {
            text.iter().fold(0, |n, digit| n * 10 + usize::from(digit - b'0')).clamp(1, MOST)
        }
        _ => nearside::fail("a size is a number of pixels, as -p 128"),
    };
    let mut head = [0; HEADS];
    if !fill(&mut head) || &head[..2] != b"BM" {
        nearside::fail("no BMP");
    }
    let (start, width, height) = (long(&head, 10), long(&head, 18), long(&head, 22) as i32);
    let (bits, packed) = (u32::from(head[28]), long(&head, 30));
    if !matches!(bits, 24 | 32) || !matches!(packed, 0 | 3) {
        nearside::fail("a BMP of other than 24 or 32 bits a pixel, or a compressed one");
    }
    let (width, high) = (width as usize, height.unsigned_abs() as usize);
    if !(1..=1 << 16).contains(&width) || !(1..=1 << 16).contains(&high) {
        nearside::fail("no size of a picture");
    }
    let pixel = bits as usize / 8;
    let row = (width * pixel).next_multiple_of(4);
    let step = width.max(high).div_ceil(most);
    let (small, low) = (width.div_ceil(step), high.div_ceil(step));
    // SAFETY: there is one thread, and no other reference.
    let (sums, out) = unsafe { (&mut *(&raw mut SUMS), &mut *(&raw mut OUT)) };
    let mut buffer = [0; 48 << 10];
    for y in 0..high {
        nearside::seek(u64::from(start) + (y * row) as u64);
        let mut x = 0;
        while x < width {
            let n = (width - x).min(buffer.len() / pixel);
            if !fill(&mut buffer[..n * pixel]) {
                nearside::fail("the pixels end before the picture does");
            }
            for (nth, pixel) in buffer[..n * pixel].chunks_exact(pixel).enumerate() {
                let sum = &mut sums[y / step][(x + nth) / step];
                (0..3).for_each(|colour| sum[colour] += u64::from(pixel[colour]));
            }
            x += n;
        }
    }
    let line = (small * 3).next_multiple_of(4);
    let len = HEADS + low * line;
    out[..2].copy_from_slice(b"BM");
    // Rows go down where they did.
    let signed = if height < 0 { -(low as i32) } else { low as i32 };
    for (at, value) in [
        (2, len as u32),
        (10, HEADS as u32),
        (14, 40),
        (18, small as u32),
        (22, signed as u32),
        (26, 1 | 24 << 16),
    ] {
        out[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    for y in 0..low {
        for x in 0..small {
            let count = ((high - y * step).min(step) * (width - x * step).min(step)) as u64;
            for colour in 0..3 {
                out[HEADS + y * line + x * 3 + colour] = (sums[y][x][colour] / count) as u8;
            }
        }
    }
    out[..len].chunks(64 << 10).for_each(nearside::emit);
}

/// Fills a buffer; `false`: the file ended before.
fn fill(mut buffer: &mut [u8]) -> bool {
    while !buffer.is_empty() {
        let n = nearside::next(buffer);
        if n == 0 {
            return false;
        }
        buffer = &mut buffer[n..];
    }
    true
}

fn long(head: &[u8; HEADS], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}
