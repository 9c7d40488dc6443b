//! The reply's bytes, written as the records arise.

use alloc::borrow::{Cow, ToOwned};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::request::{CURSOR_FIXED, decode_cursor, digest_number, digest_of, encode_cursor};
use super::{Fault, Reader, WireError, pad, padded, put, put_header, small};
use crate::*;

/// Bytes of a reply's header.
pub const REPLY_HEADER: usize = 96;
const HEADER: u16 = 96;
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
    pub const ANSWERED: u16 = 15;
    pub const ROW: u16 = 16;
    pub const NEAR: u16 = 17;
    pub const ATTRIBUTE: u16 = 18;
    pub const BATCH: u16 = 19;
    pub const EMITTED: u16 = 20;
}

const LINE_CONTEXT: u16 = 1;
const LINE_CONTINUES: u16 = 2;
const EMITTED_CONTINUES: u16 = 1;
const ENTRY_BIRTH: u16 = 1;
const ENTRY_LINK: u16 = 2;
const ENTRY_ATTRIBUTES: u16 = 4;
const VOLUME_NEEDS_RECOVERY: u16 = 1;
const VOLUME_RECOVERED: u16 = 2;
const VOLUME_UNSTABLE: u16 = 4;
const VOLUME_INODES: u16 = 8;
const WARNING_UNSTABLE: u16 = 1;

impl Failure {
    /// Its number on the wire, and its text.
    pub fn code(&self) -> (u32, &str) {
        match self {
            Failure::NotFound => (1, ""),
            Failure::PermissionDenied => (2, ""),
            Failure::NotADirectory => (3, ""),
            Failure::IsADirectory => (4, ""),
            Failure::NotARegularFile => (5, ""),
            Failure::SymlinkLoop => (6, ""),
            Failure::NameTooLong => (7, ""),
            Failure::NotAbsolute => (8, ""),
            Failure::ChangedDuringScan => (9, ""),
            Failure::UnsupportedFeature(text) => (10, text),
            Failure::CorruptVolume(text) => (11, text),
            Failure::MediumError(text) => (12, text),
            Failure::InvalidPattern(text) => (13, text),
            Failure::InvalidRequest(text) => (14, text),
            Failure::NoVolume(text) => (15, text),
            Failure::LineTooLong(text) => (16, text),
            Failure::Cancelled => (17, ""),
            Failure::DeniedAs(text) => (18, text),
            Failure::NeedsRecovery(text) => (19, text),
            Failure::NotATable(text) => (20, text),
            Failure::CorruptFile(text) => (21, text),
            Failure::ProgramFailed(text) => (22, text),
        }
    }

    fn of(code: u32, text: String) -> Option<Failure> {
        Some(match code {
            1 => Failure::NotFound,
            2 => Failure::PermissionDenied,
            3 => Failure::NotADirectory,
            4 => Failure::IsADirectory,
            5 => Failure::NotARegularFile,
            6 => Failure::SymlinkLoop,
            7 => Failure::NameTooLong,
            8 => Failure::NotAbsolute,
            9 => Failure::ChangedDuringScan,
            10 => Failure::UnsupportedFeature(text),
            11 => Failure::CorruptVolume(text),
            12 => Failure::MediumError(text),
            13 => Failure::InvalidPattern(text),
            14 => Failure::InvalidRequest(text),
            15 => Failure::NoVolume(text),
            16 => Failure::LineTooLong(text),
            17 => Failure::Cancelled,
            18 => Failure::DeniedAs(text),
            19 => Failure::NeedsRecovery(text),
            20 => Failure::NotATable(text),
            21 => Failure::CorruptFile(text),
            22 => Failure::ProgramFailed(text),
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
    /// A reply of at most `limit` bytes (a multiple of 8; what is over is not used). `None` below the
    /// header's length. The vector is emptied and used.
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
    ///
    /// # Errors
    /// [`Full`]: it does not fit; nothing was added.
    pub fn push(&mut self, record: &Record<'_>, reserve: usize) -> Result<(), Full> {
        let at = self.out.len();
        let room = self.limit.saturating_sub(at).saturating_sub(padded(reserve));
        if record.least_len().saturating_add(RECORD_HEADER) > room {
            return Err(Full);
        }
        let least = at.saturating_add(RECORD_HEADER).saturating_add(record.least_len());
        if least > self.out.capacity() {
            // In large steps: what has grown is copied at each.
            let capacity = self.out.capacity().saturating_mul(4).clamp(least, self.limit.max(least));
            self.out.reserve_exact(capacity.saturating_sub(at));
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

    /// The whole reply. The status text is cut to the room there is.
    ///
    /// # Errors
    /// [`Full`]: the cursor does not fit.
    pub fn finish(
        mut self,
        failure: Option<&Failure>,
        counters: &Counters,
        more: Option<&Cursor>,
    ) -> Result<Vec<u8>, Full> {
        let mut cursor = Vec::new();
        if let Some(more) = more {
            encode_cursor(more, &mut cursor);
        }
        let room = self.limit.saturating_sub(self.out.len()).checked_sub(padded(cursor.len())).ok_or(Full)?;
        let (code, text) = failure.map_or((0, ""), Failure::code);
        let text = cut(text, room.min(MAX_TEXT));
        self.out.extend_from_slice(text.as_bytes());
        pad(&mut self.out);
        self.out.extend_from_slice(&cursor);
        pad(&mut self.out);
        let flags = if more.is_some() { FLAG_MORE } else { 0 };
        let out = &mut self.out;
        put_header(out, MAGIC, HEADER, self.records);
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

/// A record of numbers with bytes behind them.
fn put_bytes(out: &mut Vec<u8>, kind: u16, numbers: &[u64], bytes: &[u8]) -> (u16, u16) {
    put_numbers(out, numbers);
    out.extend_from_slice(bytes);
    (kind, 0)
}

fn put_attribute(out: &mut Vec<u8>, name: &[u8], numbers: [u64; 2], value: &[u8]) {
    put_numbers(out, &numbers);
    put_sized(out, &[name]);
    out.extend_from_slice(value);
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    for n in numbers {
        out.extend_from_slice(&n.to_le_bytes());
    }
}

impl Record<'_> {
    /// A lower bound of the value's length, so that a large record that cannot fit is not copied first.
    fn least_len(&self) -> usize {
        match self {
            Record::File { path, .. } | Record::Failed { path, .. } | Record::Name { path, .. } => path.len(),
            Record::Line { bytes, .. } | Record::Data { bytes, .. } => bytes.len().saturating_add(16),
            Record::Row { values, .. } => values.len().saturating_add(8),
            Record::Attribute { name, value, .. } => name.len().saturating_add(value.len()),
            Record::Batch { stream, .. } => stream.len().saturating_add(16),
            Record::Emitted { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) -> (u16, u16) {
        match self {
            Record::File { path, size } => put_bytes(out, kind::FILE, &[*size], path),
            Record::Failed { path, failure } => {
                let (code, text) = failure.code();
                out.extend_from_slice(&code.to_le_bytes());
                put_sized(out, &[path, cut(text, MAX_TEXT).as_bytes()]);
                (kind::FAILED, 0)
            }
            Record::Line { number, offset, bytes, context, continues } => {
                put_numbers(out, &[*number, *offset]);
                out.extend_from_slice(bytes);
                let context = if *context { LINE_CONTEXT } else { 0 };
                (kind::LINE, context | if *continues { LINE_CONTINUES } else { 0 })
            }
            Record::Matches(n) => {
                put_numbers(out, &[*n]);
                (kind::MATCHES, 0)
            }
            Record::BinaryMatches => (kind::BINARY_MATCHES, 0),
            Record::Count { lines, words, bytes } => {
                put_numbers(out, &[*lines, *words, *bytes]);
                (kind::COUNT, 0)
            }
            Record::Digest { kind, value } => {
                out.extend_from_slice(&digest_number(*kind).to_le_bytes());
                out.extend_from_slice(value);
                (kind::DIGEST, 0)
            }
            Record::Data { offset, bytes } => put_bytes(out, kind::DATA, &[*offset], bytes),
            Record::Entry(entry) => (kind::ENTRY, encode_entry(entry, out)),
            Record::Extent { from, len, offset } => {
                put_numbers(out, &[*from, *len, *offset]);
                (kind::EXTENT, 0)
            }
            Record::Total(totals) => {
                put_numbers(out, &[totals.files, totals.files_matched, totals.matches]);
                (kind::TOTAL, 0)
            }
            Record::Volume(volume) => (kind::VOLUME, encode_volume(volume, out)),
            Record::Warning { text, unstable } => {
                out.extend_from_slice(text.as_bytes());
                (kind::WARNING, if *unstable { WARNING_UNSTABLE } else { 0 })
            }
            Record::Name { path, kind } => {
                out.extend_from_slice(&u32::from(*kind).to_le_bytes());
                out.extend_from_slice(path);
                (kind::NAME, 0)
            }
            Record::Answered(failure) => {
                let (code, text) = failure.as_ref().map_or((0, ""), Failure::code);
                out.extend_from_slice(&code.to_le_bytes());
                out.extend_from_slice(cut(text, MAX_TEXT).as_bytes());
                (kind::ANSWERED, 0)
            }
            Record::Row { number, values } => put_bytes(out, kind::ROW, &[*number], values),
            Record::Near { row, score } => {
                put_numbers(out, &[*row]);
                out.extend_from_slice(&score.to_le_bytes());
                (kind::NEAR, 0)
            }
            Record::Attribute { name, len, offset, value } => {
                put_attribute(out, name, [*len, *offset], value);
                (kind::ATTRIBUTE, 0)
            }
            Record::Batch { rows, bad, stream } => put_bytes(out, kind::BATCH, &[*rows, *bad], stream),
            Record::Emitted { bytes, continues } => {
                out.extend_from_slice(bytes);
                (kind::EMITTED, if *continues { EMITTED_CONTINUES } else { 0 })
            }
        }
    }
}

/// Bytes of an entry before its path.
const ENTRY_FIXED: usize = 104;

fn encode_entry(e: &FileEntry<'_>, out: &mut Vec<u8>) -> u16 {
    let link = e.link.as_deref().unwrap_or_default();
    // Written at once: one look at the vector's room, where there are a thousand entries.
    let mut fixed = [0; ENTRY_FIXED];
    let mut at = 0usize;
    let mut next = |bytes: &[u8]| {
        put(&mut fixed, at, bytes);
        at = at.saturating_add(bytes.len());
    };
    for n in [e.ino, e.size, e.sectors] {
        next(&n.to_le_bytes());
    }
    for n in [e.mode.into(), e.links, e.uid, e.gid, e.rdev.0, e.rdev.1] {
        next(&n.to_le_bytes());
    }
    for (seconds, nanoseconds) in e.times.into_iter().chain([e.birth.unwrap_or_default()]) {
        next(&seconds.to_le_bytes());
        next(&nanoseconds.to_le_bytes());
    }
    next(&small(e.path.len()).to_le_bytes());
    next(&small(link.len()).to_le_bytes());
    out.extend_from_slice(&fixed);
    out.extend_from_slice(&e.path);
    out.extend_from_slice(link);
    let birth = if e.birth.is_some() { ENTRY_BIRTH } else { 0 };
    let link = if e.link.is_some() { ENTRY_LINK } else { 0 };
    birth | link | if e.attributes { ENTRY_ATTRIBUTES } else { 0 }
}

fn encode_volume(v: &VolumeRecord<'_>, out: &mut Vec<u8>) -> u16 {
    put_numbers(out, &[v.offset, v.len, v.blocks]);
    out.extend_from_slice(&v.partition.to_le_bytes());
    out.extend_from_slice(&v.block_size.to_le_bytes());
    out.extend_from_slice(&v.uuid);
    out.extend_from_slice(&small(v.features.len()).to_le_bytes());
    out.extend_from_slice(&small(v.warnings.len()).to_le_bytes());
    for text in [&v.file_system, &v.label].into_iter().chain(&v.features).chain(&v.warnings) {
        put_sized(out, &[text.as_bytes()]);
    }
    let mut flags = if v.needs_recovery { VOLUME_NEEDS_RECOVERY } else { 0 };
    if v.unstable {
        flags |= VOLUME_UNSTABLE;
    }
    if let Some(Recovered { transactions, fast_commits, nodes, up_to }) = v.recovered {
        put_numbers(out, &[transactions, fast_commits, nodes, up_to]);
        flags |= VOLUME_RECOVERED;
    }
    if let Some(Inodes { all, used }) = v.inodes {
        put_numbers(out, &[all, used]);
        flags |= VOLUME_INODES;
    }
    flags
}

/// A whole reply as bytes: at most `limit`.
///
/// # Errors
/// [`Full`]: the records or the cursor do not fit.
pub fn encode_reply(reply: &Reply<'_>, limit: usize) -> Result<Vec<u8>, Full> {
    let mut writer = ReplyWriter::new(Vec::new(), limit).ok_or(Full)?;
    for record in &reply.records {
        writer.push(record, 0)?;
    }
    writer.finish(reply.failure.as_ref(), &reply.counters, reply.more.as_ref())
}

/// The length that a reply's header states, so that no more than that need be copied.
///
/// # Errors
/// [`WireError`]: the header is short, of another version or kind, or states a length that no reply has.
pub fn reply_len(header: &[u8]) -> Result<usize, WireError> {
    let (len, _) = super::header(&mut Reader::new(header, 0), MAGIC, HEADER, REPLY_HEADER..=usize::MAX)?;
    Ok(len)
}

/// A failure by its number; 0: none.
fn failure_of(code: u32, text: &str, at: usize) -> Result<Option<Failure>, WireError> {
    match code {
        0 => Ok(None),
        _ => match Failure::of(code, text.to_owned()) {
            None => Err(WireError { at, what: Fault::Unknown("status", code) }),
            failure => Ok(failure),
        },
    }
}

/// Reads a reply. Bytes after the length in its header are not looked at.
///
/// # Errors
/// [`WireError`]: the byte at which it is no reply, and why.
pub fn decode_reply(bytes: &[u8]) -> Result<Reply<'_>, WireError> {
    let mut records = Vec::new();
    let read = each_record(bytes, |record| {
        records.push(record);
        ControlFlow::Continue(())
    })?;
    let (ControlFlow::Continue(reply) | ControlFlow::Break(reply)) = read;
    Ok(Reply { records, ..reply })
}

/// Reads a reply as [`decode_reply`] does, and hands each record on as it is read, in place of keeping all.
/// It breaks where `take` broke: what comes behind is then not looked at, and of the rest the counters are
/// known.
///
/// # Errors
/// [`WireError`]: the byte at which it is no reply, and why; the records before it were handed on.
pub fn each_record<'a>(
    bytes: &'a [u8],
    mut take: impl FnMut(Record<'a>) -> ControlFlow<()>,
) -> Result<ControlFlow<Reply<'a>, Reply<'a>>, WireError> {
    let len = reply_len(bytes)?;
    let Some(all) = bytes.get(..len) else {
        return Err(WireError { at: 8, what: Fault::Short });
    };
    let mut r = Reader::new(all, 0);
    let (_, count) = super::header(&mut r, MAGIC, HEADER, len..=len)?;
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
    for _ in 0..count {
        let at = r.at;
        let number = r.u16()?;
        let flags = r.u16()?;
        let len = r.len()?;
        let value_at = r.at;
        let value = r.bytes(len)?;
        r.padding(len)?;
        if take(decode_record(number, flags, Reader::new(value, value_at), at)?).is_break() {
            return Ok(ControlFlow::Break(Reply { counters, ..Reply::default() }));
        }
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
    let failure = failure_of(code, text, 16)?;
    Ok(ControlFlow::Continue(Reply { failure, counters, records: Vec::new(), more }))
}

fn decode_record<'a>(number: u16, flags: u16, mut v: Reader<'a>, at: usize) -> Result<Record<'a>, WireError> {
    let record = match number {
        kind::FILE => Record::File { size: v.u64()?, path: v.tail().into() },
        kind::FAILED => {
            let code = v.u32()?;
            let (path_len, text_len) = (v.len()?, v.len()?);
            let path = v.bytes(path_len)?.into();
            let Some(failure) = Failure::of(code, v.text(text_len)?.to_owned()) else {
                return Err(WireError { at, what: Fault::Unknown("status", code) });
            };
            Record::Failed { path, failure }
        }
        kind::LINE => Record::Line {
            number: v.u64()?,
            offset: v.u64()?,
            bytes: v.tail().into(),
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
            Record::Digest { kind, value: v.tail().into() }
        }
        kind::DATA => Record::Data { offset: v.u64()?, bytes: v.tail().into() },
        kind::ENTRY => Record::Entry(decode_entry(flags, &mut v)?),
        kind::EXTENT => Record::Extent { from: v.u64()?, len: v.u64()?, offset: v.u64()? },
        kind::TOTAL => {
            Record::Total(SearchTotals { files: v.u64()?, files_matched: v.u64()?, matches: v.u64()? })
        }
        kind::VOLUME => Record::Volume(decode_volume(flags, &mut v)?),
        kind::WARNING => {
            let len = v.rest.len();
            Record::Warning { text: v.text(len)?.into(), unstable: flags & WARNING_UNSTABLE != 0 }
        }
        kind::NAME => {
            let at = v.at;
            let kind = u16::try_from(v.u32()?)
                .map_err(|_| WireError { at, what: Fault::Invalid("type: over 16 bits") })?;
            Record::Name { kind, path: v.tail().into() }
        }
        kind::ANSWERED => {
            let code = v.u32()?;
            let len = v.rest.len();
            Record::Answered(failure_of(code, v.text(len)?, at)?)
        }
        kind::ROW => Record::Row { number: v.u64()?, values: v.tail().into() },
        kind::NEAR => Record::Near { row: v.u64()?, score: f32::from_bits(v.u32()?) },
        kind::ATTRIBUTE => {
            let (len, offset, name) = (v.u64()?, v.u64()?, v.len()?);
            Record::Attribute { name: v.bytes(name)?.into(), len, offset, value: v.tail().into() }
        }
        kind::EMITTED => {
            Record::Emitted { bytes: v.tail().into(), continues: flags & EMITTED_CONTINUES != 0 }
        }
        kind::BATCH => Record::Batch { rows: v.u64()?, bad: v.u64()?, stream: v.tail().into() },
        _ => return Err(WireError { at, what: Fault::Unknown("record", number.into()) }),
    };
    v.end()?;
    Ok(record)
}

fn time(v: &mut Reader<'_>) -> Result<(i64, u32), WireError> {
    Ok((v.i64()?, v.u32()?))
}

fn decode_entry<'a>(flags: u16, v: &mut Reader<'a>) -> Result<FileEntry<'a>, WireError> {
    let (ino, size, sectors) = (v.u64()?, v.u64()?, v.u64()?);
    let at = v.at;
    let mode =
        u16::try_from(v.u32()?).map_err(|_| WireError { at, what: Fault::Invalid("mode: over 16 bits") })?;
    let (links, uid, gid) = (v.u32()?, v.u32()?, v.u32()?);
    let rdev = (v.u32()?, v.u32()?);
    let times = [time(v)?, time(v)?, time(v)?];
    let birth = time(v)?;
    let (path_len, link_len) = (v.len()?, v.len()?);
    let path = v.bytes(path_len)?.into();
    let link = v.bytes(link_len)?.into();
    Ok(FileEntry {
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
        attributes: flags & ENTRY_ATTRIBUTES != 0,
    })
}

fn decode_volume<'a>(flags: u16, v: &mut Reader<'a>) -> Result<VolumeRecord<'a>, WireError> {
    fn text<'a>(v: &mut Reader<'a>) -> Result<Cow<'a, str>, WireError> {
        let len = v.len()?;
        v.text(len).map(Cow::Borrowed)
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
        unstable: flags & VOLUME_UNSTABLE != 0,
        file_system: text(v)?,
        label: text(v)?,
        features: (0..features).map(|_| text(v)).collect::<Result<_, _>>()?,
        warnings: (0..warnings).map(|_| text(v)).collect::<Result<_, _>>()?,
        recovered: match flags & VOLUME_RECOVERED {
            0 => None,
            _ => Some(Recovered {
                transactions: v.u64()?,
                fast_commits: v.u64()?,
                nodes: v.u64()?,
                up_to: v.u64()?,
            }),
        },
        inodes: match flags & VOLUME_INODES {
            0 => None,
            _ => Some(Inodes { all: v.u64()?, used: v.u64()? }),
        },
    })
}
