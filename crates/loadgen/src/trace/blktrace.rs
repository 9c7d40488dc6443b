//! blktrace's records, as the kernel writes them (`struct blk_io_trace`, include/uapi/linux/blktrace_api.h):
//!
//! ```text
//!  0 magic     u32   0x65617400 and the version, 7: in the byte order of the machine
//!  4 sequence  u32
//!  8 time      u64   nanoseconds
//! 16 sector    u64
//! 24 bytes     u32
//! 28 action    u32   the event in the lower half, what kind of operation in the upper
//! 32 pid       u32
//! 36 device    u32   major << 20 | minor
//! 40 cpu       u32
//! 44 error     u16
//! 46 pdu_len   u16   bytes that follow
//! ```

use std::io::{self, BufRead, Read};

use super::{Entry, Event};
use crate::workload::Direction;

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const SIZE: usize = 48;
/// Bits of the upper half of an action.
const WRITE: u32 = 1 << 1;
const DISCARD: u32 = 1 << 13;
const PC: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
/// Its lower half.
const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
/// Set in the lower half of what a control group's trace says.
const CGROUP: u32 = 1 << 8;

/// How a file that begins so stores its numbers: whether the least byte comes first.
pub fn order(begin: &[u8]) -> Option<bool> {
    let magic: [u8; 4] = begin.get(..4)?.try_into().ok()?;
    let is = |word: u32| word & 0xffff_ff00 == MAGIC;
    match (is(u32::from_le_bytes(magic)), is(u32::from_be_bytes(magic))) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

/// Reads records.
pub struct Records {
    event: Event,
    least_first: bool,
    /// The device of the last record, and its name.
    device: (u32, String),
}

/// One record's numbers.
struct Record([u8; SIZE], bool);

impl Record {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        if !self.1 {
            bytes.reverse();
        }
        bytes
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }
}

impl Records {
    pub fn new(event: Event) -> Records {
        Records { event, least_first: true, device: (0, "0,0".to_owned()) }
    }

    /// The next record's operation, `Some(None)` where it has none; `None` at the end.
    pub fn next<'a>(&'a mut self, from: &mut impl BufRead) -> Result<Option<Option<Entry<'a>>>, String> {
        let mut bytes = [0; SIZE];
        match whole(from, &mut bytes).map_err(|e| e.to_string())? {
            0 => return Ok(None),
            SIZE => {}
            some => return Err(format!("the file ends after {some} of its {SIZE} bytes")),
        }
        self.least_first = order(&bytes).ok_or("it does not begin with blktrace's magic number")?;
        let record = Record(bytes, self.least_first);
        let version = record.u32(0) & 0xff;
        if version != VERSION {
            return Err(format!("version {version} of blktrace's records, not {VERSION}"));
        }
        let pdu = u64::from(record.u16(46));
        let skipped = io::copy(&mut from.take(pdu), &mut io::sink()).map_err(|e| e.to_string())?;
        if skipped != pdu {
            return Err(format!("the file ends after {skipped} of the {pdu} bytes that follow it"));
        }
        let action = record.u32(28);
        let (event, kind) = (action & 0xffff & !CGROUP, action >> 16);
        let wanted = if self.event == Event::Queue { QUEUE } else { ISSUE };
        if kind & NOTIFY != 0 || event != wanted {
            return Ok(Some(None));
        }
        let device = record.u32(36);
        if device != self.device.0 {
            self.device = (device, format!("{},{}", device >> 20, device & 0xf_ffff));
        }
        let direction = match kind {
            _ if kind & (DISCARD | PC) != 0 => None,
            _ if kind & WRITE != 0 => Some(Direction::Write),
            _ => Some(Direction::Read),
        };
        let sector = record.u64(16);
        let len = u64::from(record.u32(24));
        // A flush has no sectors, and all ones for the first.
        let direction = direction.filter(|_| len > 0);
        let offset = match direction {
            None => 0,
            Some(_) => {
                sector.checked_mul(512).ok_or_else(|| format!("sector {sector}: no device is so large"))?
            }
        };
        Ok(Some(Some(Entry { time_ns: record.u64(8), direction, offset, len, device: &self.device.1 })))
    }
}

/// Reads until the buffer is full or the file ends; how many bytes.
fn whole(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
