//! The stores, subsystems and threads of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nearside_clock::{Clock, TscClock};
use nearside_device::runner::{Rest, Threaded};
use nearside_device::{
    CommandSet, Config, Controller, Host, Identity, MEMORY_GRANULARITY, Namespace, Subsystem,
};
use nearside_dma::{Memory, Wakeup};
use nearside_embedded::AnyStore;
use nearside_firmware as firmware;
use nearside_firmware::{Compute, Fsr, WorkerHandle, Workers};
use nearside_front_tcp::{Offer, Options, Server, Target};
use nearside_spec::fabrics::PORT;
use nearside_store::write_log::WriteLog;
use nearside_store::{Data, Dram, FileOptions, Operation, Store, Submitted, Token};

use super::activated::Activated;
use super::limits;
use super::names;
use super::plan::{ComputePlan, Doorbells, FunctionPlan, NamespacePlan, Plan, SubsystemPlan, Tls, resolve};
use super::ports::Bound;
use super::reservations;
use super::secrets;
use crate::in_use;

/// What serves.
pub type AnyTarget = Target<AnyStore, Fsr>;
type AnyOffer = Offer<AnyStore, Fsr>;
pub type AnySubsystem = Subsystem<AnyStore, Fsr>;
type AnyNamespace = Arc<Namespace<AnyStore, Fsr>>;

/// A PCIe function, as it is told of.
pub struct Function {
    /// The subsystem's name.
    pub nqn: String,
    pub socket: PathBuf,
    pub cntlid: u16,
    pub doorbells: Doorbells,
    /// The namespaces that its client has; `None`: all.
    pub namespaces: Option<BTreeSet<u32>>,
    observer: nearside_front_vfio::Observer,
}

impl Function {
    /// How it stands.
    pub fn state(&self) -> nearside_front_vfio::State {
        self.observer.state()
    }
}

/// What a drive's owner is told of.
pub struct Seen {
    pub target: Arc<AnyTarget>,
    functions: Mutex<Vec<Arc<Function>>>,
}

impl Seen {
    /// PCIe functions.
    pub fn functions(&self) -> Vec<Arc<Function>> {
        self.functions.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

/// A drive that is served.
pub struct ServedDrive {
    server: Server<AnyStore, Fsr>,
    /// What listens, by number: the address as it was asked for.
    listening: BTreeMap<usize, (String, u16)>,
    /// Sockets that a service manager handed over.
    handed: Activated,
    /// PCIe functions, beside what is told of each.
    functions: Vec<(Arc<Function>, nearside_front_vfio::Server)>,
    seen: Arc<Seen>,
    /// What answers near-data commands of other processes, by the subsystem.
    sockets: Vec<(String, NearDataSocket)>,
    /// Stopped after the server, whose commands they run.
    workers: Option<Workers>,
    /// Whether somebody encrypts; if not, why.
    tls: Result<(), String>,
    /// What a user should know.
    notes: Vec<String>,
}

/// Opens a namespace of a subsystem.
pub fn open(
    nqn: &str,
    plan: &NamespacePlan,
    handle: Option<WorkerHandle>,
) -> Result<Arc<Namespace<AnyStore, Fsr>>, String> {
    let options = if plan.read_only { FileOptions::read() } else { FileOptions::serve() };
    let failed = |why: String| format!("namespace {} of {nqn}: {why}", plan.nsid);
    let beside = plan.beside().map_err(failed)?;
    let options = FileOptions { block_size: plan.block_size, beside, ..options };
    let store =
        AnyStore::open(&plan.store, options).map_err(|e| failed(in_use::words(&e, plan.read_only)))?;
    let store = match &plan.log_writes {
        Some(path) => store.logged(path).map_err(|e| failed(e.to_string()))?,
        None => store,
    };
    let config =
        firmware::Config { allow_unrecovered: plan.allow_unrecovered, ..firmware::Config::default() };
    let firmware = match plan.shared_image {
        true => Fsr::distrusting(Arc::new(TscClock::new()), config),
        false => Fsr::new(Arc::new(TscClock::new()), config),
    }
    .on(handle);
    let names = names::identifiers(nqn, plan.nsid, &plan.store);
    // Several controllers reach it, each on its own.
    let namespace = Namespace::new(store, firmware, plan.block_size, names.uuid, true)
        .map_err(|e| failed(e.to_string()))?;
    let namespace = namespace.with_nguid(names.nguid).in_ana_group(plan.ana_group).protected(plan.read_only);
    Ok(Arc::new(match &plan.reservations {
        None => namespace,
        Some(path) => {
            let (kept, keep) = reservations::open(path).map_err(failed)?;
            namespace.with_reservations(kept, keep)
        }
    }))
}

/// A compute namespace and the memory namespace before it, by their numbers.
fn open_compute(
    nqn: &str,
    plan: &ComputePlan,
    handle: Option<WorkerHandle>,
) -> Result<[(u32, AnyNamespace); 2], String> {
    let clock = || Arc::new(TscClock::new());
    let failed = |nsid: u32, why: std::io::Error| format!("namespace {nsid} of {nqn}: {why}");
    let opened = |nsid: u32, set: CommandSet, store: Dram, firmware: Fsr| {
        let names = names::identifiers(nqn, nsid, &format!("dram:{}", plan.memory.0));
        let namespace = Namespace::of_command_set(set, AnyStore::Dram(store), firmware, names.uuid);
        let namespace = namespace.map_err(|why| failed(nsid, why))?;
        Ok::<_, String>((nsid, Arc::new(namespace.with_nguid(names.nguid))))
    };
    let memory = Dram::new(plan.memory.0, MEMORY_GRANULARITY).map_err(|why| failed(plan.memory_nsid, why))?;
    let programs = Compute::over([(plan.memory_nsid, memory.clone())]);
    let programs = Fsr::of_programs(clock(), programs).on(handle);
    Ok([
        opened(plan.memory_nsid, CommandSet::Memory, memory.clone(), Fsr::of_memory(clock()))?,
        // No command reaches bytes of it.
        opened(plan.nsid, CommandSet::Compute, memory, programs)?,
    ])
}

/// What a user should know of what a namespace lies in.
fn notes_of(nqn: &str, nsid: u32, store: &AnyStore) -> impl Iterator<Item = String> {
    let known = store.standing().all().map(move |text| format!("namespace {nsid} of {nqn}: {text}"));
    store.notes().iter().cloned().chain(known)
}

/// A function as its clients are offered it. Controllers' numbers are counted from the top: those of hosts on
/// the network come from below.
fn function_of(
    plan: &SubsystemPlan,
    function: &FunctionPlan,
    serial: &str,
    subsystem: &Arc<Subsystem<AnyStore, Fsr>>,
    number: u16,
) -> nearside_front_vfio::Offer<AnyStore, Fsr> {
    nearside_front_vfio::Offer {
        identity: function.identity.unwrap_or(plan.identity).0,
        cntlid: 0xffef - number,
        threads: function.threads,
        namespaces: function.namespaces.clone(),
        write_cache: plan.namespace.iter().any(|namespace| !namespace.read_only),
        mapped_doorbells: function.doorbells == Doorbells::Mapped,
        ..nearside_front_vfio::Offer::new(&plan.nqn, serial, subsystem.clone())
    }
}

/// A subsystem as hosts on the network are offered it: who may come, and what their word is worth.
fn offer_of(
    plan: &SubsystemPlan,
    serial: &str,
    subsystem: Arc<Subsystem<AnyStore, Fsr>>,
) -> Result<AnyOffer, String> {
    let identities = plan.host.iter().filter_map(|host| Some((host.nqn.clone(), host.identity?.0)));
    let secrets = secrets::of_hosts(plan)?;
    Ok(Offer {
        hosts: plan.hosts(),
        credentials: secrets.credentials,
        tls_keys: secrets.tls_keys,
        identities: identities.collect(),
        identity: plan.identity.0,
        ..Offer::new(&plan.nqn, serial, subsystem)
    })
}

/// A socket for near-data commands, with the controller that answers them.
struct NearDataSocket {
    socket: nearside_front_fuse::Server,
    // After the socket: who asks is answered.
    _threads: Threaded,
}

impl NearDataSocket {
    fn start(
        path: &Path,
        subsystem: &Arc<Subsystem<AnyStore, Fsr>>,
        plan: &SubsystemPlan,
    ) -> Result<NearDataSocket, String> {
        let failed = |e: &dyn std::fmt::Display| format!("near-data socket {}: {e}", path.display());
        let config = Config {
            subsystem: plan.nqn.clone(),
            shared: true,
            host: Host { nqn: format!("unix:{}", path.display()), ..Host::default() },
            ..Config::default()
        };
        let wakeup = Wakeup::new().map_err(|e| failed(&e))?;
        let controller = Controller::of(subsystem, config, Arc::new(wakeup)).map_err(|e| failed(&e))?;
        let function = controller.function.clone();
        let threads =
            Threaded::start(controller, TscClock::new(), Rest::default()).map_err(|e| failed(&e))?;
        let socket = nearside_front_fuse::answer(function, path).map_err(|e| failed(&e))?;
        Ok(NearDataSocket { socket, _threads: threads })
    }

    fn path(&self) -> String {
        self.socket.path().display().to_string()
    }
}

/// A subsystem that is about to be offered.
struct Opened {
    offer: AnyOffer,
    functions: Vec<(Arc<Function>, nearside_front_vfio::Server)>,
    socket: Option<NearDataSocket>,
}

impl Opened {
    /// Opens a subsystem's stores, and the sockets by which it is reached. `taken`: numbers of controllers
    /// that other functions have.
    fn open(
        plan: &SubsystemPlan,
        handle: Option<WorkerHandle>,
        taken: &mut Vec<u16>,
        notes: &mut Vec<String>,
    ) -> Result<Opened, String> {
        let subsystem = Subsystem::new();
        for namespace in &plan.namespace {
            let opened = open(&plan.nqn, namespace, handle.clone())?;
            notes.extend(notes_of(&plan.nqn, namespace.nsid, opened.store()));
            subsystem.add(namespace.nsid, opened).map_err(|e| format!("{}: {e}", plan.nqn))?;
        }
        for compute in &plan.compute {
            for (nsid, opened) in open_compute(&plan.nqn, compute, handle.clone())? {
                subsystem.add(nsid, opened).map_err(|e| format!("{}: {e}", plan.nqn))?;
            }
        }
        let serial = plan.serial.clone().unwrap_or_else(|| names::serial(&plan.nqn));
        let mut functions = Vec::new();
        for function in &plan.vfio_user {
            let number = (0..).find(|number| !taken.contains(&(0xffef - number))).unwrap_or_default();
            let offer = function_of(plan, function, &serial, &subsystem, number);
            let cntlid = offer.cntlid;
            taken.push(cntlid);
            let server = nearside_front_vfio::Server::start(offer, &function.socket, TscClock::new())
                .map_err(|e| format!("vfio-user socket {e}"))?;
            let told = Function {
                nqn: plan.nqn.clone(),
                socket: server.path().to_owned(),
                cntlid,
                doorbells: function.doorbells,
                namespaces: function.namespaces.clone(),
                observer: server.observer(),
            };
            functions.push((Arc::new(told), server));
        }
        let socket = plan.near_data_socket.as_ref();
        let socket = socket.map(|path| NearDataSocket::start(path, &subsystem, plan)).transpose()?;
        let write_cache = plan.namespace.iter().any(|namespace| !namespace.read_only);
        Ok(Opened { offer: Offer { write_cache, ..offer_of(plan, &serial, subsystem)? }, functions, socket })
    }
}

/// All that a change may fail at, done.
#[derive(Default)]
struct Prepared {
    subsystems: Vec<Opened>,
    offers: Vec<AnyOffer>,
    namespaces: Vec<(Arc<AnySubsystem>, u32, AnyNamespace)>,
    listeners: Vec<((String, u16), TcpListener)>,
    notes: Vec<String>,
}

/// Takes a namespace away; what it was trusted with is made durable. What went wrong.
fn let_go(subsystem: &Subsystem<AnyStore, Fsr>, nqn: &str, nsid: u32) -> Option<String> {
    let removed = subsystem.remove(nsid)?;
    let ended = if removed.read_only() { Ok(()) } else { flush(&removed) };
    let trouble = ended.err().or_else(|| removed.store().write_log().and_then(|log| log.trouble()));
    trouble.map(|why| format!("namespace {nsid} of {nqn}: {why}"))
}

impl ServedDrive {
    /// Opens the stores, listens, serves.
    pub fn start(plan: &Plan, handed: Activated) -> Result<ServedDrive, String> {
        let made = crate::tls::of_server(plan.kernel_tls);
        let tls = made.as_ref().map(drop).map_err(String::clone);
        let options = Options { threads: plan.threads, tls: made.ok(), ..Options::default() };
        let connections = options.connections;
        let target = AnyTarget::new(options).map_err(|e| e.to_string())?;
        let threads = plan.near_data_threads.unwrap_or_else(|| Workers::usual(1));
        let workers = Workers::behind_hosts(threads, TscClock::new()).map_err(|e| e.to_string())?;
        let server = Server::start(target, Vec::new(), TscClock::new()).map_err(|e| e.to_string())?;
        let seen = Arc::new(Seen { target: server.target().clone(), functions: Mutex::default() });
        let notes: Vec<String> = limits::raise_descriptors(connections).into_iter().collect();
        let (listening, functions, sockets) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut drive =
            ServedDrive { server, listening, handed, functions, seen, sockets, workers, tls, notes };
        let notes = drive.apply(plan)?;
        drive.notes.extend(notes);
        for (address, nqn) in plan.open_to_all() {
            tracing::warn!(%address, nqn, "whoever reaches this address may connect");
        }
        Ok(drive)
    }

    /// Serves what a plan says, no more and no less, as far as it can be while hosts are there: subsystems,
    /// their hosts and namespaces, and listeners come and go. Who is there stays, as what it came, unless its
    /// subsystem goes. Returns what a user should know.
    ///
    /// # Errors
    /// What could not be opened; then nothing has changed.
    pub fn apply(&mut self, plan: &Plan) -> Result<Vec<String>, String> {
        let Prepared { subsystems, offers, namespaces, listeners, mut notes } = self.prepare(plan)?;
        let stay: BTreeSet<usize> = self.numbers(plan).into_iter().flatten().collect();
        let goes: Vec<usize> = self.listening.keys().copied().filter(|nr| !stay.contains(nr)).collect();
        for number in goes {
            self.listening.remove(&number);
            self.server.stop_listening(number);
        }
        for offer in self.target().offers() {
            let wanted = plan.named(&offer.nqn);
            if wanted.is_none() {
                self.functions.retain(|(function, _)| function.nqn != offer.nqn);
                self.sockets.retain(|(nqn, _)| *nqn != offer.nqn);
                self.server.withdraw(&offer.nqn);
            }
            for (nsid, namespace) in offer.subsystem.namespaces() {
                // Those of programs are settled when the subsystem begins.
                let settled = wanted.is_some() && namespace.command_set() != CommandSet::Nvm;
                if !settled && !wanted.is_some_and(|plan| plan.namespace.iter().any(|n| n.nsid == nsid)) {
                    notes.extend(let_go(&offer.subsystem, &offer.nqn, nsid));
                }
            }
        }
        for (subsystem, nsid, namespace) in namespaces {
            notes.extend(subsystem.add(nsid, namespace).err().map(|e| e.to_string()));
        }
        for Opened { offer, functions, socket } in subsystems {
            self.functions.extend(functions);
            self.sockets.extend(socket.map(|socket| (offer.nqn.clone(), socket)));
            self.target().offer(offer);
        }
        offers.into_iter().for_each(|offer| self.target().offer(offer));
        for (word, listener) in listeners {
            match self.server.listen(listener) {
                Ok(number) => _ = self.listening.insert(number, word),
                Err(e) => notes.push(format!("{}: {e}", word.0)),
            }
        }
        for offer in self.target().offers() {
            let quotas = plan.named(&offer.nqn).into_iter().flat_map(SubsystemPlan::quotas);
            offer.subsystem.limit(quotas);
        }
        self.target().require_tls(plan.tls == Tls::Required);
        self.set_ana(plan);
        self.advertise(plan);
        let told = self.functions.iter().map(|(function, _)| function.clone()).collect();
        *self.seen.functions.lock().unwrap_or_else(|e| e.into_inner()) = told;
        Ok(notes)
    }

    /// Does all that may fail of what a plan asks for and is not there.
    fn prepare(&self, plan: &Plan) -> Result<Prepared, String> {
        let is = |offer: &AnyOffer| {
            let keys = (offer.credentials.clone(), offer.tls_keys.clone());
            (offer.hosts.clone(), keys, offer.identities.clone(), offer.identity)
        };
        plan.advertised()?;
        if let (Err(why), true) = (&self.tls, plan.wants_tls()) {
            return Err(format!("{why}; the server began without TLS, and has it once it is started again"));
        }
        let mut prepared = Prepared::default();
        let mut taken: Vec<u16> = self.functions.iter().map(|(function, _)| function.cntlid).collect();
        let all = self.target().offers();
        for plan in &plan.subsystem {
            let Some(old) = all.iter().find(|offer| offer.nqn == plan.nqn) else {
                let opened = Opened::open(plan, self.handle(), &mut taken, &mut prepared.notes)?;
                prepared.subsystems.push(opened);
                continue;
            };
            let new = offer_of(plan, &old.serial, old.subsystem.clone())?;
            if is(&new) != is(old) {
                prepared.offers.push(Offer { write_cache: old.write_cache, ..new });
            }
            for namespace in &plan.namespace {
                if old.subsystem.namespace(namespace.nsid).is_none() {
                    let opened = open(&plan.nqn, namespace, self.handle())?;
                    prepared.notes.extend(notes_of(&plan.nqn, namespace.nsid, opened.store()));
                    prepared.namespaces.push((old.subsystem.clone(), namespace.nsid, opened));
                }
            }
        }
        for ((word, port), number) in plan.listened().zip(self.numbers(plan)) {
            if number.is_none() {
                let at = resolve(word, port)?;
                let listener = self.handed.listener(at).map_err(|e| format!("{at}: {e}"))?;
                prepared.listeners.push(((word.to_owned(), port), listener));
            }
        }
        Ok(prepared)
    }

    /// Of each address of a plan the number of what listens there.
    fn numbers(&self, plan: &Plan) -> Vec<Option<usize>> {
        let mut taken = BTreeSet::new();
        let number = |word: (&str, u16)| {
            let mut free = self.listening.iter().filter(|(number, _)| !taken.contains(*number));
            let (&number, _) = free.find(|(_, (at, port))| (&**at, *port) == word)?;
            taken.insert(number);
            Some(number)
        };
        plan.listened().map(number).collect()
    }

    /// By each address namespaces are found in the states that a plan says.
    fn set_ana(&self, plan: &Plan) {
        let offers = self.target().offers();
        for ((address, usual), number) in plan.listened().zip(self.numbers(plan)) {
            let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else { continue };
            for offer in &offers {
                // A word for discovery means another address.
                let of = plan.named(&offer.nqn).filter(|_| usual == PORT);
                offer.subsystem.set_ana(number, of.map(|plan| plan.ana(address)).unwrap_or_default());
            }
        }
    }

    /// Tells hosts of the addresses that a plan says.
    fn advertise(&self, plan: &Plan) {
        let addresses = self.server.listening();
        // Looked at before anything was changed.
        let advertised = plan.advertised().unwrap_or_default();
        let told = self.numbers(plan).into_iter().zip(advertised).filter_map(|(number, mut advertised)| {
            let number = number?;
            // Where the system has chosen one.
            if advertised.port() == 0 {
                advertised.set_port(addresses.get(&number)?.port());
            }
            Some((number, advertised))
        });
        self.target().advertise_all(told.collect());
    }

    /// Where hosts are awaited, and by which words that was asked for.
    pub fn bound(&self) -> Vec<Bound> {
        let addresses = self.server.listening();
        let all = self.listening.iter().filter_map(|(number, (word, usual))| {
            Some(Bound { word: word.clone(), usual: *usual, at: *addresses.get(number)? })
        });
        all.collect()
    }

    /// Where the newest listens that was asked for by that word: it is known by what is returned from now on,
    /// since the system may have chosen the port.
    pub fn settled(&mut self, word: &str) -> Option<SocketAddr> {
        let (number, (at, _)) = self.listening.iter_mut().rev().find(|(_, (at, _))| at == word)?;
        let address = *self.server.listening().get(number)?;
        *at = address.to_string();
        Some(address)
    }

    /// Ends the connections of a host to a subsystem.
    pub fn disconnect(&self, nqn: &str, host: &str) -> usize {
        self.server.disconnect(nqn, host)
    }

    /// What its owner is told of.
    pub fn seen(&self) -> &Arc<Seen> {
        &self.seen
    }

    pub fn target(&self) -> &Arc<AnyTarget> {
        self.server.target()
    }

    /// Who does near-data work, where it has threads of its own.
    pub fn handle(&self) -> Option<WorkerHandle> {
        self.workers.as_ref().map(Workers::handle)
    }

    /// The port of the first address; without any, the usual one.
    pub fn port(&self) -> u16 {
        self.server.addresses().first().map_or(PORT, |address| address.port())
    }

    /// Something more that a user should know.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// What is printed for the user: how to connect, and what holds.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for offer in self.target().offers() {
            let proof = match (offer.credentials.is_empty(), offer.tls_keys.is_empty()) {
                (true, true) => "",
                (false, true) => " --hostnqn HOST --dhchap-secret KEY",
                (true, false) => " --hostnqn HOST --tls",
                (false, false) => " --hostnqn HOST [--tls] [--dhchap-secret KEY]",
            };
            for (number, address) in self.server.listening() {
                let address = self.target().advertised(number).unwrap_or(address);
                lines.push(format!(
                    "nvme connect -t tcp -a {} -s {} -n {}{proof}",
                    address.ip(),
                    address.port(),
                    offer.nqn
                ));
            }
            for (nsid, namespace) in offer.subsystem.namespaces() {
                let kept = if namespace.read_only() { ", read-only" } else { "" };
                let what = match namespace.command_set() {
                    CommandSet::Nvm => format!("{} bytes{kept}", namespace.bytes()),
                    CommandSet::Memory => format!("{} bytes of memory for programs", namespace.bytes()),
                    CommandSet::Compute => "programs".to_owned(),
                };
                let name = match self.server.addresses().first() {
                    Some(first) if namespace.command_set() == CommandSet::Nvm => {
                        format!("nvme+tcp://{first}/{}/{nsid}", offer.nqn)
                    }
                    _ => format!("namespace {nsid} of {}", offer.nqn),
                };
                lines.push(format!("{name}: {what}"));
            }
            for function in self.seen.functions().iter().filter(|function| function.nqn == offer.nqn) {
                lines.push(nearside_front_vfio::qemu_line(&function.socket));
            }
            if let Identity::SquashRoot { uid, gid } = offer.identity {
                lines.push(format!(
                    "near-data requests: root of a host is taken for {uid}:{gid}; --trust, or in a file \
                     identity = \"trust\", believes it"
                ));
            }
        }
        lines.extend(
            self.sockets.iter().map(|(_, socket)| format!("near-data commands: -d unix:{}", socket.path())),
        );
        lines.extend(self.notes.iter().cloned());
        lines
    }

    /// Ends: what was taken is finished, then all stores are flushed. An error says what was given up.
    pub fn stop(self) -> Result<(), String> {
        let target = self.server.target().clone();
        // What waits for a limit is finished as well.
        target.offers().iter().for_each(|offer| offer.subsystem.limit([]));
        drop(self.sockets);
        drop(self.functions);
        drop(self.server);
        drop(self.workers);
        let mut given_up = Vec::new();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        match count(&target.counters.unanswered) {
            0 => {}
            n => given_up.push(format!("{n} commands whose hosts did not let them end")),
        }
        if count(&target.counters.given_up) > 0 {
            given_up.push("operations that a store did not end".to_owned());
        }
        for offer in target.offers() {
            for (nsid, namespace) in offer.subsystem.namespaces() {
                let ended = if namespace.read_only() { drain(&namespace) } else { flush(&namespace) };
                if let Err(why) = ended {
                    given_up.push(format!("namespace {nsid} of {}: {why}", offer.nqn));
                }
                if let Some(why) = namespace.store().write_log().and_then(WriteLog::trouble) {
                    given_up.push(format!("namespace {nsid} of {}: {why}", offer.nqn));
                }
            }
        }
        match given_up.is_empty() {
            true => Ok(()),
            false => Err(format!("given up: {}", given_up.join("; "))),
        }
    }
}

/// How long a store may take to end what it has begun.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to make all that it was given durable: a disk with much to write does.
const FLUSHED_WITHIN: Duration = Duration::from_secs(120);

/// Sees operations to their end that went on when their hosts had gone.
fn drain(namespace: &Namespace<AnyStore, Fsr>) -> Result<(), String> {
    let clock = TscClock::new();
    let begun = clock.now();
    while namespace.poll_orphans(clock.now()).is_some() || namespace.orphans_in_flight() > 0 {
        if clock.now().since(begun) > PATIENCE.as_nanos() as u64 {
            return Err(format!("the store did not end {} operations", namespace.orphans_in_flight()));
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Makes all that was written durable, within as long.
pub fn flush(namespace: &Arc<Namespace<AnyStore, Fsr>>) -> Result<(), String> {
    drain(namespace)?;
    let clock = TscClock::new();
    let mut access = namespace.access(Arc::new(Memory::new())).map_err(|e| e.to_string())?;
    let mut done = match access.submit(Operation::Flush, Data::None, Token(0), clock.now()) {
        Submitted::Done(completion) => Some(completion.result),
        Submitted::Pending => None,
    };
    let begun = clock.now();
    while done.is_none() {
        if clock.now().since(begun) > FLUSHED_WITHIN.as_nanos() as u64 {
            return Err("the store did not end its flush".into());
        }
        access.poll(clock.now(), &mut |_, completion| done = Some(completion.result));
        std::thread::yield_now();
    }
    done.unwrap_or(Ok(())).map_err(|e| e.to_string())
}
