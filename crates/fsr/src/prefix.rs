//! Directories by the path that leads to them, for one user: what a walk found out component by component is
//! found again by one look ("prefix check cache", Tsai et al., SOSP 2015).
//!
//! An entry holds only while no watched block changes at all ([`crate::monitor::Monitor::changes`]): all that
//! the walk met, names, inodes and access control lists, was read from blocks that are watched from then on.
//! After any change the walk is taken again, which looks at each part by itself.

use nearside_fsview::Ino;
use nearside_near_data::Credentials;

use crate::cache::{Cache, hash};

/// Bytes of entries that are kept.
pub(crate) const MOST: usize = 1 << 20;
/// A way of fewer directories is walked as fast.
pub(crate) const SHORTEST: usize = 3;

/// Where a walk stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The directories above `dir`, from the root.
    pub above: Vec<Ino>,
    pub dir: Ino,
    /// What the caches knew of the way.
    pub hits: u64,
}

/// A cached one: on the way of `path`, which the user may go.
#[derive(Debug)]
pub(crate) struct Prefix {
    volume: u32,
    path: Box<[u8]>,
    who: Credentials,
    place: Place,
    checked: u64,
}

/// Who asks for what: the volume, the user, and the path as it is written.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub volume: u32,
    pub who: &'a Credentials,
    pub path: &'a [u8],
}

impl Key<'_> {
    fn hash(&self, seed: u64) -> u64 {
        hash(seed, u64::from(self.volume) << 32 | u64::from(self.who.uid), self.path)
    }

    fn is(&self, prefix: &Prefix) -> bool {
        prefix.volume == self.volume && *prefix.path == *self.path && prefix.who == *self.who
    }
}

impl Cache<Prefix> {
    /// Where that path leads, if nothing has changed since.
    pub(crate) fn place(&mut self, key: Key<'_>, (seed, changes): (u64, u64)) -> Option<&Place> {
        let (_, prefix) = self.find(key.hash(seed), |prefix| key.is(prefix))?;
        (prefix.checked == changes).then_some(&prefix.place)
    }

    /// Keeps it, as of `changes`: from before the walk began.
    pub(crate) fn keep(&mut self, key: Key<'_>, place: Place, (seed, changes): (u64, u64)) {
        let hash = key.hash(seed);
        if let Some((_, prefix)) = self.find(hash, |prefix| key.is(prefix)) {
            (prefix.place, prefix.checked) = (place, changes);
            return;
        }
        let words = key.who.groups.len() + place.above.len();
        let weight = size_of::<Prefix>() + key.path.len() + words * size_of::<u32>();
        let (path, who) = (key.path.into(), key.who.clone());
        self.insert(hash, weight, Prefix { volume: key.volume, path, who, place, checked: changes });
    }
}
