//! HdrHistogram logs (`.hlog`), which the reference tools read:
//! one interval for each slice of a run, histograms in V2 compressed form.

use std::io::Write;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::Latency;
use crate::outcome::Outcome;

/// Why a log cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the histogram log: {0}")]
pub struct HlogError(String);

/// The reference tools show times in milliseconds: values are nanoseconds.
const NS_PER_MS: f64 = 1e6;

/// Writes response times slice by slice; a run of several streams has a tag for each.
/// `began` is the date of the window's begin.
///
/// # Errors
/// The writer's.
pub fn write(outcome: &Outcome, began: SystemTime, mut out: impl Write) -> Result<(), HlogError> {
    let wrong = |e: &dyn std::fmt::Display| HlogError(e.to_string());
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("Response times from when operations were due, in nanoseconds")
        .with_start_time(began)
        .with_base_time(began)
        .with_max_value_divisor(NS_PER_MS)
        .begin_log_with(&mut out, &mut serializer)
        .map_err(|e| wrong(&e))?;
    let length = Duration::from_nanos(outcome.slice_ns);
    for (index, stream) in outcome.streams.iter().enumerate() {
        let name: String = tag(&stream.name, index);
        let name = (outcome.streams.len() > 1).then(|| Tag::new(&name)).flatten();
        let from = |slice: usize| Duration::from_nanos((slice as u64).saturating_mul(outcome.slice_ns));
        for (slice, times) in stream.slices.iter().enumerate() {
            log.write_histogram(Latency::histogram(times), from(slice), length, name)
                .map_err(|e| wrong(&format!("{e:?}")))?;
        }
    }
    Ok(())
}

/// A tag holds no comma and no white space.
fn tag(name: &str, index: usize) -> String {
    let clean: String = name.chars().map(|c| if c == ',' || c.is_whitespace() { '-' } else { c }).collect();
    if clean.is_empty() { format!("stream-{index}") } else { clean }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::null::Null;
    use crate::run::simulated;
    use crate::{Arrivals, Plan, Rw, Stream, Workload};
    use base64::Engine as _;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn the_reference_reader_finds_every_interval() {
        let arrivals = Arrivals::Poisson { rate: 1_000.0 };
        let workload = Workload::new(Rw::RandRead, 4096, 1 << 20);
        let mut plan = Plan::new(workload.clone(), arrivals, 3_000_000_000);
        plan.streams.push(Stream { name: "large, reads".into(), workload, arrivals });
        let mut null = Null::with_service(64, |_, now| now + 50_000 + now.0 / 100_000);
        let outcome = simulated(&plan, &mut null, &nearside_clock::SimClock::new()).unwrap();
        let mut bytes = Vec::new();
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_200_000);
        write(&outcome, began, &mut bytes).unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains("StartTime: 1795200000"), "{text}");
        let mut seen = vec![Vec::new(); 2];
        for entry in IntervalLogIterator::new(&bytes) {
            let LogEntry::Interval(interval) = entry.unwrap() else { continue };
            let raw = base64::engine::general_purpose::STANDARD.decode(interval.encoded_histogram()).unwrap();
            let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &raw[..]).unwrap();
            let stream = match interval.tag().unwrap().as_str() {
                "randread" => 0,
                "large--reads" => 1,
                other => panic!("{other}"),
            };
            assert_eq!(interval.duration(), Duration::from_secs(1));
            assert_eq!(interval.start_timestamp().as_secs(), seen[stream].len() as u64);
            assert!((interval.max() - histogram.max() as f64 / 1e6).abs() < 1e-3);
            seen[stream].push(histogram);
        }
        for (stream, intervals) in outcome.streams.iter().zip(&seen) {
            assert_eq!(intervals.len(), stream.slices.len());
            for (ours, theirs) in stream.slices.iter().zip(intervals) {
                assert_eq!((ours.count(), ours.max_ns()), (theirs.len(), theirs.max()));
                assert_eq!(ours.percentile(99.0).ns, theirs.value_at_percentile(99.0));
            }
        }
        assert_eq!(seen[0].iter().map(Histogram::len).sum::<u64>(), outcome.streams[0].offered);
    }
}
