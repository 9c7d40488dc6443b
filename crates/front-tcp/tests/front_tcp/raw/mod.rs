//! A host by hand: a socket and the PDUs of the specification.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use nearside_auth::{Credentials, Exchange, Explanation, Group, Hash, Key, Keys};
use nearside_clock::{Clock, TscClock};
use nearside_device::{Firmware, Namespace, Subsystem};
use nearside_front_tcp::{Offer, Options, Server, Target};
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::{
    AUTHENTICATION_REQUIRED, Connect, ConnectData, FabricsCommand, Property, Security, connected,
};
use nearside_spec::fabrics::pdu::{self, DataHeader, Fatal, HEAD, Head, Initialize, Pdu, Side, Terms};
use nearside_spec::opcode::io;
use nearside_spec::registers as reg;
use nearside_spec::{CompletionEntry, Status, SubmissionEntry};
use nearside_store::{Dram, Store};

pub const NQN: &str = "nqn.2026-11.dev.nearside:test";
pub const HOST: &str = "nqn.2026-11.dev.nearside:host";
pub const PLAIN: Terms = Terms { header_digest: false, data_digest: false, alignment_z: 0 };

pub fn namespace(id: u8, bytes: u64) -> Arc<Namespace<Dram>> {
    let store = Dram::new(bytes, 512).unwrap();
    Arc::new(Namespace::new(store, (), 512, [id; 16], true).unwrap())
}

pub fn offer(bytes: u64) -> Offer<Dram, ()> {
    let subsystem = Subsystem::new();
    subsystem.add(1, namespace(1, bytes)).unwrap();
    Offer::new(NQN, "SERIAL", subsystem)
}

/// What a host has to prove, and what it proves that by: unless `both`, the subsystem cannot prove anything.
pub fn keys(groups: &[Group], both: bool) -> (Keys, Arc<Credentials>) {
    let key = || Key::generate(Some(Hash::Sha256), 32).unwrap();
    let keys = Keys { host: key(), controller: both.then(key) };
    let (host, controller) = (keys.host.clone(), keys.controller.clone());
    (keys, Arc::new(Credentials { host, controller, hashes: Hash::ALL.to_vec(), groups: groups.to_vec() }))
}

pub fn serve<S: Store, F: Firmware<S>>(offer: Offer<S, F>, options: Options) -> Server<S, F> {
    serve_by(TscClock::new(), offer, options)
}

pub fn serve_by<S: Store, F: Firmware<S>>(
    clock: impl Clock + Clone + 'static,
    offer: Offer<S, F>,
    options: Options,
) -> Server<S, F> {
    let target = Target::new(options).unwrap();
    target.offer(offer);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Server::start(target, vec![listener], clock).unwrap()
}

/// Waits for what other threads do.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::yield_now();
    }
}

/// A read of a well-behaved host.
pub fn good_read(good: &mut Raw) {
    good.command(transfer(io::READ, 0, 8, 4096), &[]);
    let (pdu, data) = good.receive().unwrap();
    assert!(matches!(pdu, Pdu::Data(DataHeader { len: 4096, last: true, .. })), "{pdu:?}");
    assert_eq!(data.len(), 4096);
    assert_eq!(good.response().status(), Status::SUCCESS);
}

pub struct Raw {
    pub socket: TcpStream,
    cid: u16,
}

impl Raw {
    pub fn open(address: SocketAddr) -> Raw {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Raw { socket, cid: 0 }
    }

    pub fn put(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// ICReq and ICResp.
    pub fn initialized(address: SocketAddr) -> Raw {
        let mut raw = Raw::open(address);
        let request =
            Initialize { version: 0, alignment_z: 0, header_digest: false, data_digest: false, limit: 0 };
        raw.put(&request.request());
        let (pdu, _) = raw.receive().unwrap();
        assert!(matches!(pdu, Pdu::InitializeResponse(_)), "{pdu:?}");
        raw
    }

    /// One PDU; `None`: the target has closed.
    pub fn receive(&mut self) -> Option<(Pdu, Vec<u8>)> {
        let mut bytes = vec![0; HEAD];
        self.socket.read_exact(&mut bytes).ok()?;
        let head = Head::decode(bytes.first_chunk().unwrap(), Side::Host, &PLAIN).unwrap();
        bytes.resize(head.plen as usize, 0);
        self.socket.read_exact(&mut bytes[HEAD..]).ok()?;
        let span = head.data();
        let data = bytes[span.offset as usize..][..span.len as usize].to_vec();
        Some((Pdu::decode(&head, &bytes).unwrap(), data))
    }

    pub fn command(&mut self, mut entry: SubmissionEntry, inside: &[u8]) -> u16 {
        self.cid += 1;
        entry.set_cid(self.cid);
        if !inside.is_empty() {
            CapsuleData::InCapsule { offset: 0, len: inside.len() as u32 }.put(&mut entry);
        } else if entry.psdt() == 0 {
            CapsuleData::Transport { len: 0 }.put(&mut entry);
        }
        let mut bytes = pdu::command(&entry, inside.len() as u32, &PLAIN).to_vec();
        bytes.extend_from_slice(inside);
        self.put(&bytes);
        self.cid
    }

    pub fn response(&mut self) -> CompletionEntry {
        match self.receive() {
            Some((Pdu::Response(entry), _)) => entry,
            other => panic!("{other:?}"),
        }
    }

    /// A command without data from the controller, and its answer.
    pub fn run(&mut self, entry: SubmissionEntry, inside: &[u8]) -> CompletionEntry {
        let cid = self.command(entry, inside);
        let entry = self.response();
        assert_eq!(entry.cid(), cid);
        entry
    }

    pub fn connect_as(&mut self, connect: Connect, data: &ConnectData) -> CompletionEntry {
        self.run(FabricsCommand::Connect(connect).encode(), &data.0)
    }

    /// An enabled admin queue; the controller's identifier.
    pub fn admin(address: SocketAddr, kato: u32) -> (Raw, u16) {
        Raw::admin_of(HOST, address, kato)
    }

    /// The same of another host.
    pub fn admin_of(host: &str, address: SocketAddr, kato: u32) -> (Raw, u16) {
        let mut raw = Raw::initialized(address);
        let connect = Connect { recfmt: 0, qid: 0, sqsize_z: 31, cattr: 0, kato };
        let done = raw.connect_as(connect, &ConnectData::new([7; 16], host, NQN, 0xffff));
        assert_eq!(done.status(), Status::SUCCESS);
        raw.enable();
        (raw, done.result() as u16)
    }

    pub fn enable(&mut self) {
        let cc = Property { attrib: 0, offset: reg::CC as u32, value: (reg::Cc::DEFAULTS.0 | 1).into() };
        assert_eq!(self.run(FabricsCommand::PropertySet(cc).encode(), &[]).status(), Status::SUCCESS);
        assert_eq!(self.property(reg::CSTS) & 1, 1);
    }

    pub fn property(&mut self, at: usize) -> u32 {
        let get = Property { attrib: 0, offset: at as u32, value: 0 };
        self.run(FabricsCommand::PropertyGet(get).encode(), &[]).result()
    }

    /// An I/O queue of that controller.
    pub fn io(address: SocketAddr, cntlid: u16, qid: u16) -> Raw {
        Raw::io_of(HOST, address, cntlid, qid)
    }

    /// The same of another host.
    pub fn io_of(host: &str, address: SocketAddr, cntlid: u16, qid: u16) -> Raw {
        let mut raw = Raw::initialized(address);
        let connect = Connect { recfmt: 0, qid, sqsize_z: 127, cattr: 0, kato: 0 };
        let done = raw.connect_as(connect, &ConnectData::new([7; 16], host, NQN, cntlid));
        assert_eq!(done.status(), Status::SUCCESS);
        raw
    }

    /// Authentication Send.
    pub fn auth_send(&mut self, message: &[u8]) -> Status {
        let send = FabricsCommand::AuthenticationSend(Security::message(message.len() as u32));
        self.run(send.encode(), message).status()
    }

    /// Authentication Receive, with so much room; what comes.
    pub fn auth_receive(&mut self, room: u32) -> Vec<u8> {
        let mut entry = FabricsCommand::AuthenticationReceive(Security::message(room)).encode();
        CapsuleData::Transport { len: room }.put(&mut entry);
        self.command(entry, &[]);
        let Some((Pdu::Data(_), message)) = self.receive() else { panic!("no message") };
        assert_eq!(self.response().status(), Status::SUCCESS);
        message
    }

    /// An exchange, of which the reply can be changed; why it failed.
    pub fn prove(&mut self, keys: &Keys, change: impl FnOnce(&mut Vec<u8>)) -> Option<Explanation> {
        let mut exchange = Exchange::new(keys, HOST, NQN).unwrap();
        assert_eq!(self.auth_send(&exchange.negotiate()), Status::SUCCESS);
        let mut reply = exchange.reply(&self.auth_receive(4096)).unwrap();
        change(&mut reply);
        assert_eq!(self.auth_send(&reply), Status::SUCCESS);
        match exchange.finish(&self.auth_receive(4096)) {
            Ok(last) => {
                if let Some(last) = last {
                    assert_eq!(self.auth_send(&last), Status::SUCCESS);
                }
                None
            }
            Err(refused) => Some(refused.why()),
        }
    }

    /// A connected queue whose host has something to prove; the controller's identifier.
    pub fn asked(address: SocketAddr, qid: u16, cntlid: u16) -> (Raw, u16) {
        let mut raw = Raw::initialized(address);
        let connect = Connect { recfmt: 0, qid, sqsize_z: 31, cattr: 0, kato: 0 };
        let done = raw.connect_as(connect, &ConnectData::new([7; 16], HOST, NQN, cntlid));
        assert_eq!(done.status(), Status::SUCCESS);
        let (cntlid, authreq) = connected(done.result());
        assert_eq!(authreq, AUTHENTICATION_REQUIRED);
        (raw, cntlid)
    }

    /// What the connection ends with: the termination request, if one came.
    pub fn ending(&mut self) -> Option<Fatal> {
        let mut fatal = None;
        while let Some((pdu, _)) = self.receive() {
            if let Pdu::Terminate(why) = pdu {
                fatal = Some(why);
            }
        }
        fatal
    }
}

/// A read or write of blocks whose data the transport moves.
pub fn transfer(opcode: u8, slba: u64, blocks: u32, len: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(opcode, 0, 1);
    entry.set_quad(10, slba);
    entry.cdw[12] = blocks - 1;
    CapsuleData::Transport { len }.put(&mut entry);
    entry
}
