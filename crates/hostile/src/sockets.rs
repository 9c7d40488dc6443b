//! Both ends of an attached drive's socket.
//!
//! `socket_peer`: what someone who connects sends, to the server's own loop over a real
//! drive. First byte: bit 0 the peer is not trusted, bit 1 it hangs up in the middle of
//! what it is told. The rest is what it sends.
//!
//! `drive_reply`: what a drive answers, to FSRLib. First byte: bit 0 through a socket, bits 1
//! and 2 the route; second: the question. Then, through a socket, all that the drive sends;
//! else replies, each after its length as u16.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nearside_clock::{SimClock, TscClock};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_dma::system::Peer;
use nearside_driver::{DriverConfig, Policy, Threaded};
use nearside_embedded::{Loopback, firmware};
use nearside_firmware::Fsr;
use nearside_front_fuse::{self as front, Caller, Host, serve};
use nearside_fsrlib::{Ask, Completion, Error, Route, Session, SocketTransport, Transport, describe};
use nearside_near_data::wire::{decode_request, encode_reply};
use nearside_near_data::*;
use nearside_spec::Status;
use nearside_spec::socket::{Hello, REPLY_FRAME, REQUEST_FRAME, ReplyFrame, RequestFrame, RequestKind};
use nearside_store::Dram;

use crate::near_data;
use crate::nvme::tiny;

/// A drive on a thread, and its host.
struct ServedDrive {
    host: Host,
    _drive: Loopback<Dram, Fsr, Threaded>,
}

thread_local! {
    static DRIVE: RefCell<Option<ServedDrive>> = const { RefCell::new(None) };
}

impl ServedDrive {
    fn new() -> Result<ServedDrive, Box<dyn std::error::Error>> {
        let store = crate::near_data::store()?;
        let controller = Config { io_queues: 4, ..Config::default() };
        let rest = Rest { idle_ns: 20_000, ..Rest::default() };
        let mut drive = Loopback::threaded(store, firmware(), controller, rest)?;
        let config = DriverConfig { queues: 3, ..DriverConfig::default() };
        let driver = drive.driver(config, &TscClock::new())?;
        Ok(ServedDrive { host: Host::new(driver, Policy::Hybrid, 1)?, _drive: drive })
    }
}

/// The server's end: what is sent, and what came back.
struct Line<'a> {
    sent: &'a [u8],
    told: Vec<u8>,
    /// Bytes after which the peer has hung up.
    most: usize,
}

impl Read for Line<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.sent.read(into)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.told.len() + bytes.len() > self.most {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.told.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl front::Line for Line<'_> {}

/// A peer without privilege.
const UID: u32 = 1000;
/// Most that is told to one peer.
const TOLD_MAX: usize = 4 << 20;

/// Runs an input of `socket_peer`: each request is answered by one reply of at most the
/// room asked for, in order; a peer without privilege gets no blocks and no answer in
/// another's name; a frame that is none ends it.
pub fn peer(input: &[u8]) {
    let Some((&how, sent)) = input.split_first() else { return };
    let trusted = how & 1 == 0;
    DRIVE.with_borrow_mut(|drive| {
        let drive =
            drive.get_or_insert_with(|| ServedDrive::new().unwrap_or_else(|e| panic!("a drive: {e}")));
        let peer = Peer { uid: UID, gid: 100, groups: vec![4, 24] };
        let most = if how & 2 == 0 { TOLD_MAX } else { 100 + usize::from(how) * 16 };
        let mut line = Line { sent, told: Vec::new(), most };
        let ended = serve(&mut line, &Caller { peer, trusted }, &drive.host);
        check(sent, &line.told, trusted, ended);
    });
}

fn check(mut sent: &[u8], mut told: &[u8], trusted: bool, ended: io::Result<()>) {
    while let Some((head, rest)) = told.split_first_chunk::<REPLY_FRAME>() {
        let Some(reply) = ReplyFrame::decode(head) else { panic!("no reply frame: {head:?}") };
        let status = Status(reply.status);
        let Some(bytes) = rest.get(..reply.len as usize) else { break };
        told = &rest[bytes.len()..];
        let Some((head, after)) = sent.split_first_chunk::<REQUEST_FRAME>() else {
            panic!("a reply to nothing: {status:?}")
        };
        let frame = RequestFrame::decode(head).filter(|f| f.len as usize <= MAX_REQUEST);
        let Some(frame) = frame else {
            assert!(!status.is_success() && told.is_empty() && ended.is_ok(), "{status:?} to no frame");
            return;
        };
        let request = &after[..frame.len as usize];
        sent = &after[request.len()..];
        if !status.is_success() {
            assert!(bytes.is_empty());
            continue;
        }
        match frame.kind {
            RequestKind::Hello => assert!(Hello::decode(bytes).is_some()),
            RequestKind::Read => assert!(trusted && bytes.len() == frame.room as usize),
            RequestKind::Statistics => assert!(trusted && bytes.len() <= frame.room as usize),
            RequestKind::NearData => {
                assert!(bytes.len() <= frame.room as usize);
                let own = |r: Request| r.credentials.uid == UID && !matches!(r.target, Target::Blocks { .. });
                assert!(trusted || decode_request(request).is_ok_and(own));
            }
        }
    }
}

fn frame(kind: RequestKind, len: usize, room: u32, offset: u64) -> Vec<u8> {
    RequestFrame { kind, len: len as u32, room, offset }.encode().to_vec()
}

/// What FSRLib sends: a greeting, reads, near-data requests.
pub fn peer_seeds() -> Vec<Vec<u8>> {
    let hello = frame(RequestKind::Hello, 0, 64, 0);
    let mut seeds = vec![
        [vec![0], hello.clone()].concat(),
        [vec![0], frame(RequestKind::Read, 0, 4096, 1024)].concat(),
        [vec![1], frame(RequestKind::Read, 0, 512, 0), hello.clone()].concat(),
        [vec![0], frame(RequestKind::Statistics, 0, 4096, 0)].concat(),
        [vec![1], frame(RequestKind::Statistics, 0, 4096, 0)].concat(),
    ];
    for (nr, request) in near_data::requests().into_iter().enumerate() {
        let asked = [frame(RequestKind::NearData, request.len(), 4096, 0), request].concat();
        seeds.push([vec![nr as u8 % 2], hello.clone(), asked.clone(), asked].concat());
    }
    seeds
}

/// A drive that answers what the input says.
struct Scripted<'a> {
    replies: &'a [u8],
    image: &'a [u8],
}

fn over() -> Error {
    Error::Unsupported("the script is over".into())
}

impl Transport for Scripted<'_> {
    fn near_data(&mut self, _request: &[u8], capacity: usize, reply: &mut Vec<u8>) -> Result<(), Error> {
        let (len, rest) = self.replies.split_first_chunk::<2>().ok_or_else(over)?;
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len()).min(capacity);
        let (bytes, rest) = rest.split_at(len);
        reply.clear();
        reply.extend_from_slice(bytes);
        self.replies = rest;
        Ok(())
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<u64, Error> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.image.get(from..).and_then(|b| b.get(..into.len())).ok_or_else(over)?;
        into.copy_from_slice(bytes);
        Ok(1)
    }

    fn capacity(&self) -> u64 {
        self.image.len() as u64
    }

    fn block_size(&self) -> u32 {
        512
    }

    fn completion(&self) -> Completion {
        Completion { model: "script".into(), read_4k_ns: None, detail: String::new(), spinning_ns: 0 }
    }
}

/// Targets of questions; the first is the volume.
const TARGETS: usize = 4;

fn ask(which: u8) -> Ask {
    let mut operations = near_data::operations();
    let (target, operation) = (usize::from(which) / operations.len(), usize::from(which) % operations.len());
    let operation = operations.swap_remove(operation);
    match target % TARGETS {
        0 => Ask { target: Target::Volume, operation, follow: true },
        1 => Ask::path("/plain", operation),
        2 => Ask::path("/a/b", operation),
        _ => Ask::tree("/", operation),
    }
}

fn route(how: u8) -> Route {
    [Route::Drive, Route::Drive, Route::Blocks, Route::Host][usize::from(how >> 1 & 3)]
}

/// Records of one answer that are looked at.
const RECORDS: usize = 100_000;

fn question<T: Transport>(transport: T, how: u8, which: u8) {
    let mut session = Session::new(transport, Arc::new(SimClock::new())).with_route(route(how));
    let mut records = 0;
    let answer = session.stream(&ask(which), |record| {
        if let Record::Failed { failure, .. } = &record {
            let _ = describe(failure);
        }
        let _ = format!("{record:?}");
        records += 1;
        if records == RECORDS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let _ = answer.map_err(|error| error.to_string());
}

thread_local! {
    static IMAGE: Vec<u8> = tiny();
}

/// Runs an input of `drive_reply`: whatever a drive says, there is an answer or an error, in bounded memory.
pub fn reply(input: &[u8]) {
    let Some(([how, which], said)) = input.split_first_chunk::<2>() else { return };
    if how & 1 == 0 {
        return IMAGE.with(|image| question(Scripted { replies: said, image }, *how, *which));
    }
    // All that the drive will ever say lies ready before the first question.
    let Ok((near, mut far)) = UnixStream::pair() else { return };
    let said = &said[..said.len().min(64 << 10)];
    if far.write_all(said).and_then(|()| far.shutdown(Shutdown::Write)).is_err() {
        return;
    }
    if let Ok(transport) = SocketTransport::over(near, "script".into()) {
        let mut transport = transport;
        let mut block = vec![0; transport.block_size().min(1 << 16) as usize];
        if which & 0x80 != 0 {
            let _ = transport.read(0, &mut block).map_err(|error| error.to_string());
        }
        question(transport, *how, *which);
    }
}

/// A drive's own replies to each question, by every route; the same through a socket.
pub fn reply_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let framed = |bytes: &[u8]| {
        let head = ReplyFrame { status: 0, len: bytes.len() as u32 }.encode();
        [&head[..], bytes].concat()
    };
    let hello = framed(&Hello { capacity: 128 << 10, block_size: 512 }.encode());
    let with_len = |bytes: &[u8]| [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat();
    let info = near_data::replies(&Ask { operation: Operation::Info, ..ask(0) }).concat();
    let operations = near_data::operations().len() as u8;
    for which in 0..operations * TARGETS as u8 {
        let replies = near_data::replies(&ask(which));
        let scripted: Vec<u8> = replies.iter().flat_map(|r| with_len(r)).collect();
        seeds.push([vec![0, which], scripted.clone()].concat());
        if which >= operations {
            seeds.push([vec![4, which], with_len(&info), scripted.clone()].concat());
            seeds.push([vec![6, which], with_len(&info)].concat());
        }
        let through: Vec<u8> = replies.iter().flat_map(|r| framed(r)).collect();
        seeds.push([vec![1, which], hello.clone(), through].concat());
    }
    let refused = Reply { failure: Some(Failure::NotFound), ..Reply::default() };
    let refused = encode_reply(&refused, 4096).unwrap_or_default();
    seeds.push([vec![0, 9], with_len(&refused)].concat());
    seeds.push([vec![1, 0x80], hello, framed(&[7; 512])].concat());
    seeds
}
