//! fio's job files, for the words that apply here.
//!
//! A job is one stream; several jobs run side by side, as in fio. A word that means something else here, or
//! nothing, is a warning that names it; a word that this does not know is an error with its line: none is
//! passed over in silence. Numbers have fio's meaning (with its default `kb_base=1024`: `k` is 1,024 and `ki`
//! is 1,000; times are seconds without a unit).

use crate::arrivals::Arrivals;
use crate::plan::{Plan, Stream};
use crate::workload::{Distribution, Rw, Think, Trigger, Workload};

/// fio's `ioengine`, as far as it applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FioEngine {
    /// io_uring; also stands for libaio.
    IoUring,
    /// Positioned reads and writes (psync, pvsync, sync): fio's default on Linux.
    #[default]
    Positioned,
    /// mmap.
    Mapped,
}

/// A job file, read.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// What to run.
    pub plan: Plan,
    /// `filename`, where there is one.
    pub filename: Option<String>,
    /// `ioengine`.
    pub engine: FioEngine,
    /// `iodepth`: the greatest of the jobs, and the sum where they are closed loops.
    pub depth: u32,
    /// `direct`.
    pub direct: bool,
    /// `hipri`: polled completions.
    pub polled: bool,
    /// `verify`: data is to be checked.
    pub verify: bool,
    /// Words that have no effect here, or another one, each with its reason.
    pub warnings: Vec<String>,
}

/// What is wrong with a job file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FioError {
    /// From 1; 0 where it is the whole.
    pub line: usize,
    /// In words.
    pub what: String,
}

/// One section's words so far.
#[derive(Clone)]
struct Job {
    name: String,
    line: usize,
    workload: Workload,
    mixed: Option<u8>,
    size: Option<Size>,
    offset: Option<Size>,
    rate: Vec<f64>,
    poisson: bool,
    depth: u32,
    copies: u32,
    /// `thinktime` in nanoseconds; 0: none.
    think_ns: u64,
    spin_ns: u64,
    think_blocks: u32,
    trigger: Trigger,
}

#[derive(Clone, Copy)]
enum Size {
    Bytes(u64),
    Percent(u64),
}

/// The file's words that hold for the whole run.
#[derive(Clone, Default)]
struct Whole {
    filename: Option<String>,
    engine: FioEngine,
    direct: bool,
    polled: bool,
    verify: bool,
    runtime_ns: Option<u64>,
    ramp_ns: u64,
    seed: u64,
}

/// Reads a job file for a target of `capacity` bytes.
///
/// # Errors
/// Which line, and why.
pub fn parse(text: &str, capacity: u64) -> Result<FioJob, FioError> {
    let mut global = Job {
        name: String::new(),
        line: 0,
        // fio's own defaults: rw=read, bs=4k.
        workload: Workload::new(Rw::Read, 4096, capacity),
        mixed: None,
        size: None,
        offset: None,
        rate: Vec::new(),
        poisson: false,
        depth: 1,
        copies: 1,
        think_ns: 0,
        spin_ns: 0,
        think_blocks: 1,
        trigger: Trigger::Complete,
    };
    let (mut jobs, mut whole, mut warnings) = (Vec::<Job>::new(), Whole::default(), Vec::new());
    let mut section = false;
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let text = raw.trim();
        if text.is_empty() || text.starts_with([';', '#']) {
            continue;
        }
        let fail = |what: String| FioError { line, what };
        if let Some(name) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = true;
            if name != "global" {
                jobs.push(Job { name: name.to_owned(), line, ..global.clone() });
            }
            continue;
        }
        if !section {
            return Err(fail(format!("{text:?} stands before the first section")));
        }
        let (word, value) = text.split_once('=').map_or((text, None), |(w, v)| (w.trim(), Some(v.trim())));
        let job = jobs.last_mut().unwrap_or(&mut global);
        if let Some(warning) = set(job, &mut whole, word, value).map_err(fail)? {
            warnings.push(format!("line {line}: {word}: {warning}"));
        }
    }
    if jobs.is_empty() {
        return Err(FioError { line: 0, what: "there is no job".to_owned() });
    }
    build(jobs, whole, warnings, capacity)
}

/// Takes a word; a warning where it has no effect.
fn set(
    job: &mut Job,
    whole: &mut Whole,
    word: &str,
    value: Option<&str>,
) -> Result<Option<&'static str>, String> {
    let given = || value.filter(|v| !v.is_empty()).ok_or(format!("{word} needs a value"));
    match word {
        "rw" | "readwrite" => job.workload.rw = given()?.parse().map_err(|e| format!("{word}: {e}"))?,
        "bs" | "blocksize" => job.workload.bs = vec![(block(given()?)?, 100)],
        "bssplit" => job.workload.bs = split(given()?)?,
        "blockalign" | "ba" => job.workload.align = block(given()?)?,
        "rwmixread" => job.mixed = Some(number(given()?)?),
        "rwmixwrite" => {
            let writes: u8 = number(given()?)?;
            job.mixed = Some(100u8.checked_sub(writes).ok_or("rwmixwrite is a percentage")?);
        }
        "size" => job.size = Some(amount(given()?)?),
        "offset" => job.offset = Some(amount(given()?)?),
        "random_distribution" => job.workload.distribution = distribution(given()?)?,
        "rate_iops" => {
            job.rate = given()?.split(',').filter(|v| !v.is_empty()).map(rate).collect::<Result<_, _>>()?;
        }
        "rate_process" => match given()? {
            "linear" => job.poisson = false,
            "poisson" => job.poisson = true,
            other => return Err(format!("rate_process={other}: linear or poisson")),
        },
        "iodepth" => job.depth = number(given()?)?,
        "numjobs" => job.copies = number(given()?)?,
        "thinktime" | "thinktime_spin" | "thinktime_blocks" | "thinktime_blocks_type" => {
            set_think(job, word, given()?)?;
        }
        "name" => given()?.clone_into(&mut job.name),
        "filename" => match (&whole.filename, given()?) {
            (_, name) if name.contains(':') => return Err("filename: one target only".to_owned()),
            (Some(other), name) if other != name => {
                return Err("filename: all jobs must have the same".to_owned());
            }
            (_, name) => whole.filename = Some(name.to_owned()),
        },
        "ioengine" => match given()? {
            "io_uring" => whole.engine = FioEngine::IoUring,
            "libaio" => {
                whole.engine = FioEngine::IoUring;
                return Ok(Some("io_uring stands for libaio"));
            }
            "psync" | "pvsync" | "pvsync2" | "sync" | "vsync" => whole.engine = FioEngine::Positioned,
            "mmap" => whole.engine = FioEngine::Mapped,
            other => return Err(format!("ioengine={other} is not here: io_uring, psync or mmap")),
        },
        "direct" => whole.direct = flag(value)?,
        "buffered" => whole.direct = !flag(value)?,
        "hipri" => whole.polled = flag(value)?,
        "verify" => {
            whole.verify = given()? != "0";
            return Ok(whole.verify.then_some("data is checked by this program's own pattern"));
        }
        "runtime" => whole.runtime_ns = Some(time(given()?)?),
        "ramp_time" => whole.ramp_ns = time(given()?)?,
        "randseed" => whole.seed = number(given()?)?,
        "time_based" if flag(value)? => {}
        "time_based" => return Err("time_based=0: runs here are bounded by runtime".to_owned()),
        "norandommap" if flag(value)? => {}
        "norandommap" | "randrepeat" if !flag(value)? => {
            return Ok(Some("places are drawn independently, from the seed"));
        }
        "randrepeat" => {}
        "group_reporting" | "thread" | "invalidate" | "create_on_open" | "fallocate" | "end_fsync"
        | "log_avg_msec" | "write_lat_log" | "write_bw_log" | "write_iops_log" | "lat_percentiles"
        | "clat_percentiles" | "percentile_list" | "eta" | "description" | "gtod_reduce"
        | "refill_buffers" | "randommap" => {
            return Ok(Some("has no effect here"));
        }
        _ => return Err(format!("{word} is a word that this program does not know")),
    }
    Ok(None)
}

fn build(jobs: Vec<Job>, whole: Whole, warnings: Vec<String>, capacity: u64) -> Result<FioJob, FioError> {
    let mut warnings = warnings;
    let mut streams = Vec::new();
    let (mut deepest, mut together) = (1, 0u32);
    for mut job in jobs {
        let fail = |what: String| FioError { line: job.line, what: format!("[{}]: {what}", job.name) };
        let of = |size| match size {
            Size::Bytes(bytes) => bytes,
            Size::Percent(percent) => (u128::from(capacity) * u128::from(percent) / 100) as u64,
        };
        job.workload.offset = job.offset.map_or(0, of);
        let room = capacity.checked_sub(job.workload.offset);
        let room = room.ok_or_else(|| fail("the offset lies beyond the target".to_owned()))?;
        job.workload.size = job.size.map_or(room, of);
        if job.workload.size > room {
            return Err(fail(format!(
                "{} bytes from {} end beyond the target",
                job.workload.size, job.workload.offset
            )));
        }
        job.workload.rwmixread = job.mixed.unwrap_or(50);
        let mixed = matches!(job.workload.rw, Rw::Rw | Rw::RandRw);
        let rate = match (&job.rate[..], mixed) {
            ([], _) => None,
            ([rate], false) => Some(*rate),
            ([reads, writes], true) => {
                let share = 100.0 * reads / (reads + writes);
                job.workload.rwmixread = share.round() as u8;
                if job.mixed.is_some_and(|mixed| mixed != job.workload.rwmixread) {
                    warnings.push(format!("[{}]: rwmixread follows from rate_iops: {share:.0}", job.name));
                }
                Some(reads + writes)
            }
            ([reads, _], false) if !job.workload.rw.writes() => Some(*reads),
            ([_, writes], false) => Some(*writes),
            _ => return Err(fail("a mixed workload takes rate_iops=READS,WRITES".to_owned())),
        };
        if job.copies == 0 || job.depth == 0 || job.copies > 1024 {
            return Err(fail("numjobs is 1 to 1,024, and iodepth at least 1".to_owned()));
        }
        job.workload.think = think(&job, rate.is_some()).map_err(fail)?;
        job.workload.places(0).map_err(|e| fail(e.to_string()))?;
        deepest = deepest.max(job.depth);
        for copy in 0..job.copies {
            let arrivals = match rate {
                Some(rate) if job.poisson => Arrivals::Poisson { rate },
                Some(rate) => Arrivals::Constant { rate },
                None => Arrivals::Closed { depth: job.depth },
            };
            if rate.is_none() {
                together = together.saturating_add(job.depth);
            }
            let name = if job.copies == 1 { job.name.clone() } else { format!("{}.{copy}", job.name) };
            streams.push(Stream { name, workload: job.workload.clone(), arrivals });
        }
    }
    let mut plan = Plan { streams, seed: whole.seed, warm_up_ns: whole.ramp_ns, ..Plan::default() };
    plan.runtime_ns = whole.runtime_ns;
    if plan.runtime_ns.is_none() {
        // fio goes once over the size.
        let [stream] = &plan.streams[..] else {
            return Err(FioError { line: 0, what: "several jobs need a runtime".to_owned() });
        };
        plan.count = Some((stream.workload.size / u64::from(stream.workload.largest())).max(1));
    }
    Ok(FioJob {
        plan,
        filename: whole.filename,
        engine: whole.engine,
        depth: deepest.max(together),
        direct: whole.direct,
        polled: whole.polled,
        verify: whole.verify,
        warnings,
    })
}

fn set_think(job: &mut Job, word: &str, value: &str) -> Result<(), String> {
    match (word, value) {
        ("thinktime", _) => job.think_ns = microseconds(value)?,
        ("thinktime_spin", _) => job.spin_ns = microseconds(value)?,
        ("thinktime_blocks", _) => job.think_blocks = number(value)?,
        (_, "complete") => job.trigger = Trigger::Complete,
        (_, "issue") => job.trigger = Trigger::Issue,
        _ => return Err(format!("{word}={value}: complete or issue")),
    }
    Ok(())
}

/// The pauses of a job.
fn think(job: &Job, open: bool) -> Result<Option<Think>, String> {
    if job.think_ns == 0 {
        let alone = job.spin_ns > 0 || job.think_blocks != 1;
        return if alone {
            Err("thinktime_spin and thinktime_blocks need thinktime".to_owned())
        } else {
            Ok(None)
        };
    }
    if open {
        return Err("thinktime with rate_iops: arrivals of an open loop wait for nobody".to_owned());
    }
    if job.think_blocks == 0 || job.spin_ns > job.think_ns {
        return Err("thinktime_blocks is at least 1, and thinktime_spin a part of thinktime".to_owned());
    }
    let (time_ns, spin_ns, blocks) = (job.think_ns, job.spin_ns, job.think_blocks);
    Ok(Some(Think { time_ns, spin_ns, blocks, trigger: job.trigger }))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number that fits"))
}

fn flag(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(other) => Err(format!("{other:?} is neither 0 nor 1")),
    }
}

/// Digits and what follows them.
fn parts(text: &str) -> (&str, String) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    (digits, unit.to_ascii_lowercase())
}

fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = parts(text);
    let (unit, base) = match unit.trim_end_matches('b') {
        prefix if prefix.ends_with('i') => (prefix.trim_end_matches('i').to_owned(), 1000u64),
        prefix => (prefix.to_owned(), 1024),
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == unit);
    let power = power.ok_or_else(|| format!("{text:?} is not a size"))? as u32;
    number::<u64>(digits)?.checked_mul(base.pow(power)).ok_or_else(|| format!("{text:?} does not fit"))
}

fn block(text: &str) -> Result<u32, String> {
    let size = bytes(text)?;
    u32::try_from(size).ok().filter(|size| *size > 0).ok_or_else(|| format!("{text:?} is no block size"))
}

fn amount(text: &str) -> Result<Size, String> {
    match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|p: u64| Size::Percent(p.min(100))),
        None => bytes(text).map(Size::Bytes),
    }
}

/// `4k/60:64k/40`; a share that is left out is an even part of what is left.
fn split(text: &str) -> Result<Vec<(u32, u32)>, String> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let share = if share.is_empty() { None } else { Some(number::<u32>(share)?) };
        sizes.push((block(size)?, share));
    }
    let given: u32 = sizes.iter().filter_map(|(_, share)| *share).fold(0, u32::saturating_add);
    let open = sizes.iter().filter(|(_, share)| share.is_none()).count() as u32;
    if given > 100 || open == 0 && given != 100 {
        return Err(format!("bssplit: shares of {given} % in all"));
    }
    Ok(sizes.into_iter().map(|(size, share)| (size, share.unwrap_or((100 - given) / open.max(1)))).collect())
}

fn distribution(text: &str) -> Result<Distribution, String> {
    match text.split_once(':') {
        None if text == "random" => Ok(Distribution::Uniform),
        None if text == "zipf" => Ok(Distribution::Zipf(1.1)),
        Some(("zipf", theta)) => number(theta).map(Distribution::Zipf),
        _ => Err(format!("random_distribution={text}: random or zipf:THETA")),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    bytes(text).map(|rate| rate as f64)
}

fn time(text: &str) -> Result<u64, String> {
    time_in(text, 1_000_000_000)
}

/// A time that is microseconds without a unit.
fn microseconds(text: &str) -> Result<u64, String> {
    time_in(text, 1_000)
}

fn time_in(text: &str, usual_ns: u64) -> Result<u64, String> {
    let (digits, unit) = parts(text);
    let ns: u64 = match unit.as_str() {
        "" => usual_ns,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(format!("{text:?} is not a time")),
    };
    number::<u64>(digits)?.checked_mul(ns).ok_or_else(|| format!("{text:?} does not fit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1 << 30;

    #[test]
    fn jobs_are_streams() {
        let text = "; of a test\n[global]\nioengine=libaio\ndirect=1\nfilename=/dev/x\nruntime=30\ntime_based\nramp_time=500ms\nrandseed=9\n\
             group_reporting\n\n[small]\nrw=randrw\nbs=4k\nrate_iops=700,300\nrate_process=poisson\niodepth=64\n\
             [large]\n# half of it\nrw=write\nbssplit=128k/75:1m\nsize=50%\noffset=256m\nnumjobs=2\niodepth=4\n";
        let job = parse(text, CAPACITY).unwrap();
        assert_eq!(
            (job.filename.as_deref(), job.engine, job.direct),
            (Some("/dev/x"), FioEngine::IoUring, true)
        );
        assert_eq!((job.depth, job.polled, job.verify), (64, false, false));
        assert_eq!(job.warnings.len(), 2, "{:?}", job.warnings);
        assert!(job.warnings[0].contains("libaio") && job.warnings[1].contains("line 10: group_reporting"));
        let plan = &job.plan;
        assert_eq!((plan.runtime_ns, plan.warm_up_ns, plan.seed), (Some(30_000_000_000), 500_000_000, 9));
        let names: Vec<&str> = plan.streams.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["small", "large.0", "large.1"]);
        let (small, large) = (&plan.streams[0], &plan.streams[1]);
        assert_eq!(small.arrivals, Arrivals::Poisson { rate: 1000.0 });
        assert_eq!(
            (small.workload.rw, small.workload.rwmixread, small.workload.size),
            (Rw::RandRw, 70, CAPACITY)
        );
        assert_eq!(large.arrivals, Arrivals::Closed { depth: 4 });
        assert_eq!(large.workload.bs, [(131_072, 75), (1 << 20, 25)]);
        assert_eq!((large.workload.offset, large.workload.size), (256 << 20, 512 << 20));
    }

    #[test]
    fn without_a_runtime_it_goes_once_over_the_size() {
        let job = parse("[a]\nrw=read\nbs=64ki\nsize=6400k\n", CAPACITY).unwrap();
        assert_eq!((job.plan.count, job.plan.runtime_ns), (Some(102), None));
        assert_eq!(job.plan.streams[0].workload.bs, [(64_000, 100)], "fio's ki is 1,000");
    }

    #[test]
    fn pauses_have_fios_units_and_defaults() {
        let think = |words: &str| {
            let text = format!("[a]\nruntime=1\n{words}");
            parse(&text, CAPACITY).map(|job| job.plan.streams[0].workload.think)
        };
        let usual = Think { time_ns: 250_000, spin_ns: 0, blocks: 1, trigger: Trigger::Complete };
        assert_eq!(think("thinktime=250\n"), Ok(Some(usual)), "microseconds without a unit");
        let asked = Think { time_ns: 2_000_000, spin_ns: 50_000, blocks: 8, trigger: Trigger::Issue };
        let words =
            "thinktime=2ms\nthinktime_spin=50\nthinktime_blocks=8\nthinktime_blocks_type=issue\niodepth=4\n";
        assert_eq!(think(words), Ok(Some(asked)));
        assert_eq!(think("thinktime=0\nrate_iops=5\n"), Ok(None));
    }

    #[test]
    fn no_word_is_passed_over() {
        let wrong = |text: &str| parse(text, CAPACITY).unwrap_err();
        for (text, line, what) in [
            ("[a]\nrw=randread\nioscheduler=none\n", 3, "ioscheduler"),
            ("[a]\nrw=randtrim\n", 2, "randtrim"),
            ("rw=read\n", 1, "before the first section"),
            ("[a]\nioengine=rbd\n", 2, "rbd"),
            ("[a]\nbs=0\n", 2, "block size"),
            ("[a]\nbs\n", 2, "needs a value"),
            ("[a]\nsize=99999999999999999999g\n", 2, "number"),
            ("[a]\nsize=2g\n", 1, "beyond the target"),
            ("[a]\noffset=2g\n", 1, "beyond the target"),
            ("[a]\nrw=randrw\nrate_iops=100\n", 1, "READS,WRITES"),
            ("[a]\nfilename=x\n[b]\nfilename=y\n", 4, "the same"),
            ("[a]\nbssplit=4k/50:8k/20\n", 2, "70 %"),
            ("[a]\nrandom_distribution=pareto:0.2\n", 2, "pareto"),
            ("[a]\ntime_based=0\n", 2, "runtime"),
            ("[a]\nthinktime=1x\n", 2, "not a time"),
            ("[a]\nthinktime_blocks_type=some\n", 2, "complete or issue"),
            ("[a]\nthinktime_iotime=1\n", 2, "thinktime_iotime"),
            ("[a]\nthinktime=5\nthinktime_blocks=0\n", 1, "at least 1"),
            ("[a]\nthinktime=5\nthinktime_spin=6\n", 1, "a part of"),
            ("[a]\nthinktime_spin=6\n", 1, "need thinktime"),
            ("[a]\nthinktime=5\nrate_iops=100\n", 1, "wait for nobody"),
            ("[a]\n[b]\n", 0, "runtime"),
            ("[global]\nrw=read\n", 0, "no job"),
        ] {
            let error = wrong(text);
            assert!(error.line == line && error.what.contains(what), "{text:?}: {error}");
        }
    }
}
