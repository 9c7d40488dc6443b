//! Drives by their names on a command line.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use nearside_cli::program::{DriveArgs, Failure, complain, complain_of, credentials, drives_of, session};
use nearside_fsrlib::{Failure as Refusal, Seen, Session, Transport};

use crate::{Drives, Way};

/// Warnings that are said.
const MOST_WARNINGS: usize = 1024;

/// What is said of all drives.
#[derive(Debug, Default)]
pub struct Said {
    /// Once each.
    warnings: Mutex<BTreeSet<String>>,
    failed: AtomicBool,
    /// How far each session has come.
    seen: Mutex<Vec<Arc<Seen>>>,
}

/// Whatever panicked held it for a moment, and left it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Said {
    /// Files and bytes.
    pub fn so_far(&self) -> (u64, u64) {
        let seen = lock(&self.seen);
        seen.iter().map(|seen| seen.get()).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// A file could not be read, and was left out.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// A drive by its name on the command line.
#[derive(Debug)]
pub struct Named {
    name: String,
    /// There are others: what is said of it begins with its name.
    several: bool,
    args: DriveArgs,
    said: Arc<Said>,
    /// By which another process finds it.
    words: Vec<String>,
    /// Files that cannot be read are left out, and said; otherwise there is no answer without them.
    leaves_out: bool,
}

/// The word that says so to another process.
const LEAVES_OUT: &str = "--leave-out";

/// The drive's options by themselves.
#[derive(Parser)]
#[command(args_override_self = true)]
struct DriveOptions {
    #[command(flatten)]
    drive: DriveArgs,
    /// Files that cannot be read are left out.
    #[arg(long)]
    leave_out: bool,
}

/// Options of other commands', which say nothing here.
const OF_OTHERS: [&str; 7] = ["mounted", "glob", "locate", "compute", "host_cache", "timing", "threads"];

impl Named {
    /// A drive by its name, as its `words` have it, which another process has said.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn found(name: &str, words: &[String], said: &Arc<Said>) -> Result<Named, String> {
        let line = std::iter::once("").chain(words.iter().map(String::as_str));
        let DriveOptions { drive: args, leave_out } = DriveOptions::try_parse_from(line)
            .map_err(|error| format!("{name}: no words for a drive: {}", error.kind()))?;
        if has_others(&args) {
            return Err(format!("{name}: no words for a drive"));
        }
        let (name, words) = (name.to_owned(), words.to_vec());
        Ok(Named { name, several: true, args, said: said.clone(), words, leaves_out: leave_out })
    }
}

impl Way for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn words(&self) -> Option<Vec<String>> {
        Some(self.words.clone())
    }

    fn open(&self) -> Result<Session<Box<dyn Transport>>, String> {
        let session = session(&self.args).map_err(|failure| failure.to_string())?;
        lock(&self.said.seen).push(session.seen());
        Ok(session)
    }

    fn warn(&self, text: &str) {
        let warning = match self.several {
            true => format!("warning: {}: {text}", self.name),
            false => format!("warning: {text}"),
        };
        let mut said = lock(&self.said.warnings);
        if said.len() < MOST_WARNINGS && said.insert(warning.clone()) {
            complain(&warning);
        }
    }

    fn failed(&self, path: &[u8], failure: &Refusal) -> Result<(), String> {
        if !self.leaves_out {
            let (path, why) = (String::from_utf8_lossy(path), nearside_fsrlib::describe(failure));
            return Err(format!("{}: {path}: {why}", self.name));
        }
        self.said.failed.store(true, Ordering::Relaxed);
        let path = match self.several {
            true => [self.name.as_bytes(), b": ", path].concat(),
            false => path.to_vec(),
        };
        complain_of(&path, failure);
        Ok(())
    }
}

/// What `-d` takes beside the name of one drive.
const MANY: &str = "a folder, which is all images in it; or discover:HOST[:PORT], which is every namespace that a \
    discovery service there lists for this host (port 8009 unless given). May stand several times";

/// A command's line: `-d` may stand several times, and what is not of queries is not shown.
pub fn of_several(command: clap::Command) -> clap::Command {
    let command = command.mut_arg("drive", |drive| {
        let one = drive.get_help().map(ToString::to_string).unwrap_or_default();
        drive.action(clap::ArgAction::Append).help(format!("{one}; {MANY}"))
    });
    OF_OTHERS.into_iter().fold(command, |command, name| command.mut_arg(name, |option| option.hide(true)))
}

fn has_others(args: &DriveArgs) -> bool {
    let default = <DriveOptions as Parser>::parse_from(["", "-d", "x"]).drive;
    let others = args.mounted || args.glob || args.timing || args.host_cache || args.threads.is_some();
    others || (args.locate, args.compute) != (default.locate, default.compute)
}

/// The words of a drive: its options as they were given, and for whom permissions are checked.
fn words(matches: &ArgMatches, args: &DriveArgs, leaves_out: bool) -> Result<Vec<String>, Failure> {
    // A name of this folder's is another elsewhere.
    let place = std::fs::canonicalize(&args.drive).ok().map(OsString::from);
    let text = |word: &OsStr| {
        let none = || Failure::Message(format!("{}: no UTF-8", word.display()));
        word.to_str().map(str::to_owned).ok_or_else(none)
    };
    let user = credentials(args)?;
    let groups: String = user.groups.iter().map(|group| format!(",{group}")).collect();
    let drive = text(place.as_deref().unwrap_or(&args.drive))?;
    let mut words = vec![format!("--drive={drive}"), format!("--as={}:{}{groups}", user.uid, user.gid)];
    words.extend(leaves_out.then(|| LEAVES_OUT.to_owned()));
    for option in DriveOptions::command().get_arguments() {
        let id = option.get_id().as_str();
        let given = |id| {
            matches.try_contains_id(id).is_ok_and(|is| is) && {
                matches!(matches.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
            }
        };
        let Some(long) = option.get_long() else { continue };
        if ["drive", "identity", "json", "leave_out"].contains(&id) || !given(id) {
            continue;
        }
        if !option.get_action().takes_values() {
            words.push(format!("--{long}"));
            continue;
        }
        for value in matches.get_raw(id).into_iter().flatten() {
            words.push(format!("--{long}={}", text(value)?));
        }
    }
    Ok(words)
}

/// The drives of a command line.
///
/// # Errors
/// What is wrong with a name, or with an option; a folder cannot be read, or a discovery service not asked.
pub fn drives(matches: &ArgMatches, said: &Arc<Said>, leaves_out: bool) -> Result<Drives, Failure> {
    let args = DriveArgs::from_arg_matches(matches).map_err(|error| Failure::Message(error.to_string()))?;
    if has_others(&args) {
        let what = "--mounted, --glob, --timing, --threads, --locate, --compute and --host-cache are not of this command";
        return Err(Failure::Message(what.to_owned()));
    }
    let names: Vec<OsString> = matches.get_many("drive").into_iter().flatten().cloned().collect();
    let twice = {
        let mut known = BTreeSet::new();
        names.iter().find(|name| !known.insert(*name))
    };
    if let Some(twice) = twice {
        return Err(Failure::Message(format!("{}: named twice", twice.display())));
    }
    let all = drives_of(names, || args.host.options().map_err(|failure| failure.to_string()))?;
    let several = all.len() > 1;
    let named = all.into_iter().map(|drive| {
        let name = drive.to_string_lossy().into_owned();
        let args = DriveArgs { drive, ..args.clone() };
        let words = words(matches, &args, leaves_out)?;
        let said = said.clone();
        Ok(Arc::new(Named { name, several, args, said, words, leaves_out }) as Arc<dyn Way>)
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What another process finds by a drive's words is the drive that was named, with its options.
    #[test]
    fn words_say_all_that_the_command_line_did() {
        let line = [
            "",
            "-d",
            "nvme+tcp://host:1/nqn.2026-11.example:a/1",
            "-d",
            "unix:a b",
            "--partition",
            "LABEL=root",
            "--hdr-digest",
            "--home",
            "--ctrl-loss-tmo=-1",
            "--reconnect-delay",
            "3",
            "--as",
            "1:2,3",
            "--hostnqn",
            "nqn.2026-11.example:me",
            "--allow-unrecovered",
            "--completion",
            "hybrid",
        ];
        let matches = of_several(DriveOptions::command()).get_matches_from(line);
        let said = Arc::new(Said::default());
        for leaves_out in [false, true] {
            let drives = drives(&matches, &said, leaves_out).unwrap();
            assert_eq!(drives.len(), 2);
            for (nth, way) in drives.iter().enumerate() {
                let found = Named::found(way.name(), &way.words().unwrap(), &said).unwrap();
                let mut expected = DriveArgs::from_arg_matches(&matches).unwrap();
                expected.drive = line[2 + 2 * nth].into();
                assert_eq!(format!("{:?}", found.args), format!("{expected:?}"));
                assert_eq!((found.name(), found.leaves_out), (line[2 + 2 * nth], leaves_out));
            }
        }
        for words in
            [&["--drive=x", "--mounted"][..], &["--drive=x", "--no-such"], &["--drive=x", "--threads=4"], &[]]
        {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            assert!(Named::found("x", &words, &said).is_err(), "{words:?}");
        }
    }
}
