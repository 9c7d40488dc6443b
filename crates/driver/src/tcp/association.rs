//! An association: the admin queue of a dynamic controller, kept alive, and what its I/O queues need to know.
//!
//! [`Association::connect`] walks Base 2.0, 3.5.2: connection, Connect on the admin queue, CAP,
//! enable, CSTS.RDY within CAP.TO, Identify, the number of queues. A thread sends Keep Alive in half
//! the time that the target allows, and knows when it is gone. With the last clone of it the
//! controller is shut down; queues of it are then over.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nearside_auth::Psk;
use nearside_channel::TlsError;
use nearside_clock::Clock;
use nearside_spec::fabrics::command::{
    ANY_CONTROLLER, AUTHENTICATION_REQUIRED, CATTR_NO_FLOW, Connect, ConnectData, FabricsCommand, Property,
    connected,
};
use nearside_spec::fabrics::{ADMIN_IN_CAPSULE, in_capsule, nqn, status};
use nearside_spec::identify::{IdentifyController, cns};
use nearside_spec::registers::{self, Cap, Cc};
use nearside_spec::{Status, opcode};

use super::Initiator;
use super::address::Address;
use super::authentication::authenticate;
use super::host::Options;
use super::identifiers::Identifiers;
use super::queue::{MAX_DEPTH, Queue};
use super::stream::Stream;
use crate::transport::{await_ready, max_transfer};
use crate::{
    Answer, Command, CommandKind, Completed, Controller, Error, Failure, Host, InitiatorConfig, Peer, Policy,
    QueueConfig, Threaded,
};

/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// Most bytes of one command, where the controller sets no limit: what is reserved for one.
const MAX_TRANSFER: usize = 4 << 20;
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// An association with a controller. Clones share it;
/// with the last of them and of the initiators over them it ends.
#[derive(Clone)]
pub struct Association {
    session: Arc<Session>,
    /// Once it is up.
    lifeline: Option<Arc<Lifeline>>,
    identity: Arc<IdentifyController>,
    id: u16,
    cap: Cap,
    max_transfer: usize,
    /// I/O queues that were granted.
    queues: u16,
    /// Theirs.
    identifiers: Arc<Identifiers>,
    address: Arc<Address>,
    options: Arc<Options>,
    /// What encrypts further connections.
    psk: Option<Psk>,
}

/// The admin queue.
struct Session {
    admin: Mutex<Queue>,
    /// Its socket, by which the connection is ended while the queue waits.
    socket: TcpStream,
    clock: Arc<dyn Clock>,
    /// Whether the keep-alive thread is to end.
    over: Mutex<bool>,
    wake: Condvar,
}

/// Keeps a controller alive; dropped, shuts it down.
struct Lifeline {
    session: Arc<Session>,
    thread: Option<JoinHandle<()>>,
}

impl Association {
    /// Connects to a subsystem and brings a controller up.
    ///
    /// # Errors
    /// Nobody answers; the target refuses the host, breaks the protocol, or does not become ready.
    pub fn connect(address: &Address, options: Options, clock: Arc<dyn Clock>) -> Result<Association, Error> {
        let (mut admin, id, socket, psk) = connected_admin(address, &options, &*clock)?;
        let cap = Cap(get_property(&mut admin, registers::CAP, true, &*clock)?);
        let mut host = Host::threaded(clock.clone());
        enable(&mut admin, cap, &mut host)?;
        let session =
            Session { admin: Mutex::new(admin), socket, clock, over: Mutex::default(), wake: Condvar::new() };
        let mut association = Association {
            session: Arc::new(session),
            lifeline: None,
            identity: Arc::new(IdentifyController::default()),
            id,
            cap,
            max_transfer: MAX_TRANSFER,
            queues: 0,
            identifiers: Arc::new(Identifiers::up_to(0)),
            address: Arc::new(address.clone()),
            options: Arc::new(options),
            psk,
        };
        association.bring_up(&mut host)?;
        Ok(association)
    }

    /// Whether the PSK is one that an exchange has generated, by which both ends have proved who they are.
    fn is_proved(&self) -> bool {
        self.options.tls.is_none() && self.psk.is_some()
    }

    fn bring_up(&mut self, host: &mut Host<Arc<dyn Clock>, Threaded>) -> Result<(), Error> {
        let bytes = self.identify(cns::CONTROLLER, 0, host)?;
        self.identity = Arc::new(IdentifyController::from_bytes(&bytes));
        self.max_transfer = max_transfer(&self.identity, self.cap.page_size_min(), MAX_TRANSFER);
        lock(&self.session.admin).set_limits(ADMIN_IN_CAPSULE as usize, self.max_transfer);
        if self.address.subsystem != nqn::DISCOVERY {
            self.queues = self.ask_for_queues(u16::MAX, host)?;
            self.identifiers = Arc::new(Identifiers::up_to(self.queues));
        }
        let thread = match self.options.keep_alive_ms {
            0 => None,
            ms => Some(keep_alive(self.session.clone(), Duration::from_millis(u64::from(ms) / 2))?),
        };
        self.lifeline = Some(Arc::new(Lifeline { session: self.session.clone(), thread }));
        Ok(())
    }

    /// An initiator over a queue of its own for `depth` commands.
    ///
    /// # Errors
    /// As [`Controller::queue`].
    pub fn initiator<C: Clock>(&self, depth: u16, policy: Policy, clock: C) -> Result<Initiator<C>, Error> {
        Initiator::new(
            self,
            InitiatorConfig { queue: QueueConfig::of_depth(depth), policy },
            clock,
            Threaded,
            None,
        )
    }

    /// The target's name.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The controller's identifier.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Ends it without a word, of which a target that does not answer would take none: what waits for the
    /// admin queue waits no longer.
    pub fn abandon(&self) {
        let _ = self.session.socket.shutdown(Shutdown::Both);
    }
}

impl Controller for Association {
    type Queue = Queue;

    fn identity(&self) -> &IdentifyController {
        &self.identity
    }

    fn max_transfer(&self) -> usize {
        self.max_transfer
    }

    fn queues(&self) -> u16 {
        self.queues
    }

    fn default_namespace(&self) -> Option<u32> {
        self.address.nsid
    }

    fn buffer(&self, len: usize) -> Result<Vec<u8>, Error> {
        Ok(vec![0; len])
    }

    fn admin(
        &self,
        name: &'static str,
        command: &Command,
        buffer: Option<Vec<u8>>,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<Answer<Vec<u8>>, Error> {
        lock(&self.session.admin).run(name, command, buffer, &host.clock)
    }

    /// A connection. Its identifier is free again when it is dropped, or could not be made.
    fn queue(&self, config: QueueConfig, host: &mut Host<impl Clock, impl Peer>) -> Result<Queue, Error> {
        let identifier = self.identifiers.take().ok_or(Error::NoQueues(self.queues))?;
        let stream = dial(&self.address, &self.options, self.psk.as_ref(), &host.clock)?;
        let inside = in_capsule(self.identity.ioccsz(), self.identity.icdoff()) as usize;
        // An offset before the data is for other transports.
        let inside = if self.identity.icdoff() == 0 { inside.min(MAX_TRANSFER) } else { 0 };
        let depth = config.depth.clamp(1, MAX_DEPTH);
        let entries = depth.saturating_add(1).min(self.cap.mqes_z().saturating_add(1)).max(2);
        let clock = &host.clock;
        let mut queue = Queue::open(stream, &self.options, entries - 1, inside, self.max_transfer, clock)?;
        // Connect's data go in the capsule whatever the queue's capsules hold.
        queue.set_limits(ADMIN_IN_CAPSULE as usize, self.max_transfer);
        let to = Joining::of(&self.address, self.id, self.is_proved());
        join(&mut queue, identifier.number, entries, &to, &self.options, clock)?;
        queue.keep(identifier);
        queue.set_limits(inside, self.max_transfer);
        Ok(queue)
    }

    fn delete(
        &self,
        mut queue: Queue,
        _host: &mut Host<impl Clock, impl Peer>,
        sink: impl FnMut(Completed<Vec<u8>>),
    ) -> Result<(), Error> {
        queue.give_up(sink);
        Ok(())
    }

    /// The poll that failed has handed everything on.
    fn rescue(
        &self,
        _queue: &mut Queue,
        _host: &mut Host<impl Clock, impl Peer>,
        _sink: impl FnMut(Completed<Vec<u8>>),
    ) {
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        *lock(&self.session.over) = true;
        self.session.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut admin = lock(&self.session.admin);
        admin.set_timeout(FAREWELL);
        let shut_down = Property {
            attrib: 0,
            offset: registers::CC as u32,
            value: Cc(Cc::DEFAULTS.0 | Cc::EN).with_shn(1).0.into(),
        };
        let command = FabricsCommand::PropertySet(shut_down);
        let _ = fabrics(&mut admin, "shutdown", command, None, &*self.session.clock);
    }
}

/// The admin queue, its controller's identifier, its socket, and the PSK by which further queues are
/// encrypted. What an exchange in the clear has generated encrypts a second connection.
fn connected_admin(
    address: &Address,
    options: &Options,
    clock: &dyn Clock,
) -> Result<(Queue, u16, TcpStream, Option<Psk>), Error> {
    let mut psk = options.tls.as_ref().map(|(key, _)| key.psk(&options.host_nqn, &address.subsystem));
    loop {
        let stream = dial(address, options, psk.as_ref(), clock)?;
        let socket = stream.socket().map_err(|source| Error::System { what: "a socket", source })?;
        let data_len = ADMIN_IN_CAPSULE as usize;
        let mut admin = Queue::open(stream, options, ADMIN_ENTRIES - 1, data_len, MAX_TRANSFER, clock)?;
        // Discovery has no keys of its own that could agree on anything.
        let may = address.subsystem != nqn::DISCOVERY;
        let concatenates = may && psk.is_none() && options.concatenates.is_some();
        let is_proved = options.tls.is_none() && psk.is_some();
        let to = Joining { concatenates, ..Joining::of(address, ANY_CONTROLLER, is_proved) };
        let (id, generated) = join(&mut admin, 0, ADMIN_ENTRIES, &to, options, clock)?;
        if !concatenates {
            return Ok((admin, id, socket, psk));
        }
        psk = generated;
        if psk.is_none() {
            return Err(Error::Unsupported("it has no keys by which a secure channel could be made"));
        }
    }
}

/// A connection, encrypted where there is a PSK.
fn dial(address: &Address, options: &Options, psk: Option<&Psk>, clock: &dyn Clock) -> Result<Stream, Error> {
    let addresses = address.resolve()?;
    let timeout = Duration::from_millis(options.connect_ms);
    let mut stream = Stream::connect(&addresses, timeout)
        .map_err(|source| Error::Connection { what: "connecting", source })?;
    let tls = options.tls.as_ref().map(|(_, tls)| tls).or(options.concatenates.as_ref());
    if let Some((tls, psk)) = tls.zip(psk) {
        stream.encrypt(tls, psk.clone(), timeout, clock).map_err(|error| match error {
            TlsError::Io(source) => Error::Connection { what: "the TLS handshake", source },
            // A target that is busy closes it as well.
            TlsError::Closed => Error::Closed,
            refused => Error::Refused { what: "TLS", why: refused.to_string(), again: false },
        })?;
    }
    Ok(stream)
}

fn fabrics(
    queue: &mut Queue,
    what: &'static str,
    command: FabricsCommand,
    buffer: Option<Vec<u8>>,
    clock: &dyn Clock,
) -> Result<u64, Error> {
    let command = Command { entry: command.encode(), kind: CommandKind::Other };
    queue.run(what, &command, buffer, clock).map(|answer| answer.result)
}

/// What a Connect is for.
struct Joining<'a> {
    controller: u16,
    subsystem: &'a str,
    /// A secure channel is to follow.
    concatenates: bool,
    /// Both ends have proved who they are.
    is_proved: bool,
}

impl Joining<'_> {
    fn of(address: &Address, controller: u16, is_proved: bool) -> Joining<'_> {
        Joining { controller, subsystem: &address.subsystem, concatenates: false, is_proved }
    }
}

/// Connect: the queue becomes one of a controller. Its identifier, and the PSK that was generated.
fn join(
    queue: &mut Queue,
    qid: u16,
    entries: u16,
    to: &Joining<'_>,
    options: &Options,
    clock: &dyn Clock,
) -> Result<(u16, Option<Psk>), Error> {
    let Joining { controller, subsystem, concatenates, is_proved } = *to;
    let kato = if qid == 0 { options.keep_alive_ms } else { 0 };
    // No more are out than there are slots, whatever SQHD says; so a read's data may say that it has ended,
    // and no response follows (SUCCESS of C2HData). A target that cannot do that goes on to count.
    let cattr = if qid == 0 { 0 } else { CATTR_NO_FLOW };
    let connect = Connect { recfmt: 0, qid, sqsize_z: entries - 1, cattr, kato };
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
    let answer = answer.map_err(|e| refusal(e, queue.refused, options, subsystem))?;
    let (id, authreq) = connected(answer as u32);
    if authreq & !AUTHENTICATION_REQUIRED != 0 {
        return Err(Error::Unsupported("it wants a secure channel after authentication"));
    }
    let is_wanted = options.keys.as_ref().is_some_and(|keys| keys.controller.is_some());
    // There are no names to prove in discovery, where a target does not ask for it.
    if authreq != 0 || concatenates || (is_wanted && !is_proved && subsystem != nqn::DISCOVERY) {
        return Ok((id, authenticate(queue, options, subsystem, concatenates, clock)?));
    }
    Ok((id, None))
}

/// What a refused Connect means; `dw0` is of its completion.
fn refusal(error: Error, dw0: u32, options: &Options, subsystem: &str) -> Error {
    let Error::Command { failure: Failure::Status(status), .. } = error else { return error };
    let name = status::name(status);
    let host = &options.host_nqn;
    let why = match status.code() {
        status::INVALID_HOST => format!("{name}: it does not allow the host {host}"),
        status::INVALID_PARAMETERS => {
            let field = status::parameter(dw0).unwrap_or("a field");
            format!("{name}: {field}; the subsystem is {subsystem:?}, the host {host:?}")
        }
        _ => format!("{name} ({status:?})"),
    };
    Error::Refused { what: "connect", why, again: status != status.dnr() }
}

fn get_property(queue: &mut Queue, offset: usize, wide: bool, clock: &dyn Clock) -> Result<u64, Error> {
    let property = Property { attrib: wide.into(), offset: offset as u32, value: 0 };
    fabrics(queue, "property get", FabricsCommand::PropertyGet(property), None, clock)
}

fn enable(queue: &mut Queue, cap: Cap, host: &mut Host<Arc<dyn Clock>, Threaded>) -> Result<(), Error> {
    let value = Cc(Cc::DEFAULTS.0 | Cc::EN).0.into();
    let set = Property { attrib: 0, offset: registers::CC as u32, value };
    fabrics(queue, "property set", FabricsCommand::PropertySet(set), None, &host.clock)?;
    await_ready(true, cap, host, |host, again| {
        if again {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(get_property(queue, registers::CSTS, false, &host.clock)? as u32)
    })
}

/// Sends Keep Alive until the controller is dropped, or the target gone.
fn keep_alive(session: Arc<Session>, every: Duration) -> Result<JoinHandle<()>, Error> {
    let run = move || {
        let mut over = lock(&session.over);
        loop {
            let waited = session.wake.wait_timeout_while(over, every, |over| !*over);
            over = waited.unwrap_or_else(PoisonError::into_inner).0;
            if *over {
                return;
            }
            drop(over);
            let command = Command::raw(opcode::admin::KEEP_ALIVE, 0);
            let said = lock(&session.admin).run("keep alive", &command, None, &*session.clock);
            if matches!(said, Err(ref e) if !matches!(e, Error::Command { .. })) {
                return;
            }
            over = lock(&session.over);
        }
    };
    let thread = std::thread::Builder::new().name("nearside-alive".into());
    thread.spawn(run).map_err(|source| Error::System { what: "the keep-alive thread", source })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Association {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tcp::Association({} of {})", self.id, self.address)
    }
}
