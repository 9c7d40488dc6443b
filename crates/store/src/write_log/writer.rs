//! The log as it is written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::format::{ENTRIES_AT, ENTRY_BYTES, Entry, Flags, capacity_mark, superblock};

/// A log that is being written. Clones share it.
#[derive(Clone, Debug)]
pub struct WriteLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    sector_bytes: u32,
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    /// Where the next entry begins, in bytes.
    end: u64,
    entries: u64,
    /// Why the log has ended.
    trouble: Option<String>,
}

/// What follows an entry.
pub(super) enum Payload<'a> {
    None,
    /// In the entry's own sector.
    Mark(&'a [u8]),
    Data(&'a [u8]),
    /// So many bytes.
    Zeros(u64),
}

/// The place of a flush that has not ended. `None`: the log had ended before.
#[derive(Debug)]
pub(super) struct Reserved(Option<Entry>);

impl WriteLog {
    /// Begins a log in a new file, with entries of `sector_bytes` (512 or 4096, a block of the store), of a
    /// store of `capacity` bytes. Only its owner may read it: it holds what the disk does.
    ///
    /// # Errors
    /// `AlreadyExists` where there is a file: none is replaced. `InvalidInput` for other sectors. Else the
    /// system's. All name the file.
    pub fn create(path: impl AsRef<Path>, sector_bytes: u32, capacity: u64) -> io::Result<WriteLog> {
        let path = path.as_ref();
        WriteLog::begin(path, sector_bytes, capacity)
            .map_err(|e| io::Error::new(e.kind(), format!("write log {}: {e}", path.display())))
    }

    fn begin(path: &Path, sector_bytes: u32, capacity: u64) -> io::Result<WriteLog> {
        if ![512, 4096].contains(&sector_bytes) {
            let reason = format!("a sector has 512 or 4096 bytes, not {sector_bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(u64::from(sector_bytes))?;
        file.write_all_at(&superblock(0, sector_bytes), 0)?;
        let mut writer = Writer { file, end: u64::from(sector_bytes), entries: 0, trouble: None };
        let text = capacity_mark(capacity);
        let entry = writer.entry(0, 0, Flags::MARK);
        writer.append(sector_bytes, entry, &Payload::Mark(text.as_bytes()))?;
        let inner = Inner { path: path.to_owned(), sector_bytes, writer: Mutex::new(writer) };
        Ok(WriteLog { inner: Arc::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.inner.writer.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Bytes of a sector.
    pub fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.lock().entries
    }

    /// Why the log has ended while the store went on, with how many entries.
    pub fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    /// Bytes that a mark can have: a sector's, less the entry's 32.
    pub fn longest_mark(&self) -> usize {
        self.inner.sector_bytes as usize - ENTRY_BYTES
    }

    /// Puts a mark: what the log's reader finds this instant by. What is longer than
    /// [`WriteLog::longest_mark`] is cut off.
    pub fn mark(&self, text: &[u8]) {
        self.take(0, 0, Flags::MARK, Payload::Mark(text.get(..self.longest_mark()).unwrap_or(text)));
    }

    /// Takes an entry for `len` bytes at `offset`, which are whole sectors.
    pub(super) fn take(&self, offset: u64, len: u64, flags: Flags, payload: Payload<'_>) -> Option<Entry> {
        let sector = u64::from(self.inner.sector_bytes);
        let mut writer = self.lock();
        if writer.trouble.is_some() {
            return None;
        }
        let entry = writer.entry(offset / sector, len / sector, flags);
        match writer.append(self.inner.sector_bytes, entry, &payload) {
            Ok(entry) => Some(entry),
            Err(error) => {
                self.end(&mut writer, &error);
                None
            }
        }
    }

    /// A flush is submitted.
    pub(super) fn reserve(&self) -> Reserved {
        Reserved(self.take(0, 0, Flags::NONE, Payload::None))
    }

    /// It has ended well.
    pub(super) fn flushed(&self, Reserved(entry): Reserved) {
        let Some(entry) = entry else { return };
        let mut writer = self.lock();
        let flushed = Entry { flags: Flags::FLUSH, ..entry };
        if let Err(error) = writer.file.write_all_at(&flushed.to_bytes(), entry.offset) {
            self.end(&mut writer, &error);
        }
    }

    /// It has failed, or was not taken: its place is given up where it is the last, so that a busy store's
    /// host that asks again and again does not fill the log.
    pub(super) fn cancel(&self, Reserved(entry): Reserved) {
        let Some(entry) = entry else { return };
        let mut writer = self.lock();
        if writer.trouble.is_some() || writer.entries != entry.index + 1 {
            return;
        }
        match writer.file.write_all_at(&entry.index.to_le_bytes(), ENTRIES_AT) {
            Ok(()) => (writer.entries, writer.end) = (entry.index, entry.offset),
            Err(error) => self.end(&mut writer, &error),
        }
    }

    /// The log takes no more. What the failed entry left is cut off, so that a last mark may have room.
    fn end(&self, writer: &mut Writer, error: &io::Error) {
        if writer.trouble.is_some() {
            return;
        }
        let path = self.inner.path.display();
        let entries = writer.entries;
        let trouble = format!(
            "write log {path}: {error}: it ends after {entries} entries, and lacks all that is written from here on"
        );
        tracing::error!("{trouble}");
        writer.trouble = Some(trouble);
        let text = format!("nearside: the log ends here: {error}");
        let entry = writer.entry(0, 0, Flags::MARK);
        // Both only help: the superblock counts whole entries alone.
        let _ = writer.file.set_len(writer.end);
        let _ = writer.append(self.inner.sector_bytes, entry, &Payload::Mark(text.as_bytes()));
    }
}

impl Writer {
    fn entry(&self, sector: u64, sectors: u64, flags: Flags) -> Entry {
        Entry { index: self.entries, offset: self.end, sector, sectors, flags, mark_bytes: 0 }
    }

    /// Writes an entry behind the last one, then counts it.
    fn append(&mut self, sector_bytes: u32, mut entry: Entry, payload: &Payload<'_>) -> io::Result<Entry> {
        let sector = u64::from(sector_bytes);
        let mut head = vec![0; sector_bytes as usize];
        if let Payload::Mark(text) = payload {
            entry.mark_bytes = text.len() as u64;
            head[ENTRY_BYTES..ENTRY_BYTES + text.len()].copy_from_slice(text);
        }
        head[..ENTRY_BYTES].copy_from_slice(&entry.to_bytes());
        self.file.write_all_at(&head, entry.offset)?;
        let data = entry.offset + sector;
        let end = match payload {
            Payload::None | Payload::Mark(_) => data,
            Payload::Data(bytes) => {
                self.file.write_all_at(bytes, data)?;
                data + bytes.len() as u64
            }
            Payload::Zeros(len) => {
                self.file.set_len(data + len)?;
                data + len
            }
        };
        self.file.write_all_at(&(self.entries + 1).to_le_bytes(), ENTRIES_AT)?;
        (self.entries, self.end) = (self.entries + 1, end);
        Ok(entry)
    }
}
