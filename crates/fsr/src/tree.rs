//! Which entries of a tree a request means.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use nearside_near_data::Failure;

/// Which of the entries are meant.
pub(crate) struct Filter {
    include: Option<Globs>,
    exclude: Option<Globs>,
    pub max_depth: u32,
    /// For a glob target: its components below the fixed part, up to the first `**`, and the whole of it.
    levels: Vec<GlobSet>,
    pub bounded: bool,
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

    /// Of an absolute path with wildcards: where the walk begins, and what is meant below it. `None` where it
    /// has no wildcards.
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
    pub(crate) fn prunes(&self, name: &[u8], below: &[u8], depth: usize) -> bool {
        if let Some(level) = self.levels.get(depth - 1)
            && !level.is_match(OsStr::from_bytes(name))
        {
            return true;
        }
        self.exclude.as_ref().is_some_and(|g| g.matches(name, below))
    }

    /// Whether all are meant, down to the deepest level.
    pub(crate) fn takes_all(&self) -> bool {
        self.include.is_none() && self.exclude.is_none() && self.levels.is_empty()
    }

    /// Whether an entry is meant itself.
    pub(crate) fn takes(&self, name: &[u8], below: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|g| g.matches(name, below))
    }

    /// Whether directories that match are meant as well as files: for globs.
    pub(crate) fn takes_directories(&self, name: &[u8], below: &[u8]) -> bool {
        !self.bounded || self.takes(name, below)
    }
}
