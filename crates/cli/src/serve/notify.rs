//! What a service manager is told, by the protocol of sd_notify(3): datagrams of lines `NAME=value`, to the
//! socket that NOTIFY_SOCKET names. Without that variable nobody is told anything.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How long a manager may take to make room for what it is told.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who is told.
pub struct Manager(Option<(UnixDatagram, SocketAddr)>);

/// A path, or after `@` a name of Linux's own (unix(7), abstract).
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::other("neither an absolute path nor @NAME")),
    }
}

impl Manager {
    /// The one that NOTIFY_SOCKET names.
    pub fn find() -> Manager {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Manager(None);
        };
        let found = address(&name).and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.set_write_timeout(Some(PATIENCE))?;
            Ok((socket, address))
        });
        Manager(found.inspect_err(|error| tracing::warn!(?name, %error, "NOTIFY_SOCKET")).ok())
    }

    /// Tells it `lines`, with a status for whoever asks it.
    pub fn tell(&self, lines: &str, status: &str) {
        let Some((socket, address)) = &self.0 else { return };
        // A status has one line.
        let status = status.lines().next().unwrap_or_default();
        let told = socket.send_to_addr(format!("{lines}\nSTATUS={status}").as_bytes(), address);
        if let Err(error) = told {
            tracing::warn!(%error, lines, "the service manager is not told");
        }
    }
}
