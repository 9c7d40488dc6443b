//! The whole: a store, a controller over it with its firmware, a runner, a driver, and FSRLib's transport.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_clock::TscClock;
use nearside_device::runner::{self, Rest};
use nearside_device::{Config, Firmware, Namespace};
use nearside_driver::{Driver, DriverConfig, Initiator, InitiatorConfig, Peer, Policy, QueueConfig, Service};
use nearside_firmware as firmware;
use nearside_firmware::{Fsr, State, Workers};
use nearside_fsrlib::{Completion, NearDataLog, QueueTransport, Replies, Requests, Transport};
use nearside_store::{Beside, FileOptions, Store};

use crate::{AnyStore, Loopback};

/// What the drive and the driver are like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the drive has a thread of its own; otherwise whoever waits for it runs it, and completions are
    /// never interrupts. A policy that needs interrupts gives it one.
    pub threaded: bool,
    /// How the driver waits.
    pub policy: Policy,
    /// Entries of the driver's queue pair.
    pub depth: u16,
    /// The controller.
    pub controller: Config,
    /// The driver. Near-data work over a large volume takes its time: a command may take an hour by default.
    pub driver: DriverConfig,
    /// The firmware of a drive over an image. By default it shows a volume that was not unmounted as a mount
    /// would recover it; where somebody else writes the image, what lies at home in any case.
    pub firmware: firmware::Config,
    /// When a drive with a thread rests.
    pub rest: Rest,
    /// Threads of near-data work of [`image`]; `None`: none where the drive has no thread, else as many as
    /// the machine allows ([`Workers::usual`]).
    pub near_data_threads: Option<usize>,
}

impl Options {
    fn has_threads(&self) -> bool {
        self.threaded || self.policy != Policy::Polled
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threaded: false,
            policy: Policy::Polled,
            depth: 32,
            controller: Config::default(),
            driver: DriverConfig { timeout_ms: 3_600_000, ..DriverConfig::default() },
            firmware: firmware::Config::default(),
            rest: Rest::default(),
            near_data_threads: None,
        }
    }
}

/// Firmware with the bounds that a drive has by default, on this machine's clock.
pub fn firmware() -> Fsr {
    Fsr::new(Arc::new(TscClock::new()), firmware::Config::default())
}

/// Why the drive could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store.
    #[error("{0}")]
    Store(io::Error),
    /// The controller or its threads.
    #[error("the drive could not be started: {0}")]
    Drive(io::Error),
    /// The driver.
    #[error("the driver could not start the drive: {0}")]
    Driver(nearside_driver::Error),
    /// FSRLib's transport to it.
    #[error("the drive has nothing to work on: {0}")]
    Library(nearside_fsrlib::Error),
}

/// A drive that understands files over an image or a block device ([`AnyStore::image`]: raw, or qcow2, found
/// by its first bytes or named `qcow2:PATH?snapshot=NAME`, or either compressed by gzip or Zstandard; or a
/// logical volume of one, `lvm:PATH?volume=VG/LV`), which is read through the page cache and never written.
/// Where somebody else writes it ([`AnyStore::writer`] says who), no command relies on what another has read.
///
/// # Errors
/// [`Error::Store`], the only one that names the path: it cannot be opened for reading, is neither a file nor
/// a block device, is smaller than a block, or is a qcow2 image that is not read. [`Error::Drive`]: no
/// threads for near-data work. Else those of [`Embedded::start`].
pub fn image(path: &Path, options: &Options) -> Result<Embedded<AnyStore, Fsr>, Error> {
    image_over(open_image(path)?, options)
}

/// What [`image`] has a drive over.
///
/// # Errors
/// As its [`Error::Store`].
pub fn open_image(path: &Path) -> Result<AnyStore, Error> {
    let beside = FileOptions { beside: Beside::Anybody, lends: true, ..FileOptions::read() };
    AnyStore::image(path, beside).map_err(Error::Store)
}

/// As [`image`], over what is open already.
///
/// # Errors
/// As [`image`], but [`Error::Store`].
pub fn image_over(store: AnyStore, options: &Options) -> Result<Embedded<AnyStore, Fsr>, Error> {
    let threads = match options.near_data_threads {
        Some(threads) => threads,
        // The host's thread and the drive's may spin.
        None if options.has_threads() => Workers::usual(2),
        None => 0,
    };
    let workers = Workers::start(threads, TscClock::new()).map_err(Error::Drive)?;
    let (clock, config) = (Arc::new(TscClock::new()), options.firmware);
    let firmware = match store.writer() {
        // What it has committed is not all of what it has done: only home locations are told as they are.
        Some(_) => Fsr::distrusting(clock, firmware::Config { state: State::Home, ..config }),
        None => Fsr::new(clock, config),
    };
    let firmware = firmware.on(workers.as_ref().map(Workers::handle));
    let firmware = if options.has_threads() { firmware } else { firmware.in_place() };
    let mut embedded = Embedded::start(store, firmware, options)?;
    embedded._workers = workers;
    Ok(embedded)
}

/// The transport to an embedded drive.
pub type EmbeddedTransport = QueueTransport<Box<dyn Peer>, TscClock>;

/// A drive with its driver. Dropping it stops both: first the host, then the drive.
pub struct Embedded<S: Store, F: Firmware<S>> {
    transport: EmbeddedTransport,
    driver: Driver,
    service: Option<Service>,
    namespace: Arc<Namespace<S, F>>,
    _threads: Option<runner::Threaded>,
    /// Stopped after the drive, whose commands they run.
    _workers: Option<Workers>,
}

impl<S: Store, F: Firmware<S>> Embedded<S, F> {
    /// Starts a drive over `store` and attaches to it.
    ///
    /// # Errors
    /// [`Error::Drive`]: no memory, descriptors or thread for the controller, or it refuses the options.
    /// [`Error::Driver`]: it does not become ready, or gives no queue of that depth. [`Error::Library`]: its
    /// namespace cannot be identified.
    pub fn start(store: S, firmware: F, options: &Options) -> Result<Self, Error> {
        let clock = TscClock::new();
        let threaded = options.has_threads();
        let mut controller = options.controller.clone();
        if !threaded {
            // Nobody is interrupted: the admin queue alone has to have one.
            controller.vectors = 1;
        }
        let drive = if threaded {
            Loopback::threaded(store, firmware, controller, options.rest).map(Loopback::boxed)
        } else {
            Loopback::inline(store, firmware, controller).map(Loopback::boxed)
        };
        let mut drive = drive.map_err(Error::Drive)?;
        let driver = drive.driver(options.driver, &clock).map_err(Error::Driver)?;
        let service = match options.policy {
            Policy::Polled => None,
            Policy::Interrupt | Policy::Hybrid => {
                Some(Service::start(&driver, options.depth, clock, || {}).map_err(Error::Driver)?)
            }
        };
        let queue = QueueConfig { depth: options.depth, interrupt: threaded };
        let config = InitiatorConfig { queue, policy: options.policy };
        let handle = service.as_ref().map(Service::handle);
        let initiator = Initiator::new(&driver, config, clock, drive.peer, handle).map_err(Error::Driver)?;
        let transport = QueueTransport::new(initiator, None).map_err(Error::Library)?;
        let (namespace, _threads) = (drive.namespace, drive._threads);
        Ok(Embedded { transport, driver, service, namespace, _threads, _workers: None })
    }

    /// The queue pair, for ordinary reads and writes.
    pub fn transport(&mut self) -> &mut EmbeddedTransport {
        &mut self.transport
    }

    /// The controller as the host sees it, for more queue pairs.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The asynchronous path, where the policy has one.
    pub fn service(&self) -> Option<&Service> {
        self.service.as_ref()
    }

    /// The drive's namespace: its store and its firmware.
    pub fn namespace(&self) -> &Arc<Namespace<S, F>> {
        &self.namespace
    }
}

impl<S: Store, F: Firmware<S>> Transport for Embedded<S, F> {
    fn near_data(
        &mut self,
        request: &[u8],
        capacity: usize,
        reply: &mut Vec<u8>,
    ) -> Result<(), nearside_fsrlib::Error> {
        self.transport.near_data(request, capacity, reply)
    }

    fn near_data_each(&mut self, requests: Requests<'_>, replies: Replies<'_>) {
        self.transport.near_data_each(requests, replies);
    }

    fn at_once(&self) -> usize {
        self.transport.at_once()
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, nearside_fsrlib::Error> {
        self.transport.read(offset, into)
    }

    fn capacity(&self) -> u64 {
        self.transport.capacity()
    }

    fn block_size(&self) -> u32 {
        self.transport.block_size()
    }

    fn max_buffer(&self) -> usize {
        self.transport.max_buffer()
    }

    fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        self.transport.set_stop(stop);
    }

    fn statistics(&mut self) -> Result<Option<NearDataLog>, nearside_fsrlib::Error> {
        self.transport.statistics()
    }

    fn completion(&self) -> Completion {
        self.transport.completion()
    }
}
