//! Nearside's own patterns of paths: of [`Target::Glob`](crate::Target::Glob), and what of a tree is meant.
//!
//! Between two slashes all is [`fnmatch`]'s, with the characters of UTF-8: `*`, `?`, `[a-c]`, `[!a-c]`, `\`.
//! Beyond that, `{a,b}` is either, which may be empty, hold slashes, and hold more of its kind; and a name
//! that is `**` is directories of any depth, none among them, or at the end all that is below. A name that
//! begins with a dot is one like any other. What does not end, `[`, `{` or a backslash, is refused.

use alloc::vec;
use alloc::vec::Vec;

use crate::fnmatch::{Reading, bracket_len, fnmatch};

/// Bytes of a path, and of a name of it.
const PATH: u64 = 4096;
const NAME: u64 = 255;
/// What an alternative takes beside its bytes.
const EACH: usize = 64;

const READING: Reading = Reading { utf8: true, ignore_case: false };

/// A pattern of paths.
#[derive(Clone, Debug)]
pub struct Glob(Vec<Alternative>);

/// A pattern without braces: what the names of a path are to match, one after the other.
#[derive(Clone, Debug)]
struct Alternative(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Name(Vec<u8>),
    /// Directories of any depth, or none.
    Any,
}

/// What the patterns of a request may still come to.
#[derive(Debug)]
pub struct Room {
    /// Bytes, all alternatives of their braces written out, and [`EACH`] more for every one: as many as a
    /// request has.
    bytes: usize,
    /// Steps on a path ([`Glob::most_steps`]).
    steps: u64,
}

impl Room {
    /// All of it.
    #[must_use]
    pub fn new() -> Room {
        Room { bytes: crate::MAX_REQUEST, steps: 1 << 19 }
    }

    /// Reads one of several patterns, as [`Glob::new`].
    ///
    /// # Errors
    /// Also where there is no room for it beside those before it.
    pub fn read(&mut self, pattern: &[u8]) -> Result<Glob, &'static str> {
        let glob = Glob::within(pattern, &mut self.bytes)?;
        let left = self.steps.checked_sub(glob.most_steps());
        self.steps = left.ok_or("patterns that take too long on each name")?;
        Ok(glob)
    }
}

impl Default for Room {
    fn default() -> Self {
        Room::new()
    }
}

impl Glob {
    /// Reads a pattern. Slashes at its ends, and several in the place of one, mean nothing.
    ///
    /// # Errors
    /// What does not end; braces of too many alternatives; what takes too long on a path ([`Room`]).
    pub fn new(pattern: &[u8]) -> Result<Glob, &'static str> {
        Room::new().read(pattern)
    }

    /// As [`Glob::new`], with so many bytes for what it comes to, which is taken off.
    fn within(pattern: &[u8], room: &mut usize) -> Result<Glob, &'static str> {
        let mut take = |text: &[u8]| -> Result<(), &'static str> {
            let left = room.checked_sub(text.len().saturating_add(EACH));
            *room = left.ok_or("patterns of too many alternatives")?;
            Ok(())
        };
        take(pattern)?;
        let (mut alternatives, mut open) = (Vec::new(), vec![pattern.to_vec()]);
        while let Some(text) = open.pop() {
            let Some(Braces { before, choices, behind }) = braces(&text)? else {
                alternatives.push(Alternative::new(&text)?);
                continue;
            };
            for choice in choices {
                let one = [before, choice, behind].concat();
                take(&one)?;
                open.push(one);
            }
        }
        Ok(Glob(alternatives))
    }

    /// Whether a byte of a text may stand for something else than itself, so that it is a pattern.
    #[must_use]
    pub fn is_pattern(text: &[u8]) -> bool {
        text.iter().any(|byte| b"*?[{\\".contains(byte))
    }

    /// Whether all of a path matches, which does not begin with a slash.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        self.0.iter().any(|alternative| alternative.matches(path))
    }

    /// Whether a path may match that has this name at this level, 1 being the first, as far as the name
    /// tells. Where none may, nothing below it does.
    #[must_use]
    pub fn may_pass(&self, name: &[u8], level: usize) -> bool {
        self.0.iter().any(|alternative| alternative.may_pass(name, level))
    }

    /// The most that matching a path takes, in bytes of the pattern that are looked at: behind a star all of
    /// a name anew for each of its characters, behind `**` for each of the path's.
    #[must_use]
    pub fn most_steps(&self) -> u64 {
        self.0.iter().map(Alternative::most_steps).fold(0, u64::saturating_add)
    }

    /// The most names of a path that matches; `u32::MAX`: as many as it likes.
    #[must_use]
    pub fn most_names(&self) -> u32 {
        self.0.iter().map(Alternative::most_names).max().unwrap_or(0)
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

impl Alternative {
    fn new(text: &[u8]) -> Result<Alternative, &'static str> {
        let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let len = element_len(&text[at..])?;
            // A slash is none the less one behind a backslash.
            if text[at..at + len].ends_with(b"/") {
                put(&mut parts, &text[begin..at]);
                begin = at + len;
            }
            at += len;
        }
        put(&mut parts, &text[begin..]);
        if parts.last() == Some(&Part::Any) {
            parts.push(Part::Name(b"*".to_vec()));
        }
        Ok(Alternative(parts))
    }

    fn matches(&self, path: &[u8]) -> bool {
        let (mut parts, mut path) = (&self.0[..], Some(path));
        // What is behind the last `**`, and the path without what that has taken.
        let mut any = None;
        loop {
            if let [Part::Any, behind @ ..] = parts {
                any = Some((behind, path));
                parts = behind;
                continue;
            }
            let Some((name, rest)) = first(path) else { return parts.is_empty() };
            if let [Part::Name(pattern), behind @ ..] = parts
                && fnmatch(pattern, name, READING)
            {
                (parts, path) = (behind, rest);
                continue;
            }
            // It takes one more.
            let Some((behind, tried)) = any else { return false };
            let Some((_, left)) = first(tried) else { return false };
            any = Some((behind, left));
            (parts, path) = (behind, left);
        }
    }

    fn may_pass(&self, name: &[u8], level: usize) -> bool {
        for (above, part) in self.0.iter().enumerate() {
            match part {
                Part::Any => return true,
                Part::Name(pattern) if above + 1 == level => return fnmatch(pattern, name, READING),
                Part::Name(_) => {}
            }
        }
        false
    }

    fn most_steps(&self) -> u64 {
        let (mut steps, mut each) = (1u64, 1);
        for part in &self.0 {
            let of = match part {
                Part::Any => {
                    each = PATH;
                    continue;
                }
                Part::Name(name) if each == 1 && name.contains(&b'*') => {
                    (name.len() as u64).saturating_mul(NAME)
                }
                Part::Name(name) => (name.len() as u64).saturating_mul(each),
            };
            steps = steps.saturating_add(of);
        }
        steps
    }

    fn most_names(&self) -> u32 {
        if self.0.contains(&Part::Any) {
            return u32::MAX;
        }
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

fn put(parts: &mut Vec<Part>, name: &[u8]) {
    match name {
        b"" => {}
        b"**" if parts.last() == Some(&Part::Any) => {}
        b"**" => parts.push(Part::Any),
        name => parts.push(Part::Name(name.to_vec())),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(pattern: &str) -> Glob {
        Glob::new(pattern.as_bytes()).unwrap_or_else(|why| panic!("{pattern}: {why}"))
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
        ] {
            let glob = glob(pattern);
            matching.iter().for_each(|path| assert!(glob.matches(path.as_bytes()), "{pattern} {path}"));
            others.iter().for_each(|path| assert!(!glob.matches(path.as_bytes()), "{pattern} {path}"));
        }
        assert!(Glob::new(b"\xff?").unwrap().matches(b"\xff\xfe"));
    }

    #[test]
    fn what_does_not_end_is_refused() {
        for pattern in ["a[", "{a,b", "{a,{b}", "a\\", "[!]", "{[a}"] {
            assert!(Glob::new(pattern.as_bytes()).is_err(), "{pattern}");
        }
        let many = b"{a,b}".repeat(700);
        assert_eq!(Glob::new(&many).err(), Some("patterns of too many alternatives"));
        // Those of a request together.
        let (mut room, doubling) = (Room::new(), [b"a".to_vec(), b"{,}".repeat(9)].concat());
        assert!(room.read(&doubling).is_ok());
        assert!((0..3).any(|_| room.read(&doubling).is_err()));
        let mut room = Room::new();
        assert!((0..410).all(|_| room.read(b"*.log").is_ok()) && room.read(b"*.log").is_err());
        let mut room = Room::new();
        assert!((0..25).all(|_| room.read(b"**/*.log").is_ok()) && room.read(b"**/*.log").is_err());
        assert!(Glob::new(&b"{".repeat(4000)).is_err());
        assert!(Glob::new(&[b"{".repeat(2000), b"}".repeat(2000)].concat()).is_err());
        assert!(Glob::new(&b"{a,b}".repeat(9)).is_ok());
    }

    #[test]
    fn a_pattern_says_what_it_may_take() {
        for (pattern, steps) in [
            ("a?[bc]/d", 1 + 6 + 1),
            ("a*/b/{c*,d}", (1 + 2 * 255 + 1 + 2 * 255) + (1 + 2 * 255 + 1 + 1)),
            ("ab/**/a*", 1 + 2 + 2 * 4096),
            ("a/**", 1 + 1 + 4096),
        ] {
            assert_eq!(glob(pattern).most_steps(), steps, "{pattern}");
        }
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
            assert_eq!(several.may_pass(name.as_bytes(), level), may, "{name} {level}");
        }
        assert!(!glob("a/b").may_pass(b"c", 3));
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
            if let Ok(glob) = Glob::new(pattern.as_bytes()) {
                let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
                prop_assert_eq!(glob.matches(name), fnmatch(pattern, name, READING));
            }
        }

        /// By its naive twin: `**` takes each number of names in turn; and whoever matches may pass.
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
            let matches = glob.matches(names.join("/").as_bytes());
            prop_assert_eq!(matches, by_trying(&parts, &names));
            let mut levels = names.iter().zip(1..);
            prop_assert!(!matches || levels.all(|(name, level)| glob.may_pass(name.as_bytes(), level)));
            prop_assert!(!matches || names.len() as u64 <= u64::from(glob.most_names()));
        }
    }
}
