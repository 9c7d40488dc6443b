//! Registers and admin commands: what NVMe 2.0 asks, and the status of everything that it refuses.

use std::sync::atomic::Ordering;

use crate::rig::*;
use nearside_dma::Region;
use nearside_spec::feature::fid;
use nearside_spec::identify::{IdentifyController, IdentifyNamespace, cns};
use nearside_spec::log::{Smart, lid};
use nearside_spec::registers::{self as reg, Cap, Cc, csts};
use nearside_store::{Delay, Lossy, Modelled};

fn host() -> Host<Dram> {
    Host::on(dram(1 << 20), Config::default())
}

#[test]
fn registers_tell_what_the_controller_can() {
    let host = Host::off(dram(1 << 20), Config::default());
    let cap = Cap(host.function.registers.word64(reg::CAP).load(Ordering::Relaxed));
    assert_eq!((cap.mqes_z(), cap.doorbell_stride(), cap.page_size_min()), (4095, 4, 4096));
    assert_eq!(cap.0 >> 37 & 1, 1);
    assert_eq!(host.register(reg::VS), 0x0002_0000);
    assert_eq!(host.register(reg::CSTS), 0);
}

#[test]
fn what_cannot_be_enabled_is_fatal_until_a_reset() {
    let mut host = Host::off(dram(1 << 20), Config::default());
    let good = (31 << 16 | 31, BASE, BASE + 0x2000, Cc::DEFAULTS.0);
    let bad = [
        (31 << 16, good.1, good.2, good.3),
        (31, good.1, good.2, good.3),
        (good.0, BASE + 8, good.2, good.3),
        (good.0, 0, good.2, good.3),
        (good.0, good.1, BASE + MEMORY as u64, good.3),
        (good.0, good.1, good.2, good.3 | 1 << 7),
        (good.0, good.1, good.2, good.3 | 1 << 4),
        (good.0, good.1, good.2, good.3 | 1 << 11),
    ];
    for (aqa, asq, acq, cc) in bad {
        host.set_register(reg::AQA, aqa);
        host.function.registers.word64(reg::ASQ).store(asq, Ordering::Relaxed);
        host.function.registers.word64(reg::ACQ).store(acq, Ordering::Relaxed);
        host.set_register(reg::CC, cc | Cc::EN);
        host.settle(0);
        assert_eq!(host.register(reg::CSTS), csts::CFS, "{aqa:#x} {asq:#x} {acq:#x} {cc:#x}");
        host.disable();
    }
    host.enable();
}

#[test]
fn identify() {
    let mut host = host();
    let ask = |host: &mut Host<Dram>, cns: u8, nsid, cdw11| {
        host.put(FREE, &[0xee; 4096]);
        host.admin(command(admin::IDENTIFY, nsid, &[cns.into(), cdw11])).map(|_| host.bytes(FREE, 4096))
    };
    let id = IdentifyController::from_bytes(&ask(&mut host, cns::CONTROLLER, 0, 0).unwrap());
    assert_eq!(
        (id.ver(), id.nn(), id.sqes(), id.cqes(), id.mdts()),
        (0x20000, nearside_device::MAX_NSID, 0x66, 0x44, 8)
    );
    assert_eq!(nearside_spec::layout::text(&id.mn()), "Nearside");
    assert!(id.subnqn().starts_with(b"nqn.2026-11.dev.nearside:drive\0"));
    let ns = IdentifyNamespace::from_bytes(&ask(&mut host, cns::NAMESPACE, 1, 0).unwrap());
    assert_eq!((ns.nsze(), ns.format().lbads(), ns.flbas(), ns.nlbaf_z()), (2048, 9, 0, 0));
    let list = ask(&mut host, cns::ACTIVE_NAMESPACES, 0, 0).unwrap();
    assert_eq!((&list[..4], &list[4..8]), (&[1, 0, 0, 0][..], &[0, 0, 0, 0][..]));
    assert_eq!(ask(&mut host, cns::ACTIVE_NAMESPACES, 1, 0).unwrap()[..4], [0; 4]);
    let list = ask(&mut host, cns::NAMESPACE_DESCRIPTORS, 1, 0).unwrap();
    assert_eq!((list[0], list[1], &list[4..12], list[20]), (3, 16, &b"Nearside"[..], 4));
    assert_eq!(ask(&mut host, cns::NAMESPACE_INDEPENDENT, 1, 0).unwrap()[14], 1);
    assert_eq!(ask(&mut host, cns::COMMAND_SETS, 0, 0).unwrap()[0], 1);
    // Identifiers that could be and are not.
    assert_eq!(ask(&mut host, cns::NAMESPACE, 2, 0).unwrap(), [0; 4096]);
    assert_eq!(ask(&mut host, cns::NAMESPACE_INDEPENDENT, 9, 0).unwrap(), [0; 4096]);
    for which in [cns::CONTROLLER_COMMAND_SET, cns::NAMESPACE_COMMAND_SET] {
        assert_eq!(ask(&mut host, which, 1, 0).unwrap(), [0; 4096]);
        refused(ask(&mut host, which, 1, 2 << 24), Status::INVALID_FIELD.dnr());
    }
    for (which, nsid) in [
        (cns::NAMESPACE, 0),
        (cns::NAMESPACE, nearside_device::MAX_NSID + 1),
        (cns::NAMESPACE, 0xffff_ffff),
        (cns::ACTIVE_NAMESPACES, 0xffff_fffe),
        (cns::NAMESPACE_DESCRIPTORS, 2),
        (cns::NAMESPACE_INDEPENDENT, 0),
    ] {
        refused(ask(&mut host, which, nsid, 0), Status::INVALID_NAMESPACE.dnr());
        assert_eq!(host.last_error(), (0, 0x77, Status(Status::INVALID_NAMESPACE.dnr().0 | 1 << 13), 4));
    }
    refused(ask(&mut host, 0x7f, 1, 0), Status::INVALID_FIELD.dnr());
    assert_eq!(host.last_error().3, 40);
}

#[test]
fn admin_commands_use_prps_and_are_not_fused() {
    let mut host = host();
    for (bits, at) in [(1 << 8, 1), (3 << 8, 1), (1 << 14, 1 | 6 << 8), (3 << 14, 1 | 6 << 8)] {
        let mut e = command(admin::IDENTIFY, 0, &[1]);
        e.cdw[0] |= bits;
        refused(host.admin(e), Status::INVALID_FIELD.dnr());
        assert_eq!(host.last_error().3, at);
    }
    refused(host.admin(command(0x7e, 0, &[])), Status::INVALID_OPCODE.dnr());
    let mut e = command(admin::IDENTIFY, 0, &[1]);
    e.set_quad(6, 0x1000);
    refused(host.admin(e), Status::DATA_TRANSFER_ERROR.dnr());
    e.set_quad(6, FREE + 2);
    refused(host.admin(e), Status::INVALID_PRP_OFFSET.dnr());
}

#[test]
fn queues_are_created_and_deleted_by_the_rules() {
    let mut host = host();
    let cq = host.create_cq(1, None);
    let sq = host.create_sq(1, 1);
    let with = |mut e: SubmissionEntry, at: usize, value: u32| {
        e.cdw[at] = value;
        e
    };
    refused(host.admin(sq), Status::INVALID_CQ.dnr());
    for (entry, status) in [
        (with(cq, 10, 31 << 16), Status::INVALID_QUEUE_ID),
        (with(cq, 10, 31 << 16 | 33), Status::INVALID_QUEUE_ID),
        (with(cq, 10, 1), Status::INVALID_QUEUE_SIZE),
        (with(cq, 10, 4096 << 16 | 1), Status::INVALID_QUEUE_SIZE),
        (with(cq, 11, 0), Status::INVALID_FIELD),
        (with(cq, 11, 33 << 16 | 3), Status::INVALID_INTERRUPT_VECTOR),
        (with(cq, 6, 0x10), Status::INVALID_PRP_OFFSET),
        (with(cq, 7, 0x7777), Status::DATA_TRANSFER_ERROR),
        (with(sq, 11, 1), Status::INVALID_QUEUE_ID),
        (with(sq, 11, 1 | 34 << 16), Status::INVALID_QUEUE_ID),
    ] {
        refused(host.admin(entry), status.dnr());
    }
    host.admin(cq).unwrap();
    refused(host.admin(cq), Status::INVALID_QUEUE_ID.dnr());
    host.admin(sq).unwrap();
    refused(host.admin(sq), Status::INVALID_QUEUE_ID.dnr());
    let delete_cq = command(admin::DELETE_CQ, 0, &[1]);
    let delete_sq = command(admin::DELETE_SQ, 0, &[1]);
    refused(host.admin(delete_cq), Status::INVALID_QUEUE_DELETION.dnr());
    refused(host.admin(command(admin::DELETE_SQ, 0, &[0])), Status::INVALID_QUEUE_ID.dnr());
    refused(host.admin(command(admin::DELETE_CQ, 0, &[7])), Status::INVALID_QUEUE_ID.dnr());
    host.admin(delete_sq).unwrap();
    refused(host.admin(delete_sq), Status::INVALID_QUEUE_ID.dnr());
    host.admin(delete_cq).unwrap();
    host.admin(cq).unwrap();
    host.admin(sq).unwrap();
}

#[test]
fn deleting_a_queue_waits_for_its_commands() {
    let mut host =
        Host::ready(Modelled::new(dram(1 << 20), Delay::fixed(1_000_000).medium()), Config::default());
    host.submit(1, transfer(io::READ, 0, 8, FREE, 0));
    host.settle(0);
    host.submit(0, command(admin::DELETE_SQ, 0, &[1]));
    assert!(host.completed(0).is_none());
    host.settle(2_000_000);
    assert!(host.completed(0).unwrap().status().is_success());
    assert!(host.completed(1).unwrap().status().is_success());
}

#[test]
fn a_reset_waits_for_the_store_and_answers_nothing() {
    for reactors in [1, 3] {
        let config = Config { reactors, ..Config::default() };
        let mut host = Host::on(Modelled::new(dram(1 << 20), Delay::fixed(5_000_000).medium()), config);
        for id in 1..=3 {
            host.create_pair(id, None);
            host.submit(id, transfer(io::READ, 0, 8, FREE, 0));
        }
        host.submit(0, command(admin::DELETE_SQ, 0, &[2]));
        host.settle(0);
        host.set_register(reg::CC, Cc::DEFAULTS.0);
        host.settle(0);
        assert_eq!(host.register(reg::CSTS), csts::RDY, "operations are in flight");
        let before = host.bytes(BASE, 1 << 16);
        host.settle(20_000_000);
        assert_eq!(host.register(reg::CSTS), 0);
        assert_eq!(host.bytes(BASE, 1 << 16), before, "no completion after the reset began");
        host.enable();
        host.create_pair(1, None);
        assert!(host.run(1, transfer(io::READ, 0, 8, FREE, 0)).status().is_success());
    }
}

#[test]
fn shutdown_flushes_then_says_so() {
    let mut host =
        Host::ready(Modelled::new(dram(1 << 20), Delay::fixed(1_000_000).medium()), Config::default());
    host.set_register(reg::CC, Cc(Cc::DEFAULTS.0 | Cc::EN).with_shn(1).0);
    host.settle(0);
    assert_eq!(host.register(reg::CSTS), csts::RDY | csts::SHST_OCCURRING);
    host.settle(2_000_000);
    assert_eq!(host.register(reg::CSTS), csts::RDY | csts::SHST_COMPLETE);
    host.disable();
    host.enable();
}

#[test]
fn features() {
    let mut host = host();
    let get = |host: &mut Host<Dram>, id: u8, sel: u32, cdw11| {
        host.admin(command(admin::GET_FEATURES, 0, &[u32::from(id) | sel << 8, cdw11]))
    };
    let set = |host: &mut Host<Dram>, id: u8, cdw11| {
        host.admin(command(admin::SET_FEATURES, 0, &[id.into(), cdw11]))
    };
    for (id, value, default) in [
        (fid::ARBITRATION, 0x0102_0303, 7),
        (fid::VOLATILE_WRITE_CACHE, 0, 1),
        (fid::INTERRUPT_COALESCING, 0x0508, 0),
        (fid::WRITE_ATOMICITY, 1, 0),
        (fid::ASYNC_EVENT, 0x100, 0),
    ] {
        assert_eq!(get(&mut host, id, 0, 0), Ok(default));
        assert_eq!(set(&mut host, id, value), Ok(0));
        assert_eq!(get(&mut host, id, 0, 0), Ok(value));
        assert_eq!((get(&mut host, id, 1, 0), get(&mut host, id, 2, 0)), (Ok(default), Ok(default)));
        assert_eq!(get(&mut host, id, 3, 0), Ok(4));
        refused(get(&mut host, id, 4, 0), Status::INVALID_FIELD.dnr());
        let mut save = command(admin::SET_FEATURES, 0, &[u32::from(id) | 1 << 31, value]);
        refused(host.admin(save), Status::FEATURE_NOT_SAVEABLE.dnr());
        save.cdw[10] &= 0xff;
        save.cdw[1] = 1;
        refused(host.admin(save), Status::FEATURE_NOT_NAMESPACE_SPECIFIC.dnr());
        save.cdw[1] = 2;
        refused(host.admin(save), Status::INVALID_NAMESPACE.dnr());
    }
    refused(get(&mut host, 0x7f, 0, 0), Status::INVALID_FIELD.dnr());
    refused(set(&mut host, 0, 0), Status::INVALID_FIELD.dnr());
    refused(set(&mut host, fid::POWER_MANAGEMENT, 1), Status::INVALID_FIELD.dnr());
    // Of the namespace.
    assert_eq!(host.admin(command(admin::SET_FEATURES, 1, &[fid::ERROR_RECOVERY.into(), 9])), Ok(0));
    assert_eq!(host.admin(command(admin::GET_FEATURES, 1, &[fid::ERROR_RECOVERY.into()])), Ok(9));
    refused(get(&mut host, fid::ERROR_RECOVERY, 0, 0), Status::INVALID_NAMESPACE.dnr());
    // Vectors.
    assert_eq!(set(&mut host, fid::INTERRUPT_VECTOR, 2 | 1 << 16), Ok(0));
    assert_eq!(get(&mut host, fid::INTERRUPT_VECTOR, 0, 2), Ok(2 | 1 << 16));
    refused(set(&mut host, fid::INTERRUPT_VECTOR, 33), Status::INVALID_FIELD.dnr());
    // Queues: before any is created.
    assert_eq!(set(&mut host, fid::NUMBER_OF_QUEUES, 3 | 100 << 16), Ok(3 | 31 << 16));
    assert_eq!(get(&mut host, fid::NUMBER_OF_QUEUES, 0, 0), Ok(3 | 31 << 16));
    refused(set(&mut host, fid::NUMBER_OF_QUEUES, 0xffff), Status::INVALID_FIELD.dnr());
    host.create_pair(1, None);
    refused(set(&mut host, fid::NUMBER_OF_QUEUES, 0), Status::COMMAND_SEQUENCE_ERROR.dnr());
    // Those with data.
    host.put(FREE, &[9; 16]);
    assert_eq!(set(&mut host, fid::HOST_IDENTIFIER, 1), Ok(0));
    host.put(FREE, &[0; 32]);
    assert_eq!(get(&mut host, fid::HOST_IDENTIFIER, 0, 1), Ok(0));
    assert_eq!(host.bytes(FREE, 17), [&[9; 16][..], &[0]].concat());
    host.put(FREE, &[0, 0, 1, 0, 0, 0, 0, 0]);
    assert_eq!(set(&mut host, fid::TIMESTAMP, 0), Ok(0));
    host.now = host.now + 5_000_000;
    assert_eq!(get(&mut host, fid::TIMESTAMP, 0, 0), Ok(0));
    assert_eq!(host.bytes(FREE, 8), [5, 0, 1, 0, 0, 0, 2, 0]);
    // A reset undoes them.
    host.disable();
    host.enable();
    assert_eq!(get(&mut host, fid::ARBITRATION, 0, 0), Ok(7));
}

/// Base 2.0, figure 317: none of these persists across a Controller Level Reset; each has its default again,
/// and does what that says.
#[test]
fn a_reset_brings_every_feature_s_default_back_and_what_it_does() {
    let get = |host: &mut Host<Lossy>, id: u8, cdw11| {
        host.put(FREE, &[0xee; 512]);
        let nsid = u32::from(id == fid::ERROR_RECOVERY);
        let value = host.admin(command(admin::GET_FEATURES, nsid, &[id.into(), cdw11]));
        (value, host.bytes(FREE, 512))
    };
    let all = [
        (fid::ARBITRATION, 0x0102_0303, 0),
        (fid::TEMPERATURE_THRESHOLD, 300, 0),
        (fid::TEMPERATURE_THRESHOLD, 1 << 20 | 200, 1 << 20),
        (fid::ERROR_RECOVERY, 9, 0),
        (fid::VOLATILE_WRITE_CACHE, 0, 0),
        (fid::NUMBER_OF_QUEUES, 3 | 3 << 16, 0),
        (fid::INTERRUPT_COALESCING, 0x0508, 0),
        (fid::INTERRUPT_VECTOR, 2 | 1 << 16, 2),
        (fid::WRITE_ATOMICITY, 1, 0),
        (fid::ASYNC_EVENT, 0x102, 0),
        (fid::TIMESTAMP, 0, 0),
        (fid::KEEP_ALIVE, 60_000, 0),
        (fid::HOST_BEHAVIOR, 0, 0),
        (fid::HOST_IDENTIFIER, 1, 1),
    ];
    let mut host = Host::on(Lossy::new(1 << 20, 512).unwrap(), Config::default());
    let data = [&[1, 1, 1][..], &[0; 509]].concat();
    for (id, value, selects) in all {
        let before = get(&mut host, id, selects);
        host.put(FREE, &data);
        let nsid = u32::from(id == fid::ERROR_RECOVERY);
        host.admin(command(admin::SET_FEATURES, nsid, &[id.into(), value])).unwrap();
        assert_ne!(get(&mut host, id, selects), before, "{id:#x} was set");
        host.disable();
        host.enable();
        let after = get(&mut host, id, selects);
        if id == fid::TIMESTAMP {
            // Milliseconds since the controller began, by its origin.
            assert_eq!(after.1[6], 0);
        } else {
            assert_eq!(after, before, "{id:#x} after a reset");
        }
    }
}

/// Blocks of a write that are not durable when it is acknowledged.
fn not_durable(config: Config, before: impl FnOnce(&mut Host<Lossy>)) -> usize {
    let store = Lossy::new(1 << 20, 512).unwrap();
    let mut host = Host::on(store.clone(), config);
    before(&mut host);
    host.create_pair(1, None);
    assert!(host.run(1, transfer(io::WRITE, 0, 8, FREE, 0)).status().is_success());
    store.unflushed()
}

#[test]
fn without_a_write_cache_what_is_acknowledged_is_durable_before_and_after_a_reset() {
    let off = Config { write_cache: false, ..Config::default() };
    let reset = |host: &mut Host<Lossy>| {
        host.disable();
        host.enable();
    };
    let switch_off = |host: &mut Host<Lossy>| {
        host.admin(command(admin::SET_FEATURES, 0, &[fid::VOLATILE_WRITE_CACHE.into(), 0])).unwrap();
    };
    assert_eq!(not_durable(off.clone(), |_| {}), 0);
    assert_eq!(not_durable(off, reset), 0, "after a reset");
    // Where there is a cache, it is on again after a reset, as Get Features says.
    assert_eq!(not_durable(Config::default(), |_| {}), 8);
    assert_eq!(not_durable(Config::default(), switch_off), 0);
    let both = |host: &mut Host<Lossy>| {
        switch_off(host);
        reset(host);
    };
    assert_eq!(not_durable(Config::default(), both), 8);
}

#[test]
fn bits_that_are_reserved_or_stand_for_what_there_is_not_are_refused() {
    let mut host = host();
    for (id, good, bad) in [
        (fid::ARBITRATION, 0xffff_ff07, &[3, 7][..]),
        (fid::POWER_MANAGEMENT, 0x20, &[8, 31]),
        (fid::TEMPERATURE_THRESHOLD, 300, &[22, 31]),
        (fid::ERROR_RECOVERY, 0xffff, &[17, 31]),
        (fid::VOLATILE_WRITE_CACHE, 1, &[1, 31]),
        (fid::INTERRUPT_COALESCING, 0x0101, &[16, 31]),
        (fid::INTERRUPT_VECTOR, 0x1_0001, &[17, 31]),
        (fid::WRITE_ATOMICITY, 1, &[1, 31]),
        // Of the notices, those of namespaces alone (OAES).
        (fid::ASYNC_EVENT, 0x13f, &[6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 26, 27, 31]),
        (fid::TIMESTAMP, 0, &[0, 31]),
        (fid::HOST_BEHAVIOR, 0, &[0, 31]),
        (fid::HOST_IDENTIFIER, 1, &[1, 31]),
    ] {
        host.put(FREE, &[0; 512]);
        let nsid = u32::from(id == fid::ERROR_RECOVERY);
        let mut set = |value: u32| host.admin(command(admin::SET_FEATURES, nsid, &[id.into(), value]));
        assert_eq!(set(good), Ok(0), "{id:#x}");
        for &bit in bad {
            refused(set(good | 1 << bit), Status::INVALID_FIELD.dnr());
        }
        let bit = *bad.last().unwrap();
        assert_eq!(host.last_error().3, (44 + bit / 8) | ((bit % 8) << 8), "{id:#x}");
    }
    for (at, value) in [(0, 2), (3, 1), (511, 1)] {
        let mut data = [0; 512];
        data[at] = value;
        host.put(FREE, &data);
        let set = command(admin::SET_FEATURES, 0, &[fid::HOST_BEHAVIOR.into()]);
        refused(host.admin(set), Status::INVALID_FIELD.dnr());
    }
}

#[test]
fn log_pages() {
    let mut host = host();
    let ask = |host: &mut Host<Dram>, log: u8, offset: u32, dwords: u32| {
        host.put(FREE, &[0xee; 8192]);
        let e =
            command(admin::GET_LOG_PAGE, 0xffff_ffff, &[u32::from(log) | (dwords - 1) << 16, 0, offset, 0]);
        host.admin(e).map(|_| host.bytes(FREE, dwords as usize * 4 + 4))
    };
    let smart = Smart::from_bytes(&ask(&mut host, lid::SMART, 0, 128).unwrap());
    assert_eq!((smart.composite_temperature(), smart.critical_warning()), (298, 0));
    assert_eq!(ask(&mut host, lid::SMART, 0, 2).unwrap()[8..], [0xee; 4], "no more than asked");
    assert_eq!(ask(&mut host, lid::FIRMWARE, 8, 2).unwrap()[..5], *b"0.1.0");
    assert_eq!(ask(&mut host, lid::SUPPORTED, 0, 256).unwrap()[..4], [1, 0, 0, 0]);
    let effects = ask(&mut host, lid::EFFECTS, 0, 1024).unwrap();
    assert_eq!((effects[4 * 6], effects[1024 + 4], effects[1024 + 4 * 0xc3]), (1, 3, 0));
    assert_eq!(ask(&mut host, lid::SMART, 508, 2).unwrap()[4..8], [0; 4], "zeros after the end");
    refused(ask(&mut host, lid::SMART, 2, 1), Status::INVALID_FIELD.dnr());
    refused(ask(&mut host, lid::SMART, 516, 1), Status::INVALID_FIELD.dnr());
    refused(ask(&mut host, 0xd5, 0, 1), Status::INVALID_LOG_PAGE.dnr());
    refused(ask(&mut host, 0x7f, 0, 1), Status::INVALID_LOG_PAGE.dnr());
    let long = command(admin::GET_LOG_PAGE, 0, &[2 | 0xffff << 16, 0xffff]);
    refused(host.admin(long), Status::INVALID_FIELD.dnr());
    let errors = ask(&mut host, lid::ERROR, 0, 64).unwrap();
    assert_eq!((errors[0], errors[64], errors[12..14] != [0; 2]), (5, 4, true), "the newest first");
}

#[test]
fn events_wait_for_requests_and_for_their_log_page() {
    let mut host = host();
    let request = |cid| SubmissionEntry::new(admin::ASYNC_EVENT_REQUEST, cid, 0);
    for cid in 0..8 {
        host.submit(0, request(cid));
    }
    assert!(host.completed(0).is_none());
    refused(host.admin(request(99)), Status::AER_LIMIT_EXCEEDED.dnr());
    // Others pass by.
    host.admin(command(admin::IDENTIFY, 0, &[1])).unwrap();
}

#[test]
fn an_aborted_event_request_is_answered() {
    let mut host = host();
    host.submit(0, SubmissionEntry::new(admin::ASYNC_EVENT_REQUEST, 5, 0));
    assert!(host.completed(0).is_none());
    host.submit(0, command(admin::ABORT, 0, &[5 << 16]));
    let (a, b) = (host.completed(0).unwrap(), host.completed(0).unwrap());
    assert_eq!((a.cid(), a.status()), (5, Status::ABORT_REQUESTED));
    assert_eq!((b.cid(), b.result()), (0x77, 0));
    // Nothing of that name any more.
    assert_eq!(host.admin(command(admin::ABORT, 0, &[5 << 16])), Ok(1));
    assert_eq!(host.admin(command(admin::ABORT, 0, &[5 << 16 | 9])), Ok(1));
}

#[test]
fn doorbells_are_checked() {
    let mut host = Host::ready(dram(1 << 20), Config::default());
    host.submit(0, SubmissionEntry::new(admin::ASYNC_EVENT_REQUEST, 1, 0));
    host.submit(0, SubmissionEntry::new(admin::ASYNC_EVENT_REQUEST, 2, 0));
    assert!(host.completed(0).is_none());
    host.ring_tail(1, 32);
    let event = host.completed(0).unwrap();
    assert_eq!((event.cid(), event.result()), (1, 0x0001_0100));
    // Another of the type is held back until the error log has been read.
    host.set_register(reg::cq_head_doorbell(9), 1);
    for _ in 0..1000 {
        host.step();
    }
    assert!(host.completed(0).is_none());
    host.admin(command(admin::GET_LOG_PAGE, 0, &[lid::ERROR.into()])).unwrap();
    let event = host.completed(0).unwrap();
    assert_eq!((event.cid(), event.result()), (2, 0x0001_0000));
    // The queue works on.
    host.ring_tail(1, 0);
    assert!(host.run(1, transfer(io::READ, 0, 1, FREE, 0)).status().is_success());
}

#[test]
fn a_crossed_temperature_threshold_is_an_event() {
    let mut host = host();
    host.admin(command(admin::SET_FEATURES, 0, &[fid::ASYNC_EVENT.into(), 2])).unwrap();
    host.submit(0, SubmissionEntry::new(admin::ASYNC_EVENT_REQUEST, 1, 0));
    assert!(host.completed(0).is_none());
    host.submit(0, command(admin::SET_FEATURES, 0, &[fid::TEMPERATURE_THRESHOLD.into(), 290]));
    let (a, b) = (host.completed(0).unwrap(), host.completed(0).unwrap());
    assert_eq!((a.cid(), b.cid(), b.result()), (0x77, 1, 0x0002_0101));
    host.admin(command(admin::GET_LOG_PAGE, 0, &[u32::from(lid::SMART) | 127 << 16])).unwrap();
    assert_eq!(host.bytes(FREE, 1), [2]);
}

#[test]
fn a_host_that_falls_silent_is_given_up() {
    let mut host = host();
    host.admin(command(admin::SET_FEATURES, 0, &[fid::KEEP_ALIVE.into(), 950])).unwrap();
    assert_eq!(host.admin(command(admin::GET_FEATURES, 0, &[fid::KEEP_ALIVE.into()])), Ok(1000));
    for _ in 0..3 {
        host.settle(900_000_000);
        host.now = host.now + 900_000_000;
        host.admin(command(admin::KEEP_ALIVE, 0, &[])).unwrap();
    }
    host.now = host.now + 1_100_000_000;
    host.settle(0);
    assert_eq!(host.register(reg::CSTS), csts::RDY | csts::CFS);
    host.disable();
    host.enable();
}

#[test]
fn a_queue_in_memory_that_is_not_aligned_is_refused() {
    let mut host = host();
    let odd = std::sync::Arc::new(Region::anonymous(1 << 16).unwrap());
    host.function.memory.map(0xff0, odd).unwrap();
    let mut cq = host.create_cq(1, None);
    cq.set_quad(6, 0x1000);
    refused(host.admin(cq), Status::INVALID_PRP_OFFSET.dnr());
}
