//! Where the two halves of a near-data command meet: under a tag of their host, shared by all reactors of its controllers.
//!
//! `execute` leaves its request; the first `result` takes it and runs it, because it knows the host's buffer; a `result`
//! that comes again finds the reply. Set Features' requests run at once, and their replies stay until the tag is used again.
//! At most [`MOST`] tags of a host are kept of each kind; the oldest that is not running goes first.

use std::collections::{HashMap, VecDeque};

use nearside_fsr::Request;
use nearside_spec::Status;

/// Tags kept of each kind.
const MOST: usize = 16;

enum State {
    /// `execute` came.
    Request(Box<Request>),
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
}

struct Entry<T> {
    tag: T,
    state: State,
}

/// The tags of all hosts, by host identifier.
#[derive(Default)]
pub(super) struct Tags {
    hosts: HashMap<[u8; 16], HostTags>,
}

impl Tags {
    /// Those of a host.
    pub(super) fn of(&mut self, host: &[u8; 16]) -> &mut HostTags {
        self.hosts.entry(*host).or_default()
    }

    /// The host is gone.
    pub(super) fn forget(&mut self, host: &[u8; 16]) {
        self.hosts.remove(host);
    }
}

/// A host's tags of `execute` and `result`, and those of Set and Get Features.
#[derive(Default)]
pub(super) struct HostTags {
    /// Workers that serve this host.
    pub(super) workers: usize,
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

fn store<T: PartialEq>(entries: &mut VecDeque<Entry<T>>, tag: &T, reply: Vec<u8>) {
    if let Some(Entry { state: state @ State::Running, .. }) = entries.iter_mut().find(|e| e.tag == *tag) {
        *state = State::Reply(reply);
    }
}

impl HostTags {
    /// `execute` came, with its request or its failure.
    pub(super) fn execute(&mut self, tag: u64, request: Result<Request, Status>) -> Result<(), Status> {
        if self.commands.iter().any(|e| e.tag == tag) {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        make_room(&mut self.commands)?;
        let state = match request {
            Ok(request) => State::Request(Box::new(request)),
            Err(status) => State::Failed(status),
        };
        self.commands.push_back(Entry { tag, state });
        Ok(())
    }

    /// `result` came, for a buffer of `room` bytes.
    pub(super) fn meet(&mut self, tag: u64, room: usize) -> Meeting {
        let Some(at) = self.commands.iter().position(|e| e.tag == tag) else {
            return Meeting::Unknown;
        };
        let Some(entry) = self.commands.get_mut(at) else { return Meeting::Unknown };
        match std::mem::replace(&mut entry.state, State::Running) {
            State::Request(request) => Meeting::Start(request),
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
        store(&mut self.commands, &tag, reply);
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
        store(&mut self.features, &tag, reply);
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
        self.features.push_back(Entry { tag, state: State::Running });
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
            Some(_) => Kept::Running,
        }
    }
}
