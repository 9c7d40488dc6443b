//! A session with one drive: for whom it asks, which partition, which way, and what it has moved.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nearside_clock::Clock;
use nearside_fsr::Beneath;
use nearside_near_data::{
    Counters, Credentials, Cursor, Failure, MAX_REQUEST, Operation, Paths, Record, Reply, Request, Target,
    wire,
};

use crate::host::Host;
use crate::lists::{self, Lists};
use crate::taking::{Taking, Then, form};
use crate::{Error, State, Totals, Transport};

/// How an operation is done. The three that DAC'23 compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// FSR: the path goes to the drive, which locates and computes.
    /// One command (and one more per full buffer of answer).
    #[default]
    Drive,
    /// The existing near-data path: the host locates by reading metadata blocks, sends the block list;
    /// the drive computes.
    Blocks,
    /// Wholly on the host: it locates, reads the data and computes.
    Host,
}

/// What is asked: an operation on a target.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Which files.
    pub target: Target,
    /// What to do with them.
    pub operation: Operation,
    /// Follow a symbolic link that is the path's last component.
    pub follow: bool,
}

impl Ask {
    /// An operation on one path, a last symbolic link followed.
    pub fn path(path: impl Into<Vec<u8>>, operation: Operation) -> Ask {
        Ask { target: Target::Path(path.into()), operation, follow: true }
    }

    /// An operation on every file below a directory.
    pub fn tree(root: impl Into<Vec<u8>>, operation: Operation) -> Ask {
        let target =
            Target::Tree { root: root.into(), include: vec![], exclude: vec![], max_depth: u32::MAX };
        Ask { target, operation, follow: true }
    }
}

/// How an operation went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// What it cost in the drive; for the parts that the host did, the host's own figures.
    pub counters: Counters,
    /// What moved for it.
    pub moved: Totals,
}

/// Takes records. What passes them on is compiled once, whoever takes them.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(Record<'_>) -> ControlFlow<()>;
/// The same with the place of what they answer, and what was refused.
pub(crate) type SinkOfEach<'s> = &'s mut dyn FnMut(usize, Result<Record<'_>, Failure>) -> ControlFlow<()>;

/// A session: one user of a drive through one transport.
pub struct Session<T> {
    pub(crate) transport: T,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) credentials: Credentials,
    pub(crate) partition: u32,
    pub(crate) totals: Totals,
    route: Route,
    buffer: usize,
    reply: Vec<u8>,
    host: Option<Host>,
    host_cached: bool,
    pub(crate) allow_unrecovered: bool,
    pub(crate) state: State,
    pub(crate) beneath: Arc<Beneath>,
    seen: Arc<Seen>,
    /// Whether the drive takes lists of paths, as far as is known.
    lists: bool,
}

/// How much there is in all to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InAll {
    /// So many bytes.
    Bytes(u64),
    /// About so many files, of any kind.
    Files(u64),
    /// Hardly more files than so many.
    FilesAtMost(u64),
}

/// How far a session has come, for whoever shows progress from another thread.
#[derive(Debug, Default)]
pub struct Seen {
    files: AtomicU64,
    bytes: AtomicU64,
    all: Mutex<Option<InAll>>,
    /// Bytes that a drive of this process has seen, and how many these were at the beginning.
    drive: OnceLock<Arc<AtomicU64>>,
    before: AtomicU64,
}

impl Seen {
    /// Files and bytes that replies so far have reported; bytes of a drive that is followed before its reply.
    pub fn get(&self) -> (u64, u64) {
        let seen = self.drive().saturating_sub(self.before.load(Ordering::Relaxed));
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed).max(seen))
    }

    /// Bytes that a drive of this process has seen, as it counts them: from now on they count without
    /// waiting for its replies. One session's drive alone, and the first.
    pub fn follow(&self, drive: Arc<AtomicU64>) {
        self.before.store(drive.load(Ordering::Relaxed), Ordering::Relaxed);
        let _ = self.drive.set(drive);
    }

    fn drive(&self) -> u64 {
        self.drive.get().map_or(0, |drive| drive.load(Ordering::Relaxed))
    }

    /// So many more.
    pub fn add(&self, files: u64, bytes: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// From here on it counts anew, and there is so much in all.
    pub fn begin(&self, all: InAll) {
        self.files.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.before.store(self.drive(), Ordering::Relaxed);
        self.expect(all);
    }

    /// There is so much in all, as is known by now.
    pub fn expect(&self, all: InAll) {
        *self.in_all() = Some(all);
    }

    /// How much there is in all, where [`Seen::begin`] or [`Seen::expect`] was told that it is something.
    pub fn all(&self) -> Option<InAll> {
        self.in_all().filter(|all| {
            let (InAll::Bytes(many) | InAll::Files(many) | InAll::FilesAtMost(many)) = all;
            *many > 0
        })
    }

    fn in_all(&self) -> MutexGuard<'_, Option<InAll>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Transport> Session<T> {
    /// A session in root's name on the only volume of the drive; see the `with_` methods.
    /// The clock measures round trips.
    pub fn new(transport: T, clock: Arc<dyn Clock>) -> Session<T> {
        let buffer = transport.max_buffer().min(256 * 1024);
        Session {
            transport,
            clock,
            credentials: Credentials::default(),
            partition: 0,
            totals: Totals::default(),
            route: Route::Drive,
            buffer,
            reply: Vec::new(),
            host: None,
            host_cached: false,
            allow_unrecovered: false,
            state: State::Home,
            beneath: Arc::default(),
            seen: Arc::default(),
            lists: true,
        }
    }

    /// For whom the drive checks permissions. The default is user and group 0.
    pub fn with_credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// Which partition holds the volume; 0: the only one with a known file system.
    pub fn with_partition(mut self, partition: u32) -> Self {
        self.partition = partition;
        self
    }

    /// Which way operations go.
    pub fn with_route(mut self, route: Route) -> Self {
        self.set_route(route);
        self
    }

    /// Which way operations go from now on. The host's view of the volume, where there was one, is given up.
    pub fn set_route(&mut self, route: Route) {
        self.route = route;
        self.host = None;
    }

    /// Whether the host keeps the metadata blocks that it read ([`Route::Blocks`], [`Route::Host`]).
    /// Off by default.
    pub fn with_host_cache(mut self, cached: bool) -> Self {
        self.set_host_cache(cached);
        self
    }

    /// Whether the host keeps the metadata blocks that it read, from now on ([`Session::with_host_cache`]).
    pub fn set_host_cache(&mut self, cached: bool) {
        if self.host_cached != cached {
            // The host's view was opened for the other way.
            self.host = None;
        }
        self.host_cached = cached;
    }

    /// Whether the host, where it locates, gives every user what lies in blocks of a volume that is
    /// mounted elsewhere or was not unmounted cleanly, by the word of whoever owns it. The drive
    /// has an option of its own for what it does.
    pub fn with_allow_unrecovered(mut self, allow: bool) -> Self {
        self.allow_unrecovered = allow;
        self.host = None;
        self
    }

    /// Which state of a volume that was not unmounted the host shows, where it locates. By default what lies
    /// at home: the drive may be mounted, and its journal change. The drive has an option of its own.
    pub fn with_state(mut self, state: State) -> Self {
        self.state = state;
        self.host = None;
        self
    }

    /// What is known of the drive's bytes, which the host says where it locates. By default nothing: a drive
    /// says it itself of what it does.
    pub fn with_beneath(mut self, beneath: Arc<Beneath>) -> Self {
        self.beneath = beneath;
        self.host = None;
        self
    }

    /// Bytes of the buffer that a near-data command's reply may fill; 4 KiB to the transport's most.
    /// The default is 256 KiB.
    pub fn with_buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes.clamp(4096, self.transport.max_buffer());
        self
    }

    /// What the session has moved so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// How far it has come, to be looked at from another thread.
    pub fn seen(&self) -> Arc<Seen> {
        self.seen.clone()
    }

    /// The clock that measures round trips.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The way to the drive.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The transport, to change it.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Sends one request as exactly one command, and decodes what comes back. A refusal of the request as a
    /// whole is in [`Reply::failure`], not an error.
    ///
    /// # Errors
    /// [`Error`]: the command did not reach the drive, or its answer is no reply.
    pub fn call(&mut self, request: &Request) -> Result<Reply<'_>, Error> {
        self.exchange(None, request)
    }

    /// Sends one request, to the drive or to the host in its stead.
    pub(crate) fn exchange(
        &mut self,
        host: Option<&mut Host>,
        request: &Request,
    ) -> Result<Reply<'_>, Error> {
        self.fetch(host, request)?;
        let reply = wire::decode_reply(&self.reply).map_err(form)?;
        self.saw(request, &reply.counters);
        Ok(reply)
    }

    /// So much more is seen. The file at which a request goes on was located by the one before, too.
    fn saw(&self, request: &Request, counters: &Counters) {
        let again = u64::from(request.resume.is_some());
        self.seen.add(counters.files.saturating_sub(again), counters.bytes_scanned);
    }

    /// Its reply is in the session's buffer.
    fn fetch(&mut self, host: Option<&mut Host>, request: &Request) -> Result<(), Error> {
        match host {
            None => self.send(request)?,
            Some(host) => self.reply = host.answer(self, request)?,
        }
        Ok(())
    }

    /// One command: its reply is in the session's buffer.
    fn send(&mut self, request: &Request) -> Result<(), Error> {
        let (bytes, capacity) = packed(request, self.buffer)?;
        let start = self.clock.now();
        self.transport.near_data(&bytes, capacity, &mut self.reply)?;
        self.totals.round_trip_ns += self.clock.now().since(start);
        self.totals.near_data_commands += 1;
        self.totals.bytes_out += bytes.len() as u64;
        self.totals.bytes_in += self.reply.len() as u64;
        Ok(())
    }

    /// Opens the host's own view of the volume, as mounting it would, where the route needs one and there is
    /// none: finds the volume and reads its superblock. Done by the first [`Session::stream`] otherwise.
    ///
    /// # Errors
    /// [`Error`]: there is no volume, or the drive failed a Read.
    pub fn mount(&mut self) -> Result<(), Error> {
        if self.route != Route::Drive && self.host.is_none() {
            self.host = Some(Host::open(self, self.host_cached)?);
        }
        Ok(())
    }

    /// Does an operation and hands each record to `sink` as it arrives, until there are no more or `sink`
    /// breaks. Answers of any length: memory is bounded by one reply.
    ///
    /// # Errors
    /// [`Error`]: the request as a whole was refused, or the drive could not be asked.
    pub fn stream(
        &mut self,
        ask: &Ask,
        mut sink: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<Summary, Error> {
        self.stream_to(ask, &mut sink)
    }

    fn stream_to(&mut self, ask: &Ask, sink: Sink<'_>) -> Result<Summary, Error> {
        self.mount()?;
        let before = self.totals;
        let mut counters = Counters::default();
        match self.host.take() {
            None => self.each(None, ask, &mut counters, sink)?,
            Some(mut host) => {
                let result = host.stream(self, ask, &mut counters, sink);
                self.host = Some(host);
                result?;
            }
        }
        Ok(Summary { counters, moved: self.totals.since(&before) })
    }

    /// Does operations whose commands are under way together, as far as the way to the drive allows, many in
    /// one command where they differ by their paths alone and answer little ([`Operation::kind`]),
    /// and hands each record to `sink` with the place of what it answers in `asks`, in that order; of what
    /// was refused the failure, behind the records that it had. Ends where `sink` breaks. Where the host
    /// takes part ([`Route`]), one operation comes after the other.
    ///
    /// # Errors
    /// [`Error`]: the drive could not be asked. What comes behind is then not answered.
    pub fn stream_each(
        &mut self,
        asks: &[Ask],
        mut sink: impl FnMut(usize, Result<Record<'_>, Failure>) -> ControlFlow<()>,
    ) -> Result<Summary, Error> {
        self.stream_each_to(asks, &mut sink)
    }

    fn stream_each_to(&mut self, asks: &[Ask], sink: SinkOfEach<'_>) -> Result<Summary, Error> {
        self.mount()?;
        let before = self.totals;
        let mut counters = Counters::default();
        let ended = Cell::new(false);
        let mut hand_on = |nth: usize, answer: Result<Record<'_>, Failure>| {
            let flow = sink(nth, answer);
            ended.set(ended.get() || flow.is_break());
            flow
        };
        let mut at = 0;
        while at < asks.len() {
            let alone = match self.route {
                Route::Drive => match self.together(asks, &mut at, &mut counters, &mut hand_on)? {
                    Then::Ended => break,
                    Then::Again => continue,
                    Then::Alone(resume) => {
                        let request = Request { resume, ..self.request(&asks[at]) };
                        self.go_on(None, request, &mut counters, &mut |record| hand_on(at, Ok(record)))
                    }
                },
                Route::Blocks | Route::Host => {
                    let summary = self.stream_to(&asks[at], &mut |record| hand_on(at, Ok(record)));
                    summary.map(|summary| add(&mut counters, &summary.counters))
                }
            };
            match alone {
                Ok(()) => {}
                Err(Error::Refused(failure)) => drop(hand_on(at, Err(failure))),
                Err(error) => return Err(error),
            }
            if ended.get() {
                break;
            }
            at += 1;
        }
        Ok(Summary { counters, moved: self.totals.since(&before) })
    }

    /// Asks from the `at`th on, until the sink breaks or an answer does not say all: `at` is then its place.
    fn together(
        &mut self,
        asks: &[Ask],
        at: &mut usize,
        counters: &mut Counters,
        sink: SinkOfEach<'_>,
    ) -> Result<Then, Error> {
        let (partition, credentials, buffer) = (self.partition, self.credentials.clone(), self.buffer);
        let request = |ask: &Ask| request(partition, &credentials, ask);
        let (mut sent, mut bytes_out) = (0, 0);
        let mut failed = None;
        let start = self.clock.now();
        let mut unsent = None;
        let mut lists = Lists::new(asks, *at, self.lists, buffer, self.transport.at_once());
        // How many each command is about that is out.
        let out = RefCell::new(VecDeque::new());
        let mut requests = std::iter::from_fn(|| {
            let (first, list) = lists.next()?;
            let about = list.as_ref().map_or(1, Paths::len);
            let asked = match list {
                None => request(first),
                Some(list) => of(partition, &credentials, first, Target::Paths(list)),
            };
            match packed(&asked, buffer) {
                Ok((bytes, capacity)) => {
                    sent += 1;
                    bytes_out += bytes.len() as u64;
                    out.borrow_mut().push_back(about);
                    Some((bytes, capacity))
                }
                Err(error) => {
                    unsent = Some(error);
                    None
                }
            }
        });
        let mut taking = Taking::new(asks, *at, counters, self.seen.clone(), sink);
        self.transport.near_data_each(&mut requests, &mut |answer| {
            let about = out.borrow_mut().pop_front().unwrap_or(1);
            taking.take(answer, about).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        });
        let Taking { nth, then, knows_lists, bytes_in, .. } = taking;
        *at = nth;
        self.lists &= knows_lists;
        self.totals.round_trip_ns += self.clock.now().since(start);
        self.totals.near_data_commands += sent;
        self.totals.bytes_out += bytes_out;
        self.totals.bytes_in += bytes_in;
        match (failed, then) {
            (Some(error), _) => Err(error),
            (None, Then::Ended) => unsent.map_or(Ok(Then::Ended), Err),
            (None, then) => Ok(then),
        }
    }

    /// Answers by as many commands as it takes. The records are the reply's own bytes;
    /// the counters count however it ends.
    pub(crate) fn each(
        &mut self,
        host: Option<&mut Host>,
        ask: &Ask,
        counters: &mut Counters,
        sink: Sink<'_>,
    ) -> Result<(), Error> {
        self.go_on(host, self.request(ask), counters, sink)
    }

    /// Answers a request and what follows from it.
    fn go_on(
        &mut self,
        mut host: Option<&mut Host>,
        mut request: Request,
        counters: &mut Counters,
        sink: Sink<'_>,
    ) -> Result<(), Error> {
        loop {
            self.fetch(host.as_deref_mut(), &request)?;
            let mut any = false;
            let read = wire::each_record(&self.reply, |record| {
                any = true;
                sink(record)
            });
            let read = read.map_err(form)?;
            let (ControlFlow::Continue(reply) | ControlFlow::Break(reply)) = &read;
            self.saw(&request, &reply.counters);
            add(counters, &reply.counters);
            let ControlFlow::Continue(reply) = read else { return Ok(()) };
            match on_from(any, reply.failure, reply.more)? {
                None => return Ok(()),
                resume => request.resume = resume,
            }
        }
    }

    pub(crate) fn route(&self) -> Route {
        self.route
    }

    /// Does an operation in the drive and gives its records one by one;
    /// the next command is sent when those of the last have been taken.
    pub fn records(&mut self, ask: &Ask) -> Records<'_, T> {
        Records {
            request: self.request(ask),
            session: self,
            ready: VecDeque::new(),
            counters: Counters::default(),
            state: AnswerState::More,
            failure: None,
        }
    }

    /// What is asked, as a request.
    pub(crate) fn request(&self, ask: &Ask) -> Request {
        request(self.partition, &self.credentials, ask)
    }

    /// A command that does nothing: what remains is the round trip.
    ///
    /// # Errors
    /// [`Error`]: the drive refused, or could not be asked.
    pub fn nop(&mut self) -> Result<Summary, Error> {
        let ask = Ask { target: Target::Volume, operation: Operation::Nop, follow: true };
        let before = self.totals;
        let mut counters = Counters::default();
        self.each(None, &ask, &mut counters, &mut |_| ControlFlow::Continue(()))?;
        Ok(Summary { counters, moved: self.totals.since(&before) })
    }
}

fn request(partition: u32, credentials: &Credentials, ask: &Ask) -> Request {
    of(partition, credentials, ask, ask.target.clone())
}

/// The same about another target.
fn of(partition: u32, credentials: &Credentials, ask: &Ask, target: Target) -> Request {
    Request {
        partition,
        credentials: credentials.clone(),
        target,
        operation: ask.operation.clone(),
        follow: ask.follow,
        resume: None,
    }
}

/// Bytes for the reply to what asks for little about one path: what is to be warned of, its name and a link's
/// target, the longest that there is, or a cursor. Two pages, which a command describes without a list.
const LITTLE: usize = 8 << 10;
/// A path of so many bytes has room there.
const SHORT: usize = 1 << 10;

/// A request in wire form, and how many bytes its reply may fill, of a buffer of so many.
fn packed(request: &Request, buffer: usize) -> Result<(Vec<u8>, usize), Error> {
    let bytes = wire::encode_request(request);
    if bytes.len() > MAX_REQUEST {
        let reason = format!("{} bytes; the most is {MAX_REQUEST}", bytes.len());
        return Err(Error::Form { what: "request", reason });
    }
    let room = match &request.target {
        Target::Path(path) if request.operation.kind().brief && path.len() <= SHORT => buffer.min(LITTLE),
        Target::Paths(paths) => buffer.min(lists::room(paths.len())),
        _ => buffer,
    };
    let capacity = room.max(bytes.len().next_multiple_of(4096));
    Ok((bytes, capacity))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerState {
    More,
    Ended,
}

/// The records of an answer. After an error there are none.
pub struct Records<'s, T> {
    session: &'s mut Session<T>,
    request: Request,
    ready: VecDeque<Record<'static>>,
    counters: Counters,
    state: AnswerState,
    failure: Option<Error>,
}

impl<T: Transport> Records<'_, T> {
    /// What the commands so far cost in the drive.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn command(&mut self) -> Result<(), Error> {
        let reply = self.session.call(&self.request)?;
        add(&mut self.counters, &reply.counters);
        self.ready.extend(reply.records.into_iter().map(Record::into_owned));
        match on_from(!self.ready.is_empty(), reply.failure, reply.more) {
            Ok(Some(more)) => self.request.resume = Some(more),
            Ok(None) => self.state = AnswerState::Ended,
            Err(refused @ Error::Refused(_)) => {
                // What came before the refusal is handed on first.
                self.failure = Some(refused);
                self.state = AnswerState::Ended;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Where an answer goes on behind a reply, which had records or not; `None`: that was all.
///
/// # Errors
/// What the drive refused; a place to go on at, and nothing else.
pub fn on_from(any: bool, failure: Option<Failure>, more: Option<Cursor>) -> Result<Option<Cursor>, Error> {
    match (failure, more) {
        // An answer goes on because what there was found no room:
        // a drive that sends a cursor and nothing else would be asked for ever.
        (_, Some(more)) if !any => Err(Error::Form { what: "reply", reason: stuck(&more) }),
        (Some(failure), _) => Err(Error::Refused(failure)),
        (None, more) => Ok(more),
    }
}

fn stuck(more: &Cursor) -> String {
    format!("the drive makes no progress at byte {} of {}", more.offset, String::from_utf8_lossy(&more.path))
}

impl<T: Transport> Iterator for Records<'_, T> {
    type Item = Result<Record<'static>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(Ok(record));
            }
            if self.state == AnswerState::Ended {
                return self.failure.take().map(Err);
            }
            if let Err(error) = self.command() {
                self.state = AnswerState::Ended;
                self.ready.clear();
                return Some(Err(error));
            }
        }
    }
}

/// Adds the figures of one more command. They are what the drive says, so they may be anything.
pub(crate) fn add(to: &mut Counters, from: &Counters) {
    let add = |to: &mut u64, from: u64| *to = to.saturating_add(from);
    add(&mut to.bytes_scanned, from.bytes_scanned);
    add(&mut to.blocks_read, from.blocks_read);
    add(&mut to.cache_hits, from.cache_hits);
    add(&mut to.cache_misses, from.cache_misses);
    add(&mut to.files, from.files);
    add(&mut to.locate_ns, from.locate_ns);
    add(&mut to.compute_ns, from.compute_ns);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_drive_has_seen_counts_before_it_replies() {
        let (seen, drive) = (Seen::default(), Arc::new(AtomicU64::new(7)));
        seen.follow(drive.clone());
        assert_eq!(seen.get(), (0, 0));
        drive.store(10, Ordering::Relaxed);
        assert_eq!(seen.get(), (0, 3));
        seen.add(1, 3);
        assert_eq!(seen.get(), (1, 3));
        seen.begin(InAll::Bytes(100));
        assert_eq!((seen.get(), seen.all()), ((0, 0), Some(InAll::Bytes(100))));
        drive.store(12, Ordering::Relaxed);
        assert_eq!(seen.get(), (0, 2));
        // Of another drive, which it does not follow.
        seen.add(1, 5);
        assert_eq!(seen.get(), (1, 5));
        seen.expect(InAll::Files(7));
        assert_eq!((seen.get(), seen.all()), ((1, 5), Some(InAll::Files(7))));
        for nothing in [InAll::Bytes(0), InAll::Files(0), InAll::FilesAtMost(0)] {
            seen.expect(nothing);
            assert_eq!(seen.all(), None);
        }
    }
}
