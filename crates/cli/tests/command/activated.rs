//! Sockets that a service manager hands to `nearside serve`. Here a shell does, and the test listens.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command as Program;
use std::thread::JoinHandle;

use nearside_conformance::needs;
use nearside_driver::Command;
use nearside_driver::tcp::Options;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::fixture::Ran;
use crate::insight::{NQN, connect_with};
use crate::serve::{Served, told};

/// A socket that outlives servers, and where it is.
fn listens() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((needs::loopback(), 0)).unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

/// `nearside serve WORDS` with something as descriptor 3; `pid`: what the shell says of whom it is for.
fn serve(handed: OwnedFd, pid: &str, words: &[&str]) -> Program {
    let script = format!("exec 3<&0 </dev/null; export LISTEN_FDS=1 {pid}; exec \"$@\"");
    let mut shell = Program::new("sh");
    shell.env_remove("LISTEN_PID").args(["-c", &script, "sh", env!("CARGO_BIN_EXE_nearside"), "serve"]);
    shell.args(words).stdin(handed);
    shell
}

fn copy(listener: &TcpListener) -> OwnedFd {
    listener.try_clone().unwrap().into()
}

/// For the server itself.
const ITSELF: &str = "LISTEN_PID=$$";

/// A host that connects, and waits to be served.
fn host(at: SocketAddr) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let known = Options::for_host("nqn.2026-11.example:early").unwrap();
        let mut host = connect_with(&at.to_string(), Options { connect_ms: 300_000, ..known });
        let read = host.execute(&Command::read(1, 0, 8), Some(vec![0; 4096])).unwrap();
        assert_eq!(read.outcome, Ok(0));
    })
}

/// Whether a host comes to wait in the kernel's queue; not where it has been served, or has failed.
fn waits(listener: &TcpListener, host: &JoinHandle<()>) -> bool {
    let moment = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    loop {
        let waiting = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&moment)).unwrap();
        if waiting > 0 || host.is_finished() {
            return waiting > 0;
        }
    }
}

#[test]
fn hosts_that_came_before_the_server_are_served_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control.sock");
    let (listener, at) = listens();
    let listen = at.to_string();
    let words = ["--store", "dram:1MiB", "--subsystem", NQN, "--listen", &listen];
    let words = [&words[..], &["--control", control.to_str().unwrap()]].concat();
    for _ in 0..2 {
        let early = host(at);
        assert!(waits(&listener, &early));
        let served = Served::by(folder.path(), serve(copy(&listener), ITSELF, &words), "");
        assert_eq!(served.address, listen);
        early.join().unwrap();
        // Programs that it starts do not take it along.
        let handed = fs::read_to_string(format!("/proc/{}/fdinfo/3", served.server.id())).unwrap();
        let flags = handed.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        assert_ne!(u32::from_str_radix(flags, 8).unwrap() & 0o2_000_000, 0, "{handed}");
        served.end();
    }
}

/// A file that listens at those addresses.
fn file(folder: &Path, listen: &[&str]) {
    let text = format!(
        "listen = {listen:?}\ncontrol = 'control.sock'\n[[subsystem]]\nnqn = '{NQN}'\n\
         [[subsystem.namespace]]\nnsid = 1\nstore = 'dram:1MiB'\n"
    );
    fs::write(folder.join("serve.toml"), text).unwrap();
}

#[test]
fn an_address_that_a_reload_takes_away_may_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let notify = folder.path().join("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    let (listener, at) = listens();
    let (handed, own) = (at.to_string(), format!("{}:0", needs::loopback()));
    let config = folder.path().join("serve.toml");
    file(folder.path(), &[&handed, &own]);
    let server = serve(copy(&listener), ITSELF, &["--config", config.to_str().unwrap()]);
    let served = Served::by(folder.path(), server, notify.to_str().unwrap());
    assert!(told(&manager).starts_with("READY=1\n"));
    host(at).join().unwrap();
    let reload = |listen: &[&str]| {
        file(folder.path(), listen);
        served.signal("-HUP");
        assert!(told(&manager).starts_with("RELOADING=1\n"));
        let said = told(&manager);
        assert!(said.starts_with("READY=1\nSTATUS=serving "), "{said}");
    };
    for _ in 0..2 {
        reload(&[&own]);
        // Those that come before the server's thread knows are served still.
        let early = std::iter::repeat_with(|| host(at)).find(|early| waits(&listener, early)).unwrap();
        reload(&[&handed, &own]);
        early.join().unwrap();
    }
    served.end();
}

#[test]
fn what_is_not_asked_for_is_refused_or_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control.sock");
    let own = format!("{}:0", needs::loopback());
    let words = ["--store", "dram:1MiB", "--listen", &own, "--control", control.to_str().unwrap()];
    let (listener, at) = listens();
    let connected = TcpStream::connect(at).unwrap();
    let no_socket = "descriptor 3, which is no listening TCP socket".to_owned();
    for (handed, why) in [
        (copy(&listener), format!("{at}, which neither listen nor discovery names")),
        (connected.into(), no_socket.clone()),
        (UnixDatagram::unbound().unwrap().into(), no_socket.clone()),
        (fs::File::open("/dev/null").unwrap().into(), no_socket),
    ] {
        let ran = Ran::from(serve(handed, ITSELF, &words).output().unwrap());
        let said = format!("nearside: systemd hands over {why}\n");
        assert_eq!((ran.code, ran.text().as_str(), ran.err), (2, "", said));
    }
    for pid in ["LISTEN_PID=1", "LISTEN_PID=", ""] {
        let served = Served::by(folder.path(), serve(copy(&listener), pid, &words), "");
        assert_ne!(served.address, at.to_string(), "{pid:?}");
        served.end();
    }
}
