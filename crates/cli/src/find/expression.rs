//! find's language: which entries of a tree are meant, and what is done with them.
//!
//! `!`, `-not`, `-a`, `-o` and parentheses as in GNU find; tests on what an entry's inode says; the actions
//! `-print` and `-print0`. What else find has is refused by what it is.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::str::FromStr;

use nearside_fsrlib::FileEntry;

use crate::fnmatch::fnmatch;
use crate::format;

/// What is asked of each entry, and how deep.
#[derive(Debug, PartialEq)]
pub struct Expression {
    what: Node,
    pub mindepth: u32,
    pub maxdepth: Option<u32>,
    /// Whether a test asks what directories hold.
    pub asks_empty: bool,
}

/// An entry as the tests see it.
pub struct Candidate<'a> {
    pub entry: &'a FileEntry<'a>,
    /// Of a directory: that nothing is in it.
    pub empty_directory: bool,
}

#[derive(Debug, PartialEq)]
enum Node {
    Test(Test),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
}

#[derive(Debug, PartialEq)]
enum Test {
    True,
    False,
    Name {
        glob: Vec<u8>,
        ignore_case: bool,
    },
    Path {
        glob: Vec<u8>,
        ignore_case: bool,
    },
    Kind(Vec<char>),
    Size(Size),
    Perm(Perm),
    Uid(Number),
    Gid(Number),
    Inode(Number),
    Links(Number),
    Empty,
    /// An action: the path is printed with this after it.
    Print(u8),
}

impl Node {
    fn any(&self, is: &impl Fn(&Test) -> bool) -> bool {
        match self {
            Node::Test(test) => is(test),
            Node::Not(node) => node.any(is),
            Node::And(nodes) | Node::Or(nodes) => nodes.iter().any(|node| node.any(is)),
        }
    }
}

impl Expression {
    /// Whether there are tests that need more than a directory says of its entry:
    /// a name, and the type bits of a mode, where it knows them.
    pub fn needs_attributes(&self, kind: u16) -> bool {
        self.what.any(&|test| match test {
            Test::Size(_) | Test::Perm(_) | Test::Uid(_) | Test::Gid(_) => true,
            Test::Inode(_) | Test::Links(_) | Test::Empty => true,
            Test::Kind(_) => kind == 0,
            Test::True | Test::False | Test::Name { .. } | Test::Path { .. } | Test::Print(_) => false,
        })
    }
}

/// Tests, options and actions that take a word.
const WITH_VALUE: [&str; 15] = [
    "-name",
    "-iname",
    "-path",
    "-wholename",
    "-ipath",
    "-iwholename",
    "-type",
    "-size",
    "-perm",
    "-uid",
    "-gid",
    "-inum",
    "-links",
    "-maxdepth",
    "-mindepth",
];
/// Those that take none.
const ALONE: [&str; 5] = ["-empty", "-true", "-false", "-print", "-print0"];
const OPERATORS: [&str; 9] = ["!", "-not", "(", ")", "-a", "-and", "-o", "-or", ","];

/// Deepest nesting of parentheses and negations.
const DEEPEST: usize = 100;

/// Whether a word of find's takes the next for its value.
pub fn takes_value(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| WITH_VALUE.contains(&word))
}

/// A word of the command line that is find's, in find's spelling, and a value that was joined to it: an
/// operator, a word with one dash that is no single letter, or a known test with two dashes.
pub fn word(word: &OsStr) -> Option<(OsString, Option<OsString>)> {
    let bytes = word.as_bytes();
    if OPERATORS.iter().any(|o| o.as_bytes() == bytes) {
        return Some((word.into(), None));
    }
    if let Some(long) = bytes.strip_prefix(b"-").filter(|rest| rest.first() == Some(&b'-')) {
        let end = long.iter().position(|b| *b == b'=').unwrap_or(long.len());
        let name = OsString::from_vec(long[..end].to_vec());
        let known = takes_value(&name) || ALONE.iter().any(|a| a.as_bytes() == name.as_bytes());
        let value = long.get(end + 1..).map(|v| OsString::from_vec(v.to_vec()));
        return known.then_some((name, value));
    }
    (bytes.len() > 2 && bytes.first() == Some(&b'-')).then(|| (word.into(), None))
}

/// Why a word of find's is not known here.
fn refusal(word: &str) -> String {
    let why = match word {
        "-delete" => "it changes the volume, which the drive only reads for this command",
        "-exec" | "-execdir" | "-ok" | "-okdir" => {
            "it runs programs, which have no such files; -print0 | xargs -0 nearside ... asks the drive again"
        }
        "-ls" | "-printf" | "-fprint" | "-fprint0" | "-fprintf" | "-fls" => {
            "paths are printed by -print and -print0, all that is known by --json"
        }
        "-user" | "-group" | "-nouser" | "-nogroup" => {
            "the names are another machine's; -uid and -gid take numbers"
        }
        "-amin"
        | "-anewer"
        | "-atime"
        | "-cmin"
        | "-cnewer"
        | "-context"
        | "-ctime"
        | "-daystart"
        | "-depth"
        | "-executable"
        | "-files0-from"
        | "-follow"
        | "-fstype"
        | "-ignore_readdir_race"
        | "-ilname"
        | "-iregex"
        | "-lname"
        | "-mmin"
        | "-mount"
        | "-mtime"
        | "-newer"
        | "-noleaf"
        | "-prune"
        | "-quit"
        | "-readable"
        | "-regex"
        | "-regextype"
        | "-samefile"
        | "-used"
        | "-writable"
        | "-xdev"
        | "-xtype"
        | "," => "find has it, this command does not",
        word if !word.starts_with('-') => "paths stand before the tests (a pattern for a test is quoted)",
        word if word.starts_with("-newer") => "find has it, this command does not",
        _ => "find has no such test",
    };
    format!("find: {word:?}: {why}")
}

struct Parser {
    words: std::iter::Peekable<std::vec::IntoIter<OsString>>,
    mindepth: u32,
    maxdepth: Option<u32>,
    asks_empty: bool,
    acts: bool,
    depth: usize,
}

impl Expression {
    /// Of the words of a command line, in their order.
    pub fn of(words: Vec<OsString>) -> Result<Expression, String> {
        let mut parser = Parser {
            words: words.into_iter().peekable(),
            mindepth: 0,
            maxdepth: None,
            asks_empty: false,
            acts: false,
            depth: 0,
        };
        let mut what =
            if parser.words.peek().is_none() { Node::Test(Test::True) } else { parser.either()? };
        if let Some(word) = parser.words.next() {
            return Err(format!("find: {word:?} closes nothing"));
        }
        if !parser.acts {
            what = Node::And(vec![what, Node::Test(Test::Print(b'\n'))]);
        }
        let Parser { mindepth, maxdepth, asks_empty, .. } = parser;
        Ok(Expression { what, mindepth, maxdepth, asks_empty })
    }

    /// Tests an entry; for each action on it, `print` is called with the byte that comes after the path.
    pub fn apply<E>(
        &self,
        candidate: &Candidate<'_>,
        print: &mut dyn FnMut(u8) -> Result<(), E>,
    ) -> Result<(), E> {
        self.what.holds(candidate, print).map(drop)
    }
}

impl Parser {
    fn peek_is(&mut self, any: &[&str]) -> bool {
        self.words.peek().is_some_and(|word| any.iter().any(|a| a.as_bytes() == word.as_bytes()))
    }

    /// `both { -o both }`
    fn either(&mut self) -> Result<Node, String> {
        let mut nodes = vec![self.both()?];
        while self.peek_is(&["-o", "-or"]) {
            self.words.next();
            nodes.push(self.both()?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Or(nodes) })
    }

    /// `one { [-a] one }`
    fn both(&mut self) -> Result<Node, String> {
        let mut nodes = vec![self.primary()?];
        loop {
            if self.peek_is(&["-a", "-and"]) {
                self.words.next();
            } else if self.words.peek().is_none() || self.peek_is(&["-o", "-or", ")"]) {
                break;
            }
            nodes.push(self.primary()?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::And(nodes) })
    }

    /// `! primary`, `( either )`, or a test.
    fn primary(&mut self) -> Result<Node, String> {
        let Some(word) = self.words.next() else { return Err("find: a test is missing at the end".into()) };
        let lossy = word.to_string_lossy().into_owned();
        match &*lossy {
            "!" | "-not" | "(" => {
                self.depth += 1;
                if self.depth > DEEPEST {
                    return Err(format!("find: more than {DEEPEST} negations and parentheses in each other"));
                }
                let node = match &*lossy {
                    "(" => {
                        let inner = self.either()?;
                        match self.words.next() {
                            Some(end) if end == ")" => inner,
                            _ => return Err("find: \"(\" is not closed".into()),
                        }
                    }
                    _ => Node::Not(Box::new(self.primary()?)),
                };
                self.depth -= 1;
                Ok(node)
            }
            ")" | "-a" | "-and" | "-o" | "-or" => Err(format!("find: a test is missing before {lossy:?}")),
            _ => self.test(&word, &lossy).map(Node::Test),
        }
    }

    fn test(&mut self, word: &OsStr, name: &str) -> Result<Test, String> {
        let value = match takes_value(word) {
            true => self.words.next().ok_or_else(|| format!("find: {name} needs a value"))?,
            false => OsString::new(),
        };
        let text = value.to_string_lossy();
        let wrong = |why: String| format!("find: {name} {text:?}: {why}");
        let number = || text.parse::<Number>().map_err(wrong);
        let levels = || text.parse::<u32>().map_err(|_| wrong("not a number of levels".into()));
        let glob = value.as_bytes().to_vec();
        Ok(match name {
            "-name" => Test::Name { glob, ignore_case: false },
            "-iname" => Test::Name { glob, ignore_case: true },
            "-path" | "-wholename" => Test::Path { glob, ignore_case: false },
            "-ipath" | "-iwholename" => Test::Path { glob, ignore_case: true },
            "-type" => Test::Kind(kinds(&text).map_err(wrong)?),
            "-size" => Test::Size(text.parse().map_err(wrong)?),
            "-perm" => Test::Perm(text.parse().map_err(wrong)?),
            "-uid" => Test::Uid(number()?),
            "-gid" => Test::Gid(number()?),
            "-inum" => Test::Inode(number()?),
            "-links" => Test::Links(number()?),
            "-empty" => {
                self.asks_empty = true;
                Test::Empty
            }
            "-true" => Test::True,
            "-false" => Test::False,
            "-maxdepth" => {
                self.maxdepth = Some(levels()?);
                Test::True
            }
            "-mindepth" => {
                self.mindepth = levels()?;
                Test::True
            }
            "-print" | "-print0" => {
                self.acts = true;
                Test::Print(if name == "-print" { b'\n' } else { 0 })
            }
            other => return Err(refusal(other)),
        })
    }
}

impl Node {
    fn holds<E>(
        &self,
        candidate: &Candidate<'_>,
        print: &mut dyn FnMut(u8) -> Result<(), E>,
    ) -> Result<bool, E> {
        match self {
            Node::Test(Test::Print(end)) => print(*end).map(|()| true),
            Node::Test(test) => Ok(test.holds(candidate)),
            Node::Not(node) => node.holds(candidate, print).map(|holds| !holds),
            Node::And(nodes) => {
                for node in nodes {
                    if !node.holds(candidate, print)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Node::Or(nodes) => {
                for node in nodes {
                    if node.holds(candidate, print)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

impl Test {
    fn holds(&self, Candidate { entry, empty_directory }: &Candidate<'_>) -> bool {
        let letter = || match format::letter(entry.mode) {
            '-' => 'f',
            other => other,
        };
        match self {
            Test::True | Test::Print(_) => true,
            Test::False => false,
            Test::Name { glob, ignore_case } => fnmatch(glob, base(&entry.path), *ignore_case),
            Test::Path { glob, ignore_case } => fnmatch(glob, &entry.path, *ignore_case),
            Test::Kind(kinds) => kinds.contains(&letter()),
            Test::Size(size) => size.holds(entry.size),
            Test::Perm(perm) => perm.holds(entry.mode),
            Test::Uid(number) => number.holds(entry.uid.into()),
            Test::Gid(number) => number.holds(entry.gid.into()),
            Test::Inode(number) => number.holds(entry.ino),
            Test::Links(number) => number.holds(entry.links.into()),
            Test::Empty => match letter() {
                'f' => entry.size == 0,
                'd' => *empty_directory,
                _ => false,
            },
        }
    }
}

/// A path's last component; of the root, the root.
fn base(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
    match path[..end].rsplit(|b| *b == b'/').next() {
        Some(base) if !base.is_empty() => base,
        _ => path,
    }
}

fn kinds(text: &str) -> Result<Vec<char>, String> {
    let letters = text.split(',').map(|letter| match letter {
        "f" | "d" | "l" | "p" | "s" | "b" | "c" => Ok(letter.chars().next().unwrap_or('f')),
        _ => Err("f, d, l, p, s, b and c, several with commas".to_owned()),
    });
    letters.collect()
}

/// `N`, `+N` (more), `-N` (fewer).
fn sign(text: &str) -> (Ordering, &str) {
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => (Ordering::Greater, rest),
        (_, Some(rest)) => (Ordering::Less, rest),
        _ => (Ordering::Equal, text),
    }
}

/// Digits only: no second sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A test of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    order: Ordering,
    count: u64,
}

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Number, String> {
        let (order, rest) = sign(text);
        let count = digits(rest).ok_or("not a number ([+-]N)")?;
        Ok(Number { order, count })
    }
}

impl Number {
    fn holds(&self, value: u64) -> bool {
        value.cmp(&self.count) == self.order
    }
}

/// A test of sizes, in units, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    number: Number,
    unit: u64,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let (order, rest) = sign(text);
        let (number, unit) = match rest.char_indices().next_back() {
            Some((at, 'c')) => (&rest[..at], 1),
            Some((at, 'w')) => (&rest[..at], 2),
            Some((at, 'b')) => (&rest[..at], 512),
            Some((at, 'k')) => (&rest[..at], 1 << 10),
            Some((at, 'M')) => (&rest[..at], 1 << 20),
            Some((at, 'G')) => (&rest[..at], 1 << 30),
            _ => (rest, 512),
        };
        let count = digits(number).ok_or("not a size ([+-]N[cwbkMG])")?;
        Ok(Size { number: Number { order, count }, unit })
    }
}

impl Size {
    fn holds(&self, bytes: u64) -> bool {
        self.number.holds(bytes.div_ceil(self.unit))
    }
}

/// A test of permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Perm {
    Exactly(u16),
    All(u16),
    Any(u16),
}

impl FromStr for Perm {
    type Err = String;

    fn from_str(text: &str) -> Result<Perm, String> {
        let (form, digits): (fn(u16) -> Perm, _) = match (text.strip_prefix('-'), text.strip_prefix('/')) {
            (Some(rest), _) => (Perm::All, rest),
            (_, Some(rest)) => (Perm::Any, rest),
            _ => (Perm::Exactly, text),
        };
        let octal = digits.bytes().all(|b| b.is_ascii_digit());
        let bits = u16::from_str_radix(digits, 8).ok().filter(|b| octal && *b <= 0o7777);
        bits.map(form).ok_or_else(|| "not a mode in octal ([-/]MODE)".into())
    }
}

impl Perm {
    fn holds(&self, mode: u16) -> bool {
        let mode = mode & 0o7777;
        match *self {
            Perm::Exactly(bits) => mode == bits,
            Perm::All(bits) => mode & bits == bits,
            Perm::Any(bits) => bits == 0 || mode & bits != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Expression, String> {
        Expression::of(line.split(' ').filter(|w| !w.is_empty()).map(OsString::from).collect())
    }

    #[test]
    fn sizes_as_find_has_them() {
        let size = |text: &str| text.parse::<Size>().unwrap();
        assert!(size("1").holds(1) && size("1").holds(512) && !size("1").holds(513));
        assert!(size("+1k").holds(1025) && !size("+1k").holds(1024));
        assert!(size("-1M").holds(0) && !size("-1M").holds(1));
        assert!(size("5c").holds(5));
        for bad in ["x", "+", "5é", "+-5", "", "k"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    #[test]
    fn modes_as_find_has_them() {
        assert!("644".parse::<Perm>().unwrap().holds(0o100_644));
        assert!("-4000".parse::<Perm>().unwrap().holds(0o104_755));
        assert!("/22".parse::<Perm>().unwrap().holds(0o100_620));
        assert!("9".parse::<Perm>().is_err() && "-+7".parse::<Perm>().is_err());
    }

    #[test]
    fn what_binds_how() {
        let shape = |line| format!("{:?}", of(line).unwrap().what);
        assert_eq!(shape("-true -o -false -a ! -true"), shape("( -true ) -o ( -false ( -not -true ) )"));
        assert_ne!(shape("-true -o -false -true"), shape("( -true -o -false ) -true"));
        assert_eq!(shape(""), shape("-true"));
        for (line, says) in [
            ("(", "at the end"),
            ("( -true", "not closed"),
            ("-true )", "closes nothing"),
            ("!", "at the end"),
            ("-o -true", "before \"-o\""),
            ("-true -a", "at the end"),
            ("-name", "needs a value"),
            ("-type q", "several with commas"),
            ("-uid x", "not a number"),
            ("-maxdepth -1", "number of levels"),
            ("-delete", "only reads"),
            ("-exec ls", "runs programs"),
            ("-mtime 3", "this command does not"),
            ("-user root", "-uid"),
            ("-elete", "no such test"),
            ("-name a b", "before the tests"),
            ("-exec cat {} ;", "runs programs"),
        ] {
            let error = of(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
        assert!(of(&"! ".repeat(DEEPEST)).unwrap_err().contains("at the end"));
        assert!(of(&format!("{}-true", "! ".repeat(DEEPEST + 1))).unwrap_err().contains("in each other"));
    }

    #[test]
    fn last_components() {
        for (path, is) in [("/", "/"), ("/a", "a"), ("/a/b", "b"), ("/a/b/", "b"), ("a", "a"), ("", "")] {
            assert_eq!(base(path.as_bytes()), is.as_bytes());
        }
    }
}
