//! Reservations of a namespace (Base 2.0, 8.19): which hosts are registered, which of them holds it, and what
//! the others may not do meanwhile.
//!
//! Hosts are told apart by their identifiers: all controllers of one host are one registrant. A command asks
//! which reservation there is, by one load; what its host may do under it is looked up once by each reactor.
//! The commands that change reservations are answered once what outlives a loss of power is kept ([`Keep`]),
//! and, where they are to abort the commands of those whom they preempt, once these have ended ([`Ticket`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_spec::Status;
use nearside_spec::command::reservation as field;
use nearside_spec::reservation::{
    Kind, Notice, RegisteredController, RegisteredControllerExtended, ReservationStatus, acquire, capability,
    register, release,
};

use nearside_store::Operation;

use crate::fault::Fault;
use crate::io::{Request, Reserve};

/// A host's identifier.
pub type HostId = [u8; 16];

/// Hosts that may be registered with a namespace.
const MOST_REGISTRANTS: usize = 256;

/// What of a namespace's reservations outlives a loss of power.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// PTPL: whether anything does. Without it, all else is empty.
    pub persists: bool,
    /// Changes of registrations so far.
    pub generation: u32,
    /// Registered hosts with their keys.
    pub registrants: Vec<(HostId, u64)>,
    /// The reservation and its holder: of those that all registrants hold, whoever acquired it.
    pub held: Option<(Kind, HostId)>,
}

/// What became of something that was to be kept.
#[derive(Debug, Default)]
struct Outcome {
    failed: AtomicBool,
    /// Nobody waits any more: it is kept, or has failed.
    ended: AtomicBool,
}

/// What waits until it is dropped by all who have it: a reservation command, for what is kept and for the
/// commands of others that are to end.
#[derive(Debug, Default)]
pub struct Ticket {
    outcome: Arc<Outcome>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.outcome.ended.store(true, Ordering::Release);
    }
}

impl Ticket {
    /// Says that it could not be kept.
    pub fn fails(&self) {
        self.outcome.failed.store(true, Ordering::Release);
    }

    /// Whether somebody has said so.
    pub fn has_failed(&self) -> bool {
        self.outcome.failed.load(Ordering::Acquire)
    }
}

/// Keeps what is to outlive a loss of power: in the background, since it may take long. Drops the ticket once
/// it is durable, or [`Ticket::fails`].
pub type Keep = Box<dyn Fn(Kept, Arc<Ticket>) + Send + Sync>;

/// What a command has brought about for others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) notices: Vec<(HostId, Notice)>,
    /// Hosts whose commands are to end first.
    pub(crate) aborted: Vec<HostId>,
}

/// The reservations of a namespace.
#[derive(Default)]
pub(crate) struct Reservations {
    /// See [`Reservations::held`]. Changed under the lock.
    held: AtomicU64,
    state: Mutex<State>,
    keep: Option<Keep>,
}

#[derive(Clone, Default)]
struct State {
    all: Kept,
    /// Commands that have changed anything.
    changes: u64,
    /// What became of what was given last to be kept.
    keeping: Option<Arc<Outcome>>,
}

/// What a host may do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    reads: bool,
    writes: bool,
}

impl Standing {
    /// Whether it may have a request executed.
    pub(crate) fn admits(self, request: &Request) -> Result<(), Fault> {
        let allowed = match request {
            Request::Transfer { operation: Operation::Read { .. }, .. }
            | Request::Compare { .. }
            | Request::NearData { .. } => self.reads,
            Request::Transfer { .. }
            | Request::Plain { .. }
            | Request::Deallocate { .. }
            | Request::Hints { .. }
            | Request::Fill { .. }
            | Request::Copy { .. }
            | Request::FlushAll => self.writes,
            Request::Reservation { .. } => true,
        };
        if allowed { Ok(()) } else { Err(CONFLICT) }
    }
}

impl Reservations {
    /// With what was kept, and where it is kept from now on.
    pub(crate) fn kept(kept: Kept, keep: Keep) -> Reservations {
        let held = u64::from(kept.held.is_some());
        let state = State { all: kept, changes: held, keeping: None };
        Reservations { held: held.into(), state: Mutex::new(state), keep: Some(keep) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// RESCAP.
    pub(crate) fn capabilities(&self) -> u8 {
        let persists = if self.keep.is_some() { capability::PERSISTS } else { 0 };
        persists | capability::KINDS | capability::IGNORE_KEY
    }

    /// Which reservation there is: a number that none before it had; 0 where there is none.
    #[inline]
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// What a host may do under the reservation that there is (figure 443), and which that is.
    pub(crate) fn standing(&self, host: HostId) -> (u64, Standing) {
        let state = self.lock();
        let standing = match state.all.held {
            None => Standing { reads: true, writes: true },
            Some((kind, holder)) => {
                let registered = state.key_of(host).is_some();
                let writes = registered && (holder == host || kind.admits_registrants());
                Standing { reads: writes || !kind.keeps_readers_out(), writes }
            }
        };
        (self.held.load(Ordering::Relaxed), standing)
    }

    /// Does what a command of a host asks for, and keeps it. The ticket is the command's to wait for.
    pub(crate) fn change(
        &self,
        host: HostId,
        command: Reserve,
        keys: (u64, u64),
        ticket: &Arc<Ticket>,
    ) -> Result<Effects, Fault> {
        let mut state = self.lock();
        let mut next = state.clone();
        let effects = match command {
            Reserve::Register { persist: Some(true), .. } if self.keep.is_none() => {
                return Err(Fault::field(field::CPTPL));
            }
            Reserve::Register { action, ignore_key, persist } => {
                let done = next.register(host, action, ignore_key, keys);
                next.all.persists = persist.unwrap_or(next.all.persists);
                done
            }
            Reserve::Acquire { action, kind } => next.acquire(host, action, kind, keys),
            Reserve::Release { action, kind } => next.release(host, action, kind, keys.0),
            Reserve::Report { .. } => Ok(Effects::default()),
        };
        let effects = match effects {
            Ok(effects) => effects,
            Err(fault) => {
                // It may be refused for what could not be kept, as a Clear that is sent again.
                let mut same = state.clone();
                self.keeps(&state, &mut same, &Arc::default());
                *state = same;
                return Err(fault);
            }
        };
        self.keeps(&state, &mut next, ticket);
        next.changes = next.changes.wrapping_add(1).max(1);
        self.held.store(if next.all.held.is_some() { next.changes } else { 0 }, Ordering::Release);
        *state = next;
        Ok(effects)
    }

    /// Has what is to outlive a loss of power kept, where that is another than before, or may not be kept
    /// (yet): nothing is answered before it is. What was to and is to no more is taken away.
    fn keeps(&self, before: &State, next: &mut State, ticket: &Arc<Ticket>) {
        let Some(keep) = &self.keep else { return };
        let is = |of: fn(&Outcome) -> &AtomicBool| {
            before.keeping.as_deref().map(|outcome| of(outcome).load(Ordering::Acquire))
        };
        let failed = is(|outcome| &outcome.failed) == Some(true);
        let again = failed || is(|outcome| &outcome.ended) == Some(false);
        if (next.all.persists || before.all.persists || failed) && (again || next.all != before.all) {
            next.keeping = Some(ticket.outcome.clone());
            keep(if next.all.persists { next.all.clone() } else { Kept::default() }, ticket.clone());
        }
    }

    /// PTPL, as a feature.
    pub(crate) fn persists(&self) -> bool {
        self.lock().all.persists
    }

    /// Whether PTPL can be set.
    pub(crate) fn can_persist(&self) -> bool {
        self.keep.is_some()
    }

    /// Changes PTPL, where it can be.
    pub(crate) fn set_persists(&self, persists: bool, ticket: &Arc<Ticket>) {
        let mut state = self.lock();
        let mut next = state.clone();
        next.all.persists = persists && self.keep.is_some();
        self.keeps(&state, &mut next, ticket);
        *state = next;
    }

    /// What Reservation Report gives. `controllers`: those of each host.
    pub(crate) fn report(&self, extended: bool, controllers: &BTreeMap<HostId, Vec<u16>>) -> Vec<u8> {
        // Others wait for the lock.
        let all = self.lock().all.clone();
        let mut entries = Vec::new();
        let mut count = 0u16;
        for &(host, key) in &all.registrants {
            let holds = all.held.is_some_and(|(kind, holder)| holder == host || kind.is_of_all());
            let of_host = controllers.get(&host).map_or(&[u16::MAX][..], Vec::as_slice);
            for &cntlid in of_host {
                count = count.saturating_add(1);
                if extended {
                    let mut entry = RegisteredControllerExtended::default();
                    entry.set_cntlid(cntlid).set_status(holds.into()).set_key(key).set_host(host);
                    entries.extend(entry.0);
                } else {
                    let mut entry = RegisteredController::default();
                    let short = host.first_chunk().copied().unwrap_or_default();
                    entry.set_cntlid(cntlid).set_status(holds.into()).set_key(key).set_host(short);
                    entries.extend(entry.0);
                }
            }
        }
        let mut status = ReservationStatus::default();
        status
            .set_generation(all.generation)
            .set_kind(all.held.map_or(0, |(kind, _)| kind.to_field()))
            .set_controllers(count)
            .set_persists(all.persists.into());
        let head = if extended { status.0.len() } else { ReservationStatus::SHORT };
        let mut report = status.0.get(..head).unwrap_or(&[]).to_vec();
        report.extend(entries);
        report
    }
}

const CONFLICT: Fault = Fault::new(Status::RESERVATION_CONFLICT);

impl State {
    fn key_of(&self, host: HostId) -> Option<u64> {
        self.all.registrants.iter().find(|(other, _)| *other == host).map(|(_, key)| *key)
    }

    /// Whether the host is a registrant that knows its key.
    fn knows(&self, host: HostId, key: u64) -> Result<(), Fault> {
        if self.key_of(host) == Some(key) { Ok(()) } else { Err(CONFLICT) }
    }

    fn changes(&mut self) {
        self.all.generation = self.all.generation.wrapping_add(1);
    }

    fn others(&self, but: HostId) -> impl Iterator<Item = HostId> {
        self.all.registrants.iter().map(|(host, _)| *host).filter(move |host| *host != but)
    }

    /// Reservation Register (8.19.3 to 8.19.5).
    fn register(
        &mut self,
        host: HostId,
        action: u8,
        ignore_key: bool,
        (current, new): (u64, u64),
    ) -> Result<Effects, Fault> {
        let mut effects = Effects::default();
        match (action, self.key_of(host)) {
            // Once more with its key changes nothing.
            (register::REGISTER, Some(key)) if key == new => return Ok(effects),
            (register::REGISTER, Some(_)) => return Err(CONFLICT),
            (register::REGISTER, None) => self.add(host, new)?,
            (register::REPLACE, None) if ignore_key => self.add(host, new)?,
            (register::REPLACE | register::UNREGISTER, None) => return Err(CONFLICT),
            (register::REPLACE | register::UNREGISTER, Some(key)) if key != current && !ignore_key => {
                return Err(CONFLICT);
            }
            (register::REPLACE, Some(_)) => {
                self.all.registrants.iter_mut().filter(|(h, _)| *h == host).for_each(|(_, key)| *key = new);
            }
            (register::UNREGISTER, Some(_)) => {
                self.all.registrants.retain(|(other, _)| *other != host);
                effects.notices = self.left_by(host);
            }
            _ => return Err(Fault::field(field::ACTION)),
        }
        self.changes();
        Ok(effects)
    }

    fn add(&mut self, host: HostId, key: u64) -> Result<(), Fault> {
        if self.all.registrants.len() >= MOST_REGISTRANTS {
            return Err(Fault::transient(Status::INTERNAL_ERROR));
        }
        self.all.registrants.push((host, key));
        Ok(())
    }

    /// A host is no registrant any more: its reservation ends with it, one of all registrants with the last.
    /// Who hears of it.
    fn left_by(&mut self, host: HostId) -> Vec<(HostId, Notice)> {
        let Some((kind, holder)) = self.all.held else { return Vec::new() };
        let ends = if kind.is_of_all() { self.all.registrants.is_empty() } else { holder == host };
        if !ends {
            return Vec::new();
        }
        self.all.held = None;
        self.released(kind, host)
    }

    /// A reservation of that kind was released: those who shared it hear of it.
    fn released(&self, kind: Kind, by: HostId) -> Vec<(HostId, Notice)> {
        if !kind.admits_registrants() {
            return Vec::new();
        }
        self.others(by).map(|host| (host, Notice::Released)).collect()
    }

    /// Reservation Acquire (8.19.6, 8.19.8).
    fn acquire(
        &mut self,
        host: HostId,
        action: u8,
        kind: Kind,
        (current, preempted): (u64, u64),
    ) -> Result<Effects, Fault> {
        self.knows(host, current)?;
        match (action, self.all.held) {
            (acquire::ACQUIRE, None) => {
                self.all.held = Some((kind, host));
                Ok(Effects::default())
            }
            // Once more changes nothing, for whoever holds it.
            (acquire::ACQUIRE, Some((held, holder))) => {
                let holds = holder == host || held.is_of_all();
                if holds && held == kind { Ok(Effects::default()) } else { Err(CONFLICT) }
            }
            (acquire::PREEMPT | acquire::PREEMPT_AND_ABORT, held) => {
                let gone = self.preempt(host, kind, preempted, held)?;
                let mut notices: Vec<_> = gone.iter().map(|&h| (h, Notice::RegistrationPreempted)).collect();
                if let (Some((before, _)), Some((after, _))) = (held, self.all.held)
                    && before != after
                {
                    notices.extend(self.released(before, host));
                }
                self.changes();
                let aborted = if action == acquire::PREEMPT_AND_ABORT { gone } else { Vec::new() };
                Ok(Effects { notices, aborted })
            }
            _ => Err(Fault::field(field::ACTION)),
        }
    }

    /// Unregisters the hosts of a key, and takes their reservation over. Who is gone.
    fn preempt(
        &mut self,
        host: HostId,
        kind: Kind,
        key: u64,
        held: Option<(Kind, HostId)>,
    ) -> Result<Vec<HostId>, Fault> {
        let of_key = |state: &State| -> Vec<HostId> {
            let registrants = state.all.registrants.iter().filter(|(other, k)| *k == key && *other != host);
            registrants.map(|(other, _)| *other).collect()
        };
        let (gone, takes_over) = match held {
            Some((held, _)) if held.is_of_all() && key == 0 => (self.others(host).collect(), true),
            Some((held, _)) if held.is_of_all() => (of_key(self), false),
            // Its own reservation becomes another.
            Some((_, holder)) if holder == host && self.key_of(host) == Some(key) => (of_key(self), true),
            Some((_, holder)) if self.key_of(holder) == Some(key) => (of_key(self), true),
            Some(_) if key == 0 => return Err(Fault::new(Status::INVALID_FIELD)),
            Some(_) | None => (of_key(self), false),
        };
        if gone.is_empty() && !takes_over {
            return Err(CONFLICT);
        }
        self.all.registrants.retain(|(other, _)| !gone.contains(other));
        if takes_over {
            self.all.held = Some((kind, host));
        } else if let Some((held, holder)) = self.all.held
            && held.is_of_all()
            && gone.contains(&holder)
        {
            self.all.held = Some((held, host));
        }
        Ok(gone)
    }

    /// Reservation Release (8.19.7, 8.19.9).
    fn release(
        &mut self,
        host: HostId,
        action: u8,
        kind: Option<Kind>,
        current: u64,
    ) -> Result<Effects, Fault> {
        self.knows(host, current)?;
        let mut effects = Effects::default();
        match (action, self.all.held) {
            (release::RELEASE, Some((held, holder))) if holder == host || held.is_of_all() => {
                if kind != Some(held) {
                    return Err(Fault::field(field::RTYPE));
                }
                self.all.held = None;
                effects.notices = self.released(held, host);
            }
            // Of who holds none it is no error.
            (release::RELEASE, _) => {}
            (release::CLEAR, _) => {
                effects.notices = self.others(host).map(|other| (other, Notice::Preempted)).collect();
                self.all.registrants.clear();
                self.all.held = None;
                self.changes();
            }
            _ => return Err(Fault::field(field::ACTION)),
        }
        Ok(effects)
    }
}
