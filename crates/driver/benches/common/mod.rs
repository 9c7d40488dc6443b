//! What the benchmarks share.
#![allow(dead_code, reason = "each uses a part of it")]

pub mod polled;
pub mod ring;

use std::io::Write;

use nearside_clock::{Clock, TscClock};
use nearside_driver::{Command, Driver, QueuePair, Transport};

/// A small run as a test, a fast one, or a full one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Test,
    Fast,
    Full,
}

impl Size {
    pub fn from_environment() -> Size {
        if !std::env::args().any(|a| a == "--bench") {
            Size::Test
        } else if std::env::var_os("FAST").is_some_and(|v| !v.is_empty()) {
            Size::Fast
        } else {
            Size::Full
        }
    }

    pub fn pick<T>(self, test: T, fast: T, full: T) -> T {
        match self {
            Size::Test => test,
            Size::Fast => fast,
            Size::Full => full,
        }
    }
}

/// Seeded and fast (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.max(1))
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub fn median_of(values: &mut [u64]) -> f64 {
    percentile(values, 0.5)
}

pub fn percentile(values: &mut [u64], p: f64) -> f64 {
    values.sort_unstable();
    values[((values.len() - 1) as f64 * p) as usize] as f64
}

/// Whether there is only one core to run on.
pub fn is_alone() -> bool {
    std::thread::available_parallelism().is_ok_and(|n| n.get() == 1)
}

/// This thread, and threads that it starts from now on, on one CPU where there are several.
pub fn pin(cpu: usize) {
    use nearside_dma::cpu::{allowed_cores, pin_to_core};
    use std::sync::OnceLock;
    // Asked before the first pin, which narrows what is allowed.
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    let cores = CORES.get_or_init(|| allowed_cores().unwrap_or_default());
    if cores.len() > 1
        && let Some(&core) = cores.get(cpu)
    {
        let _ = pin_to_core(core);
    }
}

/// Writes the whole namespace once, so that no page is touched for the first time while times are taken.
pub fn fill(queue: &mut QueuePair, driver: &Driver, bytes: u64, clock: &TscClock) {
    const EACH: usize = 1 << 20;
    let mut buffer = driver.pool().take(EACH).unwrap();
    buffer.fill(1);
    for at in (0..bytes).step_by(EACH) {
        let command = Command::write(1, at / 512, (EACH / 512) as u32);
        queue.submit(&command, Some(buffer), 0, clock.now()).unwrap();
        queue.ring();
        buffer = loop {
            if let Some(done) = queue.reap() {
                assert!(done.outcome.is_ok(), "{:?}", done.outcome);
                break done.buffer.unwrap();
            }
            std::hint::spin_loop();
        };
    }
}

/// One figure, as a record has it.
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    pub beside: &'static str,
    pub beside_value: f64,
    pub ratio: f64,
    pub runs: usize,
    pub spread: (f64, f64),
}

/// Adds figures to the file that `NEARSIDE_RECORD_FILE` names, if it does.
pub fn record(figures: &[Figure]) {
    let Some(path) = std::env::var_os("NEARSIDE_RECORD_FILE") else { return };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for f in figures {
        writeln!(
            file,
            r#"{{"name":"{}","value":{:.3},"unit":"{}","beside":"{}","beside_value":{:.3},"ratio":{:.4},"runs":{},"spread":[{:.4},{:.4}]}}"#,
            f.name, f.value, f.unit, f.beside, f.beside_value, f.ratio, f.runs, f.spread.0, f.spread.1
        )
        .unwrap();
    }
}
