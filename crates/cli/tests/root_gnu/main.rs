//! `ls`, `stat` and `du` against coreutils on the kernel's mount of the same volume: random flags and
//! formats, on a tree with odd names, links, devices, sizes and times; bytes, order and exit status. Needs
//! root.
//!
//! `NEARSIDE_GNU_CASES` says how many, for each command.

use std::path::Path;
use std::process::Command;

use nearside_conformance::needs;
use nearside_conformance::volume::{Mounted, ext};
use nearside_random::Rng;
use tempfile::TempDir;

mod deleted;
mod du;
mod ls;
mod stat;
mod tree;

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
        let tools = [tools, &["mke2fs", "mount", "umount"]].concat();
        if !needs::mounts(test, &tools) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (image, place) = (folder.path().join("disk.img"), folder.path().join("mnt"));
        ext(&image, 64, None, &["-t", "ext4", "-b", "2048", "-I", "256"]);
        let mount = Mounted::new(&["-o", "loop"], &image, &place);
        tree::make(mount.path());
        mount.end();
        let mount = Mounted::new(&["-o", "loop,ro"], &image, &place);
        Some(Both { mount, folder })
    }

    /// Runs the command and the tool of its name on paths of the volume. What the two have of their own (in
    /// `ours` and `theirs`) comes before what they share. Standard error is shown where they differ.
    fn run(
        &self,
        name: &str,
        (ours, theirs): (&[&str], &[&str]),
        paths: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Answer, String> {
        let (ours, theirs, said) = self.runs(name, (ours, theirs), paths, environment);
        if ours == theirs {
            return Ok(ours);
        }
        let show = |answer: &Answer| {
            format!("{:?}\n{}", answer.code, answer.out.escape_ascii()).replace("\\n", "\n")
        };
        Err(format!("{said}\n{}\n{}", show(&ours), show(&theirs)))
    }

    /// What both gave, and what they were asked and said.
    fn runs(
        &self,
        name: &str,
        (ours, theirs): (&[&str], &[&str]),
        paths: &[&str],
        environment: &[(&str, &str)],
    ) -> (Answer, Answer, String) {
        let mount = self.mount.path();
        let mut nearside = Command::new(env!("CARGO_BIN_EXE_nearside"));
        nearside.arg(name).arg("-d").arg(self.folder.path().join("disk.img")).arg("--as=0:0").args(ours);
        let mut tool = Command::new(name);
        tool.args(theirs).args(paths.iter().map(|path| format!("{}{path}", mount.display())));
        let answer = |command: &mut Command| {
            for name in ["TIME_STYLE", "QUOTING_STYLE", "LS_COLORS", "COLORTERM", "TERM", "BLOCK_SIZE"] {
                command.env_remove(name);
            }
            command.env("LC_ALL", "C").env("TZ", "UTC").env("COLUMNS", "9999");
            let output = command.envs(environment.iter().copied()).output().unwrap();
            let out = without(&output.stdout, mount);
            (Answer { code: output.status.code(), out }, String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let ((ours, our_words), (theirs, their_words)) = (answer(nearside.args(paths)), answer(&mut tool));
        let said = format!("{environment:?} {nearside:?}\n{our_words}\n{tool:?}\n{their_words}");
        (ours, theirs, said)
    }
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
