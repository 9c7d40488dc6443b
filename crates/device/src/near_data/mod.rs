//! Near-data commands: the firmware that understands files.
//!
//! [`Fsr`] is a drive's [`Firmware`]: it holds the [`Retriever`] that all reactors share, tells its monitor of every change of the
//! namespace, and gives each reactor an [`FsrWorker`]. A command passes: [`FsrWorker::start`] (decodes the request, refuses what is not one)
//! -> a task of the executor -> [`Retriever::run`] -> the reply's bytes -> the reactor, which copies them to the host.
//!
//! Tasks run on threads of their own where there are [`Workers`], else on the reactor, between looks at its I/O.
//!
//! Every door leads to the same task. The bidirectional command and DAC'23's Get Features are one command each; `execute` and
//! `result` meet under their tag in either order; Set Features keeps its reply for Get Features to fetch.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use nearside_clock::{Clock, Nanos};
use nearside_dma::Memory;
use nearside_fsr::Retriever;
pub use nearside_fsr::{Breakdown, Config, Part, Trace};
use nearside_spec::Status;
use nearside_spec::near_data::wire::{REPLY_HEADER, decode_request};
use nearside_spec::near_data::{MAX_BUFFER, MAX_GROUPS, MAX_PATH, MAX_REQUEST, ReplyStatus};
use nearside_store::{Store, Token};

use crate::executor::{Executor, Finished};
use crate::firmware::{Door, Firmware, Job, Observer, Outcome, Progress, Seat, Turn, Worker};
use crate::meters::Meters;
pub use crate::meters::{Held, SLICE_NS, Slices};
use crate::workers::Crew;
pub use crate::workers::{Hands, Workers};
use crate::{Host, Identity, Namespace};

mod identity;
mod lanes;
mod mailbox;
mod tags;

use lanes::{Desk, FsrLane};
use mailbox::Mailbox;
use tags::{HostTags, Kept, Meeting, Owner, Tags};

/// Longest that a `result` waits.
const MAX_WAIT_MS: u32 = 5_000;

/// Where tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On the reactors of that number of all controllers, between their I/O.
    Reactor(usize),
    /// On that thread of the [`Workers`].
    Thread(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Reactor(index) => write!(f, "reactor {index}"),
            Place::Thread(index) => write!(f, "thread {index}"),
        }
    }
}

/// The firmware: a retriever for one namespace.
pub struct Fsr {
    retriever: Arc<Retriever>,
    /// Each command has a retriever of its own, made so.
    alone: Option<Config>,
    clock: Arc<dyn Clock>,
    tags: Mutex<Tags>,
    crew: Option<Arc<Crew>>,
    /// The namespace's lane on each thread, while there is one.
    lanes: Mutex<Vec<Weak<Desk>>>,
    meters: Mutex<BTreeMap<Place, Arc<Meters>>>,
    /// Of workers and of tasks.
    next: AtomicU64,
}

impl Fsr {
    /// With the drive's clock, by which slices end.
    pub fn new(clock: Arc<dyn Clock>, config: Config) -> Fsr {
        Fsr::of(clock, Retriever::new(config))
    }

    /// As [`Fsr::new`]; `trace` is told where the time of every near-data command goes.
    pub fn traced(clock: Arc<dyn Clock>, config: Config, trace: Arc<Trace>) -> Fsr {
        Fsr::of(clock, Retriever::traced(config, trace))
    }

    fn of(clock: Arc<dyn Clock>, retriever: Retriever) -> Fsr {
        Fsr {
            retriever: Arc::new(retriever),
            alone: None,
            clock,
            tags: Mutex::default(),
            crew: None,
            lanes: Mutex::default(),
            meters: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    /// The same, whose tasks run on these threads and not on the reactors. Those have to outlive the drive's reactors; commands that they
    /// leave are answered as aborted.
    pub fn on(self, hands: Option<Hands>) -> Fsr {
        Fsr { crew: hands.map(|Hands(crew)| crew), ..self }
    }

    /// Slices so far, by where they ran.
    pub fn slices(&self) -> Vec<(Place, Slices)> {
        lock(&self.meters).iter().map(|(place, meters)| (*place, meters.slices())).collect()
    }

    /// What near-data work holds at this moment.
    pub fn held(&self) -> Held {
        let mut held = Held::default();
        lock(&self.meters).values().for_each(|meters| held.merge(meters.held()));
        held
    }

    /// Tags under which something is kept for a host, and `result`s that wait.
    pub fn tags_kept(&self) -> usize {
        self.tags().len()
    }

    fn meters(&self, place: Place) -> Arc<Meters> {
        lock(&self.meters).entry(place).or_default().clone()
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// As [`Fsr::new`], over bytes that change behind the drive's back: no command takes anything that another has read for what it is now.
    /// What changes while a command runs may still show in its answer as it was when it was read, or half of each.
    pub fn distrusting(clock: Arc<dyn Clock>, config: Config) -> Fsr {
        Fsr { alone: Some(config), ..Fsr::new(clock, config) }
    }

    /// What answers a command.
    fn for_command(&self) -> Arc<Retriever> {
        match self.alone {
            Some(config) => Arc::new(Retriever::new(config)),
            None => self.retriever.clone(),
        }
    }

    /// What the drive knows of its files; its monitor's counters.
    pub fn retriever(&self) -> &Retriever {
        &self.retriever
    }

    fn tags(&self) -> MutexGuard<'_, Tags> {
        lock(&self.tags)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// The lanes of a namespace, made where there are none.
fn lanes<S: Store>(namespace: &Arc<Namespace<S, Fsr>>, crew: &Arc<Crew>) -> io::Result<Vec<Arc<Desk>>> {
    let fsr = namespace.observer();
    let mut lanes = lock(&fsr.lanes);
    lanes.resize(crew.threads(), Weak::new());
    let mut desks = Vec::new();
    for (thread, lane) in lanes.iter_mut().enumerate() {
        if let Some(desk) = lane.upgrade().filter(|desk| !desk.is_closed()) {
            desks.push(desk);
            continue;
        }
        let access = namespace.access(Arc::new(Memory::new()))?;
        let executor = Executor::new(access, fsr.clock.clone(), fsr.meters(Place::Thread(thread)));
        let desk = Arc::new(Desk::new(crew.clone()));
        *lane = Arc::downgrade(&desk);
        let (running, finished) = (Vec::new(), Vec::new());
        crew.give(thread, Box::new(FsrLane { desk: desk.clone(), executor, running, finished }));
        desks.push(desk);
    }
    Ok(desks)
}

impl Observer for Fsr {
    #[inline]
    fn begin(&self, offset: u64, len: u64) {
        self.retriever.monitor().begin(offset, len);
    }

    #[inline]
    fn end(&self, offset: u64, len: u64, _durable: bool) {
        self.retriever.monitor().end(offset, len);
    }
}

impl<S: Store> Firmware<S> for Fsr {
    type Worker = FsrWorker<S>;

    fn worker(namespace: &Arc<Namespace<S, Fsr>>, seat: &Seat<'_>) -> io::Result<FsrWorker<S>> {
        let fsr = namespace.observer();
        let site = match fsr.crew.as_ref().filter(|crew| !crew.is_stopped()) {
            Some(crew) => Site::Elsewhere(lanes(namespace, crew)?),
            None => {
                let access = namespace.access(seat.memory.clone())?;
                let meters = fsr.meters(Place::Reactor(seat.reactor));
                Site::Here(Executor::new(access, fsr.clock.clone(), meters))
            }
        };
        let (id, mailbox) = (fsr.next(), Arc::new(Mailbox::new(seat.wakeup.clone())));
        fsr.tags().with(seat.host, |tags| tags.join(id, mailbox.clone()));
        Ok(FsrWorker {
            namespace: namespace.clone(),
            host: seat.host.clone(),
            id,
            mailbox,
            site,
            running: Vec::new(),
            waiting: Vec::new(),
            outcomes: Vec::new(),
            finished: Vec::new(),
            claims: Nanos(0),
        })
    }

    /// Log page D5h, 64 bytes, little-endian: magic "NDCP", version u16 (1), length u16 (64), the longest request u32,
    /// the largest buffer u32, the longest path u32, the most groups u32; then as bits by their numbers on the wire
    /// operations u32, targets u32, checksums u32, and doors u32 (0 the bidirectional command, not over fabrics, 1 execute and result, 2 Get Features,
    /// 3 Set Features); the longest wait of a `result` in milliseconds u32; zeros.
    fn capabilities(&self, fabric: bool) -> Vec<u8> {
        let mut page = Vec::with_capacity(64);
        page.extend_from_slice(b"NDCP");
        page.extend_from_slice(&1u16.to_le_bytes());
        page.extend_from_slice(&64u16.to_le_bytes());
        let numbers = [
            MAX_REQUEST as u32,
            MAX_BUFFER as u32,
            MAX_PATH as u32,
            MAX_GROUPS as u32,
            0b1_1111_1111,
            0b1_1111,
            0b1110,
            if fabric { 0b1110 } else { 0b1111 },
            MAX_WAIT_MS,
        ];
        page.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        page.resize(64, 0);
        page
    }
}

/// For whom a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// A command of this reactor.
    Command(Token),
    /// Whoever asks for its tag by `result`.
    Tag,
    /// Whoever asks for its tag by Get Features.
    Feature,
}

struct Running {
    key: u64,
    whose: For,
    /// Where there are several lanes: which.
    lane: usize,
}

/// A `result` whose task runs or whose `execute` has not come.
struct Waiting {
    token: Token,
    queue: u16,
    tag: u64,
    room: usize,
    until: Nanos,
    /// Its task runs.
    runs: bool,
}

/// What a task does.
struct Work {
    retriever: Arc<Retriever>,
    request: nearside_fsr::Request,
    identity: Identity,
    room: usize,
}

impl Work {
    fn spawn<S: Store>(mut self, key: u64, executor: &mut Executor<S, Fsr, Vec<u8>>) {
        executor.spawn(key, |media| async move {
            match identity::apply(self.identity, &mut self.request.credentials) {
                Ok(squashed) => {
                    let mut sink = nearside_translate::WireSink::new(self.room, squashed);
                    let answer = self.retriever.run(&media, &self.request, &mut sink).await;
                    sink.finish(answer)
                }
                Err(why) => {
                    nearside_translate::WireSink::new(self.room, None).refuse(&ReplyStatus::DeniedAs(why))
                }
            }
        });
    }
}

/// Where a reactor's tasks run.
enum Site<S: Store> {
    Here(Executor<S, Fsr, Vec<u8>>),
    Elsewhere(Vec<Arc<Desk>>),
}

/// The near-data commands of one reactor.
pub struct FsrWorker<S: Store> {
    namespace: Arc<Namespace<S, Fsr>>,
    host: Host,
    id: u64,
    mailbox: Arc<Mailbox>,
    site: Site<S>,
    running: Vec<Running>,
    waiting: Vec<Waiting>,
    outcomes: Vec<(Token, Outcome)>,
    finished: Finished<Vec<u8>>,
    /// When to look again whether somebody still asks for what runs under tags.
    claims: Nanos,
}

fn done(status: Status, result: u32, reply: Vec<u8>) -> Outcome {
    Outcome { status, result, reply }
}

fn replied(reply: Vec<u8>) -> Outcome {
    done(Status::SUCCESS, reply.len() as u32, reply)
}

/// A request's bytes, checked. What is not a request is refused as a field of the command.
fn checked(bytes: &[u8], room: usize) -> Result<nearside_fsr::Request, Status> {
    if room < REPLY_HEADER {
        return Err(Status::INVALID_FIELD.dnr());
    }
    match decode_request(bytes) {
        Ok(request) => Ok(nearside_translate::request(request)),
        Err(_) => Err(Status::INVALID_FIELD.dnr()),
    }
}

impl<S: Store> FsrWorker<S> {
    /// What the drive keeps under this host's tags.
    fn tags<R>(&self, with: impl FnOnce(&mut HostTags) -> R) -> R {
        self.namespace.observer().tags().with(&self.host, with)
    }

    fn owner(&self, queue: u16) -> Owner {
        Owner { worker: self.id, queue }
    }

    fn run(&mut self, key: u64, request: nearside_fsr::Request, room: usize, whose: For) {
        let retriever = self.namespace.observer().for_command();
        let work = Work { retriever, request, identity: self.host.identity, room };
        let mut lane = 0;
        match &mut self.site {
            Site::Here(executor) => work.spawn(key, executor),
            Site::Elsewhere(desks) => {
                lane = (0..desks.len()).min_by_key(|&at| desks[at].load()).unwrap_or(0);
                match desks.get(lane) {
                    Some(desk) => desk.start(key, Box::new(work), self.mailbox.clone()),
                    None => self.mailbox.reply(key, None),
                }
            }
        }
        self.running.push(Running { key, whose, lane });
    }

    /// Ends a task; whether there was one.
    fn stop(&mut self, which: impl Fn(&Running) -> bool) -> bool {
        let Some(at) = self.running.iter().position(which) else { return false };
        let Running { key, lane, .. } = self.running.swap_remove(at);
        match &mut self.site {
            Site::Here(executor) => {
                executor.cancel(key);
            }
            Site::Elsewhere(desks) => {
                if let Some(desk) = desks.get(lane) {
                    desk.cancel(key);
                }
            }
        }
        true
    }

    /// A task has ended; `None`: without a reply.
    fn ended(&mut self, key: u64, reply: Option<Vec<u8>>) {
        let Some(at) = self.running.iter().position(|r| r.key == key) else { return };
        match self.running.swap_remove(at).whose {
            For::Command(token) => {
                let aborted = || done(Status::ABORT_REQUESTED, 0, Vec::new());
                self.outcomes.push((token, reply.map_or_else(aborted, replied)));
            }
            For::Tag => self.tags(|tags| tags.ended(key, reply)),
            For::Feature => self.tags(|tags| tags.kept_ended(key, reply)),
        }
    }

    /// A `result`: its reply, or a place among those that wait. `None`: answered later.
    fn result(&mut self, mut waiting: Waiting, again: bool, now: Nanos) -> Option<Outcome> {
        let Waiting { token, tag, room, until, .. } = waiting;
        let (owner, key) = (self.owner(waiting.queue), self.namespace.observer().next());
        let ended = match self.tags(|tags| tags.meet((tag, room), (owner, token), key, again, now)) {
            Meeting::Reply(reply) => replied(reply),
            Meeting::Failed(status) => done(status, 0, Vec::new()),
            Meeting::Start(request) => {
                self.run(key, *request, room, For::Tag);
                self.claims = self.claims.min(now);
                waiting.runs = true;
                if now < until {
                    self.waiting.push(waiting);
                    return None;
                }
                done(Status::SUCCESS, 0, Vec::new())
            }
            Meeting::Wait(runs) if now < until => {
                waiting.runs = runs;
                self.waiting.push(waiting);
                return None;
            }
            // That it runs: success without bytes.
            Meeting::Wait(true) => done(Status::SUCCESS, 0, Vec::new()),
            Meeting::Wait(false) => done(Status::COMMAND_SEQUENCE_ERROR, 0, Vec::new()),
        };
        self.tags(|tags| tags.unwait(tag, self.id, token));
        Some(ended)
    }

    /// Looks again at the `result`s that wait: at all, or at those whose time is over.
    fn look(&mut self, all: bool, now: Nanos) {
        let due: Vec<Waiting> = self.waiting.extract_if(.., |w| all || w.until <= now).collect();
        for waiting in due {
            let token = waiting.token;
            if let Some(outcome) = self.result(waiting, true, now) {
                self.outcomes.push((token, outcome));
            }
        }
    }

    /// Ends what runs under tags that nobody asks for.
    fn give_up(&mut self, now: Nanos) {
        let of_tags = self.running.iter().filter(|r| r.whose == For::Tag).map(|r| r.key);
        let keys: Vec<u64> = of_tags.collect();
        let due = self.tags(|tags| keys.iter().filter_map(|&key| tags.give_up(key, now)).min());
        self.claims = due.unwrap_or(now + tags::UNCLAIMED_NS);
    }
}

/// What ran here under tags has failed, and what came by this reactor is kept no longer.
impl<S: Store> Drop for FsrWorker<S> {
    fn drop(&mut self) {
        while let Some(Running { key, .. }) = self.running.last() {
            let key = *key;
            self.stop(|r| r.key == key);
        }
        self.tags(|tags| tags.part(self.id));
        if let Site::Elsewhere(desks) = &mut self.site {
            Desk::release(std::mem::take(desks));
        }
    }
}

impl<S: Store> Worker for FsrWorker<S> {
    fn start(&mut self, job: Job, now: Nanos) -> Result<(), Status> {
        let Job { token, queue, door, request, room } = job;
        let key = self.namespace.observer().next();
        let outcome = match door {
            Door::Command => {
                let request = checked(&request, room)?;
                self.run(key, request, room, For::Command(token));
                return Ok(());
            }
            Door::Feature { .. } if request.starts_with(b"NDRQ") => {
                let request = checked(&request, room)?;
                self.run(key, request, room, For::Command(token));
                return Ok(());
            }
            Door::Feature { tag, offset } => match self.tags(|tags| tags.kept(tag, offset, room)) {
                Kept::Part(part, len) => done(Status::SUCCESS, len, part),
                Kept::Running => done(Status::SUCCESS, 0, Vec::new()),
                Kept::Unknown => return Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            },
            Door::SetFeature { tag } => {
                let request = checked(&request, MAX_BUFFER)?;
                let owner = self.owner(queue);
                self.tags(|tags| tags.keep(tag, key, owner, now))?;
                self.run(key, request, MAX_BUFFER, For::Feature);
                done(Status::SUCCESS, 0, Vec::new())
            }
            Door::Execute { tag } => {
                let parsed = checked(&request, MAX_BUFFER);
                let status = parsed.as_ref().err().copied().unwrap_or(Status::SUCCESS);
                let owner = self.owner(queue);
                self.tags(|tags| tags.execute(tag, (parsed, request.len()), owner, now))?;
                // A failed `execute` fails its `result` as well.
                done(status, 0, Vec::new())
            }
            Door::Result { tag, wait_ms } => {
                let until = now + u64::from(wait_ms.min(MAX_WAIT_MS)) * 1_000_000;
                if room < REPLY_HEADER {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                let waiting = Waiting { token, queue, tag, room, until, runs: false };
                match self.result(waiting, false, now) {
                    Some(outcome) => outcome,
                    None => return Ok(()),
                }
            }
            Door::Cancel { tag } => {
                let known = self.tags(|tags| tags.cancel(tag));
                done(Status::SUCCESS, u32::from(known), Vec::new())
            }
        };
        self.outcomes.push((token, outcome));
        Ok(())
    }

    fn step(&mut self, now: Nanos, turn: &mut Turn, answer: &mut impl FnMut(Token, Outcome)) -> Progress {
        // First, so that what is cancelled here runs no more.
        let mut news = self.read_mail();
        let mut progress = Progress { worked: news, next: None };
        if let Site::Here(executor) = &mut self.site {
            let mut finished = std::mem::take(&mut self.finished);
            let ran = executor.step(now, turn, &mut finished);
            progress = Progress { worked: ran.worked || news, next: ran.next };
            for (key, reply) in finished.drain(..) {
                self.ended(key, Some(reply));
            }
            self.finished = finished;
            // A reply that has just come under a tag is answered in this step.
            news |= self.read_mail();
        }
        if !self.waiting.is_empty() {
            self.look(news, now);
            progress.at(self.waiting.iter().map(|w| w.until).min());
        }
        if self.running.iter().any(|r| r.whose == For::Tag) {
            if self.claims <= now {
                self.give_up(now);
            }
            progress.at(Some(self.claims));
        }
        for (token, outcome) in self.outcomes.drain(..) {
            progress.worked = true;
            answer(token, outcome);
        }
        progress
    }

    fn cancel(&mut self, token: Token) {
        if self.stop(|r| r.whose == For::Command(token)) {
        } else if let Some(at) = self.waiting.iter().position(|w| w.token == token) {
            let Waiting { tag, runs, .. } = self.waiting.swap_remove(at);
            // Its task goes along, unless another asks for it.
            self.tags(|tags| {
                if !tags.unwait(tag, self.id, token) && runs {
                    tags.cancel(tag);
                }
            });
        } else {
            // Its outcome is on its way.
            return;
        }
        self.outcomes.push((token, done(Status::ABORT_REQUESTED, 0, Vec::new())));
    }

    fn leave(&mut self, queue: Option<u16>) {
        self.tags(|tags| tags.leave(self.id, queue));
    }

    fn in_flight(&self) -> usize {
        match &self.site {
            Site::Here(executor) => executor.in_flight(),
            Site::Elsewhere(_) => 0,
        }
    }

    fn is_quiet(&self) -> bool {
        !self.mailbox.is_full()
    }
}

impl<S: Store> FsrWorker<S> {
    /// What has come from elsewhere; whether something has.
    fn read_mail(&mut self) -> bool {
        if !self.mailbox.is_full() {
            return false;
        }
        let mail = self.mailbox.take();
        for key in mail.cancelled {
            self.stop(|r| r.key == key);
        }
        for (key, reply) in mail.replies {
            self.ended(key, reply);
        }
        true
    }
}
