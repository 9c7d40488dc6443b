//! From the name of a drive to a way to it, and from the caller to credentials.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_driver::tcp::{Address, Controller};
use nearside_embedded::{Options, Runner};
use nearside_fsrlib::{
    Credentials, Encoding, SocketTransport, TcpTransport, Transport, own_credentials, socket,
};

use crate::args::{DriveArgs, Threads};
use crate::failure::Failure;

/// The socket's path, where the name is one.
pub fn socket_of(drive: &OsStr) -> Option<&Path> {
    drive.as_bytes().strip_prefix(socket::PREFIX.as_bytes()).map(|path| Path::new(OsStr::from_bytes(path)))
}

/// For whom the drive checks permissions: `--as`, or the caller's effective ids and groups.
pub fn credentials(args: &DriveArgs) -> Result<Credentials, Failure> {
    let own = own_credentials().map_err(|e| Failure::Message(format!("the caller's groups: {e}")))?;
    let Some(identity) = &args.identity else { return Ok(own) };
    // Whoever can open an image may read it all anyway; a drive that others use as well is another matter.
    if socket_of(&args.drive).is_some() && own.uid != 0 && !covers(&own, &identity.0) {
        let Credentials { uid, gid, .. } = own;
        return Err(Failure::Message(format!(
            "--as: only root may ask an attached drive in another's name (this is {uid}:{gid})"
        )));
    }
    Ok(identity.0.clone())
}

/// Whether all that `asked` claims is `own` already.
fn covers(own: &Credentials, asked: &Credentials) -> bool {
    let has = |gid: &u32| own.gid == *gid || own.groups.contains(gid);
    own.uid == asked.uid && has(&asked.gid) && asked.groups.iter().all(has)
}

/// A target over the network, where the name is meant to be one.
fn remote(args: &DriveArgs) -> Result<Option<Box<dyn Transport>>, Failure> {
    let Some(name) = args.drive.to_str().filter(|name| Address::is_meant(name)) else { return Ok(None) };
    let failed = |e: nearside_driver::Error| {
        Failure::Message(match e {
            nearside_driver::Error::Address(why) => why,
            e => format!("{name}: {e}"),
        })
    };
    let address: Address = name.parse().map_err(failed)?;
    let clock = TscClock::new();
    let controller = Controller::connect(&address, args.host.options()?, Arc::new(clock)).map_err(failed)?;
    Ok(Some(Box::new(TcpTransport::new(controller, args.completion.into(), clock)?)))
}

/// Opens the drive.
pub fn transport(args: &DriveArgs) -> Result<Box<dyn Transport>, Failure> {
    if let Some(path) = socket_of(&args.drive) {
        return Ok(Box::new(SocketTransport::connect(path)?));
    }
    if let Some(transport) = remote(args)? {
        return Ok(transport);
    }
    let path = Path::new(&args.drive);
    let options = Options {
        runner: match args.threads {
            Threads::Inline => Runner::Inline,
            Threads::Threaded => Runner::Threaded,
        },
        policy: args.completion.into(),
        ..Options::default()
    };
    let mut drive = nearside_embedded::image(path, &options)
        .map_err(|e| Failure::Message(format!("{}: {e}", path.display())))?;
    if args.get_features {
        drive.way().set_encoding(Encoding::GetFeatures);
    }
    Ok(Box::new(drive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sockets() {
        assert_eq!(socket_of(OsStr::new("unix:/run/x")), Some(Path::new("/run/x")));
        assert_eq!(socket_of(OsStr::new("disk.img")), None);
    }

    #[test]
    fn nobody_borrows_a_group() {
        let own = Credentials { uid: 5, gid: 6, groups: vec![7] };
        assert!(covers(&own, &Credentials { uid: 5, gid: 7, groups: vec![6] }));
        assert!(!covers(&own, &Credentials { uid: 5, gid: 6, groups: vec![8] }));
        assert!(!covers(&own, &Credentials { uid: 0, gid: 6, groups: vec![] }));
    }
}
