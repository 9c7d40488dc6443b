//! What the operator's log says: each trouble at its level, the same no more than once in ten seconds.

#[path = "device/rig/mod.rs"]
mod rig;

use nearside_conformance::events::{logged, one};
use nearside_spec::registers::{self as reg, Cc};
use nearside_store::{Fault, Faulty, Kinds, Rule};
use rig::*;

const INTERVAL_NS: u64 = 10_000_000_000;

#[test]
fn a_store_that_fails_is_reported_by_kind_and_not_each_time() {
    logged(|log| {
        let faulty = Faulty::new(dram(1 << 20), 1, [Rule::new(Kinds::Reads, Fault::Error)]);
        let plan = faulty.plan();
        plan.lock().unwrap().add(Rule::new(Kinds::Mutations, Fault::Full));
        plan.lock().unwrap().add(Rule::new(Kinds::Flushes, Fault::Error));
        let mut host = Host::ready(faulty, Config::default());
        assert_eq!(log.lines(), Vec::<String>::new());
        for _ in 0..4 {
            host.run(1, transfer(io::READ, 8, 8, FREE, 0));
        }
        let said = log.lines();
        one(&said, &["ERROR", "nsid=1", "operation=\"read\"", "at 4096", "failed a command"]);
        assert!(!said[0].contains("suppressed"), "{said:?}");
        host.run(1, transfer(io::WRITE, 8, 8, FREE, 0));
        one(&log.lines(), &[" WARN", "operation=\"write\"", "found no room"]);
        host.run(1, SubmissionEntry::new(io::FLUSH, 9, 1));
        one(&log.lines(), &["ERROR", "operation=\"flush\""]);
        host.now = host.now + INTERVAL_NS;
        host.run(1, transfer(io::READ, 8, 8, FREE, 0));
        one(&log.lines(), &["ERROR", "operation=\"read\"", "suppressed=3"]);
        // What the host does wrong is between it and the drive.
        host.run(1, transfer(io::READ, 1 << 20, 8, FREE, 0));
        assert_eq!(log.lines(), Vec::<String>::new());
    });
}

#[test]
fn a_flush_that_fails_in_a_shutdown_is_told_from_a_hosts() {
    logged(|log| {
        let faulty = Faulty::new(dram(1 << 20), 1, [Rule::new(Kinds::Flushes, Fault::Error)]);
        let mut host = Host::ready(faulty, Config::default());
        host.run(1, transfer(io::WRITE, 8, 8, FREE, 0));
        host.set_register(reg::CC, Cc::DEFAULTS.0 | Cc::EN | 1 << 14);
        host.settle(1_000_000);
        let said = log.lines();
        one(&said, &["ERROR", "nsid=1", "the flush of a shutdown", "may be lost"]);
        assert!(!said[0].contains("failed a command"), "{said:?}");
    });
}

#[test]
fn a_reset_is_reported_unless_it_follows_a_shutdown() {
    logged(|log| {
        let mut host = Host::ready(dram(1 << 20), Config::default());
        host.set_register(reg::CC, Cc::DEFAULTS.0 | Cc::EN | 1 << 14);
        host.settle(1_000_000);
        host.disable();
        assert_eq!(log.lines(), Vec::<String>::new());
        host.enable();
        host.disable();
        one(&log.lines(), &[" WARN", "commands=0", "without a shutdown"]);
        host.enable();
        host.set_register(reg::CC, Cc::DEFAULTS.0);
        host.settle(0);
        one(&log.lines(), &[" WARN"]);
        // Again within ten seconds; then after them.
        host.enable();
        host.set_register(reg::CC, Cc::DEFAULTS.0);
        host.settle(0);
        assert_eq!(log.lines(), Vec::<String>::new());
        host.now = host.now + INTERVAL_NS;
        host.enable();
        host.disable();
        one(&log.lines(), &[" WARN", "suppressed=1"]);
    });
}

#[test]
fn hosts_that_err_are_reported() {
    logged(|log| {
        let mut host = Host::ready(dram(1 << 20), Config::default());
        host.ring_tail(1, 5000);
        host.settle(0);
        one(&log.lines(), &[" WARN", "queue=1", "doorbell"]);
        host.ring_tail(0, 5000);
        host.settle(0);
        assert_eq!(log.lines(), Vec::<String>::new());
        let mut host = Host::off(dram(1 << 20), Config::default());
        host.set_register(reg::AQA, 0);
        host.set_register(reg::CC, Cc::DEFAULTS.0 | Cc::EN);
        host.settle(0);
        one(&log.lines(), &[" WARN", "aqa=0", "cannot be enabled"]);
        // The host's way out, and expected.
        host.set_register(reg::CC, Cc::DEFAULTS.0);
        host.settle(0);
        one(&log.lines(), &[" INFO", "reset"]);
    });
}
