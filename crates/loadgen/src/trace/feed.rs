//! Operations of a trace for a generator: read ahead on a thread, so that no start waits for the file.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::sorted::Sorted;
use super::{Trace, TraceError};
use crate::workload::Direction;

/// Operations that travel together.
const PIECE: usize = 1024;
/// Such pieces that are ready at most.
const AHEAD: usize = 16;

/// An operation on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it is due, in nanoseconds from the begin.
    pub due_ns: u64,
    /// Which way.
    pub direction: Direction,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

type Piece = Result<Vec<Arrival>, TraceError>;

/// The operations of a trace, one after another.
#[derive(Debug)]
pub struct Feed {
    pieces: Receiver<Piece>,
    piece: std::vec::IntoIter<Arrival>,
    error: Option<TraceError>,
}

impl Feed {
    /// Opens the file and begins to read ahead.
    ///
    /// # Errors
    /// The file's; the system's, which has no thread.
    pub fn open(trace: &Trace) -> Result<Feed, TraceError> {
        let sorted = Sorted::open(&trace.source)?;
        let (to, pieces) = sync_channel(AHEAD);
        let of = trace.clone();
        let spawned = thread::Builder::new().name("trace".into()).spawn(move || {
            if let Err(error) = read(&of, sorted, &to) {
                // Nobody is there any more where the run has ended before.
                let _ = to.send(Err(error));
            }
        });
        let failed = |what: String| TraceError::File { path: trace.source.path.clone(), what };
        spawned.map_err(|e| failed(format!("no thread to read it: {e}")))?;
        Ok(Feed { pieces, piece: Vec::new().into_iter(), error: None })
    }

    /// The next operation; `None` at the end, or at an error ([`Feed::error`]).
    #[inline]
    pub fn take(&mut self) -> Option<Arrival> {
        if let Some(arrival) = self.piece.next() {
            return Some(arrival);
        }
        match self.pieces.recv() {
            Ok(Ok(piece)) => self.piece = piece.into_iter(),
            Ok(Err(error)) => self.error = Some(error),
            // The thread has read all.
            Err(_) => {}
        }
        self.piece.next()
    }

    /// What ended it before its end.
    #[must_use]
    pub fn error(&self) -> Option<&TraceError> {
        self.error.as_ref()
    }
}

fn read(trace: &Trace, mut sorted: Sorted, to: &SyncSender<Piece>) -> Result<(), TraceError> {
    let mut piece = Vec::with_capacity(PIECE);
    while let Some(op) = sorted.next_op()? {
        let place = trace.place(op.offset, op.len).map_err(|what| trace.source.at(op.number, what))?;
        let (mut offset, mut left) = place;
        let due_ns = trace.due_ns(op.time_ns);
        while left > 0 {
            let len = left.min(u64::from(trace.largest - trace.largest % trace.block_size));
            piece.push(Arrival { due_ns, direction: op.direction, offset, len: len as u32 });
            (offset, left) = (offset + len, left - len);
            if piece.len() == PIECE
                && to.send(Ok(std::mem::replace(&mut piece, Vec::with_capacity(PIECE)))).is_err()
            {
                return Ok(());
            }
        }
    }
    let _ = to.send(Ok(piece));
    Ok(())
}
