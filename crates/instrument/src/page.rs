//! The page with the pictures of Proc. IEEE 2017: response time against load (Fig. 8),
//! latency (Fig. 7), IOPS at queue depth (Fig. 5); percentile spectrum, response time over
//! time, CPU per I/O; and the tables behind them.

use nearside_loadgen::Summary;
use nearside_loadgen::summary::{Point as Percentile, Times};
use nearside_loadgen::sweep::KNEE;

use crate::curve::{Curve, Point};
use crate::prepare::Steady;
use crate::report::{Axis, Bar, Cell, Interval, Line, Page, Part};
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
    environment(&mut page, curves);
    for curve in curves {
        for note in curve.steady.iter().map(Steady::words).chain(curve.notes.iter().cloned()) {
            page.text(&format!("{}: {note}", curve.name));
        }
    }
    // One load is no curve.
    if curves.iter().any(|c| c.loads.len() > 1) {
        against_load(&mut page, curves);
    }
    if curves.iter().any(|c| !c.loads.is_empty()) {
        latency(&mut page, curves);
    }
    spectrum(&mut page, curves);
    over_time(&mut page, curves);
    // Nor is one depth.
    if curves.iter().any(|c| c.depths.len() > 1) {
        at_depth(&mut page, curves);
    }
    cpu(&mut page, curves);
    tables(&mut page, curves);
    page.finish()
}

/// At which load a picture of one load for each curve was measured, in words.
fn chosen(curves: &[Curve]) -> String {
    let loads: Vec<String> = curves.iter().filter_map(|c| Some(c.near(0.7)?.load())).collect();
    match curves.iter().all(|c| c.knee.is_some()) {
        true => format!("at about 70 % of the knee ({})", loads.join(", ")),
        false => format!("at {}", loads.join(", ")),
    }
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

/// The interval of a percentile in microseconds; a mean has none.
fn between(times: &Times, percent: Option<f64>) -> Interval {
    let point = times.at(percent?)?;
    Some((point.low_ns? as f64 / 1e3, point.high_ns? as f64 / 1e3))
}

/// One statistic of a curve against its throughput.
fn line(name: String, curve: &Curve, percent: Option<f64>) -> Line {
    let (mut places, mut weak, mut intervals) = (Vec::new(), Vec::new(), Vec::new());
    for Point { summary, .. } in curve.carried() {
        let response = &summary.all.response;
        let Some(ns) = value(response, percent) else { continue };
        if few(response, percent) {
            weak.push(places.len());
        }
        intervals.push(between(response, percent));
        places.push((summary.throughput, ns / 1e3));
    }
    Line::new(name, places).weak(weak).intervals(intervals)
}

fn against_load(page: &mut Page, curves: &[Curve]) {
    page.heading("Response time against load");
    page.text("As Fig. 8 of Proc. IEEE 2017: the load is what users offer, the response time is what they wait for.");
    let (x, y) = (Axis::linear("I/Os per second"), Axis::log(RESPONSE));
    let several = curves.len() > 1;
    let named = |curve: &Curve, statistic: &str| {
        if several { format!("{}, {statistic}", curve.name) } else { statistic.to_owned() }
    };
    // More are a thicket.
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
    let knee = match curves.iter().any(|curve| curve.knee.is_some()) {
        true => format!("The knee is {KNEE}. "),
        false => String::new(),
    };
    page.text(&format!(
        "{knee}Loads that were not carried (marked * below) are in no picture: what waits then waits longer the longer one measures."
    ));
}

fn latency(page: &mut Page, curves: &[Curve]) {
    page.heading("Latency");
    let bars: Vec<Bar> = curves
        .iter()
        .filter_map(|curve| {
            let response = &curve.lowest()?.summary.all.response;
            let parts =
                STATISTICS.map(|(_, percent)| value(response, percent).map_or(f64::NAN, |ns| ns / 1e3));
            let weak = STATISTICS.map(|(_, percent)| few(response, percent));
            let intervals = STATISTICS.map(|(_, percent)| between(response, percent));
            Some(Bar::new(&*curve.name, parts.to_vec()).intervals(intervals.to_vec()).weak(weak.to_vec()))
        })
        .collect();
    let caption = match curves.iter().any(|curve| curve.loads.len() > 1) {
        true => "Response time at the lowest load, as Fig. 7",
        false => "Response time",
    };
    page.dots(caption, &Axis::log(RESPONSE), &STATISTICS.map(|(name, _)| Part::from(name)), &bars);
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
    let which = if curves.len() > 1 { format!(" {}", chosen(curves)) } else { String::new() };
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
    for curve in curves {
        let Some(point) = curve.near(0.7) else { continue };
        if curves.len() > 1 {
            lines.push(Line::new(format!("{}, p99", curve.name), slices(point, |s| s.p99_ns)));
            continue;
        }
        let (median, p99) = (slices(point, |s| s.p50_ns), slices(point, |s| s.p99_ns));
        let band = median.iter().zip(&p99).map(|(low, high)| (low.0, low.1, high.1)).collect();
        lines.push(Line::band("median to p99", band).of("median"));
        lines.push(Line::new("median", median));
        lines.push(Line::new("longest", slices(point, |s| s.max_ns)).marks());
        let plan = &point.summary.plan;
        // They count from the run's begin, slices from the window's.
        let begin = plan.ramp_ns + plan.warm_up_ns;
        let stalls = point.summary.machine.iter().flat_map(|machine| &machine.stalls.stalls);
        let within = stalls.filter_map(|stall| Some((stall.at_ns.checked_sub(begin)?, stall.ns)));
        let within = within.filter(|(at_ns, _)| *at_ns <= point.summary.window_ns);
        let stalls: Vec<(f64, f64)> =
            within.map(|(at_ns, ns)| (at_ns as f64 / 1e9, ns as f64 / 1e3)).collect();
        if !stalls.is_empty() {
            lines.push(Line::new("stalls of this machine: the core was taken away", stalls).marks());
        }
    }
    if lines.iter().all(Line::is_empty) {
        return;
    }
    page.heading("Response time over time");
    let caption = format!("Response time in the course of a run, {}", chosen(curves));
    page.lines(&caption, &Axis::linear("time since the begin, s"), &Axis::log(RESPONSE), &lines);
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
        .filter_map(|curve| {
            let point = curve.near(0.7)?;
            // What the generator waits for the next operation is its own affair.
            let parts: Vec<f64> = cpu_parts(&point.summary)?.iter().take(3).map(|ns| ns / 1e3).collect();
            Some(Bar::new(if curves.len() > 1 { curve.name.clone() } else { point.load() }, parts))
        })
        .collect();
    if bars.is_empty() {
        return;
    }
    page.heading("CPU time per I/O");
    page.text(
        "Of the generator's thread and of the engine's own. Device: the embedded drive's work, where it runs on the generator's thread.",
    );
    let parts: Vec<Part> = CPU.into_iter().take(3).map(Part::from).collect();
    page.stacked(&format!("CPU time per I/O {}", chosen(curves)), "CPU time per I/O, µs", &parts, &bars);
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

/// Where it was measured, and how.
fn environment(page: &mut Page, curves: &[Curve]) {
    let Some(summary) = curves.iter().flat_map(Curve::points).map(|p| &p.summary).next() else { return };
    let names: Vec<&str> = curves.iter().map(|c| &*c.name).collect();
    let mut settings = vec![("measured", names.join("; ")), ("engine", summary.engine.clone())];
    if let Some(stream) = summary.plan.streams.first() {
        let workload = &stream.workload;
        let sizes: Vec<String> = workload.bs.iter().map(|(bytes, _)| format!("{bytes} B")).collect();
        settings.push(("workload", format!("{} of {}", workload.rw, sizes.join(", "))));
        settings.push(("over", format!("{} bytes from {}", workload.size, workload.offset)));
    }
    settings.push(("window", show_time(summary.window_ns as f64)));
    settings.push(("seed", summary.plan.seed.to_string()));
    if let Some(machine) = &summary.machine {
        settings
            .push(("generator's own cost", format!("{} per I/O", show_time(machine.generator.ns_per_io))));
    }
    match &summary.environment {
        Some(environment) => page.measured(environment, &settings),
        None => page.simulated(&settings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_speaks_of_a_knee_where_there_is_one() {
        let curve = Curve { name: "x".into(), ..Curve::default() };
        assert_eq!(chosen(std::slice::from_ref(&curve)), "at ");
        let knee = Curve { knee: Some(5.0), ..curve };
        assert!(chosen(&[knee]).contains("70 % of the knee"));
    }
}
