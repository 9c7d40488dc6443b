//! A thread of the target: its sockets, and the reactors of the queues that they are.
//!
//! One turn: mail, sockets, reactors that have something to do, answers. A thread that had work lately looks at its busy sockets itself;
//! one that had none sleeps in epoll, where other threads, hosts and deadlines wake it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_device::firmware::Turn;
use nearside_device::{BATCH, Firmware, Reactor};
use nearside_spec::Status;
use nearside_spec::registers::{self as reg, csts};
use nearside_store::Store;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;

use crate::association::{Association, Local};
use crate::connection::{Connection, Cx, End, Moving, Phase, SCRATCH};
use crate::pool::Pool;
use crate::queue::Queue;
use crate::target::{Options, Target};

/// What threads tell each other.
pub(crate) enum Mail<S: Store, F: Firmware<S>> {
    /// A reactor of a new controller.
    Reactor(Arc<Association<S, F>>, Box<Reactor<S, F>>),
    /// A connection whose Connect was accepted.
    Serve(Box<Connection<S, F>>),
    /// An association ends.
    End(u16),
    /// A controller was reset or shut down: its I/O queues end.
    QueuesEnd(u16),
}

/// Where controllers find a thread's staging buffers.
pub(crate) fn pool_iova(thread: usize) -> u64 {
    (thread as u64 + 1) << 40
}

const WAKEUP: u64 = u64::MAX;
const LISTENERS: u64 = 1 << 48;
/// Busy sockets that are looked at without asking epoll, and turns between two questions.
const HOT: usize = 8;
const ASK_EVERY: u32 = 16;
/// Turns between two looks at every reactor's mailbox, while awake.
const SWEEP_EVERY: u32 = 64;
/// How often peers that owe something are looked at.
const WATCH_NS: u64 = 250_000_000;
/// How long commands that found no staging buffer wait at least before they try again, once one came back.
const RETRY_NS: u64 = 200_000;
/// Connections that are accepted in a row.
const ACCEPTS: usize = 64;
/// How long nothing is accepted after that failed, unless a connection ends.
const PAUSE_NS: u64 = 250_000_000;
/// How often the log says the same of connections that cannot be taken.
const SAY_EVERY_NS: u64 = 60_000_000_000;
/// What a timed sleep overshoots by.
const EARLY_NS: u64 = 80_000;
/// How long connections may take to end when the target stops.
const STOP_NS: u64 = 5_000_000_000;

pub(crate) struct Thread<S: Store, F: Firmware<S>, C> {
    index: usize,
    target: Arc<Target<S, F>>,
    clock: C,
    poller: OwnedFd,
    pool: Pool,
    listeners: Vec<TcpListener>,
    connections: Vec<Option<Box<Connection<S, F>>>>,
    free: Vec<usize>,
    locals: Vec<Option<Box<Local<S, F>>>>,
    by_cntlid: HashMap<u16, usize>,
    /// The association whose near-data work has the first claim on the next slice.
    first: usize,
    /// The last turn had a slice of near-data work.
    sliced: bool,
    /// Sockets that had something lately, and when.
    hot: Vec<(usize, Nanos)>,
    scratch: Box<[u8]>,
    watched: Nanos,
    unstalled: Nanos,
    /// When connections are accepted again.
    paused: Option<Nanos>,
    /// When the log last said that connections cannot be taken.
    said: Option<Nanos>,
    strangers: Strangers,
    stopping: Option<Nanos>,
}

/// Connections whose hosts have not said who they are, by where they come from. They are all on the thread that accepts.
#[derive(Default)]
struct Strangers {
    by_address: HashMap<IpAddr, usize>,
    all: usize,
}

impl Strangers {
    /// What counts as one place: an address, or the network that one customer has at least (RFC 6177).
    fn place(peer: &SocketAddr) -> IpAddr {
        match peer.ip().to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
            v4 => v4,
        }
    }

    /// One more, unless there are as many as may be.
    fn admit(&mut self, peer: &SocketAddr, options: &Options) -> bool {
        if self.all >= options.connections.div_ceil(2) {
            return false;
        }
        let here = self.by_address.entry(Strangers::place(peer)).or_default();
        if *here >= options.per_address {
            return false;
        }
        (*here, self.all) = (*here + 1, self.all + 1);
        true
    }

    fn leave(&mut self, peer: &SocketAddr) {
        let place = Strangers::place(peer);
        self.all -= 1;
        if let Some(here) = self.by_address.get_mut(&place) {
            *here -= 1;
            if *here == 0 {
                self.by_address.remove(&place);
            }
        }
    }
}

impl<S: Store, F: Firmware<S>, C: Clock> Thread<S, F, C> {
    pub(crate) fn new(
        index: usize,
        target: Arc<Target<S, F>>,
        listeners: Vec<TcpListener>,
        clock: C,
    ) -> io::Result<Self> {
        let poller = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&poller, target.wakeup.event_of(index), EventData::new_u64(WAKEUP), EventFlags::IN)?;
        for (key, listener) in listeners.iter().enumerate() {
            listener.set_nonblocking(true)?;
            epoll::add(&poller, listener, EventData::new_u64(LISTENERS + key as u64), EventFlags::IN)?;
        }
        let pool = Pool::new(target.options.staging, pool_iova(index))?;
        target.pools.lock().unwrap_or_else(|e| e.into_inner())[index] = Some(pool.region().clone());
        Ok(Thread {
            index,
            clock,
            poller,
            pool,
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            locals: Vec::new(),
            by_cntlid: HashMap::new(),
            first: 0,
            sliced: false,
            hot: Vec::new(),
            scratch: vec![0; SCRATCH].into(),
            watched: Nanos(0),
            unstalled: Nanos(0),
            paused: None,
            said: None,
            strangers: Strangers::default(),
            stopping: None,
            target,
        })
    }

    /// Serves until the target stops.
    pub(crate) fn run(mut self) {
        let mut last_work = self.clock.now();
        let mut turn = 0u32;
        loop {
            let now = self.clock.now();
            turn = turn.wrapping_add(1);
            let sweep = turn.is_multiple_of(SWEEP_EVERY);
            let mut work = if sweep || self.locals.len() <= 4 { self.read_mail(now) } else { 0 };
            work += self.look(turn, now);
            work += self.step(now, sweep || self.locals.len() <= 4);
            if now.since(self.watched) > WATCH_NS {
                self.watch(now);
            }
            if self.pool.has_news() && now.since(self.unstalled) > RETRY_NS {
                self.unstall(now);
            }
            if self.paused.is_some_and(|until| until <= now) {
                self.accept_again();
            }
            if self.stopping.is_some() || self.target.stopping.load(Ordering::Relaxed) {
                if self.stop(now) {
                    return;
                }
                std::thread::sleep(Duration::from_micros(100));
                continue;
            }
            if work > 0 {
                last_work = now;
                continue;
            }
            if now.since(last_work) < self.target.options.idle_ns {
                std::hint::spin_loop();
                continue;
            }
            self.sleep(now);
        }
    }

    /// Sleeps until a socket, another thread or a deadline.
    fn sleep(&mut self, now: Nanos) {
        let mut next = self.locals.iter().flatten().filter_map(|local| local.due).min();
        if self.connections.iter().flatten().any(|connection| connection.is_owed()) {
            let watch = self.watched + WATCH_NS + 1;
            next = Some(next.map_or(watch, |next| next.min(watch)));
        }
        if let Some(until) = self.paused {
            next = Some(next.map_or(until, |next| next.min(until)));
        }
        if self.pool.has_news() {
            let retry = self.unstalled + RETRY_NS + 1;
            next = Some(next.map_or(retry, |next| next.min(retry)));
        }
        let timeout = match next.map(|next| next.since(now).saturating_sub(EARLY_NS)) {
            Some(0) => return std::hint::spin_loop(),
            timeout => timeout,
        };
        let target = self.target.clone();
        target.wakeup.arm_as(self.index);
        let quiet = !target.has_mail(self.index)
            && !target.stopping.load(Ordering::SeqCst)
            && self.locals.iter().flatten().all(|local| local.reactor.is_quiet());
        if quiet {
            self.poll(timeout.map(Duration::from_nanos), now);
        }
        target.wakeup.disarm_as(self.index);
        target.wakeup.event_of(self.index).take();
        let now = self.clock.now();
        self.read_mail(now);
        self.step(now, true);
    }

    /// Asks epoll; takes what there is.
    fn poll(&mut self, timeout: Option<Duration>, now: Nanos) -> usize {
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
        let timeout = timeout
            .map(|t| rustix::event::Timespec { tv_sec: t.as_secs() as _, tv_nsec: t.subsec_nanos() as _ });
        let count = match epoll::wait(&self.poller, &mut events, timeout.as_ref()) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => {
                tracing::error!(%error, "epoll");
                0
            }
        };
        let now =
            if timeout.is_some_and(|t| t.tv_sec == 0 && t.tv_nsec == 0) { now } else { self.clock.now() };
        let mut work = 0;
        for event in events.iter().take(count) {
            let (key, flags) = (event.data.u64(), event.flags);
            match key {
                WAKEUP => work += 1,
                LISTENERS.. => work += self.accept((key - LISTENERS) as usize, now),
                key => work += self.ready(key as usize, flags, now),
            }
        }
        work
    }

    /// A socket is said to be ready.
    fn ready(&mut self, key: usize, flags: EventFlags, now: Nanos) -> usize {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        // Both directions have ended, and what may still be there is not taken now: without this it would be told again and again.
        if flags.intersects(EventFlags::HUP | EventFlags::ERR)
            && let Some(connection) = connection.take_if(|connection| !connection.takes())
        {
            self.close(key, connection);
            return 1;
        }
        if !self.hot.iter().any(|(hot, _)| *hot == key) {
            self.hot.push((key, now));
        }
        let work = self.serve(key, now);
        if work == 0 {
            self.target.counters.fruitless.fetch_add(1, Ordering::Relaxed);
        }
        work.min(1)
    }

    /// Looks at the sockets.
    fn look(&mut self, turn: u32, now: Nanos) -> usize {
        let mut work = 0;
        let idle = self.target.options.idle_ns;
        if self.hot.len() <= HOT {
            let mut keys = [0; HOT];
            let count = self.hot.len();
            keys.iter_mut().zip(&self.hot).for_each(|(to, (key, _))| *to = *key);
            for &key in &keys[..count] {
                // Whoever has just gone is not there any more.
                if self.serve(key, now) > 0
                    && let Some(hot) = self.hot.iter_mut().find(|(hot, _)| *hot == key)
                {
                    work += 1;
                    hot.1 = now;
                }
            }
            self.hot.retain(|(_, last)| now.since(*last) < idle);
            // After a slice of near-data work every host is looked at, not only those that had something lately.
            let asks = self.sliced || turn.is_multiple_of(ASK_EVERY);
            if !asks && !self.hot.is_empty() {
                return work;
            }
        } else {
            self.hot.clear();
        }
        work + self.poll(Some(Duration::ZERO), now)
    }

    /// Takes connections. Returns how many it looked at.
    fn accept(&mut self, listener: usize, now: Nanos) -> usize {
        for looked in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(listener) else { return looked };
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return looked,
                    // It was gone before it was taken.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => continue,
                    _ => {
                        self.pause_accepting(&error, now);
                        return looked;
                    }
                },
            };
            let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            let Ok(address) = ready.and_then(|()| stream.local_addr()) else { continue };
            let target = &self.target;
            let open = target.counters.open.load(Ordering::Relaxed);
            if open >= target.options.connections as u64 || !self.strangers.admit(&peer, &target.options) {
                target.counters.turned_away.fetch_add(1, Ordering::Relaxed);
                if self.may_say(now) {
                    tracing::warn!(%peer, open, "there are too many connections, of all or from that address");
                }
                continue;
            }
            target.counters.connections.fetch_add(1, Ordering::Relaxed);
            target.counters.open.fetch_add(1, Ordering::Relaxed);
            self.insert(Box::new(Connection::new(stream, peer, address, now)));
        }
        ACCEPTS
    }

    /// Whether the log has not said it lately.
    fn may_say(&mut self, now: Nanos) -> bool {
        let may = self.said.is_none_or(|said| now.since(said) > SAY_EVERY_NS);
        if may {
            self.said = Some(now);
        }
        may
    }

    /// No connection can be accepted, for lack of descriptors or of memory: the poller would say again and again that there is one.
    fn pause_accepting(&mut self, error: &io::Error, now: Nanos) {
        self.target.counters.not_accepted.fetch_add(1, Ordering::Relaxed);
        if self.may_say(now) {
            tracing::warn!(%error, "no connection can be accepted until another ends");
        }
        self.paused = Some(now + PAUSE_NS);
        self.arm_listeners(EventFlags::empty());
    }

    fn accept_again(&mut self) {
        if self.paused.take().is_some() {
            self.arm_listeners(EventFlags::IN);
        }
    }

    fn arm_listeners(&self, flags: EventFlags) {
        for (key, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENERS + key as u64);
            if let Err(error) = epoll::modify(&self.poller, listener, data, flags) {
                tracing::error!(%error, "epoll");
            }
        }
    }

    fn insert(&mut self, mut connection: Box<Connection<S, F>>) -> Option<usize> {
        let key = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let data = EventData::new_u64(key as u64);
        if let Err(error) = epoll::add(&self.poller, &connection.stream, data, EventFlags::IN) {
            tracing::error!(%error, "epoll");
            self.free.push(key);
            self.target.counters.open.fetch_sub(1, Ordering::Relaxed);
            self.no_stranger(&mut connection);
            return None;
        }
        connection.armed = (true, false);
        self.connections[key] = Some(connection);
        Some(key)
    }

    /// Its host has said who it is, or it has gone.
    fn no_stranger(&mut self, connection: &mut Connection<S, F>) {
        if std::mem::take(&mut connection.is_stranger) {
            self.strangers.leave(&connection.peer);
        }
    }

    /// One connection: reads, hands on, answers what can be answered. Returns the bytes read and written.
    fn serve(&mut self, key: usize, now: Nanos) -> usize {
        let Some(mut connection) = self.connections.get_mut(key).and_then(Option::take) else { return 0 };
        let local = connection.local.and_then(|key| self.locals.get_mut(key)?.as_deref_mut());
        let mut cx = Cx { target: &self.target, pool: &mut self.pool, local, now };
        let got = match connection.read(&mut self.scratch, &mut cx) {
            Ok(got) => got,
            Err(End::Fatal(fatal, header)) => {
                tracing::info!(peer = %connection.peer, %fatal, "a PDU broke the rules");
                self.target.counters.refused.fetch_add(1, Ordering::Relaxed);
                connection.terminate(fatal, &header);
                1
            }
            Err(End::Closed) => {
                self.close(key, connection);
                return 1;
            }
            Err(End::Io(error)) => {
                tracing::info!(peer = %connection.peer, %error, "a connection broke");
                self.close(key, connection);
                return 1;
            }
        };
        if got > 0 {
            self.target.counters.received.fetch_add(got as u64, Ordering::Relaxed);
        }
        let written = connection.write(&mut cx);
        connection.go_on(&mut cx);
        if let (Some(queue), Some(association), Some(local)) =
            (&mut connection.queue, &connection.association, &mut cx.local)
            && queue.ring(association.registers())
        {
            local.due = Some(now);
        }
        if let Phase::Moving(moving) = &connection.phase {
            let thread = moving.association.thread_of(moving.qid);
            let _ = epoll::delete(&self.poller, &connection.stream);
            self.free.push(key);
            self.hot.retain(|(hot, _)| *hot != key);
            self.no_stranger(&mut connection);
            self.target.post(thread, Mail::Serve(connection));
            if thread == self.index {
                self.read_mail(now);
            }
            return got.max(1);
        }
        match written {
            Ok(written) => {
                self.arm(key, &mut connection);
                self.connections[key] = Some(connection);
                got + written
            }
            Err(_) => {
                self.close(key, connection);
                got.max(1)
            }
        }
    }

    /// Asks the poller for what came where it would be taken, for room where something could not be sent, and no longer where not: it tells
    /// of what is there again and again.
    fn arm(&self, key: usize, connection: &mut Connection<S, F>) {
        let wanted = (connection.takes(), !connection.output.is_empty());
        if wanted != connection.armed {
            connection.armed = wanted;
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, wanted.0);
            flags.set(EventFlags::OUT, wanted.1);
            let _ = epoll::modify(&self.poller, &connection.stream, EventData::new_u64(key as u64), flags);
        }
    }

    /// A connection is over. Its queue stays until the controller has let go of it; an admin queue takes its association along.
    fn close(&mut self, key: usize, mut connection: Box<Connection<S, F>>) {
        let _ = epoll::delete(&self.poller, &connection.stream);
        self.free.push(key);
        self.hot.retain(|(hot, _)| *hot != key);
        self.target.counters.open.fetch_sub(1, Ordering::Relaxed);
        self.no_stranger(&mut connection);
        // It gives a descriptor back.
        self.accept_again();
        connection.output.clear(&mut self.pool);
        let local = connection.local.and_then(|at| self.locals.get_mut(at)?.as_deref_mut());
        let (Some(mut queue), Some(local)) = (connection.queue.take(), local) else { return };
        local.connections.retain(|other| *other != key);
        queue.clear_waiting(&mut self.pool);
        if queue.id == 0 {
            tracing::info!(
                cntlid = local.association.cntlid,
                host = local.association.host_nqn,
                "disconnected"
            );
            local.leaving.push(*queue);
            let association = local.association.clone();
            self.target.end(&association);
        } else {
            local.association.queues.fetch_sub(1, Ordering::Relaxed);
            local.reactor.close_pair(queue.id);
            local.leaving.push(*queue);
        }
        local_due(&mut self.locals, connection.local);
    }

    fn read_mail(&mut self, now: Nanos) -> usize {
        let mail = self.target.mail(self.index);
        let count = mail.len();
        for mail in mail {
            match mail {
                Mail::Reactor(association, reactor) => {
                    let cntlid = association.cntlid;
                    let local = Box::new(Local {
                        association,
                        reactor: *reactor,
                        connections: Vec::new(),
                        leaving: Vec::new(),
                        orphans: Vec::new(),
                        due: Some(now),
                    });
                    let at = self.locals.iter().position(Option::is_none).unwrap_or_else(|| {
                        self.locals.push(None);
                        self.locals.len() - 1
                    });
                    self.locals[at] = Some(local);
                    self.by_cntlid.insert(cntlid, at);
                }
                Mail::Serve(connection) => self.welcome(connection, now),
                Mail::End(cntlid) => self.end(cntlid, now),
                Mail::QueuesEnd(cntlid) => self.end_queues(cntlid),
            }
        }
        count
    }

    /// A connection becomes a queue of a controller.
    fn welcome(&mut self, mut connection: Box<Connection<S, F>>, now: Nanos) {
        let Phase::Moving(moving) = std::mem::replace(&mut connection.phase, Phase::Initialized) else {
            return;
        };
        let Moving { association, cid, qid, entries, flow } = *moving;
        let at = self.by_cntlid.get(&association.cntlid).copied();
        let local = at.and_then(|at| self.locals.get_mut(at)?.as_deref_mut());
        let opened = match local.filter(|local| !local.association.ended.load(Ordering::Acquire)) {
            None => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            // The queue of a connection that has just gone may not be at its end yet.
            Some(local)
                if local.leaving.iter().any(|queue| queue.id == qid) || local.reactor.has_pair(qid) =>
            {
                Err(Status::COMMAND_SEQUENCE_ERROR)
            }
            Some(local) => {
                let queue = Queue::new(qid, entries, flow, &association.rings);
                let opened = if qid == 0 { Ok(()) } else { local.reactor.open_pair(&queue.pair()) };
                opened.map(|()| (queue, local))
            }
        };
        let status = match opened {
            Ok((mut queue, local)) => {
                queue.advance();
                connection.queue = Some(Box::new(queue));
                connection.association = Some(association.clone());
                connection.local = at;
                connection.phase = Phase::Serving;
                local.due = Some(now);
                Status::SUCCESS
            }
            Err(status) => status,
        };
        let result = if status.is_success() { association.cntlid.into() } else { 0 };
        connection.begun = now;
        connection.answer(cid, result, status, &self.target.counters);
        // What came behind the Connect command is looked at as well.
        connection.stalled = true;
        let Some(key) = self.insert(connection) else {
            if qid == 0 {
                self.target.end(&association);
            }
            return;
        };
        if status.is_success()
            && let Some(local) = at.and_then(|at| self.locals.get_mut(at)?.as_deref_mut())
        {
            local.connections.push(key);
            if qid != 0 {
                association.queues.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.hot.push((key, now));
        self.serve(key, now);
    }

    /// An association ends: its connections close, and its reactor goes when nothing is in flight.
    fn end(&mut self, cntlid: u16, now: Nanos) {
        let Some(&at) = self.by_cntlid.get(&cntlid) else { return };
        let Some(local) = self.locals.get_mut(at).and_then(Option::as_deref_mut) else { return };
        local.due = Some(now);
        local.reactor.abandon();
        for key in local.connections.clone() {
            if let Some(connection) = self.connections.get_mut(key).and_then(Option::take) {
                self.close(key, connection);
            }
        }
    }

    /// The I/O queues of a controller end, its admin queue stays.
    fn end_queues(&mut self, cntlid: u16) {
        let Some(&at) = self.by_cntlid.get(&cntlid) else { return };
        let Some(local) = self.locals.get(at).and_then(Option::as_deref) else { return };
        for key in local.connections.clone() {
            let io = |c: &mut Box<Connection<S, F>>| c.queue.as_ref().is_some_and(|queue| queue.id != 0);
            if let Some(connection) = self.connections.get_mut(key).and_then(|c| c.take_if(io)) {
                self.close(key, connection);
            }
        }
    }

    /// Steps the reactors that have something to do, and answers what they have completed. `sweep`: looks at all mailboxes.
    fn step(&mut self, now: Nanos, sweep: bool) -> usize {
        let (mut work, mut turn) = (0, Turn::new());
        let (count, first) = (self.locals.len(), self.first);
        for at in (first.min(count)..count).chain(0..first.min(count)) {
            let Some(local) = &self.locals[at] else { continue };
            let due = local.due.is_some_and(|due| due <= now);
            if due || (sweep && !local.reactor.is_quiet()) {
                let had_slice = !turn.is_spent();
                work += self.step_one(at, now, &mut turn);
                if had_slice && turn.is_spent() {
                    self.first = at + 1;
                }
            }
        }
        self.sliced = turn.is_spent();
        work
    }

    fn step_one(&mut self, at: usize, now: Nanos, turn: &mut Turn) -> usize {
        let Some(local) = self.locals.get_mut(at).and_then(Option::as_deref_mut) else { return 0 };
        let mut step = local.reactor.step_in(now, turn);
        // What is sent by one call is best more than a batch, and no more than the cache holds.
        if step.work >= BATCH {
            step.merge(local.reactor.step_in(now, turn));
        }
        let mut work = step.work;
        // What was done at once may have left more to do.
        local.due = if step.work > 0 { Some(now) } else { step.next };
        for index in 0.. {
            let Some(local) = self.locals.get_mut(at).and_then(Option::as_deref_mut) else { break };
            let Some(&key) = local.connections.get(index) else { break };
            let Some(mut connection) = self.connections.get_mut(key).and_then(Option::take) else { continue };
            let mut cx = Cx { target: &self.target, pool: &mut self.pool, local: None, now };
            let done = connection.reap(&mut cx);
            let mut broken = false;
            if done > 0 {
                work += done;
                broken = connection.write(&mut cx).is_err();
                // What was held back because so much waited to be sent.
                connection.go_on(&mut cx);
                if let (Some(queue), Some(association)) = (&mut connection.queue, &connection.association)
                    && queue.ring(association.registers())
                {
                    local.due = Some(now);
                }
            }
            if broken {
                self.close(key, connection);
                continue;
            }
            if done > 0 {
                self.arm(key, &mut connection);
            }
            self.connections[key] = Some(connection);
        }
        self.tidy(at, now);
        work
    }

    /// Queues whose connections are gone, controllers that gave up, associations that end.
    fn tidy(&mut self, at: usize, now: Nanos) {
        let Some(local) = self.locals.get_mut(at).and_then(Option::as_deref_mut) else { return };
        let ended = local.association.ended.load(Ordering::Acquire);
        if !local.leaving.is_empty() {
            let (pool, reactor) = (&mut self.pool, &local.reactor);
            local.leaving.retain_mut(|queue| {
                let there = if queue.id == 0 { reactor.in_flight() > 0 } else { reactor.has_pair(queue.id) };
                if !there {
                    queue.clear(pool);
                }
                there
            });
        }
        if local.reactor.in_flight() == 0 {
            local.orphans.drain(..).for_each(|buffer| self.pool.give_back(buffer));
        }
        if ended {
            if local.leaving.is_empty() && local.connections.is_empty() && local.reactor.is_drained() {
                self.by_cntlid.remove(&local.association.cntlid);
                self.locals[at] = None;
            } else {
                local.due = Some(local.due.map_or(now + 1_000_000, |due| due.min(now + 1_000_000)));
            }
            return;
        }
        let fatal = local.association.registers().word32(reg::CSTS).load(Ordering::Relaxed) & csts::CFS != 0;
        if fatal && local.connections.iter().any(|key| self.connections.get(*key).is_some()) {
            tracing::warn!(
                cntlid = local.association.cntlid,
                host = local.association.host_nqn,
                "the host fell silent"
            );
            self.target.counters.silent.fetch_add(1, Ordering::Relaxed);
            let association = local.association.clone();
            self.target.end(&association);
        }
    }

    /// Peers that owe something for too long lose their connections.
    fn watch(&mut self, now: Nanos) {
        self.watched = now;
        for key in 0..self.connections.len() {
            let patience = self.target.patience();
            let late = |connection: &mut Box<Connection<S, F>>| {
                connection.due(&patience).is_some_and(|due| due <= now)
            };
            if let Some(connection) = self.connections[key].take_if(late) {
                tracing::info!(peer = %connection.peer, "a peer was waited for in vain");
                self.target.counters.slow.fetch_add(1, Ordering::Relaxed);
                self.close(key, connection);
            }
        }
    }

    /// Connections that wait for staging buffers try again.
    fn unstall(&mut self, now: Nanos) {
        self.unstalled = now;
        self.pool.take_news();
        for key in 0..self.connections.len() {
            let Some(connection) = &self.connections[key] else { continue };
            let waits =
                connection.stalled || connection.queue.as_ref().is_some_and(|q| !q.postponed.is_empty());
            if waits {
                self.resume(key, now);
            }
        }
    }

    fn resume(&mut self, key: usize, now: Nanos) {
        let Some(connection) = self.connections.get_mut(key).and_then(Option::as_deref_mut) else { return };
        let mut cx = Cx { target: &self.target, pool: &mut self.pool, local: None, now };
        connection.go_on(&mut cx);
        self.serve(key, now);
        if let Some(connection) = self.connections.get_mut(key).and_then(Option::as_deref_mut)
            && let (Some(queue), Some(association)) = (&mut connection.queue, &connection.association)
            && queue.ring(association.registers())
        {
            local_due(&mut self.locals, connection.local);
        }
    }

    /// The target stops: what was taken is finished and answered, then everything is closed. Whether that is done.
    fn stop(&mut self, now: Nanos) -> bool {
        let since = *self.stopping.get_or_insert(now);
        let late = now.since(since) > STOP_NS;
        self.listeners.clear();
        for key in 0..self.connections.len() {
            let Some(connection) = &self.connections[key] else { continue };
            let busy = connection.queue.as_ref().map_or(0, |queue| queue.busy());
            let unsent = connection.output.waiting();
            // An admin queue takes its association along: it goes last.
            let leads = connection.queue.as_ref().is_some_and(|queue| queue.id == 0)
                && connection.association.as_ref().is_some_and(|a| a.queues.load(Ordering::Relaxed) > 0);
            if !late && (busy > 0 || unsent > 0 || leads) {
                continue;
            }
            if busy > 0 || unsent > 0 {
                tracing::warn!(peer = %connection.peer, commands = busy, unsent, "a host did not let its commands end");
                self.target.counters.unanswered.fetch_add(busy as u64, Ordering::Relaxed);
            }
            if let Some(connection) = self.connections[key].take() {
                self.close(key, connection);
            }
        }
        let gone = self.connections.iter().all(Option::is_none) && self.locals.iter().all(Option::is_none);
        let given_up = !gone && now.since(since) > 2 * STOP_NS;
        if given_up {
            tracing::error!("a store did not end what it had begun");
            self.target.counters.given_up.fetch_add(1, Ordering::Relaxed);
        }
        gone || given_up
    }
}

/// A reactor has something to do.
fn local_due<S: Store, F: Firmware<S>>(locals: &mut [Option<Box<Local<S, F>>>], at: Option<usize>) {
    if let Some(local) = at.and_then(|at| locals.get_mut(at)?.as_deref_mut()) {
        local.due = Some(Nanos(0));
    }
}
