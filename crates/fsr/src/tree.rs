//! Trees and globs: which files a request means, in byte order of names, from a cursor on.
//!
//! The walk keeps one frame for each directory on the way down, with the names still to visit. All frames together
//! keep at most [`MOST_NAMES`] names: of a larger directory the next names in order are found by reading it again.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use nearside_fsview::{DirCursor, DirEntry, FileKind, Ino};

use crate::crawler::{Crawler, Found};
use crate::media::Media;
use crate::model::{Failure, MAX_PATH};

/// Names kept at a time.
const MOST_NAMES: usize = 1 << 16;

/// Which of the entries are meant.
pub(crate) struct Filter {
    include: Option<Globs>,
    exclude: Option<Globs>,
    pub max_depth: u32,
    /// For a glob target: its components below the fixed part, up to the first `**`, and the whole of it.
    levels: Vec<GlobSet>,
    bounded: bool,
}

struct Globs {
    /// Without a slash: against the name.
    names: GlobSet,
    /// With one: against the path below the root.
    paths: GlobSet,
}

fn set(globs: impl Iterator<Item = Vec<u8>>) -> Result<GlobSet, Failure> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let text = String::from_utf8(glob)
            .map_err(|_| Failure::InvalidPattern("a glob must be UTF-8".to_owned()))?;
        let glob = GlobBuilder::new(&text).literal_separator(true).backslash_escape(true).build();
        set.add(glob.map_err(|e| Failure::InvalidPattern(e.to_string()))?);
    }
    set.build().map_err(|e| Failure::InvalidPattern(e.to_string()))
}

impl Globs {
    fn new(globs: &[Vec<u8>]) -> Result<Option<Globs>, Failure> {
        if globs.is_empty() {
            return Ok(None);
        }
        let with_slash = |g: &&Vec<u8>| g.contains(&b'/');
        let paths = globs.iter().filter(with_slash);
        let paths = paths.map(|g| g.strip_prefix(b"/").unwrap_or(g).to_vec());
        let names = globs.iter().filter(|g| !with_slash(g)).cloned();
        Ok(Some(Globs { names: set(names)?, paths: set(paths)? }))
    }

    fn matches(&self, name: &[u8], below: &[u8]) -> bool {
        self.names.is_match(OsStr::from_bytes(name)) || self.paths.is_match(OsStr::from_bytes(below))
    }
}

impl Filter {
    /// Of a tree.
    pub(crate) fn tree(include: &[Vec<u8>], exclude: &[Vec<u8>], max_depth: u32) -> Result<Filter, Failure> {
        Ok(Filter {
            include: Globs::new(include)?,
            exclude: Globs::new(exclude)?,
            max_depth,
            levels: Vec::new(),
            bounded: false,
        })
    }

    /// Of an absolute path with wildcards: where the walk begins, and what is meant below it. `None` where it has no wildcards.
    pub(crate) fn glob(glob: &[u8]) -> Result<Option<(Vec<u8>, Filter)>, Failure> {
        if !glob.starts_with(b"/") {
            return Err(Failure::NotAbsolute);
        }
        let wild = |c: &[u8]| c.iter().any(|b| matches!(b, b'*' | b'?' | b'[' | b'{' | b'\\'));
        let components: Vec<&[u8]> = glob.split(|b| *b == b'/').filter(|c| !c.is_empty()).collect();
        let Some(first) = components.iter().position(|c| wild(c)) else {
            return Ok(None);
        };
        let mut root = Vec::new();
        for component in &components[..first] {
            root.push(b'/');
            root.extend_from_slice(component);
        }
        if root.is_empty() {
            root.push(b'/');
        }
        let below = &components[first..];
        let any_depth = below.iter().position(|c| *c == b"**");
        let levels = below[..any_depth.unwrap_or(below.len())]
            .iter()
            .map(|c| set(std::iter::once(c.to_vec())))
            .collect::<Result<Vec<_>, _>>()?;
        let all = below.join(&b'/');
        let max_depth = any_depth.map_or(levels.len() as u32, |_| u32::MAX);
        let include = Globs { names: GlobSet::empty(), paths: set(std::iter::once(all))? };
        Ok(Some((root, Filter { include: Some(include), exclude: None, max_depth, levels, bounded: true })))
    }

    /// Whether an entry is left out, with all below it. `depth` is its level, from 1.
    fn prunes(&self, name: &[u8], below: &[u8], depth: usize) -> bool {
        if let Some(level) = self.levels.get(depth - 1)
            && !level.is_match(OsStr::from_bytes(name))
        {
            return true;
        }
        self.exclude.as_ref().is_some_and(|g| g.matches(name, below))
    }

    /// Whether an entry is meant itself.
    fn takes(&self, name: &[u8], below: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|g| g.matches(name, below))
    }

    /// Whether directories that match are meant as well as files: for globs.
    fn takes_directories(&self, name: &[u8], below: &[u8]) -> bool {
        !self.bounded || self.takes(name, below)
    }
}

struct Frame {
    dir: Found,
    /// Length of the directory's path.
    path_len: usize,
    /// Names still to visit, the next one last.
    names: Vec<(Box<[u8]>, Ino)>,
    /// Whether there are names after those.
    more: bool,
    /// The last name that was visited: those after it remain.
    last: Option<Box<[u8]>>,
}

/// What the walk came to; its path is [`Walker::path`].
pub(crate) enum Visit {
    /// A file, or a directory where directories are wanted.
    Entry(Found),
    /// Something that failed.
    Failed(Failure),
    /// The volume changed under the walk: go on with a fresh look at it.
    Again,
}

/// A walk through a tree.
pub(crate) struct Walker {
    filter: Filter,
    directories: bool,
    pub path: Vec<u8>,
    root_len: usize,
    frames: Vec<Frame>,
    /// The path to go on with, relative to the root, where an earlier answer left off.
    resume: Option<Vec<u8>>,
    /// The root, until it was visited.
    root: Option<Found>,
    /// A directory that was visited, to go down into.
    into: Option<Found>,
    names: usize,
    agains: u32,
}

impl Walker {
    /// Below `root`, which was found at that path. `directories`: they are visited too.
    pub(crate) fn new(
        path: Vec<u8>,
        root: Found,
        filter: Filter,
        directories: bool,
        resume: Option<&[u8]>,
    ) -> Self {
        let mut path = path;
        while path.last() == Some(&b'/') {
            path.pop();
        }
        let root_len = path.len();
        let resume = resume.map(|r| {
            let below = r.get(root_len..).unwrap_or_default();
            below.strip_prefix(b"/").unwrap_or(below).to_vec()
        });
        Walker {
            filter,
            directories,
            path,
            root_len,
            frames: Vec::new(),
            resume,
            root: Some(root),
            into: None,
            names: 0,
            agains: 0,
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

    /// Goes on; `None` at the end. What it gives as an error ends the walk.
    pub(crate) async fn next<M: Media>(
        &mut self,
        crawler: &Crawler<'_, M>,
    ) -> Result<Option<Visit>, Failure> {
        if let Some(root) = self.root.take() {
            if root.inode.kind != FileKind::Directory {
                let name = self.path.rsplit(|b| *b == b'/').next().unwrap_or_default();
                return Ok(self.filter.takes(name, name).then_some(Visit::Entry(root)));
            }
            let resumed = self.resume.as_ref().is_some_and(|r| !r.is_empty());
            if self.filter.max_depth > 0 {
                self.into = Some(root.clone());
            }
            if self.directories && !self.filter.bounded && !resumed {
                return Ok(Some(Visit::Entry(root)));
            }
        }
        loop {
            if let Some(dir) = self.into.take()
                && let Err(failure) = self.enter(dir.clone(), crawler).await
            {
                if self.again(&failure) {
                    self.into = Some(dir);
                    return Ok(Some(Visit::Again));
                }
                return Ok(Some(Visit::Failed(failure)));
            }
            let Some(frame) = self.frames.last_mut() else {
                return Ok(None);
            };
            self.path.truncate(frame.path_len);
            let Some((name, ino)) = frame.names.pop() else {
                if frame.more {
                    match self.fill(crawler).await {
                        Ok(()) => continue,
                        Err(failure) if self.again(&failure) => return Ok(Some(Visit::Again)),
                        Err(failure) => {
                            self.leave();
                            return Ok(Some(Visit::Failed(failure)));
                        }
                    }
                }
                self.leave();
                continue;
            };
            self.names -= 1;
            self.path.push(b'/');
            self.path.extend_from_slice(&name);
            let depth = self.frames.len();
            let below = &self.path[self.root_len + 1..];
            let pruned = self.filter.prunes(&name, below, depth);
            let taken = !pruned && self.filter.takes(&name, below);
            let taken_directory = !pruned && self.directories && self.filter.takes_directories(&name, below);
            let on_the_way = self.on_the_way(depth, &name);
            if pruned {
                self.visited(name);
                continue;
            }
            if self.path.len() > MAX_PATH {
                self.visited(name);
                return Ok(Some(Visit::Failed(Failure::NameTooLong)));
            }
            crawler.media.breathe().await;
            let found = match crawler.inode(ino).await {
                Ok(found) => found,
                Err(failure) if self.again(&failure) => {
                    if let Some(frame) = self.frames.last_mut() {
                        frame.names.push((name, ino));
                        self.names += 1;
                    }
                    return Ok(Some(Visit::Again));
                }
                Err(failure) => {
                    self.visited(name);
                    return Ok(Some(Visit::Failed(failure)));
                }
            };
            self.agains = 0;
            self.visited(name);
            if found.inode.kind != FileKind::Directory {
                if taken {
                    return Ok(Some(Visit::Entry(found)));
                }
                continue;
            }
            if self.frames.iter().any(|f| f.dir.inode.ino == ino) {
                let what = format!("directory {} lies within itself", ino.0);
                return Ok(Some(Visit::Failed(Failure::CorruptVolume(what))));
            }
            if (depth as u64) < u64::from(self.filter.max_depth) {
                self.into = Some(found.clone());
            }
            if taken_directory && !on_the_way {
                return Ok(Some(Visit::Entry(found)));
            }
        }
    }

    /// Whether the entry is a directory that an earlier answer showed already: the resume path lies below it.
    fn on_the_way(&self, depth: usize, name: &[u8]) -> bool {
        let Some(resume) = &self.resume else { return false };
        let mut components = resume.split(|b| *b == b'/');
        components.nth(depth - 1) == Some(name)
            && components.next().is_some()
            && self.path[self.root_len + 1..]
                .iter()
                .eq(resume.iter().take(self.path.len() - self.root_len - 1))
    }

    fn visited(&mut self, name: Box<[u8]>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.last = Some(name);
        }
    }

    /// Whether to try once more.
    fn again(&mut self, failure: &Failure) -> bool {
        self.agains += 1;
        *failure == Failure::ChangedDuringScan && self.agains < 16
    }

    async fn enter<M: Media>(&mut self, dir: Found, crawler: &Crawler<'_, M>) -> Result<(), Failure> {
        crawler.may_read(&dir).await?;
        crawler.may_search(&dir).await?;
        let path_len = self.path.len();
        self.frames.push(Frame { dir, path_len, names: Vec::new(), more: true, last: None });
        if let Err(failure) = self.fill(crawler).await {
            self.leave();
            return Err(failure);
        }
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.names -= frame.names.len();
            self.path.truncate(frame.path_len);
        }
    }

    /// Finds the next names of the innermost directory.
    async fn fill<M: Media>(&mut self, crawler: &Crawler<'_, M>) -> Result<(), Failure> {
        let depth = self.frames.len();
        // Where the walk goes on inside a directory of the resume path: not before that component.
        let from: Option<Box<[u8]>> = self.resume.as_ref().and_then(|resume| {
            let here = self.path.get(self.root_len + 1..).unwrap_or_default();
            let rest = if here.is_empty() {
                Some(&resume[..])
            } else {
                resume.strip_prefix(here).and_then(|r| r.strip_prefix(b"/"))
            }?;
            rest.split(|b| *b == b'/').next().filter(|c| !c.is_empty()).map(Into::into)
        });
        let room = MOST_NAMES.saturating_sub(self.names);
        if room < MOST_NAMES / 16 {
            // Parents read their names again when the walk comes back to them.
            for frame in &mut self.frames[..depth - 1] {
                self.names -= frame.names.len();
                frame.more |= !frame.names.is_empty();
                frame.names = Vec::new();
            }
        }
        let room = MOST_NAMES.saturating_sub(self.names).max(1);
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let after = frame.last.clone();
        let wanted = |name: &[u8]| match (&after, &from) {
            (Some(last), _) => name > &**last,
            (None, Some(from)) => name >= &**from,
            (None, None) => true,
        };
        let (names, more) = read_names(crawler, frame.dir.inode.ino, wanted, room).await?;
        self.names += names.len();
        (frame.names, frame.more) = (names, more);
        Ok(())
    }
}

type Names = Vec<(Box<[u8]>, Ino)>;

/// The first `room` of the wanted names in order, the first one last; and whether there are more.
async fn read_names<M: Media>(
    crawler: &Crawler<'_, M>,
    ino: Ino,
    wanted: impl Fn(&[u8]) -> bool,
    room: usize,
) -> Result<(Names, bool), Failure> {
    let mut tries = 0;
    loop {
        let changes = crawler.retriever.monitor.changes();
        let dir = crawler.inode(ino).await?;
        let view = crawler.view();
        let mut names: Names = Vec::new();
        let mut more = false;
        let mut cursor = Some(DirCursor::default());
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut result = Ok(());
        while let Some(at) = cursor {
            match crawler.volume.volume.read_dir(&view, &dir.inode, at, &mut entries).await {
                Ok(next) => cursor = next,
                Err(error) => {
                    result = Err(Failure::from(error));
                    break;
                }
            }
            for entry in entries.drain(..) {
                if wanted(&entry.name) {
                    names.push((entry.name.into_boxed_slice(), entry.ino));
                }
            }
            if names.len() > room.saturating_mul(2) {
                names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
                names.truncate(room);
                more = true;
            }
            crawler.media.breathe().await;
        }
        let mut deps = view.into_deps();
        deps.extend(&dir.deps);
        let now = crawler.retriever.monitor.changes();
        if now == changes || crawler.retriever.monitor.holds(&deps) {
            result?;
            names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            if names.len() > room {
                names.truncate(room);
                more = true;
            }
            names.reverse();
            return Ok((names, more));
        }
        tries += 1;
        if tries >= crawler.retriever.config.tries {
            return Err(Failure::ChangedDuringScan);
        }
    }
}
