//! What a test needs of the machine: root, a tool, a device. A test that lacks it is left out by name, and in
//! CI, where nothing may be left out, it fails.

use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use tempfile::TempDir;

/// Says that `test` is left out and why: on stderr and in the file that `NEARSIDE_LEFT_OUT` names.
/// Panics where the environment has `CI`.
pub fn left_out(test: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{test} may not be left out in CI: {why}");
    eprintln!("LEFT OUT: {test}: {why}");
    if let Some(path) = std::env::var_os("NEARSIDE_LEFT_OUT")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = writeln!(file, "{test}: {why}");
    }
}

/// Whether every tool is on the machine (administrators' folders included); otherwise leaves the test out.
pub fn tools(test: &str, names: &[&str]) -> bool {
    let missing: Vec<_> = names.iter().filter(|n| tool(n).is_none()).copied().collect();
    if !missing.is_empty() {
        left_out(test, &format!("not on this machine: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Whether drives can be attached as files; otherwise leaves the test out.
pub fn fuse(test: &str) -> bool {
    device(test, "/dev/fuse")
}

/// What tells the kernel to offer io_uring to FUSE mounts that are made from then on; the whole machine's.
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// FUSE by io_uring, on for the mounts of one test while this lives, and then as it was. Tests that want it
/// wait for one another, in other processes as well.
#[derive(Debug)]
pub struct FuseUring {
    before: String,
    /// Whose lock keeps the others out.
    _lock: File,
}

/// Turns FUSE by io_uring on, for a test that runs as root; otherwise leaves the test out.
pub fn fuse_uring(test: &str) -> Option<FuseUring> {
    if !root(test) || !fuse(test) || !device(test, ENABLE_URING) {
        return None;
    }
    let lock = File::open(ENABLE_URING).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let before = std::fs::read_to_string(ENABLE_URING).unwrap();
    std::fs::write(ENABLE_URING, "Y").unwrap();
    Some(FuseUring { before, _lock: lock })
}

impl Drop for FuseUring {
    fn drop(&mut self) {
        let _ = std::fs::write(ENABLE_URING, self.before.trim());
    }
}

/// Whether they can be mounted as well: root, FUSE, loop devices, tools; otherwise leaves the test out.
pub fn mounts(test: &str, names: &[&str]) -> bool {
    root(test) && tools(test, names) && fuse(test) && device(test, "/dev/loop-control")
}

fn device(test: &str, path: &str) -> bool {
    let there = Path::new(path).exists();
    if !there {
        left_out(test, &format!("no {path}"));
    }
    there
}

/// A folder for a test whose tools are all on the machine; otherwise leaves the test out.
pub fn folder(test: &str, names: &[&str]) -> Option<TempDir> {
    tools(test, names).then(|| tempfile::tempdir().unwrap())
}

/// Whether the test runs as root; otherwise leaves it out.
pub fn root(test: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|l| l.strip_prefix("Uid:")).and_then(|l| l.split_whitespace().nth(1));
    if uid != Some("0") {
        left_out(test, "needs root");
    }
    uid == Some("0")
}

/// Where a program is.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}

/// An address of this machine at which nobody else listens, whatever the port: where a server ends and comes
/// back, no other test has taken its place meanwhile.
pub fn loopback() -> Ipv4Addr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let (process, nth) = (std::process::id() as u16, NEXT.fetch_add(1, Ordering::Relaxed));
    let [high, low] = process.to_be_bytes();
    Ipv4Addr::new(127, 16 + (nth % 224) as u8, high, low)
}
