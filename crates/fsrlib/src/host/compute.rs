//! The operation on the host: data blocks come by ordinary reads and go through the same code that the drive runs.

use std::ops::ControlFlow;
use std::sync::Arc;

use nearside_fsview::Inode;
use nearside_ndp as ndp;
use nearside_spec::near_data::{Answer, Counters, Digest, Operation, Record, ReplyStatus, Search};

use super::Totals;
use super::locate::{Located, Range};
use crate::session::Session;
use crate::{Error, Transport};

/// Bytes read at once.
const PIECE: u64 = 256 * 1024;

/// The compiled form of an operation, kept over the files of one request.
pub enum Engine {
    /// A search.
    Search(Box<ndp::Searcher>, Search),
    /// Lines, words, bytes.
    Count(ndp::Counter),
    /// A checksum.
    Checksum(ndp::Checksum, Digest),
    /// Bytes of a range.
    Read(u64, u64),
    /// Nothing: the file was located.
    Nop,
}

impl Engine {
    /// Compiles an operation.
    pub fn new(operation: &Operation) -> Result<Engine, Error> {
        Ok(match operation {
            Operation::Search(search) => {
                let compiled = ndp::Search::compile(options(search))
                    .map_err(|e| Error::Refused(ReplyStatus::InvalidPattern(e.to_string())))?;
                Engine::Search(Box::new(ndp::Searcher::new(&Arc::new(compiled))), search.clone())
            }
            Operation::Count => Engine::Count(ndp::Counter::default()),
            Operation::Checksum(kind) => Engine::Checksum(ndp::Checksum::new(digest(*kind)), *kind),
            Operation::Read { offset, len } => Engine::Read(*offset, *len),
            Operation::Nop => Engine::Nop,
            Operation::Info | Operation::List | Operation::Stat | Operation::Map => {
                let why = "the host computes over a file's bytes; the drive lists and describes files";
                return Err(Error::Unsupported(why.into()));
            }
        })
    }
}

/// The options of ndp that a search means.
pub fn options(search: &Search) -> ndp::SearchOptions {
    ndp::SearchOptions {
        patterns: search.patterns.clone(),
        fixed: search.fixed,
        bytes: search.bytes,
        ignore_case: search.ignore_case,
        invert: search.invert,
        word: search.word,
        line: search.line,
        answer: match search.answer {
            Answer::Lines => ndp::Answer::Lines,
            Answer::Matches => ndp::Answer::Matches,
            Answer::Count | Answer::Total => ndp::Answer::Count,
            Answer::Files => ndp::Answer::First,
        },
        max_count: search.max_count,
        before: search.before,
        after: search.after,
        text: search.text,
        numbers: search.numbers,
    }
}

fn digest(kind: Digest) -> ndp::Digest {
    match kind {
        Digest::Crc32c => ndp::Digest::Crc32c,
        Digest::Xxh3 => ndp::Digest::Xxh3,
        Digest::Sha256 => ndp::Digest::Sha256,
    }
}

/// A file of a volume, and how to read it.
pub struct Bytes<'a, T> {
    /// Where the commands go.
    pub session: &'a mut Session<T>,
    /// The volume's first byte in the namespace.
    pub base: u64,
    /// The file's size.
    pub size: u64,
    /// Where its bytes are.
    pub located: &'a Located,
}

impl<T: Transport> Bytes<'_, T> {
    /// Reads pieces in order until `take` breaks.
    fn each(
        &mut self,
        counters: &mut Counters,
        mut take: impl FnMut(&[u8]) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let ranges = match self.located {
            Located::Inline(bytes) => {
                counters.bytes_scanned = counters.bytes_scanned.saturating_add(bytes.len() as u64);
                let _ = take(bytes)?;
                return Ok(());
            }
            Located::Ranges(ranges) => ranges,
        };
        let mut left = self.size;
        for Range { at, len } in ranges {
            let mut done = 0;
            while done < *len && left > 0 {
                let n = PIECE.min(*len - done).min(left);
                let piece = match at {
                    Some(at) => self.session.read_bytes(self.base + at + done, n as usize)?,
                    None => vec![0; n as usize],
                };
                counters.bytes_scanned = counters.bytes_scanned.saturating_add(n);
                if take(&piece)?.is_break() {
                    return Ok(());
                }
                done += n;
                left -= n;
            }
        }
        Ok(())
    }
}

/// Collects what a search finds, piece by piece.
#[derive(Default)]
struct Found {
    records: Vec<Record>,
}

impl ndp::Sink for Found {
    fn line(&mut self, line: ndp::Line<'_>) -> ndp::Taken {
        self.records.push(Record::Line {
            number: line.number,
            offset: line.offset,
            bytes: line.bytes.to_vec(),
            context: line.context,
            continues: false,
        });
        ndp::Taken::Yes
    }

    fn binary(&mut self) -> ndp::Taken {
        self.records.push(Record::BinaryMatches);
        ndp::Taken::Yes
    }
}

/// One file of an operation: its [`Record::File`] and what was computed.
pub(crate) fn compute<T: Transport>(
    engine: &mut Engine,
    mut bytes: Bytes<'_, T>,
    path: &[u8],
    inode: &Inode,
    counters: &mut Counters,
    totals: &mut Totals,
    sink: &mut impl FnMut(Record) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let file = Record::File { path: path.to_vec(), size: inode.size };
    match engine {
        Engine::Nop => Ok(sink(file)),
        Engine::Count(counter) => {
            counter.begin();
            bytes.each(counters, |piece| {
                counter.feed(piece);
                Ok(ControlFlow::Continue(()))
            })?;
            let c = counter.counted();
            Ok(all(sink, [file, Record::Count { lines: c.lines, words: c.words, bytes: c.bytes }]))
        }
        Engine::Checksum(sum, kind) => {
            sum.begin();
            bytes.each(counters, |piece| {
                sum.feed(piece);
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(all(sink, [file, Record::Digest { kind: *kind, value: sum.value() }]))
        }
        Engine::Read(offset, len) => {
            let (first, end) = (*offset, offset.saturating_add(*len));
            let mut flow = sink(file);
            let mut at = 0u64;
            bytes.each(counters, |piece| {
                let here = at;
                at += piece.len() as u64;
                let from = first.clamp(here, at) - here;
                let to = end.clamp(here, at) - here;
                if let Some(part) = piece.get(from as usize..to as usize).filter(|p| !p.is_empty()) {
                    let record = Record::Data { offset: here + from, bytes: part.to_vec() };
                    flow = if flow.is_continue() { sink(record) } else { flow };
                }
                Ok(if at >= end || flow.is_break() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            })?;
            Ok(flow)
        }
        Engine::Search(searcher, search) => {
            searcher.begin(ndp::Position::default());
            let mut found = Found::default();
            let mut failed = None;
            let mut said = false;
            let mut flow = ControlFlow::Continue(());
            let mut hand_on = |found: &mut Found, flow: &mut ControlFlow<()>, said: &mut bool| {
                for record in found.records.drain(..) {
                    if flow.is_continue() && !*said {
                        *said = true;
                        *flow = sink(file.clone());
                    }
                    if flow.is_continue() {
                        *flow = sink(record);
                    }
                }
            };
            bytes.each(counters, |piece| {
                let next = match searcher.feed(piece, &mut found) {
                    Ok(next) => next,
                    Err(error) => {
                        failed = Some(error);
                        return Ok(ControlFlow::Break(()));
                    }
                };
                hand_on(&mut found, &mut flow, &mut said);
                Ok(if next == ndp::Flow::More && flow.is_continue() {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                })
            })?;
            if failed.is_none() && flow.is_continue() {
                failed = searcher.finish(&mut found).err();
                hand_on(&mut found, &mut flow, &mut said);
            }
            let n = searcher.found();
            if failed.is_none() {
                totals.add(n > 0, n);
            }
            let last = match failed {
                Some(error) => {
                    let status = match error {
                        ndp::Error::Utf16 => ReplyStatus::UnsupportedFeature(error.to_string()),
                        _ => ReplyStatus::LineTooLong(error.to_string()),
                    };
                    vec![Record::Failed { path: path.to_vec(), status }]
                }
                None => match search.answer {
                    Answer::Count | Answer::Files if n > 0 || !search.only_matching_files => {
                        vec![Record::File { path: path.to_vec(), size: inode.size }, Record::Matches(n)]
                    }
                    _ => vec![],
                },
            };
            Ok(if flow.is_continue() { all(sink, last) } else { flow })
        }
    }
}

fn all(
    sink: &mut impl FnMut(Record) -> ControlFlow<()>,
    records: impl IntoIterator<Item = Record>,
) -> ControlFlow<()> {
    for record in records {
        sink(record)?;
    }
    ControlFlow::Continue(())
}
