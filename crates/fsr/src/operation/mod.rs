//! The operations of near-data work: one file for each that computes over bytes, and the table of them all
//! ([`Work`], [`Bytes`]). What asks about files themselves is a few lines each, in the handler.
//!
//! How an operation over bytes passes: [`Work::new`] makes it once for a command; for each file the handler
//! has it begin, the data provider feeds it, and where neither the file nor its bytes have changed
//! meanwhile it writes its records. Otherwise what it wrote is taken back, and it begins again.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use nearside_ndp as ndp;
use nearside_ndp::Flow;
use nearside_near_data::{Cursor, Failure, Operation, Record, Request, SearchTotals};

use crate::Retriever;
use crate::media::Media;
use crate::model::Sink;
use crate::provider::Consumer;

mod checksum;
mod count;
mod gather;
mod nearest;
mod program;
mod read;
mod search;
mod select;
mod table;

use checksum::SumFiles;
use count::CountFiles;
use gather::GatherRows;
use nearest::NearestRows;
pub(crate) use program::Compiled;
use program::ProgramOverFiles;
pub(crate) use program::stored;
use read::ReadFiles;
use search::SearchFiles;
use select::SelectFiles;

/// What is done with each file.
pub(crate) enum Work {
    Nop,
    List,
    Names,
    Stat,
    Map,
    Attributes,
    Bytes(Bytes),
}

/// An operation over the bytes of files, made once for a command.
pub(crate) enum Bytes {
    Search(Box<SearchFiles>),
    Count(CountFiles),
    Checksum(SumFiles),
    Read(ReadFiles),
    Gather(Box<GatherRows>),
    Nearest(Box<NearestRows>),
    Select(Box<SelectFiles>),
    Program(Box<ProgramOverFiles>),
}

/// Does the same with each of them.
macro_rules! each {
    ($bytes:expr, $operation:ident => $what:expr) => {
        match $bytes {
            Bytes::Search($operation) => $what,
            Bytes::Count($operation) => $what,
            Bytes::Checksum($operation) => $what,
            Bytes::Read($operation) => $what,
            Bytes::Gather($operation) => $what,
            Bytes::Nearest($operation) => $what,
            Bytes::Select($operation) => $what,
            Bytes::Program($operation) => $what,
        }
    };
}

impl Work {
    /// Makes ready what a request asks for; `stored`: what had to be [read before](stored).
    pub(crate) async fn new<M: Media>(
        retriever: &Retriever,
        media: &M,
        request: &Request,
        stored: Vec<u8>,
    ) -> Result<Work, Failure> {
        let totals = request.resume.as_ref().map(|c| c.totals).unwrap_or_default();
        Ok(Work::Bytes(match &request.operation {
            Operation::Nop | Operation::Info => return Ok(Work::Nop),
            Operation::List => return Ok(Work::List),
            Operation::Names => return Ok(Work::Names),
            Operation::Stat => return Ok(Work::Stat),
            Operation::Map => return Ok(Work::Map),
            Operation::Attributes => return Ok(Work::Attributes),
            Operation::Search(options) => Bytes::Search(Box::new(
                SearchFiles::compile(media, &retriever.searches, options, totals).await?,
            )),
            Operation::Count => Bytes::Count(CountFiles::new()),
            Operation::Checksum(digest) => Bytes::Checksum(SumFiles::new(*digest)),
            Operation::Read { offset, len } => Bytes::Read(ReadFiles::new(*offset, *len)),
            Operation::Gather(options) => Bytes::Gather(Box::new(GatherRows::new(options)?)),
            Operation::Nearest(options) => Bytes::Nearest(Box::new(NearestRows::new(options))),
            Operation::Select(options) => Bytes::Select(Box::new(SelectFiles::new(media, options).await?)),
            Operation::Program(options) => {
                Bytes::Program(Box::new(ProgramOverFiles::new(retriever, media, options, stored).await?))
            }
        }))
    }

    /// What is counted over all files, where that is.
    pub(crate) fn totals(&self) -> Option<SearchTotals> {
        match self {
            Work::Bytes(bytes) => each!(bytes, operation => operation.totals()),
            _ => None,
        }
    }
}

impl Bytes {
    /// [`ByteOperation::decompresses`].
    pub(crate) fn decompresses(&self) -> bool {
        each!(self, operation => operation.decompresses())
    }
}

/// An operation over the bytes of files, one after the other. What may take longer than a slice yields
/// ([`in_slices`]), and no file makes it hold more than some MiB.
#[allow(async_fn_in_trait, reason = "used generically, never as a trait object")]
pub(crate) trait ByteOperation {
    /// Which of a file's bytes it wants first, from where to where.
    fn range(&self, size: u64, at: &Cursor) -> (u64, u64) {
        let _ = at;
        (0, size)
    }

    /// Whether what compressed files hold is meant.
    fn decompresses(&self) -> bool {
        false
    }

    /// Makes ready for a file.
    fn begin<S: Sink>(&mut self, job: &Job<'_, S>);

    /// Whether the pieces of this file may come in any order.
    fn is_unordered(&self) -> bool {
        false
    }

    /// Bytes that it takes at once.
    fn piece(&self) -> usize;

    /// Takes the bytes at `offset` of the file.
    async fn take<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure>;

    /// Takes zeros at `offset`, in time that does not grow with `len`, and says how many: none where it wants
    /// them as bytes.
    async fn zeros<M: Media>(&mut self, media: &M, offset: u64, len: u64) -> Result<(u64, Flow), Failure> {
        let _ = (media, offset, len);
        Ok((0, Flow::More))
    }

    /// Takes all there is, from `offset` on, at once.
    async fn whole<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Flow, Failure> {
        self.take(media, job, offset, bytes).await
    }

    /// Whether it has left the range that was asked for last, to go on with [what it wants](Self::then).
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Which bytes of a file of `size` bytes it wants after those that it has had, from where to where, one
    /// after the other; none: it has all.
    fn then(&mut self, size: u64) -> Result<Vec<(u64, u64)>, Failure> {
        let _ = size;
        Ok(Vec::new())
    }

    /// After the last byte, or where it wanted no more: writes what is left to write. The bytes are the
    /// file's; before this, nobody knows.
    async fn finish<M: Media, S: Sink>(
        &mut self,
        media: &M,
        job: &mut Job<'_, S>,
        flow: Flow,
    ) -> Result<Ended, Failure>;

    /// What it has counted over all files.
    fn totals(&self) -> Option<SearchTotals> {
        None
    }
}

/// How it ended with a file.
pub(crate) enum Ended {
    /// All of it is answered.
    Done,
    /// The sink is full: go on there (the path is the caller's).
    Full(Cursor),
}

/// One file, in the making.
pub(crate) struct Job<'a, S> {
    pub sink: &'a mut S,
    pub path: &'a [u8],
    /// Bytes that a cursor takes beside the path.
    pub above: usize,
    pub size: u64,
    pub at: Cursor,
    /// What it holds is meant, decompressed: offsets are those of it.
    pub zip: bool,
}

impl<S: Sink> Job<'_, S> {
    fn push(&mut self, record: Record<'_>) -> bool {
        self.sink.push(record, self.path.len() + self.above).is_ok()
    }

    fn room(&self) -> usize {
        self.sink.room(self.path.len() + self.above)
    }

    fn file(&mut self) -> bool {
        let (path, size) = (self.path, self.size);
        self.push(Record::File { path: path.into(), size })
    }

    /// The file's record and one of its own, both or none.
    fn pair(&mut self, record: Record<'_>) -> Ended {
        let mark = self.sink.mark();
        if self.file() && self.push(record) {
            return Ended::Done;
        }
        self.sink.rollback(mark);
        Ended::Full(Cursor::default())
    }
}

/// An operation with the file at hand: what the data provider feeds.
pub(crate) struct Feeding<'f, 'a, S> {
    bytes: &'f mut Bytes,
    job: Job<'a, S>,
}

impl<'f, 'a, S: Sink> Feeding<'f, 'a, S> {
    /// Begins with a file. Which of its bytes are wanted first; of one that is decompressed, from which byte
    /// of what it holds on, and its size.
    pub(crate) fn begin(bytes: &'f mut Bytes, job: Job<'a, S>) -> (Self, (u64, u64)) {
        let range = match job.zip {
            true => (job.at.offset, job.size),
            false => each!(bytes, operation => operation.range(job.size, &job.at)),
        };
        each!(bytes, operation => operation.begin(&job));
        (Feeding { bytes, job }, range)
    }

    /// [`ByteOperation::is_elsewhere`].
    pub(crate) fn is_elsewhere(&self) -> bool {
        each!(&*self.bytes, operation => operation.is_elsewhere())
    }

    /// Whether it can be said now that the file has failed.
    pub(crate) fn has_room_for(&mut self, failure: &Failure) -> bool {
        let mark = self.job.sink.mark();
        let path = self.job.path.into();
        let fits = self.job.push(Record::Failed { path, failure: failure.clone() });
        self.job.sink.rollback(mark);
        fits
    }

    /// [`ByteOperation::finish`].
    pub(crate) async fn finish<M: Media>(self, media: &M, flow: Flow) -> Result<Ended, Failure> {
        let Feeding { bytes, mut job } = self;
        each!(bytes, operation => operation.finish(media, &mut job, flow).await)
    }
}

impl<S: Sink> Consumer for Feeding<'_, '_, S> {
    fn unordered(&self) -> bool {
        each!(&*self.bytes, operation => operation.is_unordered())
    }

    fn piece(&self) -> usize {
        each!(&*self.bytes, operation => operation.piece())
    }

    async fn take<M: Media>(&mut self, media: &M, offset: u64, bytes: &[u8]) -> Result<Flow, Failure> {
        each!(&mut *self.bytes, operation => operation.take(media, &mut self.job, offset, bytes).await)
    }

    async fn zeros<M: Media>(&mut self, media: &M, offset: u64, len: u64) -> Result<(u64, Flow), Failure> {
        each!(&mut *self.bytes, operation => operation.zeros(media, offset, len).await)
    }

    async fn whole<M: Media>(&mut self, media: &M, offset: u64, bytes: &[u8]) -> Result<Flow, Failure> {
        each!(&mut *self.bytes, operation => operation.whole(media, &mut self.job, offset, bytes).await)
    }

    fn then(&mut self) -> Result<Vec<(u64, u64)>, Failure> {
        each!(&mut *self.bytes, operation => operation.then(self.job.size))
    }
}

fn failure(error: ndp::Error) -> Failure {
    match error {
        ndp::Error::LineTooLong { .. } => Failure::LineTooLong(error.to_string()),
        ndp::Error::Utf16 => Failure::UnsupportedFeature(error.to_string()),
        // Blocks are handed on once each: it cannot happen.
        ndp::Error::Gap { .. } => Failure::MediumError(error.to_string()),
    }
}

/// Does ndp's work, which pauses at the end of each of its slices: there the command yields.
async fn in_slices<M: Media, T>(media: &M, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
            Poll::Ready(done) => return done,
            Poll::Pending => media.yield_now().await,
        }
    }
}
