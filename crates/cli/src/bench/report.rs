//! What came out, for people and for programs.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use nearside_instrument::{Ask, Curve, Event, Point, Runner, Steady, csv, measure, page, table};
use nearside_loadgen::fio_json::{self, Detail};
use nearside_loadgen::{Outcome as Measured, hlog};
use serde_json::Value;

use super::live::Live;
use crate::failure::{Failure, INTERRUPTED, Outcome, complain};
use crate::out::Out;

/// Where results go.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// What is printed
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    output_format: Format,
    /// The same as --output-format json
    #[arg(long, conflicts_with = "output_format")]
    json: bool,
    /// Write a log of each run's response times in HdrHistogram's format (.hlog)
    #[arg(long, value_name = "DIR")]
    hlog: Option<PathBuf>,
    /// Where the page with the pictures goes
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub out: PathBuf,
}

/// fio's `--output-format`, and this program's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables
    #[default]
    Normal,
    /// One JSON object per run and line, with the environment (docs/run.schema.json)
    Json,
    /// fio's JSON: a job per stream, a group per run
    FioJson,
    /// fio's json+: the same with all bins of the histograms
    #[value(name = "fio-json+")]
    FioJsonPlus,
    /// A line per run, stream and direction, the names of the columns with their units first
    Csv,
}

/// Prints what comes out, as it was asked for.
pub struct Results<'a> {
    args: &'a OutputArgs,
    format: Format,
    /// Standard output.
    pub out: Out,
    began_ms: u64,
    /// Runs that were passed on.
    runs: u32,
    /// Those in fio's form: it has one object for all.
    jobs: Vec<fio_json::Job>,
}

impl<'a> Results<'a> {
    /// Takes standard output; nothing was measured yet.
    pub fn new(args: &'a OutputArgs) -> Results<'a> {
        let format = if args.json { Format::Json } else { args.output_format };
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began_ms = began.map_or(0, |since| since.as_millis() as u64);
        Results { args, format, out: Out::new(), began_ms, runs: 0, jobs: Vec::new() }
    }

    /// The folder of the page.
    pub fn folder(&self) -> &Path {
        &self.args.out
    }

    /// Whether tables are printed.
    pub fn tables(&self) -> bool {
        self.format == Format::Normal
    }

    /// Passes on a run that has just ended.
    pub fn run(&mut self, point: &Point, outcome: &Measured) -> Result<(), Failure> {
        if let Some(folder) = &self.args.hlog {
            log(folder, point, outcome)?;
        }
        if point.summary.environment.is_none() {
            // In simulated time the same seed gives the same bytes.
            self.began_ms = 0;
        }
        match self.format {
            Format::Normal => {}
            Format::Json => {
                let mut value = serde_json::to_value(&point.summary)
                    .map_err(|e| Failure::Message(format!("--output-format json: {e}")))?;
                if let Value::Object(fields) = &mut value {
                    fields.insert("type".to_owned(), "run".into());
                }
                self.line(&value)?;
            }
            Format::FioJson | Format::FioJsonPlus => {
                let plus = self.format == Format::FioJsonPlus;
                let detail = if plus { Detail::Bins } else { Detail::Percentiles };
                self.jobs.extend(fio_json::jobs(&point.summary, outcome, self.runs, detail));
            }
            Format::Csv => {
                if self.runs == 0 {
                    self.out.lines(&csv::header())?;
                }
                self.out.lines(&csv::lines(point))?;
                self.out.flush()?;
            }
        }
        self.runs += 1;
        Ok(())
    }

    /// Another line, where lines of JSON are asked for.
    pub fn json(&mut self, value: &Value) -> Result<(), Failure> {
        if self.format == Format::Json { self.line(value) } else { Ok(()) }
    }

    fn line(&mut self, value: &Value) -> Result<(), Failure> {
        self.out.json(value)?;
        Ok(self.out.flush()?)
    }

    /// A command's only run: passes it on, its table below what stands `before` it, the page of that name;
    /// the exit status.
    pub fn one(
        mut self,
        (point, outcome): (Point, Measured),
        steady: Option<Steady>,
        before: &str,
        page: &str,
    ) -> Outcome {
        let name = point.summary.target.clone();
        self.run(&point, &outcome)?;
        if let Some(first) = point.first_error() {
            complain(&format!("{name}: {first}"));
        }
        let mut text = table::run(&point);
        if let Some(steady) = &steady {
            text.push_str(&format!("{}\n", steady.words()));
        }
        let mut curve = Curve { name, steady, ..Curve::default() };
        if point.depth().is_some() {
            curve.depths.push(point);
        } else {
            curve.loads.push(point);
        }
        let curves = [curve];
        let page = write_page(self.folder(), page, "Response time", &curves)?;
        if self.tables() {
            writeln!(self.out, "{before}{text}the page with the pictures: {}", page.display())?;
        }
        self.end()?;
        Ok(status(&curves))
    }

    /// All runs have ended.
    pub fn end(&mut self) -> Result<(), Failure> {
        if matches!(self.format, Format::FioJson | Format::FioJsonPlus) {
            let document = fio_json::Document::new(self.began_ms, std::mem::take(&mut self.jobs));
            let text = serde_json::to_string_pretty(&document)
                .map_err(|e| Failure::Message(format!("--output-format fio-json: {e}")))?;
            self.out.lines(&format!("{text}\n"))?;
        }
        Ok(self.out.flush()?)
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
    results: &mut Results<'_>,
    live: &Live,
    (nth, all): (usize, usize),
) -> Result<Curve, Failure> {
    let mut failed = Ok(());
    let curve = measure(runner, name, ask, &mut |event| {
        live.event(&event, name, nth, all);
        if let (Event::Ended(point, outcome), true) = (&event, failed.is_ok()) {
            failed = results.run(point, outcome);
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
pub fn show(curves: &[Curve], name: &str, title: &str, mut results: Results<'_>) -> Outcome {
    let page = write_page(results.folder(), name, title, curves)?;
    let tables = results.tables();
    for curve in curves {
        for note in &curve.notes {
            complain(&format!("{}: {note}", curve.name));
        }
        if tables && curves.len() > 1 {
            writeln!(results.out, "{}", curve.name)?;
        }
        if tables {
            writeln!(results.out, "{}", table::curve(curve))?;
        }
    }
    if tables {
        writeln!(results.out, "the page with the pictures: {}", page.display())?;
    }
    results.end()?;
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
