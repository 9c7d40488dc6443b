//! `nearside act`: Aerospike's certification of a drive. One run for each multiple of the unit load; the
//! rules are looked up in what each run showed, so that one run serves all of them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use nearside_driver::Policy;
use nearside_instrument::act::config::Config;
use nearside_instrument::act::{
    Certified, Failed, Largest, Load, Profile, Report, Rule, Tried, largest, page,
};
use nearside_instrument::{Needs, Real, Runner, Simulated, Target, medium, words};
use nearside_loadgen::run::Pace;
use nearside_loadgen::{Rw, Workload};
use nearside_random::of_run;
use serde_json::json;

use crate::args::{CompletionModel, HostArgs};
use crate::bench::live::Live;
use crate::bench::work;
use crate::failure::{Failure, INTERRUPTED, Outcome, complain};
use crate::interrupt::until_told;
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside act -d model:optane-p4800x:16GiB --simulated        # the largest multiple that passes, in simulated time
  nearside act -d model:nand-p3700:16GiB --multiple 40         # one multiple, in real time
  nearside act -d uring:/dev/nvme0n1 --destroy --runtime 24h   # as a certification asks: 24 hours, hour by hour
  nearside act -d dram:1GiB --config actconfig_3x_1d.txt       # the load of ACT's own configuration file

A run passes if in each slice less than 5 % of the reads take 1 ms or longer, less than 1 % 8 ms, less than 0.1 % 64 ms, by
the time of the I/O alone, as ACT has it. Beside it stands the time since each read was due, and what the host took meanwhile.
A configuration file needs its devices, its duration and a rate. Its rates are totals over the devices; the drive takes its
share. Operations begin when they are due, whatever is in flight; writes are as the target has them, without O_DSYNC.

A drive of one's own should be written over in large blocks before (as ACT's act_prep does); a simulated one is.
A certification takes 24 hours or more for each multiple; the paper took 2. The default is enough to compare drives, not to certify one.
Exit status: 0 if something passed, 1 if nothing did, 2 on an error.";

/// Aerospike's certification: how many times the unit load a drive can take
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct ActArgs {
    /// What is measured: as for nearside bench
    #[arg(short = 'd', long = "drive", env = "NEARSIDE_TARGET", value_name = "TARGET")]
    target: Target,
    /// The unit load: the paper's, or today's
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    profile: ProfileName,
    /// The load of one of act_storage's own configuration files, once
    #[arg(long, value_name = "FILE", conflicts_with_all = ["profile", "multiple", "most"])]
    config: Option<PathBuf>,
    /// This multiple only, without a search
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    multiple: Option<u32>,
    /// Where the search ends
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with = "multiple")]
    most: u32,
    /// How long each multiple runs [default: 10s, of a configuration file its own]
    #[arg(long, value_name = "TIME", value_parser = words::time)]
    runtime: Option<u64>,
    /// Every whole slice of this length has to pass; the run where it is shorter
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = words::time)]
    slice: u64,
    /// In simulated time, for a TARGET that is model:NAME[:SIZE]: the same seed gives the same answer
    #[arg(long, conflicts_with_all = ["completion", "destroy"])]
    simulated: bool,
    /// What the host's software adds to each simulated response: the paper's less than 4 us (its section III)
    #[arg(long, default_value = "4us", value_name = "TIME", value_parser = words::time, requires = "simulated")]
    software: u64,
    /// How the driver of a drive in this process learns that a command is complete [default: polled]
    #[arg(long, value_enum, value_name = "MODEL")]
    completion: Option<CompletionModel>,
    /// What is on a file or block device may be destroyed
    #[arg(long)]
    destroy: bool,
    /// Of places
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Print one JSON object per run and line, then one per rule
    #[arg(long)]
    json: bool,
    /// Where the page with the pictures goes
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ProfileName {
    /// 1,000 reads a second, 1.536 MB/s of large reads and of large writes
    #[default]
    Pieee17,
    /// 2,000 reads a second, 1,000 writes with their defragmentation
    Act6,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Profile {
        match name {
            ProfileName::Pieee17 => Profile::Pieee17,
            ProfileName::Act6 => Profile::Act6,
        }
    }
}

/// Operations in flight at most; what waits beyond them is late, and that shows from the due moment.
const DEPTH: u32 = 512;
/// Fewer where their buffers would take more than this many bytes together.
const BUFFERS: u32 = 512 << 20;
/// The host's stalls are told from this length on: the shortest time that a rule bounds.
const STALL_NS: u64 = 100_000;
/// Each multiple runs this long unless one says otherwise.
const RUNTIME_NS: u64 = 10_000_000_000;

/// What is run, apart from the drive.
struct Unit {
    load: Box<dyn Fn(u32) -> Load>,
    name: String,
    runtime_ns: u64,
    slice_ns: u64,
    /// The file that it came from.
    config: Option<Config>,
}

/// Slices of a run at most: each takes some 200 KiB for each stream, twice.
const MOST_SLICES: u64 = 1024;

impl Unit {
    fn of(args: &ActArgs) -> Result<Unit, Failure> {
        let unit = Unit::asked(args)?;
        let slices = unit.runtime_ns / unit.slice_ns.max(1);
        if slices > MOST_SLICES {
            let say = format!("--slice: the run would have {slices} slices; it may have {MOST_SLICES}");
            return Err(Failure::Message(say));
        }
        Ok(unit)
    }

    fn asked(args: &ActArgs) -> Result<Unit, Failure> {
        let Some(path) = &args.config else {
            let profile = Profile::from(args.profile);
            let runtime_ns = args.runtime.unwrap_or(RUNTIME_NS);
            let load = Box::new(move |multiple| Load::times(profile, multiple));
            let (name, slice_ns) = (profile.name().to_owned(), args.slice.min(runtime_ns));
            return Ok(Unit { load, name, runtime_ns, slice_ns, config: None });
        };
        let failed = |e: &dyn std::fmt::Display| Failure::Message(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| failed(&e))?;
        let config = Config::parse(&text).map_err(|e| failed(&e))?;
        for note in &config.notes {
            complain(&format!("{}: {note}", path.display()));
        }
        if config.devices.len() > 1 {
            let devices = config.devices.len();
            let share = format!("of {devices} devices: this drive takes its share, 1 / {devices}");
            complain(&format!("{}: {share}", path.display()));
        }
        let runtime_ns = args.runtime.unwrap_or(config.seconds * 1_000_000_000);
        // A slice is a number of whole observations, as act_latency.py has it.
        let interval_ns = config.report_interval_sec * 1_000_000_000;
        let slice_ns = args.slice.checked_next_multiple_of(interval_ns).unwrap_or(u64::MAX).min(runtime_ns);
        let load = config.load;
        let name = path.display().to_string();
        Ok(Unit { load: Box::new(move |_| load), name, runtime_ns, slice_ns, config: Some(config) })
    }
}

/// An open drive.
struct Drive {
    capacity: u64,
    block_size: u32,
    about: &'static str,
    runner: Box<dyn Runner>,
}

pub fn run(args: ActArgs) -> Outcome {
    let unit = Unit::of(&args)?;
    let stop = until_told()?;
    let live = Live::new();
    let drive = match args.simulated {
        true => simulated(&args, &unit, &stop)?,
        false => real(&args, &unit, &stop, &live)?,
    };
    certify(&args, &unit, drive, live, &stop)
}

/// A drive that a model names, in simulated time.
fn simulated(args: &ActArgs, unit: &Unit, stop: &Arc<AtomicBool>) -> Result<Drive, Failure> {
    let word = args.target.to_string();
    let failed = |e: &dyn std::fmt::Display| Failure::Message(format!("{word}: {e}"));
    let Some(rest) = word.strip_prefix("model:") else {
        return Err(failed(&"--simulated takes a model (as model:optane-p4800x:16GiB)"));
    };
    let (name, capacity) = match rest.rsplit_once(':') {
        Some((name, size)) => (name, words::bytes(size).map_err(|e| failed(&e))?),
        None => (rest, 16 << 30),
    };
    let medium = medium(name, capacity, true, args.seed).map_err(|e| failed(&e))?;
    let bytes = (unit.load)(1).largest_bytes(4096);
    let mut runner = Simulated::drive(&word, medium, capacity, bytes, args.software, stop.clone())
        .map_err(|e| failed(&e))?;
    runner.prepare(capacity, bytes, args.seed).map_err(|e| failed(&e))?;
    Ok(Drive { capacity, block_size: 512, about: "simulated time", runner: Box::new(runner) })
}

/// The drive in real time.
fn real(args: &ActArgs, unit: &Unit, stop: &Arc<AtomicBool>, live: &Live) -> Result<Drive, Failure> {
    let completion = args.completion.map(Policy::from);
    let bytes = (unit.load)(1).largest_bytes(4096);
    let depth = (BUFFERS / bytes).min(DEPTH) as u16;
    let needs = Needs { depth, bytes, write: true, destroy: args.destroy, completion, buffered: false };
    let mut target = args.target.clone();
    target.set_options(args.host.options()?);
    let open = target.open(needs).map_err(|e| Failure::Message(e.to_string()))?;
    for note in &open.notes {
        complain(note);
    }
    let (capacity, block_size, fresh) = (open.capacity, open.block_size, open.fresh);
    let pace = Pace { stall_ns: STALL_NS, ..work::pace(&args.target, completion) };
    let mut drive = Real::new(args.target.to_string(), open, pace, work::environment(), stop.clone());
    if fresh {
        live.begins(0, 1, "filling the drive's memory".to_owned());
        // What was never written is one page of zeros; more than a cache holds is enough to be none.
        let range = Workload::new(Rw::RandRead, 4096, capacity.min(1 << 30));
        drive.fill(&range, &mut |generator| live.runs(generator)).map_err(Failure::Message)?;
    }
    Ok(Drive { capacity, block_size, about: "real time", runner: Box::new(drive) })
}

/// Why a search ended early.
enum Ended {
    Told,
    Failed(String),
}

fn certify(args: &ActArgs, unit: &Unit, mut drive: Drive, live: Live, stop: &AtomicBool) -> Outcome {
    let rules = [Rule::standard(), Rule::tightened(), Rule::tightened_caption()];
    let (first, most) = match (args.multiple, &args.config) {
        (Some(multiple), _) => (multiple, multiple),
        (None, Some(_)) => (1, 1),
        (None, None) => (8, args.most),
    };
    let mut runs: BTreeMap<u32, Report> = BTreeMap::new();
    let mut one = |multiple: u32| -> Result<Report, Ended> {
        if let Some(report) = runs.get(&multiple) {
            return Ok(report.clone());
        }
        live.begins(runs.len(), runs.len() + 1, format!("{multiple} times {}", unit.name));
        let load = (unit.load)(multiple);
        let seed = of_run(args.seed, Simulated::PREPARING + runs.len() as u64);
        let plan = load
            .plan(drive.capacity, drive.block_size, unit.runtime_ns, unit.slice_ns, seed)
            .map_err(|e| Ended::Failed(e.to_string()))?;
        let run = drive.runner.run(&plan, &mut |generator| live.runs(generator));
        let (point, outcome) = run.map_err(|e| Ended::Failed(e.to_string()))?;
        if stop.load(Ordering::Relaxed) {
            return Err(Ended::Told);
        }
        let report = Report::of(&outcome, load.max_lag_ns);
        let report = match &point.summary.machine {
            Some(machine) => report.with_host(machine),
            None => report,
        };
        runs.insert(multiple, report.clone());
        Ok(report)
    };
    let mut found: Vec<(Rule, Largest)> = Vec::new();
    let mut ended = None;
    for rule in rules {
        let judged = |multiple| Ok(rule.judge(&one(multiple)?));
        let search = if first == most { only(first, judged) } else { largest(first, most, judged) };
        match search {
            Ok(largest) => found.push((rule, largest)),
            Err(end) => {
                ended = Some(end);
                break;
            }
        }
    }
    drop(live);
    if let Some(Ended::Failed(error)) = ended {
        return Err(Failure::Message(format!("{}: {error}", args.target)));
    }
    certified(args, unit, drive.about, &runs, &found, first == most)?;
    if ended.is_some() || stop.load(Ordering::Relaxed) {
        return Ok(INTERRUPTED);
    }
    Ok(u8::from(found.iter().all(|(_, largest)| largest.multiple == 0)))
}

/// The one multiple that is to be tried.
fn only(
    multiple: u32,
    mut judged: impl FnMut(u32) -> Result<Result<(), Failed>, Ended>,
) -> Result<Largest, Ended> {
    let verdict = judged(multiple)?;
    let passed = verdict.is_ok();
    let tried = vec![Tried { multiple, failed: verdict.err() }];
    Ok(Largest { multiple: if passed { multiple } else { 0 }, at_least: passed, tried })
}

/// What was found: as JSON, or in words and on a page.
fn certified(
    args: &ActArgs,
    unit: &Unit,
    about: &str,
    runs: &BTreeMap<u32, Report>,
    found: &[(Rule, Largest)],
    single: bool,
) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        if let Some(config) = &unit.config {
            let Config { devices, derived, seconds, notes, .. } = config;
            out.json(&json!({
                "type": "config", "devices": devices, "derived": derived, "test-duration-sec": seconds, "notes": notes,
            }))?;
        }
        for (multiple, report) in runs {
            out.json(&json!({
                "type": "run", "multiple": multiple, "load": (unit.load)(*multiple), "report": report,
                "completes": report.completes().is_ok(),
            }))?;
        }
        for (rule, largest) in found {
            out.json(&json!({"type": "verdict", "rule": rule, "largest": largest}))?;
        }
    } else {
        let seconds = unit.runtime_ns as f64 / 1e9;
        let about = format!("Unit load {}, {seconds} s for each multiple, {about}.", unit.name);
        let name = args.target.to_string();
        let environment = (!args.simulated).then(work::environment);
        let environment = environment.as_ref();
        let page = page(&Certified { name: &name, about: &about, environment, runs, found });
        let path = args.out.join("act.html");
        let failed = |e: std::io::Error| Failure::Message(format!("{}: {e}", path.display()));
        std::fs::create_dir_all(&args.out).map_err(failed)?;
        std::fs::write(&path, page).map_err(failed)?;
        writeln!(out, "{name}: {about}")?;
        if let Some(config) = &unit.config {
            writeln!(out, "\nof all devices together:\n{}", config.derived)?;
        }
        show(&mut out, unit, runs, found, single)?;
        writeln!(out, "\nthe page with the pictures: {}", path.display())?;
    }
    out.flush()?;
    Ok(())
}

/// What each rule found, then ACT's tables of the runs that passed, or of the only one.
fn show(
    out: &mut Out,
    unit: &Unit,
    runs: &BTreeMap<u32, Report>,
    found: &[(Rule, Largest)],
    single: bool,
) -> Result<(), Failure> {
    let mut shown: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    writeln!(out)?;
    for (rule, largest) in found {
        let failed = largest.tried.iter().find_map(|t| Some((t.multiple, t.failed.as_ref()?)));
        let (multiple, at_least, name) = (largest.multiple, largest.at_least, &rule.name);
        match failed {
            Some((at, why)) if single => writeln!(out, "{name}: {at}x fails: {why}")?,
            _ if single => writeln!(out, "{name}: {multiple}x passes")?,
            _ if multiple == 0 => writeln!(out, "{name}: not even 1x passes")?,
            _ if at_least => writeln!(out, "{name}: {multiple}x passes, and the search ended there")?,
            _ => writeln!(out, "{name}: {multiple}x is the largest multiple that passes")?,
        }
        let multiple = if multiple > 0 { multiple } else { largest.tried.last().map_or(0, |t| t.multiple) };
        shown.entry(multiple).or_default().extend(rule.bounds.iter().map(|(ns, _)| *ns));
    }
    let microseconds = unit.config.as_ref().is_some_and(|config| config.microsecond_histograms);
    for (multiple, bounds) in shown {
        let Some(report) = runs.get(&multiple) else { continue };
        if single {
            match report.completes() {
                Ok(()) => writeln!(out, "as a stress test: {multiple}x passes")?,
                Err(why) => writeln!(out, "as a stress test: {multiple}x fails: {why}")?,
            }
        }
        write!(out, "\n{multiple}x:\n{}", report.text(&bounds, microseconds))?;
    }
    Ok(())
}
