//! What the host does without the drive's knowledge of files: the paths that DAC'23 compares FSR with.
//!
//! The host runs the drive's own retriever, over a [`Media`] that reads the namespace by ordinary Reads: so
//! names, links, permissions, globs and errors are one thing, wherever they are found. [`Route::Host`]: all
//! is done so. [`Route::Blocks`], the existing near-data path: the host locates the file by reading the
//! volume's metadata, and sends the block list with the operation; the drive computes.
//!
//! A host with a warm cache keeps what it read of metadata; an uncached one begins each
//! operation with nothing and keeps no blocks. Nothing here watches for changes: a session that
//! is to see a volume change is opened without cache.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use nearside_fsr::{Batch, Config, Deleted, Media, MediaError, Part, Retriever, WireSink};
use nearside_near_data::{
    BlockRange, Counters, EXTENT_INLINE, EXTENT_ZEROS, Failure, MAX_REQUEST, Operation, Record, Request,
    SearchTotals, Target, wire,
};

use crate::session::{Ask, Route, Session, Sink, add, on_from};
use crate::{Error, Transport};

/// Bytes of the buffer that an answer of the host's own fills; then it goes on with the next.
const BUFFER: usize = 1 << 20;
/// Bytes of metadata blocks that a host with a cache keeps.
const CACHE: usize = 256 << 20;
/// Most runs of one file that the host keeps to send.
const MOST_RUNS: usize = 16 << 20;

/// The host's own view of the volume.
pub(crate) struct Host {
    retriever: Retriever,
    cached: bool,
}

/// A file that was located.
struct Located {
    path: Vec<u8>,
    size: u64,
    ranges: Vec<BlockRange>,
    /// Bytes that the ranges map so far.
    mapped: u64,
    /// Whether a list of blocks does not say where all of its bytes are: they are in its inode, or lie in a
    /// journal that escaped them.
    unlisted: bool,
}

/// An answer in the making.
struct Answering<'a> {
    ask: &'a Ask,
    sink: Sink<'a>,
    counters: &'a mut Counters,
    total: SearchTotals,
}

/// Runs a future that never waits (its medium answers at once) to its end.
fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// Refuses what reads blocks where the way to the drive carries no such reads.
fn needs_reads<T: Transport>(session: &Session<T>, to: &str) -> Result<(), Error> {
    if session.transport.capacity() > 0 {
        return Ok(());
    }
    let why = format!("the host cannot {to} through this way to the drive: it carries no reads of blocks");
    Err(Error::Unsupported(why))
}

impl Host {
    /// Opens the volume as a mount would.
    pub(crate) fn open<T: Transport>(session: &mut Session<T>, cached: bool) -> Result<Host, Error> {
        needs_reads(session, "locate files")?;
        let (allow_unrecovered, state) = (session.allow_unrecovered, session.state);
        let all = Config { allow_unrecovered, state, ..Config::default() };
        let config = match cached {
            true => Config { block_bytes: CACHE, ..all },
            // What a walk holds in its hands while it goes from one name to the next.
            false => Config { block_bytes: 0, names: 8, inodes: 8, ..all },
        };
        let retriever = Retriever::new(config);
        retriever.set_beneath(session.beneath.clone());
        let mut host = Host { retriever, cached };
        let info = Ask { target: Target::Volume, operation: Operation::Info, follow: true };
        let request = session.request(&info);
        match session.exchange(Some(&mut host), &request)?.failure {
            None => Ok(host),
            Some(failure) => Err(Error::Refused(failure)),
        }
    }

    /// One answer, in the wire's form. For every transport the same code:
    /// there is one walk in a program, not one for each.
    pub(crate) fn answer(&mut self, session: &mut dyn Blocks, request: &Request) -> Result<Vec<u8>, Error> {
        if !self.cached && request.resume.is_none() {
            self.retriever.forget_files();
        }
        let reads = Reads { session: RefCell::new(session), failure: Cell::new(None) };
        let mut sink = WireSink::new(BUFFER, None);
        let outcome = now(self.retriever.run(&&reads, request, &mut sink));
        // The transport's own error is no matter of the volume.
        if let Some(error) = reads.failure.take() {
            return Err(error);
        }
        Ok(sink.finish(outcome))
    }

    pub(crate) fn stream<T: Transport>(
        &mut self,
        session: &mut Session<T>,
        ask: &Ask,
        counters: &mut Counters,
        sink: Sink<'_>,
    ) -> Result<(), Error> {
        if session.route() == Route::Blocks && ask.operation.kind().computes {
            let answering = Answering { ask, sink, counters, total: SearchTotals::default() };
            return answering.by_blocks(self, session);
        }
        session.each(Some(self), ask, counters, sink)
    }
}

impl Answering<'_> {
    /// Locates file after file on the host; each one's list goes to the drive when it is whole.
    fn by_blocks<T: Transport>(mut self, host: &mut Host, session: &mut Session<T>) -> Result<(), Error> {
        let map = Ask { operation: Operation::Map, ..self.ask.clone() };
        let mut request = session.request(&map);
        let mut current: Option<Located> = None;
        loop {
            // Other commands follow while its records are looked at.
            let reply = session.exchange(Some(host), &request)?.into_owned();
            add(self.counters, &reply.counters);
            let any = !reply.records.is_empty();
            for record in reply.records {
                let flow = match record {
                    // A list that an answer had no room for goes on in the next.
                    Record::File { path, .. }
                        if current.as_ref().is_some_and(|c| c.path[..] == *path && c.mapped < c.size) =>
                    {
                        ControlFlow::Continue(())
                    }
                    Record::File { path, size } => {
                        let path = path.into_owned();
                        let next = Located { path, size, ranges: Vec::new(), mapped: 0, unlisted: false };
                        self.compute(host, session, current.replace(next))?
                    }
                    Record::Extent { len, offset, .. } => {
                        current.iter_mut().try_for_each(|file| file.take(len, offset))?;
                        ControlFlow::Continue(())
                    }
                    other => match self.compute(host, session, current.take())? {
                        ControlFlow::Continue(()) => (self.sink)(other),
                        flow => flow,
                    },
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
            let more = on_from(any, reply.failure, reply.more);
            if let Ok(Some(_)) = more {
                request.resume = more?;
                continue;
            }
            if !matches!(more, Err(Error::Form { .. }))
                && self.compute(host, session, current.take())?.is_break()
            {
                return Ok(());
            }
            more?;
            break;
        }
        if matches!(self.ask.operation, Operation::Search(_)) {
            let _last = (self.sink)(Record::Total(self.total));
        }
        Ok(())
    }

    /// One file, whose list is whole.
    fn compute<T: Transport>(
        &mut self,
        host: &mut Host,
        session: &mut Session<T>,
        file: Option<Located>,
    ) -> Result<ControlFlow<()>, Error> {
        let Some(Located { path, size, ranges, unlisted, .. }) = file else {
            return Ok(ControlFlow::Continue(()));
        };
        if unlisted {
            // Inline content has come to the host with its metadata: it is computed there and then.
            return self.on_the_host(host, session, path, size);
        }
        let target = Target::Blocks { size, ranges };
        let ask = Ask { target, operation: self.ask.operation.clone(), follow: true };
        if wire::encode_request(&session.request(&ask)).len().saturating_add(CURSOR) <= MAX_REQUEST {
            return self.pass_on(None, session, &ask, &path, FilePart::whole(size));
        }
        let (Target::Blocks { size, ranges }, Operation::Read { offset, len }) = (ask.target, ask.operation)
        else {
            // Its state between two parts of the list is no part of a request.
            return self.on_the_host(host, session, path, size);
        };
        let end = offset.saturating_add(len).min(size);
        let mut at = 0;
        let mut named = false;
        for part in ranges.chunks((MAX_REQUEST - 4 * CURSOR) / 16) {
            let start = at;
            at = part.iter().fold(at, |n: u64, range| n.saturating_add(range.len));
            let (from, to) = (offset.max(start), end.min(at));
            if from < to {
                let target = Target::Blocks { size: at - start, ranges: part.to_vec() };
                let operation = Operation::Read { offset: from - start, len: to - from };
                let ask = Ask { target, operation, follow: true };
                let flow = self.pass_on(None, session, &ask, &path, FilePart { start, size, named })?;
                named = true;
                if flow.is_break() {
                    return Ok(flow);
                }
            }
        }
        // No byte was asked for: its name and size are the answer.
        Ok(if named {
            ControlFlow::Continue(())
        } else {
            (self.sink)(Record::File { path: path.into(), size })
        })
    }

    fn on_the_host<T: Transport>(
        &mut self,
        host: &mut Host,
        session: &mut Session<T>,
        path: Vec<u8>,
        size: u64,
    ) -> Result<ControlFlow<()>, Error> {
        let ask = Ask::path(path.clone(), self.ask.operation.clone());
        self.pass_on(Some(host), session, &ask, &path, FilePart::whole(size))
    }

    /// Hands on what was answered about one file, whose name the drive does not know.
    fn pass_on<T: Transport>(
        &mut self,
        host: Option<&mut Host>,
        session: &mut Session<T>,
        ask: &Ask,
        path: &[u8],
        FilePart { start, size, mut named }: FilePart,
    ) -> Result<ControlFlow<()>, Error> {
        let mut flow = ControlFlow::Continue(());
        let mut counters = Counters::default();
        let (sink, total) = (&mut *self.sink, &mut self.total);
        let result = session.each(host, ask, &mut counters, &mut |record| {
            flow = match record {
                Record::File { .. } if named => ControlFlow::Continue(()),
                Record::File { .. } => {
                    named = true;
                    sink(Record::File { path: path.into(), size })
                }
                Record::Data { offset, bytes } => {
                    sink(Record::Data { offset: offset.saturating_add(start), bytes })
                }
                Record::Total(of_file) => {
                    // The drive may have said anything.
                    total.files = total.files.saturating_add(of_file.files);
                    total.files_matched = total.files_matched.saturating_add(of_file.files_matched);
                    total.matches = total.matches.saturating_add(of_file.matches);
                    ControlFlow::Continue(())
                }
                record => sink(record),
            };
            flow
        });
        // The file is counted already.
        add(self.counters, &Counters { files: 0, ..counters });
        match (result, &self.ask.target) {
            (Ok(()), _) => Ok(flow),
            (Err(error), Target::Path(_)) => Err(error),
            (Err(Error::Refused(failure)), _) => {
                Ok((self.sink)(Record::Failed { path: path.into(), failure }))
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// What of a file an answer is about.
struct FilePart {
    /// Its first byte.
    start: u64,
    /// The whole file's bytes.
    size: u64,
    /// Whether the file was named already.
    named: bool,
}

impl FilePart {
    fn whole(size: u64) -> FilePart {
        FilePart { start: 0, size, named: false }
    }
}

/// Bytes to keep in a request for a cursor and its item.
const CURSOR: usize = 256;

impl Located {
    /// One more run of its bytes, as [`Record::Extent`] has them.
    fn take(&mut self, len: u64, offset: u64) -> Result<(), Error> {
        if self.ranges.len() >= MOST_RUNS {
            let reason = format!("more than {MOST_RUNS} extents of one file");
            return Err(Error::Form { what: "reply", reason });
        }
        let nowhere = matches!(offset, EXTENT_INLINE | EXTENT_ZEROS);
        self.unlisted |= offset == EXTENT_INLINE || !nowhere && !offset.is_multiple_of(512);
        self.mapped = self.mapped.saturating_add(len);
        // Whole blocks of 512 bytes; the file's size says where its bytes end.
        self.ranges.push(BlockRange { offset, len: len.checked_next_multiple_of(512).unwrap_or(len) });
        Ok(())
    }
}

/// What the retriever needs of a session.
pub(crate) trait Blocks {
    fn capacity(&self) -> u64;
    fn block_size(&self) -> u32;
    fn get(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Error>;
    fn now_ns(&self) -> u64;
}

impl<T: Transport> Blocks for Session<T> {
    fn capacity(&self) -> u64 {
        self.transport.capacity()
    }

    fn block_size(&self) -> u32 {
        self.transport.block_size().max(512)
    }

    fn get(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        self.read_bytes(offset, len)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().0
    }
}

/// The namespace by ordinary Reads.
struct Reads<'s> {
    session: RefCell<&'s mut dyn Blocks>,
    failure: Cell<Option<Error>>,
}

impl Reads<'_> {
    fn get(&self, offset: u64, len: usize) -> Result<Vec<u8>, MediaError> {
        self.session.borrow_mut().get(offset, len).map_err(|error| {
            let words = MediaError(error.to_string());
            self.failure.set(Some(error));
            words
        })
    }
}

impl<'a, 's> Media for &'a Reads<'s> {
    type Buffer = Vec<u8>;
    type Batch = Done<'a, 's>;

    fn len(&self) -> u64 {
        self.session.borrow().capacity()
    }

    fn block_size(&self) -> u32 {
        self.session.borrow().block_size()
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, MediaError> {
        self.get(offset, len)
    }

    fn batch(&self) -> Done<'a, 's> {
        Done { reads: self, done: VecDeque::new() }
    }

    fn now_ns(&self) -> u64 {
        self.session.borrow().now_ns()
    }

    async fn yield_now(&self) {}
}

/// Reads of a batch: done at once, in order.
struct Done<'a, 's> {
    reads: &'a Reads<'s>,
    done: VecDeque<(u32, Result<Vec<u8>, MediaError>)>,
}

impl Batch for Done<'_, '_> {
    type Buffer = Vec<u8>;

    fn start(&mut self, offset: u64, len: usize, tag: u32) -> bool {
        self.done.push_back((tag, self.reads.get(offset, len)));
        true
    }

    async fn next(&mut self) -> Option<(u32, Result<Vec<u8>, MediaError>)> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}

impl<T: Transport> Session<T> {
    /// The partitions of the drive with what lies in each, by ordinary Reads of the host's; none where it has
    /// no table.
    ///
    /// # Errors
    /// [`Error`]: the drive refused or failed a Read, the way to it carries none, or the table contradicts
    /// itself.
    pub fn partitions(&mut self) -> Result<Vec<Part>, Error> {
        needs_reads(self, "list partitions")?;
        let retriever = Retriever::new(Config { state: self.state, ..Config::default() });
        let reads = Reads { session: RefCell::new(self), failure: Cell::new(None) };
        let found = now(retriever.partitions(&&reads));
        match reads.failure.take() {
            Some(error) => Err(error),
            None => found.map_err(Error::Refused),
        }
    }

    /// Hands on the volume's files that have no name any more, in the order of their inodes, for as long as
    /// more are wanted: by ordinary Reads of the host's, which goes through all of its inode tables. Where it
    /// cannot be said where those of a part of the volume are, that is handed on in their place.
    ///
    /// # Errors
    /// [`Error`]: the session is not root's, the drive refused or failed a Read, the way to it carries none,
    /// or the volume keeps no deleted files (F2FS).
    pub fn deleted(
        &mut self,
        mut sink: impl FnMut(Result<Deleted, Failure>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let retriever = self.knows_deleted()?;
        let (mut next, mut found) = (Some(1), Vec::new());
        while let Some(from) = next {
            next = self.deleted_from(&retriever, from, &mut found)?;
            if found.drain(..).try_for_each(&mut sink).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Whether [`Session::deleted`] would begin: by its first Reads.
    ///
    /// # Errors
    /// Its own.
    pub fn may_list_deleted(&mut self) -> Result<(), Error> {
        let retriever = self.knows_deleted()?;
        self.deleted_from(&retriever, 1, &mut Vec::new()).map(drop)
    }

    /// What looks for them.
    fn knows_deleted(&self) -> Result<Retriever, Error> {
        if self.credentials.uid != 0 {
            let why = "of deleted files no mode says any more who may have them: only root";
            return Err(Error::Refused(Failure::DeniedAs(why.into())));
        }
        needs_reads(self, "look for deleted files")?;
        Ok(Retriever::new(Config { state: self.state, ..Config::default() }))
    }

    fn deleted_from(
        &mut self,
        retriever: &Retriever,
        from: u32,
        found: &mut Vec<Result<Deleted, Failure>>,
    ) -> Result<Option<u32>, Error> {
        let partition = self.partition;
        let reads = Reads { session: RefCell::new(self), failure: Cell::new(None) };
        let next = now(retriever.deleted(&&reads, partition, from, found));
        match reads.failure.take() {
            Some(error) => Err(error),
            None => next.map_err(Error::Refused),
        }
    }

    /// Reads any bytes of the namespace by ordinary Reads of whole blocks, counting them.
    ///
    /// # Errors
    /// [`Error`]: the drive refused or failed a Read.
    pub fn read_bytes(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let block = u64::from(self.transport.block_size()).max(512);
        let start = offset / block * block;
        let skip = (offset - start) as usize;
        let whole = (skip + len).next_multiple_of(block as usize);
        let mut bytes = vec![0; whole];
        let before = self.clock.now();
        let commands = self.transport.read(start, &mut bytes)?;
        self.totals.round_trip_ns += self.clock.now().since(before);
        self.totals.read_commands += commands;
        self.totals.bytes_in += whole as u64;
        bytes.truncate(skip + len);
        bytes.drain(..skip);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_list_of_blocks_can_say_is_read_by_the_host() {
        let unlisted = |extents: &[(u64, u64)]| {
            let mut file = Located { path: vec![], size: 9000, ranges: vec![], mapped: 0, unlisted: false };
            extents.iter().for_each(|(len, offset)| file.take(*len, *offset).unwrap());
            file.unlisted
        };
        assert!(!unlisted(&[(4096, 8192), (100, EXTENT_ZEROS), (904, 512)]));
        assert!(unlisted(&[(9000, EXTENT_INLINE)]));
        // The magic number of a block that a journal escaped, and the rest of the block.
        assert!(unlisted(&[(4, 4096), (4092, 8192 + 4)]));
    }
}
