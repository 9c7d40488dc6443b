//! What is to be served: flags, or a file (docs/SERVE.md), checked.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nearside_auth::{Group, Hash};
use nearside_device::throttle::{Quota, Whom};
use nearside_device::{AnaState, Identity};
use nearside_embedded::AnyStore;
use nearside_instrument::words;
use nearside_spec::fabrics::{DISCOVERY_PORT, PORT};
use nearside_store::Beside;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;

use super::ports::PortPlan;
use super::{ServeArgs, changes, check, names};
use crate::logs;

/// `UID:GID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squash(pub u32, pub u32);

impl FromStr for Squash {
    type Err = String;

    fn from_str(text: &str) -> Result<Squash, String> {
        let id =
            |s: &str| s.parse::<u32>().map_err(|_| format!("{s:?} is no user or group number (UID:GID)"));
        let (uid, gid) = text.split_once(':').ok_or("expected UID:GID")?;
        Ok(Squash(id(uid)?, id(gid)?))
    }
}

/// Who root of a host is, by default.
const NOBODY: Identity = Identity::SquashRoot { uid: 65534, gid: 65534 };

/// What the word of a host is worth, as a file says it: `squash-root`, `trust`, `refuse`, `squash UID:GID`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Word(pub Identity);

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(text: String) -> Result<Word, String> {
        Ok(Word(match text.as_str() {
            "squash-root" => NOBODY,
            "trust" => Identity::Trust,
            "refuse" => Identity::Refuse,
            other => match other.strip_prefix("squash ").map(Squash::from_str) {
                Some(Ok(Squash(uid, gid))) => Identity::SquashAll { uid, gid },
                Some(Err(why)) => return Err(why),
                None => {
                    return Err(format!("identity {other:?}: squash-root, trust, refuse or squash UID:GID"));
                }
            },
        }))
    }
}

impl From<Word> for String {
    fn from(Word(identity): Word) -> String {
        match identity {
            Identity::SquashRoot { .. } => "squash-root".into(),
            Identity::Trust => "trust".into(),
            Identity::Refuse => "refuse".into(),
            Identity::SquashAll { uid, gid } => format!("squash {uid}:{gid}"),
        }
    }
}

impl Default for Word {
    fn default() -> Word {
        Word(NOBODY)
    }
}

/// How much is logged, as a file says it: one of [`logs::LEVELS`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Level(pub LevelFilter);

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(word: String) -> Result<Level, String> {
        let none = || format!("log {word:?}: it can be {}", logs::LEVELS.join(", "));
        logs::level(&word).map(Level).ok_or_else(none)
    }
}

impl From<Level> for String {
    fn from(Level(level): Level) -> String {
        level.to_string()
    }
}

/// A name of a file that stands for a value.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident($of:ty), $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub $of);

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<$name, String> {
                let known = || <$of>::ALL.map(<$of>::name).join(", ");
                <$of>::of_name(word).map($name).ok_or_else(|| format!("{} {word:?}: {}", $what, known()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(word: String) -> Result<$name, String> {
                word.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.name().into()
            }
        }
    };
}

named! {
    /// A hash function of DH-HMAC-CHAP.
    HashName(Hash), "hash"
}
named! {
    /// A group of it.
    GroupName(Group), "DH group"
}
named! {
    /// In what state namespaces are found by an address.
    AnaName(AnaState), "ana-state"
}

/// Bytes, as a file says them: `100MiB`.
macro_rules! bytes {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub u64);

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<$name, String> {
                words::bytes(word).map($name).map_err(|e| format!("{}: {e}", $what))
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(word: String) -> Result<$name, String> {
                word.parse()
            }
        }

        impl From<$name> for String {
            fn from($name(bytes): $name) -> String {
                let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
                let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
                whole.map_or(bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
            }
        }
    };
}

bytes! {
    /// Bytes a second.
    Bandwidth, "bandwidth"
}
bytes! {
    /// Bytes of memory.
    MemorySize, "memory"
}

/// Nanoseconds of a second that are a percent of a processor.
pub const PERCENT_NS: u64 = 10_000_000;

/// What may be had in a second, by a file.
fn quota(iops: Option<u64>, bandwidth: Option<Bandwidth>, near_data_cpu: Option<u64>) -> Quota {
    Quota {
        commands: iops,
        bytes: bandwidth.map(|bandwidth| bandwidth.0),
        near_data_ns: near_data_cpu.map(|percent| percent.saturating_mul(PERCENT_NS)),
    }
}

/// A namespace.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NamespacePlan {
    pub nsid: u32,
    pub store: String,
    #[serde(default = "block_size")]
    pub block_size: u32,
    #[serde(default)]
    pub read_only: bool,
    /// Read-only beside whoever writes the image.
    #[serde(default)]
    pub shared_image: bool,
    /// Written despite whoever has it mounted.
    #[serde(default)]
    pub risk_corruption: bool,
    /// Whether users have content also where freed blocks may be another file's.
    #[serde(default)]
    pub allow_unrecovered: bool,
    /// A new file for its write log.
    pub log_writes: Option<PathBuf>,
    /// The file that keeps its reservations.
    pub reservations: Option<PathBuf>,
    /// Whose state by each port it has.
    #[serde(default = "ana_group")]
    pub ana_group: u32,
    /// Commands a second, of all hosts.
    pub iops: Option<u64>,
    /// Bytes a second.
    pub bandwidth: Option<Bandwidth>,
    /// Of a processor, for near-data work, in percent.
    pub near_data_cpu: Option<u64>,
}

impl NamespacePlan {
    pub fn quota(&self) -> Quota {
        quota(self.iops, self.bandwidth, self.near_data_cpu)
    }

    /// Beside whom the store is opened.
    pub fn beside(&self) -> Result<Beside, String> {
        match (self.read_only, self.shared_image, self.risk_corruption) {
            (_, false, false) => Ok(Beside::Nobody),
            (true, true, false) | (false, false, true) => Ok(Beside::Anybody),
            (false, true, _) => Err("shared-image is for a namespace that is read-only".into()),
            (true, _, true) => Err("risk-corruption is for a namespace that is written".into()),
        }
    }
}

fn block_size() -> u32 {
    512
}

/// A compute namespace, and the memory that its programs run over.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ComputePlan {
    pub nsid: u32,
    pub memory_nsid: u32,
    pub memory: MemorySize,
}

/// The first.
pub fn ana_group() -> u32 {
    1
}

/// What a host has to prove, and what its word is worth.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostPlan {
    pub nqn: String,
    /// Without it, the subsystem's.
    pub identity: Option<Word>,
    pub key_file: Option<PathBuf>,
    /// By which the subsystem proves who it is.
    pub controller_key_file: Option<PathBuf>,
    /// By which its connections are encrypted, and both ends prove who they are.
    pub tls_key_file: Option<PathBuf>,
    /// Commands a second, of all its controllers, on all namespaces.
    pub iops: Option<u64>,
    /// Bytes a second.
    pub bandwidth: Option<Bandwidth>,
    /// Of a processor, for near-data work, in percent.
    pub near_data_cpu: Option<u64>,
}

impl HostPlan {
    /// Of whom nothing is said but the name.
    pub fn named(nqn: String) -> HostPlan {
        HostPlan {
            nqn,
            identity: None,
            key_file: None,
            controller_key_file: None,
            tls_key_file: None,
            iops: None,
            bandwidth: None,
            near_data_cpu: None,
        }
    }

    /// Whether nothing is said of it.
    pub fn is_bare(&self) -> bool {
        *self == HostPlan::named(self.nqn.clone())
    }

    /// Whether it proves who it is.
    pub fn is_keyed(&self) -> bool {
        self.key_file.is_some() || self.tls_key_file.is_some()
    }

    pub fn quota(&self) -> Quota {
        quota(self.iops, self.bandwidth, self.near_data_cpu)
    }
}

/// Whether connections are encrypted by TLS.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// Those of hosts with TLS keys.
    #[default]
    Allowed,
    /// All.
    Required,
}

/// Who writes doorbells how: see `--vfio-user-doorbells`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Doorbells {
    /// By messages, of which shadow doorbells spare nearly all; an idle client costs nothing.
    #[default]
    Trapped,
    /// Into a page that the client maps, which is looked at all the time that it is connected.
    Mapped,
}

impl std::fmt::Display for Doorbells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Doorbells::Trapped => "trapped",
            Doorbells::Mapped => "mapped",
        })
    }
}

/// A PCIe function at a socket.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FunctionPlan {
    pub socket: PathBuf,
    #[serde(default)]
    pub doorbells: Doorbells,
    /// Threads of its own.
    #[serde(default = "threads")]
    pub threads: usize,
    /// Namespaces of the subsystem that its client has; without it, all.
    pub namespaces: Option<BTreeSet<u32>>,
    /// What its client's word on who asks is worth; without it, the subsystem's.
    pub identity: Option<Word>,
}

/// A subsystem.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SubsystemPlan {
    pub nqn: String,
    pub serial: Option<String>,
    /// Hosts that may connect; without it, those with keys, and without any, all.
    pub allow_hosts: Option<Vec<String>>,
    pub hashes: Option<Vec<HashName>>,
    pub dh_groups: Option<Vec<GroupName>>,
    #[serde(default)]
    pub identity: Word,
    /// Where other processes of this machine ask for near-data work on namespace 1.
    pub near_data_socket: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostPlan>,
    pub namespace: Vec<NamespacePlan>,
    /// Where hosts run programs by NVMe's own commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compute: Vec<ComputePlan>,
    /// By which address which namespaces are to be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub port: Vec<PortPlan>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vfio_user: Vec<FunctionPlan>,
}

impl SubsystemPlan {
    /// One without namespaces.
    pub fn empty(nqn: String, serial: Option<String>, allow: Vec<String>, identity: Word) -> SubsystemPlan {
        SubsystemPlan {
            nqn,
            serial,
            allow_hosts: Some(allow).filter(|hosts| !hosts.is_empty()),
            hashes: None,
            dh_groups: None,
            identity,
            near_data_socket: None,
            host: Vec::new(),
            namespace: Vec::new(),
            compute: Vec::new(),
            port: Vec::new(),
            vfio_user: Vec::new(),
        }
    }

    fn following(&self, new: &SubsystemPlan) -> SubsystemPlan {
        let there = |nsid| self.namespace.iter().find(move |namespace| namespace.nsid == nsid);
        let namespace = new.namespace.iter().map(|new| {
            let NamespacePlan { iops, bandwidth, near_data_cpu, .. } = *new;
            NamespacePlan { iops, bandwidth, near_data_cpu, ..there(new.nsid).unwrap_or(new).clone() }
        });
        SubsystemPlan {
            serial: self.serial.clone(),
            near_data_socket: self.near_data_socket.clone(),
            vfio_user: self.vfio_user.clone(),
            compute: self.compute.clone(),
            namespace: namespace.collect(),
            ..new.clone()
        }
    }

    /// What may be had in a second, by whom.
    pub fn quotas(&self) -> impl Iterator<Item = (Whom, Quota)> {
        let namespaces = self.namespace.iter().map(|of| (Whom::Namespace(of.nsid), of.quota()));
        namespaces.chain(self.host.iter().map(|of| (Whom::Host(of.nqn.clone()), of.quota())))
    }

    /// The hosts that may connect; `None`: all.
    pub fn hosts(&self) -> Option<Vec<String>> {
        let keyed = self.host.iter().filter(|host| host.is_keyed()).map(|host| host.nqn.clone());
        self.allow_hosts.clone().or_else(|| Some(keyed.collect()).filter(|all: &Vec<String>| !all.is_empty()))
    }
}

/// All that is served.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Plan {
    /// What `nearside status` calls the server.
    pub name: Option<String>,
    #[serde(default)]
    pub listen: Vec<String>,
    #[serde(default)]
    pub discovery: Vec<String>,
    /// In the order of `listen` and then `discovery`: what hosts are told in their place.
    #[serde(default)]
    pub advertise: Vec<String>,
    pub metrics: Option<String>,
    /// The page, and OpenMetrics.
    pub http: Option<String>,
    pub control: Option<PathBuf>,
    #[serde(default = "threads")]
    pub threads: usize,
    /// Threads of near-data work; none: as many as the machine allows.
    pub near_data_threads: Option<usize>,
    /// Unless NEARSIDE_LOG says it.
    pub log: Option<Level>,
    /// Whoever reaches an address may come, also from beyond this machine.
    #[serde(default)]
    pub open: bool,
    /// Programs that hosts bring are run.
    #[serde(default)]
    pub programs: bool,
    /// Rules of YARA that hosts bring are matched.
    #[serde(default)]
    pub rules: bool,
    #[serde(default)]
    pub tls: Tls,
    /// The kernel encrypts, where it can.
    #[serde(default)]
    pub kernel_tls: bool,
    pub subsystem: Vec<SubsystemPlan>,
}

fn threads() -> usize {
    1
}

impl Plan {
    /// From the command line, or from the file that it names, without a fault.
    pub fn of(args: &ServeArgs) -> Result<Plan, String> {
        let plan = Plan::read(args)?;
        plan.check()?;
        Ok(plan)
    }

    /// From a file's text, where relative paths are meant from the file's folder.
    pub fn parsed(path: &Path, text: &str) -> Result<Plan, String> {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        // The error quotes the line, which may hold a key that is there by mistake.
        let mut plan: Plan = toml::from_str(text).map_err(|e| failed(&logs::redacted(&e.to_string())))?;
        let path = std::path::absolute(path).map_err(|e| failed(&e))?;
        plan.within(path.parent().unwrap_or(&path));
        Ok(plan)
    }

    /// From the command line, or from the file that it names, where relative paths are meant from the file's
    /// folder. The flags beside `--config` that the file does not say hold.
    pub fn read(args: &ServeArgs) -> Result<Plan, String> {
        let mut plan = match &args.config {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
                Plan::parsed(path, &text)?
            }
            None if ![0, args.store.len()].contains(&args.log_writes.len()) => {
                let (logs, stores) = (args.log_writes.len(), args.store.len());
                return Err(format!(
                    "{logs} times --log-writes and {stores} times --store: one for each, in order"
                ));
            }
            None => Plan::of_flags(args),
        };
        if plan.listen.is_empty() {
            plan.listen.clone_from(&args.listen);
        }
        // Who asked for another door only has no other.
        if plan.listen.is_empty() && plan.subsystem.iter().all(|subsystem| subsystem.vfio_user.is_empty()) {
            plan.listen.push(super::LISTEN.to_owned());
        }
        if plan.advertise.is_empty() {
            plan.advertise.clone_from(&args.advertise);
        }
        plan.name = plan.name.or_else(|| args.name.clone());
        plan.metrics = plan.metrics.or_else(|| args.metrics.clone());
        plan.http = plan.http.or_else(|| args.http.clone());
        plan.control = plan.control.or_else(|| args.control.clone());
        plan.near_data_threads = plan.near_data_threads.or(args.near_data_threads.map(usize::from));
        Ok(plan)
    }

    /// Makes relative paths absolute: they are meant from `folder`.
    pub fn within(&mut self, folder: &Path) {
        let at = |path: &mut PathBuf| *path = folder.join(&*path);
        self.control.iter_mut().for_each(at);
        for subsystem in &mut self.subsystem {
            subsystem.near_data_socket.iter_mut().for_each(at);
            subsystem.vfio_user.iter_mut().map(|function| &mut function.socket).for_each(at);
            for host in &mut subsystem.host {
                let files = [&mut host.key_file, &mut host.controller_key_file, &mut host.tls_key_file];
                let files = files.into_iter().flatten();
                files.filter(|path| nearside_auth::in_keyring(path).is_none()).for_each(at);
            }
            for namespace in &mut subsystem.namespace {
                namespace.store = AnyStore::word_from(folder, &namespace.store);
                namespace.log_writes.iter_mut().chain(&mut namespace.reservations).for_each(at);
            }
        }
    }

    /// Whether a connection may have to be encrypted.
    pub fn wants_tls(&self) -> bool {
        let mut hosts = self.subsystem.iter().flat_map(|subsystem| &subsystem.host);
        self.tls != Tls::Allowed || hosts.any(|host| host.tls_key_file.is_some())
    }

    /// Where whoever comes may have which subsystem: addresses beyond this machine, and names.
    pub fn open_to_all(&self) -> impl Iterator<Item = (SocketAddr, &str)> {
        let beyond: Vec<SocketAddr> = self.addresses().unwrap_or_default();
        let beyond = beyond.into_iter().filter(|address| !address.ip().to_canonical().is_loopback());
        let open = || self.subsystem.iter().filter(|subsystem| subsystem.hosts().is_none());
        beyond.flat_map(move |address| open().map(move |subsystem| (address, subsystem.nqn.as_str())))
    }

    /// The sockets that are made for it.
    pub fn sockets(&self) -> impl Iterator<Item = &Path> {
        let of_subsystems = self.subsystem.iter().flat_map(|subsystem| {
            let functions = subsystem.vfio_user.iter().map(|function| &function.socket);
            functions.chain(&subsystem.near_data_socket)
        });
        self.control.iter().chain(of_subsystems).map(PathBuf::as_path)
    }

    /// The subsystem of that name.
    pub fn named(&self, nqn: &str) -> Option<&SubsystemPlan> {
        self.subsystem.iter().find(|subsystem| subsystem.nqn == nqn)
    }

    /// The subsystem of that name; without one, the only one.
    pub fn the_mut(&mut self, nqn: Option<&str>) -> Result<&mut SubsystemPlan, String> {
        match (nqn, &mut self.subsystem[..]) {
            (None, [only]) => Ok(only),
            (None, []) => Err("there is no subsystem".into()),
            (None, _) => Err("there are several subsystems: --subsystem says which".into()),
            (Some(nqn), all) => {
                let found = all.iter_mut().find(|subsystem| subsystem.nqn == nqn);
                found.ok_or_else(|| changes::no_subsystem(nqn))
            }
        }
    }

    /// This plan with what of another can follow while it is served: all of that one, but what is settled
    /// when a server, a subsystem or a namespace begins.
    pub fn following(&self, new: &Plan) -> Plan {
        let subsystem = new
            .subsystem
            .iter()
            .map(|new| self.named(&new.nqn).map_or(new.clone(), |old| old.following(new)));
        Plan {
            name: self.name.clone(),
            metrics: self.metrics.clone(),
            http: self.http.clone(),
            control: self.control.clone(),
            threads: self.threads,
            near_data_threads: self.near_data_threads,
            programs: self.programs,
            rules: self.rules,
            kernel_tls: self.kernel_tls,
            subsystem: subsystem.collect(),
            ..new.clone()
        }
    }

    fn of_flags(args: &ServeArgs) -> Plan {
        let nqn = args.subsystem.clone().unwrap_or_else(|| names::subsystem(&args.store[0]));
        let identity = match args.squash {
            Some(Squash(uid, gid)) => Identity::SquashAll { uid, gid },
            None if args.trust => Identity::Trust,
            None if args.refuse_near_data => Identity::Refuse,
            None => NOBODY,
        };
        let mut logs = args.log_writes.iter().cloned();
        let function = |socket: &PathBuf| FunctionPlan {
            socket: socket.clone(),
            doorbells: args.vfio_user_doorbells,
            threads: args.threads,
            namespaces: None,
            identity: None,
        };
        let namespaces = args.store.iter().zip(1..).map(|(store, nsid)| NamespacePlan {
            nsid,
            store: store.clone(),
            block_size: args.block_size,
            read_only: args.read_only,
            shared_image: args.in_use.shared_image,
            risk_corruption: args.in_use.risk_corruption,
            allow_unrecovered: args.allow_unrecovered,
            log_writes: logs.next(),
            reservations: None,
            ana_group: ana_group(),
            iops: None,
            bandwidth: None,
            near_data_cpu: None,
        });
        // Behind those of the stores.
        let behind = args.store.len() as u32 + 1;
        let compute = args.compute.into_iter();
        let compute = compute.map(|memory| ComputePlan { nsid: behind + 1, memory_nsid: behind, memory });
        let subsystem = SubsystemPlan {
            nqn,
            serial: None,
            allow_hosts: (!args.allow_host.is_empty()).then(|| args.allow_host.clone()),
            hashes: None,
            dh_groups: None,
            identity: Word(identity),
            host: Vec::new(),
            namespace: namespaces.collect(),
            compute: compute.collect(),
            port: Vec::new(),
            vfio_user: args.vfio_user.iter().map(function).collect(),
            near_data_socket: args.near_data_socket.clone(),
        };
        Plan {
            name: None,
            listen: args.listen.clone(),
            discovery: args.discovery.clone(),
            advertise: args.advertise.clone(),
            metrics: None,
            http: None,
            control: None,
            threads: args.threads,
            near_data_threads: None,
            log: None,
            open: args.open,
            programs: args.programs,
            rules: args.rules,
            tls: Tls::default(),
            kernel_tls: false,
            subsystem: vec![subsystem],
        }
    }

    fn check(&self) -> Result<(), String> {
        let faults = check::of_plan(self);
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
    }

    /// Words for where hosts are awaited, with the port that is meant where one says none.
    pub fn listened(&self) -> impl Iterator<Item = (&str, u16)> {
        let hosts = self.listen.iter().map(|address| (address.as_str(), PORT));
        hosts.chain(self.discovery.iter().map(|address| (address.as_str(), DISCOVERY_PORT)))
    }

    /// Where hosts are awaited.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        self.listened().map(|(address, port)| resolve(address, port)).collect()
    }

    /// What hosts are told in the place of the first, second and so on of [`Plan::addresses`];
    /// without a port, with that one's.
    pub fn advertised(&self) -> Result<Vec<SocketAddr>, String> {
        let addresses = self.addresses()?;
        if self.advertise.len() > addresses.len() {
            let (told, heard) = (self.advertise.len(), addresses.len());
            return Err(format!(
                "{told} addresses are advertised and {heard} listened at: one for each, in order"
            ));
        }
        let all = self.advertise.iter().zip(&addresses);
        all.map(|(told, at)| {
            let told_at = resolve(told, at.port())?;
            if told_at.ip().is_unspecified() {
                return Err(format!("{told:?} is no address that a host could connect to"));
            }
            Ok(told_at)
        })
        .collect()
    }
}

/// `HOST[:PORT]`, `[IPV6]:PORT`.
pub fn resolve(address: &str, port: u16) -> Result<SocketAddr, String> {
    let found = address.to_socket_addrs().or_else(|_| (address, port).to_socket_addrs());
    let first = found.map_err(|e| format!("{address:?}: {e}"))?.next();
    first.ok_or_else(|| format!("{address:?} is no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        listen = ["127.0.0.1", "[::1]:4421"]
        discovery = ["127.0.0.1"]
        metrics = "127.0.0.1:9100"
        threads = 2
        near-data-threads = 3

        [[subsystem]]
        nqn = "nqn.2026-11.example:a"
        allow-hosts = ["nqn.2026-11.example:host"]
        [[subsystem.host]]
        nqn = "nqn.2026-11.example:host"
        identity = "trust"
        [[subsystem.namespace]]
        nsid = 1
        store = "dram:1GiB"
        [[subsystem.namespace]]
        nsid = 7
        store = "file:/srv/disk.img"
        block-size = 4096
        read-only = true
        [[subsystem.namespace]]
        nsid = 8
        store = "dram:1GiB"
        log-writes = "/srv/8.log"
        [[subsystem.vfio-user]]
        socket = "/run/vm1.sock"
        namespaces = [7]
        [[subsystem.vfio-user]]
        socket = "/run/vm2.sock"
        doorbells = "mapped"
        threads = 2
        identity = "trust"
    "#;

    #[test]
    fn a_file_says_it_all() {
        let plan: Plan = toml::from_str(FILE).unwrap();
        plan.check().unwrap();
        let addresses: Vec<String> = plan.addresses().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1:4420", "[::1]:4421", "127.0.0.1:8009"]);
        let subsystem = &plan.subsystem[0];
        assert_eq!(
            (subsystem.identity, subsystem.host[0].identity),
            (Word(NOBODY), Some(Word(Identity::Trust)))
        );
        assert_eq!((subsystem.namespace[0].block_size, subsystem.namespace[1].nsid), (512, 7));
        let logs = subsystem.namespace.iter().map(|namespace| namespace.log_writes.as_deref());
        assert_eq!(logs.collect::<Vec<_>>(), [None, None, Some(std::path::Path::new("/srv/8.log"))]);
        assert_eq!(plan.advertised(), Ok(vec![]));
        let namespaces = subsystem.vfio_user.iter().map(|f| f.namespaces.clone());
        assert_eq!(namespaces.collect::<Vec<_>>(), [Some([7].into()), None]);
        let functions: Vec<_> =
            subsystem.vfio_user.iter().map(|f| (f.doorbells, f.threads, f.identity)).collect();
        let trusted = Some(Word(Identity::Trust));
        assert_eq!(functions, [(Doorbells::Trapped, 1, None), (Doorbells::Mapped, 2, trusted)]);
        let advertise = |words: &str| {
            let text = FILE.replacen("metrics =", &format!("advertise = [{words}]\nmetrics ="), 1);
            toml::from_str::<Plan>(&text).unwrap()
        };
        let told = advertise("'192.0.2.7', '[2001:db8::1]:99'").advertised().unwrap();
        assert_eq!(
            told.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["192.0.2.7:4420", "[2001:db8::1]:99"]
        );
        for (words, says) in
            [("'1.1.1.1', '1.1.1.2', '1.1.1.3', '1.1.1.4'", "4 addresses"), ("'0.0.0.0'", "no address")]
        {
            assert!(advertise(words).check().unwrap_err().contains(says), "{words}");
        }
        for (from, to, says) in [
            ("\n        threads = 2", "\n        threads = 99", "99 threads"),
            ("near-data-threads = 3", "near-data-threads = 17", "17 threads of near-data"),
            ("threads = 2\n        identity", "threads = 0\n        identity", "0 threads for /run/vm2.sock"),
            ("namespaces = [7]", "namespaces = [7, 0]", "namespace 0 for /run/vm1.sock"),
            ("nqn.2026-11.example:a", "example", "example"),
            ("127.0.0.1\", \"[::1]", "127.0.0.1:99999\", \"[::1]", "99999"),
        ] {
            let plan: Plan = toml::from_str(&FILE.replacen(from, to, 1)).unwrap();
            assert!(plan.check().unwrap_err().contains(says), "{to}");
        }
        for (from, to) in [("trust", "believe"), ("read-only", "readonly")] {
            assert!(toml::from_str::<Plan>(&FILE.replacen(from, to, 1)).is_err(), "{to}");
        }
    }

    #[test]
    fn identities() {
        let word = |s: &str| Word::try_from(s.to_owned()).map(|w| w.0);
        assert_eq!(word("squash 7:8"), Ok(Identity::SquashAll { uid: 7, gid: 8 }));
        assert_eq!(word("squash-root"), Ok(NOBODY));
        assert!(word("squash 7").is_err() && word("squash").is_err());
    }
}
