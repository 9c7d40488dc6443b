//! The seam between what waits for commands and what carries them.
//!
//! A [`Transport`] is one queue, for one thread: it takes commands, tells the drive of them, finds
//! what has ended, and can be watched or slept on. A [`Controller`] makes such queues and passes admin
//! commands; Identify, features and logs are here once for all. Over shared memory they are
//! [`QueuePair`](crate::QueuePair) and [`Driver`](crate::Driver), over NVMe/TCP
//! [`tcp::Queue`](crate::tcp::Queue) and [`tcp::Association`](crate::tcp::Association). Both are
//! chosen when compiled: no call is dynamic.

use std::time::Duration;

use nearside_clock::{Clock, Nanos};
use nearside_dma::WaitKind;
use nearside_spec::command::{self, abort, features};
use nearside_spec::feature::fid;
use nearside_spec::identify::{IdentifyController, IdentifyNamespace, cns};
use nearside_spec::registers::{Cap, csts};
use nearside_spec::{Status, opcode};

use crate::{Command, Error, Failure, Host, Peer, QueueConfig, RejectReason, Rejected};

/// A command's data.
pub trait Buffer {
    /// Bytes that a command transfers.
    fn len(&self) -> usize;
    /// Whether a command would transfer nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes that it can hold.
    fn capacity(&self) -> usize;
    /// Sets how much a command transfers; what was beyond the length before is arbitrary.
    /// Panics beyond the capacity.
    fn set_len(&mut self, len: usize);
    /// Copies bytes in. Panics outside the length.
    fn write(&mut self, at: usize, from: &[u8]);
    /// Copies bytes out. Panics outside the length.
    fn read(&self, at: usize, into: &mut [u8]);
}

impl Buffer for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }
    fn capacity(&self) -> usize {
        self.capacity()
    }
    fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes of a buffer of {}", self.capacity());
        self.resize(len, 0);
    }
    fn write(&mut self, at: usize, from: &[u8]) {
        self[at..at + from.len()].copy_from_slice(from);
    }
    fn read(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self[at..at + into.len()]);
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Completed<B = crate::DmaBuffer> {
    /// The submitter's name for it.
    pub cookie: u64,
    /// Dwords 0 and 1 of the completion (dword 0 low), or the failure.
    pub outcome: Result<u64, Failure>,
    /// The buffer. `None` where none was given, or where the drive may still write to it:
    /// [`Failure::Unresponsive`], and [`Failure::Lost`] where it shares memory with this process.
    pub buffer: Option<B>,
    /// Bytes of the buffer that were moved, in either direction, as far as the transport tells;
    /// all of them over shared memory.
    pub moved: usize,
    /// When it was submitted.
    pub submitted: Nanos,
}

const _: () =
    assert!(size_of::<Completed>() <= 64, "a completion fits a cache line: every command moves one");

/// How often something happened on a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Commands taken.
    pub submitted: u64,
    /// Completions found.
    pub completed: u64,
    /// Writes of the tail doorbell; over a network, calls of the system that read or wrote the socket.
    pub calls: u64,
    /// Completions for no command that is out: the drive's error.
    /// (A network's peer loses its connection for the first.)
    pub spurious: u64,
}

/// One queue of a controller, owned by one thread.
/// It never waits unless told to, and takes the time as a parameter.
pub trait Transport {
    /// What commands carry.
    type Buffer: Buffer;

    /// Whether telling the drive costs so little that it is told of each command at once,
    /// rather than of all since the last look.
    const RINGS_AT_ONCE: bool;

    /// Commands that it can have out.
    fn depth(&self) -> usize;

    /// Commands that are out.
    fn outstanding(&self) -> usize;

    /// Whether it takes commands still.
    fn is_alive(&self) -> bool;

    /// What happened on it so far.
    fn counts(&self) -> QueueCounts;

    /// Takes a command. It reaches the drive with the next
    /// [`ring`](Transport::ring) or [`poll`](Transport::poll).
    ///
    /// # Errors
    /// The queue is full or dead, or the buffer does not fit: it comes back.
    fn submit(
        &mut self,
        command: &Command,
        buffer: Option<Self::Buffer>,
        cookie: u64,
        now: Nanos,
    ) -> Result<(), Rejected<Self::Buffer>>;

    /// Tells the drive of all commands taken since the last time.
    fn ring(&mut self);

    /// Rings, then hands commands that have ended to `sink`: all, or those that one look at a connection
    /// found. Returns how many; none where none has ended.
    ///
    /// # Errors
    /// Why nothing ends any more: [`Controller::rescue`] then ends what is out.
    fn poll(&mut self, now: Nanos, sink: impl FnMut(Completed<Self::Buffer>)) -> Result<usize, Error>;

    /// When [`Transport::poll`] next has to be called though nothing came: to find a timeout.
    /// `None` where nothing is out.
    fn deadline(&self) -> Option<Nanos>;

    /// A short pause within a spin, by the CPU's own wait for what shows the next completion,
    /// where it can be waited for so.
    fn watch(&mut self, wait: WaitKind);

    /// Sleeps until something came, or (always allowed) less, at most `timeout`. Ring before.
    fn sleep(&mut self, timeout: Duration);

    /// Queue and command identifier of a command that is out, by its submitter's name for it: for Abort.
    fn identifier(&self, cookie: u64) -> Option<(u16, u16)>;
}

/// A controller as its host has it. Clones share it.
///
/// Whatever waits takes a [`Host`]: the clock that bounds the wait, and who runs the drive meanwhile.
pub trait Controller: Clone {
    /// Its I/O queues.
    type Queue: Transport;

    /// What Identify said of it at the start.
    fn identity(&self) -> &IdentifyController;

    /// Most bytes of one command.
    fn max_transfer(&self) -> usize;

    /// I/O queues that it granted.
    fn queues(&self) -> u16;

    /// A buffer that commands may carry. What it holds is arbitrary.
    ///
    /// # Errors
    /// There is no memory.
    fn buffer(&self, len: usize) -> Result<BufferOf<Self>, Error>;

    /// Passes an admin command and waits for its end, which is a success. `name` is for errors.
    ///
    /// # Errors
    /// The command's failure; no answer; the controller is gone.
    fn admin(
        &self,
        name: &'static str,
        command: &Command,
        buffer: Option<BufferOf<Self>>,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<Answer<BufferOf<Self>>, Error>;

    /// Makes an I/O queue.
    ///
    /// # Errors
    /// All are taken; the controller refuses; there is no memory.
    fn queue(
        &self,
        config: QueueConfig,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<Self::Queue, Error>;

    /// Ends a queue, also under load. Every command that was out comes back through `sink`.
    ///
    /// # Errors
    /// The controller's.
    fn delete(
        &self,
        queue: Self::Queue,
        host: &mut Host<impl Clock, impl Peer>,
        sink: impl FnMut(Completed<BufferOf<Self>>),
    ) -> Result<(), Error>;

    /// After [`Transport::poll`] has failed: ends what is out on the queue, which goes to `sink`.
    fn rescue(
        &self,
        queue: &mut Self::Queue,
        host: &mut Host<impl Clock, impl Peer>,
        sink: impl FnMut(Completed<BufferOf<Self>>),
    );

    /// The namespace that a name for the controller means, where it names one.
    fn default_namespace(&self) -> Option<u32> {
        None
    }

    /// Identify (CNS `cns`, namespace `nsid`): the 4,096 bytes.
    ///
    /// # Errors
    /// As [`Controller::admin`]; fewer bytes came.
    fn identify(
        &self,
        cns: u8,
        nsid: u32,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<[u8; 4096], Error> {
        let command = Command::of(command::identify_command(cns, nsid));
        let bytes = self.answer("identify", &command, 4096, host)?;
        let whole = bytes.first_chunk().copied();
        whole.ok_or(Error::Command { command: "identify", failure: Failure::Short })
    }

    /// The active namespaces' identifiers (at most 1,024).
    ///
    /// # Errors
    /// As [`Controller::identify`].
    fn namespaces(&self, host: &mut Host<impl Clock, impl Peer>) -> Result<Vec<u32>, Error> {
        let bytes = self.identify(cns::ACTIVE_NAMESPACES, 0, host)?;
        let ids = bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
        Ok(ids.take_while(|&id| id != 0).collect())
    }

    /// Size and format of a namespace; without an identifier, of the one that the controller's name means,
    /// or of the first.
    ///
    /// # Errors
    /// There is none; its format cannot be used; as [`Controller::identify`].
    fn namespace(
        &self,
        nsid: Option<u32>,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<NamespaceInfo, Error> {
        let nsid = match nsid.or(self.default_namespace()) {
            Some(nsid) => nsid,
            None => {
                let first = self.namespaces(host)?.first().copied();
                first.ok_or(Error::Unsupported("it has no namespace for this host"))?
            }
        };
        match self.identify(cns::NAMESPACE, nsid, host) {
            Ok(bytes) => NamespaceInfo::of(nsid, &bytes),
            Err(Error::Command { failure: Failure::Status(s), .. })
                if s.code() == Status::INVALID_NAMESPACE =>
            {
                Err(Error::Namespace { nsid, why: "there is no such namespace" })
            }
            Err(e) => Err(e),
        }
    }

    /// Get Features: dword 0 (`select`: 0 current, 1 default, 2 saved, 3 capabilities).
    ///
    /// # Errors
    /// As [`Controller::admin`].
    fn get_feature(
        &self,
        fid: u8,
        select: u8,
        nsid: u32,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<u32, Error> {
        let command = Command::raw(opcode::admin::GET_FEATURES, nsid)
            .with(features::FID, fid)
            .with(features::SEL, select);
        Ok(self.admin("get features", &command, None, host)?.result as u32)
    }

    /// Set Features with CDW11.
    ///
    /// # Errors
    /// As [`Controller::admin`].
    fn set_feature(
        &self,
        fid: u8,
        value: u32,
        nsid: u32,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<u32, Error> {
        let command = Command::raw(opcode::admin::SET_FEATURES, nsid)
            .with(features::FID, fid)
            .with(features::VALUE, value);
        Ok(self.admin("set features", &command, None, host)?.result as u32)
    }

    /// Get Log Page: up to `len` bytes from byte `offset` (a multiple of four) of log `lid`.
    ///
    /// # Errors
    /// As [`Controller::admin`].
    fn log_page(
        &self,
        lid: u8,
        nsid: u32,
        offset: u64,
        len: usize,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<Vec<u8>, Error> {
        let whole = len.div_ceil(4).max(1) * 4;
        let command = Command::of(command::get_log_page(lid, nsid, offset, whole));
        let mut bytes = self.answer("get log page", &command, whole, host)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Abort: whether the command was aborted (dword 0 bit 0 clear).
    /// Its own completion comes by its queue either way.
    ///
    /// # Errors
    /// As [`Controller::admin`].
    fn abort(&self, queue: u16, cid: u16, host: &mut Host<impl Clock, impl Peer>) -> Result<bool, Error> {
        let command = Command::raw(opcode::admin::ABORT, 0).with(abort::SQID, queue).with(abort::CID, cid);
        Ok(self.admin("abort", &command, None, host)?.result & 1 == 0)
    }

    /// Asks for I/O queues (Base 5.27.1.5): how many it grants, at most as many as asked for.
    ///
    /// # Errors
    /// As [`Controller::admin`].
    fn ask_for_queues(&self, wanted: u16, host: &mut Host<impl Clock, impl Peer>) -> Result<u16, Error> {
        let wanted_z = wanted.clamp(1, 0xffff) - 1;
        let command = Command::raw(opcode::admin::SET_FEATURES, 0)
            .with(features::FID, fid::NUMBER_OF_QUEUES)
            .with(features::NSQR_Z, wanted_z)
            .with(features::NCQR_Z, wanted_z);
        let granted = self.admin("set the number of queues", &command, None, host)?.result as u32;
        Ok((granted as u16).min((granted >> 16) as u16).min(wanted_z).saturating_add(1))
    }

    /// The bytes that a command of at most `len` answers with.
    ///
    /// # Errors
    /// As [`Controller::admin`].
    fn answer(
        &self,
        name: &'static str,
        command: &Command,
        len: usize,
        host: &mut Host<impl Clock, impl Peer>,
    ) -> Result<Vec<u8>, Error> {
        let mut buffer = self.buffer(len)?;
        buffer.write(0, &vec![0; len]);
        let answer = self.admin(name, command, Some(buffer), host)?;
        let mut bytes = vec![0; answer.moved];
        match answer.buffer {
            Some(buffer) => buffer.read(0, &mut bytes),
            None => bytes.clear(),
        }
        Ok(bytes)
    }
}

/// What commands on a controller's queues carry.
pub type BufferOf<K> = <<K as Controller>::Queue as Transport>::Buffer;

/// An admin command's success.
#[derive(Debug)]
pub struct Answer<B = crate::DmaBuffer> {
    /// Dwords 0 and 1 of the completion (dword 0 low).
    pub result: u64,
    /// The buffer.
    pub buffer: Option<B>,
    /// Bytes of it that were moved.
    pub moved: usize,
}

/// From a completion: its success, or the command's failure by name.
pub(crate) fn answered<B>(name: &'static str, done: Completed<B>) -> Result<Answer<B>, Error> {
    match done.outcome {
        Ok(result) => Ok(Answer { result, buffer: done.buffer, moved: done.moved }),
        Err(failure) => Err(Error::Command { command: name, failure }),
    }
}

/// Why an admin command was not taken.
pub(crate) fn not_taken<B>(rejected: &Rejected<B>) -> Error {
    match rejected.reason {
        RejectReason::Dead => Error::Stopped,
        RejectReason::Full => Error::Unsupported("its admin queue is full"),
        RejectReason::Buffer => Error::Unsupported("the buffer is beyond its largest transfer"),
    }
}

/// Waits until CSTS.RDY is as wanted, at most CAP.TO (and at least 500 ms). `status` reads CSTS; when it does
/// so again, it gives others their turn before.
pub(crate) fn await_ready<C: Clock, P: Peer>(
    wanted: bool,
    cap: Cap,
    host: &mut Host<C, P>,
    mut status: impl FnMut(&mut Host<C, P>, bool) -> Result<u32, Error>,
) -> Result<(), Error> {
    let timeout_ms = cap.timeout_ms().max(500);
    let deadline = host.clock.now() + timeout_ms * 1_000_000;
    let mut again = false;
    loop {
        let now = status(host, again)?;
        if (now & csts::RDY != 0) == wanted && now != u32::MAX {
            return Ok(());
        }
        if wanted && now & csts::CFS != 0 {
            return Err(Error::Fatal);
        }
        if host.clock.now() >= deadline {
            let wanted = if wanted { "ready" } else { "disabled" };
            return Err(Error::NotReady { wanted, timeout_ms });
        }
        again = true;
    }
}

/// Bytes of the largest transfer: what MDTS allows (in units of the smallest page),
/// and what the driver has room for.
pub(crate) fn max_transfer(identity: &IdentifyController, page: usize, most: usize) -> usize {
    match identity.mdts() {
        0 => most,
        shift => page.checked_shl(shift.into()).filter(|&max| max >= page).map_or(most, |max| max.min(most)),
    }
}

/// A namespace, as Identify describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Its identifier.
    pub nsid: u32,
    /// Its size in blocks.
    pub blocks: u64,
    /// Bytes per block.
    pub block_size: u32,
    /// Whether it refuses writes.
    pub read_only: bool,
}

impl NamespaceInfo {
    /// From what Identify Namespace said.
    ///
    /// # Errors
    /// It is not active, or has a format that the driver cannot use.
    pub fn of(nsid: u32, bytes: &[u8; 4096]) -> Result<NamespaceInfo, Error> {
        let id = IdentifyNamespace::from_bytes(bytes);
        let wrong = |why| Error::Namespace { nsid, why };
        if id.nsze() == 0 {
            return Err(wrong("it is not active"));
        }
        let block_size = match id.format().lbads() {
            shift @ 9..=16 => 1 << shift,
            _ => return Err(wrong("its blocks are smaller than 512 bytes or larger than 64 KiB")),
        };
        if id.format().ms() != 0 {
            return Err(wrong("its format has metadata"));
        }
        Ok(NamespaceInfo { nsid, blocks: id.nsze(), block_size, read_only: id.nsattr() & 1 != 0 })
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size.into())
    }
}
