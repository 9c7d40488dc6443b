//! How the servers of a machine are found. Each has, beside its control socket, one with an abstract name
//! (unix(7)) that begins with [`PREFIX`]: it tells the server's own user, and root, what the server is called
//! and where its control socket is, and takes nothing. /proc/net/unix lists them, of the network namespace
//! that they share; a process that ends leaves none. Who looks believes no process of another user, but root,
//! who asks only a control socket of the same user's.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nearside_dma::system;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};

use super::listener::{self, PATIENCE};

/// What the names begin with; the process's number follows.
const PREFIX: &str = "nearside/serve/";
/// Servers that are looked at.
const MOST: usize = 1024;
/// Bytes of what one tells.
const LONGEST: u64 = 16 << 10;
/// How long one may take to tell it.
const ANSWER: Duration = Duration::from_secs(2);
/// The flag of a socket that listens, in /proc/net/unix (`__SO_ACCEPTCON`).
const LISTENS: u32 = 1 << 16;

/// Where the server at that port is asked, unless told otherwise.
pub fn usual_path(port: u16) -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or(PathBuf::from("/run"), PathBuf::from);
    folder.join(format!("nearside-{port}.sock"))
}

#[derive(Deserialize, Serialize)]
struct Told {
    name: String,
    control: PathBuf,
}

/// A server that was found.
#[derive(Clone, Debug)]
pub struct Found {
    pub pid: u32,
    pub uid: u32,
    /// What it is called, and its control socket; `None`: it tells only its own user and root.
    pub told: Option<(String, PathBuf)>,
}

/// Tells who looks for servers of this one, for as long as the process runs.
///
/// # Errors
/// The system's.
pub fn start(control: &Path, name: &str) -> io::Result<()> {
    let told = Told { name: name.to_owned(), control: control.to_owned() };
    let told = serde_json::to_string(&told).map_err(io::Error::other)?;
    let pid = std::process::id();
    // Of two namespaces of processes, numbers may be the same.
    let names =
        std::iter::once(format!("{PREFIX}{pid}")).chain((1..16).map(|nth| format!("{PREFIX}{pid}.{nth}")));
    let mut refused = None;
    for name in names {
        match SocketAddr::from_abstract_name(&name).and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(listener) => {
                return listener::open("beacon", listener, PATIENCE, move |peer| {
                    peer.write_all(format!("{told}\n").as_bytes())
                });
            }
            Err(e) => refused = Some(e),
        }
    }
    Err(refused.unwrap_or(io::ErrorKind::AddrInUse.into()))
}

/// The names of beacons in a text as /proc/net/unix has it.
fn names(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        let name = fields.nth(3)?.strip_prefix('@')?;
        (flags & LISTENS != 0 && name.starts_with(PREFIX)).then(|| name.to_owned())
    };
    let mut all: Vec<String> = text.lines().filter_map(name).collect();
    all.sort();
    all.dedup();
    all.truncate(MOST);
    all
}

/// The servers of this machine, by their processes' numbers.
///
/// # Errors
/// The system's: /proc/net/unix cannot be read.
pub fn find() -> io::Result<Vec<Found>> {
    let text = fs::read("/proc/net/unix")?;
    let mut all: Vec<Found> =
        names(&String::from_utf8_lossy(&text)).iter().filter_map(|name| look(name)).collect();
    all.sort_by_key(|found| found.pid);
    Ok(all)
}

/// A connection to a beacon, made without waiting.
fn connected(name: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// What a beacon tells; `None`: there is none any more, or it does not answer as one.
fn look(name: &str) -> Option<Found> {
    // Without waiting: whoever has the name may have no room, and never any.
    let stream = connected(name).ok()?;
    let uid = system::peer(&stream).ok()?.uid;
    let pid = name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok()?;
    let own = system::effective_ids().0;
    if uid != own && own != 0 {
        return Some(Found { pid, uid, told: None });
    }
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).ok()?;
    let Told { name, control } = serde_json::from_str(&line).ok()?;
    control.is_absolute().then_some(Found { pid, uid, told: Some((name, control)) })
}

impl Found {
    /// Its control socket, connected.
    ///
    /// # Errors
    /// In words: it tells nothing to this user, nobody serves the socket any more, or another process does.
    pub fn connect(&self) -> Result<(UnixStream, &Path), String> {
        let Some((_, control)) = &self.told else {
            return Err(format!(
                "the server of process {} is user {}'s: only that user and root may ask it",
                self.pid, self.uid
            ));
        };
        let failed = |e: io::Error| format!("no server answers at {}: {e}", control.display());
        let stream = UnixStream::connect(control).map_err(failed)?;
        if system::peer(&stream).map_err(failed)?.uid != self.uid {
            return Err(format!("{}: it is not user {}'s", control.display(), self.uid));
        }
        Ok((stream, control))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beacons_are_told_from_other_sockets() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23 @nearside/serve/7\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 24 @nearside/serve/12.1\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 25 @nearside/serve/7\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 26 /run/nearside/serve/9\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 27\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 28 @nearside/serve/8\n";
        assert_eq!(names(text), ["nearside/serve/12.1", "nearside/serve/7"]);
    }
}
