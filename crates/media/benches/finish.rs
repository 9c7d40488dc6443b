//! What a model costs: nanoseconds per call, under a load that keeps it busy. `cargo bench -p
//! nearside-media`; without `--bench` a short run. The loop with its draw of a place stands beside.

use std::hint::black_box;
use std::time::Instant;

use nearside_media::{Medium, PRESETS, Request};
use nearside_random::draw;

const ROUNDS: usize = 9;

/// The median over rounds of nanoseconds per turn.
fn per_turn_ns(turns: u64, mut turn: impl FnMut(u64)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..turns).for_each(&mut turn);
            start.elapsed().as_nanos() as f64 / turns as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn request(random: &mut u64, bytes: u64) -> Request {
    let number = draw(random);
    let offset = number % (1 << 26) * 4096;
    if (number >> 32) % 10 < 7 { Request::read(offset, bytes) } else { Request::write(offset, bytes) }
}

fn main() {
    let turns = if std::env::args().any(|a| a == "--bench") { 2_000_000 } else { 20_000 };
    let mut random = 1;
    let floor = per_turn_ns(turns, |_| {
        black_box(request(&mut random, 4096));
    });
    println!("{:<18} {:>10} {:>10}", "ns per call", "4 KiB", "128 KiB");
    println!("{:<18} {floor:>10.1}", "(the loop)");
    for preset in PRESETS.iter() {
        let Some(fresh) = preset.file.parameters.medium() else { continue };
        let times = [4096, 128 << 10].map(|bytes| {
            let (mut medium, mut random, mut now) = (fresh.clone(), 1, 0);
            per_turn_ns(turns, |_| {
                now += 2 * bytes / 4;
                black_box(medium.finish(request(&mut random, bytes), now));
            })
        });
        println!("{:<18} {:>10.1} {:>10.1}", preset.name, times[0], times[1]);
    }
}
