//! The log as it is read: a file from outside, of which nothing is believed. Memory is bounded by a sector.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::cut::Part;
use super::format::{ENTRY_BYTES, Entry, Flags, MAGIC, SUPER_BYTES, VERSION, word};
use super::image::Image;

/// Bytes of data that are moved at a time.
const PIECE: usize = 256 << 10;
/// Bytes that a sector may have: what QEMU takes.
const SECTORS: std::ops::RangeInclusive<u64> = 512..=8 << 20;

/// Why a log, or an instant of it, cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("at byte {offset} of the log: {error}")]
    Read {
        /// Where in the log.
        offset: u64,
        /// Why.
        error: io::Error,
    },
    /// It has no superblock of this format.
    #[error("no write log: {0}")]
    Superblock(String),
    /// An entry cannot be.
    #[error("entry {entry}, at byte {offset} of the log: {reason}")]
    Entry {
        /// Which, from 0.
        entry: u64,
        /// Where it begins in the log, in bytes.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// An instant behind the last entry.
    #[error("the log has {entries} entries, not {asked}")]
    Beyond {
        /// Entries asked for.
        asked: u64,
        /// Entries there are.
        entries: u64,
    },
    /// The image does not take an entry.
    #[error("entry {entry}, at byte {offset} of the image: {error}")]
    Image {
        /// Which, from 0.
        entry: u64,
        /// Where in the image, in bytes.
        offset: u64,
        /// Why.
        error: io::Error,
    },
}

impl LogError {
    fn entry(entry: &Entry, reason: impl Into<String>) -> LogError {
        LogError::Entry { entry: entry.index, offset: entry.offset, reason: reason.into() }
    }
}

/// An open log. It may be written meanwhile: what was there when it was opened is read.
#[derive(Debug)]
pub struct LogReader {
    file: File,
    /// Bytes of the file.
    len: u64,
    count: u64,
    sector_bytes: u64,
}

impl LogReader {
    /// Opens a log.
    ///
    /// # Errors
    /// [`LogError::Read`], and [`LogError::Superblock`] for what is no log of this version.
    pub fn open(path: impl AsRef<Path>) -> Result<LogReader, LogError> {
        let failed = |error| LogError::Read { offset: 0, error };
        LogReader::of(File::open(path).map_err(failed)?)
    }

    /// Of an open file.
    ///
    /// # Errors
    /// As [`LogReader::open`].
    pub fn of(file: File) -> Result<LogReader, LogError> {
        let mut fields = [0; SUPER_BYTES];
        let failed = |error| LogError::Read { offset: 0, error };
        // Before its length: an entry is there before it is counted.
        let read = file.read_exact_at(&mut fields, 0);
        let len = nearside_dma::file::size(&file).map_err(failed)?;
        let wrong = |why: String| Err(LogError::Superblock(why));
        match read {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return wrong(format!("it has {len} bytes, and its superblock {SUPER_BYTES}"));
            }
            read => read.map_err(failed)?,
        }
        let [magic, version, entries] = [0, 8, 16].map(|at| word(&fields, at));
        let sector_bytes = word(&[fields.as_slice(), &[0; 4]].concat(), 24);
        if magic != MAGIC {
            return wrong(format!("it begins with {magic:#x}, not {MAGIC:#x}"));
        }
        if version != VERSION {
            return wrong(format!("it is of version {version}, not {VERSION}"));
        }
        if !SECTORS.contains(&sector_bytes) || !sector_bytes.is_power_of_two() {
            return wrong(format!("its sectors have {sector_bytes} bytes"));
        }
        Ok(LogReader { file, len, count: entries, sector_bytes })
    }

    /// Entries that its superblock counts.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of a sector.
    pub fn sector_bytes(&self) -> u64 {
        self.sector_bytes
    }

    /// The entries, in order. After an error there are no more.
    pub fn entries(&self) -> Entries<'_> {
        Entries { log: self, next: 0, offset: self.sector_bytes }
    }

    /// The text of a mark.
    ///
    /// # Errors
    /// [`LogError::Read`]; [`LogError::Entry`] for one that is not of a log.
    pub fn mark(&self, entry: &Entry) -> Result<Vec<u8>, LogError> {
        if entry.mark_bytes > self.sector_bytes {
            return Err(LogError::entry(entry, format!("a mark of {} bytes", entry.mark_bytes)));
        }
        let mut text = vec![0; usize::try_from(entry.mark_bytes).unwrap_or(0)];
        self.read(&mut text, entry.offset.saturating_add(ENTRY_BYTES as u64))?;
        Ok(text)
    }

    /// The bytes of a store that its entries touch: where the last of them ends, or what its first mark says.
    ///
    /// # Errors
    /// Those of [`LogReader::entries`].
    pub fn capacity(&self) -> Result<u64, LogError> {
        let mut capacity = 0;
        for entry in self.entries() {
            let entry = entry?;
            if entry.index == 0 && entry.flags.has(Flags::MARK) {
                capacity = super::capacity_of(&self.mark(&entry)?).unwrap_or(0);
            }
            capacity = capacity.max((entry.sector + entry.sectors) * self.sector_bytes);
        }
        Ok(capacity)
    }

    /// Makes what the entries `from..to` did happen to an image, in order.
    ///
    /// # Errors
    /// [`LogError`]: the log's, [`LogError::Beyond`], the image's.
    pub fn replay(&self, from: u64, to: u64, image: &mut impl Image) -> Result<(), LogError> {
        if to > self.count {
            return Err(LogError::Beyond { asked: to, entries: self.count });
        }
        for entry in self.entries() {
            let entry = entry?;
            if entry.index >= to {
                break;
            }
            if entry.index >= from {
                self.apply(&Part::whole(entry), image)?;
            }
        }
        Ok(())
    }

    /// Makes what a part of an entry did happen to an image.
    ///
    /// # Errors
    /// [`LogError`]: the log's, the image's.
    pub fn apply(&self, part: &Part, image: &mut impl Image) -> Result<(), LogError> {
        let Part { entry, from, sectors } = *part;
        if sectors == 0 || from.checked_add(sectors).is_none_or(|end| end > entry.sectors) {
            return Ok(());
        }
        let overflow = || LogError::entry(&entry, "it ends beyond all numbers");
        let bytes = |sectors: u64| sectors.checked_mul(self.sector_bytes).ok_or_else(overflow);
        let (skipped, len) = (bytes(from)?, bytes(sectors)?);
        let at = bytes(entry.sector)?.checked_add(skipped).ok_or_else(overflow)?;
        at.checked_add(len).ok_or_else(overflow)?;
        let failed = |at| move |error| LogError::Image { entry: entry.index, offset: at, error };
        if entry.flags.has(Flags::DISCARD) {
            return image.zero(at, len).map_err(failed(at));
        }
        let data = entry.offset.checked_add(self.sector_bytes).and_then(|data| data.checked_add(skipped));
        let data = data.filter(|data| data.checked_add(len).is_some()).ok_or_else(overflow)?;
        let mut piece = vec![0; PIECE.min(usize::try_from(len).unwrap_or(PIECE))];
        let mut done = 0;
        while done < len {
            let part = piece.len().min(usize::try_from(len - done).unwrap_or(PIECE));
            self.read(&mut piece[..part], data + done)?;
            image.write(at + done, &piece[..part]).map_err(failed(at + done))?;
            done += part as u64;
        }
        Ok(())
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<(), LogError> {
        self.file.read_exact_at(into, offset).map_err(|error| LogError::Read { offset, error })
    }
}

/// The entries of a log, each checked.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    log: &'a LogReader,
    next: u64,
    offset: u64,
}

impl Entries<'_> {
    /// Reads an entry; with it where the next one begins.
    fn read(&self) -> Result<(Entry, u64), LogError> {
        let LogReader { len, sector_bytes, .. } = *self.log;
        let (index, offset) = (self.next, self.offset);
        let mut fields = [0; ENTRY_BYTES];
        let cut_short = |needed: &str, end: u64| LogError::Entry {
            entry: index,
            offset,
            reason: format!("{needed} end at byte {end}, and the log at {len}"),
        };
        let data = offset.checked_add(sector_bytes).filter(|end| *end <= len);
        // A log whose last entry has no data may end with its fields (QEMU's does).
        let fields_end = offset.saturating_add(ENTRY_BYTES as u64);
        if data.is_none() && fields_end > len {
            return Err(cut_short("its fields", fields_end));
        }
        self.log.read(&mut fields, offset)?;
        let entry = Entry::from_bytes(index, offset, &fields);
        let wrong = |why: String| Err(LogError::entry(&entry, why));
        if entry.flags.unknown() != 0 {
            return wrong(format!("its flags {:#x} are not known", entry.flags.unknown()));
        }
        let (sector, sectors) = (entry.sector, entry.sectors);
        let end = sector.checked_add(sectors).and_then(|end| end.checked_mul(sector_bytes));
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return wrong(format!("{sectors} sectors at {sector} are beyond all stores"));
        }
        if entry.flags.has(Flags::MARK) {
            if sectors > 0 {
                return wrong(format!("a mark with {sectors} sectors"));
            }
            let text_end = entry.mark_bytes.checked_add(ENTRY_BYTES as u64);
            if text_end.is_none_or(|end| end > sector_bytes) {
                return wrong(format!("a mark of {} bytes in a sector of {sector_bytes}", entry.mark_bytes));
            }
            if fields_end - ENTRY_BYTES as u64 + text_end.unwrap_or(0) > len {
                return Err(cut_short("its text would", offset + text_end.unwrap_or(0)));
            }
        }
        let bytes = if entry.has_data() { sectors * sector_bytes } else { 0 };
        let next = data.unwrap_or(len).checked_add(bytes);
        match next.filter(|next| *next <= len && (bytes == 0 || data.is_some())) {
            Some(next) => Ok((entry, next)),
            None => Err(cut_short(&format!("its {bytes} bytes of data"), next.unwrap_or(u64::MAX))),
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.log.count {
            return None;
        }
        Some(match self.read() {
            Ok((entry, offset)) => {
                (self.next, self.offset) = (self.next + 1, offset);
                Ok(entry)
            }
            Err(e) => {
                self.next = u64::MAX;
                Err(e)
            }
        })
    }
}
