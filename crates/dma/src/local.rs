//! Sockets with a name in the file system, by which processes of one machine find each other.
//!
//! [`bind`] never takes what is not its own: a name that is no socket is refused, and so is a socket that
//! somebody serves. One that nobody serves any more is replaced, and at no time is the name without a socket
//! or with one that more may connect to than is meant: the new socket is made in a folder that only its maker
//! enters, gets its mode there, and then its name. Who replaces holds a lock meanwhile, which ends with its
//! process. [`Name`] removes the socket that it was made for, and no other.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, openat, renameat_with};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The user who binds it, and root.
    Owner,
    /// Everybody who reaches its folder; what they may ask is decided by who they are
    /// ([`crate::system::peer`]).
    Everybody,
}

impl Access {
    fn mode(self) -> u32 {
        match self {
            Access::Owner => 0o600,
            Access::Everybody => 0o666,
        }
    }
}

/// The name of a socket. Dropping it takes the name away, unless it has become another's.
#[derive(Debug)]
pub struct Name {
    path: PathBuf,
    identity: (u64, u64),
}

impl Name {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// How often a name is looked at again that changes while it is looked at.
const TRIES: usize = 16;

/// Listens at `path`.
///
/// # Errors
/// `AddrInUse` where somebody serves that name, `AlreadyExists` where it is no socket; else the system's.
/// All name the path.
pub fn bind(path: &Path, access: Access) -> io::Result<(UnixListener, Name)> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let path = std::path::absolute(path).map_err(named)?;
    // A name that nobody could connect to is refused before anything is made.
    SocketAddr::from_pathname(&path).map_err(named)?;
    let folder = Folder::beside(&path).map_err(named)?;
    let made = folder.path.join("s");
    // Left by a process that was killed while it held the lock.
    let _ = fs::remove_file(&made);
    let listener = UnixListener::bind(&made).map_err(named)?;
    let placed = fs::set_permissions(&made, fs::Permissions::from_mode(access.mode()))
        .and_then(|()| identity(&made))
        .and_then(|identity| place(&made, &path).map(|()| identity));
    // By its other name it goes on; or what was exchanged for it is dead.
    let _ = fs::remove_file(&made);
    placed.map(|identity| (listener, Name { path, identity })).map_err(named)
}

/// Gives the socket `made` the name `path`.
fn place(made: &Path, path: &Path) -> io::Result<()> {
    for _ in 0..TRIES {
        match fs::hard_link(made, path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
        match is_dead(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        }
        match renameat_with(CWD, made, CWD, path, RenameFlags::EXCHANGE) {
            Err(Errno::NOENT) => continue,
            // A file system that cannot exchange; whoever else is of this program waits for the lock.
            Err(Errno::INVAL | Errno::NOSYS) => return fs::rename(made, path),
            other => other?,
        }
        // A program that knows nothing of the lock may have taken the name since it was looked at: what came
        // out decides.
        if let Err(alive) = is_dead(made) {
            renameat_with(CWD, made, CWD, path, RenameFlags::EXCHANGE)?;
            return Err(alive);
        }
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "it comes and goes"))
}

/// An error, unless the name is a socket that nobody serves.
fn is_dead(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is no socket"));
    }
    // Without waiting: a server whose queue of connections is full is one.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => Ok(()),
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody serves it already"))
        }
        Err(e) => Err(e.into()),
    }
}

/// Device and inode.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}

/// A folder that only this user enters, locked, and gone when dropped.
struct Folder {
    path: PathBuf,
    _lock: fs::File,
}

impl Folder {
    /// In the folder of `path`, so on the same file system; the same for all who bind that path.
    fn beside(path: &Path) -> io::Result<Folder> {
        let (parent, name) =
            path.parent().zip(path.file_name()).ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut hash = DefaultHasher::new();
        hash.write(name.as_bytes());
        // Short: the socket's path in it has a bound as the path has.
        let folder = parent.join(format!(".n{:08x}", hash.finish() as u32));
        loop {
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
            let lock = match openat(CWD, &folder, flags, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                lock => fs::File::from(lock?),
            };
            let is = lock.metadata()?;
            if is.uid() != geteuid().as_raw() || is.mode() & 0o077 != 0 {
                let why = format!("{} is another user's", folder.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            flock(&lock, FlockOperation::LockExclusive)?;
            // Whoever had the lock before has taken the folder away: this one, or one that has its name now?
            if identity(&folder).is_ok_and(|now| now == (is.dev(), is.ino())) {
                return Ok(Folder { path: folder, _lock: lock });
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;

    struct SocketPlace(PathBuf);

    impl SocketPlace {
        fn new(name: &str) -> SocketPlace {
            let folder = std::env::temp_dir().join(format!("nearside-local-{}-{name}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            SocketPlace(folder)
        }

        fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
            names.collect()
        }
    }

    impl Drop for SocketPlace {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_no_socket_stays() {
        let place = SocketPlace::new("file");
        let path = place.0.join("x");
        fs::write(&path, "precious").unwrap();
        for access in [Access::Owner, Access::Everybody] {
            let error = bind(&path, access).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert!(error.to_string().contains("no socket"), "{error}");
        }
        let link = place.0.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(bind(&link, Access::Owner).is_err());
        fs::create_dir(place.0.join("folder")).unwrap();
        assert!(bind(&place.0.join("folder"), Access::Owner).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(place.names().len(), 3, "{:?}", place.names());
    }

    #[test]
    fn a_served_name_is_refused_and_a_dead_one_replaced() {
        let place = SocketPlace::new("dead");
        let path = place.0.join("x");
        let mode = || fs::symlink_metadata(&path).unwrap().mode() & 0o777;
        let (listener, name) = bind(&path, Access::Owner).unwrap();
        assert_eq!((name.path(), mode()), (path.as_path(), 0o600));
        let error = bind(&path, Access::Everybody).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).is_ok());
        // A server that was killed: its socket stays and nobody listens.
        drop(listener);
        std::mem::forget(name);
        let (_listener, name) = bind(&path, Access::Everybody).unwrap();
        assert_eq!(mode(), 0o666);
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(place.names(), ["x"]);
        // It has become another's: that stays.
        fs::remove_file(&path).unwrap();
        let (_another, another) = bind(&path, Access::Owner).unwrap();
        drop(name);
        assert!(UnixStream::connect(&path).is_ok());
        drop(another);
        assert!(place.names().is_empty());
    }

    #[test]
    fn of_many_who_find_a_dead_one_one_serves() {
        const MANY: usize = 6;
        let place = SocketPlace::new("many");
        let path = place.0.join("x");
        for round in 0..50 {
            let dead = UnixListener::bind(&path).unwrap();
            drop(dead);
            let barrier = Barrier::new(MANY);
            let won: Vec<_> = std::thread::scope(|scope| {
                let all: Vec<_> = (0..MANY)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            bind(&path, Access::Owner).ok()
                        })
                    })
                    .collect();
                all.into_iter().filter_map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(won.len(), 1, "round {round}");
            assert!(UnixStream::connect(&path).is_ok(), "round {round}: nobody serves the name");
            assert_eq!(place.names(), ["x"], "round {round}");
            drop(won);
            assert!(!path.exists(), "round {round}");
        }
    }

    #[test]
    fn a_name_that_nobody_could_connect_to_is_refused() {
        let place = SocketPlace::new("long");
        assert!(bind(&place.0.join("x".repeat(120)), Access::Owner).is_err());
        assert!(place.names().is_empty());
    }
}
