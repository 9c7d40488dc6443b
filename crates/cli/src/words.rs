//! The command line's words before clap has them:
//! what its own reading of a single dash would turn into something else.
//!
//! clap takes `-delete` for `-d elete`, a drive of that name, as getopt does. So `-d` stands alone, in every
//! command ([`of`] refuses the rest); and the words of `find`, which have one dash, are set apart for its own
//! parser ([`crate::find::expression`]).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Arg, ArgAction, Command};

use crate::failure::Failure;
use crate::find::expression;

/// The options that a command and those above it have.
struct Options {
    command: Command,
    above: Vec<Arg>,
}

/// What a word with dashes is.
enum Meaning {
    /// An option that takes the next word for its value.
    TakesNext,
    /// All there is to it.
    Alone,
    /// The short option of the drive with its value, or other options, in one word.
    JoinedDrive,
}

impl Options {
    fn known(&self) -> impl Iterator<Item = &Arg> {
        self.command.get_arguments().chain(self.above.iter().filter(|a| a.is_global_set()))
    }

    fn long(&self, name: &str) -> Option<&Arg> {
        self.known().find(|a| {
            a.get_long() == Some(name) || a.get_all_aliases().is_some_and(|all| all.contains(&name))
        })
    }

    fn short(&self, letter: char) -> Option<&Arg> {
        self.known().find(|a| {
            a.get_short() == Some(letter)
                || a.get_all_short_aliases().is_some_and(|all| all.contains(&letter))
        })
    }

    /// grep's -NUM, among the letters of a word: as the option that it means, and the word without it.
    fn number(&self, word: &OsStr) -> Option<(OsString, Option<OsString>)> {
        let letters = word.to_str()?.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
        let value = letters.find(|letter| self.short(letter).is_some_and(takes)).unwrap_or(letters.len());
        let (flags, rest) = letters.split_at(value);
        let number = flags.rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?;
        let others: String = flags.chars().filter(|c| !c.is_ascii_digit()).chain(rest.chars()).collect();
        let word = (!others.is_empty()).then(|| format!("-{others}").into());
        Some((format!("--context={number}").into(), word))
    }

    fn meaning(&self, word: &[u8]) -> Meaning {
        let next = |arg: Option<&Arg>| match arg.is_some_and(|a| takes(a) && !a.is_require_equals_set()) {
            true => Meaning::TakesNext,
            false => Meaning::Alone,
        };
        let text = String::from_utf8_lossy(word);
        if let Some(name) = text.strip_prefix("--") {
            return if name.contains('=') { Meaning::Alone } else { next(self.long(name)) };
        }
        let letters = text.strip_prefix('-').unwrap_or_default();
        for (at, letter) in letters.char_indices() {
            let rest = &letters[at + letter.len_utf8()..];
            match self.short(letter).filter(|arg| takes(arg)) {
                None => {}
                Some(arg) if arg.get_long() == Some("drive") && !rest.starts_with('=') => {
                    let alone = at == 0 && rest.is_empty();
                    return if alone { Meaning::TakesNext } else { Meaning::JoinedDrive };
                }
                Some(arg) if rest.is_empty() => return next(Some(arg)),
                Some(_) => return Meaning::Alone,
            }
        }
        Meaning::Alone
    }
}

/// du's -dN, at the end of a word: as the option that it means, and the word without it.
fn levels(word: &OsStr) -> Option<(OsString, Option<OsString>)> {
    let letters = word.to_str()?.strip_prefix('-')?;
    let (others, number) = letters.split_once('d')?;
    let plain = others.bytes().all(|b| b.is_ascii_alphanumeric()) && !number.is_empty();
    let rest = (!others.is_empty()).then(|| format!("-{others}").into());
    (plain && number.bytes().all(|b| b.is_ascii_digit()))
        .then(|| (format!("--max-depth={number}").into(), rest))
}

/// Whether an option takes a value.
fn takes(arg: &Arg) -> bool {
    let action = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    action && arg.get_num_args().is_none_or(|n| n.min_values() > 0)
}

/// The words as clap is to have them, by the program's definitions. Most lines need none, which takes a
/// while to make up: clap does so once more.
pub fn of(program: fn() -> Command, words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let is_find = words.get(1).is_some_and(|name| name == "find");
    if !is_find && words.iter().skip(1).all(|word| is_plain(word)) { Ok(words) } else { by(program(), words) }
}

/// Whether a word stays as it is in each command but `find`.
fn is_plain(word: &OsStr) -> bool {
    match word.as_bytes() {
        [b'-', b'-', ..] | [b'-'] => true,
        [b'-', letter] => letter.is_ascii_alphabetic() && *letter != b'h',
        word => !word.starts_with(b"-"),
    }
}

fn by(program: Command, words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let mut words = words.into_iter().peekable();
    let mut given: Vec<OsString> = words.next().into_iter().collect();
    let mut options = Options { command: program, above: Vec::new() };
    while let Some(command) = words.peek().and_then(|w| options.command.find_subcommand(w)).cloned() {
        let command = defined(command);
        options.above.extend(options.command.get_arguments().cloned());
        options.command = command;
        given.extend(words.next());
    }
    let is = |name| given.len() == 2 && options.command.get_name() == name;
    let (find, grep, du) = (is("find"), is("grep"), is("du"));
    let mut tests: Vec<OsString> = Vec::new();
    while let Some(mut word) = words.next() {
        let number = match () {
            () if grep => options.number(&word),
            () if du => levels(&word),
            () => None,
        };
        if let Some((option, rest)) = number {
            given.push(option);
            let Some(rest) = rest else { continue };
            word = rest;
        }
        let bytes = word.clone().into_vec();
        let bytes = &bytes[..];
        if bytes == b"--" {
            given.push(word);
            given.extend(words.by_ref());
        } else if let Some((test, value)) = expression::word(&word).filter(|_| find) {
            let takes = expression::takes_value(&test);
            let program = expression::takes_program(&test);
            tests.push(test);
            while program && let Some(word) = words.next() {
                let ends = expression::ends_program(tests.last().map_or(OsStr::new(""), |last| last), &word);
                tests.push(word);
                if ends {
                    break;
                }
            }
            tests.extend(value.or_else(|| takes.then(|| words.next()).flatten()));
        } else if bytes.len() > 1 && bytes.first() == Some(&b'-') {
            if bytes == b"-h" && given.len() > 1 && options.short('h').is_none() {
                word = "--help-in-short".into();
            }
            match options.meaning(word.as_bytes()) {
                Meaning::JoinedDrive => return Err(joined(&options, &word)),
                Meaning::TakesNext => {
                    given.push(word);
                    given.extend(words.next());
                }
                Meaning::Alone => given.push(word),
            }
        } else if find && !tests.is_empty() {
            // No test: its parser says what it thinks of it, in turn.
            tests.push(word);
        } else {
            given.push(word);
        }
    }
    let test = |word: OsString| OsString::from_vec([b"--expression=", word.as_bytes()].concat());
    // Before the paths, which `--` may have begun.
    let at = given.len().min(2);
    given.splice(at..at, tests.into_iter().map(test));
    Ok(given)
}

/// A command with its options, which are not made up before a line names it. Help is the program's own.
fn defined(command: Command) -> Command {
    let mut command = command.disable_help_flag(true);
    command.build();
    command
}

fn joined(options: &Options, word: &OsStr) -> Failure {
    let command = options.command.get_name();
    let hint = if command == "ls" { "; -D lists directories themselves" } else { "" };
    let word = word.to_string_lossy();
    Failure::Message(format!("{command}: {word:?}: -d names the drive and stands alone (-d DRIVE){hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(line: &str) -> Result<String, String> {
        let program = <crate::Cli as clap::CommandFactory>::command;
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        // What is said to need no look is as a look leaves it.
        if words[1..].iter().all(|word| is_plain(word)) && words.get(1).is_none_or(|name| name != "find") {
            assert_eq!(by(program(), words.clone()).ok(), Some(words.clone()), "{line}");
        }
        match of(program, words) {
            Ok(words) => Ok(words.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")),
            Err(Failure::Message(text)) => Err(text),
            Err(other) => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_drives_option_stands_alone() {
        for line in [
            "nearside grep -d disk -delete x",
            "nearside ls -ld /etc",
            "nearside cat -ddisk.img /etc",
            "nearside wc -dl /etc",
            "nearside bench run -dram:1GiB",
        ] {
            assert!(through(line).unwrap_err().contains("stands alone"), "{line}");
        }
        for line in [
            "nearside",
            "nearside nonsense -delete",
            "nearside ls -lah -d disk.img /",
            "nearside ls -d=disk.img /",
            "nearside ls -d -delete /",
            // Values of other options, and what comes after two dashes.
            "nearside grep -e -delete -d disk /",
            "nearside grep -rie -delete -d disk /",
            "nearside grep -A3 -eprod -fdata -d disk /",
            "nearside grep --regexp -delete --context=3 /",
            "nearside grep -d disk -- -delete /",
            "nearside grep --color -d disk x",
            "nearside namespace --control -delete add 1 dram:1MiB",
            "nearside namespace add --control -delete 1 dram:1MiB",
            // Words that are plain in themselves.
            "nearside grep -d disk.img -r -n -i needle /srv --max-depth 3 -e x",
            "nearside ls -d - / -l -1",
            "nearside du -d disk --max-depth=1 / -h",
            "nearside du -d disk / -d 5",
            "nearside nonsense find ! -o x",
            "nearside bench run -d dram:1GiB --iodepth 4",
        ] {
            assert_eq!(through(line).as_deref(), Ok(line));
        }
    }

    #[test]
    fn numbers_among_letters_are_lines_or_levels() {
        for (line, given) in [
            ("nearside grep -5 x /", "nearside grep --context=5 x /"),
            ("nearside grep -n12e -7 /", "nearside grep --context=12 -ne -7 /"),
            ("nearside grep -1n2 -m3 -A4 -- -5", "nearside grep --context=2 -n -m3 -A4 -- -5"),
            ("nearside ls -1 /", "nearside ls -1 /"),
            ("nearside du -hd1 / -d2 -d x", "nearside du --max-depth=1 -h / --max-depth=2 -d x"),
        ] {
            assert_eq!(through(line).as_deref(), Ok(given));
        }
    }

    #[test]
    fn finds_words_are_set_apart() {
        for (line, given) in [
            (
                "nearside find -d disk / -name -type --json",
                "nearside find --expression=-name --expression=-type -d disk / --json",
            ),
            ("nearside find / --name=x -d disk", "nearside find --expression=-name --expression=x / -d disk"),
            (
                "nearside find / ! -delete -maxdepth 3 --as 1:2",
                "nearside find --expression=! --expression=-delete --expression=-maxdepth --expression=3 / --as 1:2",
            ),
            (
                "nearside find / -exec cat -d x {} ; -d disk",
                "nearside find --expression=-exec --expression=cat --expression=-d --expression=x --expression={} --expression=; / -d disk",
            ),
            ("nearside find -- -name", "nearside find -- -name"),
            ("nearside find -d disk /", "nearside find -d disk /"),
        ] {
            assert_eq!(through(line).as_deref(), Ok(given));
        }
    }
}
