//! Rules with those that they include, which this host reads: a drive opens no file that a rule names.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, words};
use crate::table::read_up_to;

/// Most files that are open in each other, as yara's.
const DEPTH: usize = 16;
/// Most bytes of all of them: what a drive takes.
pub const MOST: usize = 4 << 20;

/// Rules, and where their lines come from.
#[derive(Default)]
pub struct Expanded {
    pub text: Vec<u8>,
    files: Vec<PathBuf>,
    /// Of each line of the text, its file, and its number there.
    lines: Vec<(usize, usize)>,
    /// Files that are open, as the system knows them.
    open: Vec<PathBuf>,
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
        let file = self.files.len();
        self.files.push(path);
        self.holds(text.len())?;
        if let Err(error) = std::str::from_utf8(text) {
            let line = text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            return Err(Failure::Message(format!("{}:{line}: no UTF-8", self.files[file].display())));
        }
        let mut line = 1;
        self.begin(file, line);
        let mut at = 0;
        while let Some((directive, name)) = next_include(text, at) {
            self.push(&text[at..directive.start], file, &mut line)?;
            let column = self.text.iter().rev().take_while(|byte| **byte != b'\n').count();
            let path = folder.join(OsStr::from_bytes(&text[name]));
            let shown = self.files[file].display().to_string();
            let wrong =
                |why: &str| Failure::Message(format!("{shown}:{line}: include {:?}: {why}", path.display()));
            let opened =
                path.canonicalize().and_then(|known| Ok((known, read_up_to(File::open(&path)?, MOST)?)));
            let (known, included) = opened.map_err(|error| wrong(&words(&error)))?;
            if self.open.contains(&known) {
                return Err(wrong("a cycle: the file is included while it is read"));
            }
            if self.open.len() >= DEPTH {
                return Err(wrong(&format!("the files are more than {DEPTH} deep")));
            }
            self.open.push(known);
            self.add(path, &included)?;
            self.open.pop();
            // The rest of the line stands where it stood.
            self.begin(file, line);
            self.text.resize(self.text.len() + column + directive.len(), b' ');
            at = directive.end;
        }
        self.push(&text[at..], file, &mut line)
    }

    /// A line of a file's begins here.
    fn begin(&mut self, file: usize, line: usize) {
        if self.text.last().is_some_and(|byte| *byte != b'\n') {
            self.text.push(b'\n');
            self.lines.push((file, line));
        } else {
            self.lines.pop();
            self.lines.push((file, line));
        }
    }

    fn push(&mut self, bytes: &[u8], file: usize, line: &mut usize) -> Result<(), Failure> {
        for _ in bytes.iter().filter(|byte| **byte == b'\n') {
            *line += 1;
            self.lines.push((file, *line));
        }
        self.text.extend_from_slice(bytes);
        self.holds(0)
    }

    /// There is room for so many bytes more.
    fn holds(&self, more: usize) -> Result<(), Failure> {
        if self.text.len() + more > MOST {
            let name = self.files[0].display();
            return Err(Failure::Message(format!("{name}: more than {MOST} bytes with what it includes")));
        }
        Ok(())
    }

    /// What a drive says of a line of the text, said of the line's file.
    pub fn placed(&self, said: &str) -> Option<String> {
        const BEFORE: &str = "the program: line ";
        let (before, rest) = said.split_once(BEFORE)?;
        let (line, rest) = rest.split_once(':')?;
        let (file, line) = *self.lines.get(line.parse::<usize>().ok()?.checked_sub(1)?)?;
        Some(format!("{before}{}:{line}:{rest}", self.files[file].display()))
    }
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
        let text = b"first\n  include \"in/sub.yar\" behind\nthird\n";
        let all = Expanded::of(main.as_os_str(), text).unwrap();
        let lines: Vec<&[u8]> = all.text.split(|byte| *byte == b'\n').collect();
        let said = |nth: usize| all.placed(&format!("it: the program: line {nth}:9: bad")).unwrap();
        let behind = format!("{}behind", " ".repeat(23));
        for (nth, (line, file, number)) in [
            ("first", &main, 1),
            ("  ", &main, 2),
            ("one", &sub, 1),
            ("two", &sub, 2),
            (&*behind, &main, 2),
            ("third", &main, 3),
            ("", &main, 4),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(lines[nth], line.as_bytes(), "{nth}");
            assert_eq!(said(nth + 1), format!("it: {}:{number}:9: bad", file.display()));
        }
        assert_eq!(lines.len(), 7);
    }
}
