//! A queue's authentication (Base 2.0, 8.13.5): what its host sends and fetches, and the work between, which
//! a thread of the target's own does. Until a host that has a key has proved that it is who it says, its
//! queue takes nothing else.
//!
//! Authentication Send is answered at once; a Receive waits until the message that it asks for is made.
//! Whoever has failed before waits before the work of the next try begins, and holds nobody meanwhile.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

use nearside_auth::{Authenticator, Done, Fetched, Outcome, Psk, Work};
use nearside_clock::Nanos;
use nearside_device::Firmware;
use nearside_device::turns::Turns;
use nearside_spec::Status;
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::Security;
use nearside_store::Store;

use crate::attempts::Begin;
use crate::mail::{Mail, Mailboxes};
use crate::target::Target;

/// Bytes of room for a message that a host may have at most.
const MOST_ROOM: u32 = 64 << 10;

/// Work for a connection of a thread.
pub(crate) struct Job {
    pub(crate) thread: usize,
    /// Which connection, and its number of this work.
    pub(crate) key: usize,
    pub(crate) number: u64,
    /// Where its host is: each network has its turn.
    pub(crate) from: IpAddr,
    /// Gone when nobody waits for it any more.
    pub(crate) wanted: Weak<()>,
    pub(crate) work: Work,
}

/// Does what is asked for and still wanted, until nobody can ask any more.
pub(crate) fn work<S: Store, F: Firmware<S>>(jobs: Receiver<Job>, mailboxes: Arc<Mailboxes<S, F>>) {
    let mut turns = Turns::default();
    loop {
        let first = if turns.is_empty() { jobs.recv().ok() } else { jobs.try_recv().ok() };
        if first.is_none() && turns.is_empty() {
            return;
        }
        first.into_iter().chain(jobs.try_iter()).for_each(|job| turns.push(&{ job.from }, job));
        if let Some(Job { thread, key, number, work, .. }) = next(&mut turns) {
            mailboxes.post(thread, Mail::Worked(key, number, Box::new(work.run())));
        }
    }
}

/// What each costs: turns go round.
const ROUND: u64 = 1 << 32;

/// The next that somebody waits for, of the network whose turn it is: many from one hold up nobody else.
fn next(turns: &mut Turns<IpAddr, Job>) -> Option<Job> {
    loop {
        let (from, job) = turns.pop(|_| true)?;
        if job.wanted.strong_count() > 0 {
            turns.cost(&from, ROUND);
            return Some(job);
        }
    }
}

/// A message for the host.
pub(crate) struct Message {
    /// Of the Receive that asked for it.
    pub(crate) cid: u16,
    /// As many bytes as there is room for; `None`: there is too little.
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) outcome: Option<Outcome>,
}

/// A queue's end of it.
pub(crate) struct Authentication {
    authenticator: Authenticator,
    /// Nothing else is taken.
    pub(crate) is_required: bool,
    /// Since when the host has something to prove.
    since: Option<Nanos>,
    /// A Receive that waits: its identifier, and its room.
    waiting: Option<(u16, u32)>,
    /// Work that nobody has been given, and when it may be.
    todo: Option<(Nanos, Work)>,
    /// The number of the work that is being done.
    number: u64,
    /// Held for as long as that work is wanted.
    wanted: Arc<()>,
}

impl Authentication {
    /// Of a queue that was just connected, between a host and a subsystem. Whether a secure channel may
    /// follow it.
    pub(crate) fn new(host: &str, subsystem: &str, concatenates: bool, now: Nanos) -> Authentication {
        Authentication {
            authenticator: Authenticator::new(host, subsystem).concatenating(concatenates),
            is_required: true,
            since: Some(now),
            waiting: None,
            todo: None,
            number: 0,
            wanted: Arc::default(),
        }
    }

    /// The PSK for a secure channel, where the host asked for one.
    pub(crate) fn generated(&mut self) -> Option<Psk> {
        self.authenticator.generated()
    }

    /// Since when the host is waited for.
    pub(crate) fn since(&self) -> Option<Nanos> {
        self.since
    }

    /// Whether an exchange is under way.
    pub(crate) fn is_underway(&self) -> bool {
        self.authenticator.is_underway()
    }

    /// Takes the data of a Send: what has come of the exchange, where something has. An error is its answer.
    pub(crate) fn send(
        &mut self,
        security: Security,
        data: &[u8],
        credentials: impl FnOnce() -> Option<Arc<nearside_auth::Credentials>>,
        may_begin: impl FnOnce() -> Begin,
        now: Nanos,
    ) -> Result<Option<Outcome>, Status> {
        if Security::message(security.len) != security || security.len == 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if security.len as usize != data.len() {
            return Err(Status::INVALID_SGL_LENGTH.dnr());
        }
        let begins = !self.is_underway();
        let (work, outcome) = self.authenticator.take(data, credentials);
        // Who has proved itself here does not wait for others of its address that could not.
        let at = match work.is_some() && begins && self.is_required {
            true => may_begin(),
            false => Begin::At(now),
        };
        // Of work that was begun for an earlier message nothing is wanted any more.
        self.number = 0;
        self.todo = None;
        self.wanted = Arc::default();
        match at {
            Begin::At(at) => self.todo = work.map(|work| (at, work)),
            Begin::Never => self.authenticator.refuse(),
        }
        self.since = outcome.is_none().then(|| self.since.unwrap_or(now));
        Ok(outcome)
    }

    /// A Receive waits from now on. An error is its answer.
    pub(crate) fn receive(
        &mut self,
        cid: u16,
        security: Security,
        place: Result<CapsuleData, Status>,
    ) -> Result<(), Status> {
        if Security::message(security.len) != security || security.len == 0 || security.len > MOST_ROOM {
            return Err(Status::INVALID_FIELD.dnr());
        }
        match place? {
            CapsuleData::InCapsule { .. } => return Err(Status::INVALID_SGL_TYPE.dnr()),
            CapsuleData::Transport { len } if len != security.len => {
                return Err(Status::INVALID_SGL_LENGTH.dnr());
            }
            CapsuleData::Transport { .. } => {}
        }
        if self.waiting.is_some() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        self.waiting = Some((cid, security.len));
        Ok(())
    }

    /// The message that a Receive waits for, once there is one.
    pub(crate) fn message(&mut self) -> Option<Message> {
        let (cid, room) = self.waiting?;
        let Fetched::Message(mut bytes, outcome) = self.authenticator.fetch() else { return None };
        self.waiting = None;
        if bytes.len() > room as usize {
            self.authenticator.refuse();
            return Some(Message { cid, bytes: None, outcome: None });
        }
        bytes.resize(room as usize, 0);
        if outcome.is_some() {
            self.since = None;
        }
        Some(Message { cid, bytes: Some(bytes), outcome })
    }

    /// Work that may be begun, and its number.
    pub(crate) fn due_work<S: Store, F: Firmware<S>>(
        &mut self,
        target: &Target<S, F>,
        now: Nanos,
    ) -> Option<(u64, Weak<()>, Work)> {
        let (_, work) = self.todo.take_if(|(at, _)| *at <= now)?;
        self.number = target.next_work.fetch_add(1, Ordering::Relaxed);
        Some((self.number, Arc::downgrade(&self.wanted), work))
    }

    /// Work was done; false: nobody waits for it.
    pub(crate) fn worked(&mut self, number: u64, done: Done) -> bool {
        let is_wanted = number == self.number;
        if is_wanted {
            self.authenticator.done(done);
        }
        is_wanted
    }
}

#[cfg(test)]
mod tests {
    use nearside_auth::{Credentials, Exchange, Group, Hash, Key, Keys};

    use super::*;

    /// Work for a challenge.
    fn work() -> Work {
        let key = Key::generate(None, 32).unwrap();
        let keys = Keys { host: key.clone(), controller: None };
        let negotiate = Exchange::new(&keys, "host", "subsystem").unwrap().negotiate();
        let (hashes, groups) = (Hash::ALL.to_vec(), vec![Group::Null]);
        let credentials = Credentials { host: key, controller: None, hashes, groups };
        let mut authenticator = Authenticator::new("host", "subsystem");
        authenticator.take(&negotiate, || Some(Arc::new(credentials))).0.unwrap()
    }

    #[test]
    fn networks_take_turns_and_nobody_works_for_those_who_are_gone() {
        let (mut turns, wanted) = (Turns::default(), Arc::new(()));
        let mut add = |number: u64, host: u8, wanted: &Arc<()>| {
            let (from, wanted) = (IpAddr::from([192, 0, 2, host]), Arc::downgrade(wanted));
            turns.push(&from, Job { thread: 0, key: 0, number, from, wanted, work: work() });
        };
        (0..3).for_each(|number| add(number, 1, &wanted));
        add(3, 1, &Arc::new(()));
        add(4, 2, &wanted);
        let order: Vec<Option<u64>> = (0..5).map(|_| next(&mut turns).map(|job| job.number)).collect();
        assert_eq!(order, [Some(0), Some(4), Some(1), Some(2), None]);
        assert!(turns.is_empty());
    }
}
