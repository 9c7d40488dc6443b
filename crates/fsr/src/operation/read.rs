//! The bytes of a range.

use nearside_ndp::Flow;
use nearside_near_data::{Cursor, Failure, Record};

use super::{ByteOperation, Ended, Job};
use crate::media::Media;
use crate::model::Sink;

/// Reads files.
pub(crate) struct ReadFiles {
    offset: u64,
    len: u64,
    /// Whether the record of the file at hand is written.
    named: bool,
    /// Its first byte that is not.
    next: u64,
}

impl ReadFiles {
    pub(crate) fn new(offset: u64, len: u64) -> ReadFiles {
        ReadFiles { offset, len, named: false, next: 0 }
    }
}

impl ByteOperation for ReadFiles {
    fn range(&self, size: u64, at: &Cursor) -> (u64, u64) {
        let from = at.offset.max(self.offset).min(size);
        (from, self.offset.saturating_add(self.len).clamp(from, size))
    }

    fn begin<S: Sink>(&mut self, job: &Job<'_, S>) {
        (self.named, self.next) = (false, job.at.offset.max(self.offset));
    }

    fn piece(&self) -> usize {
        64 << 10
    }

    async fn take<M: Media, S: Sink>(
        &mut self,
        _media: &M,
        job: &mut Job<'_, S>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        if !self.named {
            if !job.file() {
                return Ok(Flow::Full);
            }
            self.named = true;
        }
        let n = job.room().min(bytes.len());
        if n == 0 || !job.push(Record::Data { offset, bytes: bytes[..n].into() }) {
            return Ok(Flow::Full);
        }
        self.next = offset + n as u64;
        Ok(if n < bytes.len() { Flow::Full } else { Flow::More })
    }

    async fn finish<M: Media, S: Sink>(
        &mut self,
        _media: &M,
        job: &mut Job<'_, S>,
        flow: Flow,
    ) -> Result<Ended, Failure> {
        Ok(match flow == Flow::Full || !self.named && !job.file() {
            true => Ended::Full(Cursor { offset: self.next, ..Cursor::default() }),
            false => Ended::Done,
        })
    }
}
