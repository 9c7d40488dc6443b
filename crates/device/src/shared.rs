//! What the reactors of a controller share: nothing of it is written on the I/O path except each reactor's
//! own counters.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_clock::Nanos;
use nearside_dma::{Function, Region};
use nearside_spec::Status;
use nearside_spec::log::ErrorEntry;
use nearside_spec::reservation::Notice;
use nearside_store::Store;

use crate::config::Config;
use crate::doorbell::ShadowPages;
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::queue::QueueMemory;
use crate::reservation::{HostId, Ticket};
use crate::subsystem::Subsystem;
use crate::{CommandSet, Namespace};

/// Entries that the error log keeps.
pub(crate) const ERROR_LOG_ENTRIES: usize = 64;

pub(crate) struct ControllerShared<S: Store, F> {
    pub(crate) config: Config,
    pub(crate) subsystem: Arc<Subsystem<S, F>>,
    pub(crate) function: Function,
    pub(crate) mailboxes: Box<[Mailbox]>,
    pub(crate) interrupts: Interrupts,
    pub(crate) errors: Mutex<ErrorLog>,
    pub(crate) counters: Box<[Counters]>,
    /// The volatile write cache is off: every write is durable when it completes.
    pub(crate) write_through: AtomicBool,
    /// The host has all command sets enabled, and not the one of logical blocks alone.
    pub(crate) command_sets: AtomicBool,
    /// The pages of Doorbell Buffer Config, and how often they were set.
    pub(crate) shadow: Mutex<Option<(u64, u64)>>,
    pub(crate) shadow_set: AtomicU32,
    /// Who the host is to reservations: by what its Connect command said, or by a feature.
    pub(crate) host_id: Mutex<HostId>,
    /// How often that has changed.
    pub(crate) named: AtomicU32,
}

impl<S: Store, F: Firmware<S>> ControllerShared<S, F> {
    /// A namespace with firmware: where there is one, all have it.
    pub(crate) fn firmware(&self) -> Option<Arc<Namespace<S, F>>> {
        self.namespaces().into_iter().map(|(_, namespace)| namespace).find(|n| n.observer().is_present())
    }
}

impl<S: Store, F> ControllerShared<S, F> {
    /// The namespace of that identifier, if the controller is attached to it.
    pub(crate) fn namespace(&self, nsid: u32) -> Option<Arc<Namespace<S, F>>> {
        self.subsystem.namespace(nsid).filter(|namespace| self.shows(nsid, namespace))
    }

    /// All that it is attached to, by identifier.
    pub(crate) fn namespaces(&self) -> Vec<(u32, Arc<Namespace<S, F>>)> {
        let mut all = self.subsystem.namespaces();
        all.retain(|(nsid, namespace)| self.shows(*nsid, namespace));
        all
    }

    /// Whether its host has a namespace, whose command set it may not have enabled.
    fn shows(&self, nsid: u32, namespace: &Namespace<S, F>) -> bool {
        let enabled = || self.command_sets.load(Ordering::Relaxed);
        self.config.has(nsid) && (namespace.command_set() == CommandSet::Nvm || enabled())
    }

    /// Whether there is a namespace of another command set than that of logical blocks.
    pub(crate) fn has_command_sets(&self) -> bool {
        let all = self.subsystem.namespaces();
        all.iter().any(|(nsid, n)| n.command_set() != CommandSet::Nvm && self.config.has(*nsid))
    }

    /// Who the host is to reservations; zeros where nobody has said it.
    pub(crate) fn host_id(&self) -> HostId {
        *self.host_id.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn set_host_id(&self, id: HostId) {
        *self.host_id.lock().unwrap_or_else(|e| e.into_inner()) = id;
        self.named.fetch_add(1, Ordering::Release);
    }

    /// What commands of a namespace are answered, where its host does not reach it by its port.
    pub(crate) fn bars(&self, nsid: u32) -> Option<Status> {
        self.subsystem.ana_state(self.config.port, nsid).bars()
    }

    /// Commands that its reactors have taken and not answered.
    pub(crate) fn in_flight(&self) -> u64 {
        self.counters.iter().map(|counters| counters.in_flight.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn registers(&self) -> &Region {
        &self.function.registers
    }

    /// What changes with the host's mappings, and with where it keeps its doorbells.
    #[inline]
    pub(crate) fn host_memory(&self) -> (u32, u32) {
        (self.function.memory.version(), self.shadow_set.load(Ordering::Acquire))
    }

    /// The pages of shadow doorbells and of event indexes, where the host has named some.
    pub(crate) fn shadow_doorbells(&self) -> Option<(u64, u64)> {
        *self.shadow.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Every reactor finds them at its next step.
    pub(crate) fn set_shadow_doorbells(&self, pages: Option<(u64, u64)>) {
        let mut shadow = self.shadow.lock().unwrap_or_else(|e| e.into_inner());
        if std::mem::replace(&mut *shadow, pages) != pages || pages.is_some() {
            self.shadow_set.fetch_add(1, Ordering::Release);
            drop(shadow);
            self.function.wakeup.wake();
        }
    }

    /// A queue begins, and its doorbell with it.
    pub(crate) fn begin_doorbell(&self, at: usize) {
        self.registers().word32(at).store(0, Ordering::Relaxed);
        if let Some((values, events)) = self.shadow_doorbells() {
            ShadowPages::new(&self.function.memory, values, events).begin(at, 0);
        }
    }

    /// Enters a failed command into the error log. Returns its status as it goes to the host: with More set.
    pub(crate) fn log_error(&self, sq: u16, cid: u16, nsid: u32, fault: &Fault) -> Status {
        let status = Status(fault.status.0 | 1 << 13);
        let mut log = self.errors.lock().unwrap_or_else(|e| e.into_inner());
        log.count += 1;
        let mut e = ErrorEntry::default();
        let parameter = fault.at.map_or(0xffff, |(byte, bit)| u16::from(byte) | u16::from(bit) << 8);
        e.set_count(log.count)
            .set_sqid(sq)
            .set_cid(cid)
            .set_status(status.0 << 1)
            .set_parameter(parameter)
            .set_lba(fault.lba)
            .set_nsid(nsid);
        if log.entries.len() == ERROR_LOG_ENTRIES {
            log.entries.pop_back();
        }
        log.entries.push_front(e);
        status
    }
}

/// The newest errors, newest first.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    pub(crate) count: u64,
    pub(crate) entries: VecDeque<ErrorEntry>,
}

/// What one reactor has done. Written by its reactor only, so that adding needs no locked instruction.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) media_errors: AtomicU64,
    pub(crate) near_data: AtomicU64,
    /// Commands taken and not answered, when its last step ended.
    pub(crate) in_flight: AtomicU64,
}

#[inline]
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// What one reactor tells another. `key` comes back with [`Message::Done`].
#[derive(Debug)]
pub(crate) enum Message {
    CreateCq {
        id: u16,
        vector: Option<u16>,
        queue_memory: QueueMemory,
        key: usize,
    },
    CreateSq {
        id: u16,
        cq: u16,
        queue_memory: QueueMemory,
        key: usize,
    },
    DeleteSq {
        id: u16,
        key: usize,
    },
    DeleteCq {
        id: u16,
        key: usize,
    },
    Abort {
        sq: u16,
        cid: u16,
        key: usize,
    },
    /// All queues go; commands in flight are waited for.
    Reset {
        key: usize,
    },
    /// To reactor 0: that is done; the value is the command's result.
    Done {
        key: usize,
        result: u32,
    },
    /// To reactor 0: a front has opened or closed a queue pair by itself.
    Pair {
        id: u16,
        there: bool,
    },
    /// To reactor 0: an asynchronous event of type Error.
    ErrorEvent {
        information: u8,
    },
    /// To reactor 0: the host did not let a queue of its be read or written.
    Fatal,
    /// The subsystem has another namespace of that identifier than before, or none, or one of another length.
    Namespace {
        nsid: u32,
    },
    /// Namespaces, or hosts, have another quota than before.
    Quotas,
    /// A log page of the subsystem has changed.
    Published {
        log: u8,
        information: u8,
    },
    /// By that port, namespaces are found in other states.
    Ana {
        port: u16,
    },
    /// To reactor 0: the host is told of a reservation.
    Reservation {
        nsid: u32,
        notice: Notice,
    },
    /// What runs of the host's on that namespace is to end; the ticket is dropped then.
    Preempted {
        nsid: u32,
        ticket: Arc<Ticket>,
    },
}

/// Messages to one reactor.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    full: AtomicBool,
    messages: Mutex<VecDeque<Message>>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.messages.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The receiver has to be woken after it: see [`nearside_dma::Wakeup::wake`].
    pub(crate) fn send(&self, message: Message) {
        self.lock().push_back(message);
        self.full.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> VecDeque<Message> {
        let mut messages = self.lock();
        self.full.store(false, Ordering::Relaxed);
        std::mem::take(&mut messages)
    }
}

/// Which interrupts the host wants, and how many at once.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// INTMS: masked vectors.
    pub(crate) mask: AtomicU32,
    /// Masked vectors that have something to tell.
    pub(crate) pending: AtomicU32,
    /// Interrupt Coalescing: THR in bits 7:0 (zero-based), TIME in 15:8 (100 µs).
    pub(crate) coalescing: AtomicU32,
    /// Vectors without coalescing.
    pub(crate) not_coalesced: AtomicU64,
}

impl Interrupts {
    /// What a reset leaves.
    pub(crate) fn reset(&self) {
        self.mask.store(0, Ordering::SeqCst);
        self.pending.store(0, Ordering::SeqCst);
        self.coalescing.store(0, Ordering::Relaxed);
        self.not_coalesced.store(0, Ordering::Relaxed);
    }

    /// When a completion queue's interrupt is due that has `waiting` completions since `since`; `None`: now.
    #[inline]
    pub(crate) fn due(&self, vector: u16, waiting: u32, since: Nanos) -> Option<Nanos> {
        let coalescing = self.coalescing.load(Ordering::Relaxed);
        let (threshold, time) = (coalescing & 0xff, coalescing >> 8 & 0xff);
        if time == 0 || waiting > threshold || self.not_coalesced.load(Ordering::Relaxed) & 1 << vector != 0 {
            return None;
        }
        Some(since + u64::from(time) * 100_000)
    }

    /// Raises a vector, or notes that it has to be raised when the host unmasks it.
    pub(crate) fn raise(&self, function: &Function, vector: u16) {
        let bit = 1u32.checked_shl(vector.into()).unwrap_or(0);
        if self.mask.load(Ordering::Relaxed) & bit != 0 {
            // Pending first, then the mask again: reactor 0 clears the mask first, then takes what is
            // pending. One of the two sees the other.
            self.pending.fetch_or(bit, Ordering::SeqCst);
            if self.mask.load(Ordering::SeqCst) & bit != 0 {
                return;
            }
            if self.pending.fetch_and(!bit, Ordering::SeqCst) & bit == 0 {
                return;
            }
        }
        if let Some(vector) = function.vectors.get(usize::from(vector)) {
            vector.signal();
        }
    }

    /// Changes the mask; raises what became free.
    pub(crate) fn change_mask(&self, function: &Function, set: u32, clear: u32) -> u32 {
        let mask = (self.mask.load(Ordering::SeqCst) | set) & !clear;
        self.mask.store(mask, Ordering::SeqCst);
        let free = self.pending.load(Ordering::SeqCst) & !mask;
        let free = self.pending.fetch_and(!free, Ordering::SeqCst) & free;
        for vector in (0..32u16).filter(|v| free >> v & 1 != 0) {
            if let Some(vector) = function.vectors.get(usize::from(vector)) {
                vector.signal();
            }
        }
        mask
    }
}
