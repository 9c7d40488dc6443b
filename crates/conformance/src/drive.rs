//! What a whole drive owes of the files on its volume, whatever its store does: controller, firmware, driver
//! and FSRLib over a store that is fast, one that is slow, and one that fails.
//!
//! [`suite`] takes an image of a volume and the tree that the volume's view gave, which its caller has
//! compared with whoever made the volume. It asks the same questions of three drives:
//!
//! - over the store itself: its lists and checksums are the tree;
//! - over a delayed one, eight units that finish reads out of order and stall, and that are at times too busy
//!   to take one: commands suspend, eight at a time, and every answer is the same, cold and warm;
//! - over [`Faulty`] below the same delays: every answer is the same as far as it goes, and where it
//!   does not go on it says that the medium failed, of that path. Once the faults stop, every answer is
//!   the same again, by what the cache has kept.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_driver::{Command, DriverConfig, Finished, Handle};
use nearside_embedded::{AnyStore, Embedded, Options};
use nearside_firmware::Fsr;
use nearside_fsrlib::{
    Answer, Ask, Credentials, Digest, Element, Error, Failure, FileEntry, GatherOptions, NearestOptions,
    Operation, Pooling, Record, Request, RowFormat, SearchOptions, SelectOptions, Session, Table, Target,
};
use nearside_fsview::{FileKind, State, Volume};
use nearside_near_data::wire;
use nearside_store::{Delay, Dram, Fault, Faulty, File, FileOptions, Kinds, Modelled, Rule};

use crate::view::{Image, Node, Tree, block_on, differences, read};

/// Files larger than this are mostly holes: their map and their ends are asked for, not all their bytes.
const LARGE: u64 = 64 << 20;
/// Largest image that is read into memory.
const IN_MEMORY: u64 = 256 << 20;
/// Paths that are asked for one by one; of larger trees every so-manieth.
const PATHS: usize = 100;
/// Commands in flight.
const TOGETHER: usize = 8;
/// Of a drive's first reads, how many are made to fail.
const READS: u64 = 24;
/// A tree of so many files is asked for as a whole by root only.
const MANY: usize = 10_000;
/// Bytes of a command's buffer.
const BUFFER: usize = 256 << 10;
/// A command that takes longer hangs.
const TIMEOUT_MS: u64 = 60_000;
/// Reads that fail, of a million.
const FAULTS: u64 = 20_000;

/// Holds three drives over the volume in `image` to the tree. Panics where one does not keep what it owes;
/// `name` is said then.
pub fn suite(name: &str, image: &Path, tree: &Tree) {
    let store = store(image);
    let questions = questions(tree);
    let right = over_itself(name, &store, &questions, tree);
    over_slow_and_failing(name, store, &questions, &right, tree);
}

/// The first part of [`suite`]: a drive over the store itself.
pub fn shows(name: &str, image: &Path, tree: &Tree) {
    over_itself(name, &store(image), &questions(tree), tree);
}

fn over_itself(name: &str, store: &AnyStore, questions: &[Question], tree: &Tree) -> Vec<Answered> {
    let mut plain = FileDrive::new(store.clone(), config());
    let right: Vec<Answered> = plain.ask_all(questions);
    let shown = shown(&right[0], &right[1], tree).unwrap_or_else(|e| panic!("{name}: {e}"));
    let found = differences(&shown, tree, &|node| {
        if node.size > LARGE {
            node.content = None;
        }
    });
    assert!(found.is_empty(), "{name}: over the store itself:\n{}", found.join("\n"));
    right
}

fn over_slow_and_failing(
    name: &str,
    store: AnyStore,
    questions: &[Question],
    right: &[Answered],
    tree: &Tree,
) {
    let busy = Rule { per_million: 20_000, ..Rule::new(Kinds::Reads, Fault::Busy) };
    let faulty = Faulty::new(store.clone(), 1, [busy]);
    let mut slow = FileDrive::new(delayed(faulty, 1), config());
    for cache in ["cold", "warm"] {
        let answers = slow.ask_all(questions);
        same(&format!("{name}: slow, {cache}"), questions, &answers, right);
    }
    drop(slow);

    let opening = questions.iter().take_while(|q| matches!(q.ask.target, Target::Tree { .. })).count();
    first_reads(name, &store, &questions[opening..], &right[opening..], tree);

    // Each volume meets faults of its own.
    let seed = xxhash_rust::xxh3::xxh3_64(name.as_bytes());
    let error = Rule { per_million: FAULTS, ..Rule::new(Kinds::Reads, Fault::Error) };
    let faulty = Faulty::new(store, seed, [error]);
    let plan = faulty.plan();
    // Little is kept, so that metadata is read again and again.
    let small = nearside_fsr::Config { block_bytes: 128 << 10, names: 128, inodes: 128, ..config() };
    let mut drive = FileDrive::new(delayed(faulty, seed), small);
    let answers = drive.ask_all(questions);
    let failed = plan.lock().unwrap().failed();
    let mut bad = 0;
    for ((question, got), right) in questions.iter().zip(&answers).zip(right) {
        bad += usize::from(got != right);
        judge(got, right, tree).unwrap_or_else(|e| panic!("{name}: over faults: {question}: {e}"));
    }
    assert!(failed == 0 || bad > 0, "{name}: {failed} reads failed, and nobody has noticed");
    plan.lock().unwrap().clear();
    let after = drive.ask_all(questions);
    same(&format!("{name}: after the faults"), questions, &after, right);
}

/// Nobody writes the images: their drives show what the view does, which is what a mount would recover.
fn config() -> nearside_fsr::Config {
    nearside_fsr::Config { state: State::Recovered, ..Default::default() }
}

/// One after the other, each of the reads by which a drive comes to know its volume fails
/// once: a part of the volume that could not be read must not be taken for one that is not
/// there. The question after that finds nothing amiss.
fn first_reads(name: &str, store: &AnyStore, questions: &[Question], right: &[Answered], tree: &Tree) {
    let (questions, right) = (&questions[..questions.len().min(6)], &right[..right.len().min(6)]);
    for nth in 0..READS {
        let once = Rule { after: nth, times: Some(1), ..Rule::new(Kinds::Reads, Fault::Error) };
        let store = AnyStore::Faulty(Box::new(Faulty::new(store.clone(), 1, [once])));
        let mut drive = FileDrive::new(store, config());
        for (question, right) in questions.iter().zip(right) {
            let got = drive.together(std::slice::from_ref(question)).remove(0);
            judge(&got, right, tree).unwrap_or_else(|e| panic!("{name}: read {nth} fails: {question}: {e}"));
        }
        let after = drive.together(questions);
        same(&format!("{name}: after read {nth} had failed"), questions, &after, right);
    }
}

/// A drive with several volumes on it, none of which a request names: it says so, whichever read fails.
pub fn several_volumes(name: &str, image: &Path) {
    let store = store(image);
    let (ask, tree) = (Ask::path("/", Operation::List), Tree::new());
    let questions = [Question { ask, uid: 0 }];
    let right = FileDrive::new(store.clone(), config()).together(&questions);
    assert!(matches!(right[0].end, Err(Failure::NoVolume(_))), "{name}: {:?}", right[0]);
    first_reads(name, &store, &questions, &right, &tree);
}

/// [`suite`] for an image whose tree the caller compares by other means: it is what the volume's view shows.
pub fn suite_by_view(name: &str, image: &Path) {
    let source = Image::open(image).unwrap();
    let tree = block_on(Volume::open(&source)).map_err(|e| e.to_string());
    let tree = tree.and_then(|volume| read(&volume, &source).map_err(|e| e.to_string()));
    suite(name, image, &tree.unwrap_or_else(|e| panic!("{name}: {e}")));
}

/// In memory, or where it would take much of it in the file itself.
fn store(image: &Path) -> AnyStore {
    let options = FileOptions::read();
    if std::fs::metadata(image).unwrap().len() <= IN_MEMORY {
        return AnyStore::Dram(Dram::from_file(image, options.block_size).unwrap());
    }
    AnyStore::File(File::open(image, options).unwrap())
}

/// Eight units of some microseconds, and stalls that a fast unit's reads pass by.
fn delayed(store: Faulty<AnyStore>, seed: u64) -> AnyStore {
    let delay = Delay { stall_every: 50, stall_ns: 30_000, seed, ..Delay::units(8, 1_500) };
    AnyStore::Delayed(Box::new(Modelled::new(AnyStore::Faulty(Box::new(store)), delay.medium())))
}

/// The beginning of what may hold a file's bytes.
fn short(what: &impl std::fmt::Debug) -> String {
    let mut text = format!("{what:?}");
    text.truncate(400);
    text
}

fn same(name: &str, questions: &[Question], got: &[Answered], right: &[Answered]) {
    for ((question, got), right) in questions.iter().zip(got).zip(right) {
        if got != right {
            let at = got.records.iter().zip(&right.records).position(|(a, b)| a != b);
            let at = at.unwrap_or(got.records.len().min(right.records.len()));
            panic!(
                "{name}: {question}: {} records, {:?}, and not {}, {:?}; the first that differs: {} and not {}",
                got.records.len(),
                got.end,
                right.records.len(),
                right.end,
                short(&got.records.get(at)),
                short(&right.records.get(at)),
            );
        }
    }
}

/// A question, for a user.
#[derive(Clone, Debug)]
struct Question {
    ask: Ask,
    uid: u32,
}

/// All that was said to it.
#[derive(Clone, Debug, PartialEq)]
struct Answered {
    records: Vec<Record<'static>>,
    end: Result<(), Failure>,
}

/// Those about the whole tree come first: its list and all checksums, by root.
fn questions(tree: &Tree) -> Vec<Question> {
    let base = |path: &[u8]| path.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
    let large: Vec<_> =
        tree.iter().filter(|(_, node)| node.size > LARGE).map(|(path, _)| base(path)).collect();
    let whole = |operation: Operation, uid| {
        let names = matches!(operation, Operation::List | Operation::Names);
        let exclude = if names { Vec::new() } else { large.clone() };
        let target = Target::Tree { root: b"/".to_vec(), include: vec![], exclude, max_depth: u32::MAX };
        Question { ask: Ask { target, operation, follow: true }, uid }
    };
    let search = || {
        let patterns = vec![b"[a-f][0-9]".to_vec()];
        Operation::Search(SearchOptions {
            patterns,
            text: true,
            answer: Answer::Count,
            ..SearchOptions::default()
        })
    };
    let xxh3 = Operation::Checksum(Digest::Xxh3);
    let mut all = vec![whole(Operation::List, 0), whole(xxh3.clone(), 0)];
    if tree.len() < MANY {
        all.extend([whole(search(), 0), whole(Operation::List, 1000), whole(xxh3, 1000)]);
        all.extend([whole(Operation::Names, 0), whole(Operation::Names, 1000)]);
    }

    let mut one = |path: &[u8], operation: Operation, follow: bool, uid: u32| {
        all.push(Question { ask: Ask { follow, ..Ask::path(path, operation) }, uid });
    };
    one(b"/", Operation::Info, true, 0);
    for (path, node) in tree.iter().step_by(tree.len() / PATHS + 1) {
        let path = if path.is_empty() { b"/" } else { &path[..] };
        one(path, Operation::Stat, false, 0);
        one(path, Operation::Attributes, true, 0);
        one(path, Operation::Nop, true, 1000);
        match node.kind {
            FileKind::Regular if node.size > LARGE => {
                one(path, Operation::Map, true, 0);
                one(path, Operation::Read { offset: 0, len: 1 << 20 }, true, 0);
                one(path, Operation::Read { offset: node.size - 100_000, len: 1 << 20 }, true, 0);
            }
            FileKind::Regular => {
                one(path, Operation::Map, true, 0);
                one(path, Operation::Count, true, 0);
                one(path, Operation::Checksum(Digest::Crc32c), true, 1000);
                one(path, search(), true, 0);
                one(path, gather(node.size), true, 0);
                one(path, nearest(), true, 1000);
                one(path, select(), true, 0);
                one(path, program(), true, 0);
                one(path, Operation::Read { offset: node.size / 3, len: u64::MAX }, true, 0);
            }
            FileKind::Directory => {
                one(path, Operation::List, true, 0);
                one(path, Operation::Names, true, 1000);
                one(&[path, b"/no such name"].concat(), Operation::Stat, true, 0);
            }
            FileKind::Symlink => {
                one(path, Operation::Stat, true, 0);
                one(path, Operation::Count, true, 0);
            }
            _ => one(path, Operation::Count, true, 0),
        }
    }
    all
}

/// A file as a table of its bytes.
const BYTES: Table = Table { raw: Some((Element::I8, 1)), scale: 1.0 };

/// Rows from here and there in a file of so many bytes.
pub(crate) fn gather(size: u64) -> Operation {
    let indices: Vec<u64> =
        (0..7).map(|n| (size / 2 + n * 4099) % size.max(1)).filter(|_| size > 0).collect();
    let bags = vec![0, indices.len() as u32];
    Operation::Gather(GatherOptions {
        table: BYTES,
        pooling: Pooling::Sum,
        indices,
        bags,
        ..GatherOptions::default()
    })
}

/// One that is none: drives of tests run no programs, and say so.
pub(crate) fn program() -> Operation {
    Operation::Program(Box::default())
}

pub(crate) fn nearest() -> Operation {
    Operation::Nearest(NearestOptions { table: BYTES, count: 9, query: vec![1.0], ..Default::default() })
}

/// A file as a table of its lines' first words.
pub(crate) fn select() -> Operation {
    Operation::Select(Box::new(SelectOptions {
        format: RowFormat::Csv { delimiter: b' ', quote: None, header: false },
        aggregates: SelectOptions::aggregates("count(*)").unwrap_or_default(),
        skip_bad: true,
        ..SelectOptions::default()
    }))
}

/// The tree as the answers to its list and its checksums show it.
fn shown(list: &Answered, sums: &Answered, tree: &Tree) -> Result<Tree, String> {
    for (what, answer) in [("list", list), ("checksums", sums)] {
        answer.end.as_ref().map_err(|status| format!("the {what} ends with {status:?}"))?;
    }
    let mut shown = Tree::new();
    for record in &list.records {
        match record {
            Record::Entry(entry) => {
                let path = if *entry.path == *b"/" { Vec::new() } else { entry.path.to_vec() };
                if shown.insert(path, node(entry)?).is_some() {
                    return Err(format!("listed twice: {entry:?}"));
                }
            }
            Record::Warning { .. } => {}
            other => return Err(format!("the list has {other:?}")),
        }
    }
    let mut at: Option<&[u8]> = None;
    for record in &sums.records {
        match (record, at.take()) {
            (Record::File { path, size }, None) => {
                let there = shown.get(&path[..]).ok_or_else(|| format!("not listed: {record:?}"))?;
                if there.size != *size {
                    return Err(format!("{record:?}, and listed with {} bytes", there.size));
                }
                at = Some(&path[..]);
            }
            (Record::Digest { kind: Digest::Xxh3, value }, Some(path)) => {
                let value = value[..].try_into().map_err(|_| format!("{record:?}"))?;
                if let Some(node) = shown.get_mut(path) {
                    node.content = Some(u64::from_be_bytes(value));
                }
            }
            (Record::Warning { .. }, None) => {}
            (other, at) => return Err(format!("after {at:?} the checksums have {other:?}")),
        }
    }
    // A file that bears a large one's name was left out with it.
    let left_out: HashSet<_> = tree
        .iter()
        .filter(|(_, n)| n.size > LARGE)
        .filter_map(|(p, _)| p.rsplit(|b| *b == b'/').next())
        .collect();
    for (path, node) in &mut shown {
        if node.content.is_none() && path.rsplit(|b| *b == b'/').next().is_some_and(|n| left_out.contains(n))
        {
            node.content = tree.get(path).and_then(|node| node.content);
        }
    }
    Ok(shown)
}

fn node(entry: &FileEntry) -> Result<Node, String> {
    let [_, (seconds, nanoseconds), _] = entry.times;
    Ok(Node {
        kind: FileKind::from_mode(entry.mode).ok_or_else(|| format!("no kind: {entry:?}"))?,
        mode: entry.mode & 0o7777,
        uid: entry.uid,
        gid: entry.gid,
        size: entry.size,
        links: entry.links,
        mtime_ns: i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds),
        rdev: entry.rdev,
        sectors: entry.sectors,
        content: None,
        target: entry.link.as_deref().map(<[u8]>::to_vec),
    })
}

/// What an answer says of one path.
struct Said<'a> {
    path: &'a [u8],
    records: Vec<&'a Record<'static>>,
    failed: Option<&'a Failure>,
}

/// An answer by paths, in its order; what is about no path is apart.
fn said(answer: &Answered) -> (Vec<Said<'_>>, Vec<&Record<'static>>) {
    let mut all: Vec<Said<'_>> = Vec::new();
    let mut rest = Vec::new();
    for record in &answer.records {
        let (path, failed) = match record {
            Record::Warning { .. } | Record::Total(_) => {
                rest.push(record);
                continue;
            }
            Record::File { path, .. } => (Some(&path[..]), None),
            Record::Entry(entry) => (Some(&entry.path[..]), None),
            Record::Name { path, .. } => (Some(&path[..]), None),
            Record::Failed { path, failure } => (Some(&path[..]), Some(failure)),
            _ => (None, None),
        };
        match (path, all.last_mut()) {
            // A file's record comes again where its answer is continued.
            (Some(path), Some(last)) if last.path == path && last.failed.is_none() => {
                last.failed = failed;
                if failed.is_none() {
                    last.records.push(record);
                }
            }
            (Some(path), _) => {
                let records = if failed.is_none() { vec![record] } else { Vec::new() };
                all.push(Said { path, records, failed });
            }
            (None, Some(last)) => last.records.push(record),
            (None, None) => rest.push(record),
        }
    }
    (all, rest)
}

fn of_the_medium(status: &Failure) -> bool {
    matches!(status, Failure::MediumError(_))
}

/// An answer that was given over faults: right, or right as far as it says that the medium did not fail.
fn judge(got: &Answered, right: &Answered, tree: &Tree) -> Result<(), String> {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let cut = match &got.end {
        Err(status) if of_the_medium(status) => true,
        end if *end == right.end => false,
        end => return Err(format!("ends with {end:?} and not {:?}", right.end)),
    };
    let ((here, rest), (there, all)) = (said(got), said(right));
    let mut there = there.into_iter().peekable();
    let mut failures = cut;
    // Below these directories nothing could be seen.
    let mut dark: Vec<Vec<u8>> = Vec::new();
    let is_dark = |dark: &[Vec<u8>], path: &[u8]| {
        dark.iter().any(|dir| path.strip_prefix(&dir[..]).is_some_and(|below| below.starts_with(b"/")))
    };
    let count = here.len();
    for (nr, said) in here.into_iter().enumerate() {
        // The end of an answer that is cut short is about the file that it was at.
        let failed = match said.failed {
            None if cut && nr + 1 == count => got.end.as_ref().err(),
            failed => failed.filter(|status| of_the_medium(status)),
        };
        failures |= failed.is_some();
        // What was left out before this one lies in the dark.
        while let Some(missed) = there.next_if(|next| next.path != said.path && is_dark(&dark, next.path)) {
            drop(missed);
        }
        let expected = there.next_if(|next| next.path == said.path);
        if failed.is_some() {
            dark.push(if said.path == b"/" { Vec::new() } else { said.path.to_vec() });
        }
        match (expected, failed) {
            (Some(expected), None)
                if (&expected.records, expected.failed) == (&said.records, said.failed) => {}
            (Some(expected), Some(_)) if expected.records.starts_with(&said.records) => {}
            (None, Some(_)) if said.records.is_empty() && known(tree, said.path) => {}
            (expected, _) => {
                return Err(format!(
                    "of {} it says {}, and not {}",
                    text(said.path),
                    short(&(said.failed, said.records)),
                    short(&expected.map(|e| (e.failed, e.records))),
                ));
            }
        }
    }
    if let Some(missed) = there.find(|next| !cut && !is_dark(&dark, next.path)) {
        return Err(format!("it leaves out {} without a word", text(missed.path)));
    }
    if !failures && rest != all {
        return Err(format!("it says {} and not {}", short(&rest), short(&all)));
    }
    Ok(())
}

/// Whether a path, or the name of a directory's entry, is one of the tree's.
fn known(tree: &Tree, path: &[u8]) -> bool {
    path == b"/" || !path.starts_with(b"/") || tree.contains_key(path)
}

/// A drive that understands files over a store, on this thread; and how it is asked.
struct FileDrive {
    session: Session<Embedded<AnyStore, Fsr>>,
}

impl FileDrive {
    fn new(store: AnyStore, config: nearside_fsr::Config) -> FileDrive {
        let clock = TscClock::new();
        let driver = DriverConfig { timeout_ms: TIMEOUT_MS, ..DriverConfig::default() };
        let options = Options { depth: 2 * TOGETHER as u16, driver, ..Options::default() };
        let drive = Embedded::start(store, Fsr::new(Arc::new(clock), config), &options).unwrap();
        FileDrive { session: Session::new(drive, Arc::new(clock)).with_buffer(BUFFER) }
    }

    /// Trees asked by root one after the other through the session; the rest together.
    fn ask_all(&mut self, questions: &[Question]) -> Vec<Answered> {
        let alone = questions
            .iter()
            .take_while(|q| q.uid == 0 && matches!(q.ask.target, Target::Tree { .. }))
            .count();
        let mut answers: Vec<_> = questions[..alone].iter().map(|q| self.ask(&q.ask)).collect();
        answers.extend(self.together(&questions[alone..]));
        answers
    }

    fn ask(&mut self, ask: &Ask) -> Answered {
        let mut records = Vec::new();
        let ended = self.session.stream(ask, |record| {
            records.push(record.into_owned());
            ControlFlow::Continue(())
        });
        match ended {
            Ok(_) => Answered { records, end: Ok(()) },
            Err(Error::Refused(status)) => Answered { records, end: Err(status) },
            Err(error) => panic!("{ask:?}: {error}"),
        }
    }

    fn together(&mut self, questions: &[Question]) -> Vec<Answered> {
        let initiator = self.session.transport_mut().transport().initiator();
        let mut waiting: VecDeque<usize> = (0..questions.len()).collect();
        let mut requests: Vec<Request> = questions.iter().map(Question::request).collect();
        let mut answers = vec![Answered { records: Vec::new(), end: Ok(()) }; questions.len()];
        let mut out: VecDeque<(usize, Handle)> = VecDeque::new();
        loop {
            while out.len() < TOGETHER
                && let Some(at) = waiting.pop_front()
            {
                let bytes = wire::encode_request(&requests[at]);
                let mut buffer = initiator.buffer(BUFFER).unwrap();
                buffer.write(0, &bytes);
                let command = Command::near_data(1, bytes.len() as u32, &buffer);
                out.push_back((at, initiator.submit(&command, Some(buffer)).unwrap()));
            }
            let Some((at, handle)) = out.pop_front() else { return answers };
            let Finished { outcome, buffer, .. } = initiator.wait(handle);
            let len = outcome.unwrap_or_else(|e| panic!("{}: {e}", questions[at]));
            let mut bytes = vec![0; len as u32 as usize];
            buffer.unwrap().read(0, &mut bytes);
            let reply = wire::decode_reply(&bytes).unwrap();
            let answer = &mut answers[at];
            let nothing = reply.records.is_empty();
            answer.records.extend(reply.records.into_iter().map(Record::into_owned));
            if let Some(failure) = reply.failure {
                answer.end = Err(failure);
            } else if let Some(more) = reply.more {
                let resume = &mut requests[at].resume;
                assert!(!nothing || resume.as_ref() != Some(&more), "{} stands still", questions[at]);
                *resume = Some(more);
                waiting.push_front(at);
            }
        }
    }
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = match &self.ask.target {
            Target::Path(path) => String::from_utf8_lossy(path),
            _ => "the whole tree".into(),
        };
        write!(f, "{path:?}, {:?} for user {}", self.ask.operation, self.uid)
    }
}

impl Question {
    fn request(&self) -> Request {
        let credentials = Credentials { uid: self.uid, gid: self.uid, groups: Vec::new() };
        let Ask { target, operation, follow } = self.ask.clone();
        Request { partition: 0, credentials, target, operation, follow, resume: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_asked() {
        let file = Node {
            kind: FileKind::Regular,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 1,
            links: 1,
            mtime_ns: 0,
            rdev: (0, 0),
            sectors: 8,
            content: None,
            target: None,
        };
        let questions = questions(&Tree::from([(b"/file".to_vec(), file)]));
        let asked = questions.iter().fold(0, |bits, question| bits | 1 << question.ask.operation.number());
        assert_eq!(asked, wire::OPERATIONS);
    }
}
