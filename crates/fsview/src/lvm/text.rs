//! LVM's text: `key = value` and `name { ... }`, values being numbers, strings and lists of them.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

/// Sections within sections at most; LVM's own metadata has four.
const MOST_DEPTH: usize = 8;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// A number; one that is no whole number, or too large, is `None`.
    Number(Option<u64>),
    /// As it stands between its quotation marks: what stands behind a backslash is not looked for in names.
    Text(&'a str),
    List(Vec<Value<'a>>),
    Section(Section<'a>),
}

/// What stands between two braces, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Section<'a>(pub(super) Vec<(&'a str, Value<'a>)>);

impl<'a> Section<'a> {
    fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.0.iter().find_map(|(name, value)| (*name == key).then_some(value))
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Number(number) => *number,
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A list; one that is not there, or is something else, has nothing.
    pub(super) fn list(&self, key: &str) -> &[Value<'a>] {
        match self.get(key) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }

    pub(super) fn section(&self, key: &str) -> Option<&Section<'a>> {
        match self.get(key)? {
            Value::Section(section) => Some(section),
            _ => None,
        }
    }

    /// The sections in it, by name.
    pub(super) fn sections(&self) -> impl Iterator<Item = (&'a str, &Section<'a>)> + Clone {
        self.0.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((*name, section)),
            _ => None,
        })
    }
}

/// The whole text as a section; else what is wrong, and at which of its bytes.
pub(super) fn parse(text: &str) -> Result<Section<'_>, (String, usize)> {
    let mut parser = Parser { text, at: 0 };
    // Sections that are open, by name; the outermost has none.
    let mut open: Vec<(&str, Section<'_>)> = Vec::new();
    let mut section = Section::default();
    while let Some(next) = parser.peek() {
        if next == '}' {
            let Some((name, outer)) = open.pop() else { return Err(parser.error("a brace too many")) };
            parser.skip(1);
            let inner = std::mem::replace(&mut section, outer);
            section.0.push((name, Value::Section(inner)));
            continue;
        }
        let name = parser.word().ok_or_else(|| parser.error("no name"))?;
        match parser.peek() {
            Some('=') => {
                parser.skip(1);
                section.0.push((name, parser.value()?));
            }
            Some('{') if open.len() < MOST_DEPTH => {
                parser.skip(1);
                open.push((name, std::mem::take(&mut section)));
            }
            Some('{') => return Err(parser.error("sections within sections, too deep")),
            _ => return Err(parser.error("neither a value nor a section")),
        }
    }
    match open.is_empty() {
        true => Ok(section),
        false => Err(parser.error("a section without an end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn error(&self, what: &str) -> (String, usize) {
        (what.to_owned(), self.at)
    }

    /// The next character that is neither blank nor a comment's.
    fn peek(&mut self) -> Option<char> {
        loop {
            let rest = self.rest();
            let blank =
                rest.len().saturating_sub(rest.trim_start_matches([' ', '\t', '\n', '\r', '\0']).len());
            self.skip(blank);
            let next = self.rest().chars().next()?;
            if next != '#' {
                return Some(next);
            }
            let rest = self.rest();
            self.skip(rest.find('\n').unwrap_or(rest.len()));
        }
    }

    /// A name, or a number.
    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let is_in = |c: char| c.is_ascii_alphanumeric() || "_.+-/".contains(c);
        let word = rest.get(..rest.find(|c| !is_in(c)).unwrap_or(rest.len()))?;
        self.skip(word.len());
        (!word.is_empty()).then_some(word)
    }

    /// A value that is no section: a list has no lists in it.
    fn value(&mut self) -> Result<Value<'a>, (String, usize)> {
        if self.peek() != Some('[') {
            return self.one();
        }
        self.skip(1);
        let mut list = Vec::new();
        loop {
            match self.peek() {
                Some(']') => break self.skip(1),
                Some(',') => self.skip(1),
                _ => list.push(self.one()?),
            }
        }
        Ok(Value::List(list))
    }

    fn one(&mut self) -> Result<Value<'a>, (String, usize)> {
        if self.peek() != Some('"') {
            let word = self.word().ok_or_else(|| self.error("no value"))?;
            return Ok(Value::Number(word.parse().ok()));
        }
        self.skip(1);
        let rest = self.rest();
        let mut behind_backslash = false;
        let end = rest.bytes().position(|byte| {
            let escaped = behind_backslash;
            behind_backslash = byte == b'\\' && !escaped;
            byte == b'"' && !escaped
        });
        let text =
            end.and_then(|end| rest.get(..end)).ok_or_else(|| self.error("a string without an end"))?;
        self.skip(text.len().saturating_add(1));
        Ok(Value::Text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_values_and_comments() {
        let text = "# first\nvg {\nid = \"a\\\"b\" # of it\nn = 7\nbig=99999999999999999999\nflags = []\n\
                    list = [\n\"pv0\", 3,\n-1]\ninner { x = 1.5 }\n}\nversion = 1\n\0";
        let root = parse(text).unwrap();
        assert_eq!(root.number("version"), Some(1));
        let (name, vg) = root.sections().next().unwrap();
        assert_eq!(
            (name, vg.text("id"), vg.number("n"), vg.number("big")),
            ("vg", Some("a\\\"b"), Some(7), None)
        );
        let list = [Value::Text("pv0"), Value::Number(Some(3)), Value::Number(None)];
        assert_eq!((vg.list("list"), vg.list("flags")), (&list[..], &[][..]));
        assert_eq!(vg.section("inner").map(|inner| inner.number("x")), Some(None));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_byte() {
        for (text, what, at) in [
            ("a {", "a section without an end", 3),
            ("a }", "neither a value nor a section", 2),
            ("a = 1 }", "a brace too many", 6),
            ("a = \"x\\\"", "a string without an end", 5),
            ("a = [1, 2", "no value", 9),
            ("a = {}", "no value", 4),
            ("= 1", "no name", 0),
            (&"a{".repeat(1000), "sections within sections, too deep", 17),
        ] {
            assert_eq!(parse(text), Err((what.to_owned(), at)), "{text:?}");
        }
    }
}
