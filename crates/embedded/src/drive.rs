//! The files of an image or a block device, by path, one call each.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_firmware::Fsr;
use nearside_fsrlib::{
    Ask, Digest, Error, FileEntry, GatherOptions, NearestOptions, Operation, Record, SearchOptions,
    SelectOptions, Session,
};

use crate::{AnyStore, Embedded, Options, image};

/// An image or a block device whose volume's files are asked for by path, in root's name. The answers are
/// gathered in memory, and the first file that cannot be had ends a call with its error; [`Drive::session`]
/// has the rest: other users, partitions, answers of any length.
pub struct Drive(Session<Embedded<AnyStore, Fsr>>);

/// A line that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file's path in the volume.
    pub path: PathBuf,
    /// The line's number, from 1.
    pub number: u64,
    /// The line without its end.
    pub text: Vec<u8>,
}

/// What is in a file, as wc counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Newlines.
    pub lines: u64,
    /// Runs of bytes other than ASCII white space.
    pub words: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Drive {
    /// Opens an image (raw or qcow2) or a block device, which is never written.
    ///
    /// # Errors
    /// What cannot be opened; the path is not named.
    pub fn open(path: impl AsRef<Path>) -> Result<Drive, crate::Error> {
        let drive = image(path.as_ref(), &Options::default())?;
        Ok(Drive(Session::new(drive, Arc::new(TscClock::new()))))
    }

    /// FSRLib's session with the drive.
    pub fn session(&mut self) -> &mut Session<Embedded<AnyStore, Fsr>> {
        &mut self.0
    }

    /// Lines that match a pattern (the regex crate's syntax) in a file, or in every file below a directory.
    ///
    /// # Errors
    /// A pattern that does not compile, or a file that cannot be read.
    pub fn grep(&mut self, pattern: &str, path: impl AsRef<Path>) -> Result<Vec<Line>, Error> {
        let patterns = vec![pattern.into()];
        let search = SearchOptions { patterns, text: true, numbers: true, ..SearchOptions::default() };
        let ask = Ask::tree(bytes(&path), Operation::Search(search));
        let (mut lines, mut path, mut open) = (Vec::<Line>::new(), PathBuf::new(), false);
        self.each(&ask, |record| match record {
            Record::File { path: name, .. } => path = to_path(&name),
            Record::Line { number, bytes, continues, .. } => {
                match lines.last_mut().filter(|_| open) {
                    Some(line) => line.text.extend_from_slice(&bytes),
                    None => lines.push(Line { path: path.clone(), number, text: bytes.into_owned() }),
                }
                open = continues;
            }
            _ => {}
        })?;
        Ok(lines)
    }

    /// A file's bytes.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn cat(&mut self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        self.each(&Ask::path(bytes(&path), Operation::Read { offset: 0, len: u64::MAX }), |record| {
            if let Record::Data { bytes, .. } = record {
                all.extend_from_slice(&bytes);
            }
        })?;
        Ok(all)
    }

    /// A directory's entries, by name.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn ls(&mut self, path: impl AsRef<Path>) -> Result<Vec<FileEntry<'static>>, Error> {
        self.entries(&Ask::path(bytes(&path), Operation::List))
    }

    /// What is known of a file; of a symbolic link, not of where it leads.
    ///
    /// # Errors
    /// A path that leads nowhere.
    pub fn stat(&mut self, path: impl AsRef<Path>) -> Result<FileEntry<'static>, Error> {
        let ask = Ask { follow: false, ..Ask::path(bytes(&path), Operation::Stat) };
        self.entries(&ask)?.pop().ok_or_else(nothing)
    }

    /// A directory and everything below it, by path.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn find(&mut self, root: impl AsRef<Path>) -> Result<Vec<FileEntry<'static>>, Error> {
        self.entries(&Ask { follow: false, ..Ask::tree(bytes(&root), Operation::List) })
    }

    /// Lines, words and bytes of a file.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn count(&mut self, path: impl AsRef<Path>) -> Result<Count, Error> {
        let mut count = None;
        self.each(&Ask::path(bytes(&path), Operation::Count), |record| {
            if let Record::Count { lines, words, bytes } = record {
                count = Some(Count { lines, words, bytes });
            }
        })?;
        count.ok_or_else(nothing)
    }

    /// A checksum of a file.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn cksum(&mut self, path: impl AsRef<Path>, digest: Digest) -> Result<Vec<u8>, Error> {
        let mut sum = None;
        self.each(&Ask::path(bytes(&path), Operation::Checksum(digest)), |record| {
            if let Record::Digest { value, .. } = record {
                sum = Some(value.into_owned());
            }
        })?;
        sum.ok_or_else(nothing)
    }

    /// Rows of a table, or for each bag of them what is made of it: its numbers.
    ///
    /// # Errors
    /// A file that cannot be read or is not such a table, or a row that it has not.
    pub fn gather(&mut self, path: impl AsRef<Path>, rows: GatherOptions) -> Result<Vec<Vec<f32>>, Error> {
        let mut found = Vec::new();
        self.each(&Ask::path(bytes(&path), Operation::Gather(rows)), |record| {
            if let Record::Row { values, .. } = record {
                found.push(values.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect());
            }
        })?;
        Ok(found)
    }

    /// Rows of a CSV or JSON-lines file, or of their groups: streams of Arrow's, each a schema and a batch
    /// (`nearside_ndp::select` reads them, and puts groups of several files together).
    ///
    /// # Errors
    /// As [`Drive::grep`]; a file that is no such table, and a row that is not as the others.
    pub fn select(&mut self, path: impl AsRef<Path>, rows: SelectOptions) -> Result<Vec<Vec<u8>>, Error> {
        let mut streams = Vec::new();
        self.each(&Ask::path(bytes(&path), Operation::Select(Box::new(rows))), |record| {
            if let Record::Batch { stream, .. } = record {
                streams.push(stream.into_owned());
            }
        })?;
        Ok(streams)
    }

    /// The rows of a table that are nearest to a query, the nearest first, each with its inner product or the
    /// square of its distance.
    ///
    /// # Errors
    /// A file that cannot be read or is not such a table.
    pub fn nearest(
        &mut self,
        path: impl AsRef<Path>,
        query: NearestOptions,
    ) -> Result<Vec<(u64, f32)>, Error> {
        let mut found = Vec::new();
        self.each(&Ask::path(bytes(&path), Operation::Nearest(query)), |record| {
            if let Record::Near { row, score } = record {
                found.push((row, score));
            }
        })?;
        Ok(found)
    }

    fn entries(&mut self, ask: &Ask) -> Result<Vec<FileEntry<'static>>, Error> {
        let mut entries = Vec::new();
        self.each(ask, |record| {
            if let Record::Entry(entry) = record {
                entries.push(entry.into_owned());
            }
        })?;
        Ok(entries)
    }

    /// Hands every record on until a file fails.
    fn each(&mut self, ask: &Ask, mut sink: impl FnMut(Record<'_>)) -> Result<(), Error> {
        let mut failed = None;
        self.0.stream(ask, |record| {
            if let Record::Failed { failure, .. } = record {
                failed = Some(Error::Refused(failure));
                return ControlFlow::Break(());
            }
            sink(record);
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(()), Err)
    }
}

fn bytes(path: &impl AsRef<Path>) -> Vec<u8> {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

fn to_path(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

fn nothing() -> Error {
    Error::Form { what: "reply", reason: "it says nothing of the path".into() }
}
