//! From the name of a drive to a way to it, and from the caller to credentials.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use nearside_clock::TscClock;
use nearside_driver::tcp;
use nearside_embedded::named::{Place, Way, socket_of};
use nearside_embedded::{AnyStore, Embedded, Options};
use nearside_firmware::{self as firmware, Fsr, State};
use nearside_fsrlib::{Beneath, Credentials, Encoding, MAX_GROUPS, Session, Transport, own_credentials};

use crate::args::{DriveArgs, Threads};
use crate::drive::number_of;
use crate::failure::{Failure, complain};
use crate::interrupt;

/// For whom the drive checks permissions: `--as`, or the caller's effective ids and groups.
///
/// # Errors
/// The system does not say who calls; the caller may not ask in that name.
pub fn credentials(args: &DriveArgs) -> Result<Credentials, Failure> {
    let own = own_credentials().map_err(|e| Failure::Message(format!("the caller's groups: {e}")))?;
    let Some(identity) = &args.identity else {
        let caller = (own.uid == 0 && is_kernels(&args.drive)).then(caller_of_sudo).flatten();
        return Ok(caller.unwrap_or(own));
    };
    // Whoever can open an image may read it all anyway; a drive that others use as well is another matter.
    if socket_of(&args.drive).is_some() && own.uid != 0 && !covers(&own, &identity.0) {
        let Credentials { uid, gid, .. } = own;
        return Err(Failure::Message(format!(
            "--as: only root may ask an attached drive in another's name (this is {uid}:{gid})"
        )));
    }
    Ok(identity.0.clone())
}

/// Whether a drive is one that the kernel drives: it is asked as root, for whoever called.
fn is_kernels(drive: &OsStr) -> bool {
    let path = std::fs::canonicalize(drive).unwrap_or_else(|_| drive.into());
    let name = path.as_os_str().as_bytes();
    name.starts_with(b"/dev/nvme") || name.starts_with(b"/dev/ng")
}

/// Who called sudo, with the groups that the system's own table gives them.
fn caller_of_sudo() -> Option<Credentials> {
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let user = std::env::var("SUDO_USER").ok()?;
    let table = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let groups = table.lines().filter_map(|line| member_of(line, &user)).take(MAX_GROUPS).collect();
    Some(Credentials { uid: id("SUDO_UID")?, gid: id("SUDO_GID")?, groups })
}

/// The number of a group (a line of group(5)), where the user is in it.
fn member_of(line: &str, user: &str) -> Option<u32> {
    let mut fields = line.split(':').skip(2);
    let gid = fields.next()?.parse().ok()?;
    fields.next()?.split(',').any(|member| member == user).then_some(gid)
}

/// Whether all that `asked` claims is `own` already.
fn covers(own: &Credentials, asked: &Credentials) -> bool {
    let has = |gid: &u32| own.gid == *gid || own.groups.contains(gid);
    own.uid == asked.uid && has(&asked.gid) && asked.groups.iter().all(has)
}

/// A way to a drive.
pub struct Opened {
    /// The way.
    pub transport: Box<dyn Transport>,
    /// Whether it is a drive of this process: who opened it can read all of it.
    pub own: bool,
    /// Whether it is a drive of this process over a file that nobody else was seen to write: another over the
    /// same file ([`once_more`]) gives the same answers.
    pub alike: bool,
    /// The store of a drive of this process.
    pub store: Option<AnyStore>,
    /// Bytes that such a drive has seen.
    pub scanned: Option<Arc<AtomicU64>>,
    /// What such a drive knows of its bytes.
    pub beneath: Arc<Beneath>,
    /// Which state of a volume that was not unmounted is shown.
    pub state: State,
}

impl From<Box<dyn Transport>> for Opened {
    fn from(transport: Box<dyn Transport>) -> Opened {
        let (own, alike, store, scanned) = (false, false, None, None);
        Opened { transport, own, alike, store, scanned, beneath: Arc::default(), state: State::Home }
    }
}

/// Another drive of this process over a file.
pub fn once_more(args: &DriveArgs, store: &AnyStore) -> Result<Box<dyn Transport>, Failure> {
    Ok(Box::new(embedded(args, store.clone())?))
}

/// Opens the drive, and says its store's notes.
pub fn transport(args: &DriveArgs) -> Result<Opened, Failure> {
    let opened = whole(args)?;
    match args.volume {
        Some(_) if opened.store.is_none() => {
            let name = args.drive.to_string_lossy();
            let why = "--volume is of images and block devices that this command opens itself";
            Err(Failure::Message(format!("{name}: {why}")))
        }
        _ => Ok(opened),
    }
}

fn whole(args: &DriveArgs) -> Result<Opened, Failure> {
    let place = Place::of(&args.drive)?;
    let way = Way {
        policy: args.completion.into(),
        network: match place {
            Place::Network(_) => tcp::Options { recovery: args.recovery.into(), ..args.host.options()? },
            _ => Default::default(),
        },
        tell: Some(|name, notice| complain(&format!("{name}: {notice}"))),
        encoding: if args.get_features { Encoding::GetFeatures } else { Encoding::default() },
        stop: Some(|| interrupt::to_cancel().map_err(|failure| failure.to_string())),
    };
    if let Some(transport) = place.reach(way)? {
        return Ok(transport.into());
    }
    let path = Path::new(&args.drive);
    let store = store(args)?;
    store.notes().iter().for_each(|text| complain(&format!("warning: {text}")));
    let drive = embedded(args, store.clone())?;
    let writer = store.writer();
    if let Some(writer) = writer {
        complain(&format!(
            "{}: {writer}: what is written meanwhile may be missing in the answer, or show in part",
            path.display()
        ));
    }
    let is_file = match &store {
        AnyStore::Qcow2(_) => true,
        AnyStore::Mapped(volume) => volume.disk().path().is_file(),
        _ => path.is_file(),
    };
    let alike = writer.is_none() && is_file;
    let state = if writer.is_none() { state(args) } else { State::Home };
    let retriever = drive.namespace().observer().retriever();
    let (scanned, beneath) = (Some(retriever.scanned()), retriever.beneath().clone());
    Ok(Opened { transport: Box::new(drive), own: true, alike, store: Some(store), scanned, beneath, state })
}

/// Which state of a volume a drive of this process shows that nobody else is seen to write.
pub fn state(args: &DriveArgs) -> State {
    if args.home || args.mounted { State::Home } else { State::Recovered }
}

/// What an image or a block device has for a drive: all of it, or a logical volume.
fn store(args: &DriveArgs) -> Result<AnyStore, Failure> {
    // Its errors name the path.
    let said = |e: &dyn std::fmt::Display| Failure::Message(e.to_string());
    let whole = nearside_embedded::open_image(Path::new(&args.drive)).map_err(|e| said(&e))?;
    Ok(match &args.volume {
        None => whole,
        Some(volume) => {
            let partition = partition(args, &whole)?;
            whole.logical_volume(partition, volume).map_err(|e| said(&e))?
        }
    })
}

/// The number of the partition that a logical volume's group is in, where one is said.
fn partition(args: &DriveArgs, whole: &AnyStore) -> Result<Option<u32>, Failure> {
    let Some(wanted) = &args.partition else { return Ok(None) };
    let drive: Box<dyn Transport> = Box::new(embedded(args, whole.clone())?);
    let mut session = Session::new(drive, Arc::new(TscClock::new()));
    let number = number_of(&mut session, Some(wanted));
    number.map(Some).map_err(|e| Failure::Message(format!("{}: {e}", args.drive.to_string_lossy())))
}

/// A drive in this process.
fn embedded(args: &DriveArgs, store: AnyStore) -> Result<Embedded<AnyStore, Fsr>, Failure> {
    let name = args.drive.to_string_lossy();
    let options = Options {
        threaded: args.threads == Some(Threads::Threaded),
        policy: args.completion.into(),
        firmware: firmware::Config {
            allow_unrecovered: args.allow_unrecovered,
            state: state(args),
            ..Default::default()
        },
        ..Options::default()
    };
    let drive = nearside_embedded::image_over(store, &options);
    let mut drive = drive.map_err(|e| Failure::Message(format!("{name}: {e}")))?;
    if args.get_features {
        drive.transport().set_encoding(Encoding::GetFeatures);
    }
    Ok(drive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_user() {
        assert_eq!(member_of("adm:x:4:syslog,ann", "ann"), Some(4));
        assert_eq!(member_of("adm:x:4:syslog,ann", "an"), None);
        assert_eq!(member_of("adm:x", "ann"), None);
    }

    #[test]
    fn nobody_borrows_a_group() {
        let own = Credentials { uid: 5, gid: 6, groups: vec![7] };
        assert!(covers(&own, &Credentials { uid: 5, gid: 7, groups: vec![6] }));
        assert!(!covers(&own, &Credentials { uid: 5, gid: 6, groups: vec![8] }));
        assert!(!covers(&own, &Credentials { uid: 0, gid: 6, groups: vec![] }));
    }
}
