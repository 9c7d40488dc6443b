//! Lines that were found, entries, and what is one value of a file: records as Python's objects.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use nearside_fsrlib::{Failure, FileEntry, Record};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::answer::Answer;
use crate::failure;

/// A path as Python has it: `os.fsencode` gives its bytes.
pub(crate) fn text<'py>(py: Python<'py>, path: &[u8]) -> Bound<'py, PyString> {
    let Ok(text) = OsStr::from_bytes(path).into_pyobject(py);
    text
}

/// A line that a search has found.
#[pyclass(frozen, module = "nearside")]
pub(crate) struct Match {
    /// The file's path.
    #[pyo3(get)]
    path: Py<PyString>,
    /// The line's number, from 1.
    #[pyo3(get)]
    number: u64,
    /// Where `line` begins in the file, in bytes.
    #[pyo3(get)]
    offset: u64,
    /// The line without its end, or the matched part of it.
    #[pyo3(get)]
    line: Py<PyBytes>,
    /// Whether it is a line of context, and no match.
    #[pyo3(get)]
    context: bool,
}

#[pymethods]
impl Match {
    /// The line as text; what is not UTF-8 is U+FFFD.
    #[getter]
    fn text<'py>(&'py self, py: Python<'py>) -> Cow<'py, str> {
        String::from_utf8_lossy(self.line.as_bytes(py))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (path, line) = (self.path.bind(py).repr()?, self.line.bind(py).repr()?);
        Ok(format!("Match({path}, {}, {line})", self.number))
    }
}

/// Lines that a search finds.
#[pyclass(module = "nearside")]
pub(crate) struct Matches {
    answer: Answer,
    path: Option<Py<PyString>>,
    /// The beginning of a line that goes on in the next record.
    open: Option<(u64, u64, Vec<u8>)>,
}

impl Matches {
    pub fn of(answer: Answer) -> Matches {
        Matches { answer, path: None, open: None }
    }
}

#[pymethods]
impl Matches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Match>> {
        while let Some(record) = self.answer.next(py)? {
            match record {
                Record::File { path, .. } => {
                    // A file whose lines go on in another reply is named again.
                    let named = text(py, &path);
                    let known = self.path.as_ref().map(|path| path.bind(py).as_any());
                    if !known.map_or(Ok(false), |known| known.eq(&named))? {
                        self.path = Some(named.unbind());
                        self.open = None;
                    }
                }
                Record::Line { number, offset, bytes, context, continues } => {
                    let (number, offset, line) = match self.open.take() {
                        None => (number, offset, bytes.into_owned()),
                        Some((number, offset, mut line)) => {
                            line.extend_from_slice(&bytes);
                            (number, offset, line)
                        }
                    };
                    if continues {
                        self.open = Some((number, offset, line));
                        continue;
                    }
                    let path = match &self.path {
                        Some(path) => path.clone_ref(py),
                        None => text(py, &self.answer.path).unbind(),
                    };
                    let line = PyBytes::new(py, &line).unbind();
                    return Ok(Some(Match { path, number, offset, line, context }));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// What a directory and an inode say of a file.
#[pyclass(frozen, module = "nearside")]
pub(crate) struct Entry {
    entry: FileEntry<'static>,
}

/// Nanoseconds since 1970.
fn ns((seconds, ns): (i64, u32)) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(ns)
}

#[pymethods]
impl Entry {
    /// The path in the volume.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, &self.entry.path)
    }

    /// The last part of the path.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        text(py, self.entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
    }

    /// "file", "directory", "link", or "other": a device, a pipe, a socket.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.entry.mode & 0o170_000 {
            0o100_000 => "file",
            0o040_000 => "directory",
            0o120_000 => "link",
            _ => "other",
        }
    }

    /// Whether a name and a kind are all that is known: the user may read its directory, and not search it.
    #[getter]
    fn is_name_alone(&self) -> bool {
        self.entry.is_name_alone()
    }

    /// Inode number.
    #[getter]
    fn ino(&self) -> u64 {
        self.entry.ino
    }

    /// Type and permission bits, as `os.stat` has them.
    #[getter]
    fn mode(&self) -> u16 {
        self.entry.mode
    }

    /// Names.
    #[getter]
    fn nlink(&self) -> u32 {
        self.entry.links
    }

    /// Owner.
    #[getter]
    fn uid(&self) -> u32 {
        self.entry.uid
    }

    /// Group.
    #[getter]
    fn gid(&self) -> u32 {
        self.entry.gid
    }

    /// Bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.entry.size
    }

    /// Units of 512 bytes that it takes on the volume.
    #[getter]
    fn blocks(&self) -> u64 {
        self.entry.sectors
    }

    /// A device's two numbers.
    #[getter]
    fn rdev(&self) -> (u32, u32) {
        self.entry.rdev
    }

    /// When it was read, in nanoseconds since 1970.
    #[getter]
    fn atime_ns(&self) -> i128 {
        ns(self.entry.times[0])
    }

    /// When it was written.
    #[getter]
    fn mtime_ns(&self) -> i128 {
        ns(self.entry.times[1])
    }

    /// When its inode was changed.
    #[getter]
    fn ctime_ns(&self) -> i128 {
        ns(self.entry.times[2])
    }

    /// When it was made; `None` where the volume does not keep that.
    #[getter]
    fn birthtime_ns(&self) -> Option<i128> {
        self.entry.birth.map(ns)
    }

    /// Where a symbolic link leads.
    #[getter]
    fn target<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        self.entry.link.as_ref().map(|link| text(py, link))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Entry({}, {:?}, {})", self.path(py).repr()?, self.kind(), self.entry.size))
    }
}

/// Entries, one after the other.
#[pyclass(module = "nearside")]
pub(crate) struct Entries {
    answer: Answer,
    /// The directory whose names they are; none where they come as paths.
    within: Option<Vec<u8>>,
}

impl Entries {
    pub fn of(answer: Answer, within: Option<Vec<u8>>) -> Entries {
        Entries { answer, within }
    }
}

#[pymethods]
impl Entries {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Entry>> {
        while let Some(record) = self.answer.next(py)? {
            let mut entry = match record {
                Record::Entry(entry) => entry,
                Record::Name { path, kind } => FileEntry::of_name(path, kind),
                _ => continue,
            };
            if let Some(within) = &self.within {
                if entry.path.contains(&b'/') {
                    // No name: it is the path itself, and no directory.
                    return Err(failure::of_failure(py, within, &Failure::NotADirectory));
                }
                let mut path = within.strip_suffix(b"/").unwrap_or(within).to_vec();
                path.push(b'/');
                path.extend_from_slice(&entry.path);
                entry.path = path.into();
            }
            return Ok(Some(Entry { entry }));
        }
        Ok(None)
    }
}

/// Of each file its path and a value: a checksum, or lines, words and bytes.
#[pyclass(module = "nearside")]
pub(crate) struct Values {
    answer: Answer,
    path: Vec<u8>,
}

impl Values {
    pub fn of(answer: Answer) -> Values {
        Values { path: answer.path.clone(), answer }
    }
}

#[pymethods]
impl Values {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        while let Some(record) = self.answer.next(py)? {
            match record {
                Record::File { path, .. } => self.path = path.into_owned(),
                Record::Count { lines, words, bytes } => {
                    return Ok(Some((text(py, &self.path), (lines, words, bytes)).into_pyobject(py)?));
                }
                Record::Digest { value, .. } => {
                    let value = PyBytes::new(py, &value);
                    return Ok(Some((text(py, &self.path), value).into_pyobject(py)?));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// What a program emits: of each record the path of the file that it is about, and the record.
#[pyclass(module = "nearside")]
pub(crate) struct Emissions {
    answer: Answer,
    path: Vec<u8>,
    /// What has come of a record that is not whole.
    begun: Vec<u8>,
}

impl Emissions {
    pub fn of(answer: Answer) -> Emissions {
        Emissions { path: answer.path.clone(), answer, begun: Vec::new() }
    }
}

#[pymethods]
impl Emissions {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        while let Some(record) = self.answer.next(py)? {
            match record {
                Record::File { path, .. } => {
                    if self.path != *path {
                        // The file before has failed in the midst of a record.
                        self.begun.clear();
                    }
                    self.path = path.into_owned();
                }
                Record::Emitted { bytes, continues } => {
                    self.begun.extend_from_slice(&bytes);
                    if !continues {
                        let record = PyBytes::new(py, &std::mem::take(&mut self.begun));
                        return Ok(Some((text(py, &self.path), record).into_pyobject(py)?));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
}
