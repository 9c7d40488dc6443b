//! `nearside serve` on a file that is itself a drive, by FUSE,
//! so that it can fail and forget as a test wants. Needs root.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_conformance::needs;
use nearside_driver::Error;
use nearside_driver::tcp::{Address, Association, Options};

mod failed_sync;
mod freed;
mod full_disk;
mod in_use;
mod killed;

const NQN: &str = "nqn.2026-11.dev.nearside:server";

/// Whether this machine can attach a drive; otherwise leaves the test out.
fn can_attach(test: &str) -> bool {
    needs::root(test) && needs::fuse(test)
}

/// Whether this machine can mount an image; otherwise leaves the test out.
fn can_mount(test: &str) -> bool {
    if !needs::root(test) || !needs::tools(test, &["mount", "umount", "mke2fs", "losetup"]) {
        return false;
    }
    let there = Path::new("/dev/loop-control").exists();
    if !there {
        needs::left_out(test, "no /dev/loop-control");
    }
    there
}

/// The server, its port, and its output, which it goes on to write to; killed when dropped.
struct Server {
    child: Child,
    port: u16,
    _out: BufReader<ChildStdout>,
}

impl Server {
    fn start(file: &str) -> Server {
        Server::with(file, &[])
    }

    fn with(file: &str, options: &[&str]) -> Server {
        Server::of(&format!("file:{file}"), options)
    }

    /// On any store.
    fn of(store: &str, options: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_nearside"))
            .args(["serve", "--store", store, "--listen", "127.0.0.1:0"])
            .args(["--subsystem", NQN, "--threads", "2"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let port = line.split_whitespace().skip_while(|word| *word != "-s").nth(1);
        let port = port.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        Server { child, port, _out: out }
    }

    /// By SIGTERM; how it ended, and what it complained of.
    fn stop(mut self) -> (ExitStatus, String) {
        assert!(
            Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success()
        );
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(port: u16) -> Result<Association, Error> {
    let address = Address { host: "127.0.0.1".into(), port, subsystem: NQN.into(), nsid: None };
    let options = Options { keep_alive_ms: 0, ..Options::default() };
    Association::connect(&address, options, Arc::new(TscClock::new()))
}
