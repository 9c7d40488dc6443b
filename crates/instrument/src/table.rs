//! Curves and runs as tables for a terminal.
//! A `?` stands behind a percentile that fewer than ten samples lie beyond.

use std::fmt::Write as _;

use nearside_loadgen::Summary;

use crate::curve::{Curve, Point};
use crate::page::interval;
use crate::words::{show_rate, show_time};

/// What a run's words begin with that measured the instrument.
const BOTTLENECK: &str = "warning: the instrument was the bottleneck";

/// One line per load.
#[must_use]
pub fn curve(curve: &Curve) -> String {
    let mut rows = Vec::new();
    for point in curve.points() {
        let response = &point.summary.all.response;
        if rows.is_empty() {
            let mut head: Vec<String> = ["load", "IOPS", "average"].map(str::to_owned).to_vec();
            head.extend(response.percentiles.iter().map(|p| format!("p{} ", p.percent)));
            rows.push(head);
        }
        let mut row =
            vec![point.marked_load(), show_rate(point.summary.throughput), show_time(response.mean_ns)];
        row.extend(response.percentiles.iter().map(|p| marked(show_time(p.ns as f64), p.few)));
        rows.push(row);
    }
    let mut text = aligned(&rows);
    if let Some(steady) = &curve.steady {
        let _ = writeln!(text, "{}", steady.words());
    }
    if curve.loads.iter().any(|point| point.saturated) {
        let _ = writeln!(text, "* more than the target carries");
    }
    let own = |point: &&Point| {
        let instrument = point.summary.machine.as_ref().and_then(|machine| machine.instrument.as_ref());
        instrument.is_some_and(|instrument| instrument.bottleneck)
    };
    let limited: Vec<String> = curve.points().filter(own).map(Point::load).collect();
    if !limited.is_empty() {
        let _ = writeln!(text, "{BOTTLENECK} at {}: the target may carry more", limited.join(", "));
    }
    if let Some(knee) = curve.knee {
        let _ = writeln!(text, "knee at {} I/Os per second", show_rate(knee));
    }
    text
}

/// One run: its percentiles with their intervals and samples, its counts, its CPU time.
#[must_use]
pub fn run(point: &Point) -> String {
    let summary = &point.summary;
    let mut text = String::new();
    let _ = match summary.window_ns {
        // An error within the warm-up, say.
        0 | 1 => writeln!(text, "{}: ended before anything was measured", summary.target),
        ns => writeln!(
            text,
            "{}: offered {} I/Os per second, ended {}, over {}",
            summary.target,
            show_rate(summary.offered),
            show_rate(summary.throughput),
            show_time(ns as f64)
        ),
    };
    for (name, measured) in directions(summary) {
        let response = &measured.response;
        let samples = response.count;
        let (average, service) = (show_time(response.mean_ns), show_time(measured.service.mean_ns));
        let _ = writeln!(text, "\n{name}: {samples} samples, average {average} (service {service})");
        let head = ["percentile", "response time", "95 % interval", "samples beyond"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for p in &response.percentiles {
            rows.push(vec![
                format!("p{}", p.percent),
                marked(show_time(p.ns as f64), p.few),
                interval(p),
                p.beyond.to_string(),
            ]);
        }
        let longest = show_time(response.max_ns as f64);
        rows.push(vec!["longest".into(), format!("{longest} "), String::new(), "0".into()]);
        text.push_str(&aligned(&rows));
    }
    counts(summary, &mut text);
    text
}

fn directions(summary: &Summary) -> Vec<(String, &nearside_loadgen::summary::Measured)> {
    let several = summary.streams.len() > 1;
    let mut found = Vec::new();
    for stream in &summary.streams {
        let name = |what: &str| if several { format!("{}, {what}", stream.name) } else { what.to_owned() };
        found.extend(stream.reads.as_ref().map(|m| (name("reads"), m)));
        found.extend(stream.writes.as_ref().map(|m| (name("writes"), m)));
    }
    if found.len() > 1 {
        found.insert(0, ("all".to_owned(), &summary.all));
    }
    found
}

fn counts(summary: &Summary, text: &mut String) {
    let sum = |of: fn(&nearside_loadgen::summary::StreamSummary) -> u64| -> u64 {
        summary.streams.iter().map(of).sum()
    };
    let _ = writeln!(
        text,
        "\nstarts: {} late by the generator, {} queued behind a full device; {} never sent, {} without an answer",
        sum(|s| s.late),
        sum(|s| s.queued),
        sum(|s| s.unsent),
        sum(|s| s.unanswered)
    );
    if let Some(error) = summary.streams.iter().find_map(|s| s.first_error.as_ref()) {
        let _ = writeln!(text, "errors: {}; the first {error}", summary.errors);
    }
    let Some(machine) = &summary.machine else { return };
    let cpu = machine.cpu;
    let _ = writeln!(
        text,
        "CPU time per I/O: software {}, spinning for I/O {}, device {}: {} I/Os per second and core; waiting for the next {}; \
         the generator's own {}; resolved to {}",
        show_time(cpu.software_ns),
        show_time(cpu.spin_ns),
        show_time(cpu.device_ns),
        show_rate(cpu.per_core),
        show_time(cpu.idle_ns),
        show_time(machine.generator.ns_per_io),
        show_time(cpu.resolution_ns)
    );
    if let Some(own) = &machine.instrument {
        let (busy, late, delay) = (100.0 * own.busy, 100.0 * own.late, show_time(own.delay_ns));
        let _ = writeln!(
            text,
            "the instrument: busy {busy:.0} % of the time, {late:.0} % of the starts late, {delay} in the mean"
        );
        if own.bottleneck {
            let _ = writeln!(text, "{BOTTLENECK}: the target may carry more");
        }
    }
    let stalls = &machine.stalls;
    let optional = |ns: Option<u64>| ns.map_or("unknown".to_owned(), |ns| show_time(ns as f64));
    let _ = writeln!(
        text,
        "the core was taken away {} times for over {}, {} at the longest, {} in all; waited for a core {}, stolen {}",
        stalls.count,
        show_time(stalls.threshold_ns as f64),
        show_time(stalls.longest_ns as f64),
        show_time(stalls.total_ns as f64),
        optional(machine.scheduler_wait_ns),
        optional(machine.stolen_ns)
    );
}

/// Numbers stay below one another, with or without the mark.
fn marked(text: String, few: bool) -> String {
    format!("{text}{}", if few { "?" } else { " " })
}

/// Columns to the right, but the first.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            let pad = " ".repeat(width - cell.chars().count());
            let (before, after) = if column == 0 { ("", pad.as_str()) } else { (pad.as_str(), "") };
            let _ = write!(line, "{before}{cell}{after}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_clock::SimClock;
    use nearside_loadgen::engine::null::Null;
    use nearside_loadgen::run::simulated;
    use nearside_loadgen::summary::{CpuPerIo, Instrument, Machine};
    use nearside_loadgen::{Arrivals, Plan, Rw, Workload};

    #[test]
    fn who_measured_the_instrument_is_told() {
        let plan =
            Plan::new(Workload::new(Rw::Read, 4096, 1 << 20), Arrivals::Closed { depth: 4 }, 1_000_000);
        let mut null = Null::with_service(4, |_, now| now + 1_000);
        let outcome = simulated(&plan, &mut null, &SimClock::new()).unwrap();
        let point = |bottleneck| {
            let instrument = Instrument { busy: 0.97, late: 0.4, delay_ns: 2_500.0, bottleneck };
            let summary = Summary::simulated("target", "engine", &plan, &outcome);
            let cpu = CpuPerIo { software_ns: 2_000.0, per_core: 500_000.0, ..CpuPerIo::default() };
            let machine = Machine {
                cpu,
                stalls: Default::default(),
                scheduler_wait_ns: None,
                stolen_ns: None,
                generator: Default::default(),
                instrument: Some(instrument),
            };
            Point::new(Summary { machine: Some(machine), ..summary }, outcome.both().response)
        };
        let of = |loads: Vec<Point>| Curve { loads, ..Curve::default() };
        let text = run(&point(true));
        assert!(
            text.contains("busy 97 % of the time, 40 % of the starts late, 2.50 µs in the mean"),
            "{text}"
        );
        assert!(text.contains(&format!("\n{BOTTLENECK}: the target may carry more\n")), "{text}");
        assert!(text.contains("500 k I/Os per second and core"), "{text}");
        assert!(!run(&point(false)).contains("warning"));
        let text = curve(&of(vec![point(false), point(true)]));
        assert!(text.contains(&format!("{BOTTLENECK} at QD 4: the target may carry more\n")), "{text}");
        assert!(!curve(&of(vec![point(false)])).contains("warning"));
    }
}
