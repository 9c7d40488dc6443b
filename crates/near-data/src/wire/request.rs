//! The request's bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Fault, Reader, WireError, header, pad, put, put_header, small};
use crate::operations::number;
use crate::*;

/// Bytes of a request's header.
pub const REQUEST_HEADER: usize = 64;
const HEADER: u16 = 64;
const MAGIC: [u8; 4] = *b"NDRQ";
const FLAG_FOLLOW: u32 = 1;
const OPTIONAL: u16 = 1 << 15;

/// Item numbers.
mod item {
    pub const UID: u16 = 1;
    pub const GID: u16 = 2;
    pub const GROUPS: u16 = 3;
    pub const PATH: u16 = 4;
    pub const INCLUDE: u16 = 5;
    pub const EXCLUDE: u16 = 6;
    pub const MAX_DEPTH: u16 = 7;
    pub const FILE_SIZE: u16 = 8;
    pub const RANGES: u16 = 9;
    pub const PATTERN: u16 = 10;
    pub const SEARCH: u16 = 11;
    pub const DIGEST: u16 = 12;
    pub const BYTES: u16 = 13;
    pub const CURSOR: u16 = 14;
    pub const PATHS: u16 = 15;
    pub const OPTIONS: u16 = 16;
}

/// All operations, a bit for each number: what log page D5h says of them.
pub const OPERATIONS: u32 = (1 << KINDS.len()) - 1;

mod target {
    pub const VOLUME: u16 = 0;
    pub const PATH: u16 = 1;
    pub const TREE: u16 = 2;
    pub const GLOB: u16 = 3;
    pub const BLOCKS: u16 = 4;
    pub const PATHS: u16 = 5;
}

/// All targets, a bit for each number: what log page D5h says of them.
pub const TARGETS: u32 = 1 << target::VOLUME
    | 1 << target::PATH
    | 1 << target::TREE
    | 1 << target::GLOB
    | 1 << target::BLOCKS
    | 1 << target::PATHS;

mod search {
    pub const FIXED: u32 = 1;
    pub const IGNORE_CASE: u32 = 1 << 1;
    pub const INVERT: u32 = 1 << 2;
    pub const WORD: u32 = 1 << 3;
    pub const LINE: u32 = 1 << 4;
    pub const TEXT: u32 = 1 << 5;
    pub const ONLY_MATCHING_FILES: u32 = 1 << 6;
    pub const MAX_COUNT: u32 = 1 << 7;
    pub const NUMBERS: u32 = 1 << 8;
    pub const BYTES: u32 = 1 << 9;
    pub const WITHOUT_BINARY: u32 = 1 << 10;
    pub const NULL_DATA: u32 = 1 << 11;
    pub const DECOMPRESS: u32 = 1 << 12;
    pub const ALL: u32 = crate::SearchOptions::BITS;
}

struct Items {
    out: Vec<u8>,
    count: u32,
}

impl Items {
    fn put(&mut self, number: u16, parts: &[&[u8]]) {
        let len = parts.iter().fold(0usize, |n, p| n.saturating_add(p.len()));
        self.out.extend_from_slice(&number.to_le_bytes());
        self.out.extend_from_slice(&[0; 2]);
        self.out.extend_from_slice(&small(len).to_le_bytes());
        for part in parts {
            self.out.extend_from_slice(part);
        }
        pad(&mut self.out);
        self.count = self.count.saturating_add(1);
    }
}

/// The request as bytes. It may be longer than [`MAX_REQUEST`]: the caller looks.
pub fn encode_request(request: &Request) -> Vec<u8> {
    // Most requests name one path and few patterns: their bytes are moved once.
    let mut out = Vec::with_capacity(least_len(request));
    out.resize(REQUEST_HEADER, 0);
    let mut items = Items { out, count: 0 };
    let credentials = &request.credentials;
    items.put(item::UID, &[&credentials.uid.to_le_bytes()]);
    items.put(item::GID, &[&credentials.gid.to_le_bytes()]);
    if !credentials.groups.is_empty() {
        let groups: Vec<u8> = credentials.groups.iter().flat_map(|g| g.to_le_bytes()).collect();
        items.put(item::GROUPS, &[&groups]);
    }
    let target = match &request.target {
        Target::Volume => target::VOLUME,
        Target::Path(path) => {
            items.put(item::PATH, &[path]);
            target::PATH
        }
        Target::Tree { root, include, exclude, max_depth } => {
            items.put(item::PATH, &[root]);
            include.iter().for_each(|glob| items.put(item::INCLUDE, &[glob]));
            exclude.iter().for_each(|glob| items.put(item::EXCLUDE, &[glob]));
            items.put(item::MAX_DEPTH, &[&max_depth.to_le_bytes()]);
            target::TREE
        }
        Target::Glob(glob) => {
            items.put(item::PATH, &[glob]);
            target::GLOB
        }
        Target::Blocks { size, ranges } => {
            items.put(item::FILE_SIZE, &[&size.to_le_bytes()]);
            let ranges: Vec<u8> =
                ranges.iter().flat_map(|r| [r.offset.to_le_bytes(), r.len.to_le_bytes()]).flatten().collect();
            items.put(item::RANGES, &[&ranges]);
            target::BLOCKS
        }
        Target::Paths(paths) => {
            items.put(item::PATHS, &[paths.wire()]);
            target::PATHS
        }
    };
    match &request.operation {
        Operation::Search(search) => {
            search.patterns.iter().for_each(|p| items.put(item::PATTERN, &[p]));
            put_search(&mut items, search);
        }
        Operation::Checksum(digest) => {
            items.put(item::DIGEST, &[&digest_number(*digest).to_le_bytes()]);
        }
        Operation::Read { offset, len } => {
            items.put(item::BYTES, &[&offset.to_le_bytes(), &len.to_le_bytes()]);
        }
        Operation::Gather(options) => items.put(item::OPTIONS, &[&options.put()]),
        Operation::Nearest(options) => items.put(item::OPTIONS, &[&options.put()]),
        Operation::Select(options) => items.put(item::OPTIONS, &[&options.put()]),
        Operation::Program(options) => items.put(item::OPTIONS, &[&options.put()]),
        Operation::Nop
        | Operation::Info
        | Operation::Count
        | Operation::List
        | Operation::Stat
        | Operation::Map
        | Operation::Names
        | Operation::Attributes => {}
    }
    if let Some(cursor) = &request.resume {
        let mut value = Vec::new();
        encode_cursor(cursor, &mut value);
        items.put(item::CURSOR, &[&value]);
    }
    let Items { mut out, count } = items;
    put_header(&mut out, MAGIC, HEADER, count);
    put(&mut out, 16, &request.operation.number().to_le_bytes());
    put(&mut out, 18, &target.to_le_bytes());
    put(&mut out, 20, &request.partition.to_le_bytes());
    put(&mut out, 24, &(if request.follow { FLAG_FOLLOW } else { 0 }).to_le_bytes());
    out
}

/// About what a request takes.
fn least_len(request: &Request) -> usize {
    let path = match &request.target {
        Target::Path(path) | Target::Glob(path) | Target::Tree { root: path, .. } => path.len(),
        Target::Paths(paths) => paths.wire().len(),
        Target::Volume | Target::Blocks { .. } => 0,
    };
    path.saturating_add(256)
}

fn put_search(items: &mut Items, s: &SearchOptions) {
    let flags = [
        (s.fixed, search::FIXED),
        (s.ignore_case, search::IGNORE_CASE),
        (s.invert, search::INVERT),
        (s.word, search::WORD),
        (s.line, search::LINE),
        (s.text, search::TEXT),
        (s.only_matching_files, search::ONLY_MATCHING_FILES),
        (s.max_count.is_some(), search::MAX_COUNT),
        (s.numbers, search::NUMBERS),
        (s.bytes, search::BYTES),
        (s.without_binary, search::WITHOUT_BINARY),
        (s.null_data, search::NULL_DATA),
        (s.decompress, search::DECOMPRESS),
    ];
    let flags = flags.iter().fold(0, |all, (set, bit)| if *set { all | bit } else { all });
    let answer: u32 = match s.answer {
        Answer::Lines => 0,
        Answer::Count => 1,
        Answer::Files => 2,
        Answer::Total => 3,
        Answer::Matches => 4,
    };
    items.put(
        item::SEARCH,
        &[
            &flags.to_le_bytes(),
            &answer.to_le_bytes(),
            &s.before.to_le_bytes(),
            &s.after.to_le_bytes(),
            &s.max_count.unwrap_or(0).to_le_bytes(),
        ],
    );
}

pub(super) fn digest_number(digest: Digest) -> u32 {
    match digest {
        Digest::Crc32c => 1,
        Digest::Xxh3 => 2,
        Digest::Sha256 => 3,
    }
}

pub(super) fn digest_of(number: u32) -> Option<Digest> {
    Some(match number {
        1 => Digest::Crc32c,
        2 => Digest::Xxh3,
        3 => Digest::Sha256,
        _ => return None,
    })
}

pub(super) const CURSOR_FIXED: usize = 64;

pub(super) fn encode_cursor(cursor: &Cursor, out: &mut Vec<u8>) {
    for n in [
        cursor.offset,
        cursor.line,
        cursor.found,
        cursor.within,
        u64::from(cursor.pending) | u64::from(small(cursor.places.len())).wrapping_shl(32),
        cursor.totals.files,
        cursor.totals.files_matched,
        cursor.totals.matches,
    ] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    out.extend_from_slice(&cursor.places);
    out.extend_from_slice(&cursor.path);
}

pub(super) fn decode_cursor(r: &mut Reader<'_>) -> Result<Cursor, WireError> {
    let (offset, line, found, within) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    let (pending, places) = (r.u32()?, r.len()?);
    let totals = SearchTotals { files: r.u64()?, files_matched: r.u64()?, matches: r.u64()? };
    let places = r.bytes(places)?.to_vec();
    let path = r.tail().to_vec();
    Ok(Cursor { path, places, offset, line, found, within, pending, totals })
}

#[derive(Default)]
struct Parts<'a> {
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Option<Vec<u32>>,
    path: Option<Vec<u8>>,
    include: Vec<Vec<u8>>,
    exclude: Vec<Vec<u8>>,
    max_depth: Option<u32>,
    size: Option<u64>,
    ranges: Option<Vec<BlockRange>>,
    patterns: Vec<Vec<u8>>,
    search: Option<SearchOptions>,
    digest: Option<Digest>,
    bytes: Option<(u64, u64)>,
    cursor: Option<Cursor>,
    paths: Option<Paths>,
    /// As the operation has them.
    options: Option<Reader<'a>>,
}

/// Reads a request. Bytes after the length in its header are not looked at.
///
/// Paths may be too long and patterns may not compile: that is for the drive's file semantics to answer, not
/// a fault of form.
///
/// # Errors
/// [`WireError`]: the byte at which it is no request, and why.
pub fn decode_request(bytes: &[u8]) -> Result<Request, WireError> {
    let mut r = Reader::new(bytes, 0);
    let (len, count) = header(&mut r, MAGIC, HEADER, REQUEST_HEADER..=MAX_REQUEST)?;
    let Some(all) = bytes.get(..len) else {
        return Err(WireError { at: 8, what: Fault::Short });
    };
    let operation = r.u16()?;
    let target = r.u16()?;
    let partition = r.u32()?;
    let required = r.u32()?;
    if required & !FLAG_FOLLOW != 0 {
        return Err(WireError { at: 24, what: Fault::UnknownFlags(required & !FLAG_FOLLOW) });
    }
    let _optional = r.u32()?;
    r.zeros(32)?;
    let mut r = Reader::new(all.get(REQUEST_HEADER..).unwrap_or_default(), REQUEST_HEADER);
    let mut parts = Parts::default();
    for _ in 0..count {
        let at = r.at;
        let number = r.u16()?;
        if r.u16()? != 0 {
            return Err(WireError { at, what: Fault::Invalid("item flags") });
        }
        let len = r.len()?;
        let value_at = r.at;
        let value = r.bytes(len)?;
        r.padding(len)?;
        parts.take(number, Reader::new(value, value_at), at)?;
    }
    r.end()?;
    parts.request(operation, target, partition, required & FLAG_FOLLOW != 0)
}

impl<'a> Parts<'a> {
    fn take(&mut self, number: u16, mut v: Reader<'a>, at: usize) -> Result<(), WireError> {
        let twice = |is: bool, name| match is {
            true => Err(WireError { at, what: Fault::Items(name) }),
            false => Ok(()),
        };
        match number & !OPTIONAL {
            item::UID => twice(self.uid.replace(v.u32()?).is_some(), "uid")?,
            item::GID => twice(self.gid.replace(v.u32()?).is_some(), "gid")?,
            item::GROUPS => {
                if v.rest.len().div_ceil(4) > MAX_GROUPS {
                    return v.fault(Fault::Invalid("groups: too many"));
                }
                let mut groups = Vec::with_capacity(v.rest.len().div_ceil(4));
                while !v.rest.is_empty() {
                    groups.push(v.u32()?);
                }
                twice(self.groups.replace(groups).is_some(), "groups")?
            }
            item::PATH => twice(self.path.replace(v.tail().to_vec()).is_some(), "path")?,
            item::INCLUDE => self.include.push(v.tail().to_vec()),
            item::EXCLUDE => self.exclude.push(v.tail().to_vec()),
            item::MAX_DEPTH => twice(self.max_depth.replace(v.u32()?).is_some(), "depth")?,
            item::FILE_SIZE => twice(self.size.replace(v.u64()?).is_some(), "file size")?,
            item::RANGES => {
                let mut ranges = Vec::with_capacity(v.rest.len().div_ceil(16));
                while !v.rest.is_empty() {
                    let at = v.at;
                    let range = BlockRange { offset: v.u64()?, len: v.u64()? };
                    let hole = range.offset == u64::MAX;
                    let whole = range.len.is_multiple_of(512) && range.offset.is_multiple_of(512);
                    if !(hole || whole && range.offset.checked_add(range.len).is_some()) {
                        return Err(WireError { at, what: Fault::Invalid("block range") });
                    }
                    ranges.push(range);
                }
                twice(self.ranges.replace(ranges).is_some(), "block ranges")?
            }
            item::PATTERN => self.patterns.push(v.tail().to_vec()),
            item::SEARCH => twice(self.search.replace(take_search(&mut v)?).is_some(), "search")?,
            item::DIGEST => {
                let number = v.u32()?;
                let Some(digest) = digest_of(number) else {
                    return Err(WireError { at, what: Fault::Unknown("checksum", number) });
                };
                twice(self.digest.replace(digest).is_some(), "checksum")?
            }
            item::BYTES => twice(self.bytes.replace((v.u64()?, v.u64()?)).is_some(), "byte range")?,
            item::CURSOR => twice(self.cursor.replace(decode_cursor(&mut v)?).is_some(), "cursor")?,
            item::PATHS => {
                let paths = Paths::of_wire(v.tail());
                let paths = paths.map_err(|what| WireError { at, what: Fault::Invalid(what) })?;
                twice(self.paths.replace(paths).is_some(), "paths")?
            }
            item::OPTIONS => {
                twice(self.options.replace(v.clone()).is_some(), "options")?;
                return Ok(());
            }
            _ if number & OPTIONAL != 0 => return Ok(()),
            _ => return Err(WireError { at, what: Fault::UnknownItem(number) }),
        }
        v.end()
    }

    fn request(
        self,
        operation: u16,
        target: u16,
        partition: u32,
        follow: bool,
    ) -> Result<Request, WireError> {
        fn need<T>(part: Option<T>, name: &'static str) -> Result<T, WireError> {
            part.ok_or(WireError { at: REQUEST_HEADER, what: Fault::Items(name) })
        }
        fn all<'a, T>(
            options: Option<Reader<'a>>,
            take: impl Fn(&mut Reader<'a>) -> Result<T, WireError>,
        ) -> Result<T, WireError> {
            let mut options = need(options, "options")?;
            let taken = take(&mut options)?;
            options.end().map(|()| taken)
        }
        Ok(Request {
            partition,
            credentials: Credentials {
                uid: need(self.uid, "uid")?,
                gid: need(self.gid, "gid")?,
                groups: self.groups.unwrap_or_default(),
            },
            target: match target {
                target::VOLUME => Target::Volume,
                target::PATH => Target::Path(need(self.path, "path")?),
                target::TREE => Target::Tree {
                    root: need(self.path, "path")?,
                    include: self.include,
                    exclude: self.exclude,
                    max_depth: self.max_depth.unwrap_or(u32::MAX),
                },
                target::GLOB => Target::Glob(need(self.path, "path")?),
                target::BLOCKS => Target::Blocks {
                    size: need(self.size, "file size")?,
                    ranges: need(self.ranges, "block ranges")?,
                },
                target::PATHS => Target::Paths(need(self.paths, "paths")?),
                _ => return Err(WireError { at: 18, what: Fault::Unknown("target", target.into()) }),
            },
            operation: match operation {
                number::NOP => Operation::Nop,
                number::INFO => Operation::Info,
                number::SEARCH => Operation::Search(SearchOptions {
                    patterns: self.patterns,
                    ..need(self.search, "search")?
                }),
                number::COUNT => Operation::Count,
                number::CHECKSUM => Operation::Checksum(need(self.digest, "checksum")?),
                number::READ => {
                    let (offset, len) = need(self.bytes, "byte range")?;
                    Operation::Read { offset, len }
                }
                number::LIST => Operation::List,
                number::STAT => Operation::Stat,
                number::MAP => Operation::Map,
                number::NAMES => Operation::Names,
                number::GATHER => Operation::Gather(all(self.options, GatherOptions::take)?),
                number::NEAREST => Operation::Nearest(all(self.options, NearestOptions::take)?),
                number::ATTRIBUTES => Operation::Attributes,
                number::SELECT => Operation::Select(Box::new(all(self.options, SelectOptions::take)?)),
                number::PROGRAM => Operation::Program(Box::new(all(self.options, ProgramOptions::take)?)),
                _ => {
                    return Err(WireError { at: 16, what: Fault::Unknown("operation", operation.into()) });
                }
            },
            follow,
            resume: self.cursor,
        })
    }
}

fn take_search(v: &mut Reader<'_>) -> Result<SearchOptions, WireError> {
    let at = v.at;
    let flags = v.u32()?;
    if flags & !search::ALL != 0 {
        return Err(WireError { at, what: Fault::UnknownFlags(flags & !search::ALL) });
    }
    let answer = match v.u32()? {
        0 => Answer::Lines,
        1 => Answer::Count,
        2 => Answer::Files,
        3 => Answer::Total,
        4 => Answer::Matches,
        n => return Err(WireError { at, what: Fault::Unknown("answer", n) }),
    };
    let is = |bit| flags & bit != 0;
    Ok(SearchOptions {
        patterns: Vec::new(),
        fixed: is(search::FIXED),
        ignore_case: is(search::IGNORE_CASE),
        invert: is(search::INVERT),
        word: is(search::WORD),
        line: is(search::LINE),
        text: is(search::TEXT),
        only_matching_files: is(search::ONLY_MATCHING_FILES),
        numbers: is(search::NUMBERS),
        bytes: is(search::BYTES),
        without_binary: is(search::WITHOUT_BINARY),
        null_data: is(search::NULL_DATA),
        decompress: is(search::DECOMPRESS),
        answer,
        before: v.u32()?,
        after: v.u32()?,
        max_count: {
            let n = v.u64()?;
            is(search::MAX_COUNT).then_some(n)
        },
    })
}
