//! A seeded workload on a mounted volume: what hosts do to files and directories, kind by kind. It keeps only
//! names; what they hold is asked of the mount.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use nearside_random::Rng;
use rustix::fs::FallocateFlags;

/// What a search looks for.
pub const NEEDLE: &str = "needle";

/// How much of it there may be.
#[derive(Clone, Copy)]
pub struct Size {
    /// Longest write, in bytes.
    pub write: u64,
    /// Furthest end of a file, in bytes.
    pub file: u64,
    /// Files at a time, the large directories' apart.
    pub files: usize,
    /// Names in each large directory.
    pub names: u64,
    /// Holes are punched and blocks preallocated. (Not with data in inodes: there fallocate of
    /// Linux 6.18 leaves the page cache and the disk with different bytes. After the next mount the
    /// host reads what the drive said all the time.)
    pub fallocate: bool,
}

/// All names, as paths from the volume's root that begin with '/'.
pub struct Workload {
    mount: PathBuf,
    rng: Rng,
    size: Size,
    serial: u64,
    files: Vec<String>,
    links: Vec<String>,
    dirs: Vec<String>,
    /// Each with the numbers of the names that it holds.
    large: Vec<(String, BTreeSet<u64>)>,
    /// What the round has touched: to be compared, whether it is there or not.
    pub touched: BTreeSet<String>,
}

fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

fn large_name(dir: &str, n: u64) -> String {
    // Of many lengths, up to the longest there is.
    format!("{dir}/{n:05}{}", "-long-name".repeat((n % 25) as usize))
}

impl Workload {
    pub fn new(mount: &Path, seed: u64, size: Size) -> Workload {
        let mut all = Workload {
            mount: mount.to_owned(),
            rng: Rng(seed),
            size,
            serial: 0,
            files: Vec::new(),
            links: Vec::new(),
            dirs: vec!["/".into(), "/a".into(), "/a/b".into(), "/a/b/c".into()],
            large: vec![("/large0".into(), BTreeSet::new()), ("/large1".into(), BTreeSet::new())],
            touched: BTreeSet::new(),
        };
        fs::create_dir_all(all.at("/a/b/c")).unwrap();
        for (dir, _) in &all.large {
            fs::create_dir(all.at(dir)).unwrap();
        }
        all.touch("/a/b/c");
        all
    }

    /// Where a path of the volume is on this machine.
    pub fn at(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }

    fn touch(&mut self, path: &str) {
        self.touched.insert(parent(path).to_owned());
        self.touched.insert(path.to_owned());
    }

    fn pick(&mut self, of: usize) -> Option<usize> {
        (of > 0).then(|| self.rng.below(of as u64) as usize)
    }

    /// Some path that there is.
    pub fn any(&mut self) -> String {
        let nr = self.rng.below(20);
        if nr < 2 {
            let (dir, names) = &self.large[nr as usize];
            let at = self.rng.below(names.len() as u64 + 1) as usize;
            return names.iter().nth(at).map_or(dir.clone(), |n| large_name(dir, *n));
        }
        let from = match nr {
            2 => &self.links,
            3 | 4 => &self.dirs,
            _ => &self.files,
        };
        let from = if from.is_empty() { &self.dirs } else { from };
        from[self.rng.below(from.len() as u64) as usize].clone()
    }

    fn new_path(&mut self, kind: &str) -> String {
        self.serial += 1;
        let dir = self.rng.below(self.dirs.len() as u64) as usize;
        let dir = self.dirs[dir].trim_end_matches('/');
        let padding = "x".repeat(if self.rng.below(8) == 0 { 150 } else { 0 });
        format!("{dir}/{kind}{}{padding}", self.serial)
    }

    /// Lines, of which some hold the needle; sometimes bytes of any kind.
    fn bytes(&mut self) -> Vec<u8> {
        // Half of them short: of a block or less, or within an inode.
        let most = if self.rng.below(2) == 0 { 200 } else { self.size.write };
        let len = self.rng.below(most) as usize;
        let mut bytes = Vec::with_capacity(len + 64);
        while bytes.len() < len {
            let draw = self.rng.below(1 << 40);
            let word = if draw.is_multiple_of(5) { NEEDLE } else { "hay" };
            bytes.extend(format!("line {draw:x} of {word} {}\n", self.serial).into_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    fn file(&mut self) -> Option<(String, File)> {
        let nr = self.pick(self.files.len())?;
        let path = self.files[nr].clone();
        self.touch(&path);
        let file = OpenOptions::new().read(true).write(true).open(self.at(&path)).unwrap();
        Some((path, file))
    }

    fn gone(&mut self, path: &str) {
        self.touch(path);
        fs::remove_file(self.at(path)).unwrap();
    }

    /// Does one thing of one kind; its name. Nothing, where that kind finds nothing to be done to.
    pub fn step(&mut self) -> Option<&'static str> {
        let kind = self.rng.below(24);
        let full = self.files.len() >= self.size.files;
        match kind {
            0..=2 if !full => Some(self.create()),
            3..=9 => self.write(kind),
            10 | 11 => self.allocate(kind),
            12 | 13 => self.rename(),
            14 => self.replace(),
            15 if !full => self.link(),
            0..=2 | 15..=17 => {
                let nr = self.pick(self.files.len())?;
                let path = self.files.swap_remove(nr);
                self.gone(&path);
                Some("unlink")
            }
            18 => self.symbolic_link(),
            19 => self.directory(),
            20 | 21 => Some(self.attributes(kind)),
            _ => self.large(),
        }
    }

    fn create(&mut self) -> &'static str {
        let path = self.new_path("file");
        let bytes = self.bytes();
        fs::write(self.at(&path), bytes).unwrap();
        self.touch(&path);
        self.files.push(path);
        "create"
    }

    fn write(&mut self, kind: u64) -> Option<&'static str> {
        let (_, file) = self.file()?;
        let end = file.metadata().unwrap().len();
        Some(match kind {
            3 | 4 => {
                let bytes = self.bytes();
                file.write_all_at(&bytes, end).unwrap();
                if end + bytes.len() as u64 > self.size.file {
                    file.set_len(1000).unwrap();
                }
                "append"
            }
            5 | 6 => {
                let bytes = self.bytes();
                let at = self.rng.below(end.saturating_sub(bytes.len() as u64) + 1);
                file.write_all_at(&bytes, at).unwrap();
                "overwrite"
            }
            7 => {
                file.set_len(self.rng.below(end + 1)).unwrap();
                "truncate down"
            }
            8 => {
                let room = self.size.file.saturating_sub(end) + 1;
                file.set_len(end + self.rng.below(room)).unwrap();
                "truncate up"
            }
            _ => {
                let at = self.rng.below(self.size.file);
                let bytes = self.bytes();
                file.write_all_at(&bytes, at).unwrap();
                "write beyond the end"
            }
        })
    }

    fn allocate(&mut self, kind: u64) -> Option<&'static str> {
        if !self.size.fallocate {
            return None;
        }
        let (_, file) = self.file()?;
        let end = file.metadata().unwrap().len();
        let (name, how, at, len) = if kind == 10 {
            let at = self.rng.below(end + 1);
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            ("punch", how, at, self.rng.below(end - at + 1) + 1)
        } else {
            ("preallocate", FallocateFlags::empty(), end, self.rng.below(self.size.write) + 1)
        };
        match rustix::fs::fallocate(&file, how, at, len) {
            Ok(()) => Some(name),
            // Block maps, as on ext3: there is nothing to compare then.
            Err(rustix::io::Errno::OPNOTSUPP) => None,
            Err(error) => panic!("{name} {len} at {at}: {error}"),
        }
    }

    fn rename(&mut self) -> Option<&'static str> {
        let nr = self.pick(self.files.len())?;
        let to = self.new_path("moved");
        let from = std::mem::replace(&mut self.files[nr], to.clone());
        fs::rename(self.at(&from), self.at(&to)).unwrap();
        self.touch(&from);
        self.touch(&to);
        Some("rename")
    }

    fn replace(&mut self) -> Option<&'static str> {
        let nr = self.pick(self.files.len())?;
        let from = self.files.swap_remove(nr);
        let Some(to) = self.pick(self.files.len()) else {
            self.files.push(from);
            return None;
        };
        let to = self.files[to].clone();
        fs::rename(self.at(&from), self.at(&to)).unwrap();
        // Two names of one file: rename does nothing then.
        if self.at(&from).exists() {
            self.files.push(from.clone());
        }
        self.touch(&from);
        self.touch(&to);
        Some("replace")
    }

    fn link(&mut self) -> Option<&'static str> {
        let nr = self.pick(self.files.len())?;
        let (from, to) = (self.files[nr].clone(), self.new_path("link"));
        fs::hard_link(self.at(&from), self.at(&to)).unwrap();
        self.touch(&from);
        self.touch(&to);
        self.files.push(to);
        Some("link")
    }

    fn symbolic_link(&mut self) -> Option<&'static str> {
        if self.links.len() > 20 {
            let nr = self.pick(self.links.len())?;
            let path = self.links.swap_remove(nr);
            self.gone(&path);
            return Some("unlink a symbolic link");
        }
        // Within the inode, or in a block of its own.
        let len = self.rng.below(200) as usize + 1;
        let path = self.new_path("symlink");
        symlink("t".repeat(len), self.at(&path)).unwrap();
        self.touch(&path);
        self.links.push(path);
        Some("symbolic link")
    }

    fn attributes(&mut self, kind: u64) -> &'static str {
        let path = self.any();
        let (name, mode, owner) = if kind == 20 {
            ("chmod", Some(self.rng.below(0o1000) as u32 | 0o400), None)
        } else {
            ("chown", None, Some((self.rng.below(70_000) as u32, self.rng.below(70_000) as u32)))
        };
        if self.links.contains(&path) {
            return name;
        }
        if let Some(mode) = mode {
            fs::set_permissions(self.at(&path), Permissions::from_mode(mode)).unwrap();
        }
        if let Some((uid, gid)) = owner {
            chown(self.at(&path), Some(uid), Some(gid)).unwrap();
        }
        self.touch(&path);
        name
    }

    fn directory(&mut self) -> Option<&'static str> {
        match self.rng.below(4) {
            0 | 1 if self.dirs.len() < 40 => {
                let path = self.new_path("dir");
                fs::create_dir(self.at(&path)).unwrap();
                self.touch(&path);
                self.dirs.push(path);
                Some("make a directory")
            }
            2 => {
                // With all below it, to the root: never into itself.
                let nr = 1 + self.pick(self.dirs.len() - 1)?;
                self.serial += 1;
                let (from, to) = (self.dirs[nr].clone(), format!("/tree{}", self.serial));
                fs::rename(self.at(&from), self.at(&to)).unwrap();
                self.touch(&from);
                let below = format!("{from}/");
                let mut touched = vec![to.clone()];
                for path in self.files.iter_mut().chain(&mut self.links).chain(&mut self.dirs) {
                    if *path == from || path.starts_with(&below) {
                        let new = format!("{to}{}", &path[from.len()..]);
                        touched.push(std::mem::replace(path, new.clone()));
                        touched.push(new);
                    }
                }
                touched.iter().for_each(|path| self.touch(path));
                Some("rename a directory")
            }
            _ => {
                // Only an empty one goes.
                let nr = 1 + self.pick(self.dirs.len() - 1)?;
                if self.dirs.len() < 4 || fs::remove_dir(self.at(&self.dirs[nr])).is_err() {
                    return None;
                }
                let path = self.dirs.swap_remove(nr);
                self.touch(&path);
                Some("remove a directory")
            }
        }
    }

    /// A large directory grows by many names, or loses many.
    fn large(&mut self) -> Option<&'static str> {
        let nr = self.rng.below(self.large.len() as u64) as usize;
        let (dir, mut names) = self.large[nr].clone();
        let count = self.rng.below(self.size.names / 20) + 1;
        let empty = self.rng.below(60) == 0;
        let grow = names.len() as u64 + count < self.size.names && self.rng.below(3) > 0;
        for i in 0..count {
            let n = self.rng.below(self.size.names * 2);
            let path = large_name(&dir, n);
            if grow && names.insert(n) {
                File::create_new(self.at(&path)).unwrap();
            } else if !grow && names.remove(&n) {
                fs::remove_file(self.at(&path)).unwrap();
            } else {
                continue;
            }
            // Of many names some are compared one by one; all of them in the directory's listing.
            if i % 16 == 0 {
                self.touch(&path);
            }
        }
        if empty && !grow {
            for n in std::mem::take(&mut names) {
                fs::remove_file(self.at(&large_name(&dir, n))).unwrap();
            }
        }
        self.touch(&dir);
        self.large[nr].1 = names;
        Some(if grow { "grow a directory" } else { "shrink a directory" })
    }
}
