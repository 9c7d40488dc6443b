//! A controller: from reset to ready, its admin queue, and its end.
//!
//! [`Driver::start`] walks the initialisation of Base 2.0, 3.5.1: disable, set the admin queue, enable, wait for CSTS.RDY
//! within CAP.TO, identify, ask for queues. Then [`Driver::queue`] makes queue pairs and [`Driver::admin`] passes admin commands.
//! Where something fails for good, [`Driver::stop`] disables the controller: after it every queue pair gives its
//! outstanding buffers back. All waits are bounded by the caller's clock; while waiting, the caller's peer is pumped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_clock::{Clock, Nanos};
use nearside_dma::{Function, PAGE_SIZE};
use nearside_spec::command::{self, abort, features, queue};
use nearside_spec::identify::{IdentifyController, IdentifyNamespace, cns};
use nearside_spec::registers::{self, Cap, Cc, csts};
use nearside_spec::{Status, opcode};

use crate::queue::MAX_TRANSFER;
use crate::{BufferPool, Command, Completed, DmaBuffer, Error, Failure, Peer, QueuePair, Turn};

/// What a driver needs to know at its start.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// Bytes of shared memory for queues and buffers; they take room once touched.
    pub pool_bytes: usize,
    /// I/O queue pairs to ask for.
    pub queues: u16,
    /// How long a command may take before the controller counts as failed.
    pub timeout_ms: u64,
}

impl Default for DriverConfig {
    fn default() -> Self {
        DriverConfig { pool_bytes: 64 << 20, queues: 16, timeout_ms: 30_000 }
    }
}

/// What a queue pair should be like.
#[derive(Clone, Copy, Debug)]
pub struct QueueConfig {
    /// Commands that can be out at a time (1 to what the controller's queues hold).
    pub depth: u16,
    /// Whether its completion queue gets an interrupt: the vector of its own number, where the controller has that many.
    pub interrupt: bool,
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig { depth: 128, interrupt: true }
    }
}

/// A namespace, as Identify describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Its identifier.
    pub nsid: u32,
    /// Its size in blocks.
    pub blocks: u64,
    /// Bytes per block.
    pub block_size: u32,
    /// Whether it refuses writes.
    pub read_only: bool,
}

impl NamespaceInfo {
    /// From what Identify Namespace said.
    pub fn of(nsid: u32, bytes: &[u8; 4096]) -> Result<NamespaceInfo, Error> {
        let id = IdentifyNamespace::from_bytes(bytes);
        let wrong = |why| Error::Namespace { nsid, why };
        if id.nsze() == 0 {
            return Err(wrong("it is not active"));
        }
        let block_size = match id.format().lbads() {
            shift @ 9..=16 => 1 << shift,
            _ => return Err(wrong("its blocks are smaller than 512 bytes or larger than 64 KiB")),
        };
        if id.format().ms() != 0 {
            return Err(wrong("its format has metadata"));
        }
        Ok(NamespaceInfo { nsid, blocks: id.nsze(), block_size, read_only: id.nsattr() & 1 != 0 })
    }
}

/// What all parts of one driver share.
pub(crate) struct Shared {
    pub(crate) function: Function,
    pub(crate) pool: BufferPool,
    /// How often the controller was stopped: a queue pair of an earlier count is dead.
    stops: AtomicU64,
    /// Whether the last stop was not confirmed: the controller may still write.
    unresponsive: AtomicBool,
    /// Bytes: the least of MDTS and what one list describes.
    max_transfer: AtomicU64,
    /// Buffers that a drive may still write to, until it is stopped.
    graveyard: Mutex<Vec<DmaBuffer>>,
    /// Which I/O queue identifiers are taken, from 1 on.
    taken: Mutex<Vec<bool>>,
}

impl Shared {
    #[inline]
    pub(crate) fn stops(&self) -> u64 {
        self.stops.load(Ordering::Acquire)
    }

    pub(crate) fn failure(&self) -> Failure {
        if self.unresponsive.load(Ordering::Acquire) { Failure::Unresponsive } else { Failure::Reset }
    }

    pub(crate) fn max_transfer(&self) -> usize {
        self.max_transfer.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn bury(&self, buffer: Option<DmaBuffer>) {
        self.graveyard.lock().unwrap_or_else(|e| e.into_inner()).extend(buffer);
    }

    pub(crate) fn release_queue(&self, id: u16) {
        if let Some(taken) = self.queues().get_mut(usize::from(id) - 1) {
            *taken = false;
        }
    }

    fn queues(&self) -> MutexGuard<'_, Vec<bool>> {
        self.taken.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn register(&self, offset: usize) -> u32 {
        self.function.registers.word32(offset).load(Ordering::Acquire)
    }

    fn set_register(&self, offset: usize, value: u32) {
        // Release: queue addresses and attributes are in place before CC tells of them.
        self.function.registers.word32(offset).store(value, Ordering::Release);
        self.function.wakeup.ring();
    }

    /// Whether the controller is in the state that a command needs.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.register(registers::CSTS) {
            u32::MAX => Err(Error::Fatal),
            status if status & csts::CFS != 0 => Err(Error::Fatal),
            status if status & csts::RDY == 0 => Err(Error::Stopped),
            _ => Ok(()),
        }
    }
}

struct Admin {
    queue: QueuePair,
    next: u64,
    events: Vec<u32>,
    waiting_events: usize,
}

/// Cookies of asynchronous event requests have this bit.
const EVENT: u64 = 1 << 63;
/// Commands that the admin queue can have out.
const ADMIN_DEPTH: u16 = 16;

/// A handle to a running controller. Clones share it; any thread may use one.
#[derive(Clone)]
pub struct Driver {
    shared: Arc<Shared>,
    admin: Arc<Mutex<Option<Admin>>>,
    config: DriverConfig,
    cap: Cap,
    identify: Arc<IdentifyController>,
    granted: u16,
}

impl Driver {
    /// Brings a controller from any state to ready.
    pub fn start(
        function: Function,
        config: DriverConfig,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<Driver, Error> {
        let cap = Cap(function.registers.word64(registers::CAP).load(Ordering::Acquire));
        if cap.doorbell_stride() != 4 {
            return Err(Error::Unsupported("its doorbells do not have stride 4"));
        }
        if cap.page_size_min() > PAGE_SIZE {
            return Err(Error::Unsupported("its smallest page is larger than 4 KiB"));
        }
        if cap.mqes_z() < 1 {
            return Err(Error::Unsupported("its queues hold less than two entries"));
        }
        let pool = BufferPool::new(&function.memory, config.pool_bytes)?;
        let shared = Arc::new(Shared {
            function,
            pool,
            stops: AtomicU64::new(0),
            unresponsive: AtomicBool::new(false),
            max_transfer: AtomicU64::new(MAX_TRANSFER as u64),
            graveyard: Mutex::new(Vec::new()),
            taken: Mutex::new(Vec::new()),
        });
        let mut driver = Driver {
            shared,
            admin: Arc::new(Mutex::new(None)),
            config,
            cap,
            identify: Arc::new(IdentifyController::default()),
            granted: 0,
        };
        driver.bring_up(clock, peer)?;
        Ok(driver)
    }

    fn bring_up(&mut self, clock: &impl Clock, peer: &mut impl Peer) -> Result<(), Error> {
        self.disable(clock, peer)?;
        let entries = u32::from(2 * ADMIN_DEPTH).min(u32::from(self.cap.mqes_z()) + 1);
        let depth = ADMIN_DEPTH.min((entries - 1) as u16);
        let timeout_ns = self.config.timeout_ms * 1_000_000;
        let queue = QueuePair::lay(0, &self.shared, entries, depth, None, timeout_ns)?;
        let registers = &self.shared.function.registers;
        registers.word32(registers::AQA).store((entries - 1) << 16 | (entries - 1), Ordering::Relaxed);
        registers.word64(registers::ASQ).store(queue.sq_iova(), Ordering::Relaxed);
        registers.word64(registers::ACQ).store(queue.cq_iova(), Ordering::Relaxed);
        self.shared.set_register(registers::CC, Cc::DEFAULTS.0 | Cc::EN);
        self.await_ready(true, clock, peer)?;
        *self.lock() = Some(Admin { queue, next: 0, events: Vec::new(), waiting_events: 0 });

        let bytes = self.identify(cns::CONTROLLER, 0, clock, peer)?;
        self.identify = Arc::new(IdentifyController::from_bytes(&bytes));
        let mdts = match self.identify.mdts() {
            0 => u64::MAX,
            n => (PAGE_SIZE as u64).checked_shl(u32::from(n)).unwrap_or(u64::MAX),
        };
        self.shared.max_transfer.store(mdts.min(MAX_TRANSFER as u64), Ordering::Relaxed);

        let want = self.config.queues.clamp(1, 0xfffe) - 1;
        let number = Command::raw(opcode::admin::SET_FEATURES, 0)
            .with(features::FID, nearside_spec::feature::fid::NUMBER_OF_QUEUES)
            .with(features::NSQR_Z, want)
            .with(features::NCQR_Z, want);
        let (granted, _) = self.admin("set the number of queues", &number, None, clock, peer)?;
        let granted = (granted as u16).min((granted >> 16) as u16).min(want).saturating_add(1);
        // Doorbells beyond the registers that are mapped cannot be rung.
        let mapped = (self.shared.function.registers.len() - registers::DOORBELLS) / 8 - 1;
        self.granted = granted.min(mapped as u16);
        *self.shared.queues() = vec![false; usize::from(self.granted)];
        Ok(())
    }

    fn disable(&self, clock: &impl Clock, peer: &mut impl Peer) -> Result<(), Error> {
        let cc = self.shared.register(registers::CC);
        self.shared.set_register(registers::CC, cc & !Cc::EN);
        self.await_ready(false, clock, peer)
    }

    /// Waits until CSTS.RDY is as wanted, at most CAP.TO.
    fn await_ready(&self, wanted: bool, clock: &impl Clock, peer: &mut impl Peer) -> Result<(), Error> {
        let timeout_ms = self.cap.timeout_ms().max(500);
        let begin = clock.now();
        loop {
            let status = self.shared.register(registers::CSTS);
            if (status & csts::RDY != 0) == wanted && status != u32::MAX {
                return Ok(());
            }
            if wanted && status & csts::CFS != 0 {
                return Err(Error::Fatal);
            }
            let now = clock.now();
            if now.since(begin) >= timeout_ms * 1_000_000 {
                return Err(Error::NotReady {
                    wanted: if wanted { "ready" } else { "disabled" },
                    timeout_ms,
                });
            }
            patience(peer.pump(now));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Admin>> {
        self.admin.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Passes an admin command and waits for its answer: dword 0, and the buffer. `name` is for errors.
    pub fn admin(
        &self,
        name: &'static str,
        command: &Command,
        buffer: Option<DmaBuffer>,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<(u32, Option<DmaBuffer>), Error> {
        self.admin_while(name, command, buffer, clock, peer, |_| ())
    }

    /// As [`Driver::admin`], calling `meanwhile` at every turn.
    fn admin_while(
        &self,
        name: &'static str,
        command: &Command,
        buffer: Option<DmaBuffer>,
        clock: &impl Clock,
        peer: &mut impl Peer,
        mut meanwhile: impl FnMut(Nanos),
    ) -> Result<(u32, Option<DmaBuffer>), Error> {
        let mut guard = self.lock();
        let admin = guard.as_mut().filter(|a| a.queue.is_alive()).ok_or(Error::Stopped)?;
        let cookie = admin.next;
        admin.next = (admin.next + 1) & !EVENT;
        admin.queue.submit(command, buffer, cookie, clock.now()).map_err(|r| match r.reason {
            crate::RejectReason::Dead => Error::Stopped,
            crate::RejectReason::Full => Error::Unsupported("its admin queue is full of event requests"),
            crate::RejectReason::Buffer => Error::Unsupported("the buffer is beyond its largest transfer"),
        })?;
        loop {
            let now = clock.now();
            match admin.turn(now, cookie) {
                Ok(Some(done)) => {
                    return match done.outcome {
                        Ok(result) => Ok((result as u32, done.buffer)),
                        Err(failure) => Err(Error::Command { command: name, failure }),
                    };
                }
                Ok(None) => {}
                Err(Error::TimedOut { timeout_ms, .. }) => {
                    return Err(Error::TimedOut { command: name, timeout_ms });
                }
                Err(e) => return Err(e),
            }
            meanwhile(now);
            patience(peer.pump(now));
        }
    }

    /// Identify (CNS `cns`, namespace `nsid`): the 4,096 bytes.
    pub fn identify(
        &self,
        cns: u8,
        nsid: u32,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<[u8; 4096], Error> {
        let command = Command::of(command::identify_command(cns, nsid));
        let buffer = self.shared.pool.zeroed(4096)?;
        let (_, buffer) = self.admin("identify", &command, Some(buffer), clock, peer)?;
        let mut bytes = [0; 4096];
        if let Some(b) = buffer {
            b.read(0, &mut bytes);
        }
        Ok(bytes)
    }

    /// What Identify said of the controller at the start.
    pub fn controller(&self) -> &IdentifyController {
        &self.identify
    }

    /// The active namespaces' identifiers (at most 1,024).
    pub fn namespaces(&self, clock: &impl Clock, peer: &mut impl Peer) -> Result<Vec<u32>, Error> {
        let bytes = self.identify(cns::ACTIVE_NAMESPACES, 0, clock, peer)?;
        Ok(namespace_list(&bytes))
    }

    /// Size and format of a namespace.
    pub fn namespace(
        &self,
        nsid: u32,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<NamespaceInfo, Error> {
        let bytes = self.identify(cns::NAMESPACE, nsid, clock, peer)?;
        NamespaceInfo::of(nsid, &bytes)
    }

    /// Get Features: dword 0, and the data where a buffer was given (`select`: 0 current, 1 default, 2 saved, 3 capabilities).
    pub fn get_feature(
        &self,
        fid: u8,
        select: u8,
        nsid: u32,
        buffer: Option<DmaBuffer>,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<(u32, Option<DmaBuffer>), Error> {
        let command = Command::raw(opcode::admin::GET_FEATURES, nsid)
            .with(features::FID, fid)
            .with(features::SEL, select);
        self.admin("get features", &command, buffer, clock, peer)
    }

    /// Set Features with CDW11 and, where the feature has some, data.
    pub fn set_feature(
        &self,
        fid: u8,
        value: u32,
        nsid: u32,
        buffer: Option<DmaBuffer>,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<u32, Error> {
        let command = Command::raw(opcode::admin::SET_FEATURES, nsid)
            .with(features::FID, fid)
            .with(features::VALUE, value);
        Ok(self.admin("set features", &command, buffer, clock, peer)?.0)
    }

    /// Get Log Page: `len` bytes (a multiple of four) from byte `offset` of log `lid`.
    pub fn log_page(
        &self,
        lid: u8,
        nsid: u32,
        offset: u64,
        len: usize,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<Vec<u8>, Error> {
        let whole = len.div_ceil(4).max(1) * 4;
        let command = Command::of(command::get_log_page(lid, nsid, offset, whole));
        let buffer = self.shared.pool.zeroed(whole)?;
        let (_, buffer) = self.admin("get log page", &command, Some(buffer), clock, peer)?;
        let mut bytes = buffer.map(|b| b.to_vec()).unwrap_or_default();
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Abort: whether the command was aborted (dword 0 bit 0 clear). Its own completion comes by its queue either way.
    pub fn abort(
        &self,
        queue: u16,
        cid: u16,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<bool, Error> {
        let command = Command::raw(opcode::admin::ABORT, 0).with(abort::SQID, queue).with(abort::CID, cid);
        Ok(self.admin("abort", &command, None, clock, peer)?.0 & 1 == 0)
    }

    /// Leaves one asynchronous event request with the controller.
    pub fn request_event(&self) -> Result<(), Error> {
        let mut guard = self.lock();
        let admin = guard.as_mut().filter(|a| a.queue.is_alive()).ok_or(Error::Stopped)?;
        let limit = usize::from(self.identify.aerl_z()).saturating_add(1).min(admin.queue.depth() / 2);
        if admin.waiting_events >= limit {
            return Err(Error::Unsupported("it takes no more asynchronous event requests"));
        }
        let command = Command::raw(opcode::admin::ASYNC_EVENT_REQUEST, 0);
        admin
            .queue
            // Never: an event request has no time by which it must be answered.
            .submit(&command, None, EVENT, Nanos(u64::MAX))
            .map_err(|_| Error::Unsupported("its admin queue is full"))?;
        admin.waiting_events += 1;
        admin.queue.ring();
        Ok(())
    }

    /// The asynchronous events that came since the last call: dword 0 of each (type, information, log page).
    pub fn take_events(&self, now: Nanos) -> Vec<u32> {
        let mut guard = self.lock();
        let Some(admin) = guard.as_mut() else { return Vec::new() };
        let _ = admin.turn(now, EVENT | 1);
        std::mem::take(&mut admin.events)
    }

    /// Memory for buffers that commands of this driver may carry.
    pub fn pool(&self) -> &BufferPool {
        &self.shared.pool
    }

    /// Most bytes of one command.
    pub fn max_transfer(&self) -> usize {
        self.shared.max_transfer()
    }

    /// I/O queue pairs that the controller grants.
    pub fn queues(&self) -> u16 {
        self.granted
    }

    /// Makes a queue pair: its completion queue, then its submission queue.
    pub fn queue(
        &self,
        config: QueueConfig,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<QueuePair, Error> {
        let most = u32::from(self.cap.mqes_z()) + 1;
        let depth = u32::from(config.depth).clamp(1, most - 1);
        let entries = (2 * depth + 2).next_power_of_two().min(most);
        let id = {
            let mut taken = self.shared.queues();
            let at = taken.iter().position(|t| !t).ok_or(Error::NoQueues(self.granted))?;
            taken[at] = true;
            at as u16 + 1
        };
        // A vector of its own, whose mask nobody else moves; none where the controller has too few.
        let vector = (config.interrupt && usize::from(id) < self.shared.function.vectors.len()).then_some(id);
        let made = self.create(id, entries, depth as u16, vector, clock, peer);
        if made.is_err() {
            self.shared.release_queue(id);
        }
        made
    }

    fn create(
        &self,
        id: u16,
        entries: u32,
        depth: u16,
        vector: Option<u16>,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<QueuePair, Error> {
        let timeout_ns = self.config.timeout_ms * 1_000_000;
        let mut queue = QueuePair::lay(id, &self.shared, entries, depth, vector, timeout_ns)?;
        let create = |opcode| {
            Command::raw(opcode, 0)
                .with(queue::QID, id)
                .with(queue::QSIZE_Z, (entries - 1) as u16)
                .with(queue::PC, true)
        };
        let mut cq = create(opcode::admin::CREATE_CQ);
        if let Some(vector) = vector {
            cq = cq.with(queue::IEN, true).with(queue::IV, vector);
        }
        cq.entry.set_quad(6, queue.cq_iova());
        if let Err(e) = self.admin("create an I/O completion queue", &cq, None, clock, peer) {
            queue.abandon(&e);
            return Err(e);
        }
        let mut sq = create(opcode::admin::CREATE_SQ).with(queue::CQID, id);
        sq.entry.set_quad(6, queue.sq_iova());
        if let Err(e) = self.admin("create an I/O submission queue", &sq, None, clock, peer) {
            let delete = Command::raw(opcode::admin::DELETE_CQ, 0).with(queue::QID, id);
            if self.admin("delete an I/O completion queue", &delete, None, clock, peer).is_ok() {
                queue.abandon(&e);
            }
            return Err(e);
        }
        Ok(queue)
    }

    /// Deletes a queue pair, also under load. Every command that was out comes back through `sink`: completed, aborted by the
    /// controller, or [`Failure::QueueDeleted`].
    pub fn delete(
        &self,
        mut queue: QueuePair,
        clock: &impl Clock,
        peer: &mut impl Peer,
        mut sink: impl FnMut(Completed),
    ) -> Result<(), Error> {
        if !queue.is_alive() {
            queue.poll(clock.now(), sink)?;
            return Ok(());
        }
        let id = queue.id();
        let delete_sq = Command::raw(opcode::admin::DELETE_SQ, 0).with(queue::QID, id);
        // The controller may need room in the completion queue before it can answer.
        self.admin_while("delete an I/O submission queue", &delete_sq, None, clock, peer, |_| {
            while let Some(done) = queue.reap() {
                sink(done);
            }
            queue.settle();
        })?;
        while let Some(done) = queue.reap() {
            sink(done);
        }
        queue.give_up(Failure::QueueDeleted, &mut sink);
        let delete_cq = Command::raw(opcode::admin::DELETE_CQ, 0).with(queue::QID, id);
        self.admin("delete an I/O completion queue", &delete_cq, None, clock, peer)?;
        queue.close();
        Ok(())
    }

    /// Disables the controller. Every queue pair of before is dead after it, and gives its outstanding buffers back at its next
    /// poll. Where the controller does not confirm within CAP.TO, buffers that it may still write to stay away:
    /// [`Failure::Unresponsive`], and an error here.
    pub fn stop(&self, clock: &impl Clock, peer: &mut impl Peer) -> Result<(), Error> {
        self.stop_locked(&mut self.lock(), clock, peer)
    }

    fn stop_locked(
        &self,
        admin: &mut Option<Admin>,
        clock: &impl Clock,
        peer: &mut impl Peer,
    ) -> Result<(), Error> {
        let result = self.disable(clock, peer);
        self.shared.unresponsive.store(result.is_err(), Ordering::Release);
        // Release: whoever sees the count sees which failure it is.
        self.shared.stops.fetch_add(1, Ordering::Release);
        if result.is_ok() {
            self.shared.graveyard.lock().unwrap_or_else(|e| e.into_inner()).clear();
        }
        *admin = None;
        result
    }

    /// Brings the controller up again after [`Driver::stop`]; queue pairs have to be made anew.
    pub fn restart(&mut self, clock: &impl Clock, peer: &mut impl Peer) -> Result<(), Error> {
        self.stop(clock, peer)?;
        self.bring_up(clock, peer)
    }

    /// Stops the controller if nobody has since `queue` was made, so that its commands can be given up; then gives them up.
    pub fn rescue(
        &self,
        queue: &mut QueuePair,
        clock: &impl Clock,
        peer: &mut impl Peer,
        sink: impl FnMut(Completed),
    ) {
        {
            let mut admin = self.lock();
            // Asked under the lock: another thread may have stopped it, and brought it up again, meanwhile.
            if queue.is_alive() {
                let _ = self.stop_locked(&mut admin, clock, peer);
            }
        }
        let _ = queue.poll(clock.now(), sink);
    }

    /// A normal shutdown (CC.SHN): the drive makes everything durable. Waits at most the command timeout.
    pub fn shut_down(&self, clock: &impl Clock, peer: &mut impl Peer) -> Result<(), Error> {
        let cc = Cc(self.shared.register(registers::CC)).with_shn(1);
        self.shared.set_register(registers::CC, cc.0);
        let begin = clock.now();
        while self.shared.register(registers::CSTS) & csts::SHST != csts::SHST_COMPLETE {
            let now = clock.now();
            if now.since(begin) >= self.config.timeout_ms * 1_000_000 {
                return Err(Error::TimedOut { command: "shutdown", timeout_ms: self.config.timeout_ms });
            }
            patience(peer.pump(now));
        }
        Ok(())
    }
}

impl Admin {
    /// One look at the admin queue: keeps events, returns the completion of `cookie`, drops others.
    fn turn(&mut self, now: Nanos, cookie: u64) -> Result<Option<Completed>, Error> {
        let (mut found, events, waiting) = (None, &mut self.events, &mut self.waiting_events);
        self.queue.poll(now, |done| {
            if done.cookie == EVENT {
                *waiting = waiting.saturating_sub(1);
                if let Ok(event) = done.outcome {
                    events.push(event as u32);
                }
            } else if done.cookie == cookie {
                found = Some(done);
            }
        })?;
        Ok(found)
    }
}

/// The identifiers in an active namespace list.
pub(crate) fn namespace_list(bytes: &[u8; 4096]) -> Vec<u32> {
    let ids = bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    ids.take_while(|&id| id != 0).collect()
}

/// Between two looks at something slow: a drive on another thread may need this very core.
fn patience(turn: Turn) {
    match turn {
        Turn::Worked => {}
        Turn::Idle { .. } => std::hint::spin_loop(),
        Turn::Elsewhere => std::thread::yield_now(),
    }
}

/// Whether a failure is the given NVMe status.
pub fn is_status(failure: &Failure, status: Status) -> bool {
    matches!(failure, Failure::Status(s) if s.code() == status.code())
}
