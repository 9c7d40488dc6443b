//! What the operator's log says of those who connect to an attached drive's socket.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_conformance::events::{of_all_threads, one};
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_driver::{DriverConfig, Policy};
use nearside_embedded::Loopback;
use nearside_front_fuse::{Host, Limits, Server};
use nearside_store::Dram;

/// Connections at a time of the drive's own user.
const MOST: usize = 64;

#[test]
fn connections_beyond_the_most_are_refused_and_reported() {
    let store = Dram::new(1 << 20, 512).unwrap();
    let mut drive = Loopback::threaded(store, (), Config::default(), Rest::default()).unwrap();
    let driver = drive.driver(DriverConfig::default(), &TscClock::new()).unwrap();
    let host = Arc::new(Host::new(driver, Policy::Hybrid, 2).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let server = Server::bind(&folder.path().join("socket"), host, Limits::default()).unwrap();
    let log = of_all_threads();
    let connect = || UnixStream::connect(server.path()).unwrap();
    let held: Vec<_> = (0..MOST).map(|_| connect()).collect();
    // It is closed after it was reported.
    let ended = |mut refused: UnixStream| assert_eq!(refused.read_to_end(&mut Vec::new()).unwrap(), 0);
    ended(connect());
    one(&log.lines(), &[" WARN", "uid=", "a connection was refused: there are too many"]);
    // Who is in stays in: nothing comes, and it does not end.
    for mut stream in &held {
        stream.set_nonblocking(true).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
