//! Where the two halves of a near-data command meet: under a tag of their host, shared by all reactors of its
//! controllers.
//!
//! `execute` leaves its request; the first `result` takes it and runs it, because it knows the host's buffer;
//! a `result` that comes again finds the reply. Set Features' requests run at once, and their replies stay
//! until the tag is used again.
//!
//! A host is its name and its identifier together: either alone is only what somebody says. At most [`MOST`]
//! tags of a host are kept of each kind; the oldest that is not running goes first. What is kept under them
//! is bounded in bytes, of a host and of all: the host over its share, or where all together are too many the
//! one that keeps most, loses its oldest, whose `result` is told [`GONE`].
//!
//! A tag is owned by the queues that it came by, and ends with any of them; a task belongs to the worker that
//! runs it, and a `result` that waits to the worker that answers it. What one worker does to another's it
//! says by its mailbox.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_device::Host;
use nearside_near_data::MAX_BUFFER;
use nearside_near_data::Request;
use nearside_spec::Status;
use nearside_store::Token;

use crate::mailbox::Mailbox;

/// Tags kept of each kind.
const MOST: usize = 16;
/// Bytes of requests and replies that are kept for one host, and for all. As many replies as may end at once
/// always fit.
const MOST_BYTES: usize = MOST * MAX_BUFFER;
const MOST_BYTES_OF_ALL: usize = 16 * MOST_BYTES;
/// The answer to a `result` whose reply could not be kept: not for good.
const GONE: Status = Status::NAMESPACE_NOT_READY;
/// How long a task under a tag runs on while no `result` asks for it: longer than any waits, so that a host
/// that comes again finds it.
pub(crate) const UNCLAIMED_NS: u64 = 10_000_000_000;

/// A queue of a worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) worker: u64,
    pub(crate) queue: u16,
}

enum TagState {
    /// `execute` came, with a request of so many bytes.
    Request(Box<Request>, usize),
    /// `execute` failed, or its task did.
    Failed(Status),
    /// A worker's task.
    Running {
        worker: u64,
        key: u64,
    },
    Reply(Vec<u8>),
}

impl TagState {
    /// Bytes that are kept for it.
    fn bytes(&self) -> usize {
        match self {
            TagState::Request(_, bytes) => *bytes,
            TagState::Reply(reply) => reply.len(),
            TagState::Failed(_) | TagState::Running { .. } => 0,
        }
    }
}

struct TagEntry<T> {
    tag: T,
    /// Larger than those of all that were kept before, of every host.
    age: u64,
    state: TagState,
    owners: Vec<Owner>,
    /// When a `result` last asked.
    asked: Nanos,
}

impl<T> TagEntry<T> {
    fn own(&mut self, owner: Owner) {
        if !self.owners.contains(&owner) {
            self.owners.push(owner);
        }
    }

    fn is_running(&self) -> bool {
        matches!(self.state, TagState::Running { .. })
    }
}

/// A `result` that waits.
struct Waiter {
    tag: u64,
    worker: u64,
    token: Token,
}

/// The tags of all hosts, by name and identifier.
#[derive(Default)]
pub(crate) struct Tags {
    hosts: HashMap<(String, [u8; 16]), HostTags>,
    /// Bytes kept for all of them.
    bytes: usize,
    /// What was kept so far.
    age: u64,
}

impl Tags {
    /// Does something with a host's. A host without workers is gone, and all of its tags.
    pub(crate) fn with<R>(&mut self, host: &Host, with: impl FnOnce(&mut HostTags) -> R) -> R {
        let key = (host.nqn.clone(), host.identifier);
        let tags = self.hosts.entry(key.clone()).or_default();
        let before = tags.bytes();
        tags.age = self.age;
        let result = with(tags);
        self.age = tags.age;
        while tags.bytes() > MOST_BYTES && tags.forget_oldest() {}
        let after = if tags.workers.is_empty() { 0 } else { tags.bytes() };
        if tags.workers.is_empty() {
            self.hosts.remove(&key);
        }
        self.bytes = self.bytes - before + after;
        while self.bytes > MOST_BYTES_OF_ALL {
            let most = |tags: &&mut HostTags| (tags.bytes(), std::cmp::Reverse(tags.oldest()));
            let Some(tags) = self.hosts.values_mut().max_by_key(most) else { break };
            let before = tags.bytes();
            if !tags.forget_oldest() {
                break;
            }
            self.bytes = self.bytes - before + tags.bytes();
        }
        result
    }

    /// Tags that something is kept under, and `result`s that wait.
    pub(crate) fn len(&self) -> usize {
        self.hosts.values().map(|h| h.commands.len() + h.features.len() + h.waiters.len()).sum()
    }
}

/// A host's tags of `execute` and `result`, and those of Set and Get Features.
#[derive(Default)]
pub(crate) struct HostTags {
    /// Workers that serve this host.
    workers: HashMap<u64, Arc<Mailbox>>,
    /// Of what was kept last, of every host.
    age: u64,
    commands: VecDeque<TagEntry<u64>>,
    features: VecDeque<TagEntry<u32>>,
    waiters: Vec<Waiter>,
}

/// What a `result` finds.
pub(crate) enum Claim {
    Reply(Vec<u8>),
    Failed(Status),
    /// Run it.
    Start(Box<Request>),
    /// It waits: for its task, or for its `execute` (`false`).
    Wait(bool),
}

/// What a Get Features finds.
pub(crate) enum Kept {
    /// Bytes from its offset on, and the length of the whole reply.
    Part(Vec<u8>, u32),
    Running,
    Unknown,
}

fn make_room<T>(entries: &mut VecDeque<TagEntry<T>>) -> Result<(), Status> {
    if entries.len() < MOST {
        return Ok(());
    }
    let idle = entries.iter().position(|e| !e.is_running());
    let Some(at) = idle else {
        return Err(Status::NAMESPACE_NOT_READY);
    };
    entries.remove(at);
    Ok(())
}

/// The task of that key has ended; `None`: without a reply. The entry, if there still is one.
fn ended<T>(
    entries: &mut VecDeque<TagEntry<T>>,
    key: u64,
    age: u64,
    reply: Option<Vec<u8>>,
) -> Option<&TagEntry<T>> {
    let is = |e: &&mut TagEntry<T>| matches!(e.state, TagState::Running { key: other, .. } if other == key);
    let entry = entries.iter_mut().find(is)?;
    entry.age = age;
    entry.state = match reply {
        Some(mut reply) => {
            // What is kept is what is counted.
            reply.shrink_to_fit();
            TagState::Reply(reply)
        }
        None => TagState::Failed(Status::ABORT_REQUESTED),
    };
    Some(entry)
}

/// The age of the oldest that holds bytes.
fn oldest<T>(entries: &VecDeque<TagEntry<T>>) -> Option<u64> {
    entries.iter().filter(|e| e.state.bytes() > 0).map(|e| e.age).min()
}

/// What is of that age loses its bytes.
fn forget<T>(entries: &mut VecDeque<TagEntry<T>>, age: u64) {
    if let Some(entry) = entries.iter_mut().find(|e| e.age == age && e.state.bytes() > 0) {
        entry.state = TagState::Failed(GONE);
    }
}

impl HostTags {
    /// A worker begins to serve the host.
    pub(crate) fn join(&mut self, worker: u64, mailbox: Arc<Mailbox>) {
        self.workers.insert(worker, mailbox);
    }

    /// A worker has gone, and what came by it; with the last, so does all.
    pub(crate) fn part(&mut self, worker: u64) {
        self.leave(worker, None);
        self.workers.remove(&worker);
    }

    /// Bytes that are kept.
    fn bytes(&self) -> usize {
        let commands = self.commands.iter().map(|e| e.state.bytes());
        commands.chain(self.features.iter().map(|e| e.state.bytes())).sum()
    }

    fn oldest(&self) -> Option<u64> {
        oldest(&self.commands).into_iter().chain(oldest(&self.features)).min()
    }

    /// What is kept longest goes; whether there was something.
    fn forget_oldest(&mut self) -> bool {
        let Some(age) = self.oldest() else { return false };
        forget(&mut self.commands, age);
        forget(&mut self.features, age);
        true
    }

    fn next_age(&mut self) -> u64 {
        self.age += 1;
        self.age
    }

    /// `execute` came, with its request of so many bytes or its failure.
    pub(crate) fn execute(
        &mut self,
        tag: u64,
        (request, bytes): (Result<Request, Status>, usize),
        owner: Owner,
        now: Nanos,
    ) -> Result<(), Status> {
        if self.commands.iter().any(|e| e.tag == tag) {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        make_room(&mut self.commands)?;
        let state = match request {
            Ok(request) => TagState::Request(Box::new(request), bytes),
            Err(status) => TagState::Failed(status),
        };
        let age = self.next_age();
        self.commands.push_back(TagEntry { tag, age, state, owners: vec![owner], asked: now });
        self.wake(tag);
        Ok(())
    }

    /// Whoever waits for the tag looks again.
    fn wake(&self, tag: u64) {
        for waiter in self.waiters.iter().filter(|w| w.tag == tag) {
            if let Some(mailbox) = self.workers.get(&waiter.worker) {
                mailbox.look();
            }
        }
    }

    /// `result` came, for a buffer of `room` bytes, or looks again (`again`): then it is known, unless the
    /// tag was cancelled.
    pub(crate) fn claim(
        &mut self,
        (tag, room): (u64, usize),
        (owner, token): (Owner, Token),
        key: u64,
        again: bool,
        now: Nanos,
    ) -> Claim {
        let waits = |w: &Waiter| w.worker == owner.worker && w.token == token;
        if again && !self.waiters.iter().any(waits) {
            return Claim::Failed(Status::ABORT_REQUESTED);
        }
        let wait = |waiters: &mut Vec<Waiter>, running| {
            if !again {
                waiters.push(Waiter { tag, worker: owner.worker, token });
            }
            Claim::Wait(running)
        };
        let Some(at) = self.commands.iter().position(|e| e.tag == tag) else {
            return wait(&mut self.waiters, false);
        };
        let Some(entry) = self.commands.get_mut(at) else { return wait(&mut self.waiters, false) };
        entry.own(owner);
        entry.asked = now;
        let running = TagState::Running { worker: owner.worker, key };
        match std::mem::replace(&mut entry.state, running) {
            TagState::Request(request, _) => {
                wait(&mut self.waiters, true);
                Claim::Start(request)
            }
            running @ TagState::Running { .. } => {
                entry.state = running;
                wait(&mut self.waiters, true)
            }
            TagState::Failed(status) => {
                self.commands.remove(at);
                Claim::Failed(status)
            }
            TagState::Reply(reply) if reply.len() > room => {
                // Made for a larger buffer than this one.
                self.commands.remove(at);
                Claim::Failed(Status::INVALID_FIELD.dnr())
            }
            TagState::Reply(reply) => {
                self.commands.remove(at);
                Claim::Reply(reply)
            }
        }
    }

    /// A `result` waits no longer. Whether another waits for the tag.
    pub(crate) fn stop_waiting(&mut self, tag: u64, worker: u64, token: Token) -> bool {
        self.waiters.retain(|w| w.worker != worker || w.token != token);
        self.waiters.iter().any(|w| w.tag == tag)
    }

    /// The task of a `result` has its reply; `None`: it has none, and never will.
    pub(crate) fn ended(&mut self, key: u64, reply: Option<Vec<u8>>) {
        let age = self.next_age();
        if let Some(tag) = ended(&mut self.commands, key, age, reply).map(|e| e.tag) {
            self.wake(tag);
        }
    }

    /// The task of a Set Features has ended: its reply is kept for Get Features.
    pub(crate) fn kept_ended(&mut self, key: u64, reply: Option<Vec<u8>>) {
        if reply.is_some() {
            let age = self.next_age();
            ended(&mut self.features, key, age, reply);
        } else {
            self.features
                .retain(|e| !matches!(e.state, TagState::Running { key: other, .. } if other == key));
        }
    }

    /// A task that somebody runs shall end.
    fn stop<T>(&self, entry: &TagEntry<T>) {
        if let TagState::Running { worker, key } = entry.state
            && let Some(mailbox) = self.workers.get(&worker)
        {
            mailbox.cancel(key);
        }
    }

    /// Whoever waits for a tag is answered that it was aborted.
    fn stop_waiting_all(&mut self, tag: u64) -> bool {
        self.wake(tag);
        let before = self.waiters.len();
        self.waiters.retain(|w| w.tag != tag);
        self.waiters.len() < before
    }

    /// Forgets a tag, and ends what runs or waits under it; whether there was something.
    pub(crate) fn cancel(&mut self, tag: u64) -> bool {
        let entry = self.commands.iter().position(|e| e.tag == tag).and_then(|at| self.commands.remove(at));
        if let Some(entry) = &entry {
            self.stop(entry);
        }
        self.stop_waiting_all(tag) || entry.is_some()
    }

    /// The host has left a queue, or all of a worker's (`None`): tags that came by it end.
    pub(crate) fn leave(&mut self, worker: u64, queue: Option<u16>) {
        let gone = |owner: &Owner| owner.worker == worker && queue.is_none_or(|queue| owner.queue == queue);
        let mut commands = std::mem::take(&mut self.commands);
        commands.retain_mut(|entry| {
            if !entry.owners.iter().any(gone) {
                return true;
            }
            self.stop(entry);
            entry.owners.retain(|owner| !gone(owner));
            // Others that wait for it learn at once that it is gone; those that ask later learn it then.
            entry.state = TagState::Failed(Status::ABORT_REQUESTED);
            !self.stop_waiting_all(entry.tag) && !entry.owners.is_empty()
        });
        self.commands = commands;
        let mut features = std::mem::take(&mut self.features);
        features.retain(|entry| {
            let stays = !entry.owners.iter().any(gone);
            if !stays {
                self.stop(entry);
            }
            stays
        });
        self.features = features;
    }

    /// A task that nobody has asked for in a long time ends. `None`: it may run on until then.
    pub(crate) fn give_up(&mut self, key: u64, now: Nanos) -> Option<Nanos> {
        let is = |e: &&TagEntry<u64>| matches!(e.state, TagState::Running { key: other, .. } if other == key);
        let (tag, asked) = self.commands.iter().find(is).map(|e| (e.tag, e.asked))?;
        let due = asked + UNCLAIMED_NS;
        if now >= due && !self.waiters.iter().any(|w| w.tag == tag) {
            self.cancel(tag);
            return None;
        }
        Some(due.max(now + UNCLAIMED_NS / 10))
    }

    /// Set Features begins under a tag, in the place of what was there.
    pub(crate) fn keep(&mut self, tag: u32, key: u64, owner: Owner, now: Nanos) -> Result<(), Status> {
        if let Some(at) = self.features.iter().position(|e| e.tag == tag)
            && let Some(entry) = self.features.remove(at)
        {
            self.stop(&entry);
        }
        make_room(&mut self.features)?;
        let state = TagState::Running { worker: owner.worker, key };
        let age = self.next_age();
        self.features.push_back(TagEntry { tag, age, state, owners: vec![owner], asked: now });
        Ok(())
    }

    /// What Get Features fetches.
    pub(crate) fn kept(&self, tag: u32, offset: u32, room: usize) -> Kept {
        match self.features.iter().find(|e| e.tag == tag).map(|e| &e.state) {
            None => Kept::Unknown,
            Some(TagState::Reply(reply)) => {
                let rest = reply.get(offset as usize..).unwrap_or_default();
                Kept::Part(rest[..rest.len().min(room)].to_vec(), reply.len() as u32)
            }
            // Its reply could not be kept.
            Some(TagState::Failed(_)) => Kept::Unknown,
            Some(_) => Kept::Running,
        }
    }
}

#[cfg(test)]
mod tests {
    use nearside_dma::Wakeup;

    use super::*;

    const BY: Owner = Owner { worker: 1, queue: 1 };

    /// The worker of a host.
    fn join(tags: &mut Tags, host: &Host) {
        let mailbox = Arc::new(Mailbox::new(Arc::new(Wakeup::new().unwrap())));
        tags.with(host, |tags| tags.join(BY.worker, mailbox));
    }

    fn claim(tags: &mut Tags, host: &Host, tag: u64) -> Claim {
        tags.with(host, |tags| tags.claim((tag, MAX_BUFFER), (BY, Token(0)), 1_000, false, Nanos(0)))
    }

    fn host(name: usize) -> Host {
        Host { nqn: format!("nqn.2026-11.dev.nearside:{name}"), identifier: [7; 16], ..Host::default() }
    }

    /// A reply of the longest kind under a tag of Set Features.
    fn keep(tags: &mut Tags, host: &Host, tag: u32) {
        tags.with(host, |tags| {
            tags.keep(tag, u64::from(tag), BY, Nanos(0)).unwrap();
            tags.kept_ended(u64::from(tag), Some(vec![0; MAX_BUFFER]));
        });
    }

    /// A reply kept under a tag of `execute` and `result`.
    fn reply(tags: &mut Tags, host: &Host, tag: u64) {
        tags.with(host, |tags| {
            let state = TagState::Running { worker: BY.worker, key: tag };
            tags.commands.push_back(TagEntry { tag, age: 0, state, owners: vec![BY], asked: Nanos(0) });
            tags.ended(tag, Some(vec![0; MAX_BUFFER]));
        });
    }

    fn kept(tags: &mut Tags, host: &Host) -> Vec<u32> {
        let is_kept = |tag: &u32| {
            let found = tags.with(host, |tags| tags.kept(*tag, 0, 4096));
            matches!(found, Kept::Part(part, len) if part.len() == 4096 && len as usize == MAX_BUFFER)
        };
        (0..MOST as u32 * 2).filter(is_kept).collect()
    }

    #[test]
    fn a_host_that_keeps_too_much_loses_its_oldest() {
        let mut tags = Tags::default();
        let (one, other) = (host(1), host(2));
        for host in [&one, &other] {
            join(&mut tags, host);
        }
        keep(&mut tags, &other, 0);
        reply(&mut tags, &one, 99);
        for tag in 0..MOST as u32 {
            keep(&mut tags, &one, tag);
        }
        // The reply of `result` was the oldest; whoever asks for it is told.
        assert_eq!(kept(&mut tags, &one), (0..MOST as u32).collect::<Vec<_>>());
        assert!(matches!(claim(&mut tags, &one, 99), Claim::Failed(GONE)));
        reply(&mut tags, &one, 100);
        assert_eq!(kept(&mut tags, &one), (1..MOST as u32).collect::<Vec<_>>());
        assert!(matches!(claim(&mut tags, &one, 100), Claim::Reply(r) if r.len() == MAX_BUFFER));
        assert_eq!(kept(&mut tags, &other), [0]);
        assert_eq!(tags.bytes, MOST * MAX_BUFFER);
    }

    #[test]
    fn where_all_keep_too_much_who_keeps_most_loses_its_oldest() {
        let mut tags = Tags::default();
        let small = host(0);
        join(&mut tags, &small);
        keep(&mut tags, &small, 5);
        let hosts: Vec<Host> = (1..=20).map(host).collect();
        for host in &hosts {
            join(&mut tags, host);
        }
        for tag in 0..MOST as u32 {
            hosts.iter().for_each(|host| keep(&mut tags, host, tag));
            assert!(tags.bytes <= MOST_BYTES_OF_ALL);
        }
        assert!(tags.bytes > MOST_BYTES_OF_ALL - 2 * MAX_BUFFER);
        assert_eq!(kept(&mut tags, &small), [5], "who keeps little keeps it");
        let counts: Vec<usize> = hosts.iter().map(|host| kept(&mut tags, host).len()).collect();
        assert!(counts.iter().all(|count| (12..=13).contains(count)), "{counts:?}");
        // What goes with its host is not counted any more.
        for host in hosts.iter().chain([&small]) {
            tags.with(host, |tags| tags.part(BY.worker));
        }
        assert_eq!((tags.bytes, tags.hosts.len()), (0, 0));
    }
}
