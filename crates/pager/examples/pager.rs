//! A pager in a process of its own.
//!
//!     cargo run --release -p nearside-pager --example pager -- pager.sock model:optane-p4800x:1GiB [--awake]
//!
//! It gives each application that connects ([`nearside_pager::Paged::elsewhere`]) the drive, one after the
//! other. With --awake no CPU of the machine sleeps meanwhile.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use nearside_clock::TscClock;
use nearside_device::Config as DriveConfig;
use nearside_driver::{DriverConfig, Initiator, InitiatorConfig, Policy};
use nearside_embedded::{AnyStore, Loopback, Runner};
use nearside_pager::{Config, accept};
use nearside_store::{FileOptions, Store};

type Failure = Box<dyn std::error::Error>;

/// A drive of this thread over a store, and its bytes.
fn drive(store: AnyStore) -> Result<(Initiator<Runner<AnyStore>, TscClock>, u64), Failure> {
    let (clock, room) = (TscClock::new(), store.capacity());
    let mut drive = Loopback::inline(store, (), DriveConfig::default())?;
    let driver = drive.driver(DriverConfig::default(), &clock)?;
    let config = InitiatorConfig { policy: Policy::Polled, ..InitiatorConfig::default() };
    Ok((Initiator::new(&driver, config, clock, drive.peer, None)?, room))
}

fn serve(socket: &str, store: &AnyStore, awake: bool) -> Result<(), Failure> {
    let listener = UnixListener::bind(socket)?;
    println!("{socket}: {} bytes", store.capacity());
    for stream in listener.incoming() {
        let stream = stream?;
        // Who connects says at once what for.
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let (io, room) = drive(store.clone())?;
        match accept(&stream, io, room, Config { budget: usize::MAX, awake, ..Config::default() }) {
            Ok(counts) => println!("{counts:?}"),
            Err(e) => eprintln!("{e}"),
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [socket, store] => serve(socket, &AnyStore::open(store, FileOptions::serve())?, false),
        [socket, store, "--awake"] => serve(socket, &AnyStore::open(store, FileOptions::serve())?, true),
        _ => Err("pager SOCKET STORE [--awake]".into()),
    }
}
