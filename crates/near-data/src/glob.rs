//! Nearside's own patterns of paths: of [`Target::Glob`](crate::Target::Glob), and what of a tree is meant.
//!
//! Between two slashes all is [`fnmatch`](crate::fnmatch())'s, with the characters of UTF-8: `*`, `?`,
//! `[a-c]`, `[!a-c]`, `\`. Beyond that, `{a,b}` is either, which may be empty, hold slashes, and hold more
//! of its kind; and a name that is `**` is directories of any depth, none among them, or at the end all that
//! is below. A name that begins with a dot is one like any other. What does not end, `[`, `{` or a
//! backslash, is refused.
//!
//! Matching is work in pieces ([`Matching`]), which pauses within a name as well as between patterns, so
//! that nobody waits for its end however long it takes; and patterns are bounded by their bytes alone. They
//! lie together in memory, and are freed at once however many they are.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::MAX_REQUEST;
use crate::fnmatch::{Fnmatch, PAUSE, Reading, bracket_len};

/// Longest pattern of a name, in bytes: what is looked at between two pauses at most. Each of a name's bytes
/// may be written with four.
const LONGEST: usize = 1024;
/// All alternatives written out, in bytes, and [`EACH`] more for every one: no request holds so many without
/// braces.
const MOST: usize = 2 * MAX_REQUEST;
/// What an alternative takes beside its bytes.
const EACH: usize = 16;
/// Bytes that are written out within some microseconds.
const SOON: usize = 2048;

const READING: Reading = Reading { utf8: true, ignore_case: false };

/// Patterns of paths, of which any may match.
#[derive(Debug)]
pub struct Globs {
    /// The patterns of names, one behind the other.
    text: Vec<u8>,
    parts: Vec<Part>,
    /// Where the parts of each alternative end: of a pattern without braces, what the names of a path are to
    /// match, one after the other.
    ends: Vec<usize>,
    /// Of [`MOST`], what is left.
    room: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Where its pattern is.
    Name(Range<usize>),
    /// Directories of any depth, or none.
    Any,
    /// The last such of an alternative: what is behind it are the last names of a path.
    LastAny,
}

impl Default for Globs {
    /// None, so that nothing matches.
    fn default() -> Globs {
        Globs { text: Vec::new(), parts: Vec::new(), ends: Vec::new(), room: MOST }
    }
}

impl Globs {
    /// Reads one more, a pattern of what is in a tree: without a slash it is about the last name of a path,
    /// else as with [`Globs::with_path`].
    ///
    /// # Errors
    /// What does not end; what is too long for a name; braces of too many alternatives.
    pub fn with(self, pattern: &[u8]) -> Result<Globs, &'static str> {
        self.read(pattern, !pattern.contains(&b'/'))
    }

    /// Reads one more, a pattern of paths. Slashes at its ends, and several in the place of one, mean
    /// nothing.
    ///
    /// # Errors
    /// As [`Globs::with`].
    pub fn with_path(self, pattern: &[u8]) -> Result<Globs, &'static str> {
        self.read(pattern, false)
    }

    /// Whether a pattern is read within some microseconds.
    #[must_use]
    pub fn is_soon_read(pattern: &[u8]) -> bool {
        // Each of these at most doubles what is written out.
        let marks = || pattern.iter().filter(|byte| b"{,".contains(byte)).count();
        pattern.len() <= SOON && marks() < 8 && pattern.len() << marks() <= SOON
    }

    /// Whether a byte of a text may stand for something else than itself, so that it is a pattern.
    #[must_use]
    pub fn is_pattern(text: &[u8]) -> bool {
        text.iter().any(|byte| b"*?[{\\".contains(byte))
    }

    /// Whether any matches all of a path, which does not begin with a slash: that is to be worked out.
    #[must_use]
    pub fn matching<'a>(&'a self, path: &'a [u8]) -> Matching<'a> {
        Matching { globs: self, asked: Asked::Path(path), next: 0, at: None }
    }

    /// Whether a path may match that has this name at this level, 1 being the first, as far as the name
    /// tells: that is to be worked out. Where none may, nothing below it does.
    #[must_use]
    pub fn passing<'a>(&'a self, name: &'a [u8], level: usize) -> Matching<'a> {
        Matching { globs: self, asked: Asked::Name(name, level), next: 0, at: None }
    }

    /// The most names of a path that matches; `u32::MAX`: as many as it likes.
    #[must_use]
    pub fn most_names(&self) -> u32 {
        let alternatives = (0..).map_while(|nth| self.alternative(nth));
        let most = alternatives.map(|parts| match parts.iter().any(Part::is_any) {
            true => u32::MAX,
            false => u32::try_from(parts.len()).unwrap_or(u32::MAX),
        });
        most.max().unwrap_or(0)
    }

    fn read(mut self, pattern: &[u8], anywhere: bool) -> Result<Globs, &'static str> {
        self.take(pattern)?;
        let mut open = vec![pattern.to_vec()];
        while let Some(text) = open.pop() {
            let Some(Braces { before, choices, behind }) = braces(&text)? else {
                self.push(&text, anywhere)?;
                continue;
            };
            for choice in choices {
                let one = [before, choice, behind].concat();
                self.take(&one)?;
                open.push(one);
            }
        }
        Ok(self)
    }

    fn take(&mut self, text: &[u8]) -> Result<(), &'static str> {
        let left = self.room.checked_sub(text.len().saturating_add(EACH));
        self.room = left.ok_or("patterns of too many alternatives")?;
        Ok(())
    }

    fn push(&mut self, text: &[u8], anywhere: bool) -> Result<(), &'static str> {
        // Nothing has no name.
        if text.is_empty() {
            return Ok(());
        }
        let first = self.parts.len();
        if anywhere {
            self.parts.push(Part::Any);
        }
        let (mut begin, mut at) = (0, 0);
        while at < text.len() {
            let len = element_len(&text[at..])?;
            // A slash is none the less one behind a backslash.
            if text[at..at + len].ends_with(b"/") {
                self.put(&text[begin..at], first)?;
                begin = at + len;
            }
            at += len;
        }
        self.put(&text[begin..], first)?;
        if self.parts[first..].last() == Some(&Part::Any) {
            self.put(b"*", first)?;
        }
        if let Some(last) = self.parts[first..].iter_mut().rfind(|part| part.is_any()) {
            *last = Part::LastAny;
        }
        self.ends.push(self.parts.len());
        Ok(())
    }

    /// Puts a name behind those of the alternative whose parts begin there.
    fn put(&mut self, name: &[u8], first: usize) -> Result<(), &'static str> {
        match name {
            b"" => {}
            b"**" if self.parts[first..].last() == Some(&Part::Any) => {}
            b"**" => self.parts.push(Part::Any),
            name if name.len() > LONGEST => return Err("more than 1,024 bytes for one name"),
            name => {
                let begin = self.text.len();
                self.text.extend_from_slice(name);
                self.parts.push(Part::Name(begin..self.text.len()));
            }
        }
        Ok(())
    }

    fn alternative(&self, nth: usize) -> Option<&[Part]> {
        let end = *self.ends.get(nth)?;
        let begin = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.parts[begin..end])
    }
}

impl Part {
    fn is_any(&self) -> bool {
        matches!(self, Part::Any | Part::LastAny)
    }
}

/// Bytes of the first element of a pattern, which is not empty.
fn element_len(pattern: &[u8]) -> Result<usize, &'static str> {
    match pattern {
        [b'\\'] => Err("a backslash at the end"),
        [b'\\', ..] => Ok(2),
        [b'[', ..] => bracket_len(pattern).ok_or("a [ without its ]"),
        _ => Ok(1),
    }
}

/// The first braces of a pattern, and what is around them.
struct Braces<'a> {
    before: &'a [u8],
    choices: Vec<&'a [u8]>,
    behind: &'a [u8],
}

/// `None`: a pattern has none.
fn braces(text: &[u8]) -> Result<Option<Braces<'_>>, &'static str> {
    let (mut at, mut depth) = (0usize, 0usize);
    // The brace that opens, and its commas.
    let mut marks = Vec::new();
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' => {
                if depth == 0 {
                    marks.push(at);
                }
                depth += 1;
            }
            b',' if depth == 1 => marks.push(at),
            b'}' if depth == 1 => {
                let before = &text[..marks[0]];
                marks.push(at);
                let choices = marks.windows(2).map(|two| &text[two[0] + 1..two[1]]).collect();
                return Ok(Some(Braces { before, choices, behind: &text[at + 1..] }));
            }
            b'}' if depth > 1 => depth -= 1,
            _ => {}
        }
        at += element_len(&text[at..])?;
    }
    if depth > 0 { Err("a { without its }") } else { Ok(None) }
}

/// Whether any of several patterns matches, as far as that has been worked out.
#[derive(Debug)]
pub struct Matching<'a> {
    globs: &'a Globs,
    asked: Asked<'a>,
    /// The alternative behind the one at hand.
    next: usize,
    at: Option<Alternative<'a>>,
}

#[derive(Clone, Copy, Debug)]
enum Asked<'a> {
    Path(&'a [u8]),
    /// A name, and its level.
    Name(&'a [u8], usize),
}

impl Matching<'_> {
    /// Goes on, and adds its steps to `steps`. `None`: these are as many as there may be at a time, some
    /// microseconds' work; it is to be called again with none.
    pub fn go_on(&mut self, steps: &mut usize) -> Option<bool> {
        while *steps < PAUSE {
            if let Some(alternative) = &mut self.at {
                if alternative.go_on(&self.globs.text, steps)? {
                    return Some(true);
                }
                self.at = None;
            }
            let Some(parts) = self.globs.alternative(self.next) else { return Some(false) };
            self.next += 1;
            *steps += 4;
            self.at = match self.asked {
                Asked::Path(path) => Some(Alternative::new(parts, path)),
                Asked::Name(name, level) => {
                    let (above, rest) = parts.split_at(level.saturating_sub(1).min(parts.len()));
                    *steps += above.len() / 4;
                    if above.iter().chain(rest.first()).any(Part::is_any) {
                        return Some(true);
                    }
                    rest.get(..1).map(|part| Alternative::new(part, name))
                }
            };
        }
        None
    }
}

/// An alternative and a path, as far as they have been looked at.
#[derive(Debug)]
struct Alternative<'a> {
    parts: &'a [Part],
    path: Option<&'a [u8]>,
    /// What is behind the last [`Part::Any`], and the path without what that has taken.
    any: Option<(&'a [Part], Option<&'a [u8]>)>,
    /// The first name of the path with the first part, and what of the path is behind it.
    name: Option<(Fnmatch<'a>, Option<&'a [u8]>)>,
}

impl<'a> Alternative<'a> {
    fn new(parts: &'a [Part], path: &'a [u8]) -> Alternative<'a> {
        Alternative { parts, path: Some(path), any: None, name: None }
    }

    /// As [`Matching::go_on`]; `text` has the patterns of names.
    fn go_on(&mut self, text: &'a [u8], steps: &mut usize) -> Option<bool> {
        while *steps < PAUSE {
            if let Some((fnmatch, rest)) = &mut self.name {
                let matches = fnmatch.go_on(steps)?;
                let rest = *rest;
                self.name = None;
                if matches {
                    (self.parts, self.path) = (self.parts.get(1..).unwrap_or_default(), rest);
                } else if !self.take_one_more() {
                    return Some(false);
                }
                continue;
            }
            match self.parts {
                [] => return Some(self.path.is_none()),
                [Part::Any, behind @ ..] => {
                    *steps += 1;
                    self.any = Some((behind, self.path));
                    self.parts = behind;
                }
                [Part::LastAny, behind @ ..] => {
                    let Some(path) = self.path else { return Some(false) };
                    let names = last(path, behind.len());
                    *steps += 1 + names.unwrap_or(path).len() / 4;
                    let Some(names) = names else { return Some(false) };
                    (self.parts, self.path, self.any) = (behind, Some(names), None);
                }
                [Part::Name(at), ..] => {
                    let Some((name, rest)) = first(self.path) else { return Some(false) };
                    *steps += 4 + name.len() / 4;
                    self.name = Some((Fnmatch::new(&text[at.clone()], name, READING), rest));
                }
            }
        }
        None
    }

    /// The last [`Part::Any`] takes one more name; whether there is one for it.
    fn take_one_more(&mut self) -> bool {
        let Some((behind, tried)) = self.any else { return false };
        let Some((_, left)) = first(tried) else { return false };
        self.any = Some((behind, left));
        (self.parts, self.path) = (behind, left);
        true
    }
}

/// The first name of a path, and what is behind it, `None` being nothing.
fn first(path: Option<&[u8]>) -> Option<(&[u8], Option<&[u8]>)> {
    let path = path?;
    Some(match path.iter().position(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], Some(&path[slash + 1..])),
        None => (path, None),
    })
}

/// The last so many names of a path, where it has them.
fn last(path: &[u8], names: usize) -> Option<&[u8]> {
    // Each with the slash before it, which the first of all lacks.
    let lens = path.rsplit(|byte| *byte == b'/').take(names).map(|name| name.len() + 1);
    let (count, bytes) = lens.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len));
    path.get((path.len() + 1).checked_sub(bytes)?..).filter(|_| count == names)
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;

    use proptest::prelude::*;

    use super::*;
    use crate::fnmatch::fnmatch;

    fn glob(pattern: &str) -> Globs {
        Globs::default().with_path(pattern.as_bytes()).unwrap_or_else(|why| panic!("{pattern}: {why}"))
    }

    /// Works it out with so many steps at a time, which are [`PAUSE`] at most: what comes of it, and in how
    /// many pieces.
    fn in_pieces(mut matching: Matching<'_>, at_once: usize) -> (bool, usize) {
        for piece in 1.. {
            let mut steps = PAUSE - at_once;
            let is = matching.go_on(&mut steps);
            assert!(steps < PAUSE + LONGEST + 200, "{steps} steps");
            if let Some(is) = is {
                return (is, piece);
            }
        }
        unreachable!()
    }

    fn settled(matching: Matching<'_>) -> bool {
        in_pieces(matching, PAUSE).0
    }

    fn matches(globs: &Globs, path: &[u8]) -> bool {
        settled(globs.matching(path))
    }

    #[test]
    fn paths_that_match() {
        for (pattern, matching, others) in [
            ("log/*.log", &["log/a.log", "log/.log"][..], &["log/a.txt", "log/app/a.log", "a.log"][..]),
            ("log/**/*.log", &["log/a.log", "log/app/a.log", "log/app/deep/c.log"], &["log", "a.log"]),
            ("**/a.log", &["a.log", "x/a.log", "x/y/a.log"], &["a.log/x", "xa.log"]),
            ("log/**", &["log/a", "log/app/a.log"], &["log", "lib/a"]),
            ("**", &["a", "a/b"], &[]),
            ("a**b", &["ab", "axb"], &["a/b"]),
            ("u[13]/?", &["u1/x", "u3/\u{e9}"], &["u2/x", "u1/xy"]),
            ("[[:alpha:]]\\*", &["a*", "\u{e9}*"], &["1*", "ab"]),
            ("{x,[[]}", &["x", "["], &["{x", "[[]"]),
            ("a{,.bak}", &["a", "a.bak"], &["a.ba"]),
            ("var/{log,lib/{x,y}}/*", &["var/log/1", "var/lib/x/1", "var/lib/y/2"], &["var/lib/1"]),
            ("{a,}/b", &["a/b", "b"], &["c/b"]),
            ("a\\/b", &["a/b"], &["a\\/b"]),
            ("\\{x,y}", &["{x,y}"], &["x", "y"]),
            ("/a//b/", &["a/b"], &["a/b/c", "a"]),
            ("a}", &["a}"], &["a"]),
            ("[/]", &[], &["/", "x"]),
            ("", &[], &["a"]),
            ("**/x/**/*.c", &["x/a.c", "y/x/z/a.c", "x/x/x/a.c"], &["x.c", "x/a", "y/a.c", "y/x"]),
            ("**/{a,b}/c", &["a/c", "x/b/c"], &["c", "b/c/c", "x/c"]),
        ] {
            let glob = glob(pattern);
            matching.iter().for_each(|path| assert!(matches(&glob, path.as_bytes()), "{pattern} {path}"));
            others.iter().for_each(|path| assert!(!matches(&glob, path.as_bytes()), "{pattern} {path}"));
        }
        assert!(matches(&Globs::default().with_path(b"\xff?").unwrap(), b"\xff\xfe"));
    }

    /// In a tree what has no slash is about a name, wherever it is.
    #[test]
    fn names_that_match_at_any_depth() {
        for (pattern, matching, others) in [
            ("*.log", &["a.log", "x/y/a.log"][..], &["a.txt", "a.log/x"][..]),
            ("{a,b*}", &["a", "x/bc"], &["x/c", "a/c"]),
            ("**", &["a", "x/y"], &[]),
            ("{a,b/c}", &["a", "b/c"], &["x/a", "x/b/c"]),
            ("/a", &["a"], &["x/a"]),
            ("{,a}", &["x/a"], &["b"]),
            ("", &[], &["a", "a/b"]),
        ] {
            let globs = Globs::default().with(pattern.as_bytes()).unwrap();
            matching.iter().for_each(|path| assert!(matches(&globs, path.as_bytes()), "{pattern} {path}"));
            others.iter().for_each(|path| assert!(!matches(&globs, path.as_bytes()), "{pattern} {path}"));
        }
        let several = Globs::default().with(b"*.c").and_then(|globs| globs.with(b"lib/*")).unwrap();
        assert!(["x/a.c", "lib/x"].iter().all(|path| matches(&several, path.as_bytes())));
        assert!(!matches(&several, b"x/lib/y"));
        assert!(!matches(&Globs::default(), b"a"));
    }

    #[test]
    fn what_does_not_end_is_refused() {
        let read = |pattern: &[u8]| Globs::default().with_path(pattern);
        for pattern in ["a[", "{a,b", "{a,{b}", "a\\", "[!]", "{[a}"] {
            assert!(read(pattern.as_bytes()).is_err(), "{pattern}");
        }
        let many = b"{a,b}".repeat(700);
        assert_eq!(read(&many).err(), Some("patterns of too many alternatives"));
        assert!(read(&b"{".repeat(4000)).is_err());
        assert!(read(&[b"{".repeat(2000), b"}".repeat(2000)].concat()).is_err());
        assert!(read(&b"{a,b}".repeat(9)).is_ok());
        // Those of a list together.
        let doubling = [b"a".to_vec(), b"{,}".repeat(9)].concat();
        let several = |count| (0..count).try_fold(Globs::default(), |globs, _| globs.with(&doubling));
        assert!(several(3).is_ok() && several(30).is_err());
        for (len, is_read) in [(LONGEST, true), (LONGEST + 1, false)] {
            let long = [b"x/[".to_vec(), b"a".repeat(len - 2), b"]/**".to_vec()].concat();
            assert_eq!(read(&long).is_ok(), is_read, "{len}");
        }
    }

    /// What fills a request is read, where it has no braces.
    #[test]
    fn patterns_may_be_as_many_as_a_request_holds() {
        for (pattern, count) in [("*.log", 8192), ("**/*.log", 8192), ("", 16384), ("*a/**/b*[a-z]", 5461)] {
            let all = |globs: Globs| (0..count).try_fold(globs, |globs, _| globs.with(pattern.as_bytes()));
            let globs = all(Globs::default()).unwrap_or_else(|why| panic!("{pattern}: {why}"));
            let (is, pieces) = in_pieces(globs.matching(b"var/a.txt"), PAUSE);
            assert!(!is && pieces <= 8192 * 64 / PAUSE, "{pattern}: {pieces} pieces");
        }
        assert!(Globs::default().with(&b"a/".repeat(MAX_REQUEST / 2)).is_ok());
    }

    #[test]
    fn a_pattern_is_soon_read_that_comes_to_little() {
        for (pattern, is) in [("*.log", true), ("**/*.{c,h,cc}", true), ("{a,{b,c}}/{d,e}", true)] {
            assert_eq!(Globs::is_soon_read(pattern.as_bytes()), is, "{pattern}");
        }
        for long in [b"{,}".repeat(9), b"a".repeat(3000), b",".repeat(100), b"{a}".repeat(600)] {
            assert!(!Globs::is_soon_read(&long));
        }
    }

    /// Also within a name, and however long a pattern is tried.
    #[test]
    fn what_takes_long_is_matched_in_pieces() {
        let name = "a".repeat(255);
        let (deep, long) = ("a/".repeat(2000), [&name[..]; 15].join("/"));
        let accents = "\u{e9}".repeat(127);
        let of = |text: &str, count| text.repeat(count);
        for (pattern, path, least) in [
            (of("*a", 500) + "b", &name, 2),
            ("*".to_owned() + &of("a", 120) + "b", &name, 30),
            ("*".to_owned() + &of("[[:alpha:]]", 90) + "b", &name, 80),
            ("*[".to_owned() + &of("b", 1000) + "]", &name, 80),
            // By its bytes, and then by its characters.
            ("*".to_owned() + &of("?", 60) + "\u{e8}", &accents, 30),
            ("**/".to_owned() + &of("*a", 300) + "b/**/c", &long, 15),
            (of("**/a/a/a/b/", 40) + "c", &deep, 30),
            (of("**/", 3) + &of("a/", 1500) + "b/**", &deep, 3000),
            // Of the last names alone.
            ("**/".to_owned() + &of("a/", 1999) + "b", &deep, 10),
            ("**/{".to_owned() + &of("a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a,", 1000) + "b}", &long, 300),
            ("{".to_owned() + &of("*a*b,", 2000) + "}", &name, 1000),
        ] {
            let path = path.trim_end_matches('/').as_bytes();
            let globs = glob(&pattern);
            let (is, pieces) = in_pieces(globs.matching(path), PAUSE);
            assert!(!is && (least..2 * least).contains(&pieces), "{pattern:.20}: {pieces} pieces");
            let name = path.split(|byte| *byte == b'/').next().unwrap();
            let (is, passing) = in_pieces(globs.passing(name, 1), PAUSE);
            assert_eq!((is, passing), if pattern.starts_with("**") { (true, 1) } else { (false, pieces) });
        }
        // Of which none has as many names.
        let shallow = glob(&("{".to_owned() + &of("a/b,", 4000) + "}"));
        assert!(in_pieces(shallow.passing(b"a", 3), PAUSE).1 >= 4000 * 4 / PAUSE);
    }

    #[test]
    fn a_pattern_says_how_far_it_goes() {
        for (pattern, most) in [("*", 1), ("a/{b,c/d}/*", 4), ("a/**", u32::MAX), ("{a,**/b}", u32::MAX)] {
            assert_eq!(glob(pattern).most_names(), most, "{pattern}");
        }
        let several = glob("lo*/{app,x/**}/*.log");
        for (name, level, may) in [
            ("log", 1, true),
            ("lib", 1, false),
            ("app", 2, true),
            ("other", 2, false),
            ("a.log", 3, true),
            // Below x all may be.
            ("a.txt", 3, true),
            ("deep", 4, true),
        ] {
            assert_eq!(settled(several.passing(name.as_bytes(), level)), may, "{name} {level}");
        }
        assert!(!settled(glob("a/b").passing(b"c", 3)));
    }

    /// Pieces of patterns, and of names.
    const PIECES: &str = "a b A 1 - . , ! ] } [ * ** ? [ab] [!a] [^a] [a-c] []a] [a-] [[:alpha:]] \\ \\* \\[ \
        \u{e9} [\u{e0}-\u{ef}]";

    fn piece() -> impl Strategy<Value = &'static str> {
        prop::sample::select(PIECES.split_whitespace().collect::<Vec<_>>())
    }

    fn text(most: usize) -> impl Strategy<Value = alloc::string::String> {
        prop::collection::vec(piece(), 1..most).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// Where nothing is said that fnmatch does not have, both say the same.
        #[test]
        fn within_a_name_it_is_fnmatch(pattern in text(6), name in text(4)) {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            if let Ok(glob) = Globs::default().with_path(pattern) {
                prop_assert_eq!(matches(&glob, name), fnmatch(pattern, name, READING));
            }
        }

        /// By its naive twin: `**` takes each number of names in turn; and whoever matches may pass. Where
        /// it pauses changes nothing.
        #[test]
        fn paths_match_as_they_do_by_trying(
            parts in prop::collection::vec(prop::sample::select(vec!["a", "*", "**", "{a,b}", "?b"]), 1..6),
            names in prop::collection::vec(prop::sample::select(vec!["a", "b", "ab"]), 1..6),
        ) {
            fn by_trying(parts: &[&str], names: &[&str]) -> bool {
                match (parts, names) {
                    ([], names) => names.is_empty(),
                    (["**"], names) => !names.is_empty(),
                    (["**", rest @ ..], names) => (0..=names.len()).any(|taken| by_trying(rest, &names[taken..])),
                    ([_, ..], []) => false,
                    ([part, rest @ ..], [name, left @ ..]) => {
                        let matches = match *part {
                            "{a,b}" => ["a", "b"].contains(name),
                            part => fnmatch(part.as_bytes(), name.as_bytes(), READING),
                        };
                        matches && by_trying(rest, left)
                    }
                }
            }
            let glob = glob(&parts.join("/"));
            let path = names.join("/");
            let matches = matches(&glob, path.as_bytes());
            prop_assert_eq!(matches, by_trying(&parts, &names));
            for at_once in [1, 2, 7] {
                prop_assert_eq!(in_pieces(glob.matching(path.as_bytes()), at_once).0, matches);
            }
            let mut levels = names.iter().zip(1..);
            prop_assert!(!matches || levels.all(|(name, level)| settled(glob.passing(name.as_bytes(), level))));
            prop_assert!(!matches || names.len() as u64 <= u64::from(glob.most_names()));
        }
    }
}
