//! Simulated I/Os per second of one core, without payload: 70 % random reads and 30 % random writes of 4 KiB
//! in steady state with garbage collection, beside the floor of the same draws over a model that does nothing
//! but wait. `SIZE_GIB` sets the size of the drive.

use std::hint::black_box;
use std::time::Instant;

use nearside_ftl::{Config, Flash};
use nearside_media::file::Parameters;
use nearside_media::{Delay, Medium, PRESETS, Request};
use nearside_random::draw;

const IOS: u64 = 2_000_000;

/// Million I/Os in a second: best of five rounds.
fn rate(medium: &mut impl Medium, slots: u64, gap_ns: u64) -> f64 {
    let (mut random, mut now, mut best) = (7, 0, 0f64);
    for _ in 0..5 {
        let begun = Instant::now();
        for _ in 0..IOS {
            let drawn = draw(&mut random);
            let offset = (drawn >> 8) % slots * 4096;
            let read = drawn & 0xff < 179;
            let request = if read { Request::read(offset, 4096) } else { Request::write(offset, 4096) };
            black_box(medium.finish(request, now));
            now += gap_ns;
        }
        best = best.max(IOS as f64 / begun.elapsed().as_secs_f64() / 1e6);
    }
    best
}

fn main() {
    let small = std::env::args().any(|arg| arg == "--test");
    let gib = std::env::var("SIZE_GIB").ok().and_then(|n| n.parse().ok()).unwrap_or(if small {
        0.0625
    } else {
        16.0
    });
    let capacity = (gib * f64::from(1 << 30)) as u64 / 4096 * 4096;
    let floor = rate(&mut Delay::units(144, 100_000).medium(), capacity / 4096, 10_000);
    println!("{:<20} {floor:6.2} M/s   (144 units that wait: the floor)", "delayed");
    for preset in PRESETS.iter() {
        let Parameters::Nand(drive) = preset.file.parameters else { continue };
        let mut flash: Flash<()> = Flash::new(drive.sized(capacity), Config::default()).expect("a preset");
        flash.precondition(2.0, 1);
        // Below what the drive can do, so that its queues are as long as in use.
        let rate = rate(&mut flash, capacity / 4096, 10_000);
        let amplification = flash.stats().write_amplification();
        println!(
            "{:<20} {rate:6.2} M/s   {:4.2} of the floor, write amplification {amplification:.2}",
            preset.name,
            rate / floor
        );
    }
}
