//! Get and Set Features (Base 2.0, 5.15 and 5.27; NVM Command Set 1.0, 4.1.4). Nothing is saveable: a saved
//! value is the default, and a Set Features with SV is refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nearside_clock::Nanos;
use nearside_spec::command::{common, features, near_data};
use nearside_spec::feature::{Select, fid};
use nearside_spec::log::{event, lid};
use nearside_spec::opcode::FEATURE_NEAR_DATA;
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::Store;

use super::identify::notices;
use super::{Admin, AdminCommand, Answer, receive, send};
use crate::CommandSet;
use crate::config::Config;
use crate::fault::Fault;
use crate::firmware::{Firmware, NearDataCommand};
use crate::io::{BROADCAST, Request};
use crate::pointer::Pointer;
use crate::reactor::Reactor;
use crate::shared::ControllerShared;

/// Kelvins. A drive in software has no sensor: it always says 25 °C, and its thresholds are compared with
/// that.
pub(super) const TEMPERATURE: u16 = 298;
/// The over-temperature threshold after a reset.
const OVER: u16 = 343;

/// Bytes of a near-data feature's buffer where CDW13 does not say: what stock tools move.
const NEAR_DATA_BYTES: u32 = 4096;

/// The features of a controller.
#[derive(Clone, Debug)]
pub(super) struct Features {
    arbitration: u32,
    over: u16,
    under: u16,
    error_recovery: u32,
    write_cache: Option<bool>,
    coalescing: u32,
    /// CD of each vector.
    not_coalesced: u64,
    atomicity: u32,
    async_event: u32,
    /// Milliseconds, and when they were set; whether the host did.
    timestamp: (u64, Nanos, bool),
    keep_alive_ms: u32,
    host_behavior: [u8; 512],
    host_identifier: [u8; 16],
}

/// A keep-alive time in units of KAS, 100 ms, rounded up.
fn keep_alive(ms: u32) -> u32 {
    ms.checked_next_multiple_of(100).unwrap_or(u32::MAX)
}

/// What Get Features answers.
enum Value {
    Dword(u32),
    Bytes(Vec<u8>),
}

impl Features {
    /// As they are after a reset.
    pub(super) fn new(config: &Config) -> Features {
        Features {
            arbitration: 7,
            over: OVER,
            under: 0,
            error_recovery: 0,
            write_cache: config.write_cache.then_some(true),
            coalescing: 0,
            not_coalesced: 0,
            atomicity: 0,
            async_event: 0,
            timestamp: (0, Nanos(0), false),
            keep_alive_ms: keep_alive(config.fabric.as_ref().map_or(0, |fabric| fabric.keep_alive_ms)),
            host_behavior: [0; 512],
            host_identifier: config.host.identifier,
        }
    }

    /// Nanoseconds after which a silent host is taken for gone.
    pub(super) fn keep_alive(&self) -> Option<u64> {
        (self.keep_alive_ms > 0).then(|| u64::from(self.keep_alive_ms) * 1_000_000)
    }

    /// The notices that the host wants, as bits of Asynchronous Event Configuration.
    pub(super) fn notices(&self) -> u32 {
        self.async_event
    }

    /// SMART's critical warnings: bit 1, a temperature threshold.
    pub(super) fn critical_warning(&self) -> u8 {
        if TEMPERATURE >= self.over || TEMPERATURE <= self.under { 1 << 1 } else { 0 }
    }

    fn get(
        &self,
        id: u8,
        entry: &SubmissionEntry,
        granted: (u16, u16),
        vectors: usize,
        now: Nanos,
    ) -> Result<Value, Fault> {
        let dword = match id {
            fid::ARBITRATION => self.arbitration,
            fid::POWER_MANAGEMENT => 0,
            fid::TEMPERATURE_THRESHOLD => match entry.get(features::TMPSEL_THSEL) {
                0x00 => self.over.into(),
                0x10 => self.under.into(),
                _ => return Err(Fault::field(features::TMPSEL_THSEL)),
            },
            fid::ERROR_RECOVERY => self.error_recovery,
            fid::VOLATILE_WRITE_CACHE => match self.write_cache {
                Some(on) => on.into(),
                None => return Err(Fault::field(features::FID)),
            },
            fid::NUMBER_OF_QUEUES => u32::from(granted.0 - 1) | u32::from(granted.1 - 1) << 16,
            fid::INTERRUPT_COALESCING => self.coalescing,
            fid::INTERRUPT_VECTOR => {
                let vector = u32::from(entry.get(features::IV));
                if vector as usize >= vectors {
                    return Err(Fault::field(features::IV));
                }
                // Vector 0 is the admin queue's, which is never coalesced.
                let cd = vector == 0 || self.not_coalesced >> vector & 1 != 0;
                vector | u32::from(cd) << 16
            }
            fid::WRITE_ATOMICITY => self.atomicity,
            fid::ASYNC_EVENT => self.async_event,
            fid::KEEP_ALIVE => self.keep_alive_ms,
            fid::TIMESTAMP => {
                let (base, at, host) = self.timestamp;
                let ms = base.saturating_add(now.since(at) / 1_000_000) & 0xffff_ffff_ffff;
                let mut bytes = ms.to_le_bytes();
                // Origin: 1 for a value that the host set, 0 for milliseconds since the controller began.
                bytes[6] = if host { 1 << 1 } else { 0 };
                return Ok(Value::Bytes(bytes.to_vec()));
            }
            fid::HOST_BEHAVIOR => return Ok(Value::Bytes(self.host_behavior.to_vec())),
            fid::HOST_IDENTIFIER => {
                // EXHID: 16 bytes, else 8.
                let len = if entry.get(features::EXHID) { 16 } else { 8 };
                return Ok(Value::Bytes(self.host_identifier[..len].to_vec()));
            }
            _ => return Err(Fault::field(features::FID)),
        };
        Ok(Value::Dword(dword))
    }
}

/// Every feature there is, whether it is of a namespace, and whether it can be changed.
const FEATURES: [(u8, bool, bool); 17] = [
    (fid::ARBITRATION, false, true),
    (fid::POWER_MANAGEMENT, false, true),
    (fid::TEMPERATURE_THRESHOLD, false, true),
    (fid::ERROR_RECOVERY, true, true),
    (fid::VOLATILE_WRITE_CACHE, false, true),
    (fid::NUMBER_OF_QUEUES, false, true),
    (fid::INTERRUPT_COALESCING, false, true),
    (fid::INTERRUPT_VECTOR, false, true),
    (fid::WRITE_ATOMICITY, false, true),
    (fid::ASYNC_EVENT, false, true),
    (fid::TIMESTAMP, false, true),
    (fid::KEEP_ALIVE, false, true),
    (fid::HOST_BEHAVIOR, false, true),
    (fid::HOST_IDENTIFIER, false, true),
    (fid::RESERVATION_MASK, true, true),
    (fid::RESERVATION_PERSISTENCE, true, true),
    (FEATURE_NEAR_DATA, true, true),
];

/// Those of a controller: near-data work where there is firmware, interrupts where there is no fabric.
pub(super) fn supported<S: Store, F: Firmware<S>>(
    shared: &ControllerShared<S, F>,
) -> impl Iterator<Item = (u8, bool, bool)> {
    let (near_data, config) = (shared.firmware().is_some(), &shared.config);
    FEATURES.into_iter().filter(move |(id, ..)| match *id {
        FEATURE_NEAR_DATA => near_data,
        fid::VOLATILE_WRITE_CACHE => config.write_cache,
        fid::INTERRUPT_COALESCING | fid::INTERRUPT_VECTOR => config.fabric.is_none(),
        fid::RESERVATION_MASK | fid::RESERVATION_PERSISTENCE => config.has_others(),
        fid::KEEP_ALIVE | fid::ASYNC_EVENT | fid::HOST_IDENTIFIER => true,
        _ => config.fabric.as_ref().is_none_or(|fabric| !fabric.discovery),
    })
}

/// The SMART / health critical warnings that exist: bits 7:0 of Asynchronous Event Configuration; 7 and 6 are
/// reserved.
const CRITICAL_WARNINGS: u32 = 0x3f;

/// Bits of CDW11 that Set Features takes for a feature; the others are reserved, or stand for what there is
/// not.
fn settable<S: Store, F: Firmware<S>>(shared: &ControllerShared<S, F>, id: u8) -> u32 {
    match id {
        fid::ARBITRATION => 0xffff_ff07,
        fid::POWER_MANAGEMENT => 0xff,
        fid::TEMPERATURE_THRESHOLD => 0x003f_ffff,
        fid::ERROR_RECOVERY | fid::INTERRUPT_VECTOR => 0x0001_ffff,
        fid::VOLATILE_WRITE_CACHE
        | fid::WRITE_ATOMICITY
        | fid::HOST_IDENTIFIER
        | fid::RESERVATION_PERSISTENCE => 1,
        // The three notices.
        fid::RESERVATION_MASK => 0xe,
        fid::INTERRUPT_COALESCING => 0xffff,
        fid::ASYNC_EVENT => notices(&shared.config) | CRITICAL_WARNINGS,
        // All that they say is in their data.
        fid::TIMESTAMP | fid::HOST_BEHAVIOR => 0,
        _ => u32::MAX,
    }
}

/// Whether this feature can be set, to this value, for this namespace.
fn may_be_set<S: Store, F: Firmware<S>>(
    reactor: &Reactor<S, F>,
    entry: &SubmissionEntry,
) -> Result<(), Fault> {
    let id = entry.get(features::FID);
    let (of_namespace, changeable) = known(reactor, id)?;
    if entry.get(features::SV) {
        return Err(Fault::new(Status::FEATURE_NOT_SAVEABLE).of(features::SV));
    }
    if !changeable {
        return Err(Fault::new(Status::FEATURE_NOT_CHANGEABLE).of(features::FID));
    }
    let value = entry.get(features::VALUE);
    let reserved = value & !settable(&reactor.shared, id);
    if reserved != 0 {
        let bit = reserved.trailing_zeros() as u8;
        let (byte, _) = features::VALUE.place();
        return Err(Fault::new(Status::INVALID_FIELD).at(byte + bit / 8, bit % 8));
    }
    let exists = |nsid| reactor.shared.namespace(nsid).is_some();
    match entry.nsid() {
        0 | BROADCAST if !of_namespace => {}
        // A near-data request is for one namespace.
        BROADCAST if of_namespace && id != FEATURE_NEAR_DATA => {}
        nsid if !exists(nsid) => return Err(Fault::new(Status::INVALID_NAMESPACE).of(common::NSID)),
        _ if of_namespace => {}
        _ => return Err(Fault::new(Status::FEATURE_NOT_NAMESPACE_SPECIFIC).of(common::NSID)),
    }
    Ok(())
}

fn known<S: Store, F: Firmware<S>>(reactor: &Reactor<S, F>, id: u8) -> Result<(bool, bool), Fault> {
    let shared = &reactor.shared;
    supported(shared)
        .find(|(fid, ..)| *fid == id)
        .map(|(_, namespace, changeable)| (namespace, changeable))
        .ok_or(Fault::field(features::FID))
}

fn near_data_bytes(entry: &SubmissionEntry) -> Result<usize, Fault> {
    let bytes = match entry.get(near_data::FEATURE_BYTES) {
        0 => NEAR_DATA_BYTES,
        bytes => bytes,
    };
    if bytes as usize > nearside_near_data::MAX_BUFFER {
        return Err(Fault::field(near_data::FEATURE_BYTES));
    }
    Ok(bytes as usize)
}

impl<S: Store, F: Firmware<S>> AdminCommand<'_, S, F> {
    pub(super) fn get_features(&mut self) -> Result<Answer, Fault> {
        let id = self.entry.get(features::FID);
        let select =
            Select::from_field(self.entry.get(features::SEL).into()).ok_or(Fault::field(features::SEL))?;
        let (of_namespace, changeable) = known(self.reactor, id)?;
        if select == Select::Capabilities {
            return Ok(Answer::Now(u32::from(of_namespace) << 1 | u32::from(changeable) << 2));
        }
        if of_namespace && self.reactor.shared.namespace(self.entry.nsid()).is_none() {
            return Err(Fault::new(Status::INVALID_NAMESPACE).of(common::NSID));
        }
        if id == FEATURE_NEAR_DATA {
            let bytes = near_data_bytes(self.entry)?;
            let command = NearDataCommand::Feature {
                tag: self.entry.get(near_data::FEATURE_TAG),
                offset: self.entry.get(near_data::FEATURE_OFFSET),
            };
            return self.near_data(command, bytes, bytes);
        }
        if matches!(id, fid::RESERVATION_MASK | fid::RESERVATION_PERSISTENCE) {
            return Ok(Answer::Now(if select == Select::Current { self.of_reservations(id) } else { 0 }));
        }
        let defaults;
        let features = match select {
            Select::Current | Select::Capabilities => &self.admin.features,
            Select::Default | Select::Saved => {
                defaults = Features::new(&self.reactor.shared.config);
                &defaults
            }
        };
        let vectors = self.reactor.shared.function.vectors.len();
        match features.get(id, self.entry, self.admin.registry.granted, vectors, self.now)? {
            Value::Dword(value) => Ok(Answer::Now(value)),
            Value::Bytes(bytes) => {
                send(&self.reactor.shared, self.entry, &bytes)?;
                Ok(Answer::Now(0))
            }
        }
    }

    /// The value of a feature of a namespace's reservations.
    fn of_reservations(&self, id: u8) -> u32 {
        let nsid = self.entry.nsid();
        match id {
            fid::RESERVATION_MASK => self.admin.notifications.mask(nsid),
            _ => self.reactor.shared.namespace(nsid).is_some_and(|n| n.reservations().persists()).into(),
        }
    }

    /// Sets one, of a namespace or of all.
    fn set_of_reservations(&mut self, id: u8, value: u32) -> Result<Answer, Fault> {
        let (nsid, mut all) = (self.entry.nsid(), self.reactor.shared.namespaces());
        // Memory and programs are nobody's to reserve.
        all.retain(|(of, namespace)| match nsid {
            BROADCAST => namespace.command_set() == CommandSet::Nvm,
            _ => *of == nsid,
        });
        if id == fid::RESERVATION_MASK {
            all.iter().for_each(|(of, _)| self.admin.notifications.set_mask(*of, value));
            return Ok(Answer::Now(0));
        }
        let (persists, ticket) = (self.entry.get(features::PTPL), Arc::default());
        if persists && !all.iter().all(|(_, namespace)| namespace.reservations().can_persist()) {
            return Err(Fault::field(features::PTPL));
        }
        for (_, namespace) in all {
            namespace.reservations().set_persists(persists, &ticket);
        }
        if let Some(slot) = self.slot.take() {
            self.reactor.wait_for_ticket(slot, nsid, ticket);
        }
        Ok(Answer::Later)
    }

    /// Near-data work by way of a feature, or about programs: the firmware answers.
    pub(super) fn near_data(
        &mut self,
        command: NearDataCommand,
        request: usize,
        room: usize,
    ) -> Result<Answer, Fault> {
        let pointer = Pointer::of(self.entry)?;
        let place = self.reactor.look_up(self.entry.nsid())?;
        // What has no firmware that knows files can be asked about programs at most.
        if !matches!(command, NearDataCommand::Compute(_))
            && !self.reactor.attached.at(place).limits.near_data
        {
            return Err(Fault::new(Status::INVALID_NAMESPACE).of(common::NSID));
        }
        self.reactor.admits(place, &Request::NearData { command, request, room, pointer })?;
        let Some(taken) = self.slot.take() else { return Ok(Answer::Later) };
        match self.reactor.near_data(taken, place, command, request, room, &pointer, self.now) {
            Ok(()) => Ok(Answer::Later),
            Err((back, fault)) => {
                self.slot = Some(back);
                Err(fault)
            }
        }
    }

    /// The features whose value lies in the host's memory.
    fn set_from_data(&mut self) -> Result<(), Fault> {
        match self.entry.get(features::FID) {
            fid::TIMESTAMP => {
                let bytes: [u8; 8] = receive(&self.reactor.shared, self.entry)?;
                self.admin.features.timestamp =
                    (u64::from_le_bytes(bytes) & 0xffff_ffff_ffff, self.now, true);
            }
            fid::HOST_BEHAVIOR => {
                let support: [u8; 512] = receive(&self.reactor.shared, self.entry)?;
                // ACRE, ETDAS and LBAFEE are 0 or 1; what follows is reserved.
                let (words, reserved) = support.split_at(3);
                if words.iter().any(|&word| word > 1) || reserved.iter().any(|&byte| byte != 0) {
                    return Err(Fault::new(Status::INVALID_FIELD));
                }
                self.admin.features.host_behavior = support;
            }
            // Over fabrics the Connect command has said it.
            fid::HOST_IDENTIFIER if self.reactor.shared.config.fabric.is_some() => {
                return Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR));
            }
            fid::HOST_IDENTIFIER => {
                let mut identifier = [0; 16];
                if self.entry.get(features::VALUE) & 1 != 0 {
                    identifier = receive(&self.reactor.shared, self.entry)?;
                } else {
                    let short: [u8; 8] = receive(&self.reactor.shared, self.entry)?;
                    identifier[..8].copy_from_slice(&short);
                }
                // Whoever it was may have commands under way, and be registered (Base 2.0, 5.27.1.25).
                if !matches!(self.admin.features.host_identifier, id if id == [0; 16] || id == identifier) {
                    return Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR));
                }
                self.admin.features.host_identifier = identifier;
                self.reactor.shared.set_host_id(identifier);
            }
            _ => return Err(Fault::field(features::FID)),
        }
        Ok(())
    }

    pub(super) fn set_features(&mut self) -> Result<Answer, Fault> {
        let id = self.entry.get(features::FID);
        may_be_set(self.reactor, self.entry)?;
        let value = self.entry.get(features::VALUE);
        let shared = self.reactor.shared.clone();
        let features = &mut self.admin.features;
        match id {
            fid::ARBITRATION => features.arbitration = value,
            // One power state, 0, without workload hints.
            fid::POWER_MANAGEMENT if self.entry.get(features::PS) != 0 => {
                return Err(Fault::field(features::PS));
            }
            fid::POWER_MANAGEMENT => {}
            fid::TEMPERATURE_THRESHOLD => self.admin.set_threshold(self.entry)?,
            fid::ERROR_RECOVERY => {
                // DULBE: the namespace does not report reads of deallocated blocks.
                if self.entry.get(features::DULBE) {
                    return Err(Fault::field(features::DULBE));
                }
                features.error_recovery = value & 0xffff;
            }
            fid::VOLATILE_WRITE_CACHE => {
                let on = self.entry.get(features::WCE);
                features.write_cache = Some(on);
                shared.write_through.store(!on, Ordering::Relaxed);
            }
            fid::NUMBER_OF_QUEUES => {
                return self.admin.set_queues(&shared.config, self.entry).map(Answer::Now);
            }
            fid::INTERRUPT_COALESCING => {
                features.coalescing = value & 0xffff;
                shared.interrupts.coalescing.store(value & 0xffff, Ordering::Relaxed);
            }
            fid::INTERRUPT_VECTOR => {
                let vector = self.entry.get(features::IV);
                if usize::from(vector) >= shared.function.vectors.len() {
                    return Err(Fault::field(features::IV));
                }
                let cd = u64::from(self.entry.get(features::CD));
                features.not_coalesced = features.not_coalesced & !(1 << vector) | cd << vector;
                shared.interrupts.not_coalesced.store(features.not_coalesced, Ordering::Relaxed);
            }
            fid::WRITE_ATOMICITY => features.atomicity = value & 1,
            fid::ASYNC_EVENT => {
                features.async_event = value;
                if features.critical_warning() & value as u8 != 0 {
                    self.admin.events.add(event::SMART, event::TEMPERATURE_THRESHOLD, lid::SMART);
                }
            }
            fid::KEEP_ALIVE => {
                features.keep_alive_ms = keep_alive(value);
                self.admin.alive = self.now;
            }
            fid::TIMESTAMP | fid::HOST_BEHAVIOR | fid::HOST_IDENTIFIER => {
                self.set_from_data()?;
            }
            fid::RESERVATION_MASK | fid::RESERVATION_PERSISTENCE => {
                return self.set_of_reservations(id, value);
            }
            FEATURE_NEAR_DATA => {
                let bytes = near_data_bytes(self.entry)?;
                let command = NearDataCommand::SetFeature { tag: value };
                return self.near_data(command, bytes, 0);
            }
            _ => return Err(Fault::field(features::FID)),
        }
        Ok(Answer::Now(0))
    }
}

impl Admin {
    fn set_threshold(&mut self, entry: &SubmissionEntry) -> Result<(), Fault> {
        let features = &mut self.features;
        // TMPSEL: the composite temperature, or all sensors, of which there is none more.
        if !matches!(entry.get(features::TMPSEL), 0 | 0xf) {
            return Err(Fault::field(features::TMPSEL));
        }
        match entry.get(features::THSEL) {
            0 => features.over = entry.get(features::TMPTH),
            1 => features.under = entry.get(features::TMPTH),
            _ => return Err(Fault::field(features::THSEL)),
        }
        let warning = features.critical_warning();
        if warning & features.async_event as u8 != 0 {
            self.events.add(event::SMART, event::TEMPERATURE_THRESHOLD, lid::SMART);
        }
        Ok(())
    }

    fn set_queues(&mut self, config: &Config, entry: &SubmissionEntry) -> Result<u32, Fault> {
        let (sqs_z, cqs_z) = (entry.get(features::NSQR_Z), entry.get(features::NCQR_Z));
        if sqs_z == 0xffff {
            return Err(Fault::field(features::NSQR_Z));
        }
        if cqs_z == 0xffff {
            return Err(Fault::field(features::NCQR_Z));
        }
        if !self.registry.is_empty() {
            return Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR));
        }
        let most = config.io_queues;
        let granted = (sqs_z.min(most - 1) + 1, cqs_z.min(most - 1) + 1);
        self.registry.granted = granted;
        Ok(u32::from(granted.0 - 1) | u32::from(granted.1 - 1) << 16)
    }
}
