//! Whole lines that may become context before a match.

use std::collections::VecDeque;

use crate::MAX_HISTORY;
use crate::hay::Hay;

/// Stretches are joined up to this length, so that they are few, and no longer, so that none is moved.
const STRETCH: usize = 64 << 10;

/// Lines that were not delivered, up to the place where the search is.
#[derive(Debug, Default)]
pub(crate) struct History {
    stretches: VecDeque<Stretch>,
    bytes: usize,
    lines: u64,
}

#[derive(Debug)]
struct Stretch {
    bytes: Vec<u8>,
    lines: u64,
}

impl History {
    pub(crate) fn clear(&mut self) {
        self.stretches.clear();
        (self.bytes, self.lines) = (0, 0);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// Adds a piece's last lines, of which `wanted` are.
    pub(crate) fn add(&mut self, hay: Hay<'_>, delivered: usize, wanted: u32) {
        /// Fewer lines are looked for one by one.
        const FEW: u32 = 32;
        let mut from = delivered;
        if wanted <= FEW {
            let mut at = hay.len();
            for _ in 0..wanted {
                if at > delivered {
                    at = hay.previous_line(at).max(delivered);
                }
            }
            from = at;
        }
        let bytes = hay.get(from, hay.len());
        let lines = Hay::lines(bytes).newlines(0, bytes.len()) + u64::from(Hay::lines(bytes).is_open());
        if bytes.is_empty() {
            return;
        }
        (self.bytes, self.lines) = (self.bytes + bytes.len(), self.lines + lines);
        match self.stretches.back_mut() {
            Some(last) if last.bytes.len() + bytes.len() <= STRETCH => {
                last.bytes.extend_from_slice(bytes);
                last.lines += lines;
            }
            _ => self.stretches.push_back(Stretch { bytes: bytes.to_vec(), lines }),
        }
        self.trim(wanted);
    }

    /// Adds one line, however long.
    pub(crate) fn add_line(&mut self, line: Vec<u8>, wanted: u32) {
        (self.bytes, self.lines) = (self.bytes + line.len(), self.lines + 1);
        self.stretches.push_back(Stretch { bytes: line, lines: 1 });
        self.trim(wanted);
    }

    /// Drops what nobody will want, a stretch at a time.
    fn trim(&mut self, wanted: u32) {
        while let Some(first) = self.stretches.front()
            && (self.bytes > MAX_HISTORY || self.lines - first.lines >= u64::from(wanted))
        {
            (self.bytes, self.lines) = (self.bytes - first.bytes.len(), self.lines - first.lines);
            self.stretches.pop_front();
        }
    }

    /// The stretches with the last `wanted` lines: how many lines to skip in the first, and each as bytes and
    /// its lines.
    pub(crate) fn last(&self, wanted: u64) -> (u64, impl Iterator<Item = (&[u8], u64)>) {
        let skip = self.lines.saturating_sub(wanted);
        (skip, self.stretches.iter().map(|s| (s.bytes.as_slice(), s.lines)))
    }
}
