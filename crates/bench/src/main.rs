//! `make bench`: measures the figures that Nearside promises, each beside what the bare machine or a peer
//! takes in the same run, writes a record, prints it as a table and shows it as a page.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use clap::error::ErrorKind;
use nearside_instrument::Failure;
use nearside_instrument::help::{as_typed, flowing};
use nearside_loadgen::record::{Environment, Figure, Record};

mod applications;
mod attach;
mod empty;
#[cfg(feature = "tls")]
mod encrypted;
mod figures;
mod fleet;
mod layout;
mod medium;
mod page;
mod pager;
mod paths;
mod processes;
mod remote;
mod rules;
mod scaling;
mod sizes;
mod sockets;
mod tables;
mod targets;
mod tcp;
mod view;

const EXAMPLES: &str = "\
Examples:
  nearside-bench --fast
  nearside-bench --only near-data --name try
  nearside-bench --from studies/record/amd-epyc-2c/2026-11-21-bench.jsonl --page out/bench.html";

/// Measures the figures, each beside what the bare machine or a peer takes;
/// writes studies/record/MACHINE/DATE-NAME.jsonl and a page, and prints a table.
#[derive(Parser)]
#[command(after_help = flowing(EXAMPLES))]
struct Args {
    /// Under two minutes, with wider spreads.
    #[arg(long)]
    fast: bool,
    /// The record's name.
    #[arg(long, default_value = "bench")]
    name: String,
    /// Only these groups: floors, io, vfio, attach, pager, applications, scan, generator, sim, paths, medium,
    /// scaling, near-data, processes, tables, remote, yara, fleet, sizes, drive, view, tcp, tls.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where records are kept.
    #[arg(long, default_value = "studies/record")]
    record: PathBuf,
    /// Measure nothing: show a record that is there.
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["fast", "only", "name", "record"])]
    from: Option<PathBuf>,
    /// Where the page with the pictures goes.
    #[arg(long, default_value = "out/bench.html")]
    page: PathBuf,
    /// Serve the file system that attached drives stand beside.
    #[arg(long, hide = true)]
    empty: Option<PathBuf>,
}

/// What is measured in this process, or in others that are whole: its name, and how.
type Group = (&'static str, fn(bool, figures::Sink<'_>) -> Result<(), Failure>);

const GROUPS: &[Group] = &[
    ("paths", paths::paths),
    ("medium", medium::punctuality),
    ("attach", attach::attach),
    ("pager", pager::pager),
    ("applications", applications::applications),
    ("scaling", scaling::scaling),
    ("near-data", figures::near_data),
    ("processes", processes::processes),
    ("tables", tables::tables),
    ("remote", remote::remote),
    ("yara", rules::rules),
    ("fleet", fleet::fleet),
    ("sizes", sizes::sizes),
    ("drive", figures::idle),
    ("view", view::view),
    ("tcp", tcp::tcp),
    #[cfg(feature = "tls")]
    ("tls", encrypted::encrypted),
];

fn main() -> ExitCode {
    let done = match Args::try_parse() {
        Ok(args) => run(&args),
        Err(said) if said.kind() == ErrorKind::DisplayHelp => {
            let help = as_typed(&said.render().to_string());
            std::io::stdout().write_all(help.as_bytes()).map_err(Failure::from)
        }
        Err(said) => said.exit(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("nearside-bench: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    if let Some(at) = &args.empty {
        return empty::serve(at);
    }
    if let Some(from) = &args.from {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", from.display());
        let lines = std::fs::read_to_string(from).map_err(|e| failed(&e))?;
        // DATE-NAME.
        let stem = from.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let name = stem.get("2026-01-01-".len()..).unwrap_or_default();
        return show(&Record::from_lines(&lines).map_err(|e| failed(&e))?, from, name, &args.page);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut record = Record::new(Environment::gather(now));
    let wanted = |group: &str| args.only.is_empty() || args.only.iter().any(|o| o == group);
    if wanted("floors") {
        eprintln!("floors ...");
        for figure in figures::floors(args.fast)? {
            record.add(figure);
        }
    }
    // The I/O path's, the scanner's and the generator's benchmarks stand beside their code;
    // they hand their figures over in a file.
    let benches = [
        // Between two cores, where the memory lies counts.
        ("io", "nearside-driver", "io_path", if args.fast { 2 } else { 5 }),
        ("vfio", "nearside-driver", "vfio_user", if args.fast { 1 } else { 3 }),
        ("scan", "nearside-ndp", "scan", 1),
        ("generator", "nearside-loadgen", "generator", 1),
        ("sim", "nearside-sim", "speed", 1),
    ];
    for (group, package, bench, count) in benches {
        if wanted(group) {
            let mut of_each = Vec::new();
            for nth in 1..=count {
                eprintln!("{group}, process {nth} of {count} ...");
                // Several make up for what one of them measures shorter.
                of_each.push(beside_their_code(package, bench, args.fast || count > 1)?);
            }
            if count > 1 {
                eprint!("{}", layout::modes(&of_each));
            }
            for figure in layout::over(&of_each) {
                record.add(figure);
            }
        }
    }
    for (group, measure) in GROUPS {
        if wanted(group) {
            eprintln!("{group} ...");
            measure(args.fast, &mut |figure| drop(record.add(figure)))?;
        }
    }
    let path = record.write(&args.record, &args.name)?;
    show(&record, &path, &args.name, &args.page)?;
    println!("the record: {}", path.display());
    Ok(())
}

/// Prints the table of a record that lies at `path`, writes the page, says what was missed and what is worse.
fn show(record: &Record, path: &Path, name: &str, page: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| format!("{}: {e}", page.display());
    if let Some(folder) = page.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(page, page::page(record)).map_err(failed)?;
    println!("{}", record.table());
    println!("the page with the pictures: {}", page.display());
    if let Some((then, before)) = targets::before(path, name) {
        print!("{}", targets::complaint(&targets::regressions(record, &before), &then));
    }
    if let Some(sentence) = targets::sentence(record) {
        println!("{sentence}");
    }
    Ok(())
}

fn beside_their_code(package: &str, bench: &str, fast: bool) -> Result<Vec<Figure>, Failure> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("figures.jsonl");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["bench", "--locked", "-q", "-p", package, "--bench", bench])
        .env("NEARSIDE_RECORD_FILE", &file);
    if fast {
        cargo.env("FAST", "1");
    }
    if !cargo.status()?.success() {
        return Err(format!("the benchmark {bench} of {package} failed").into());
    }
    figures_in(&file)
}

fn figures_in(file: &Path) -> Result<Vec<Figure>, Failure> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
