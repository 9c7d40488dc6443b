//! One of two trees: of a volume, or of this host.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearside_fsrlib::{Ask, Digest, Failure as Refusal, FileEntry, Operation, Record, Seen, Target};
use rustix::fs::{major, minor};
use sha2::Digest as _;

use crate::drive::Drive;
use crate::failure::{Failure, complain_about, complain_of, words};
use crate::mounted::join;

/// A tree, by its root.
pub enum Side {
    /// Of a volume, as its drive shows it.
    Drive { drive: Box<Drive>, root: Vec<u8> },
    /// Of this host.
    Host { root: Vec<u8> },
}

/// What is known of a name; `None`: it was said why there is nothing.
pub type Known<T> = Result<Option<T>, Failure>;

fn failed<T>(path: &[u8], error: &io::Error) -> Option<T> {
    complain_about(path, &words(error));
    None
}

fn os(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// A file of this host, as a drive tells of its own.
fn entry(path: Vec<u8>, known: &Metadata, link: Option<PathBuf>) -> FileEntry<'static> {
    let time = |seconds, nanoseconds: i64| (seconds, u32::try_from(nanoseconds).unwrap_or(0));
    FileEntry {
        path: path.into(),
        ino: known.ino(),
        mode: known.mode() as u16,
        links: u32::try_from(known.nlink()).unwrap_or(u32::MAX),
        uid: known.uid(),
        gid: known.gid(),
        size: known.size(),
        sectors: known.blocks(),
        rdev: (major(known.rdev()), minor(known.rdev())),
        times: [
            time(known.atime(), known.atime_nsec()),
            time(known.mtime(), known.mtime_nsec()),
            time(known.ctime(), known.ctime_nsec()),
        ],
        birth: None,
        link: link.map(|link| link.into_os_string().into_vec().into()),
        attributes: false,
    }
}

impl Side {
    /// A path below the root; of nothing, the root.
    pub fn path(&self, below: &[u8]) -> Vec<u8> {
        let (Side::Drive { root, .. } | Side::Host { root }) = self;
        if below.is_empty() { root.clone() } else { join(root, below) }
    }

    /// How far its drive has come.
    pub fn seen(&self) -> Option<Arc<Seen>> {
        match self {
            Side::Drive { drive, .. } => Some(drive.seen()),
            Side::Host { .. } => None,
        }
    }

    /// What the root is, behind links.
    pub fn root(&mut self) -> Known<FileEntry<'static>> {
        let path = self.path(b"");
        match self {
            Side::Host { .. } => Ok(match fs::metadata(os(&path)) {
                Ok(known) => Some(entry(path, &known, None)),
                Err(error) => failed(&path, &error),
            }),
            Side::Drive { drive, .. } => {
                let ask =
                    Ask { target: Target::Path(path.clone()), operation: Operation::Stat, follow: true };
                let mut found = None;
                drive.ask_about(&path, &ask, |record| {
                    match record {
                        Record::Entry(entry) => found = Some(entry.into_owned()),
                        Record::Failed { path, failure } => complain_of(&path, &failure),
                        _ => {}
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(found)
            }
        }
    }

    /// What is in a directory, by name, and whether that is all.
    pub fn list(&mut self, below: &[u8]) -> Result<(Vec<FileEntry<'static>>, bool), Failure> {
        let path = self.path(below);
        let mut entries = Vec::new();
        let mut whole = true;
        match self {
            Side::Host { .. } => match fs::read_dir(os(&path)) {
                Ok(names) => {
                    for name in names {
                        let found = name.and_then(|name| {
                            of_host(&join(&path, name.file_name().as_bytes()), name.file_name())
                        });
                        match found {
                            Ok(found) => entries.push(found),
                            Err(error) => whole = failed(&path, &error).unwrap_or(false),
                        }
                    }
                }
                Err(error) => whole = failed(&path, &error).unwrap_or(false),
            },
            Side::Drive { drive, .. } => {
                let ask =
                    Ask { target: Target::Path(path.clone()), operation: Operation::List, follow: true };
                let missing = |name: &[u8], why: &Refusal| complain_of(&join(&path, name), why);
                let good = drive.ask_about(&path, &ask, |record| {
                    match record {
                        Record::Entry(entry) => entries.push(entry.into_owned()),
                        Record::Failed { path, failure } => {
                            whole = false;
                            missing(&path, &failure);
                        }
                        Record::Name { path, .. } => {
                            whole = false;
                            missing(&path, &Refusal::PermissionDenied);
                        }
                        _ => {}
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
                whole &= good;
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((entries, whole))
    }

    /// SHA-256 of files, of which what cannot be read has none, which is said.
    pub fn digests(&mut self, files: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let paths: Vec<Vec<u8>> = files.iter().map(|below| self.path(below)).collect();
        match self {
            Side::Host { .. } => Ok(paths.iter().map(|path| of_bytes(path)).collect()),
            Side::Drive { drive, .. } => {
                let operation = Operation::Checksum(Digest::Sha256);
                let ask = |path: &Vec<u8>| Ask {
                    target: Target::Path(path.clone()),
                    operation: operation.clone(),
                    follow: true,
                };
                let asks: Vec<Ask> = paths.iter().map(ask).collect();
                let mut digests = vec![None; files.len()];
                drive.ask_each(&asks, |nth, answer| {
                    match answer {
                        Ok(Record::Digest { value, .. }) => digests[nth] = Some(value.into_owned()),
                        Ok(Record::Failed { failure, .. }) | Err(failure) => {
                            complain_of(&paths[nth], &failure);
                        }
                        Ok(_) => {}
                    }
                    Ok(())
                })?;
                Ok(digests)
            }
        }
    }
}

/// A name in a directory of this host.
fn of_host(path: &[u8], name: OsString) -> io::Result<FileEntry<'static>> {
    let known = fs::symlink_metadata(os(path))?;
    let link = if known.is_symlink() { Some(fs::read_link(os(path))?) } else { None };
    Ok(entry(name.into_vec(), &known, link))
}

fn of_bytes(path: &[u8]) -> Option<Vec<u8>> {
    let mut hash = sha2::Sha256::new();
    let mut piece = vec![0; 64 << 10];
    let mut file = match fs::File::open(os(path)) {
        Ok(file) => file,
        Err(error) => return failed(path, &error),
    };
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Some(hash.finalize().to_vec()),
            Ok(n) => hash.update(&piece[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return failed(path, &error),
        }
    }
}
