//! Doorbells that a host keeps in memory, and host memory that goes and comes back.

use std::sync::atomic::Ordering;

use crate::rig::*;
use nearside_spec::registers::{self as reg, DOORBELLS};
use nearside_store::{Delay, Modelled};

const VALUES: u64 = FREE + 0x10_000;
const EVENTS: u64 = FREE + 0x11_000;
const DATA: u64 = FREE + 0x20_000;

fn config() -> Config {
    Config { shadow_doorbells: true, ..Config::default() }
}

fn buffers(values: u64, events: u64) -> SubmissionEntry {
    let mut entry = command(admin::DOORBELL_BUFFER_CONFIG, 0, &[]);
    entry.set_quad(6, values);
    entry.set_quad(8, events);
    entry
}

fn read(cid: u16) -> SubmissionEntry {
    let mut entry = transfer(io::READ, 3, 1, DATA, 0);
    entry.cdw[0] = entry.cdw[0] & 0xffff | u32::from(cid) << 16;
    entry
}

/// What a host with shadow doorbells does: stores the value of the register that the rig has written, which
/// nobody reads any more, and says whether Linux would have written it (nvme_dbbuf_need_event).
fn tell<S: Store>(host: &Host<S, ()>, doorbell: usize) -> bool {
    let word = |page: u64| host.memory.word32((page - BASE) as usize + doorbell - DOORBELLS);
    let (new, old) = (host.register(doorbell), word(VALUES).load(Ordering::Relaxed));
    word(VALUES).store(new, Ordering::SeqCst);
    let event = word(EVENTS).load(Ordering::SeqCst);
    let cut = |n: u32| n as u16;
    new != old && cut(new.wrapping_sub(event).wrapping_sub(1)) < cut(new.wrapping_sub(old))
}

#[test]
fn a_host_tells_only_of_what_the_drive_sleeps_at() {
    let mut host = Host::ready(dram(1 << 20), config());
    assert_eq!(host.admin(buffers(VALUES, EVENTS)), Ok(0));
    let (tail, head) = (reg::sq_tail_doorbell(1), reg::cq_head_doorbell(1));
    let mut told = 0;
    for n in 0..200 {
        host.submit(1, read(n));
        assert!(host.completed(1).is_none(), "the register was read");
        told += u32::from(tell(&host, tail));
        assert_eq!(host.completed(1).map(|done| done.cid()), Some(n));
        told += u32::from(tell(&host, head));
    }
    // The first of either, since the drive has not said anything yet.
    assert!(told <= 2, "{told} writes of registers while the drive was awake");
    for n in 0..100 {
        assert!(host.drive.reactors().iter().all(|reactor| reactor.is_quiet()));
        host.submit(1, read(n));
        assert!(tell(&host, tail), "the drive sleeps and is not told of command {n}");
        assert!(!host.drive.reactors().iter().all(|reactor| reactor.is_quiet()));
        assert_eq!(host.completed(1).map(|done| done.cid()), Some(n));
        tell(&host, head);
    }
    // A queue that comes later begins at zero, whatever the pages say.
    for page in [VALUES, EVENTS] {
        host.put(page + 16, &[9; 8]);
    }
    host.create_pair(2, None);
    host.submit(2, read(5));
    assert!(tell(&host, reg::sq_tail_doorbell(2)));
    assert_eq!(host.completed(2).map(|done| done.cid()), Some(5));
    // A reset forgets the pages.
    host.disable();
    host.enable();
    host.create_pair(1, None);
    assert!(host.run(1, read(1)).status().is_success());
}

#[test]
fn buffers_are_checked() {
    let mut host = Host::ready(dram(1 << 20), config());
    refused(host.admin(buffers(VALUES + 8, EVENTS)), Status::INVALID_FIELD.dnr());
    refused(host.admin(buffers(VALUES, EVENTS + 4)), Status::INVALID_FIELD.dnr());
    refused(host.admin(buffers(VALUES, 0)), Status::DATA_TRANSFER_ERROR.dnr());
    assert!(host.run(1, read(1)).status().is_success());
    let mut without = Host::ready(dram(1 << 20), Config::default());
    refused(without.admin(buffers(VALUES, EVENTS)), Status::INVALID_OPCODE.dnr());
}

#[test]
fn a_queue_whose_memory_goes_rests_until_it_is_back() {
    for shadow in [false, true] {
        let store = Modelled::new(dram(1 << 20), Delay::fixed(1_000_000).medium());
        let mut host = Host::ready(store, config());
        if shadow {
            host.admin(buffers(VALUES, EVENTS)).unwrap();
        }
        let (function, memory) = (host.function.clone(), host.memory.clone());
        // One that is under way, whose completion finds no place.
        host.submit(1, read(1));
        tell(&host, reg::sq_tail_doorbell(1));
        host.step();
        function.memory.unmap(BASE).unwrap();
        // And one that comes meanwhile.
        host.submit(1, read(2));
        tell(&host, reg::sq_tail_doorbell(1));
        host.settle(100_000_000);
        host.reap(1);
        assert!(host.drive.reactors().iter().all(|reactor| reactor.is_quiet()), "it spins");
        assert_eq!(memory.word32(0x4000 + 0x2000 + 12).load(Ordering::Relaxed), 0, "a completion was posted");
        function.memory.map(BASE, memory).unwrap();
        host.settle(100_000_000);
        host.reap(1);
        let mut done = || host.completed(1).map(|done| done.cid());
        assert_eq!((done(), done(), done()), (Some(1), Some(2), None), "shadow: {shadow}");
    }
}

#[test]
fn a_completion_that_finds_its_place_late_interrupts_then() {
    let store = Modelled::new(dram(1 << 20), Delay::fixed(1_000_000).medium());
    let mut host = Host::ready(store, config());
    host.create_pair(2, Some(1));
    let (function, memory) = (host.function.clone(), host.memory.clone());
    host.submit(2, read(1));
    tell(&host, reg::sq_tail_doorbell(2));
    host.step();
    function.memory.unmap(BASE).unwrap();
    host.settle(100_000_000);
    function.vectors[1].event().take();
    function.memory.map(BASE, memory).unwrap();
    host.settle(100_000_000);
    assert!(function.vectors[1].event().take() > 0, "the host sleeps on what has come");
    host.reap(2);
    assert_eq!(host.completed(2).map(|done| done.cid()), Some(1));
}
