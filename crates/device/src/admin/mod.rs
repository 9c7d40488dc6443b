//! Reactor 0's second job: the registers and the admin commands.
//!
//! The registers lie in shared memory and nothing traps a write to them: [`Admin::step`] looks at them. A
//! command that concerns queues of another reactor is sent there as a message and answered when that reactor
//! says it is done.

mod compute;
mod events;
mod features;
mod identify;
mod logs;
mod queues;
mod reservations;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_clock::{Nanos, event_at};
use nearside_dma::{PAGE_SIZE, Region};
use nearside_spec::command::common;
use nearside_spec::log::{event, lid};
use nearside_spec::opcode::admin;
use nearside_spec::registers::{self as reg, Cap, Cc, csts};
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::Store;
use slab::Slab;
use tracing::Level;

use crate::config::MAX_QUEUES;
use crate::doorbell::{Doorbells, Placed};
use crate::fault::Fault;
use crate::firmware::Firmware;
use crate::pointer::{self, Layout, Pointer};
use crate::queue::{CompletionSlot, Cq, InvalidDoorbell, QueueMemory, Queues, Sq};
use crate::reactor::{Reactor, Step, Task};
use crate::shared::{ControllerShared, Message};
use crate::subsystem::Trouble;
use events::Events;
use features::Features;
use queues::Registry;
pub(crate) use queues::owner;
use reservations::Notifications;

/// Admin commands taken in one step.
const BATCH: u32 = 8;
/// Steps between two looks at the doorbells of queues that do not exist.
const STRAY_DOORBELLS_EVERY: u32 = 256;
/// Aborts that may wait for their reactor (ACL, zero-based in Identify).
pub(crate) const ABORT_LIMIT: usize = 4;

/// What became of an admin command.
pub(crate) enum Answer {
    /// Success, with DW0.
    Now(u32),
    /// The slot was kept: the answer comes later.
    Later,
}

/// Where the controller stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControllerState {
    Disabled,
    Enabled,
    /// Waits for so many reactors to let go of their queues.
    Resetting(usize),
    /// Controller fatal status; only a reset helps.
    Failed,
}

/// What waits for another reactor.
enum Waiting {
    /// A command whose end is the message's.
    Command(CompletionSlot),
    Abort(CompletionSlot),
    DeleteSq(CompletionSlot, u16),
    /// A command that a reset has overtaken.
    Forgotten,
    Reset,
}

/// Registers, features, logs and events of a controller.
pub(crate) struct Admin {
    state: ControllerState,
    waiting: Slab<Waiting>,
    registry: Registry,
    features: Features,
    events: Events,
    /// Namespaces that changed since the host last read of them.
    changed: BTreeSet<u32>,
    notifications: Notifications,
    /// A shutdown's flush is under way, or done.
    shutdown: Option<bool>,
    /// When the last Keep Alive came.
    alive: Nanos,
    started: Nanos,
    stray: u32,
    stray_seen: u128,
}

impl Admin {
    pub(crate) fn new<S: Store, F: Firmware<S>>(shared: &Arc<ControllerShared<S, F>>) -> Admin {
        let registers = shared.registers();
        let mut cap = Cap::new((shared.config.queue_entries - 1) as u16, 20);
        if shared.has_command_sets() {
            cap = cap.with_command_sets();
        }
        registers.word64(reg::CAP).store(cap.0, Ordering::Relaxed);
        registers.word32(reg::VS).store(reg::VERSION_2_0, Ordering::Relaxed);
        registers.word32(reg::CRTO).store(20, Ordering::Relaxed);
        registers.word32(reg::CSTS).store(0, Ordering::Release);
        Admin {
            state: ControllerState::Disabled,
            waiting: Slab::new(),
            registry: Registry::new(shared.config.io_queues),
            features: Features::new(&shared.config),
            events: Events::default(),
            changed: BTreeSet::new(),
            notifications: Notifications::default(),
            shutdown: None,
            alive: Nanos(0),
            started: Nanos(0),
            stray: 0,
            stray_seen: 0,
        }
    }

    #[inline]
    pub(crate) fn step<S: Store, F: Firmware<S>>(
        &mut self,
        reactor: &mut Reactor<S, F>,
        now: Nanos,
        step: &mut Step,
    ) -> usize {
        let mut work = 0;
        let cc = Cc(reactor.shared.registers().word32(reg::CC).load(Ordering::Acquire));
        match self.state {
            ControllerState::Disabled if cc.enabled() => {
                self.enable(reactor, cc, now);
                work += 1;
            }
            ControllerState::Enabled | ControllerState::Failed if !cc.enabled() => {
                self.report_reset(reactor, now);
                self.reset(reactor);
                work += 1;
            }
            _ => {}
        }
        if (cc.shn() != 0) != self.shutdown.is_some() || self.shutdown == Some(false) {
            work += self.shut_down(reactor, cc, now);
        }
        work += self.masks(&reactor.shared);
        if self.state == ControllerState::Enabled {
            work += self.serve(reactor, now);
            if reactor.shared.config.fabric.is_none() {
                work += self.look_for_stray_doorbells(reactor.shared.registers());
            }
            work += self.events.post(reactor, now);
            if let Some(timeout) = self.features.keep_alive() {
                let due = self.alive + timeout;
                if due <= now {
                    let fault = Fault::transient(Status::KEEP_ALIVE_EXPIRED);
                    reactor.shared.log_error(0, 0xffff, 0, &fault);
                    if let Some(suppressed) = reactor.shared.subsystem.may_report(Trouble::SilentHost, now) {
                        let host = &reactor.shared.config.host.nqn;
                        tracing::warn!(host, suppressed, "no Keep Alive came: the controller stops");
                    }
                    self.fatal(reactor.shared.registers());
                } else {
                    step.at(Some(due));
                }
            }
        }
        work
    }

    /// Whether registers and admin doorbells say nothing new.
    pub(crate) fn is_quiet(&self, queues: &Queues, registers: &Region) -> bool {
        let cc = Cc(registers.word32(reg::CC).load(Ordering::Acquire));
        let settled = match self.state {
            ControllerState::Disabled => !cc.enabled(),
            ControllerState::Enabled | ControllerState::Failed => cc.enabled(),
            // The reactors' messages say when it goes on.
            ControllerState::Resetting(_) => true,
        };
        settled
            && (cc.shn() != 0) == self.shutdown.is_some()
            && registers.word32(reg::INTMC).load(Ordering::Relaxed) == 0
            && (self.state != ControllerState::Enabled || queues.is_quiet(0, registers))
    }

    /// CC.EN has risen: takes the admin queues.
    fn enable<S: Store, F: Firmware<S>>(&mut self, reactor: &mut Reactor<S, F>, cc: Cc, now: Nanos) {
        let shared = reactor.shared.clone();
        let registers = shared.registers();
        let aqa = registers.word32(reg::AQA).load(Ordering::Relaxed);
        let (sq_entries, cq_entries) = ((aqa & 0xfff) + 1, (aqa >> 16 & 0xfff) + 1);
        let asq = registers.word64(reg::ASQ).load(Ordering::Relaxed);
        let acq = registers.word64(reg::ACQ).load(Ordering::Relaxed);
        let all_sets =
            cc.css() == Cc::CSS_ALL && Cap(registers.word64(reg::CAP).load(Ordering::Relaxed)).command_sets();
        let supported = cc.mps() == 0 && (cc.css() == Cc::CSS_NVM || all_sets) && cc.ams() == 0;
        let queues = if supported && sq_entries > 1 && cq_entries > 1 {
            queue_memory(&shared, asq, sq_entries, 64)
                .ok()
                .zip(queue_memory(&shared, acq, cq_entries, 16).ok())
        } else {
            None
        };
        let Some((sq, cq)) = queues else {
            if let Some(suppressed) = shared.subsystem.may_report(Trouble::AdminQueues, now) {
                let host = &shared.config.host.nqn;
                tracing::warn!(host, cc = cc.0, aqa, suppressed, "the controller cannot be enabled so");
            }
            self.fatal(registers);
            return;
        };
        shared.command_sets.store(all_sets, Ordering::Relaxed);
        reactor.queues.remote |= sq.placed.is_remote() || cq.placed.is_remote();
        reactor.queues.sqs[0] = Some(Box::new(Sq::new(0, 0, sq)));
        reactor.queues.cqs[0] = Some(Box::new(Cq::new(0, Some(0), cq)));
        self.state = ControllerState::Enabled;
        (self.alive, self.started) = (now, now);
        registers.word32(reg::CSTS).store(csts::RDY, Ordering::Release);
    }

    /// The commands that wait will not be answered.
    pub(crate) fn forget(&mut self) {
        for (_, waiting) in self.waiting.iter_mut() {
            match std::mem::replace(waiting, Waiting::Forgotten) {
                Waiting::Command(slot) | Waiting::Abort(slot) | Waiting::DeleteSq(slot, _) => slot.forget(),
                Waiting::Forgotten | Waiting::Reset => {}
            }
        }
        self.events.reset();
    }

    /// A reset without a shutdown before it is what a host does that has given up.
    fn report_reset<S: Store, F: Firmware<S>>(&self, reactor: &Reactor<S, F>, now: Nanos) {
        let level = match (self.state, self.shutdown) {
            (_, Some(true)) => return,
            (ControllerState::Failed, _) => Level::INFO,
            (
                ControllerState::Disabled | ControllerState::Enabled | ControllerState::Resetting(_),
                Some(false) | None,
            ) => Level::WARN,
        };
        if let Some(suppressed) = reactor.shared.subsystem.may_report(Trouble::Reset, now) {
            let (host, commands) = (&reactor.shared.config.host.nqn, reactor.in_flight());
            event_at!(level, host, commands, suppressed, "a host reset the controller without a shutdown");
        }
    }

    /// CC.EN has fallen: every reactor lets go of its queues.
    fn reset<S: Store, F: Firmware<S>>(&mut self, reactor: &mut Reactor<S, F>) {
        self.forget();
        let reactors = reactor.shared.mailboxes.len();
        self.state = ControllerState::Resetting(reactors);
        for other in 0..reactors {
            let key = self.waiting.insert(Waiting::Reset);
            reactor.tell(other, Message::Reset { key });
        }
    }

    /// All reactors have let go: the controller is as new, but for its logs.
    fn disabled<S: Store, F: Firmware<S>>(&mut self, shared: &ControllerShared<S, F>) {
        let registers = shared.registers();
        self.registry = Registry::new(shared.config.io_queues);
        self.features = Features::new(&shared.config);
        self.notifications = Notifications::default();
        shared.set_host_id(shared.config.host.identifier);
        shared.write_through.store(!shared.config.write_cache, Ordering::Relaxed);
        shared.command_sets.store(false, Ordering::Relaxed);
        shared.interrupts.reset();
        shared.set_shadow_doorbells(None);
        for register in [reg::INTMS, reg::INTMC] {
            registers.word32(register).store(0, Ordering::Relaxed);
        }
        for id in 0..MAX_QUEUES as u16 {
            registers.word32(reg::sq_tail_doorbell(id)).store(0, Ordering::Relaxed);
            registers.word32(reg::cq_head_doorbell(id)).store(0, Ordering::Relaxed);
        }
        self.stray_seen = 0;
        self.state = ControllerState::Disabled;
        // Release: a host that sees RDY fall sees the doorbells at zero.
        registers.word32(reg::CSTS).store(0, Ordering::Release);
    }

    fn fatal(&mut self, registers: &Region) {
        self.state = ControllerState::Failed;
        registers.word32(reg::CSTS).fetch_or(csts::CFS, Ordering::Release);
    }

    /// CC.SHN: what was written becomes durable, then CSTS.SHST says so.
    fn shut_down<S: Store, F: Firmware<S>>(
        &mut self,
        reactor: &mut Reactor<S, F>,
        cc: Cc,
        now: Nanos,
    ) -> usize {
        let status = reactor.shared.function.registers.word32(reg::CSTS);
        let report = |shst: u32| {
            let now = status.load(Ordering::Relaxed);
            status.store(now & !csts::SHST | shst, Ordering::Release);
        };
        match self.shutdown {
            None if cc.shn() != 0 => {
                report(csts::SHST_OCCURRING);
                self.shutdown = Some(false);
                reactor.flush_for_shutdown(now);
            }
            Some(false) if reactor.shutdown_done => {
                self.shutdown = Some(true);
                report(csts::SHST_COMPLETE);
            }
            Some(true) if cc.shn() == 0 => {
                self.shutdown = None;
                report(0);
            }
            _ => return 0,
        }
        1
    }

    /// INTMS and INTMC; see their offsets for what sharing memory means for them.
    #[inline]
    fn masks<S: Store, F: Firmware<S>>(&mut self, shared: &ControllerShared<S, F>) -> usize {
        let registers = shared.registers();
        let (set, clear) = (registers.word32(reg::INTMS), registers.word32(reg::INTMC));
        let mask = shared.interrupts.mask.load(Ordering::Relaxed);
        let wanted = set.load(Ordering::Acquire);
        if wanted == mask && clear.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let cleared = clear.swap(0, Ordering::AcqRel);
        let mask = shared.interrupts.change_mask(&shared.function, wanted, cleared);
        // A host that sets more bits at this very moment keeps them.
        let _ = set.compare_exchange(wanted, mask, Ordering::AcqRel, Ordering::Relaxed);
        1
    }

    /// Takes admin commands.
    #[inline]
    fn serve<S: Store, F: Firmware<S>>(&mut self, reactor: &mut Reactor<S, F>, now: Nanos) -> usize {
        let shared = &reactor.shared;
        let registers = shared.registers();
        let Queues { sqs, cqs, shadow, .. } = &mut reactor.queues;
        let (Some(sq), Some(cq)) = (&mut sqs[0], &mut cqs[0]) else { return 0 };
        let doorbells = Doorbells { registers, shadow: shadow.as_ref() };
        let taken = sq.waiting(&doorbells).and_then(|waiting| match waiting {
            0 => Ok(0),
            _ => cq.reserve(waiting.min(BATCH), &doorbells),
        });
        let count = match taken {
            Ok(0) => return 0,
            Ok(count) => count,
            Err(InvalidDoorbell) => {
                report_doorbell(shared, 0, now);
                self.events.error(event::INVALID_DOORBELL_VALUE);
                return 1;
            }
        };
        let mut entries = [SubmissionEntry::default(); BATCH as usize];
        for entry in entries.iter_mut().take(count as usize) {
            *entry = sq.take();
        }
        sq.in_flight += count;
        for entry in entries.iter().take(count as usize) {
            self.execute(reactor, CompletionSlot::new(0, entry.cid()), entry, now);
        }
        count as usize
    }

    /// Executes an admin command, as it was taken or with its data in the drive's own memory.
    pub(crate) fn execute<S: Store, F: Firmware<S>>(
        &mut self,
        reactor: &mut Reactor<S, F>,
        slot: CompletionSlot,
        entry: &SubmissionEntry,
        now: Nanos,
    ) {
        let staged = slot.stage != 0;
        let mut command = AdminCommand { admin: self, reactor, slot: Some(slot), entry, staged, now };
        let answer = command.execute();
        match (answer, command.slot) {
            (Ok(Answer::Now(result)), Some(slot)) => {
                reactor.queues.answer(slot, result.into(), Status::SUCCESS, now);
            }
            (Err(fault), Some(slot)) => match fault.elsewhere {
                Some(elsewhere) if !staged => reactor.stage(slot, Task::Admin(*entry), elsewhere, now),
                _ => reactor.fail(slot, entry.nsid(), &fault, now),
            },
            (Ok(Answer::Later) | Err(_), None) => {}
            (Ok(Answer::Later), Some(_)) | (Ok(Answer::Now(_)), None) => {
                panic!("an admin command and its slot disagree")
            }
        }
    }

    /// Something that another reactor says.
    pub(crate) fn on_message<S: Store, F: Firmware<S>>(
        &mut self,
        reactor: &mut Reactor<S, F>,
        message: Message,
        now: Nanos,
    ) {
        let (key, result) = match message {
            Message::Done { key, result } => (key, result),
            Message::ErrorEvent { information } => return self.events.error(information),
            Message::Pair { id, there } => return self.registry.set_pair(id, there),
            Message::Fatal => {
                if self.state == ControllerState::Enabled {
                    self.fatal(reactor.shared.registers());
                }
                return;
            }
            Message::Reservation { nsid, notice } => {
                if self.notifications.add(nsid, notice) {
                    self.events.add(event::IO_COMMAND_SET, event::RESERVATION_LOG, lid::RESERVATION);
                }
                return;
            }
            Message::Published { log, information } => {
                if self.features.notices() & event::DISCOVERY_NOTICES != 0 {
                    self.events.add(event::NOTICE, information, log);
                }
                return;
            }
            _ => return,
        };
        match self.waiting.try_remove(key) {
            Some(Waiting::Command(slot) | Waiting::Abort(slot)) => {
                reactor.queues.answer(slot, result.into(), Status::SUCCESS, now);
            }
            Some(Waiting::DeleteSq(slot, id)) => {
                self.registry.remove_sq(id);
                reactor.queues.answer(slot, 0, Status::SUCCESS, now);
            }
            Some(Waiting::Reset) => {
                if let ControllerState::Resetting(left) = &mut self.state {
                    assert!(*left > 0, "a reactor let go of its queues twice");
                    *left -= 1;
                    if *left == 0 {
                        self.disabled(&reactor.shared);
                    }
                }
            }
            Some(Waiting::Forgotten) | None => {}
        }
    }

    /// Another namespace than before has that identifier, or none.
    pub(crate) fn namespace_changed(&mut self, nsid: u32) {
        self.changed.insert(nsid);
        if self.features.notices() & event::NAMESPACE_NOTICES != 0 {
            self.events.add(event::NOTICE, event::NAMESPACE_ATTRIBUTE_CHANGED, lid::CHANGED_NAMESPACES);
        }
    }

    /// Namespaces are found in other states by the host's port.
    pub(crate) fn ana_changed(&mut self) {
        if self.features.notices() & event::ANA_NOTICES != 0 {
            self.events.add(event::NOTICE, event::ANA_CHANGE, lid::ANA);
        }
    }

    /// A doorbell of a queue that does not exist was written: an event, once for each.
    fn look_for_stray_doorbells(&mut self, registers: &Region) -> usize {
        self.stray += 1;
        if self.stray < STRAY_DOORBELLS_EVERY {
            return 0;
        }
        self.stray = 0;
        let mut found = 0;
        for id in 1..MAX_QUEUES as u16 {
            let doorbells = [
                (self.registry.has_sq(id), reg::sq_tail_doorbell(id), 0),
                (self.registry.has_cq(id), reg::cq_head_doorbell(id), 1),
            ];
            for (exists, at, which) in doorbells {
                let bit = 1u128 << (u32::from(id) * 2 + which);
                let doorbell_set = !exists && registers.word32(at).load(Ordering::Relaxed) != 0;
                if doorbell_set && self.stray_seen & bit == 0 {
                    self.stray_seen |= bit;
                    self.events.error(event::INVALID_DOORBELL_REGISTER);
                    found += 1;
                } else if !doorbell_set {
                    self.stray_seen &= !bit;
                }
            }
        }
        found
    }
}

/// An admin command that is being executed.
struct AdminCommand<'a, S: Store, F: Firmware<S>> {
    admin: &'a mut Admin,
    reactor: &'a mut Reactor<S, F>,
    /// Its place in the completion queue; who answers later takes it.
    slot: Option<CompletionSlot>,
    entry: &'a SubmissionEntry,
    /// Its data are in the drive's own memory, and its pointer is an SGL that no host gave.
    staged: bool,
    now: Nanos,
}

impl<S: Store, F: Firmware<S>> AdminCommand<'_, S, F> {
    /// One admin command. Who answers later takes the slot.
    fn execute(&mut self) -> Result<Answer, Fault> {
        if self.entry.get(common::FUSE) != 0 {
            return Err(Fault::field(common::FUSE));
        }
        // Base 2.0, figure 88: admin commands of memory-based controllers use PRPs, those over fabrics SGLs.
        if self.entry.psdt() != 0 && self.reactor.shared.config.fabric.is_none() && !self.staged {
            return Err(Fault::field(common::PSDT));
        }
        match self.entry.opcode() {
            admin::IDENTIFY => identify::identify(self.reactor, self.entry),
            admin::GET_LOG_PAGE => self.get_log_page(),
            admin::GET_FEATURES => self.get_features(),
            admin::SET_FEATURES => self.set_features(),
            admin::CREATE_CQ => self.create_cq(),
            admin::CREATE_SQ => self.create_sq(),
            admin::DELETE_CQ => self.delete_cq(),
            admin::DELETE_SQ => self.delete_sq(),
            admin::ABORT => self.abort(),
            admin::ASYNC_EVENT_REQUEST => self.admin.events.request(self.reactor, &mut self.slot),
            admin::DOORBELL_BUFFER_CONFIG if self.reactor.shared.config.shadow_doorbells => {
                self.doorbell_buffers()
            }
            admin::KEEP_ALIVE => {
                self.admin.alive = self.now;
                Ok(Answer::Now(0))
            }
            admin::LOAD_PROGRAM | admin::PROGRAM_ACTIVATION | admin::MEMORY_RANGE_SET
                if self.reactor.shared.command_sets.load(Ordering::Relaxed) =>
            {
                self.of_programs()
            }
            _ => Err(Fault::new(Status::INVALID_OPCODE).at(0, 0)),
        }
    }
}

/// A host wrote a doorbell beyond its queue.
#[cold]
pub(crate) fn report_doorbell<S: Store, F: Firmware<S>>(
    shared: &ControllerShared<S, F>,
    queue: u16,
    now: Nanos,
) {
    if let Some(suppressed) = shared.subsystem.may_report(Trouble::Doorbell, now) {
        let host = &shared.config.host.nqn;
        tracing::warn!(host, queue, suppressed, "a host wrote a doorbell beyond its queue");
    }
}

/// Finds a queue's memory: contiguous, within one mapping, page-aligned by address and by word in memory.
pub(crate) fn queue_memory<S: Store, F: Firmware<S>>(
    shared: &ControllerShared<S, F>,
    iova: u64,
    entries: u32,
    entry_size: usize,
) -> Result<QueueMemory, Fault> {
    if !iova.is_multiple_of(PAGE_SIZE as u64) {
        return Err(Fault::new(Status::INVALID_PRP_OFFSET).at(24, 0));
    }
    let (memory, len) = (&shared.function.memory, entries as usize * entry_size);
    let unreachable = Fault::new(Status::DATA_TRANSFER_ERROR).at(24, 0);
    let placed = Placed::at(memory, iova, len);
    match placed.region() {
        None if placed.is_remote() => Ok(QueueMemory { placed, size: entries }),
        Some(_) => Ok(QueueMemory { placed, size: entries }),
        // Mapped, but not so that words lie as they must.
        None if memory.resolve(iova, len).is_ok() => Err(Fault::new(Status::INVALID_PRP_OFFSET).at(24, 0)),
        None => Err(unreachable),
    }
}

/// Copies a structure to the host, by a command's PRPs.
fn send<S: Store, F: Firmware<S>>(
    shared: &ControllerShared<S, F>,
    entry: &SubmissionEntry,
    data: &[u8],
) -> Result<(), Fault> {
    let mut layout = Layout::default();
    pointer::walk(&shared.function.memory, &Pointer::of(entry)?, data.len(), false, &mut layout)?;
    layout.scatter(&shared.function.memory, data);
    Ok(())
}

/// Copies a structure from the host.
fn receive<S: Store, F: Firmware<S>, const N: usize>(
    shared: &ControllerShared<S, F>,
    entry: &SubmissionEntry,
) -> Result<[u8; N], Fault> {
    let mut layout = Layout::default();
    pointer::walk(&shared.function.memory, &Pointer::of(entry)?, N, true, &mut layout)?;
    let mut data = [0; N];
    layout.gather(&shared.function.memory, &mut data);
    Ok(data)
}
