//! A controller: from reset to ready, its admin queue, and its end.
//!
//! [`Driver::start`] walks the initialisation of Base 2.0, 3.5.1: disable, set the admin queue, enable, wait
//! for CSTS.RDY within CAP.TO, identify, ask for queues. Then [`Driver::queue`] makes queue pairs and
//! [`Driver::admin`] passes admin commands. Where something fails for good, [`Driver::stop`] disables the
//! controller: after it every queue pair gives its outstanding buffers back. All waits are bounded by the
//! caller's clock; while waiting, the caller's peer is pumped.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_clock::{Clock, Nanos};
use nearside_dma::{Function, PAGE_SIZE};
use nearside_spec::command::queue;
use nearside_spec::identify::{IdentifyController, cns};
use nearside_spec::registers::{self, Cap, Cc, csts};
use nearside_spec::{Status, opcode};

use crate::doorbells::{Doorbells, Port, SHADOW_BYTES};
use crate::queue::MAX_TRANSFER;
use crate::transport::{Answer, answered, await_ready, max_transfer, not_taken};
use crate::vfio_user::Device;
use crate::{
    BufferPool, Command, Completed, Controller, DmaBuffer, Error, Failure, Host, Peer, QueuePair, Transport,
    Turn,
};

/// What a driver needs to know at its start.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// Bytes of shared memory for queues and buffers; they take room once touched.
    pub pool_bytes: usize,
    /// I/O queue pairs to ask for.
    pub queues: u16,
    /// How long a command may take before the controller counts as failed.
    pub timeout_ms: u64,
    /// A controller in another process is given no descriptor of the memory: it has to ask for all of it by
    /// messages, as of a virtual machine whose memory is not shared.
    pub by_messages: bool,
}

impl Default for DriverConfig {
    fn default() -> Self {
        DriverConfig { pool_bytes: 64 << 20, queues: 16, timeout_ms: 30_000, by_messages: false }
    }
}

/// What a queue pair should be like.
#[derive(Clone, Copy, Debug)]
pub struct QueueConfig {
    /// Commands that can be out at a time (1 to what the controller's queues hold).
    pub depth: u16,
    /// Whether its completion queue gets an interrupt:
    /// the vector of its own number, where the controller has that many.
    pub interrupt: bool,
}

impl QueueConfig {
    /// Of so many commands.
    pub fn of_depth(depth: u16) -> Self {
        QueueConfig { depth, ..QueueConfig::default() }
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig { depth: 128, interrupt: true }
    }
}

/// What all parts of one driver share.
pub(crate) struct ControllerShared {
    pub(crate) port: Port,
    pub(crate) pool: BufferPool,
    /// Where the doorbells of I/O queues are kept, and the controller's event indexes.
    shadow: Mutex<Option<DmaBuffer>>,
    /// How often the controller was stopped, or was lost: a queue pair of an earlier count is dead.
    stops: Arc<AtomicU64>,
    /// Whether the last stop was not confirmed: the controller may still write.
    unresponsive: AtomicBool,
    /// Bytes: the least of MDTS and what one list describes.
    max_transfer: AtomicU64,
    /// Buffers that a drive may still write to, until it is stopped.
    quarantine: Mutex<Vec<DmaBuffer>>,
    /// Which I/O queue identifiers are taken, from 1 on.
    taken: Mutex<Vec<bool>>,
}

impl ControllerShared {
    #[inline]
    pub(crate) fn stops(&self) -> u64 {
        self.stops.load(Ordering::Acquire)
    }

    pub(crate) fn failure(&self) -> Failure {
        if let Some(failure) = self.port.failure() {
            return failure;
        }
        if self.unresponsive.load(Ordering::Acquire) { Failure::Unresponsive } else { Failure::Reset }
    }

    pub(crate) fn max_transfer(&self) -> usize {
        self.max_transfer.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn quarantine(&self, buffer: Option<DmaBuffer>) {
        self.quarantine.lock().unwrap_or_else(|e| e.into_inner()).extend(buffer);
    }

    pub(crate) fn release_queue(&self, id: u16) {
        if let Some(taken) = self.queues().get_mut(usize::from(id) - 1) {
            *taken = false;
        }
    }

    fn queues(&self) -> MutexGuard<'_, Vec<bool>> {
        self.taken.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn shadow(&self) -> MutexGuard<'_, Option<DmaBuffer>> {
        self.shadow.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The doorbells of a queue that is about to be made.
    pub(crate) fn doorbells(&self, id: u16) -> Doorbells {
        self.port.doorbells(id, self.shadow().as_ref())
    }

    /// Whether the controller is in the state that a command needs.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.port.check()?;
        match self.port.register(registers::CSTS) {
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
/// OACS: Doorbell Buffer Config.
const DOORBELL_BUFFERS: u16 = 1 << 8;
/// Commands that the admin queue can have out.
const ADMIN_DEPTH: u16 = 16;

/// A handle to a running controller. Clones share it; any thread may use one.
#[derive(Clone)]
pub struct Driver {
    shared: Arc<ControllerShared>,
    admin: Arc<Mutex<Option<Admin>>>,
    config: DriverConfig,
    cap: Cap,
    identify: Arc<IdentifyController>,
    granted: u16,
}

impl Driver {
    /// Brings a controller from any state to ready.
    ///
    /// # Errors
    /// [`Error`]: what could not be had, or did not come up.
    pub fn start(
        function: Function,
        config: DriverConfig,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<Driver, Error> {
        Driver::over(Port::Local(function), Arc::default(), config, host)
    }

    /// Connects to the vfio-user server of this socket, which shows an NVMe function in another process, and
    /// brings its controller up. The process reaches the driver's buffers from then on. Where it goes, or the
    /// connection, commands that are out end as [`Failure::Lost`], and there is no way back: connect anew.
    ///
    /// # Errors
    /// [`Error`]: nobody answers, or not as the protocol has it; it is no NVMe controller; what could not be
    /// had, or did not come up.
    pub fn connect<C: Clock + Clone + 'static>(
        path: &Path,
        config: DriverConfig,
        clock: C,
    ) -> Result<Driver, Error> {
        let (stops, shared) = (Arc::default(), Arc::new(clock.clone()));
        let device = Device::connect(path, config.queues, config.timeout_ms, shared, Arc::clone(&stops))?;
        Driver::over(Port::Remote(Arc::new(device)), stops, config, &mut Host::threaded(clock))
    }

    fn over(
        port: Port,
        stops: Arc<AtomicU64>,
        config: DriverConfig,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<Driver, Error> {
        let cap = Cap(port.wide_register(registers::CAP));
        port.check()?;
        if cap.doorbell_stride() != 4 {
            return Err(Error::Unsupported("its doorbells do not have stride 4"));
        }
        if cap.page_size_min() > PAGE_SIZE {
            return Err(Error::Unsupported("its smallest page is larger than 4 KiB"));
        }
        if cap.mqes_z() < 1 {
            return Err(Error::Unsupported("its queues hold less than two entries"));
        }
        let pool = BufferPool::new(port.memory(), config.pool_bytes)?;
        let (region, iova) = pool.region();
        port.share(region, iova, config.by_messages)?;
        let shared = Arc::new(ControllerShared {
            port,
            pool,
            shadow: Mutex::default(),
            stops,
            unresponsive: AtomicBool::new(false),
            max_transfer: AtomicU64::new(MAX_TRANSFER as u64),
            quarantine: Mutex::new(Vec::new()),
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
        driver.bring_up(host)?;
        Ok(driver)
    }

    fn bring_up(&mut self, host: &mut Host<impl Clock, impl Peer>) -> Result<(), Error> {
        self.disable(host)?;
        let entries = u32::from(2 * ADMIN_DEPTH).min(u32::from(self.cap.mqes_z()) + 1);
        let depth = ADMIN_DEPTH.min((entries - 1) as u16);
        let timeout_ns = self.config.timeout_ms * 1_000_000;
        let queue = QueuePair::allocate(0, &self.shared, entries, depth, None, timeout_ns)?;
        let port = &self.shared.port;
        port.set_register(registers::AQA, (entries - 1) << 16 | (entries - 1));
        port.set_wide_register(registers::ASQ, queue.sq_iova());
        port.set_wide_register(registers::ACQ, queue.cq_iova());
        port.set_register(registers::CC, Cc::DEFAULTS.0 | Cc::EN);
        self.await_ready(true, host)?;
        *self.lock() = Some(Admin { queue, next: 0, events: Vec::new(), waiting_events: 0 });

        let bytes = self.identify(cns::CONTROLLER, 0, host)?;
        self.identify = Arc::new(IdentifyController::from_bytes(&bytes));
        let max_transfer = max_transfer(&self.identify, PAGE_SIZE, MAX_TRANSFER);
        self.shared.max_transfer.store(max_transfer as u64, Ordering::Relaxed);
        let granted = self.ask_for_queues(self.config.queues, host)?;
        // Doorbells beyond the registers that are there cannot be rung.
        self.granted = granted.min(self.shared.port.queue_pairs());
        *self.shared.queues() = vec![false; usize::from(self.granted)];
        if self.shared.port.wants_shadow() && self.identify.oacs() & DOORBELL_BUFFERS != 0 {
            self.keep_doorbells(host)?;
        }
        Ok(())
    }

    /// Doorbell Buffer Config: the doorbells of I/O queues lie in memory from now on.
    fn keep_doorbells(&self, host: &mut Host<impl Clock, impl Peer>) -> Result<(), Error> {
        // After a restart, the same: what a queue of before may still write there meets nobody else's memory.
        let mut pages = match self.shared.shadow().take() {
            Some(pages) => pages,
            None => self.shared.pool.take(SHADOW_BYTES)?,
        };
        pages.fill(0);
        let mut command = Command::raw(opcode::admin::DOORBELL_BUFFER_CONFIG, 0);
        command.entry.set_quad(6, pages.iova());
        command.entry.set_quad(8, pages.iova() + PAGE_SIZE as u64);
        match self.admin("keep doorbells in memory", &command, None, host) {
            Ok(_) => *self.shared.shadow() = Some(pages),
            Err(e) => {
                self.shared.quarantine(Some(pages));
                // Where it is refused, they stay where they are.
                if !matches!(e, Error::Command { failure: Failure::Status(_), .. }) {
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn disable(&self, host: &mut Host<impl Clock, impl Peer>) -> Result<(), Error> {
        let cc = self.shared.port.register(registers::CC);
        self.shared.port.check()?;
        self.shared.port.set_register(registers::CC, cc & !Cc::EN);
        self.await_ready(false, host)
    }

    fn await_ready(&self, wanted: bool, host: &mut Host<impl Clock, impl Peer>) -> Result<(), Error> {
        await_ready(wanted, self.cap, host, |host, again| {
            if again {
                patience(host.peer.pump(host.clock.now()));
            }
            let status = self.shared.port.register(registers::CSTS);
            self.shared.port.check().map(|()| status)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Admin>> {
        self.admin.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Passes an admin command and waits for its end, calling `meanwhile` at every turn.
    fn admin_while(
        &self,
        name: &'static str,
        command: &Command,
        buffer: Option<DmaBuffer>,
        host: &mut Host<impl Clock, impl Peer>,
        mut meanwhile: impl FnMut(),
    ) -> Result<Answer<DmaBuffer>, Error> {
        let mut guard = self.lock();
        let admin = guard.as_mut().filter(|a| a.queue.is_alive()).ok_or(Error::Stopped)?;
        let cookie = admin.next;
        admin.next = (admin.next + 1) & !EVENT;
        admin.queue.submit(command, buffer, cookie, host.clock.now()).map_err(|r| not_taken(&r))?;
        loop {
            let now = host.clock.now();
            match admin.turn(now, cookie) {
                Ok(Some(done)) => return answered(name, done),
                Ok(None) => {}
                Err(Error::TimedOut { timeout_ms, .. }) => {
                    return Err(Error::TimedOut { command: name, timeout_ms });
                }
                Err(e) => return Err(e),
            }
            meanwhile();
            patience(host.peer.pump(now));
        }
    }

    /// The socket of the process that the controller is in, where that is another.
    pub fn socket(&self) -> Option<&Path> {
        self.shared.port.socket()
    }

    /// Messages that were sent to the controller's process so far: none goes with a command while it looks
    /// for commands itself.
    pub fn messages(&self) -> u64 {
        self.shared.port.messages()
    }

    /// Leaves one asynchronous event request with the controller.
    ///
    /// # Errors
    /// [`Error`]: the admin queue is full, or the controller is down.
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

    fn create(
        &self,
        id: u16,
        entries: u32,
        depth: u16,
        vector: Option<u16>,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<QueuePair, Error> {
        let timeout_ns = self.config.timeout_ms * 1_000_000;
        let mut queue = QueuePair::allocate(id, &self.shared, entries, depth, vector, timeout_ns)?;
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
        if let Err(e) = self.admin("create an I/O completion queue", &cq, None, host) {
            queue.abandon(&e);
            return Err(e);
        }
        let mut sq = create(opcode::admin::CREATE_SQ).with(queue::CQID, id);
        sq.entry.set_quad(6, queue.sq_iova());
        if let Err(e) = self.admin("create an I/O submission queue", &sq, None, host) {
            let delete = Command::raw(opcode::admin::DELETE_CQ, 0).with(queue::QID, id);
            if self.admin("delete an I/O completion queue", &delete, None, host).is_ok() {
                queue.abandon(&e);
            }
            return Err(e);
        }
        Ok(queue)
    }

    /// Disables the controller. Every queue pair of before is dead after it, and gives its outstanding
    /// buffers back at its next poll. Where the controller does not confirm within CAP.TO, buffers that it
    /// may still write to stay away: [`Failure::Unresponsive`], and an error here.
    ///
    /// # Errors
    /// [`Error`]: the controller does not confirm within CAP.TO.
    pub fn stop(&self, host: &mut Host<impl Clock, impl Peer>) -> Result<(), Error> {
        self.stop_locked(&mut self.lock(), host)
    }

    fn stop_locked(
        &self,
        admin: &mut Option<Admin>,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<(), Error> {
        let result = self.disable(host);
        self.shared.unresponsive.store(result.is_err(), Ordering::Release);
        // Release: whoever sees the count sees which failure it is.
        self.shared.stops.fetch_add(1, Ordering::Release);
        if result.is_ok() {
            self.shared.quarantine.lock().unwrap_or_else(|e| e.into_inner()).clear();
        }
        *admin = None;
        result
    }

    /// Brings the controller up again after [`Driver::stop`]; queue pairs have to be made anew.
    ///
    /// # Errors
    /// [`Error`]: the controller does not come up.
    pub fn restart(&mut self, host: &mut Host<impl Clock, impl Peer>) -> Result<(), Error> {
        self.stop(host)?;
        self.bring_up(host)
    }

    /// A normal shutdown (CC.SHN): the drive makes everything durable. Waits at most the command timeout.
    ///
    /// # Errors
    /// [`Error`]: the controller does not confirm in time.
    pub fn shut_down(&self, host: &mut Host<impl Clock, impl Peer>) -> Result<(), Error> {
        let port = &self.shared.port;
        port.set_register(registers::CC, Cc(port.register(registers::CC)).with_shn(1).0);
        let begin = host.clock.now();
        while port.register(registers::CSTS) & csts::SHST != csts::SHST_COMPLETE {
            port.check()?;
            let now = host.clock.now();
            if now.since(begin) >= self.config.timeout_ms * 1_000_000 {
                return Err(Error::TimedOut { command: "shutdown", timeout_ms: self.config.timeout_ms });
            }
            patience(host.peer.pump(now));
        }
        Ok(())
    }
}

impl Controller for Driver {
    type Queue = QueuePair;

    fn identity(&self) -> &IdentifyController {
        &self.identify
    }

    fn max_transfer(&self) -> usize {
        self.shared.max_transfer()
    }

    fn queues(&self) -> u16 {
        self.granted
    }

    fn buffer(&self, len: usize) -> Result<DmaBuffer, Error> {
        self.shared.pool.take(len)
    }

    fn admin(
        &self,
        name: &'static str,
        command: &Command,
        buffer: Option<DmaBuffer>,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<Answer<DmaBuffer>, Error> {
        self.admin_while(name, command, buffer, host, || ())
    }

    /// Makes a queue pair: its completion queue, then its submission queue.
    fn queue(&self, config: QueueConfig, host: &mut Host<impl Clock, impl Peer>) -> Result<QueuePair, Error> {
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
        let vector = (config.interrupt && usize::from(id) < self.shared.port.vectors().len()).then_some(id);
        let made = self.create(id, entries, depth as u16, vector, host);
        if made.is_err() {
            self.shared.release_queue(id);
        }
        made
    }

    /// Commands that were out come back completed, aborted by the controller,
    /// or as [`Failure::QueueDeleted`].
    fn delete(
        &self,
        mut queue: QueuePair,
        host: &mut Host<impl Clock, impl Peer>,
        mut sink: impl FnMut(Completed<DmaBuffer>),
    ) -> Result<(), Error> {
        if !queue.is_alive() {
            queue.poll(host.clock.now(), sink)?;
            return Ok(());
        }
        let id = queue.id();
        let delete_sq = Command::raw(opcode::admin::DELETE_SQ, 0).with(queue::QID, id);
        // The controller may need room in the completion queue before it can answer.
        self.admin_while("delete an I/O submission queue", &delete_sq, None, host, || {
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
        self.admin("delete an I/O completion queue", &delete_cq, None, host)?;
        queue.close();
        Ok(())
    }

    // Stops the controller if nobody has since `queue` was made, so that its commands can be given up;
    // then gives them up.
    fn rescue(
        &self,
        queue: &mut QueuePair,
        host: &mut Host<impl Clock, impl Peer>,
        sink: impl FnMut(Completed<DmaBuffer>),
    ) {
        {
            let mut admin = self.lock();
            // Asked under the lock: another thread may have stopped it, and brought it up again, meanwhile.
            if queue.is_alive() {
                let _ = self.stop_locked(&mut admin, host);
            }
        }
        let _ = queue.poll(host.clock.now(), sink);
    }
}

impl Admin {
    /// One look at the admin queue: keeps events, returns the completion of `cookie`, drops others.
    fn turn(&mut self, now: Nanos, cookie: u64) -> Result<Option<Completed<DmaBuffer>>, Error> {
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
