//! What a namespace or a host may have in a second, on simulated time: the rate is reached and not exceeded,
//! nobody else waits, and nothing that waits is lost.

use std::sync::Arc;

use crate::rig::*;
use nearside_clock::Nanos;
use nearside_device::throttle::{BURST_NS, Quota, Whom};
use nearside_device::{Namespace, Subsystem, lost_commands};
use nearside_store::Dram;

const SECOND: u64 = 1_000_000_000;
const LIMITED: &str = "nqn.2026-11.example:limited";

fn subsystem() -> Arc<Subsystem<Dram>> {
    let subsystem = Subsystem::new();
    for nsid in [1, 2] {
        let namespace = Namespace::new(dram(4 << 20), (), 512, [nsid; 16], true).unwrap();
        subsystem.add(nsid.into(), Arc::new(namespace)).unwrap();
    }
    subsystem
}

fn host(subsystem: &Arc<Subsystem<Dram>>, nqn: &str) -> Host<Dram> {
    let host = nearside_device::Host { nqn: nqn.into(), ..Default::default() };
    let config = Config { shared: true, host, ..Config::default() };
    Host::among(subsystem, config)
}

fn iops(commands: u64) -> Quota {
    Quota { commands: Some(commands), ..Quota::default() }
}

fn command_of(opcode: u8, cid: u16, nsid: u32, blocks: u32) -> SubmissionEntry {
    let mut entry = transfer(opcode, 0, blocks, FREE, FREE + 4096);
    entry.cdw[0] = entry.cdw[0] & 0xffff | u32::from(cid) << 16;
    entry.cdw[1] = nsid;
    entry
}

/// Commands that have ended so far, in order.
fn ended(host: &mut Host<Dram>) -> Vec<(u16, Status)> {
    host.settle(0);
    host.reap(1);
    host.queues[1].done.drain(..).map(|done| (done.cid(), done.status())).collect()
}

/// Keeps so many commands out for so long: how many ended, and how often the drive was stepped in vain.
fn load(host: &mut Host<Dram>, depth: usize, ns: u64, entry: impl Fn(u16) -> SubmissionEntry) -> (u64, u64) {
    load_beside(host, &mut 0, depth, ns, entry)
}

/// The same, where so many are out already.
fn load_beside(
    host: &mut Host<Dram>,
    out: &mut usize,
    depth: usize,
    ns: u64,
    entry: impl Fn(u16) -> SubmissionEntry,
) -> (u64, u64) {
    let end = host.now + ns;
    let (mut done, mut idle, mut cid) = (0, 0, 0);
    while host.now < end {
        while *out < depth {
            cid = (cid + 1) % 1000;
            host.submit(1, entry(cid));
            *out += 1;
        }
        let step = host.step();
        host.reap(1);
        for entry in host.queues[1].done.drain(..) {
            assert!(entry.status().is_success());
            (*out, done) = (*out - 1, done + 1);
        }
        if step.work == 0 {
            let next = step.next.expect("something is out");
            assert!(next > host.now, "a busy wait");
            host.now = next.min(end);
            idle += 1;
        }
    }
    (done, idle)
}

/// Within 2 percent, and never more than the burst beyond.
#[track_caller]
fn reaches(done: u64, rate: u64, seconds: u64) {
    let (due, burst) = (rate * seconds, rate * BURST_NS / SECOND + 1);
    assert!(done <= due + burst, "{done} of {due} and {burst}");
    assert!(done * 100 >= due * 98, "{done} of {due}");
}

#[test]
fn a_namespace_has_its_rate_at_any_depth_and_no_more() {
    for (rate, depth) in [(100, 1), (1_000, 8), (7_777, 1), (20_000, 16)] {
        let subsystem = subsystem();
        subsystem.limit([(Whom::Namespace(1), iops(rate))]);
        let mut host = host(&subsystem, LIMITED);
        let (done, idle) = load(&mut host, depth, 5 * SECOND, |cid| command_of(io::READ, cid, 1, 1));
        reaches(done, rate, 5);
        assert!(idle <= 2 * 5_000 + 10, "{idle} looks in 5 s");
        let tally = &subsystem.traffic().namespaces[&1];
        assert!(tally.throttled > 0 && tally.throttled <= done + depth as u64, "{tally:?}");
        assert!(tally.throttled_ns > SECOND && tally.throttled_ns <= 5 * SECOND * depth as u64);
        // The other namespace has none.
        let other = command_of(io::READ, 5000, 2, 1);
        host.submit(1, other);
        assert!(ended(&mut host).contains(&(5000, Status::SUCCESS)));
    }
}

#[test]
fn bytes_are_counted_as_they_are_moved() {
    let subsystem = subsystem();
    let quota = Quota { bytes: Some(1 << 20), ..Quota::default() };
    let limit = (Whom::Host(LIMITED.into()), quota);
    subsystem.limit([limit.clone(), (Whom::Namespace(1), Quota::default())]);
    assert_eq!(subsystem.limits(), [limit]);
    let mut host = host(&subsystem, LIMITED);
    for opcode in [io::READ, io::WRITE] {
        let (done, _) = load(&mut host, 4, 5 * SECOND, |cid| command_of(opcode, cid, 1, 16));
        assert!(done * 8192 <= (5 << 20) + (1 << 20) / 10 + 5 * 8192, "{done}");
        assert!(done * 8192 * 100 >= (5 << 20) * 98, "{done}");
        host.settle(SECOND);
        ended(&mut host);
    }
}

#[test]
fn a_hosts_quota_is_of_all_its_controllers_and_no_other_waits() {
    let subsystem = subsystem();
    subsystem.limit([(Whom::Host(LIMITED.into()), iops(1_000))]);
    let (mut a, mut b) = (host(&subsystem, LIMITED), host(&subsystem, LIMITED));
    let mut free = host(&subsystem, "nqn.2026-11.example:free");
    let (mut done, mut of_free, mut out) = (0, 0u16, [0; 2]);
    for slice in 0..5_000u64 {
        for (host, out) in [&mut a, &mut b].into_iter().zip(&mut out) {
            host.now = Nanos(SECOND * 10 + slice * 1_000_000);
            done += load_beside(host, out, 1, 1_000_000, |cid| command_of(io::READ, cid, 1, 1)).0;
        }
        // At once, however many wait.
        free.now = a.now;
        of_free = of_free.wrapping_add(1);
        free.submit(1, command_of(io::WRITE, of_free, 1, 1));
        let before = free.now;
        assert_eq!(ended(&mut free), [(of_free, Status::SUCCESS)]);
        assert!(free.now.since(before) < 10_000);
    }
    reaches(done, 1_000, 5);
    assert_eq!(subsystem.traffic().hosts["nqn.2026-11.example:free"].throttled, 0);
}

#[test]
fn what_waits_keeps_its_order_and_a_flush_stays_behind_writes() {
    let subsystem = subsystem();
    subsystem.limit([(Whom::Namespace(1), iops(10))]);
    let mut host = host(&subsystem, LIMITED);
    // The first has what has come together.
    for cid in 1..=3 {
        host.submit(1, command_of(io::WRITE, cid, 1, 1));
    }
    host.submit(1, SubmissionEntry::new(io::FLUSH, 4, 1));
    host.submit(1, SubmissionEntry::new(io::FLUSH, 5, 0xffff_ffff));
    host.submit(1, command_of(io::READ, 6, 1, 1));
    host.submit(1, command_of(io::WRITE, 7, 2, 1));
    assert_eq!(ended(&mut host), [(1, Status::SUCCESS), (7, Status::SUCCESS)]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        host.settle(SECOND / 10);
        seen.push(ended(&mut host).iter().map(|(cid, _)| *cid).collect::<Vec<_>>());
    }
    assert_eq!(seen.concat(), [2, 3, 4, 5, 6]);
    assert!(seen[0] == [2] && seen[1][..3] == [3, 4, 5], "{seen:?}");
}

#[test]
fn nothing_that_waits_is_lost() {
    let before = lost_commands();
    let subsystem = subsystem();
    subsystem.limit([(Whom::Namespace(1), iops(1))]);
    let mut host = host(&subsystem, LIMITED);
    let wait = |host: &mut Host<Dram>| {
        for cid in 1..=5 {
            host.submit(1, command_of(io::WRITE, cid, 1, 1));
        }
        let first = ended(host);
        assert!(first.len() <= 1, "{first:?}");
    };
    // Aborted: what waits is, what has ended is not.
    wait(&mut host);
    let abort =
        |host: &mut Host<Dram>, cid: u32| host.admin(command(admin::ABORT, 0, &[1 | cid << 16])).unwrap();
    assert_eq!([abort(&mut host, 3), abort(&mut host, 1)], [0, 1]);
    let aborted = ended(&mut host);
    assert!(
        aborted.len() == 1 && aborted[0].0 == 3 && same(aborted[0].1, Status::ABORT_REQUESTED),
        "{aborted:?}"
    );
    // Keep Alive and Identify wait for nothing.
    host.admin(SubmissionEntry::new(admin::KEEP_ALIVE, 9, 0)).unwrap();
    // Their queue is deleted.
    host.admin(command(admin::DELETE_SQ, 0, &[1])).unwrap();
    host.reap(1);
    let gone: Vec<u16> = host.queues[1].done.drain(..).map(|done| done.cid()).collect();
    assert_eq!(gone, [2, 4, 5]);
    host.disable();
    host.enable();
    host.create_pair(1, None);
    // A reset.
    wait(&mut host);
    host.disable();
    host.enable();
    host.create_pair(1, None);
    // The quota goes.
    wait(&mut host);
    subsystem.limit([]);
    let ended_now = ended(&mut host);
    assert!(ended_now.len() >= 4 && ended_now.iter().all(|(_, status)| status.is_success()), "{ended_now:?}");
    // Their namespace goes; a flush of all goes on.
    subsystem.limit([(Whom::Namespace(1), iops(1))]);
    wait(&mut host);
    host.submit(1, SubmissionEntry::new(io::FLUSH, 77, 0xffff_ffff));
    assert!(ended(&mut host).is_empty());
    subsystem.remove(1).unwrap();
    let refused = ended(&mut host);
    assert!(refused.contains(&(77, Status::SUCCESS)), "{refused:?}");
    let of = |(cid, status): &&(u16, Status)| *cid != 77 && same(*status, Status::INVALID_NAMESPACE.dnr());
    assert!(refused.len() >= 5 && refused.iter().filter(of).count() == refused.len() - 1, "{refused:?}");
    // The drive goes.
    subsystem.limit([(Whom::Namespace(2), iops(1))]);
    for cid in 1..=5 {
        host.submit(1, command_of(io::READ, cid, 2, 1));
    }
    ended(&mut host);
    drop(host);
    assert_eq!(lost_commands(), before);
}

/// A quota that is said again is the same one: what waits has taken its turn, and does not pay for it twice.
#[test]
fn a_quota_that_stays_is_not_paid_twice() {
    let subsystem = subsystem();
    let mut host = host(&subsystem, LIMITED);
    let (mut out, mut all) = (0, 0);
    for _ in 0..500 {
        subsystem.limit([(Whom::Namespace(1), iops(100))]);
        let (done, _) =
            load_beside(&mut host, &mut out, 4, SECOND / 100, |cid| command_of(io::READ, cid, 1, 1));
        all += done;
    }
    reaches(all, 100, 5);
}
