//! A trace's operations by their time: of one device, put in order where they are a little out of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use super::blktrace::Records;
use super::text::Lines;
use super::{Entry, Format, Source, TraceError, open};
use crate::workload::Direction;

/// So many operations are held back to put them in order.
pub const WINDOW: usize = 16_384;
/// Bytes of a line at most.
const LONGEST_LINE: usize = 4096;

/// An operation that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    pub time_ns: u64,
    /// Of its line or record, from 1.
    pub number: u64,
    pub direction: Direction,
    pub offset: u64,
    /// At least 1; `offset + len` does not overflow.
    pub len: u64,
}

/// By time; those of one time as they stand in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Held(Op);

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0.time_ns, self.0.number).cmp(&(other.0.time_ns, other.0.number))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

enum Parser {
    Text(Lines, Vec<u8>),
    Binary(Records),
}

/// Reads the operations of a trace.
pub struct Sorted {
    source: Source,
    from: BufReader<File>,
    parser: Parser,
    /// Lines or records so far.
    number: u64,
    /// The first device that was seen.
    device: Option<String>,
    held: BinaryHeap<Reverse<Held>>,
    ended: bool,
    /// The latest time that was read, and that was given.
    read_ns: u64,
    given_ns: u64,
    others: u64,
    out_of_order: u64,
}

impl Sorted {
    pub fn open(source: &Source) -> Result<Sorted, TraceError> {
        let failed = |e: std::io::Error| TraceError::File { path: source.path.clone(), what: e.to_string() };
        let from = BufReader::with_capacity(1 << 17, open(&source.path).map_err(failed)?);
        let parser = match source.format {
            Format::Blktrace => Parser::Binary(Records::new(source.event)),
            text => Parser::Text(Lines::new(text, source.event), Vec::new()),
        };
        Ok(Sorted {
            source: source.clone(),
            from,
            parser,
            number: 0,
            device: None,
            held: BinaryHeap::new(),
            ended: false,
            read_ns: 0,
            given_ns: 0,
            others: 0,
            out_of_order: 0,
        })
    }

    /// At the end: operations passed over, operations out of order, the device.
    pub fn ends(self) -> (u64, u64, Option<String>) {
        (self.others, self.out_of_order, self.device)
    }

    /// The next operation by time.
    pub fn next_op(&mut self) -> Result<Option<Op>, TraceError> {
        while !self.ended && self.held.len() < WINDOW {
            match self.read()? {
                Some(op) => {
                    self.out_of_order += u64::from(op.time_ns < self.read_ns);
                    self.read_ns = self.read_ns.max(op.time_ns);
                    if op.time_ns < self.given_ns {
                        let what = format!(
                            "its time is {} ns before that of an operation more than {WINDOW} before it",
                            self.given_ns - op.time_ns
                        );
                        return Err(self.source.at(op.number, what));
                    }
                    self.held.push(Reverse(Held(op)));
                }
                None => self.ended = true,
            }
        }
        let next = self.held.pop().map(|Reverse(Held(op))| op);
        self.given_ns = next.map_or(self.given_ns, |op| op.time_ns);
        Ok(next)
    }

    /// The next operation that counts, as it stands in the file.
    fn read(&mut self) -> Result<Option<Op>, TraceError> {
        loop {
            self.number += 1;
            let number = self.number;
            let entry = match &mut self.parser {
                Parser::Binary(records) => {
                    match records.next(&mut self.from).map_err(|what| self.source.at(number, what))? {
                        Some(entry) => entry,
                        None => return Ok(None),
                    }
                }
                Parser::Text(lines, buffer) => {
                    let line = line(&mut self.from, buffer).map_err(|what| self.source.at(number, what))?;
                    let Some(line) = line else { return Ok(None) };
                    lines.line(line).map_err(|what| self.source.at(number, what))?
                }
            };
            let Some(entry) = entry else { continue };
            let wanted = accept(&self.source, &mut self.device, &entry);
            if !wanted.map_err(|what| self.source.at(number, what))? {
                continue;
            }
            let Entry { time_ns, offset, len, .. } = entry;
            let Some(direction) = entry.direction.filter(|_| len > 0) else {
                self.others += 1;
                continue;
            };
            if offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
                let what = format!("{len} bytes from {offset}: no device is so large");
                return Err(self.source.at(number, what));
            }
            return Ok(Some(Op { time_ns, number, direction, offset, len }));
        }
    }
}

/// Whether an operation is of the device that counts.
fn accept(source: &Source, seen: &mut Option<String>, entry: &Entry<'_>) -> Result<bool, String> {
    if source.device.as_deref().is_some_and(|device| device != entry.device) {
        return Ok(false);
    }
    match seen.as_deref() {
        Some(device) if device == entry.device => Ok(true),
        Some(first) => Err(format!(
            "it is of {}, and the trace began with {first}: say which device counts",
            entry.device
        )),
        None => {
            *seen = Some(entry.device.to_owned());
            Ok(true)
        }
    }
}

/// The next line, without trust in its length or its bytes.
fn line<'a>(from: &mut impl BufRead, buffer: &'a mut Vec<u8>) -> Result<Option<&'a str>, String> {
    buffer.clear();
    let most = LONGEST_LINE as u64 + 1;
    from.take(most).read_until(b'\n', buffer).map_err(|e| e.to_string())?;
    if buffer.len() > LONGEST_LINE {
        return Err(format!("it is longer than {LONGEST_LINE} bytes"));
    }
    if buffer.is_empty() {
        return Ok(None);
    }
    // The name of a process may be any bytes.
    buffer.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
    std::str::from_utf8(buffer).map(Some).map_err(|e| e.to_string())
}
