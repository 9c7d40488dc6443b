//! Rules with those that they include, which this host reads: a drive opens no file that a rule names.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nearside_fsrlib::Language;
use nearside_ndp::program::max_code;

use crate::failure::{Failure, words};
use crate::table::read_up_to;

/// Most files that are open in each other, as yara's.
const DEPTH: usize = 16;
/// Most files of all: of those that hold nothing but includes the text does not grow.
const FILES: usize = 100_000;
/// Most bytes of all of them.
pub const MOST: usize = max_code(Language::Yara);

/// Rules, and where their lines come from.
#[derive(Default)]
pub struct Expanded {
    pub text: Vec<u8>,
    files: Vec<PathBuf>,
    /// Where each line of the text begins.
    lines: Vec<Place>,
    /// Files that are open, as the system knows them.
    open: Vec<PathBuf>,
}

/// A place in a file.
#[derive(Clone, Copy)]
struct Place {
    file: usize,
    /// From 1 on.
    line: usize,
    /// Characters of the line before it.
    column: usize,
}

impl Place {
    /// Behind more bytes of the file.
    fn pass(&mut self, bytes: &[u8]) {
        let begins = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if begins > 0 {
            self.line += bytes.iter().filter(|byte| **byte == b'\n').count();
            self.column = 0;
        }
        self.column += bytes[begins..].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
    }
}

impl Expanded {
    /// Of a file that has been read; `-`: standard input, whose rules include from the working directory.
    ///
    /// # Errors
    /// Files that cannot be read, that include themselves, or too deep, or too much.
    pub fn of(name: &OsStr, text: &[u8]) -> Result<Expanded, Failure> {
        let mut all = Expanded::default();
        all.open.extend(Path::new(name).canonicalize());
        all.add(name.into(), text)?;
        Ok(all)
    }

    fn add(&mut self, path: PathBuf, text: &[u8]) -> Result<(), Failure> {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut place = Place { file: self.files.len(), line: 1, column: 0 };
        self.files.push(path);
        if self.text.len() + text.len() > MOST || self.files.len() > FILES {
            let name = self.files[0].display();
            let why = format!("{name}: with what it includes more than {MOST} bytes, or {FILES} files");
            return Err(Failure::Message(why));
        }
        if let Err(error) = std::str::from_utf8(text) {
            place.pass(&text[..error.valid_up_to()]);
            return Err(Failure::Message(format!("{}: no UTF-8", self.shown(place))));
        }
        self.begin(place);
        let mut at = 0;
        while let Some((directive, name)) = next_include(text, at) {
            self.push(&text[at..directive.start], &mut place);
            let path = folder.join(OsStr::from_bytes(&text[name]));
            let shown = self.shown(place);
            let wrong = |why: &str| Failure::Message(format!("{shown}: include {:?}: {why}", path.display()));
            let (known, included) = opened(&path).map_err(|error| wrong(&words(&error)))?;
            if self.open.contains(&known) {
                return Err(wrong("a cycle: the file is included while it is read"));
            }
            if self.open.len() >= DEPTH {
                return Err(wrong(&format!("the files are more than {DEPTH} deep")));
            }
            self.open.push(known);
            self.add(path, &included)?;
            self.open.pop();
            place.pass(&text[directive.clone()]);
            self.begin(place);
            at = directive.end;
        }
        self.push(&text[at..], &mut place);
        Ok(())
    }

    /// The text goes on with what stands there in a file, on a line of its own.
    fn begin(&mut self, place: Place) {
        match self.text.last() {
            None | Some(b'\n') => drop(self.lines.pop()),
            Some(_) => self.text.push(b'\n'),
        }
        self.lines.push(place);
    }

    fn push(&mut self, bytes: &[u8], place: &mut Place) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            place.pass(line);
            if line.ends_with(b"\n") {
                self.lines.push(*place);
            }
        }
        self.text.extend_from_slice(bytes);
    }

    /// A place, as it is shown.
    fn shown(&self, Place { file, line, .. }: Place) -> String {
        format!("{}:{line}", self.files[file].display())
    }

    /// What a drive says of a place in the text, said of the place in its file.
    pub fn placed(&self, said: &str) -> Option<String> {
        const BEFORE: &str = "the program: line ";
        let (before, rest) = said.rsplit_once(BEFORE)?;
        let [line, column, rest] = rest.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        let (line, column) = (line.parse::<usize>().ok()?, column.parse::<usize>().ok()?);
        let place = *self.lines.get(line.checked_sub(1)?)?;
        Some(format!("{before}{}:{}:{rest}", self.shown(place), place.column + column))
    }
}

/// A file that is included: as the system knows it, and what it holds, but no more than is too much. Of a
/// pipe or a terminal nobody knows when it ends.
fn opened(path: &Path) -> io::Result<(PathBuf, Vec<u8>)> {
    let known = path.canonicalize()?;
    let kind = std::fs::metadata(&known)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("no regular file"));
    }
    let bytes = read_up_to(File::open(&known)?, MOST)?;
    Ok((known, bytes))
}

/// The next directive to include from a byte between rules on, and within it the file's name: none in what is
/// a comment, a text, a regular expression or a rule's body.
fn next_include(text: &[u8], from: usize) -> Option<(Range<usize>, Range<usize>)> {
    let behind = |at: usize, what: &[u8]| {
        let found = text[at..].windows(what.len()).position(|window| window == what);
        found.map_or(text.len(), |found| at + found + what.len())
    };
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let (mut at, mut braces) = (from, 0_usize);
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' => braces += 1,
            b'}' => braces = braces.saturating_sub(1),
            _ => {}
        }
        at = match byte {
            b'/' if text[at..].starts_with(b"//") => behind(at, b"\n"),
            b'/' if text[at..].starts_with(b"/*") => behind(at + 2, b"*/"),
            b'/' | b'"' => closed(text, at + 1, *byte),
            // The name of a string, or what is asked of one.
            b'$' | b'#' | b'@' | b'!' => at + 1 + text[at + 1..].iter().take_while(|byte| word(byte)).count(),
            byte if word(byte) => {
                let end = at + text[at..].iter().take_while(|byte| word(byte)).count();
                let blank = text[end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
                let name = end + blank + 1;
                if braces == 0 && &text[at..end] == b"include" && text.get(name - 1) == Some(&b'"') {
                    let len = text[name..].iter().position(|byte| matches!(byte, b'"' | b'\n'));
                    if let Some(len) = len.filter(|len| *len > 0 && text[name + len] == b'"') {
                        return Some((at..name + len + 1, name..name + len));
                    }
                }
                end
            }
            _ => at + 1,
        };
    }
    None
}

/// Behind the end of what is between two such bytes on one line.
fn closed(text: &[u8], mut at: usize, with: u8) -> usize {
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            b'\n' => return at,
            byte if *byte == with => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&str> {
        let mut at = 0;
        let mut all = Vec::new();
        while let Some((directive, name)) = next_include(text.as_bytes(), at) {
            all.push(&text[name]);
            at = directive.end;
        }
        all
    }

    #[test]
    fn what_is_no_directive_includes_nothing() {
        assert_eq!(
            names("include \"a\"\ninclude\t\"b c\" rule r { condition: true } include \"d\""),
            ["a", "b c", "d"]
        );
        for text in [
            "// include \"a\"",
            "/* include \"a\"\n include \"b\" */",
            "/* unended include \"a\"",
            r#"rule r { meta: m = "include \"a\"" condition: true }"#,
            r#"rule r { meta: m = " \\" strings: $include = "x" condition: $include }"#,
            r#"rule r { strings: $a = /include "a" \/ include "b"/ condition: $a }"#,
            "rule not_include \"a\"",
            "rule r { condition: include \"a\" }",
            "rule r { strings: $a = { 61 } include \"a\"",
            "include a",
            "include \"\"",
            "include \"a\n\"",
            "include \"a",
            "include",
        ] {
            assert!(names(text).is_empty(), "{text}");
        }
        assert_eq!(names("\"unended\ninclude \"a\""), ["a"]);
        assert_eq!(names("\\\"include \"a\""), Vec::<&str>::new());
    }

    #[test]
    fn lines_are_those_of_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let [main, sub] = ["main.yar", "in/sub.yar"].map(|name| folder.path().join(name));
        std::fs::create_dir(folder.path().join("in")).unwrap();
        std::fs::write(&sub, "one\ntwo").unwrap();
        let text = "first\n \u{e4} include \"in/sub.yar\" behind\nthird\n".as_bytes();
        let all = Expanded::of(main.as_os_str(), text).unwrap();
        let lines: Vec<&[u8]> = all.text.split(|byte| *byte == b'\n').collect();
        let said = |nth: usize| all.placed(&format!("it: the program: line {nth}:9: bad")).unwrap();
        for (nth, (line, file, number, column)) in [
            ("first", &main, 1, 9),
            (" \u{e4} ", &main, 2, 9),
            ("one", &sub, 1, 9),
            ("two", &sub, 2, 9),
            (" behind", &main, 2, 32),
            ("third", &main, 3, 9),
            ("", &main, 4, 9),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(lines[nth], line.as_bytes(), "{nth}");
            assert_eq!(said(nth + 1), format!("it: {}:{number}:{column}: bad", file.display()));
        }
        assert_eq!(lines.len(), 7);
        assert_eq!(all.lines.len(), 7);
    }

    #[test]
    fn a_line_may_include_many_and_all_of_them_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        file("0.yar", "");
        let line = "include \"0.yar\" ".repeat(5_000);
        let all = Expanded::of(folder.path().join("main.yar").as_os_str(), line.as_bytes()).unwrap();
        let last = all.lines.len();
        let said = all.placed(&format!("the program: line {last}:2: bad")).unwrap();
        assert!(said.ends_with(&format!("main.yar:1:{}: bad", line.len() + 1)), "{said}");
        // Each has three times what the one before has, and no byte of its own.
        for nth in 1..15 {
            file(&format!("{nth}.yar"), &format!("include \"{}.yar\"", nth - 1).repeat(3));
        }
        let why = Expanded::of(file("main.yar", "include \"14.yar\"").as_os_str(), b"include \"14.yar\"");
        assert!(why.err().unwrap().to_string().contains("100000 files"));
    }
}
