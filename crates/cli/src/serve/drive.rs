//! The stores, subsystems and threads of a server.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nearside_clock::{Clock, TscClock};
use nearside_device::runner::{Rest, Threaded};
use nearside_device::{Config, Controller, Host, Identity, Namespace, Subsystem};
use nearside_dma::{Memory, Wakeup};
use nearside_embedded::AnyStore;
use nearside_firmware as firmware;
use nearside_firmware::Fsr;
use nearside_firmware::{WorkerHandle, Workers};
use nearside_front_tcp::{Offer, Options, Server, Target};
use nearside_spec::fabrics::PORT;
use nearside_store::write_log::WriteLog;
use nearside_store::{Data, FileOptions, Operation, Submitted, Token};

use super::limits;
use super::names;
use super::plan::{Doorbells, FunctionPlan, NamespacePlan, Plan, SubsystemPlan};
use super::reservations;
use super::secrets;
use crate::in_use;

/// What serves.
pub type AnyTarget = Target<AnyStore, Fsr>;
type AnyOffer = Offer<AnyStore, Fsr>;

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
    pub functions: Vec<Function>,
}

/// A drive that is served.
pub struct ServedDrive {
    server: Server<AnyStore, Fsr>,
    /// PCIe functions.
    functions: Vec<nearside_front_vfio::Server>,
    seen: Arc<Seen>,
    /// What answers near-data commands of other processes.
    sockets: Vec<NearDataSocket>,
    /// Stopped after the server, whose commands they run.
    workers: Option<Workers>,
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
    let namespace = namespace.with_nguid(names.nguid).protected(plan.read_only);
    Ok(Arc::new(match &plan.reservations {
        None => namespace,
        Some(path) => {
            let (kept, keep) = reservations::open(path).map_err(failed)?;
            namespace.with_reservations(kept, keep)
        }
    }))
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
    Ok(Offer {
        hosts: plan.hosts(),
        credentials: secrets::credentials(plan)?,
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

impl ServedDrive {
    /// Opens the stores, listens, serves.
    pub fn start(plan: &Plan) -> Result<ServedDrive, String> {
        let options = Options { threads: plan.threads, ..Options::default() };
        let connections = options.connections;
        let target = AnyTarget::new(options).map_err(|e| e.to_string())?;
        let threads = plan.near_data_threads.unwrap_or_else(|| Workers::usual(1));
        let workers = Workers::start(threads, TscClock::new()).map_err(|e| e.to_string())?;
        let handle = workers.as_ref().map(Workers::handle);
        let mut notes: Vec<String> = limits::raise_descriptors(connections).into_iter().collect();
        let (mut functions, mut told, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
        for plan in &plan.subsystem {
            let subsystem = Subsystem::new();
            for namespace in &plan.namespace {
                let opened = open(&plan.nqn, namespace, handle.clone())?;
                notes.extend_from_slice(opened.store().notes());
                subsystem.add(namespace.nsid, opened).map_err(|e| format!("{}: {e}", plan.nqn))?;
            }
            let serial = plan.serial.clone().unwrap_or_else(|| names::serial(&plan.nqn));
            for function in &plan.vfio_user {
                let number = functions.len() as u16;
                let offer = function_of(plan, function, &serial, &subsystem, number);
                let cntlid = offer.cntlid;
                let server = nearside_front_vfio::Server::start(offer, &function.socket, TscClock::new())
                    .map_err(|e| format!("vfio-user socket {e}"))?;
                told.push(Function {
                    nqn: plan.nqn.clone(),
                    socket: server.path().to_owned(),
                    cntlid,
                    doorbells: function.doorbells,
                    namespaces: function.namespaces.clone(),
                    observer: server.observer(),
                });
                functions.push(server);
            }
            if let Some(path) = &plan.near_data_socket {
                sockets.push(NearDataSocket::start(path, &subsystem, plan)?);
            }
            let write_cache = plan.namespace.iter().any(|namespace| !namespace.read_only);
            target.offer(Offer { write_cache, ..offer_of(plan, &serial, subsystem)? });
        }
        let listen = |address| TcpListener::bind(address).map_err(|e| format!("{address}: {e}"));
        let listeners = plan.addresses()?.into_iter().map(listen).collect::<Result<Vec<_>, _>>()?;
        let server = Server::start(target, listeners, TscClock::new()).map_err(|e| e.to_string())?;
        for (nth, (mut advertised, at)) in plan.advertised()?.into_iter().zip(server.addresses()).enumerate()
        {
            // Where the system has chosen one.
            if advertised.port() == 0 {
                advertised.set_port(at.port());
            }
            server.target().advertise(nth, advertised);
        }
        for (address, nqn) in plan.open_to_all() {
            tracing::warn!(%address, nqn, "whoever reaches this address may connect");
        }
        let seen = Arc::new(Seen { target: server.target().clone(), functions: told });
        Ok(ServedDrive { server, functions, seen, sockets, workers, notes })
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

    /// Has subsystems follow a plan in who may come to them, what hosts have to prove, and what their word is
    /// worth. Who is there stays, as what it came. An error says which keys could not be read: then nothing
    /// follows.
    pub fn admit(&self, plan: &Plan) -> Result<(), String> {
        let is = |offer: &AnyOffer| {
            (offer.hosts.clone(), offer.credentials.clone(), offer.identities.clone(), offer.identity)
        };
        let all = self.target().offers();
        let mut changed = Vec::new();
        for plan in &plan.subsystem {
            let Some(old) = all.iter().find(|offer| offer.nqn == plan.nqn) else { continue };
            let new = offer_of(plan, &old.serial, old.subsystem.clone())?;
            if is(&new) != is(old) {
                changed.push(Offer { write_cache: old.write_cache, ..new });
            }
        }
        changed.into_iter().for_each(|offer| self.target().offer(offer));
        Ok(())
    }

    /// Something more that a user should know.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// What is printed for the user: how to connect, and what holds.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for offer in self.target().offers() {
            let proof = if offer.credentials.is_empty() { "" } else { " --hostnqn HOST --dhchap-secret KEY" };
            for (nth, address) in self.server.addresses().iter().enumerate() {
                let address = self.target().advertised(nth).unwrap_or(*address);
                lines.push(format!(
                    "nvme connect -t tcp -a {} -s {} -n {}{proof}",
                    address.ip(),
                    address.port(),
                    offer.nqn
                ));
            }
            for (nsid, namespace) in offer.subsystem.namespaces() {
                let kept = if namespace.read_only() { ", read-only" } else { "" };
                let name = match self.server.addresses().first() {
                    Some(first) => format!("nvme+tcp://{first}/{}/{nsid}", offer.nqn),
                    None => format!("namespace {nsid} of {}", offer.nqn),
                };
                lines.push(format!("{name}: {} bytes{kept}", namespace.bytes()));
            }
            for function in self.seen.functions.iter().filter(|function| function.nqn == offer.nqn) {
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
            self.sockets.iter().map(|socket| format!("near-data commands: -d unix:{}", socket.path())),
        );
        lines.extend(self.notes.iter().cloned());
        lines
    }

    /// Ends: what was taken is finished, then all stores are flushed. An error says what was given up.
    pub fn stop(self) -> Result<(), String> {
        let target = self.server.target().clone();
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

/// Makes all that was written durable.
pub fn flush(namespace: &Arc<Namespace<AnyStore, Fsr>>) -> Result<(), String> {
    drain(namespace)?;
    let clock = TscClock::new();
    let mut access = namespace.access(Arc::new(Memory::new())).map_err(|e| e.to_string())?;
    let mut done = match access.submit(Operation::Flush, Data::None, Token(0), clock.now()) {
        Submitted::Done(completion) => Some(completion.result),
        Submitted::Pending => None,
    };
    while done.is_none() {
        access.poll(clock.now(), &mut |_, completion| done = Some(completion.result));
        std::thread::yield_now();
    }
    done.unwrap_or(Ok(())).map_err(|e| e.to_string())
}
