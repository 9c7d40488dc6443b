//! Act 1, FAST'12: reads completed synchronously, asynchronously and by the hybrid, beside what a bare copy
//! of as many bytes costs; then over device times, where the order of the two reverses.

use nearside_instrument::completion::cores;
use nearside_instrument::completion::{Bench, Cost, POLICIES, compare};
use nearside_instrument::report::{Axis, Bar, Line, Page, Part};
use nearside_instrument::words::show_time;
use nearside_loadgen::floor::{Effort, copies, ping_pong};
use nearside_store::Delay;

use crate::stage::{Failure, Headline, Stage, table};

const NAMES: [&str; 3] = ["synchronous", "asynchronous", "hybrid"];
const DEVICE_TIMES_US: [u64; 8] = [0, 2, 5, 10, 20, 40, 70, 100];

/// Plays it; the number that it comes to.
///
/// # Errors
/// The drive's or the driver's.
pub fn play(stage: &Stage, page: &mut Page) -> Result<Headline, Failure> {
    page.heading("Act 1: when poll is better than interrupt");
    page.text(
        "A drive in memory, one command at a time. Synchronous: the caller builds the command, rings the doorbell, spins, \
         returns. Asynchronous: a queue, a submission context, an interrupt, a handler, a wake-up. CPU time is the host's, \
         not the drive's.",
    );
    let mut rows = Vec::new();
    let mut bars = Vec::new();
    let mut headline = None;
    let bytes = [512usize, 4096];
    let progress = stage.progress("act 1: completion paths", (bytes.len() + DEVICE_TIMES_US.len()) as u64);
    for bytes in bytes {
        let mut bench = Bench::new(Delay::fixed(0).medium())?;
        let bare_ns = bare_ns(bytes)?;
        let costs = compare(&mut bench, bytes, 5, 1500)?;
        for ((name, short), cost) in NAMES.iter().zip(["sync", "async", "hybrid"]).zip(&costs) {
            rows.push(row(bytes, name, cost, bare_ns));
            let parts = vec![cost.software_ns() / 1e3, cost.spin_ns / 1e3];
            bars.push(Bar::new(format!("{bytes} B, {short}"), parts));
        }
        if let [polled, interrupt, ..] = &costs[..] {
            headline = Some(ratio(bytes, polled, interrupt));
        }
        progress.inc(1);
    }
    let head = [
        "read",
        "completion",
        "p50 µs",
        "p99",
        "p99.9",
        "/ copy + trip",
        "software µs",
        "spinning",
        "CPU",
        "resolved to",
    ];
    let caption = "Random reads at queue depth 1; copy + trip: a bare copy of as many bytes and one cache-line round trip";
    table(caption, &head, &rows);
    page.table(caption, &head, &rows);
    let parts = ["software", "spinning"].map(Part::from);
    page.stacked("CPU time per read", "CPU time per read, µs", &parts, &bars);

    let mut latency = NAMES.map(|_| Vec::new());
    let mut cpu = NAMES.map(|_| Vec::new());
    for time in DEVICE_TIMES_US {
        let mut bench = Bench::new(Delay::fixed(time * 1000).medium())?;
        let costs = compare(&mut bench, 4096, 3, (400 - time * 2) as usize)?;
        for (i, cost) in costs.iter().enumerate() {
            latency[i].push((time as f64, cost.percentile_ns(0.5) as f64 / 1e3));
            cpu[i].push((time as f64, cost.cpu_ns / 1e3));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let lines = |of: &[Vec<(f64, f64)>]| -> Vec<Line> {
        NAMES.iter().zip(of).map(|(name, points)| Line::new(*name, points.clone())).collect()
    };
    let x = Axis::linear("device time, µs");
    let caption = "Response time of a 4 KiB read against the device's own time";
    page.lines(caption, &x, &Axis::linear("median response time, µs"), &lines(&latency));
    page.lines("CPU time of the same read", &x, &Axis::linear("CPU time per read, µs"), &lines(&cpu));
    let verdicts = [
        crossing("response time", &latency[0], &latency[1]),
        crossing("CPU time per read", &cpu[0], &cpu[1]),
    ];
    for verdict in verdicts {
        println!("  {verdict}");
        page.text(&verdict);
    }
    nearside_instrument::completion::unpin();
    headline.ok_or_else(|| "no read was measured".into())
}

/// What an interrupt costs a read of so many bytes.
fn ratio(bytes: usize, polled: &Cost, interrupt: &Cost) -> Headline {
    let [polled, interrupt] = [polled, interrupt].map(|cost| cost.percentile_ns(0.5) as f64);
    let number = format!("{:.1} ×", interrupt / polled);
    let (polled, interrupt) = (show_time(polled), show_time(interrupt));
    let sentence = format!(
        "Polled, a read of {bytes} B from a drive in memory takes {polled}; with an interrupt {interrupt} (medians at queue depth 1)."
    );
    (number, sentence)
}

fn row(bytes: usize, name: &str, cost: &Cost, bare_ns: f64) -> Vec<String> {
    let us = |ns: f64| format!("{:.2}", ns / 1e3);
    let p50 = cost.percentile_ns(0.5) as f64;
    vec![
        format!("{bytes} B"),
        name.into(),
        us(p50),
        us(cost.percentile_ns(0.99) as f64),
        us(cost.percentile_ns(0.999) as f64),
        format!("{:.1}", p50 / bare_ns),
        us(cost.software_ns()),
        us(cost.spin_ns),
        us(cost.cpu_ns),
        format!("{:.3}", cost.resolution_ns / 1e3),
    ]
}

/// One copy of as many bytes from a random place, and one cache-line round trip where there are two cores.
fn bare_ns(bytes: usize) -> Result<f64, Failure> {
    let name = if bytes == 512 {
        "copy of 512 B from memory, one by one"
    } else {
        "copy of 4 KiB from memory, one by one"
    };
    let copy =
        copies(Effort::FAST)?.into_iter().find(|f| f.name == name).ok_or("the bare copy was not measured")?;
    let trip = match cores() {
        [core, other, ..] => ping_pong(Effort::FAST, *core, *other)?.map_or(0.0, |f| f.value),
        _ => 0.0,
    };
    Ok(copy.value + trip)
}

/// Where the second line first lies below the first, between two measured device times.
fn crossing(what: &str, sync: &[(f64, f64)], asynchronous: &[(f64, f64)]) -> String {
    let gap: Vec<(f64, f64)> = sync.iter().zip(asynchronous).map(|(s, a)| (s.0, a.1 - s.1)).collect();
    let Some(at) = gap.iter().position(|g| g.1 < 0.0) else {
        return format!(
            "{what}: the synchronous path is the better one at every device time measured, to 100 µs."
        );
    };
    let Some(before) = at.checked_sub(1).map(|b| gap[b]) else {
        return format!("{what}: the asynchronous path is the better one even at a device time of 0.");
    };
    let (x0, y0) = before;
    let (x1, y1) = gap[at];
    let x = x0 + (x1 - x0) * y0 / (y0 - y1);
    format!("{what}: the order reverses at a device time of about {x:.0} µs (between {x0:.0} and {x1:.0}).")
}

/// The three policies are the three names.
const _: () = assert!(POLICIES.len() == NAMES.len());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_what_an_interrupt_costs() {
        let cost = |ns| Cost { latencies_ns: vec![ns; 9], cpu_ns: 0.0, spin_ns: 0.0, resolution_ns: 0.0 };
        let (number, sentence) = ratio(4096, &cost(2_000), &cost(7_000));
        assert_eq!(number, "3.5 ×");
        assert!(sentence.contains("4096 B") && sentence.contains("takes 2.00 µs; with an interrupt 7.00 µs"));
    }

    #[test]
    fn crossings_are_found_where_they_are() {
        let sync = [(0.0, 1.0), (10.0, 11.0), (20.0, 21.0)];
        let flat = [0.0, 10.0, 20.0].map(|x| (x, 16.0));
        let high = [0.0, 10.0, 20.0].map(|x| (x, 20.0));
        assert!(crossing("x", &sync, &flat).contains("about 15 µs"));
        assert!(crossing("x", &flat, &high).contains("every device time"));
        assert!(crossing("x", &flat, &sync).contains("even at"));
    }
}
