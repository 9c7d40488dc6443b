//! Many drives by one name, for who asks several at once.
//!
//! ```text
//! NAME = "discover:" HOST [":" PORT]        every namespace of every NVM subsystem over TCP that a
//!                                           discovery service there has for this host; port 8009 else
//!      | FOLDER                             the images in it, by the ends of their names
//!      | ...                                one drive ([`crate::named`])
//! ```
//!
//! A service is asked for its log page once. Each subsystem that it lists is then connected to for its
//! namespaces, by the first of its addresses that answers, which is the one in the names of its drives.
//! Referrals to other services are not followed.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearside_clock::{Clock, TscClock};
use nearside_driver::Error;
use nearside_driver::tcp::{self, Address, TCP, subtype};

use crate::any::has_word;
use crate::named::Place;

/// What the name of a discovery service begins with.
const DISCOVER: &str = "discover:";
/// Ends of images' names.
const ENDS: [&str; 5] = [".img", ".raw", ".qcow2", ".gz", ".zst"];
/// Most drives of one name: who asks them has a thread for each, or several.
const MOST: usize = 16_384;

/// The drives that names stand for. A folder stands for the images in it; `discover:HOST[:PORT]` (port 8009
/// unless given) for every namespace over TCP that a discovery service there lists for this host, each named
/// `nvme+tcp://HOST:PORT/NQN/NSID`; any other name for itself. They are in the order of the names, images of
/// a folder in that of theirs, namespaces in that of the service's log page and of their numbers. What is
/// there by itself, or was listed before, is not listed again: a namespace is known by its subsystem's name
/// and its number, by whichever address, and an image by its file, by whichever of its paths and names.
///
/// `network` gives what this host says of itself to services and to subsystems, where there is a service.
///
/// # Errors
/// With the name: a folder cannot be read; a service, or a subsystem that it lists, does not answer or
/// refuses this host; there is no drive, or there are more than 16,384. And those of `network`.
pub fn drives_of(
    names: Vec<OsString>,
    network: impl Fn() -> Result<tcp::Options, String>,
) -> Result<Vec<OsString>, String> {
    let lists = names.iter().map(|name| listed(name, &network)).collect::<Result<Vec<_>, String>>()?;
    let alone = names.iter().zip(&lists).filter(|(_, list)| list.is_none());
    let mut known: BTreeSet<Identity> = alone.map(|(name, _)| identity(name)).collect();
    let mut all = Vec::with_capacity(names.len());
    for (name, list) in names.into_iter().zip(lists) {
        match list {
            None => all.push(name),
            Some(list) => all.extend(list.into_iter().filter(|drive| known.insert(identity(drive)))),
        }
    }
    Ok(all)
}

/// The address of a discovery service, where a name is meant to be one of such.
pub(crate) fn service_of(name: &OsStr) -> Option<&OsStr> {
    name.as_bytes().strip_prefix(DISCOVER.as_bytes()).map(OsStr::from_bytes)
}

/// What tells a drive from others.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    /// A subsystem's name, and the number of a namespace of it.
    Namespace(String, u32),
    /// The device and inode of a file that is there.
    File(u64, u64),
    /// No more is known.
    Name(OsString),
}

fn identity(name: &OsStr) -> Identity {
    let known = match Place::of(name) {
        Ok(Place::Network(addresses)) => match addresses.each().first() {
            Some(Address { subsystem, nsid: Some(nsid), .. }) => {
                Some(Identity::Namespace(subsystem.clone(), *nsid))
            }
            _ => None,
        },
        Ok(place) => path_of(&place).and_then(|path| {
            let file = fs::metadata(path).ok()?;
            Some(Identity::File(file.dev(), file.ino()))
        }),
        Err(_) => None,
    };
    known.unwrap_or_else(|| Identity::Name(name.to_owned()))
}

/// The path of a place on this machine, where its name is that path and has no word before it.
fn path_of<'n>(place: &Place<'n>) -> Option<&'n Path> {
    match *place {
        Place::Image(path) | Place::Device(path) if !has_word(path.as_os_str()) => Some(path),
        _ => None,
    }
}

/// The name of an image at that path: itself, unless it would be a name of another kind.
fn name_of(path: PathBuf) -> OsString {
    let is_path = Place::of(path.as_os_str()).is_ok_and(|place| path_of(&place).is_some());
    if is_path { path.into_os_string() } else { Path::new(".").join(path).into_os_string() }
}

/// What a name lists; `None`: it is that of one drive.
fn listed(
    name: &OsStr,
    network: &impl Fn() -> Result<tcp::Options, String>,
) -> Result<Option<Vec<OsString>>, String> {
    let failed = |why: String| format!("{}: {why}", name.display());
    let path = Path::new(name);
    let (list, none) = match service_of(name) {
        Some(service) => {
            let found = discovered(&service.to_string_lossy(), &network()?).map_err(failed)?;
            (found, "no namespace over TCP for this host".to_owned())
        }
        None if path.is_dir() => {
            let found = images_in(path).map_err(|error| failed(error.to_string()))?;
            (found, format!("no image in this folder ({})", ENDS.join(", ")))
        }
        None => return Ok(None),
    };
    match list.len() {
        0 => Err(failed(none)),
        1..=MOST => Ok(Some(list)),
        _ => Err(failed(format!("more than {MOST} drives"))),
    }
}

/// The images in a folder, in the order of their names: files that end in `.img`, `.raw`, `.qcow2`, `.gz` and
/// `.zst`. A path that would be a name of another kind, as `file:y/one.img` in a folder `file:y`, has `./`
/// before it.
///
/// # Errors
/// The folder cannot be read.
pub fn images_in(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut images = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        let name = path.as_os_str().as_bytes();
        if ENDS.iter().any(|end| name.ends_with(end.as_bytes())) && path.is_file() {
            images.push(path);
        }
    }
    images.sort();
    Ok(images.into_iter().map(name_of).collect())
}

/// Names of the namespaces that a service has for this host; of too many the first.
fn discovered(service: &str, options: &tcp::Options) -> Result<Vec<OsString>, String> {
    let said = |error: Error| error.to_string();
    let clock: Arc<dyn Clock> = Arc::new(TscClock::new());
    let at = Address::discovery(service).map_err(said)?;
    let entries = tcp::discover(&at, options.clone(), clock.clone()).map_err(said)?;
    // The addresses of each subsystem.
    let mut subsystems: Vec<Vec<Address>> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.subtype() == subtype::NVM && entry.trtype() == TCP) {
        let address = Address::of_entry(entry).map_err(said)?;
        match subsystems.iter_mut().find(|paths| paths[0].subsystem == address.subsystem) {
            Some(paths) => paths.push(address),
            None => subsystems.push(vec![address]),
        }
    }
    let mut drives = Vec::new();
    for paths in &subsystems {
        let (address, namespaces) = namespaces_of(paths, options, &clock)?;
        let named = |nsid| OsString::from(Address { nsid: Some(nsid), ..address.clone() }.to_string());
        drives.extend(namespaces.into_iter().map(named));
        if drives.len() > MOST {
            break;
        }
    }
    Ok(drives)
}

/// The namespaces of a subsystem, and the first of its addresses that has answered.
fn namespaces_of<'a>(
    paths: &'a [Address],
    options: &tcp::Options,
    clock: &Arc<dyn Clock>,
) -> Result<(&'a Address, Vec<u32>), String> {
    let mut failures = Vec::new();
    for address in paths {
        match tcp::namespaces(address, options.clone(), clock.clone()) {
            Ok(namespaces) => return Ok((address, namespaces)),
            Err(error) => failures.push(format!("{address}: {error}")),
        }
    }
    Err(failures.join("; "))
}
