//! Volumes as the file systems' own tools make them, and these tools run.
//! That they are on the machine, [`needs::tools`] has said.

use std::fmt::Debug;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::needs;

/// A tool of the machine, in the C locale and without input.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(needs::tool(name).unwrap_or_else(|| name.into()));
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Runs what has to do well.
#[track_caller]
pub fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy);
    assert!(output.status.success(), "{command:?}: {}\n{}{}", output.status, said[0], said[1]);
    output
}

/// Makes a program of a file, by a process of its own: what is open for writing in this one a child of
/// another test's thread has open as well, until it is another program, and the kernel runs no file that
/// somebody may write.
#[track_caller]
pub fn install(from: &Path, to: &Path) {
    must(tool("install").args(["-m", "755"]).args([from, to]));
}

/// The tools that make a volume of this kind: `ext2`, `ext3`, `ext4` or `f2fs`.
pub fn tools(kind: &str) -> &'static [&'static str] {
    if kind == "f2fs" { &["mkfs.f2fs", "sload.f2fs"] } else { &["mke2fs"] }
}

/// Makes a volume of this kind and of so many MiB in a new file `image`, which holds the tree.
#[track_caller]
pub fn make(kind: &str, image: &Path, mib: u64, tree: &Path) {
    if kind == "f2fs" {
        f2fs(image, mib, Some(tree), &[]);
    } else {
        ext(image, mib, Some(tree), &["-t", kind]);
    }
}

/// Makes an ext volume of so many MiB by `mke2fs` with `options` in a new file `image`,
/// which holds the tree if there is one.
#[track_caller]
pub fn ext(image: &Path, mib: u64, tree: Option<&Path>, options: &[&str]) {
    sized(image, mib);
    let mut command = tool("mke2fs");
    command.args(["-q", "-F"]).args(options);
    if let Some(tree) = tree {
        command.arg("-d").arg(tree);
    }
    must(command.arg(image));
}

/// How many inodes an ext volume can have, and how many are in use, as `dumpe2fs` says.
#[track_caller]
pub fn ext_inodes(image: &Path) -> (u64, u64) {
    let told = must(tool("dumpe2fs").arg("-h").arg(image)).stdout;
    let told = String::from_utf8_lossy(&told);
    let number = |name: &str| {
        let value = told.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        value.unwrap_or_else(|| panic!("no {name:?} in {told}"))
    };
    let (all, free) = (number("Inode count:"), number("Free inodes:"));
    (all, all - free)
}

/// As [`ext`], an F2FS volume by `mkfs.f2fs` and `sload.f2fs`, with the tree's owners and modes.
#[track_caller]
pub fn f2fs(image: &Path, mib: u64, tree: Option<&Path>, options: &[&str]) {
    sized(image, mib);
    must(tool("mkfs.f2fs").args(["-q", "-f"]).args(options).arg(image));
    if let Some(tree) = tree {
        let loaded = tool("sload.f2fs").args(["-P", "-f"]).arg(tree).arg(image).output().unwrap();
        // It ends with 0 or, having written, 1.
        assert!(loaded.status.code().is_some_and(|code| code <= 1), "{loaded:?}");
    }
}

#[track_caller]
fn sized(image: &Path, mib: u64) {
    File::create(image).and_then(|file| file.set_len(mib << 20)).unwrap();
}

/// A mount; it ends with this.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts with `mount`'s own options (`-o loop` for a file) at `place`,
    /// which is made where it is missing.
    #[track_caller]
    pub fn new(options: &[&str], source: &Path, place: &Path) -> Mounted {
        std::fs::create_dir_all(place).unwrap();
        must(tool("mount").args(options).arg(source).arg(place));
        Mounted(place.to_owned())
    }

    /// One that another has made.
    pub fn of_another(place: PathBuf) -> Mounted {
        Mounted(place)
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Ends it, which nothing may hinder.
    #[track_caller]
    pub fn end(self) {
        unmount(&self.0).unwrap_or_else(|e| panic!("{e}"));
        std::mem::forget(self);
    }
}

/// For how long what is busy by chance is asked again.
const BUSY: Duration = Duration::from_secs(10);

/// Ends what is attached, by a way that says `Busy` while it is in use; which it may be by chance, as what
/// [`unmount`] waits for.
///
/// # Errors
/// What it said.
pub fn detach<T, E: Debug>(mut attached: T, detach: impl Fn(T) -> Result<(), (E, Box<T>)>) -> Result<(), E> {
    let until = Instant::now() + BUSY;
    loop {
        match detach(attached) {
            Ok(()) => return Ok(()),
            Err((error, still)) => {
                if !format!("{error:?}").starts_with("Busy") || Instant::now() > until {
                    return Err(error);
                }
                attached = *still;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Unmounts, which nothing may hinder. A program that another thread is about to start has, from its fork to
/// its exec, open what this process has open, or had a moment ago; and the kernel lets go of what is closed
/// only when who closed it goes on (`task_work`), by when no descriptor shows it. Both are waited for.
///
/// # Errors
/// What `umount` said.
pub fn unmount(at: &Path) -> Result<(), String> {
    let until = Instant::now() + BUSY;
    loop {
        let done = tool("umount").arg(at).output().map_err(|e| format!("umount: {e}"))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        if !said.contains("target is busy") || another_program_has_open(at) || Instant::now() > until {
            return Err(format!("umount {}: {said}", at.display()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a program that is not this one, which one about to start still is, has a file there.
fn another_program_has_open(at: &Path) -> bool {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let own = std::fs::read_link("/proc/self/exe").ok();
    entries(Path::new("/proc")).map(|process| process.path()).any(|process| {
        let mut open = entries(&process.join("fd"));
        open.any(|open| std::fs::read_link(open.path()).is_ok_and(|file| file.starts_with(at)))
            && std::fs::read_link(process.join("exe")).is_ok_and(|exe| Some(exe) != own)
    })
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if unmount(&self.0).is_err() {
            let _ = tool("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
        }
    }
}
