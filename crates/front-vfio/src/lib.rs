#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! For each client that connects the front makes a controller of `nearside-device` with threads of its own
//! ([`nearside_device::runner`]); what the client maps goes into the controller's IOVA table, eventfds into
//! its vectors, and writes to registers into the same words that a host in this process would write, followed
//! by the same wake-up. So a command passes as for any host, and no message goes with it:
//!
//! - a doorbell that the client cannot map traps into a message, which wakes the drive; with shadow doorbells
//!   (`device/doorbell.rs`) that happens only while the drive sleeps;
//! - a doorbell page that the client maps ([`Offer::mapped_doorbells`]) is watched as long as it is there.
//!
//! A message passes: `session` (whole messages, their order, the client's time) -> `function` (what it means)
//! -> `space` (configuration space), `bar` (registers, doorbells, MSI-X), `mappings` (DMA). Clients are not
//! believed: what they send is refused or contained, and costs nobody but themselves.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod bar;
mod function;
mod mappings;
mod session;
mod space;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use nearside_clock::Clock;
use nearside_device::{Firmware, Identity, Subsystem};
use nearside_dma::local::{self, Access};
use nearside_dma::{Region, accept};
use nearside_spec::registers as reg;
use nearside_store::Store;

use mappings::Mapped;
use session::{End, Session};

/// A function as clients are offered it.
pub struct Offer<S: Store, F: Firmware<S>> {
    /// The subsystem's name.
    pub nqn: String,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Its namespaces.
    pub subsystem: Arc<Subsystem<S, F>>,
    /// Those of them that clients have; `None`: all.
    pub namespaces: Option<BTreeSet<u32>>,
    /// What the client's word on who asks for near-data work is worth.
    pub identity: Identity,
    /// The controller's number in its subsystem.
    pub cntlid: u16,
    /// Threads that serve the controller's queues, 1 to 16.
    pub threads: usize,
    /// I/O queue pairs, at most 63.
    pub io_queues: u16,
    /// Log2 of the largest transfer in 4 KiB pages.
    pub mdts: u8,
    /// Whether a volatile write cache is reported.
    pub write_cache: bool,
    /// Whether clients may map the doorbells. The threads then look at them all the time that a client is
    /// connected, since nothing tells of a write; else writes are messages, and shadow doorbells spare them.
    pub mapped_doorbells: bool,
}

impl<S: Store, F: Firmware<S>> Offer<S, F> {
    /// With one thread, 31 I/O queue pairs, transfers up to 1 MiB; root is squashed to nobody.
    pub fn new(nqn: &str, serial: &str, subsystem: Arc<Subsystem<S, F>>) -> Offer<S, F> {
        Offer {
            nqn: nqn.to_owned(),
            serial: serial.to_owned(),
            subsystem,
            namespaces: None,
            identity: Identity::SquashRoot { uid: 65534, gid: 65534 },
            cntlid: 1,
            threads: 1,
            io_queues: 31,
            mdts: 8,
            write_cache: true,
            mapped_doorbells: false,
        }
    }
}

/// What QEMU is given to have the function at `path`, with memory that it shares with the drive (without,
/// each piece of data takes messages).
pub fn qemu_line(path: &Path) -> String {
    let path = path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "qemu-system-x86_64 -object memory-backend-memfd,id=mem,size=1G,share=on -m 1G -machine q35,memory-backend=mem \
         -device '{{\"driver\":\"vfio-user-pci\",\"socket\":{{\"type\":\"unix\",\"path\":\"{path}\"}}}}'"
    )
}

/// A function that is served at a socket, to one client at a time. Dropped, it ends: whoever is connected
/// loses the device.
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<UnixListener>,
    name: local::Name,
    thread: Option<JoinHandle<()>>,
}

/// What the server's owner and its thread share.
#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    /// Clients that have had the function, the present one included.
    clients: AtomicU64,
    /// Who is connected.
    client: Mutex<Option<Client>>,
}

struct Client {
    stream: UnixStream,
    /// `None`: it has not said yet which version it speaks.
    device: Option<Device>,
}

/// What a client has of the drive.
struct Device {
    registers: Arc<Region>,
    mapped: Arc<Mapped>,
}

/// How a function stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// A client has it.
    pub connected: bool,
    /// The client has enabled its controller (CSTS.RDY).
    pub enabled: bool,
    /// Clients that have had it, the present one included.
    pub clients: u64,
    /// Ranges of memory that the client has mapped for DMA.
    pub regions: u64,
    /// Bytes of these.
    pub mapped_bytes: u64,
}

/// Looks at a function; it does not keep it.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

impl Observer {
    /// How the function stands. When it has ended: as without a client.
    pub fn state(&self) -> State {
        let clients = self.0.clients.load(Ordering::Relaxed);
        let client = self.0.client();
        let Some(Device { registers, mapped }) = client.as_ref().and_then(|c| c.device.as_ref()) else {
            return State { clients, ..State::default() };
        };
        State {
            connected: true,
            enabled: registers.word32(reg::CSTS).load(Ordering::Relaxed) & 1 != 0,
            clients,
            regions: mapped.regions.load(Ordering::Relaxed),
            mapped_bytes: mapped.bytes.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Server {
    /// Listens at `path`, which the user of this process (and root) alone may connect to, and serves. A
    /// socket that nobody serves any more is replaced.
    ///
    /// # Errors
    /// Those of [`nearside_dma::local::bind`]; the system's: no thread.
    pub fn start<S: Store, F: Firmware<S>>(
        offer: Offer<S, F>,
        path: &Path,
        clock: impl Clock + Clone + 'static,
    ) -> io::Result<Server> {
        let (listener, name) = local::bind(path, Access::Owner)?;
        let (listener, shared) = (Arc::new(listener), Arc::new(Shared::default()));
        let thread = std::thread::Builder::new().name("vfio-user".into()).spawn({
            let (listener, shared, path) = (listener.clone(), shared.clone(), name.path().to_owned());
            move || {
                accept::accept_each(
                    &*listener,
                    || shared.ends.load(Ordering::SeqCst),
                    |error| tracing::warn!(%error, path = %path.display(), "no client can connect"),
                    std::thread::sleep,
                    |stream| serve(&offer, &path, stream, &shared, clock.clone()),
                );
            }
        })?;
        Ok(Server { shared, listener, name, thread: Some(thread) })
    }

    /// What tells how it stands.
    pub fn observer(&self) -> Observer {
        Observer(self.shared.clone())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.name.path()
    }
}

/// One client, from its connection to its end.
fn serve<S: Store, F: Firmware<S>>(
    offer: &Offer<S, F>,
    path: &Path,
    stream: UnixStream,
    shared: &Shared,
    clock: impl Clock + Clone + 'static,
) {
    let known = match stream.try_clone() {
        Ok(known) => known,
        Err(error) => return tracing::warn!(%error, path = %path.display(), "a client cannot be served"),
    };
    *shared.client() = Some(Client { stream: known, device: None });
    // The end may have come just before: it found no client, and is found here.
    if !shared.ends.load(Ordering::SeqCst) {
        let ended = Session::new(offer, path, stream, clock).and_then(|session| {
            let vectors = session.vectors();
            shared.clients.fetch_add(1, Ordering::Relaxed);
            if let Some(client) = &mut *shared.client() {
                client.device = Some(session.device());
            }
            let end = || shared.client().iter().for_each(|client| accept::stop(&client.stream));
            // What a controller trips over is its client's.
            let run = || catch_unwind(AssertUnwindSafe(|| session.run())).unwrap_or(Err(End::Panicked));
            watch::beside(&vectors, path, end, run)?
        });
        match ended {
            Ok(()) => tracing::info!(path = %path.display(), "a client has gone"),
            Err(error) => tracing::warn!(%error, path = %path.display(), "a client's connection is over"),
        }
    }
    *shared.client() = None;
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        accept::stop(&*self.listener);
        if let Some(client) = &*self.shared.client() {
            accept::stop(&client.stream);
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the thread of a vfio-user function panicked");
        }
    }
}
