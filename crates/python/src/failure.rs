//! What fails, as Python's exceptions: the classes of `nearside/errors.py`, each with `errno` and, where it
//! is about a file, its path.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use nearside_fsrlib::{Error, Failure, describe, errno};
use pyo3::prelude::*;

/// Numbers of Linux's, which Python has in its module `errno`.
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const EBADMSG: i32 = 74;

/// By its name, what a failure is in `nearside/errors.py`.
fn class(failure: &Failure) -> &'static str {
    match failure {
        Failure::NotFound => "NotFoundError",
        Failure::PermissionDenied | Failure::DeniedAs(_) | Failure::NeedsRecovery(_) => "DeniedError",
        Failure::NotADirectory => "NotDirectoryError",
        Failure::IsADirectory => "IsDirectoryError",
        Failure::NotAbsolute | Failure::InvalidRequest(_) => "RequestError",
        Failure::InvalidPattern(_) => "PatternError",
        Failure::NotATable(_) => "TableError",
        Failure::CorruptVolume(_) | Failure::CorruptFile(_) => "DamagedError",
        Failure::UnsupportedFeature(_) => "UnsupportedError",
        Failure::NoVolume(_) => "VolumeError",
        Failure::NotARegularFile
        | Failure::SymlinkLoop
        | Failure::NameTooLong
        | Failure::ChangedDuringScan
        | Failure::MediumError(_)
        | Failure::LineTooLong(_)
        | Failure::ProgramFailed(_)
        | Failure::Cancelled => "Error",
    }
}

/// A class of `nearside/errors.py`.
///
/// # Errors
/// There is none of that name.
pub fn class_of<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("nearside.errors")?.getattr(name)
}

fn raised(py: Python<'_>, name: &str, errno: i32, text: &str, path: Option<&[u8]>) -> PyErr {
    let path = path.map(OsStr::from_bytes);
    match class_of(py, name).and_then(|class| class.call1((errno, text, path))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// What became of one path.
pub(crate) fn of_failure(py: Python<'_>, path: &[u8], failure: &Failure) -> PyErr {
    raised(py, class(failure), errno(failure), &describe(failure), Some(path))
}

/// What became of a question about a path.
pub(crate) fn of_error(py: Python<'_>, path: &[u8], error: &Error) -> PyErr {
    match error {
        Error::Refused(failure) => of_failure(py, path, failure),
        Error::Io { source, .. } => {
            raised(py, "Error", source.raw_os_error().unwrap_or(EIO), &error.to_string(), None)
        }
        error => raised(py, "Error", EIO, &error.to_string(), None),
    }
}

/// A drive that is not opened, or is not there any more, or a folder that is not read.
pub fn of_drive(py: Python<'_>, kind: io::ErrorKind, text: &str) -> PyErr {
    let (name, errno) = match kind {
        io::ErrorKind::NotFound => ("NotFoundError", ENOENT),
        io::ErrorKind::PermissionDenied => ("DeniedError", EACCES),
        io::ErrorKind::NotADirectory => ("NotDirectoryError", ENOTDIR),
        io::ErrorKind::IsADirectory => ("IsDirectoryError", EISDIR),
        io::ErrorKind::InvalidInput => ("RequestError", EINVAL),
        _ => ("Error", EIO),
    };
    raised(py, name, errno, text, None)
}

/// A word that is none.
pub fn of_word(py: Python<'_>, text: &str) -> PyErr {
    raised(py, "RequestError", EINVAL, text, None)
}

/// A table that does not fit the others.
pub(crate) fn of_table(py: Python<'_>, path: &[u8], text: &str) -> PyErr {
    raised(py, "TableError", EBADMSG, text, Some(path))
}
