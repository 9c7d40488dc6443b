//! What came out, for people and for programs.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use nearside_instrument::{Ask, Curve, Event, Point, Runner, measure, page, table};
use nearside_loadgen::{Outcome as Measured, hlog};
use serde_json::Value;

use super::live::Live;
use crate::failure::{Failure, INTERRUPTED, Outcome, complain};
use crate::out::Out;

/// Where results go.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print one JSON object per run and line, with the environment
    #[arg(long)]
    pub json: bool,
    /// Write a log of each run's response times in HdrHistogram's format (.hlog)
    #[arg(long, value_name = "DIR")]
    pub hlog: Option<PathBuf>,
    /// Where the page with the pictures goes
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
}

impl OutputArgs {
    /// Passes on a run that has just ended.
    pub fn run(&self, point: &Point, outcome: &Measured, out: &mut Out) -> Result<(), Failure> {
        if let Some(folder) = &self.hlog {
            log(folder, point, outcome)?;
        }
        if self.json {
            let mut value =
                serde_json::to_value(&point.summary).map_err(|e| Failure::Message(format!("--json: {e}")))?;
            if let Value::Object(fields) = &mut value {
                fields.insert("type".to_owned(), "run".into());
            }
            out.json(&value)?;
            out.flush()?;
        }
        Ok(())
    }
}

/// `FOLDER/TARGET-LOAD.hlog`. In simulated time the date is the epoch's: the same seed gives the same bytes.
fn log(folder: &Path, point: &Point, outcome: &Measured) -> Result<(), Failure> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let load = point.load().replace(' ', "");
    let name: String = format!("{}-{load}.hlog", point.summary.target).chars().map(plain).collect();
    let path = folder.join(name);
    let failed = |e: &dyn std::fmt::Display| Failure::Message(format!("{}: {e}", path.display()));
    let window = Duration::from_nanos(outcome.window_ns());
    let began = match point.summary.environment {
        Some(_) => SystemTime::now().checked_sub(window).unwrap_or(SystemTime::UNIX_EPOCH),
        None => SystemTime::UNIX_EPOCH,
    };
    fs::create_dir_all(folder).map_err(|e| failed(&e))?;
    let mut file = BufWriter::new(fs::File::create(&path).map_err(|e| failed(&e))?);
    hlog::write(outcome, began, &mut file).map_err(|e| failed(&e))?;
    file.flush().map_err(|e| failed(&e))
}

/// Measures a curve, the `nth` of so many, and passes its runs on as they end.
pub fn curve(
    runner: &mut dyn Runner,
    name: &str,
    ask: &Ask,
    output: &OutputArgs,
    out: &mut Out,
    live: &Live,
    (nth, all): (usize, usize),
) -> Result<Curve, Failure> {
    let mut failed = Ok(());
    let curve = measure(runner, name, ask, &mut |event| {
        live.event(&event, name, nth, all);
        if let (Event::Ended(point, outcome), true) = (&event, failed.is_ok()) {
            failed = output.run(point, outcome, out);
        }
    });
    failed?;
    curve.map_err(|e| Failure::Message(format!("{name}: {e}")))
}

/// Writes the page into a folder that is made where it is not there; its path.
pub fn write_page(folder: &Path, name: &str, title: &str, curves: &[Curve]) -> Result<PathBuf, Failure> {
    let path = folder.join(name);
    let failed = |e: io::Error| Failure::Message(format!("{}: {e}", path.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(&path, page(title, curves)).map_err(failed)?;
    Ok(path)
}

/// The tables, the page, the exit status.
pub fn show(curves: &[Curve], name: &str, title: &str, output: &OutputArgs, out: &mut Out) -> Outcome {
    let page = write_page(&output.out, name, title, curves)?;
    for curve in curves {
        for note in &curve.notes {
            complain(&format!("{}: {note}", curve.name));
        }
        if output.json {
            continue;
        }
        if curves.len() > 1 {
            writeln!(out, "{}", curve.name)?;
        }
        writeln!(out, "{}", table::curve(curve))?;
    }
    if !output.json {
        writeln!(out, "the page with the pictures: {}", page.display())?;
    }
    out.flush()?;
    Ok(status(curves))
}

/// 1 where an operation failed: what was measured is not what was asked.
pub fn status(curves: &[Curve]) -> u8 {
    let any = |of: fn(&Point) -> bool| curves.iter().flat_map(Curve::points).any(of);
    match any(|point| point.summary.errors > 0) {
        _ if any(|point| point.stopped) => INTERRUPTED,
        true => 1,
        false => 0,
    }
}
