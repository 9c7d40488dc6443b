//! Patterns of names, as fnmatch(3) of the GNU C library has them without flags, and so find and grep: `*`
//! is any characters, `?` is one, `[a-c]` one of these and `[!a-c]` or `[^a-c]` one that is none of them,
//! `[[:alpha:]]` one of a class, and behind `\` a character is itself. A slash and a dot are characters like
//! any other.
//!
//! What is UTF-8 has its characters where that is asked for. Where they do not match, the bytes still may,
//! as in the C library: `??` is any name of two bytes. Not as there: ranges are by the characters' numbers in
//! every locale, letters are Unicode's, and `[.a.]` and `[=a=]` stand for their characters alone.

/// How a pattern and a name are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// What is UTF-8 has its characters, as in a locale of UTF-8. Else each byte is one, and letters are
    /// ASCII's.
    pub utf8: bool,
    /// Whether a capital is as good as a small letter.
    pub ignore_case: bool,
}

/// Whether all of `name` matches `pattern`. Work is bounded by the product of their lengths.
#[must_use]
pub fn fnmatch(pattern: &[u8], name: &[u8], reading: Reading) -> bool {
    let mut matching = Fnmatch::new(pattern, name, reading);
    loop {
        if let Some(is) = matching.go_on(&mut 0) {
            return is;
        }
    }
}

/// Steps after which work pauses. A step is a byte of a bracket expression that is looked at, or what takes
/// as long: about three nanoseconds.
pub(crate) const PAUSE: usize = 2048;
/// Steps for an element of a pattern beside its bytes.
const ELEMENT: usize = 4;

/// A pattern and a name, as far as they have been looked at.
#[derive(Debug)]
pub(crate) struct Fnmatch<'a> {
    pattern: Text<'a>,
    name: Text<'a>,
    /// What is behind the last star, and the name without what the star has taken.
    star: Option<(Text<'a>, Text<'a>)>,
    letters: Letters,
    /// Both as a whole, where their characters may match although their bytes do not.
    again: Option<(&'a [u8], &'a [u8])>,
}

impl<'a> Fnmatch<'a> {
    pub(crate) fn new(pattern: &'a [u8], name: &'a [u8], reading: Reading) -> Fnmatch<'a> {
        let Reading { utf8, ignore_case } = reading;
        Fnmatch {
            pattern: Text::Bytes(pattern),
            name: Text::Bytes(name),
            star: None,
            letters: Letters { unicode: false, ignore_case },
            again: utf8.then_some((pattern, name)),
        }
    }

    /// Goes on, and adds its steps to `steps`, until those are [`PAUSE`] or as many more as one element of
    /// the pattern has bytes: then, `None`, it is to be called again, with fewer.
    pub(crate) fn go_on(&mut self, steps: &mut usize) -> Option<bool> {
        loop {
            if self.texts(steps)? {
                return Some(true);
            }
            let (pattern, name) = match self.again.take() {
                Some((pattern, name)) if !(pattern.is_ascii() && name.is_ascii()) => (pattern, name),
                _ => return Some(false),
            };
            *steps += (pattern.len() + name.len()) / 8;
            let (Ok(pattern), Ok(name)) = (core::str::from_utf8(pattern), core::str::from_utf8(name)) else {
                return Some(false);
            };
            self.letters.unicode = true;
            (self.pattern, self.name, self.star) = (Text::Characters(pattern), Text::Characters(name), None);
        }
    }

    /// The same of one kind of text.
    fn texts(&mut self, steps: &mut usize) -> Option<bool> {
        while *steps < PAUSE {
            if let Some(behind) = self.pattern.behind('*') {
                *steps += ELEMENT;
                self.star = Some((behind, self.name));
                self.pattern = behind;
                continue;
            }
            let Some((character, rest)) = self.name.first() else {
                return Some(self.pattern.bytes().is_empty());
            };
            let element = element(self.pattern, character, self.letters);
            let behind = element.map_or(0, |(_, behind)| behind.bytes().len());
            *steps += ELEMENT + self.pattern.bytes().len() - behind;
            if let Some((true, behind)) = element {
                (self.pattern, self.name) = (behind, rest);
                continue;
            }
            // The star takes one more.
            let Some((behind, tried)) = self.star else { return Some(false) };
            let Some((_, left)) = tried.first() else { return Some(false) };
            self.star = Some((behind, left));
            (self.pattern, self.name) = (behind, left);
        }
        None
    }
}

/// Bytes of the bracket expression that begins here, its brackets among them. `None`: none does, or it does
/// not end.
pub(crate) fn bracket_len(pattern: &[u8]) -> Option<usize> {
    let letters = Letters { unicode: false, ignore_case: false };
    let (_, behind) = bracket(Text::Bytes(pattern).behind('[')?, '[', letters)?;
    pattern.len().checked_sub(behind.bytes().len())
}

/// What is left of a pattern or a name.
#[derive(Clone, Copy, Debug)]
enum Text<'a> {
    /// Each byte is a character.
    Bytes(&'a [u8]),
    Characters(&'a str),
}

impl<'a> Text<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Text::Bytes(bytes) => bytes,
            Text::Characters(text) => text.as_bytes(),
        }
    }

    /// The first character, and what is behind it.
    fn first(self) -> Option<(char, Text<'a>)> {
        match self {
            Text::Bytes(bytes) => {
                let (first, behind) = bytes.split_first()?;
                Some((char::from(*first), Text::Bytes(behind)))
            }
            Text::Characters(text) => {
                let mut characters = text.chars();
                let first = characters.next()?;
                Some((first, Text::Characters(characters.as_str())))
            }
        }
    }

    /// What is behind this character; `None`: it is not the first.
    fn behind(self, character: char) -> Option<Text<'a>> {
        self.first().filter(|(first, _)| *first == character).map(|(_, behind)| behind)
    }

    /// What is behind so many bytes.
    fn skip(self, bytes: usize) -> Option<Text<'a>> {
        match self {
            Text::Bytes(all) => all.get(bytes..).map(Text::Bytes),
            Text::Characters(all) => all.get(bytes..).map(Text::Characters),
        }
    }
}

/// What letters there are, and which are the same.
#[derive(Clone, Copy, Debug)]
struct Letters {
    unicode: bool,
    ignore_case: bool,
}

impl Letters {
    /// What stands for a character and for all that are the same.
    fn fold(self, character: char) -> char {
        match (self.ignore_case, self.unicode) {
            (false, _) => character,
            (true, false) => character.to_ascii_lowercase(),
            (true, true) => {
                let mut small = character.to_lowercase();
                match (small.next(), small.next()) {
                    (Some(one), None) => one,
                    _ => character,
                }
            }
        }
    }

    fn same(self, one: char, other: char) -> bool {
        self.fold(one) == self.fold(other)
    }
}

/// Whether the character matches the first element of a pattern, no star, and what is behind that. `None`:
/// there is none, or nothing matches it.
fn element(pattern: Text<'_>, character: char, letters: Letters) -> Option<(bool, Text<'_>)> {
    let (first, behind) = pattern.first()?;
    let (own, behind) = match first {
        '?' => return Some((true, behind)),
        '[' => match bracket(behind, character, letters) {
            Some(found) => return Some(found),
            None => (first, behind),
        },
        // A backslash at the end matches nothing.
        '\\' => behind.first()?,
        _ => (first, behind),
    };
    Some((letters.same(own, character), behind))
}

/// A bracket expression without its `[`: whether the character is meant, and what is behind it. `None` where
/// it does not end: then `[` is itself.
fn bracket(text: Text<'_>, character: char, letters: Letters) -> Option<(bool, Text<'_>)> {
    let negated = text.behind('!').or_else(|| text.behind('^'));
    let mut rest = negated.unwrap_or(text);
    let own = letters.fold(character);
    let (mut found, mut begun) = (false, false);
    loop {
        let (first, behind) = rest.first()?;
        if first == ']' && begun {
            return Some((found != negated.is_some(), behind));
        }
        begun = true;
        if first == '['
            && let Some((holds, behind)) = class(behind)
        {
            // As in the C library, also where case is ignored.
            found |= (letters.unicode || character.is_ascii()) && holds(character);
            rest = behind;
            continue;
        }
        let (low, behind) = escaped(first, behind)?;
        let (high, behind) = match behind.behind('-').and_then(Text::first) {
            Some((last, behind)) if last != ']' => escaped(last, behind)?,
            _ => (low, behind),
        };
        found |= (letters.fold(low)..=letters.fold(high)).contains(&own);
        rest = behind;
    }
}

/// A character, or the one that is behind it where it is a backslash.
fn escaped(first: char, behind: Text<'_>) -> Option<(char, Text<'_>)> {
    if first == '\\' { behind.first() } else { Some((first, behind)) }
}

/// Bytes of `xdigit`.
const LONGEST_CLASS: usize = 6;

/// Whether a character is of a class.
type Holds = fn(char) -> bool;

/// A class by its name, without its first bracket (`:alpha:]`), and what is behind it.
fn class(text: Text<'_>) -> Option<(Holds, Text<'_>)> {
    let rest = text.bytes().strip_prefix(b":")?;
    // None has a longer name: a pattern of many that do not end is not gone through for each.
    let named = rest.get(..LONGEST_CLASS + 2).unwrap_or(rest);
    let len = named.windows(2).position(|two| two == b":]")?;
    let holds: Holds = match rest.get(..len)? {
        b"alnum" => char::is_alphanumeric,
        b"alpha" => char::is_alphabetic,
        b"blank" => |c| matches!(c, ' ' | '\t'),
        b"cntrl" => char::is_control,
        b"digit" => |c| c.is_ascii_digit(),
        b"graph" => |c| !c.is_control() && !c.is_whitespace(),
        b"lower" => char::is_lowercase,
        b"print" => |c| !c.is_control(),
        b"punct" => |c| !c.is_control() && !c.is_whitespace() && !c.is_alphanumeric(),
        b"space" => char::is_whitespace,
        b"upper" => char::is_uppercase,
        b"xdigit" => |c| c.is_ascii_hexdigit(),
        _ => return None,
    };
    // The name, a colon before it, and `:]` behind it.
    Some((holds, text.skip(len.saturating_add(3))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_find_has_them() {
        let bytes = Reading::default();
        for (pattern, name, is) in [
            ("*", "", true),
            ("*.c", "main.c", true),
            ("*.c", "main.h", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("*/log/*", "/var/log/app/x", true),
            ("[a-c]?", "bz", true),
            ("[!a-c]?", "bz", false),
            ("[^a-c]?", "dz", true),
            ("[[:upper:]_]*", "Ab", true),
            ("[[:upper:]_]*", "ab", false),
            ("[]x]", "]", true),
            ("[\\]x]", "]", true),
            ("[a-\\z]", "q", true),
            ("[a-]", "-", true),
            ("[x", "[x", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", false),
            ("?", "", false),
            ("*", ".hidden", true),
            ("*a", "bbbbba", true),
            ("?", "\u{e9}", false),
            ("??", "\u{e9}", true),
        ] {
            assert_eq!(fnmatch(pattern.as_bytes(), name.as_bytes(), bytes), is, "{pattern} {name}");
        }
        let ignoring = Reading { ignore_case: true, ..bytes };
        assert!(fnmatch(b"READ*", b"readme", ignoring));
        assert!(fnmatch(b"[R]eadme", b"README", ignoring));
        assert!(!fnmatch("\u{c9}".as_bytes(), "\u{e9}".as_bytes(), ignoring));
        assert!(fnmatch(b"*\xff*", b"a\xffb", bytes));
    }

    #[test]
    fn what_is_utf8_has_its_characters() {
        let characters = Reading { utf8: true, ignore_case: false };
        for (pattern, name, is) in [
            ("?", "\u{4e16}", true),
            ("[\u{e0}-\u{ef}]", "\u{e9}", true),
            ("[!\u{e9}]", "\u{e8}", true),
            ("[!\u{e9}]", "\u{e9}", false),
            ("[[:alpha:]]", "\u{e9}", true),
            ("[[:upper:]]", "\u{e9}", false),
            // As the C library has it: the bytes may match as well.
            ("???", "\u{4e16}", true),
            ("??", "\u{4e16}", false),
        ] {
            assert_eq!(fnmatch(pattern.as_bytes(), name.as_bytes(), characters), is, "{pattern} {name}");
        }
        let ignoring = Reading { ignore_case: true, ..characters };
        assert!(fnmatch("\u{c9}*".as_bytes(), "\u{e9}t\u{e9}".as_bytes(), ignoring));
        // What is no UTF-8 is bytes.
        assert!(fnmatch(b"?\xff", b"a\xff", characters));
        assert!(!fnmatch(b"?\xff", "\u{e9}\u{ff}".as_bytes(), characters));
    }

    #[test]
    fn a_bracket_expression_has_a_length() {
        for (pattern, len) in [
            (&b"[a]b"[..], Some(3)),
            (b"[]]x", Some(3)),
            (b"[!]]x", Some(4)),
            (b"[[:alpha:]]", Some(11)),
            (b"[\\]]", Some(4)),
            (b"[a", None),
            (b"a]", None),
            (b"", None),
        ] {
            assert_eq!(bracket_len(pattern), len, "{pattern:?}");
        }
    }
}
