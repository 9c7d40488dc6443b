//! Two records side by side: what `bench` prints as JSON, or a record of figures as `studies/record` keeps
//! them.
//!
//! A figure has a value, an interval and the better direction, where it has one. Of a run they are:
//!
//! - its throughput, where it is a closed loop; the interval is that of the mean over the run's slices;
//! - each percentile of its response times with ten samples or more beyond it, and its own interval;
//! - how many operations ended in an error.
//!
//! Runs are the same where their load is, and their target; that does not count where each side has but one.
//! Of several runs of one load the median counts, and the interval that holds those of all: so a record of
//! repeated runs shows how much they differ. Of a record the interval is the spread of its runs.
//!
//! B is better or worse than A where their intervals do not touch, and the values differ by more than was
//! asked for. Intervals of a single run say nothing of how much one run differs from the next.

use std::collections::{BTreeMap, BTreeSet};

use nearside_loadgen::record::{Record, number};
use nearside_loadgen::{Arrivals, Distribution, Plan, Rw, Summary, interval};
use serde::Serialize;

/// One figure of one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Value {
    /// The value.
    pub value: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends; `None`: there is none, the run was too short.
    pub high: Option<f64>,
}

/// What of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More.
    Higher,
    /// Less.
    Lower,
    /// Nobody says.
    Unknown,
}

/// B beside A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Better, beyond the intervals.
    Better,
    /// Worse, beyond the intervals.
    Worse,
    /// Within the intervals, or what was asked for.
    Same,
    /// Beyond the intervals, and nobody says which is better.
    Differs,
    /// One of them has no interval: too short a run.
    Unknown,
}

/// A figure that both have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What, with its load.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// What of it is better.
    pub better: Better,
    /// The first record's.
    pub a: Value,
    /// The second's.
    pub b: Value,
    /// `b` over `a`; `None` where `a` is 0.
    pub ratio: Option<f64>,
    /// Whether the intervals have a value in common.
    pub overlap: bool,
    /// B beside A.
    pub verdict: Verdict,
}

/// All that two records have in common, and what one of them has alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diff {
    /// In the order of the first.
    pub rows: Vec<Row>,
    /// Names of figures that only the first has.
    pub only_a: Vec<String>,
    /// Names of figures that only the second has.
    pub only_b: Vec<String>,
}

/// One side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    figures: Vec<Figure>,
}

#[derive(Clone, Debug, PartialEq)]
struct Figure {
    /// Empty where there is one target only, or none.
    target: String,
    name: String,
    unit: String,
    better: Better,
    value: Value,
}

impl Side {
    /// From JSON lines: runs, or a record of figures.
    ///
    /// # Errors
    /// Which line is wrong, and how; that there is nothing.
    pub fn parse(text: &str) -> Result<Side, String> {
        let first = text.lines().find(|line| !line.trim().is_empty()).ok_or("there is nothing in it")?;
        let line: serde_json::Value = serde_json::from_str(first).map_err(|e| format!("line 1: {e}"))?;
        if line.get("kind").is_some() {
            let record = Record::from_lines(text).map_err(|e| e.to_string())?;
            // What a study names and could not measure has no runs.
            let named = record.figures.iter().zip(studies(text));
            let measured = named.filter(|(figure, _)| figure.runs > 0);
            return Ok(Side { figures: numbered(measured.map(|(figure, study)| of_record(figure, &study))) });
        }
        let mut runs = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |e: serde_json::Error| format!("line {}: {e}", index + 1);
            let value: serde_json::Value = serde_json::from_str(line).map_err(wrong)?;
            match value.get("type").and_then(serde_json::Value::as_str) {
                Some("run") => runs.push(serde_json::from_value::<Summary>(value).map_err(wrong)?),
                Some(_) => {}
                None => return Err(format!("line {}: neither a run nor a record's figure", index + 1)),
            }
        }
        if runs.is_empty() {
            return Err("it has no run".to_owned());
        }
        Ok(of_runs(&runs))
    }
}

/// Of which study each figure of a record is; empty where it is of none.
fn studies(text: &str) -> impl Iterator<Item = String> + '_ {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let figures = lines.filter(|line| line["kind"] == "figure");
    figures.map(|line| line["study"].as_str().unwrap_or_default().to_owned())
}

/// A record may have several figures of one name, table by table: the second is found as the second.
fn numbered(figures: impl Iterator<Item = Figure>) -> Vec<Figure> {
    let mut seen: BTreeMap<(String, String), u32> = BTreeMap::new();
    let number = |mut figure: Figure| {
        let times = seen.entry((figure.name.clone(), figure.unit.clone())).or_insert(0);
        *times += 1;
        if *times > 1 {
            figure.name = format!("{} ({times})", figure.name);
        }
        figure
    };
    figures.map(number).collect()
}

fn of_record(figure: &nearside_loadgen::record::Figure, study: &str) -> Figure {
    let better = match figure.unit.as_str() {
        "ns" | "us" | "ms" | "s" => Better::Lower,
        "1/s" | "k/s" | "M/s" | "kIOPS" | "IOPS" | "MB/s" | "GB/s" => Better::Higher,
        _ => Better::Unknown,
    };
    let value = Value { value: figure.value, low: figure.spread[0], high: Some(figure.spread[1]) };
    let unit = figure.unit.clone();
    let name = if study.is_empty() { figure.name.clone() } else { format!("{study}: {}", figure.name) };
    Figure { target: String::new(), name, unit, better, value }
}

/// A run's load in words, by which it is found in the other record.
fn load(plan: &Plan) -> String {
    let one = |stream: &nearside_loadgen::Stream| {
        let workload = &stream.workload;
        let sizes: Vec<String> = match workload.bs.as_slice() {
            [(size, _)] => vec![size.to_string()],
            several => several.iter().map(|(size, share)| format!("{size}/{share}")).collect(),
        };
        let mut more = String::new();
        if matches!(workload.rw, Rw::RandRw | Rw::Rw) {
            more += &format!(" {} % reads", workload.rwmixread);
        }
        if let Distribution::Zipf(theta) = workload.distribution {
            more += &format!(" zipf {theta}");
        }
        if let Some(think) = workload.think {
            more += &format!(" thinks {} ns after {}", think.time_ns, think.blocks);
        }
        let when = match stream.arrivals {
            Arrivals::Closed { depth } => format!("QD {depth}"),
            Arrivals::Poisson { rate } => format!("{rate}/s"),
            Arrivals::Constant { rate } => format!("{rate}/s even"),
            Arrivals::Recorded { scale } => {
                let trace = stream.workload.trace.as_ref();
                let path = trace.map(|trace| trace.source.path.display().to_string()).unwrap_or_default();
                format!("{path} x{scale}")
            }
        };
        format!("{} {}{more} {when}", workload.rw, sizes.join("+"))
    };
    plan.streams.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn of_runs(runs: &[Summary]) -> Side {
    let targets: BTreeSet<&str> = runs.iter().map(|run| run.target.as_str()).collect();
    let mut single: Vec<Figure> = Vec::new();
    for run in runs {
        let target = if targets.len() > 1 { run.target.clone() } else { String::new() };
        let load = load(&run.plan);
        let mut add = |name: String, unit: &str, better, value| {
            let (target, unit) = (target.clone(), unit.to_owned());
            single.push(Figure { target, name: format!("{load}: {name}"), unit, better, value });
        };
        if run.streams.iter().all(|stream| matches!(stream.arrivals, Arrivals::Closed { .. })) {
            add("throughput".to_owned(), "1/s", Better::Higher, throughput(run));
        }
        for p in run.all.response.percentiles.iter().filter(|p| !p.few) {
            let (low, high) = (p.low_ns.unwrap_or(0) as f64, p.high_ns.map(|ns| ns as f64));
            add(format!("p{}", p.percent), "ns", Better::Lower, Value { value: p.ns as f64, low, high });
        }
        let errors = run.errors as f64;
        let value = Value { value: errors, low: errors, high: Some(errors) };
        add("errors".to_owned(), "", Better::Lower, value);
    }
    Side { figures: together(single) }
}

/// Operations per second that ended, and the interval of their mean over the run's whole slices.
fn throughput(run: &Summary) -> Value {
    let whole = (run.window_ns / run.plan.slice_ns.max(1)) as usize;
    let seconds = run.plan.slice_ns as f64 / 1e9;
    let rate = |slice: usize| {
        let of = |stream: &nearside_loadgen::summary::StreamSummary| {
            stream.slices.get(slice).map_or(0, |s| s.count)
        };
        run.streams.iter().map(of).sum::<u64>() as f64 / seconds
    };
    let rates: Vec<f64> = (0..whole.min(1 << 16)).map(rate).collect();
    let n = rates.len() as f64;
    let value = run.throughput;
    if rates.len() < 10 {
        return Value { value, low: 0.0, high: None };
    }
    let mean = rates.iter().sum::<f64>() / n;
    let variance = rates.iter().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>() / (n - 1.0);
    let half = interval::Z * (variance / n).sqrt();
    Value { value, low: (value - half).max(0.0), high: Some(value + half) }
}

/// Repeated figures as one: the median, and the interval that holds all of theirs.
fn together(single: Vec<Figure>) -> Vec<Figure> {
    let mut all: Vec<(Figure, Vec<f64>)> = Vec::new();
    for figure in single {
        match all.iter_mut().find(|(f, _)| f.target == figure.target && f.name == figure.name) {
            Some((one, values)) => {
                values.push(figure.value.value);
                one.value.low = one.value.low.min(figure.value.low);
                one.value.high = one.value.high.zip(figure.value.high).map(|(a, b)| a.max(b));
            }
            None => {
                let values = vec![figure.value.value];
                all.push((figure, values));
            }
        }
    }
    let median = |(mut figure, mut values): (Figure, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        figure.value.value = (values[last / 2] + values[last.div_ceil(2)]) / 2.0;
        figure
    };
    all.into_iter().map(median).collect()
}

impl Diff {
    /// B beside A; values that differ by no more than `within` per cent of A's are the same.
    #[must_use]
    pub fn of(a: &Side, b: &Side, within: f64) -> Diff {
        let mut diff = Diff::default();
        let same = |x: &Figure, y: &Figure| x.target == y.target && x.name == y.name && x.unit == y.unit;
        let name = |figure: &Figure| match figure.target.as_str() {
            "" => figure.name.clone(),
            target => format!("{target}: {}", figure.name),
        };
        for figure in &a.figures {
            match b.figures.iter().find(|other| same(figure, other)) {
                Some(other) => diff.rows.push(row(name(figure), figure, other.value, within)),
                None => diff.only_a.push(name(figure)),
            }
        }
        let alone = b.figures.iter().filter(|figure| !a.figures.iter().any(|other| same(figure, other)));
        diff.only_b = alone.map(name).collect();
        diff
    }

    /// Whether B is worse in anything.
    #[must_use]
    pub fn worse(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Verdict::Worse)
    }

    /// A table for people, and how many figures only one side has.
    #[must_use]
    pub fn table(&self) -> String {
        let head = ["figure", "A", "B", "unit", "B/A", "A's interval", "B's interval", "B is"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for row in &self.rows {
            let interval = |v: &Value| match v.high {
                Some(high) => format!("{} to {}", number(v.low), number(high)),
                None => "too short a run".to_owned(),
            };
            let verdict = match row.verdict {
                Verdict::Better => "better",
                Verdict::Worse => "WORSE",
                Verdict::Same => "the same",
                Verdict::Differs => "different",
                Verdict::Unknown => "cannot say",
            };
            rows.push(vec![
                row.figure.clone(),
                number(row.a.value),
                number(row.b.value),
                row.unit.clone(),
                row.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")),
                interval(&row.a),
                interval(&row.b),
                verdict.to_owned(),
            ]);
        }
        let mut text = crate::table::aligned(&rows);
        for (side, alone) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !alone.is_empty() {
                text.push_str(&format!("only in {side}: {}\n", alone.join("; ")));
            }
        }
        text
    }
}

fn row(figure: String, of: &Figure, b: Value, within: f64) -> Row {
    let a = of.value;
    let reaches = |high: Option<f64>, low: f64| high.is_none_or(|high| high >= low);
    let overlap = reaches(a.high, b.low) && reaches(b.high, a.low);
    let near = (b.value - a.value).abs() <= a.value.abs() * within / 100.0;
    let verdict = match of.better {
        _ if near => Verdict::Same,
        _ if overlap && (a.high.is_none() || b.high.is_none()) => Verdict::Unknown,
        _ if overlap => Verdict::Same,
        Better::Higher if b.value > a.value => Verdict::Better,
        Better::Lower if b.value < a.value => Verdict::Better,
        Better::Unknown => Verdict::Differs,
        Better::Higher | Better::Lower => Verdict::Worse,
    };
    let ratio = (a.value != 0.0).then(|| b.value / a.value);
    Row { figure, unit: of.unit.clone(), better: of.better, a, b, ratio, overlap, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_loadgen::Workload;

    fn record(figures: &[(&str, &str, [f64; 3])]) -> Side {
        let mut record = Record::new(nearside_loadgen::record::Environment::default());
        for (name, unit, runs) in figures {
            record.add(nearside_loadgen::record::Figure::of(name, unit, runs));
        }
        Side::parse(&record.to_lines()).unwrap()
    }

    fn verdict(unit: &str, a: [f64; 3], b: [f64; 3], within: f64) -> Verdict {
        Diff::of(&record(&[("x", unit, a)]), &record(&[("x", unit, b)]), within).rows[0].verdict
    }

    #[test]
    fn a_figure_is_of_its_study_and_a_load_of_its_mix() {
        let environment = Record::new(nearside_loadgen::record::Environment::default()).to_lines();
        let line = |study: &str, value: f64| {
            format!(
                r#"{{"kind":"figure","study":"{study}","name":"x","value":{value},"unit":"us","runs":1,"spread":[{value},{value}]}}"#
            ) + "\n"
        };
        let both =
            Side::parse(&format!("{environment}{}{}", line("Fig. 5", 1.0), line("Fig. 6", 9.0))).unwrap();
        let second = Side::parse(&format!("{environment}{}", line("Fig. 6", 9.0))).unwrap();
        let diff = Diff::of(&both, &second, 0.0);
        assert_eq!((diff.rows.len(), diff.rows[0].a.value), (1, 9.0));
        assert_eq!((diff.rows[0].figure.as_str(), diff.only_a.len()), ("Fig. 6: x", 1));
        let mixed = |rwmixread: u8, rate: f64| {
            let workload = Workload { rwmixread, ..Workload::new(Rw::RandRw, 4096, 1 << 20) };
            load(&Plan::new(workload, Arrivals::Poisson { rate }, 0))
        };
        assert_ne!(mixed(70, 1e5), mixed(30, 1e5));
        assert_ne!(mixed(70, 100_100.0), mixed(70, 100_400.0));
        assert_eq!(mixed(70, 1e5), mixed(70, 1e5));
    }

    #[test]
    fn what_was_not_measured_is_compared_with_nothing() {
        let mut unmeasured = Record::new(nearside_loadgen::record::Environment::default());
        unmeasured.add(nearside_loadgen::record::Figure::of("x", "us", &[]));
        let unmeasured = Side::parse(&unmeasured.to_lines()).unwrap();
        let diff = Diff::of(&unmeasured, &record(&[("x", "us", [5.0; 3])]), 0.0);
        assert!(diff.rows.is_empty() && diff.only_b.len() == 1, "{diff:?}");
    }

    #[test]
    fn beyond_the_spread_is_better_or_worse_by_the_unit() {
        let (low, high) = ([100.0, 101.0, 102.0], [103.0, 105.0, 104.0]);
        assert_eq!(verdict("ns", low, high, 0.0), Verdict::Worse);
        assert_eq!(verdict("ns", high, low, 0.0), Verdict::Better);
        assert_eq!(verdict("GB/s", low, high, 0.0), Verdict::Better);
        assert_eq!(verdict("kIOPS", high, low, 0.0), Verdict::Worse);
        assert_eq!(verdict("%", low, high, 0.0), Verdict::Differs);
        // 3 % apart.
        assert_eq!(verdict("ns", low, high, 5.0), Verdict::Same);
        assert_eq!(verdict("ns", low, high, 2.0), Verdict::Worse);
        // One value in common.
        assert_eq!(verdict("ns", low, [102.0, 150.0, 190.0], 0.0), Verdict::Same);
    }

    #[test]
    fn an_interval_without_an_end_reaches_everything_above() {
        let figure = |value: f64, low: f64, high: Option<f64>| Figure {
            target: String::new(),
            name: "p99".to_owned(),
            unit: "ns".to_owned(),
            better: Better::Lower,
            value: Value { value, low, high },
        };
        let verdict = |a: Figure, b: Figure| row("p99".to_owned(), &a, b.value, 0.0).verdict;
        assert_eq!(verdict(figure(5.0, 4.0, None), figure(900.0, 800.0, Some(950.0))), Verdict::Unknown);
        assert_eq!(verdict(figure(5.0, 0.0, None), figure(5.0, 0.0, None)), Verdict::Same);
        assert_eq!(verdict(figure(900.0, 800.0, None), figure(5.0, 4.0, Some(6.0))), Verdict::Better);
        assert_eq!(verdict(figure(5.0, 4.0, Some(6.0)), figure(900.0, 800.0, None)), Verdict::Worse);
    }

    #[test]
    fn what_one_side_has_alone_is_named() {
        let a = record(&[("x", "ns", [1.0; 3]), ("y", "ns", [1.0; 3])]);
        let b = record(&[("x", "us", [1.0; 3]), ("y", "ns", [1.0; 3]), ("z", "ns", [1.0; 3])]);
        let diff = Diff::of(&a, &b, 0.0);
        assert_eq!((diff.rows.len(), diff.worse()), (1, false));
        assert_eq!((diff.only_a, diff.only_b), (vec!["x".to_owned()], vec!["x".to_owned(), "z".to_owned()]));
    }

    #[test]
    fn figures_of_one_name_are_compared_in_their_order() {
        let twice = record(&[("depth 5", "us", [1.0; 3]), ("depth 5", "us", [9.0; 3])]);
        let diff = Diff::of(&twice, &twice, 0.0);
        assert_eq!(diff.rows.iter().map(|row| row.a.value).collect::<Vec<_>>(), [1.0, 9.0]);
        assert!(diff.rows.iter().all(|row| row.verdict == Verdict::Same), "{diff:?}");
        let later = record(&[("depth 5", "us", [1.0; 3]), ("depth 5", "us", [10.0; 3])]);
        assert!(Diff::of(&twice, &later, 0.0).worse());
    }

    #[test]
    fn what_is_no_record_is_said_with_its_line() {
        for (text, says) in [
            ("", "nothing in it"),
            ("{\n", "line 1"),
            ("{}\n", "line 1: neither"),
            ("{\"type\":\"steady\"}\n", "no run"),
            ("{\"type\":\"steady\"}\n{\"type\":\"run\"}\n", "line 2: missing field"),
            ("{\"kind\":\"figure\"}\n", "line 1"),
        ] {
            let error = Side::parse(text).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn repeated_runs_count_as_one_with_the_widest_interval() {
        let figure = |value: f64| Figure {
            target: "d".to_owned(),
            name: "p50".to_owned(),
            unit: "ns".to_owned(),
            better: Better::Lower,
            value: Value { value, low: value - 1.0, high: Some(value + 1.0) },
        };
        let one = together(vec![figure(10.0), figure(30.0), figure(11.0)]);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].value, Value { value: 11.0, low: 9.0, high: Some(31.0) });
    }
}
