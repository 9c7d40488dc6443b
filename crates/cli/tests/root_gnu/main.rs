//! `ls`, `stat`, `du`, `wc`, `cksum`, `cp` and `diff` against coreutils and diffutils on the kernel's mount
//! of the same volume: random flags and formats, on a tree with odd names, links, devices, sizes and times;
//! bytes, order and exit status, and what is copied. Needs root.
//!
//! `NEARSIDE_GNU_CASES` says how many, for each command.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nearside_conformance::needs;
use nearside_conformance::volume::{Mounted, ext};
use nearside_random::Rng;
use tempfile::TempDir;

mod cksum;
mod cp;
mod deleted;
mod diff;
mod du;
mod ls;
mod stat;
mod tree;
mod wc;

/// A volume, and where the kernel shows it.
struct Both {
    mount: Mounted,
    folder: TempDir,
}

/// What a run gave.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: Option<i32>,
    out: Vec<u8>,
}

impl Both {
    fn make(test: &str, tools: &[&str]) -> Option<Both> {
        Both::with(test, tools, |_| {})
    }

    /// A volume in which a test has put, or changed, what it needs beside the tree.
    fn with(test: &str, tools: &[&str], put: impl FnOnce(&Path)) -> Option<Both> {
        let tools = [tools, &["mke2fs", "mount", "umount"]].concat();
        if !needs::mounts(test, &tools) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (image, place) = (folder.path().join("disk.img"), folder.path().join("mnt"));
        ext(&image, 64, None, &["-t", "ext4", "-b", "2048", "-I", "256"]);
        let mount = Mounted::new(&["-o", "loop"], &image, &place);
        tree::make(mount.path());
        put(mount.path());
        mount.end();
        let mount = Mounted::new(&["-o", "loop,ro"], &image, &place);
        Some(Both { mount, folder })
    }

    /// The command on the volume, as root.
    fn nearside(&self, name: &str) -> Command {
        let mut nearside = Command::new(env!("CARGO_BIN_EXE_nearside"));
        nearside.arg(name).arg("-d").arg(self.folder.path().join("disk.img")).arg("--as=0:0");
        nearside
    }

    /// Where the mount has a path of the volume.
    fn at(&self, path: impl AsRef<OsStr>) -> OsString {
        let mut at = self.mount.path().as_os_str().to_owned();
        at.push(path);
        at
    }

    /// The regular files of so many bytes at most, by their paths in the volume.
    fn files(&self, most: u64) -> Vec<OsString> {
        let top = self.mount.path();
        let is_one = |path: &PathBuf| {
            let known = fs::symlink_metadata(top.join(path)).unwrap();
            known.is_file() && known.len() <= most
        };
        walk(top).into_iter().filter(is_one).map(|path| Path::new("/").join(path).into_os_string()).collect()
    }

    /// Runs the command and the tool of its name on paths of the volume. What the two have of their own (in
    /// `ours` and `theirs`) comes before what they share. Standard error is shown where they differ.
    fn run<P: AsRef<OsStr>>(
        &self,
        name: &str,
        flags: (&[&str], &[&str]),
        paths: &[P],
        environment: &[(&str, &str)],
    ) -> Result<Answer, String> {
        let (ours, theirs, said) = self.runs(name, flags, paths, environment);
        if ours == theirs { Ok(ours) } else { Err(shown(&said, &ours, &theirs)) }
    }

    /// As [`Both::run`], where also both have something to say on standard error, or none.
    fn run_and_hear<P: AsRef<OsStr>>(
        &self,
        name: &str,
        flags: (&[&str], &[&str]),
        paths: &[P],
        environment: &[(&str, &str)],
    ) -> Result<Answer, String> {
        let ([ours, theirs], said) = self.outputs(name, flags, paths, environment);
        let heard_alike = ours.stderr.is_empty() == theirs.stderr.is_empty();
        let (ours, theirs) = (self.answer(&ours), self.answer(&theirs));
        if heard_alike && ours == theirs { Ok(ours) } else { Err(shown(&said, &ours, &theirs)) }
    }

    /// What both gave, and what they were asked and said.
    fn runs<P: AsRef<OsStr>>(
        &self,
        name: &str,
        flags: (&[&str], &[&str]),
        paths: &[P],
        environment: &[(&str, &str)],
    ) -> (Answer, Answer, String) {
        let ([ours, theirs], said) = self.outputs(name, flags, paths, environment);
        (self.answer(&ours), self.answer(&theirs), said)
    }

    fn outputs<P: AsRef<OsStr>>(
        &self,
        name: &str,
        (ours, theirs): (&[&str], &[&str]),
        paths: &[P],
        environment: &[(&str, &str)],
    ) -> ([Output; 2], String) {
        let mut nearside = self.nearside(name);
        nearside.args(ours).args(paths);
        let mut tool = Command::new(name);
        tool.current_dir(self.mount.path()).args(theirs).args(paths.iter().map(|path| self.at(path)));
        let run = |command: &mut Command| {
            for name in ["TIME_STYLE", "QUOTING_STYLE", "LS_COLORS", "COLORTERM", "TERM", "BLOCK_SIZE"] {
                command.env_remove(name);
            }
            command.env("LC_ALL", "C").env("TZ", "UTC").env("COLUMNS", "9999");
            command.envs(environment.iter().copied()).output().unwrap()
        };
        let outputs = [run(&mut nearside), run(&mut tool)];
        let [our_words, their_words] =
            outputs.each_ref().map(|output| String::from_utf8_lossy(&output.stderr));
        let said = format!("{environment:?} {nearside:?}\n{our_words}\n{tool:?}\n{their_words}");
        (outputs, said)
    }

    fn answer(&self, output: &Output) -> Answer {
        Answer { code: output.status.code(), out: without(&output.stdout, self.mount.path()) }
    }
}

/// Two answers that are unlike, and what was said.
fn shown(said: &str, ours: &Answer, theirs: &Answer) -> String {
    let show =
        |answer: &Answer| format!("{:?}\n{}", answer.code, answer.out.escape_ascii()).replace("\\n", "\n");
    format!("{said}\n{}\n{}", show(ours), show(theirs))
}

/// A text without the path of the mount.
fn without(text: &[u8], mount: &Path) -> Vec<u8> {
    let what = mount.as_os_str().as_encoded_bytes();
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match rest.strip_prefix(what) {
            Some(after) => after,
            None => {
                out.push(byte);
                after
            }
        };
    }
    out
}

/// All paths below, sorted, without what links lead to.
fn walk(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(top.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Lines in any order, whatever they are of.
fn sorted(text: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    lines.sort_unstable();
    lines
}

fn cases() -> u64 {
    std::env::var("NEARSIDE_GNU_CASES").map_or(120, |n| n.parse().expect("a number"))
}

/// Some of these, each by chance.
fn some<'a>(random: &mut Rng, of: &[&'a str], one_in: usize) -> Vec<&'a str> {
    of.iter().copied().filter(|_| random.in_of(1, one_in)).collect()
}

#[track_caller]
fn none_unlike(unlike: &[String]) {
    assert!(unlike.is_empty(), "{} are unlike\n{}", unlike.len(), unlike.join("\n\n"));
}
