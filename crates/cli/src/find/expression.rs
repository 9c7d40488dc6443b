//! find's language: which entries of a tree are meant, and what is done with them.
//!
//! Operators, tests and actions as in GNU find, with its precedence: parentheses, `!`, `-a`, `-o`, `,`. What
//! else find has is refused by what it is. An expression is parsed before there is a drive; what it names
//! there (files, users) is looked up once there is one ([`Expression::each_test`]).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::slice;

use nearside_fsrlib::{FileEntry, Reading, fnmatch};

use super::exec::Command;
use super::numbers::{Age, Number, Perm, Size, digits};
use super::printf::Format;
use super::regex::{Regex, Syntax};
use crate::format::{self, Times};
use crate::terminal;
use crate::users::Users;

/// What is asked of each entry, and how deep.
#[derive(Debug)]
pub struct Expression {
    what: Node,
    pub mindepth: u32,
    pub maxdepth: Option<u32>,
    /// Whether a test asks what directories hold.
    pub asks_empty: bool,
    /// Whether a directory comes after what it holds (`-depth`).
    pub depth_first: bool,
    /// The programs of `-exec`, by their places in [`Action::Exec`].
    pub commands: Vec<Command>,
}

/// An entry as the tests see it.
pub struct Candidate<'a> {
    pub entry: &'a FileEntry<'a>,
    /// Of a directory: that nothing is in it.
    pub empty_directory: bool,
    pub users: &'a Users,
}

#[derive(Debug)]
enum Node {
    Test(Test),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    /// All of them, whatever they come to: the last counts.
    List(Vec<Node>),
}

#[derive(Debug)]
pub enum Test {
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
    /// The target of a symbolic link.
    Link {
        glob: Vec<u8>,
        ignore_case: bool,
    },
    Regex(Regex),
    Kind(Vec<char>),
    Size(Size),
    Perm(Perm),
    Uid(Number),
    Gid(Number),
    /// A user by name, until it is looked up.
    User(String),
    Group(String),
    NoUser,
    NoGroup,
    Inode(Number),
    /// The file of a path, until it is looked up.
    SameFile(Vec<u8>),
    Links(Number),
    Empty,
    Age(Stamp, Age),
    /// Later than a moment (nanoseconds since 1970).
    Newer(Stamp, i128),
    /// Later than a time of the file of a path, until that is looked up.
    NewerThan(Stamp, Stamp, Vec<u8>),
    Act(Action),
}

/// Which of an entry's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    Access,
    Birth,
    Change,
    Modify,
}

/// What is done with an entry.
#[derive(Debug)]
pub enum Action {
    /// The path is printed, with this after it.
    Print(u8),
    Printf(Format),
    Ls,
    /// One of [`Expression::commands`] is run.
    Exec(usize),
    Prune,
    Quit,
}

impl Stamp {
    fn of(letter: u8) -> Option<Stamp> {
        Some(match letter {
            b'a' => Stamp::Access,
            b'B' => Stamp::Birth,
            b'c' => Stamp::Change,
            b'm' => Stamp::Modify,
            _ => return None,
        })
    }

    /// Nanoseconds since 1970; `None`: the volume does not keep it.
    pub fn from(self, entry: &FileEntry) -> Option<i128> {
        let [access, modify, change] = entry.times;
        Some(format::nanoseconds(match self {
            Stamp::Access => access,
            Stamp::Birth => entry.birth?,
            Stamp::Change => change,
            Stamp::Modify => modify,
        }))
    }
}

impl Node {
    fn any(&self, is: &impl Fn(&Test) -> bool) -> bool {
        match self {
            Node::Test(test) => is(test),
            Node::Not(node) => node.any(is),
            Node::And(nodes) | Node::Or(nodes) | Node::List(nodes) => nodes.iter().any(|node| node.any(is)),
        }
    }

    fn each<E>(&mut self, to: &mut impl FnMut(&mut Test) -> Result<(), E>) -> Result<(), E> {
        match self {
            Node::Test(test) => to(test),
            Node::Not(node) => node.each(to),
            Node::And(nodes) | Node::Or(nodes) | Node::List(nodes) => {
                nodes.iter_mut().try_for_each(|node| node.each(to))
            }
        }
    }
}

impl Expression {
    /// Whether there are tests that need more than a directory says of its entry:
    /// a name, and the type bits of a mode, where it knows them.
    pub fn needs_attributes(&self, kind: u16) -> bool {
        self.what.any(&|test| match test {
            Test::Kind(_) => kind == 0,
            Test::True | Test::False | Test::Name { .. } | Test::Path { .. } | Test::Regex(_) => false,
            Test::Act(Action::Printf(format)) => format.needs_attributes(),
            Test::Act(action) => matches!(action, Action::Ls),
            _ => true,
        })
    }

    /// Whether it is asked what file system it is.
    pub fn needs_file_system(&self) -> bool {
        self.what.any(&|test| matches!(test, Test::Act(Action::Printf(format)) if format.needs_file_system()))
    }

    /// Whether names of users or groups are asked for.
    pub fn needs_names(&self) -> bool {
        self.what.any(&|test| match test {
            Test::User(_) | Test::Group(_) | Test::NoUser | Test::NoGroup => true,
            Test::Act(Action::Printf(format)) => format.needs_names(),
            _ => false,
        })
    }

    /// Whether something is done with entries that is no line of their paths.
    pub fn has_own_output(&self) -> bool {
        self.what.any(&|test| matches!(test, Test::Act(Action::Printf(_) | Action::Exec(_))))
    }

    /// Where all that is done is to print the path of every entry as it comes: what is printed after it.
    pub fn only_prints(&self) -> Option<u8> {
        let in_order = !self.asks_empty && !self.depth_first;
        let nodes = match &self.what {
            Node::And(nodes) => &nodes[..],
            node => slice::from_ref(node),
        };
        let [tests @ .., Node::Test(Test::Act(Action::Print(end)))] = nodes else { return None };
        let every = tests.iter().all(|test| matches!(test, Node::Test(Test::True)));
        (every && in_order && self.mindepth == 0 && self.maxdepth.is_none()).then_some(*end)
    }

    /// Every test, to be looked up where it has names.
    pub fn each_test<E>(&mut self, mut to: impl FnMut(&mut Test) -> Result<(), E>) -> Result<(), E> {
        self.what.each(&mut to)
    }
}

/// Tests, options and actions that take a word.
const WITH_VALUE: [&str; 33] = [
    "-name",
    "-iname",
    "-path",
    "-wholename",
    "-ipath",
    "-iwholename",
    "-lname",
    "-ilname",
    "-regex",
    "-iregex",
    "-regextype",
    "-type",
    "-size",
    "-perm",
    "-user",
    "-group",
    "-uid",
    "-gid",
    "-inum",
    "-samefile",
    "-links",
    "-amin",
    "-atime",
    "-cmin",
    "-ctime",
    "-mmin",
    "-mtime",
    "-anewer",
    "-cnewer",
    "-newer",
    "-maxdepth",
    "-mindepth",
    "-printf",
];
/// Those that take none.
const ALONE: [&str; 17] = [
    "-empty", "-true", "-false", "-nouser", "-nogroup", "-print", "-print0", "-ls", "-prune", "-quit",
    "-depth", "-xdev", "-mount", "-noleaf", "-warn", "-nowarn", "-exec",
];
const OPERATORS: [&str; 9] = ["!", "-not", "(", ")", "-a", "-and", "-o", "-or", ","];

/// Deepest nesting of parentheses and negations.
const DEEPEST: usize = 100;

/// Whether a word of find's takes the next for its value.
pub fn takes_value(word: &OsStr) -> bool {
    let newer = |word: &str| word.len() == 8 && word.starts_with("-newer");
    word.to_str().is_some_and(|word| WITH_VALUE.contains(&word) || newer(word))
}

/// Whether a word of find's takes all words for its own up to one that [`ends_program`].
pub fn takes_program(word: &OsStr) -> bool {
    ["-exec", "-execdir", "-ok", "-okdir"].iter().any(|exec| word == *exec)
}

/// Whether a word is the last of a program, by the one before it.
pub fn ends_program(before: &OsStr, word: &OsStr) -> bool {
    word == ";" || word == "+" && before == "{}"
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
        "-execdir" | "-okdir" => "it runs programs beside the files, which this host does not have",
        "-ok" => "it asks before each program; -exec does not",
        "-fprint" | "-fprint0" | "-fprintf" | "-fls" => "the shell's > writes to files",
        "-context"
        | "-daystart"
        | "-executable"
        | "-files0-from"
        | "-follow"
        | "-fstype"
        | "-ignore_readdir_race"
        | "-readable"
        | "-used"
        | "-writable"
        | "-xtype" => "find has it, this command does not",
        word if !word.starts_with('-') => "paths stand before the tests (a pattern for a test is quoted)",
        word if word.starts_with("-newer") => "find has it, this command does not",
        _ => "find has no such test",
    };
    format!("find: {word:?}: {why}")
}

struct Parser<'a> {
    words: std::iter::Peekable<std::vec::IntoIter<OsString>>,
    /// Nanoseconds since 1970.
    now: i128,
    times: &'a Times,
    mindepth: u32,
    maxdepth: Option<u32>,
    asks_empty: bool,
    depth_first: bool,
    syntax: Syntax,
    commands: Vec<Command>,
    /// Whether an action stands for the one that is done without any.
    acts: bool,
    nesting: usize,
}

impl Expression {
    /// Of the words of a command line, in their order; ages are those at `now`, nanoseconds since 1970.
    pub fn of(words: Vec<OsString>, now: i128, times: &Times) -> Result<Expression, String> {
        let mut parser = Parser {
            words: words.into_iter().peekable(),
            now,
            times,
            mindepth: 0,
            maxdepth: None,
            asks_empty: false,
            depth_first: false,
            syntax: Syntax::default(),
            commands: Vec::new(),
            acts: false,
            nesting: 0,
        };
        let mut what = if parser.words.peek().is_none() { Node::Test(Test::True) } else { parser.list()? };
        if let Some(word) = parser.words.next() {
            return Err(format!("find: {word:?} closes nothing"));
        }
        if !parser.acts {
            what = Node::And(vec![what, Node::Test(Test::Act(Action::Print(b'\n')))]);
        }
        let Parser { mindepth, maxdepth, asks_empty, depth_first, commands, .. } = parser;
        Ok(Expression { what, mindepth, maxdepth, asks_empty, depth_first, commands })
    }

    /// Tests an entry; for each action on it `act` is called, which says whether the action holds.
    pub fn apply<E>(
        &self,
        candidate: &Candidate<'_>,
        act: &mut dyn FnMut(&Action) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.what.holds(candidate, act).map(drop)
    }
}

impl Parser<'_> {
    fn peek_is(&mut self, any: &[&str]) -> bool {
        self.words.peek().is_some_and(|word| any.iter().any(|a| a.as_bytes() == word.as_bytes()))
    }

    /// `either { , either }`
    fn list(&mut self) -> Result<Node, String> {
        let mut nodes = vec![self.either()?];
        while self.peek_is(&[","]) {
            self.words.next();
            nodes.push(self.either()?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::List(nodes) })
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
            } else if self.words.peek().is_none() || self.peek_is(&["-o", "-or", ",", ")"]) {
                break;
            }
            nodes.push(self.primary()?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::And(nodes) })
    }

    /// `! primary`, `( list )`, or a test.
    fn primary(&mut self) -> Result<Node, String> {
        let Some(word) = self.words.next() else { return Err("find: a test is missing at the end".into()) };
        let lossy = word.to_string_lossy().into_owned();
        match &*lossy {
            "!" | "-not" | "(" => {
                self.nesting += 1;
                if self.nesting > DEEPEST {
                    return Err(format!("find: more than {DEEPEST} negations and parentheses in each other"));
                }
                let node = match &*lossy {
                    "(" => {
                        let inner = self.list()?;
                        match self.words.next() {
                            Some(end) if end == ")" => inner,
                            _ => return Err("find: \"(\" is not closed".into()),
                        }
                    }
                    _ => Node::Not(Box::new(self.primary()?)),
                };
                self.nesting -= 1;
                Ok(node)
            }
            ")" | "-a" | "-and" | "-o" | "-or" | "," => {
                Err(format!("find: a test is missing before {lossy:?}"))
            }
            _ => self.test(&word, &lossy).map(Node::Test),
        }
    }

    fn test(&mut self, word: &OsStr, name: &str) -> Result<Test, String> {
        if word == "-exec" {
            return self.program();
        }
        if !takes_value(word) {
            return self.alone(name).ok_or_else(|| refusal(name));
        }
        let value = self.words.next().ok_or_else(|| format!("find: {name} needs a value"))?;
        let wrong = |why: String| format!("find: {name} {:?}: {why}", value.to_string_lossy());
        self.valued(name, &value).map_err(wrong)?.ok_or_else(|| refusal(name))
    }

    fn alone(&mut self, name: &str) -> Option<Test> {
        Some(match name {
            "-true" | "-xdev" | "-mount" | "-noleaf" | "-warn" | "-nowarn" => Test::True,
            "-false" => Test::False,
            "-nouser" => Test::NoUser,
            "-nogroup" => Test::NoGroup,
            "-prune" => Test::Act(Action::Prune),
            "-quit" => Test::Act(Action::Quit),
            "-empty" => {
                self.asks_empty = true;
                Test::Empty
            }
            "-depth" => {
                self.depth_first = true;
                Test::True
            }
            "-print" => self.act(Action::Print(b'\n')),
            "-print0" => self.act(Action::Print(0)),
            "-ls" => self.act(Action::Ls),
            _ => return None,
        })
    }

    fn act(&mut self, action: Action) -> Test {
        self.acts = true;
        Test::Act(action)
    }

    /// `-exec PROGRAM WORDS ;` or `-exec PROGRAM WORDS {} +`.
    fn program(&mut self) -> Result<Test, String> {
        let mut words: Vec<OsString> = Vec::new();
        let end = loop {
            let word = self.words.next().ok_or("find: -exec: neither ; nor {} + ends it")?;
            if ends_program(words.last().map_or(OsStr::new(""), |last| last), &word) {
                break word;
            }
            words.push(word);
        };
        let command = Command::of(words, end == "+").map_err(|why| format!("find: -exec: {why}"))?;
        self.commands.push(command);
        Ok(self.act(Action::Exec(self.commands.len() - 1)))
    }

    /// What takes a value; `None`: it is not known.
    fn valued(&mut self, name: &str, value: &OsStr) -> Result<Option<Test>, String> {
        let text = value.to_string_lossy();
        let number = || text.parse::<Number>();
        let levels = || text.parse::<u32>().map_err(|_| "not a number of levels".to_owned());
        let bytes = || value.as_bytes().to_vec();
        let ignore_case = name.starts_with("-i");
        Ok(Some(match name {
            "-name" | "-iname" => Test::Name { glob: bytes(), ignore_case },
            "-path" | "-wholename" | "-ipath" | "-iwholename" => Test::Path { glob: bytes(), ignore_case },
            "-lname" | "-ilname" => Test::Link { glob: bytes(), ignore_case },
            "-regex" | "-iregex" => {
                Test::Regex(Regex::new(value.as_bytes(), self.syntax, ignore_case, terminal::utf8())?)
            }
            "-type" => Test::Kind(kinds(&text)?),
            "-size" => Test::Size(text.parse()?),
            "-perm" => Test::Perm(text.parse()?),
            "-uid" => Test::Uid(number()?),
            "-gid" => Test::Gid(number()?),
            "-user" => digits(&text)
                .map_or_else(|| Test::User(text.clone().into()), |n| Test::Uid(Number::exactly(n))),
            "-group" => digits(&text)
                .map_or_else(|| Test::Group(text.clone().into()), |n| Test::Gid(Number::exactly(n))),
            "-inum" => Test::Inode(number()?),
            "-samefile" => Test::SameFile(bytes()),
            "-links" => Test::Links(number()?),
            "-printf" => self.act(Action::Printf(Format::of(value.as_bytes())?)),
            "-regextype" => {
                self.syntax = text.parse()?;
                Test::True
            }
            "-maxdepth" => {
                self.maxdepth = Some(levels()?);
                Test::True
            }
            "-mindepth" => {
                self.mindepth = levels()?;
                Test::True
            }
            _ => return self.timed(name, value),
        }))
    }

    /// Tests of times.
    fn timed(&mut self, name: &str, value: &OsStr) -> Result<Option<Test>, String> {
        let (text, path) = (value.to_string_lossy(), value.as_bytes().to_vec());
        let (modify, first) = (Stamp::Modify, name.as_bytes()[1]);
        if let (Some(stamp), true) = (Stamp::of(first), name.ends_with("time")) {
            return Ok(Some(Test::Age(stamp, Age::days(&text, self.now)?)));
        }
        if let (Some(stamp), true) = (Stamp::of(first), name.ends_with("min")) {
            return Ok(Some(Test::Age(stamp, Age::minutes(&text, self.now)?)));
        }
        Ok(match name.as_bytes() {
            b"-newer" => Some(Test::NewerThan(modify, modify, path)),
            b"-anewer" => Some(Test::NewerThan(Stamp::Access, modify, path)),
            b"-cnewer" => Some(Test::NewerThan(Stamp::Change, modify, path)),
            [b'-', b'n', b'e', b'w', b'e', b'r', of, b't'] => {
                let Some(stamp) = Stamp::of(*of) else { return Ok(None) };
                let time =
                    self.times.of_text(&text).ok_or("not a time (2024-05-06[ 07:08[:09]], @SECONDS)")?;
                Some(Test::Newer(stamp, format::nanoseconds(time)))
            }
            [b'-', b'n', b'e', b'w', b'e', b'r', of, than] => {
                let stamps = Stamp::of(*of).zip(Stamp::of(*than));
                stamps.map(|(of, than)| Test::NewerThan(of, than, path))
            }
            _ => None,
        })
    }
}

impl Node {
    fn holds<E>(
        &self,
        candidate: &Candidate<'_>,
        act: &mut dyn FnMut(&Action) -> Result<bool, E>,
    ) -> Result<bool, E> {
        match self {
            Node::Test(Test::Act(action)) => act(action),
            Node::Test(test) => Ok(test.holds(candidate)),
            Node::Not(node) => node.holds(candidate, act).map(|holds| !holds),
            Node::And(nodes) => {
                for node in nodes {
                    if !node.holds(candidate, act)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Node::Or(nodes) => {
                for node in nodes {
                    if node.holds(candidate, act)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Node::List(nodes) => {
                let mut last = false;
                for node in nodes {
                    last = node.holds(candidate, act)?;
                }
                Ok(last)
            }
        }
    }
}

impl Test {
    fn holds(&self, Candidate { entry, empty_directory, users }: &Candidate<'_>) -> bool {
        let letter = kind(entry.mode);
        match self {
            Test::True => true,
            Test::False => false,
            Test::Name { glob, ignore_case } => like(glob, base(&entry.path), *ignore_case),
            Test::Path { glob, ignore_case } => like(glob, &entry.path, *ignore_case),
            Test::Link { glob, ignore_case } => {
                entry.link.as_deref().is_some_and(|link| like(glob, link, *ignore_case))
            }
            Test::Regex(regex) => regex.matches(&entry.path),
            Test::Kind(kinds) => kinds.contains(&letter),
            Test::Size(size) => size.holds(entry.size),
            Test::Perm(perm) => perm.holds(entry.mode, letter == 'd'),
            Test::Uid(number) => number.holds(entry.uid.into()),
            Test::Gid(number) => number.holds(entry.gid.into()),
            Test::NoUser => !users.has_user(entry.uid),
            Test::NoGroup => !users.has_group(entry.gid),
            Test::Inode(number) => number.holds(entry.ino),
            Test::Links(number) => number.holds(entry.links.into()),
            Test::Empty => match letter {
                'f' => entry.size == 0,
                'd' => *empty_directory,
                _ => false,
            },
            Test::Age(stamp, age) => stamp.from(entry).is_some_and(|time| age.holds(time)),
            Test::Newer(stamp, than) => stamp.from(entry).is_some_and(|time| time > *than),
            // Looked up before the first entry comes; an action is done elsewhere.
            Test::User(_) | Test::Group(_) | Test::SameFile(_) | Test::NewerThan(..) | Test::Act(_) => false,
        }
    }
}

/// A type as find calls it.
pub fn kind(mode: u16) -> char {
    match format::letter(mode) {
        '-' => 'f',
        other => other,
    }
}

/// A path's last component; of the root, the root.
pub fn base(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
    match path[..end].rsplit(|b| *b == b'/').next() {
        Some(base) if !base.is_empty() => base,
        _ => path,
    }
}

/// Whether all of a text matches a pattern.
fn like(glob: &[u8], text: &[u8], ignore_case: bool) -> bool {
    fnmatch(glob, text, Reading { utf8: terminal::utf8(), ignore_case })
}

fn kinds(text: &str) -> Result<Vec<char>, String> {
    let letters = text.split(',').map(|letter| match letter {
        "f" | "d" | "l" | "p" | "s" | "b" | "c" => Ok(letter.chars().next().unwrap_or('f')),
        _ => Err("f, d, l, p, s, b and c, several with commas".to_owned()),
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Expression, String> {
        let words = line.split(' ').filter(|w| !w.is_empty()).map(OsString::from).collect();
        Expression::of(words, 0, &Times::new())
    }

    #[test]
    fn what_binds_how() {
        let shape = |line| format!("{:?}", of(line).unwrap().what);
        assert_eq!(shape("-true -o -false -a ! -true"), shape("( -true ) -o ( -false ( -not -true ) )"));
        assert_ne!(shape("-true -o -false -true"), shape("( -true -o -false ) -true"));
        assert_eq!(shape("-true , -false -o -true"), shape("-true , ( -false -o -true )"));
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
            ("-exec ls", "ends it"),
            ("-exec ;", "no program"),
            ("-exec ls {} {} +", "only one"),
            ("-execdir ls ;", "beside the files"),
            ("-mtime x", "not a number"),
            ("-newermt yesterday", "not a time"),
            ("-newermx 3", "this command does not"),
            ("-regextype awk", "known are"),
            ("-printf %q", "no directive"),
            ("-used 3", "this command does not"),
            ("-elete", "no such test"),
            ("-name a b", "before the tests"),
            (", -true", "before \",\""),
            ("-true ,", "at the end"),
        ] {
            let error = of(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
        for (line, prints) in [
            ("", Some(b'\n')),
            ("-print0", Some(0)),
            ("-true -print", Some(b'\n')),
            ("-print -true", None),
            ("-print -print", None),
            ("! -print", None),
            ("-name a", None),
            ("-depth", None),
            ("-mindepth 1", None),
            ("-maxdepth 9", None),
        ] {
            assert_eq!(of(line).unwrap().only_prints(), prints, "{line}");
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
