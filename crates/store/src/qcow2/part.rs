//! A file of a chain: bytes of it, and errors that name it.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::fmt::Display;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::{File, FileOptions};

/// A file that is only read, and that nobody is seen to write.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    len: u64,
}

impl Part {
    /// Opens the file at `path`, as `options` say.
    pub(super) fn open(path: &Path, options: FileOptions) -> io::Result<Part> {
        Part::over(File::open(path, options)?)
    }

    /// An open file. Where it was opened beside anybody and somebody writes it, it is refused: tables that
    /// were read before may be others by now.
    pub(super) fn over(file: File) -> io::Result<Part> {
        if let Some(writer) = file.writer() {
            let why = format!("{}: {writer}: a disk image is read while nobody writes it", path(&file));
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let len = nearside_dma::file::size(&file.inner.file)?;
        Ok(Part { file, len })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Which file it is, whatever its path.
    pub(super) fn identity(&self) -> io::Result<(u64, u64)> {
        let metadata = self.file.inner.file.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// What is wrong with it.
    pub(super) fn wrong(&self, what: impl Display) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path(&self.file)))
    }

    /// The error of something that does not lie in it.
    pub(super) fn outside(&self, what: &str, at: u64, len: u64) -> io::Error {
        self.wrong(format_args!("{what}: {len} bytes at {at} are not within the file's {}", self.len))
    }

    /// Fills `into` with the bytes at `at`, all of which are in the file.
    pub(super) fn read(&self, what: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        let len = long(into.len());
        match at.checked_add(len) {
            Some(end) if end <= self.len => self.get(at, into),
            _ => Err(self.outside(what, at, len)),
        }
    }

    /// Fills `into` with the bytes at `at`, which is in the file, and with zeros behind its end.
    pub(super) fn read_padded(&self, what: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        let Some(left) = self.len.checked_sub(at).filter(|left| *left > 0) else {
            return Err(self.outside(what, at, long(into.len())));
        };
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let (there, behind) = into.split_at_mut(here);
        behind.fill(0);
        self.get(at, there)
    }

    fn get(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.inner.file.read_exact_at(into, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.wrong("it has become shorter"),
            kind => io::Error::new(kind, format!("{}: {e}", path(&self.file))),
        })
    }
}

fn path(file: &File) -> std::path::Display<'_> {
    file.path().display()
}

/// How files of a chain are opened, whatever the store is for: none is written.
pub(super) fn to_read(options: FileOptions) -> FileOptions {
    let FileOptions { block_size, beside, .. } = options;
    FileOptions { block_size, beside, ..FileOptions::read() }
}

pub(super) fn long(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
