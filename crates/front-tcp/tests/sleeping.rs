//! When a target's thread sleeps: with nothing to do, and not between the commands of a host that keeps it
//! busy. Counted by the system as voluntary context switches, whatever a turn of the machine takes. Alone in
//! its program, whose threads are told apart by their names.

#[path = "front_tcp/raw/mod.rs"]
mod raw;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nearside_front_tcp::Options;
use raw::{Raw, good_read, offer, serve, until};

/// A thread's folder under /proc, by its name.
fn thread(name: &str) -> PathBuf {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let mut named = tasks.filter(|task| fs::read_to_string(task.join("comm")).unwrap().trim_end() == name);
    named.next().unwrap_or_else(|| panic!("no thread {name}"))
}

/// Whether it sleeps, and how often it was switched away from: by its own wish, and by all causes.
fn state(task: &std::path::Path) -> (bool, u64, u64) {
    let text = fs::read_to_string(task.join("status")).unwrap();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name}")).trim()
    };
    let count = |name: &str| field(name).parse::<u64>().unwrap();
    let own = count("voluntary_ctxt_switches");
    (field("State").starts_with('S'), own, own + count("nonvoluntary_ctxt_switches"))
}

#[test]
fn a_busy_host_finds_the_thread_awake_and_an_idle_one_lets_it_sleep() {
    const READS: u64 = 1_000;
    // Longer than the machine holds this program up, so that every sleep within the reads is the thread's own
    // idea.
    let server = serve(offer(1 << 20), Options { idle_ns: 500_000_000, ..Options::default() });
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut host = Raw::io(address, cntlid, 1);
    let thread = thread("tcp0");
    // The second time after work that followed a sleep.
    for round in 0..2 {
        until("the thread sleeps", || state(&thread).0);
        let (_, before, _) = state(&thread);
        (0..READS).for_each(|_| good_read(&mut host));
        let slept = state(&thread).1 - before;
        assert!(slept < 10, "round {round}: {slept} sleeps in {READS} reads, one at a time");
    }
    // It sleeps through, as far as the system's own threads let it.
    until("the thread sleeps", || state(&thread).0);
    let (_, _, before) = state(&thread);
    std::thread::sleep(Duration::from_millis(500));
    let (sleeps, _, after) = state(&thread);
    assert!(sleeps && after - before < 10, "{} turns without work", after - before);
}
