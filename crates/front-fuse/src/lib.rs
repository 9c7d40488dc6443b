#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A host's write passes: loop device -> FUSE, whose requests a thread takes from the kernel by io_uring
//! (`rings`) or from `/dev/fuse` (`classic`) -> a command on that thread's own queue pair (`engine`) ->
//! the drive's Namespace, which tells the metadata monitor -> the store; and back when it is complete, with
//! others in flight meanwhile. A search passes: socket -> [`Host`] -> a near-data command on a queue pair of
//! the same drive.
//!
//! This crate is a host of the drive it is given, running on threads of its own; it makes none.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod classic;
mod engine;
mod files;
mod helper;
mod host;
mod line;
mod looped;
mod peers;
mod rings;
mod session;
mod share;
mod socket;
pub mod wire;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::SystemTime;

use nearside_clock::TscClock;
use nearside_dma::fuse::{FuseDevice, MountOptions};
use nearside_dma::loop_device::LoopPlace;
use nearside_dma::system::{self, Termination};
use nearside_dma::{Function, cpu};
use nearside_driver::{Driver, DriverConfig, Policy};

use files::Files;
use looped::Looped;
use session::{End, Plan, Session};

pub use files::FILE_NAME;
pub use host::{Elsewhere, Host, HostError};
pub use line::{Limits, Line};
pub use peers::{MAX_CONNECTIONS, MAX_OF_ONE_USER};
pub use session::{Carrier, ENABLE_URING, Transport, uring_offered};
pub use share::User;
pub use socket::{Caller, Server, serve};

/// How to attach a drive.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// An empty directory.
    pub mountpoint: PathBuf,
    /// Where the socket is made; `None`: beside the mount point, see [`default_socket`].
    pub socket: Option<PathBuf>,
    /// How commands are waited for.
    pub policy: Policy,
    /// Threads that take requests from the kernel by io_uring; the classic way has one.
    pub threads: usize,
    /// Which way requests come from the kernel.
    pub transport: Transport,
    /// Whether a loop device is laid over the file, without a cache of its own; it goes with the attachment.
    pub looped: bool,
    /// A directory at which the volume on that loop device is mounted (which makes one).
    pub volume: Option<PathBuf>,
    /// Where near-data work is done, if not by the drive.
    pub elsewhere: Option<Arc<dyn Elsewhere>>,
}

impl AttachOptions {
    /// With the default socket, as many threads as cores up to four, and the policy for so many cores
    /// ([`usual_policy`]).
    pub fn new(mountpoint: impl Into<PathBuf>) -> AttachOptions {
        let cores = cores();
        AttachOptions {
            mountpoint: mountpoint.into(),
            socket: None,
            policy: usual_policy(cores),
            threads: cores.clamp(1, 4),
            transport: Transport::Auto,
            looped: false,
            volume: None,
            elsewhere: None,
        }
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    cpu::allowed_cores().map_or(1, |cores| cores.len().max(1))
}

/// How commands are waited for with so many cores. A drive of its own thread looks for commands without
/// sleeping while it has any; so does, by the hybrid policy, whoever serves the kernel. Where these leave no
/// core for the application and one for the kernel's own threads below it, both wait for their own drive:
/// then commands are slept for.
pub fn usual_policy(cores: usize) -> Policy {
    /// The drive, who serves, the application, the kernel.
    const ALL: usize = 4;
    if cores >= ALL { Policy::Hybrid } else { Policy::Interrupt }
}

/// Where the socket is made unless one says otherwise: `MOUNTPOINT.sock`.
pub fn default_socket(mountpoint: &Path) -> PathBuf {
    let mut name = mountpoint.as_os_str().to_owned();
    name.push(".sock");
    PathBuf::from(name)
}

/// Why a drive could not be attached, or not be detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The drive did not come up.
    #[error("the drive: {0}")]
    Drive(#[from] nearside_driver::Error),
    /// The mount point, the FUSE device or the mount.
    #[error("{path}: {error}{hint}")]
    Mount {
        /// The mount point.
        path: String,
        /// Why.
        error: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The socket.
    #[error("{0}")]
    Socket(io::Error),
    /// The mount is in use.
    #[error("{0} is in use: unmount what lies on it (a loop mount?), then end it again")]
    Busy(String),
    /// The loop device, or the volume on it.
    #[error("{0}: {1}")]
    Looped(String, io::Error),
    /// Its connection with the kernel ended with the mount still there.
    #[error(
        "{0}: its connection was ended from outside (umount -f, or abort in /sys/fs/fuse/connections); what used it has errors"
    )]
    Aborted(String),
    /// What serves the mount has failed.
    #[error("the mount ended: {0}")]
    Served(String),
    /// What was written could not be made durable.
    #[error("the last flush failed: {0}")]
    Flush(HostError),
    /// A system call.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// How long a command may take. Near-data work over a large volume takes its time.
const COMMAND_TIMEOUT_MS: u64 = 3_600_000;
/// How often the log says the same.
pub(crate) const REPORT_EVERY_NS: u64 = 10_000_000_000;
/// Memory for the data of commands in flight; it takes room once touched.
const POOL_BYTES: usize = 128 << 20;

/// An attached drive. Dropping it detaches it, even in use.
pub struct Attached {
    host: Arc<Host>,
    driver: Driver,
    mountpoint: PathBuf,
    socket_path: PathBuf,
    server: Option<Server>,
    looped: Option<Looped>,
    session: Option<Session>,
    /// The mount's device number.
    device: u64,
    policy: Policy,
    elsewhere: Option<Arc<dyn Elsewhere>>,
    events: mpsc::Receiver<AttachEvent>,
    sender: mpsc::Sender<AttachEvent>,
    root_enters: bool,
}

enum AttachEvent {
    /// The connection has ended.
    Ended(End),
    Signal(&'static str),
}

/// Attaches the drive behind `function`, which runs on threads of its own: brings it up, mounts its
/// namespace, serves the socket.
///
/// # Errors
/// [`AttachError`]: which of the drive, the mount and the socket could not be had. What was begun is
/// undone.
pub fn attach(function: Function, options: &AttachOptions) -> Result<Attached, AttachError> {
    let mountpoint = std::path::absolute(&options.mountpoint)?;
    let failed = |error| mount_failed(&mountpoint, error);
    let plan = Plan::of(options.transport, options.threads).map_err(failed)?;
    // One for what the kernel's threads do not do themselves, and one for whoever asks in this process.
    let (host, driver) = host_of(function, options.policy, 2, Some(&plan))?;
    let host = Arc::new(host.with_near_data(options.elsewhere.clone()));
    let socket_path = options.socket.clone().unwrap_or_else(|| default_socket(&mountpoint));
    // The socket first: a mount that cannot be asked is of no use, and easier to leave undone than to undo.
    let server = Server::bind(&socket_path, host.clone(), Limits::default()).map_err(AttachError::Socket)?;
    // Before the mount: see there.
    let place = (options.looped || options.volume.is_some()).then(LoopPlace::new).transpose()?;
    let (fuse, files, root_enters) = mount(&host, &mountpoint)?;
    let (sender, events) = mpsc::channel();
    let ended = {
        let sender = sender.clone();
        move |end| _ = sender.send(AttachEvent::Ended(end))
    };
    let session = Session::start(fuse, &files, options.policy, plan, options.transport, ended);
    let session = session.inspect_err(|_| _ = system::unmount(&mountpoint, true)).map_err(failed)?;
    let mut attached = Attached {
        host,
        driver,
        mountpoint: mountpoint.clone(),
        socket_path,
        server: Some(server),
        looped: None,
        session: Some(session),
        device: 0,
        policy: options.policy,
        elsewhere: options.elsewhere.clone(),
        events,
        sender,
        root_enters,
    };
    attached.device = std::fs::metadata(&mountpoint).map_err(failed)?.dev();
    if let Some(place) = place {
        let info = attached.host.info();
        let (block_size, read_only) = (info.block_size, info.read_only);
        let file = attached.file();
        let looped = Looped::over(&file, place, block_size, read_only, options.volume.as_deref());
        attached.looped = Some(looped.map_err(|e| AttachError::Looped("the loop device".into(), e))?);
    }
    Ok(attached)
}

/// Answers at `path` what other processes ask of the drive behind `function`, which runs on threads of its
/// own: the socket of an attached drive, without a mount.
///
/// # Errors
/// [`AttachError`]: which of the drive and the socket could not be had.
pub fn answer(function: Function, path: &Path) -> Result<Server, AttachError> {
    let host = Arc::new(host_of(function, Policy::Hybrid, 1, None)?.0);
    Server::bind(path, host, Limits::default()).map_err(AttachError::Socket)
}

/// Brings a drive up, for so many requests of this process at a time beside the kernel's.
fn host_of(
    function: Function,
    policy: Policy,
    queues: usize,
    plan: Option<&Plan>,
) -> Result<(Host, Driver), AttachError> {
    let (served, bytes) = plan.map_or((0, 0), |plan| (plan.served(), plan.buffer_bytes()));
    let config = DriverConfig {
        pool_bytes: POOL_BYTES + bytes,
        timeout_ms: COMMAND_TIMEOUT_MS,
        queues: u16::try_from(Host::wants(queues, served)).unwrap_or(u16::MAX),
        ..DriverConfig::default()
    };
    let driver = Driver::start(function, config, &mut nearside_driver::Host::threaded(TscClock::new()))?;
    Ok((Host::serving(driver.clone(), policy, queues, served)?, driver))
}

fn mount_failed(mountpoint: &Path, error: io::Error) -> AttachError {
    AttachError::Mount {
        path: mountpoint.display().to_string(),
        hint: match error.kind() {
            io::ErrorKind::NotFound if mountpoint.is_dir() => {
                " (is there /dev/fuse, and without root fusermount3 of fuse3?)"
            }
            io::ErrorKind::PermissionDenied => {
                " (mounting without root needs fusermount3 of fuse3, /dev/fuse open to everybody, and a directory of one's own)"
            }
            _ => "",
        },
        error,
    }
}

/// Mounts; says whether root gets in.
fn mount(host: &Arc<Host>, mountpoint: &Path) -> Result<(FuseDevice, Arc<Files>, bool), AttachError> {
    let failed = |error| mount_failed(mountpoint, error);
    if !std::fs::metadata(mountpoint).map_err(failed)?.is_dir() {
        return Err(failed(io::Error::new(io::ErrorKind::NotADirectory, "not a directory")));
    }
    let (owner, read_only) = (system::effective_ids(), host.info().read_only);
    let mount = |allow_other| FuseDevice::mount(mountpoint, MountOptions { read_only, allow_other });
    let (device, others) = match owner.0 {
        0 => (mount(false).map_err(failed)?, false),
        // Root's loop device has to get in; where /etc/fuse.conf lacks user_allow_other only the user's own
        // tools do.
        _ => match mount(true) {
            Ok(device) => (device, true),
            Err(_) => (mount(false).map_err(failed)?, false),
        },
    };
    let files = Arc::new(Files::new(host.clone(), owner, others, SystemTime::now()));
    Ok((device, files, others || owner.0 == 0))
}

impl Attached {
    /// The namespace's file.
    pub fn file(&self) -> PathBuf {
        self.mountpoint.join(FILE_NAME)
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket_path
    }

    /// Whether root's loop device can open the file. Not so where a user mounted it and `/etc/fuse.conf`
    /// lacks `user_allow_other`: then only that user's own programs (mkfs, debugfs, fuse2fs) do.
    pub fn root_enters(&self) -> bool {
        self.root_enters
    }

    /// Which way requests come from the kernel.
    pub fn carrier(&self) -> Carrier {
        self.session.as_ref().map_or(Carrier::Classic, |session| session.carrier)
    }

    /// How commands are waited for.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The loop device over the file, where one was asked for.
    pub fn loop_device(&self) -> Option<&Path> {
        self.looped.as_ref().map(Looped::path)
    }

    /// The drive's host side, for reads and writes within this process.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Serves until the mount is ended by `umount` or a signal comes. A signal while the mount is in use is
    /// refused with a line on stderr; the second in a row ends it all the same, and waits no longer for a
    /// drive that is not reached.
    ///
    /// # Errors
    /// [`AttachError`]: the last flush failed, or the system did.
    pub fn wait(mut self, mut termination: Termination) -> Result<(), AttachError> {
        let (sender, elsewhere) = (self.sender.clone(), self.elsewhere.clone());
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let mut signals = 0;
            while let Ok(signal) = termination.wait() {
                signals += 1;
                // What the first began may wait for a drive that is not reached.
                elsewhere.iter().filter(|_| signals > 1).for_each(|elsewhere| elsewhere.give_up());
                if sender.send(AttachEvent::Signal(signal)).is_err() {
                    return;
                }
            }
        })?;
        let mut refused = false;
        loop {
            match self.events.recv() {
                Ok(AttachEvent::Signal(signal)) => match self.unmount(refused) {
                    // Put out of sight while in use, it goes on until this process ends.
                    Ok(flushed) => return self.finish(flushed, !refused),
                    Err(AttachError::Busy(path)) if !refused => {
                        refused = true;
                        eprintln!(
                            "nearside: {signal}: {}; a second signal ends it all the same",
                            AttachError::Busy(path)
                        );
                    }
                    Err(e) => return Err(e),
                },
                Ok(AttachEvent::Ended(end)) => return self.ended(&end),
                Err(_) => return self.finish(Ok(()), true),
            }
        }
    }

    /// Ends it; [`AttachError::Busy`] while the mount is in use, and then it goes on.
    ///
    /// # Errors
    /// [`AttachError`], with what is still attached.
    pub fn detach(mut self) -> Result<(), (AttachError, Box<Attached>)> {
        match self.unmount(false) {
            Ok(flushed) => self.finish(flushed, true).map_err(|e| (e, Box::new(self))),
            Err(e) => Err((e, Box::new(self))),
        }
    }

    /// After the connection has ended.
    fn ended(mut self, end: &End) -> Result<(), AttachError> {
        let path = self.mountpoint.display().to_string();
        // A mount that nobody serves any more, or not in whole.
        let left = session::is_left(&self.mountpoint, self.device);
        let mut over = true;
        if left {
            // First: the loop device's end waits for its requests.
            let aborted = system::abort_mount(&self.mountpoint);
            self.looped.take();
            let _ = system::unmount(&self.mountpoint, true);
            // Threads that are left end with this process, and the connection with them.
            over = aborted.is_ok() || !matches!(end, End::Failed(_));
        }
        let finished = self.finish(Ok(()), over);
        match end {
            End::Failed(why) => Err(AttachError::Served(why.clone())),
            End::Aborted => Err(AttachError::Aborted(path)),
            End::Unmounted if left => Err(AttachError::Aborted(path)),
            End::Unmounted => finished,
        }
    }

    /// Whether the last flush went well, where the mount has ended.
    fn unmount(&mut self, lazy: bool) -> Result<Result<(), HostError>, AttachError> {
        let busy = |path: &Path, error: io::Error| match looped::is_busy(&error) {
            true => AttachError::Busy(path.display().to_string()),
            false => AttachError::Mount { path: path.display().to_string(), error, hint: "" },
        };
        let had_loop = self.looped.is_some();
        if let Some(looped) = &mut self.looped {
            looped.end(lazy).map_err(|(path, error)| busy(&path, error))?;
        }
        // What the host has written is made durable first: whatever happens next, it is there. Where that
        // fails it fails again, and the mount would stay behind without a drive.
        let flushed = self.host.flush();
        let unmounted = match had_loop && !lazy {
            true => looped::unmount_patiently(&self.mountpoint),
            false => system::unmount(&self.mountpoint, lazy),
        };
        match unmounted {
            Ok(()) => Ok(flushed),
            // Someone else has ended it.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(flushed),
            Err(error) => Err(busy(&self.mountpoint, error)),
        }
    }

    /// After the mount has ended (`ended`) or was put out of sight.
    fn finish(&mut self, flushed: Result<(), HostError>, ended: bool) -> Result<(), AttachError> {
        self.server = None;
        let Some(session) = self.session.take() else { return Ok(()) };
        if ended {
            for why in session.join() {
                eprintln!("nearside: the mount ended by an error: {why}");
            }
        }
        let flushed = flushed.and(self.host.flush()).map_err(AttachError::Flush);
        let mut host = nearside_driver::Host::threaded(TscClock::new());
        // A reset alone is what a host does that has given up, and the drive's log says so.
        let stopped = self.driver.shut_down(&mut host).and(self.driver.stop(&mut host));
        flushed.and(stopped.map_err(AttachError::Drive))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.session.is_some() {
            let (left, ended) = match self.unmount(false) {
                Ok(flushed) => (Ok(flushed), true),
                Err(_) => (self.unmount(true), false),
            };
            if let Err(e) = left.and_then(|flushed| self.finish(flushed, ended)) {
                eprintln!("nearside: detaching: {e}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use nearside_conformance::needs;
    use nearside_device::Config;
    use nearside_device::runner::Rest;
    use nearside_embedded::Loopback;
    use nearside_store::Dram;

    use super::*;

    fn ends_in_use(transport: Transport) {
        let dir = tempfile::tempdir().unwrap();
        let mountpoint = dir.path().join("drive");
        std::fs::create_dir(&mountpoint).unwrap();
        let drive =
            Loopback::threaded(Dram::new(1 << 20, 512).unwrap(), (), Config::default(), Rest::default());
        let options = AttachOptions { transport, ..AttachOptions::new(&mountpoint) };
        let drive = drive.unwrap();
        let attached = attach(drive.function.clone(), &options).unwrap();
        let held = File::open(attached.file()).unwrap();
        let mut bytes = [0; 512];
        held.read_exact_at(&mut bytes, 0).unwrap();
        // As one of several threads tells it: the others serve on, and the file is open.
        let error = attached.ended(&End::Failed("its ring".into())).unwrap_err();
        assert_eq!(error.to_string(), "the mount ended: its ring");
        // By the kernel's word, not the drive's, which is out of reach as well.
        let refused = held.read_exact_at(&mut bytes, 512 << 10).unwrap_err();
        assert!(matches!(refused.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)), "{refused}");
        assert_eq!(std::fs::read_dir(&mountpoint).unwrap().count(), 0);
    }

    #[test]
    fn a_mount_of_which_a_part_has_failed_ends_in_whole() {
        const NAME: &str = "a_mount_of_which_a_part_has_failed_ends_in_whole";
        if !needs::root(NAME) || !needs::fuse(NAME) {
            return;
        }
        ends_in_use(Transport::Classic);
        if let Some(_on) = needs::fuse_uring(NAME) {
            ends_in_use(Transport::Uring);
        }
    }
}
