//! Where the two halves of a near-data command meet: under a tag of their host, shared by all reactors of its controllers.
//!
//! `execute` leaves its request; the first `result` takes it and runs it, because it knows the host's buffer; a `result`
//! that comes again finds the reply. Set Features' requests run at once, and their replies stay until the tag is used again.
//!
//! A host is its name and its identifier together: either alone is only what somebody says. At most [`MOST`] tags of a host are
//! kept of each kind; the oldest that is not running goes first. What is kept under them is bounded in bytes, of a host and of all: the
//! host over its share, or where all together are too many the one that keeps most, loses its oldest, whose `result` is told [`GONE`].

use std::collections::{HashMap, VecDeque};

use nearside_fsr::Request;
use nearside_spec::Status;
use nearside_spec::near_data::MAX_BUFFER;

use crate::Host;

/// Tags kept of each kind.
const MOST: usize = 16;
/// Bytes of requests and replies that are kept for one host, and for all. As many replies as may end at once always fit.
const MOST_BYTES: usize = MOST * MAX_BUFFER;
const MOST_BYTES_OF_ALL: usize = 16 * MOST_BYTES;
/// What a `result` is told whose reply could not be kept: not for good.
const GONE: Status = Status::NAMESPACE_NOT_READY;

enum State {
    /// `execute` came, with a request of so many bytes.
    Request(Box<Request>, usize),
    /// `execute` failed.
    Failed(Status),
    Running,
    /// Cancelled by another reactor than the one that runs it, which has yet to see it.
    Cancelled,
    Reply(Vec<u8>),
}

impl State {
    /// Whether some reactor runs it.
    fn is_running(&self) -> bool {
        matches!(self, State::Running | State::Cancelled)
    }

    /// Bytes that are kept for it.
    fn bytes(&self) -> usize {
        match self {
            State::Request(_, bytes) => *bytes,
            State::Reply(reply) => reply.len(),
            State::Failed(_) | State::Running | State::Cancelled => 0,
        }
    }
}

struct Entry<T> {
    tag: T,
    /// Larger than those of all that were kept before, of every host.
    age: u64,
    state: State,
}

/// The tags of all hosts, by name and identifier.
#[derive(Default)]
pub(super) struct Tags {
    hosts: HashMap<(String, [u8; 16]), HostTags>,
    /// Bytes kept for all of them.
    bytes: usize,
    /// What was kept so far.
    age: u64,
}

impl Tags {
    /// Does something with a host's. A host without workers is gone, and all of its tags.
    pub(super) fn with<R>(&mut self, host: &Host, with: impl FnOnce(&mut HostTags) -> R) -> R {
        let key = (host.nqn.clone(), host.identifier);
        let tags = self.hosts.entry(key.clone()).or_default();
        let before = tags.bytes();
        tags.age = self.age;
        let result = with(tags);
        self.age = tags.age;
        while tags.bytes() > MOST_BYTES && tags.forget_oldest() {}
        let after = if tags.workers == 0 { 0 } else { tags.bytes() };
        if tags.workers == 0 {
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
}

/// A host's tags of `execute` and `result`, and those of Set and Get Features.
#[derive(Default)]
pub(super) struct HostTags {
    /// Workers that serve this host.
    pub(super) workers: usize,
    /// Of what was kept last, of every host.
    age: u64,
    commands: VecDeque<Entry<u64>>,
    features: VecDeque<Entry<u32>>,
}

/// What a `result` finds.
pub(super) enum Meeting {
    Reply(Vec<u8>),
    Failed(Status),
    /// Run it.
    Start(Box<Request>),
    Running,
    Unknown,
}

/// What a Get Features finds.
pub(super) enum Kept {
    /// Bytes from its offset on, and the length of the whole reply.
    Part(Vec<u8>, u32),
    Running,
    Unknown,
}

fn make_room<T>(entries: &mut VecDeque<Entry<T>>) -> Result<(), Status> {
    if entries.len() < MOST {
        return Ok(());
    }
    let idle = entries.iter().position(|e| !e.state.is_running());
    let Some(at) = idle else {
        return Err(Status::NAMESPACE_NOT_READY);
    };
    entries.remove(at);
    Ok(())
}

fn store<T: PartialEq>(entries: &mut VecDeque<Entry<T>>, tag: &T, age: u64, mut reply: Vec<u8>) {
    if let Some(entry) = entries.iter_mut().find(|e| e.tag == *tag)
        && matches!(entry.state, State::Running)
    {
        // What is kept is what is counted.
        reply.shrink_to_fit();
        (entry.age, entry.state) = (age, State::Reply(reply));
    }
}

/// The age of the oldest that holds bytes.
fn oldest<T>(entries: &VecDeque<Entry<T>>) -> Option<u64> {
    entries.iter().filter(|e| e.state.bytes() > 0).map(|e| e.age).min()
}

/// What is of that age loses its bytes.
fn forget<T>(entries: &mut VecDeque<Entry<T>>, age: u64) {
    if let Some(entry) = entries.iter_mut().find(|e| e.age == age && e.state.bytes() > 0) {
        entry.state = State::Failed(GONE);
    }
}

impl HostTags {
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
    pub(super) fn execute(
        &mut self,
        tag: u64,
        request: Result<Request, Status>,
        bytes: usize,
    ) -> Result<(), Status> {
        if self.commands.iter().any(|e| e.tag == tag) {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        make_room(&mut self.commands)?;
        let state = match request {
            Ok(request) => State::Request(Box::new(request), bytes),
            Err(status) => State::Failed(status),
        };
        let age = self.next_age();
        self.commands.push_back(Entry { tag, age, state });
        Ok(())
    }

    /// `result` came, for a buffer of `room` bytes.
    pub(super) fn meet(&mut self, tag: u64, room: usize) -> Meeting {
        let Some(at) = self.commands.iter().position(|e| e.tag == tag) else {
            return Meeting::Unknown;
        };
        let Some(entry) = self.commands.get_mut(at) else { return Meeting::Unknown };
        match std::mem::replace(&mut entry.state, State::Running) {
            State::Request(request, _) => Meeting::Start(request),
            State::Running => Meeting::Running,
            State::Cancelled => {
                entry.state = State::Cancelled;
                Meeting::Failed(Status::ABORT_REQUESTED)
            }
            State::Failed(status) => {
                self.commands.remove(at);
                Meeting::Failed(status)
            }
            State::Reply(reply) if reply.len() > room => {
                // Made for a larger buffer than this one.
                self.commands.remove(at);
                Meeting::Failed(Status::INVALID_FIELD.dnr())
            }
            State::Reply(reply) => {
                self.commands.remove(at);
                Meeting::Reply(reply)
            }
        }
    }

    /// The task of a `result` has its reply.
    pub(super) fn replied(&mut self, tag: u64, reply: Vec<u8>) {
        self.see_cancelled(tag);
        let age = self.next_age();
        store(&mut self.commands, &tag, age, reply);
    }

    /// The task of a `result` is gone with its reactor.
    pub(super) fn failed(&mut self, tag: u64) {
        self.see_cancelled(tag);
        let entry = self.commands.iter_mut().find(|e| e.tag == tag);
        if let Some(Entry { state: state @ State::Running, .. }) = entry {
            *state = State::Failed(Status::ABORT_REQUESTED);
        }
    }

    /// The task of a Set Features is gone with its reactor: its reply never comes.
    pub(super) fn kept_failed(&mut self, tag: u32) {
        self.features.retain(|e| e.tag != tag || !matches!(e.state, State::Running));
    }

    /// The task of a Set Features has its reply.
    pub(super) fn kept_reply(&mut self, tag: u32, reply: Vec<u8>) {
        let age = self.next_age();
        store(&mut self.features, &tag, age, reply);
    }

    /// Forgets a tag; whether it was known. `here`: its task was stopped. One that runs elsewhere stays until its reactor has seen it.
    pub(super) fn cancel(&mut self, tag: u64, here: bool) -> bool {
        let Some(at) = self.commands.iter().position(|e| e.tag == tag) else { return false };
        match self.commands.get_mut(at) {
            Some(entry) if entry.state.is_running() && !here => entry.state = State::Cancelled,
            _ => drop(self.commands.remove(at)),
        }
        true
    }

    /// Whether a tag was cancelled by another reactor than the one that asks, which runs it; then it is forgotten.
    pub(super) fn see_cancelled(&mut self, tag: u64) -> bool {
        let before = self.commands.len();
        self.commands.retain(|e| e.tag != tag || !matches!(e.state, State::Cancelled));
        self.commands.len() < before
    }

    /// Set Features begins under a tag, in the place of what was there.
    pub(super) fn keep(&mut self, tag: u32) -> Result<(), Status> {
        self.features.retain(|e| e.tag != tag);
        make_room(&mut self.features)?;
        let age = self.next_age();
        self.features.push_back(Entry { tag, age, state: State::Running });
        Ok(())
    }

    /// What Get Features fetches.
    pub(super) fn kept(&self, tag: u32, offset: u32, room: usize) -> Kept {
        match self.features.iter().find(|e| e.tag == tag).map(|e| &e.state) {
            None => Kept::Unknown,
            Some(State::Reply(reply)) => {
                let rest = reply.get(offset as usize..).unwrap_or_default();
                Kept::Part(rest[..rest.len().min(room)].to_vec(), reply.len() as u32)
            }
            // Its reply could not be kept.
            Some(State::Failed(_)) => Kept::Unknown,
            Some(_) => Kept::Running,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: usize) -> Host {
        Host { nqn: format!("nqn.2026-11.dev.nearside:{name}"), identifier: [7; 16], ..Host::default() }
    }

    /// A reply of the longest kind under a tag of Set Features.
    fn keep(tags: &mut Tags, host: &Host, tag: u32) {
        tags.with(host, |tags| {
            tags.keep(tag).unwrap();
            tags.kept_reply(tag, vec![0; MAX_BUFFER]);
        });
    }

    /// And one under a tag of `execute` and `result`.
    fn reply(tags: &mut Tags, host: &Host, tag: u64) {
        tags.with(host, |tags| {
            tags.commands.push_back(Entry { tag, age: 0, state: State::Running });
            tags.replied(tag, vec![0; MAX_BUFFER]);
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
            tags.with(host, |tags| tags.workers += 1);
        }
        keep(&mut tags, &other, 0);
        reply(&mut tags, &one, 99);
        for tag in 0..MOST as u32 {
            keep(&mut tags, &one, tag);
        }
        // The reply of `result` was the oldest; whoever asks for it is told.
        assert_eq!(kept(&mut tags, &one), (0..MOST as u32).collect::<Vec<_>>());
        assert!(matches!(tags.with(&one, |tags| tags.meet(99, MAX_BUFFER)), Meeting::Failed(GONE)));
        reply(&mut tags, &one, 100);
        assert_eq!(kept(&mut tags, &one), (1..MOST as u32).collect::<Vec<_>>());
        assert!(
            matches!(tags.with(&one, |tags| tags.meet(100, MAX_BUFFER)), Meeting::Reply(r) if r.len() == MAX_BUFFER)
        );
        assert_eq!(kept(&mut tags, &other), [0]);
        assert_eq!(tags.bytes, MOST * MAX_BUFFER);
    }

    #[test]
    fn where_all_keep_too_much_who_keeps_most_loses_its_oldest() {
        let mut tags = Tags::default();
        let small = host(0);
        tags.with(&small, |tags| tags.workers += 1);
        keep(&mut tags, &small, 5);
        let hosts: Vec<Host> = (1..=20).map(host).collect();
        for host in &hosts {
            tags.with(host, |tags| tags.workers += 1);
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
            tags.with(host, |tags| tags.workers -= 1);
        }
        assert_eq!((tags.bytes, tags.hosts.len()), (0, 0));
    }
}
