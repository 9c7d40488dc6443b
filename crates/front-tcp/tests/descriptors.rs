//! A process that has no descriptor left. Alone in its program, as the limit is the process's.

#[path = "front_tcp/raw/mod.rs"]
mod raw;

use std::fs::File;
use std::sync::atomic::Ordering;

use nearside_clock::SimClock;
use nearside_front_tcp::Options;
use raw::*;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn without_descriptors_the_listener_rests() {
    let clock = SimClock::new();
    let server = serve_by(clock.clone(), offer(1 << 20), Options { idle_ns: 0, ..Options::default() });
    let address = server.addresses()[0];
    let (_admin, cntlid) = Raw::admin(address, 0);
    let mut good = Raw::io(address, cntlid, 1);
    let counters = &server.target().counters;
    let open = counters.open.load(Ordering::Relaxed);
    // Sockets first, then everything else that there is room for.
    let socket = || rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let sockets: Vec<_> = (0..8).map(|_| socket()).collect();
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: hard }).unwrap();
    let mut rest = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        rest.push(file);
    }
    for socket in &sockets {
        rustix::net::connect(socket, &address).unwrap();
    }
    until("it was tried", || counters.not_accepted.load(Ordering::Relaxed) > 0);
    let before = counters.fruitless.load(Ordering::Relaxed);
    for _ in 0..500 {
        good_read(&mut good);
    }
    // No time has passed, and no connection has ended.
    assert_eq!(counters.not_accepted.load(Ordering::Relaxed), 1);
    assert!(counters.fruitless.load(Ordering::Relaxed) - before < 50);
    // Time alone does not help; a second later there are descriptors.
    clock.advance(1_000_000_000);
    until("it was tried again", || counters.not_accepted.load(Ordering::Relaxed) == 2);
    drop(rest);
    clock.advance(1_000_000_000);
    until("all are accepted", || counters.open.load(Ordering::Relaxed) == open + 8);
    good_read(&mut good);
}
