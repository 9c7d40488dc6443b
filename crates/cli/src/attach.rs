//! `nearside attach`: a drive that stays: its namespace as a file for `mount -o loop`,
//! and a socket for the other commands.
//!
//! The drive runs on threads of its own ([`Loopback::threaded`]);
//! [`nearside_front_fuse::attach`] is its host. Of a drive over the network only blocks pass by a drive of
//! this process's own; near-data work is asked of it ([`far`]).

mod far;

use std::any::Any;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use nearside_clock::TscClock;
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_dma::Function;
use nearside_dma::system::{Termination, lock_memory};
use nearside_driver::Policy;
use nearside_embedded::named::Place;
use nearside_embedded::{AnyStore, Loopback, models_help};
use nearside_firmware as firmware;
use nearside_firmware::Fsr;
use nearside_firmware::Workers;
use nearside_front_fuse::{AttachOptions, Elsewhere, Transport};
use nearside_store::write_log::WriteLog;
use nearside_store::{Beside, FileOptions, Store};

use crate::args::{CompletionModel, HostArgs, RecoveryArgs};
use crate::failure::{Failure, Outcome, complain};
use crate::logs::Logs;
use crate::{in_use, out};

const EXAMPLES: &str = "\
Examples:
  nearside attach --store file:disk.img /run/drive &
  mount -o loop /run/drive/namespace /mnt           # a live host on the drive
  nearside grep -d unix:/run/drive.sock -r ERROR /var/log
  umount /mnt; umount /run/drive                    # ends it
  nearside attach --store file:disk.img --mount /mnt /run/drive     # the same volume, as long as this runs
  nearside attach --store model:optane-prototype:1GiB --loop /run/drive     # its third line: the loop device
  nearside attach --store nvme+tcp://host:4420/NQN --mount /mnt /run/drive  # a drive over the network
  cp disk.img before.img                            # a crash test: what the disk holds, then every write
  nearside attach --store file:disk.img --log-writes disk.log /run/drive &
  nearside writes disk.log --base before.img --at 900 --seed 1 -o crash.img

The socket lies beside the mount point, named MOUNTPOINT.sock, unless --socket says otherwise. SIGINT and SIGTERM end it
as well, once nothing lies on the mount; what --loop and --mount made goes first. A drive over the network is written by one host at a time: after a
lost connection this one writes again what was not flushed. A second signal waits no longer for one that is not reached. Requests come from the kernel by io_uring
where it offers that (`nearside doctor` says whether, and how to turn it on), else by /dev/fuse. NEARSIDE_LOG says how much standard error hears of what goes wrong: error, warn (if
nothing is said), info or debug.";

/// Serve a drive: its namespace as a file, and a socket for the other commands
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(&format!("{EXAMPLES}\n\n{}", models_help())))]
pub struct AttachArgs {
    /// What holds the drive's bytes: file:PATH (an image or a block device), pmem:PATH (persistent memory,
    /// mapped: a file on a DAX file system or in /dev/shm, or /dev/daxX.Y), qcow2:PATH (a disk image,
    /// read-only; with ?snapshot=NAME behind it as it was then), lvm:PATH?volume=VG/LV (a logical volume of
    /// an image or a block device, read-only), dram:SIZE or dram:IMAGE, model:NAME:SIZE, a device with its
    /// own response times (listed below), or nvme+tcp://HOST:PORT/NQN[/NSID], a drive over the network, of
    /// any maker
    #[arg(long, value_name = "STORE")]
    store: String,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    recovery: RecoveryArgs,
    /// Where the socket is made
    #[arg(long, value_name = "PATH")]
    socket: Option<OsString>,
    /// How the host's commands are awaited [default: hybrid where this process may use four cores or more;
    /// else interrupt: a drive and a host that both spin would leave none to who uses them]
    #[arg(long, value_enum, value_name = "MODEL")]
    completion: Option<CompletionModel>,
    /// Which way the kernel's requests come
    #[arg(long, value_enum, default_value = "auto", value_name = "WAY")]
    transport: TransportWay,
    /// Lay a loop device over the namespace, without a cache of its own; it goes when this ends
    #[arg(long = "loop")]
    looped: bool,
    /// Mount the volume on a loop device over the namespace (--loop) there; it is unmounted when this ends
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Bytes of a logical block [default: 512; of a drive over the network its own]
    #[arg(long, value_name = "512|4096")]
    block_size: Option<u32>,
    /// Threads of near-data work's own; 0: it runs between the I/O of the drive's thread [default:
    /// half of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=16))]
    near_data_threads: Option<u8>,
    /// Write to an image although it is mounted or a loop device lies over it:
    /// both write, and what is on it may be destroyed
    #[arg(long)]
    risk_corruption: bool,
    /// Give what lies in blocks of a volume to every user whom modes allow it, also where freed
    /// blocks may be another file's: mounted without a journal, or with data=writeback.
    /// Without this, only root has content there
    #[arg(long)]
    allow_unrecovered: bool,
    /// Log every write, discard and flush to a new file, in the order in which they are done and in
    /// the format of Linux's dm-log-writes: `nearside writes` lists it and makes images of any
    /// instant. A log that finds no room ends; the drive goes on, and exits with status 2
    #[arg(long, value_name = "FILE")]
    log_writes: Option<PathBuf>,
    /// Keep this process's memory from being paged out: for a drive that the kernel pages to, or that must
    /// answer in its time under memory pressure
    #[arg(long)]
    lock_memory: bool,
    /// An empty directory
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
}

/// Which way the kernel's requests come.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TransportWay {
    /// By io_uring where the kernel offers it, else by /dev/fuse
    Auto,
    /// By /dev/fuse
    Classic,
    /// By io_uring, or not at all
    Uring,
}

impl From<TransportWay> for Transport {
    fn from(way: TransportWay) -> Transport {
        match way {
            TransportWay::Auto => Transport::Auto,
            TransportWay::Classic => Transport::Classic,
            TransportWay::Uring => Transport::Uring,
        }
    }
}

pub fn run(args: AttachArgs) -> Outcome {
    let words = |e: &dyn std::fmt::Display| Failure::Message(e.to_string());
    let termination = Termination::new().map_err(|e| words(&e))?;
    Logs::begin(None)?;
    if args.lock_memory {
        lock_memory().map_err(|e| Failure::Message(format!("--lock-memory: {e} (ulimit -l)")))?;
    }
    let Drive { function, elsewhere, capacity, log, rest } = match Place::of(args.store.as_ref())? {
        Place::Network(addresses) => far::drive(&args, &addresses)?,
        _ => here(&args)?,
    };
    let usual = AttachOptions::new(args.mountpoint);
    let options = AttachOptions {
        socket: args.socket.map(PathBuf::from),
        policy: args.completion.map_or(usual.policy, Policy::from),
        transport: args.transport.into(),
        looped: args.looped,
        volume: args.mount,
        elsewhere,
        ..usual
    };
    let attached = nearside_front_fuse::attach(function, &options).map_err(|e| words(&e))?;
    let looped = attached.loop_device().map(|device| device.display().to_string());
    let mut lines = vec![
        format!("{}: {capacity} bytes", attached.file().display()),
        format!("unix:{}", attached.socket().display()),
    ];
    lines.extend(looped);
    lines.push(format!("{}, completion: {}", attached.carrier(), attached.policy().name()));
    out::announce(&lines)?;
    attached.wait(termination).map_err(|e| words(&e))?;
    drop(rest);
    log.and_then(|log| log.trouble()).map_or(Ok(0), |trouble| Err(trouble.into()))
}

/// A drive of this process.
struct Drive {
    function: Function,
    /// Where near-data work is done, if not by it.
    elsewhere: Option<Arc<dyn Elsewhere>>,
    capacity: u64,
    log: Option<WriteLog>,
    /// Its threads, which end with this.
    rest: Box<dyn Any>,
}

/// Over a store of this machine's.
fn here(args: &AttachArgs) -> Result<Drive, Failure> {
    let words = |e: &dyn std::fmt::Display| Failure::Message(e.to_string());
    let clock = TscClock::new();
    let block_size = args.block_size.unwrap_or(512);
    let beside = if args.risk_corruption { Beside::Anybody } else { Beside::Nobody };
    let file = FileOptions { block_size, beside, ..FileOptions::serve() };
    let store = AnyStore::open(&args.store, file).map_err(|e| in_use::words(&e, false))?;
    let store = match &args.log_writes {
        Some(path) => store.logged(path).map_err(|e| words(&e))?,
        None => store,
    };
    let log = store.write_log().cloned();
    store.notes().iter().chain(store.standing().all()).for_each(|note| complain(note));
    let capacity = store.capacity();
    let threads = args.near_data_threads.map_or_else(|| Workers::usual(1), usize::from);
    let workers = Workers::behind_hosts(threads, clock).map_err(|e| words(&e))?;
    let handle = workers.as_ref().map(Workers::handle);
    let config =
        firmware::Config { allow_unrecovered: args.allow_unrecovered, ..firmware::Config::default() };
    let firmware = Fsr::new(Arc::new(clock), config).on(handle);
    let config = Config { lba_size: block_size, ..Config::default() };
    let drive = Loopback::threaded(store, firmware, config, Rest::default()).map_err(|e| words(&e))?;
    let function = drive.function.clone();
    Ok(Drive { function, elsewhere: None, capacity, log, rest: Box::new((drive, workers)) })
}
