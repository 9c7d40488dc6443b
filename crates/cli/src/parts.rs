//! A tree in parts, on several threads: one answer, in the tree's order. ([`file`]: one large file.)
//!
//! The names of the tree come from one drive of this process, in the order in which a walk comes to them,
//! and become parts: directories that hold files alone as a whole, other files some at a time. Each thread
//! has a drive of its own over the same image and takes the next part; what it answers goes through a
//! channel of the part's own, of bounded length, and the channels are emptied one after the other. So
//! records arrive as one walk would give them, and a thread that is far ahead waits.
//!
//! It does for images that nobody writes what one command does for any drive: [`wants`] says when.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

use nearside_fsrlib::{
    Ask, Counters, Error, Failure, Operation, Record, SearchTotals, Seen, Session, Summary, Target, Transport,
};

use crate::drive::add;

mod file;

/// Files of a part at most, and so of a directory that is a part as a whole.
const FILES: usize = 512;
/// Files of a part that are asked for one by one.
const SINGLE: usize = 32;
/// Parts that are under way or answered and not yet handed on, for each thread.
const AHEAD: usize = 16;
/// Records and bytes of an answer that are handed over at a time.
const BATCH: (usize, usize) = (256, 64 << 10);
/// Bytes of a file that are a part: with its head, an answer that fits a buffer.
const BYTES: u64 = 240 << 10;
/// So many such parts are read before other threads have opened the image: as many as hold a file's last
/// bytes in a pipe ([`crate::out::Out::unsent`]).
const ALONE: u64 = 5;
/// Such batches that a part has waiting.
const WAITING: usize = 4;
/// The type bits of a mode.
const REGULAR: u16 = 0o100_000;
const DIRECTORY: u16 = 0o040_000;

/// A session of a thread's own.
pub type Local = Session<Box<dyn Transport>>;

/// Whether the answer is that of the parts: work over the content of a tree's files, all of them, or lines
/// of one file that are counted, or a file's bytes. Patterns that choose files are relative to the tree's
/// root, which a part has not.
pub fn wants(ask: &Ask) -> bool {
    let work = matches!(ask.operation, Operation::Search(_) | Operation::Count | Operation::Checksum(_));
    let bytes = matches!((&ask.operation, &ask.target), (Operation::Read { .. }, Target::Path(_)));
    file::wants(ask)
        || bytes
        || work
            && matches!(&ask.target, Target::Tree { include, exclude, .. } if include.is_empty() && exclude.is_empty())
}

/// What a thread asks its drive, one after the other.
enum Part {
    /// A directory that holds regular files alone.
    Directory(Vec<u8>),
    /// Regular files.
    Files(Vec<Vec<u8>>),
    /// Bytes of a file: where they begin, and how many.
    Bytes(Vec<u8>, u64, u64),
    /// What is neither: of no concern, but that its directory may not be searched.
    Special(Vec<u8>),
}

/// What comes back of a part.
enum Piece {
    Records(Vec<Record<'static>>),
    End(Counters),
    Broken(Error),
}

/// A part and where its answer goes.
type Task = (Part, SyncSender<Piece>);

/// The next answer in the tree's order.
enum Answer {
    Part(Receiver<Piece>),
    Here(Record<'static>),
}

/// Asks as [`Session::stream`] does; `open` gives each of up to `threads` threads its session.
///
/// # Errors
/// As [`Session::stream`]; one of `open` is that of the whole.
pub fn stream(
    session: &mut Local,
    open: &(dyn Fn() -> Result<Local, Error> + Sync),
    threads: usize,
    ask: &Ask,
    mut sink: impl FnMut(Record<'_>) -> ControlFlow<()>,
) -> Result<Summary, Error> {
    let Target::Tree { root, include, exclude, max_depth } = &ask.target else {
        if let Operation::Read { offset, len } = ask.operation {
            return read(session, open, threads, ask, (offset, len), sink);
        }
        return match file::stream(session, open, threads, ask, &mut sink) {
            Some(summary) => Ok(summary),
            None => session.stream(ask, sink),
        };
    };
    let tree = |max_depth, operation| {
        let (root, include, exclude) = (root.clone(), include.clone(), exclude.clone());
        Ask { target: Target::Tree { root, include, exclude, max_depth }, operation, follow: ask.follow }
    };
    // The root alone: whether the request as a whole is refused, and what there is to warn of.
    let mut totals = None::<SearchTotals>;
    let mut ended = false;
    let mut summary = session.stream(&tree(0, ask.operation.clone()), |record| match record {
        Record::Total(total) => {
            totals = Some(total);
            ControlFlow::Continue(())
        }
        record => {
            let flow = sink(record);
            ended |= flow.is_break();
            flow
        }
    })?;
    if ended {
        return Ok(summary);
    }
    let (names, seen) = (tree(*max_depth, Operation::Names), session.seen());
    match on_threads(open, threads, ask, &seen, &mut sink, totals, |parts| parts.tree(session, &names)) {
        Ok((totals, counters)) => {
            add(&mut summary.counters, &counters);
            if let Some(total) = totals {
                let _ = sink(Record::Total(total));
            }
            Ok(summary)
        }
        Err(Left::Enough) => Ok(summary),
        Err(Left::Failed(error)) => Err(error),
    }
}

/// A file's bytes, as [`Session::stream`] reads them.
fn read(
    session: &mut Local,
    open: &(dyn Fn() -> Result<Local, Error> + Sync),
    threads: usize,
    ask: &Ask,
    (offset, len): (u64, u64),
    mut sink: impl FnMut(Record<'_>) -> ControlFlow<()>,
) -> Result<Summary, Error> {
    // Whether it may be read, and how large it is.
    let mut file = None;
    let operation = Operation::Read { offset, len: 0 };
    let summary = session.stream(&Ask { operation, ..ask.clone() }, |record| match record {
        Record::File { path, size } => {
            file = Some((path.to_vec(), size));
            sink(Record::File { path, size })
        }
        record => sink(record),
    })?;
    let Some((path, size)) = file else { return Ok(summary) };
    let end = offset.saturating_add(len).min(size);
    if end.saturating_sub(offset) <= ALONE * BYTES {
        return session.stream(ask, |record| match record {
            Record::File { .. } | Record::Warning { .. } => ControlFlow::Continue(()),
            record => sink(record),
        });
    }
    let result = on_threads(open, threads, ask, &session.seen(), &mut sink, None, |parts| {
        let mut at = offset;
        while at < end {
            let n = BYTES.min(end - at);
            parts.submit(Part::Bytes(path.clone(), at, n))?;
            at += n;
        }
        Ok(())
    });
    match result {
        Ok((_, counters)) => Ok(Summary { counters, ..summary }),
        Err(Left::Enough) => Ok(summary),
        Err(Left::Failed(error)) => Err(error),
    }
}

/// Runs `work`, which submits parts, with threads that do them; hands all answers on.
fn on_threads<S: FnMut(Record<'_>) -> ControlFlow<()>>(
    open: &(dyn Fn() -> Result<Local, Error> + Sync),
    threads: usize,
    ask: &Ask,
    seen: &Seen,
    sink: S,
    totals: Option<SearchTotals>,
    work: impl FnOnce(&mut Parts<'_, '_, S>) -> Result<(), Left>,
) -> Result<(Option<SearchTotals>, Counters), Left> {
    let stop = AtomicBool::new(false);
    let (tasks, queue) = channel::<Task>();
    let queue = Mutex::new(queue);
    let shared = Shared { open, queue: &queue, stop: &stop, ask, seen };
    std::thread::scope(|scope| {
        let mut parts = Parts {
            scope,
            shared: &shared,
            tasks: Some(tasks),
            threads,
            started: 0,
            answers: VecDeque::new(),
            sink,
            totals,
            counters: Counters::default(),
            run: Run::default(),
        };
        let result = work(&mut parts).and_then(|()| parts.end());
        // Whatever happened, threads find no more work, and nobody waits for what they answer.
        stop.store(result.is_err(), Ordering::Relaxed);
        parts.tasks = None;
        parts.answers.clear();
        result.map(|()| (parts.totals, parts.counters))
    })
}

/// Why it ends before the tree does.
enum Left {
    /// The sink has enough.
    Enough,
    Failed(Error),
}

/// What all threads see.
struct Shared<'a> {
    open: &'a (dyn Fn() -> Result<Local, Error> + Sync),
    queue: &'a Mutex<Receiver<Task>>,
    stop: &'a AtomicBool,
    /// What is asked of the whole.
    ask: &'a Ask,
    /// How far the whole has come: the names are counted by who walks, the bytes here.
    seen: &'a Seen,
}

/// Files that follow each other in one directory.
#[derive(Default)]
struct Run {
    directory: Vec<u8>,
    /// From the directory's first name on.
    whole: bool,
    files: Vec<Vec<u8>>,
}

struct Parts<'scope, 'env, S> {
    scope: &'scope Scope<'scope, 'env>,
    shared: &'scope Shared<'env>,
    tasks: Option<Sender<Task>>,
    threads: usize,
    started: usize,
    /// In the tree's order.
    answers: VecDeque<Answer>,
    sink: S,
    totals: Option<SearchTotals>,
    counters: Counters,
    run: Run,
}

impl<'scope, S: FnMut(Record<'_>) -> ControlFlow<()>> Parts<'scope, '_, S> {
    /// Walks.
    fn tree(&mut self, session: &mut Local, names: &Ask) -> Result<(), Left> {
        let mut result = Ok(());
        let mut first = true;
        let walked = session.stream(names, |record| {
            // A root that is no directory was the whole of it.
            if std::mem::take(&mut first)
                && !matches!(&record, Record::Name { kind: DIRECTORY, .. } | Record::Warning { .. })
                && !matches!(&record, Record::Failed { .. })
            {
                return ControlFlow::Break(());
            }
            first |= matches!(&record, Record::Warning { .. });
            result = self.record(record);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result?;
        walked.map_err(Left::Failed)?;
        self.close(true)
    }

    /// Hands on what is left.
    fn end(&mut self) -> Result<(), Left> {
        while !self.answers.is_empty() {
            self.hand_on()?;
        }
        Ok(())
    }

    /// What the walk comes to.
    fn record(&mut self, record: Record<'_>) -> Result<(), Left> {
        match record {
            Record::Name { path, kind: REGULAR } => {
                let directory = parent(&path);
                if directory != self.run.directory {
                    // What follows begins in the middle: after a directory that lies in it.
                    self.close(!within(&path, &self.run.directory))?;
                    self.run = Run { directory: directory.to_vec(), whole: false, files: Vec::new() };
                }
                self.run.files.push(path.into_owned());
                if self.run.files.len() > FILES {
                    self.close(false)?;
                }
                Ok(())
            }
            Record::Name { path, kind } => {
                self.close(!within(&path, &self.run.directory))?;
                if kind == DIRECTORY {
                    self.run = Run { directory: path.into_owned(), whole: true, files: Vec::new() };
                    return Ok(());
                }
                self.submit(Part::Special(path.into_owned()))
            }
            Record::Failed { .. } => {
                self.close(false)?;
                self.answer(Answer::Here(record.into_owned()))
            }
            _ => Ok(()),
        }
    }

    /// The run ends; `left`: and with it its directory.
    fn close(&mut self, left: bool) -> Result<(), Left> {
        let Run { directory, whole, files } = &mut self.run;
        let (files, whole) = (std::mem::take(files), std::mem::take(whole));
        if whole && left && files.len() > 1 {
            let directory = directory.clone();
            return self.submit(Part::Directory(directory));
        }
        for some in files.chunks(SINGLE) {
            self.submit(Part::Files(some.to_vec()))?;
        }
        Ok(())
    }

    fn submit(&mut self, part: Part) -> Result<(), Left> {
        if self.started < self.threads {
            self.started += 1;
            let shared = self.shared;
            self.scope.spawn(move || shared.work());
        }
        let (into, from) = sync_channel(WAITING);
        if let Some(tasks) = &self.tasks {
            let _ = tasks.send((part, into));
        }
        self.answer(Answer::Part(from))
    }

    fn answer(&mut self, answer: Answer) -> Result<(), Left> {
        self.answers.push_back(answer);
        while self.answers.len() > AHEAD * self.threads {
            self.hand_on()?;
        }
        Ok(())
    }

    /// Hands the first answer on, to its end.
    fn hand_on(&mut self) -> Result<(), Left> {
        let from = match self.answers.pop_front() {
            Some(Answer::Part(from)) => from,
            Some(Answer::Here(record)) => return self.one(record),
            None => return Ok(()),
        };
        loop {
            match from.recv() {
                Ok(Piece::Records(records)) => records.into_iter().try_for_each(|record| self.one(record))?,
                Ok(Piece::End(counters)) => {
                    add(&mut self.counters, &counters);
                    return Ok(());
                }
                Ok(Piece::Broken(error)) => return Err(Left::Failed(error)),
                // Whoever had it has panicked, which the scope passes on.
                Err(_) => return Err(Left::Enough),
            }
        }
    }

    fn one(&mut self, record: Record<'_>) -> Result<(), Left> {
        if let Record::Total(total) = record {
            let all = self.totals.get_or_insert_default();
            all.files += total.files;
            all.files_matched += total.files_matched;
            all.matches += total.matches;
            return Ok(());
        }
        match (self.sink)(record) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Left::Enough),
        }
    }
}

impl Shared<'_> {
    /// A thread: takes part after part.
    fn work(&self) {
        // As the whole's own session (`Drive::finish`): not given back bit by bit.
        let mut session = std::mem::ManuallyDrop::new(None);
        loop {
            let next = self.queue.lock().unwrap_or_else(|e| e.into_inner()).recv();
            let Ok((part, into)) = next else { return };
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let result = match session.as_mut() {
                Some(session) => self.part(session, part, &into),
                None => (self.open)().and_then(|opened| self.part(session.insert(opened), part, &into)),
            };
            let last = match result {
                Ok(counters) => {
                    self.seen.add(0, counters.bytes_scanned);
                    Piece::End(counters)
                }
                Err(error) => Piece::Broken(error),
            };
            // Nobody listens any more where the whole has ended.
            let _ = into.send(last);
        }
    }

    fn part(&self, session: &mut Local, part: Part, into: &SyncSender<Piece>) -> Result<Counters, Error> {
        let mut out = Batched { into, stop: self.stop, records: Vec::new(), bytes: 0 };
        let mut counters = Counters::default();
        match part {
            Part::Directory(root) => {
                let target =
                    Target::Tree { root: root.clone(), include: vec![], exclude: vec![], max_depth: 1 };
                // The tree's own root may be a link to a directory.
                let ask = Ask { target, operation: self.ask.operation.clone(), follow: true };
                self.ask(session, &ask, &root, &mut out, &mut counters)?;
            }
            Part::Files(paths) => {
                for path in paths {
                    let target = Target::Path(path.clone());
                    let ask = Ask { target, operation: self.ask.operation.clone(), follow: false };
                    self.ask(session, &ask, &path, &mut out, &mut counters)?;
                }
            }
            Part::Bytes(path, offset, len) => {
                let operation = Operation::Read { offset, len };
                let ask = Ask { target: Target::Path(path), operation, follow: self.ask.follow };
                // A refusal is the whole's: bytes are missing.
                let summary = session.stream(&ask, |record| match record {
                    Record::Data { .. } => out.take(record),
                    _ => ControlFlow::Continue(()),
                })?;
                add(&mut counters, &summary.counters);
            }
            Part::Special(path) => {
                let ask =
                    Ask { target: Target::Path(path.clone()), operation: Operation::Stat, follow: false };
                match session.stream(&ask, |_| ControlFlow::Continue(())) {
                    Err(Error::Refused(failure)) => drop(out.take(failed(&path, failure))),
                    other => drop(other?),
                }
            }
        }
        let _ = out.flush();
        Ok(counters)
    }

    /// One command's answer; a refusal is what became of its path.
    fn ask(
        &self,
        session: &mut Local,
        ask: &Ask,
        path: &[u8],
        out: &mut Batched<'_>,
        counters: &mut Counters,
    ) -> Result<(), Error> {
        let answer = session.stream(ask, |record| match record {
            // The walk had them.
            Record::Warning { .. } => ControlFlow::Continue(()),
            record => out.take(record),
        });
        match answer {
            Ok(summary) => add(counters, &summary.counters),
            Err(Error::Refused(failure)) => drop(out.take(failed(path, failure))),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn failed(path: &[u8], failure: Failure) -> Record<'static> {
    Record::Failed { path: path.to_vec().into(), failure }
}

/// Records on their way out of a thread.
struct Batched<'a> {
    into: &'a SyncSender<Piece>,
    stop: &'a AtomicBool,
    records: Vec<Record<'static>>,
    bytes: usize,
}

impl Batched<'_> {
    fn take(&mut self, record: Record<'_>) -> ControlFlow<()> {
        self.bytes += match &record {
            Record::Line { bytes, .. } | Record::Data { bytes, .. } => bytes.len(),
            _ => 0,
        };
        self.records.push(record.into_owned());
        match self.records.len() >= BATCH.0 || self.bytes >= BATCH.1 {
            true => self.flush(),
            false => ControlFlow::Continue(()),
        }
    }

    fn flush(&mut self) -> ControlFlow<()> {
        self.bytes = 0;
        let records = std::mem::take(&mut self.records);
        let sent = records.is_empty() || self.into.send(Piece::Records(records)).is_ok();
        match sent && !self.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}

/// The directory of a path.
pub fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|b| *b == b'/') {
        Some(0) | None => b"/",
        Some(at) => &path[..at],
    }
}

/// Whether a path lies below a directory.
fn within(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&b'/'))
}
