//! An association: one host and one controller, from the admin queue's Connect to the end of its connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use nearside_clock::Nanos;
use nearside_device::fabric::reactor_of;
use nearside_device::{Firmware, Reactor, Subsystem};
use nearside_dma::{Function, Region};
use nearside_spec::registers::{self as reg, Cc, csts};
use nearside_store::Store;

use crate::offer::Offer;
use crate::pool::Buffer;
use crate::queue::Queue;

/// What the threads that serve an association share.
pub(crate) struct Association<S: Store, F: Firmware<S>> {
    pub(crate) cntlid: u16,
    pub(crate) host_nqn: String,
    pub(crate) host_id: [u8; 16],
    /// The host's place among those that are here.
    pub(crate) place: u32,
    pub(crate) peer: SocketAddr,
    /// Which address of ours the host came to.
    pub(crate) local: SocketAddr,
    /// The number of what listens there.
    pub(crate) port: u16,
    /// `None`: discovery.
    pub(crate) offer: Option<Arc<Offer<S, F>>>,
    pub(crate) subsystem: Arc<Subsystem<S, F>>,
    /// The NQN that it was asked for by.
    pub(crate) nqn: String,
    pub(crate) function: Function,
    pub(crate) queue_memory: Arc<Region>,
    pub(crate) io_queues: u16,
    pub(crate) max_transfer: u32,
    /// The thread of reactor 0, and how many there are.
    pub(crate) first: usize,
    pub(crate) threads: usize,
    /// The host has proved who it is.
    pub(crate) authenticated: AtomicBool,
    /// Its admin queue came over TLS.
    pub(crate) encrypted: bool,
    /// I/O queues that are connected.
    pub(crate) queues: AtomicU16,
    /// It ends: no queue is connected any more.
    pub(crate) ended: AtomicBool,
}

impl<S: Store, F: Firmware<S>> Association<S, F> {
    pub(crate) fn registers(&self) -> &Region {
        &self.function.registers
    }

    /// The thread that serves a queue.
    pub(crate) fn thread_of(&self, qid: u16) -> usize {
        let reactor = if qid == 0 { 0 } else { reactor_of(qid, self.threads) };
        (self.first + reactor) % self.threads
    }

    pub(crate) fn is_enabled(&self) -> bool {
        let registers = self.registers();
        Cc(registers.word32(reg::CC).load(Ordering::Relaxed)).enabled()
            && registers.word32(reg::CSTS).load(Ordering::Acquire) & (csts::RDY | csts::CFS) == csts::RDY
    }
}

/// A thread's part of an association: one of its controller's reactors.
pub(crate) struct LocalController<S: Store, F: Firmware<S>> {
    pub(crate) association: Arc<Association<S, F>>,
    pub(crate) reactor: Reactor<S, F>,
    /// Its connections, by their keys.
    pub(crate) connections: Vec<usize>,
    /// Queues whose connections are gone, until the controller has let go of them.
    pub(crate) leaving: Vec<Queue>,
    /// Staging buffers of commands that a reset has ended, until the controller moves no bytes of theirs any
    /// more.
    pub(crate) orphans: Vec<Buffer>,
    /// When the reactor wants to be stepped; `None`: when there is something for it.
    pub(crate) due: Option<Nanos>,
    /// The host has reset or shut down the controller: the I/O queues of all threads end.
    pub(crate) queues_end: bool,
}

impl<S: Store, F: Firmware<S>> LocalController<S, F> {
    pub(crate) fn new(association: Arc<Association<S, F>>, reactor: Reactor<S, F>, now: Nanos) -> Self {
        LocalController {
            association,
            reactor,
            connections: Vec::new(),
            leaving: Vec::new(),
            orphans: Vec::new(),
            due: Some(now),
            queues_end: false,
        }
    }
}
