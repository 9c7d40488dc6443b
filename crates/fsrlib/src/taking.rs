//! Replies to several asks, taken as they come: one ask's, or a list's.

use std::ops::ControlFlow;
use std::sync::Arc;

use nearside_near_data::{Counters, Cursor, Record, wire};
use nearside_spec::Status;

use crate::lists::of_path;
use crate::session::{Seen, SinkOfEach, add, on_from};
use crate::{Ask, Error};

/// How several asks go on.
pub(crate) enum Then {
    /// They do not.
    Ended,
    /// From that place on, as they began.
    Again,
    /// With the one at that place alone, from there on.
    Alone(Option<Cursor>),
}

/// Where it is.
pub(crate) struct Taking<'a> {
    asks: &'a [Ask],
    /// The place of the ask whose answer comes next.
    pub nth: usize,
    pub then: Then,
    /// Whether lists were answered.
    pub knows_lists: bool,
    pub bytes_in: u64,
    counters: &'a mut Counters,
    seen: Arc<Seen>,
    sink: SinkOfEach<'a>,
}

impl<'a> Taking<'a> {
    pub(crate) fn new(
        asks: &'a [Ask],
        nth: usize,
        counters: &'a mut Counters,
        seen: Arc<Seen>,
        sink: SinkOfEach<'a>,
    ) -> Self {
        Taking { asks, nth, then: Then::Ended, knows_lists: true, bytes_in: 0, counters, seen, sink }
    }

    /// Takes the reply to a command about so many. Whether the next is wanted.
    pub(crate) fn take(
        &mut self,
        answer: Result<&[u8], Error>,
        about: usize,
    ) -> Result<ControlFlow<()>, Error> {
        match answer {
            Ok(bytes) => {
                self.bytes_in += bytes.len() as u64;
                if about > 1 { self.list(bytes, about) } else { self.one(bytes) }
            }
            // A drive that is older than lists of paths.
            Err(Error::Nvme { status, .. }) if about > 1 && status.code() == Status::INVALID_FIELD.code() => {
                (self.knows_lists, self.then) = (false, Then::Again);
                Ok(ControlFlow::Break(()))
            }
            Err(error) => Err(error),
        }
    }

    fn count(&mut self, counters: &Counters) {
        self.seen.add(counters.files, counters.bytes_scanned);
        add(self.counters, counters);
    }

    fn list(&mut self, bytes: &[u8], about: usize) -> Result<ControlFlow<()>, Error> {
        let mut left = about;
        let reply = wire::each_record(bytes, |record| match record {
            // What a drive says beyond what it was asked.
            _ if left == 0 => ControlFlow::Continue(()),
            Record::Answered(failure) => {
                let nth = self.nth;
                (self.nth, left) = (nth + 1, left - 1);
                failure.map_or(ControlFlow::Continue(()), |failure| (self.sink)(nth, Err(failure)))
            }
            record => (self.sink)(self.nth, Ok(of_path(record, &self.asks[self.nth]))),
        });
        let ControlFlow::Continue(reply) = reply.map_err(form)? else { return Ok(ControlFlow::Break(())) };
        self.count(&reply.counters);
        if left == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        // What had no room is asked about by another list. Where there is nothing that a list has an answer
        // for, they are asked about alone.
        self.knows_lists = left < about;
        self.then = if self.knows_lists { Then::Again } else { Then::Alone(None) };
        Ok(ControlFlow::Break(()))
    }

    fn one(&mut self, bytes: &[u8]) -> Result<ControlFlow<()>, Error> {
        let reply = wire::decode_reply(bytes).map_err(form)?;
        self.count(&reply.counters);
        let any = !reply.records.is_empty();
        for record in reply.records {
            if (self.sink)(self.nth, Ok(record)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        match on_from(any, reply.failure, reply.more) {
            Ok(None) => {}
            Ok(resume) => {
                self.then = Then::Alone(resume);
                return Ok(ControlFlow::Break(()));
            }
            Err(Error::Refused(failure)) if (self.sink)(self.nth, Err(failure.clone())).is_break() => {
                return Ok(ControlFlow::Break(()));
            }
            Err(Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        self.nth += 1;
        Ok(ControlFlow::Continue(()))
    }
}

pub(crate) fn form(error: wire::WireError) -> Error {
    Error::Form { what: "reply", reason: error.to_string() }
}
