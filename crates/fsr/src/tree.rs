//! Which entries of a tree a request means.

use nearside_near_data::{Failure, Globs, Matching};

use crate::media::Media;

/// Which of the entries are meant.
pub(crate) struct Filter {
    /// Only these.
    include: Option<Globs>,
    exclude: Option<Globs>,
    pub max_depth: u32,
    /// For a glob target: what is included is what it says of paths below its fixed part.
    glob: bool,
}

/// Has patterns matched in pieces, between which the command yields.
pub(crate) struct Pace<'a, M> {
    media: &'a M,
    /// Made since the command yielded.
    steps: usize,
}

impl<'a, M: Media> Pace<'a, M> {
    pub(crate) fn new(media: &'a M) -> Pace<'a, M> {
        Pace { media, steps: 0 }
    }

    async fn settle(&mut self, mut matching: Matching<'_>) -> bool {
        loop {
            if let Some(is) = matching.go_on(&mut self.steps) {
                return is;
            }
            self.media.yield_now().await;
            self.steps = 0;
        }
    }

    async fn matches(&mut self, globs: &Globs, path: &[u8]) -> bool {
        self.settle(globs.matching(path)).await
    }
}

/// What is wrong with a pattern.
fn refused(glob: &[u8], why: &str) -> Failure {
    let shown = String::from_utf8_lossy(&glob[..glob.len().min(200)]);
    Failure::InvalidPattern(format!("{shown}: {why}"))
}

/// Reads one more pattern.
fn and(globs: Globs, pattern: &[u8]) -> Result<Globs, Failure> {
    globs.with(pattern).map_err(|why| refused(pattern, why))
}

/// Reads patterns, one after the other: what takes longer where no I/O waits for it.
async fn read<M: Media>(media: &M, patterns: &[Vec<u8>]) -> Result<Option<Globs>, Failure> {
    let mut globs = Globs::default();
    for pattern in patterns {
        globs = match Globs::is_soon_read(pattern) {
            true => and(globs, pattern)?,
            false => {
                let pattern = pattern.clone();
                media.offload(move || and(globs, &pattern)).await?
            }
        };
        media.yield_now().await;
    }
    Ok((!patterns.is_empty()).then_some(globs))
}

impl Filter {
    /// Of a tree.
    pub(crate) async fn tree<M: Media>(
        media: &M,
        include: &[Vec<u8>],
        exclude: &[Vec<u8>],
        max_depth: u32,
    ) -> Result<Filter, Failure> {
        let (include, exclude) = (read(media, include).await?, read(media, exclude).await?);
        Ok(Filter { include, exclude, max_depth, glob: false })
    }

    /// Of an absolute path that is a pattern: where the walk begins, and what is meant below it. `None`
    /// where it is none.
    pub(crate) async fn glob<M: Media>(media: &M, glob: &[u8]) -> Result<Option<(Vec<u8>, Filter)>, Failure> {
        match Globs::is_soon_read(glob) {
            true => Filter::read_glob(glob),
            false => {
                let glob = glob.to_vec();
                media.offload(move || Filter::read_glob(&glob)).await
            }
        }
    }

    fn read_glob(glob: &[u8]) -> Result<Option<(Vec<u8>, Filter)>, Failure> {
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
            if Globs::is_pattern(name) {
                break;
            }
            root.push(b'/');
            root.extend_from_slice(name);
            rest = &rest[name.len()..];
        }
        if root.is_empty() {
            root.push(b'/');
        }
        let below = Globs::default().with_path(rest).map_err(|why| refused(rest, why))?;
        let max_depth = below.most_names();
        Ok(Some((root, Filter { include: Some(below), exclude: None, max_depth, glob: true })))
    }

    /// Whether only what is below the root is meant, which a pattern names.
    pub(crate) fn is_glob(&self) -> bool {
        self.glob
    }

    /// Whether all are meant, down to the deepest level.
    pub(crate) fn takes_all(&self) -> bool {
        self.include.is_none() && self.exclude.is_none()
    }

    /// Whether an entry is left out, with all below it. `depth` is its level, from 1.
    pub(crate) async fn prunes<M: Media>(
        &self,
        name: &[u8],
        below: &[u8],
        depth: usize,
        pace: &mut Pace<'_, M>,
    ) -> bool {
        if self.glob
            && let Some(globs) = &self.include
            && !pace.settle(globs.passing(name, depth)).await
        {
            return true;
        }
        match &self.exclude {
            Some(globs) => pace.matches(globs, below).await,
            None => false,
        }
    }

    /// Whether an entry is meant itself, by its path below the root.
    pub(crate) async fn takes<M: Media>(&self, below: &[u8], pace: &mut Pace<'_, M>) -> bool {
        match &self.include {
            Some(globs) => pace.matches(globs, below).await,
            None => true,
        }
    }
}
