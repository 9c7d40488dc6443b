//! `-regex`: the syntaxes of GNU's matcher (gnulib's regex.h), turned into that of the regex crate. A path
//! has to match as a whole, so that which of several matches is taken makes no difference.

use regex_automata::meta;
use regex_automata::util::syntax;

/// A syntax of `-regextype`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syntax {
    /// `\(`, `\|`, `+`, `?`; neither intervals nor classes by name: what find takes without `-regextype`.
    #[default]
    Emacs,
    /// `\(`, `\|`, `\+`, `\?`, `\{`.
    Basic,
    /// `(`, `|`, `+`, `?`, `{`.
    Extended,
}

impl std::str::FromStr for Syntax {
    type Err = String;

    fn from_str(name: &str) -> Result<Syntax, String> {
        Ok(match name {
            "emacs" | "findutils-default" => Syntax::Emacs,
            "posix-basic" | "ed" | "sed" => Syntax::Basic,
            "posix-extended" => Syntax::Extended,
            _ => return Err("known are emacs, posix-basic (ed, sed) and posix-extended".into()),
        })
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Regex(meta::Regex);

impl Regex {
    /// `unicode`: over characters, as in a locale of UTF-8; else over bytes.
    pub fn new(pattern: &[u8], syntax: Syntax, ignore_case: bool, unicode: bool) -> Result<Regex, String> {
        let inner = Translation::of(pattern, syntax, unicode)?;
        let config = syntax::Config::new()
            .utf8(false)
            .unicode(unicode)
            .case_insensitive(ignore_case)
            .multi_line(true)
            .dot_matches_new_line(syntax != Syntax::Emacs);
        let mut builder = meta::Regex::builder();
        builder.syntax(config).configure(meta::Regex::config().utf8_empty(false));
        let regex = builder.build(&format!(r"\A(?:{inner})\z"));
        regex.map(Regex).map_err(|e| e.syntax_error().map_or_else(|| e.to_string(), ToString::to_string))
    }

    /// Whether all of a path matches.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.0.is_match(path)
    }
}

/// A character of a pattern, or a byte that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Char(char),
    Byte(u8),
}

struct Translation {
    units: Vec<Unit>,
    at: usize,
    syntax: Syntax,
    unicode: bool,
    out: String,
    /// Where what a repetition would repeat begins in `out`; `None`: there is nothing.
    last: Option<usize>,
    /// Whether that is repeated already.
    repeated: bool,
    /// Where open groups begin in `out`.
    open: Vec<usize>,
}

/// What the next of a pattern is.
enum Token {
    Literal(Unit),
    Open,
    Close,
    Or,
    Repeat(char),
    Interval,
    Bracket,
    Any,
    /// In the regex crate's spelling; one of those that stand for no character may not be repeated.
    Class(&'static str),
    Anchor(&'static str),
}

impl Translation {
    fn of(pattern: &[u8], syntax: Syntax, unicode: bool) -> Result<String, String> {
        let units = match unicode {
            true => pattern
                .utf8_chunks()
                .flat_map(|chunk| {
                    chunk
                        .valid()
                        .chars()
                        .map(Unit::Char)
                        .chain(chunk.invalid().iter().map(|b| Unit::Byte(*b)))
                })
                .collect(),
            false => pattern
                .iter()
                .map(|b| match b.is_ascii() {
                    true => Unit::Char(char::from(*b)),
                    false => Unit::Byte(*b),
                })
                .collect(),
        };
        let mut t = Translation {
            units,
            at: 0,
            syntax,
            unicode,
            out: String::new(),
            last: None,
            repeated: false,
            open: Vec::new(),
        };
        while let Some(token) = t.token()? {
            t.put(token)?;
        }
        if t.open.is_empty() { Ok(t.out) } else { Err("a group is not closed".into()) }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        match self.units.get(self.at + ahead) {
            Some(Unit::Char(c)) => Some(*c),
            _ => None,
        }
    }

    fn token(&mut self) -> Result<Option<Token>, String> {
        let Some(unit) = self.units.get(self.at).copied() else { return Ok(None) };
        let first = self.at == 0;
        self.at += 1;
        let Unit::Char(c) = unit else { return Ok(Some(Token::Literal(unit))) };
        let extended = self.syntax == Syntax::Extended;
        let basic = self.syntax == Syntax::Basic;
        // An operator at the beginning stands for itself, but in extended expressions, where it is an error.
        let begins = self.last.is_none();
        Ok(Some(match c {
            '\\' => return self.escaped().map(Some),
            '[' => Token::Bracket,
            '.' => Token::Any,
            '*' if !begins || extended => Token::Repeat('*'),
            '+' | '?' if !basic && (!begins || extended) => Token::Repeat(c),
            '(' if extended => Token::Open,
            ')' if extended && !self.open.is_empty() => Token::Close,
            '|' if extended => Token::Or,
            '{' if extended => Token::Interval,
            '^' if extended || first || begins => Token::Anchor("^"),
            '$' if extended || self.ends() => Token::Anchor("$"),
            _ => Token::Literal(unit),
        }))
    }

    /// Whether an expression ends here, so that `$` is an anchor.
    fn ends(&self) -> bool {
        self.at == self.units.len() || self.peek(0) == Some('\\') && matches!(self.peek(1), Some(')' | '|'))
    }

    fn escaped(&mut self) -> Result<Token, String> {
        let unit = *self.units.get(self.at).ok_or("a backslash at the end")?;
        self.at += 1;
        let Unit::Char(c) = unit else { return Ok(Token::Literal(unit)) };
        let extended = self.syntax == Syntax::Extended;
        let basic = self.syntax == Syntax::Basic;
        Ok(match c {
            '(' if !extended => Token::Open,
            ')' if !extended => Token::Close,
            '|' if !extended => Token::Or,
            '{' if basic => Token::Interval,
            '+' | '?' if basic && self.last.is_some() => Token::Repeat(c),
            '1'..='9' => return Err("references to groups are not known here".into()),
            'w' => Token::Class(r"\w"),
            'W' => Token::Class(r"\W"),
            's' => Token::Class(r"\s"),
            'S' => Token::Class(r"\S"),
            'b' => Token::Anchor(r"\b"),
            'B' => Token::Anchor(r"\B"),
            '<' => Token::Anchor(r"\b{start}"),
            '>' => Token::Anchor(r"\b{end}"),
            '`' => Token::Anchor(r"\A"),
            '\'' => Token::Anchor(r"\z"),
            _ => Token::Literal(unit),
        })
    }

    fn put(&mut self, token: Token) -> Result<(), String> {
        let start = self.out.len();
        match token {
            Token::Literal(unit) => self.literal(unit),
            Token::Any => self.out.push('.'),
            Token::Class(class) => self.out.push_str(class),
            Token::Bracket => self.bracket()?,
            Token::Anchor(anchor) => {
                self.out.push_str(anchor);
                self.last = None;
                return Ok(());
            }
            Token::Open => {
                self.out.push_str("(?:");
                self.open.push(start);
                self.last = None;
                return Ok(());
            }
            Token::Or => {
                self.out.push('|');
                self.last = None;
                return Ok(());
            }
            Token::Close => {
                let open = self.open.pop().ok_or("a group is closed that is not open")?;
                self.out.push(')');
                (self.last, self.repeated) = (Some(open), false);
                return Ok(());
            }
            Token::Repeat(operator) => return self.repeat(&operator.to_string()),
            Token::Interval => {
                let interval = self.interval()?;
                return self.repeat(&interval);
            }
        }
        (self.last, self.repeated) = (Some(start), false);
        Ok(())
    }

    fn repeat(&mut self, operator: &str) -> Result<(), String> {
        let last = self.last.ok_or("a repetition of nothing")?;
        if self.repeated {
            // Two in a row would be one of another kind.
            self.out.insert_str(last, "(?:");
            self.out.push(')');
        }
        self.out.push_str(operator);
        self.repeated = true;
        Ok(())
    }

    /// What follows an opened interval: `N}`, `N,}`, `N,M}`, `,M}`; in basic expressions `\}` closes it.
    fn interval(&mut self) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.peek(0) {
                Some(c) if c.is_ascii_digit() || c == ',' => text.push(c),
                Some('}') if self.syntax == Syntax::Extended => break,
                Some('\\') if self.syntax == Syntax::Basic && self.peek(1) == Some('}') => {
                    self.at += 1;
                    break;
                }
                _ => return Err("an interval that is none".into()),
            }
            self.at += 1;
        }
        self.at += 1;
        match text.split_once(',') {
            Some(("", most)) => Ok(format!("{{0,{most}}}")),
            _ => Ok(format!("{{{text}}}")),
        }
    }

    fn literal(&mut self, unit: Unit) {
        match unit {
            Unit::Char(c) if c.is_ascii_alphanumeric() || !c.is_ascii() => self.out.push(c),
            Unit::Char(c) => self.out.push_str(&format!(r"\x{:02x}", u32::from(c))),
            Unit::Byte(byte) if self.unicode => self.out.push_str(&format!(r"(?-u:\x{byte:02x})")),
            Unit::Byte(byte) => self.out.push_str(&format!(r"\x{byte:02x}")),
        }
    }

    /// A bracket expression, after its `[`. A backslash stands for itself in it.
    fn bracket(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.peek(0) == Some('^') {
            self.out.push('^');
            self.at += 1;
        }
        let first = self.at;
        loop {
            let unit = *self.units.get(self.at).ok_or("a bracket expression is not closed")?;
            self.at += 1;
            match (unit, self.peek(0)) {
                (Unit::Char(']'), _) if self.at - 1 > first => break,
                (Unit::Char('['), Some('.' | '=')) => {
                    return Err("collating elements and equivalence classes are not known here".into());
                }
                (Unit::Char('['), Some(':')) if self.syntax != Syntax::Emacs => {
                    let name: String =
                        (1..).map_while(|n| self.peek(n).filter(char::is_ascii_lowercase)).collect();
                    self.at += name.len() + 3;
                    let end = self.units.get(self.at - 2..self.at);
                    if end.is_none_or(|end| *end != [Unit::Char(':'), Unit::Char(']')]) {
                        return Err("a class of characters is not closed".into());
                    }
                    self.out.push_str(&format!("[:{name}:]"));
                }
                (unit, _) => {
                    if self.unicode && matches!(unit, Unit::Byte(_)) {
                        return Err("bytes that are no characters are not known in brackets".into());
                    }
                    self.literal(unit);
                    let range = self.peek(0) == Some('-') && !matches!(self.peek(1), None | Some(']'));
                    if range {
                        let end = self.units[self.at + 1];
                        self.at += 2;
                        self.out.push('-');
                        self.literal(end);
                    }
                }
            }
        }
        self.out.push(']');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntaxes() {
        for (syntax, pattern, matching, other) in [
            (Syntax::Emacs, r".*\.\(c\|h\)", "/a/b.h", "/a/b.hc"),
            (Syntax::Emacs, r"*a+b?", "*aab", "aab"),
            (Syntax::Emacs, r"a{1}", "a{1}", "a"),
            (Syntax::Emacs, r"a\{1\}", "a{1}", "a"),
            (Syntax::Basic, r"a\{2,\}b\+", "aaabb", "ab"),
            (Syntax::Basic, r"a+(b)", "a+(b)", "aab"),
            (Syntax::Basic, r"[[:digit:]\]*^", "12\\^", "12^x"),
            (Syntax::Extended, r"(a|b+)?c{,2}", "bbc", "abc"),
            (Syntax::Extended, r"a+?", "", "ba"),
            (Syntax::Extended, r"[]^-]+", "]^-", "[]"),
            (Syntax::Extended, r"a)\)", "a))", "a)"),
            (Syntax::Extended, r"\<a.b\>", "a\nb", "ab"),
        ] {
            let regex = Regex::new(pattern.as_bytes(), syntax, false, true).unwrap();
            assert!(regex.matches(matching.as_bytes()), "{pattern} {matching}");
            assert!(!regex.matches(other.as_bytes()), "{pattern} {other}");
        }
        for (syntax, bad) in [
            (Syntax::Extended, "*a"),
            (Syntax::Extended, "(a"),
            (Syntax::Extended, "a{x}"),
            (Syntax::Basic, r"\(a\)\1"),
            (Syntax::Basic, r"a\)"),
            (Syntax::Basic, "[a"),
            (Syntax::Emacs, r"a\"),
        ] {
            assert!(Regex::new(bad.as_bytes(), syntax, false, true).is_err(), "{bad}");
        }
        let any = |unicode| Regex::new(b"a.", Syntax::Emacs, false, unicode).unwrap();
        assert!(any(true).matches("aé".as_bytes()) && !any(true).matches(b"a\xff"));
        assert!(!any(false).matches("aé".as_bytes()) && any(false).matches(b"a\xff"));
    }
}
