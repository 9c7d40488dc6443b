//! From the volume to a destination: trees directory by directory, files by their ranges.
//!
//! Of an image, the small files of a directory are written from where the page cache has them, which one
//! command asks for ([`Copy::lent`]). Else small ranges are asked for many at a time ([`Drive::ask_each`])
//! and large ones one after the other, as `cat` does it: handed on by the kernel ([`hand_on`]), or read
//! ([`Drive::ask`]). Of a file with holes the drive says first where its bytes lie. One file is written at a
//! time; what is read, by a thread beside the one that reads ([`behind`]).

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::thread;

use nearside_dma::LentBytes;
use nearside_fsrlib::{
    Ask, EXTENT_INLINE, EXTENT_ZEROS, Failure as Refusal, FileEntry, InAll, Operation, Record, Seen, Target,
};
use serde_json::{Value, json};

use super::attributes::{self, Taking, Which};
use super::{Destination, Done, How, Item, Range, Trouble};
use crate::drive::{Drive, of_file, stored};
use crate::failure::{Failure, complain_about, complain_of};
use crate::format;
use crate::hand_on::{Piece, hand_on, is_cut};
use crate::mounted::join;
use crate::out::Out;
use crate::parts::parent;
use crate::progress::Progress;
use crate::terminal;

/// Bytes that are asked for together with others, and such questions together.
const SMALL: u64 = 512 << 10;
const TOGETHER: usize = 1024;
/// So few questions are not worth a thread.
const FEW: usize = 4;
/// Records, and bytes of files in them, that are handed over at a time; and how often that is done ahead.
const SOME: (usize, usize) = (16, 64 << 10);
const AHEAD: usize = 16;
/// A file with holes, of more bytes than this, is asked where they are.
const MAPPED: u64 = 4096;

/// A copy under way.
pub struct Copy {
    pub drive: Drive,
    pub how: How,
    writing: Writing,
    /// Directories of this source that were gone into.
    entered: HashSet<u64>,
    /// Of several sources, where each goes, and its path.
    sources: HashSet<(Vec<u8>, Vec<u8>)>,
    /// And where all went that is in them.
    taken: HashSet<Vec<u8>>,
}

/// What comes of it.
#[derive(Clone, Copy, Default)]
struct Counts {
    files: u64,
    directories: u64,
    symbolic_links: u64,
    hard_links: u64,
    special: u64,
    bytes: u64,
    /// Bytes that the kernel handed on, which the drive did not read.
    handed_on: u64,
    skipped: u64,
    failed: u64,
}

/// All but the drive.
struct Writing {
    counts: Counts,
    /// How far it has come, for whoever shows progress.
    far: Arc<Seen>,
    /// Where a file of several names went; `None`: it did not arrive.
    links: HashMap<u64, Option<Vec<u8>>>,
    /// Whether each is said.
    verbose: bool,
    /// The file whose bytes come, by its place, and how it goes.
    at: usize,
    now: Now,
}

/// How it goes with one file.
#[derive(Default)]
struct Now {
    begun: bool,
    failed: bool,
    bytes: u64,
    handed_on: u64,
}

/// A regular file, and which of its bytes are to be read.
struct File {
    item: Item,
    ranges: Vec<Range>,
}

impl File {
    /// Whether all of its bytes are to be read, by one range.
    fn is_whole(&self) -> bool {
        matches!(self.ranges[..], [Range { offset: 0, len }] if len == self.item.entry.size)
    }
}

/// Bytes of a file that are to be written.
enum Bytes {
    /// Where they lie.
    Lent(Pieces),
    /// They are asked for.
    Asked(Range),
}

impl Bytes {
    fn is_lent(&self) -> bool {
        matches!(self, Bytes::Lent(_))
    }
}

/// Bytes of a file, and where in it they are.
type Pieces = Vec<(u64, LentBytes)>;

/// Where the bytes of a file lie in the page cache, as far as the drive has said where they lie in the image.
#[derive(Default)]
struct Lent {
    size: u64,
    pieces: Pieces,
    /// How far it is known, and whether something is not there.
    at: u64,
    lacks: bool,
}

impl Lent {
    fn take(&mut self, image: &nearside_store::File, record: &Record<'_>) {
        match *record {
            Record::Extent { from, len, offset } if from == self.at && offset != EXTENT_INLINE => {
                let len = len.min(self.size.saturating_sub(from));
                self.at += len;
                if offset != EXTENT_ZEROS {
                    let lent = usize::try_from(len).ok().and_then(|len| image.lend(offset, len));
                    self.lacks |= lent.is_none();
                    self.pieces.extend(lent.map(|lent| (from, lent)));
                }
            }
            _ => self.lacks = true,
        }
    }

    /// The pieces of a file of so many bytes, where all are there.
    fn of(self, size: u64) -> Option<Pieces> {
        (!self.lacks && self.size == size && self.at == size).then_some(self.pieces)
    }
}

/// What there is to do in a directory.
#[derive(Default)]
struct Plan {
    files: Vec<File>,
    /// Further names of files that come before.
    links: Vec<Item>,
}

enum Step {
    Enter(Item),
    Leave(Item),
}

/// Has `read` put what it reads, each with its bytes, into a queue, which another thread takes to `write`;
/// where a few are all, without.
fn behind<T: Send>(
    few: bool,
    read: impl FnOnce(&mut dyn FnMut(T, usize) -> Result<(), Failure>) -> Result<(), Failure>,
    mut write: impl FnMut(T) -> Result<(), Failure> + Send,
) -> Result<(), Failure> {
    if few {
        return read(&mut |one, _| write(one));
    }
    thread::scope(|scope| {
        let (queue, taken) = sync_channel::<Vec<T>>(AHEAD);
        let writer = scope.spawn(move || taken.into_iter().flatten().try_for_each(&mut write));
        let (mut some, mut bytes) = (Vec::new(), 0);
        // Where nobody takes any more, who wrote says why.
        let send = |some: &mut Vec<T>| queue.send(std::mem::take(some)).map_err(|_| Failure::Pipe);
        let read = read(&mut |one, of_it| {
            some.push(one);
            bytes += of_it;
            if some.len() < SOME.0 && bytes < SOME.1 {
                return Ok(());
            }
            bytes = 0;
            send(&mut some)
        });
        let read = read.and_then(|()| send(&mut some));
        drop(queue);
        writer.join().unwrap_or_else(|panic| resume_unwind(panic)).and(read)
    })
}

/// Bytes of a file that a record brings.
fn data_of(record: &Result<Record<'_>, Refusal>) -> usize {
    if let Ok(Record::Data { bytes, .. }) = record { bytes.len() } else { 0 }
}

/// Whether a directory can have that name: what another drive says is not taken for granted.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

impl Copy {
    /// Nothing is copied yet.
    pub fn new(drive: Drive, how: How) -> Copy {
        let far = Arc::<Seen>::default();
        let drive = drive.with_progress(Progress::of("copied", far.clone()));
        let writing = Writing {
            counts: Counts::default(),
            far,
            links: HashMap::new(),
            verbose: how.verbose,
            at: 0,
            now: Now::default(),
        };
        let (entered, sources, taken) = (HashSet::new(), HashSet::new(), HashSet::new());
        Copy { drive, how, writing, entered, sources, taken }
    }

    /// What is to be copied: how much that is, is known, or where a directory is among it counted meanwhile.
    pub fn expect(&mut self, found: &[(Vec<u8>, FileEntry<'static>)]) -> Result<(), Failure> {
        let How { recursive, follow, all, .. } = self.how;
        // Where links are kept, a file of several names is read once.
        let mut read = all.then(HashSet::new);
        let mut bytes = move |entry: &FileEntry<'_>| {
            let again = entry.links > 1 && read.as_mut().is_some_and(|read| !read.insert(entry.ino));
            if again { 0 } else { stored(entry) }
        };
        let far = self.writing.far.clone();
        if recursive && found.iter().any(|(_, entry)| format::is_directory(entry.mode)) {
            let ask = |path: &[u8]| Ask { follow, ..Ask::tree(path, Operation::Stat) };
            let asks = found.iter().map(|(path, _)| ask(path)).collect();
            return self.drive.count(asks, far, bytes);
        }
        let files = found.iter().map(|(_, entry)| of_file(entry, &mut bytes));
        far.begin(InAll::Bytes(files.fold(0, u64::saturating_add)));
        Ok(())
    }

    /// Says what is wrong, and counts it.
    pub fn failed(&mut self, path: &[u8], why: &str) {
        self.writing.failed(path, why);
    }

    /// So many failed more, which was said.
    pub fn add_failed(&mut self, n: u64) {
        self.writing.counts.failed += n;
    }

    /// The exit status.
    pub fn code(&self) -> u8 {
        u8::from(self.writing.counts.failed > 0)
    }

    /// What was copied, for programs.
    pub fn summary(&self) -> Value {
        let counts = self.writing.counts;
        let Counts { files, directories, symbolic_links, hard_links, special, .. } = counts;
        let Counts { bytes, handed_on, skipped, failed, .. } = counts;
        json!({
            "type": "copied",
            "files": files,
            "directories": directories,
            "symbolic_links": symbolic_links,
            "hard_links": hard_links,
            "special": special,
            "bytes": bytes,
            "handed_on": handed_on,
            "skipped": skipped,
            "failed": failed,
        })
    }

    /// The drive, at the end.
    pub fn into_drive(self) -> Drive {
        self.drive
    }

    /// Copies what one path of the command line names.
    pub fn source(&mut self, to: &mut dyn Destination, item: Item) -> Result<(), Failure> {
        self.entered.clear();
        let directory = format::is_directory(item.entry.mode);
        if directory && !self.how.recursive {
            self.failed(&item.from, "Is a directory (-r copies it)");
            return Ok(());
        }
        // Two names of one file are two sources, of which the second finds its place taken.
        let names = item.from.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        let path = names.collect::<Vec<_>>().join(&b'/');
        if self.how.several && !self.sources.insert((item.to.clone(), path)) {
            complain_about(&item.from, "warning: specified more than once");
            return Ok(());
        }
        if !directory {
            let mut plan = Plan::default();
            self.plan(to, item, &mut plan)?;
            return self.files(to, plan);
        }
        let mut steps = vec![Step::Enter(item)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Enter(item) => self.enter(to, item, &mut steps)?,
                Step::Leave(mut item) => {
                    if to.ends_directories() {
                        self.attributes(vec![&mut item])?;
                    }
                    let left = to.leave(&item);
                    self.writing.came(to, &item, left)?;
                }
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        to: &mut dyn Destination,
        mut item: Item,
        steps: &mut Vec<Step>,
    ) -> Result<(), Failure> {
        if !self.entered.insert(item.entry.ino) {
            self.failed(&item.from, "A directory that has another name");
            return Ok(());
        }
        if !to.ends_directories() {
            self.attributes(vec![&mut item])?;
        }
        let entered = to.directory(&item);
        item.attributes = Vec::new();
        let made = matches!(entered, Ok(true));
        if !self.writing.came(to, &item, entered.map(drop))? {
            return Ok(());
        }
        self.writing.counts.directories += 1;
        if made {
            self.writing.say(to, &item)?;
        }
        let (mut plan, mut directories) = (Plan::default(), Vec::new());
        for below in self.list(&item)? {
            match format::is_directory(below.entry.mode) {
                true => directories.push(below),
                false => self.plan(to, below, &mut plan)?,
            }
        }
        steps.push(Step::Leave(item));
        steps.extend(directories.into_iter().rev().map(Step::Enter));
        self.files(to, plan)
    }

    /// What is in a directory, in byte order of names.
    fn list(&mut self, item: &Item) -> Result<Vec<Item>, Failure> {
        let ask = Ask {
            target: Target::Path(item.from.clone()),
            operation: Operation::List,
            follow: self.how.follow,
        };
        let mut entries = Vec::new();
        let writing = &mut self.writing;
        let answer = self.drive.ask(&ask, |record| {
            match record {
                Record::Entry(entry) if is_name(&entry.path) => entries.push(entry.into_owned()),
                Record::Entry(entry) => writing.failed(
                    &item.from,
                    &format!("A name that is none: {}", String::from_utf8_lossy(&entry.path).escape_debug()),
                ),
                // The directory may be read, and not searched.
                Record::Name { path, .. } => {
                    writing.refused(&join(&item.from, &path), &Refusal::PermissionDenied);
                }
                Record::Failed { path, failure } => {
                    writing.refused(&join(&item.from, &path), &failure);
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Err(refusal) = answer {
            self.writing.refused(&item.from, &refusal);
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let to = |name: &[u8]| if item.to.is_empty() { name.to_vec() } else { join(&item.to, name) };
        let mut items: Vec<Item> = Vec::with_capacity(entries.len());
        for entry in entries {
            let (from, to) = (join(&item.from, &entry.path), to(&entry.path));
            if items.last().is_some_and(|before| before.to == to) {
                self.failed(&from, "A name that the directory has twice");
                continue;
            }
            items.push(Item::new(from, to, entry));
        }
        Ok(items)
    }

    /// What is no directory: done, or put down to be done.
    fn plan(&mut self, to: &mut dyn Destination, mut item: Item, plan: &mut Plan) -> Result<(), Failure> {
        match to.wants(&item) {
            Ok(true) => {}
            Ok(false) => {
                self.writing.counts.skipped += 1;
                return Ok(());
            }
            Err(trouble) => return self.writing.came(to, &item, Err(trouble)).map(drop),
        }
        if self.how.several && !self.taken.insert(item.to.clone()) {
            self.failed(&item.from, "Another source has taken its place");
            return Ok(());
        }
        if self.how.all && item.entry.links > 1 {
            if self.writing.links.contains_key(&item.entry.ino) {
                plan.links.push(item);
                return Ok(());
            }
            self.writing.links.insert(item.entry.ino, None);
        }
        match format::letter(item.entry.mode) {
            '-' => {
                let ranges = self.ranges(&item)?;
                plan.files.push(File { item, ranges });
            }
            'l' => self.special(to, &mut item)?,
            _ if self.how.all => self.special(to, &mut item)?,
            _ => self.failed(&item.from, "Not a regular file (-a copies it)"),
        }
        Ok(())
    }

    fn special(&mut self, to: &mut dyn Destination, item: &mut Item) -> Result<(), Failure> {
        self.attributes(vec![&mut *item])?;
        let made = to.special(item);
        if self.writing.came(to, item, made)? {
            match item.entry.link {
                Some(_) => self.writing.counts.symbolic_links += 1,
                None => self.writing.counts.special += 1,
            }
            self.writing.arrived(item);
            self.writing.say(to, item)?;
        }
        Ok(())
    }

    /// Which bytes of a file are to be read: all, where it has no holes or the drive does not say where.
    fn ranges(&mut self, item: &Item) -> Result<Vec<Range>, Failure> {
        let size = item.entry.size;
        let mut ranges = vec![Range { offset: 0, len: size }];
        if size <= MAPPED || item.entry.sectors.saturating_mul(512) >= size {
            return Ok(ranges);
        }
        let ask = Ask {
            target: Target::Path(item.from.clone()),
            operation: Operation::Map,
            follow: self.how.follow,
        };
        let (mut data, mut sound) = (Vec::<Range>::new(), true);
        let answer = self.drive.ask(&ask, |record| {
            if let Record::Extent { from, len, offset } = record {
                let len = len.min(size.saturating_sub(from));
                match data.last_mut() {
                    _ if offset == EXTENT_ZEROS || len == 0 => {}
                    Some(last) if last.offset + last.len == from => last.len += len,
                    Some(last) if last.offset + last.len > from => sound = false,
                    _ => data.push(Range { offset: from, len }),
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        // What is wrong with it is said when it is read.
        if answer.is_ok() && sound {
            ranges = data;
        }
        if ranges.is_empty() {
            // Nothing: but that may be read.
            ranges.push(Range { offset: 0, len: 0 });
        }
        Ok(ranges)
    }

    /// Asks for the extended attributes of some items, where they may have any that are copied; how many
    /// bytes came. Whose are not to be had is copied without.
    fn attributes(&mut self, mut items: Vec<&mut Item>) -> Result<usize, Failure> {
        items.retain(|item| self.how.attributes != Which::None && item.entry.attributes);
        if items.is_empty() {
            return Ok(0);
        }
        let ask = |item: &&mut Item| Ask {
            target: Target::Path(item.from.clone()),
            operation: Operation::Attributes,
            follow: self.how.follow,
        };
        let asks: Vec<Ask> = items.iter().map(ask).collect();
        let mut taking: Vec<Taking> = items.iter().map(|_| Taking::default()).collect();
        let mut from = 0;
        while from < asks.len() {
            // Of one of which too much comes the rest is not asked for.
            let ended = self.drive.ask_each_until(&asks[from..], |place, answer| {
                Ok(taking[from + place].take(answer).map_break(|()| place))
            })?;
            from = ended.map_or(asks.len(), |place| from + place + 1);
        }
        let mut bytes = 0usize;
        for (item, taken) in items.into_iter().zip(taking) {
            match taken.finish(self.how.attributes) {
                Ok((all, len)) => {
                    item.attributes = all;
                    bytes = bytes.saturating_add(len);
                }
                Err(why) => {
                    item.withheld = true;
                    self.failed(&item.from, &why);
                }
            }
        }
        Ok(bytes)
    }

    /// How many of the files are copied next: those whose attributes take little memory together.
    fn group(&mut self, files: &mut [File]) -> Result<usize, Failure> {
        let (mut group, mut bytes) = (0, 0usize);
        for some in files.chunks_mut(attributes::TOGETHER) {
            group += some.len();
            bytes =
                bytes.saturating_add(self.attributes(some.iter_mut().map(|file| &mut file.item).collect())?);
            if bytes > attributes::KEPT {
                break;
            }
        }
        Ok(group)
    }

    fn files(&mut self, to: &mut dyn Destination, plan: Plan) -> Result<(), Failure> {
        let Plan { mut files, links } = plan;
        let all = files.len();
        let mut rest = &mut files[..];
        while !rest.is_empty() {
            let group = self.group(rest)?;
            let (group, after) = std::mem::take(&mut rest).split_at_mut(group);
            self.contents(to, group, group.len() == all)?;
            group.iter_mut().for_each(|file| file.item.attributes = Vec::new());
            rest = after;
        }
        for item in links {
            match self.writing.links.get(&item.entry.ino).cloned().flatten() {
                Some(first) => {
                    let linked = to.hard_link(&item, &first);
                    if self.writing.came(to, &item, linked)? {
                        self.writing.counts.hard_links += 1;
                        self.writing.say(to, &item)?;
                    }
                }
                None => self.failed(&item.from, "Another name of a file that was not copied"),
            }
        }
        Ok(())
    }

    /// Copies these of a directory's files, or all of them.
    fn contents(&mut self, to: &mut dyn Destination, files: &[File], are_all: bool) -> Result<(), Failure> {
        self.writing.at = 0;
        let mut lent = if are_all { self.lent(files)? } else { HashMap::new() };
        let mut small = Vec::new();
        for (nth, file) in files.iter().enumerate() {
            if let Some(pieces) = lent.remove(&nth) {
                small.push((nth, Bytes::Lent(pieces)));
                continue;
            }
            let mut at = 0;
            if to.takes_pieces() && file.ranges.iter().any(|range| range.len > SMALL) {
                self.small(to, files, &mut small)?;
                at = self.hand_on(to, files, nth)?;
            }
            for range in file.ranges.iter().filter_map(|range| range.from(at)) {
                if range.len > SMALL || small.len() >= TOGETHER {
                    self.small(to, files, &mut small)?;
                }
                match range.len > SMALL {
                    true => self.large(to, files, nth, range)?,
                    false => small.push((nth, Bytes::Asked(range))),
                }
            }
        }
        self.small(to, files, &mut small)?;
        self.writing.turn_to(to, files, files.len())
    }

    /// Where the page cache has the bytes of small files, all those of a directory, by their places; of those
    /// that it has as a whole, where the image lends them.
    fn lent(&mut self, files: &[File]) -> Result<HashMap<usize, Pieces>, Failure> {
        let mut all = HashMap::new();
        // One alone is a source of its own, and no directory's.
        let [first, _, ..] = files else { return Ok(all) };
        let Some(image) = self.drive.image().filter(|_| files.len() <= TOGETHER) else { return Ok(all) };
        let root = parent(&first.item.from).to_vec();
        let small = |file: &File| file.is_whole() && file.item.entry.size <= SMALL;
        let names = files.iter().enumerate().filter(|(_, file)| small(file));
        let places: HashMap<&[u8], usize> = names.map(|(nth, file)| (&file.item.from[..], nth)).collect();
        let target = Target::Tree { root, include: vec![], exclude: vec![], max_depth: 1 };
        let ask = Ask { target, operation: Operation::Map, follow: false };
        let mut now: Option<(usize, Lent)> = None;
        let mut ended = |now: Option<(usize, Lent)>| {
            let whole = now.and_then(|(nth, lent)| Some((nth, lent.of(files[nth].item.entry.size)?)));
            all.extend(whole);
        };
        // What is refused is said when it is read.
        let _refused = self.drive.ask(&ask, |record| {
            if let Record::File { path, size } = &record {
                let lent = Lent { size: *size, ..Lent::default() };
                ended(std::mem::replace(&mut now, places.get(&path[..]).map(|nth| (*nth, lent))));
            } else if let Some((_, lent)) = &mut now {
                lent.take(&image, &record);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        ended(now);
        Ok(all)
    }

    /// Has the kernel hand a file on from its begin, as far as that goes; to where it went.
    fn hand_on(&mut self, to: &mut dyn Destination, files: &[File], nth: usize) -> Result<u64, Failure> {
        let File { item, ranges } = &files[nth];
        let (target, writing) = (Target::Path(item.from.clone()), &mut self.writing);
        let at =
            hand_on(&mut self.drive, target, self.how.follow, (0, item.entry.size, 0), |at, len, piece| {
                writing.hand_on(to, files, nth, (at, len), piece)
            })?;
        // Of the bytes that are to come these have, whatever was handed on of holes between them.
        self.writing.now.bytes += ranges.iter().map(|range| range.before(at)).sum::<u64>();
        Ok(at)
    }

    fn read(&self, file: &File, range: Range) -> Ask {
        let Range { offset, len } = range;
        let operation = Operation::Read { offset, len };
        Ask { target: Target::Path(file.item.from.clone()), operation, follow: self.how.follow }
    }

    /// Bytes of files, in order: those that are asked for, are together.
    fn small(
        &mut self,
        to: &mut dyn Destination,
        files: &[File],
        bytes: &mut Vec<(usize, Bytes)>,
    ) -> Result<(), Failure> {
        let mut bytes = std::mem::take(bytes).into_iter().peekable();
        let image = self.drive.image();
        while bytes.peek().is_some() {
            while let Some((nth, Bytes::Lent(pieces))) = bytes.next_if(|(_, one)| one.is_lent()) {
                self.writing.lent(to, files, nth, image.as_ref(), pieces)?;
            }
            let mut ranges = Vec::new();
            while let Some((nth, Bytes::Asked(range))) = bytes.next_if(|(_, one)| !one.is_lent()) {
                ranges.push((nth, range));
            }
            self.asked(to, files, &ranges)?;
        }
        Ok(())
    }

    fn asked(
        &mut self,
        to: &mut dyn Destination,
        files: &[File],
        ranges: &[(usize, Range)],
    ) -> Result<(), Failure> {
        let asks: Vec<Ask> = ranges.iter().map(|(nth, range)| self.read(&files[*nth], *range)).collect();
        let Copy { drive, writing, .. } = self;
        let read = |put: &mut dyn FnMut(_, _) -> _| {
            drive.ask_each(&asks, |place, answer| {
                let bytes = data_of(&answer);
                put((ranges[place].0, answer.map(Record::into_owned)), bytes)
            })
        };
        behind(asks.len() <= FEW, read, |(nth, answer)| writing.take(to, files, nth, answer))
    }

    fn large(
        &mut self,
        to: &mut dyn Destination,
        files: &[File],
        nth: usize,
        range: Range,
    ) -> Result<(), Failure> {
        let ask = self.read(&files[nth], range);
        let Copy { drive, writing, .. } = self;
        // Of one that cannot be written the rest is not read.
        let failed = AtomicBool::new(false);
        let read = |put: &mut dyn FnMut(Result<Record<'static>, Refusal>, usize) -> Result<(), Failure>| {
            let answer = drive.ask(&ask, |record| {
                let record = Ok(record);
                let bytes = data_of(&record);
                put(record.map(Record::into_owned), bytes)?;
                Ok(if failed.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            answer.or_else(|refusal| put(Err(refusal), 0))
        };
        behind(false, read, |answer| {
            writing.take(to, files, nth, answer)?;
            failed.store(writing.now.failed, Relaxed);
            Ok(())
        })
    }
}

impl Writing {
    fn failed(&mut self, path: &[u8], why: &str) {
        self.counts.failed += 1;
        complain_about(path, why);
    }

    fn refused(&mut self, path: &[u8], refusal: &Refusal) {
        self.counts.failed += 1;
        complain_of(path, refusal);
    }

    /// Whether it went well; what did not is said of the destination.
    fn came(&mut self, to: &dyn Destination, item: &Item, done: Done) -> Result<bool, Failure> {
        match done {
            Ok(()) => Ok(true),
            Err(Trouble::Item(why)) => {
                self.failed(&to.shown(item), &why);
                Ok(false)
            }
            Err(Trouble::Command(failure)) => Err(failure),
        }
    }

    fn arrived(&mut self, item: &Item) {
        if let Some(first) = self.links.get_mut(&item.entry.ino) {
            *first = Some(item.to.clone());
        }
    }

    /// `'/etc/passwd' -> './passwd'`, as cp has it.
    fn say(&self, to: &dyn Destination, item: &Item) -> Result<(), Failure> {
        use std::io::Write;
        if !self.verbose {
            return Ok(());
        }
        let mut out = Out::new();
        let quoted = |name: &[u8]| match terminal::quoted(name) {
            plain if *plain == *name => [b"'", name, b"'"].concat(),
            quoted => quoted.into_owned(),
        };
        out.line(&[quoted(&item.from), b" -> ".to_vec(), quoted(&to.shown(item))].concat())?;
        Ok(out.flush()?)
    }

    /// What comes of one of the files, which come in their order.
    fn take(
        &mut self,
        to: &mut dyn Destination,
        files: &[File],
        nth: usize,
        answer: Result<Record<'_>, Refusal>,
    ) -> Result<(), Failure> {
        self.turn_to(to, files, nth)?;
        let File { item, ranges } = &files[nth];
        if self.now.failed {
            return Ok(());
        }
        if let Ok(Record::File { .. } | Record::Data { .. }) = answer {
            self.begin(to, &files[nth])?;
        }
        match answer {
            Ok(Record::Data { offset, bytes }) if self.now.begun => {
                let within = |range: &&Range| {
                    let end = offset.saturating_add(bytes.len() as u64);
                    range.offset <= offset && end <= range.offset.saturating_add(range.len)
                };
                let written = match ranges.iter().find(within) {
                    Some(_) => to.write(offset, &bytes),
                    None => Err(Trouble::Item("The drive gives bytes that nobody asked for".into())),
                };
                self.now.failed = !self.came(to, item, written)?;
                self.now.bytes += bytes.len() as u64;
                self.far.add(0, bytes.len() as u64);
            }
            Ok(Record::Failed { failure, .. }) | Err(failure) => {
                self.now.failed = true;
                self.refused(&item.from, &failure);
            }
            Ok(_) => {}
        }
        Ok(())
    }

    /// A file whose bytes lie there.
    fn lent(
        &mut self,
        to: &mut dyn Destination,
        files: &[File],
        nth: usize,
        image: Option<&nearside_store::File>,
        pieces: Pieces,
    ) -> Result<(), Failure> {
        self.turn_to(to, files, nth)?;
        self.begin(to, &files[nth])?;
        let item = &files[nth].item;
        let mut written = Ok(());
        for (offset, bytes) in &pieces {
            if !self.now.failed && written.is_ok() {
                written = to.write(*offset, bytes.as_ref());
                self.now.handed_on += bytes.as_ref().len() as u64;
            }
        }
        // What lies between them is zeros.
        self.now.bytes += item.entry.size;
        self.far.add(0, item.entry.size);
        // The kernel says that a page is gone before it has taken those behind it away.
        let gone = image.filter(|image| image.has_lapsed() || written.is_err() && is_cut(image));
        match (written, gone) {
            // Bytes that are gone cannot be written either: that is not the destination's fault.
            (Ok(()) | Err(Trouble::Item(_)), Some(image)) if !self.now.failed => {
                self.now.failed = true;
                let why = format!("the file has become shorter ({})", image.path().display());
                self.refused(&item.from, &Refusal::MediumError(why));
            }
            (written, _) => {
                let came = self.came(to, item, written)?;
                self.now.failed |= !came;
            }
        }
        Ok(())
    }

    /// Begins a file, where it is not begun.
    fn begin(&mut self, to: &mut dyn Destination, File { item, ranges }: &File) -> Result<(), Failure> {
        if !self.now.begun {
            let begun = to.begin(item, ranges);
            self.now.begun = self.came(to, item, begun)?;
            self.now.failed = !self.now.begun;
            if self.now.begun {
                self.say(to, item)?;
            }
        }
        Ok(())
    }

    /// Has the kernel hand on a piece of the `nth` file; how many of its bytes it has.
    fn hand_on(
        &mut self,
        to: &mut dyn Destination,
        files: &[File],
        nth: usize,
        (offset, len): (u64, usize),
        piece: Piece<'_>,
    ) -> Result<usize, Failure> {
        self.turn_to(to, files, nth)?;
        self.begin(to, &files[nth])?;
        if self.now.failed {
            return Ok(0);
        }
        let is_image = matches!(piece, Piece::Image(..));
        let handed = to.hand_on(offset, len, piece);
        if is_image {
            self.now.handed_on += handed as u64;
            self.far.add(0, handed as u64);
        }
        Ok(handed)
    }

    /// Ends the files before the `nth`.
    fn turn_to(&mut self, to: &mut dyn Destination, files: &[File], nth: usize) -> Result<(), Failure> {
        while self.at < nth {
            let File { item, ranges } = &files[self.at];
            self.at += 1;
            let Now { begun, mut failed, bytes, handed_on } = std::mem::take(&mut self.now);
            if !failed && bytes != ranges.iter().map(|range| range.len).sum::<u64>() {
                failed = true;
                self.refused(&item.from, &Refusal::ChangedDuringScan);
            }
            if !begun {
                continue;
            }
            let ended = to.end(item, !failed);
            if self.came(to, item, ended)? && !failed {
                self.counts.files += 1;
                self.counts.bytes += item.entry.size;
                self.counts.handed_on += handed_on;
                self.far.add(1, 0);
                self.arrived(item);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for name in [&b"a"[..], b"...", b"\xff", b"-rf", b"a\\b"] {
            assert!(is_name(name), "{name:?}");
        }
        for name in [&b""[..], b".", b"..", b"/", b"../x", b"a/b", b"a\0"] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
