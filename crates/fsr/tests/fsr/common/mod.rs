//! What the tests share: images made by the file systems' own tools, requests, and answers as plain data.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use nearside_conformance::volume;
use nearside_fsr::{Full, Mark, Media, Outcome, Retriever, Sink};
use nearside_near_data::{
    Counters, Credentials, Cursor, Failure, Operation, Record, Request, SearchTotals, Target,
};

/// Runs a future that is always ready.
pub fn now<F: Future>(future: F) -> F::Output {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a read over memory waits"),
    }
}

/// A record with bytes of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Got {
    File(String, u64),
    Failed(String, Failure),
    Line { number: u64, offset: u64, bytes: Vec<u8>, context: bool, continues: bool },
    Matches(u64),
    Binary,
    Count(u64, u64, u64),
    Digest(Vec<u8>),
    Data(u64, Vec<u8>),
    Entry { path: String, ino: u64, mode: u16, size: u64, uid: u32, link: Option<String> },
    Name(String, u16),
    Extent(u64, u64, u64),
    Total(SearchTotals),
    Volume(u32, String),
    Warning(String, bool),
    Answered(Option<Failure>),
    Row(u64, Vec<f32>),
    Near(u64, f32),
    Attribute(String, u64, Vec<u8>),
    Batch(u64, u64),
    Emitted(Vec<u8>, bool),
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Takes records up to a size, counted roughly as the wire does.
pub struct Records {
    pub got: Vec<Got>,
    /// A counter, and what it said at each record.
    pub watched: Option<(Arc<AtomicU64>, Vec<u64>)>,
    sizes: Vec<usize>,
    used: usize,
    limit: usize,
}

impl Records {
    pub fn new(limit: usize) -> Records {
        Records { got: Vec::new(), watched: None, sizes: Vec::new(), used: 96, limit }
    }
}

impl Sink for Records {
    fn push(&mut self, record: Record<'_>, path_len: usize) -> Result<(), Full> {
        let got = match &record {
            Record::File { path, size } => Got::File(text(path), *size),
            Record::Failed { path, failure } => Got::Failed(text(path), failure.clone()),
            Record::Line { number, offset, bytes, context, continues } => {
                let (bytes, context, continues) = (bytes.to_vec(), *context, *continues);
                Got::Line { number: *number, offset: *offset, bytes, context, continues }
            }
            Record::Matches(n) => Got::Matches(*n),
            Record::BinaryMatches => Got::Binary,
            Record::Count { lines, words, bytes } => Got::Count(*lines, *words, *bytes),
            Record::Digest { value, .. } => Got::Digest(value.to_vec()),
            Record::Data { offset, bytes } => Got::Data(*offset, bytes.to_vec()),
            Record::Entry(entry) => Got::Entry {
                path: text(&entry.path),
                ino: entry.ino,
                mode: entry.mode,
                size: entry.size,
                uid: entry.uid,
                link: entry.link.as_deref().map(text),
            },
            Record::Name { path, kind } => Got::Name(text(path), *kind),
            Record::Extent { from, len, offset } => Got::Extent(*from, *len, *offset),
            Record::Total(totals) => Got::Total(*totals),
            Record::Volume(volume) => Got::Volume(volume.partition, volume.file_system.to_string()),
            Record::Warning { text, unstable } => Got::Warning(text.to_string(), *unstable),
            Record::Answered(failure) => Got::Answered(failure.clone()),
            Record::Row { number, values } => {
                Got::Row(*number, values.as_chunks().0.iter().map(|n| f32::from_le_bytes(*n)).collect())
            }
            Record::Near { row, score } => Got::Near(*row, *score),
            Record::Attribute { name, offset, value, .. } => {
                Got::Attribute(text(name), *offset, value.to_vec())
            }
            Record::Batch { rows, bad, .. } => Got::Batch(*rows, *bad),
            Record::Emitted { bytes, continues } => Got::Emitted(bytes.to_vec(), *continues),
        };
        let size = 24
            + match &record {
                Record::File { path, .. } | Record::Failed { path, .. } => path.len() + 100,
                Record::Entry(entry) => entry.path.len() + 100,
                Record::Line { bytes, .. } | Record::Data { bytes, .. } => bytes.len(),
                Record::Row { values, .. } => values.len(),
                Record::Attribute { name, value, .. } => name.len() + value.len(),
                Record::Batch { stream, .. } => stream.len(),
                Record::Emitted { bytes, .. } => bytes.len(),
                _ => 24,
            };
        if self.used + size + path_len + 64 > self.limit {
            return Err(Full);
        }
        if let Some((counter, said)) = &mut self.watched {
            said.push(counter.load(Ordering::Relaxed));
        }
        self.used += size;
        self.sizes.push(size);
        self.got.push(got);
        Ok(())
    }

    fn room(&self, path_len: usize) -> usize {
        self.limit.saturating_sub(self.used + path_len + 64 + 24)
    }

    fn mark(&self) -> Mark {
        Mark(self.got.len(), self.got.len() as u32)
    }

    fn rollback(&mut self, mark: Mark) {
        self.got.truncate(mark.0);
        self.used -= self.sizes[mark.0..].iter().sum::<usize>();
        self.sizes.truncate(mark.0);
    }
}

pub fn request(target: Target, operation: Operation) -> Request {
    Request {
        partition: 0,
        credentials: Credentials::default(),
        target,
        operation,
        follow: true,
        resume: None,
    }
}

pub fn path(path: &str) -> Target {
    Target::Path(path.as_bytes().to_vec())
}

pub fn tree(path: &str) -> Target {
    Target::Tree { root: path.as_bytes().to_vec(), include: vec![], exclude: vec![], max_depth: u32::MAX }
}

pub fn ask<M: Media>(retriever: &Retriever, media: &M, request: &Request) -> (Vec<Got>, Outcome) {
    let mut records = Records::new(usize::MAX / 2);
    let answer = now(retriever.run(media, request, &mut records));
    (records.got, answer)
}

/// As `ask`, by as many commands as it takes with a small buffer.
pub fn ask_in_parts<M: Media>(
    retriever: &Retriever,
    media: &M,
    request: &Request,
    limit: usize,
) -> (Vec<Got>, Outcome, usize) {
    let mut all = Vec::new();
    let mut request = request.clone();
    let mut counters = Counters::default();
    for commands in 1.. {
        let mut records = Records::new(limit);
        let mut answer = now(retriever.run(media, &request, &mut records));
        all.extend(records.got);
        counters.bytes_scanned += answer.counters.bytes_scanned;
        counters.blocks_read += answer.counters.blocks_read;
        answer.counters = counters;
        let Some(more) = answer.more.take() else { return (all, answer, commands) };
        assert_ne!(request.resume.as_ref(), Some(&more), "no progress");
        request.resume = Some(more);
        assert!(commands < 1_000_000 && all.len() < 2_000_000, "no end");
    }
    unreachable!()
}

pub fn cursor(request: &Request, cursor: Cursor) -> Request {
    Request { resume: Some(cursor), ..request.clone() }
}

/// An ext image of a directory's tree.
pub fn ext_image(from: &Path, mib: u64, options: &[&str]) -> Vec<u8> {
    let image = tempfile::NamedTempFile::new().unwrap();
    volume::ext(image.path(), mib, Some(from), options);
    fs::read(image.path()).unwrap()
}

/// An F2FS image of a directory's tree.
pub fn f2fs_image(from: &Path, mib: u64) -> Vec<u8> {
    let image = tempfile::NamedTempFile::new().unwrap();
    volume::make("f2fs", image.path(), mib, from);
    fs::read(image.path()).unwrap()
}
