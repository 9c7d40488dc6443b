//! The path crawler (DAC'23 III-B): from a path to an inode, with permission checked on the way.
//!
//! A [`Walk`] goes as far as the caches know the way, under one lock, with one hash lookup for each component
//! of the path and no allocation. Where it meets something unknown it says what ([`Step`]), the crawler reads
//! that through a [`View`], puts it into the cache with what it depends on, and the walk goes on from where
//! it was. So a warm path costs no `await` and no checksum, and a cold one reads what the file system's own
//! code would. What a walk came to is kept by the path ([`crate::ways`]) as long as nothing changes.
//!
//! Paths are absolute. Symbolic links lead on inside the volume. What the kernel would do, it does: the order
//! of errors, the 40 links, what a slash at the end means.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nearside_fsview::raid::Standing;
use nearside_fsview::{Error, FileKind, Ino, Inode, Volume};
use nearside_near_data::{Credentials, Failure, MAX_NAME, MAX_PATH};

use crate::cache::{Cache, hash};
use crate::media::Media;
use crate::model::{MAX_LINKS, of_view};
use crate::monitor::{Deps, Monitor};
use crate::permission::{AclState, EXECUTE, Owner, READ, Verdict, may};
use crate::trace::TracePart;
use crate::view::{Tally, Upto, View, bump};
use crate::ways::{Key, Place, Reached, SHORTEST};
use crate::{Caches, Config, Retriever};

/// How often something is read again because it changed while it was read.
const TRIES: u32 = 16;

/// An open volume, at one state.
#[derive(Debug)]
pub(crate) struct OpenVolume {
    /// One per opening, so that what was cached of an earlier one is never taken for this one's. States that
    /// follow each other by what the log says, whose changes the monitor is told, have the same.
    pub id: u32,
    /// Which of these states.
    pub state: u64,
    /// The newest of them.
    pub newest: Arc<AtomicU64>,
    pub partition: u32,
    pub offset: u64,
    pub len: u64,
    pub volume: Volume,
    /// What said that this part of the namespace is meant.
    pub place: Deps,
    /// What opening it read, the place's included: as long as it holds, the volume is at the same state.
    pub deps: Deps,
    /// The monitor's count of changes up to which that is known.
    pub checked: AtomicU64,
    /// Since when (nanoseconds of the drive's clock) it keeps behind what its host has written to the log and
    /// not flushed.
    pub held_since: Option<u64>,
    /// Where all that is written was taken in: the flush that was to begin next.
    pub written: Option<u64>,
    /// The host has gone on as if that were durable: all that is written is to be taken in.
    pub overtaken: AtomicBool,
    /// What is known of it as of an array's member's.
    pub standing: Option<Standing>,
}

impl OpenVolume {
    /// Whether it is at this state at this moment. What was read through a volume counts only if this is true
    /// afterwards, however little has changed since that reading began: the state may have been left before.
    pub(crate) async fn holds(&self, monitor: &Monitor, media: &impl Media) -> bool {
        let changes = monitor.changes();
        if self.is_overtaken() {
            return false;
        }
        if self.checked.load(Ordering::Acquire) == changes {
            return true;
        }
        let holds = monitor.still_holds(&self.deps, media).await;
        if holds {
            self.checked.store(changes, Ordering::Release);
        }
        holds
    }

    /// Where `len` bytes of the volume lie in the namespace, which are bytes `from` on of a file.
    pub(crate) fn place_of(&self, at: u64, len: u64, from: u64) -> Result<u64, Failure> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.offset.saturating_add(at)),
            _ => {
                let what = format!("bytes {from} on lie at {at}, beyond the volume's end");
                Err(Failure::CorruptVolume(what))
            }
        }
    }

    /// Whether no later state has been published: then what depends on blocks as they are shown now depends
    /// on them as this state shows them.
    pub(crate) fn is_newest(&self) -> bool {
        self.newest.load(Ordering::Acquire) == self.state && !self.is_overtaken()
    }

    /// Why a user may not have what lies in its blocks beside inodes.
    fn withheld(&self, who: &Credentials, config: &Config) -> Option<&'static str> {
        let privileged = who.uid == 0 || config.allow_unrecovered;
        self.volume.info().stale.filter(|_| !privileged)
    }

    /// Whether a user may have what a walk of theirs came to without another: not where directories or links'
    /// targets may be what they may not have. The walk says so.
    pub(crate) fn tells(&self, reached: &Reached, who: &Credentials, config: &Config) -> bool {
        self.withheld(who, config).is_none() || !reached.linked && self.volume.tells_directories()
    }

    /// Whether what is written has to be taken in, flushed or not.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.overtaken.load(Ordering::Acquire)
    }

    /// Bytes of the namespace that no log keeps are about to be read. Where this state keeps behind the log,
    /// and they have been written and not flushed either, they may be of a later one: a host that mounts
    /// without barriers uses a block again when the commit that frees it is written.
    pub(crate) fn reads(&self, monitor: &Monitor, at: u64, len: u64) {
        let is_good = || monitor.is_durable(at, len) && monitor.knows_what_is_durable();
        if self.held_since.is_some() && !self.is_overtaken() && !is_good() {
            self.overtaken.store(true, Ordering::Release);
            monitor.stir();
        }
    }
}

/// A cached name: what `name` is in the directory `dir`.
#[derive(Debug)]
pub(crate) struct Dentry {
    volume: u32,
    dir: Ino,
    name: Box<[u8]>,
    /// `None`: there is no such name.
    child: Option<Ino>,
    /// Where the child's node was when it was last looked up.
    node: u32,
    deps: Deps,
    checked: u64,
}

/// A cached inode.
#[derive(Debug)]
pub(crate) struct Node {
    volume: u32,
    ino: Ino,
    owner: Owner,
    acl: AclState,
    link: Option<Arc<[u8]>>,
    inode: Arc<Inode>,
    deps: Arc<Deps>,
    checked: u64,
}

/// A file that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub inode: Arc<Inode>,
    /// What the inode depends on (not the names on the way).
    pub deps: Arc<Deps>,
}

/// How far a walk came.
enum Step {
    /// To the end.
    Done(Ino),
    /// The inode of that number is needed.
    Node(Ino),
    /// Its access control list.
    Acl(Ino),
    /// The target of a symbolic link.
    Link(Ino),
    /// A name in a directory: the bytes of the walk's path.
    Name(Ino, std::ops::Range<usize>),
}

/// A walk along a path.
struct Walk<'p> {
    path: Cow<'p, [u8]>,
    /// Begin of what is left of it.
    at: usize,
    /// The directories above `current`.
    above: Vec<Ino>,
    current: Ino,
    links: u32,
    follow: bool,
    /// The bytes before the last slash.
    dirname: usize,
    /// Where the walk stood behind them.
    passed: Option<Passed>,
    /// Where the node of `current` may be in its cache.
    hint: Option<u32>,
}

/// What a walk leaves for the next one of a list of paths.
#[derive(Default)]
pub(crate) struct Warm<'p> {
    above: Vec<Ino>,
    /// The bytes before its last slash, and where it stood behind them, at so many changes.
    last: Option<(&'p [u8], Passed, u64)>,
    /// Bytes of paths that were walked, at most, since this was last 0.
    pub walked: usize,
}

/// Where a walk stood: how many directories were above, which it was, what was known.
type Passed = (usize, Ino, u64);

fn node_key(seed: u64, volume: u32, ino: Ino) -> u64 {
    hash(seed, u64::from(volume) << 32 | u64::from(ino.0), &[])
}

/// A good entry of the node cache.
fn node<'s>(
    nodes: &'s mut Cache<Node>,
    monitor: &Monitor,
    (seed, changes): (u64, u64),
    volume: u32,
    ino: Ino,
    hint: Option<u32>,
) -> Option<(u32, &'s mut Node)> {
    let is = |n: &Node| n.ino == ino && n.volume == volume;
    let slot = match hint {
        Some(slot) if nodes.at(slot).is_some_and(|n| is(n)) => slot,
        _ => nodes.find(node_key(seed, volume, ino), is)?.0,
    };
    let good = nodes.at(slot).is_some_and(|n| {
        let good = n.checked == changes || monitor.holds(&n.deps);
        if good {
            n.checked = changes;
        }
        good
    });
    if !good {
        nodes.remove(slot);
        return None;
    }
    nodes.at(slot).map(|n| (slot, n))
}

/// A good entry of the name cache.
fn dentry<'s>(
    dentries: &'s mut Cache<Dentry>,
    monitor: &Monitor,
    (seed, changes): (u64, u64),
    volume: u32,
    dir: Ino,
    name: &[u8],
) -> Option<&'s mut Dentry> {
    let key = hash(seed, u64::from(volume) << 32 | u64::from(dir.0), name);
    let (slot, found) = dentries.find(key, |d| d.dir == dir && d.volume == volume && *d.name == *name)?;
    if found.checked != changes && !monitor.holds(&found.deps) {
        dentries.remove(slot);
        return None;
    }
    let dentry = dentries.at(slot)?;
    dentry.checked = changes;
    Some(dentry)
}

impl Walk<'_> {
    /// Goes on as far as the caches know the way.
    fn advance(
        &mut self,
        caches: &mut Caches,
        crawler: &Crawler<'_, impl Media>,
        now: (u64, u64),
        hits: &mut u64,
    ) -> Result<Step, Failure> {
        let monitor = &crawler.retriever.monitor;
        let volume = crawler.volume.id;
        loop {
            while self.path.get(self.at) == Some(&b'/') {
                self.at += 1;
            }
            if self.at >= self.path.len() {
                return Ok(Step::Done(self.current));
            }
            let Some((_, here)) = node(&mut caches.nodes, monitor, now, volume, self.current, self.hint)
            else {
                return Ok(Step::Node(self.current));
            };
            if here.owner.kind != FileKind::Directory {
                return Err(Failure::NotADirectory);
            }
            match may(crawler.who, here.owner, &here.acl, EXECUTE) {
                Verdict::Yes => {}
                Verdict::No => return Err(Failure::PermissionDenied),
                Verdict::AskAcl => return Ok(Step::Acl(self.current)),
            }
            let rest = &self.path[self.at..];
            let len = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
            let name = self.at..self.at + len;
            if len > MAX_NAME {
                return Err(Failure::NameTooLong);
            }
            let bytes = &self.path[name.clone()];
            if bytes == b"." || bytes == b".." {
                self.stay_or_rise(name);
                continue;
            }
            let dir = self.current;
            let Some(dentry) = dentry(&mut caches.dentries, monitor, now, volume, dir, bytes) else {
                return Ok(Step::Name(dir, name));
            };
            *hits += 1;
            let Some(child) = dentry.child else {
                return Err(Failure::NotFound);
            };
            let Some((at, there)) = node(&mut caches.nodes, monitor, now, volume, child, Some(dentry.node))
            else {
                return Ok(Step::Node(child));
            };
            dentry.node = at;
            self.hint = Some(at);
            *hits += 1;
            let rest = &self.path[name.end..];
            let last = rest.iter().all(|b| *b == b'/');
            let must_be_directory = !rest.is_empty();
            if there.owner.kind == FileKind::Symlink && (must_be_directory || self.follow) {
                if self.links >= MAX_LINKS {
                    return Err(Failure::SymlinkLoop);
                }
                if there.link.is_none() {
                    return Ok(Step::Link(child));
                }
                self.follow_link(there, name.end, crawler)?;
                continue;
            }
            if (!last || must_be_directory) && there.owner.kind != FileKind::Directory {
                return Err(Failure::NotADirectory);
            }
            self.above.push(dir);
            self.current = child;
            self.at = name.end;
            if self.at == self.dirname && self.links == 0 {
                self.passed = Some((self.above.len(), child, *hits));
            }
        }
    }

    /// Begins behind the last slash, where that is known of an earlier walk.
    fn skip(&mut self, place: &Place, hits: &mut u64) {
        self.above.extend_from_slice(&place.above);
        (self.current, self.at, *hits) = (place.dir, self.dirname, place.hits);
    }

    /// Where it stood behind the last slash; unless it went on from elsewhere.
    fn place(&self) -> Option<Place> {
        let (above, dir, hits) = self.passed.filter(|(above, ..)| self.links == 0 && *above >= SHORTEST)?;
        Some(Place { above: self.above.get(..above)?.to_vec(), dir, hits })
    }

    /// `.` and `..`, which stand at `name` of the path.
    fn stay_or_rise(&mut self, name: std::ops::Range<usize>) {
        self.at = name.end;
        if name.len() == 2
            && let Some(parent) = self.above.pop()
        {
            self.current = parent;
        }
    }

    /// Goes on along the target of a link that the cache knows; the link's name ends at `end` of the
    /// path.
    fn follow_link(
        &mut self,
        link: &Node,
        end: usize,
        crawler: &Crawler<'_, impl Media>,
    ) -> Result<(), Failure> {
        if !crawler.volume.volume.link_in_inode(&link.inode) {
            crawler.may_have_content()?;
        }
        self.links += 1;
        let target = link.link.as_deref().filter(|target| !target.is_empty());
        let mut path = target.ok_or(Failure::NotFound)?.to_vec();
        if path.starts_with(b"/") {
            self.above.clear();
            self.current = crawler.volume.volume.root();
        }
        path.extend_from_slice(&self.path[end..]);
        self.path = Cow::Owned(path);
        self.at = 0;
        Ok(())
    }
}

/// Finds files on one volume for one user.
pub(crate) struct Crawler<'a, M> {
    pub retriever: &'a Retriever,
    pub media: &'a M,
    pub tally: &'a Tally,
    pub volume: &'a OpenVolume,
    pub who: &'a Credentials,
}

/// Runs a read through fresh views until nothing changed under it; gives its value and what it depends on.
macro_rules! steady {
    ($crawler:expr, $part:expr, $view:ident => $read:expr) => {{
        let crawler = $crawler;
        let mut tries = 0;
        loop {
            let changes = crawler.retriever.monitor.changes();
            let $view = crawler.view().of($part, crawler.volume.volume.table());
            let result = $read;
            let deps = $view.into_deps();
            if !crawler.volume.is_newest()
                || !crawler.volume.holds(&crawler.retriever.monitor, crawler.media).await
            {
                // The volume has to be opened again: for who called.
                break Err(Failure::ChangedDuringScan);
            }
            if changes == crawler.retriever.monitor.changes()
                || crawler.retriever.monitor.still_holds(&deps, crawler.media).await
            {
                break result.map(|value| (value, deps, changes)).map_err(of_view);
            }
            // What was read is of two times: neither the value nor the error counts.
            tries += 1;
            if tries >= TRIES {
                break Err(Failure::ChangedDuringScan);
            }
            crawler.media.yield_now().await;
        }
    }};
}

impl<M: Media> Crawler<'_, M> {
    /// A fresh view of the volume.
    pub(crate) fn view(&self) -> View<'_, M> {
        View::of_volume(self.retriever, self.media, self.tally, self.volume)
    }

    /// A walk from the root on.
    fn walk<'p>(&self, path: &'p [u8], follow: bool, above: Vec<Ino>) -> Walk<'p> {
        Walk {
            path: Cow::Borrowed(path),
            at: 0,
            above,
            current: self.volume.volume.root(),
            links: 0,
            follow,
            dirname: path.iter().rposition(|b| *b == b'/').unwrap_or(0),
            passed: None,
            hint: None,
        }
    }

    /// The inode that an absolute path leads to; of a symbolic link at its end, the link's own unless
    /// `follow`.
    pub(crate) async fn locate(&self, path: &[u8], follow: bool) -> Result<Found, Failure> {
        if path.is_empty() {
            return Err(Failure::NotFound);
        }
        if path.len() > MAX_PATH {
            return Err(Failure::NameTooLong);
        }
        if path[0] != b'/' {
            return Err(Failure::NotAbsolute);
        }
        if !self.volume.volume.tells_directories() {
            self.may_have_content()?;
        }
        let mut walk = self.walk(path, follow, Vec::new());
        let whole = self.key(path, follow);
        let mut hits = 0;
        let mut misses = 0u32;
        let result = loop {
            let step = {
                let caches = &mut *self.retriever.caches();
                // Taken before anything is looked at: what changes from now on counts as later than this.
                let now = (self.retriever.seed, self.retriever.monitor.changes());
                if misses == 0 {
                    if let Some(reached) = self.reached(caches, whole, true, now.1) {
                        hits += reached.hits;
                        break Ok(reached.found.clone());
                    }
                    walk.above.reserve(64);
                    let directory = self.key(&path[..walk.dirname], false);
                    if let Some((_, place)) = caches.directories.known(directory, now.1) {
                        walk.skip(place, &mut hits);
                    }
                }
                match walk.advance(caches, self, now, &mut hits) {
                    // What was read on the way may be of several moments.
                    Ok(Step::Done(ino)) if misses > 0 => match self.node(caches, ino, walk.hint, now) {
                        Some(node) => break Ok(node.found()),
                        None => Step::Node(ino),
                    },
                    Ok(Step::Done(ino)) => {
                        let directory = &path[..walk.dirname];
                        if let Some(place) = walk.place() {
                            caches.directories.keep(self.key(directory, false), place, now.1);
                        }
                        match self.keep_reached(caches, whole, &walk, (ino, hits), now) {
                            Some(reached) => break Ok(reached.found.clone()),
                            None => Step::Node(ino),
                        }
                    }
                    Ok(step) => step,
                    Err(failure) => break Err(failure),
                }
            };
            misses += 1;
            // Each component needs few reads; more can only be a cache that forgets at once, or a host that
            // changes all.
            if misses as usize > 16 * MAX_PATH {
                break Err(Failure::ChangedDuringScan);
            }
            let step = match step {
                Step::Done(_) => Ok(()),
                Step::Node(ino) => self.load_node(ino).await.map(|_| ()),
                Step::Acl(ino) => self.load_acl(ino).await,
                Step::Link(ino) => self.load_link(ino).await,
                Step::Name(dir, name) => {
                    let name: Box<[u8]> = walk.path[name].into();
                    self.load_name(dir, name).await
                }
            };
            if let Err(failure) = step {
                break Err(failure);
            }
            self.media.yield_now().await;
        };
        bump(&self.tally.hits, hits);
        bump(&self.tally.misses, misses.into());
        result
    }

    /// What [`Crawler::locate`] would find of an absolute path, where the caches know the way to it at so
    /// many changes, and with `read` whether it may be read; `None` where more than that must be done, or is
    /// to be said.
    pub(crate) fn known<'c, 'p>(
        &self,
        caches: &'c mut Caches,
        path: &'p [u8],
        (follow, read): (bool, bool),
        changes: u64,
        warm: &mut Warm<'p>,
        hits: &mut u64,
    ) -> Option<&'c Reached> {
        if path.len() > MAX_PATH || path.first() != Some(&b'/') {
            return None;
        }
        if self.withheld().is_some() && !self.volume.volume.tells_directories() {
            return None;
        }
        warm.walked += path.len();
        let whole = self.key(path, follow);
        if let Some(slot) = self.reached_slot(caches, whole, read, changes) {
            let reached = caches.files.to(slot)?;
            *hits += reached.hits;
            return Some(reached);
        }
        let now = (self.retriever.seed, changes);
        let mut walk = self.walk(path, follow, std::mem::take(&mut warm.above));
        let known = self.walk_known(caches, &mut walk, path, now, warm);
        warm.above = std::mem::take(&mut walk.above);
        let (ino, known) = known?;
        *hits += known;
        self.keep_reached(caches, whole, &walk, (ino, known), now)
    }

    /// Walks as far as the caches know the way. Its end, and what they knew of it.
    fn walk_known<'p>(
        &self,
        caches: &mut Caches,
        walk: &mut Walk<'p>,
        path: &'p [u8],
        now: (u64, u64),
        warm: &mut Warm<'p>,
    ) -> Option<(Ino, u64)> {
        let directory = &path[..walk.dirname];
        let mut known = 0;
        let last = warm.last.take().filter(|(path, _, then)| *path == directory && *then == now.1);
        match last {
            Some((_, passed @ (above, dir, hits), _)) if walk.above.len() >= above => {
                walk.above.truncate(above);
                (walk.current, walk.at, walk.passed, known) = (dir, directory.len(), Some(passed), hits);
            }
            _ => {
                walk.above.clear();
                if let Some((_, place)) = caches.directories.known(self.key(directory, false), now.1) {
                    walk.skip(place, &mut known);
                    walk.passed = Some((walk.above.len(), walk.current, known));
                }
            }
        }
        let passed = walk.passed.is_some();
        let begun = walk.at;
        let step = walk.advance(caches, self, now, &mut known);
        // A link's target may be as long as a path.
        warm.walked += path.len() - begun + walk.links as usize * MAX_PATH;
        if !passed && let Some(place) = walk.place() {
            caches.directories.keep(self.key(directory, false), place, now.1);
        }
        // A name that led up has taken from what stands above.
        let kept = walk.passed.filter(|(above, ..)| walk.links == 0 && walk.above.len() > *above);
        warm.last = kept.map(|passed| (directory, passed, now.1));
        match step {
            Ok(Step::Done(ino)) => Some((ino, known)),
            _ => None,
        }
    }

    /// By what it is known where a path leads.
    fn key<'k>(&'k self, path: &'k [u8], follow: bool) -> Key<'k> {
        Key::new(self.retriever.seed, self.volume.id, self.who, path, follow)
    }

    /// What a walk along a path came to, at so many changes; with `read` also whether it may be read.
    fn reached<'c>(
        &self,
        caches: &'c mut Caches,
        whole: Key<'_>,
        read: bool,
        changes: u64,
    ) -> Option<&'c Reached> {
        let slot = self.reached_slot(caches, whole, read, changes)?;
        caches.files.to(slot)
    }

    fn reached_slot(&self, caches: &mut Caches, whole: Key<'_>, read: bool, changes: u64) -> Option<u32> {
        let (slot, reached) = caches.files.known(whole, changes)?;
        let is_enough = !read || reached.readable != Verdict::AskAcl;
        (is_enough && self.volume.tells(reached, self.who, &self.retriever.config)).then_some(slot)
    }

    /// Keeps what a walk came to that found all in the caches.
    fn keep_reached<'c>(
        &self,
        caches: &'c mut Caches,
        whole: Key<'_>,
        walk: &Walk<'_>,
        (ino, hits): (Ino, u64),
        now: (u64, u64),
    ) -> Option<&'c Reached> {
        let node = self.node(caches, ino, walk.hint, now)?;
        let readable = may(self.who, node.owner, &node.acl, READ);
        let reached = Reached { found: node.found(), readable, linked: walk.links > 0, hits };
        caches.files.keep(whole, reached, now.1)
    }

    /// A good entry of the node cache.
    fn node<'c>(
        &self,
        caches: &'c mut Caches,
        ino: Ino,
        hint: Option<u32>,
        now: (u64, u64),
    ) -> Option<&'c mut Node> {
        let monitor = &self.retriever.monitor;
        node(&mut caches.nodes, monitor, now, self.volume.id, ino, hint).map(|(_, node)| node)
    }

    /// The inode of a number that a directory gave.
    pub(crate) async fn inode(&self, ino: Ino) -> Result<Found, Failure> {
        {
            let mut caches = self.retriever.caches();
            let now = (self.retriever.seed, self.retriever.monitor.changes());
            if let Some((_, n)) =
                node(&mut caches.nodes, &self.retriever.monitor, now, self.volume.id, ino, None)
            {
                bump(&self.tally.hits, 1);
                return Ok(n.found());
            }
        }
        bump(&self.tally.misses, 1);
        self.load_node(ino).await
    }

    /// The inode that `name` has in a directory at this moment.
    pub(crate) async fn child(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, Failure> {
        for _ in 0..TRIES {
            {
                let mut caches = self.retriever.caches();
                let now = (self.retriever.seed, self.retriever.monitor.changes());
                let monitor = &self.retriever.monitor;
                if let Some(known) = dentry(&mut caches.dentries, monitor, now, self.volume.id, dir, name) {
                    return Ok(known.child);
                }
            }
            self.load_name(dir, name.into()).await?;
        }
        Err(Failure::ChangedDuringScan)
    }

    /// Whether the user may read (or search) that file.
    pub(crate) async fn may(&self, found: &Found, want: u8) -> Result<(), Failure> {
        let inode = &found.inode;
        for _ in 0..TRIES {
            let acl = {
                let mut caches = self.retriever.caches();
                let now = (self.retriever.seed, self.retriever.monitor.changes());
                match node(&mut caches.nodes, &self.retriever.monitor, now, self.volume.id, inode.ino, None) {
                    Some((_, n)) => n.acl.clone(),
                    None if inode.may_have_acl => AclState::Unknown,
                    None => AclState::None,
                }
            };
            match may(self.who, owner(inode), &acl, want) {
                Verdict::Yes => return Ok(()),
                Verdict::No => return Err(Failure::PermissionDenied),
                Verdict::AskAcl => self.load_acl(inode.ino).await?,
            }
        }
        Err(Failure::ChangedDuringScan)
    }

    /// Whether the user may read the bytes of the file, or the entries of the directory.
    pub(crate) async fn may_read(&self, found: &Found) -> Result<(), Failure> {
        self.may(found, READ).await
    }

    /// Whether the user may look up names in the directory.
    pub(crate) async fn may_search(&self, found: &Found) -> Result<(), Failure> {
        self.may(found, EXECUTE).await
    }

    /// Whether the user may have what lies in blocks of the volume beside inodes. Where these may be another
    /// file's by now, none but root may, and whom the drive's owner lets: what the inode says of permission
    /// is then not said of those bytes.
    pub(crate) fn may_have_content(&self) -> Result<(), Failure> {
        match self.withheld() {
            Some(why) => Err(Failure::NeedsRecovery(format!(
                "the volume is unstable: {why}; what lies in blocks is given to root only, or with the drive owner's word"
            ))),
            None => Ok(()),
        }
    }

    /// Why the user may not have it.
    fn withheld(&self) -> Option<&'static str> {
        self.volume.withheld(self.who, &self.retriever.config)
    }

    /// Whether the user may have a symbolic link's target.
    pub(crate) fn may_have_link(&self, found: &Found) -> bool {
        self.volume.volume.link_in_inode(&found.inode) || self.withheld().is_none()
    }

    /// A symbolic link's target.
    pub(crate) async fn link(&self, found: &Found) -> Result<Vec<u8>, Failure> {
        if !self.may_have_link(found) {
            self.may_have_content()?;
        }
        let (link, ..) = steady!(self, TracePart::ReadInode, view => self.volume.volume.read_link(&view, &found.inode).await)?;
        Ok(link)
    }

    async fn load_node(&self, ino: Ino) -> Result<Found, Failure> {
        let _span = self.tally.span(TracePart::ParseInode, 1);
        let (inode, deps, checked) =
            steady!(self, TracePart::ReadInode, view => self.volume.volume.inode(&view, ino).await)?;
        Ok(self.keep(ino, inode, deps, checked))
    }

    /// Whether an inode is in the cache, and good.
    pub(crate) fn knows(&self, ino: Ino) -> bool {
        let mut caches = self.retriever.caches();
        let now = (self.retriever.seed, self.retriever.monitor.changes());
        node(&mut caches.nodes, &self.retriever.monitor, now, self.volume.id, ino, None).is_some()
    }

    /// Keeps an inode that was read.
    pub(crate) fn keep(&self, ino: Ino, inode: Inode, deps: Deps, checked: u64) -> Found {
        let node = Node {
            volume: self.volume.id,
            ino,
            owner: owner(&inode),
            acl: if inode.may_have_acl { AclState::Unknown } else { AclState::None },
            link: None,
            inode: Arc::new(inode),
            deps: Arc::new(deps),
            checked,
        };
        let found = node.found();
        self.put(node);
        found
    }

    /// A node to change and put back: from the cache or the volume.
    async fn take_node(&self, ino: Ino) -> Result<Node, Failure> {
        for _ in 0..TRIES {
            {
                let mut caches = self.retriever.caches();
                let now = (self.retriever.seed, self.retriever.monitor.changes());
                let monitor = &self.retriever.monitor;
                if let Some((slot, _)) = node(&mut caches.nodes, monitor, now, self.volume.id, ino, None)
                    && let Some(node) = caches.nodes.remove(slot)
                {
                    return Ok(node);
                }
            }
            self.load_node(ino).await?;
        }
        Err(Failure::ChangedDuringScan)
    }

    fn put(&self, node: Node) {
        let mut caches = self.retriever.caches();
        let key = node_key(self.retriever.seed, node.volume, node.ino);
        let is = |n: &Node| n.ino == node.ino && n.volume == node.volume;
        if let Some((slot, _)) = caches.nodes.find(key, is) {
            caches.nodes.remove(slot);
        }
        caches.nodes.insert(key, node.acl.weight(), node);
    }

    async fn load_acl(&self, ino: Ino) -> Result<(), Failure> {
        let mut node = self.take_node(ino).await?;
        let read =
            steady!(self, TracePart::ReadInode, view => self.volume.volume.acl(&view, &node.inode).await);
        let (acl, deps) = match read {
            Ok((acl, deps, _)) => (acl, deps),
            Err(failure) => {
                self.put(node);
                return Err(failure);
            }
        };
        node.acl = acl.map_or(AclState::None, |acl| AclState::Some(Arc::new(acl)));
        self.put_with(node, &deps);
        Ok(())
    }

    async fn load_link(&self, ino: Ino) -> Result<(), Failure> {
        let mut node = self.take_node(ino).await?;
        let read = steady!(self, TracePart::ReadInode, view => self.volume.volume.read_link(&view, &node.inode).await);
        let (link, deps) = match read {
            Ok((link, deps, _)) => (link, deps),
            Err(failure) => {
                self.put(node);
                return Err(failure);
            }
        };
        node.link = Some(link.into());
        self.put_with(node, &deps);
        Ok(())
    }

    fn put_with(&self, mut node: Node, deps: &Deps) {
        let mut all = Deps::clone(&node.deps);
        all.extend(deps);
        node.deps = Arc::new(all);
        // Its parts are of different times: the first use looks at each block.
        node.checked = 0;
        self.put(node);
    }

    async fn load_name(&self, dir: Ino, name: Box<[u8]>) -> Result<(), Failure> {
        let parent = self.inode(dir).await?;
        let _span = self.tally.span(TracePart::FindEntry, 1);
        let (child, mut deps, checked) = steady!(self, TracePart::ReadDirectory, view => self.volume.volume.lookup(&view, &parent.inode, &name).await)?;
        deps.extend(&parent.deps);
        let checked = if self.retriever.monitor.holds(&parent.deps) { checked } else { 0 };
        let volume = self.volume.id;
        let key = hash(self.retriever.seed, u64::from(volume) << 32 | u64::from(dir.0), &name);
        let mut caches = self.retriever.caches();
        if let Some((slot, _)) =
            caches.dentries.find(key, |d| d.dir == dir && d.volume == volume && d.name == name)
        {
            caches.dentries.remove(slot);
        }
        let dentry = Dentry { volume, dir, name, child, node: u32::MAX, deps, checked };
        caches.dentries.insert(key, 1, dentry);
        Ok(())
    }
}

impl Node {
    fn found(&self) -> Found {
        Found { inode: self.inode.clone(), deps: self.deps.clone() }
    }
}

fn owner(inode: &Inode) -> Owner {
    Owner { kind: inode.kind, mode: inode.mode, uid: inode.uid, gid: inode.gid }
}

/// What opening a volume came to.
pub(crate) struct Opened {
    pub volume: Result<Volume, Error>,
    /// What that read.
    pub deps: Deps,
    /// Since when some of its log is written and not flushed, and so not taken in: nanoseconds of the drive's
    /// clock.
    pub held_since: Option<u64>,
}

/// Opens a volume, which may be the known one, changed; `steady!` needs a crawler, which needs a volume.
pub(crate) async fn open<M: Media>(
    retriever: &Retriever,
    media: &M,
    tally: &Tally,
    (offset, len): (u64, u64),
    known: Option<&Volume>,
    mut upto: Upto,
) -> Result<Opened, Failure> {
    for _ in 0..TRIES {
        let view = View::new(retriever, media, tally, offset, len).opening(upto);
        let volume = Volume::open_after(&view, retriever.config.state, known).await;
        let held_back = view.held_back();
        let deps = view.into_deps();
        let holds = retriever.monitor.still_holds(&deps, media).await;
        if holds && held_back && volume.is_err() {
            // Nothing of it has been flushed yet.
            upto = Upto::Written;
        } else if holds {
            let held_since = held_back.then(|| media.now_ns());
            return Ok(Opened { volume, deps, held_since });
        }
        media.yield_now().await;
    }
    Err(Failure::ChangedDuringScan)
}
