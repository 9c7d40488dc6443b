//! An association: the admin queue of a dynamic controller, kept alive, and what its I/O queues need to know.
//!
//! [`Controller::connect`] walks Base 2.0, 3.5.2: connection, Connect on the admin queue, CAP, enable, CSTS.RDY within CAP.TO,
//! Identify, the number of queues. A thread sends Keep Alive in half the time that the target allows, and knows when it is gone.
//! Dropping the controller shuts it down; queues of it are then over.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nearside_clock::Clock;
use nearside_spec::command::{self, features};
use nearside_spec::fabrics::command::{
    ANY_CONTROLLER, Connect, ConnectData, FabricsCommand, Property, connected,
};
use nearside_spec::fabrics::{ADMIN_IN_CAPSULE, in_capsule, nqn, status};
use nearside_spec::feature::fid;
use nearside_spec::identify::{IdentifyController, cns};
use nearside_spec::registers::{self, Cap, Cc, csts};
use nearside_spec::{Status, opcode};

use super::address::Address;
use super::host::Options;
use super::identifiers::Identifiers;
use super::queue::{MAX_DEPTH, Queue};
use super::slot::Completed;
use super::stream::Stream;
use crate::controller::namespace_list;
use crate::{Command, Error, Failure, Kind, NamespaceInfo};

/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// Most bytes of one command, where the controller sets no limit: what is reserved for one.
const MAX_TRANSFER: usize = 4 << 20;
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// See the module.
pub struct Controller {
    inner: Arc<Inner>,
    alive: Option<JoinHandle<()>>,
    identify: Box<IdentifyController>,
    id: u16,
    cap: Cap,
    max_transfer: usize,
    /// I/O queues that were granted.
    queues: u16,
    /// Theirs.
    identifiers: Identifiers,
    address: Address,
    options: Options,
}

struct Inner {
    admin: Mutex<Queue>,
    clock: Arc<dyn Clock>,
    /// Whether the keep-alive thread is to end.
    over: Mutex<bool>,
    wake: Condvar,
}

impl Controller {
    /// Connects to a subsystem and brings a controller up.
    pub fn connect(address: &Address, options: Options, clock: Arc<dyn Clock>) -> Result<Controller, Error> {
        let stream = dial(address, &options)?;
        let data_len = ADMIN_IN_CAPSULE as usize;
        let mut admin = Queue::open(stream, &options, ADMIN_ENTRIES - 1, data_len, MAX_TRANSFER, &*clock)?;
        let id = join(&mut admin, 0, ADMIN_ENTRIES, ANY_CONTROLLER, &options, &address.subsystem, &*clock)?;
        let cap = Cap(get_property(&mut admin, registers::CAP, true, &*clock)?);
        enable(&mut admin, cap, &*clock)?;
        let identify = IdentifyController::from_bytes(&identify(&mut admin, cns::CONTROLLER, 0, &*clock)?);
        let max_transfer = match identify.mdts() {
            0 => MAX_TRANSFER,
            shift => cap.page_size_min().checked_shl(shift.into()).unwrap_or(MAX_TRANSFER).min(MAX_TRANSFER),
        };
        admin.set_limits(data_len, max_transfer);
        let discovery = address.subsystem == nqn::DISCOVERY;
        let queues = if discovery { 0 } else { ask_for_queues(&mut admin, &*clock)? };
        let inner =
            Arc::new(Inner { admin: Mutex::new(admin), clock, over: Mutex::default(), wake: Condvar::new() });
        let alive = match options.keep_alive_ms {
            0 => None,
            ms => Some(keep_alive(inner.clone(), Duration::from_millis(u64::from(ms) / 2))?),
        };
        Ok(Controller {
            inner,
            alive,
            identify: Box::new(identify),
            id,
            cap,
            max_transfer,
            queues,
            identifiers: Identifiers::up_to(queues),
            address: address.clone(),
            options,
        })
    }

    /// What Identify said of it.
    pub fn identify(&self) -> &IdentifyController {
        &self.identify
    }

    /// The target's name.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The controller's identifier.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Bytes of the largest transfer.
    pub fn max_transfer(&self) -> usize {
        self.max_transfer
    }

    /// I/O queues that it granted.
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// Passes an admin command and sleeps until it has ended.
    pub fn admin(
        &self,
        what: &'static str,
        command: &Command,
        buffer: Option<Vec<u8>>,
    ) -> Result<Completed, Error> {
        lock(&self.inner.admin).run(what, command, buffer, &*self.inner.clock)
    }

    /// The active namespaces' identifiers (at most 1,024).
    pub fn namespaces(&self) -> Result<Vec<u32>, Error> {
        let mut admin = lock(&self.inner.admin);
        Ok(namespace_list(&identify(&mut admin, cns::ACTIVE_NAMESPACES, 0, &*self.inner.clock)?))
    }

    /// Size and format of a namespace; without an identifier, of the address's, or of the first.
    pub fn namespace(&self, nsid: Option<u32>) -> Result<NamespaceInfo, Error> {
        let nsid = match nsid.or(self.address.nsid) {
            Some(nsid) => nsid,
            None => {
                let first = self.namespaces()?.first().copied();
                first.ok_or(Error::Unsupported("it has no namespace for this host"))?
            }
        };
        let mut admin = lock(&self.inner.admin);
        match identify(&mut admin, cns::NAMESPACE, nsid, &*self.inner.clock) {
            Ok(bytes) => NamespaceInfo::of(nsid, &bytes),
            Err(Error::Command { failure: Failure::Status(s), .. })
                if s.code() == Status::INVALID_NAMESPACE =>
            {
                Err(Error::Namespace { nsid, why: "there is no such namespace" })
            }
            Err(e) => Err(e),
        }
    }

    /// Get Log Page: up to `len` bytes (a multiple of four) from byte `offset` of log `lid`.
    pub fn log_page(&self, lid: u8, nsid: u32, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let command = Command::of(command::get_log_page(lid, nsid, offset, len));
        let done = self.admin("get log page", &command, Some(vec![0; len]))?;
        let mut bytes = done.buffer.unwrap_or_default();
        bytes.truncate(done.moved);
        Ok(bytes)
    }

    /// Makes an I/O queue: a connection for `depth` commands. Its identifier is free again when it is dropped, or could not be made.
    pub fn queue(&self, depth: u16) -> Result<Queue, Error> {
        let identifier = self.identifiers.take().ok_or(Error::NoQueues(self.queues))?;
        let clock = &*self.inner.clock;
        let stream = dial(&self.address, &self.options)?;
        let inside = in_capsule(self.identify.ioccsz(), self.identify.icdoff()) as usize;
        // An offset before the data is for other transports.
        let inside = if self.identify.icdoff() == 0 { inside.min(MAX_TRANSFER) } else { 0 };
        let entries =
            depth.clamp(1, MAX_DEPTH).saturating_add(1).min(self.cap.mqes_z().saturating_add(1)).max(2);
        let mut queue = Queue::open(stream, &self.options, entries - 1, inside, self.max_transfer, clock)?;
        // Connect's data go in the capsule whatever the queue's capsules hold.
        queue.set_limits(ADMIN_IN_CAPSULE as usize, self.max_transfer);
        let subsystem = &self.address.subsystem;
        join(&mut queue, identifier.number, entries, self.id, &self.options, subsystem, clock)?;
        queue.keep(identifier);
        queue.set_limits(inside, self.max_transfer);
        Ok(queue)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        *lock(&self.inner.over) = true;
        self.inner.wake.notify_all();
        if let Some(thread) = self.alive.take() {
            let _ = thread.join();
        }
        let mut admin = lock(&self.inner.admin);
        admin.set_timeout(FAREWELL);
        let shut_down = Property {
            attrib: 0,
            offset: registers::CC as u32,
            value: Cc(Cc::DEFAULTS.0 | Cc::EN).with_shn(1).0.into(),
        };
        let _ =
            fabrics(&mut admin, "shutdown", FabricsCommand::PropertySet(shut_down), None, &*self.inner.clock);
    }
}

fn dial(address: &Address, options: &Options) -> Result<Stream, Error> {
    let addresses = address.resolve()?;
    Stream::connect(&addresses, Duration::from_millis(options.connect_ms))
        .map_err(|source| Error::System { what: "connecting", source })
}

fn fabrics(
    queue: &mut Queue,
    what: &'static str,
    command: FabricsCommand,
    buffer: Option<Vec<u8>>,
    clock: &dyn Clock,
) -> Result<u64, Error> {
    let command = Command { entry: command.encode(), kind: Kind::Other };
    queue.run(what, &command, buffer, clock).map(|done| done.outcome.unwrap_or_default())
}

/// Connect: the queue becomes one of a controller. Its identifier.
fn join(
    queue: &mut Queue,
    qid: u16,
    entries: u16,
    controller: u16,
    options: &Options,
    subsystem: &str,
    clock: &dyn Clock,
) -> Result<u16, Error> {
    let kato = if qid == 0 { options.keep_alive_ms } else { 0 };
    let connect = Connect { recfmt: 0, qid, sqsize_z: entries - 1, cattr: 0, kato };
    let data = ConnectData::new(options.host_id, &options.host_nqn, subsystem, controller);
    let give_up = clock.now() + options.connect_ms.saturating_mul(1_000_000);
    let answer = loop {
        let answer =
            fabrics(queue, "connect", FabricsCommand::Connect(connect), Some(data.0.to_vec()), clock);
        match answer {
            // The last queue of this identifier is not over for the target yet.
            Err(Error::Command { failure: Failure::Status(status), .. })
                if qid > 0
                    && status.code() == Status::COMMAND_SEQUENCE_ERROR
                    && status != status.dnr()
                    && clock.now() < give_up =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer => break answer,
        }
    };
    match answer.map_err(|e| refusal(e, options, subsystem))? {
        dw if connected(dw as u32).1 => Err(Error::Unsupported("it wants the host to authenticate itself")),
        dw => Ok(connected(dw as u32).0),
    }
}

/// What a refused Connect means.
fn refusal(error: Error, options: &Options, subsystem: &str) -> Error {
    let Error::Command { failure: Failure::Status(status), .. } = error else { return error };
    let name = status::name(status);
    let host = &options.host_nqn;
    let why = match status.code() {
        status::INVALID_HOST => format!("{name}: it does not allow the host {host}"),
        status::INVALID_PARAMETERS => format!("{name}: no subsystem {subsystem} for the host {host}?"),
        _ => format!("{name} ({status:?})"),
    };
    Error::Refused { what: "connect", why }
}

fn get_property(queue: &mut Queue, offset: usize, wide: bool, clock: &dyn Clock) -> Result<u64, Error> {
    let property = Property { attrib: wide.into(), offset: offset as u32, value: 0 };
    fabrics(queue, "property get", FabricsCommand::PropertyGet(property), None, clock)
}

fn enable(queue: &mut Queue, cap: Cap, clock: &dyn Clock) -> Result<(), Error> {
    let value = Cc(Cc::DEFAULTS.0 | Cc::EN).0.into();
    let set = Property { attrib: 0, offset: registers::CC as u32, value };
    fabrics(queue, "property set", FabricsCommand::PropertySet(set), None, clock)?;
    let timeout_ms = cap.timeout_ms().max(500);
    let deadline = clock.now() + timeout_ms * 1_000_000;
    loop {
        let status = get_property(queue, registers::CSTS, false, clock)? as u32;
        if status & csts::CFS != 0 {
            return Err(Error::Fatal);
        }
        if status & csts::RDY != 0 {
            return Ok(());
        }
        if clock.now() >= deadline {
            return Err(Error::NotReady { wanted: "ready", timeout_ms });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn identify(queue: &mut Queue, cns: u8, nsid: u32, clock: &dyn Clock) -> Result<[u8; 4096], Error> {
    let command = Command::of(command::identify_command(cns, nsid));
    let done = queue.run("identify", &command, Some(vec![0; 4096]), clock)?;
    let bytes = done.buffer.as_deref().and_then(|b| b.first_chunk()).copied();
    bytes
        .filter(|_| done.moved == 4096)
        .ok_or(Error::Command { command: "identify", failure: Failure::Short })
}

/// As many as it gives.
fn ask_for_queues(queue: &mut Queue, clock: &dyn Clock) -> Result<u16, Error> {
    let wanted = 0xfffe;
    let command = Command::raw(opcode::admin::SET_FEATURES, 0)
        .with(features::FID, fid::NUMBER_OF_QUEUES)
        .with(features::NSQR_Z, wanted)
        .with(features::NCQR_Z, wanted);
    let done = queue.run("number of queues", &command, None, clock)?;
    let granted = done.outcome.unwrap_or_default() as u32;
    Ok(((granted as u16).min((granted >> 16) as u16)).saturating_add(1))
}

/// Sends Keep Alive until the controller is dropped, or the target gone.
fn keep_alive(inner: Arc<Inner>, every: Duration) -> Result<JoinHandle<()>, Error> {
    let run = move || {
        let mut over = lock(&inner.over);
        loop {
            let waited = inner.wake.wait_timeout_while(over, every, |over| !*over);
            over = waited.unwrap_or_else(PoisonError::into_inner).0;
            if *over {
                return;
            }
            drop(over);
            let command = Command::raw(opcode::admin::KEEP_ALIVE, 0);
            let said = lock(&inner.admin).run("keep alive", &command, None, &*inner.clock);
            if matches!(said, Err(ref e) if !matches!(e, Error::Command { .. })) {
                return;
            }
            over = lock(&inner.over);
        }
    };
    let thread = std::thread::Builder::new().name("nearside-alive".into());
    thread.spawn(run).map_err(|source| Error::System { what: "the keep-alive thread", source })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tcp::Controller({} of {})", self.id, self.address)
    }
}
