//! The page with the pictures of Proc. IEEE 2017: response time against load (Fig. 8),
//! latency (Fig. 7), IOPS at queue depth (Fig. 5); percentile spectrum, response time over
//! time, CPU per I/O; and the tables behind them.

use nearside_loadgen::Summary;
use nearside_loadgen::summary::{Point as Percentile, Times};
use nearside_loadgen::sweep::KNEE;

use crate::curve::{Curve, Point};
use crate::prepare::Steady;
use crate::report::{Axis, Bar, Cell, Line, Page};
use crate::words::{show_rate, show_time};

/// What is drawn against load.
const STATISTICS: [(&str, Option<f64>); 3] =
    [("average", None), ("p99", Some(99.0)), ("p99.999", Some(99.999))];

const RESPONSE: &str = "response time, µs";

/// The page of one curve or of several on the same pictures.
#[must_use]
pub fn page(title: &str, curves: &[Curve]) -> String {
    let about = "Response times run from when each operation was due, so that what waits behind a stall counts with its wait. \
                 Hollow points and grey figures rest on fewer than ten samples beyond them.";
    let mut page = Page::new(title, about);
    for curve in curves {
        for note in curve.steady.iter().map(Steady::words).chain(curve.notes.iter().cloned()) {
            page.text(&format!("{}: {note}", curve.name));
        }
    }
    if curves.iter().any(|c| !c.loads.is_empty()) {
        against_load(&mut page, curves);
        bars(&mut page, curves);
    }
    spectrum(&mut page, curves);
    over_time(&mut page, curves);
    if curves.iter().any(|c| !c.depths.is_empty()) {
        at_depth(&mut page, curves);
    }
    cpu(&mut page, curves);
    tables(&mut page, curves);
    environment(&mut page, curves);
    page.finish()
}

fn value(times: &Times, percent: Option<f64>) -> Option<f64> {
    match percent {
        None => (times.count > 0).then_some(times.mean_ns),
        Some(percent) => times.at(percent).filter(|_| times.count > 0).map(|point| point.ns as f64),
    }
}

fn few(times: &Times, percent: Option<f64>) -> bool {
    percent.and_then(|percent| times.at(percent)).is_some_and(|point| point.few)
}

/// One statistic of a curve against its throughput.
fn line(name: String, curve: &Curve, percent: Option<f64>) -> Line {
    let (mut places, mut weak) = (Vec::new(), Vec::new());
    for Point { summary, .. } in curve.carried() {
        let Some(ns) = value(&summary.all.response, percent) else { continue };
        if few(&summary.all.response, percent) {
            weak.push(places.len());
        }
        places.push((summary.throughput, ns / 1e3));
    }
    Line::new(name, places).weak(weak)
}

fn against_load(page: &mut Page, curves: &[Curve]) {
    page.heading("Response time against load");
    page.text("As Fig. 8 of Proc. IEEE 2017: the load is what users offer, the response time is what they wait for.");
    let (x, y) = (Axis::linear("I/Os per second"), Axis::log(RESPONSE));
    let several = curves.len() > 1;
    let named = |curve: &Curve, statistic: &str| {
        if several { format!("{}, {statistic}", curve.name) } else { statistic.to_owned() }
    };
    // Up to seven lines have colours of their own.
    if curves.len() <= 2 {
        let each = |curve: &Curve| {
            STATISTICS.map(|(name, percent)| line(named(curve, name), curve, percent)).to_vec()
        };
        let lines: Vec<Line> = curves.iter().flat_map(each).collect();
        page.lines("Average, 99th and 99.999th percentile of response time at each load", &x, &y, &lines);
    } else {
        for (name, percent) in STATISTICS {
            let lines: Vec<Line> = curves.iter().map(|c| line(c.name.clone(), c, percent)).collect();
            page.lines(&format!("Response time at each load: {name}"), &x, &y, &lines);
        }
    }
    for curve in curves {
        if let Some(knee) = curve.knee {
            page.text(&format!("{}: the knee lies at {} I/Os per second.", curve.name, show_rate(knee)));
        }
    }
    page.text(&format!(
        "The knee is {KNEE}. Loads that were not carried (marked * below) are in no picture: what waits then waits longer the longer one measures."
    ));
}

fn bars(page: &mut Page, curves: &[Curve]) {
    page.heading("Latency");
    let bars: Vec<Bar> = curves
        .iter()
        .zip(short_names(curves))
        .filter_map(|(curve, name)| {
            let response = &curve.lowest()?.summary.all.response;
            let parts = STATISTICS.map(|(_, percent)| value(response, percent).unwrap_or(0.0) / 1e3);
            Some(Bar::new(name, parts.to_vec()))
        })
        .collect();
    let parts = STATISTICS.map(|(name, _)| name);
    page.grouped_bars("Response time at the lowest load, as Fig. 7", &Axis::log(RESPONSE), &parts, &bars);
}

/// Names that fit below bars, one for each curve:
/// without what all of them begin and end with, where they are too long.
fn short_names(curves: &[Curve]) -> Vec<String> {
    let room = (84 / curves.len().max(1)).max(6);
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    let fits = |names: &[&str]| names.iter().all(|name| (1..=room).contains(&name.chars().count()));
    if fits(&names) {
        return names.iter().map(|name| (*name).to_owned()).collect();
    }
    let word = |c: char| c.is_alphanumeric() || c == '-' || c == '.';
    let common = |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let reversed = |name: &str| name.chars().rev().collect::<String>();
    let first = names.first().copied().unwrap_or_default();
    let head = names.iter().map(|name| common(first, name)).min().unwrap_or(0);
    let tail = names.iter().map(|name| common(&reversed(first), &reversed(name))).min().unwrap_or(0);
    let stripped: Vec<String> = names
        .iter()
        .map(|name| {
            let letters: Vec<char> = name.chars().collect();
            // Whole words are kept.
            let begin = (0..=head.min(letters.len())).rev().find(|&i| i == 0 || !word(letters[i - 1]));
            let from_end = letters.len() - tail.min(letters.len());
            let end = (from_end..=letters.len()).find(|&i| i == letters.len() || !word(letters[i]));
            let (begin, end) = (begin.unwrap_or(0), end.unwrap_or(letters.len()));
            letters.get(begin..end).unwrap_or_default().iter().collect()
        })
        .collect();
    if curves.len() > 1 && fits(&stripped.iter().map(String::as_str).collect::<Vec<_>>()) {
        return stripped;
    }
    (1..=curves.len()).map(|n| format!("curve {n}")).collect()
}

/// Up to this many points of a spectrum.
const NINES: usize = 6;

fn spectrum(page: &mut Page, curves: &[Curve]) {
    let lines: Vec<Line> = curves
        .iter()
        .flat_map(|curve| {
            let mut points: Vec<&Point> = Vec::new();
            let (low, mid, high) = (curve.lowest(), curve.near(0.7), curve.near(1.0));
            let wanted = if curves.len() > 1 { vec![mid] } else { vec![low, mid, high] };
            for point in wanted.into_iter().flatten() {
                if !points.iter().any(|p| std::ptr::eq(*p, point)) {
                    points.push(point);
                }
            }
            points.into_iter().map(|point| spectrum_line(curve, point, curves.len() > 1)).collect::<Vec<_>>()
        })
        .collect();
    if lines.is_empty() {
        return;
    }
    page.heading("Percentile spectrum");
    let which = if curves.len() > 1 { " at about 70 % of each knee" } else { "" };
    page.lines(&format!("Response time by percentile{which}"), &Axis::nines(), &Axis::log(RESPONSE), &lines);
}

fn spectrum_line(curve: &Curve, point: &Point, several: bool) -> Line {
    let name = if several { format!("{}, {}", curve.name, point.load()) } else { point.load() };
    let count = point.response.count();
    // Ten points to each nine, as far as there are samples.
    let percents = (0..=10 * NINES).map(|i| 100.0 * (1.0 - 10f64.powf(-(i as f64) / 10.0)));
    let percents = percents.filter(|percent| count as f64 * (100.0 - percent) / 100.0 >= 0.999);
    let (mut places, mut weak) = (Vec::new(), Vec::new());
    for percent in percents {
        let at = point.response.percentile(percent);
        if at.beyond < 10 {
            weak.push(places.len());
        }
        places.push((percent, at.ns as f64 / 1e3));
    }
    Line::new(name, places).weak(weak)
}

fn over_time(page: &mut Page, curves: &[Curve]) {
    let slices = |point: &Point, of: fn(&nearside_loadgen::summary::Slice) -> u64| -> Vec<(f64, f64)> {
        let slices = point.summary.streams.iter().take(1).flat_map(|stream| &stream.slices);
        let seen = slices.filter(|slice| slice.count > 0);
        seen.map(|slice| (slice.at_ns as f64 / 1e9, of(slice) as f64 / 1e3)).collect()
    };
    let mut lines = Vec::new();
    let mut loads = Vec::new();
    for curve in curves {
        let Some(point) = curve.near(0.7) else { continue };
        loads.push(point.load());
        if curves.len() > 1 {
            lines.push(Line::new(format!("{}, p99", curve.name), slices(point, |s| s.p99_ns)));
        } else {
            lines.push(Line::new("median", slices(point, |s| s.p50_ns)));
            lines.push(Line::new("p99", slices(point, |s| s.p99_ns)));
            lines.push(Line::new("longest", slices(point, |s| s.max_ns)));
        }
    }
    if lines.is_empty() {
        return;
    }
    page.heading("Response time over time");
    let caption = format!("Response time in the course of a run, at a load of {}", loads.join(" and "));
    page.lines(&caption, &Axis::linear("seconds"), &Axis::log(RESPONSE), &lines);
}

fn at_depth(page: &mut Page, curves: &[Curve]) {
    page.heading("IOPS at queue depth");
    page.text(
        "As Fig. 5, for those who must. Proc. IEEE 2017 (section IV) says why not to use it: queue depth stands for load only where a \
         device's delay outweighs the system's. A faster device under the same load has a shorter queue, so that two devices at one queue depth \
         are not under the same load; and IOPS at a queue depth say nothing of how long the data was waited for.",
    );
    let lines: Vec<Line> = curves
        .iter()
        .filter(|curve| !curve.depths.is_empty())
        .map(|curve| {
            let at = |p: &Point| Some((f64::from(p.depth()?), p.summary.throughput));
            Line::new(curve.name.clone(), curve.depths.iter().filter_map(at).collect())
        })
        .collect();
    page.lines(
        "I/Os per second at each queue depth",
        &Axis::log("queue depth"),
        &Axis::linear("I/Os per second"),
        &lines,
    );
}

/// Parts of the CPU time.
const CPU: [&str; 4] = ["software", "spinning for I/O", "device", "waiting for the next"];

fn cpu_parts(summary: &Summary) -> Option<[f64; 4]> {
    let cpu = summary.machine.as_ref()?.cpu;
    Some([cpu.software_ns, cpu.spin_ns, cpu.device_ns, cpu.idle_ns])
}

fn cpu(page: &mut Page, curves: &[Curve]) {
    let bars: Vec<Bar> = curves
        .iter()
        .zip(short_names(curves))
        .filter_map(|(curve, name)| {
            let point = curve.near(0.7)?;
            // What the generator waits for the next operation is its own affair.
            let parts: Vec<f64> = cpu_parts(&point.summary)?.iter().take(3).map(|ns| ns / 1e3).collect();
            Some(Bar::new(if curves.len() > 1 { name } else { point.load() }, parts))
        })
        .collect();
    if bars.is_empty() {
        return;
    }
    page.heading("CPU time per I/O");
    page.text(
        "Of the generator's thread and of the engine's own. Device: the embedded drive's work, where it runs on the generator's thread.",
    );
    page.stacked_bars("CPU time per I/O at about 70 % of the knee", "µs", &CPU[..3], &bars);
}

fn cell(text: String, faint: bool) -> Cell {
    if faint { Cell::faint(text) } else { Cell::from(text) }
}

fn tables(page: &mut Page, curves: &[Curve]) {
    page.heading("Figures");
    for curve in curves {
        let Some(first) = curve.points().next() else { continue };
        let percents: Vec<f64> = first.summary.all.response.percentiles.iter().map(|p| p.percent).collect();
        let names: Vec<String> = percents.iter().map(|p| format!("p{p}")).collect();
        let mut head = vec!["load", "IOPS", "samples", "average"];
        head.extend(names.iter().map(String::as_str));
        head.push("longest");
        let row = |point: &Point| {
            let response = &point.summary.all.response;
            let mut cells = vec![
                Cell::from(point.marked_load()),
                Cell::from(show_rate(point.summary.throughput)),
                Cell::from(response.count.to_string()),
                Cell::from(show_time(response.mean_ns)),
            ];
            cells.extend(response.percentiles.iter().map(|p| cell(show_time(p.ns as f64), p.few)));
            cells.push(Cell::from(show_time(response.max_ns as f64)));
            cells
        };
        let rows: Vec<Vec<Cell>> = curve.points().map(row).collect();
        page.table(&format!("{}: response time", curve.name), &head, &rows);
        intervals(page, curve);
        machine(page, curve);
    }
}

/// Each percentile with its interval and the samples beyond it, for the lowest load and about the knee.
fn intervals(page: &mut Page, curve: &Curve) {
    let mut points: Vec<&Point> = curve.lowest().into_iter().collect();
    points.extend(curve.near(0.7).filter(|p| !points.iter().any(|q| std::ptr::eq(*p, *q))));
    let mut rows = Vec::new();
    for point in points {
        for p in &point.summary.all.response.percentiles {
            rows.push(vec![
                Cell::from(point.load()),
                cell(format!("p{}", p.percent), p.few),
                cell(show_time(p.ns as f64), p.few),
                cell(interval(p), p.few),
                cell(p.beyond.to_string(), p.few),
            ]);
        }
    }
    let level = curve.points().next().map_or(95.0, |p| p.summary.level);
    let interval = format!("{level} % interval");
    let head = ["load", "percentile", "response time", interval.as_str(), "samples beyond"];
    page.table(&format!("{}: what the percentiles rest on", curve.name), &head, &rows);
}

/// From where to where; words where the samples do not bound it.
pub(crate) fn interval(point: &Percentile) -> String {
    match (point.low_ns, point.high_ns) {
        (Some(low), Some(high)) => format!("{} to {}", show_time(low as f64), show_time(high as f64)),
        _ => "too short a run".to_owned(),
    }
}

/// What the machine took, beside the tail.
fn machine(page: &mut Page, curve: &Curve) {
    let rows: Vec<Vec<Cell>> = curve
        .points()
        .filter_map(|point| {
            let machine = point.summary.machine.as_ref()?;
            let stream = point.summary.streams.first()?;
            let optional = |ns: Option<u64>| ns.map_or("unknown".to_owned(), |ns| show_time(ns as f64));
            let cpu: Vec<String> = cpu_parts(&point.summary)?.iter().map(|ns| show_time(*ns)).collect();
            let mut cells: Vec<Cell> = vec![
                point.load().into(),
                stream.late.to_string().into(),
                stream.queued.to_string().into(),
                (stream.unsent + stream.unanswered).to_string().into(),
                machine.stalls.count.to_string().into(),
                show_time(machine.stalls.longest_ns as f64).into(),
                optional(machine.scheduler_wait_ns).into(),
                optional(machine.stolen_ns).into(),
            ];
            cells.extend(cpu.into_iter().map(Cell::from));
            Some(cells)
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let mut head = vec![
        "load",
        "late starts",
        "queued",
        "unfinished",
        "stalls",
        "longest stall",
        "waited for a core",
        "stolen",
    ];
    head.extend(CPU);
    page.table(&format!("{}: the machine beside it, CPU time per I/O", curve.name), &head, &rows);
}

fn environment(page: &mut Page, curves: &[Curve]) {
    let summary = curves.iter().flat_map(Curve::points).map(|p| &p.summary).next();
    let Some(environment) = summary.and_then(|s| s.environment.as_ref()) else {
        page.text("In simulated time: the same seed gives the same figures, byte for byte.");
        return;
    };
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("CPU", environment.cpu.clone()),
        row("cores", environment.cores.to_string()),
        row("memory", format!("{} MiB", environment.memory_mib)),
        row("kernel", environment.kernel.clone()),
        row("frequency governor", environment.governor.clone()),
        row("hypervisor", environment.hypervisor.clone()),
        row("date", environment.date.clone()),
        row("commit", environment.commit.clone()),
    ];
    if let Some(machine) = summary.and_then(|s| s.machine.as_ref()) {
        rows.push(row("generator's own cost", format!("{} per I/O", show_time(machine.generator.ns_per_io))));
    }
    page.table("Where it was measured", &["what", "which"], &rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_names_that_tell_them_apart() {
        let names = |names: &[&str]| {
            let curve = |name: &&str| Curve { name: (*name).to_owned(), ..Curve::default() };
            short_names(&names.iter().map(curve).collect::<Vec<_>>())
        };
        assert_eq!(names(&["dram:1GiB", "disk.img"]), ["dram:1GiB", "disk.img"]);
        let long = |name: &str| format!("model:{name},a-long-option=of-all-of-them,and-another=1:16GiB");
        let two = [long("nand-p3700"), long("nand-p3600")];
        assert_eq!(names(&[&two[0], &two[1]]), ["nand-p3700", "nand-p3600"]);
        let odd = "x".repeat(100);
        assert_eq!(names(&[&odd, "y"]), ["curve 1", "curve 2"]);
        assert_eq!(names(&[&odd]), ["curve 1"]);
        assert!(names(&[]).is_empty());
    }
}
