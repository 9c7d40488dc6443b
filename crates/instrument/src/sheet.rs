//! A model against its data sheet: each figure of its file run under the figure's own conditions, in
//! simulated time.
//!
//! A drive of flash is a few GiB of its kind, with all its dies and its own over-provisioning: written in
//! order, and for random operations then over and over at random, until collection goes on as it will. The
//! model is alone, as a device is at its queues; where the figure says what the host's software takes, a
//! whole drive with its driver is around it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_embedded::Model;
use nearside_loadgen::{Arrivals, Plan, Rw, Workload};
use nearside_media::file::{Figure, Load, Measure, ModelFile};
use nearside_random::of_run;

use crate::Failure;
use crate::run::Runner;
use crate::simulated::Simulated;

/// Bytes of a drive that is checked.
const CAPACITY: u64 = 8 << 30;
/// How often over its capacity a drive is written at random before random operations.
const ROUNDS: f64 = 1.5;
const SEED: u64 = 1;

/// A figure, and what the model showed.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The data sheet's.
    pub figure: Figure,
    /// The model's, in the figure's unit.
    pub model: f64,
}

impl Shown {
    /// Whether it is as the file says: shown, or missed where it is known to be.
    #[must_use]
    pub fn as_said(&self) -> bool {
        self.figure.shown_by(self.model) != self.figure.missed.is_some()
    }

    /// The same in a word.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match (self.figure.shown_by(self.model), self.figure.missed.is_some()) {
            (true, false) => "shown",
            (false, true) => "missed, and known to be",
            (false, false) => "MISSED",
            (true, true) => "SHOWN, though said to be missed",
        }
    }

    /// The data sheet's figure, in words.
    #[must_use]
    pub fn says(&self) -> String {
        let value = number(self.figure.value);
        match self.figure.within_percent {
            Some(percent) => format!("{value} within {percent} %"),
            None => format!("at most {value}"),
        }
    }

    /// The run, in words.
    #[must_use]
    pub fn run(&self) -> String {
        let Figure { rw, read_percent, block_bytes, depth, software_ns, .. } = &self.figure;
        let size = match block_bytes {
            bytes if bytes.is_multiple_of(1024) => format!("{} KiB", bytes / 1024),
            bytes => format!("{bytes} B"),
        };
        let name = match rw {
            Load::RandRw => format!("randrw {read_percent} %"),
            other => fio(*other).to_string(),
        };
        let host = if *software_ns > 0 {
            format!(", host {:.1} us", *software_ns as f64 / 1e3)
        } else {
            String::new()
        };
        format!("{name}, {size}, depth {depth}{host}")
    }

    /// What is measured, with its unit.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self.figure.measure {
            Measure::Iops => "IOPS",
            Measure::MbPerS => "MB/s",
            Measure::MeanUs => "us",
            Measure::P999Us => "us, p99.9",
            Measure::P99999Us => "us, p99.999",
        }
    }

    /// The model's value, in words.
    #[must_use]
    pub fn shows(&self) -> String {
        number(self.model)
    }
}

/// Four digits, or whole, with commas between thousands.
fn number(value: f64) -> String {
    if value < 100.0 {
        let text = format!("{value:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn fio(load: Load) -> Rw {
    match load {
        Load::RandRead => Rw::RandRead,
        Load::RandWrite => Rw::RandWrite,
        Load::RandRw => Rw::RandRw,
        Load::Read => Rw::Read,
        Load::Write => Rw::Write,
    }
}

/// Operations that a figure takes: some that lie beyond its percentile, or enough for its mean.
fn operations(figure: &Figure) -> u64 {
    match figure.measure {
        Measure::P99999Us => 3_000_000,
        Measure::Iops => 1_000_000,
        Measure::P999Us | Measure::MeanUs => 100_000,
        Measure::MbPerS => (4 << 30) / u64::from(figure.block_bytes),
    }
}

/// The model that `word` names, filled in order, and in its steady state under random writes.
struct States {
    filled: Model,
    steady: Model,
    capacity: u64,
}

impl States {
    fn of(word: &str) -> Result<States, Failure> {
        let capacity = CAPACITY;
        let state = |rounds| -> Result<Model, Failure> {
            let mut model = Model::parse(word, capacity)?;
            if let Model::Flash(flash) = &mut model {
                flash.precondition(rounds, SEED);
            }
            Ok(model)
        };
        Ok(States { filled: state(0.0)?, steady: state(ROUNDS)?, capacity })
    }

    fn run(&self, nth: u64, figure: &Figure) -> Result<f64, Failure> {
        let rw = fio(figure.rw);
        let model = if rw.is_random() { &self.steady } else { &self.filled }.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let mut runner = match figure.software_ns {
            0 => Simulated::bare("model", model, stop),
            ns => Simulated::drive("model", model, self.capacity, figure.block_bytes, ns, stop)?,
        };
        let workload = Workload {
            rwmixread: figure.read_percent,
            ..Workload::new(rw, figure.block_bytes, self.capacity)
        };
        let mut plan = Plan::new(workload, Arrivals::Closed { depth: figure.depth }, 0);
        (plan.runtime_ns, plan.count, plan.seed) = (None, Some(operations(figure)), of_run(SEED, nth));
        // A buffer of writes is full by then.
        plan.warm_up_ns = 200_000_000;
        let outcome = runner.run(&plan, &mut |_| ())?.1;
        let response = outcome.both().response;
        let percentile = |percent| response.percentile(percent).ns as f64 / 1e3;
        Ok(match figure.measure {
            Measure::Iops => outcome.throughput(),
            Measure::MbPerS => outcome.throughput() * f64::from(figure.block_bytes) / 1e6,
            Measure::MeanUs => response.mean_ns() / 1e3,
            Measure::P999Us => percentile(99.9),
            Measure::P99999Us => percentile(99.999),
        })
    }
}

/// Runs the figures of a model's file; `word` names it, and may be the file's path.
///
/// # Errors
/// Which part of the word is wrong; that a figure's load cannot be run.
pub fn check(word: &str, file: &ModelFile) -> Result<Vec<Shown>, Failure> {
    if file.figures.is_empty() {
        return Ok(Vec::new());
    }
    let states = States::of(word)?;
    let of = |(nth, figure): (usize, &Figure)| -> Result<Shown, Failure> {
        let model = states.run(nth as u64, figure).map_err(|e| format!("{}: {e}", figure.what))?;
        Ok(Shown { figure: figure.clone(), model })
    };
    file.figures.iter().enumerate().map(of).collect()
}

/// A Markdown table of what a model showed.
#[must_use]
pub fn markdown(shown: &[Shown]) -> String {
    let mut text =
        String::from("| figure | run | says | model | | source |\n| --- | --- | --- | --- | --- | --- |\n");
    for it in shown {
        let Figure { what, source, missed, .. } = &it.figure;
        let verdict = match missed {
            Some(why) => format!("{}: {why}", it.verdict()),
            None => it.verdict().to_owned(),
        };
        let (run, says, shows, unit) = (it.run(), it.says(), it.shows(), it.unit());
        // Writing to a string does not fail.
        _ = writeln!(text, "| {what} | {run} | {says} {unit} | {shows} | {verdict} | {source} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        for (value, text) in
            [(7.3456, "7.35"), (10.0, "10"), (0.9, "0.9"), (549_999.6, "550,000"), (2400.4, "2,400")]
        {
            assert_eq!(number(value), text);
        }
    }
}
