#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A near-data request comes to the [`handler`](Retriever::run); the path crawler finds the file and checks
//! permission; the data provider feeds its bytes to the operation; the metadata monitor ([`Monitor`]) sees
//! every change that the host makes and keeps what the crawler has cached true. One [`Retriever`] serves a
//! namespace: it holds the caches and the monitor, and all of the drive's reactors share it.
//!
//! It knows file systems through `fsview`, operations through `ndp`, and the drive as a [`Media`] to read
//! from.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

mod ahead;
mod at_once;
mod cache;
mod crawler;
mod deleted;
mod durable;
mod handler;
mod kept;
mod media;
mod model;
mod monitor;
mod operation;
mod partitions;
mod permission;
mod provider;
mod ranges;
mod reply;
mod trace;
mod tree;
mod unzip;
mod view;
mod volume;
mod walker;
mod ways;

pub use deleted::Deleted;
pub use media::{Batch, Media, MediaError, MemoryBatch, MemoryMedia};
pub use model::{Beneath, Full, MAX_LINKS, Mark, Outcome, Sink};
pub use monitor::{Monitor, MonitorCounters};
pub use nearside_fsview::acl::Acl;
pub use nearside_fsview::{FileKind, Inode, State, Timestamp, VolumeInfo};
pub use partitions::Part;
pub use reply::WireSink;
pub use trace::{Breakdown, Spent, Trace, TracePart};

use cache::Cache;
use crawler::{Dentry, Node};
use kept::Kept;
use nearside_ndp::program::is_installed;
use nearside_near_data::{KINDS, Language, Operation, ProgramOptions};
use view::Block;
use volume::CachedVolume;
use ways::{Place, Reached, Way};

/// Bounds of the retriever's memory and patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of metadata blocks kept.
    pub block_bytes: usize,
    /// Names kept (about 150 bytes each).
    pub names: usize,
    /// Inodes kept (about 500 bytes each).
    pub inodes: usize,
    /// Blocks of 4 KiB watched (about 32 bytes each); when there are more, all is forgotten.
    pub watched: usize,
    /// How often a file that changes while it is scanned is scanned again.
    pub tries: u32,
    /// Reads of file data in flight for one command, of at most 128 KiB each.
    pub depth: usize,
    /// Reads of file data in flight for an operation that needs the bytes in order; 1: no read runs ahead.
    pub ahead: usize,
    /// The drive owner's word that every user has the content of files by what home locations say of them,
    /// also where these are older than the data: on a volume that is mounted, or was not unmounted cleanly.
    /// Without it, only root has content there.
    pub allow_unrecovered: bool,
    /// Which state of a volume is shown that was not unmounted, or that a host has mounted. Recovered wants a
    /// monitor that is told of every change: where the bytes change behind the drive's back, the journal or
    /// log changes from under a view that has taken it in, and the state to show is what lies at home, with
    /// what that restricts (`allow_unrecovered`).
    pub state: State,
}

/// The operations of this process' drives, a bit for each number.
pub fn operations() -> u32 {
    let some = Language::ALL.iter().any(|&language| is_installed(language));
    let missing = if some { 0 } else { 1 << Operation::Program(Box::default()).number() };
    nearside_near_data::wire::OPERATIONS & !missing
}

/// The options of each operation that this process' drives take, as in
/// [`Kind::options`](nearside_near_data::Kind).
pub fn options() -> [u32; KINDS.len()] {
    let mut options = KINDS.map(|kind| kind.options);
    let program = &mut options[usize::from(Operation::Program(Box::default()).number())];
    for language in Language::ALL {
        if !is_installed(language) {
            *program &= !(1 << (ProgramOptions::LANGUAGE + language as u32));
        }
    }
    options
}

impl Default for Config {
    fn default() -> Config {
        Config {
            block_bytes: 16 << 20,
            names: 1 << 16,
            inodes: 1 << 15,
            watched: 1 << 18,
            tries: 8,
            depth: 8,
            ahead: 4,
            allow_unrecovered: false,
            state: State::Recovered,
        }
    }
}

/// What a drive knows of its namespace's files.
pub struct Retriever {
    pub(crate) monitor: Monitor,
    pub(crate) seed: u64,
    pub(crate) config: Config,
    pub(crate) trace: Option<Arc<Trace>>,
    pub(crate) searches: Arc<Kept<nearside_ndp::Search>>,
    pub(crate) programs: Arc<Kept<operation::Compiled>>,
    caches: Mutex<Caches>,
    overlay_bytes: AtomicU64,
    /// Once somebody asks for it: other drives do not pay for it.
    pub(crate) scanned: OnceLock<Arc<AtomicU64>>,
    beneath: OnceLock<Arc<Beneath>>,
}

pub(crate) struct Caches {
    pub blocks: Cache<Block>,
    pub dentries: Cache<Dentry>,
    pub nodes: Cache<Node>,
    pub directories: Cache<Way<Place>>,
    pub files: Cache<Way<Reached>>,
    pub volumes: Vec<CachedVolume>,
}

impl Retriever {
    /// One that knows nothing yet.
    pub fn new(config: Config) -> Retriever {
        use std::hash::{BuildHasher, RandomState};
        Retriever {
            monitor: Monitor::new(config.watched),
            seed: RandomState::new().hash_one(0u64),
            config,
            trace: None,
            searches: Arc::default(),
            programs: Arc::default(),
            caches: Mutex::new(Caches {
                blocks: Cache::new(config.block_bytes),
                dentries: Cache::new(config.names),
                nodes: Cache::new(config.inodes),
                directories: Cache::new(ways::MOST_DIRECTORIES),
                files: Cache::new(ways::MOST_FILES),
                volumes: Vec::new(),
            }),
            overlay_bytes: AtomicU64::new(0),
            scanned: OnceLock::new(),
            beneath: OnceLock::new(),
        }
    }

    /// A retriever with empty caches; `trace` is told where the time of every command goes.
    pub fn traced(config: Config, trace: Arc<Trace>) -> Retriever {
        Retriever { trace: Some(trace), ..Retriever::new(config) }
    }

    /// The monitor, which the drive tells of every change.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Bytes of memory, about, that hold what the open volumes' logs have committed and their homes have not.
    pub fn overlay_bytes(&self) -> u64 {
        self.overlay_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of file data that operations have seen since this was first asked for, those that run among
    /// them: for whoever shows how far a long one is.
    pub fn scanned(&self) -> Arc<AtomicU64> {
        self.scanned.get_or_init(Arc::default).clone()
    }

    /// Says what is known of the namespace's bytes, before the first request.
    pub fn set_beneath(&self, beneath: Arc<Beneath>) {
        let _first = self.beneath.set(beneath);
    }

    /// What is known of the namespace's bytes.
    pub fn beneath(&self) -> &Arc<Beneath> {
        self.beneath.get_or_init(Arc::default)
    }

    /// To be called where the open volumes are others: who asks how much they hold waits for nobody.
    pub(crate) fn count_overlays(&self, caches: &Caches) {
        let bytes = caches.volumes.iter().map(|kept| kept.overlay_bytes()).sum();
        self.overlay_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Forgets all that is cached.
    pub fn forget(&self) {
        let mut caches = self.caches();
        caches.blocks.clear();
        caches.dentries.clear();
        caches.nodes.clear();
        caches.directories.clear();
        caches.files.clear();
        caches.volumes.clear();
        self.count_overlays(&caches);
        self.monitor.reset();
    }

    /// Forgets all that is cached, yielding between pieces: there may be much to free.
    pub(crate) async fn forget_yielding(&self, media: &impl Media) {
        let (mut blocks, mut dentries, mut nodes, mut directories, mut files) = {
            let mut caches = self.caches();
            caches.volumes.clear();
            self.count_overlays(&caches);
            let (blocks, dentries, nodes) =
                (caches.blocks.drain(), caches.dentries.drain(), caches.nodes.drain());
            let (directories, files) = (caches.directories.drain(), caches.files.drain());
            self.monitor.reset();
            (blocks, dentries, nodes, directories, files)
        };
        while blocks.free_some()
            || dentries.free_some()
            || nodes.free_some()
            || directories.free_some()
            || files.free_some()
        {
            media.yield_now().await;
        }
    }

    /// Forgets names, inodes and blocks, and keeps the volumes open: what a drive knows that has just been
    /// started.
    pub fn forget_files(&self) {
        let mut caches = self.caches();
        caches.blocks.clear();
        caches.dentries.clear();
        caches.nodes.clear();
        caches.directories.clear();
        caches.files.clear();
    }

    /// The caches, where nobody else is at them.
    pub(crate) fn try_caches(&self) -> Option<MutexGuard<'_, Caches>> {
        self.caches.try_lock().ok()
    }

    pub(crate) fn caches(&self) -> MutexGuard<'_, Caches> {
        self.caches.lock().unwrap_or_else(|e| e.into_inner())
    }
}
