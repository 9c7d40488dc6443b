//! Where paths lead, for one user: what a walk found out component by component is found again by one look
//! ("prefix check cache", Tsai et al., SOSP 2015). Directories by what stands before a path's last slash,
//! files by their whole path.
//!
//! An entry holds only while no watched block changes at all ([`crate::monitor::Monitor::changes`]): all that
//! the walk met, names, inodes and access control lists, was read from blocks that are watched from then on,
//! and as the volume shows them. After any change the walk is taken again, which looks at each part by
//! itself. What the directories on the way said of the user is part of what was found out: who asks is
//! compared as a whole, and so is the path. That something is not there is not kept.

use nearside_fsview::{Ino, Inode};
use nearside_near_data::Credentials;

use crate::cache::{Cache, hash};
use crate::crawler::Found;
use crate::permission::Verdict;

/// Bytes of directories' entries that are kept.
pub(crate) const MOST_DIRECTORIES: usize = 1 << 20;
/// Bytes of files' entries that are kept: some thousands.
pub(crate) const MOST_FILES: usize = 4 << 20;
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

/// What a walk came to.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    pub found: Found,
    /// Whether the user may read it; its access control list may not be known yet.
    pub readable: Verdict,
    /// Whether the way led over a symbolic link.
    pub linked: bool,
    /// What the caches knew of the way.
    pub hits: u64,
}

/// A cached way, which the user may go.
#[derive(Debug)]
pub(crate) struct Way<V> {
    volume: u32,
    follow: bool,
    path: Box<[u8]>,
    who: Credentials,
    to: V,
    checked: u64,
}

/// Who asks for what.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    hash: u64,
    volume: u32,
    who: &'a Credentials,
    path: &'a [u8],
    follow: bool,
}

impl<'a> Key<'a> {
    /// Of a volume, a user, a path as it is written, and whether a symbolic link at its end is followed.
    pub(crate) fn new(seed: u64, volume: u32, who: &'a Credentials, path: &'a [u8], follow: bool) -> Key<'a> {
        // All that is compared is in it: else who asks with ever other groups fills one place of the table.
        let asked = hash(seed, u64::from(who.gid) << 1 | u64::from(follow), b"");
        let asked = who.groups.iter().fold(asked, |asked, gid| hash(asked, u64::from(*gid), b""));
        let hash = hash(asked, u64::from(volume) << 32 | u64::from(who.uid), path);
        Key { hash, volume, who, path, follow }
    }

    fn is<V>(&self, way: &Way<V>) -> bool {
        way.volume == self.volume
            && way.follow == self.follow
            && *way.path == *self.path
            && way.who == *self.who
    }
}

/// Bytes that belong to what an entry leads to, beside itself.
pub(crate) trait Weight {
    fn bytes(&self) -> usize;
}

impl Weight for Place {
    fn bytes(&self) -> usize {
        size_of_val(&self.above[..])
    }
}

impl Weight for Reached {
    fn bytes(&self) -> usize {
        // The inodes' own cache may have let it go.
        size_of::<Inode>()
    }
}

impl<V: Weight> Cache<Way<V>> {
    /// Where that path leads, if nothing has changed since, and the slot that says so.
    pub(crate) fn known(&mut self, key: Key<'_>, changes: u64) -> Option<(u32, &V)> {
        let (slot, way) = self.find(key.hash, |way| key.is(way))?;
        (way.checked == changes).then_some((slot, &way.to))
    }

    /// What a slot says that was just known.
    pub(crate) fn to(&mut self, slot: u32) -> Option<&V> {
        self.at(slot).map(|way| &way.to)
    }

    /// Keeps it, as of `changes`: from before the walk began.
    pub(crate) fn keep(&mut self, key: Key<'_>, to: V, changes: u64) -> Option<&V> {
        let slot = match self.find(key.hash, |way| key.is(way)) {
            Some((slot, way)) => {
                (way.to, way.checked) = (to, changes);
                slot
            }
            None => {
                let Key { hash, volume, who, path, follow } = key;
                let bytes = size_of::<Way<V>>() + path.len() + size_of_val(&who.groups[..]) + to.bytes();
                let (path, who) = (path.into(), who.clone());
                self.insert(hash, bytes, Way { volume, follow, path, who, to, checked: changes })
            }
        };
        self.to(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_with_other_groups_has_a_place_of_his_own() {
        let mut hashes = std::collections::HashSet::new();
        for gid in 0..10 {
            for group in 0..10 {
                let who = Credentials { uid: 7, gid, groups: vec![group] };
                hashes.insert(Key::new(1, 1, &who, b"/a", false).hash);
                hashes.insert(Key::new(1, 1, &who, b"/a", true).hash);
            }
        }
        assert_eq!(hashes.len(), 200);
    }
}
