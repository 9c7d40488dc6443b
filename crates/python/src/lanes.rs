//! Threads that have a session with the drive each, and carry out one command at a time for whoever asks.
//!
//! A session stays on the thread that opened it; Python's threads come and go. So a thread of Python's takes
//! a lane, hands it a command and waits, without the interpreter, looking now and then whether a signal has
//! come: then the command is given up, and the lane is there for the next. As many lanes are opened as are
//! wanted at once, up to `MOST`; where no more can be had, those that are there are waited for.

use std::collections::HashSet;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nearside_fsrlib::{Ask, Error, Reply, Request};
use pyo3::prelude::*;

use crate::failure;
use crate::open::{How, Refusal};

/// Sessions with one drive.
const MOST: usize = 4;
/// How often a wait looks for signals.
const LOOK: Duration = Duration::from_millis(100);
/// What a command that is given up has to end in, before its lane is left to itself.
const GRACE: Duration = Duration::from_secs(1);
/// Warnings that are known not to be said twice.
const KNOWN: usize = 1024;

/// A drive's sessions.
pub(crate) struct Lanes {
    how: Arc<How>,
    /// The process that they are in: a fork has none of its threads.
    process: u32,
    state: Mutex<State>,
    freed: Condvar,
    said: Mutex<HashSet<String>>,
}

#[derive(Default)]
struct State {
    idle: Vec<Lane>,
    /// What ends the commands of those that are taken.
    taken: Vec<Arc<AtomicBool>>,
    /// As many as there are, taken or not, or about to be.
    open: usize,
    /// No more can be had.
    all: bool,
    closed: bool,
}

struct Lane {
    jobs: Sender<Job>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

struct Job {
    request: Request,
    answer: Sender<Result<Reply<'static>, Error>>,
}

/// What comes by a channel; `None`: nothing does any more. Who waits is without the interpreter.
///
/// # Errors
/// What a signal's handler raised.
pub fn heard<T>(channel: &Receiver<T>) -> PyResult<Option<T>> {
    loop {
        match channel.recv_timeout(LOOK) {
            Ok(heard) => return Ok(Some(heard)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals())?,
        }
    }
}

impl Lane {
    /// A lane, and what the user should know of how it came.
    fn start(how: Arc<How>) -> PyResult<Result<(Lane, Vec<String>), Refusal>> {
        let (jobs, theirs) = channel::<Job>();
        let (tell, told) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let work = move || {
            let mut session = match how.open() {
                Ok((session, notes)) => {
                    let _heard = tell.send(Ok(notes));
                    session
                }
                Err(refusal) => {
                    let _heard = tell.send(Err(refusal));
                    return;
                }
            };
            session.transport_mut().set_stop(flag);
            for Job { request, answer } in theirs {
                // Nobody may be waiting for it any more.
                let _heard = answer.send(session.call(&request).map(Reply::into_owned));
            }
        };
        let thread = match thread::Builder::new().name("nearside".into()).spawn(work) {
            Ok(thread) => thread,
            Err(error) => return Ok(Err(Refusal::from(error))),
        };
        let ended = || Refusal::from("the thread that opens the drive has ended".to_owned());
        let notes = heard(&told)?.unwrap_or_else(|| Err(ended()));
        Ok(notes.map(|notes| (Lane { jobs, stop, thread }, notes)))
    }
}

impl Lanes {
    /// Opens the first.
    pub fn open(py: Python<'_>, how: How) -> PyResult<Lanes> {
        let (state, process) = (Mutex::default(), std::process::id());
        let lanes =
            Lanes { how: Arc::new(how), process, state, freed: Condvar::new(), said: Mutex::default() };
        let notes = py.detach(|| {
            let (lane, notes) = lanes.take()?;
            lanes.give(lane);
            Ok::<_, PyErr>(notes)
        })?;
        notes.iter().try_for_each(|note| lanes.warn(py, note, false))?;
        Ok(lanes)
    }

    /// What is asked, as a request.
    pub fn request(&self, Ask { target, operation, follow }: Ask) -> Request {
        let (partition, credentials) = (self.how.number(), self.how.credentials.clone());
        Request { partition, credentials, target, operation, follow, resume: None }
    }

    /// One command, about `path` as messages have it.
    ///
    /// # Errors
    /// A signal's handler raised; the drive is closed; the drive could not be asked.
    pub fn call(&self, py: Python<'_>, path: &[u8], request: Request) -> PyResult<Reply<'static>> {
        if !self.is_here() {
            let text = "the drive was opened before a fork: open it anew";
            return Err(failure::of_drive(py, std::io::ErrorKind::Other, text));
        }
        // What consumes an answer may be no code of Python's, which would look by itself.
        py.check_signals()?;
        let answered = py.detach(|| {
            let (lane, _notes) = self.take()?;
            let (answer, answers) = channel();
            let sent = lane.jobs.send(Job { request, answer });
            let answered = sent.map_or(Ok(None), |()| heard(&answers));
            match &answered {
                Ok(Some(_)) => self.give(lane),
                Ok(None) => self.lose(lane),
                Err(_signal) => {
                    lane.stop.store(true, Ordering::Relaxed);
                    match answers.recv_timeout(GRACE) {
                        Ok(_given_up) => self.give(lane),
                        Err(_) => self.lose(lane),
                    }
                }
            }
            answered
        });
        match answered? {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(_)) if self.state().closed => Err(closed(py)),
            Some(Err(error)) => Err(failure::of_error(py, path, &error)),
            None => Err(failure::of_drive(py, std::io::ErrorKind::Other, "the drive's thread has ended")),
        }
    }

    /// Ends all that is under way, and all sessions.
    pub fn close(&self, py: Python<'_>) {
        if !self.is_here() {
            return;
        }
        py.detach(|| {
            let mut state = self.state();
            state.closed = true;
            state.taken.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
            let idle = std::mem::take(&mut state.idle);
            drop(state);
            self.freed.notify_all();
            idle.into_iter().for_each(Lane::end);
        });
    }

    pub fn is_closed(&self) -> bool {
        !self.is_here() || self.state().closed
    }

    /// Whether this is no fork of the process that has the sessions: there the lock may be held for ever.
    fn is_here(&self) -> bool {
        std::process::id() == self.process
    }

    /// Says what the user should know, once.
    pub fn warn(&self, py: Python<'_>, text: &str, unstable: bool) -> PyResult<()> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= KNOWN || !said.insert(text.to_owned()) {
            return Ok(());
        }
        drop(said);
        let class = if unstable { "UnstableWarning" } else { "DriveWarning" };
        let words = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        PyErr::warn(py, &failure::class_of(py, class)?, &words, 1)
    }

    /// Whatever panicked held it for a moment, and left it whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane that is idle, or a new one, or waits for one.
    fn take(&self) -> PyResult<(Lane, Vec<String>)> {
        let mut state = self.state();
        loop {
            if state.closed {
                // Whoever waits for the interpreter holds no lock.
                drop(state);
                return Err(Python::attach(closed));
            }
            if let Some(lane) = state.idle.pop() {
                lane.stop.store(false, Ordering::Relaxed);
                state.taken.push(lane.stop.clone());
                return Ok((lane, Vec::new()));
            }
            if state.open < MOST && !state.all {
                state.open += 1;
                drop(state);
                let started = Lane::start(self.how.clone());
                state = self.state();
                if let Ok(Ok((lane, notes))) = started {
                    state.taken.push(lane.stop.clone());
                    return Ok((lane, notes));
                }
                state.open -= 1;
                match started? {
                    Err(refusal) if state.open == 0 => {
                        drop(state);
                        return Err(Python::attach(|py| failure::of_drive(py, refusal.kind, &refusal.text)));
                    }
                    // A drive may serve so many, and no more.
                    _ => state.all = true,
                }
                continue;
            }
            let (guard, waited) =
                self.freed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if waited.timed_out() {
                drop(state);
                Python::attach(|py| py.check_signals())?;
                state = self.state();
            }
        }
    }

    fn give(&self, lane: Lane) {
        let mut state = self.state();
        state.taken.retain(|stop| !Arc::ptr_eq(stop, &lane.stop));
        if state.closed {
            drop(state);
            lane.end();
        } else {
            state.idle.push(lane);
            drop(state);
            self.freed.notify_one();
        }
    }

    /// Its thread has ended, or does when its command has.
    fn lose(&self, lane: Lane) {
        let mut state = self.state();
        state.taken.retain(|stop| !Arc::ptr_eq(stop, &lane.stop));
        state.open -= 1;
        state.all = false;
        drop(state);
        self.freed.notify_one();
    }
}

impl Lane {
    /// Its session is over, and what it held is free.
    fn end(self) {
        let Lane { jobs, thread, .. } = self;
        drop(jobs);
        // It has no command; of a panic its own message has told.
        let _ended = thread.join();
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        if !self.is_here() {
            // Of threads that are not there nothing can be let go of.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(&mut state.idle));
        }
    }
}

fn closed(py: Python<'_>) -> PyErr {
    match failure::class_of(py, "ClosedError").and_then(|class| class.call1(("the drive is closed",))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}
