//! The walk through a tree or over a glob's matches, from a cursor on.
//!
//! It keeps one frame for each directory on the way down. A directory of at most [`BY_NAME`] bytes is listed
//! whole and visited in byte order of names. A larger one is visited in its own order, a block's names at a
//! time, each at a *place* that stays what it is while others come and go (`fsview::DirCursor`): so its size
//! costs neither memory nor time before its first entry, and no block of it is read twice but the one in
//! which an answer ends. A cursor has the path, and for each directory on it the place.
//!
//! All frames together keep at most [`MOST_NAMES`] names: where there are more, parents read theirs again
//! when the walk comes back to them.

use nearside_fsview::{DirCursor, DirEntry, FileKind, Ino, Inode, Name};
use nearside_near_data::{Failure, MAX_PATH};

use crate::crawler::{Crawler, Found};
use crate::media::Media;
use crate::model::of_view;
use crate::monitor::Deps;
use crate::tree::{Filter, Pace};

/// Names kept at a time.
const MOST_NAMES: usize = 1 << 16;
/// A directory of so many bytes or fewer is visited in byte order of names.
const BY_NAME: u64 = 128 << 10;

/// A directory that is being visited.
struct Frame {
    dir: Found,
    /// Whether names may be looked up in it: without that they are all that is to be had.
    searchable: bool,
    /// Length of the directory's path.
    path_len: usize,
    /// Names still to visit, the next one last.
    names: Vec<DirEntry>,
    /// Of how many of them, the next ones, the inodes need not be read ahead.
    read_ahead: usize,
    /// Whether there are names after those.
    more: bool,
    /// The last name that was visited, and its place: those after it remain.
    last: Option<(u64, Name)>,
    order: Order,
    /// Of what the names were read.
    listing: Listing,
    /// Those that follow cannot be read: it is left when the walk goes on.
    cut: bool,
}

/// In which order a directory's names are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Of their bytes; places are 0.
    Names,
    /// The directory's own; the next block's place.
    Places(DirCursor),
}

/// What the walk came to; its path is [`Walker::path`].
pub(crate) enum Visit {
    /// A file, or a directory where directories are wanted.
    Entry(Found),
    /// A name, and what the directory says that it is: where that is all that is wanted, or the directory may
    /// not be searched. `barred`: it is a directory that the walk would go into and may not.
    Name { kind: Option<FileKind>, barred: bool },
    /// Something that failed.
    Failed(Failure),
    /// The volume changed under the walk: go on with a fresh look at it.
    Again,
}

/// A walk through a tree.
pub(crate) struct Walker {
    filter: Filter,
    directories: bool,
    /// A name and its kind are enough of what is no directory.
    names: bool,
    pub path: Vec<u8>,
    root_len: usize,
    frames: Vec<Frame>,
    /// The path to go on with, relative to the root, where an earlier answer left off.
    resume: Option<Vec<u8>>,
    /// The places of its components, as [`Walker::places`] gave them.
    resume_places: Vec<u64>,
    /// The root, until it was visited.
    root: Option<Found>,
    /// A directory that was visited, to go down into.
    into: Option<Found>,
    /// The one that was could not be read.
    shut: bool,
    kept: usize,
    retries: u32,
}

impl Walker {
    /// Below `root`, which was found at that path. `directories`: they are visited too. `names`: what
    /// directories say of names is enough, files are visited as [`Visit::Name`]. `resume`: a cursor's path
    /// and places.
    pub(crate) fn new(
        path: Vec<u8>,
        root: Found,
        filter: Filter,
        directories: bool,
        names: bool,
        resume: Option<(&[u8], &[u8])>,
    ) -> Self {
        let mut path = path;
        while path.last() == Some(&b'/') {
            path.pop();
        }
        let root_len = path.len();
        let (resume, places) = resume.unzip();
        let resume = resume.map(|r| {
            let below = r.get(root_len..).unwrap_or_default();
            below.strip_prefix(b"/").unwrap_or(below).to_vec()
        });
        Walker {
            filter,
            directories,
            names,
            path,
            root_len,
            frames: Vec::new(),
            resume,
            resume_places: places.map(unpack).unwrap_or_default(),
            root: Some(root),
            into: None,
            shut: false,
            kept: 0,
            retries: 0,
        }
    }

    /// The root itself is not meant, only what is in it.
    pub(crate) fn skip_root(&mut self) {
        self.into = self.root.take();
    }

    /// Whether it is at its root.
    pub(crate) fn at_root(&self) -> bool {
        self.path.len() == self.root_len
    }

    /// The path as an answer shows it.
    pub(crate) fn shown(&self) -> &[u8] {
        if self.path.is_empty() { b"/" } else { &self.path }
    }

    /// For a cursor: the path; or, where that is a directory's which was visited and could not be gone down
    /// into, a place behind it and before all that is in it; or, of one that cannot be read to its end, a
    /// place right behind the last name that was read.
    pub(crate) fn stopped(&self) -> Vec<u8> {
        if let Some(Frame { cut: true, last: Some((_, name)), .. }) = self.frames.last() {
            return [&self.path[..], b"/", name, b"\0"].concat();
        }
        match (self.shut, self.at_root()) {
            (false, _) => self.shown().to_vec(),
            // At the root one slash says nothing.
            (true, true) => [&self.path[..], b"//"].concat(),
            (true, false) => [&self.path[..], b"/"].concat(),
        }
    }

    /// For a cursor: where in their directories the components of the path are, which was visited last.
    pub(crate) fn places(&self, into: &mut Vec<u8>) {
        into.clear();
        // Zeros at the end say nothing.
        let said = self.frames.iter().rposition(|frame| frame.order != Order::Names).map_or(0, |at| at + 1);
        for frame in self.frames.iter().take(said) {
            let place = frame.last.as_ref().map_or(0, |(place, _)| *place);
            pack(if frame.order == Order::Names { 0 } else { place.saturating_add(1) }, into);
        }
    }

    /// Goes on to the next name of the innermost directory, where that is a file's, meant, and all that is to
    /// be had of it: what it is. Then nothing has to be read or waited for.
    pub(crate) fn next_name(&mut self) -> Option<FileKind> {
        let frame = self.frames.last_mut().filter(|frame| frame.searchable)?;
        let DirEntry { name, kind, .. } = frame.names.last()?;
        let kind = kind.filter(|kind| *kind != FileKind::Directory)?;
        let len = frame.path_len + 1 + name.len();
        if !self.names || self.into.is_some() || !self.filter.takes_all() || len > MAX_PATH {
            return None;
        }
        self.path.truncate(frame.path_len);
        self.path.push(b'/');
        self.path.extend_from_slice(name);
        frame.last = frame.names.pop().map(|entry| (entry.place, entry.name));
        self.kept -= 1;
        Some(kind)
    }

    /// Whether the innermost directory has places, which cursors name ([`Walker::places`]).
    pub(crate) fn has_places(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.order != Order::Names)
    }

    /// Goes on; `None` at the end.
    pub(crate) async fn next<M: Media>(&mut self, crawler: &Crawler<'_, M>) -> Option<Visit> {
        self.shut = false;
        if self.frames.last().is_some_and(|frame| frame.cut) {
            self.leave();
        }
        if let Some(root) = self.root.take()
            && let Some(visit) = self.begin(root, crawler).await
        {
            return Some(visit);
        }
        loop {
            if let Some(dir) = self.into.take()
                && let Err(failure) = self.enter(dir.clone(), crawler).await
            {
                if self.should_retry(&failure) {
                    self.into = Some(dir);
                    return Some(Visit::Again);
                }
                self.shut = true;
                return Some(Visit::Failed(failure));
            }
            let frame = self.frames.last_mut()?;
            self.path.truncate(frame.path_len);
            if let Some(entry) = frame.names.pop() {
                self.kept -= 1;
                match self.visit(entry, crawler).await {
                    Some(visit) => return Some(visit),
                    None => continue,
                }
            }
            if frame.more {
                match self.fill(crawler).await {
                    Ok(()) => continue,
                    Err(failure) if self.should_retry(&failure) => return Some(Visit::Again),
                    Err(failure) => {
                        if let Some(frame) = self.frames.last_mut() {
                            frame.cut = true;
                        }
                        return Some(Visit::Failed(failure));
                    }
                }
            }
            self.leave();
        }
    }

    /// The root: visited itself, or gone down into.
    async fn begin<M: Media>(&mut self, root: Found, crawler: &Crawler<'_, M>) -> Option<Visit> {
        if root.inode.kind != FileKind::Directory {
            let name = self.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
            let mut pace = Pace::new(crawler.media);
            let taken = !self.filter.is_glob() && self.filter.takes(name, &mut pace).await;
            return taken.then_some(Visit::Entry(root));
        }
        let resumed = self.resume.as_ref().is_some_and(|r| !r.is_empty());
        if self.filter.max_depth > 0 {
            self.into = Some(root.clone());
        }
        (self.directories && !self.filter.is_glob() && !resumed).then_some(Visit::Entry(root))
    }

    /// An entry of the innermost directory; `None` where it is not meant.
    async fn visit<M: Media>(&mut self, entry: DirEntry, crawler: &Crawler<'_, M>) -> Option<Visit> {
        let DirEntry { name, ino, kind, place } = entry;
        self.path.push(b'/');
        self.path.extend_from_slice(&name);
        let depth = self.frames.len();
        let searchable = self.frames.last().is_some_and(|frame| frame.searchable);
        let below = &self.path[self.root_len + 1..];
        let mut pace = Pace::new(crawler.media);
        if self.filter.prunes(&name, below, depth, &mut pace).await {
            self.visited(place, name);
            crawler.media.yield_now().await;
            return None;
        }
        let taken = self.filter.takes(below, &mut pace).await;
        // Of a tree all are meant, by a glob those that match.
        let taken_directory = self.directories && (taken || !self.filter.is_glob());
        if self.path.len() > MAX_PATH {
            self.visited(place, name);
            return Some(Visit::Failed(Failure::NameTooLong));
        }
        crawler.media.yield_now().await;
        if !searchable {
            self.visited(place, name);
            let directory = kind == Some(FileKind::Directory);
            let barred = directory && (depth as u64) < u64::from(self.filter.max_depth);
            return (taken || directory && taken_directory).then_some(Visit::Name { kind, barred });
        }
        if self.names && kind.is_some_and(|kind| kind != FileKind::Directory) {
            self.visited(place, name);
            return taken.then_some(Visit::Name { kind, barred: false });
        }
        self.read_ahead(ino, crawler).await;
        let found = match self.entry(crawler, ino, &name).await {
            Ok(Some(found)) => found,
            // It was taken away, or renamed, after the names were read.
            Ok(None) => {
                self.visited(place, name);
                return None;
            }
            Err(failure) if self.should_retry(&failure) => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.names.push(DirEntry { name, ino, kind, place });
                    self.kept += 1;
                }
                return Some(Visit::Again);
            }
            Err(failure) => {
                self.visited(place, name);
                return Some(Visit::Failed(failure));
            }
        };
        self.retries = 0;
        self.visited(place, name);
        if found.inode.kind != FileKind::Directory {
            return taken.then_some(Visit::Entry(found));
        }
        if self.frames.iter().any(|f| f.dir.inode.ino == ino) {
            let what = format!("directory {} lies within itself", ino.0);
            return Some(Visit::Failed(Failure::CorruptVolume(what)));
        }
        if (depth as u64) < u64::from(self.filter.max_depth) {
            self.into = Some(found.clone());
        }
        (taken_directory && !self.on_the_way()).then_some(Visit::Entry(found))
    }

    /// The inode of an entry of the innermost directory: of the number that was read with the name, where the
    /// directory is as it was then; else of the one that the name has now. A number may have become
    /// another file's by now, which the way to this name says nothing of.
    async fn entry<M: Media>(
        &mut self,
        crawler: &Crawler<'_, M>,
        ino: Ino,
        name: &[u8],
    ) -> Result<Option<Found>, Failure> {
        let Some(frame) = self.frames.last_mut() else { return Ok(None) };
        let dir = frame.dir.inode.clone();
        if frame.listing.is_of(crawler).await {
            return crawler.inode(ino).await.map(Some);
        }
        same_directory(crawler, &dir).await?;
        match crawler.child(dir.ino, name).await? {
            Some(ino) => crawler.inode(ino).await.map(Some),
            None => Ok(None),
        }
    }

    /// Reads the inode of the innermost directory's entry that is visited, and those of the next ones, where
    /// that is one read.
    async fn read_ahead<M: Media>(&mut self, ino: Ino, crawler: &Crawler<'_, M>) {
        let all = !self.names;
        let Some(frame) = self.frames.last_mut() else { return };
        if frame.read_ahead == 0 {
            let visited = |kind: Option<FileKind>| all || kind.is_none_or(|kind| kind == FileKind::Directory);
            let next = frame.names.iter().rev().filter(|entry| visited(entry.kind)).map(|entry| entry.ino);
            frame.read_ahead = crawler.read_ahead(std::iter::once(ino).chain(next)).await;
        }
        frame.read_ahead -= 1;
    }

    /// Whether an earlier answer showed the entry already, a directory: the resume path lies below it.
    fn on_the_way(&self) -> bool {
        let below = self.path.get(self.root_len + 1..).unwrap_or_default();
        let rest = self.resume.as_ref().and_then(|resume| resume.strip_prefix(below));
        rest.is_some_and(|rest| rest.first() == Some(&b'/'))
    }

    fn visited(&mut self, place: u64, name: Name) {
        if let Some(frame) = self.frames.last_mut() {
            frame.last = Some((place, name));
        }
    }

    /// Whether to try once more.
    fn should_retry(&mut self, failure: &Failure) -> bool {
        self.retries += 1;
        *failure == Failure::ChangedDuringScan && self.retries < 16
    }

    async fn enter<M: Media>(&mut self, dir: Found, crawler: &Crawler<'_, M>) -> Result<(), Failure> {
        crawler.may_read(&dir).await?;
        let searchable = match crawler.may_search(&dir).await {
            Ok(()) => true,
            Err(Failure::PermissionDenied) => false,
            Err(failure) => return Err(failure),
        };
        let path_len = self.path.len();
        let order = match self.goes_on(self.frames.len()) {
            Some((0, _)) => Order::Names,
            Some((place, _)) => Order::Places(DirCursor { place: place - 1 }),
            None if dir.inode.size <= BY_NAME => Order::Names,
            None => Order::Places(DirCursor::default()),
        };
        let names = Vec::new();
        let listing = Listing::default();
        self.frames.push(Frame {
            dir,
            searchable,
            path_len,
            names,
            listing,
            read_ahead: 0,
            more: true,
            last: None,
            order,
            cut: false,
        });
        if let Err(failure) = self.fill(crawler).await {
            self.leave();
            return Err(failure);
        }
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.kept -= frame.names.len();
            self.path.truncate(frame.path_len);
        }
    }

    /// Where the walk goes on in the directory at its path, which lies `depth` levels below the root, where
    /// that is on the resume path: a packed place, and the name there.
    fn goes_on(&self, depth: usize) -> Option<(u64, &[u8])> {
        let resume = self.resume.as_ref()?;
        let here = self.path.get(self.root_len + 1..).unwrap_or_default();
        let rest = if here.is_empty() {
            Some(&resume[..])
        } else {
            resume.strip_prefix(here).and_then(|r| r.strip_prefix(b"/"))
        }?;
        let name = rest.split(|b| *b == b'/').next().filter(|c| !c.is_empty())?;
        Some((self.resume_places.get(depth).copied().unwrap_or(0), name))
    }

    /// Finds the next names of the innermost directory.
    async fn fill<M: Media>(&mut self, crawler: &Crawler<'_, M>) -> Result<(), Failure> {
        let depth = self.frames.len();
        // Not before that name.
        let from = self.goes_on(depth - 1).map(|(place, name)| (place.saturating_sub(1), name.into()));
        let room = MOST_NAMES.saturating_sub(self.kept);
        if room < MOST_NAMES / 16 {
            for frame in &mut self.frames[..depth - 1] {
                self.kept -= frame.names.len();
                frame.more |= !frame.names.is_empty();
                frame.names = Vec::new();
                if let (Order::Places(next), Some((place, _))) = (&mut frame.order, &frame.last) {
                    next.place = *place;
                }
            }
        }
        let room = MOST_NAMES.saturating_sub(self.kept).max(1);
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let after = frame.last.clone();
        let wanted = |entry: &DirEntry| {
            let is = |(place, name): &(u64, Name)| (entry.place, &entry.name).cmp(&(*place, name));
            match (&after, &from) {
                (Some(last), _) => is(last).is_gt(),
                (None, Some(from)) => is(from).is_ge(),
                (None, None) => true,
            }
        };
        let (names, next, listing) = read_names(crawler, &frame.dir.inode, frame.order, wanted, room).await?;
        (frame.names, frame.more, frame.listing) = (names, next.is_some(), listing);
        frame.read_ahead = 0;
        if let (Order::Places(at), Some(next)) = (&mut frame.order, next) {
            *at = next;
        }
        self.kept += frame.names.len();
        Ok(())
    }
}

/// When names were read, and of what.
#[derive(Default)]
struct Listing {
    volume: u32,
    /// The monitor's count of changes up to which they are known to be good.
    changes: u64,
    deps: Deps,
}

impl Listing {
    /// Whether the directory is as it was, in a volume that is at the same state.
    async fn is_of<M: Media>(&mut self, crawler: &Crawler<'_, M>) -> bool {
        let monitor = &crawler.retriever.monitor;
        let now = monitor.changes();
        let holds = self.volume == crawler.volume.id
            && crawler.volume.is_newest()
            && (self.changes == now
                || crawler.volume.holds(monitor, crawler.media).await
                    && monitor.still_holds(&self.deps, crawler.media).await);
        if holds {
            self.changes = now;
        }
        holds
    }
}

/// Refuses to go on with a directory whose number is another's by now.
async fn same_directory<M: Media>(crawler: &Crawler<'_, M>, dir: &Inode) -> Result<Found, Failure> {
    let now = crawler.inode(dir.ino).await?;
    match now.inode.generation == dir.generation && now.inode.kind == FileKind::Directory {
        true => Ok(now),
        false => Err(Failure::ChangedDuringScan),
    }
}

/// The next of the wanted names, the first one last, and where there are more: the first `room` in byte
/// order, or those of a block's worth from a place on.
async fn read_names<M: Media>(
    crawler: &Crawler<'_, M>,
    dir: &Inode,
    order: Order,
    wanted: impl Fn(&DirEntry) -> bool,
    room: usize,
) -> Result<(Vec<DirEntry>, Option<DirCursor>, Listing), Failure> {
    let by_name = order == Order::Names;
    let mut tries = 0;
    loop {
        let changes = crawler.retriever.monitor.changes();
        let dir = same_directory(crawler, dir).await?;
        let view = crawler.view();
        let mut names: Vec<DirEntry> = Vec::new();
        let mut more = false;
        let mut cursor = Some(match order {
            Order::Names => DirCursor::default(),
            Order::Places(at) => at,
        });
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut result = Ok(());
        while let Some(at) = cursor {
            match crawler.volume.volume.read_dir(&view, &dir.inode, at, &mut entries).await {
                Ok(next) => cursor = next,
                Err(error) => {
                    result = Err(of_view(error));
                    break;
                }
            }
            if by_name {
                entries.iter_mut().for_each(|entry| entry.place = 0);
            }
            entries.retain(&wanted);
            names.append(&mut entries);
            if !by_name && !names.is_empty() {
                break;
            }
            if names.len() > room.saturating_mul(2) {
                names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
                names.truncate(room);
                more = true;
            }
            crawler.media.yield_now().await;
        }
        let mut deps = view.into_deps();
        deps.extend(&dir.deps);
        let mut listing = Listing { volume: crawler.volume.id, changes, deps };
        if !listing.is_of(crawler).await {
            let monitor = &crawler.retriever.monitor;
            if !crawler.volume.is_newest() || !crawler.volume.holds(monitor, crawler.media).await {
                // The volume has to be opened again: for who called.
                return Err(Failure::ChangedDuringScan);
            }
        } else {
            result?;
            names.sort_unstable_by(|a, b| (a.place, &a.name).cmp(&(b.place, &b.name)));
            if by_name && names.len() > room {
                names.truncate(room);
                more = true;
            }
            names.reverse();
            return Ok((names, if by_name { more.then(DirCursor::default) } else { cursor }, listing));
        }
        tries += 1;
        if tries >= crawler.retriever.config.tries {
            return Err(Failure::ChangedDuringScan);
        }
    }
}

/// Appends a number, seven bits a byte, the lowest first.
fn pack(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// The numbers that were packed. What is no number ends it: the walk then goes on by names alone.
fn unpack(bytes: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    let (mut number, mut shift) = (0u64, 0u32);
    for byte in bytes {
        if shift > 63 {
            break;
        }
        number |= u64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_packed_and_unpacked() {
        let numbers = [0, 1, 127, 128, 0xFFFF_FFFF, u64::MAX, 5];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|n| pack(*n, &mut bytes));
        assert_eq!(unpack(&bytes), numbers);
        // What a host makes up is no place, and no panic.
        unpack(&[0xFF; 40]);
        assert_eq!(unpack(&[3, 0x80]), [3]);
    }
}
