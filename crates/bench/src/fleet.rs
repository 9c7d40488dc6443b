//! One query over many served drives, beside the same over the slowest of them alone: by a cluster of
//! Ballista's and by Ray.
//!
//! Drives, cluster and queries are processes of this machine, which an example of the package for Python
//! starts and ends (crates/python/examples/fleet.py). In each of its rounds the query over all comes first,
//! and then that over each; caches are warm. A drive works on a core that it is given, and who waits for it
//! sleeps.
//!
//! A machine has fewer cores than a fleet has drives. So there are two fleets. Of drives that compute there
//! are 32 where half of the cores are as many, else 8, else 2; on two or three cores they have two, and the
//! cluster runs beside them. The other fleet is 32 drives whose media read a MiB/s (a delay before their
//! images): it shows how many drives a cluster waits for at once and what each costs it, and not how many
//! cores compute.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nearside_dma::system::terminate;
use nearside_instrument::Failure;
use nearside_instrument::completion::cores;
use nearside_instrument::volume::{Kind, tool};
use nearside_loadgen::record::Figure;
use serde_json::Value;

use crate::figures::Sink;
use crate::tables::{ORACLES, imports, nearside};

const EXAMPLE: &str = "crates/python/examples/fleet.py";
/// Where scripts/bench.sh lays the package for Python.
const PACKAGE: &str = "target/oracles/nearside";
/// After which the example ends all that it has started, and how long it has for that.
const WITHIN: Duration = Duration::from_secs(1800);
const GRACE: Duration = Duration::from_secs(60);

/// Drives of one kind, and how often they are asked.
struct Fleet {
    drives: usize,
    /// Of each drive's table.
    rows: u64,
    /// How long their media take, as a store has it; `None`: no time, they compute.
    delayed: Option<&'static str>,
    rounds: usize,
}

impl Fleet {
    fn name(&self, engine: &str) -> String {
        let what = if self.delayed.is_some() { "wait for their media" } else { "compute" };
        format!("{} drives that {what}, {} rows each, one query by {engine}", self.drives, self.rows)
    }

    /// As the example is told.
    fn words(&self) -> Vec<String> {
        let numbers =
            [("--drives", self.drives as u64), ("--lines", self.rows), ("--rounds", self.rounds as u64)];
        let numbers = numbers.into_iter().flat_map(|(name, number)| [name.to_owned(), number.to_string()]);
        let delayed =
            self.delayed.into_iter().flat_map(|delayed| ["--delayed".to_owned(), delayed.to_owned()]);
        numbers.chain(delayed).collect()
    }
}

/// What this machine has cores for.
fn fleets(fast: bool, cores: usize) -> Vec<Fleet> {
    let computing = [(64, 32), (16, 8), (2, 2)].into_iter().find(|(least, _)| cores >= *least);
    let (rows, rounds) = if fast { (200_000, 2) } else { (10_000_000, 5) };
    let computing = computing.map(|(_, drives)| Fleet { drives, rows, delayed: None, rounds });
    let (drives, rows, rounds) = if fast { (4, 10_000, 2) } else { (32, 100_000, 3) };
    let waiting = Fleet { drives, rows, delayed: Some("perkib=1ms,units=1"), rounds };
    computing.into_iter().chain([waiting]).collect()
}

/// Who asks all drives.
struct Engine {
    name: &'static str,
    /// What this machine lacks for it, beside our command.
    lacks: fn(&Path) -> Option<String>,
    /// The example, by it.
    example: fn(&Path) -> Command,
}

static ENGINES: [Engine; 2] = [
    Engine {
        name: "Ballista",
        lacks: |nearside| {
            let program = ballista(nearside);
            let unbuilt = || format!("{} is not built (make ballista)", program.display());
            let no_python = || tool("python3").is_none().then(|| "python3 is not installed".to_owned());
            (!program.exists()).then(unbuilt).or_else(no_python)
        },
        example: |nearside| {
            let mut command = Command::new("python3");
            command.args([EXAMPLE, "--engine", "ballista", "--nearside-ballista"]).arg(ballista(nearside));
            command
        },
    },
    Engine {
        name: "Ray",
        lacks: |_| {
            let here = imports(packaged(), "nearside.ray, pandas");
            (!here).then(|| format!("Ray and the package for Python are not in {PACKAGE} (make bench)"))
        },
        example: |_| {
            let mut command = packaged();
            command.args([EXAMPLE, "--engine", "ray"]);
            command
        },
    },
];

fn ballista(nearside: &Path) -> PathBuf {
    nearside.with_file_name("nearside-ballista")
}

/// Python, to which our package is visible, wherever Ray's processes run.
fn packaged() -> Command {
    let mut python = Command::new(ORACLES);
    python.env("PYTHONPATH", std::path::absolute(PACKAGE).unwrap_or_else(|_| PACKAGE.into()));
    python
}

/// Both fleets by each engine.
pub fn fleet(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let Some(nearside) = nearside()? else { return Ok(()) };
    if !Kind::Ext4.tools_are_here() {
        eprintln!("  left out: mke2fs is not installed (e2fsprogs)");
        return Ok(());
    }
    let fleets = fleets(fast, cores().len());
    if fleets.iter().all(|fleet| fleet.delayed.is_some()) {
        eprintln!("  left out: drives that compute, for each of which this machine has no core");
    }
    for engine in &ENGINES {
        if let Some(lacks) = (engine.lacks)(&nearside) {
            eprintln!("  left out: what {} asks: {lacks}", engine.name);
            continue;
        }
        for fleet in &fleets {
            let name = fleet.name(engine.name);
            eprintln!("{name} ...");
            let mut command = (engine.example)(&nearside);
            command.args(["--json", "--within", &WITHIN.as_secs().to_string(), "--nearside"]).arg(&nearside);
            command.args(fleet.words());
            let said = run(command, WITHIN + GRACE).map_err(|e| format!("{name}: {e}"))?;
            let figures = figures(&name, &said).ok_or_else(|| format!("{name}: {EXAMPLE} says {said:?}"))?;
            figures.into_iter().for_each(&mut *sink);
        }
    }
    Ok(())
}

/// The query over all beside the slowest drive, and what CPU time a drive takes when it is asked alone.
fn figures(name: &str, said: &str) -> Option<[Figure; 2]> {
    // Ray's own words may stand around it.
    let measured: Value = serde_json::from_str(said.lines().rfind(|line| line.starts_with('{'))?).ok()?;
    let figure = |name: &str, seconds: &Value| {
        let each = seconds.as_array()?.iter().map(|seconds| Some(seconds.as_f64()? * 1e3));
        Some(Figure::of(name, "ms", &each.collect::<Option<Vec<f64>>>()?))
    };
    let alone = measured["alone"].as_array()?.iter().map(|drive| figure("the slowest of them alone", drive));
    let alone: Vec<Figure> = alone.collect::<Option<_>>()?;
    let slowest = alone.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
    let busy = figure(&format!("{name}: CPU time of a drive that is asked alone"), &measured["busy"])?;
    Some([figure(name, &measured["together"])?.beside(slowest), busy.beside(slowest)])
}

/// What a program prints, which has so long for it.
fn run(mut command: Command, within: Duration) -> Result<String, Failure> {
    let mut log = tempfile::tempfile()?;
    let (said, status) = Running::start(command.stderr(log.try_clone()?))?.end(within)?;
    if status.success() {
        return Ok(said);
    }
    let mut words = Vec::new();
    log.rewind()?;
    log.read_to_end(&mut words)?;
    let words = String::from_utf8_lossy(&words);
    let lines: Vec<&str> = words.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n  ");
    Err(format!("{status}\n  {last}").into())
}

/// A program that is ended in any case.
struct Running {
    process: Child,
    said: Receiver<std::io::Result<String>>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Running, Failure> {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let out = process.stdout.take();
        let (tell, said) = channel();
        let running = Running { process, said };
        let mut out = out.ok_or("no pipe")?;
        std::thread::spawn(move || {
            let mut text = String::new();
            let _nobody_waits = tell.send(out.read_to_string(&mut text).map(|_| text));
        });
        Ok(running)
    }

    fn end(mut self, within: Duration) -> Result<(String, ExitStatus), Failure> {
        let late = |_| format!("it has not ended in {} s", within.as_secs());
        let said = self.said.recv_timeout(within).map_err(late)??;
        Ok((said, self.process.wait()?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // What it prints is over when it has ended what it had started.
        terminate(&mut self.process);
        let _ended = self.said.recv_timeout(GRACE);
        let _gone = self.process.kill();
        let _status = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets;

    #[test]
    fn each_row_has_its_target() {
        let met = |name: &str| {
            let figure = Figure::of(name, "ms", &[1.3]).beside(&Figure::of("alone", "ms", &[1.0]));
            targets::of(&figure).map(|(_, met)| met)
        };
        for cores in [2, 4, 16, 64] {
            let fleets = fleets(false, cores);
            assert_eq!(fleets.len(), 2);
            assert!(fleets[0].drives == 2 || fleets[0].drives <= cores / 2);
            for (fleet, engine) in fleets.iter().flat_map(|fleet| ENGINES.iter().map(move |one| (fleet, one)))
            {
                assert_eq!(met(&fleet.name(engine.name)), Some(true), "{}", fleet.name(engine.name));
            }
        }
        // One core is not given to two drives; what is small has no target.
        assert_eq!(fleets(false, 1).len(), 1);
        assert!(fleets(true, 2).iter().all(|fleet| met(&fleet.name("Ray")).is_none()));
    }

    #[test]
    fn the_slowest_drive_is_that_of_the_greatest_median() {
        let said = "words of Ray's\n{\"together\": [2.0, 3.0, 2.4], \"alone\": [[1.5, 9.0, 1.5], [2.0, 1.0, 2.0]], \
                    \"busy\": [0.25, 0.75]}\n(raylet) more of them\n";
        let [together, busy] = figures("2 drives", said).unwrap();
        assert_eq!((together.value, together.ratio, together.runs), (2400.0, Some(1.2), 3));
        assert_eq!(together.beside.as_deref(), Some("the slowest of them alone"));
        assert_eq!((busy.value, busy.ratio), (500.0, Some(0.25)));
        assert!(figures("2 drives", "no such line").is_none());
        assert!(figures("2 drives", "{\"together\": [2.0], \"alone\": [], \"busy\": []}").is_none());
    }

    #[test]
    fn what_fails_says_why_and_what_hangs_is_ended() {
        let shell = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            command
        };
        assert_eq!(run(shell("echo words; echo 3"), GRACE).unwrap(), "words\n3\n");
        let failed = run(shell("echo why >&2; exit 3"), GRACE).unwrap_err().to_string();
        assert_eq!(failed, "exit status: 3\n  why");
        let running = Running::start(&mut shell("exec sleep 1000")).unwrap();
        let at = PathBuf::from(format!("/proc/{}", running.process.id()));
        assert!(at.exists());
        assert!(running.end(Duration::from_millis(10)).unwrap_err().to_string().contains("not ended"));
        assert!(!at.exists());
    }
}
