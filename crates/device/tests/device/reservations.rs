//! Reservations: who may do what, by the specification's own table; keys, notices, what is kept; and that
//! nothing of a host that was preempted is under way any more once that is answered.

use std::sync::{Arc, Mutex};

use crate::rig::*;
use nearside_device::{CommandSet, Host as Named, HostId, Kept, Namespace, Subsystem, Ticket};
use nearside_spec::command::memory;
use nearside_spec::data::CopySource;
use nearside_spec::feature::fid;
use nearside_spec::log::{async_event, event, lid};
use nearside_spec::registers as reg;
use nearside_spec::reservation::{
    Kind, ReservationKeys, ReservationNotification, ReservationStatus, acquire, register, release,
};
use nearside_store::{Delay, Modelled};

const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();

fn host_of<S: Store>(subsystem: &Arc<Subsystem<S>>, id: u8) -> Host<S> {
    let named = Named { identifier: [id; 16], ..Named::default() };
    let config = Config { shared: true, cntlid: id.into(), host: named, ..Config::default() };
    Host::among(subsystem, config)
}

fn subsystem<S: Store>(store: S) -> Arc<Subsystem<S>> {
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(Namespace::new(store, (), 512, [1; 16], true).unwrap())).unwrap();
    subsystem
}

/// A subsystem of one namespace, and hosts 1, 2 and so on.
fn hosts<const N: usize>() -> (Arc<Subsystem<Dram>>, [Host<Dram>; N]) {
    let subsystem = subsystem(dram(1 << 20));
    let hosts = std::array::from_fn(|nth| host_of(&subsystem, nth as u8 + 1));
    (subsystem, hosts)
}

fn entry(opcode: u8, dword10: u32) -> SubmissionEntry {
    let mut entry = transfer(opcode, 0, 1, FREE, 0);
    (entry.cdw[10], entry.cdw[11], entry.cdw[12]) = (dword10, 0, 0);
    entry
}

fn keys<S: Store>(host: &mut Host<S>, current: u64, other: u64) {
    let mut keys = ReservationKeys::default();
    keys.set_current(current).set_other(other);
    host.put(FREE, &keys.0);
}

fn register<S: Store>(host: &mut Host<S>, action: u8, current: u64, new: u64) -> Status {
    keys(host, current, new);
    host.run(1, entry(io::RESERVATION_REGISTER, action.into())).status()
}

fn acquires<S: Store>(host: &mut Host<S>, action: u8, kind: u8, current: u64, other: u64) -> Status {
    keys(host, current, other);
    host.run(1, entry(io::RESERVATION_ACQUIRE, u32::from(action) | u32::from(kind) << 8)).status()
}

fn releases<S: Store>(host: &mut Host<S>, action: u8, kind: u8, current: u64) -> Status {
    keys(host, current, 0);
    host.run(1, entry(io::RESERVATION_RELEASE, u32::from(action) | u32::from(kind) << 8)).status()
}

/// Generation, kind and PTPL, and of each entry controller, holder, key and host.
type Report = ((u32, u8, u8), Vec<(u16, u8, u64, HostId)>);

fn report<S: Store>(host: &mut Host<S>) -> Report {
    let mut ask = entry(io::RESERVATION_REPORT, 1023);
    ask.cdw[11] = 1;
    assert!(host.run(1, ask).status().is_success());
    let bytes = host.bytes(FREE, 4096);
    let status = ReservationStatus(bytes[..64].try_into().unwrap());
    let entry = |at: &[u8]| {
        let word = |from: usize| u64::from_le_bytes(at[from..from + 8].try_into().unwrap());
        (u16::from_le_bytes([at[0], at[1]]), at[2], word(8), at[16..32].try_into().unwrap())
    };
    let entries = bytes[64..].chunks_exact(64).take(status.controllers().into()).map(entry).collect();
    ((status.generation(), status.kind(), status.persists()), entries)
}

fn ok(status: Status) {
    assert!(status.is_success(), "{status}");
}

/// NVM Express Base 2.0, figure 443, by hand: read and write of a registrant that is not the holder, and of a
/// host that is none.
const MAY: [(Kind, [bool; 4]); 6] = [
    (Kind::WriteExclusive, [true, false, true, false]),
    (Kind::ExclusiveAccess, [false, false, false, false]),
    (Kind::WriteExclusiveRegistrants, [true, true, true, false]),
    (Kind::ExclusiveAccessRegistrants, [true, true, false, false]),
    (Kind::WriteExclusiveAll, [true, true, true, false]),
    (Kind::ExclusiveAccessAll, [true, true, false, false]),
];

/// What a host may not read it may not have copied into memory either; also when that is taken from it while
/// the copy goes on.
#[test]
fn a_copy_reads_what_its_host_may() {
    let subsystem = subsystem(Modelled::new(dram(1 << 20), Delay::fixed(1_000_000).medium()));
    let local = Modelled::new(Dram::new(1 << 20, 4).unwrap(), Delay::fixed(0).medium());
    let local = Namespace::of_command_set(CommandSet::Memory, local, (), [2; 16]).unwrap();
    subsystem.add(2, Arc::new(local)).unwrap();
    let mut holder = host_of(&subsystem, 1);
    let named = Named { identifier: [2; 16], ..Named::default() };
    let config = Config { shared: true, cntlid: 2, host: named, ..Config::default() };
    let mut other = Host::of_all_sets(&subsystem, config);
    let copy = |host: &Host<_>| {
        let mut source = CopySource::default();
        source.set_nsid(1).set_count(2047);
        host.put(FREE, &source.0);
        let mut entry = SubmissionEntry::new(nearside_spec::opcode::memory::COPY, 0x67, 2);
        entry.set_quad(6, FREE);
        entry.with(memory::FORMAT, 2).with(memory::COPY_LENGTH, 1 << 20)
    };
    let entry = copy(&other);
    ok(other.run(1, entry).status());
    // By pieces of a millisecond each: it has come to the third.
    let entry = copy(&other);
    other.submit(1, entry);
    other.settle(2_500_000);
    ok(register(&mut holder, register::REGISTER, 0, 7));
    ok(acquires(&mut holder, acquire::ACQUIRE, Kind::ExclusiveAccess.to_field(), 7, 0));
    other.settle(1_000_000_000);
    let status = other.completed(1).unwrap().status();
    assert!(same(status, CONFLICT), "{status}");
    let entry = copy(&other);
    let status = other.run(1, entry).status();
    assert!(same(status, CONFLICT), "{status}");
}

#[test]
fn each_kind_keeps_out_whom_the_table_says() {
    for (kind, may) in MAY {
        let (_subsystem, [mut holder, mut registrant, mut other]) = hosts();
        ok(register(&mut holder, register::REGISTER, 0, 7));
        ok(register(&mut registrant, register::REGISTER, 0, 8));
        ok(acquires(&mut holder, acquire::ACQUIRE, kind.to_field(), 7, 0));
        for (host, [reads, writes]) in
            [(&mut holder, [true, true]), (&mut registrant, [may[0], may[1]]), (&mut other, [may[2], may[3]])]
        {
            let mut of = |entry: SubmissionEntry| {
                let status = host.run(1, entry).status();
                // What is compared is of no matter.
                let done = status.is_success() || same(status, Status::COMPARE_FAILURE);
                assert!(done || same(status, CONFLICT), "{kind:?}: {status}");
                done
            };
            let mut zeroes = transfer(io::WRITE_ZEROES, 0, 1, 0, 0);
            zeroes.cdw[12] = 0;
            let flush_all = SubmissionEntry::new(io::FLUSH, 3, 0xffff_ffff);
            let flush = SubmissionEntry::new(io::FLUSH, 3, 1);
            for (entry, allowed) in [
                (transfer(io::READ, 0, 1, FREE, 0), reads),
                (transfer(io::READ, 0, 16, FREE, FREE + 4096), reads),
                (transfer(io::COMPARE, 0, 1, FREE, 0), reads),
                (transfer(io::WRITE, 0, 1, FREE, 0), writes),
                (zeroes, writes),
                (flush, writes),
                (flush_all, writes),
                (entry(io::DATASET_MANAGEMENT, 0), writes),
            ] {
                assert_eq!(of(entry), allowed, "{kind:?}: {entry:?}");
            }
        }
        // Whoever is kept out still sees by whom, and cannot take it.
        assert_eq!(report(&mut other).0.1, kind.to_field());
        assert!(same(acquires(&mut other, acquire::ACQUIRE, kind.to_field(), 9, 0), CONFLICT));
        assert!(same(releases(&mut other, release::RELEASE, kind.to_field(), 9), CONFLICT));
    }
}

#[test]
fn keys_are_asked_for_and_hosts_come_and_go() {
    let (_subsystem, [mut a, mut b]) = hosts();
    assert_eq!(report(&mut a), ((0, 0, 0), vec![]));
    ok(register(&mut a, register::REGISTER, 0, 7));
    ok(register(&mut a, register::REGISTER, 0, 7));
    assert!(same(register(&mut a, register::REGISTER, 0, 8), CONFLICT));
    assert!(same(register(&mut a, register::REPLACE, 6, 8), CONFLICT));
    ok(register(&mut a, register::REPLACE, 7, 8));
    assert!(same(register(&mut b, register::REPLACE, 7, 8), CONFLICT));
    // Whatever its key is now: bit 3.
    ok(register(&mut b, register::REPLACE | 1 << 3, 0, 5));
    assert_eq!(report(&mut b), ((3, 0, 0), vec![(1, 0, 8, [1; 16]), (2, 0, 5, [2; 16])]));
    assert!(same(acquires(&mut a, acquire::ACQUIRE, 1, 7, 0), CONFLICT));
    ok(acquires(&mut a, acquire::ACQUIRE, 1, 8, 0));
    ok(acquires(&mut a, acquire::ACQUIRE, 1, 8, 0));
    assert!(same(acquires(&mut a, acquire::ACQUIRE, 2, 8, 0), CONFLICT));
    assert!(same(acquires(&mut b, acquire::ACQUIRE, 1, 5, 0), CONFLICT));
    // Who holds nothing releases nothing; the kind has to be the one there is.
    ok(releases(&mut b, release::RELEASE, 1, 5));
    assert!(same(releases(&mut a, release::RELEASE, 2, 8), Status::INVALID_FIELD.dnr()));
    assert_eq!(report(&mut b).0, (3, 1, 0));
    // A holder that goes takes its reservation with it.
    assert!(same(register(&mut a, register::UNREGISTER, 7, 0), CONFLICT));
    ok(register(&mut a, register::UNREGISTER, 8, 0));
    assert_eq!(report(&mut b), ((4, 0, 0), vec![(2, 0, 5, [2; 16])]));
    ok(releases(&mut b, release::CLEAR, 0, 5));
    assert_eq!(report(&mut b), ((5, 0, 0), vec![]));
    for (opcode, dword) in [
        (io::RESERVATION_REGISTER, 3),
        (io::RESERVATION_REGISTER, 1 << 30),
        (io::RESERVATION_REGISTER, 3 << 30),
        (io::RESERVATION_ACQUIRE, 7 << 8),
        (io::RESERVATION_ACQUIRE, 1 << 8 | 1 << 3),
        (io::RESERVATION_RELEASE, 1 << 3),
        (io::RESERVATION_REPORT, u32::MAX),
    ] {
        assert!(same(a.run(1, entry(opcode, dword)).status(), Status::INVALID_FIELD.dnr()), "{dword:#x}");
    }
}

#[test]
fn all_registrants_hold_it_until_the_last_has_gone() {
    let (_subsystem, [mut a, mut b, mut c]) = hosts();
    for (host, key) in [(&mut a, 1), (&mut b, 2), (&mut c, 3)] {
        ok(register(host, register::REGISTER, 0, key));
    }
    ok(acquires(&mut a, acquire::ACQUIRE, 6, 1, 0));
    ok(register(&mut a, register::UNREGISTER, 1, 0));
    assert_eq!(report(&mut b), ((4, 6, 0), vec![(2, 1, 2, [2; 16]), (3, 1, 3, [3; 16])]));
    assert!(same(a.run(1, transfer(io::READ, 0, 1, FREE, 0)).status(), CONFLICT));
    // Key 0 preempts all others.
    ok(acquires(&mut b, acquire::PREEMPT, 2, 2, 0));
    assert_eq!(report(&mut b), ((5, 2, 0), vec![(2, 1, 2, [2; 16])]));
    assert!(same(acquires(&mut c, acquire::PREEMPT, 2, 3, 2), CONFLICT));
    ok(register(&mut c, register::REGISTER, 0, 3));
    assert!(same(acquires(&mut c, acquire::PREEMPT, 2, 3, 9), CONFLICT));
    assert!(same(acquires(&mut c, acquire::PREEMPT, 2, 3, 0), Status::INVALID_FIELD.dnr()));
    ok(acquires(&mut c, acquire::PREEMPT, 1, 3, 2));
    assert_eq!(report(&mut c), ((7, 1, 0), vec![(3, 1, 3, [3; 16])]));
}

fn notification<S: Store>(host: &mut Host<S>) -> (u64, u8, u8, u32) {
    host.admin(command(admin::GET_LOG_PAGE, 0xffff_ffff, &[u32::from(lid::RESERVATION) | 15 << 16])).unwrap();
    let page = ReservationNotification(host.bytes(FREE, 64).try_into().unwrap());
    (page.count(), page.kind(), page.more(), page.nsid())
}

#[test]
fn hosts_hear_of_what_others_did_to_them() {
    let (_subsystem, [mut a, mut b]) = hosts();
    ok(register(&mut a, register::REGISTER, 0, 1));
    ok(register(&mut b, register::REGISTER, 0, 2));
    ok(acquires(&mut a, acquire::ACQUIRE, 4, 1, 0));
    for _ in 0..3 {
        b.submit(0, command(admin::ASYNC_EVENT_REQUEST, 0, &[]));
    }
    let told = async_event(event::IO_COMMAND_SET, event::RESERVATION_LOG, lid::RESERVATION);
    assert!(b.completed(0).is_none());
    ok(releases(&mut a, release::RELEASE, 4, 1));
    assert_eq!(b.completed(0).unwrap().result(), told);
    ok(releases(&mut a, release::CLEAR, 0, 1));
    assert!(b.completed(0).is_none(), "the page of the first is not read yet");
    assert_eq!(notification(&mut b), (1, 2, 1, 1));
    assert_eq!(b.completed(0).unwrap().result(), told);
    assert_eq!(notification(&mut b), (2, 3, 0, 1));
    assert_eq!(notification(&mut b), (0, 0, 0, 0));
    // Masked: a preempted registration.
    ok(register(&mut a, register::REGISTER, 0, 1));
    ok(register(&mut b, register::REGISTER, 0, 2));
    let masked = command(admin::SET_FEATURES, 1, &[fid::RESERVATION_MASK.into(), 1 << 1]);
    b.admin(masked).unwrap();
    let mask = b.admin(command(admin::GET_FEATURES, 1, &[fid::RESERVATION_MASK.into()]));
    assert_eq!(mask.unwrap(), 1 << 1);
    ok(acquires(&mut a, acquire::PREEMPT, 1, 1, 2));
    assert!(b.completed(0).is_none());
    assert_eq!(notification(&mut b), (0, 0, 0, 0));
    assert!(same(acquires(&mut b, acquire::ACQUIRE, 1, 2, 0), CONFLICT));
}

#[test]
fn nothing_of_a_preempted_host_is_under_way_once_that_is_answered() {
    let cases = [(acquire::PREEMPT, false), (acquire::PREEMPT_AND_ABORT, true)];
    for ((action, waits), resets) in cases.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let subsystem = subsystem(Modelled::new(dram(1 << 20), Delay::fixed(1_000_000).medium()));
        let (mut a, mut b) = (host_of(&subsystem, 1), host_of(&subsystem, 2));
        ok(register(&mut a, register::REGISTER, 0, 1));
        ok(register(&mut b, register::REGISTER, 0, 2));
        ok(acquires(&mut b, acquire::ACQUIRE, 2, 2, 0));
        b.submit(1, transfer(io::WRITE, 0, 1, FREE, 0));
        b.step();
        keys(&mut a, 1, 2);
        a.submit(1, entry(io::RESERVATION_ACQUIRE, u32::from(action) | 2 << 8));
        for _ in 0..4 {
            a.step();
            b.step();
        }
        let answered = a.completed(1);
        assert_eq!(answered.is_none(), waits, "{action}");
        assert!(b.completed(1).is_none());
        // New ones are refused meanwhile.
        b.submit(1, transfer(io::WRITE, 0, 1, FREE, 0));
        b.step();
        assert!(same(b.completed(1).unwrap().status(), CONFLICT));
        if resets {
            // What the store works on is under way all the same.
            b.set_register(reg::CC, 0);
            for _ in 0..4 {
                b.step();
                a.step();
            }
            assert!(a.completed(1).is_none(), "{action}");
        }
        b.settle(10_000_000);
        assert!(resets || b.completed(1).unwrap().status().is_success());
        if waits {
            a.settle(10_000_000);
            ok(a.completed(1).unwrap().status());
        }
        ok(a.run(1, transfer(io::READ, 0, 1, FREE, 0)).status());
    }
}

#[test]
fn who_has_no_name_or_is_alone_reserves_nothing() {
    let (subsystem, [mut a]) = hosts();
    let mut name = command(admin::SET_FEATURES, 0, &[fid::HOST_IDENTIFIER.into(), 1]);
    name.set_quad(6, FREE);
    let mut nobody = host_of(&subsystem, 0);
    assert!(same(register(&mut nobody, register::REGISTER, 0, 1), Status::COMMAND_SEQUENCE_ERROR.dnr()));
    nobody.put(FREE, &[9; 16]);
    nobody.admin(name).unwrap();
    ok(register(&mut nobody, register::REGISTER, 0, 1));
    // Nobody becomes another.
    for host in [&mut nobody, &mut a] {
        host.put(FREE, &[8; 16]);
        assert!(same(host.admin(name).unwrap_err(), Status::COMMAND_SEQUENCE_ERROR.dnr()));
    }
    let mut alone = Host::ready(dram(1 << 20), Config::default());
    assert!(same(register(&mut alone, register::REGISTER, 0, 1), Status::INVALID_OPCODE.dnr()));
}

/// What is to be kept, with what is waited for until it is.
type Given = Arc<Mutex<Vec<(Kept, Arc<Ticket>)>>>;

/// A namespace with what was kept, which has more kept there.
fn keeping(given: &Given, kept: Kept) -> Arc<Subsystem<Dram>> {
    let given = given.clone();
    let keep = Box::new(move |kept, ticket| given.lock().unwrap().push((kept, ticket)));
    let namespace = Namespace::new(dram(1 << 20), (), 512, [1; 16], true).unwrap();
    let subsystem = Subsystem::new();
    subsystem.add(1, Arc::new(namespace.with_reservations(kept, keep))).unwrap();
    subsystem
}

#[test]
fn what_outlives_a_loss_of_power_is_kept_before_it_is_answered() {
    let given = Given::default();
    let of = |kept| keeping(&given, kept);
    let before = of(Kept::default());
    let mut a = host_of(&before, 1);
    // Not where nobody asks for it.
    ok(register(&mut a, register::REGISTER, 0, 1));
    assert!(given.lock().unwrap().is_empty());
    keys(&mut a, 1, 5);
    a.submit(1, entry(io::RESERVATION_REGISTER, u32::from(register::REPLACE) | 3 << 30));
    a.step();
    assert!(a.completed(1).is_none(), "it is not kept yet");
    let (kept, ticket) = given.lock().unwrap().pop().unwrap();
    let all = Kept { persists: true, generation: 2, registrants: vec![([1; 16], 5)], held: None };
    assert_eq!(kept, all);
    drop(ticket);
    a.settle(10_000_000);
    ok(a.completed(1).unwrap().status());
    // One that cannot be kept says so.
    keys(&mut a, 5, 0);
    a.submit(1, entry(io::RESERVATION_ACQUIRE, 2 << 8));
    a.step();
    let (kept, ticket) = given.lock().unwrap().pop().unwrap();
    ticket.fails();
    drop(ticket);
    a.settle(10_000_000);
    assert!(same(a.completed(1).unwrap().status(), Status::INTERNAL_ERROR));
    // Asked for again, though nothing changes here, it has to be kept all the same; once it is, no more.
    for again in [true, false] {
        keys(&mut a, 5, 0);
        a.submit(1, entry(io::RESERVATION_ACQUIRE, 2 << 8));
        a.step();
        assert_eq!(given.lock().unwrap().pop().map(|(kept, _)| kept), again.then(|| kept.clone()));
        a.settle(10_000_000);
        ok(a.completed(1).unwrap().status());
    }
    // After the loss of power.
    let after = of(kept);
    let (mut a, mut b) = (host_of(&after, 1), host_of(&after, 2));
    assert_eq!(report(&mut b), ((2, 2, 1), vec![(1, 1, 5, [1; 16])]));
    assert!(same(b.run(1, transfer(io::READ, 0, 1, FREE, 0)).status(), CONFLICT));
    ok(a.run(1, transfer(io::READ, 0, 1, FREE, 0)).status());
    // Taken away again: what is kept is nothing.
    let off = command(admin::SET_FEATURES, 1, &[fid::RESERVATION_PERSISTENCE.into(), 0]);
    a.submit(0, off);
    a.step();
    assert!(a.completed(0).is_none());
    assert_eq!(given.lock().unwrap().pop().unwrap().0, Kept::default());
    a.settle(10_000_000);
    ok(a.completed(0).unwrap().status());
    assert_eq!(report(&mut a).0.2, 0);
    // On before anybody is registered, it is on after the next loss of power.
    let fresh = of(Kept::default());
    let mut a = host_of(&fresh, 1);
    a.submit(0, command(admin::SET_FEATURES, 1, &[fid::RESERVATION_PERSISTENCE.into(), 1]));
    a.step();
    let (kept, _) = given.lock().unwrap().pop().unwrap();
    assert_eq!(report(&mut host_of(&of(kept), 2)).0.2, 1);
}

#[test]
fn nothing_is_answered_before_what_it_relies_on_is_kept() {
    let given = Given::default();
    // What is refused because it was done, but could not be kept, is kept: a Clear takes its own key away.
    let cleared =
        keeping(&given, Kept { persists: true, generation: 1, registrants: vec![([1; 16], 5)], held: None });
    let (mut a, mut beside) = (host_of(&cleared, 1), host_of(&cleared, 1));
    let clear = entry(io::RESERVATION_RELEASE, u32::from(release::CLEAR));
    for (status, kept) in [(Status::INTERNAL_ERROR, true), (CONFLICT, true), (CONFLICT, false)] {
        keys(&mut a, 5, 0);
        a.submit(1, clear);
        a.step();
        let given = given.lock().unwrap().pop();
        assert_eq!(given.as_ref().map(|(kept, _)| kept.registrants.len()), kept.then_some(0));
        if let (Some((_, ticket)), Status::INTERNAL_ERROR) = (given, status) {
            ticket.fails();
        }
        a.settle(10_000_000);
        assert!(same(a.completed(1).unwrap().status(), status));
    }
    // The same again by another way, while it is being kept, waits for that as well.
    keys(&mut a, 0, 6);
    keys(&mut beside, 0, 6);
    a.submit(1, entry(io::RESERVATION_REGISTER, register::REGISTER.into()));
    a.step();
    beside.submit(1, entry(io::RESERVATION_REGISTER, register::REGISTER.into()));
    beside.step();
    assert!(a.completed(1).is_none() && beside.completed(1).is_none());
    let first = given.lock().unwrap().remove(0);
    drop(first);
    a.settle(10_000_000);
    beside.settle(10_000_000);
    ok(a.completed(1).unwrap().status());
    assert!(beside.completed(1).is_none());
    given.lock().unwrap().clear();
    beside.settle(10_000_000);
    ok(beside.completed(1).unwrap().status());
}
