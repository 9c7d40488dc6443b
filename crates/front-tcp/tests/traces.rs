//! What the operator's log says of hosts over a network: each trouble at its level, and no more than once in
//! a while.

#[path = "front_tcp/raw/mod.rs"]
mod raw;

use nearside_conformance::events::{Log, of_all_threads};
use nearside_front_tcp::Options;
use nearside_spec::fabrics::command::{Connect, ConnectData};
use raw::*;

/// Waits until a trouble is said, and gives all that was said of it.
fn said(log: &Log, words: &[&str]) -> usize {
    let mut lines = Vec::new();
    until(&format!("{words:?}"), || {
        lines.extend(log.lines().into_iter().filter(|line| words.iter().all(|word| line.contains(word))));
        !lines.is_empty()
    });
    lines.len()
}

#[test]
fn hosts_that_err_are_reported() {
    let log = of_all_threads();
    let server = serve(offer(1 << 20), Options { connections: 16, per_address: 4, ..Options::default() });
    let address = server.addresses()[0];
    // No PDU begins so. The second is let go of as the first is, without another word.
    for _ in 0..2 {
        let mut raw = Raw::open(address);
        raw.put(&[0x55; 128]);
        assert!(raw.ending().is_some());
    }
    assert_eq!(said(&log, &[" INFO", "a PDU broke the rules", "peer=127.0.0.1"]), 1);
    let mut raw = Raw::initialized(address);
    let connect = Connect { recfmt: 0, qid: 0, sqsize_z: 31, cattr: 0, kato: 0 };
    for (host, subsystem, why) in [
        (HOST, "nqn.2026-11.dev.nearside:other", "no subsystem \"nqn.2026-11.dev.nearside:other\""),
        ("", NQN, "the host's name (HOSTNQN) is \"\": an NQN begins with nqn."),
    ] {
        let data = ConnectData::new([7; 16], host, subsystem, 0xffff);
        assert!(!raw.connect_as(connect, &data).status().is_success());
        let refused = [" WARN", "Connect was refused", "peer=127.0.0.1", "Connect Invalid Parameters", why];
        assert_eq!(said(&log, &refused), 1);
    }
    drop(raw);
    // More than may come from one address without a word.
    let _held: Vec<_> = (0..8).map(|_| Raw::open(address)).collect();
    assert_eq!(said(&log, &[" WARN", "too many connections"]), 1);
}
