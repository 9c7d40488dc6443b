//! Hosts that go in the middle of near-data work or of long copies, by every way out that a network has: what
//! they leave behind is nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::raw::*;
use nearside_clock::TscClock;
use nearside_device::{CommandSet, Namespace, Subsystem};
use nearside_firmware::{Config, Fsr, Held, Workers};
use nearside_front_tcp::{Offer, Options};
use nearside_near_data::{BlockRange, Credentials, Digest, Operation, Request, Target, wire};
use nearside_spec::command::memory;
use nearside_spec::data::CopySource;
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::{FabricsCommand, Property};
use nearside_spec::opcode::{io, memory as local};
use nearside_spec::registers::{self as reg, Cc, csts};
use nearside_spec::{Status, SubmissionEntry};
use nearside_store::{Delay, Dram, Modelled};

const BYTES: u64 = 4 << 20;

/// A checksum of all there is.
fn request() -> Vec<u8> {
    wire::encode_request(&Request {
        partition: 0,
        credentials: Credentials::default(),
        target: Target::Blocks { size: BYTES, ranges: vec![BlockRange { offset: 0, len: BYTES }] },
        operation: Operation::Checksum(Digest::Crc32c),
        follow: true,
        resume: None,
    })
}

fn tagged(opcode: u8, tag: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(opcode, 0, 1);
    entry.cdw[12] = tag;
    entry
}

#[test]
fn a_hundred_abandoned_searches_leave_no_block_locked() {
    for (threads, own) in [(1, 0), (3, 0), (2, 2)] {
        let clock = TscClock::new();
        let workers = Workers::start(own, clock).unwrap();
        let store = Modelled::new(Dram::new(BYTES, 512).unwrap(), Delay::units(1, 20_000).medium());
        let firmware = Fsr::new(Arc::new(clock), Config::default());
        let firmware = firmware.on(workers.as_ref().map(Workers::handle));
        let namespace = Arc::new(Namespace::new(store, firmware, 512, [1; 16], true).unwrap());
        let subsystem = Subsystem::new();
        subsystem.add(1, namespace.clone()).unwrap();
        let server = serve(Offer::new(NQN, "SERIAL", subsystem), Options { threads, ..Options::default() });
        let address = server.addresses()[0];
        for round in 0..100 {
            let (mut admin, cntlid) = Raw::admin(address, 0);
            let mut queues = [Raw::io(address, cntlid, 1), Raw::io(address, cntlid, 2)];
            let request = request();
            let mut execute = tagged(io::NEAR_DATA_EXECUTE, round);
            execute.cdw[10] = request.len() as u32;
            assert_eq!(queues[0].run(execute, &request).status(), Status::SUCCESS);
            let mut result = tagged(io::NEAR_DATA_RESULT, round);
            (result.cdw[11], result.cdw[14]) = (4096, 5_000);
            CapsuleData::Transport { len: 4096 }.put(&mut result);
            queues[1].command(result, &[]);
            match round % 4 {
                // All connections at once, with or without the command's having been begun.
                0 => {}
                // The one that asked for the result, or the one that ordered; the host stays a while.
                1 | 2 => {
                    let [one, two] = queues;
                    drop(if round % 4 == 1 { two } else { one });
                    admin.property(reg::CSTS);
                }
                // A reset.
                _ => {
                    let cc = reg::Cc::DEFAULTS.0.into();
                    let set = Property { attrib: 0, offset: reg::CC as u32, value: cc };
                    admin.run(FabricsCommand::PropertySet(set).encode(), &[]);
                }
            }
        }
        let begun = Instant::now();
        let left = || {
            let fsr = namespace.observer();
            let held = (namespace.stripes_held(), namespace.orphans_in_flight(), fsr.tags_kept());
            (held, fsr.held()) != ((0, 0, 0), Held::default())
        };
        while left() || !server.target().connected().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{threads} threads, {own} of near-data work");
            std::thread::yield_now();
        }
        let (_admin, cntlid) = Raw::admin(address, 0);
        let mut queue = Raw::io(address, cntlid, 1);
        for block in (0..BYTES / 512).step_by(32) {
            let write = transfer(io::WRITE, block, 8, 0);
            assert_eq!(queue.run(write, &[0x5a; 4096]).status(), Status::SUCCESS);
        }
    }
}

/// Sets the configuration, and waits until the controller says that it follows.
fn configure(admin: &mut Raw, cc: u32) {
    let set = Property { attrib: 0, offset: reg::CC as u32, value: cc.into() };
    assert_eq!(admin.run(FabricsCommand::PropertySet(set).encode(), &[]).status(), Status::SUCCESS);
    until("the controller follows", || admin.property(reg::CSTS) & csts::RDY == cc & Cc::EN);
}

/// Each of the copies would take minutes: a gibibyte, by pieces of which each waits for its medium.
#[test]
fn copies_end_with_their_host() {
    const LONG: u64 = 1 << 30;
    let store = |block| Modelled::new(Dram::new(LONG, block).unwrap(), Delay::fixed(20_000_000).medium());
    let blocks = Arc::new(Namespace::new(store(512), (), 512, [1; 16], true).unwrap());
    let memory_of = Namespace::of_command_set(CommandSet::Memory, store(4), (), [2; 16]).unwrap();
    let subsystem = Subsystem::new();
    subsystem.add(1, blocks.clone()).unwrap();
    subsystem.add(2, Arc::new(memory_of)).unwrap();
    let server = serve(Offer::new(NQN, "SERIAL", subsystem), Options::default());
    let address = server.addresses()[0];
    let before = Arc::strong_count(&blocks);
    let (mut admin, cntlid) = Raw::admin(address, 0);
    configure(&mut admin, Cc::DEFAULTS.0);
    configure(&mut admin, Cc::DEFAULTS.with_command_sets().0 | Cc::EN);
    let mut queue = Raw::io(address, cntlid, 1);
    for _ in 0..16 {
        let sources: Vec<u8> = (0..32)
            .flat_map(|nth| {
                let mut source = CopySource::default();
                source.set_nsid(1).set_start(nth * 65536).set_count(65535);
                source.0
            })
            .collect();
        let entry = SubmissionEntry::new(local::COPY, 0, 2);
        let entry = entry.with(memory::FORMAT, 2).with(memory::NR_Z, 31).with(memory::COPY_LENGTH, LONG);
        queue.command(entry, &sources);
    }
    // It has its turn among them.
    let fill = SubmissionEntry::new(local::FILL, 0, 2).with(memory::LENGTH, 4);
    assert_eq!(queue.run(fill, &[]).status(), Status::SUCCESS);
    assert!(Arc::strong_count(&blocks) > before);
    drop((admin, queue));
    until("nothing is left", || Arc::strong_count(&blocks) == before);
}
