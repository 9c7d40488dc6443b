//! The host's path walk: names to inodes, with the kernel's permission checks, over metadata blocks alone.

use nearside_fsview::acl::AclEntry;
use nearside_fsview::{DirCursor, Error, FileKind, Inode, Source, Volume};
use nearside_spec::near_data::{Credentials, MAX_PATH, ReplyStatus};

use super::status_of;
use crate::host::walk::Access::{Execute, Read};

/// What a walk found.
#[derive(Debug)]
pub enum Found {
    /// A regular file that may be read.
    File {
        /// Its path.
        path: Vec<u8>,
        /// Its inode.
        inode: Inode,
    },
    /// A file that may not be, or that is none.
    Failed {
        /// Its path.
        path: Vec<u8>,
        /// Why.
        status: ReplyStatus,
    },
}

/// Symbolic links in one walk, as the kernel (MAXSYMLINKS).
const MOST_LINKS: usize = 40;
/// Levels of a tree: no path that fits PATH_MAX goes deeper.
const MOST_LEVELS: usize = MAX_PATH / 2 + 1;
/// Directory chunks of one directory; a directory that claims more turns in circles.
const MOST_CHUNKS: usize = 1 << 24;

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Of a file's bytes or a directory's names.
    Read,
    /// Through a directory.
    Execute,
}

/// A walk for one user.
pub struct Walk<'a, S> {
    /// The volume.
    pub volume: &'a Volume,
    /// Its blocks.
    pub source: &'a S,
    /// For whom.
    pub credentials: &'a Credentials,
}

type Walked<V> = Result<V, ReplyStatus>;

fn failed(error: Error) -> ReplyStatus {
    status_of(&error)
}

impl<S: Source> Walk<'_, S> {
    /// One path to a regular file.
    pub async fn path(&self, path: &[u8], follow: bool) -> Vec<Found> {
        let path = path.to_vec();
        vec![match self.resolve(&path, follow).await {
            Err(status) => Found::Failed { path, status },
            Ok(inode) => self.file(path, inode).await,
        }]
    }

    async fn file(&self, path: Vec<u8>, inode: Inode) -> Found {
        let status = match inode.kind {
            FileKind::Regular => match self.may(&inode, Read).await {
                Ok(()) => return Found::File { path, inode },
                Err(status) => status,
            },
            FileKind::Directory => ReplyStatus::IsADirectory,
            _ => ReplyStatus::NotARegularFile,
        };
        Found::Failed { path, status }
    }

    /// Every regular file of a tree, in byte order of names; `include` and `exclude` match base names by `*` and `?`.
    pub async fn tree(
        &self,
        root: &[u8],
        include: &[Vec<u8>],
        exclude: &[Vec<u8>],
        max_depth: u32,
    ) -> Vec<Found> {
        let mut found = Vec::new();
        let top = match self.resolve(root, true).await {
            Ok(inode) => inode,
            Err(status) => return vec![Found::Failed { path: root.to_vec(), status }],
        };
        // What is still to visit, the next one last.
        let mut stack = vec![(root.to_vec(), top, 0u32)];
        while let Some((path, inode, depth)) = stack.pop() {
            if inode.kind == FileKind::Regular {
                let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
                if include.is_empty() || include.iter().any(|glob| matches(glob, name)) {
                    found.push(self.file(path, inode).await);
                }
                continue;
            }
            if inode.kind != FileKind::Directory || depth >= max_depth || depth as usize > MOST_LEVELS {
                continue;
            }
            let at = stack.len();
            match self.children(&path, &inode).await {
                Err(status) => found.push(Found::Failed { path, status }),
                Ok(children) => {
                    for (name, child) in children {
                        if exclude.iter().any(|glob| matches(glob, &name)) {
                            continue;
                        }
                        stack.push((join(&path, &name), child, depth + 1));
                    }
                }
            }
            if let Some(new) = stack.get_mut(at..) {
                new.reverse();
            }
        }
        found
    }

    async fn children(&self, path: &[u8], dir: &Inode) -> Walked<Vec<(Vec<u8>, Inode)>> {
        self.may(dir, Read).await?;
        self.may(dir, Execute).await?;
        let mut entries = Vec::new();
        let mut cursor = Some(DirCursor::default());
        for _ in 0..MOST_CHUNKS {
            let Some(at) = cursor else { break };
            cursor = self.volume.read_dir(self.source, dir, at, &mut entries).await.map_err(failed)?;
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut children = Vec::with_capacity(entries.len());
        for entry in entries {
            if path.len() + entry.name.len() >= MAX_PATH {
                return Err(ReplyStatus::NameTooLong);
            }
            let inode = self.volume.inode(self.source, entry.ino).await.map_err(failed)?;
            children.push((entry.name, inode));
        }
        Ok(children)
    }

    /// The inode of an absolute path.
    pub async fn resolve(&self, path: &[u8], follow: bool) -> Walked<Inode> {
        if path.first() != Some(&b'/') {
            return Err(ReplyStatus::NotAbsolute);
        }
        if path.len() > MAX_PATH {
            return Err(ReplyStatus::NameTooLong);
        }
        let root = self.volume.inode(self.source, self.volume.root()).await.map_err(failed)?;
        let mut above: Vec<Inode> = Vec::new();
        let mut here = root;
        // The components still to walk, the next one last.
        let mut rest = components(path);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if here.kind != FileKind::Directory {
                return Err(ReplyStatus::NotADirectory);
            }
            if name == b"." {
                continue;
            }
            self.may(&here, Execute).await?;
            if name == b".." {
                here = above.pop().unwrap_or(here);
                continue;
            }
            if name.len() > 255 {
                return Err(ReplyStatus::NameTooLong);
            }
            let ino = self.volume.lookup(self.source, &here, &name).await.map_err(failed)?;
            let inode =
                self.volume.inode(self.source, ino.ok_or(ReplyStatus::NotFound)?).await.map_err(failed)?;
            if inode.kind == FileKind::Symlink && (follow || !rest.is_empty()) {
                links += 1;
                if links > MOST_LINKS {
                    return Err(ReplyStatus::SymlinkLoop);
                }
                let target = self.volume.read_link(self.source, &inode).await.map_err(failed)?;
                if target.first() == Some(&b'/') {
                    here = above.drain(..).next().unwrap_or(here);
                }
                rest.extend(components(&target));
                continue;
            }
            above.push(std::mem::replace(&mut here, inode));
        }
        Ok(here)
    }

    /// Whether the user may, by mode and ACL (acl(5), access check algorithm).
    async fn may(&self, inode: &Inode, access: Access) -> Walked<()> {
        let who = self.credentials;
        let want = match access {
            Read => 4,
            Execute => 1,
        };
        if who.uid == 0 {
            return Ok(());
        }
        let member = |gid: u32| who.gid == gid || who.groups.contains(&gid);
        let mode = inode.mode;
        let class = |shift: u16| (mode >> shift & 7) as u8;
        let granted = if who.uid == inode.uid {
            class(6)
        } else if let Some(acl) = match inode.may_have_acl {
            true => self.volume.acl(self.source, inode).await.map_err(failed)?,
            false => None,
        } {
            by_acl(&acl.entries, who.uid, inode.gid, member, want)
        } else if member(inode.gid) {
            class(3)
        } else {
            class(0)
        };
        if granted & want == want { Ok(()) } else { Err(ReplyStatus::PermissionDenied) }
    }
}

fn by_acl(entries: &[AclEntry], uid: u32, owner: u32, member: impl Fn(u32) -> bool, want: u8) -> u8 {
    let mask =
        entries.iter().find_map(|e| if let AclEntry::Mask(m) = e { Some(*m) } else { None }).unwrap_or(7);
    for entry in entries {
        if let AclEntry::User(user, granted) = *entry
            && user == uid
        {
            return granted & mask;
        }
    }
    let mut in_group = false;
    for entry in entries {
        let (granted, is_member) = match *entry {
            AclEntry::GroupObj(granted) => (granted, member(owner)),
            AclEntry::Group(gid, granted) => (granted, member(gid)),
            _ => continue,
        };
        if is_member {
            in_group = true;
            if granted & mask & want == want {
                return granted & mask;
            }
        }
    }
    if in_group {
        return 0;
    }
    entries.iter().find_map(|e| if let AclEntry::Other(o) = e { Some(*o) } else { None }).unwrap_or(0)
}

/// A path's components, last first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> =
        path.split(|&b| b == b'/').filter(|c| !c.is_empty()).map(<[u8]>::to_vec).collect();
    if path.len() > 1 && path.ends_with(b"/") {
        parts.push(b".".to_vec());
    }
    parts.reverse();
    parts
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// A glob of `*` and `?` against a name.
fn matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut g, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                g += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    g = at + 1;
                    n = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    glob[g.min(glob.len())..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (glob, name, is) in [
            ("*.c", "a.c", true),
            ("*.c", "a.h", false),
            ("a?c*", "abcd", true),
            ("**", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
        ] {
            assert_eq!(matches(glob.as_bytes(), name.as_bytes()), is, "{glob} {name}");
        }
    }

    #[test]
    fn paths_are_split_last_first() {
        assert_eq!(components(b"//a/./b/"), [b".".to_vec(), b"b".to_vec(), b".".to_vec(), b"a".to_vec()]);
        assert_eq!(join(b"/", b"x"), b"/x");
        assert_eq!(join(b"/a", b"x"), b"/a/x");
    }

    #[test]
    fn an_acl_decides_as_acl5_says() {
        use AclEntry::*;
        let acl = [UserObj(6), User(7, 4), GroupObj(4), Group(50, 7), Mask(5), Other(0)];
        assert_eq!(by_acl(&acl, 7, 10, |_| false, 4), 4);
        assert_eq!(by_acl(&acl, 8, 10, |g| g == 50, 1), 5);
        assert_eq!(by_acl(&acl, 8, 10, |g| g == 10, 1), 0);
        assert_eq!(by_acl(&acl, 8, 10, |_| false, 4), 0);
    }
}
