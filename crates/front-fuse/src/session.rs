//! A connection with the kernel from its first request to its end: what is agreed on, and the threads that
//! serve it.
//!
//! Requests come by io_uring ([`rings`](crate::rings)) where the kernel offers it (Linux 6.14, with the fuse
//! module's parameter enable_uring on when the mount is made), else by read and write
//! ([`classic`](crate::classic)). The kernel holds all requests back between its offer's acceptance and the
//! last queue's registration; so the rings are made before the one, and a failure of the other ends in the
//! classic way, which always runs.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use nearside_dma::fuse::{FuseDevice, ring};
use nearside_dma::{Region, cpu, system, wait_readable};
use nearside_driver::Policy;

use crate::classic;
use crate::engine::Engine;
use crate::files::Files;
use crate::rings::{self, Share, Talk};
use crate::wire::{ARGUMENTS, IN_HEADER, InHeader, Offer, Operation, out_header};

/// Which way requests come, as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// By io_uring where the kernel offers it, else by read and write.
    #[default]
    Auto,
    /// By read and write on `/dev/fuse`.
    Classic,
    /// By io_uring, or not at all.
    Uring,
}

/// Which way requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// By read and write on `/dev/fuse`.
    Classic,
    /// By io_uring: so many queues, and requests in flight of each.
    Uring {
        /// One for each CPU that the machine may have.
        queues: usize,
        /// Requests in flight of each.
        depth: usize,
    },
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Carrier::Classic => write!(f, "FUSE by /dev/fuse"),
            Carrier::Uring { queues, depth } => write!(f, "FUSE by io_uring ({queues} queues of {depth})"),
        }
    }
}

/// The parameter by which the kernel offers io_uring to mounts that are made from then on.
pub const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether a mount made now would have its requests come by io_uring, or why not.
///
/// # Errors
/// Why not, in words.
pub fn uring_offered() -> Result<(), String> {
    let value = std::fs::read_to_string(ENABLE_URING)
        .map_err(|e| format!("this kernel has no FUSE by io_uring ({ENABLE_URING}: {e})"))?;
    if value.trim() != "Y" {
        return Err(format!("it is off; on for mounts made after: echo Y > {ENABLE_URING}"));
    }
    ring::available().map_err(|e| format!("io_uring: {e}"))
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Unmounted,
    /// By its `abort` file in /sys/fs/fuse/connections.
    Aborted,
    Failed(String),
}

/// The threads.
pub(crate) struct Session {
    threads: Vec<JoinHandle<End>>,
    pub(crate) carrier: Carrier,
}

/// Bytes of a request's data at most: of the classic way, and of io_uring's, where each entry has as many.
const CLASSIC_BYTES: usize = 1 << 20;
const RING_BYTES: usize = 256 << 10;
/// Requests in flight: of the classic way, and beside io_uring, which leaves little to it.
const CLASSIC_OUT: usize = 64;
const BESIDE_OUT: usize = 8;
/// Entries of all queues together, and of one.
const ENTRIES: usize = 1024;
const ENTRIES_OF_ONE: (usize, usize) = (16, 64);
/// How long the kernel may take for its first request: it is there before the mount is.
const FIRST: Duration = Duration::from_secs(10);

/// What a connection may take: found before the drive is asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Threads for rings; 0: the classic way.
    pub(crate) ring_threads: usize,
    queues: usize,
    depth: usize,
}

impl Plan {
    /// For so many threads.
    ///
    /// # Errors
    /// io_uring is asked for and not to be had.
    pub(crate) fn of(transport: Transport, threads: usize) -> io::Result<Plan> {
        let offered = match transport {
            Transport::Classic => false,
            Transport::Auto => uring_offered().is_ok(),
            Transport::Uring => uring_offered().map(|()| true).map_err(io::Error::other)?,
        };
        let queues = if offered { cpu::possible_cores()? } else { 0 };
        let depth = (ENTRIES / queues.max(1)).clamp(ENTRIES_OF_ONE.0, ENTRIES_OF_ONE.1);
        Ok(Plan { ring_threads: threads.max(1).min(queues), queues, depth })
    }

    /// Queues of the drive that the threads need: the rings', and that of the classic way.
    pub(crate) fn served(&self) -> usize {
        self.ring_threads + 1
    }

    /// Bytes of the buffers that requests lie in.
    pub(crate) fn buffer_bytes(&self) -> usize {
        match self.ring_threads {
            0 => CLASSIC_OUT * CLASSIC_BYTES,
            _ => (self.queues * self.depth + BESIDE_OUT) * RING_BYTES,
        }
    }
}

impl Session {
    /// Agrees with the kernel and starts the threads; `ended` is told how the connection ended, and before it
    /// of each thread that failed: its queues are served no more.
    ///
    /// # Errors
    /// The system's; the kernel's protocol is not known; io_uring is asked for and was not to be had.
    pub(crate) fn start(
        device: FuseDevice,
        files: &Arc<Files>,
        policy: Policy,
        plan: Plan,
        transport: Transport,
        ended: impl Fn(End) + Send + Sync + 'static,
    ) -> io::Result<Session> {
        let (unique, offer) = first(&device)?;
        device.never_wait()?;
        let device = Arc::new(device);
        // The drive may have fewer queues than were asked for: one is for the classic way.
        let ring_threads = plan.ring_threads.min(files.host.served().saturating_sub(1));
        let by_ring = ring_threads > 0 && offer.has_ring();
        if transport == Transport::Uring && !by_ring {
            return Err(io::Error::other(
                "the kernel does not offer io_uring, or the drive has too few queues",
            ));
        }
        let ended: Ended = Arc::new(ended);
        let most = if by_ring { RING_BYTES } else { CLASSIC_BYTES };
        let payload = 1 << most.min(files.host.max_transfer()).max(4096).ilog2();
        let mut threads = Vec::new();
        let mut carrier = Carrier::Classic;
        let rings = if by_ring {
            rings(&device, files, policy, plan, ring_threads, payload, &ended)?
        } else {
            Vec::new()
        };
        let out = if by_ring { plan.queues * plan.depth } else { CLASSIC_OUT };
        let body = offer.accept(payload as u32, u16::try_from(out).unwrap_or(u16::MAX), by_ring);
        let reply = [&out_header(body.len() as u32, 0, unique)[..], body.bytes()].concat();
        device.reply(&reply, None)?;
        if by_ring {
            carrier = Carrier::Uring { queues: plan.queues, depth: plan.depth };
            rings.iter().for_each(|ring| _ = ring.go.send(()));
            for ring in &rings {
                if let Err(e) = ring.hears.recv().unwrap_or_else(|e| Err(io::Error::other(e))) {
                    if transport == Transport::Uring {
                        return Err(io::Error::new(e.kind(), format!("FUSE by io_uring: {e}")));
                    }
                    // The kernel has fallen back, too.
                    carrier = Carrier::Classic;
                }
            }
        }
        threads.extend(rings.into_iter().map(|ring| ring.thread));
        let queue =
            files.host.take_served().ok_or_else(|| io::Error::other("the drive has too few queues"))?;
        let (files, count) = (files.clone(), if by_ring { BESIDE_OUT } else { CLASSIC_OUT });
        threads.push(std::thread::Builder::new().name("fuse".into()).spawn(move || {
            system::serve_writeback();
            let end = match Engine::new(&files, queue, policy, count) {
                Ok(engine) => classic::serve(&device, engine, count, payload),
                Err(e) => End::Failed(e.to_string()),
            };
            ended(end.clone());
            end
        })?);
        Ok(Session { threads, carrier })
    }

    /// Waits for the threads, whose connection has ended; what was wrong with them.
    pub(crate) fn join(self) -> Vec<String> {
        let mut wrong = Vec::new();
        for thread in self.threads {
            match thread.join() {
                Ok(End::Failed(why)) => wrong.push(why),
                Ok(End::Unmounted | End::Aborted) => {}
                Err(_) => wrong.push("a thread that serves the mount panicked".into()),
            }
        }
        wrong
    }
}

/// The kernel's first request.
fn first(device: &FuseDevice) -> io::Result<(u64, Offer)> {
    let unknown = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("/dev/fuse: {what}"));
    // The least that the kernel takes before it knows more.
    let rest = Region::anonymous(16 << 10)?;
    let mut head = [0; IN_HEADER + 64];
    wait_readable(device.as_fd(), false, Some(FIRST));
    let len = device.receive(&mut head, (&rest, 0, rest.len()))?;
    let Some((header, args)) = head.split_first_chunk().filter(|_| len >= IN_HEADER + ARGUMENTS) else {
        return Err(unknown("a first request that is none"));
    };
    let header = InHeader::of(header);
    if Operation::of(header.opcode, args) != Ok(Operation::Init) {
        return Err(unknown("the first request is not INIT"));
    }
    match Offer::of(args) {
        Ok(offer) => Ok((header.unique, offer)),
        Err(errno) => {
            let _ = device.reply(&out_header(0, errno, header.unique), None);
            Err(unknown("the kernel speaks a FUSE protocol that is not known here"))
        }
    }
}

/// Who is told of an end.
type Ended = Arc<dyn Fn(End) + Send + Sync>;

/// A thread with a ring.
struct RingThread {
    thread: JoinHandle<End>,
    go: mpsc::Sender<()>,
    hears: mpsc::Receiver<io::Result<()>>,
}

/// Starts the threads, each with a ring and buffers that are not registered yet.
fn rings(
    device: &Arc<FuseDevice>,
    files: &Arc<Files>,
    policy: Policy,
    plan: Plan,
    count: usize,
    payload: usize,
    ended: &Ended,
) -> io::Result<Vec<RingThread>> {
    let mut all = Vec::with_capacity(count);
    for nth in 0..count {
        let queues =
            (nth..plan.queues).step_by(count).filter_map(|queue| u16::try_from(queue).ok()).collect();
        let share = Share { queues, depth: plan.depth, payload };
        let queue =
            files.host.take_served().ok_or_else(|| io::Error::other("the drive has too few queues"))?;
        let ((go, told), (says, hears)) = (mpsc::channel(), mpsc::channel());
        let (device, files, ended) = (device.clone(), files.clone(), ended.clone());
        let thread = std::thread::Builder::new().name(format!("fuse{nth}")).spawn(move || {
            // Where it may: the threads must not wait for the pages that they write out.
            system::serve_writeback();
            let talk = Talk { says, hears: told };
            let served = Engine::new(&files, queue, policy, share.entries())
                .and_then(|engine| rings::serve(&device, engine, &share, talk));
            let Err(error) = served else { return End::Unmounted };
            let end = End::Failed(format!("FUSE by io_uring: {error}"));
            ended(end.clone());
            end
        })?;
        all.push(RingThread { thread, go, hears });
    }
    for ring in &all {
        ring.hears.recv().unwrap_or_else(|e| Err(io::Error::other(e)))?;
    }
    Ok(all)
}

/// Whether the mount at `path`, of that device number, is still there although nobody serves it.
pub(crate) fn is_left(path: &Path, device: u64) -> bool {
    nearside_dma::in_use::is_mounted(path, device)
}
