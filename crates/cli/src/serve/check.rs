//! What is wrong with a plan: every fault, not the first alone. Nothing is bound, made, locked or opened for
//! writing.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nearside_device::throttle::Quota;
use nearside_device::{MAX_ANA_GROUP, MAX_NSID};
use nearside_embedded::AnyStore;
use nearside_spec::fabrics::nqn;
use nearside_store::{Backing, FileOptions};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::plan::{
    ComputePlan, FunctionPlan, MemorySize, NamespacePlan, PERCENT_NS, Plan, SubsystemPlan, resolve,
};
use super::ports;
use super::reservations;
use super::secrets;
use super::{HTTP_PORT, METRICS_PORT};

/// Threads that serve, or do near-data work, at most.
const MOST_THREADS: usize = 16;
/// What may be had in a second, at most: commands, bytes (1 PiB), percent of a processor.
const MOST_IOPS: u64 = 1_000_000_000;
const MOST_BYTES: u64 = 1 << 50;
const MOST_PERCENT: u64 = 1_600;
/// Bytes of a memory namespace: whole pages, and at most so many.
const PAGE: u64 = 4096;
const MOST_MEMORY: u64 = 1 << 30;
/// Characters of a serial number.
const SERIAL: usize = 20;

/// Faults that were found.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn unless(&mut self, well: bool, fault: impl FnOnce() -> String) {
        if !well {
            self.0.push(fault());
        }
    }

    fn note<T>(&mut self, found: Result<T, String>) {
        self.0.extend(found.err());
    }

    /// What is there more than once.
    fn once<T: Ord + Display>(&mut self, what: &str, all: impl IntoIterator<Item = T>) {
        let (mut seen, mut told) = (BTreeSet::new(), BTreeSet::new());
        for one in all {
            let name = one.to_string();
            if !seen.insert(one) && told.insert(name.clone()) {
                self.0.push(format!("{what} {name} is there more than once"));
            }
        }
    }
}

/// What is wrong with a plan by itself.
pub fn of_plan(plan: &Plan) -> Vec<String> {
    let mut faults = Faults::default();
    let threads = |n: &usize| (1..=MOST_THREADS).contains(n);
    faults.unless(threads(&plan.threads), || format!("{} threads; it can be 1 to 16", plan.threads));
    if let Some(threads) = plan.near_data_threads.filter(|&threads| threads > MOST_THREADS) {
        faults.0.push(format!("{threads} threads of near-data work; it can be 0 to 16"));
    }
    let listened: Vec<_> = plan.listened().map(|(address, port)| resolve(address, port)).collect();
    let metrics = plan.metrics.as_ref().map(|address| resolve(address, METRICS_PORT));
    let http = plan.http.as_ref().map(|address| resolve(address, HTTP_PORT));
    // Port 0 is another one each time.
    let bound = listened.iter().chain(&metrics).chain(&http).flatten().filter(|address| address.port() != 0);
    faults.once("address", bound);
    if listened.iter().all(Result::is_ok) {
        faults.note(plan.advertised());
    }
    let beyond = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
    if let Some(address) = http.iter().flatten().find(beyond).filter(|_| !plan.open) {
        faults.0.push(format!(
            "{address} is beyond this machine, and whoever reaches it may read the page: --open or open = true says \
             that it is meant so"
        ));
    }
    listened.into_iter().chain(metrics).chain(http).for_each(|address| faults.note(address));
    if plan.wants_tls() {
        faults.note(crate::tls::here());
    }
    faults.once("subsystem", plan.subsystem.iter().map(|subsystem| &subsystem.nqn));
    faults.once("socket", plan.sockets().map(|path| path.display().to_string()));
    plan.subsystem.iter().for_each(|subsystem| of_subsystem(subsystem, &mut faults));
    for subsystem in plan.subsystem.iter().filter(|subsystem| !subsystem.compute.is_empty() && !plan.programs)
    {
        let nqn = &subsystem.nqn;
        faults.0.push(format!("{nqn}: a compute namespace runs programs: --programs or programs = true"));
    }
    faults.0.extend(ports::faults(plan));
    for (address, nqn) in plan.open_to_all().filter(|_| !plan.open) {
        faults.0.push(format!(
            "{address} is beyond this machine, and whoever reaches it may have {nqn}: allow-hosts or hosts with keys \
             say who, --open or open = true that it is meant so"
        ));
    }
    faults.0
}

fn of_subsystem(plan: &SubsystemPlan, faults: &mut Faults) {
    let hosts = plan.allow_hosts.iter().flatten().chain(plan.host.iter().map(|host| &host.nqn));
    for name in std::iter::once(&plan.nqn).chain(hosts) {
        faults.note(nqn::check(name).map_err(|e| format!("{name:?}: {e}")));
    }
    let discovery = plan.nqn == nqn::DISCOVERY;
    faults.unless(!discovery, || format!("{:?} is every target's discovery subsystem", plan.nqn));
    if let Some(serial) = &plan.serial {
        let shown = |c: char| c == ' ' || c.is_ascii_graphic();
        let well = (1..=SERIAL).contains(&serial.len()) && serial.chars().all(shown);
        faults.unless(well, || format!("serial {serial:?}: 1 to {SERIAL} printable ASCII characters"));
    }
    faults.once(&format!("{}: host", plan.nqn), plan.host.iter().map(|host| &host.nqn));
    for host in plan.host.iter().filter(|host| host.key_file.is_none() && host.controller_key_file.is_some())
    {
        faults.0.push(format!("{}: {}: controller-key-file is beside key-file", plan.nqn, host.nqn));
    }
    let of_namespaces = plan.namespace.iter().map(|of| (format!("namespace {}", of.nsid), of.quota()));
    for (whose, quota) in of_namespaces.chain(plan.host.iter().map(|of| (of.nqn.clone(), of.quota()))) {
        quotas(&format!("{}: {whose}", plan.nqn), &quota, faults);
    }
    let (hashes, groups) = (plan.hashes.as_ref().map(Vec::len), plan.dh_groups.as_ref().map(Vec::len));
    for (what, _) in [("hashes", hashes), ("dh-groups", groups)].iter().filter(|(_, len)| *len == Some(0)) {
        faults.0.push(format!("{}: {what} has none", plan.nqn));
    }
    let of_compute = plan.compute.iter().flat_map(|compute| [compute.memory_nsid, compute.nsid]);
    let nsids = plan.namespace.iter().map(|namespace| namespace.nsid).chain(of_compute.clone());
    faults.once(&format!("{}: namespace", plan.nqn), nsids);
    for nsid in of_compute.filter(|nsid| !(1..=MAX_NSID).contains(nsid)) {
        faults.0.push(format!("namespace {nsid} of {}: it can be 1 to {MAX_NSID}", plan.nqn));
    }
    for ComputePlan { nsid, memory: MemorySize(bytes), .. } in &plan.compute {
        let well = (PAGE..=MOST_MEMORY).contains(bytes) && bytes.is_multiple_of(PAGE);
        faults.unless(well, || {
            format!(
                "compute {nsid} of {}: memory of {bytes} bytes; it can be whole pages of 4KiB, up to 1GiB",
                plan.nqn
            )
        });
    }
    for namespace in &plan.namespace {
        let NamespacePlan { nsid, block_size, ana_group, .. } = namespace;
        let named = |why: String| format!("namespace {nsid} of {}: {why}", plan.nqn);
        faults.unless((1..=MAX_NSID).contains(nsid), || named(format!("it can be 1 to {MAX_NSID}")));
        let well = (1..=MAX_ANA_GROUP).contains(ana_group);
        faults.unless(well, || named(format!("ana-group {ana_group}; it can be 1 to {MAX_ANA_GROUP}")));
        let known = matches!(block_size, 512 | 4096);
        faults.unless(known, || named(format!("a block has 512 or 4096 bytes, not {block_size}")));
        faults.note(namespace.beside().map_err(named));
        let logged = namespace.log_writes.is_some() && namespace.read_only;
        faults.unless(!logged, || named("log-writes is for a namespace that is written".into()));
    }
    for FunctionPlan { socket, namespaces, threads, .. } in &plan.vfio_user {
        let socket = socket.display();
        for nsid in namespaces.iter().flatten().filter(|nsid| !(1..=MAX_NSID).contains(*nsid)) {
            faults.0.push(format!("namespace {nsid} for {socket}; it can be 1 to {MAX_NSID}"));
        }
        let well = (1..=MOST_THREADS).contains(threads);
        faults.unless(well, || format!("{threads} threads for {socket}; it can be 1 to 16"));
    }
}

fn quotas(whose: &str, quota: &Quota, faults: &mut Faults) {
    for (key, value, most) in [
        ("iops", quota.commands, MOST_IOPS),
        ("bandwidth", quota.bytes, MOST_BYTES),
        ("near-data-cpu", quota.near_data_ns.map(|ns| ns / PERCENT_NS), MOST_PERCENT),
    ] {
        let well = value.is_none_or(|value| (1..=most).contains(&value));
        faults.unless(well, || format!("{whose}: {key} {}; it can be 1 to {most}", value.unwrap_or(0)));
    }
}

/// What is wrong on this machine with what a plan names: keys, stores, write logs, sockets.
pub fn of_machine(plan: &Plan) -> Vec<String> {
    let mut faults = Faults::default();
    // Files by device and inode: who writes one has it alone.
    let (mut files, mut written) = (Vec::new(), BTreeSet::new());
    for subsystem in &plan.subsystem {
        faults.note(secrets::of_hosts(subsystem));
        for namespace in &subsystem.namespace {
            let named = |why: String| format!("namespace {} of {}: {why}", namespace.nsid, subsystem.nqn);
            match store(namespace) {
                Ok(Some((identity, writes))) => {
                    files.push((identity, named(namespace.store.clone())));
                    written.extend(writes.then_some(identity));
                }
                Ok(None) => {}
                Err(why) => faults.0.push(named(why)),
            }
            if let Some(path) = &namespace.reservations {
                faults.note(reservations::read(path).and_then(|_| made(path)).map_err(named));
            }
            if let Some(path) = &namespace.log_writes {
                faults.note(made(path).map_err(|why| named(format!("write log {}: {why}", path.display()))));
                let there = fs::symlink_metadata(path).is_ok();
                faults.unless(!there, || named(format!("write log {}: it exists", path.display())));
            }
        }
    }
    let kept = plan.subsystem.iter().flat_map(|subsystem| &subsystem.namespace);
    let kept = kept.filter_map(|namespace| namespace.reservations.as_ref());
    let kept: Vec<String> = kept.map(|path| whole(path).display().to_string()).collect();
    faults.once("the reservations of two namespaces", kept.iter());
    let mut seen = BTreeSet::new();
    for (identity, name) in files {
        let alone = seen.insert(identity) || !written.contains(&identity);
        faults
            .unless(alone, || format!("{name}: another namespace has that file, and one of them writes it"));
    }
    for path in plan.sockets() {
        faults.note(socket(path).map_err(|why| format!("socket {}: {why}", path.display())));
    }
    faults.0
}

/// A path by which a file is told from others, also one that is not there yet.
fn whole(path: &Path) -> PathBuf {
    let folder = path.parent().map(|folder| if folder == Path::new("") { Path::new(".") } else { folder });
    let beside = || Some(folder?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(beside).unwrap_or_else(|| path.to_owned())
}

/// A file's device and inode.
type Identity = (u64, u64);

/// The file that a namespace's bytes lie in, where it is one, and whether it is written.
fn store(plan: &NamespacePlan) -> Result<Option<(Identity, bool)>, String> {
    let (backing, path) = AnyStore::named(&plan.store).map_err(|e| e.to_string())?;
    let Some(path) = path else {
        let options = FileOptions { block_size: plan.block_size, ..FileOptions::read() };
        return AnyStore::open(&plan.store, options).map(|_| None).map_err(|e| e.to_string());
    };
    let failed = |e: &dyn Display| format!("{}: {e}", path.display());
    let metadata = fs::metadata(&path).map_err(|e| failed(&e))?;
    let kind = metadata.file_type();
    let device_dax = backing == Backing::MappedFile && kind.is_char_device();
    if !kind.is_file() && !kind.is_block_device() && !device_dax {
        return Err(failed(&"neither a regular file nor a block device"));
    }
    // What is read into memory once is nobody's afterwards.
    let stays = backing != Backing::Memory;
    let is_image = matches!(backing, Backing::Qcow2 | Backing::LogicalVolume);
    let writes = stays && !is_image && !plan.read_only;
    let how = if writes { Access::READ_OK | Access::WRITE_OK } else { Access::READ_OK };
    accessat(CWD, path.as_path(), how, AtFlags::EACCESS).map_err(|e| failed(&e))?;
    if kind.is_file() && metadata.len() < u64::from(plan.block_size) {
        return Err(failed(&format!("it has {} bytes: not one block", metadata.len())));
    }
    Ok(stays.then_some(((metadata.dev(), metadata.ino()), writes)))
}

/// Whether something can be made at `path`.
fn made(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let how = Access::WRITE_OK | Access::EXEC_OK;
    match fs::metadata(folder) {
        Ok(there) if there.is_dir() => accessat(CWD, folder, how, AtFlags::EACCESS),
        Ok(_) => Err(rustix::io::Errno::NOTDIR),
        Err(e) => return Err(format!("{}: {e}", folder.display())),
    }
    .map_err(|e| format!("{}: {e}", folder.display()))
}

/// Whether a socket can be made at `path`; who serves one that is there is not asked.
fn socket(path: &Path) -> Result<(), String> {
    made(path)?;
    std::os::unix::net::SocketAddr::from_pathname(path).map_err(|e| e.to_string())?;
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => Err("it exists and is no socket".into()),
        _ => Ok(()),
    }
}
