//! Records: what a run measured, where and when, as JSON lines and as a table.
//!
//! A record is `studies/record/MACHINE/DATE-NAME.jsonl`: an environment line
//! (`"kind":"environment"`), then one line per figure (`"kind":"figure"`). MACHINE is a slug of the
//! CPU model and the number of cores. A reader passes over other kinds of lines and over fields that
//! it does not know: the papers' studies add some.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where and when figures were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// CPU model, as the kernel names it.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Frequency governor; "none" where the kernel controls no frequency (as in most virtual machines).
    pub governor: String,
    /// Who made the machine, where it is virtual; "none" where it is not.
    pub hypervisor: String,
    /// Day, YYYY-MM-DD, UTC.
    pub date: String,
    /// Commit of the source; "-dirty" behind it where files differ; "unknown" outside a checkout.
    pub commit: String,
    /// Compiler's version.
    pub rustc: String,
}

impl Environment {
    /// Asks the machine. `unix_seconds` is now: this crate asks no clock for the date.
    /// What cannot be known is "unknown".
    #[must_use]
    pub fn gather(unix_seconds: u64) -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let virtual_machine =
            info.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
        let vendor = text("/sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "unknown".to_owned());
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        Self {
            cpu: field("model name")
                .or_else(|| field("CPU part"))
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
            memory_mib: total.unwrap_or(0) / 1024,
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .unwrap_or_else(|| "none".to_owned()),
            hypervisor: if virtual_machine { vendor } else { "none".to_owned() },
            date: date(unix_seconds),
            commit: commit(Path::new(".")),
            rustc: said("rustc", &["--version"]).unwrap_or_else(|| "unknown".to_owned()),
        }
    }

    /// Whether its commit names what was measured: a commit, and a tree without changes of its own.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.commit.len() >= 12 && self.commit.bytes().all(|b| b.is_ascii_hexdigit())
    }

    /// The machine's name in a path: lower-case letters, digits and single dashes.
    #[must_use]
    pub fn machine(&self) -> String {
        let mut slug = String::new();
        for word in self.cpu.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
            slug.push_str(&word.to_ascii_lowercase());
            slug.push('-');
        }
        format!("{slug}{}c", self.cores)
    }

    /// Where a record of that name lies under `root` (`studies/record`).
    #[must_use]
    pub fn record_path(&self, root: &Path, name: &str) -> PathBuf {
        root.join(self.machine()).join(format!("{}-{name}.jsonl", self.date))
    }
}

/// Writes a record's lines; what is there is replaced, at once or not at all.
///
/// # Errors
/// The file system's.
pub fn save(path: &Path, lines: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let fresh = path.with_extension("jsonl.new");
    let mut file = fs::File::create(&fresh)?;
    file.write_all(lines.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let out = Command::new(program).args(arguments).output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// The commit that a folder's checkout is of. Records that are written between two runs of one commit do not
/// make the second one's tree another.
fn commit(folder: &Path) -> String {
    let folder = folder.to_string_lossy();
    let git = |arguments: &[&str]| said("git", &[&["-C", &*folder], arguments].concat());
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let but_records = [":/", ":(top,exclude)studies/record"];
    match git(&[&["status", "--porcelain", "--untracked-files=no", "--"], &but_records[..]].concat()) {
        Some(changes) if changes.is_empty() => head,
        _ => format!("{head}-dirty"),
    }
}

/// The day, UTC, in the Gregorian calendar.
fn date(unix_seconds: u64) -> String {
    let mut days = unix_seconds / 86_400;
    let mut year = 1970;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

/// One thing that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What.
    pub name: String,
    /// The median of its runs.
    pub value: f64,
    /// Its unit: "ns", "GB/s", "1/s", ...
    pub unit: String,
    /// What it stands beside: a floor or a peer, measured in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// `value` over the other's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// How many runs.
    pub runs: usize,
    /// Least and greatest of them.
    pub spread: [f64; 2],
    /// What its clock or counter tells apart, in its unit, where that is not far below what is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<f64>,
}

impl Figure {
    /// From the values of several runs. Without runs, or where one is not a number,
    /// `value` and `spread` are 0.
    #[must_use]
    pub fn of(name: &str, unit: &str, runs: &[f64]) -> Self {
        let mut sorted: Vec<f64> = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let usable = !sorted.is_empty() && sorted.iter().all(|v| v.is_finite());
        let at = |i: usize| if usable { sorted.get(i).copied().unwrap_or(0.0) } else { 0.0 };
        let last = sorted.len().saturating_sub(1);
        let value = (at(last / 2) + at(last.div_ceil(2))) / 2.0;
        Self {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            beside: None,
            ratio: None,
            runs: runs.len(),
            spread: [at(0), at(last)],
            resolution: None,
        }
    }

    /// With what its clock or counter tells apart, in its unit.
    #[must_use]
    pub fn resolved_to(self, resolution: f64) -> Self {
        Self { resolution: Some(resolution), ..self }
    }

    /// ", resolved to ..." behind a spread; nothing where it is not known.
    #[must_use]
    pub fn resolved(&self) -> String {
        self.resolution.map_or(String::new(), |r| format!(", resolved to {}", number(r)))
    }

    /// Puts it beside another figure of the same run and unit.
    #[must_use]
    pub fn beside(mut self, other: &Figure) -> Self {
        self.beside = Some(other.name.clone());
        self.ratio = (other.value != 0.0).then(|| self.value / other.value);
        self
    }
}

/// A run's environment and figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Where and when.
    pub environment: Environment,
    /// What.
    pub figures: Vec<Figure>,
}

/// A line of a record.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Row {
    Environment(Environment),
    Figure(Figure),
    /// What others add.
    #[serde(other)]
    Other,
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A line is not a line of a record.
    #[error("line {line}: {source}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The first line is not the environment, or another is.
    #[error("line {line}: the environment is the first line, and only that")]
    Environment {
        /// From 1.
        line: usize,
    },
}

impl Record {
    /// For a run on this machine, without figures yet.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        Self { environment, figures: Vec::new() }
    }

    /// Adds a figure and gives it back, for others to stand beside.
    pub fn add(&mut self, figure: Figure) -> Figure {
        self.figures.push(figure.clone());
        figure
    }

    /// The figure of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// The record as JSON lines.
    ///
    /// # Panics
    /// Never: the rows are plain data.
    #[must_use]
    pub fn to_lines(&self) -> String {
        let environment = Row::Environment(self.environment.clone());
        let figures = self.figures.iter().cloned().map(Row::Figure);
        let mut lines = String::new();
        for row in std::iter::once(environment).chain(figures) {
            lines.push_str(&serde_json::to_string(&row).expect("plain data"));
            lines.push('\n');
        }
        lines
    }

    /// From JSON lines.
    ///
    /// # Errors
    /// Which line is wrong, and how.
    pub fn from_lines(lines: &str) -> Result<Self, RecordError> {
        let mut record = Self::default();
        let mut seen = false;
        for (index, text) in lines.lines().enumerate() {
            let line = index + 1;
            match serde_json::from_str(text).map_err(|source| RecordError::Line { line, source })? {
                Row::Environment(environment) if !seen => {
                    seen = true;
                    record.environment = environment;
                }
                Row::Figure(figure) if seen => record.figures.push(figure),
                Row::Other if seen => {}
                Row::Environment(_) | Row::Figure(_) | Row::Other => {
                    return Err(RecordError::Environment { line });
                }
            }
        }
        if seen { Ok(record) } else { Err(RecordError::Environment { line: 1 }) }
    }

    /// Writes it under `root`; a record of the same day and name is replaced, at once or not at all.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, root: &Path, name: &str) -> io::Result<PathBuf> {
        let path = self.environment.record_path(root, name);
        save(&path, &self.to_lines())?;
        Ok(path)
    }

    /// The record as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let e = &self.environment;
        let mut out = format!(
            "{}, {} cores, {} MiB, Linux {}, governor {}, hypervisor {}, {}, {}, {}\n",
            e.cpu, e.cores, e.memory_mib, e.kernel, e.governor, e.hypervisor, e.date, e.commit, e.rustc
        );
        let head = ["figure", "value", "unit", "spread", "runs", "ratio", "beside"];
        let mut rows: Vec<[String; 7]> = vec![head.map(str::to_owned)];
        for f in &self.figures {
            rows.push([
                f.name.clone(),
                number(f.value),
                f.unit.clone(),
                format!("{} to {}", number(f.spread[0]), number(f.spread[1])) + &f.resolved(),
                f.runs.to_string(),
                f.ratio.map(|r| format!("{r:.2}")).unwrap_or_default(),
                f.beside.clone().unwrap_or_default(),
            ]);
        }
        let mut widths = [0; 7];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                // Numbers to the right, words to the left.
                let padded = if matches!(column, 1 | 4 | 5) {
                    format!("{cell:>width$}  ")
                } else {
                    format!("{cell:<width$}  ")
                };
                line.push_str(&padded);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Three digits that mean something, thousands grouped.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let digits = format!("{value:.0}");
        let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
        let mut grouped = String::new();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                grouped.push(' ');
            }
            grouped.push(digit);
        }
        format!("{sign}{grouped}")
    } else if size >= 100.0 || size == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_with_changes_is_told_from_its_commit() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let git = |arguments: &[&str]| {
            let who = ["-c", "user.name=n", "-c", "user.email=n@n", "-c", "commit.gpgsign=false"];
            let out = Command::new("git").arg("-C").arg(at).args(who).args(arguments).output();
            out.is_ok_and(|out| out.status.success())
        };
        if !git(&["init", "-q"]) {
            return eprintln!("no git: left out");
        }
        let write = |name: &str, text: &str| {
            let path = at.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let clean = || Environment { commit: commit(at), ..Environment::default() }.is_clean();
        assert!(!clean(), "there is no commit yet");
        write("source", "a");
        write("studies/record/m/r.jsonl", "a");
        assert!(git(&["add", "."]) && git(&["commit", "-qm", "a"]));
        assert!(clean());
        write("studies/record/m/r.jsonl", "b");
        assert!(clean(), "a record of this very commit");
        write("source", "b");
        assert!(commit(at).ends_with("-dirty") && !clean());
        // Asked from below the top, it is the whole tree all the same.
        fs::create_dir(at.join("below")).unwrap();
        assert!(commit(&at.join("below")).ends_with("-dirty"));
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let mut record = Record::new(Environment::gather(1_795_200_000));
        assert!(record.environment.cores > 0 && !record.environment.kernel.is_empty());
        let floor = record.add(Figure::of("bare ring", "ns", &[110.0, 100.0, 105.0]));
        assert_eq!((floor.value, floor.spread, floor.runs), (105.0, [100.0, 110.0], 3));
        let figure = record.add(Figure::of("drive, \"QD1\"", "ns", &[126.0]).beside(&floor).resolved_to(0.5));
        assert_eq!(figure.ratio, Some(1.2));
        let folder = tempfile::tempdir().unwrap();
        let path = record.write(folder.path(), "bench").unwrap();
        assert!(path.ends_with(format!("{}/2026-11-20-bench.jsonl", record.environment.machine())));
        assert_eq!(Record::from_lines(&fs::read_to_string(&path).unwrap()).unwrap(), record);
        assert!(record.table().contains("drive, \"QD1\"") && record.table().contains("1.20"));
        assert!(record.table().contains("126 to 126, resolved to 0.50"), "{}", record.table());
    }

    #[test]
    fn what_is_no_record_is_refused_by_line() {
        let record = Record::new(Environment::default());
        let environment = record.to_lines();
        let wrong = |lines: &str| Record::from_lines(lines).unwrap_err().to_string();
        assert!(wrong("").starts_with("line 1"));
        assert!(wrong(&format!("{environment}{environment}")).starts_with("line 2"));
        assert!(wrong(&format!("{environment}{{}}\n")).starts_with("line 2"));
        assert_eq!(Record::from_lines(&environment).unwrap(), record);
    }

    #[test]
    fn days_numbers_and_machines_read_well() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(4_107_542_399), "2100-02-28");
        assert_eq!(date(4_107_542_400), "2100-03-01");
        assert_eq!(date(1_767_225_599), "2025-12-31");
        let shown = [0.0, 0.0126, 0.126, 12.34, 123.4, 1234.5, 1_234_567.0, -1234.0].map(number);
        assert_eq!(shown, ["0", "0.0126", "0.13", "12.3", "123", "1 234", "1 234 567", "-1 234"]);
        let cpu = "Intel(R) Xeon(R) CPU @ 2.20GHz".to_owned();
        assert_eq!(
            Environment { cpu, cores: 4, ..Environment::default() }.machine(),
            "intel-r-xeon-r-cpu-2-20ghz-4c"
        );
        assert_eq!(Figure::of("nothing", "", &[]).value, 0.0);
        assert_eq!(Figure::of("two", "", &[1.0, 2.0]).value, 1.5);
    }
}
