//! A target made of `nearside-spec`'s PDUs: honest where a controller is brought up,
//! and what a test says where an I/O queue is.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nearside_clock::TscClock;
use nearside_driver::tcp::{Address, Association, Options};
use nearside_spec::fabrics::command::{ConnectData, FabricsCommand};
use nearside_spec::fabrics::pdu::*;
use nearside_spec::fabrics::{ADMIN_IN_CAPSULE, ioccsz, pdu};
use nearside_spec::identify::{IdentifyController, IdentifyNamespace};
use nearside_spec::registers::{self, Cap, csts};
use nearside_spec::{CompletionEntry, Status, SubmissionEntry, opcode};

pub const NQN: &str = "nqn.2014-08.org.example:scripted";
/// In-capsule data of its I/O queues.
pub const IN_CAPSULE: u32 = 8192;
/// MAXH2CDATA.
pub const MAX_DATA: u32 = 4096 + 8;
/// Its namespace: 512-byte blocks.
pub const BLOCKS: u64 = 1 << 16;

/// One connection, as the target sees it.
pub struct Wire {
    pub socket: TcpStream,
    pub down: Terms,
    pub up: Terms,
}

/// A PDU with its data.
pub struct Received {
    pub pdu: Pdu,
    pub data: Vec<u8>,
}

impl Wire {
    /// Accepts ICReq and answers.
    pub fn initialize(mut socket: TcpStream, alignment_z: u8) -> Option<Wire> {
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut bytes = [0; 128];
        socket.read_exact(&mut bytes).ok()?;
        let head = Head::decode(bytes.first_chunk().unwrap(), Side::Controller, &Terms::default()).unwrap();
        let Ok(Pdu::InitializeRequest(asked)) = Pdu::decode(&head, &bytes) else { panic!("no ICReq") };
        let terms = |alignment_z| Terms {
            header_digest: asked.header_digest,
            data_digest: asked.data_digest,
            alignment_z,
        };
        socket.write_all(&Initialize { alignment_z, limit: MAX_DATA, ..asked }.response()).unwrap();
        Some(Wire { socket, down: terms(asked.alignment_z), up: terms(alignment_z) })
    }

    /// The next PDU, its digests checked. `None`: the host has gone.
    pub fn receive(&mut self) -> Option<Received> {
        let mut bytes = vec![0; HEAD];
        self.socket.read_exact(&mut bytes).ok()?;
        let head = Head::decode(bytes.first_chunk().unwrap(), Side::Controller, &self.up).unwrap();
        bytes.resize(head.plen as usize, 0);
        self.socket.read_exact(&mut bytes[HEAD..]).unwrap();
        let hlen = usize::from(head.kind.hlen());
        if head.header_len() > hlen {
            assert_eq!(bytes[hlen..hlen + 4], crc32c::crc32c(&bytes[..hlen]).to_le_bytes());
        }
        let span = head.data();
        let (from, to) = (span.offset as usize, (span.offset + span.len) as usize);
        let data = bytes[from.min(bytes.len())..to].to_vec();
        if span.digest {
            assert_eq!(bytes[to..to + 4], crc32c::crc32c(&data).to_le_bytes());
        }
        if head.kind == PduType::Command && span.len > 0 {
            assert_eq!(from % (4 * (usize::from(self.up.alignment_z) + 1)), 0);
        }
        Some(Received { pdu: Pdu::decode(&head, &bytes).unwrap(), data })
    }

    /// The next command and its in-capsule data.
    pub fn command(&mut self) -> Option<(SubmissionEntry, Vec<u8>)> {
        let Received { pdu, data } = self.receive()?;
        let Pdu::Command(entry) = pdu else { panic!("{pdu:?} is no command") };
        Some((entry, data))
    }

    /// Sends a header with its digest.
    pub fn put(&mut self, header: &[u8]) {
        let mut bytes = header.to_vec();
        if self.down.header_digest {
            bytes.extend(crc32c::crc32c(header).to_le_bytes());
        }
        let _ = self.socket.write_all(&bytes);
    }

    pub fn respond(&mut self, cid: u16, result: u64, status: Status) {
        let entry = CompletionEntry::new(result, 0, 0, cid, status, false);
        self.put(&pdu::response(&entry, &self.down));
    }

    /// C2HData.
    pub fn data(&mut self, cccid: u16, offset: u32, bytes: &[u8], last: bool, success: bool) {
        let header = DataHeader { cccid, ttag: 0, offset, len: bytes.len() as u32, last, success };
        self.put(&header.controller(&self.down));
        let mut bytes = bytes.to_vec();
        if self.down.data_digest {
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        }
        let _ = self.socket.write_all(&bytes);
    }

    pub fn ask(&mut self, cccid: u16, offset: u32, len: u32) {
        self.put(&ReadyToTransfer { cccid, ttag: 77, offset, len }.encode(&self.down));
    }

    /// What the host says at the end.
    pub fn farewell(&mut self) -> Fatal {
        loop {
            match self.receive().expect("a termination request").pdu {
                Pdu::Terminate(fatal) => return fatal,
                _ => continue,
            }
        }
    }
}

/// Answers Fabrics and admin commands; false for one that is none.
pub fn manage(wire: &mut Wire, entry: &SubmissionEntry, data: &[u8], allowed: &str) {
    let cid = entry.cid();
    match (FabricsCommand::decode(entry), entry.opcode()) {
        (Some(FabricsCommand::Connect(_)), _) => {
            let data = ConnectData::from_bytes(data);
            assert!(data.subnqn().starts_with(NQN.as_bytes()));
            match data.hostnqn().starts_with(allowed.as_bytes()) {
                true => wire.respond(cid, 5, Status::SUCCESS),
                false => wire.respond(cid, 0, nearside_spec::fabrics::status::INVALID_HOST.dnr()),
            }
        }
        (Some(FabricsCommand::PropertyGet(p)), _) if p.offset as usize == registers::CAP => {
            wire.respond(cid, Cap::new(1023, 4).0, Status::SUCCESS);
        }
        (Some(FabricsCommand::PropertyGet(_)), _) => wire.respond(cid, csts::RDY.into(), Status::SUCCESS),
        (Some(_), _) => wire.respond(cid, 0, Status::SUCCESS),
        (None, opcode::admin::IDENTIFY) if entry.cdw[10] as u8 == 1 => {
            let mut id = IdentifyController::default();
            id.set_mdts(8).set_ioccsz(ioccsz(IN_CAPSULE)).set_iorcsz(1);
            wire.data(cid, 0, &id.0, true, true);
        }
        (None, opcode::admin::IDENTIFY) if entry.cdw[10] as u8 == 0 => {
            let mut id = IdentifyNamespace::default();
            id.set_nsze(BLOCKS).set_block_shift(9);
            wire.data(cid, 0, &id.0, true, false);
            wire.respond(cid, 0, Status::SUCCESS);
        }
        (None, opcode::admin::IDENTIFY) => wire.data(cid, 0, &[&[1][..], &[0; 4095]].concat(), true, true),
        (None, opcode::admin::SET_FEATURES) => wire.respond(cid, 3 | 3 << 16, Status::SUCCESS),
        (None, opcode::admin::KEEP_ALIVE) => wire.respond(cid, 0, Status::SUCCESS),
        _ => wire.respond(cid, 0, Status::INVALID_OPCODE.dnr()),
    }
}

/// A target on a thread, which does on its I/O queues what the script says.
pub struct Target {
    pub address: Address,
    threads: Option<JoinHandle<()>>,
    ended: Receiver<std::thread::Result<()>>,
}

/// What happens on an I/O queue after Connect.
pub type Script = Arc<dyn Fn(&mut Wire) + Send + Sync>;

impl Target {
    /// One that allows hosts whose NQN begins so.
    pub fn start_for(allowed: &'static str, alignment_z: u8, script: Script) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, ended) = channel();
        let accept = move || {
            let mut admin = None;
            for socket in listener.incoming() {
                let Some(mut wire) = Wire::initialize(socket.unwrap(), alignment_z) else { continue };
                let (entry, data) = wire.command().unwrap();
                let Some(FabricsCommand::Connect(connect)) = FabricsCommand::decode(&entry) else {
                    panic!("no Connect")
                };
                assert_eq!(data.len(), ConnectData::SIZE);
                assert!(data.len() <= ADMIN_IN_CAPSULE as usize);
                manage(&mut wire, &entry, &data, allowed);
                if connect.qid == 0 {
                    // One host; its admin queue ends with it.
                    admin = Some(std::thread::spawn(move || {
                        while let Some((entry, data)) = wire.command() {
                            manage(&mut wire, &entry, &data, allowed);
                        }
                    }));
                } else {
                    let (script, tell) = (script.clone(), tell.clone());
                    let run = std::panic::AssertUnwindSafe(move || script(&mut wire));
                    let _ = tell.send(std::panic::catch_unwind(run));
                    break;
                }
            }
            drop(listener);
            if let Some(admin) = admin {
                let _ = admin.join();
            }
        };
        let address = format!("nvme+tcp://127.0.0.1:{port}/{NQN}/1").parse().unwrap();
        Target { address, threads: Some(std::thread::spawn(accept)), ended }
    }

    pub fn start(script: impl Fn(&mut Wire) + Send + Sync + 'static) -> Target {
        Target::start_for("nqn", 0, Arc::new(script))
    }

    pub fn connect(&self, options: Options) -> Association {
        Association::connect(&self.address, options, Arc::new(TscClock::new())).unwrap()
    }

    /// The script went through.
    pub fn end(mut self, controller: Association) {
        drop(controller);
        self.threads.take().unwrap().join().unwrap();
        if let Err(panic) = self.ended.recv().unwrap() {
            std::panic::resume_unwind(panic);
        }
    }
}
