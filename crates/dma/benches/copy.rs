//! The opaque copies of `Region` beside plain ones, over the same memory, in turns in one run. Prints the
//! median time of a copy each way, and the median over the rounds of their ratio.
//!
//! `cargo bench -p nearside-dma --bench copy` for figures; run without `--bench`, as `cargo test` does, it
//! makes a small run that only has to end.

#[allow(dead_code, reason = "it is measured apart from the types that use it")]
#[path = "../src/copy.rs"]
mod copy;

use std::hint::black_box;

use nearside_dma::tsc;

const SIZES: [usize; 8] = [16, 64, 512, 4096, 16 << 10, 128 << 10, 1 << 20, 4 << 20];
/// Copied in each round and way.
const BYTES: usize = 16 << 20;
/// Copies at most in each round and way.
const MOST: usize = 20_000;

/// `count` copies of `size` bytes by `one`, at places that differ; the counter's steps that they took.
fn round(area: usize, size: usize, count: usize, mut one: impl FnMut(usize)) -> u64 {
    let begin = tsc::read();
    for n in 0..count {
        one(n.wrapping_mul(0x9e37_79b9) % (area / size) * size);
    }
    tsc::read() - begin
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Entries of queues have a length that the compiler knows.
fn entry<const N: usize>(opaque: bool, from: *const u8, to: *mut u8) {
    // SAFETY: both areas are longer than an entry.
    unsafe {
        if opaque {
            copy::store(&copy::load::<N>(from), to);
        } else {
            let words = from.cast::<[u32; N]>().read_unaligned();
            to.cast::<[u32; N]>().write_unaligned(black_box(words));
        }
    }
}

fn main() {
    let rounds = if std::env::args().any(|a| a == "--bench") { 101 } else { 3 };
    // In the caches, and out of them.
    for area in [1 << 20, 256 << 20] {
        let area = if rounds == 3 { 8 << 20 } else { area };
        let (source, mut target) = (vec![1u8; area], vec![2u8; 4 << 20]);
        println!("source of {} MiB", area >> 20);
        for size in SIZES.into_iter().filter(|&size| size <= area) {
            let count = (BYTES / size).clamp(1, if rounds == 3 { 10 } else { MOST });
            let (from, to) = (source.as_ptr(), target.as_mut_ptr());
            let mut taken = [const { Vec::new() }; 2];
            for n in 0..rounds {
                // The second way finds the memory as the first has left it: they take turns at being first.
                for way in [n % 2, 1 - n % 2] {
                    let steps = round(area, size, count, |at| {
                        // SAFETY: `at + size` lies in the source; the target is as long as the largest size.
                        let from = unsafe { from.add(at) };
                        match (size, way) {
                            (16, way) => entry::<4>(way == 1, black_box(from), to),
                            (64, way) => entry::<16>(way == 1, black_box(from), to),
                            // SAFETY: as above.
                            (_, 0) => unsafe { std::ptr::copy(black_box(from), black_box(to), size) },
                            // SAFETY: as above.
                            _ => unsafe { copy::copy(black_box(from), black_box(to), size) },
                        }
                    });
                    taken[way].push(steps as f64 / count as f64);
                }
            }
            let mut ratios: Vec<f64> =
                taken[1].iter().zip(&taken[0]).map(|(opaque, plain)| opaque / plain).collect();
            let [plain, opaque] = taken.map(|mut steps| median(&mut steps));
            let ratio = median(&mut ratios);
            println!(
                "{size:>8} B: plain {plain:>9.1}, opaque {opaque:>9.1} steps of the counter; ratio {ratio:.3}"
            );
        }
    }
}
