//! The reply's bytes, written as the records arise.

use alloc::string::String;
use alloc::vec::Vec;

use super::request::{CURSOR_FIXED, decode_cursor, digest_number, digest_of, encode_cursor};
use super::{Fault, Reader, VERSION, WireError, pad, padded, put, small};
use crate::near_data::*;

/// Bytes of a reply's header.
pub const REPLY_HEADER: usize = 96;
const MAGIC: [u8; 4] = *b"NDRP";
const FLAG_MORE: u32 = 1;
const RECORD_HEADER: usize = 8;
/// The most of a status text that is sent.
const MAX_TEXT: usize = 1024;

mod kind {
    pub const FILE: u16 = 1;
    pub const FAILED: u16 = 2;
    pub const LINE: u16 = 3;
    pub const MATCHES: u16 = 4;
    pub const BINARY_MATCHES: u16 = 5;
    pub const COUNT: u16 = 6;
    pub const DIGEST: u16 = 7;
    pub const DATA: u16 = 8;
    pub const ENTRY: u16 = 9;
    pub const EXTENT: u16 = 10;
    pub const TOTAL: u16 = 11;
    pub const VOLUME: u16 = 12;
    pub const WARNING: u16 = 13;
    pub const NAME: u16 = 14;
}

const LINE_CONTEXT: u16 = 1;
const LINE_CONTINUES: u16 = 2;
const ENTRY_BIRTH: u16 = 1;
const ENTRY_LINK: u16 = 2;
const VOLUME_NEEDS_RECOVERY: u16 = 1;

/// A [`Record`] whose bytes lie elsewhere; the fields are those of the record of the same name.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum RecordRef<'a> {
    File { path: &'a [u8], size: u64 },
    Failed { path: &'a [u8], status: &'a ReplyStatus },
    Line { number: u64, offset: u64, bytes: &'a [u8], context: bool, continues: bool },
    Matches(u64),
    BinaryMatches,
    Count { lines: u64, words: u64, bytes: u64 },
    Digest { kind: Digest, value: &'a [u8] },
    Data { offset: u64, bytes: &'a [u8] },
    Entry(&'a Entry),
    Extent { from: u64, len: u64, offset: u64 },
    Total { files: u64, files_matched: u64, matches: u64 },
    Volume(&'a VolumeRecord),
    Warning(&'a str),
    Name { path: &'a [u8], kind: u16 },
}

impl Record {
    /// The same with its bytes borrowed.
    pub fn as_ref(&self) -> RecordRef<'_> {
        match *self {
            Record::File { ref path, size } => RecordRef::File { path, size },
            Record::Failed { ref path, ref status } => RecordRef::Failed { path, status },
            Record::Line { number, offset, ref bytes, context, continues } => {
                RecordRef::Line { number, offset, bytes, context, continues }
            }
            Record::Matches(n) => RecordRef::Matches(n),
            Record::BinaryMatches => RecordRef::BinaryMatches,
            Record::Count { lines, words, bytes } => RecordRef::Count { lines, words, bytes },
            Record::Digest { kind, ref value } => RecordRef::Digest { kind, value },
            Record::Data { offset, ref bytes } => RecordRef::Data { offset, bytes },
            Record::Entry(ref entry) => RecordRef::Entry(entry),
            Record::Extent { from, len, offset } => RecordRef::Extent { from, len, offset },
            Record::Total { files, files_matched, matches } => {
                RecordRef::Total { files, files_matched, matches }
            }
            Record::Volume(ref volume) => RecordRef::Volume(volume),
            Record::Warning(ref text) => RecordRef::Warning(text),
            Record::Name { ref path, kind } => RecordRef::Name { path, kind },
        }
    }
}

impl ReplyStatus {
    /// Its number on the wire, and its text.
    pub fn code(&self) -> (u32, &str) {
        match self {
            ReplyStatus::Success => (0, ""),
            ReplyStatus::NotFound => (1, ""),
            ReplyStatus::PermissionDenied => (2, ""),
            ReplyStatus::NotADirectory => (3, ""),
            ReplyStatus::IsADirectory => (4, ""),
            ReplyStatus::NotARegularFile => (5, ""),
            ReplyStatus::SymlinkLoop => (6, ""),
            ReplyStatus::NameTooLong => (7, ""),
            ReplyStatus::NotAbsolute => (8, ""),
            ReplyStatus::ChangedDuringScan => (9, ""),
            ReplyStatus::UnsupportedFeature(text) => (10, text),
            ReplyStatus::CorruptVolume(text) => (11, text),
            ReplyStatus::MediumError(text) => (12, text),
            ReplyStatus::InvalidPattern(text) => (13, text),
            ReplyStatus::InvalidRequest(text) => (14, text),
            ReplyStatus::NoVolume(text) => (15, text),
            ReplyStatus::LineTooLong(text) => (16, text),
            ReplyStatus::Cancelled => (17, ""),
            ReplyStatus::DeniedAs(text) => (18, text),
            ReplyStatus::NeedsRecovery(text) => (19, text),
        }
    }

    fn of(code: u32, text: String) -> Option<ReplyStatus> {
        Some(match code {
            0 => ReplyStatus::Success,
            1 => ReplyStatus::NotFound,
            2 => ReplyStatus::PermissionDenied,
            3 => ReplyStatus::NotADirectory,
            4 => ReplyStatus::IsADirectory,
            5 => ReplyStatus::NotARegularFile,
            6 => ReplyStatus::SymlinkLoop,
            7 => ReplyStatus::NameTooLong,
            8 => ReplyStatus::NotAbsolute,
            9 => ReplyStatus::ChangedDuringScan,
            10 => ReplyStatus::UnsupportedFeature(text),
            11 => ReplyStatus::CorruptVolume(text),
            12 => ReplyStatus::MediumError(text),
            13 => ReplyStatus::InvalidPattern(text),
            14 => ReplyStatus::InvalidRequest(text),
            15 => ReplyStatus::NoVolume(text),
            16 => ReplyStatus::LineTooLong(text),
            17 => ReplyStatus::Cancelled,
            18 => ReplyStatus::DeniedAs(text),
            19 => ReplyStatus::NeedsRecovery(text),
            _ => return None,
        })
    }
}

/// The reply's buffer has no room for a record (with what must come after it). Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Writes a reply of bounded length.
#[derive(Debug)]
pub struct ReplyWriter {
    out: Vec<u8>,
    limit: usize,
    records: u32,
}

impl ReplyWriter {
    /// A reply of at most `limit` bytes (a multiple of 8; what is over is not used). `None` below the header's length. The vector is
    /// emptied and used.
    pub fn new(mut out: Vec<u8>, limit: usize) -> Option<ReplyWriter> {
        let limit = limit & !7;
        if limit < REPLY_HEADER {
            return None;
        }
        out.clear();
        out.resize(REPLY_HEADER, 0);
        Some(ReplyWriter { out, limit, records: 0 })
    }

    /// Bytes that a cursor takes whose path has `path_len` bytes.
    pub fn cursor_len(path_len: usize) -> usize {
        padded(CURSOR_FIXED.saturating_add(path_len))
    }

    /// Records so far.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Bytes of a `Line` or `Data` that still fit where `reserve` bytes are kept for what comes after.
    pub fn room_for_bytes(&self, reserve: usize) -> usize {
        let room = self.limit.saturating_sub(self.out.len()).saturating_sub(padded(reserve));
        room.saturating_sub(RECORD_HEADER).saturating_sub(16) & !7
    }

    /// Adds a record, where `reserve` bytes still fit after it.
    pub fn push(&mut self, record: RecordRef<'_>, reserve: usize) -> Result<(), Full> {
        let at = self.out.len();
        let room = self.limit.saturating_sub(at).saturating_sub(padded(reserve));
        if record.least_len().saturating_add(RECORD_HEADER) > room {
            return Err(Full);
        }
        self.out.extend_from_slice(&[0; RECORD_HEADER]);
        let (number, flags) = record.encode(&mut self.out);
        let value_len = self.out.len().saturating_sub(at).saturating_sub(RECORD_HEADER);
        pad(&mut self.out);
        if self.out.len().saturating_sub(at) > room {
            self.out.truncate(at);
            return Err(Full);
        }
        if let Some(head) = self.out.get_mut(at..) {
            put(head, 0, &number.to_le_bytes());
            put(head, 2, &flags.to_le_bytes());
            put(head, 4, &small(value_len).to_le_bytes());
        }
        self.records = self.records.saturating_add(1);
        Ok(())
    }

    /// Where it is, to go back to by [`ReplyWriter::rollback`].
    pub fn mark(&self) -> (usize, u32) {
        (self.out.len(), self.records)
    }

    /// Takes back the records written since that mark.
    pub fn rollback(&mut self, (len, records): (usize, u32)) {
        self.out.truncate(len.max(REPLY_HEADER));
        self.records = self.records.min(records);
    }

    /// The whole reply. The status text is cut to the room there is; [`Full`] where the cursor does not fit.
    pub fn finish(
        mut self,
        status: &ReplyStatus,
        counters: &Counters,
        more: Option<&Cursor>,
    ) -> Result<Vec<u8>, Full> {
        let mut cursor = Vec::new();
        if let Some(more) = more {
            encode_cursor(more, &mut cursor);
        }
        let room = self.limit.saturating_sub(self.out.len()).checked_sub(padded(cursor.len())).ok_or(Full)?;
        let (code, text) = status.code();
        let text = cut(text, room.min(MAX_TEXT));
        self.out.extend_from_slice(text.as_bytes());
        pad(&mut self.out);
        self.out.extend_from_slice(&cursor);
        pad(&mut self.out);
        let len = small(self.out.len());
        let flags = if more.is_some() { FLAG_MORE } else { 0 };
        let out = &mut self.out;
        put(out, 0, &MAGIC);
        put(out, 4, &VERSION.to_le_bytes());
        put(out, 6, &96u16.to_le_bytes());
        put(out, 8, &len.to_le_bytes());
        put(out, 12, &self.records.to_le_bytes());
        put(out, 16, &code.to_le_bytes());
        put(out, 20, &flags.to_le_bytes());
        put(out, 24, &small(text.len()).to_le_bytes());
        put(out, 28, &small(cursor.len()).to_le_bytes());
        let c = counters;
        let numbers = [
            c.bytes_scanned,
            c.blocks_read,
            c.cache_hits,
            c.cache_misses,
            c.files,
            c.locate_ns,
            c.compute_ns,
        ];
        for (at, n) in (32..).step_by(8).zip(numbers) {
            put(out, at, &n.to_le_bytes());
        }
        Ok(self.out)
    }
}

/// The longest start of `text` of at most `len` bytes that ends with a character.
fn cut(text: &str, len: usize) -> &str {
    let mut len = len.min(text.len());
    while !text.is_char_boundary(len) {
        len = len.saturating_sub(1);
    }
    text.get(..len).unwrap_or_default()
}

fn put_sized(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(&small(part.len()).to_le_bytes());
    }
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    for n in numbers {
        out.extend_from_slice(&n.to_le_bytes());
    }
}

impl RecordRef<'_> {
    /// A lower bound of the value's length, so that a large record that cannot fit is not copied first.
    fn least_len(&self) -> usize {
        match self {
            RecordRef::File { path, .. } | RecordRef::Failed { path, .. } | RecordRef::Name { path, .. } => {
                path.len()
            }
            RecordRef::Line { bytes, .. } | RecordRef::Data { bytes, .. } => bytes.len().saturating_add(16),
            _ => 0,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) -> (u16, u16) {
        match *self {
            RecordRef::File { path, size } => {
                put_numbers(out, &[size]);
                out.extend_from_slice(path);
                (kind::FILE, 0)
            }
            RecordRef::Failed { path, status } => {
                let (code, text) = status.code();
                out.extend_from_slice(&code.to_le_bytes());
                put_sized(out, &[path, cut(text, MAX_TEXT).as_bytes()]);
                (kind::FAILED, 0)
            }
            RecordRef::Line { number, offset, bytes, context, continues } => {
                put_numbers(out, &[number, offset]);
                out.extend_from_slice(bytes);
                let context = if context { LINE_CONTEXT } else { 0 };
                (kind::LINE, context | if continues { LINE_CONTINUES } else { 0 })
            }
            RecordRef::Matches(n) => {
                put_numbers(out, &[n]);
                (kind::MATCHES, 0)
            }
            RecordRef::BinaryMatches => (kind::BINARY_MATCHES, 0),
            RecordRef::Count { lines, words, bytes } => {
                put_numbers(out, &[lines, words, bytes]);
                (kind::COUNT, 0)
            }
            RecordRef::Digest { kind, value } => {
                out.extend_from_slice(&digest_number(kind).to_le_bytes());
                out.extend_from_slice(value);
                (kind::DIGEST, 0)
            }
            RecordRef::Data { offset, bytes } => {
                put_numbers(out, &[offset]);
                out.extend_from_slice(bytes);
                (kind::DATA, 0)
            }
            RecordRef::Entry(entry) => (kind::ENTRY, encode_entry(entry, out)),
            RecordRef::Extent { from, len, offset } => {
                put_numbers(out, &[from, len, offset]);
                (kind::EXTENT, 0)
            }
            RecordRef::Total { files, files_matched, matches } => {
                put_numbers(out, &[files, files_matched, matches]);
                (kind::TOTAL, 0)
            }
            RecordRef::Volume(volume) => (kind::VOLUME, encode_volume(volume, out)),
            RecordRef::Warning(text) => {
                out.extend_from_slice(text.as_bytes());
                (kind::WARNING, 0)
            }
            RecordRef::Name { path, kind } => {
                out.extend_from_slice(&u32::from(kind).to_le_bytes());
                out.extend_from_slice(path);
                (kind::NAME, 0)
            }
        }
    }
}

fn put_time(out: &mut Vec<u8>, (seconds, nanoseconds): (i64, u32)) {
    out.extend_from_slice(&seconds.to_le_bytes());
    out.extend_from_slice(&nanoseconds.to_le_bytes());
}

fn encode_entry(e: &Entry, out: &mut Vec<u8>) -> u16 {
    put_numbers(out, &[e.ino, e.size, e.sectors]);
    for n in [e.mode.into(), e.links, e.uid, e.gid, e.rdev.0, e.rdev.1] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    e.times.iter().for_each(|t| put_time(out, *t));
    put_time(out, e.birth.unwrap_or_default());
    put_sized(out, &[&e.path, e.link.as_deref().unwrap_or_default()]);
    let birth = if e.birth.is_some() { ENTRY_BIRTH } else { 0 };
    birth | if e.link.is_some() { ENTRY_LINK } else { 0 }
}

fn encode_volume(v: &VolumeRecord, out: &mut Vec<u8>) -> u16 {
    put_numbers(out, &[v.offset, v.len, v.blocks]);
    out.extend_from_slice(&v.partition.to_le_bytes());
    out.extend_from_slice(&v.block_size.to_le_bytes());
    out.extend_from_slice(&v.uuid);
    out.extend_from_slice(&small(v.features.len()).to_le_bytes());
    out.extend_from_slice(&small(v.warnings.len()).to_le_bytes());
    for text in [&v.file_system, &v.label].into_iter().chain(&v.features).chain(&v.warnings) {
        put_sized(out, &[text.as_bytes()]);
    }
    if v.needs_recovery { VOLUME_NEEDS_RECOVERY } else { 0 }
}

/// A whole reply as bytes, where it fits.
pub fn encode_reply(reply: &Reply, limit: usize) -> Result<Vec<u8>, Full> {
    let mut writer = ReplyWriter::new(Vec::new(), limit).ok_or(Full)?;
    for record in &reply.records {
        writer.push(record.as_ref(), 0)?;
    }
    writer.finish(&reply.status, &reply.counters, reply.more.as_ref())
}

/// The length that a reply's header states, so that no more than that need be copied.
pub fn reply_len(header: &[u8]) -> Result<usize, WireError> {
    let mut r = Reader::new(header, 0);
    if r.array()? != MAGIC {
        return Err(WireError { at: 0, what: Fault::Magic });
    }
    let version = r.u16()?;
    if version != VERSION {
        return Err(WireError { at: 4, what: Fault::Version(version) });
    }
    if r.u16()? != 96 {
        return Err(WireError { at: 6, what: Fault::Invalid("header length") });
    }
    match r.len()? {
        len if len >= REPLY_HEADER => Ok(len),
        _ => Err(WireError { at: 8, what: Fault::Invalid("length") }),
    }
}

/// Reads a reply. Bytes after the length in its header are not looked at.
pub fn decode_reply(bytes: &[u8]) -> Result<Reply, WireError> {
    let len = reply_len(bytes)?;
    let Some(all) = bytes.get(..len) else {
        return Err(WireError { at: 8, what: Fault::Short });
    };
    let mut r = Reader::new(all, 0);
    r.bytes(12)?;
    let count = r.u32()?;
    let code = r.u32()?;
    let flags = r.u32()?;
    let text_len = r.len()?;
    let cursor_len = r.len()?;
    let counters = Counters {
        bytes_scanned: r.u64()?,
        blocks_read: r.u64()?,
        cache_hits: r.u64()?,
        cache_misses: r.u64()?,
        files: r.u64()?,
        locate_ns: r.u64()?,
        compute_ns: r.u64()?,
    };
    r.zeros(8)?;
    let mut records = Vec::new();
    for _ in 0..count {
        let at = r.at;
        let number = r.u16()?;
        let flags = r.u16()?;
        let len = r.len()?;
        let value_at = r.at;
        let value = r.bytes(len)?;
        r.padding(len)?;
        records.push(decode_record(number, flags, Reader::new(value, value_at), at)?);
    }
    let text = r.text(text_len)?;
    r.padding(text_len)?;
    let more = if flags & FLAG_MORE != 0 {
        let at = r.at;
        let cursor = decode_cursor(&mut Reader::new(r.bytes(cursor_len)?, at))?;
        r.padding(cursor_len)?;
        Some(cursor)
    } else {
        None
    };
    r.end()?;
    let Some(status) = ReplyStatus::of(code, text) else {
        return Err(WireError { at: 16, what: Fault::Unknown("status", code) });
    };
    Ok(Reply { status, counters, records, more })
}

fn decode_record(number: u16, flags: u16, mut v: Reader<'_>, at: usize) -> Result<Record, WireError> {
    let record = match number {
        kind::FILE => Record::File { size: v.u64()?, path: v.tail().to_vec() },
        kind::FAILED => {
            let code = v.u32()?;
            let (path_len, text_len) = (v.len()?, v.len()?);
            let path = v.bytes(path_len)?.to_vec();
            let Some(status) = ReplyStatus::of(code, v.text(text_len)?) else {
                return Err(WireError { at, what: Fault::Unknown("status", code) });
            };
            Record::Failed { path, status }
        }
        kind::LINE => Record::Line {
            number: v.u64()?,
            offset: v.u64()?,
            bytes: v.tail().to_vec(),
            context: flags & LINE_CONTEXT != 0,
            continues: flags & LINE_CONTINUES != 0,
        },
        kind::MATCHES => Record::Matches(v.u64()?),
        kind::BINARY_MATCHES => Record::BinaryMatches,
        kind::COUNT => Record::Count { lines: v.u64()?, words: v.u64()?, bytes: v.u64()? },
        kind::DIGEST => {
            let number = v.u32()?;
            let Some(kind) = digest_of(number) else {
                return Err(WireError { at, what: Fault::Unknown("checksum", number) });
            };
            Record::Digest { kind, value: v.tail().to_vec() }
        }
        kind::DATA => Record::Data { offset: v.u64()?, bytes: v.tail().to_vec() },
        kind::ENTRY => Record::Entry(decode_entry(flags, &mut v)?),
        kind::EXTENT => Record::Extent { from: v.u64()?, len: v.u64()?, offset: v.u64()? },
        kind::TOTAL => Record::Total { files: v.u64()?, files_matched: v.u64()?, matches: v.u64()? },
        kind::VOLUME => Record::Volume(decode_volume(flags, &mut v)?),
        kind::WARNING => {
            let len = v.rest.len();
            Record::Warning(v.text(len)?)
        }
        kind::NAME => {
            let at = v.at;
            let kind = u16::try_from(v.u32()?)
                .map_err(|_| WireError { at, what: Fault::Invalid("type: over 16 bits") })?;
            Record::Name { kind, path: v.tail().to_vec() }
        }
        _ => return Err(WireError { at, what: Fault::Unknown("record", number.into()) }),
    };
    v.end()?;
    Ok(record)
}

fn time(v: &mut Reader<'_>) -> Result<(i64, u32), WireError> {
    Ok((v.i64()?, v.u32()?))
}

fn decode_entry(flags: u16, v: &mut Reader<'_>) -> Result<Entry, WireError> {
    let (ino, size, sectors) = (v.u64()?, v.u64()?, v.u64()?);
    let at = v.at;
    let mode =
        u16::try_from(v.u32()?).map_err(|_| WireError { at, what: Fault::Invalid("mode: over 16 bits") })?;
    let (links, uid, gid) = (v.u32()?, v.u32()?, v.u32()?);
    let rdev = (v.u32()?, v.u32()?);
    let times = [time(v)?, time(v)?, time(v)?];
    let birth = time(v)?;
    let (path_len, link_len) = (v.len()?, v.len()?);
    let path = v.bytes(path_len)?.to_vec();
    let link = v.bytes(link_len)?.to_vec();
    Ok(Entry {
        path,
        ino,
        mode,
        links,
        uid,
        gid,
        size,
        sectors,
        rdev,
        times,
        birth: (flags & ENTRY_BIRTH != 0).then_some(birth),
        link: (flags & ENTRY_LINK != 0).then_some(link),
    })
}

fn decode_volume(flags: u16, v: &mut Reader<'_>) -> Result<VolumeRecord, WireError> {
    fn text(v: &mut Reader<'_>) -> Result<String, WireError> {
        let len = v.len()?;
        v.text(len)
    }
    let (offset, len, blocks) = (v.u64()?, v.u64()?, v.u64()?);
    let (partition, block_size) = (v.u32()?, v.u32()?);
    let uuid = v.array()?;
    let (features, warnings) = (v.u32()?, v.u32()?);
    Ok(VolumeRecord {
        partition,
        offset,
        len,
        blocks,
        block_size,
        uuid,
        needs_recovery: flags & VOLUME_NEEDS_RECOVERY != 0,
        file_system: text(v)?,
        label: text(v)?,
        features: (0..features).map(|_| text(v)).collect::<Result<_, _>>()?,
        warnings: (0..warnings).map(|_| text(v)).collect::<Result<_, _>>()?,
    })
}
