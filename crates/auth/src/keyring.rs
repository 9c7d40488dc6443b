//! Keys that the kernel keeps (keyrings(7)): what a path that begins with `keyring:` means.

use std::io;
use std::path::Path;

use linux_keyutils::{Key, KeyError as Fault, KeyRing, KeyRingIdentifier, KeyType};
use zeroize::Zeroizing;

use crate::KeyError;
use crate::interchange::MOST;

const PREFIX: &str = "keyring:";

/// Longest name: what the kernel says of such a key fits where it is read.
const LONGEST: usize = 255;

/// What others may be given beyond a look at it: read, write, search, link, set attributes
/// (security/keys/permission.c), of the group and of others.
const OF_OTHERS: u32 = 0x3e3e;

/// The name of the key that a path means in the kernel's keyrings: `keyring:NAME`. A file of such a name is
/// `./keyring:NAME`.
pub fn in_keyring(path: &Path) -> Option<&str> {
    path.to_str()?.strip_prefix(PREFIX)
}

/// What a key of type `user` holds that is in the user's keyring, or in the session's. It has to be this
/// user's, or root's, and nobody else's to read or change.
pub(crate) fn read(name: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    named(name)?;
    let session = || ring(KeyRingIdentifier::Session, false)?.search(name).map_err(|e| none(&e));
    with_user(|own| match own.search(name) {
        Ok(key) => contents(key),
        Err(Fault::KeyDoesNotExist) => contents(session()?),
        Err(fault) => Err(none(&fault)),
    })
}

/// Keeps a new key of type `user` in the user's keyring. Of two that make one of a name at the same moment,
/// the kernel lets the second change what the first made.
///
/// # Errors
/// [`KeyError`]: there is one of that name; the kernel's.
pub fn add(name: &str, text: &str) -> Result<(), KeyError> {
    named(name)?;
    with_user(|own| match own.search(name) {
        Err(Fault::KeyDoesNotExist | Fault::KeyExpired | Fault::KeyRevoked) => {
            own.add_key(name, text).map(drop).map_err(|e| fault("it cannot be added", &e))
        }
        Ok(_) => Err(io::Error::from(io::ErrorKind::AlreadyExists).into()),
        Err(other) => Err(none(&other)),
    })
}

fn named(name: &str) -> Result<(), KeyError> {
    let fits = (1..=LONGEST).contains(&name.len()) && !name.contains('\0');
    if fits { Ok(()) } else { Err(io::Error::other(format!("a name has 1 to {LONGEST} bytes")).into()) }
}

/// What is found in the user's keyring. A service of the machine may have a session's keyring in which it is
/// not, and so no right to what is in it: a thread has it in its own while this is done.
fn with_user<T: Send>(work: impl FnOnce(&KeyRing) -> Result<T, KeyError> + Send) -> Result<T, KeyError> {
    let done = || {
        let (own, thread) = (ring(KeyRingIdentifier::User, true)?, ring(KeyRingIdentifier::Thread, true)?);
        thread.link_keyring(own).map_err(|e| fault("the user's keyring cannot be searched", &e))?;
        work(&own)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("keyring".into()).spawn_scoped(scope, done)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("what the kernel says of it is not read").into()))
    })
}

fn contents(key: Key) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let about = key.metadata().map_err(|e| fault("the kernel says nothing of it", &e))?;
    if about.get_type() != KeyType::User {
        return Err(io::Error::other("it is no key of type user").into());
    }
    let owner = about.get_uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(KeyError::Owner(owner));
    }
    let permissions = about.get_perms().bits();
    if permissions & OF_OTHERS != 0 {
        let why = format!("others than its owner may have it (its permissions are {permissions:#010x})");
        return Err(io::Error::other(why).into());
    }
    let mut bytes = Zeroizing::new(vec![0; MOST as usize]);
    let len = key.read(&mut *bytes).map_err(|e| fault("it cannot be read", &e))?;
    // What is longer is none, and is not copied.
    bytes.truncate(len);
    Ok(bytes)
}

fn ring(which: KeyRingIdentifier, create: bool) -> Result<KeyRing, KeyError> {
    KeyRing::from_special_id(which, create).map_err(|e| fault("the kernel gives no keyring", &e))
}

fn none(why: &Fault) -> KeyError {
    match why {
        Fault::KeyDoesNotExist => {
            io::Error::other("neither the user's keyring nor the session's has such a key").into()
        }
        why => fault("it cannot be had", why),
    }
}

fn fault(what: &str, why: &Fault) -> KeyError {
    let why = match why {
        Fault::AccessDenied | Fault::PermissionDenied => "permission denied".to_owned(),
        Fault::KeyExpired => "it has expired".to_owned(),
        Fault::KeyRevoked => "it was revoked".to_owned(),
        Fault::QuotaExceeded => "the user's quota of keys is exceeded".to_owned(),
        Fault::OperationNotSupported => "it is of a type that does not do that".to_owned(),
        Fault::Unknown(number) => io::Error::from_raw_os_error(*number).to_string(),
        why => why.to_string(),
    };
    io::Error::other(format!("{what}: {why}")).into()
}
