//! A thread of the target: its sockets, and the reactors of the queues that they are.
//!
//! One turn: mail, sockets, reactors that have something to do, answers. A thread that had work lately looks
//! at its busy sockets itself; one that had none sleeps in epoll, where other threads, hosts and deadlines
//! wake it.
//!
//! The thread owns connections, controllers' parts and staging buffers side by side. A connection is lent
//! what it works with ([`Context`]), says what is to be done for it ([`Received`]), and the thread does that
//! once nothing is lent any more.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use nearside_auth::Done;
use nearside_clock::{Clock, Nanos};
use nearside_device::firmware::Turn;
use nearside_device::{BATCH, Firmware};
use nearside_spec::Status;
use nearside_spec::fabrics::command::AUTHENTICATION_REQUIRED;
use nearside_spec::registers::{self as reg, csts};
use nearside_store::Store;

use crate::acceptor::{Accepted, Acceptor};
use crate::association::{Association, LocalController};
use crate::authentication::{Authentication, Job};
use crate::connection::{Connection, Context, Phase, Received, SCRATCH};
use crate::mail::{Mail, Mailboxes};
use crate::poller::{PollEvent, Poller};
use crate::pool::{Pool, pool_iova};
use crate::queue::Queue;
use crate::target::Target;

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
/// What a timed sleep overshoots by.
const EARLY_NS: u64 = 80_000;
/// How long connections may take to end when the target stops.
const STOP_NS: u64 = 5_000_000_000;

pub(crate) struct Thread<S: Store, F: Firmware<S>, C> {
    index: usize,
    target: Arc<Target<S, F>>,
    mailboxes: Arc<Mailboxes<S, F>>,
    clock: C,
    poller: Poller,
    pool: Pool,
    acceptor: Acceptor,
    connections: Vec<Option<Box<Connection<S, F>>>>,
    free: Vec<usize>,
    locals: Vec<Option<Box<LocalController<S, F>>>>,
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
    stopping: Option<Nanos>,
    /// To whom work of authentication is given.
    ask: Sender<Job>,
}

impl<S: Store, F: Firmware<S>, C: Clock> Thread<S, F, C> {
    pub(crate) fn new(
        index: usize,
        target: Arc<Target<S, F>>,
        mailboxes: Arc<Mailboxes<S, F>>,
        clock: C,
        ask: Sender<Job>,
    ) -> io::Result<Self> {
        let poller = Poller::new(&target.wakeup, index)?;
        let pool = Pool::new(target.options.staging, pool_iova(index))?;
        target.pools.lock().unwrap_or_else(|e| e.into_inner())[index] = Some(pool.region().clone());
        Ok(Thread {
            index,
            target,
            mailboxes,
            clock,
            poller,
            pool,
            acceptor: Acceptor::new(),
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
            stopping: None,
            ask,
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
            work += self.serve_sockets(turn, now);
            work += self.step_reactors(now, sweep || self.locals.len() <= 4);
            if now.since(self.watched) > WATCH_NS {
                self.close_late_peers(now);
            }
            if self.pool.has_returned() && now.since(self.unstalled) > RETRY_NS {
                self.retry_stalled(now);
            }
            if self.acceptor.paused_until().is_some_and(|until| until <= now) {
                self.acceptor.resume(&self.poller);
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
            if let Some(woken) = self.sleep(now) {
                last_work = woken;
            }
        }
    }

    /// When there is something to do without an event.
    fn next_deadline(&self) -> Option<Nanos> {
        let reactors = self.locals.iter().flatten().filter_map(|local| local.due);
        let owed = self.connections.iter().flatten().any(|connection| connection.is_owed());
        let watch = owed.then(|| self.watched + WATCH_NS + 1);
        let retry = self.pool.has_returned().then(|| self.unstalled + RETRY_NS + 1);
        reactors.chain(watch).chain(retry).chain(self.acceptor.paused_until()).min()
    }

    /// Sleeps until a socket, another thread or a deadline. When it woke, where there was something to do:
    /// from then on the thread stays awake for a while, as after all work.
    fn sleep(&mut self, now: Nanos) -> Option<Nanos> {
        let timeout = match self.next_deadline().map(|next| next.since(now).saturating_sub(EARLY_NS)) {
            Some(0) => {
                std::hint::spin_loop();
                return None;
            }
            timeout => timeout,
        };
        let target = self.target.clone();
        target.wakeup.arm_as(self.index);
        let quiet = self.mailboxes.is_empty(self.index)
            && !target.stopping.load(Ordering::SeqCst)
            && self.locals.iter().flatten().all(|local| local.reactor.is_quiet());
        let mut work = 0;
        if quiet {
            work += self.poll(timeout.map(Duration::from_nanos), now);
        }
        target.wakeup.disarm_as(self.index);
        target.wakeup.event_of(self.index).take();
        let now = self.clock.now();
        work += self.read_mail(now);
        work += self.step_reactors(now, true);
        (work > 0).then_some(now)
    }

    /// Asks the poller; takes what there is.
    fn poll(&mut self, timeout: Option<Duration>, now: Nanos) -> usize {
        let events = self.poller.wait(timeout);
        let now = if timeout == Some(Duration::ZERO) { now } else { self.clock.now() };
        let mut work = 0;
        for event in events {
            work += match event {
                PollEvent::Wakeup => 1,
                PollEvent::Listener(listener) => self.accept(listener, now),
                PollEvent::Socket { key, ended } => self.socket_ready(key, ended, now),
            };
        }
        work
    }

    /// A socket is said to be ready.
    fn socket_ready(&mut self, key: usize, ended: bool, now: Nanos) -> usize {
        let Some(Some(connection)) = self.connections.get(key) else { return 0 };
        // Both directions have ended, and what may still be there is not taken now: without this it would be
        // told again and again.
        if ended && !connection.takes() {
            self.close(key);
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

    /// Looks at the sockets: at busy ones itself, at all by the poller.
    fn serve_sockets(&mut self, turn: u32, now: Nanos) -> usize {
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
            // After a slice of near-data work every host is looked at, not only those that had something
            // lately.
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
            let Target { options, counters, .. } = &*self.target;
            match self.acceptor.accept(listener, &self.poller, options, counters, now) {
                Accepted::Nothing => return looked,
                Accepted::Dropped => {}
                Accepted::Connection(stream, peer, address) => {
                    self.insert(Box::new(Connection::new(stream, peer, (listener as u16, address), now)));
                }
            }
        }
        ACCEPTS
    }

    fn insert(&mut self, mut connection: Box<Connection<S, F>>) -> Option<usize> {
        let key = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if let Err(error) = self.poller.add(key, connection.channel.socket()) {
            tracing::error!(%error, "epoll");
            self.free.push(key);
            self.target.counters.open.fetch_sub(1, Ordering::Relaxed);
            self.identified(&mut connection);
            return None;
        }
        connection.added_to_poller();
        self.connections[key] = Some(connection);
        Some(key)
    }

    /// Takes a connection out: it is over, or another thread's.
    fn remove(&mut self, key: usize) -> Option<Box<Connection<S, F>>> {
        let connection = self.connections.get_mut(key)?.take()?;
        self.poller.remove(connection.channel.socket());
        self.free.push(key);
        self.hot.retain(|(hot, _)| *hot != key);
        Some(connection)
    }

    /// A host has said who it is, and proved it where it has to, or has gone.
    fn identified(&mut self, connection: &mut Connection<S, F>) {
        if std::mem::take(&mut connection.is_unidentified) {
            count_no_more(self.index, &mut self.acceptor, &self.mailboxes, connection.peer);
        }
    }

    /// One connection: reads, hands on, answers what can be answered. Returns the bytes read and written.
    fn serve(&mut self, key: usize, now: Nanos) -> usize {
        let Some(Some(connection)) = self.connections.get_mut(key) else { return 0 };
        let local = connection.local.and_then(|at| self.locals.get_mut(at)?.as_deref_mut());
        let cntlid = local.as_ref().map(|local| local.association.cntlid);
        let mut cx = Context { target: &self.target, pool: &mut self.pool, local, now };
        let got = match (connection.receive(&mut self.scratch, &mut cx), cntlid) {
            (Received::Closed, _) => {
                self.close(key);
                return 1;
            }
            // Before the answer reaches the host: a queue that it connects then is a new one.
            (Received::QueuesEnd(got), Some(cntlid)) => {
                self.mailboxes.post_all(|| Mail::QueuesEnd(cntlid));
                got
            }
            (Received::QueuesEnd(got), None) | (Received::Bytes(got), _) => got,
        };
        connection.give_work(&self.ask, self.index, key, &cx);
        if connection.has_proved() {
            count_no_more(self.index, &mut self.acceptor, &self.mailboxes, connection.peer);
        }
        let sent = connection.send(&mut cx);
        if connection.is_accepted() {
            self.hand_over(key, now);
            return got.max(1);
        }
        match sent {
            Ok(sent) => {
                arm(&self.poller, key, connection);
                got + sent
            }
            Err(_) => {
                self.close(key);
                got.max(1)
            }
        }
    }

    /// A connection whose Connect was accepted goes to the thread of its queue, after its controller's
    /// reactors have gone to theirs.
    fn hand_over(&mut self, key: usize, now: Nanos) {
        let Some(mut connection) = self.remove(key) else { return };
        let Phase::Accepted(accepted) = &mut connection.phase else { return };
        let association = &accepted.association;
        for (index, reactor) in accepted.reactors.drain(..).enumerate() {
            let thread = (association.first + index) % association.threads;
            self.mailboxes.post(thread, Mail::Reactor(association.clone(), Box::new(reactor)));
        }
        let thread = association.thread_of(accepted.qid);
        self.mailboxes.post(thread, Mail::Serve(connection));
        if thread == self.index {
            self.read_mail(now);
        }
    }

    /// A connection is over. Its queue stays until the controller has let go of it; an admin queue takes its
    /// association along.
    fn close(&mut self, key: usize) {
        let Some(mut connection) = self.remove(key) else { return };
        self.target.counters.open.fetch_sub(1, Ordering::Relaxed);
        // It gives a descriptor back.
        self.acceptor.resume(&self.poller);
        self.identified(&mut connection);
        connection.output.clear(&mut self.pool);
        connection.give_up(&self.target, self.clock.now());
        let local = connection.local.and_then(|at| self.locals.get_mut(at)?.as_deref_mut());
        let (Some(mut queue), Some(local)) = (connection.queue.take(), local) else { return };
        local.connections.retain(|other| *other != key);
        local.due = Some(Nanos(0));
        queue.clear_waiting(&mut self.pool);
        let association = &local.association;
        if queue.id == 0 {
            tracing::info!(cntlid = association.cntlid, host = association.host_nqn, "disconnected");
            end(&self.target, &self.mailboxes, association);
        } else {
            association.queues.fetch_sub(1, Ordering::Relaxed);
            local.reactor.close_pair(queue.id);
        }
        local.leaving.push(*queue);
    }

    fn read_mail(&mut self, now: Nanos) -> usize {
        let mail = self.mailboxes.take(self.index);
        let count = mail.len();
        for mail in mail {
            match mail {
                Mail::Reactor(association, reactor) => {
                    let cntlid = association.cntlid;
                    let at = self.locals.iter().position(Option::is_none).unwrap_or_else(|| {
                        self.locals.push(None);
                        self.locals.len() - 1
                    });
                    self.locals[at] = Some(Box::new(LocalController::new(association, *reactor, now)));
                    self.by_cntlid.insert(cntlid, at);
                }
                Mail::Worked(key, number, done) => self.worked(key, number, *done, now),
                Mail::Identified(peer) => self.acceptor.identified(&peer),
                Mail::Serve(connection) => self.open_queue(connection, now),
                Mail::End(cntlid) => self.end_association(cntlid, now),
                Mail::QueuesEnd(cntlid) => self.end_queues(cntlid),
                Mail::Listen(number, listener) => {
                    if let Err(error) = self.acceptor.listen(number, listener, &self.poller) {
                        tracing::error!(%error, "epoll");
                    }
                }
                Mail::StopListening(number) => self.acceptor.stop_listening(number),
            }
        }
        count
    }

    /// Work of a connection's authentication was done.
    fn worked(&mut self, key: usize, number: u64, done: Done, now: Nanos) {
        let Some(Some(connection)) = self.connections.get_mut(key) else { return };
        let mut cx = Context { target: &self.target, pool: &mut self.pool, local: None, now };
        if connection.worked(number, done, &mut cx) {
            self.serve(key, now);
        }
    }

    /// A connection becomes a queue of a controller.
    fn open_queue(&mut self, mut connection: Box<Connection<S, F>>, now: Nanos) {
        let Phase::Accepted(accepted) = std::mem::replace(&mut connection.phase, Phase::Initialized) else {
            return;
        };
        let (association, qid) = (accepted.association, accepted.qid);
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
                let queue = Queue::new(qid, accepted.entries, accepted.flow, &association.queue_memory);
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
        // Also where the key is gone since the controller was made: nobody can prove anything by it then, and
        // no queue of that controller begins without proof.
        let host = &association.host_nqn;
        // By a PSK that an exchange has generated it has proved that already.
        let proved = connection.encryption.is_generated();
        let keyed = !proved
            && (self.target.credentials(&association.nqn, host).is_some()
                || association.offer.as_ref().is_some_and(|offer| offer.credentials_of(host).is_some()));
        association.authenticated.fetch_or(proved && status.is_success(), Ordering::Relaxed);
        let authreq = if keyed { AUTHENTICATION_REQUIRED } else { 0 };
        let result = if status.is_success() { u64::from(authreq) | u64::from(association.cntlid) } else { 0 };
        if status.is_success() && keyed {
            let (host, subsystem) = (&association.host_nqn, &association.nqn);
            let concatenates = qid == 0 && self.target.options.tls.is_some();
            let authentication = Authentication::new(host, subsystem, concatenates, now);
            connection.authentication = Some(Box::new(authentication));
        } else if status.is_success() {
            self.identified(&mut connection);
        }
        connection.begun = now;
        connection.answer(accepted.cid, result, status, &self.target.counters);
        // What came behind the Connect command is looked at as well.
        connection.stalled = true;
        let Some(key) = self.insert(connection) else {
            if qid == 0 {
                end(&self.target, &self.mailboxes, &association);
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
    fn end_association(&mut self, cntlid: u16, now: Nanos) {
        let Some(&at) = self.by_cntlid.get(&cntlid) else { return };
        let Some(local) = self.locals.get_mut(at).and_then(Option::as_deref_mut) else { return };
        local.due = Some(now);
        local.reactor.abandon();
        for key in local.connections.clone() {
            self.close(key);
        }
    }

    /// The I/O queues of a controller end, its admin queue stays.
    fn end_queues(&mut self, cntlid: u16) {
        let Some(&at) = self.by_cntlid.get(&cntlid) else { return };
        let Some(local) = self.locals.get(at).and_then(Option::as_deref) else { return };
        for key in local.connections.clone() {
            if self.connections.get(key).is_some_and(|c| c.as_ref().is_some_and(|c| !c.is_admin())) {
                self.close(key);
            }
        }
    }

    /// Steps the reactors that have something to do, and answers what they have completed. `sweep`: looks at
    /// all mailboxes.
    fn step_reactors(&mut self, now: Nanos, sweep: bool) -> usize {
        let (mut work, mut turn) = (0, Turn::new());
        let (count, first) = (self.locals.len(), self.first);
        for at in (first.min(count)..count).chain(0..first.min(count)) {
            let Some(local) = &self.locals[at] else { continue };
            let due = local.due.is_some_and(|due| due <= now);
            if due || (sweep && !local.reactor.is_quiet()) {
                let had_slice = !turn.is_spent();
                work += self.step_reactor(at, now, &mut turn);
                if had_slice && turn.is_spent() {
                    self.first = at + 1;
                }
            }
        }
        self.sliced = turn.is_spent();
        work
    }

    fn step_reactor(&mut self, at: usize, now: Nanos, turn: &mut Turn) -> usize {
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
            let Some(Some(connection)) = self.connections.get_mut(key) else { continue };
            let mut cx = Context { target: &self.target, pool: &mut self.pool, local: Some(local), now };
            let done = connection.reap(&mut cx);
            if done == 0 {
                continue;
            }
            work += done;
            match connection.send(&mut cx) {
                Ok(_) => arm(&self.poller, key, connection),
                Err(_) => self.close(key),
            }
        }
        self.reclaim(at, now);
        work
    }

    /// Queues whose connections are gone, controllers that gave up, associations that end.
    fn reclaim(&mut self, at: usize, now: Nanos) {
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
        let association = &local.association;
        let fatal = association.registers().word32(reg::CSTS).load(Ordering::Relaxed) & csts::CFS != 0;
        if fatal && local.connections.iter().any(|key| self.connections.get(*key).is_some()) {
            tracing::warn!(cntlid = association.cntlid, host = association.host_nqn, "the host fell silent");
            self.target.counters.silent.fetch_add(1, Ordering::Relaxed);
            end(&self.target, &self.mailboxes, association);
        }
    }

    /// Peers that owe something for too long lose their connections.
    fn close_late_peers(&mut self, now: Nanos) {
        self.watched = now;
        let patience = self.target.patience();
        for key in 0..self.connections.len() {
            let Some(connection) = &self.connections[key] else { continue };
            if connection.due(&patience).is_some_and(|due| due <= now) {
                tracing::info!(peer = %connection.peer, "a peer was waited for in vain");
                self.target.counters.slow.fetch_add(1, Ordering::Relaxed);
                self.close(key);
            } else if let Some(Some(connection)) = self.connections.get_mut(key) {
                // Work that had to wait.
                let cx = Context { target: &self.target, pool: &mut self.pool, local: None, now };
                connection.give_work(&self.ask, self.index, key, &cx);
                if connection.encryption.is_due(now) {
                    self.serve(key, now);
                }
            }
        }
    }

    /// Connections that wait for staging buffers try again.
    fn retry_stalled(&mut self, now: Nanos) {
        self.unstalled = now;
        self.pool.clear_returned();
        for key in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[key] else { continue };
            if connection.stalled || connection.queue.as_ref().is_some_and(|q| !q.postponed.is_empty()) {
                // Commands that wait come before those that would be taken now.
                connection.resume_postponed(&mut Context {
                    target: &self.target,
                    pool: &mut self.pool,
                    local: None,
                    now,
                });
                self.serve(key, now);
            }
        }
    }

    /// The target stops: what was taken is finished and answered, then everything is closed. Whether that is
    /// done.
    fn stop(&mut self, now: Nanos) -> bool {
        let since = *self.stopping.get_or_insert(now);
        let late = now.since(since) > STOP_NS;
        self.acceptor.close();
        for key in 0..self.connections.len() {
            let Some(connection) = &self.connections[key] else { continue };
            let busy = connection.queue.as_ref().map_or(0, |queue| queue.busy());
            let unsent = connection.output.waiting();
            // An admin queue takes its association along: it goes last.
            let leads = connection.is_admin()
                && connection.association.as_ref().is_some_and(|a| a.queues.load(Ordering::Relaxed) > 0);
            if !late && (busy > 0 || unsent > 0 || leads || connection.channel.is_sending()) {
                continue;
            }
            if busy > 0 || unsent > 0 {
                tracing::warn!(peer = %connection.peer, commands = busy, unsent, "a host did not let its commands end");
                self.target.counters.unanswered.fetch_add(busy as u64, Ordering::Relaxed);
            }
            self.close(key);
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

/// A peer counts no more among those that have not proved who they are: the first thread, `index` 0, counts.
fn count_no_more<S: Store, F: Firmware<S>>(
    index: usize,
    acceptor: &mut Acceptor,
    mailboxes: &Mailboxes<S, F>,
    peer: SocketAddr,
) {
    match index {
        0 => acceptor.identified(&peer),
        _ => mailboxes.post(0, Mail::Identified(peer)),
    }
}

/// Has the poller tell of what a connection waits for.
fn arm<S: Store, F: Firmware<S>>(poller: &Poller, key: usize, connection: &mut Connection<S, F>) {
    if let Some(interest) = connection.new_interest() {
        poller.modify(key, connection.channel.socket(), interest);
    }
}

/// Ends an association: every thread closes its connections and lets go of its reactor.
pub(crate) fn end<S: Store, F: Firmware<S>>(
    target: &Target<S, F>,
    mailboxes: &Mailboxes<S, F>,
    association: &Association<S, F>,
) {
    if target.end(association) {
        mailboxes.post_all(|| Mail::End(association.cntlid));
    }
}
