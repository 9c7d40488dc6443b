//! From the name of a drive to a session.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_driver::Policy;
use nearside_embedded::Options;
use nearside_fsrlib::{Session, SocketTransport, Transport, socket};

/// Opens an image, a block device, or the socket of an attached drive. `completion`:
/// 0 polled, 1 interrupt, 2 hybrid.
pub(crate) fn open(drive: &[u8], completion: u32) -> Result<Session<Box<dyn Transport>>, String> {
    let transport: Box<dyn Transport> = match drive.strip_prefix(socket::PREFIX.as_bytes()) {
        Some(path) => {
            let path = Path::new(OsStr::from_bytes(path));
            Box::new(SocketTransport::connect(path).map_err(|e| e.to_string())?)
        }
        None => {
            let path = Path::new(OsStr::from_bytes(drive));
            let policy = match completion {
                0 => Policy::Polled,
                1 => Policy::Interrupt,
                2 => Policy::Hybrid,
                other => return Err(format!("completion model {other} is not known")),
            };
            let options = Options { policy, ..Options::default() };
            Box::new(
                nearside_embedded::image(path, &options).map_err(|e| format!("{}: {e}", path.display()))?,
            )
        }
    };
    Ok(Session::new(transport, Arc::new(TscClock::new())))
}
