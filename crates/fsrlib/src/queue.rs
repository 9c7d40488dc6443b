//! The transport to a drive through the driver: a queue and its completion policy, over shared memory here,
//! over NVMe/TCP in `tcp.rs`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_clock::Clock;
use nearside_driver::{
    Buffer, BufferOf, Command, CommandKind, Controller, DmaBuffer, Driver, Failure, Finished, Handle,
    Initiator, InitiatorConfig, NamespaceInfo, Peer, Policy, QueueConfig, RejectReason, Rejected, Service,
    Threaded, policy,
};
use nearside_near_data::MAX_BUFFER;
use nearside_spec::command::{features, near_data};
use nearside_spec::log::NearDataLog;
use nearside_spec::opcode;

use crate::carrier::{LOOK_NS, Stop, Tags, take_reply};
use crate::{Completion, Error, Replies, Requests, Transport};

/// How a near-data request becomes a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// The vendor I/O command 0xC3: the reply overwrites the request's buffer.
    #[default]
    Vendor,
    /// DAC'23's own: Get Features with a vendor feature identifier, on the admin queue (III-F).
    GetFeatures,
}

/// Near-data commands under way together: what fits a drive's slice, and their buffers its caches.
const TOGETHER: usize = 16;

/// What its failures are called.
const NEAR_DATA: &str = "a near-data command";

/// Bytes of one ordinary read.
const READ: usize = 128 * 1024;

/// A namespace behind an initiator, over whatever transport it has.
pub struct QueueTransport<P, C, K: Controller = Driver> {
    pub(crate) initiator: Initiator<P, C, K>,
    pub(crate) namespace: NamespaceInfo,
    encoding: Encoding,
    /// The buffer of the last near-data command, for the next.
    pub(crate) spare: Option<BufferOf<K>>,
    /// What an operation's two commands meet under, where one cannot do.
    pub(crate) tags: Tags,
    pub(crate) stop: Stop,
    /// What its commands are called that are out: few.
    pub(crate) cookies: Vec<(Handle, u64)>,
    /// The asynchronous path, where it is the transport's own: it ends after the queue.
    _service: Option<Service>,
}

/// How a controller's queues carry near-data requests and reads.
pub trait Carrying: Controller {
    /// One near-data request, and its reply into `reply`.
    ///
    /// # Errors
    /// The drive's, the driver's, or the reply's form.
    fn near_data<P: Peer, C: Clock>(
        transport: &mut QueueTransport<P, C, Self>,
        request: &[u8],
        capacity: usize,
        reply: &mut Vec<u8>,
    ) -> Result<(), Error>;

    /// Several, as [`Transport::near_data_each`].
    fn near_data_each<P: Peer, C: Clock>(
        transport: &mut QueueTransport<P, C, Self>,
        requests: Requests<'_>,
        replies: Replies<'_>,
    ) {
        let mut reply = Vec::new();
        for (request, capacity) in requests {
            let answer = Self::near_data(transport, &request, capacity, &mut reply);
            if replies(answer.map(|()| &reply[..])).is_break() {
                return;
            }
        }
    }

    /// How many are under way together then.
    fn at_once<P: Peer, C: Clock>(_transport: &QueueTransport<P, C, Self>) -> usize {
        1
    }

    /// Fills `into` from byte `offset` by reads of at most `most` bytes. Returns how many.
    ///
    /// # Errors
    /// The drive's or the driver's.
    fn read<P: Peer, C: Clock>(
        transport: &mut QueueTransport<P, C, Self>,
        most: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<u64, Error>;

    /// Where the drive is, in words; nothing where it is in this machine's memory.
    fn place(&self) -> String {
        String::new()
    }
}

impl<P: Peer, C: Clock, K: Carrying> QueueTransport<P, C, K> {
    /// The namespace `nsid`, or the one that the controller's name means, or its first.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    pub fn new(mut initiator: Initiator<P, C, K>, nsid: Option<u32>) -> Result<Self, Error> {
        let (controller, host) = initiator.admin();
        let namespace = controller.namespace(nsid, host).map_err(failed)?;
        Ok(QueueTransport::with(initiator, namespace))
    }

    /// That namespace.
    pub(crate) fn with(initiator: Initiator<P, C, K>, namespace: NamespaceInfo) -> Self {
        QueueTransport {
            initiator,
            namespace,
            encoding: Encoding::Vendor,
            spare: None,
            tags: Tags::default(),
            stop: Stop::default(),
            cookies: Vec::new(),
            _service: None,
        }
    }

    /// The initiator, for its account and policy.
    pub fn initiator(&mut self) -> &mut Initiator<P, C, K> {
        &mut self.initiator
    }

    /// The namespace.
    pub fn namespace(&self) -> NamespaceInfo {
        self.namespace
    }

    pub(crate) fn buffer(&mut self, len: usize) -> Result<BufferOf<K>, Error> {
        match self.spare.take() {
            Some(mut buffer) if buffer.capacity() >= len => {
                buffer.set_len(len);
                Ok(buffer)
            }
            _ => self.initiator.buffer(len).map_err(failed),
        }
    }
}

/// A namespace of a controller in another process.
pub type VfioUserTransport<C> = QueueTransport<Threaded, C>;

impl<C: Clock + Clone + 'static> VfioUserTransport<C> {
    /// The first namespace of a controller in another process ([`Driver::connect`]), over a queue of its own.
    ///
    /// # Errors
    /// There is no queue, or no namespace.
    pub fn over(driver: &Driver, policy: Policy, clock: C) -> Result<Self, Error> {
        let service = match policy {
            Policy::Polled => None,
            Policy::Interrupt | Policy::Hybrid => {
                Some(Service::start(driver, TOGETHER as u16, clock.clone(), || {}).map_err(failed)?)
            }
        };
        let queue = QueueConfig { depth: TOGETHER as u16, interrupt: policy != Policy::Polled };
        let (config, handle) = (InitiatorConfig { queue, policy }, service.as_ref().map(Service::handle));
        let initiator = Initiator::new(driver, config, clock, Threaded, handle).map_err(failed)?;
        Ok(QueueTransport { _service: service, ..QueueTransport::new(initiator, None)? })
    }
}

impl<P: Peer, C: Clock> QueueTransport<P, C> {
    /// How requests become commands.
    pub fn set_encoding(&mut self, encoding: Encoding) {
        self.encoding = encoding;
    }

    /// A request in a buffer of its own, or in one that was used.
    fn filled(&mut self, request: &[u8], capacity: usize) -> Result<DmaBuffer, Error> {
        if request.len() > capacity || capacity > self.max_buffer() {
            let most = self.max_buffer();
            let reason = format!("{} bytes in a buffer of {capacity}; the drive takes {most}", request.len());
            return Err(Error::Form { what: "request", reason });
        }
        let mut buffer = self.buffer(capacity)?;
        buffer.write(0, request);
        Ok(buffer)
    }

    fn vendor(&mut self, request: u32, buffer: DmaBuffer) -> Result<DmaBuffer, Error> {
        let command = Command::near_data(self.namespace.nsid, request, &buffer);
        let sent = self.initiator.submit(&command, Some(buffer));
        let handle = sent.map_err(|rejected| not_sent(NEAR_DATA, &rejected))?;
        self.wait(handle)
    }

    /// Waits for a near-data command, and has the drive end it where it is given up. It is asked more than
    /// once: it may not have fetched the command yet.
    fn wait(&mut self, handle: Handle) -> Result<DmaBuffer, Error> {
        if !self.stop.is_possible() {
            return ended(NEAR_DATA, self.initiator.wait(handle));
        }
        let finished = loop {
            self.initiator.wait_any(self.initiator.clock().now() + LOOK_NS);
            if let Some(finished) = self.initiator.poll(handle) {
                break finished;
            }
            if self.stop.is_set() {
                let _asked_again = self.initiator.abort(handle);
            }
        };
        let ended = ended(NEAR_DATA, finished);
        match ended {
            Err(_) if self.stop.is_set() => Err(Error::Refused(nearside_near_data::Failure::Cancelled)),
            ended => ended,
        }
    }

    /// Sends a request and does not wait.
    fn begin(&mut self, request: &[u8], capacity: usize) -> Result<Handle, Error> {
        let buffer = self.filled(request, capacity)?;
        let command = Command::near_data(self.namespace.nsid, request.len() as u32, &buffer);
        self.initiator.submit(&command, Some(buffer)).map_err(|rejected| not_sent(NEAR_DATA, &rejected))
    }

    /// Waits for what was sent, and takes its reply.
    fn end(&mut self, handle: Handle, reply: &mut Vec<u8>) -> Result<(), Error> {
        let buffer = self.wait(handle)?;
        take_reply(&buffer, buffer.len(), reply)?;
        self.spare = Some(buffer);
        Ok(())
    }

    /// The whole buffer is read as the request (its header says where that ends), then written.
    /// The tag and the offset stay 0.
    fn get_features(&mut self, buffer: DmaBuffer) -> Result<DmaBuffer, Error> {
        let command = Command::raw(opcode::admin::GET_FEATURES, self.namespace.nsid)
            .with(features::FID, opcode::FEATURE_NEAR_DATA)
            .with(near_data::FEATURE_BYTES, buffer.len() as u32);
        let what = "a near-data request by Get Features";
        let (controller, host) = self.initiator.admin();
        let answer = controller.admin(what, &command, Some(buffer), host).map_err(failed)?;
        answer.buffer.ok_or_else(|| Error::Driver("the command's buffer did not come back".into()))
    }
}

/// Over shared memory a near-data operation is one command: the reply overwrites the request.
impl Carrying for Driver {
    fn place(&self) -> String {
        self.socket().map_or_else(String::new, |path| format!("vfio-user:{}", path.display()))
    }

    fn near_data<P: Peer, C: Clock>(
        transport: &mut QueueTransport<P, C>,
        request: &[u8],
        capacity: usize,
        reply: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let buffer = transport.filled(request, capacity)?;
        let len = request.len() as u32;
        let buffer = match transport.encoding {
            Encoding::Vendor => transport.vendor(len, buffer)?,
            Encoding::GetFeatures => transport.get_features(buffer)?,
        };
        take_reply(&buffer, buffer.len(), reply)?;
        transport.spare = Some(buffer);
        Ok(())
    }

    /// Get Features goes by the admin queue, one after the other.
    fn at_once<P: Peer, C: Clock>(transport: &QueueTransport<P, C>) -> usize {
        match transport.encoding {
            Encoding::Vendor => TOGETHER.min(transport.initiator.depth()),
            Encoding::GetFeatures => 1,
        }
    }

    fn near_data_each<P: Peer, C: Clock>(
        transport: &mut QueueTransport<P, C>,
        requests: Requests<'_>,
        replies: Replies<'_>,
    ) {
        let together = Self::at_once(transport);
        let mut out = VecDeque::with_capacity(together);
        let mut reply = Vec::new();
        let (mut held, mut more, mut heard) = (None, true, true);
        loop {
            while more && out.len() < together {
                let Some((request, capacity)) = held.take().or_else(|| requests.next()) else {
                    more = false;
                    break;
                };
                let sent = match transport.encoding {
                    Encoding::Vendor => transport.begin(&request, capacity).map(Some),
                    Encoding::GetFeatures => {
                        Self::near_data(transport, &request, capacity, &mut reply).map(|()| None)
                    }
                };
                // Buffers of those before it may be all that there are.
                if sent.is_err() && !out.is_empty() {
                    held = Some((request, capacity));
                    break;
                }
                out.push_back(sent);
            }
            let Some(first) = out.pop_front() else { return };
            let answer = first.and_then(|sent| match sent {
                Some(handle) => transport.end(handle, &mut reply),
                None => Ok(()),
            });
            if heard && replies(answer.map(|()| &reply[..])).is_break() {
                (more, heard) = (false, false);
            }
        }
    }

    fn read<P: Peer, C: Clock>(
        transport: &mut QueueTransport<P, C>,
        most: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<u64, Error> {
        let block = transport.namespace.block_size as usize;
        let mut commands = 0;
        let mut at = offset;
        for piece in into.chunks_mut((most / block * block).max(block)) {
            let buffer = transport.initiator.buffer(piece.len()).map_err(failed)?;
            let blocks = (piece.len() / block) as u32;
            let command = Command::read(transport.namespace.nsid, at / block as u64, blocks);
            let finished = transport.initiator.execute(&command, Some(buffer));
            let finished = finished.map_err(|rejected| not_sent("a read", &rejected))?;
            ended("a read", finished)?.read(0, piece);
            at += piece.len() as u64;
            commands += 1;
        }
        Ok(commands)
    }
}

pub(crate) fn failed(error: nearside_driver::Error) -> Error {
    match error {
        nearside_driver::Error::Command { command, failure: Failure::Status(status) } => {
            Error::Nvme { what: command, status }
        }
        error if error.is_loss() => Error::Lost(format!("driver: {error}")),
        error => Error::Driver(error.to_string()),
    }
}

/// Why a command was not sent.
pub(crate) fn not_sent<B>(what: &str, rejected: &Rejected<B>) -> Error {
    match rejected.reason {
        RejectReason::Dead => Error::Lost(format!("driver: {what}: {rejected}")),
        RejectReason::Full | RejectReason::Buffer => Error::Driver(format!("{what}: {rejected}")),
    }
}

fn ended(what: &'static str, finished: Finished) -> Result<DmaBuffer, Error> {
    match finished.outcome {
        Ok(_) => {
            finished.buffer.ok_or_else(|| Error::Driver(format!("{what}: its buffer did not come back")))
        }
        Err(failure) => Err(ended_as(what, failure)),
    }
}

/// A command's failure.
pub(crate) fn ended_as(what: &'static str, failure: Failure) -> Error {
    match failure {
        Failure::Status(status) => Error::Nvme { what, status },
        failure if failure.is_loss() => Error::Lost(format!("driver: {what}: {failure}")),
        failure => Error::Driver(format!("{what}: {failure}")),
    }
}

/// What a path does, in words.
pub(crate) fn path_words(path: policy::Path) -> &'static str {
    match path {
        policy::Path::Synchronous => "the caller spins until the completion is there",
        policy::Path::Asynchronous => "the caller sleeps until the drive interrupts",
    }
}

impl<P: Peer, C: Clock, K: Carrying> Transport for QueueTransport<P, C, K> {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        K::near_data(self, request, capacity, reply)
    }

    fn near_data_each(&mut self, requests: Requests<'_>, replies: Replies<'_>) {
        K::near_data_each(self, requests, replies);
    }

    fn at_once(&self) -> usize {
        K::at_once(self)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        let most = READ.min(self.initiator.controller().max_transfer());
        K::read(self, most, offset, into)
    }

    fn capacity(&self) -> u64 {
        self.namespace.bytes()
    }

    fn block_size(&self) -> u32 {
        self.namespace.block_size
    }

    fn max_buffer(&self) -> usize {
        MAX_BUFFER.min(self.initiator.controller().max_transfer())
    }

    fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Stop(Some(stop));
    }

    fn statistics(&mut self) -> Result<Option<NearDataLog>, Error> {
        let (nsid, len) = (self.namespace.nsid, NearDataLog::SIZE);
        let (controller, host) = self.initiator.admin();
        let page = controller.log_page(opcode::LOG_NEAR_DATA, nsid, 0, len, host);
        Ok(NearDataLog::of(&page.map_err(failed)?))
    }

    fn completion(&self) -> Completion {
        let model = self.initiator.completion_model();
        let expected = self.initiator.expectation(CommandKind::Read, 4096);
        let how = match self.initiator.controller().place() {
            place if place.is_empty() => format!("waits by {:?}", model.wait),
            place => format!("over {place}"),
        };
        let path = path_words(expected.plan.path);
        let wake = model.wake_ns as f64 / 1e3;
        Completion {
            model: model.policy.name().into(),
            read_4k_ns: expected.latency_ns,
            detail: format!("{path}; {how}; a wake-up costs {wake:.1} µs"),
            spinning_ns: self.initiator.account().spin_ns,
        }
    }
}
