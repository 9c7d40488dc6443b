//! Runs as CSV (RFC 4180): a line for each direction of each stream, one below the other.
//! Each name of a column ends in its unit; what is not known is empty.

use std::fmt::Write as _;

use nearside_loadgen::Arrivals;
use nearside_loadgen::summary::{Measured, StreamSummary, Times};

use crate::curve::Point;

/// The first line. `*_ns` are nanoseconds, `*_bytes` bytes, `*_per_s` per second, all others counts or
/// words; `arrivals` is `poisson`, `constant`, `closed` or `recorded`, `depth` the operations in flight of
/// a closed loop. `offered_per_s` and `ended_per_s`, and `late` to `errors`, are the stream's, both
/// directions together.
#[must_use]
pub fn header() -> String {
    let mut line = "target,engine,date,stream,arrivals,depth,offered_per_s,ended_per_s,window_ns,direction,\
                    bytes,service_mean_ns,response_count,response_mean_ns,response_min_ns"
        .to_owned();
    for point in Times::of(&nearside_loadgen::Latency::new()).percentiles {
        let percent = point.percent.to_string().replace('.', "_");
        let _ =
            write!(line, ",response_p{percent}_ns,response_p{percent}_low_ns,response_p{percent}_high_ns");
    }
    line + ",response_max_ns,late,queued,unsent,unanswered,errors\n"
}

/// The lines of a run.
#[must_use]
pub fn lines(point: &Point) -> String {
    let mut text = String::new();
    for stream in &point.summary.streams {
        for (direction, measured) in [("read", &stream.reads), ("write", &stream.writes)] {
            if let Some(measured) = measured {
                row(point, stream, direction, measured, &mut text);
            }
        }
    }
    text
}

fn row(point: &Point, stream: &StreamSummary, direction: &str, measured: &Measured, text: &mut String) {
    let summary = &point.summary;
    let seconds = summary.window_ns as f64 / 1e9;
    // Of the rate of all, which is over the time in which operations were due.
    let offered: u64 = summary.streams.iter().map(|stream| stream.offered).sum();
    let part = stream.offered as f64 / offered.max(1) as f64;
    let (arrivals, depth) = match stream.arrivals {
        Arrivals::Poisson { .. } => ("poisson", String::new()),
        Arrivals::Constant { .. } => ("constant", String::new()),
        Arrivals::Closed { depth } => ("closed", depth.to_string()),
        Arrivals::Recorded { .. } => ("recorded", String::new()),
    };
    let date = summary.environment.as_ref().map_or("", |environment| &environment.date);
    let words = [summary.target.as_str(), &summary.engine, date, &stream.name, arrivals, &depth];
    text.push_str(&words.map(quoted).join(","));
    let _ = write!(
        text,
        ",{},{},{},{direction},{},{}",
        summary.offered * part,
        stream.ended_within as f64 / seconds,
        summary.window_ns,
        measured.bytes,
        measured.service.mean_ns
    );
    let response = &measured.response;
    let _ = write!(text, ",{},{},{}", response.count, response.mean_ns, response.min_ns);
    for p in &response.percentiles {
        let end = |ns: Option<u64>| ns.map_or(String::new(), |ns| ns.to_string());
        let _ = write!(text, ",{},{},{}", p.ns, end(p.low_ns), end(p.high_ns));
    }
    let counts = [stream.late, stream.queued, stream.unsent, stream.unanswered, stream.errors];
    let _ = write!(text, ",{}", response.max_ns);
    for count in counts {
        let _ = write!(text, ",{count}");
    }
    text.push('\n');
}

/// A field, between quotes where it holds what ends one.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_a_comma_or_a_quote_stays_one() {
        assert_eq!(quoted("dram:1GiB"), "dram:1GiB");
        assert_eq!(quoted("model:own,50us:1GiB"), "\"model:own,50us:1GiB\"");
        assert_eq!(quoted("a \"b\"\n"), "\"a \"\"b\"\"\n\"");
    }
}
