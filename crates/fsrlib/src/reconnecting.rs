//! A way to a drive that outlives its connection.
//!
//! All that a [`Transport`] carries is without effect on the drive, and a request holds all of its state (the
//! cursor is in it). So what was lost with a connection is sent again over the next, and no answer is missing
//! or comes twice.
//!
//! How it passes: a command fails because of the way ([`Error::Lost`], or a path related status) -> the other
//! paths are tried at once -> where none serves, the kernel's delay, then all of them, as often as the kernel
//! would -> the same command again. [`Transport::near_data_each`] keeps the requests that are out, and goes
//! on from the first that has no answer. A refusal (Do Not Retry, a failed authentication) ends the attempts
//! by that path; another namespace ends all.
//!
//! What it does not do: send to several paths at once, or go back to one that is better.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nearside_clock::Clock;
use nearside_driver::tcp::Recovery;
use nearside_near_data::Failure;
use nearside_spec::log::NearDataLog;

use crate::carrier::{LOOK_NS, Stop};
use crate::{Completion, Error, Replies, Requests, Transport};

/// Losses of a connection with the same command out, and no answer between: the kernel's `nvme.max_retries`.
const LOSSES: u32 = 5;

/// Ways to one drive, of which each can be opened as often as is wanted.
pub trait Paths {
    /// Such a way.
    type Way: Transport;

    /// What each is called: one at least.
    fn names(&self) -> Vec<String>;

    /// Opens the `nth`.
    ///
    /// # Errors
    /// Why it is not there, and whether it may be later.
    fn open(&mut self, nth: usize) -> Result<Self::Way, Unopened>;

    /// Leaves a way that was lost: nobody answers there.
    fn leave(&mut self, way: Self::Way);
}

/// Why a way was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unopened {
    /// The reason, in words.
    pub why: String,
    /// What that means for the next attempt.
    pub then: Then,
}

/// Whether a way that was not opened is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is, after a while.
    Again,
    /// It is not: there is somebody, who refuses.
    NotThere,
    /// None is any more.
    Nowhere,
}

/// What became of a connection; in the words of the kernel's log where it has some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It was lost, or does not serve, and why.
    Lost(String),
    /// The work goes on by another path, at once.
    Moved(String),
    /// After so long it is tried again.
    Waiting(Duration),
    /// No path could be opened, and why.
    Failed {
        /// Which attempt that was.
        attempt: u64,
        /// How many there are; `None`: no end.
        of: Option<u64>,
        /// What was said by the last path.
        why: String,
    },
    /// It is there again.
    Reconnected {
        /// By which attempt.
        attempt: u64,
        /// Of how many; `None`: no end.
        of: Option<u64>,
    },
    /// There are no more attempts.
    Removing,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = |of: &Option<u64>| of.map_or("-1".to_owned(), |of| of.to_string());
        match self {
            Notice::Lost(why) => write!(f, "starting error recovery: {why}"),
            Notice::Moved(path) => write!(f, "going on by {path}"),
            Notice::Waiting(delay) => write!(f, "Reconnecting in {} seconds...", delay.as_secs_f64()),
            Notice::Failed { attempt, of, why } => {
                write!(f, "Failed reconnect attempt {attempt}/{}: {why}", most(of))
            }
            Notice::Reconnected { attempt, of } => {
                write!(f, "Successfully reconnected (attempt {attempt}/{})", most(of))
            }
            Notice::Removing => f.write_str("Removing controller..."),
        }
    }
}

/// From a loss until the next answer.
#[derive(Debug)]
struct Incident {
    /// What was lost, in words.
    loss: String,
    /// What was said last.
    why: String,
    /// Attempts so far, each of all paths.
    attempt: u64,
    /// Paths that were tried since the last wait.
    tried: Vec<bool>,
    /// Connections that were lost.
    losses: u32,
}

/// A way over whichever of its paths serves, and over a connection anew where that was lost.
pub struct Reconnecting<P: Paths, C> {
    paths: P,
    names: Vec<String>,
    clock: C,
    recovery: Recovery,
    tell: Box<dyn FnMut(&Notice) + Send>,
    stop: Stop,
    /// The way that is open, or was the last.
    at: usize,
    way: Option<P::Way>,
    /// Of the last that was: a session keeps to them.
    capacity: u64,
    block_size: u32,
    max_buffer: usize,
    /// Paths by which there is nothing to be had any more.
    refused: Vec<bool>,
    incident: Option<Incident>,
    /// Why there is no way any more.
    over: Option<String>,
}

impl<P: Paths, C: Clock> Reconnecting<P, C> {
    /// Opens the first of the paths that is there: none is tried twice. What becomes of the connection later
    /// is told to `tell`.
    ///
    /// # Errors
    /// What each of them said.
    pub fn connect(
        mut paths: P,
        recovery: Recovery,
        clock: C,
        tell: impl FnMut(&Notice) + Send + 'static,
    ) -> Result<Self, String> {
        let names = paths.names();
        let mut refused = vec![false; names.len()];
        let mut reasons = Vec::new();
        for nth in 0..names.len() {
            match paths.open(nth) {
                Ok(way) => {
                    return Ok(Reconnecting {
                        capacity: way.capacity(),
                        block_size: way.block_size(),
                        max_buffer: way.max_buffer(),
                        paths,
                        names,
                        clock,
                        recovery,
                        tell: Box::new(tell),
                        stop: Stop::default(),
                        at: nth,
                        way: Some(way),
                        refused,
                        incident: None,
                        over: None,
                    });
                }
                Err(Unopened { why, then }) => {
                    refused[nth] = then != Then::Again;
                    reasons.push(said_by(&names, nth, why));
                }
            }
        }
        Err(reasons.join("; "))
    }

    /// The way itself, for who sends by it and waits for nothing.
    ///
    /// # Errors
    /// As [`Reconnecting::way`].
    pub fn take(&mut self) -> Result<P::Way, Error> {
        self.way()?;
        self.way.take().ok_or_else(no_way)
    }

    /// Another in the place of one that was taken, which does not serve any more, and why. `answered`: by the
    /// one that was taken something was.
    ///
    /// # Errors
    /// As [`Reconnecting::take`].
    pub fn replace(&mut self, way: P::Way, why: Error, answered: bool) -> Result<P::Way, Error> {
        if answered {
            self.incident = None;
        }
        self.way = Some(way);
        self.lost(why)?;
        self.take()
    }

    /// Does something that may be done twice, until its answer is one of the drive's.
    fn carry<R>(&mut self, mut once: impl FnMut(&mut P::Way) -> Result<R, Error>) -> Result<R, Error> {
        loop {
            match once(self.way()?) {
                Err(error) if error.is_of_the_way() => self.lost(error)?,
                answer => {
                    self.incident = None;
                    return answer;
                }
            }
        }
    }

    /// The paths, with what is known of the drive: for ways to the same that others go.
    pub fn paths(&self) -> &P {
        &self.paths
    }

    /// The way; where there is none, after those that are known were tried.
    ///
    /// # Errors
    /// There is none, and why; the attempts were given up.
    pub fn way(&mut self) -> Result<&mut P::Way, Error> {
        if self.way.is_none() {
            match &self.over {
                Some(why) => return Err(Error::Lost(why.clone())),
                None => self.recover()?,
            }
        }
        // `recover` opened one.
        self.way.as_mut().ok_or_else(no_way)
    }

    /// The way does not serve: there is another afterwards.
    fn lost(&mut self, error: Error) -> Result<(), Error> {
        let loss = error.to_string();
        let is_lost = matches!(error, Error::Lost(_));
        let is_last = self.has_no_other() && self.recovery.attempts() == Some(0);
        if is_last && !is_lost {
            return Err(error);
        }
        match self.way.take() {
            Some(way) if is_lost => self.paths.leave(way),
            // It ends as it should.
            _ => {}
        }
        if is_last {
            self.over = Some(loss);
            return Err(error);
        }
        let incident = self.incident.get_or_insert_with(|| Incident::of(&loss, self.names.len()));
        incident.tried[self.at] = true;
        incident.losses += u32::from(is_lost);
        if incident.losses > LOSSES {
            let why = format!("{loss}: with this command out, {} connections in turn", incident.losses);
            self.incident = None;
            return Err(Error::Lost(why));
        }
        incident.why = said_by(&self.names, self.at, loss.clone());
        (self.tell)(&Notice::Lost(said_by(&self.names, self.at, loss)));
        self.recover()
    }

    fn has_no_other(&self) -> bool {
        (0..self.names.len()).all(|nth| nth == self.at || self.refused[nth])
    }

    /// Opens a way: the paths that were not tried since the last wait, at once; then all, after each wait.
    fn recover(&mut self) -> Result<(), Error> {
        let (count, of) = (self.names.len(), self.recovery.attempts());
        let mut incident =
            self.incident.take().unwrap_or_else(|| Incident::of("the connection was lost", count));
        loop {
            if self.stop.is_set() {
                return Err(Error::Refused(Failure::Cancelled));
            }
            let mut ring = (0..count).map(|nth| (self.at + nth) % count);
            if let Some(nth) = ring.find(|nth| !incident.tried[*nth] && !self.refused[*nth]) {
                incident.tried[nth] = true;
                match self.paths.open(nth) {
                    Ok(way) => {
                        self.adopt(nth, way, incident);
                        return Ok(());
                    }
                    Err(Unopened { why, then }) => {
                        incident.why = said_by(&self.names, nth, why);
                        self.refused[nth] = then == Then::NotThere;
                        if then == Then::Nowhere {
                            return Err(self.give_up(&incident, true));
                        }
                    }
                }
                continue;
            }
            if incident.attempt > 0 {
                let (attempt, why) = (incident.attempt, incident.why.clone());
                (self.tell)(&Notice::Failed { attempt, of, why });
            }
            if self.refused.iter().all(|refused| *refused) {
                return Err(self.give_up(&incident, true));
            }
            if of.is_some_and(|of| incident.attempt >= of) {
                return Err(self.give_up(&incident, false));
            }
            (self.tell)(&Notice::Waiting(self.recovery.reconnect_delay));
            self.wait()?;
            incident.attempt += 1;
            incident.tried.fill(false);
        }
    }

    fn adopt(&mut self, nth: usize, mut way: P::Way, incident: Incident) {
        let notice = match incident.attempt {
            0 => Notice::Moved(self.names[nth].clone()),
            attempt => Notice::Reconnected { attempt, of: self.recovery.attempts() },
        };
        (self.tell)(&notice);
        if let Some(stop) = &self.stop.0 {
            way.set_stop(stop.clone());
        }
        (self.capacity, self.block_size, self.max_buffer) =
            (way.capacity(), way.block_size(), way.max_buffer());
        (self.at, self.way, self.incident) = (nth, Some(way), Some(incident));
    }

    /// The delay; a command that is given up meanwhile is over at once.
    fn wait(&self) -> Result<(), Error> {
        let delay_ns = u64::try_from(self.recovery.reconnect_delay.as_nanos()).unwrap_or(u64::MAX);
        let until = self.clock.now() + delay_ns;
        loop {
            if self.stop.is_set() {
                return Err(Error::Refused(Failure::Cancelled));
            }
            match until.since(self.clock.now()) {
                0 => return Ok(()),
                left_ns => std::thread::sleep(Duration::from_nanos(left_ns.min(LOOK_NS))),
            }
        }
    }

    /// Nothing is tried any more.
    fn give_up(&mut self, incident: &Incident, refused: bool) -> Error {
        (self.tell)(&Notice::Removing);
        let Incident { loss, why, attempt, losses, .. } = incident;
        let names = self.names.join(",");
        let lost = match losses {
            0 => format!("{names} does not serve ({loss})"),
            _ => format!("the connection to {names} was lost ({loss})"),
        };
        let over = match self.recovery.ctrl_loss_tmo {
            Some(time) if !refused && *attempt > 0 => {
                let seconds = time.as_secs_f64();
                format!("{lost}; no other could be made in {seconds} seconds, {attempt} attempts: {why}")
            }
            _ => format!("{lost}; no other can be made: {why}"),
        };
        self.over = Some(over.clone());
        Error::Lost(over)
    }
}

fn no_way() -> Error {
    Error::Lost("there is no way to the drive".into())
}

impl Incident {
    fn of(loss: &str, paths: usize) -> Incident {
        let loss = loss.to_owned();
        Incident { why: loss.clone(), loss, attempt: 0, tried: vec![false; paths], losses: 0 }
    }
}

/// What was said by the `nth` path: its name, where there are others.
fn said_by(names: &[String], nth: usize, what: String) -> String {
    if names.len() > 1 { format!("{}: {what}", names[nth]) } else { what }
}

/// Requests that were given on and have no answer yet, and those that come after them.
struct Unanswered<'r> {
    requests: &'r mut dyn Iterator<Item = (Vec<u8>, usize)>,
    /// No more come.
    ended: bool,
    out: VecDeque<(Vec<u8>, usize)>,
    /// How many of `out` the way has.
    sent: usize,
}

impl Unanswered<'_> {
    /// The next for the way that is open.
    fn next(&mut self) -> Option<(Vec<u8>, usize)> {
        if self.sent == self.out.len() {
            // An iterator that has ended is not asked again.
            let next = if self.ended { None } else { self.requests.next() };
            match next {
                Some(request) => self.out.push_back(request),
                None => {
                    self.ended = true;
                    return None;
                }
            }
        }
        self.sent += 1;
        self.out.get(self.sent - 1).cloned()
    }

    /// The first has its answer.
    fn answered(&mut self) {
        self.out.pop_front();
        self.sent = self.sent.saturating_sub(1);
    }
}

impl<P: Paths, C: Clock> Transport for Reconnecting<P, C> {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        self.carry(|way| way.near_data(request, capacity, reply))
    }

    fn near_data_each(&mut self, requests: Requests<'_>, replies: Replies<'_>) {
        let unanswered = Unanswered { requests, ended: false, out: VecDeque::new(), sent: 0 };
        let unanswered = RefCell::new(unanswered);
        loop {
            let (mut lost, mut answers, mut broken) = (None, 0, false);
            let failed = match self.way() {
                Ok(way) => {
                    let mut rest = std::iter::from_fn(|| unanswered.borrow_mut().next());
                    way.near_data_each(&mut rest, &mut |answer| match answer {
                        Err(error) if error.is_of_the_way() => {
                            lost = Some(error);
                            ControlFlow::Break(())
                        }
                        answer => {
                            unanswered.borrow_mut().answered();
                            answers += 1;
                            let flow = replies(answer);
                            broken = flow.is_break();
                            flow
                        }
                    });
                    if answers > 0 {
                        self.incident = None;
                    }
                    let Some(error) = lost else { return };
                    self.lost(error).err()
                }
                Err(error) => Some(error),
            };
            let mut unanswered = unanswered.borrow_mut();
            // All that has no answer is sent again.
            unanswered.sent = 0;
            if let Some(error) = failed {
                // It is the answer to the first of them, if there is one.
                if unanswered.next().is_none() {
                    return;
                }
                unanswered.answered();
                broken = replies(Err(error)).is_break();
            }
            if broken {
                return;
            }
        }
    }

    fn at_once(&self) -> usize {
        self.way.as_ref().map_or(1, Transport::at_once)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        self.carry(|way| way.read(offset, into))
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn max_buffer(&self) -> usize {
        self.max_buffer
    }

    fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        if let Some(way) = &mut self.way {
            way.set_stop(stop.clone());
        }
        self.stop = Stop(Some(stop));
    }

    fn statistics(&mut self) -> Result<Option<NearDataLog>, Error> {
        self.carry(Transport::statistics)
    }

    fn taken(&mut self) -> Result<Option<u64>, Error> {
        self.carry(Transport::taken)
    }

    fn completion(&self) -> Completion {
        self.way.as_ref().map_or_else(Completion::default, Transport::completion)
    }
}

#[cfg(test)]
#[path = "reconnecting/tests.rs"]
mod tests;
