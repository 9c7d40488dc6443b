//! A seeded workload on a mounted volume: files and directories that come, grow, shrink and go, with fsync
//! and fdatasync in between.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nearside_random::Rng;

use super::run;

/// What the workload has made so far.
pub struct Churn {
    random: Rng,
    root: PathBuf,
    /// Largest write, in bytes.
    write_max: u64,
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    named: u64,
    /// Only steps that fast commits can say, and a sync after most of them.
    fast: bool,
}

impl Churn {
    pub fn new(root: &Path, seed: u64, write_max: u64) -> Churn {
        let root = root.to_path_buf();
        let dirs = vec![root.clone()];
        Churn { random: Rng(seed), root, write_max, dirs, files: Vec::new(), named: 0, fast: false }
    }

    /// Without what makes a kernel leave fast commits, such as extended attributes, and with many syncs.
    pub fn fast(root: &Path, seed: u64, write_max: u64) -> Churn {
        Churn { fast: true, ..Churn::new(root, seed, write_max) }
    }

    fn name(&mut self) -> PathBuf {
        self.named += 1;
        let long = "x".repeat(self.random.below(40) as usize);
        let dir = self.random.index(self.dirs.len());
        self.dirs[dir].join(format!("n{}{long}", self.named))
    }

    fn file(&mut self) -> Option<PathBuf> {
        (!self.files.is_empty()).then(|| self.files[self.random.index(self.files.len())].clone())
    }

    /// So many steps. A full volume is no error.
    pub fn steps(&mut self, steps: usize) -> std::io::Result<()> {
        for _ in 0..steps {
            match self.step() {
                Err(e) if e.raw_os_error() == Some(28) => self.make_room()?,
                other => other?,
            }
        }
        Ok(())
    }

    fn make_room(&mut self) -> std::io::Result<()> {
        for file in self.files.split_off(self.files.len() / 4) {
            fs::remove_file(file)?;
        }
        File::open(&self.root)?.sync_all()
    }

    fn step(&mut self) -> std::io::Result<()> {
        if !self.fast {
            return self.any_step();
        }
        match self.random.below(24) {
            0..=5 => self.create(),
            6..=8 => self.write(),
            9 => self.shrink(),
            10..=11 => self.rename(),
            12..=13 => self.link(),
            14..=16 => self.unlink(),
            17..=18 => self.directory(),
            19 => self.crowd(),
            20 => self.gone(),
            21 => self.mode(),
            22 => self.allocate(),
            // At times a full commit, so that their area is not full for most of the time.
            _ => match self.random.below(3) {
                0 => self.sync_all(),
                _ => self.write(),
            },
        }?;
        match self.random.below(4) {
            0 => Ok(()),
            _ => self.sync(),
        }
    }

    fn any_step(&mut self) -> std::io::Result<()> {
        match self.random.below(20) {
            0..=3 => self.create(),
            4..=6 => self.write(),
            7 => self.shrink(),
            8..=9 => self.rename(),
            10 => self.link(),
            11..=12 => self.unlink(),
            13 => self.directory(),
            14 => self.crowd(),
            15 => self.gone(),
            16 => self.attribute(),
            17 => self.allocate(),
            _ => self.sync(),
        }
    }

    fn create(&mut self) -> std::io::Result<()> {
        let path = self.name();
        let len = self.random.below(self.write_max) as usize;
        fs::write(&path, self.content(len))?;
        self.files.push(path);
        Ok(())
    }

    /// Half of them begin blocks with a journal's magic number, which a journal of data must escape.
    fn content(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = self.random.bytes(len);
        if self.random.below(2) == 0 {
            for block in bytes.chunks_mut(1024).filter(|block| block.len() >= 4) {
                block[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
            }
        }
        bytes
    }

    fn write(&mut self) -> std::io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let len = self.random.below(self.write_max / 2) as usize;
        let bytes = self.content(len);
        if self.random.below(2) == 0 {
            return OpenOptions::new().append(true).open(path)?.write_all(&bytes);
        }
        let at = self.random.below(self.write_max * 2) / 512 * 512;
        OpenOptions::new().write(true).open(path)?.write_all_at(&bytes, at)
    }

    fn shrink(&mut self) -> std::io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(self.random.below(file.metadata()?.len() + 1000))
    }

    fn rename(&mut self) -> std::io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let nr = self.random.index(self.files.len());
        // Over another one, at times.
        let to = match self.random.below(4) {
            0 => self.files[self.random.index(self.files.len())].clone(),
            _ => self.name(),
        };
        let from = self.files[nr].clone();
        fs::rename(&from, &to)?;
        if to != from && !fs::exists(&from)? {
            self.files.retain(|file| *file != from && *file != to);
            self.files.push(to);
        }
        Ok(())
    }

    fn link(&mut self) -> std::io::Result<()> {
        let (Some(path), name) = (self.file(), self.name()) else { return Ok(()) };
        match self.random.below(2) {
            0 => symlink("t".repeat(self.random.below(200) as usize + 1), &name),
            _ => fs::hard_link(path, &name),
        }?;
        if !name.is_symlink() {
            self.files.push(name);
        }
        Ok(())
    }

    fn unlink(&mut self) -> std::io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let nr = self.random.index(self.files.len());
        fs::remove_file(self.files.swap_remove(nr))
    }

    fn directory(&mut self) -> std::io::Result<()> {
        let path = self.name();
        fs::create_dir(&path)?;
        self.dirs.push(path);
        Ok(())
    }

    /// A directory of several blocks, which get an index.
    fn crowd(&mut self) -> std::io::Result<()> {
        let path = self.name();
        fs::create_dir(&path)?;
        if self.fast {
            // A directory that grows beyond a block in the fast commit that says it is new is one that the
            // kernel cannot recover.
            File::create(path.join("first"))?.sync_all()?;
        }
        for nr in 0..self.random.below(200) {
            File::create(path.join(format!("{nr}{}", "c".repeat(30))))?;
        }
        self.dirs.push(path);
        Ok(())
    }

    fn gone(&mut self) -> std::io::Result<()> {
        if self.dirs.len() < 4 {
            return Ok(());
        }
        if self.fast {
            // Of a directory that came and went in fast commits alone, the kernel leaves the blocks to the
            // next file that gets its inode.
            self.sync_all()?;
        }
        let nr = 1 + self.random.index(self.dirs.len() - 1);
        let gone = self.dirs[nr].clone();
        fs::remove_dir_all(&gone)?;
        self.dirs.retain(|dir| !dir.starts_with(&gone));
        self.files.retain(|file| !file.starts_with(&gone));
        Ok(())
    }

    fn mode(&mut self) -> std::io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        fs::set_permissions(path, Permissions::from_mode(0o400 + self.random.below(0o400) as u32))
    }

    fn attribute(&mut self) -> std::io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let text = path.to_str().unwrap();
        let bits = 0o400 + self.random.below(0o400) as u32;
        let done = match self.random.below(6) {
            0..=2 => return fs::set_permissions(&path, Permissions::from_mode(bits)),
            3 => return std::os::unix::fs::chown(&path, Some(bits), Some(70_000)),
            4 => run("setfattr", &["-n", "user.x", "-v", &"v".repeat(bits as usize), text]),
            _ => run("setfacl", &["-m", "u:1234:r-x,g:77:--x", text]),
        };
        match done {
            Err(said) if !said.contains("No space left") => Err(std::io::Error::other(said)),
            _ => Ok(()),
        }
    }

    fn allocate(&mut self) -> std::io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let (at, len) = (self.random.below(self.write_max), self.random.below(self.write_max) + 1);
        let how = ["--keep-size", "--punch-hole", "--zero-range"][self.random.index(3)];
        let (at, len) = (at.to_string(), len.to_string());
        match run("fallocate", &[how, "-o", &at, "-l", &len, path.to_str().unwrap()]) {
            // Of inline data and of volumes without extents the kernel knows no such thing.
            Err(said) if !said.contains("No space left") && !said.contains("upported") => {
                Err(std::io::Error::other(said))
            }
            _ => Ok(()),
        }
    }

    /// A full commit.
    fn sync_all(&self) -> std::io::Result<()> {
        run("sync", &["-f", self.root.to_str().unwrap()]).map(drop).map_err(std::io::Error::other)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let file = File::open(path)?;
        if self.random.below(2) == 0 { file.sync_all() } else { file.sync_data() }
    }
}
