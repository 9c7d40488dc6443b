//! What the figures must reach, and what became worse.

use std::fmt;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use nearside_loadgen::record::{Figure, Record};

/// What a figure must reach.
pub struct Target {
    /// The figure's name.
    pub figure: &'static str,
    /// What its value, or its value over the peer's, must be.
    pub bound: Bound,
}

/// On which side of it a ratio, or the value itself, has to lie.
#[derive(Clone, Copy)]
pub enum Bound {
    /// Of times.
    AtMost(f64),
    /// Of rates.
    AtLeast(f64),
    /// Of a time by itself, in microseconds: its figure has a unit of time.
    Within(f64),
}

impl Bound {
    /// Of a figure, what lies on one of its sides; `None`: it stands beside nothing, as it would have to.
    fn judges(self, figure: &Figure) -> Option<f64> {
        match self {
            Bound::AtMost(_) | Bound::AtLeast(_) => figure.ratio,
            Bound::Within(_) => match figure.unit.as_str() {
                "ns" => Some(figure.value / 1e3),
                "us" => Some(figure.value),
                "ms" => Some(figure.value * 1e3),
                _ => None,
            },
        }
    }

    fn met(self, judged: f64) -> bool {
        match self {
            Bound::AtMost(most) | Bound::Within(most) => judged <= most,
            Bound::AtLeast(least) => judged >= least,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtMost(most) => write!(f, "at most {most:.2}"),
            Bound::AtLeast(least) => write!(f, "at least {least:.2}"),
            Bound::Within(most) if *most >= 1e6 => write!(f, "at most {:.2} s", most / 1e6),
            Bound::Within(most) => write!(f, "at most {most:.2} us"),
        }
    }
}

const fn target(figure: &'static str, most: f64) -> Target {
    Target { figure, bound: Bound::AtMost(most) }
}

const fn rate(figure: &'static str, least: f64) -> Target {
    Target { figure, bound: Bound::AtLeast(least) }
}

const fn within(figure: &'static str, us: f64) -> Target {
    Target { figure, bound: Bound::Within(us) }
}

/// Of the polled path, beside the best ring that a C programmer would write; of another process, beside the
/// same in one; of an attached drive, beside a file system with nothing behind it and the drive alone; of a
/// page that is missing, beside the drive's read of it and 8 us; of a database whose drive is asked about its
/// files, beside the same without; of several cores, beside one; of a network, beside the same messages
/// without a drive; of a name, from asking to knowing; of whole processes: no slower than the tool that does
/// the same, faster where all cores can work; of many drives, beside the slowest of them alone.
pub const TARGETS: &[Target] = &[
    rate("read 4096 QD32", 0.7),
    rate("read 512 QD32", 0.5),
    rate("DRAM, 512 B random reads, 2 cores on one namespace: each", 0.9),
    rate("DRAM, 4096 B random reads, 2 cores on one namespace: each", 0.9),
    rate("DRAM, 4096 B random writes, 2 cores on one namespace: each", 0.9),
    rate("DRAM, 512 B random reads, 8 cores on one namespace: each", 0.9),
    rate("DRAM, 4096 B random reads, 8 cores on one namespace: each", 0.9),
    target("vfio-user: read 4096 QD1", 1.15),
    rate("vfio-user: read 4096 QD32", 0.9),
    rate("vfio-user: write 4096 QD32", 0.9),
    // A hundredth of a core is what it stands beside.
    target("vfio-user: idle client and drive", 0.5),
    target("attached, by its loop device, Optane prototype: 4 KiB random reads, QD1: median", 1.3),
    rate("attached, by its loop device, Optane prototype: 4 KiB random reads, QD16", 0.6),
    target("attached, by its loop device, DRAM: 4 KiB random reads, QD1: median", 1.3),
    rate("attached, by its loop device, DRAM: 4 KiB random reads, QD16", 0.6),
    target("paged memory, Optane P4800X: a miss, median", 1.0),
    target("paged memory, DRAM: a miss, median", 1.0),
    target("RocksDB, Optane prototype, 1 thread: a Get, p99, while the drive digests a table", 1.2),
    target("RocksDB, Optane prototype, 4 threads: a Get, p99, while the drive digests a table", 1.2),
    target("RocksDB, Optane prototype, 8 threads: a Get, p99, while the drive digests a table", 1.2),
    target("TCP: 4 KiB read, QD1 polled: median", 1.2),
    target("TCP: 4 KiB read, QD1 polled: median / its messages", 1.2),
    rate("TCP: 4 KiB random reads, QD32", 0.85),
    rate("TCP: 4 KiB random reads, QD128", 0.85),
    within(LOCATE_EXT4, 1.5),
    within(LOCATE_F2FS, 1.5),
    target("ext4: stat of 1000 paths together, warm, each", 0.5),
    target("one file of 16 KiB, whole process: ext4 / rg", 1.0),
    target("20,000 files of 16 KiB, whole process: ext4 / rg -j1", 1.0 / 3.0),
    target("20,000 files of 16 KiB, whole process: ext4 / rg", 1.0 / 1.2),
    target("20,000 files of 16 KiB, whole process: F2FS / ext4", 1.2),
    target("literal in 1 GiB, whole process: ext4 / rg", 1.0),
    target("literal in 1 GiB, whole process: ext4 / rg --no-mmap", 1.0),
    target("find / over 20,000 files, whole process: ext4 / find", 1.0),
    target("find / over 20,000 files, whole process: F2FS / find", 1.0),
    target("cat of 256 MiB, whole process: ext4 / cat", 1.0),
    target("20,000 files of 16 KiB copied to an empty ext4, whole process: ext4 / cp -a", 1.0),
    target("20,000 files of 16 KiB copied to an empty ext4, whole process: ext4 / debugfs rdump", 1.0),
    target("256 MiB copied to an empty ext4, whole process: ext4 / cp -a", 1.0),
    target("1024 MiB of CSV, of a hundred rows one, in groups, one CPU: ext4 / DuckDB", 1.0 / 0.7),
    target("1024 MiB of CSV, of a hundred rows one, in groups, one CPU: ext4 / DataFusion", 1.0 / 0.7),
    target("1024 MiB of CSV as Parquet, of a hundred rows one, in groups, one CPU: ext4 / DuckDB", 1.0 / 0.7),
    target(
        "1024 MiB of CSV as Parquet, of a hundred rows one, in groups, one CPU: ext4 / DataFusion",
        1.0 / 0.7,
    ),
    target("1024 MiB of CSV, of a hundred rows one, in groups, in SQL, one CPU: ext4 / DuckDB", 1.0 / 0.7),
    target(
        "1024 MiB of CSV, of a hundred rows one, in groups, in SQL, one CPU: ext4 / DataFusion",
        1.0 / 0.7,
    ),
    target(
        "1024 MiB of CSV as Parquet, of a hundred rows one, in groups, in SQL, one CPU: ext4 / DuckDB",
        1.0 / 0.7,
    ),
    target(
        "1024 MiB of CSV as Parquet, of a hundred rows one, in groups, in SQL, one CPU: ext4 / DataFusion",
        1.0 / 0.7,
    ),
    target("1024 MiB of CSV, of a hundred rows one, in groups, over TCP: ext4 / DuckDB", 1.0 / 3.0),
    target("1024 MiB of CSV, of a hundred rows one, in groups, over TCP: ext4 / DataFusion", 1.0 / 3.0),
    target(
        "1024 MiB of CSV as Parquet, of a hundred rows one, in groups, over TCP: ext4 / DuckDB",
        1.0 / 3.0,
    ),
    target(
        "1024 MiB of CSV as Parquet, of a hundred rows one, in groups, over TCP: ext4 / DataFusion",
        1.0 / 3.0,
    ),
    target("1024 MiB of CSV, words counted by a program, one CPU: ext4 / Rust", 2.0),
    target("1000 rules over 10000 files of 25 KB, whole process, one CPU: ext4 / yara", 1.0),
    target("nearest of 1000000 rows of 128 f32, a warm session, one CPU: ext4 / NumPy", 1.0),
    target("2 drives that compute, 10000000 rows each, one query by Ballista", 1.3),
    target("2 drives that compute, 10000000 rows each, one query by Ray", 1.3),
    target("8 drives that compute, 10000000 rows each, one query by Ballista", 1.3),
    target("8 drives that compute, 10000000 rows each, one query by Ray", 1.3),
    target("32 drives that compute, 10000000 rows each, one query by Ballista", 1.3),
    target("32 drives that compute, 10000000 rows each, one query by Ray", 1.3),
    target("32 drives that wait for their media, 100000 rows each, one query by Ballista", 1.3),
    target("32 drives that wait for their media, 100000 rows each, one query by Ray", 1.3),
    target("TCP: 64 bags of 80 of 10000000 rows of 128 f32, summed", 1.0),
    target("TCP: 64 bags of 80 of 10000000 rows of 128 f32, summed: bytes moved", 0.2),
    target("TCP: 4 KiB write to ext4, QD1 polled, with the monitor: median", 1.03),
    within("monitor, per write of an unwatched block", 0.1),
    within("monitor, per write of a journal's block", 5.0),
    within("opening 100 GiB with 128 MiB of journal to recover", 1e6),
    target("ext4 with an overlay: locate, warm, whole command", 1.1),
    target("ext4 with an overlay: search of 16 KiB, warm, whole command", 1.1),
];

/// A warm locate as its caller has it: of a volume of each kind.
const LOCATE_EXT4: &str = "ext4: locate at depth 20, warm, whole command";
const LOCATE_F2FS: &str = "F2FS: locate at depth 20, warm, whole command";

/// The targets whose figures the record has, with whether they were met.
fn judged(record: &Record) -> impl Iterator<Item = (&'static Target, &Figure, bool)> {
    TARGETS.iter().filter_map(|target| {
        let figure = record.get(target.figure)?;
        let judged = target.bound.judges(figure)?;
        Some((target, figure, target.bound.met(judged)))
    })
}

/// What the figure must reach, and whether it does.
pub fn of(figure: &Figure) -> Option<(Bound, bool)> {
    let bound = TARGETS.iter().find(|target| target.figure == figure.name)?.bound;
    Some((bound, bound.met(bound.judges(figure)?)))
}

/// One line: which targets were missed, by how much. `None` where the record has no figure with a target.
pub fn sentence(record: &Record) -> Option<String> {
    let all: Vec<_> = judged(record).collect();
    let missed: Vec<String> = all
        .iter()
        .filter(|(_, _, met)| !met)
        .map(|(target, figure, _)| {
            let judged = target.bound.judges(figure).unwrap_or(f64::NAN);
            format!("{} ({judged:.2}, {})", target.figure, target.bound)
        })
        .collect();
    match (all.len(), missed.len()) {
        (0, _) => None,
        (all, 0) => Some(format!("targets: all {all} met")),
        (all, n) => Some(format!("targets: {n} of {all} missed: {}", missed.join("; "))),
    }
}

/// The record before `written`: of the same kind of machine (its folder) and the same name, the latest.
pub fn before(written: &Path, name: &str) -> Option<(PathBuf, Record)> {
    let suffix = format!("-{name}.jsonl");
    let is_one = |path: &PathBuf| {
        let file = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        // DATE-NAME: a longer name that ends so is another.
        file.strip_suffix(&suffix).is_some_and(|date| date.len() == "2026-01-01".len())
    };
    let mut all: Vec<PathBuf> = std::fs::read_dir(written.parent()?)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.as_path() < written && is_one(path))
        .collect();
    all.sort();
    let path = all.pop()?;
    let record = Record::from_lines(&std::fs::read_to_string(&path).ok()?).ok()?;
    Some((path, record))
}

/// How much worse `now` is: 1.1 is a tenth. The ratio to the peer is compared where both stand beside the
/// same one, since a busy machine slows both; else the value.
fn worse(now: &Figure, then: &Figure) -> Option<f64> {
    let (a, b) = match (now.ratio, then.ratio) {
        (Some(a), Some(b)) if now.beside == then.beside => (a, b),
        _ => (now.value, then.value),
    };
    let more_is_better = matches!(now.unit.as_str(), "GB/s" | "1/s" | "M/s" | "MB/s" | "x");
    let times = if more_is_better { b / a } else { a / b };
    (now.unit == then.unit && times.is_finite()).then_some(times)
}

/// The figures that are more than a tenth worse than they were, each with how much.
pub fn regressions<'a>(now: &'a Record, then: &Record) -> Vec<(&'a Figure, f64)> {
    let each =
        now.figures.iter().filter_map(|figure| Some((figure, worse(figure, then.get(&figure.name)?)?)));
    each.filter(|(_, times)| *times > 1.1).collect()
}

/// What to print of them: in red on a terminal.
pub fn complaint(worse: &[(&Figure, f64)], then: &Path) -> String {
    let red = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (on, off) = if red { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
    let mut text = String::new();
    for (figure, times) in worse {
        let percent = (times - 1.0) * 100.0;
        text += &format!("{on}worse by {percent:.0} %: {} (since {}){off}\n", figure.name, then.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_loadgen::record::number;

    const BEGIN: &str = "<!-- processes: written by NEARSIDE_BLESS=1 cargo test -p nearside-bench -->\n";
    const END: &str = "<!-- end of processes -->\n";
    /// The first screen's few, from the same record.
    const FIRST: [&str; 3] = [
        "literal in 1 GiB, whole process: ext4 / rg",
        "vfio-user: read 4096 QD1",
        "TCP: 4 KiB random reads, QD32",
    ];
    const BEGIN_FIRST: &str = "<!-- first: written by NEARSIDE_BLESS=1 cargo test -p nearside-bench -->\n";
    const END_FIRST: &str = "<!-- end of first -->\n";
    const BEGIN_SIZES: &str = "<!-- sizes: written by NEARSIDE_BLESS=1 cargo test -p nearside-bench -->\n";
    const END_SIZES: &str = "<!-- end of sizes -->\n";

    fn record(rows: &[(&str, f64, f64)]) -> Record {
        let figure = |&(name, value, peer): &(&str, f64, f64)| {
            Figure::of(name, "ms", &[value]).beside(&Figure::of("peer", "ms", &[peer]))
        };
        Record { figures: rows.iter().map(figure).collect(), ..Record::default() }
    }

    #[test]
    fn missed_targets_are_said_in_one_line() {
        let (cat, rg, read) = (
            "cat of 256 MiB, whole process: ext4 / cat",
            "20,000 files of 16 KiB, whole process: ext4 / rg -j1",
            "read 512 QD32",
        );
        let one = |name: &str| Figure::of(name, "ms", &[1.0]).beside(&Figure::of("peer", "ms", &[1.0]));
        assert!([cat, rg, read].iter().all(|name| of(&one(name)).is_some()));
        assert_eq!(sentence(&Record::default()), None);
        assert_eq!(sentence(&record(&[(cat, 1.0, 1.0)])).unwrap(), "targets: all 1 met");
        let said = sentence(&record(&[(cat, 1.0, 2.0), (rg, 1.0, 2.0)])).unwrap();
        assert_eq!(said, format!("targets: 1 of 2 missed: {rg} (0.50, at most 0.33)"));
        // Of a rate more is better.
        assert_eq!(sentence(&record(&[(read, 1.0, 2.0)])).unwrap(), "targets: all 1 met");
        let said = sentence(&record(&[(read, 1.0, 4.0)])).unwrap();
        assert_eq!(said, format!("targets: 1 of 1 missed: {read} (0.25, at least 0.50)"));
        // Of a time by itself its own value, beside whatever it stands, whatever its unit of time.
        let locate = |unit: &str, value: f64| Record {
            figures: vec![Figure::of(LOCATE_EXT4, unit, &[value]).beside(&Figure::of("stat", unit, &[9.0]))],
            ..Record::default()
        };
        assert_eq!(sentence(&locate("us", 1.4)).unwrap(), "targets: all 1 met");
        let said = sentence(&locate("us", 1.8)).unwrap();
        assert_eq!(said, format!("targets: 1 of 1 missed: {LOCATE_EXT4} (1.80, at most 1.50 us)"));
        assert_eq!(sentence(&locate("ns", 1400.0)).unwrap(), "targets: all 1 met");
        let said = sentence(&locate("ms", 0.0018)).unwrap();
        assert_eq!(said, format!("targets: 1 of 1 missed: {LOCATE_EXT4} (1.80, at most 1.50 us)"));
        assert_eq!(sentence(&locate("GB/s", 1.4)), None);
    }

    #[test]
    fn what_is_worse_by_more_than_a_tenth_is_told() {
        let then = record(&[("a", 10.0, 10.0), ("b", 10.0, 10.0), ("c", 10.0, 10.0)]);
        // The second's peer was as much slower; the third is slower by less.
        let now = record(&[("a", 12.0, 10.0), ("b", 20.0, 20.0), ("c", 10.9, 10.0), ("new", 9.0, 1.0)]);
        let worse = regressions(&now, &then);
        assert_eq!(worse.len(), 1, "{worse:?}");
        assert!(complaint(&worse, Path::new("x.jsonl")).contains("worse by 20 %: a (since x.jsonl)"));
        let speed =
            |gbps: f64| Record { figures: vec![Figure::of("s", "GB/s", &[gbps])], ..Record::default() };
        assert_eq!(regressions(&speed(8.0), &speed(10.0)).len(), 1);
        assert_eq!(regressions(&speed(12.0), &speed(10.0)).len(), 0);
    }

    #[test]
    fn the_record_before_is_the_latest_of_the_same_name() {
        let folder = tempfile::tempdir().unwrap();
        let lines = record(&[("a", 1.0, 1.0)]).to_lines();
        let names = ["2026-01-01-bench", "2026-01-03-bench", "2026-01-04-bench", "2026-01-02-my-bench"];
        for name in names {
            std::fs::write(folder.path().join(format!("{name}.jsonl")), &lines).unwrap();
        }
        let (path, record) = before(&folder.path().join("2026-01-04-bench.jsonl"), "bench").unwrap();
        assert!(path.ends_with("2026-01-03-bench.jsonl"), "{path:?}");
        assert_eq!(record.figures.len(), 1);
        assert!(before(&folder.path().join("2026-01-01-bench.jsonl"), "bench").is_none());
    }

    /// All committed records, the newest of each name and machine, by name.
    fn newest() -> Vec<(PathBuf, String, Record)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/record");
        let mut found = std::collections::BTreeMap::new();
        for machine in std::fs::read_dir(root).unwrap() {
            for file in std::fs::read_dir(machine.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let stem = path.file_stem().unwrap().to_str().unwrap();
                let (date, name) = (stem[..10].to_owned(), stem[11..].to_owned());
                // Some are of other kinds.
                let Ok(record) = Record::from_lines(&std::fs::read_to_string(&path).unwrap()) else {
                    continue;
                };
                let short: PathBuf =
                    path.iter().rev().take(2).collect::<Vec<_>>().into_iter().rev().collect();
                let at = (name.clone(), short.parent().unwrap().to_owned());
                let of = found
                    .entry(at)
                    .or_insert_with(|| (date.clone(), short.clone(), name.clone(), record.clone()));
                if of.0 < date {
                    *of = (date, short, name, record);
                }
            }
        }
        found.into_values().map(|(_, path, name, record)| (path, name, record)).collect()
    }

    /// The figures with targets of some records of one machine, those that are `shown`: each of the newest
    /// record that has it, of one day's of the whole one.
    fn rows(records: &[(PathBuf, String, Record)], shown: impl Fn(&str) -> bool) -> String {
        let mut text =
            "| figure / peer | value | ratio | must reach |\n| --- | --- | --- | --- |\n".to_owned();
        let mut from = std::collections::BTreeSet::new();
        for target in TARGETS.iter().filter(|target| shown(target.figure)) {
            let having = records.iter().filter_map(|(path, name, record)| {
                let (_, figure, met) = judged(record).find(|(one, ..)| one.figure == target.figure)?;
                let date = path.file_name()?.to_str()?.get(..10)?;
                Some(((date, name == "bench"), path, figure, met))
            });
            let Some((_, path, figure, met)) = having.max_by_key(|(age, ..)| *age) else { continue };
            from.insert(path);
            let peer = figure.beside.as_deref().filter(|peer| !figure.name.ends_with(peer));
            let name = figure.name.replace(", whole process:", ":");
            let name = peer.map_or(name.clone(), |peer| format!("{name} / {peer}"));
            let (ratio, bound) =
                (figure.ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")), target.bound);
            let missed = if met { "" } else { ", missed" };
            let value = format!("{} {}", number(figure.value), figure.unit);
            text += &format!("| {name} | {value} | {ratio} | {bound}{missed} |\n");
        }
        let paths: Vec<String> =
            from.into_iter().map(|path| format!("studies/record/{}", path.display())).collect();
        let e = &records[0].2.environment;
        text + &format!("\nFrom {} ({}, {} cores).\n", paths.join(", "), e.cpu, e.cores)
    }

    /// The README's tables of the figures with targets: the first screen's, and then all of the machine of
    /// the newest whole record, of the machine with the most cores beyond that one's, and of each other what
    /// neither has.
    fn tables() -> [String; 2] {
        let records = newest();
        let machine = |path: &Path| path.parent().unwrap().to_owned();
        let whole = records.iter().filter(|(_, name, _)| name == "bench");
        let whole = whole.max_by_key(|(path, ..)| path.file_name().map(ToOwned::to_owned)).unwrap();
        let (own, cores) = (machine(&whole.0), whole.2.environment.cores);
        let most = records.iter().map(|(.., record)| record.environment.cores).max().unwrap_or(0);
        let of = |wanted: &dyn Fn(&Path, &Record) -> bool| -> Vec<_> {
            let kept = records.iter().filter(|(path, _, record)| wanted(path, record));
            kept.filter(|(.., record)| judged(record).next().is_some()).cloned().collect()
        };
        let (ours, wide) =
            (of(&|path, _| machine(path) == own), of(&|_, record| record.environment.cores == most));
        let mut text = rows(&ours, |_| true);
        if most > cores && !wide.is_empty() {
            text += &format!("\nWith more cores, parts of it:\n\n{}", rows(&wide, |_| true));
        }
        let has = |records: &[(PathBuf, String, Record)], name: &str| {
            records.iter().any(|(.., record)| judged(record).any(|(one, ..)| one.figure == name))
        };
        let mut seen: Vec<_> = ours.iter().chain(&wide).cloned().collect();
        let others: std::collections::BTreeSet<_> = records.iter().map(|(path, ..)| machine(path)).collect();
        for other in others {
            let theirs = of(&|path, _| machine(path) == other);
            let new = |name: &str| has(&theirs, name) && !has(&seen, name);
            if TARGETS.iter().any(|target| new(target.figure)) {
                text += &format!("\nMeasured elsewhere alone:\n\n{}", rows(&theirs, new));
            }
            seen.extend(theirs);
        }
        [rows(&ours, |name| FIRST.contains(&name)), text]
    }

    /// How large it is, by the newest record that says so.
    fn sizes() -> String {
        let records = newest();
        let size = |figure: &&Figure| figure.name.starts_with("size: ");
        let having = records.iter().filter(|(.., record)| record.figures.iter().any(|f| size(&f)));
        let (path, _, record) =
            having.max_by_key(|(path, ..)| path.file_name().map(ToOwned::to_owned)).unwrap();
        let mut text = "| what | KiB |\n| --- | --- |\n".to_owned();
        for figure in record.figures.iter().filter(size) {
            let name = figure.name.trim_start_matches("size: ");
            text += &format!("| {name} | {} |\n", number(figure.value));
        }
        text + &format!("\nFrom studies/record/{}.\n", path.display())
    }

    #[test]
    fn the_readme_has_the_records_tables() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
        let mut readme = std::fs::read_to_string(&path).unwrap();
        let before = readme.clone();
        let [first, all] = tables();
        for (begin, end, table) in
            [(BEGIN_FIRST, END_FIRST, first), (BEGIN, END, all), (BEGIN_SIZES, END_SIZES, sizes())]
        {
            let (head, rest) = readme.split_once(begin).expect("the table's begin");
            let (_, tail) = rest.split_once(end).expect("the table's end");
            readme = format!("{head}{begin}\n{table}\n{end}{tail}");
        }
        if std::env::var_os("NEARSIDE_BLESS").is_some() {
            std::fs::write(&path, readme).unwrap();
            return;
        }
        assert!(readme == before, "README.md is not what the records say; NEARSIDE_BLESS=1 writes it anew");
    }
}
