//! What a target offers, to whom, and who is there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_auth::{Credentials, Identity as TlsIdentity, Outcome, Psk, TlsKey};
use nearside_channel::{Find, Tls};
use nearside_clock::{Nanos, RateLimits, Suppressed};
use nearside_device::{Config, Fabric, Firmware, Host, Identity, Subsystem};
use nearside_dma::{Region, Wakeup};
use nearside_spec::fabrics::ADMIN_IN_CAPSULE;
use nearside_spec::fabrics::discovery::{
    DiscoveryEntry, DiscoveryHeader, SECURE_CHANNEL_REQUIRED, TLS_1_3, subtype,
};
use nearside_spec::fabrics::nqn;
use nearside_store::Store;

use crate::association::Association;
use crate::attempts::{Attempts, Begin};
use crate::generated::Generated;
use crate::hosts::Hosts;
use crate::offer::Offer;
use crate::patience::Patience;
use crate::queue::MAX_ENTRIES;

/// How often the log says the same.
const REPORT_EVERY_NS: u64 = 10_000_000_000;
/// Controllers at the same time, of all subsystems.
pub(crate) const MAX_CONTROLLERS: usize = 4096;

/// How a target works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads, 1 to 16.
    pub threads: usize,
    /// Most bytes of staging buffers of a thread. Memory is taken when it is used.
    pub staging: usize,
    /// Nanoseconds without work after which a thread sleeps.
    pub idle_ns: u64,
    /// Connections at the same time.
    pub connections: usize,
    /// Connections of one host, by its name and identifier, at the same time.
    pub per_host: usize,
    /// Connections from one address (IPv6: one /64 network) whose hosts have not said who they are. All such
    /// together: half of all.
    pub per_address: usize,
    /// Nanoseconds that a peer may take to connect, to begin with what it owes, or to read what it asked for,
    /// however little that is.
    pub patience_ns: u64,
    /// Bytes of a second, at which a peer has to go on after that.
    pub least_rate: u64,
    /// Nanoseconds that the next try to prove who a host is waits after the first failure from its address.
    /// After each further one twice as many, up to 16 times.
    pub failure_ns: u64,
    /// Who encrypts the connections of hosts that come over TLS; `None`: they cannot.
    pub tls: Option<Tls>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: 1,
            staging: 256 << 20,
            idle_ns: 100_000,
            connections: 4096,
            per_host: 1024,
            per_address: 256,
            patience_ns: 30_000_000_000,
            least_rate: 32 << 10,
            failure_ns: 250_000_000,
            tls: None,
        }
    }
}

/// What has happened since the target began.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections ended because of what the peer sent.
    pub refused: AtomicU64,
    /// Controllers made.
    pub controllers: AtomicU64,
    /// Controllers ended because their hosts fell silent.
    pub silent: AtomicU64,
    /// Commands answered.
    pub commands: AtomicU64,
    /// Of them with another status than success.
    pub errors: AtomicU64,
    /// Commands that had no answer when the target stopped: their hosts neither sent their data nor read what
    /// there was.
    pub unanswered: AtomicU64,
    /// Threads that stopped while a store had not ended what it had begun.
    pub given_up: AtomicU64,
    /// Bytes received.
    pub received: AtomicU64,
    /// Bytes sent.
    pub sent: AtomicU64,
    /// Connections that are open.
    pub open: AtomicU64,
    /// Connections closed at once, because there were as many as may be: of all, or from their address.
    pub turned_away: AtomicU64,
    /// Connect commands refused because their host had as many connections as it may have.
    pub over_quota: AtomicU64,
    /// Connections ended because the peer was too slow: to connect, to send what it owed, to read what waited
    /// for it.
    pub slow: AtomicU64,
    /// Queues whose hosts have proved who they are.
    pub authenticated: AtomicU64,
    /// Tries to prove it that failed, or were given up.
    pub not_authenticated: AtomicU64,
    /// Connections that are encrypted: their hosts have proved who they are by their PSK.
    pub encrypted: AtomicU64,
    /// TLS handshakes that failed, and connections without TLS where it is required.
    pub not_encrypted: AtomicU64,
    /// Connections that could not be accepted, mostly for lack of descriptors.
    pub not_accepted: AtomicU64,
    /// Sockets that were said to be ready, where there was nothing to be done.
    pub fruitless: AtomicU64,
}

/// A host that is connected.
#[derive(Clone, Debug)]
pub struct Connected {
    /// Controller.
    pub cntlid: u16,
    /// Subsystem.
    pub nqn: String,
    /// Host.
    pub host_nqn: String,
    /// Host identifier.
    pub host_id: [u8; 16],
    /// Where it comes from.
    pub peer: SocketAddr,
    /// The number of the address that it came to.
    pub port: u16,
    /// Whether it has proved who it is.
    pub authenticated: bool,
    /// Whether it came over TLS.
    pub encrypted: bool,
    /// I/O queues.
    pub queues: u16,
    /// Whether the controller is enabled.
    pub enabled: bool,
}

/// What is offered, by name.
type Offers<S, F> = Mutex<BTreeMap<String, Arc<Offer<S, F>>>>;

/// A target: its subsystems and its hosts.
pub struct Target<S: Store, F: Firmware<S>> {
    pub(crate) options: Options,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) stopping: AtomicBool,
    offers: Arc<Offers<S, F>>,
    /// What finds the PSKs of hosts that have TLS keys.
    pub(crate) find: Find,
    /// PSKs for hosts that asked for a secure channel.
    pub(crate) generated: Arc<Generated>,
    /// Nothing is taken without TLS.
    requires_tls: AtomicBool,
    associations: Mutex<HashMap<u16, Arc<Association<S, F>>>>,
    next_cntlid: AtomicU64,
    generation: AtomicU64,
    /// Numbers work of authentication; 0 is none.
    pub(crate) next_work: AtomicU64,
    attempts: Mutex<Attempts>,
    /// Addresses at which hosts are awaited, by their numbers, which are their ports' in discovery.
    listening: Mutex<BTreeMap<usize, SocketAddr>>,
    /// By the number of a listening address, what hosts are told in its place.
    advertised: Mutex<BTreeMap<usize, SocketAddr>>,
    pub(crate) hosts: Hosts,
    pub(crate) pools: Mutex<Vec<Option<Arc<Region>>>>,
    /// What the log was told of connections that were ended or refused, by what happened.
    reports: Mutex<RateLimits<&'static str>>,
    /// What has happened.
    pub counters: Counters,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl<S: Store, F: Firmware<S>> Target<S, F> {
    /// A target that offers nothing yet.
    ///
    /// # Errors
    /// The system's: no descriptors.
    pub fn new(options: Options) -> io::Result<Arc<Target<S, F>>> {
        let threads = options.threads.clamp(1, 16);
        let offers = Arc::<Offers<S, F>>::default();
        let generated = Arc::<Generated>::default();
        let known = (offers.clone(), generated.clone());
        Ok(Arc::new(Target {
            wakeup: Arc::new(Wakeup::for_sleepers(threads)?),
            pools: Mutex::new(vec![None; threads]),
            reports: Mutex::new(RateLimits::new(REPORT_EVERY_NS)),
            hosts: Hosts::new(options.per_host),
            advertised: Mutex::default(),
            options: Options { threads, ..options },
            stopping: AtomicBool::new(false),
            find: Arc::new(move |identity| psk(&known.0, &known.1, identity)),
            requires_tls: AtomicBool::new(false),
            offers,
            generated,
            associations: Mutex::default(),
            next_cntlid: AtomicU64::new(0),
            generation: AtomicU64::new(1),
            next_work: AtomicU64::new(1),
            attempts: Mutex::new(Attempts::new(options.failure_ns)),
            listening: Mutex::default(),
            counters: Counters::default(),
        }))
    }

    /// Offers a subsystem, in the place of one of the same name.
    pub fn offer(&self, offer: Offer<S, F>) {
        lock(&self.offers).insert(offer.nqn.clone(), Arc::new(offer));
        self.discovery_changed();
    }

    /// Offers a subsystem no more.
    pub(crate) fn withdraw(&self, nqn: &str) -> Option<Arc<Offer<S, F>>> {
        let withdrawn = lock(&self.offers).remove(nqn)?;
        self.discovery_changed();
        Some(withdrawn)
    }

    /// What is offered, by name.
    pub fn offers(&self) -> Vec<Arc<Offer<S, F>>> {
        lock(&self.offers).values().cloned().collect()
    }

    pub(crate) fn offered(&self, nqn: &str) -> Option<Arc<Offer<S, F>>> {
        lock(&self.offers).get(nqn).cloned()
    }

    /// Hosts that are connected, by controller.
    pub fn connected(&self) -> Vec<Connected> {
        let associations = lock(&self.associations);
        let mut all: Vec<Connected> = associations
            .values()
            .map(|a| Connected {
                cntlid: a.cntlid,
                nqn: a.nqn.clone(),
                host_nqn: a.host_nqn.clone(),
                host_id: a.host_id,
                peer: a.peer,
                port: a.port,
                authenticated: a.authenticated.load(Ordering::Relaxed),
                encrypted: a.encrypted,
                queues: a.queues.load(Ordering::Relaxed),
                enabled: a.is_enabled(),
            })
            .collect();
        all.sort_by_key(|c| c.cntlid);
        all
    }

    /// Tells hosts of another address in the place of the one that is listened at as the `nth` (from 0 on):
    /// behind a port forward, the one that they reach.
    pub fn advertise(&self, nth: usize, address: SocketAddr) {
        lock(&self.advertised).insert(nth, address);
        self.discovery_changed();
    }

    /// The same for all addresses, by their numbers.
    pub fn advertise_all(&self, all: BTreeMap<usize, SocketAddr>) {
        if std::mem::replace(&mut *lock(&self.advertised), all.clone()) != all {
            self.discovery_changed();
        }
    }

    /// What hosts are told of the address that is listened at as the `nth`.
    pub fn advertised(&self, nth: usize) -> Option<SocketAddr> {
        lock(&self.advertised).get(&nth).copied()
    }

    /// What a host has to prove now to a subsystem.
    pub(crate) fn credentials(&self, nqn: &str, host: &str) -> Option<Arc<Credentials>> {
        self.offered(nqn)?.credentials_of(host)
    }

    /// Whether a host has a TLS key for a subsystem, so that it comes over TLS or not at all. To discovery it
    /// may come without.
    pub(crate) fn has_tls_key(&self, nqn: &str, host: &str) -> bool {
        self.offered(nqn).is_some_and(|offer| offer.tls_key_of(host).is_some())
    }

    /// From now on nothing is taken without TLS, or, without keys of theirs, hosts may come without it.
    pub fn require_tls(&self, required: bool) {
        if self.requires_tls.swap(required, Ordering::Relaxed) != required {
            self.discovery_changed();
        }
    }

    /// Whether nothing is taken without TLS.
    pub fn requires_tls(&self) -> bool {
        self.requires_tls.load(Ordering::Relaxed)
    }

    /// What came of a TLS handshake: a failure makes the next try wait.
    pub(crate) fn shook_hands(&self, peer: &SocketAddr, done: bool, now: Nanos) {
        if done {
            self.counters.encrypted.fetch_add(1, Ordering::Relaxed);
            lock(&self.attempts).succeeded(peer);
        } else {
            self.counters.not_encrypted.fetch_add(1, Ordering::Relaxed);
            lock(&self.attempts).failed(peer, now);
        }
    }

    /// When a host from that address may begin to prove who it is.
    pub(crate) fn may_begin(&self, peer: &SocketAddr, now: Nanos) -> Begin {
        lock(&self.attempts).begin(peer, now)
    }

    /// What came of that: a failure, or an exchange that was given up, makes the next one wait.
    pub(crate) fn tried(&self, peer: &SocketAddr, outcome: Option<Outcome>, now: Nanos) {
        if outcome == Some(Outcome::Authenticated) {
            self.counters.authenticated.fetch_add(1, Ordering::Relaxed);
            lock(&self.attempts).succeeded(peer);
        } else {
            self.counters.not_authenticated.fetch_add(1, Ordering::Relaxed);
            lock(&self.attempts).failed(peer, now);
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience { grace_ns: self.options.patience_ns, rate: self.options.least_rate }
    }

    /// Whether something is logged now, and how many like it were not since the last.
    pub(crate) fn may_report(&self, what: &'static str, now: Nanos) -> Option<Suppressed> {
        lock(&self.reports).admit(what, now)
    }

    /// Another address at which hosts are awaited; its number.
    pub(crate) fn listen(&self, address: SocketAddr) -> usize {
        let number = {
            // Nor one of those by which hosts are here still: they go on as they came.
            let here: BTreeSet<usize> = lock(&self.associations).values().map(|a| a.port.into()).collect();
            let mut listening = lock(&self.listening);
            let free = |number: &usize| !listening.contains_key(number) && !here.contains(number);
            let number = (0..).find(free).unwrap_or_default();
            listening.insert(number, address);
            number
        };
        self.discovery_changed();
        number
    }

    /// Hosts are awaited there no more.
    pub(crate) fn stop_listening(&self, number: usize) {
        lock(&self.listening).remove(&number);
        lock(&self.advertised).remove(&number);
        self.discovery_changed();
    }

    /// Where hosts are awaited, by number.
    pub fn listening(&self) -> BTreeMap<usize, SocketAddr> {
        lock(&self.listening).clone()
    }

    /// The associations that `which` names.
    pub(crate) fn associations(
        &self,
        which: impl Fn(&Association<S, F>) -> bool,
    ) -> Vec<Arc<Association<S, F>>> {
        lock(&self.associations).values().filter(|association| which(association)).cloned().collect()
    }

    pub(crate) fn association(&self, cntlid: u16) -> Option<Arc<Association<S, F>>> {
        lock(&self.associations).get(&cntlid).cloned()
    }

    /// Keeps an association that `make` makes for a free controller identifier. `None`: there are too many.
    pub(crate) fn associate<E>(
        &self,
        make: impl FnOnce(u16) -> Result<Arc<Association<S, F>>, E>,
    ) -> Result<Option<Arc<Association<S, F>>>, E> {
        let mut associations = lock(&self.associations);
        if associations.len() >= MAX_CONTROLLERS {
            return Ok(None);
        }
        // FFF0h and above mean something else.
        let cntlid = loop {
            let next = self.next_cntlid.fetch_add(1, Ordering::Relaxed) % 0xffef + 1;
            if !associations.contains_key(&(next as u16)) {
                break next as u16;
            }
        };
        let association = make(cntlid)?;
        // Who withdraws a subsystem ends those that are here: one that comes too late has ended as well.
        if association.offer.as_ref().is_some_and(|offer| !lock(&self.offers).contains_key(&offer.nqn)) {
            association.ended.store(true, Ordering::Release);
        } else {
            associations.insert(cntlid, association.clone());
        }
        self.counters.controllers.fetch_add(1, Ordering::Relaxed);
        Ok(Some(association))
    }

    /// Ends an association: no connection becomes a queue of it any more. False where it has ended already;
    /// else every thread has to close its connections and let go of its reactor.
    #[must_use]
    pub(crate) fn end(&self, association: &Association<S, F>) -> bool {
        association.ended.store(true, Ordering::Release);
        lock(&self.associations).remove(&association.cntlid).is_some()
    }

    /// The controller of a host; `offer`: of a subsystem, else of discovery.
    pub(crate) fn config(
        &self,
        cntlid: u16,
        offer: Option<&Offer<S, F>>,
        nqn: &str,
        host_nqn: &str,
        identifier: [u8; 16],
        (port, keep_alive_ms): (u16, u32),
    ) -> Config {
        let fabric = Fabric {
            cntlid,
            discovery: offer.is_none(),
            in_capsule: ADMIN_IN_CAPSULE,
            max_commands: MAX_ENTRIES as u16,
            keep_alive_ms,
        };
        let identity = offer.map_or(Identity::Refuse, |offer| offer.identity_of(host_nqn));
        Config {
            reactors: self.options.threads,
            io_queues: offer.map_or(1, |offer| offer.io_queues.clamp(1, 63)),
            queue_entries: MAX_ENTRIES,
            mdts: offer.map_or(8, |offer| offer.mdts.clamp(1, 10)),
            write_cache: offer.is_some_and(|offer| offer.write_cache),
            serial: offer.map_or("NEARSIDE0".into(), |offer| offer.serial.clone()),
            subsystem: nqn.to_owned(),
            host: Host { nqn: host_nqn.to_owned(), identifier, identity },
            port: Some(port),
            fabric: Some(fabric),
            ..Config::default()
        }
    }

    /// The discovery log as a host sees it that came to `local`.
    pub(crate) fn discovery_log(&self, host: &str, local: SocketAddr) -> Arc<[u8]> {
        let mut entries = Vec::new();
        let listening = lock(&self.listening);
        for (&port, address) in listening.iter() {
            // An address that stands for all of them is reported as the one that the host connected to.
            let ip = if address.ip().is_unspecified() { local.ip() } else { address.ip() };
            let told = self.advertised(port).unwrap_or(SocketAddr::new(ip, address.port()));
            let ip = told.ip();
            let mut add = |subtype, nqn: &str, is_keyed| {
                let mut entry = DiscoveryEntry::tcp(
                    subtype,
                    nqn,
                    ip.is_ipv6(),
                    &ip.to_string(),
                    &told.port().to_string(),
                );
                entry.set_portid(port as u16);
                if is_keyed {
                    entry.set_sectype(TLS_1_3).set_treq(SECURE_CHANNEL_REQUIRED);
                }
                entries.push(entry);
            };
            for offer in lock(&self.offers).values().filter(|offer| offer.allows(host)) {
                add(subtype::NVM, &offer.nqn, self.requires_tls() || offer.tls_key_of(host).is_some());
            }
            if address.port() == local.port() {
                add(subtype::CURRENT, nqn::DISCOVERY, self.requires_tls());
            }
        }
        let mut header = DiscoveryHeader::default();
        header.set_genctr(self.generation.load(Ordering::Relaxed)).set_numrec(entries.len() as u64);
        let mut page = header.0.to_vec();
        page.extend(entries.iter().flat_map(|entry| entry.0));
        page.into()
    }

    /// Publishes the log again to every host that watches it.
    fn discovery_changed(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        let associations: Vec<_> =
            lock(&self.associations).values().filter(|a| a.offer.is_none()).cloned().collect();
        for association in associations {
            let page = self.discovery_log(&association.host_nqn, association.local);
            publish(&association.subsystem, page);
        }
    }
}

/// The PSK of an identity, where a host has a key that it is made of.
fn psk<S: Store, F: Firmware<S>>(
    offers: &Offers<S, F>,
    generated: &Generated,
    identity: &str,
) -> Option<Psk> {
    let names = TlsIdentity::parse(identity)?;
    let offer = |nqn| lock(offers).get(nqn).cloned();
    if names.is_generated() {
        // Of a host that could still prove itself.
        let credentials = offer(names.subsystem)?.credentials_of(names.host)?;
        return generated.find(identity, &credentials);
    }
    if names.subsystem != nqn::DISCOVERY {
        return offer(names.subsystem)?.tls_key_of(names.host)?.answering(identity);
    }
    // By its key for any subsystem, each once; nobody waits for the lock meanwhile.
    let mut keys: Vec<TlsKey> = Vec::new();
    for key in lock(offers).values().filter_map(|offer| offer.tls_key_of(names.host)) {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys.iter().find_map(|key| key.answering(identity))
}

/// Makes a page the discovery log of a subsystem.
pub(crate) fn publish<S: Store, F>(subsystem: &Subsystem<S, F>, page: Arc<[u8]>) {
    use nearside_spec::fabrics::discovery::LID;
    subsystem.publish(LID, page, nearside_spec::log::event::DISCOVERY_LOG_CHANGED);
}
