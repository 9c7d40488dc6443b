//! Traces of what applications did: operations with the times at which they were recorded.
//!
//! A replay passes so: [`survey`] reads the file once and says what is in it, or on which line it is wrong ->
//! [`Trace`] says how it goes onto a target -> a generator of a plan with it reads the file again, ahead of
//! time on a thread of its own ([`Feed`]), and starts each operation when it is due, however late others are.
//! The file is streamed both times: memory does not grow with it.
//!
//! | format | time | what counts |
//! | --- | --- | --- |
//! | fio's iolog, version 2 | `wait` lines, in microseconds, each from the one before | `read`, `write` |
//! | fio's iolog, version 3 | the timestamp, in microseconds | `read`, `write` |
//! | blkparse's text (its default format) | seconds and nanoseconds | Q or D events with sectors |
//! | blktrace's binary (`struct blk_io_trace`) | nanoseconds | Q or D events with bytes |
//! | MSR Cambridge's CSV | the timestamp, in 100 ns | `Read`, `Write` |
//!
//! Trims, flushes and operations without bytes are counted and passed over. What lies out of order by up to
//! [`WINDOW`] operations is put in order. No trust is put in a trace: what cannot be is an error with its
//! line.

mod blktrace;
mod feed;
mod sorted;
mod text;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

pub use feed::{Arrival, Feed};
use sorted::Sorted;
pub use sorted::WINDOW;

use crate::arrivals::Arrivals;
use crate::plan::Plan;
use crate::workload::{Direction, Rw, Workload};

/// A trace's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// fio's iolog, version 2 or 3.
    FioIolog,
    /// What blkparse prints without `-f`.
    Blkparse,
    /// What blktrace writes, of one CPU or put together by `blkparse -d`.
    Blktrace,
    /// The block traces of MSR Cambridge (SNIA IOTTA).
    Msr,
}

impl Format {
    /// Its word on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::FioIolog => "fio-iolog",
            Format::Blkparse => "blkparse",
            Format::Blktrace => "blktrace",
            Format::Msr => "msr",
        }
    }
}

/// Which event of blktrace's is an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// Q: queued, as the application asked.
    #[default]
    Queue,
    /// D: issued to the driver, after merging.
    Issue,
}

/// How a trace's offsets become a target's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mapping {
    /// As they are; one that ends beyond the target is an error.
    #[default]
    Fail,
    /// Modulo the target's size.
    Wrap,
    /// By the ratio of the target's size to where the trace's last operation ends.
    Scale,
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The file.
    #[error("{}: {what}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// In words.
        what: String,
    },
    /// A line, or a record of a binary trace.
    #[error("{}: {unit} {number}: {what}", .path.display())]
    At {
        /// The file.
        path: PathBuf,
        /// `line` or `record`.
        unit: &'static str,
        /// From 1.
        number: u64,
        /// In words.
        what: String,
    },
}

/// What of a trace is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The file.
    #[serde(serialize_with = "shown")]
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Of blktrace's events.
    pub event: Event,
    /// The only device that counts; without it there may be no more than one.
    pub device: Option<String>,
}

/// A path may be any bytes, and a record is text.
fn shown<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// A trace, and how it goes onto a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// What is read.
    #[serde(flatten)]
    pub source: Source,
    /// Recorded times are divided by this: 2 is twice as fast.
    pub scale: f64,
    /// How its offsets become the target's.
    pub mapping: Mapping,
    /// When its first operation was recorded, in nanoseconds of its own clock: that one is due at once.
    pub first_ns: u64,
    /// Where its last operation on the device ends, in bytes.
    pub span: u64,
    /// Bytes of the target.
    pub capacity: u64,
    /// Offsets and sizes of the target are multiples of this: operations grow to whole blocks.
    pub block_size: u32,
    /// Longer operations are several that are due at once, in bytes.
    pub largest: u32,
}

/// What is in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Trims, flushes and operations without bytes, which are passed over.
    pub others: u64,
    /// When the first operation was recorded, in nanoseconds of the trace's clock.
    pub first_ns: u64,
    /// The last one.
    pub last_ns: u64,
    /// Where the farthest operation ends, in bytes.
    pub span: u64,
    /// Which line or record that is.
    pub farthest: u64,
    /// The longest operation in bytes.
    pub largest: u64,
    /// Operations that stood after one with a later time.
    pub out_of_order: u64,
    /// The device, as the trace names it.
    pub device: Option<String>,
}

/// An operation, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    time_ns: u64,
    /// `None`: neither a read nor a write.
    direction: Option<Direction>,
    offset: u64,
    len: u64,
    device: &'a str,
}

impl Source {
    /// Opens a file; its format by its beginning where none is given.
    ///
    /// # Errors
    /// The file's, or that it has none of the formats.
    pub fn find(
        path: &Path,
        format: Option<Format>,
        event: Event,
        device: Option<String>,
    ) -> Result<Source, TraceError> {
        let path = path.to_owned();
        let failed = |what: String| TraceError::File { path: path.clone(), what };
        let mut file = BufReader::new(open(&path).map_err(|e| failed(e.to_string()))?);
        let format = match format {
            Some(format) => format,
            None => sniff(file.fill_buf().map_err(|e| failed(e.to_string()))?).ok_or_else(|| {
                failed("neither blktrace's, blkparse's, MSR's nor an iolog of fio's".into())
            })?,
        };
        Ok(Source { path, format, event, device })
    }
}

/// A regular file: it is read twice.
fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other("not a regular file: a trace is read twice"))
}

/// The format of a file that begins so.
fn sniff(begin: &[u8]) -> Option<Format> {
    if blktrace::order(begin).is_some() {
        return Some(Format::Blktrace);
    }
    let text = String::from_utf8_lossy(begin);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    if line.starts_with("fio version ") {
        return Some(Format::FioIolog);
    }
    // Before commas are counted: the name of a process may have some.
    if text::device(line.split_ascii_whitespace().next()?).is_some() {
        return Some(Format::Blkparse);
    }
    (line.split(',').count() == 7).then_some(Format::Msr)
}

/// Reads a trace to its end; `watch` sees how many operations there were so far, and ends it by `false`.
///
/// # Errors
/// What is wrong with it, and where.
pub fn survey(source: &Source, mut watch: impl FnMut(u64) -> bool) -> Result<Survey, TraceError> {
    let mut sorted = Sorted::open(source)?;
    let mut found = Survey::default();
    while let Some(op) = sorted.next_op()? {
        let all = found.reads + found.writes;
        if all == 0 {
            found.first_ns = op.time_ns;
        }
        *(if op.direction == Direction::Read { &mut found.reads } else { &mut found.writes }) += 1;
        found.last_ns = op.time_ns;
        found.bytes = found.bytes.saturating_add(op.len);
        found.largest = found.largest.max(op.len);
        let end = op.offset + op.len;
        if end > found.span {
            (found.span, found.farthest) = (end, op.number);
        }
        if all.is_multiple_of(1 << 16) && !watch(all) {
            break;
        }
    }
    (found.others, found.out_of_order, found.device) = sorted.ends();
    if found.reads + found.writes == 0 {
        let what = "it has neither reads nor writes".to_owned();
        return Err(TraceError::File { path: source.path.clone(), what });
    }
    Ok(found)
}

/// A target for a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Onto {
    /// Recorded times are divided by this.
    pub scale: f64,
    /// How offsets become the target's.
    pub mapping: Mapping,
    /// Bytes of the target.
    pub capacity: u64,
    /// Its blocks in bytes.
    pub block_size: u32,
    /// Its longest operation in bytes.
    pub largest: u32,
}

impl Trace {
    /// The trace that was surveyed, onto a target.
    ///
    /// # Errors
    /// What does not fit, with its line.
    pub fn new(source: Source, found: &Survey, onto: Onto) -> Result<Trace, TraceError> {
        let failed = |what: String| TraceError::File { path: source.path.clone(), what };
        let Onto { scale, mapping, capacity, block_size, largest } = onto;
        if !(1e-6..=1e6).contains(&scale) {
            return Err(failed(format!("a scale of {scale}: it is a millionth to a million")));
        }
        if block_size == 0 || u64::from(block_size) > capacity || largest < block_size {
            return Err(failed(format!("a target of {capacity} bytes in blocks of {block_size}")));
        }
        if found.largest > capacity {
            let largest = found.largest;
            return Err(failed(format!("an operation of {largest} bytes, and the target has {capacity}")));
        }
        let (first_ns, span) = (found.first_ns, found.span);
        let trace = Trace { source, scale, mapping, first_ns, span, capacity, block_size, largest };
        if mapping == Mapping::Fail {
            trace.place(span - 1, 1).map_err(|what| trace.source.at(found.farthest, what))?;
        }
        Ok(trace)
    }

    /// The plan of its replay: one stream, for as long as the trace is, `most_ns` at most, and as long again,
    /// 10 s at least, for what the target is behind.
    #[must_use]
    pub fn plan(&self, found: &Survey, most_ns: Option<u64>) -> Plan {
        let rw = match (found.reads, found.writes) {
            (_, 0) => Rw::RandRead,
            (0, _) => Rw::RandWrite,
            _ => Rw::RandRw,
        };
        let bs = u64::from(self.largest).min(found.largest).max(1) as u32;
        let bs = bs.div_ceil(self.block_size).saturating_mul(self.block_size).min(self.largest);
        let mut workload = Workload::new(rw, bs, self.capacity);
        workload.rwmixread =
            (u128::from(found.reads) * 100 / u128::from(found.reads + found.writes).max(1)) as u8;
        workload.trace = Some(Box::new(self.clone()));
        let runtime_ns = self.due_ns(found.last_ns).saturating_add(1);
        let runtime_ns = most_ns.map_or(runtime_ns, |most| runtime_ns.min(most));
        let mut plan = Plan::new(workload, Arrivals::Recorded { scale: self.scale }, runtime_ns);
        plan.slice_ns = (runtime_ns / 50).max(1_000);
        plan.drain_ns = runtime_ns.max(10_000_000_000);
        plan
    }

    /// When an operation is due that was recorded then.
    fn due_ns(&self, time_ns: u64) -> u64 {
        let since = time_ns.saturating_sub(self.first_ns);
        if self.scale == 1.0 { since } else { (since as f64 / self.scale) as u64 }
    }

    /// Where an operation goes on the target: its first byte and its bytes, in whole blocks.
    fn place(&self, offset: u64, len: u64) -> Result<(u64, u64), String> {
        let block = u64::from(self.block_size);
        let room = self.capacity - self.capacity % block;
        let begin = offset - offset % block;
        let end = offset.checked_add(len).and_then(|end| end.checked_next_multiple_of(block));
        let end = end.ok_or_else(|| format!("{len} bytes from {offset}: no device is so large"))?;
        let len = end - begin;
        if len > room || self.mapping == Mapping::Fail && end > room {
            return Err(format!("it ends at byte {end}, and the target has {}", self.capacity));
        }
        let begin = match self.mapping {
            Mapping::Fail => begin,
            Mapping::Wrap => begin % room,
            Mapping::Scale => {
                let span = u128::from(self.span.max(end));
                let begin = (u128::from(begin) * u128::from(room) / span) as u64;
                begin - begin % block
            }
        };
        Ok((begin.min(room - len), len))
    }
}

impl Source {
    fn at(&self, number: u64, what: String) -> TraceError {
        let unit = if self.format == Format::Blktrace { "record" } else { "line" };
        TraceError::At { path: self.path.clone(), unit, number, what }
    }
}
