//! A list of paths, each answered as if it were asked about alone. Those that the caches know the way to are
//! answered many under one lock; where one needs more than that, it is located as a single path is.

use nearside_near_data::{Cursor, Failure, MAX_PATH, Operation, Paths, Record};

use super::{Came, Continuation, Out, Run, Work, too_small};
use crate::at_once::at_hand;
use crate::crawler::Warm;
use crate::media::Media;
use crate::model::{Full, Sink, entry};
use crate::operation::Ended;
use crate::trace::TracePart;

/// Paths that are answered under one lock: a few microseconds' work.
const TOGETHER: usize = 16;
/// Bytes of a cursor that says with which path to go on.
const PLACE: usize = 4;

/// What became of some that are known.
enum Next<'p> {
    /// All are answered.
    Ended,
    /// It is that one's turn.
    More(usize, &'p [u8]),
    /// And it wants to be located.
    Unknown(usize, &'p [u8]),
    /// And there is no room for its answer.
    Full(usize),
}

impl<M: Media> Run<'_, M> {
    pub(super) async fn paths<S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        paths: &Paths,
    ) -> Result<Continuation, Failure> {
        if !self.request.operation.kind().brief {
            return Err(Failure::InvalidRequest("the operation needs one path".to_owned()));
        }
        let first = match &self.request.resume {
            Some(cursor) => place(cursor, paths.len())?,
            None => 0,
        };
        let mut rest = paths.iter().enumerate().skip(first);
        let mut warm = Warm::default();
        let Some(mut at) = rest.next() else { return Ok(None) };
        loop {
            let full = match self.known(out, at, &mut rest, &mut warm).await {
                Next::Ended => return Ok(None),
                Next::More(nth, path) => {
                    at = (nth, path);
                    None
                }
                Next::Full(nth) => Some(nth),
                Next::Unknown(nth, path) => match self.unknown(out, path).await {
                    Err(Full) => Some(nth),
                    Ok(()) => match rest.next() {
                        None => return Ok(None),
                        Some(next) => {
                            at = next;
                            None
                        }
                    },
                },
            };
            if let Some(nth) = full {
                if out.sink.mark().1 == 0 {
                    return Err(too_small());
                }
                let places = u32::try_from(nth).unwrap_or(u32::MAX).to_le_bytes().to_vec();
                return Ok(Some(Cursor { places, ..Cursor::default() }));
            }
            self.media.yield_now().await;
        }
    }

    /// Answers those that the caches know the way to, some of them, from `at` on.
    async fn known<'p, S: Sink>(
        &self,
        out: &mut Out<'_, S>,
        at: (usize, &'p [u8]),
        rest: &mut impl Iterator<Item = (usize, &'p [u8])>,
        warm: &mut Warm<'p>,
    ) -> Next<'p> {
        let (mut nth, mut path) = at;
        if !matches!(self.request.operation, Operation::Stat | Operation::Nop) {
            return Next::Unknown(nth, path);
        }
        let start = self.media.now_ns();
        let _span = self.tally.span(TracePart::Locate, 1);
        let monitor = &self.retriever.monitor;
        let since = monitor.changes();
        let Ok(volume) = self.volume().await else { return Next::Unknown(nth, path) };
        let crawler = self.crawler(&volume);
        let stat = matches!(out.work, Work::Stat);
        let how = (self.request.follow, !stat);
        let mut hits = 0;
        warm.walked = 0;
        let mut next = Next::Ended;
        {
            let mut caches = self.retriever.caches();
            for n in 1.. {
                // The volume is at that state, and what the caches have was looked at then or is by now.
                let known = match monitor.changes() == since {
                    true => crawler.known(&mut caches, path, how, since, warm, &mut hits),
                    false => None,
                };
                let Some(answer) = known.and_then(|reached| at_hand(reached, stat)) else {
                    next = Next::Unknown(nth, path);
                    break;
                };
                let mark = out.sink.mark();
                let pushed = match answer {
                    Some(inode) => out.sink.push(entry(b"", inode, None), PLACE),
                    None => Ok(()),
                };
                if pushed.and_then(|()| out.sink.push(Record::Answered(None), PLACE)).is_err() {
                    out.sink.rollback(mark);
                    next = Next::Full(nth);
                    break;
                }
                out.counters.files += 1;
                let Some(following) = rest.next() else { break };
                (nth, path) = following;
                if n >= TOGETHER || warm.walked >= MAX_PATH {
                    next = Next::More(nth, path);
                    break;
                }
            }
        }
        crate::view::bump(&self.tally.hits, hits);
        out.counters.locate_ns += self.media.now_ns().saturating_sub(start);
        next
    }

    /// Answers one as if it were alone.
    async fn unknown<S: Sink>(&self, out: &mut Out<'_, S>, path: &[u8]) -> Result<(), Full> {
        let mark = out.sink.mark();
        let failure = match self.located(out, path, b"", &Cursor::default()).await {
            Ok(Came::Ended(Ended::Done) | Came::Directory(_)) => None,
            Ok(Came::Ended(Ended::Full(_))) => {
                out.sink.rollback(mark);
                return Err(Full);
            }
            Err(failure) => {
                out.sink.rollback(mark);
                Some(failure)
            }
        };
        let pushed = out.sink.push(Record::Answered(failure), PLACE);
        if pushed.is_err() {
            out.sink.rollback(mark);
        }
        pushed
    }
}

/// With which of so many paths a cursor goes on.
fn place(cursor: &Cursor, paths: usize) -> Result<usize, Failure> {
    let place = <[u8; PLACE]>::try_from(&cursor.places[..]).ok();
    let nth = place.and_then(|bytes| usize::try_from(u32::from_le_bytes(bytes)).ok());
    let whole = Cursor { places: cursor.places.clone(), ..Cursor::default() };
    nth.filter(|nth| *nth < paths && *cursor == whole)
        .ok_or_else(|| Failure::InvalidRequest("a cursor that no reply gives".to_owned()))
}
