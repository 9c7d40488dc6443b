#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A host's write passes: loop device -> FUSE -> [`mount`](self) -> [`Host`] -> a queue pair of the drive ->
//! its Namespace, which tells the metadata monitor -> the store. A search passes: socket -> [`Host`] -> a
//! near-data command on a queue pair of the same drive.
//!
//! This crate is a host of the drive it is given, running on threads of its own; it makes none.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod host;
mod line;
mod mount;
mod peers;
mod share;
mod socket;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::SystemTime;

use fuser::{Config, MountOption, Session, SessionACL};
use nearside_clock::{RateLimits, TscClock};
use nearside_dma::Function;
use nearside_dma::system::{self, Termination};
use nearside_driver::{Driver, DriverConfig, Policy};

pub use host::{Host, HostError};
pub use line::{Limits, Line};
pub use mount::FILE_NAME;
pub use peers::{MAX_CONNECTIONS, MAX_OF_ONE_USER};
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
    /// Threads that take requests from the kernel.
    pub threads: usize,
}

impl AttachOptions {
    /// With the default socket, the hybrid policy and four threads.
    pub fn new(mountpoint: impl Into<PathBuf>) -> AttachOptions {
        AttachOptions { mountpoint: mountpoint.into(), socket: None, policy: Policy::Hybrid, threads: 4 }
    }
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
    session: Option<std::thread::JoinHandle<io::Result<()>>>,
    events: mpsc::Receiver<AttachEvent>,
    sender: mpsc::Sender<AttachEvent>,
    root_enters: bool,
}

enum AttachEvent {
    /// The mount has ended.
    Unmounted,
    Signal(&'static str),
}

/// Attaches the drive behind `function`, which runs on threads of its own: brings it up, mounts its
/// namespace, serves the socket.
///
/// # Errors
/// [`AttachError`]: which of the drive, the mount and the socket could not be had. What was begun is
/// undone.
pub fn attach(function: Function, options: &AttachOptions) -> Result<Attached, AttachError> {
    // One for each thread that takes the kernel's requests, and one for whoever asks in this process.
    let queues = options.threads.max(1) + 1;
    let (host, driver) = host_of(function, options.policy, queues)?;
    let host = Arc::new(host);
    let mountpoint = std::path::absolute(&options.mountpoint)?;
    let socket_path = options.socket.clone().unwrap_or_else(|| default_socket(&mountpoint));
    // The socket first: a mount that cannot be asked is of no use, and easier to leave undone than to undo.
    let server = Server::bind(&socket_path, host.clone(), Limits::default()).map_err(AttachError::Socket)?;
    let (session, root_enters) = mount(&host, &mountpoint, options.threads)?;
    let (sender, events) = mpsc::channel();
    let session = std::thread::Builder::new().name("fuse".into()).spawn({
        let sender = sender.clone();
        move || {
            // Where it may: the threads below must not wait for the pages that they write out.
            system::serve_writeback();
            let result = session.run();
            let _ = sender.send(AttachEvent::Unmounted);
            result
        }
    })?;
    let (server, session) = (Some(server), Some(session));
    Ok(Attached { host, driver, mountpoint, socket_path, server, session, events, sender, root_enters })
}

/// Answers at `path` what other processes ask of the drive behind `function`, which runs on threads of its
/// own: the socket of an attached drive, without a mount.
///
/// # Errors
/// [`AttachError`]: which of the drive and the socket could not be had.
pub fn answer(function: Function, path: &Path) -> Result<Server, AttachError> {
    let host = Arc::new(host_of(function, Policy::Hybrid, 1)?.0);
    Server::bind(path, host, Limits::default()).map_err(AttachError::Socket)
}

/// Brings a drive up, for so many requests of this process at a time.
fn host_of(function: Function, policy: Policy, queues: usize) -> Result<(Host, Driver), AttachError> {
    let config = DriverConfig {
        pool_bytes: POOL_BYTES,
        timeout_ms: COMMAND_TIMEOUT_MS,
        queues: u16::try_from(Host::wants(queues)).unwrap_or(u16::MAX),
    };
    let driver = Driver::start(function, config, &mut nearside_driver::Host::threaded(TscClock::new()))?;
    Ok((Host::new(driver.clone(), policy, queues)?, driver))
}

type Mount = Session<mount::Namespace>;

/// Mounts; says whether root gets in.
fn mount(host: &Arc<Host>, mountpoint: &Path, threads: usize) -> Result<(Mount, bool), AttachError> {
    let failed = |error: io::Error| AttachError::Mount {
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
    };
    if !std::fs::metadata(mountpoint).map_err(failed)?.is_dir() {
        return Err(failed(io::Error::new(io::ErrorKind::NotADirectory, "not a directory")));
    }
    let owner = system::effective_ids();
    let new = |acl| {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("nearside".into()),
            MountOption::Subtype("nearside".into()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
            if host.info().read_only { MountOption::RO } else { MountOption::RW },
        ];
        config.acl = acl;
        config.n_threads = Some(threads.max(1));
        let namespace = mount::Namespace {
            host: host.clone(),
            owner,
            since: SystemTime::now(),
            clock: TscClock::new(),
            reports: Mutex::new(RateLimits::new(REPORT_EVERY_NS)),
        };
        Session::new(namespace, mountpoint, &config)
    };
    if owner.0 == 0 {
        return new(SessionACL::Owner).map(|session| (session, true)).map_err(failed);
    }
    // Root's loop device has to get in; where /etc/fuse.conf lacks user_allow_other only the user's own tools
    // do.
    new(SessionACL::RootAndOwner)
        .map(|session| (session, true))
        .or_else(|_| new(SessionACL::Owner).map(|session| (session, false)))
        .map_err(failed)
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

    /// The drive's host side, for reads and writes within this process.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Serves until the mount is ended by `umount` or a signal comes. A signal while the mount is in use is
    /// refused with a line on stderr; the second in a row ends it all the same.
    ///
    /// # Errors
    /// [`AttachError`]: the last flush failed, or the system did.
    pub fn wait(mut self, mut termination: Termination) -> Result<(), AttachError> {
        let sender = self.sender.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            while let Ok(signal) = termination.wait() {
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
                Ok(AttachEvent::Unmounted) | Err(_) => return self.finish(Ok(()), true),
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

    /// Whether the last flush went well, where the mount has ended.
    fn unmount(&mut self, lazy: bool) -> Result<Result<(), HostError>, AttachError> {
        // What the host has written is made durable first: whatever happens next, it is there. Where that
        // fails it fails again, and the mount would stay behind without a drive.
        let flushed = self.host.flush();
        match system::unmount(&self.mountpoint, lazy) {
            Ok(()) => Ok(flushed),
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy || e.to_string().contains("busy") => {
                Err(AttachError::Busy(self.mountpoint.display().to_string()))
            }
            // Someone else has ended it.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(flushed),
            Err(error) => {
                Err(AttachError::Mount { path: self.mountpoint.display().to_string(), error, hint: "" })
            }
        }
    }

    /// After the mount has ended (`ended`) or was put out of sight.
    fn finish(&mut self, flushed: Result<(), HostError>, ended: bool) -> Result<(), AttachError> {
        self.server = None;
        let Some(session) = self.session.take() else { return Ok(()) };
        if ended && let Ok(Err(e)) = session.join() {
            eprintln!("nearside: the mount ended by an error: {e}");
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
