//! Conditions, aggregates and schemas as people write them.
//!
//! ```text
//! or:   and ("or" and)*
//! and:  not ("and" not)*
//! not:  "not" not | is
//! is:   value [ comparison value | "is" ["not"] "null" | ["not"] "in" "(" value, ... ")"
//!             | ["not"] "between" value "and" value | ["not"] ("like" | "ilike") text | ("~" | "!~") text ]
//! value: "(" or ")" | name | "name" | 'text' | number | true | false | null
//! ```

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;

/// Most parentheses and `not`s within each other.
const DEPTH: usize = 64;

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The byte at which it shows.
    pub at: usize,
    /// What is wrong.
    pub what: String,
}

impl core::fmt::Display for ParseError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} (at character {})", self.what, self.at.saturating_add(1))
    }
}

impl core::error::Error for ParseError {}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A bare word: a name, or a key word.
    Word(String),
    Name(String),
    Text(String),
    Int(i64),
    Float(f64),
    Sign(&'static str),
    End,
}

/// Longer ones first.
const SIGNS: [&str; 14] = ["<>", "!=", "<=", ">=", "!~", "==", "<", ">", "=", "~", "(", ")", ",", "*"];

/// The words that are no names of columns unless they are quoted.
const WORDS: [&str; 11] =
    ["and", "or", "not", "is", "null", "in", "between", "like", "ilike", "true", "false"];

fn fail<T>(at: usize, what: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError { at, what: what.into() })
}

/// What stands between two quotes from `at` on, where two of them are one; and the byte behind it.
fn quoted(text: &str, at: usize, quote: char) -> Result<(String, usize), ParseError> {
    let mut out = String::new();
    let mut rest = text.get(at..).unwrap_or_default().char_indices().skip(1).peekable();
    while let Some((n, c)) = rest.next() {
        if c != quote {
            out.push(c);
        } else if rest.next_if(|(_, c)| *c == quote).is_some() {
            out.push(quote);
        } else {
            return Ok((out, at + n + 1));
        }
    }
    fail(at, format!("a {quote} without its end"))
}

fn number(word: &str, at: usize) -> Result<Token, ParseError> {
    if let Ok(int) = word.parse() {
        return Ok(Token::Int(int));
    }
    match word.parse::<f64>() {
        Ok(float) if float.is_finite() => Ok(Token::Float(float)),
        _ => fail(at, format!("{word} is no number")),
    }
}

/// Bytes of the number that a text begins with; a sign counts behind an `e` alone.
fn number_len(text: &str) -> usize {
    let mut before = b'e';
    let in_number = |byte: &u8| {
        let sign = matches!(byte, b'+' | b'-') && matches!(before, b'e' | b'E');
        before = *byte;
        sign || byte.is_ascii_alphanumeric() || *byte == b'.'
    };
    text.as_bytes().iter().copied().take_while(in_number).count()
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ParseError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(at..).unwrap_or_default();
        let starts_number = |rest: &str| {
            let mut next = rest.chars().skip_while(|c| *c == '-').take(2);
            match (next.next(), next.next()) {
                (Some('.'), Some(d)) => d.is_ascii_digit(),
                (Some(d), _) => d.is_ascii_digit(),
                _ => false,
            }
        };
        if c.is_whitespace() {
            at += c.len_utf8();
        } else if c == '\'' {
            let (word, next) = quoted(text, at, c)?;
            tokens.push((at, Token::Text(word)));
            at = next;
        } else if c == '"' {
            let (word, next) = quoted(text, at, c)?;
            tokens.push((at, Token::Name(word)));
            at = next;
        } else if (c.is_ascii_digit() || matches!(c, '-' | '.')) && starts_number(rest) {
            let len = number_len(rest);
            tokens.push((at, number(rest.get(..len).unwrap_or_default(), at)?));
            at += len;
        } else if c.is_alphabetic() || c == '_' {
            let word: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.')).collect();
            let len = word.len();
            tokens.push((at, Token::Word(word)));
            at += len;
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push((at, Token::Sign(sign)));
            at += sign.len();
        } else {
            return fail(at, format!("{c:?} is not understood"));
        }
    }
    tokens.push((text.len(), Token::End));
    Ok(tokens)
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    terms: Vec<Term>,
    depth: usize,
}

impl Parser {
    fn new(text: &str) -> Result<Parser, ParseError> {
        Ok(Parser { tokens: tokens(text)?, next: 0, terms: Vec::new(), depth: 0 })
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(0, |(at, _)| *at)
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn word(&mut self, word: &str) -> bool {
        let is = self.is_word(word);
        self.next += usize::from(is);
        is
    }

    fn sign(&mut self, sign: &str) -> bool {
        let is = matches!(self.peek(), Token::Sign(found) if *found == sign);
        self.next += usize::from(is);
        is
    }

    fn expect(&mut self, is: bool, what: &str) -> Result<(), ParseError> {
        if is { Ok(()) } else { self.wanted(what) }
    }

    fn wanted<T>(&self, what: &str) -> Result<T, ParseError> {
        let found = match self.peek() {
            Token::End => "the end".to_owned(),
            Token::Word(word) => word.clone(),
            Token::Name(name) => format!("\"{name}\""),
            Token::Text(text) => format!("'{text}'"),
            Token::Int(number) => format!("{number}"),
            Token::Float(number) => format!("{number}"),
            Token::Sign(sign) => (*sign).to_owned(),
        };
        fail(self.at(), format!("{what} is wanted here, not {found}"))
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth >= DEPTH {
            return fail(self.at(), "too many parentheses within each other");
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn or(&mut self) -> Result<(), ParseError> {
        self.and()?;
        while self.word("or") {
            self.and()?;
            self.terms.push(Term::Or);
        }
        Ok(())
    }

    fn and(&mut self) -> Result<(), ParseError> {
        self.not()?;
        while self.word("and") {
            self.not()?;
            self.terms.push(Term::And);
        }
        Ok(())
    }

    fn not(&mut self) -> Result<(), ParseError> {
        if !self.word("not") {
            return self.is();
        }
        self.deeper(Self::not)?;
        self.terms.push(Term::Not);
        Ok(())
    }

    fn is(&mut self) -> Result<(), ParseError> {
        let start = self.terms.len();
        self.value()?;
        if self.word("is") {
            let not = self.word("not");
            let null = self.word("null");
            self.expect(null, "null")?;
            self.terms.push(Term::IsNull);
            return self.negate(not);
        }
        if let Some(how) = self.comparison() {
            self.value()?;
            self.terms.push(Term::Compare(how));
            return Ok(());
        }
        if self.sign("~") || matches!(self.peek(), Token::Sign("!~")) {
            let not = self.sign("!~");
            let pattern = self.text("a regular expression")?;
            self.terms.push(Term::Regex(pattern));
            return self.negate(not);
        }
        let not = self.word("not");
        if self.word("in") {
            self.among()?;
        } else if self.word("between") {
            self.between(start)?;
        } else if self.is_word("like") || self.is_word("ilike") {
            let ignore_case = self.is_word("ilike");
            self.next += 1;
            let pattern = self.text("a pattern")?;
            self.terms.push(Term::Like { pattern, ignore_case });
        } else {
            return if not { self.wanted("in, between or like") } else { Ok(()) };
        }
        self.negate(not)
    }

    fn negate(&mut self, not: bool) -> Result<(), ParseError> {
        if not {
            self.terms.push(Term::Not);
        }
        Ok(())
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let Token::Sign(sign) = self.peek() else { return None };
        let how = match *sign {
            "=" | "==" => Comparison::Equal,
            "<>" | "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.next += 1;
        Some(how)
    }

    fn among(&mut self) -> Result<(), ParseError> {
        let open = self.sign("(");
        self.expect(open, "(")?;
        let mut count = 0u32;
        loop {
            self.value()?;
            count = count.saturating_add(1);
            if !self.sign(",") {
                break;
            }
        }
        let close = self.sign(")");
        self.expect(close, ", or )")?;
        self.terms.push(Term::In(count));
        Ok(())
    }

    /// What stands in the terms from `start` on lies between two values: it is asked twice.
    fn between(&mut self, start: usize) -> Result<(), ParseError> {
        let value: Vec<Term> = self.terms.get(start..).unwrap_or_default().to_vec();
        self.value()?;
        self.terms.push(Term::Compare(Comparison::GreaterOrEqual));
        let and = self.word("and");
        self.expect(and, "and")?;
        self.terms.extend(value);
        self.value()?;
        self.terms.extend([Term::Compare(Comparison::LessOrEqual), Term::And]);
        self.fits()
    }

    fn fits(&self) -> Result<(), ParseError> {
        match self.terms.len() > MAX_TERMS {
            true => fail(self.at(), format!("a condition has at most {MAX_TERMS} terms")),
            false => Ok(()),
        }
    }

    fn text(&mut self, what: &str) -> Result<String, ParseError> {
        let at = self.at();
        match self.advance() {
            Token::Text(text) if text.len() <= MAX_TERM_TEXT => Ok(text),
            Token::Text(_) => fail(at, format!("a text has at most {MAX_TERM_TEXT} bytes")),
            _ => {
                self.next -= 1;
                self.wanted(&format!("{what} in '...'"))
            }
        }
    }

    fn value(&mut self) -> Result<(), ParseError> {
        self.fits()?;
        if self.sign("(") {
            self.deeper(Self::or)?;
            let close = self.sign(")");
            return self.expect(close, ")");
        }
        for (word, value) in
            [("null", Literal::Null), ("true", Literal::Bool(true)), ("false", Literal::Bool(false))]
        {
            if self.word(word) {
                self.terms.push(Term::Literal(value));
                return Ok(());
            }
        }
        let term = match self.peek().clone() {
            Token::Text(_) => Term::Literal(Literal::Text(self.text("a text")?)),
            Token::Int(int) => {
                self.next += 1;
                Term::Literal(Literal::Int(int))
            }
            Token::Float(float) => {
                self.next += 1;
                Term::Literal(Literal::Float(float))
            }
            _ => Term::Column(self.name()?),
        };
        self.terms.push(term);
        Ok(())
    }

    fn name(&mut self) -> Result<String, ParseError> {
        let at = self.at();
        match self.advance() {
            Token::Word(word) if !WORDS.iter().any(|key| key.eq_ignore_ascii_case(&word)) => named(at, word),
            Token::Name(name) => named(at, name),
            _ => {
                self.next -= 1;
                self.wanted("a column or a value")
            }
        }
    }

    fn end(&mut self) -> Result<(), ParseError> {
        let end = *self.peek() == Token::End;
        self.expect(end, "and, or, or the end")
    }

    /// Things with commas between them.
    fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let mut all = Vec::new();
        loop {
            all.push(one(self)?);
            if !self.sign(",") {
                break;
            }
        }
        let end = *self.peek() == Token::End;
        self.expect(end, "a comma or the end")?;
        Ok(all)
    }
}

fn named(at: usize, name: String) -> Result<String, ParseError> {
    match name.len() > MAX_COLUMN_NAME {
        true => fail(at, format!("a column's name has at most {MAX_COLUMN_NAME} bytes")),
        false => Ok(name),
    }
}

impl SelectOptions {
    /// A condition as terms: `price > 10 and city like 'B%'`.
    ///
    /// # Errors
    /// [`ParseError`]: where it is none, and what would be.
    pub fn condition(text: &str) -> Result<Vec<Term>, ParseError> {
        let mut parser = Parser::new(text)?;
        parser.or()?;
        parser.end()?;
        parser.fits()?;
        let regexes = parser.terms.iter().filter(|term| matches!(term, Term::Regex(_))).count();
        if regexes > MAX_REGEXES {
            return fail(0, format!("a condition has at most {MAX_REGEXES} regular expressions"));
        }
        Ok(parser.terms)
    }

    /// Aggregates: `count(*), avg(ms)`.
    ///
    /// # Errors
    /// [`ParseError`]: where they are none, and what would be.
    pub fn aggregates(text: &str) -> Result<Vec<Aggregate>, ParseError> {
        let all = Parser::new(text)?.list(|parser| {
            let at = parser.at();
            let Token::Word(word) = parser.advance() else {
                parser.next -= 1;
                return parser.wanted("count, sum, min, max or avg");
            };
            let Some(function) = Function::ALL.into_iter().find(|f| f.name().eq_ignore_ascii_case(&word))
            else {
                return fail(at, format!("{word} is none of count, sum, min, max and avg"));
            };
            let open = parser.sign("(");
            parser.expect(open, "(")?;
            let all = function == Function::Count && parser.sign("*");
            let column = if all { None } else { Some(parser.name()?) };
            let close = parser.sign(")");
            parser.expect(close, ")")?;
            Ok(Aggregate { function, column })
        })?;
        match all.len() > MAX_AGGREGATES {
            true => fail(0, format!("at most {MAX_AGGREGATES} aggregates")),
            false => Ok(all),
        }
    }

    /// Names of columns: `id, "unit price"`.
    ///
    /// # Errors
    /// [`ParseError`]: where they are none.
    pub fn names(text: &str) -> Result<Vec<String>, ParseError> {
        let mut all = Vec::new();
        Parser::new(text)?.list(|parser| {
            let (at, name) = (parser.at(), parser.name()?);
            all.push(name);
            match twice(&all) {
                _ if all.len() > MAX_FIELDS => fail(at, format!("at most {MAX_FIELDS} columns")),
                Some(name) => fail(at, format!("{name} is named twice")),
                None => Ok(()),
            }
        })?;
        Ok(all)
    }

    /// Columns with their types: `id int64, city utf8`.
    ///
    /// # Errors
    /// [`ParseError`]: where they are none, and what would be.
    pub fn schema(text: &str) -> Result<Vec<(String, ColumnType)>, ParseError> {
        let all = Parser::new(text)?.list(|parser| {
            let name = parser.name()?;
            let at = parser.at();
            let Token::Word(word) = parser.advance() else {
                parser.next -= 1;
                return parser.wanted("a type");
            };
            match ColumnType::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(&word)) {
                Some(kind) => Ok((name, kind)),
                None => fail(
                    at,
                    format!("{word} is none of the types bool, int64, float64, date, timestamp and utf8"),
                ),
            }
        })?;
        match all.len() > MAX_FIELDS {
            true => fail(0, format!("at most {MAX_FIELDS} columns")),
            false => Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn column(name: &str) -> Term {
        Term::Column(name.into())
    }

    fn int(value: i64) -> Term {
        Term::Literal(Literal::Int(value))
    }

    #[test]
    fn operators_bind_as_in_sql() {
        use Comparison::*;
        let parsed = SelectOptions::condition("a = 1 or not b < -2 and \"c d\" is not null").unwrap();
        let expected = vec![
            column("a"),
            int(1),
            Term::Compare(Equal),
            column("b"),
            int(-2),
            Term::Compare(Less),
            Term::Not,
            column("c d"),
            Term::IsNull,
            Term::Not,
            Term::And,
            Term::Or,
        ];
        assert_eq!(parsed, expected);
        let grouped =
            SelectOptions::condition("(a = 1 OR b <> 2) AND x NOT IN (1, 2.5e-3, 'it''s')").unwrap();
        assert_eq!(grouped.last(), Some(&Term::And));
        assert_eq!(grouped[6], Term::Or);
        assert_eq!(grouped[9], Term::Literal(Literal::Float(2.5e-3)));
        assert_eq!(grouped[10], Term::Literal(Literal::Text("it's".into())));
        assert_eq!(grouped[11..13], [Term::In(3), Term::Not]);
        let between = SelectOptions::condition("a between 1 and 2 and b ~ 'x'").unwrap();
        assert_eq!(between.len(), 10);
        assert_eq!(stack_of(&between), Ok(3));
    }

    #[test]
    fn what_is_none_is_said_where_it_is() {
        for (text, what) in [
            ("", "a column or a value is wanted here, not the end (at character 1)"),
            ("a = ", "a column or a value is wanted here, not the end (at character 5)"),
            ("a = 1 b", "and, or, or the end is wanted here, not b (at character 7)"),
            ("a in 1", "( is wanted here, not 1 (at character 6)"),
            ("a like 5", "a pattern in '...' is wanted here, not 5 (at character 8)"),
            ("a = 'x", "a ' without its end (at character 5)"),
            ("a = 1x", "1x is no number (at character 5)"),
            ("a ; b", "';' is not understood (at character 3)"),
            ("and", "a column or a value is wanted here, not and (at character 1)"),
            ("a not 5", "in, between or like is wanted here, not 5 (at character 7)"),
        ] {
            assert_eq!(SelectOptions::condition(text).unwrap_err().to_string(), what, "{text}");
        }
        let deep = |n: usize| "(".repeat(n) + "a" + &")".repeat(n);
        assert!(SelectOptions::condition(&deep(60)).is_ok());
        assert!(SelectOptions::condition(&deep(100_000)).is_err());
        assert!(SelectOptions::condition(&("not ".repeat(100_000) + "a")).is_err());
        let long = vec!["a"; 1000].join(" or ");
        assert!(SelectOptions::condition(&long).is_err());
    }

    #[test]
    fn aggregates_and_schemas() {
        let parsed = SelectOptions::aggregates("count(*), AVG(ms), max(\"a b\")").unwrap();
        assert_eq!(
            parsed.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["count(*)", "avg(ms)", "max(a b)"]
        );
        assert!(SelectOptions::aggregates("sum(*)").is_err());
        assert!(SelectOptions::aggregates("median(a)").is_err());
        let schema = SelectOptions::schema("id int64, \"a b\" utf8").unwrap();
        assert_eq!(schema, [("id".into(), ColumnType::Int64), ("a b".into(), ColumnType::Utf8)]);
        assert!(SelectOptions::schema("id integer").is_err());
        assert_eq!(SelectOptions::names("a,b.c, \"d,\"").unwrap(), ["a", "b.c", "d,"]);
        let twice = SelectOptions::names("a, b, \"a\"").unwrap_err();
        assert_eq!(twice.to_string(), "a is named twice (at character 7)");
    }
}
