//! Fabrics commands (Base 2.0, chapter 6): Connect, Property Get and Set.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use nearside_clock::Nanos;
use nearside_device::{Controller, Firmware, Reactor, Subsystem};
use nearside_dma::Region;
use nearside_spec::Status;
use nearside_spec::fabrics::command::{ANY_CONTROLLER, CATTR_NO_FLOW, Connect, ConnectData, Property, at};
use nearside_spec::fabrics::nqn::NqnError;
use nearside_spec::fabrics::{nqn, status};
use nearside_spec::registers as reg;
use nearside_store::Store;
use tracing::Level;

use crate::association::{Association, LocalController};
use crate::hosts::Ticket;
use crate::pool::{Pool, pool_iova};
use crate::queue::{MAX_ENTRIES, QUEUE_BYTES, QUEUES_IOVA, Queue};
use crate::target::{Target, publish};

/// Why a Connect is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the connection is not where a Connect comes")]
    Sequence,
    #[error("its format is unknown")]
    Format,
    #[error("its data have another length")]
    DataLength,
    #[error("{} is not valid", field_name(*offset, *in_data))]
    Field { offset: u16, in_data: bool },
    #[error("{} is {given:?}: {why}", field_name(*offset, true))]
    Name { offset: u16, given: String, why: NqnError },
    #[error("there is no subsystem {0:?}")]
    NotOffered(String),
    #[error("the subsystem is not offered to this host")]
    HostNotAllowed,
    #[error("the host has a TLS key, or its controller is encrypted, and this connection is not")]
    NotEncrypted,
    #[error("its TLS key is of the host {0:?} and the subsystem {1:?}")]
    OtherKey(String, String),
    #[error("the host has as many connections as it may have")]
    TooManyConnections,
    #[error("there are as many controllers as there may be")]
    TooManyControllers,
    #[error("a discovery controller has no I/O queues")]
    NoQueues,
    #[error("its controller is not enabled")]
    NotEnabled,
    #[error("no controller could be made: {0}")]
    NotMade(#[from] io::Error),
}

impl Refusal {
    /// The host's status and DW0, and the level of the operator's log.
    pub(crate) fn told(&self) -> (Status, u32, Level) {
        let invalid = |offset, in_data| {
            let field = status::invalid_parameter(offset, in_data);
            (status::INVALID_PARAMETERS.dnr(), field, Level::WARN)
        };
        match *self {
            Refusal::Sequence => (Status::COMMAND_SEQUENCE_ERROR.dnr(), 0, Level::INFO),
            Refusal::Format => (status::INCOMPATIBLE_FORMAT.dnr(), 0, Level::INFO),
            Refusal::DataLength => (Status::INVALID_SGL_LENGTH.dnr(), 0, Level::INFO),
            Refusal::Field { offset, in_data } => invalid(offset, in_data),
            Refusal::Name { offset, .. } => invalid(offset, true),
            Refusal::NotOffered(_) => invalid(at::SUBNQN, true),
            Refusal::HostNotAllowed | Refusal::NotEncrypted | Refusal::OtherKey(..) => {
                (status::INVALID_HOST.dnr(), 0, Level::WARN)
            }
            Refusal::TooManyConnections => (status::CONTROLLER_BUSY, 0, Level::WARN),
            Refusal::TooManyControllers => (status::CONTROLLER_BUSY, 0, Level::WARN),
            Refusal::NoQueues => (status::INVALID_QUEUE_TYPE.dnr(), 0, Level::INFO),
            Refusal::NotEnabled => (Status::COMMAND_SEQUENCE_ERROR.dnr(), 0, Level::INFO),
            Refusal::NotMade(_) => (Status::INTERNAL_ERROR, 0, Level::ERROR),
        }
    }
}

fn field_name(offset: u16, in_data: bool) -> &'static str {
    status::parameter(status::invalid_parameter(offset, in_data)).unwrap_or("a field")
}

/// The name in a field of the data, checked.
fn name(field: &[u8; nqn::FIELD], offset: u16) -> Result<&str, Refusal> {
    nqn::from_field(field).map_err(|why| {
        let given = field.split(|byte| *byte == 0).next().unwrap_or_default();
        Refusal::Name { offset, given: String::from_utf8_lossy(given).into_owned(), why }
    })
}

const fn field(offset: u16) -> Refusal {
    Refusal::Field { offset, in_data: false }
}

const fn data_field(offset: u16) -> Refusal {
    Refusal::Field { offset, in_data: true }
}

/// A Connect that was accepted: its connection becomes a queue of the association, on the thread of that
/// queue.
pub(crate) struct Accepted<S: Store, F: Firmware<S>> {
    pub(crate) association: Arc<Association<S, F>>,
    /// Of a new controller: its reactors, which go to their threads.
    pub(crate) reactors: Vec<Reactor<S, F>>,
    /// Of the Connect command.
    pub(crate) cid: u16,
    pub(crate) qid: u16,
    pub(crate) entries: u32,
    pub(crate) flow: bool,
}

/// A connection on which a Connect comes.
pub(crate) struct Connecting<'a> {
    pub(crate) peer: SocketAddr,
    /// Which address of ours it came to.
    pub(crate) address: SocketAddr,
    /// The number of what listens there.
    pub(crate) port: u16,
    /// The host and the subsystem that have proved themselves by TLS.
    pub(crate) proved: Option<(&'a str, &'a str)>,
    /// What counts it as one of its host.
    pub(crate) ticket: &'a mut Option<Ticket>,
}

/// Property Get, on an admin queue.
pub(crate) fn property_get<S: Store, F: Firmware<S>>(
    association: &Association<S, F>,
    property: &Property,
) -> Result<u64, Status> {
    let registers = association.registers();
    match (property.attrib, property.offset as usize) {
        (1, reg::CAP) => Ok(registers.word64(reg::CAP).load(Ordering::Relaxed)),
        (0, at @ (reg::VS | reg::CC | reg::CSTS | reg::CRTO)) => {
            Ok(registers.word32(at).load(Ordering::Acquire).into())
        }
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

/// Property Set, on an admin queue.
pub(crate) fn property_set<S: Store, F: Firmware<S>>(
    queue: &mut Queue,
    local: &mut LocalController<S, F>,
    pool: &mut Pool,
    property: &Property,
    now: Nanos,
) -> Result<u64, Status> {
    if (property.attrib, property.offset as usize) != (0, reg::CC) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let registers = local.association.registers();
    let before = reg::Cc(registers.word32(reg::CC).load(Ordering::Relaxed));
    let value = reg::Cc(property.value as u32);
    if value.enabled() && !before.enabled() {
        queue.rewind(&local.association.queue_memory);
        let pair = queue.pair();
        let entries = pair.entries - 1;
        registers.word32(reg::AQA).store(entries << 16 | entries, Ordering::Relaxed);
        registers.word64(reg::ASQ).store(pair.sq, Ordering::Relaxed);
        registers.word64(reg::ACQ).store(pair.cq, Ordering::Relaxed);
    }
    registers.word32(reg::CC).store(value.0, Ordering::Release);
    // Most of it is done at once; the thread's next turn goes on.
    local.reactor.step(now);
    local.due = Some(now);
    let reset = before.enabled() && !value.enabled();
    if reset {
        // What was outstanding is not answered.
        queue.forget(pool, &mut local.orphans);
    }
    // The I/O queues of all threads go. The admin queue stays for a look at CSTS.
    local.queues_end |= reset || (before.shn() == 0 && value.shn() != 0);
    Ok(0)
}

/// Checks a Connect, and makes the controller where it is an admin queue's.
pub(crate) fn connect<S: Store, F: Firmware<S>>(
    from: Connecting<'_>,
    cid: u16,
    connect: &Connect,
    data: &[u8],
    target: &Target<S, F>,
) -> Result<Accepted<S, F>, Refusal> {
    if connect.recfmt != 0 {
        return Err(Refusal::Format);
    }
    if data.len() != ConnectData::SIZE {
        return Err(Refusal::DataLength);
    }
    let data = ConnectData::from_bytes(data);
    let (subnqn, hostnqn) = (data.subnqn(), data.hostnqn());
    let (subnqn, hostnqn) = (name(&subnqn, at::SUBNQN)?, name(&hostnqn, at::HOSTNQN)?);
    let entries = u32::from(connect.sqsize_z) + 1;
    if !(2..=MAX_ENTRIES).contains(&entries) {
        return Err(field(at::SQSIZE));
    }
    match from.proved {
        Some((host, subsystem)) if (host, subsystem) != (hostnqn, subnqn) => {
            return Err(Refusal::OtherKey(host.to_owned(), subsystem.to_owned()));
        }
        None if target.has_tls_key(subnqn, hostnqn) => return Err(Refusal::NotEncrypted),
        _ => {}
    }
    // Base 2.0, 5.27.1.25: over fabrics it is never zero.
    if data.hostid() == [0; 16] {
        return Err(data_field(at::HOSTID));
    }
    let (association, reactors) = if connect.qid == 0 {
        associate(from, connect, &data, subnqn, hostnqn, target)?
    } else {
        let association = target.association(data.cntlid());
        let association = association.filter(|a| a.nqn == subnqn).ok_or(data_field(at::CNTLID))?;
        if association.host_nqn != hostnqn {
            return Err(data_field(at::HOSTNQN));
        }
        // Also where the key is gone that its admin queue came by.
        if association.encrypted && from.proved.is_none() {
            return Err(Refusal::NotEncrypted);
        }
        if association.host_id != data.hostid() {
            return Err(data_field(at::HOSTID));
        }
        if association.offer.is_none() {
            return Err(Refusal::NoQueues);
        }
        if connect.qid > association.io_queues {
            return Err(field(at::QID));
        }
        if !association.is_enabled() {
            return Err(Refusal::NotEnabled);
        }
        admit(from.ticket, hostnqn, data.hostid(), target)?;
        (association, Vec::new())
    };
    let flow = connect.cattr & CATTR_NO_FLOW == 0;
    Ok(Accepted { association, reactors, cid, qid: connect.qid, entries, flow })
}

/// Counts a connection as one of a host, which becomes its place. Refused where the host has as many as it
/// may have.
fn admit<S: Store, F: Firmware<S>>(
    counted: &mut Option<Ticket>,
    hostnqn: &str,
    hostid: [u8; 16],
    target: &Target<S, F>,
) -> Result<u32, Refusal> {
    // Another Connect on the same connection counts once.
    *counted = None;
    let Some(ticket) = target.hosts.admit(hostnqn, hostid) else {
        target.counters.over_quota.fetch_add(1, Ordering::Relaxed);
        return Err(Refusal::TooManyConnections);
    };
    Ok(counted.insert(ticket).place())
}

/// A new controller for a host, and its reactors.
type Associated<S, F> = (Arc<Association<S, F>>, Vec<Reactor<S, F>>);

fn associate<S: Store, F: Firmware<S>>(
    from: Connecting<'_>,
    connect: &Connect,
    data: &ConnectData,
    subnqn: &str,
    hostnqn: &str,
    target: &Target<S, F>,
) -> Result<Associated<S, F>, Refusal> {
    if data.cntlid() < ANY_CONTROLLER - 1 {
        // Controllers here are dynamic: a host cannot choose.
        return Err(data_field(at::CNTLID));
    }
    let offer = match subnqn {
        nqn::DISCOVERY => None,
        _ => Some(target.offered(subnqn).ok_or_else(|| Refusal::NotOffered(subnqn.to_owned()))?),
    };
    if offer.as_ref().is_some_and(|offer| !offer.allows(hostnqn)) {
        return Err(Refusal::HostNotAllowed);
    }
    let Connecting { peer, address, port, proved, ticket } = from;
    let place = admit(ticket, hostnqn, data.hostid(), target)?;
    let threads = target.options.threads;
    let mut reactors = Vec::new();
    let association = target.associate(|cntlid| {
        let subsystem = match &offer {
            Some(offer) => offer.subsystem.clone(),
            None => Subsystem::new(),
        };
        let of_host = (port, connect.kato);
        let config = target.config(cntlid, offer.as_deref(), subnqn, hostnqn, data.hostid(), of_host);
        let (io_queues, max_transfer) = (config.io_queues, config.max_transfer() as u32);
        let controller = Controller::of(&subsystem, config, target.wakeup.clone())?;
        let queue_memory = Arc::new(Region::anonymous((usize::from(io_queues) + 1) * QUEUE_BYTES)?);
        let memory = &controller.function.memory;
        let pools = target.pools.lock().unwrap_or_else(|e| e.into_inner());
        for (thread, pool) in pools.iter().enumerate() {
            if let Some(pool) = pool {
                memory.map(pool_iova(thread), pool.clone()).map_err(io::Error::other)?;
            }
        }
        memory.map(QUEUES_IOVA, queue_memory.clone()).map_err(io::Error::other)?;
        reactors = controller.reactors;
        let association = Arc::new(Association {
            cntlid,
            host_nqn: hostnqn.to_owned(),
            host_id: data.hostid(),
            place,
            peer,
            local: address,
            port,
            offer: offer.clone(),
            subsystem,
            nqn: subnqn.to_owned(),
            function: controller.function,
            queue_memory,
            io_queues,
            max_transfer,
            first: usize::from(cntlid) % threads,
            threads,
            authenticated: AtomicBool::new(false),
            encrypted: proved.is_some(),
            queues: AtomicU16::new(0),
            ended: AtomicBool::new(false),
        });
        Ok::<_, io::Error>(association)
    })?;
    let association = association.ok_or(Refusal::TooManyControllers)?;
    if offer.is_none() {
        publish(&association.subsystem, target.discovery_log(hostnqn, address));
    }
    tracing::info!(cntlid = association.cntlid, host = hostnqn, subsystem = subnqn, %peer, "connected");
    Ok((association, reactors))
}
