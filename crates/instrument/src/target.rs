//! What is measured: a word on the command line, and the engine that it opens to.
//!
//! ```text
//! TARGET = ENGINE ":" PATH | REMOTE | STORE
//! ENGINE = "uring" | "uring-iopoll" | "uring-hybrid" | "pread" | "mmap"
//!                                                      a file or block device by the host's own calls
//! REMOTE = nvme+tcp://HOST:PORT/SUBSYSTEM_NQN/NSID     a namespace of a target, by our own initiator
//!        | vfio-user:PATH                              an NVMe function in another process, by our driver
//! STORE  = dram:1GiB, model:..., file:PATH, PATH, ...  a drive in this process over that store
//! ```
//!
//! A file or block device is opened for reading only, unless the run writes; one that is used
//! or not empty must then be given up by name. A plain path is what it is for the other
//! commands: a drive in this process over it.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_dma::uring::Completion;
use nearside_driver::tcp::{Address, Association, Options};
use nearside_driver::{
    Controller, Driver, DriverConfig, Error, Host, Initiator, InitiatorConfig, NamespaceInfo, Peer, Policy,
    QueueConfig, Service, Threaded, vfio_user,
};
use nearside_embedded::{AnyStore, Loopback};
use nearside_loadgen::engine::Engine;
use nearside_loadgen::engine::blocking::Blocking;
use nearside_loadgen::engine::file::{OpenMode, Target as File, TargetError};
use nearside_loadgen::engine::initiator::Policed;
use nearside_loadgen::engine::queue::Queue;
use nearside_loadgen::engine::uring::Uring;
use nearside_loadgen::safety::{Refusal, may_write};
use nearside_store::{FileOptions, Store};

/// How a file or block device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// io_uring, completions by interrupt.
    Uring,
    /// io_uring, the device's queues polled (IORING_SETUP_IOPOLL).
    UringPolled,
    /// io_uring, polled after a sleep (IORING_SETUP_HYBRID_IOPOLL).
    UringHybrid,
    /// Positioned reads and writes.
    Positioned,
    /// A mapping into memory.
    Mapped,
}

impl Call {
    const NAMES: [(Call, &'static str); 5] = [
        (Call::Uring, "uring"),
        (Call::UringPolled, "uring-iopoll"),
        (Call::UringHybrid, "uring-hybrid"),
        (Call::Positioned, "pread"),
        (Call::Mapped, "mmap"),
    ];
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(call, _)| call == self).map_or("", |(_, name)| name))
    }
}

/// A target by its word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A drive in this process over this store.
    Drive(String),
    /// A file or block device by the host's own calls.
    Host(Call, PathBuf),
    /// The first namespace of an NVMe function in another process, by the path of its socket.
    Process(PathBuf),
    /// A namespace over NVMe/TCP, and what this host says of itself.
    Remote(Box<(Address, Options)>),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(word: &str) -> Result<Target, String> {
        if word.is_empty() {
            return Err("a target is needed (as dram:1GiB or uring:PATH)".to_owned());
        }
        if Address::is_meant(word) {
            let address = word.parse().map_err(|e: nearside_driver::Error| e.to_string())?;
            return Ok(Target::Remote(Box::new((address, Options::default()))));
        }
        if let Some(path) = vfio_user::socket_of(word.as_ref()) {
            return match path.as_os_str().is_empty() {
                true => Err(format!("{word} names no socket (as vfio-user:/run/nearside/vm1.sock)")),
                false => Ok(Target::Process(path.to_owned())),
            };
        }
        let Some((name, path)) = word.split_once(':') else { return Ok(Target::Drive(word.to_owned())) };
        match Call::NAMES.iter().find(|(_, n)| *n == name) {
            Some(_) if path.is_empty() => Err(format!("{word} names no file (as {name}:/dev/nvme0n1)")),
            Some((call, _)) => Ok(Target::Host(*call, PathBuf::from(path))),
            None => Ok(Target::Drive(word.to_owned())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Drive(store) => f.write_str(store),
            Target::Host(call, path) => write!(f, "{call}:{}", path.display()),
            Target::Remote(remote) => remote.0.fmt(f),
            Target::Process(path) => write!(f, "vfio-user:{}", path.display()),
        }
    }
}

/// What a run needs of its target.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Operations in flight.
    pub depth: u16,
    /// The largest operation in bytes.
    pub bytes: u32,
    /// Whether the run writes.
    pub write: bool,
    /// What is on a file or block device may be destroyed.
    pub destroy: bool,
    /// How the driver of a drive in this process waits; without a word, it polls.
    pub completion: Option<Policy>,
    /// A file or block device through the page cache.
    pub buffered: bool,
}

/// Why a target cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is used, or holds something.
    #[error("{target}: {source}; --destroy allows it")]
    Holds {
        /// The target.
        target: String,
        /// By whom, or where.
        source: Refusal,
    },
    /// A write to a namespace of which nothing is known.
    #[error("{0}: what is on it would be destroyed; --destroy allows it")]
    Remote(String),
    /// A completion model where there is no driver of ours.
    #[error("{0}: how a host's own call completes stands in its name: uring, uring-iopoll or uring-hybrid")]
    Completion(String),
    /// The store.
    #[error("{0}")]
    Store(io::Error),
    /// The drive.
    #[error("{target}: the drive could not be started: {source}")]
    Drive {
        /// The target.
        target: String,
        /// What was wrong.
        source: io::Error,
    },
    /// The driver.
    #[error("{target}: the driver could not start the drive: {source}")]
    Driver {
        /// The target.
        target: String,
        /// What was wrong.
        source: nearside_driver::Error,
    },
    /// A file or block device.
    #[error(transparent)]
    File(#[from] TargetError),
}

/// An open target.
pub struct Open {
    /// Carries operations out.
    pub engine: Box<dyn Engine>,
    /// Its name, and the completion model.
    pub name: String,
    /// Bytes.
    pub capacity: u64,
    /// Offsets and sizes are multiples of this.
    pub block_size: u32,
    /// In memory that this process made: empty, and nobody misses it.
    pub fresh: bool,
    /// What a reader should know, a sentence each.
    pub notes: Vec<String>,
    // After the engine: the host ends before the drive.
    _drive: Option<Box<dyn Any>>,
}

impl Target {
    /// Opens it.
    ///
    /// # Errors
    /// What cannot be, and where.
    pub fn open(&self, needs: Needs) -> Result<Open, OpenError> {
        match self {
            Target::Drive(word) => drive(word, needs),
            Target::Host(call, path) => self.host(*call, path, needs),
            Target::Remote(remote) => self.remote(&remote.0, &remote.1, needs),
            Target::Process(path) => self.process(path, needs),
        }
    }

    /// What this host says of itself to a target over the network.
    pub fn set_options(&mut self, options: Options) {
        if let Target::Remote(remote) = self {
            remote.1 = options;
        }
    }

    fn remote(&self, address: &Address, options: &Options, needs: Needs) -> Result<Open, OpenError> {
        // Who else uses it, and what it holds, is not to be known from here.
        if needs.write && !needs.destroy {
            return Err(OpenError::Remote(self.to_string()));
        }
        let driven = |source| OpenError::Driver { target: self.to_string(), source };
        let clock = TscClock::new();
        let controller = Association::connect(address, options.clone(), Arc::new(clock)).map_err(driven)?;
        let namespace = controller.namespace(None, &mut Host::threaded(clock)).map_err(driven)?;
        let policy = needs.completion.unwrap_or(Policy::Polled);
        let initiator = controller.initiator(needs.depth, policy, clock).map_err(driven)?;
        let engine = Policed::new(initiator, None, namespace, needs.bytes, None).map_err(driven)?;
        let mut notes = Vec::new();
        if engine.depth() < usize::from(needs.depth) {
            notes.push(format!("{address}: a queue of it holds {} commands", engine.depth()));
        }
        Ok(Open {
            engine: Box::new(engine),
            name: format!("nearside over NVMe/TCP, {}", policy.name()),
            capacity: namespace.bytes(),
            block_size: namespace.block_size,
            fresh: false,
            notes,
            _drive: None,
        })
    }

    fn process(&self, path: &Path, needs: Needs) -> Result<Open, OpenError> {
        // Who else uses it, and what it holds, is not to be known from here.
        if needs.write && !needs.destroy {
            return Err(OpenError::Remote(self.to_string()));
        }
        let driven = |source| OpenError::Driver { target: self.to_string(), source };
        let clock = TscClock::new();
        let driver = Driver::connect(path, driver_config(needs), clock).map_err(driven)?;
        let namespace = driver.namespace(None, &mut Host::threaded(clock)).map_err(driven)?;
        let engine = engine(&driver, namespace, Threaded, needs, clock).map_err(driven)?;
        let policy = needs.completion.unwrap_or(Policy::Polled);
        Ok(Open {
            engine,
            name: format!("nearside over vfio-user, {}", policy.name()),
            capacity: namespace.bytes(),
            block_size: namespace.block_size,
            fresh: false,
            notes: Vec::new(),
            _drive: None,
        })
    }

    fn host(&self, call: Call, path: &Path, needs: Needs) -> Result<Open, OpenError> {
        if needs.completion.is_some() {
            return Err(OpenError::Completion(self.to_string()));
        }
        if needs.write {
            let held = |source| OpenError::Holds { target: self.to_string(), source };
            may_write(path, needs.destroy).map_err(held)?;
        }
        let direct = call != Call::Mapped && !needs.buffered;
        let file = File::open(path, OpenMode { direct, write: needs.write })?;
        let clock = TscClock::new();
        let (depth, bytes) = (usize::from(needs.depth), needs.bytes);
        let uring = |completion| Uring::new(&file, completion, depth, bytes, None, clock);
        let engine: Box<dyn Engine> = match call {
            Call::Uring => Box::new(uring(Completion::Interrupt)?),
            Call::UringPolled => Box::new(uring(Completion::Polled)?),
            Call::UringHybrid => Box::new(uring(Completion::Hybrid)?),
            Call::Positioned => Box::new(Blocking::positioned(&file, bytes, None, clock)?),
            Call::Mapped => Box::new(Blocking::mapped(&file, bytes, None, clock)?),
        };
        let cached = if direct { "" } else { ", through the page cache" };
        Ok(Open {
            engine,
            name: format!("{call}{cached}"),
            capacity: file.size,
            block_size: 512,
            fresh: false,
            notes: Vec::new(),
            _drive: None,
        })
    }
}

/// The file below a store word's wrappers.
fn base(word: &str) -> &str {
    let wraps = |word: &str| ["delayed:", "faulty:", "model:"].iter().any(|name| word.starts_with(name));
    let mut rest = word;
    while let Some((_, below)) = rest.split_once(':').filter(|_| wraps(rest)) {
        rest = below.split_once(':').map_or("", |(_, below)| below);
    }
    rest.strip_prefix("file:").unwrap_or(rest)
}

/// A drive over a store, with what the run needs of it.
fn store(word: &str, needs: Needs) -> Result<(AnyStore, bool), OpenError> {
    let store = AnyStore::open(word, FileOptions::read()).map_err(OpenError::Store)?;
    // What was opened to be read only and is not is memory of this process.
    let fresh = !store.read_only();
    if fresh || !needs.write {
        return Ok((store, fresh));
    }
    let held = |source| OpenError::Holds { target: word.to_owned(), source };
    may_write(Path::new(base(word)), needs.destroy).map_err(held)?;
    drop(store);
    Ok((AnyStore::open(word, FileOptions::serve()).map_err(OpenError::Store)?, fresh))
}

/// Bytes of the driver's pool besides buffers.
const QUEUES: usize = 8 << 20;

fn drive(word: &str, needs: Needs) -> Result<Open, OpenError> {
    let (store, fresh) = store(word, needs)?;
    let notes = store.notes().to_vec();
    Ok(Open { fresh, notes, ..Open::drive(word, store, needs)? })
}

fn driver_config(needs: Needs) -> DriverConfig {
    // One page of list for each command beside its buffer, twice: a drive with a service has two queue pairs.
    let depth = usize::from(needs.depth);
    let buffers = depth * (needs.bytes.next_power_of_two().max(4096) as usize + 2 * 8192);
    DriverConfig { pool_bytes: buffers + QUEUES, ..DriverConfig::default() }
}

/// What carries operations to a controller in memory of both sides: its queue pair itself where it is polled.
fn engine<P: Peer + 'static>(
    driver: &Driver,
    namespace: NamespaceInfo,
    peer: P,
    needs: Needs,
    clock: TscClock,
) -> Result<Box<dyn Engine>, Error> {
    let policy = needs.completion.unwrap_or(Policy::Polled);
    if policy == Policy::Polled {
        let queue = Queue::new(driver, namespace, needs.depth, needs.bytes, None, peer, clock)?;
        return Ok(Box::new(queue));
    }
    let service = Service::start(driver, needs.depth, clock, || {})?;
    let queue = QueueConfig { depth: needs.depth, interrupt: true };
    let handle = Some(service.handle());
    let initiator = Initiator::new(driver, InitiatorConfig { queue, policy }, clock, peer, handle)?;
    Ok(Box::new(Policed::new(initiator, Some(service), namespace, needs.bytes, None)?))
}

impl Open {
    /// A drive in this process over a store, under that name.
    ///
    /// # Errors
    /// What cannot be.
    pub fn drive(word: &str, store: impl Store, needs: Needs) -> Result<Open, OpenError> {
        let (capacity, clock) = (store.capacity(), TscClock::new());
        let config = Config::default();
        let policy = needs.completion.unwrap_or(Policy::Polled);
        let block_size = config.lba_size;
        let started = |source| OpenError::Drive { target: word.to_owned(), source };
        let driven = |source| OpenError::Driver { target: word.to_owned(), source };
        let driver_config = driver_config(needs);
        let (engine, drive): (Box<dyn Engine>, Option<Box<dyn Any>>) = if policy == Policy::Polled {
            let mut drive = Loopback::inline(store, (), config).map_err(started)?;
            let driver = drive.driver(driver_config, &clock).map_err(driven)?;
            let namespace = driver.namespace(Some(1), &mut drive.host(&clock)).map_err(driven)?;
            (engine(&driver, namespace, drive.peer, needs, clock).map_err(driven)?, None)
        } else {
            let mut drive = Loopback::threaded(store, (), config, Rest::default()).map_err(started)?;
            let driver = drive.driver(driver_config, &clock).map_err(driven)?;
            let namespace = driver.namespace(Some(1), &mut drive.host(&clock)).map_err(driven)?;
            let engine = engine(&driver, namespace, drive.peer, needs, clock).map_err(driven)?;
            (engine, Some(Box::new(drive)))
        };
        let how = match policy {
            Policy::Polled => "polled, drive and driver on one thread",
            Policy::Interrupt => "interrupt, the drive on a thread of its own",
            Policy::Hybrid => "hybrid, the drive on a thread of its own",
        };
        let name = format!("nearside, {how}");
        Ok(Open { engine, name, capacity, block_size, fresh: false, notes: Vec::new(), _drive: drive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_targets() {
        let target = |word: &str| word.parse::<Target>();
        assert_eq!(target("uring:/dev/x"), Ok(Target::Host(Call::Uring, "/dev/x".into())));
        for (call, name) in Call::NAMES {
            let word = format!("{name}:a:b");
            assert_eq!(target(&word), Ok(Target::Host(call, "a:b".into())));
            assert_eq!(target(&word).unwrap().to_string(), word);
        }
        for word in ["dram:1GiB", "disk.img", "delayed:10us:dram:1MiB", "./uring"] {
            assert_eq!(target(word), Ok(Target::Drive(word.to_owned())));
        }
        for word in [
            "disk.img",
            "file:disk.img",
            "delayed:10us,units=8:faulty:torn:file:disk.img",
            "model:own:disk.img",
        ] {
            assert_eq!(base(word), "disk.img", "{word}");
        }
        let name = "nvme+tcp://h:1/nqn.2014-08.org.example:a/2";
        assert!(matches!(target(name), Ok(Target::Remote(r)) if r.0.to_string() == name));
        assert!(target("nvme+tcp://h").is_err());
        assert_eq!(target("vfio-user:/run/a:b"), Ok(Target::Process("/run/a:b".into())));
        assert_eq!(target("vfio-user:/run/x").unwrap().to_string(), "vfio-user:/run/x");
        assert!(target("vfio-user:").unwrap_err().contains("names no socket"));
        assert!(target("").is_err() && target("mmap:").unwrap_err().contains("names no file"));
    }
}
