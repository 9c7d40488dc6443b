//! Which entries of a tree a request means.

use nearside_near_data::{Failure, Glob, Room};

/// Which of the entries are meant.
pub(crate) struct Filter {
    include: Option<Globs>,
    exclude: Option<Globs>,
    pub max_depth: u32,
    /// For a glob target: what it says of paths below its fixed part.
    target: Option<Glob>,
}

struct Globs {
    /// Without a slash: against the name.
    names: Vec<Glob>,
    /// With one: against the path below the root.
    paths: Vec<Glob>,
}

fn parsed(glob: &[u8], room: &mut Room) -> Result<Glob, Failure> {
    room.read(glob).map_err(|why| {
        let shown = String::from_utf8_lossy(&glob[..glob.len().min(200)]);
        Failure::InvalidPattern(format!("{shown}: {why}"))
    })
}

impl Globs {
    fn new(globs: &[Vec<u8>], room: &mut Room) -> Result<Option<Globs>, Failure> {
        if globs.is_empty() {
            return Ok(None);
        }
        let (paths, names): (Vec<_>, Vec<_>) = globs.iter().partition(|glob| glob.contains(&b'/'));
        let mut all = |globs: Vec<&Vec<u8>>| {
            globs.into_iter().map(|glob| parsed(glob, room)).collect::<Result<Vec<_>, Failure>>()
        };
        Ok(Some(Globs { names: all(names)?, paths: all(paths)? }))
    }

    fn matches(&self, name: &[u8], below: &[u8]) -> bool {
        self.names.iter().any(|glob| glob.matches(name)) || self.paths.iter().any(|glob| glob.matches(below))
    }
}

impl Filter {
    /// Of a tree.
    pub(crate) fn tree(include: &[Vec<u8>], exclude: &[Vec<u8>], max_depth: u32) -> Result<Filter, Failure> {
        let mut room = Room::new();
        let (include, exclude) = (Globs::new(include, &mut room)?, Globs::new(exclude, &mut room)?);
        Ok(Filter { include, exclude, max_depth, target: None })
    }

    /// Of an absolute path that is a pattern: where the walk begins, and what is meant below it. `None`
    /// where it is none.
    pub(crate) fn glob(glob: &[u8]) -> Result<Option<(Vec<u8>, Filter)>, Failure> {
        if !glob.starts_with(b"/") {
            return Err(Failure::NotAbsolute);
        }
        let (mut root, mut rest) = (Vec::new(), glob);
        loop {
            while let Some(behind) = rest.strip_prefix(b"/") {
                rest = behind;
            }
            let name = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
            if name.is_empty() {
                return Ok(None);
            }
            if Glob::is_pattern(name) {
                break;
            }
            root.push(b'/');
            root.extend_from_slice(name);
            rest = &rest[name.len()..];
        }
        if root.is_empty() {
            root.push(b'/');
        }
        let target = parsed(rest, &mut Room::new())?;
        let max_depth = target.most_names();
        Ok(Some((root, Filter { include: None, exclude: None, max_depth, target: Some(target) })))
    }

    /// Whether only what is below the root is meant, which a pattern names.
    pub(crate) fn is_glob(&self) -> bool {
        self.target.is_some()
    }

    /// Whether an entry is left out, with all below it. `depth` is its level, from 1.
    pub(crate) fn prunes(&self, name: &[u8], below: &[u8], depth: usize) -> bool {
        self.target.as_ref().is_some_and(|glob| !glob.may_pass(name, depth))
            || self.exclude.as_ref().is_some_and(|globs| globs.matches(name, below))
    }

    /// Whether all are meant, down to the deepest level.
    pub(crate) fn takes_all(&self) -> bool {
        self.include.is_none() && self.exclude.is_none() && self.target.is_none()
    }

    /// Whether an entry is meant itself.
    pub(crate) fn takes(&self, name: &[u8], below: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|globs| globs.matches(name, below))
            && self.target.as_ref().is_none_or(|glob| glob.matches(below))
    }

    /// Whether directories that match are meant as well as files: for globs.
    pub(crate) fn takes_directories(&self, name: &[u8], below: &[u8]) -> bool {
        !self.is_glob() || self.takes(name, below)
    }
}
