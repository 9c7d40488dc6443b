//! Programs of other people: whether they are here, what they say, how they fail.

use std::process::{Command, Output, Stdio};

use nearside_dma::system::let_signals_through;
use nearside_instrument::volume::tool;

use crate::Failure;
use crate::ending::{apart, goes_on};

/// Which Debian package brings a program.
const PACKAGES: &[(&str, &str)] = &[
    ("db_bench", "rocksdb-tools"),
    ("memcached", "memcached"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("pgbench", "postgresql"),
    ("initdb", "postgresql"),
    ("redis-server", "redis-server"),
    ("runuser", "util-linux"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("mkswap", "util-linux"),
    ("swapon", "mount"),
    ("swapoff", "mount"),
];

/// Says which of these programs are missing, and what to install.
pub fn missing(names: &[&str]) -> Option<String> {
    let lacking: Vec<String> = names
        .iter()
        .filter(|name| tool(name).is_none())
        .map(|name| {
            let package = PACKAGES.iter().find(|(program, _)| program == name).map(|(_, package)| *package);
            package.map_or_else(|| (*name).to_owned(), |package| format!("{name} (package {package})"))
        })
        .collect();
    (!lacking.is_empty()).then(|| format!("not on this machine: {}", lacking.join(", ")))
}

/// A program by its name: from the PATH, or from where administrators' programs lie.
pub(crate) fn named(name: &str) -> Result<Command, Failure> {
    match tool(name) {
        Some(path) => Ok(let_signals_through(Command::new(path))),
        None => Err(missing(&[name]).unwrap_or_default().into()),
    }
}

/// The same, to undo something: a signal that ends the run does not end it.
pub(crate) fn undoing(name: &str) -> Result<Command, Failure> {
    named(name).map(apart)
}

/// Runs a program to its end; where it fails, the end of what it said is the error.
pub(crate) fn said(command: &mut Command) -> Result<String, Failure> {
    goes_on()?;
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", name_of(command)))?;
    checked(command, &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn checked(command: &Command, output: &Output) -> Result<(), Failure> {
    if output.status.success() {
        return Ok(());
    }
    let words = [&output.stdout[..], &output.stderr[..]].concat();
    let words = String::from_utf8_lossy(&words);
    let lines: Vec<&str> = words.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n  ");
    Err(format!("{}: {}\n  {last}", name_of(command), output.status).into())
}

fn name_of(command: &Command) -> String {
    std::path::Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The number behind `before`, up to the first character that is no part of one.
pub(crate) fn number_after(text: &str, before: &str) -> Option<f64> {
    let rest = text.get(text.find(before)? + before.len()..)?.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

/// The number that stands before `after`.
pub(crate) fn number_before(text: &str, after: &str) -> Option<f64> {
    let rest = text.get(..text.find(after)?)?.trim_end();
    let begin = rest.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |at| at + 1);
    rest.get(begin..)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_beside_their_words() {
        let line = "readrandom   :      94.929 micros/op 21067 ops/sec 3.038 seconds (31999 of 31999 found)";
        assert_eq!(number_before(line, " ops/sec"), Some(21067.0));
        assert_eq!(number_after(line, "readrandom   :"), Some(94.929));
        assert_eq!(number_after("P50: 8 P99: 217.78 P99.9: 552.10", "P99: "), Some(217.78));
        assert_eq!(number_after(line, "P99:"), None);
        assert_eq!(number_before("none ops/sec", " ops/sec"), None);
    }

    #[test]
    fn a_missing_program_names_its_package() {
        assert_eq!(missing(&["sh"]), None);
        assert_eq!(missing(&["sh", "no-such-program"]).unwrap(), "not on this machine: no-such-program");
    }

    #[test]
    fn a_failure_has_the_programs_last_words() {
        let failed = said(Command::new("sh").args(["-c", "echo first; echo why >&2; exit 3"])).unwrap_err();
        let words = failed.to_string();
        assert!(words.starts_with("sh: exit status: 3") && words.contains("first\n  why"), "{words}");
    }
}
