//! The generator: a state machine that starts operations when they are due and takes their times.
//!
//! A runner calls [`Generator::step`] with the time and an engine until it is [`Wake::Over`]; real and
//! simulated time differ in the runner only. In an open loop arrivals are drawn beforehand and none is ever
//! skipped: where the engine is full or the thread was held up, operations start late, and their response
//! time runs from when they were due (no coordinated omission).
//!
//! A step starts at most one operation, so that each is dated by a time of its own. What else is due then
//! may follow at once ([`Generator::start_next`]): an engine that sends by a call of the system sends them
//! together.

use std::collections::VecDeque;

use nearside_clock::Nanos;

use crate::Latency;
use crate::arrivals::{Arrivals, Schedule};
use crate::engine::{Done, Engine, Io, Next, Submit};
use crate::outcome::{DEPTH_LEVELS, Outcome, StreamOutcome};
use crate::plan::{Plan, PlanError};
use crate::trace::{Arrival, Feed};
use crate::workload::{Direction, Places, Think, Trigger};
use nearside_random::scatter;

/// When to step again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// At once: an operation is due.
    Now,
    /// Nothing happens before this time.
    At(Nanos),
    /// Something in flight may end at any time: poll, or let the engine wait, until the time at the latest
    /// (`None`: no operation is due before one ends).
    Poll(Option<Nanos>),
    /// The run has ended.
    Over,
}

impl Wake {
    /// Whether an operation may be due by now.
    #[inline]
    #[must_use]
    pub fn is_due(self, now: Nanos) -> bool {
        match self {
            Wake::Now => true,
            Wake::At(at) | Wake::Poll(Some(at)) => at <= now,
            Wake::Poll(None) | Wake::Over => false,
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When to step again.
    pub wake: Wake,
    /// Whether anything was started or has ended.
    pub worked: bool,
    /// Operations that ended.
    pub ended: usize,
}

enum Source {
    Open(Schedule),
    Closed(Users),
    Recorded(Recorded),
}

/// The operations of a trace.
struct Recorded {
    feed: Feed,
    next: Option<Arrival>,
}

impl Recorded {
    /// On to the next one; what is wrong with the trace ends it.
    fn advance(&mut self, outcome: &mut StreamOutcome) {
        self.next = self.feed.take();
        if self.next.is_none() {
            outcome.trace_error = self.feed.error().cloned();
        }
    }
}

/// A closed loop.
struct Users {
    /// Users without an operation, by when their next one is due.
    free: VecDeque<Nanos>,
    think: Option<Think>,
    /// Operations since the last pause.
    since: u32,
    /// Nothing is started until all in flight have ended: then the pause begins.
    quiescing: bool,
    /// Of the pause, CPU time is burnt until then.
    spins_until: Nanos,
}

impl Users {
    fn new(users: u32, think: Option<Think>, now: Nanos) -> Users {
        let free = vec![now; users as usize].into();
        Users { free, think, since: 0, quiescing: false, spins_until: Nanos(0) }
    }

    fn due(&self) -> Option<Nanos> {
        self.free.front().copied().filter(|_| !self.quiescing)
    }

    /// Operations that end while it quiesces count for the next pause, as fio counts them.
    fn count(&mut self, at: Trigger) {
        let Some(think) = self.think else { return };
        self.since += u32::from(think.trigger == at);
        if self.since >= think.blocks && !self.quiescing {
            (self.quiescing, self.since) = (true, 0);
        }
    }

    fn started(&mut self) {
        self.free.pop_front();
        self.count(Trigger::Issue);
    }

    fn ended(&mut self, at: Nanos, in_flight: u32) {
        self.free.push_back(at);
        self.count(Trigger::Complete);
        if let Some(think) = self.think.filter(|_| self.quiescing && in_flight == 0) {
            self.quiescing = false;
            self.spins_until = at + think.spin_ns;
            self.free.iter_mut().for_each(|due| *due = at + think.time_ns);
        }
    }
}

struct Running {
    places: Places,
    source: Source,
    outcome: StreamOutcome,
    /// Operations of its own in flight.
    in_flight: u32,
}

impl Running {
    /// The operation that is due next.
    #[inline]
    fn draw(&mut self) -> (Direction, u64, u32) {
        match &self.source {
            Source::Recorded(Recorded { next: Some(arrival), .. }) => {
                (arrival.direction, arrival.offset, arrival.len)
            }
            _ => self.places.draw(),
        }
    }
}

#[derive(Clone, Copy)]
struct Flight {
    due: Nanos,
    submitted: Nanos,
    io: Io,
    stream: u32,
    live: bool,
}

/// Starts the operations of a plan when they are due, and takes their times.
pub struct Generator {
    streams: Vec<Running>,
    flights: Vec<Flight>,
    free: Vec<u32>,
    /// The next operation, drawn and not taken yet: its stream, when it was due, itself (without a token).
    waiting: Option<(usize, Nanos, Io)>,
    /// The engine was full since the last start on time.
    behind: bool,
    done: Vec<Done>,
    began: Nanos,
    from: Nanos,
    /// Nothing is due from here on.
    until: Nanos,
    /// The end of the time in which operations were due:
    /// earlier where their number bounds the run and they were sent late.
    due_until: Nanos,
    /// Operations still to be measured.
    left: u64,
    slice_ns: u64,
    service_slices: bool,
    /// The slice after the window: what ends later counts in it, however late.
    last_slice: usize,
    late_ns: u64,
    drain_ns: u64,
    patience_ns: u64,
    stop_on_error: bool,
    last: Nanos,
    /// Nothing more is started.
    stopping: bool,
}

/// The end of time, for a run that a number of operations bounds.
const NEVER: Nanos = Nanos(u64::MAX);
/// Operations that one step leaves out at most: a trace may have many more, and answers are to be taken and a
/// user listened to meanwhile.
const LEFT_OUT: usize = 4096;
/// Slices kept apart at most.
const MOST_SLICES: usize = 1 << 16;

impl Generator {
    /// A run that begins at `now`, on an engine that holds `depth` operations.
    ///
    /// # Errors
    /// What is wrong with the plan.
    pub fn new(plan: &Plan, depth: usize, now: Nanos) -> Result<Self, PlanError> {
        plan.check()?;
        let mut streams = Vec::with_capacity(plan.streams.len());
        let (mut users, mut constant) = (0u64, 0u64);
        for (index, stream) in plan.streams.iter().enumerate() {
            let name = || stream.name.clone();
            let seed = |what: u64| scatter(plan.seed ^ scatter(2 * index as u64 + what + 1));
            let places = stream.workload.places(seed(0));
            let places = places.map_err(|source| PlanError::Workload { stream: name(), source })?;
            let mut source = match stream.arrivals {
                Arrivals::Poisson { rate } | Arrivals::Constant { rate } => {
                    // At most one per nanosecond, at least one in a quarter of an hour.
                    if !(1e-3..=1e9).contains(&rate) {
                        return Err(PlanError::Rate { stream: name(), rate });
                    }
                    let poisson = matches!(stream.arrivals, Arrivals::Poisson { .. });
                    let schedule = Schedule::new(rate, poisson, plan.ramp_ns, seed(1));
                    let later_ns = if poisson { 0 } else { constant.saturating_mul(plan.apart_ns) };
                    constant += u64::from(!poisson);
                    Source::Open(schedule.later(later_ns))
                }
                Arrivals::Closed { depth: asked } => {
                    users += u64::from(asked);
                    if asked == 0 || users > depth as u64 {
                        return Err(PlanError::Depth { stream: name(), depth: users, most: depth });
                    }
                    Source::Closed(Users::new(asked, stream.workload.think, now))
                }
                Arrivals::Recorded { .. } => {
                    let trace = stream.workload.trace.as_ref();
                    let trace = trace.ok_or_else(|| PlanError::NoTrace { stream: name() })?;
                    let feed = Feed::open(trace);
                    let feed = feed.map_err(|source| PlanError::Trace { stream: name(), source })?;
                    Source::Recorded(Recorded { feed, next: None })
                }
            };
            let mut outcome = StreamOutcome::new(&stream.name, stream.arrivals, plan.runtime_ns);
            if let Source::Recorded(trace) = &mut source {
                trace.advance(&mut outcome);
            }
            streams.push(Running { places, source, outcome, in_flight: 0 });
        }
        let from = now + plan.ramp_ns + plan.warm_up_ns;
        let io = Io { token: 0, direction: Direction::Read, offset: 0, len: 0 };
        let empty = Flight { due: now, submitted: now, io, stream: 0, live: false };
        Ok(Self {
            streams,
            flights: vec![empty; depth],
            free: (0..depth as u32).rev().collect(),
            waiting: None,
            behind: false,
            done: Vec::with_capacity(depth),
            began: now,
            from,
            until: plan.runtime_ns.map_or(NEVER, |ns| from + ns),
            due_until: NEVER,
            left: plan.count.unwrap_or(u64::MAX),
            slice_ns: plan.slice_ns,
            service_slices: plan.service_slices,
            last_slice: plan
                .runtime_ns
                .map_or(MOST_SLICES, |ns| ns.div_ceil(plan.slice_ns).min(MOST_SLICES as u64) as usize),
            late_ns: plan.late_ns,
            drain_ns: plan.drain_ns,
            patience_ns: plan.patience_ns,
            stop_on_error: plan.stop_on_error,
            last: now,
            stopping: false,
        })
    }

    /// Operations in flight.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Until when a pause of think time burns CPU time, so that a runner does not sleep before.
    #[must_use]
    pub fn spins_until(&self) -> Nanos {
        let until = |stream: &Running| match &stream.source {
            Source::Closed(users) => users.spins_until,
            Source::Open(_) | Source::Recorded(_) => Nanos(0),
        };
        self.streams.iter().map(until).max().unwrap_or(Nanos(0))
    }

    /// What was measured so far, for a display of progress: when the window begins, and the streams.
    pub fn progress(&self) -> (Nanos, impl Iterator<Item = &StreamOutcome>) {
        (self.from, self.streams.iter().map(|stream| &stream.outcome))
    }

    /// Takes what has ended, starts the next operation if it is due.
    #[inline]
    pub fn step<E: Engine + ?Sized>(&mut self, now: Nanos, engine: &mut E) -> Step {
        let mut done = std::mem::take(&mut self.done);
        engine.poll(now, &mut done);
        let ended = done.len();
        let mut worked = ended > 0;
        for done in done.drain(..) {
            self.end(&done);
        }
        self.done = done;
        if self.stopping {
            return Step { wake: self.closing(now, engine), worked, ended };
        }
        let (wake, started) = self.begin(now, engine);
        worked |= started;
        Step { wake, worked, ended }
    }

    /// Starts the next operation, where it is due and there is room for it, without a look at what has ended.
    /// When to step again; `None`: nothing was started, and [`Generator::step`] says.
    #[inline]
    pub fn start_next<E: Engine + ?Sized>(&mut self, now: Nanos, engine: &mut E) -> Option<Wake> {
        // Where there is no room, that is for a look to say: an operation that has ended makes some.
        if self.stopping || self.free.is_empty() {
            return None;
        }
        let (wake, started) = self.begin(now, engine);
        started.then_some(wake)
    }

    /// Starts the next operation if it is due; whether it did.
    #[inline]
    fn begin<E: Engine + ?Sized>(&mut self, now: Nanos, engine: &mut E) -> (Wake, bool) {
        let mut started = false;
        let mut due = self.due();
        let mut refused = false;
        if let Some((stream, at)) = due.filter(|(_, at)| *at <= now) {
            if now.since(self.until) > self.drain_ns {
                self.leave_out(now);
            } else {
                started = self.start(stream, at, now, engine);
                refused = !started;
            }
            due = self.due();
        }
        let wake = match (due, engine.next()) {
            (None, _) => self.closing(now, engine),
            (Some(_), Next::At(at)) if refused => Wake::At(at),
            // Full with nothing in flight is the engine's own affair, which only polling finds.
            (Some(_), _) if refused => Wake::Poll(None),
            (Some((_, due)), _) if due <= now => Wake::Now,
            (Some((_, due)), Next::Idle) => Wake::At(due),
            (Some((_, due)), Next::At(at)) => Wake::At(due.min(at)),
            (Some((_, due)), Next::Poll) => Wake::Poll(Some(due)),
        };
        (wake, started)
    }

    /// Nothing is due any more: only answers are waited for.
    fn closing<E: Engine + ?Sized>(&mut self, now: Nanos, engine: &mut E) -> Wake {
        let patient = self.until.max(self.last) + self.drain_ns + self.patience_ns;
        if self.in_flight() > 0 && now < patient {
            return match engine.next() {
                Next::At(at) => Wake::At(at.min(patient)),
                _ => Wake::Poll(Some(patient)),
            };
        }
        for flight in self.flights.iter_mut().filter(|flight| flight.live) {
            flight.live = false;
            if flight.due < self.from {
                continue;
            }
            let outcome = &mut self.streams[flight.stream as usize].outcome;
            outcome.unanswered += 1;
            let at_ns = flight.due.since(self.from);
            tally(outcome, flight.io.direction).respond(at_ns, now.since(flight.due));
        }
        self.stopping = true;
        Wake::Over
    }

    /// The stream whose operation is due next, and when.
    #[inline]
    fn due(&self) -> Option<(usize, Nanos)> {
        if let Some((stream, due, _)) = self.waiting {
            return Some((stream, due));
        }
        if self.left == 0 {
            return None;
        }
        let mut first: Option<(usize, Nanos)> = None;
        for (index, stream) in self.streams.iter().enumerate() {
            let due = match &stream.source {
                Source::Open(schedule) => self.began + schedule.due_ns(),
                Source::Recorded(trace) => match &trace.next {
                    Some(arrival) => self.began + arrival.due_ns,
                    None => continue,
                },
                Source::Closed(users) => match users.due() {
                    Some(at) => at,
                    None => continue,
                },
            };
            if due < self.until && first.is_none_or(|(_, earliest)| due < earliest) {
                first = Some((index, due));
            }
        }
        first
    }

    /// Whether the engine took it.
    #[inline]
    fn start<E: Engine + ?Sized>(&mut self, index: usize, due: Nanos, now: Nanos, engine: &mut E) -> bool {
        let io = match self.waiting {
            Some((_, _, io)) => io,
            None => {
                let (direction, offset, len) = self.streams[index].draw();
                Io { token: 0, direction, offset, len }
            }
        };
        let taken = self.free.last().is_some_and(|&token| {
            let io = Io { token, ..io };
            self.flights[token as usize] =
                Flight { due, submitted: now, io, stream: index as u32, live: false };
            engine.submit(&io, now) == Submit::Taken
        });
        if !taken {
            self.waiting = Some((index, due, io));
            self.behind = true;
            return false;
        }
        self.waiting = None;
        if let Some(token) = self.free.pop() {
            self.flights[token as usize].live = true;
        }
        let stream = &mut self.streams[index];
        stream.in_flight += 1;
        match &mut stream.source {
            Source::Open(schedule) => schedule.advance(),
            Source::Closed(users) => users.started(),
            Source::Recorded(trace) => trace.advance(&mut stream.outcome),
        }
        let late = now.since(due);
        if due >= self.from {
            stream.outcome.offered += 1;
            let level = stream.in_flight.ilog2().min(DEPTH_LEVELS as u32 - 1);
            stream.outcome.depths[level as usize] += 1;
            if late > self.late_ns {
                stream.outcome.lateness.record(late);
                *(if self.behind { &mut stream.outcome.queued } else { &mut stream.outcome.late }) += 1;
            }
            if !(self.behind && late > self.late_ns) {
                stream.outcome.held_ns += late;
            }
            self.left -= 1;
            if self.left == 0 {
                // The last one: the window ends now, and the time in which they were due with its turn.
                self.until = now + 1;
                self.due_until = due + 1;
            }
        }
        if late <= self.late_ns {
            self.behind = false;
        }
        true
    }

    #[inline]
    fn end(&mut self, done: &Done) {
        let Some(flight) = self.flights.get_mut(done.token as usize).filter(|flight| flight.live) else {
            return;
        };
        flight.live = false;
        let flight = *flight;
        self.free.push(done.token);
        self.last = self.last.max(done.at);
        let stream = &mut self.streams[flight.stream as usize];
        stream.in_flight -= 1;
        if let Source::Closed(users) = &mut stream.source {
            users.ended(done.at, stream.in_flight);
        }
        let outcome = &mut stream.outcome;
        if let Err(failure) = done.result {
            outcome.errors += 1;
            outcome.first_error.get_or_insert((failure, flight.io.offset));
            if self.stop_on_error {
                self.stop(done.at);
            }
            return;
        }
        outcome.ended_within += u64::from(done.at >= self.from && done.at < self.until);
        if flight.due < self.from {
            return;
        }
        let response = done.at.since(flight.due);
        let slice = ((done.at.since(self.from) / self.slice_ns) as usize).min(self.last_slice);
        if outcome.slices.len() <= slice {
            outcome.slices.resize_with(slice + 1, Latency::new);
        }
        outcome.slices[slice].record(response);
        let service = done.at.since(flight.submitted);
        if self.service_slices {
            if outcome.service_slices.len() <= slice {
                outcome.service_slices.resize_with(slice + 1, Latency::new);
            }
            outcome.service_slices[slice].record(service);
        }
        let tally = tally(outcome, flight.io.direction);
        tally.respond(flight.due.since(self.from), response);
        tally.service.record(service);
        tally.bytes += u64::from(flight.io.len);
    }

    /// The time to drain is over: what was due and was never sent is counted with what it has waited.
    #[cold]
    fn leave_out(&mut self, now: Nanos) {
        for _ in 0..LEFT_OUT {
            let Some((index, due)) = self.due() else { break };
            let direction = match self.waiting.take() {
                Some((_, _, io)) => io.direction,
                None => self.streams[index].draw().0,
            };
            let stream = &mut self.streams[index];
            match &mut stream.source {
                Source::Open(schedule) => schedule.advance(),
                Source::Closed(users) => drop(users.free.pop_front()),
                Source::Recorded(trace) => trace.advance(&mut stream.outcome),
            }
            if due >= self.from {
                stream.outcome.offered += 1;
                stream.outcome.unsent += 1;
                tally(&mut stream.outcome, direction).respond(due.since(self.from), now.since(due));
            }
        }
    }

    /// Starts nothing more; the window ends now. The run is over when what is in flight has ended.
    pub fn stop(&mut self, now: Nanos) {
        self.until = self.until.min(now);
        self.waiting = None;
        self.stopping = true;
    }

    /// What was measured. A run that is not over yet is taken as it stands;
    /// its window ends with the last operation that ended.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        let until = if self.stopping { self.until } else { self.until.min(self.last) };
        Outcome {
            streams: self.streams.into_iter().map(|stream| stream.outcome).collect(),
            began: self.began,
            from: self.from,
            until: until.max(self.from),
            due_until: self.due_until.min(until).max(self.from),
            ended: self.last,
            slice_ns: self.slice_ns,
        }
    }
}

#[inline]
fn tally(outcome: &mut StreamOutcome, direction: Direction) -> &mut crate::outcome::Tally {
    match direction {
        Direction::Read => &mut outcome.reads,
        Direction::Write => &mut outcome.writes,
    }
}
