//! What a host has its admin queue for: events, Abort, reset and shutdown; and `cancel`, which reaches every
//! queue.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::raw::*;
use nearside_clock::TscClock;
use nearside_device::{Namespace, Subsystem};
use nearside_firmware::{Config, Fsr};
use nearside_front_tcp::{Offer, Options, Server};
use nearside_near_data::{BlockRange, Credentials, Digest, Operation, Request, Target, wire};
use nearside_spec::fabrics::capsule::CapsuleData;
use nearside_spec::fabrics::command::{Connect, ConnectData, FabricsCommand, Property};
use nearside_spec::fabrics::pdu::{DataHeader, Pdu};
use nearside_spec::feature::fid;
use nearside_spec::log::{async_event, event, lid};
use nearside_spec::opcode::{admin, io};
use nearside_spec::registers as reg;
use nearside_spec::{CompletionEntry, Status, SubmissionEntry};
use nearside_store::{Dram, Fault, Faulty, Kinds, Plan, Rule};

/// A server whose store can be told to answer no reads, and how.
fn near_data(threads: usize) -> (Server<Faulty<Dram>, Fsr>, Arc<Mutex<Plan>>) {
    let store = Faulty::new(Dram::new(4 << 20, 512).unwrap(), 1, []);
    let plan = store.plan();
    let firmware = Fsr::new(Arc::new(TscClock::new()), Config::default());
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(Namespace::new(store, firmware, 512, [1; 16], true).unwrap())).unwrap();
    let server = serve(Offer::new(NQN, "SERIAL", subsystem), Options { threads, ..Options::default() });
    (server, plan)
}

fn withhold_reads(plan: &Mutex<Plan>) {
    plan.lock().unwrap().add(Rule::new(Kinds::Reads, Fault::Busy));
}

/// A checksum of some blocks.
fn request() -> Vec<u8> {
    let target = Target::Blocks { size: 8192, ranges: vec![BlockRange { offset: 4096, len: 8192 }] };
    wire::encode_request(&Request {
        partition: 0,
        credentials: Credentials::default(),
        target,
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

fn execute(queue: &mut Raw, tag: u32) {
    let request = request();
    let mut execute = tagged(io::NEAR_DATA_EXECUTE, tag);
    execute.cdw[10] = request.len() as u32;
    assert_eq!(queue.run(execute, &request).status(), Status::SUCCESS);
}

/// A `result` that the controller has when this returns.
fn result(queue: &mut Raw, tag: u32) -> u16 {
    let mut result = tagged(io::NEAR_DATA_RESULT, tag);
    (result.cdw[11], result.cdw[14]) = (4096, 5_000);
    CapsuleData::Transport { len: 4096 }.put(&mut result);
    let cid = queue.command(result, &[]);
    assert_eq!(queue.run(SubmissionEntry::new(io::FLUSH, 0, 1), &[]).status(), Status::SUCCESS);
    cid
}

/// DW0 of an Abort: bit 0 says that nothing was aborted.
fn abort(queue: &mut Raw, sq: u16, cid: u16) -> u32 {
    let mut abort = SubmissionEntry::new(admin::ABORT, 0, 0);
    abort.cdw[10] = u32::from(cid) << 16 | u32::from(sq);
    let done = queue.run(abort, &[]);
    assert_eq!(done.status(), Status::SUCCESS);
    done.result()
}

fn ended(entry: &CompletionEntry) -> (u16, Status) {
    (entry.cid(), entry.status().code())
}

/// Get Log Page 04h of eight bytes.
fn changed(admin: &mut Raw, retain: bool) -> [u32; 2] {
    let mut get = SubmissionEntry::new(admin::GET_LOG_PAGE, 0, 0xffff_ffff);
    get.cdw[10] = u32::from(lid::CHANGED_NAMESPACES) | u32::from(retain) << 15 | 1 << 16;
    CapsuleData::Transport { len: 8 }.put(&mut get);
    admin.command(get, &[]);
    let Some((Pdu::Data(_), data)) = admin.receive() else { panic!("no page") };
    assert_eq!(admin.response().status(), Status::SUCCESS);
    [0, 4].map(|at| u32::from_le_bytes(data[at..at + 4].try_into().unwrap()))
}

/// What was sent before is answered, or it waits.
fn nothing_else(admin: &mut Raw) {
    assert_eq!(admin.run(SubmissionEntry::new(admin::KEEP_ALIVE, 0, 0), &[]).status(), Status::SUCCESS);
}

fn await_event(admin: &mut Raw) -> u16 {
    admin.command(SubmissionEntry::new(admin::ASYNC_EVENT_REQUEST, 0, 0), &[])
}

#[test]
fn a_host_is_told_of_namespaces_that_come_and_go() {
    for threads in [1, 3] {
        let offer = offer(1 << 20);
        let subsystem = offer.subsystem.clone();
        let server = serve(offer, Options { threads, ..Options::default() });
        let (mut admin, _) = Raw::admin(server.addresses()[0], 0);
        // A host that has not asked for such notices hears nothing.
        let first = await_event(&mut admin);
        subsystem.add(7, namespace(7, 1 << 20)).unwrap();
        assert_eq!(changed(&mut admin, false), [7, 0]);
        nothing_else(&mut admin);
        let mut notices = SubmissionEntry::new(admin::SET_FEATURES, 0, 0);
        (notices.cdw[10], notices.cdw[11]) = (fid::ASYNC_EVENT.into(), 1 << 8);
        assert_eq!(admin.run(notices, &[]).status(), Status::SUCCESS);
        let notice = async_event(event::NOTICE, 0, lid::CHANGED_NAMESPACES);
        subsystem.add(3, namespace(3, 1 << 20)).unwrap();
        let told = admin.response();
        assert_eq!((told.cid(), told.status(), told.result()), (first, Status::SUCCESS, notice));
        // Until the page is read, and not only looked at, there is no other.
        let second = await_event(&mut admin);
        subsystem.remove(7).unwrap();
        nothing_else(&mut admin);
        assert_eq!(changed(&mut admin, true), [3, 7]);
        nothing_else(&mut admin);
        let mut get = SubmissionEntry::new(admin::GET_LOG_PAGE, 0, 0xffff_ffff);
        get.cdw[10] = u32::from(lid::CHANGED_NAMESPACES) | 1 << 16;
        CapsuleData::Transport { len: 8 }.put(&mut get);
        admin.command(get, &[]);
        let Some((Pdu::Data(_), data)) = admin.receive() else { panic!("no page") };
        assert_eq!(data, [3, 0, 0, 0, 7, 0, 0, 0]);
        // The page's answer, and the event that it has set free.
        let both = [admin.response(), admin.response()];
        let told = both.iter().find(|entry| entry.cid() == second).expect("the second event");
        assert_eq!((told.status(), told.result()), (Status::SUCCESS, notice));
        assert_eq!(changed(&mut admin, false), [0, 0]);
        await_event(&mut admin);
        nothing_else(&mut admin);
    }
}

#[test]
fn a_result_that_waits_is_aborted_and_cancelled() {
    for threads in [1, 3] {
        let (server, plan) = near_data(threads);
        let address = server.addresses()[0];
        let (mut admin, cntlid) = Raw::admin(address, 0);
        let mut queues: Vec<Raw> = (1..4).map(|qid| Raw::io(address, cntlid, qid)).collect();
        let [one, others @ ..] = &mut queues[..] else { panic!() };
        // For an `execute` that never comes.
        let cid = result(one, 8);
        assert_eq!(abort(&mut admin, 1, cid), 0);
        assert_eq!(ended(&one.response()), (cid, Status::ABORT_REQUESTED));
        assert_eq!(abort(&mut admin, 1, cid), 1, "there is nothing any more");
        withhold_reads(&plan);
        execute(one, 9);
        let cid = result(one, 9);
        assert_eq!(abort(&mut admin, 1, cid), 0);
        assert_eq!(ended(&one.response()), (cid, Status::ABORT_REQUESTED));
        // The work has ended with it. What waits is also cancelled by way of any queue.
        execute(one, 9);
        let mut cid = result(one, 9);
        for (nr, other) in others.iter_mut().enumerate() {
            let cancelled = other.run(tagged(io::NEAR_DATA_CANCEL, 9 + nr as u32), &[]);
            assert_eq!((cancelled.status(), cancelled.result()), (Status::SUCCESS, 1));
            assert_eq!(ended(&one.response()), (cid, Status::ABORT_REQUESTED), "{threads} threads, {nr}");
            execute(one, 10 + nr as u32);
            cid = result(one, 10 + nr as u32);
        }
        plan.lock().unwrap().clear();
        let Some((Pdu::Data(_), reply)) = one.receive() else { panic!("no reply") };
        assert_eq!(wire::decode_reply(&reply).unwrap().failure, None);
        assert_eq!(ended(&one.response()), (cid, Status::SUCCESS));
    }
}

#[test]
fn a_command_that_waits_for_its_data_is_not_aborted() {
    for threads in [1, 3] {
        let server = serve(offer(1 << 20), Options { threads, ..Options::default() });
        let address = server.addresses()[0];
        let (mut admin, cntlid) = Raw::admin(address, 0);
        let mut queue = Raw::io(address, cntlid, 2);
        let cid = queue.command(transfer(io::WRITE, 8, 32, 16384), &[]);
        let Some((Pdu::ReadyToTransfer(r2t), _)) = queue.receive() else { panic!("no R2T") };
        // An Abort is a best effort (Base 2.0, 5.1): what its host still owes data for is told as not
        // aborted, and goes on.
        assert_eq!(abort(&mut admin, 2, cid), 1);
        let header =
            DataHeader { cccid: cid, ttag: r2t.ttag, offset: 0, len: 16384, last: true, success: false };
        queue.put(&[header.host(&PLAIN).to_vec(), vec![0x5a; 16384]].concat());
        assert_eq!(ended(&queue.response()), (cid, Status::SUCCESS));
        queue.command(transfer(io::READ, 8, 32, 16384), &[]);
        let Some((Pdu::Data(_), data)) = queue.receive() else { panic!("no data") };
        assert!(data == [0x5a; 16384]);
    }
}

#[test]
fn a_reset_and_a_shutdown_end_the_io_queues_of_every_thread() {
    for threads in [1, 3] {
        let (server, plan) = near_data(threads);
        let address = server.addresses()[0];
        let (mut admin, cntlid) = Raw::admin(address, 0);
        let property = |admin: &mut Raw, cc: reg::Cc| {
            let set = Property { attrib: 0, offset: reg::CC as u32, value: cc.0.into() };
            assert_eq!(admin.run(FabricsCommand::PropertySet(set).encode(), &[]).status(), Status::SUCCESS);
        };
        let begun = Instant::now();
        let soon = || assert!(begun.elapsed() < Duration::from_secs(60));
        // More than the admin queue holds, if what a reset has ended were kept.
        for round in 0..8u32 {
            let mut queues: Vec<Raw> = (1..7).map(|qid| Raw::io(address, cntlid, qid)).collect();
            for _ in 0..8 {
                await_event(&mut admin);
            }
            withhold_reads(&plan);
            execute(&mut queues[0], round);
            result(&mut queues[0], round);
            queues[1].command(transfer(io::WRITE, 8, 32, 16384), &[]);
            let Some((Pdu::ReadyToTransfer(_), _)) = queues[1].receive() else { panic!("no R2T") };
            property(&mut admin, reg::Cc::DEFAULTS);
            for queue in &mut queues {
                assert_eq!(queue.ending(), None);
            }
            while admin.property(reg::CSTS) & 1 != 0 {
                soon();
            }
            let mut early = Raw::initialized(address);
            let connect = Connect { recfmt: 0, qid: 1, sqsize_z: 127, cattr: 0, kato: 0 };
            let done = early.connect_as(connect, &ConnectData::new([7; 16], HOST, NQN, cntlid));
            assert_eq!(done.status().code(), Status::COMMAND_SEQUENCE_ERROR);
            plan.lock().unwrap().clear();
            admin.enable();
            while server.target().connected()[0].queues > 0 {
                soon();
            }
        }
        let mut queues: Vec<Raw> = (1..7).map(|qid| Raw::io(address, cntlid, qid)).collect();
        for (nr, queue) in queues.iter_mut().enumerate() {
            execute(queue, 100 + nr as u32);
        }
        property(&mut admin, reg::Cc(reg::Cc::DEFAULTS.0 | reg::Cc::EN).with_shn(1));
        for queue in &mut queues {
            assert_eq!(queue.ending(), None);
        }
        while admin.property(reg::CSTS) & reg::csts::SHST != reg::csts::SHST_COMPLETE {
            soon();
        }
    }
}
