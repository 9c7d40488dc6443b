//! The formats that are text, line by line.

use super::{Entry, Event, Format};
use crate::workload::Direction;

/// Reads the lines of one format.
pub struct Lines {
    format: Format,
    event: Event,
    /// Of fio's iolog; 0 before its first line.
    version: u8,
    /// Of an iolog of version 2.
    waited_ns: u64,
    /// blkparse's statistics have begun, which end the trace.
    over: bool,
    /// MSR's host and disk.
    device: String,
}

/// A sector of the block layer in bytes.
const SECTOR: u64 = 512;

impl Lines {
    pub fn new(format: Format, event: Event) -> Lines {
        Lines { format, event, version: 0, waited_ns: 0, over: false, device: String::new() }
    }

    /// The operation of a line; `None` where it has none.
    pub fn line<'a>(&'a mut self, line: &'a str) -> Result<Option<Entry<'a>>, String> {
        let line = line.trim();
        if line.is_empty() {
            return Ok(None);
        }
        match self.format {
            Format::FioIolog => self.iolog(line),
            Format::Msr => self.msr(line),
            Format::Blkparse | Format::Blktrace => self.blkparse(line),
        }
    }

    /// fio(1), "Trace file format v2" and "v3".
    fn iolog<'a>(&mut self, line: &'a str) -> Result<Option<Entry<'a>>, String> {
        if self.version == 0 {
            self.version = match line {
                "fio version 2 iolog" => 2,
                "fio version 3 iolog" => 3,
                _ => {
                    return Err(format!(
                        "{line:?} is not \"fio version 2 iolog\" or \"fio version 3 iolog\""
                    ));
                }
            };
            return Ok(None);
        }
        let mut words = line.split_ascii_whitespace();
        let time_ns = match self.version {
            3 => microseconds(words.next().unwrap_or_default(), 0)?,
            _ => self.waited_ns,
        };
        let (device, action) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (offset, len) = (words.next(), words.next());
        if words.next().is_some() {
            return Err("more words than a file, an action, an offset and a length".to_owned());
        }
        let direction = match action {
            "add" | "open" | "close" => return Ok(None),
            "wait" if self.version == 2 => {
                self.waited_ns = microseconds(offset.unwrap_or_default(), self.waited_ns)?;
                return Ok(None);
            }
            "wait" => return Err("version 3 has no wait".to_owned()),
            "read" => Some(Direction::Read),
            "write" => Some(Direction::Write),
            "trim" | "sync" | "datasync" | "sync_file_range" => None,
            other => return Err(format!("{other:?} is no action")),
        };
        let needed = |word: Option<&str>, what: &str| match (word, direction) {
            (None, None) => Ok(0),
            (word, _) => number(word.unwrap_or_default(), what),
        };
        let (offset, len) = (needed(offset, "offset")?, needed(len, "length")?);
        Ok(Some(Entry { time_ns, direction, offset, len, device }))
    }

    /// `timestamp,hostname,disk,type,offset,size,response`.
    fn msr(&mut self, line: &str) -> Result<Option<Entry<'_>>, String> {
        let mut fields = [""; 7];
        let mut parts = line.split(',');
        for field in &mut fields {
            *field = parts.next().ok_or("fewer than seven fields")?.trim();
        }
        if parts.next().is_some() {
            return Err("more than seven fields".to_owned());
        }
        let [ticks, host, disk, kind, offset, size, response] = fields;
        let ticks = number(ticks, "timestamp")?;
        let time_ns = ticks.checked_mul(100).ok_or_else(|| format!("a timestamp of {ticks}"))?;
        let direction = match kind {
            _ if kind.eq_ignore_ascii_case("read") => Direction::Read,
            _ if kind.eq_ignore_ascii_case("write") => Direction::Write,
            _ => return Err(format!("{kind:?} is neither Read nor Write")),
        };
        number(response, "response time")?;
        let (offset, len) = (number(offset, "offset")?, number(size, "size")?);
        // Made only where it changes: a trace is of one disk.
        if self.device.split_once('.') != Some((host, disk)) {
            self.device = format!("{host}.{disk}");
        }
        Ok(Some(Entry { time_ns, direction: Some(direction), offset, len, device: &self.device }))
    }

    /// blkparse(1), "Default output": device, CPU, sequence number, time, process, action, RWBS;
    /// of Q and D then the sector, `+` and the number of sectors.
    fn blkparse<'a>(&mut self, line: &'a str) -> Result<Option<Entry<'a>>, String> {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        // What stands at the end: counts of each CPU, of all, of events.
        self.over |= ["CPU", "Total", "Throughput", "Events"].iter().any(|word| name.starts_with(word));
        if self.over || line.starts_with("Input file ") {
            return Ok(None);
        }
        device(name).ok_or_else(|| format!("{name:?} is no device (major,minor)"))?;
        let mut field = |what: &str| words.next().ok_or_else(|| format!("it has no {what}"));
        number(field("CPU")?, "CPU")?;
        number(field("sequence number")?, "sequence number")?;
        let time_ns = seconds(field("time")?)?;
        field("process")?;
        let wanted = if self.event == Event::Queue { "Q" } else { "D" };
        if field("action")? != wanted {
            return Ok(None);
        }
        let rwbs = field("RWBS")?;
        let direction = match rwbs {
            _ if rwbs.contains('D') => None,
            _ if rwbs.contains('R') => Some(Direction::Read),
            _ if rwbs.contains('W') => Some(Direction::Write),
            _ => None,
        };
        let other = Entry { time_ns, direction: None, offset: 0, len: 0, device: name };
        // A flush has no sectors; a command for the device itself (N) has bytes in their place.
        let (Some(sector), Some("+"), Some(sectors)) = (words.next(), words.next(), words.next()) else {
            return Ok(Some(other));
        };
        let bytes = |word: &str, what: &str| {
            let sectors = number(word, what)?;
            sectors.checked_mul(SECTOR).ok_or_else(|| format!("{what} {sectors}: no device is so large"))
        };
        let (offset, len) = (bytes(sector, "sector")?, bytes(sectors, "number of sectors")?);
        Ok(Some(Entry { direction, offset, len, ..other }))
    }
}

/// `major,minor`.
pub fn device(word: &str) -> Option<(u32, u32)> {
    let (major, minor) = word.split_once(',')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn number(word: &str, what: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word:?} is no {what}"))
}

fn microseconds(word: &str, from_ns: u64) -> Result<u64, String> {
    let us = number(word, "time in microseconds")?;
    let ns = us.checked_mul(1_000).and_then(|ns| ns.checked_add(from_ns));
    ns.ok_or_else(|| format!("{us} microseconds do not fit"))
}

/// `seconds.nanoseconds`, nine digits.
fn seconds(word: &str) -> Result<u64, String> {
    let wrong = || format!("{word:?} is no time (seconds.nanoseconds)");
    let (whole, part) = word.split_once('.').filter(|(_, part)| part.len() == 9).ok_or_else(wrong)?;
    let (whole, part) = (whole.parse::<u64>(), part.parse::<u64>());
    let (Ok(whole), Ok(part)) = (whole, part) else { return Err(wrong()) };
    whole.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(part)).ok_or_else(wrong)
}
