//! Patterns of SQL: `%` is any text, `_` any character, and after a backslash a character is itself.

use crate::fuel::Fuel;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Is(char),
    One,
    Any,
}

/// A pattern.
#[derive(Debug)]
pub(super) struct Like {
    parts: Vec<Part>,
    ignore_case: bool,
}

impl Like {
    pub(super) fn new(pattern: &str, ignore_case: bool) -> Like {
        let (mut parts, mut chars) = (Vec::new(), pattern.chars());
        while let Some(c) = chars.next() {
            parts.push(match c {
                '%' if parts.last() == Some(&Part::Any) => continue,
                '%' => Part::Any,
                '_' => Part::One,
                '\\' => Part::Is(chars.next().unwrap_or('\\')),
                c => Part::Is(c),
            });
        }
        Like { parts, ignore_case }
    }

    fn takes(&self, part: Part, c: char) -> bool {
        match part {
            Part::Any => false,
            Part::One => true,
            Part::Is(own) if self.ignore_case => own == c || own.to_lowercase().eq(c.to_lowercase()),
            Part::Is(own) => own == c,
        }
    }

    /// Whether all of a text is as it says. Where the text and the pattern part, it goes on behind the last
    /// `%`, one character later than before.
    pub(super) async fn is(&self, text: &[u8], fuel: &mut Fuel) -> bool {
        let (mut at, mut part) = (0usize, 0usize);
        let mut again: Option<(usize, usize)> = None;
        loop {
            if !fuel.take(4) {
                fuel.pause().await;
            }
            let next = char_at(text, at);
            match (self.parts.get(part), next) {
                (Some(Part::Any), _) => {
                    part += 1;
                    if part == self.parts.len() {
                        return true;
                    }
                    again = Some((at, part));
                    continue;
                }
                (Some(own), Some(c)) if self.takes(*own, c) => {
                    at += c.len_utf8();
                    part += 1;
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((from, behind)) = again else { return false };
            let Some(c) = char_at(text, from) else { return false };
            again = Some((from + c.len_utf8(), behind));
            (at, part) = (from + c.len_utf8(), behind);
        }
    }
}

/// The character at a byte of a text: what is no text of UTF-8 ends there.
fn char_at(text: &[u8], at: usize) -> Option<char> {
    let rest = text.get(at..)?;
    let first = rest.get(..4).unwrap_or(rest).utf8_chunks().next()?;
    first.valid().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuel::at_once;

    #[test]
    fn patterns() {
        for (pattern, text, is) in [
            ("", "", true),
            ("", "a", false),
            ("%", "", true),
            ("B%", "Bern", true),
            ("B%", "bern", false),
            ("%er%", "Bern", true),
            ("_", "ö", true),
            ("_", "oe", false),
            ("__", "a\u{1F600}", true),
            ("%a%b", "aXbXb", true),
            ("%a%b", "aXbXc", false),
            (r"100\%", "100%", true),
            (r"100\%", "100x", false),
            ("a_c%", "abc\nd", true),
            ("%%x", "x", true),
        ] {
            let said = at_once(Like::new(pattern, false).is(text.as_bytes(), &mut Fuel::default()));
            assert_eq!(said, is, "{pattern} {text}");
        }
        assert!(at_once(Like::new("ÄB%", true).is("äbc".as_bytes(), &mut Fuel::default())));
    }

    #[test]
    fn what_takes_long_pauses() {
        let (mut fuel, text) = (Fuel::default(), "a".repeat(4000));
        let like = Like::new(&("%".to_owned() + &"a".repeat(1000) + "b"), false);
        assert!(!at_once(like.is(text.as_bytes(), &mut fuel)));
        assert!(fuel.spent().0 <= crate::SLICE + 4 && fuel.spent().1 > 1_000_000, "{:?}", fuel.spent());
    }
}
