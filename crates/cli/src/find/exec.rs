//! `-exec`: programs of this host that are given paths of the volume.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process;

use crate::failure::complain;
use crate::progress;

/// A program and its words; `{}` stands for the path.
#[derive(Debug)]
pub struct Command {
    words: Vec<OsString>,
    /// Ended by `{} +`: called with many paths, which stand behind the words.
    many: bool,
    waiting: Vec<OsString>,
    /// Bytes of what waits.
    bytes: usize,
    failed: bool,
}

/// Bytes of paths in one call at most, as find has it.
const MOST: usize = 128 << 10;

impl Command {
    /// Of the words behind `-exec`, without the last; `many`: that was `+` behind `{}`.
    pub fn of(mut words: Vec<OsString>, many: bool) -> Result<Command, String> {
        if many {
            words.pop();
            if words.iter().any(|word| word.as_bytes().windows(2).any(|two| two == b"{}")) {
                return Err("only one {} may stand before +".into());
            }
        }
        match words.first() {
            Some(_) => Ok(Command { words, many, waiting: Vec::new(), bytes: 0, failed: false }),
            None => Err("no program is named".into()),
        }
    }

    /// Runs the program with a path: whether it ended well. Or keeps the path for a later call.
    pub fn call(&mut self, path: &[u8]) -> bool {
        if !self.many {
            let words: Vec<OsString> = self.words.iter().map(|word| with(word, path)).collect();
            return run(&words);
        }
        if self.bytes + path.len() > MOST {
            self.finish();
        }
        self.bytes += path.len() + 1;
        self.waiting.push(OsString::from_vec(path.to_vec()));
        true
    }

    /// Runs it with what waits.
    pub fn finish(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let mut words = self.words.clone();
        words.append(&mut self.waiting);
        self.bytes = 0;
        self.failed |= !run(&words);
    }

    /// Whether a call with many paths did not end well, which is find's failure.
    pub fn has_failed(&self) -> bool {
        self.failed
    }
}

/// A word with a path in the place of each `{}`.
fn with(word: &OsString, path: &[u8]) -> OsString {
    let mut rest = word.as_bytes();
    let mut all = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"{}") {
        all.extend_from_slice(&rest[..at]);
        all.extend_from_slice(path);
        rest = &rest[at + 2..];
    }
    all.extend_from_slice(rest);
    OsString::from_vec(all)
}

fn run(words: &[OsString]) -> bool {
    let Some((program, words)) = words.split_first() else { return true };
    progress::give_way();
    match process::Command::new(program).args(words).status() {
        Ok(status) => status.success(),
        Err(e) => {
            complain(&format!("{}: {e}", program.to_string_lossy()));
            false
        }
    }
}
