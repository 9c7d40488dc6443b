//! One client: its messages in order, each answered before the next is taken; and what the drive asks it.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_device::Firmware;
use nearside_dma::remote::{Ask, Remote};
use nearside_dma::{MAX_MAPPINGS, PAGE_SIZE, Vector, accept, guest};
use nearside_store::Store;
use nearside_vfio_user::{
    Capabilities, Connection, DmaAccess, Kind, Limits, Message, ReceiveError, Reply, Request, Version,
    WireError, region, region_flags, send,
};

use crate::function::{PciFunction, Refusal};
use crate::{Device, Offer};

/// The protocol's version (docs/interop/vfio-user.rst of QEMU).
const MAJOR: u16 = 0;
const MINOR: u16 = 1;
/// Descriptors of one message; QEMU takes no server that takes more.
const DESCRIPTORS: usize = 16;
/// Bytes of data of one message.
const TRANSFER: usize = 1 << 20;
/// Bytes of its memory that a client is asked for with one message.
const QUESTION: usize = 32 << 10;
/// How long a client may take to send the rest of a message, its first one, or to take an answer.
const PATIENCE_NS: u64 = 5_000_000_000;
/// How often is looked, while nothing comes, whether memory of the client has gone.
const LOOK_NS: u64 = 200_000_000;

/// Why a client's connection is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error(transparent)]
    Received(#[from] ReceiveError),
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("it stopped within a message")]
    Stopped,
    #[error("its first message is no version, or one that is not known here")]
    Version,
    #[error("memory that it shared is not there any more")]
    MemoryGone,
    #[error("its controller panicked")]
    Panicked,
    #[error("what it asked for was given up: {0}")]
    GivenUp(Refusal),
}

pub(crate) struct Session<C> {
    connection: Connection,
    function: PciFunction<C>,
    clock: C,
    failures: u64,
    /// Held while a message is sent.
    sending: Arc<Mutex<()>>,
}

impl<C: Clock + Clone + 'static> Session<C> {
    pub(crate) fn new<S: Store, F: Firmware<S>>(
        offer: &Offer<S, F>,
        path: &Path,
        stream: UnixStream,
        clock: C,
    ) -> Result<Session<C>, End> {
        let failures = guest::failures();
        let limits = Limits { message: TRANSFER + PAGE_SIZE, descriptors: DESCRIPTORS };
        let mut connection = Connection::new(stream, limits);
        let first = receive(&mut connection, &clock, PATIENCE_NS, || Ok(()))?.ok_or(End::Stopped)?;
        let Ok(Request::Version(proposed)) = first.request() else { return Err(End::Version) };
        if proposed.major != MAJOR {
            return Err(End::Version);
        }
        let function = PciFunction::new(offer, path, clock.clone())?;
        let most = usize::try_from(proposed.capabilities.transfer()).unwrap_or(usize::MAX).min(QUESTION);
        // With less, a page would take too many questions: then none are asked.
        function.remote().limit(if most < PAGE_SIZE { 0 } else { most });
        let session = Session { connection, function, clock, failures, sending: Arc::default() };
        let agreed = Version {
            major: MAJOR,
            minor: proposed.minor.min(MINOR),
            capabilities: Capabilities {
                max_msg_fds: Some(DESCRIPTORS as u64),
                max_data_xfer_size: Some(TRANSFER as u64),
                max_dma_maps: Some(MAX_MAPPINGS as u64),
                pgsizes: Some(PAGE_SIZE as u64),
                write_multiple: proposed.capabilities.write_multiple,
            },
        };
        tracing::info!(path = %path.display(), minor = agreed.minor, "a client has connected");
        session.reply(&first, &Ok(Reply::Version(agreed)))?;
        Ok(session)
    }

    /// The function's interrupts.
    pub(crate) fn vectors(&self) -> Arc<[Vector]> {
        self.function.vectors()
    }

    /// What the client has of the drive.
    pub(crate) fn device(&self) -> Device {
        self.function.device()
    }

    /// Serves until the client goes.
    pub(crate) fn run(self) -> Result<(), End> {
        let memory = self.function.memory();
        let asker = Asker {
            socket: self.connection.socket().try_clone()?,
            sending: self.sending.clone(),
            clock: self.clock.clone(),
        };
        std::thread::scope(|scope| {
            let asks = std::thread::Builder::new().name("vfio-user-ask".into());
            asks.spawn_scoped(scope, || asker.run(memory.remote()))?;
            // However it ends, the other thread has to.
            let _end = EndsQuestions(memory.remote());
            self.serve()
        })
    }

    fn serve(mut self) -> Result<(), End> {
        let mut data = Vec::new();
        loop {
            let Session { connection, function, clock, failures, .. } = &mut self;
            let look = || {
                let now = guest::failures();
                if std::mem::replace(failures, now) != now && function.has_failed() {
                    return Err(End::MemoryGone);
                }
                Ok(())
            };
            let mut message = match receive(connection, clock, u64::MAX, look) {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(End::Received(ReceiveError::Closed)) => return Ok(()),
                Err(end) => return Err(end),
            };
            if let Kind::Reply { .. } = message.header.kind {
                self.function.answered(&message);
                continue;
            }
            let descriptors = std::mem::take(&mut message.descriptors);
            let answer = match message.request() {
                Ok(request) => self.function.answer(request, descriptors, &mut data),
                Err(WireError::Command(_)) => Err(Refusal::Unsupported),
                Err(_) => Err(Refusal::Invalid),
            };
            self.reply(&message, &answer)?;
            if let Err(late @ Refusal::Late) = answer {
                return Err(End::GivenUp(late));
            }
        }
    }

    fn reply(&self, message: &Message, answer: &Result<Reply<'_>, Refusal>) -> Result<(), End> {
        if message.header.kind == (Kind::Command { no_reply: true }) {
            return Ok(());
        }
        let id = message.header.id;
        let until = self.clock.now() + PATIENCE_NS;
        let left = || Duration::from_nanos(until.since(self.clock.now()));
        let _one = lock(&self.sending);
        match answer {
            Ok(reply) => {
                let descriptors = self.descriptors(reply);
                self.connection.send(id, Kind::Reply { error: None }, reply, &descriptors, left)?;
            }
            Err(refusal) => {
                tracing::debug!(command = message.header.command, %refusal, "a client is refused something");
                let error = Kind::Reply { error: Some(refusal.errno()) };
                self.connection.send(id, error, &message.header.command, &[], left)?;
            }
        }
        Ok(())
    }

    /// What goes with a reply.
    fn descriptors(&self, reply: &Reply<'_>) -> Vec<BorrowedFd<'_>> {
        match reply {
            Reply::RegionInfo(info)
                if info.index == region::BAR0
                    && info.flags & region_flags::MMAP != 0
                    && !info.areas.is_empty() =>
            {
                self.function.doorbells().into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What sends the drive's own questions to the client, beside the answers to the client's.
struct Asker<C> {
    socket: UnixStream,
    sending: Arc<Mutex<()>>,
    clock: C,
}

impl<C: Clock> Asker<C> {
    fn run(&self, remote: &Remote) {
        while let Some((id, ask)) = remote.next() {
            let request = match &ask {
                Ask::Read { address, len } => {
                    Request::DmaRead(DmaAccess { address: *address, count: *len as u64 })
                }
                Ask::Write { address, bytes } => {
                    Request::DmaWrite(DmaAccess { address: *address, count: bytes.len() as u64 }, bytes)
                }
            };
            let until = self.clock.now() + PATIENCE_NS;
            let left = || Duration::from_nanos(until.since(self.clock.now()));
            let kind = Kind::Command { no_reply: false };
            let sent = {
                let _one = lock(&self.sending);
                send(&self.socket, id, kind, &request, &[], left)
            };
            if let Err(error) = sent {
                // Perhaps within a message: nothing can follow it.
                tracing::debug!(%error, "a client does not take what it is asked");
                accept::stop(&self.socket);
                return;
            }
        }
    }
}

struct EndsQuestions<'a>(&'a Remote);

impl Drop for EndsQuestions<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn lock(sending: &Mutex<()>) -> MutexGuard<'_, ()> {
    sending.lock().unwrap_or_else(|e| e.into_inner())
}

/// The next message. `None`: nothing came in `idle_ns`. Once something has come, the rest has its time.
/// `look` is asked now and then.
fn receive(
    connection: &mut Connection,
    clock: &impl Clock,
    idle_ns: u64,
    mut look: impl FnMut() -> Result<(), End>,
) -> Result<Option<Message>, End> {
    let begun = clock.now();
    let mut within: Option<Nanos> = None;
    loop {
        look()?;
        let until = clock.now() + LOOK_NS;
        if let Some(message) = connection.receive(|| Duration::from_nanos(until.since(clock.now())))? {
            return Ok(Some(message));
        }
        let now = clock.now();
        match connection.is_within_a_message() {
            true if now.since(*within.get_or_insert(now)) > PATIENCE_NS => return Err(End::Stopped),
            true => {}
            false if now.since(begun) > idle_ns => return Ok(None),
            false => {}
        }
    }
}
