//! Between the wire's types of near-data requests and replies and the retriever's: neither knows the other.
//!
//! Whoever runs a retriever for requests in wire form needs it: the drive, and a host that does as the drive does.

use nearside_fsr as fsr;
use nearside_fsr::{
    Answer, Failure, FileKind, Full, Inode, Mark, Record, Sink, Timestamp, VolumeInfo, Want, ndp,
};
use nearside_spec::near_data as wire;
use nearside_spec::near_data::wire::{RecordRef, ReplyWriter};
use nearside_spec::near_data::{MAX_PATH, ReplyStatus};

/// A request for the retriever.
pub fn request(r: wire::Request) -> fsr::Request {
    let wire::Credentials { uid, gid, groups } = r.credentials;
    fsr::Request {
        partition: r.partition,
        credentials: fsr::Credentials { uid, gid, groups },
        target: match r.target {
            wire::Target::Volume => fsr::Target::Volume,
            wire::Target::Path(path) => fsr::Target::Path(path),
            wire::Target::Tree { root, include, exclude, max_depth } => {
                fsr::Target::Tree { root, include, exclude, max_depth }
            }
            wire::Target::Glob(glob) => fsr::Target::Glob(glob),
            wire::Target::Blocks { size, ranges } => fsr::Target::Blocks {
                size,
                ranges: ranges.iter().map(|r| ((r.offset != u64::MAX).then_some(r.offset), r.len)).collect(),
            },
        },
        operation: match r.operation {
            wire::Operation::Nop => fsr::Operation::Nop,
            wire::Operation::Info => fsr::Operation::Info,
            wire::Operation::Search(search) => self::search(search),
            wire::Operation::Count => fsr::Operation::Count,
            wire::Operation::Checksum(digest) => fsr::Operation::Checksum(match digest {
                wire::Digest::Crc32c => ndp::Digest::Crc32c,
                wire::Digest::Xxh3 => ndp::Digest::Xxh3,
                wire::Digest::Sha256 => ndp::Digest::Sha256,
            }),
            wire::Operation::Read { offset, len } => fsr::Operation::Read { offset, len },
            wire::Operation::List => fsr::Operation::List,
            wire::Operation::Stat => fsr::Operation::Stat,
            wire::Operation::Map => fsr::Operation::Map,
        },
        follow: r.follow,
        resume: r.resume.map(|c| fsr::Cursor {
            path: c.path,
            places: c.places,
            offset: c.offset,
            line: c.line,
            found: c.found,
            within: c.within,
            pending: c.pending,
            totals: fsr::Totals { files: c.files, files_matched: c.files_matched, matches: c.matches },
        }),
    }
}

fn search(s: wire::Search) -> fsr::Operation {
    let (answer, want) = match s.answer {
        wire::Answer::Lines => (ndp::Answer::Lines, Want::Lines),
        wire::Answer::Matches => (ndp::Answer::Matches, Want::Lines),
        wire::Answer::Count => (ndp::Answer::Count, Want::Count),
        wire::Answer::Files => (ndp::Answer::First, Want::Files),
        wire::Answer::Total => (ndp::Answer::Count, Want::Total),
    };
    let options = ndp::SearchOptions {
        patterns: s.patterns,
        fixed: s.fixed,
        bytes: s.bytes,
        ignore_case: s.ignore_case,
        invert: s.invert,
        word: s.word,
        line: s.line,
        answer,
        max_count: s.max_count,
        before: s.before,
        after: s.after,
        text: s.text,
        numbers: s.numbers && want == Want::Lines,
    };
    fsr::Operation::Search { options, want, only_matching_files: s.only_matching_files }
}

fn status(failure: Failure) -> ReplyStatus {
    match failure {
        Failure::NotFound => ReplyStatus::NotFound,
        Failure::PermissionDenied => ReplyStatus::PermissionDenied,
        Failure::NotADirectory => ReplyStatus::NotADirectory,
        Failure::IsADirectory => ReplyStatus::IsADirectory,
        Failure::NotARegularFile => ReplyStatus::NotARegularFile,
        Failure::SymlinkLoop => ReplyStatus::SymlinkLoop,
        Failure::NameTooLong => ReplyStatus::NameTooLong,
        Failure::NotAbsolute => ReplyStatus::NotAbsolute,
        Failure::ChangedDuringScan => ReplyStatus::ChangedDuringScan,
        Failure::UnsupportedFeature(text) => ReplyStatus::UnsupportedFeature(text),
        Failure::CorruptVolume(text) => ReplyStatus::CorruptVolume(text),
        Failure::MediumError(text) => ReplyStatus::MediumError(text),
        Failure::InvalidPattern(text) => ReplyStatus::InvalidPattern(text),
        Failure::InvalidRequest(text) => ReplyStatus::InvalidRequest(text),
        Failure::NoVolume(text) => ReplyStatus::NoVolume(text),
        Failure::LineTooLong(text) => ReplyStatus::LineTooLong(text),
        Failure::Cancelled => ReplyStatus::Cancelled,
        Failure::NeedsRecovery(why) => ReplyStatus::NeedsRecovery(format!(
            "the volume needs recovery: {why}; until then, what lies in blocks is given to root only, or with the drive owner's word"
        )),
    }
}

fn digest(digest: ndp::Digest) -> wire::Digest {
    match digest {
        ndp::Digest::Crc32c => wire::Digest::Crc32c,
        ndp::Digest::Xxh3 => wire::Digest::Xxh3,
        ndp::Digest::Sha256 => wire::Digest::Sha256,
    }
}

fn time(t: Timestamp) -> (i64, u32) {
    (t.seconds, t.nanoseconds)
}

fn entry(path: &[u8], inode: &Inode, link: Option<&[u8]>) -> wire::Entry {
    wire::Entry {
        path: path.to_vec(),
        ino: inode.ino.0.into(),
        mode: inode.mode,
        links: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        sectors: inode.sectors,
        rdev: inode.rdev,
        times: [time(inode.atime), time(inode.mtime), time(inode.ctime)],
        birth: inode.crtime.map(time),
        link: link.map(<[u8]>::to_vec),
    }
}

fn volume(partition: u32, offset: u64, len: u64, info: Option<&VolumeInfo>) -> wire::VolumeRecord {
    let mut record = wire::VolumeRecord { partition, offset, len, ..Default::default() };
    if let Some(info) = info {
        record.file_system = info.file_system.to_owned();
        record.label = info.label.clone();
        record.uuid = info.uuid;
        record.block_size = info.block_size;
        record.blocks = info.blocks;
        record.features = info.features.clone();
        record.needs_recovery = info.needs_recovery;
        record.warnings = info.warnings.clone();
    }
    record
}

/// Writes records as the reply's bytes.
pub struct WireSink {
    writer: Option<ReplyWriter>,
    room: usize,
    /// Whom the drive made of the one who asked.
    squashed: Option<String>,
}

impl WireSink {
    /// A reply of at most `room` bytes; a permission denied says `squashed`.
    pub fn new(room: usize, squashed: Option<String>) -> WireSink {
        WireSink { writer: ReplyWriter::new(Vec::new(), room), room, squashed }
    }

    fn status(&self, failure: Failure) -> ReplyStatus {
        match (status(failure), &self.squashed) {
            (ReplyStatus::PermissionDenied, Some(whom)) => ReplyStatus::DeniedAs(whom.clone()),
            (status, _) => status,
        }
    }

    /// The reply to a request that is not run.
    pub fn refuse(self, status: &ReplyStatus) -> Vec<u8> {
        let finished = self.writer.and_then(|w| w.finish(status, &wire::Counters::default(), None).ok());
        finished.unwrap_or_default()
    }

    /// Bytes to keep for a cursor: at this path, or at whichever path comes next and finds no room. That one may be longer:
    /// where the buffer is not small, the longest there is has room.
    fn reserve(&self, path_len: usize) -> usize {
        ReplyWriter::cursor_len(path_len.max(MAX_PATH.min(self.room / 4)))
    }

    /// The reply.
    pub fn finish(self, answer: Answer) -> Vec<u8> {
        let Answer { failure, counters: c, more } = answer;
        let status = failure.map_or(ReplyStatus::Success, |failure| self.status(failure));
        let counters = wire::Counters {
            bytes_scanned: c.bytes_scanned,
            blocks_read: c.blocks_read,
            cache_hits: c.cache_hits,
            cache_misses: c.cache_misses,
            files: c.files,
            locate_ns: c.locate_ns,
            compute_ns: c.compute_ns,
        };
        let more = more.map(|c| wire::Cursor {
            path: c.path,
            places: c.places,
            offset: c.offset,
            line: c.line,
            found: c.found,
            within: c.within,
            pending: c.pending,
            files: c.totals.files,
            files_matched: c.totals.files_matched,
            matches: c.totals.matches,
        });
        let Some(writer) = self.writer else { return Vec::new() };
        writer.finish(&status, &counters, more.as_ref()).unwrap_or_else(|_| {
            let status = ReplyStatus::InvalidRequest("the buffer is too small for a cursor".to_owned());
            let empty = ReplyWriter::new(Vec::new(), self.room);
            empty.and_then(|w| w.finish(&status, &counters, None).ok()).unwrap_or_default()
        })
    }
}

impl Sink for WireSink {
    fn push(&mut self, record: Record<'_>, path_len: usize) -> Result<(), Full> {
        let reserve = self.reserve(path_len);
        let failed = match &record {
            Record::Failed { failure, .. } => self.status((*failure).clone()),
            _ => ReplyStatus::Success,
        };
        let Some(writer) = &mut self.writer else { return Err(Full) };
        let pushed = match record {
            Record::File { path, size } => writer.push(RecordRef::File { path, size }, reserve),
            Record::Failed { path, .. } => writer.push(RecordRef::Failed { path, status: &failed }, reserve),
            Record::Line { number, offset, bytes, context, continues } => {
                writer.push(RecordRef::Line { number, offset, bytes, context, continues }, reserve)
            }
            Record::Matches(n) => writer.push(RecordRef::Matches(n), reserve),
            Record::BinaryMatches => writer.push(RecordRef::BinaryMatches, reserve),
            Record::Count { lines, words, bytes } => {
                writer.push(RecordRef::Count { lines, words, bytes }, reserve)
            }
            Record::Digest(kind, value) => {
                writer.push(RecordRef::Digest { kind: digest(kind), value }, reserve)
            }
            Record::Data { offset, bytes } => writer.push(RecordRef::Data { offset, bytes }, reserve),
            Record::Entry { path, inode, link } => {
                writer.push(RecordRef::Entry(&entry(path, inode, link)), reserve)
            }
            Record::Name { path, kind } => {
                writer.push(RecordRef::Name { path, kind: kind.map_or(0, FileKind::mode) }, reserve)
            }
            Record::Extent { from, len, offset } => {
                writer.push(RecordRef::Extent { from, len, offset }, reserve)
            }
            Record::Total(t) => {
                let (files, files_matched, matches) = (t.files, t.files_matched, t.matches);
                writer.push(RecordRef::Total { files, files_matched, matches }, reserve)
            }
            Record::Volume { partition, offset, len, info } => {
                writer.push(RecordRef::Volume(&volume(partition, offset, len, info)), reserve)
            }
            Record::Warning(text) => writer.push(RecordRef::Warning(text), reserve),
        };
        pushed.map_err(|_| Full)
    }

    fn room(&self, path_len: usize) -> usize {
        self.writer.as_ref().map_or(0, |w| w.room_for_bytes(self.reserve(path_len)))
    }

    fn mark(&self) -> Mark {
        self.writer.as_ref().map_or(Mark(0, 0), |w| {
            let (len, records) = w.mark();
            Mark(len, records)
        })
    }

    fn rollback(&mut self, mark: Mark) {
        if let Some(writer) = &mut self.writer {
            writer.rollback((mark.0, mark.1));
        }
    }
}
