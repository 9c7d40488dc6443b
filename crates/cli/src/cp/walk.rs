//! From the volume to a destination: trees directory by directory, files by their ranges.
//!
//! Of a directory's files, small ranges are asked for many at a time ([`Drive::ask_each`]) and large ones one
//! after the other, as `cat` does it: handed on by the kernel ([`hand_on`]), or read ([`Drive::ask`]). Of a
//! file with holes the drive says first where its bytes lie. One file is written at a time.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use nearside_fsrlib::{Ask, EXTENT_ZEROS, Failure as Refusal, FileEntry, Operation, Record, Seen, Target};
use serde_json::{Value, json};

use super::attributes::{self, Taking, Which};
use super::{Destination, Done, How, Item, Range, Trouble};
use crate::drive::{Drive, of_file, stored};
use crate::failure::{Failure, complain_about, complain_of};
use crate::format;
use crate::hand_on::{Piece, hand_on};
use crate::mounted::join;
use crate::out::Out;
use crate::progress::Progress;
use crate::terminal;

/// Bytes that are asked for together with others, and such questions together.
const SMALL: u64 = 512 << 10;
const TOGETHER: usize = 1024;
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
    out: Option<Out>,
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
            out: how.verbose.then(Out::new),
            at: 0,
            now: Now::default(),
        };
        let (entered, sources, taken) = (HashSet::new(), HashSet::new(), HashSet::new());
        Copy { drive, how, writing, entered, sources, taken }
    }

    /// What is to be copied: how much that is, is known, or where a directory is among it counted meanwhile.
    pub fn expect(&mut self, found: &[(Vec<u8>, FileEntry<'static>)]) {
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
            self.drive.count(asks, far, bytes);
        } else {
            let files = found.iter().map(|(_, entry)| of_file(entry, &mut bytes));
            far.begin(files.fold(0, u64::saturating_add));
        }
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
        let mut rest = &mut files[..];
        while !rest.is_empty() {
            let group = self.group(rest)?;
            let (group, after) = std::mem::take(&mut rest).split_at_mut(group);
            self.contents(to, group)?;
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

    fn contents(&mut self, to: &mut dyn Destination, files: &[File]) -> Result<(), Failure> {
        self.writing.at = 0;
        let mut small = Vec::new();
        for (nth, file) in files.iter().enumerate() {
            let mut at = 0;
            if to.takes_pieces() && file.ranges.iter().any(|range| range.len > SMALL) {
                self.small(to, files, &mut small)?;
                at = self.hand_on(to, files, nth)?;
            }
            for range in file.ranges.iter().filter_map(|range| range.from(at)) {
                if range.len > SMALL || small.len() == TOGETHER {
                    self.small(to, files, &mut small)?;
                }
                match range.len > SMALL {
                    true => self.large(to, files, nth, range)?,
                    false => small.push((nth, range)),
                }
            }
        }
        self.small(to, files, &mut small)?;
        self.writing.turn_to(to, files, files.len())
    }

    /// Has the kernel hand a file on from its begin, as far as that goes; to where it went.
    fn hand_on(&mut self, to: &mut dyn Destination, files: &[File], nth: usize) -> Result<u64, Failure> {
        let File { item, ranges } = &files[nth];
        let (target, writing) = (Target::Path(item.from.clone()), &mut self.writing);
        let at = hand_on(&mut self.drive, target, self.how.follow, 0, item.entry.size, |at, len, piece| {
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

    /// Ranges of files, in order, asked for together.
    fn small(
        &mut self,
        to: &mut dyn Destination,
        files: &[File],
        ranges: &mut Vec<(usize, Range)>,
    ) -> Result<(), Failure> {
        let ranges = std::mem::take(ranges);
        let asks: Vec<Ask> = ranges.iter().map(|(nth, range)| self.read(&files[*nth], *range)).collect();
        let writing = &mut self.writing;
        self.drive.ask_each(&asks, |place, answer| writing.take(to, files, ranges[place].0, answer))
    }

    fn large(
        &mut self,
        to: &mut dyn Destination,
        files: &[File],
        nth: usize,
        range: Range,
    ) -> Result<(), Failure> {
        let ask = self.read(&files[nth], range);
        let writing = &mut self.writing;
        let answer = self.drive.ask(&ask, |record| {
            writing.take(to, files, nth, Ok(record))?;
            // Of one that cannot be written the rest is not read.
            Ok(if writing.now.failed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        match answer {
            Ok(()) => Ok(()),
            Err(refusal) => self.writing.take(to, files, nth, Err(refusal)),
        }
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
    fn say(&mut self, to: &dyn Destination, item: &Item) -> Result<(), Failure> {
        use std::io::Write;
        let Some(out) = &mut self.out else { return Ok(()) };
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
