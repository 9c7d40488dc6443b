//! The way to a drive through the driver: a queue pair and its completion policy.

use nearside_clock::Clock;
use nearside_driver::{Command, DmaBuffer, Failure, Finished, Initiator, Kind, NamespaceInfo, Peer, policy};
use nearside_near_data::MAX_BUFFER;
use nearside_near_data::wire;
use nearside_spec::command::{features, near_data};
use nearside_spec::log::NearDataLog;
use nearside_spec::opcode;

use crate::{Completion, Error, Transport};

/// How a near-data request becomes a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// The vendor I/O command 0xC3: the reply overwrites the request's buffer.
    #[default]
    Vendor,
    /// DAC'23's own: Get Features with a vendor feature identifier, on the admin queue (III-F).
    GetFeatures,
}

/// Bytes of one ordinary read.
const READ: usize = 128 * 1024;

/// A namespace behind an initiator.
pub struct QueueTransport<P, C> {
    initiator: Initiator<P, C>,
    namespace: NamespaceInfo,
    encoding: Encoding,
    /// The buffer of the last near-data command, for the next.
    spare: Option<DmaBuffer>,
}

impl<P: Peer, C: Clock + Clone> QueueTransport<P, C> {
    /// The first namespace that the controller has active, or `nsid`.
    pub fn new(mut initiator: Initiator<P, C>, nsid: Option<u32>) -> Result<Self, Error> {
        let driver = initiator.driver().clone();
        let clock = initiator.clock().clone();
        let nsid = match nsid {
            Some(nsid) => nsid,
            None => {
                let all = driver.namespaces(&clock, initiator.peer()).map_err(failed)?;
                *all.first().ok_or_else(|| Error::Driver("the drive has no namespace".into()))?
            }
        };
        let namespace = driver.namespace(nsid, &clock, initiator.peer()).map_err(failed)?;
        Ok(QueueTransport { initiator, namespace, encoding: Encoding::Vendor, spare: None })
    }

    /// How requests become commands.
    pub fn set_encoding(&mut self, encoding: Encoding) {
        self.encoding = encoding;
    }

    /// The initiator, for its account and policy.
    pub fn initiator(&mut self) -> &mut Initiator<P, C> {
        &mut self.initiator
    }

    /// The namespace.
    pub fn namespace(&self) -> NamespaceInfo {
        self.namespace
    }

    fn buffer(&mut self, len: usize) -> Result<DmaBuffer, Error> {
        match self.spare.take() {
            Some(mut buffer) if buffer.capacity() >= len => {
                buffer.set_len(len);
                Ok(buffer)
            }
            _ => self.initiator.buffer(len).map_err(failed),
        }
    }

    fn vendor(&mut self, request: u32, buffer: DmaBuffer) -> Result<DmaBuffer, Error> {
        let command = Command::near_data(self.namespace.nsid, request, &buffer);
        let finished = self.initiator.execute(&command, Some(buffer));
        ended("a near-data command", finished)
    }

    /// The whole buffer is read as the request (its header says where that ends), then written. The tag and the offset stay 0.
    fn get_features(&mut self, buffer: DmaBuffer) -> Result<DmaBuffer, Error> {
        let command = Command::raw(opcode::admin::GET_FEATURES, self.namespace.nsid)
            .with(features::FID, opcode::FEATURE_NEAR_DATA)
            .with(near_data::FEATURE_BYTES, buffer.len() as u32);
        let driver = self.initiator.driver().clone();
        let clock = self.initiator.clock().clone();
        let what = "a near-data request by Get Features";
        let answer = driver.admin(what, &command, Some(buffer), &clock, self.initiator.peer());
        let (_, buffer) = answer.map_err(failed)?;
        buffer.ok_or_else(|| Error::Driver("the command's buffer did not come back".into()))
    }
}

pub(crate) fn failed(error: nearside_driver::Error) -> Error {
    match error {
        nearside_driver::Error::Command { command, failure: Failure::Status(status) } => {
            Error::Nvme { what: command, status }
        }
        error => Error::Driver(error.to_string()),
    }
}

fn ended(
    what: &'static str,
    finished: Result<Finished, nearside_driver::Rejected>,
) -> Result<DmaBuffer, Error> {
    let finished = finished.map_err(|e| Error::Driver(format!("{what}: {e}")))?;
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

impl<P: Peer, C: Clock + Clone> Transport for QueueTransport<P, C> {
    fn near_data(&mut self, request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        if request.len() > capacity || capacity > self.max_buffer() {
            let most = self.max_buffer();
            let reason = format!("{} bytes in a buffer of {capacity}; the drive takes {most}", request.len());
            return Err(Error::Form { what: "request", reason });
        }
        let mut buffer = self.buffer(capacity)?;
        buffer.write(0, request);
        let len = request.len() as u32;
        let buffer = match self.encoding {
            Encoding::Vendor => self.vendor(len, buffer)?,
            Encoding::GetFeatures => self.get_features(buffer)?,
        };
        let form = |reason: String| Error::Form { what: "reply", reason };
        let mut header = [0; wire::REPLY_HEADER];
        if buffer.len() < header.len() {
            return Err(form(format!("a buffer of {} bytes holds none", buffer.len())));
        }
        buffer.read(0, &mut header);
        let len = wire::reply_len(&header).map_err(|e| form(e.to_string()))?;
        if len > buffer.len() {
            return Err(form(format!("it claims {len} bytes of a buffer of {}", buffer.len())));
        }
        reply.resize(len, 0);
        buffer.read(0, reply);
        self.spare = Some(buffer);
        Ok(())
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        let block = self.namespace.block_size as usize;
        let most = READ.min(self.initiator.driver().max_transfer()) / block * block;
        let mut commands = 0;
        let mut at = offset;
        for piece in into.chunks_mut(most.max(block)) {
            let buffer = self.initiator.buffer(piece.len()).map_err(failed)?;
            let blocks = (piece.len() / block) as u32;
            let command = Command::read(self.namespace.nsid, at / block as u64, blocks);
            let finished = self.initiator.execute(&command, Some(buffer));
            ended("a read", finished)?.read(0, piece);
            at += piece.len() as u64;
            commands += 1;
        }
        Ok(commands)
    }

    fn capacity(&self) -> u64 {
        self.namespace.blocks.saturating_mul(u64::from(self.namespace.block_size))
    }

    fn block_size(&self) -> u32 {
        self.namespace.block_size
    }

    fn max_buffer(&self) -> usize {
        MAX_BUFFER.min(self.initiator.driver().max_transfer())
    }

    fn taken(&mut self) -> Result<Option<u64>, Error> {
        let driver = self.initiator.driver().clone();
        let clock = self.initiator.clock().clone();
        let nsid = self.namespace.nsid;
        let (page, len) = (opcode::LOG_NEAR_DATA, NearDataLog::SIZE);
        let page = driver.log_page(page, nsid, 0, len, &clock, self.initiator.peer());
        Ok(NearDataLog::of(&page.map_err(failed)?).map(|page| page.taken()))
    }

    fn completion(&self) -> Completion {
        let model = self.initiator.completion_model();
        let expected = self.initiator.expectation(Kind::Read, 4096);
        let path = path_words(expected.plan.path);
        let wake = model.wake_ns as f64 / 1e3;
        Completion {
            model: model.policy.name().into(),
            read_4k_ns: expected.latency_ns,
            detail: format!("{path}; waits by {:?}; a wake-up costs {wake:.1} µs", model.wait),
            spinning_ns: self.initiator.account().spin_ns,
        }
    }
}
