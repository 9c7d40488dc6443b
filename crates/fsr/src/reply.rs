//! An answer as the bytes of a reply: what the drive's firmware sends, and a host that does as the drive
//! does.

use nearside_near_data::wire::ReplyWriter;
use nearside_near_data::{Counters, Failure, MAX_PATH, Record};

use crate::model::{Full, Mark, Outcome, Sink};

/// Bytes in which the header and a record about one file have room.
const SHORT: usize = 768;

/// Writes records as the reply's bytes.
pub struct WireSink {
    writer: Option<ReplyWriter>,
    room: usize,
    /// The user that the drive took the caller for.
    squashed: Option<String>,
}

impl WireSink {
    /// A reply of at most `room` bytes; a permission denied says `squashed`.
    pub fn new(room: usize, squashed: Option<String>) -> WireSink {
        let begun = Vec::with_capacity(room.min(SHORT));
        WireSink { writer: ReplyWriter::new(begun, room), room, squashed }
    }

    fn failure(&self, failure: Failure) -> Failure {
        match (failure, &self.squashed) {
            (Failure::PermissionDenied, Some(whom)) => Failure::DeniedAs(whom.clone()),
            (failure, _) => failure,
        }
    }

    /// The reply to a request that is not run.
    pub fn refuse(self, why: &Failure) -> Vec<u8> {
        let finished = self.writer.and_then(|w| w.finish(Some(why), &Counters::default(), None).ok());
        finished.unwrap_or_default()
    }

    /// Bytes to keep for a cursor: at this path, or at whichever path comes next and finds no room. That one
    /// may be longer: where the buffer is not small, the longest there is has room.
    fn reserve(&self, path_len: usize) -> usize {
        ReplyWriter::cursor_len(path_len.max(MAX_PATH.min(self.room / 4)))
    }

    /// The reply.
    pub fn finish(self, outcome: Outcome) -> Vec<u8> {
        let Outcome { failure, counters, more } = outcome;
        let failure = failure.map(|failure| self.failure(failure));
        let Some(writer) = self.writer else { return Vec::new() };
        writer.finish(failure.as_ref(), &counters, more.as_ref()).unwrap_or_else(|_| {
            let failure = Failure::InvalidRequest("the buffer is too small for a cursor".to_owned());
            let empty = ReplyWriter::new(Vec::new(), self.room);
            empty.and_then(|w| w.finish(Some(&failure), &counters, None).ok()).unwrap_or_default()
        })
    }
}

impl Sink for WireSink {
    fn push(&mut self, mut record: Record<'_>, path_len: usize) -> Result<(), Full> {
        let reserve = self.reserve(path_len);
        if let Record::Failed { failure, .. } = &mut record {
            *failure = self.failure(failure.clone());
        }
        let Some(writer) = &mut self.writer else { return Err(Full) };
        writer.push(&record, reserve).map_err(|_| Full)
    }

    fn room(&self, path_len: usize) -> usize {
        self.writer.as_ref().map_or(0, |w| w.room_for_bytes(self.reserve(path_len)))
    }

    fn mark(&self) -> Mark {
        self.writer.as_ref().map_or(Mark(0, 0), |w| {
            let (len, records) = w.mark();
            Mark(len, records)
        })
    }

    fn rollback(&mut self, mark: Mark) {
        if let Some(writer) = &mut self.writer {
            writer.rollback((mark.0, mark.1));
        }
    }
}
