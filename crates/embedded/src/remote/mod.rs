//! A drive over the network, of any maker, as the store of a drive in this process.
//!
//! A write passes: [`RemoteChannel`] takes its bytes, cuts them into commands ([`pieces`]) and sends these
//! over NVMe/TCP -> the target -> a later poll finds what has ended. What the drive has acknowledged and not
//! flushed is kept ([`unflushed`]): where the connection is lost, another is made by a thread beside
//! ([`link`]), as the kernel makes it, and what was kept is written again before anything else, since the
//! target may have been started anew meanwhile and have lost it. Commands that were out are sent again.
//!
//! One host writes: what another has written in blocks of which this one's last write was not flushed is
//! overwritten by that where the connection is lost.
//!
//! Near-data work is the remote drive's own ([`Remote::near_data`]): it sees what every host writes.

mod channel;
mod link;
mod near;
mod pieces;
mod unflushed;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_clock::TscClock;
use nearside_dma::Memory;
use nearside_driver::tcp::{Addresses, Options};
use nearside_driver::{Controller, NamespaceInfo, Policy};
use nearside_fsrlib::{Error, Notice, Reconnecting, TcpPaths, TcpTransport};
use nearside_spec::identify::{IdentifyNamespace, cns};
use nearside_store::Store;

pub use channel::RemoteChannel;

/// A connection with its namespace.
type Way = TcpTransport<TscClock>;
/// All ways to it.
type Ways = Reconnecting<TcpPaths<TscClock>, TscClock>;

/// Is told what becomes of a connection.
type Tell = Arc<dyn Fn(&Notice) + Send + Sync>;

/// Commands of a channel that are out at a time.
const DEPTH: u16 = 128;

/// A namespace of a target over NVMe/TCP. Clones share it.
#[derive(Clone)]
pub struct Remote(Arc<Shared>);

struct Shared {
    /// Further connections are to the same namespace, or to none.
    paths: TcpPaths<TscClock>,
    recovery: nearside_driver::tcp::Recovery,
    tell: Tell,
    shape: Shape,
    /// The first connection, for the first channel.
    first: Mutex<Option<Ways>>,
    /// Near-data work's own, where none is at work.
    idle: Mutex<Vec<Ways>>,
    /// What ends attempts to make a connection again.
    stop: Arc<AtomicBool>,
}

/// What its host has to know of a namespace.
#[derive(Clone, Copy, Debug)]
struct Shape {
    namespace: NamespaceInfo,
    /// Most bytes of a read or write.
    most: u64,
    /// What was written has to be flushed.
    is_volatile: bool,
    /// Write Zeroes is there.
    zeroes: bool,
    /// Deallocated blocks read as zeros.
    frees: bool,
}

/// Optional commands (ONCS): Dataset Management, Write Zeroes.
const ONCS_DATASET: u16 = 1 << 2;
const ONCS_ZEROES: u16 = 1 << 3;
/// Deallocated blocks read as zeros (DLFEAT).
const READS_ZEROS: u8 = 1;

impl Remote {
    /// Connects to the first of the addresses that answers. What becomes of connections later is told.
    ///
    /// # Errors
    /// What each of the addresses said; the namespace is none that can be a store.
    pub fn connect(
        addresses: &Addresses,
        options: Options,
        tell: impl Fn(&Notice) + Send + Sync + 'static,
    ) -> Result<Remote, String> {
        let recovery = options.recovery;
        let paths = TcpPaths::new(addresses.clone(), options, Policy::Interrupt, TscClock::new());
        let paths = paths.with_depth(DEPTH);
        let tell: Tell = Arc::new(tell);
        let mut ways = connected(paths, recovery, &tell)?;
        let shape = ways.way().and_then(Shape::of).map_err(|e| e.to_string())?;
        if ![512, 4096].contains(&shape.namespace.block_size) {
            return Err(format!("its blocks have {} bytes, not 512 or 4096", shape.namespace.block_size));
        }
        if i64::try_from(shape.namespace.bytes()).is_err() {
            return Err(format!("its {} blocks are more than a file can have", shape.namespace.blocks));
        }
        Ok(Remote(Arc::new(Shared {
            paths: ways.paths().clone(),
            recovery,
            tell,
            shape,
            first: Mutex::new(Some(ways)),
            idle: Mutex::default(),
            stop: Arc::default(),
        })))
    }

    /// Makes lost connections no more: what waits for one fails.
    pub fn give_up(&self) {
        self.0.stop.store(true, Ordering::SeqCst);
    }

    /// Ways of one's own.
    fn ways(&self) -> Result<Ways, String> {
        connected(self.0.paths.clone(), self.0.recovery, &self.0.tell)
    }
}

fn connected(
    paths: TcpPaths<TscClock>,
    recovery: nearside_driver::tcp::Recovery,
    tell: &Tell,
) -> Result<Ways, String> {
    let tell = tell.clone();
    Reconnecting::connect(paths, recovery, TscClock::new(), move |notice| tell(notice))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Shape {
    fn of(way: &mut Way) -> Result<Shape, Error> {
        let namespace = way.namespace();
        let (controller, host) = way.initiator().admin();
        let identity = controller.identity();
        let bytes = controller.identify(cns::NAMESPACE, namespace.nsid, host);
        let bytes = bytes.map_err(|e| Error::Lost(format!("driver: {e}")))?;
        let reads_zeros = IdentifyNamespace::from_bytes(&bytes).dlfeat() & 7 == READS_ZEROS;
        let has = |command| identity.oncs() & command != 0;
        let block = u64::from(namespace.block_size);
        let most = (controller.max_transfer() as u64 / block).clamp(1, 65_536) * block;
        Ok(Shape {
            namespace,
            most,
            is_volatile: identity.vwc() & 1 != 0,
            zeroes: has(ONCS_ZEROES),
            frees: has(ONCS_DATASET) && reads_zeros,
        })
    }
}

impl Store for Remote {
    type Channel = RemoteChannel;

    fn capacity(&self) -> u64 {
        self.0.shape.namespace.bytes()
    }

    fn block_size(&self) -> u32 {
        self.0.shape.namespace.block_size
    }

    fn read_only(&self) -> bool {
        self.0.shape.namespace.read_only
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<RemoteChannel> {
        let first = lock(&self.0.first).take();
        let ways = first.map_or_else(|| self.ways(), Ok).map_err(io::Error::other)?;
        RemoteChannel::new(ways, self.0.shape, &self.0.stop, memory)
    }
}
