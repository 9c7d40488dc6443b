//! `nearside serve`: a drive on the network, as an NVMe/TCP target, and in virtual machines' PCIe slots.
//!
//! Flags or a file become a [`plan::Plan`]; [`drive::ServedDrive`] opens its stores and offers its
//! subsystems; then the target's threads serve until a signal ends them. SIGHUP has the file read again.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use nearside_dma::system::Termination;
use nearside_embedded::models_help;

use crate::failure::{Failure, Outcome, complain};
use crate::in_use::InUse;
use crate::logs::Logs;
use crate::out;

mod activated;
pub mod beacon;
pub mod changes;
mod check;
pub mod control;
#[cfg(test)]
mod documents;
mod drive;
mod history;
mod http;
mod limits;
mod listener;
mod metrics;
mod names;
mod notify;
mod page;
pub mod plan;
pub mod ports;
mod reload;
mod reservations;
mod running;
pub mod save;
mod secrets;
mod sizes;

use activated::Activated;
use notify::Manager;
use running::Running;

const EXAMPLES: &str = "\
Examples:
  nearside serve --store dram:4GiB --listen 127.0.0.1:4420
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n NQN        # as it is printed
  nearside grep -d nvme+tcp://127.0.0.1:4420/NQN/1 -r ERROR /var/log
  nearside serve --store file:disk.img --vfio-user vm1.sock --near-data-socket drive.sock   # prints what QEMU is given
  nearside serve --store dram:4GiB --listen 127.0.0.1:4420 --advertise 192.0.2.7:14420   # port 14420 there is forwarded to here
  nearside serve --store file:disk.img --print-config    # the same as a file, to begin with (docs/SERVE.md)
  nearside serve --store dram:4GiB --http 127.0.0.1:9421 # with a page of what it does, and OpenMetrics
  nearside serve --config serve.toml --check             # every fault of it, and nothing is touched

Hosts are believed as to who asks for near-data work, but for root, which is taken for nobody (65534:65534): --trust believes
it as well, --squash UID:GID takes every user for one, --refuse-near-data answers none. SIGINT and SIGTERM end the server: what was
taken is finished and made durable first. SIGHUP has it read the file again: who may come, and how much it says, follow at once.
NEARSIDE_LOG=info says on standard error who comes and goes.";

/// What a file says of each subsystem or namespace: flags that nobody would look at.
const NOT_BESIDE_A_FILE: [&str; 21] = [
    "store",
    "vfio_user",
    "vfio_user_doorbells",
    "near_data_socket",
    "subsystem",
    "allow_host",
    "open",
    "programs",
    "compute",
    "rules",
    "discovery",
    "read_only",
    "shared_image",
    "risk_corruption",
    "allow_unrecovered",
    "log_writes",
    "block_size",
    "threads",
    "trust",
    "squash",
    "refuse_near_data",
];

/// Serve a drive to hosts on the network, as an NVMe/TCP target, and to virtual machines, as a PCIe function
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(&format!("{EXAMPLES}\n\n{}", models_help())))]
pub struct ServeArgs {
    /// What holds a namespace's bytes: file:PATH (an image or a block device), pmem:PATH (persistent
    /// memory, mapped: a file on a DAX file system or in /dev/shm, or /dev/daxX.Y), qcow2:PATH (a disk image,
    /// read-only; with ?snapshot=NAME behind it as it was then), lvm:PATH?volume=VG/LV (a logical volume of
    /// an image, also lvm:qcow2:PATH?volume=VG/LV, or of a block device, read-only), dram:SIZE or dram:IMAGE,
    /// or model:NAME:SIZE, a device with its own response times (listed below).
    /// Given several times: namespaces 1, 2 and so on
    #[arg(long, value_name = "STORE", required_unless_present = "config")]
    store: Vec<String>,
    /// Where hosts are awaited; port 4420 unless given [default: 127.0.0.1:4420; with --vfio-user none]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// A socket at which a virtual machine (QEMU's vfio-user-pci), or another process, finds the drive as an
    /// NVMe PCIe function: for one client at a time, of this user or root. Given several times: several
    /// functions
    #[arg(long, value_name = "PATH")]
    vfio_user: Vec<PathBuf>,
    /// How clients of --vfio-user write doorbells. trapped: by messages, which shadow doorbells spare while
    /// there is work; an idle client costs nothing. mapped: into shared memory, for clients that do not know
    /// shadow doorbells; each thread of the function takes a core for as long as a client is connected
    #[arg(long, value_name = "WORD", value_enum, default_value_t = plan::Doorbells::Trapped)]
    vfio_user_doorbells: plan::Doorbells,
    /// A socket at which processes of this machine ask for near-data work on namespace 1, each user for what
    /// is its own: `nearside grep -d unix:PATH`
    #[arg(long, value_name = "PATH")]
    near_data_socket: Option<PathBuf>,
    /// The subsystem's name [default: made from this machine and the first store]
    #[arg(long, value_name = "NQN")]
    subsystem: Option<String>,
    /// A host that may connect, by its name; without any, all may
    #[arg(long, value_name = "NQN")]
    allow_host: Vec<String>,
    /// Let whoever reaches an address beyond this machine connect, where no hosts are named
    #[arg(long)]
    open: bool,
    /// Run programs that hosts bring (nearside run), bounded in time and memory; without it they are refused
    #[arg(long)]
    programs: bool,
    /// A compute namespace and, before it, a memory namespace of so many bytes, behind those of the stores:
    /// hosts run programs over that memory by NVMe's own commands (Computational Programs, Subsystem Local
    /// Memory; docs/PROGRAMS.md). Needs --programs
    #[arg(long, value_name = "BYTES")]
    compute: Option<plan::MemorySize>,
    /// Match rules of YARA that hosts bring (nearside yara): for hosts that you trust, since rules may take
    /// much time and memory; without it they are refused
    #[arg(long)]
    rules: bool,
    /// Another address for discovery; port 8009 unless given. Every address answers it
    #[arg(long, value_name = "ADDR")]
    discovery: Vec<String>,
    /// What hosts that ask discovery are told in the place of the address listened at, as
    /// behind a port forward; its port unless given. Given several times: for each
    /// --listen, then each --discovery, in order
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Vec<String>,
    /// All of this, several subsystems and more, from a file (docs/SERVE.md). Relative paths in it are meant
    /// from its folder
    #[arg(long, value_name = "FILE", conflicts_with_all = NOT_BESIDE_A_FILE)]
    config: Option<PathBuf>,
    /// Say every fault of what is asked for (the file, and the stores and sockets that it names), and end:
    /// with 2 where there is one. Nothing is bound, made or locked
    #[arg(long)]
    check: bool,
    /// Print what is asked for as such a file, and end
    #[arg(long, conflicts_with = "check")]
    print_config: bool,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    in_use: InUse,
    /// Give what lies in blocks of a volume to every user whom modes allow it, also where freed
    /// blocks may be another file's: mounted without a journal, or with data=writeback.
    /// Without this, only root has content there
    #[arg(long)]
    allow_unrecovered: bool,
    /// Log every write, discard and flush to a new file, in the order in which they are done and in
    /// the format of Linux's dm-log-writes: `nearside writes` lists it and makes images of any
    /// instant. A log that finds no room ends; the server goes on, and exits with status 2.
    /// Given for each --store, in order
    #[arg(long, value_name = "FILE")]
    log_writes: Vec<PathBuf>,
    /// Bytes of a logical block
    #[arg(long, value_name = "512|4096", default_value_t = 512)]
    block_size: u32,
    /// Threads that serve
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Threads of near-data work's own; 0: it runs between the I/O of the threads that serve [default:
    /// half of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=16))]
    near_data_threads: Option<u8>,
    /// Believe hosts that root asks, where they say so
    #[arg(long, group = "identity")]
    trust: bool,
    /// Take whoever asks for this user with this group
    #[arg(long, value_name = "UID:GID", group = "identity")]
    squash: Option<plan::Squash>,
    /// OpenMetrics at this address
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// At this address a page that shows what the server does, and OpenMetrics at /metrics; port 9421 unless
    /// given. It can be read, and nothing can be changed. Beyond this machine it needs --open
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// What `nearside status` calls the server [default: its port]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where `nearside status` and `nearside control` find the server [default:
    /// nearside-PORT.sock in XDG_RUNTIME_DIR or /run]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Answer no near-data requests
    #[arg(long, group = "identity")]
    refuse_near_data: bool,
}

/// Where hosts are awaited unless it is said, or no host but a client of a function is.
const LISTEN: &str = "127.0.0.1:4420";
/// Where metrics are asked for unless a port is said, and the page.
const METRICS_PORT: u16 = 9420;
const HTTP_PORT: u16 = 9421;

/// The control socket. Where none was asked for and none can be made, the server goes without, and says so.
fn control_socket(
    plan: &plan::Plan,
    port: u16,
    running: Arc<Running>,
    lines: &mut Vec<String>,
) -> Result<Option<control::Control>, Failure> {
    let usual = beacon::usual_path(port);
    match control::Control::start(plan.control.as_ref().unwrap_or(&usual), running) {
        Ok(control) => {
            let name = plan.name.clone().unwrap_or(port.to_string());
            if let Err(error) = beacon::start(control.path(), &name) {
                tracing::warn!(%error, "`nearside status` does not find this server by itself");
            }
            Ok(Some(control))
        }
        Err(why) if plan.control.is_some() => Err(Failure::Message(why)),
        Err(why) => {
            lines.push(format!("no control socket: {why}"));
            Ok(None)
        }
    }
}

/// What is shown by HTTP.
fn sites(plan: &plan::Plan, drive: &mut drive::ServedDrive) -> Result<(), String> {
    let seen = drive.seen().clone();
    if let Some(address) = &plan.metrics {
        let site = http::Site { seen: seen.clone(), history: None };
        http::start(plan::resolve(address, METRICS_PORT)?, site)?;
    }
    if let Some(address) = &plan.http {
        let history = history::History::start(seen.clone()).map_err(|e| e.to_string())?;
        let site = http::Site { seen, history: Some(history) };
        let at = http::start(plan::resolve(address, HTTP_PORT)?, site)?;
        drive.note(format!("what it does: http://{at}/"));
    }
    Ok(())
}

/// Says what is wrong with what is asked for, all of it.
fn say_faults(args: &ServeArgs) -> Outcome {
    let plan = plan::Plan::read(args)?;
    let faults = [check::of_plan(&plan), check::of_machine(&plan)].concat();
    faults.iter().for_each(|fault| complain(fault));
    if !faults.is_empty() {
        return Ok(2);
    }
    let what = args.config.as_ref().map_or("what is asked for".into(), |path| path.display().to_string());
    out::announce(&[format!("{what}: no fault")])?;
    Ok(0)
}

/// Prints what is asked for as a file, which may lie anywhere.
fn print_config(args: &ServeArgs) -> Outcome {
    let mut plan = plan::Plan::of(args)?;
    plan.within(&std::env::current_dir().map_err(|e| e.to_string())?);
    let text = toml::to_string(&plan).map_err(|e| e.to_string())?;
    out::announce(&[text.trim_end().to_owned()])?;
    Ok(0)
}

pub fn run(args: ServeArgs) -> Outcome {
    let words = |e: &dyn std::fmt::Display| Failure::Message(e.to_string());
    let mut termination = Termination::new().map_err(|e| words(&e))?;
    if args.check {
        return say_faults(&args);
    }
    if args.print_config {
        return print_config(&args);
    }
    let plan = plan::Plan::of(&args).map_err(Failure::Message)?;
    let handed = Activated::take(&plan).map_err(Failure::Message)?;
    if plan.programs && !crate::run::install() {
        return Err(Failure::Message("programs: this build runs none (its feature \"wasm\")".into()));
    }
    if plan.rules && !crate::yara::install() {
        return Err(Failure::Message("rules: this build matches none (its feature \"yara\")".into()));
    }
    let logs = Logs::begin(plan.log.map(|level| level.0))?;
    let manager = Manager::find();
    let mut drive = drive::ServedDrive::start(&plan, handed).map_err(Failure::Message)?;
    sites(&plan, &mut drive)?;
    sizes::watch(drive.target()).map_err(|e| words(&e))?;
    let names: Vec<&str> = plan.subsystem.iter().map(|subsystem| subsystem.nqn.as_str()).collect();
    let serving = format!("serving {}", names.join(", "));
    let (mut lines, port) = (drive.lines(), drive.port());
    let running = Running::new(args, logs, plan.clone(), drive);
    let _control = control_socket(&plan, port, running.clone(), &mut lines)?;
    out::announce(&lines)?;
    manager.tell("READY=1", &serving);
    let signal = loop {
        match termination.wait().map_err(|e| words(&e))? {
            "SIGHUP" => {
                manager.tell("RELOADING=1", "reading its file again");
                let said = reload::reload(&running);
                manager.tell("READY=1", said.as_deref().unwrap_or(&serving));
            }
            signal => break signal,
        }
    };
    tracing::info!(signal, "ending");
    manager.tell("STOPPING=1", "ending: what was taken is finished and made durable");
    running.stop().map_err(Failure::Message)?;
    Ok(0)
}
