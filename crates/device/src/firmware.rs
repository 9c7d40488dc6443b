//! What a drive's firmware does beyond NVMe: it watches what the host changes, and executes near-data
//! commands.
//!
//! The controller knows no file system. It hands every mutation to an [`Observer`] (through the
//! [`Namespace`]) and every near-data command, already checked as an NVMe command and with its request copied
//! out of host memory, to a [`Worker`]. The reply goes back through the controller, which knows where the
//! host wants it. All of it is static: a drive without firmware is `()` and pays nothing.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::{Memory, Wakeup};
use nearside_spec::Status;
use nearside_spec::identify::IdentifyCompute;
use nearside_spec::log::NearDataLog;
use nearside_store::{Standing, Store, Token};

use crate::throttle::Account;
use crate::{Host, Namespace};

/// Sees every mutation of a namespace. Called from several reactors at the same time when there are several.
///
/// `begin` comes before any byte of the range can change; `end` after the last one has, and before the host
/// hears of it. Between the two the range's bytes are unknown. A mutation that failed ends as well: its
/// blocks are old or new.
pub trait Observer: Send + Sync + 'static {
    /// What is known of the store's bytes, where a namespace is made of it: before anything else.
    fn is_told(&self, standing: &Standing) {
        let _ = standing;
    }
    /// `len` bytes at `offset` are about to change.
    fn begin(&self, offset: u64, len: u64);
    /// They have. `durable`: they survive a power cut by themselves (FUA); else a flush that begins after
    /// this call makes them so.
    fn end(&self, offset: u64, len: u64, durable: bool);
    /// A flush begins; it covers every mutation that ended before. The value comes back with
    /// [`Observer::flushed`].
    fn flush_begins(&self) -> u64 {
        0
    }
    /// The flush of that ticket completed well.
    fn flushed(&self, ticket: u64) {
        let _ = ticket;
    }
    /// A trace point: an I/O command that ended well is about to be answered. Its completion is posted next,
    /// so that whoever sees that sees what was noted here. Nobody who does not note it pays for it.
    #[inline(always)]
    fn answers(&self) {}
}

impl Observer for () {
    #[inline(always)]
    fn begin(&self, _offset: u64, _len: u64) {}
    #[inline(always)]
    fn end(&self, _offset: u64, _len: u64, _durable: bool) {}
}

/// The firmware of a namespace, with a [`Worker`] for each reactor of each controller.
pub trait Firmware<S: Store>: Observer + Sized {
    /// What runs near-data commands on a reactor.
    type Worker: Worker;

    /// The worker of a reactor, for commands of its host. It reaches the store through an access of its own
    /// ([`Namespace::access`]) and its firmware as [`Namespace::observer`].
    ///
    /// # Errors
    /// The store's or the system's: no channel, no descriptors.
    fn worker(namespace: &Arc<Namespace<S, Self>>, seat: &Seat<'_>) -> io::Result<Self::Worker>;

    /// Whether there are near-data commands at all: without, their opcodes, feature and log page are refused
    /// as unknown.
    fn is_present(&self) -> bool {
        true
    }

    /// The vendor log page D5h: what near-data work this drive can do, and statistics. `fabric`: through
    /// commands that carry data one way only.
    fn capabilities(&self, _fabric: bool) -> NearDataLog {
        NearDataLog::default()
    }

    /// What a compute namespace can do (CNS 05h); `None`: it is none.
    fn programs(&self) -> Option<IdentifyCompute> {
        None
    }
}

/// For whom a worker works, and from where.
#[derive(Clone, Copy)]
pub struct Seat<'a> {
    /// The memory that the controller reaches.
    pub memory: &'a Arc<Memory>,
    /// Wakes the reactor's thread: for what is done elsewhere.
    pub wakeup: &'a Arc<Wakeup>,
    /// The host.
    pub host: &'a Host,
    /// The identifiers of the namespaces that the controller may have; `None`: all.
    pub namespaces: Option<&'a BTreeSet<u32>>,
    /// The reactor's number in its controller.
    pub reactor: usize,
}

/// Runs the near-data commands of one reactor, a slice at a time or by threads of their own.
pub trait Worker: Send + 'static {
    /// Takes a command. It is answered later through [`Worker::step`], exactly once; or refused now by its
    /// NVMe status.
    ///
    /// # Errors
    /// The NVMe status of the refusal; [`Worker::step`] then says nothing of the command.
    fn start(&mut self, job: Job, now: Nanos) -> Result<(), Status>;

    /// Hands over what is finished. Where commands run on this thread they run now, for a slice, if the turn
    /// has one left.
    fn step(&mut self, now: Nanos, turn: &mut Turn, done: &mut impl FnMut(Token, Outcome)) -> Progress;

    /// The command will not be waited for: finish it soon, by an answer through [`Worker::step`] all the
    /// same.
    fn cancel(&mut self, token: Token);

    /// The host has left the queue, or all (`None`): what came by it and is kept for the host ends, also what
    /// runs for no command just now.
    fn leave(&mut self, queue: Option<u16>) {
        let _ = queue;
    }

    /// Operations of the worker's own that the store has not ended. It may go all the same: see
    /// [`Namespace::poll_orphans`].
    fn in_flight(&self) -> usize {
        0
    }

    /// Whether nothing has come from elsewhere that a step would find.
    fn is_quiet(&self) -> bool {
        true
    }
}

/// One look at the I/O of all hosts that a thread serves. Near-data work on that thread has one slice (at
/// most 20 µs) until the next look, however many reactors, namespaces and commands exist: whoever steps
/// several reactors makes one `Turn` for all.
#[derive(Debug)]
pub struct Turn {
    has_slice: bool,
}

impl Turn {
    /// With its slice.
    #[inline]
    #[allow(clippy::new_without_default, reason = "a default would hide that it is one per look")]
    pub fn new() -> Turn {
        Turn { has_slice: true }
    }

    /// Takes the slice, if it is there.
    #[inline]
    pub fn take(&mut self) -> bool {
        std::mem::replace(&mut self.has_slice, false)
    }

    /// Whether it was taken.
    #[inline]
    pub fn is_spent(&self) -> bool {
        !self.has_slice
    }
}

/// What a worker did in a step, and what it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// It did something.
    pub worked: bool,
    /// When it wants to be stepped next at the latest; `None`: when a command comes.
    pub next: Option<Nanos>,
    /// It waits for what a thread beside the reactors does.
    pub beside: bool,
}

impl Progress {
    /// It wants to be stepped at that time, too.
    pub fn at(&mut self, time: Option<Nanos>) {
        self.next = match (self.next, time) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// A near-data command.
#[derive(Debug)]
pub struct Job {
    /// Comes back with the outcome.
    pub token: Token,
    /// The submission queue that it came by.
    pub queue: u16,
    /// By which command it came.
    pub command: NearDataCommand,
    /// The data that the host gave; for [`NearDataCommand::Feature`] the whole buffer.
    pub request: Vec<u8>,
    /// Bytes that a reply may have; 0 where the command carries none back.
    pub room: usize,
    /// What the processors' time that it takes is taken from; where that owes, it waits.
    pub account: Arc<Account>,
}

/// By which NVMe command near-data work came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NearDataCommand {
    /// The bidirectional I/O command ([`nearside_spec::opcode::io::NEAR_DATA`]): request in, reply over it.
    Bidirectional,
    /// `execute` of a tag (CDW12 and CDW13).
    Execute {
        /// Which.
        tag: u64,
    },
    /// `result` of a tag.
    Result {
        /// Which.
        tag: u64,
        /// How long the host waits (CDW14), 0 not at all.
        wait_ms: u32,
    },
    /// `cancel` of a tag.
    Cancel {
        /// Which.
        tag: u64,
    },
    /// Get Features D5h: DAC'23's encoding (the buffer is a request, the reply overwrites it), or the reply
    /// of what [`NearDataCommand::SetFeature`] began.
    Feature {
        /// CDW11: a tag.
        tag: u32,
        /// CDW12: byte of the reply to begin with.
        offset: u32,
    },
    /// Set Features D5h: the request of a tag.
    SetFeature {
        /// CDW11.
        tag: u32,
    },
    /// A command of a compute namespace.
    Compute(ComputeCommand),
}

/// What is asked of a compute namespace. What comes with a command is in [`Job::request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeCommand {
    /// Takes bytes of a program.
    Load {
        /// Where it is kept.
        index: u16,
        /// PTYPE.
        kind: u8,
        /// Bytes of all of it.
        size: u32,
        /// The place of these.
        at: u32,
    },
    /// Lets go of one.
    Unload {
        /// Which.
        index: u16,
    },
    /// Makes one ready, or no more.
    Activate {
        /// Which.
        index: u16,
        /// Ready.
        active: bool,
    },
    /// Makes a set of the memory ranges that come with it.
    CreateSet,
    /// Forgets one.
    DeleteSet {
        /// Which.
        set: u16,
    },
    /// Runs a program over memory.
    Execute {
        /// Which.
        index: u16,
        /// Over a set of ranges; 0: over those that come with the command.
        set: u16,
        /// How many come with it.
        ranges: u32,
        /// CPARAM1 and CPARAM2.
        parameters: [u64; 2],
    },
}

/// How a near-data command ended.
#[derive(Debug)]
pub struct Outcome {
    /// NVMe's status: carriage and form only. What became of the files is in the reply.
    pub status: Status,
    /// DW0 and DW1 of the completion: by custom, the bytes of the reply; what a program returned.
    pub result: u64,
    /// Written to the host's buffer, at most [`Job::room`] bytes of it.
    pub reply: Vec<u8>,
}

impl<S: Store> Firmware<S> for () {
    type Worker = NoWorker;

    fn worker(_: &Arc<Namespace<S, ()>>, _: &Seat<'_>) -> io::Result<NoWorker> {
        Ok(NoWorker)
    }

    fn is_present(&self) -> bool {
        false
    }
}

/// The worker of a drive without firmware: knows no command.
#[derive(Debug)]
pub struct NoWorker;

impl Worker for NoWorker {
    fn start(&mut self, _job: Job, _now: Nanos) -> Result<(), Status> {
        Err(Status::INVALID_OPCODE.dnr())
    }

    #[inline(always)]
    fn step(&mut self, _: Nanos, _: &mut Turn, _: &mut impl FnMut(Token, Outcome)) -> Progress {
        Progress::default()
    }

    fn cancel(&mut self, _token: Token) {}
}
