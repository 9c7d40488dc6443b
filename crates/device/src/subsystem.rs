//! An NVM subsystem: the namespaces that its controllers share, and the controllers that hear of their
//! changes.
//!
//! Namespaces come and go while controllers run. A controller takes those that exist when it is made;
//! each later change reaches it as a message to its reactors, which attach to the new namespace, or let go of
//! the old one once its commands have ended.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use nearside_clock::{Nanos, RateLimits, Suppressed};
use nearside_store::Store;

use crate::Namespace;
use crate::ana::{AnaState, PortStates, Ports};
use crate::firmware::Observer;
use crate::reservation::{Effects, HostId, Ticket};
use crate::shared::{ControllerShared, Message};
use crate::throttle::{Buckets, Quota, Whom};
use crate::traffic::{Ledger, Traffic};

/// The largest namespace identifier (NN of Identify Controller).
pub const MAX_NSID: u32 = 1024;

/// How often the log says the same of one subsystem, and of one namespace.
pub(crate) const REPORT_EVERY_NS: u64 = 10_000_000_000;

/// What a host does that is logged for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Doorbell,
    Reset,
    AdminQueues,
    SilentHost,
}

/// Namespaces by their identifiers, and who uses them.
pub struct Subsystem<S: Store, F = ()> {
    inner: Mutex<SubsystemState<S, F>>,
    reports: Mutex<RateLimits<Trouble>>,
    ledger: Arc<Ledger>,
}

struct SubsystemState<S: Store, F> {
    namespaces: BTreeMap<u32, Arc<Namespace<S, F>>>,
    controllers: Vec<Weak<ControllerShared<S, F>>>,
    pages: BTreeMap<u8, Arc<[u8]>>,
    quotas: BTreeMap<Whom, Arc<Buckets>>,
    ports: Ports,
}

/// Why a namespace was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// Another has that identifier.
    #[error("there is a namespace {0} already")]
    Exists(u32),
    /// Not from 1 to [`MAX_NSID`].
    #[error("a namespace identifier is 1 to {MAX_NSID}, not {0}")]
    OutOfRange(u32),
}

impl<S: Store, F> Default for Subsystem<S, F> {
    fn default() -> Self {
        let inner = SubsystemState {
            namespaces: BTreeMap::new(),
            controllers: Vec::new(),
            pages: BTreeMap::new(),
            quotas: BTreeMap::new(),
            ports: Ports::default(),
        };
        Subsystem {
            inner: Mutex::new(inner),
            reports: Mutex::new(RateLimits::new(REPORT_EVERY_NS)),
            ledger: Arc::default(),
        }
    }
}

impl<S: Store, F> Subsystem<S, F> {
    /// One without namespaces.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, SubsystemState<S, F>> {
        self.inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether it is logged now, and how many like it were not since the last.
    #[cold]
    pub(crate) fn may_report(&self, trouble: Trouble, now: Nanos) -> Option<Suppressed> {
        self.reports.lock().unwrap_or_else(|e| e.into_inner()).admit(trouble, now)
    }

    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// What hosts have asked so far, and how long it took.
    pub fn traffic(&self) -> Traffic {
        self.ledger.traffic()
    }

    /// The identifiers of each host's controllers that have a namespace.
    pub(crate) fn controllers_with(&self, nsid: u32) -> BTreeMap<HostId, Vec<u16>> {
        let controllers = self.lock().controllers.clone();
        let mut by_host = BTreeMap::<HostId, Vec<u16>>::new();
        for controller in controllers.iter().filter_map(Weak::upgrade).filter(|c| c.config.has(nsid)) {
            by_host.entry(controller.host_id()).or_default().push(controller.config.number());
        }
        by_host
    }

    /// Tells the controllers of those hosts what a reservation command has brought about for them. The ticket
    /// is kept by each whose commands are to end, until they have.
    pub(crate) fn tell_of(&self, nsid: u32, effects: &Effects, ticket: &Arc<Ticket>) {
        if effects.notices.is_empty() && effects.aborted.is_empty() {
            return;
        }
        let controllers = self.lock().controllers.clone();
        for controller in controllers.iter().filter_map(Weak::upgrade).filter(|c| c.config.has(nsid)) {
            let host = controller.host_id();
            for &(_, notice) in effects.notices.iter().filter(|(other, _)| *other == host) {
                controller.mailboxes[0].send(Message::Reservation { nsid, notice });
            }
            if effects.aborted.contains(&host) {
                for mailbox in &controller.mailboxes {
                    mailbox.send(Message::Preempted { nsid, ticket: ticket.clone() });
                }
            }
            controller.function.wakeup.wake();
        }
    }

    /// Commands that each controller has taken and not answered, by its identifier.
    pub fn in_flight(&self) -> BTreeMap<u16, u64> {
        let controllers = self.lock().controllers.clone();
        let there = controllers.iter().filter_map(Weak::upgrade);
        there.map(|controller| (controller.config.number(), controller.in_flight())).collect()
    }

    /// Adds a namespace. Controllers that run attach to it and tell their hosts.
    ///
    /// # Errors
    /// [`AddError`]: the identifier is 0, above [`MAX_NSID`], or taken.
    pub fn add(&self, nsid: u32, namespace: Arc<Namespace<S, F>>) -> Result<(), AddError> {
        if nsid == 0 || nsid > MAX_NSID {
            return Err(AddError::OutOfRange(nsid));
        }
        let mut inner = self.lock();
        if inner.namespaces.contains_key(&nsid) {
            return Err(AddError::Exists(nsid));
        }
        inner.namespaces.insert(nsid, namespace);
        inner.broadcast(|| Message::Namespace { nsid });
        Ok(())
    }

    /// Takes a namespace away and returns it, if there was one. Commands on it that run end; new ones are
    /// refused. Its store is closed when the last reactor has let go of it, and the caller.
    pub fn remove(&self, nsid: u32) -> Option<Arc<Namespace<S, F>>> {
        let mut inner = self.lock();
        let removed = inner.namespaces.remove(&nsid)?;
        inner.broadcast(|| Message::Namespace { nsid });
        Some(removed)
    }

    fn told(&self, nsid: u32) {
        self.lock().broadcast(|| Message::Namespace { nsid });
    }

    /// The namespace of that identifier.
    pub fn namespace(&self, nsid: u32) -> Option<Arc<Namespace<S, F>>> {
        self.lock().namespaces.get(&nsid).cloned()
    }

    /// All namespaces, by identifier.
    pub fn namespaces(&self) -> Vec<(u32, Arc<Namespace<S, F>>)> {
        self.lock().namespaces.iter().map(|(&nsid, namespace)| (nsid, namespace.clone())).collect()
    }

    /// What may be had in a second from now on, in the place of all that was said of it before; who is not
    /// named has no quota. What waits, waits for what holds now. A rate that stays goes on as it stands.
    pub fn limit(&self, quotas: impl IntoIterator<Item = (Whom, Quota)>) {
        let mut inner = self.lock();
        let (before, none) = (std::mem::take(&mut inner.quotas), Buckets::default());
        for (whom, quota) in quotas.into_iter().filter(|(_, quota)| !quota.is_none()) {
            let now = Buckets::of(&quota, before.get(&whom).map_or(&none, |buckets| buckets));
            inner.quotas.insert(whom, Arc::new(now));
        }
        inner.broadcast(|| Message::Quotas);
    }

    /// What may be had in a second now, by whom: those that have a quota.
    pub fn limits(&self) -> Vec<(Whom, Quota)> {
        self.lock().quotas.iter().map(|(whom, buckets)| (whom.clone(), buckets.quota())).collect()
    }

    /// In what state hosts find the groups of namespaces by a port from now on: each reactor follows at its
    /// next step. Hosts are told where they asked for that.
    pub fn set_ana(&self, port: u16, states: PortStates) {
        let mut inner = self.lock();
        if inner.ports.set(port, states) {
            inner.broadcast(|| Message::Ana { port });
        }
    }

    /// In what state that is.
    pub fn ana_by(&self, port: u16) -> PortStates {
        self.lock().ports.states(port)
    }

    /// In what state a controller's host finds a namespace.
    pub(crate) fn ana_state(&self, port: Option<u16>, nsid: u32) -> AnaState {
        let inner = self.lock();
        let group = inner.namespaces.get(&nsid).map(|namespace| namespace.ana_group());
        group.map_or(AnaState::Optimized, |group| inner.ports.state(port, group))
    }

    /// The Asymmetric Namespace Access page of the namespaces that are named.
    pub(crate) fn ana_page(&self, port: Option<u16>, has: impl Fn(u32) -> bool, alone: bool) -> Vec<u8> {
        let inner = self.lock();
        let mut groups = BTreeMap::<u32, Vec<u32>>::new();
        for (&nsid, namespace) in inner.namespaces.iter().filter(|(nsid, _)| has(**nsid)) {
            groups.entry(namespace.ana_group()).or_default().push(nsid);
        }
        inner.ports.page(port, &groups, alone)
    }

    /// Of whom a host's commands on a namespace take.
    pub(crate) fn buckets(&self, nsid: u32, host: &str) -> Vec<Arc<Buckets>> {
        let inner = self.lock();
        if inner.quotas.is_empty() {
            return Vec::new();
        }
        let of = [Whom::Namespace(nsid), Whom::Host(host.to_owned())];
        of.iter().filter_map(|whom| inner.quotas.get(whom).cloned()).collect()
    }

    /// Of whom all commands for one of them take.
    pub(crate) fn buckets_of(&self, whom: &Whom) -> Option<Arc<Buckets>> {
        self.lock().quotas.get(whom).cloned()
    }

    /// Makes `page` the content of a log page that the controllers themselves know nothing of (a discovery
    /// log), and tells the hosts by the notice `information` where they asked for notices of that bit.
    pub fn publish(&self, log: u8, page: Arc<[u8]>, information: u8) {
        let mut inner = self.lock();
        if inner.pages.insert(log, page).is_some() {
            inner.broadcast(|| Message::Published { log, information });
        }
    }

    pub(crate) fn page(&self, log: u8) -> Option<Arc<[u8]>> {
        self.lock().pages.get(&log).cloned()
    }

    pub(crate) fn published(&self) -> Vec<u8> {
        self.lock().pages.keys().copied().collect()
    }

    /// A controller that will hear of every change after this.
    pub(crate) fn join(&self, controller: &Arc<ControllerShared<S, F>>) {
        let mut inner = self.lock();
        inner.controllers.retain(|c| c.strong_count() > 0);
        inner.controllers.push(Arc::downgrade(controller));
    }
}

impl<S: Store, F: Observer> Subsystem<S, F> {
    /// Makes a namespace and its store so many bytes long, rounded down to whole blocks; by `None`, as long
    /// as what the store lies in has become. Hosts are told. Whether it has another length now.
    ///
    /// Where it becomes shorter by so many bytes, hosts are refused what is beyond the new end first; then
    /// what is in flight there is waited for, between two looks by `wait`, which gives up by `false`; then
    /// the store is cut off.
    ///
    /// # Errors
    /// `NotFound`: there is no such namespace. `ResourceBusy`: it is being resized. `TimedOut`: `wait` gave
    /// up. `InvalidInput`: not one block. Else the store's. Then it is as long as before.
    pub fn resize(
        &self,
        nsid: u32,
        bytes: Option<u64>,
        wait: impl FnMut(&Namespace<S, F>) -> bool,
    ) -> io::Result<bool> {
        self.resize_if(nsid, bytes, wait, || Ok(()))
    }

    /// The same, where `may` has nothing against it once hosts reach nothing beyond a nearer end any more.
    ///
    /// # Errors
    /// As of [`Subsystem::resize`], and its own.
    pub fn resize_if(
        &self,
        nsid: u32,
        bytes: Option<u64>,
        mut wait: impl FnMut(&Namespace<S, F>) -> bool,
        may: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        let namespace = self.namespace(nsid).ok_or(io::ErrorKind::NotFound)?;
        let Ok(_resizing) = namespace.resizing.try_lock() else {
            return Err(io::ErrorKind::ResourceBusy.into());
        };
        let (before, shift) = (namespace.blocks(), namespace.lba_shift());
        let set = |blocks: u64| {
            if namespace.blocks() != blocks {
                namespace.set_blocks(blocks);
                self.told(nsid);
            }
        };
        let wanted = bytes.map(|bytes| bytes >> shift);
        if wanted == Some(0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it would hold not one block"));
        }
        if let Some(blocks) = wanted.filter(|blocks| *blocks < before) {
            set(blocks);
            while !self.ledger.all_within(nsid, blocks) || namespace.orphans_in_flight() > 0 {
                if !wait(&namespace) {
                    set(before);
                    let why = "commands beyond the new end do not end";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
            }
            if let Err(why) = may() {
                set(before);
                return Err(why);
            }
        }
        match namespace.store().resize(wanted.map(|blocks| blocks << shift)) {
            Ok(bytes) if bytes >> shift > 0 => set(bytes >> shift),
            Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it holds not one block")),
            Err(error) => {
                set(before);
                return Err(error);
            }
        }
        Ok(namespace.blocks() != before)
    }
}

impl<S: Store, F> SubsystemState<S, F> {
    fn broadcast(&mut self, message: impl Fn() -> Message) {
        self.controllers.retain(|controller| {
            let Some(controller) = controller.upgrade() else { return false };
            // The first reactor tells the host: by then all others know.
            controller.mailboxes.iter().rev().for_each(|mailbox| mailbox.send(message()));
            controller.function.wakeup.wake();
            true
        });
    }
}
