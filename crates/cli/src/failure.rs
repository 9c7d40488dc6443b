//! How a command ends: its exit status, and what it says when it fails.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nearside_fsrlib::{Failure as Refusal, describe};

use crate::{progress, terminal};

/// The exit status that a shell shows for SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Why a command stopped.
#[derive(Debug)]
pub enum Failure {
    /// Said on standard error as "nearside: ..."; exit status 2.
    Message(String),
    /// Whoever read the output has gone. A Unix tool ends without a word, by SIGPIPE;
    /// the exit status is the one that a shell shows for it.
    Pipe,
    /// The user's signal, and the drive knows it. Nothing is said.
    Interrupted,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Failure::Message(text) => text,
            Failure::Pipe => "broken pipe",
            Failure::Interrupted => "interrupted",
        })
    }
}

/// What a command returns: its exit status.
pub type Outcome = Result<u8, Failure>;

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Message(text)
    }
}

impl From<nearside_fsrlib::Error> for Failure {
    fn from(error: nearside_fsrlib::Error) -> Failure {
        Failure::Message(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Pipe,
            _ => Failure::Message(format!("standard output: {error}")),
        }
    }
}

/// Ends the program.
pub fn exit(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(Failure::Message(text)) => {
            complain(&text);
            ExitCode::from(2)
        }
        Err(Failure::Pipe) => ExitCode::from(128 + 13),
        Err(Failure::Interrupted) => ExitCode::from(INTERRUPTED),
    }
}

/// A message on standard error. A closed standard error is no reason to fail.
pub fn complain(text: &str) {
    say(&[without_numbers(text).as_bytes()]);
}

/// Whether the first path that is denied is to be said with what helps.
static HINTS: AtomicBool = AtomicBool::new(false);

/// The first path that is denied is said with how it may be had: the drive is the caller's own.
pub fn hint_at_root() {
    HINTS.store(true, Relaxed);
}

/// Says on standard error what is wrong with a path.
pub fn complain_about(path: &[u8], text: &str) {
    let path = if terminal::errors() { terminal::quoted_before_colon(path) } else { path.into() };
    say(&[&path, b": ", without_numbers(text).as_bytes()]);
}

/// Says why the drive refused a path.
pub fn complain_of(path: &[u8], refusal: &Refusal) {
    let hint = match *refusal == Refusal::PermissionDenied && HINTS.swap(false, Relaxed) {
        true => " to this user (--as 0:0 asks as root of the volume, as whoever can read the image may)",
        false => "",
    };
    complain_about(path, &format!("{}{hint}", describe(refusal)));
}

/// The system's words for an error, as its tools print them.
pub fn words(error: &io::Error) -> String {
    without_numbers(&error.to_string())
}

/// A text without the numbers that Rust puts behind the system's words.
fn without_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => plain.push_str(rest),
            _ => {
                plain.push_str(" (os error ");
                plain.push_str(piece);
            }
        }
    }
    plain
}

fn say(parts: &[&[u8]]) {
    let text = parts.concat();
    let text = if terminal::errors() { terminal::escaped_lines(&text) } else { text };
    let line = [b"nearside: ", &*text, b"\n"].concat();
    let _ = progress::above(|| io::stderr().lock().write_all(&line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_have_no_numbers() {
        assert_eq!(words(&io::Error::from_raw_os_error(2)), "No such file or directory");
        for (said, plain) in [
            ("a: Gone (os error 5), b: Gone (os error 6)", "a: Gone, b: Gone"),
            ("a (os error x), b (os error 7", "a (os error x), b (os error 7"),
        ] {
            assert_eq!(without_numbers(said), plain);
        }
    }
}
