//! Shell patterns over bytes, as `find -name` has them (POSIX fnmatch without flags):
//! `*`, `?`, `[a-z]`, `[!x]`, `\`.

/// Whether all of `name` matches `pattern`. Work is bounded by the product of their lengths.
pub fn fnmatch(pattern: &[u8], name: &[u8], ignore_case: bool) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where the last star stood, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match (pattern.get(p), name.get(n)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            (Some(_), Some(&byte)) => match_element(&pattern[p..], byte, ignore_case),
            _ => None,
        };
        match (step, star) {
            (Some(len), _) => {
                p += len;
                n += 1;
            }
            (None, Some((after, taken))) if taken < name.len() => {
                star = Some((after, taken + 1));
                p = after;
                n = taken + 1;
            }
            _ => return false,
        }
    }
}

/// Matches the first element of a pattern (no star) against a byte: its length where it matches.
fn match_element(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let same = |a: u8, b: u8| a == b || ignore_case && a.eq_ignore_ascii_case(&b);
    match *pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => same(escaped, byte).then_some(2),
        [b'[', ..] => match class(pattern, byte, ignore_case) {
            Some((len, matched)) => matched.then_some(len),
            None => same(b'[', byte).then_some(1),
        },
        [literal, ..] => same(literal, byte).then_some(1),
        [] => None,
    }
}

/// Whether a byte is of a class.
type Member = fn(&u8) -> bool;

/// A class by name at the beginning of `pattern` (`[:alpha:]`), as the C locale has it: its length, and what
/// is in it.
fn named(pattern: &[u8]) -> Option<(usize, Member)> {
    let rest = pattern.strip_prefix(b"[:")?;
    let len = rest.windows(2).position(|two| two == b":]")?;
    let is: Member = match &rest[..len] {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |b| b" \t".contains(b),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |b| (b' '..=b'~').contains(b),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |b| b" \t\n\x0b\x0c\r".contains(b),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    };
    Some((len + 4, is))
}

/// A bracket expression: its length, and whether the byte is in it. `None` where it does not end:
/// then `[` is a literal.
fn class(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<(usize, bool)> {
    let mut at = 1;
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    if negated {
        at += 1;
    }
    let first = at;
    let mut found = false;
    loop {
        let mut low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((at + 1, found != negated));
        }
        if let Some((len, is)) = named(&pattern[at..]) {
            // As in the C library, also where case is ignored.
            found |= is(&byte);
            at += len;
            continue;
        }
        if low == b'\\' {
            at += 1;
            low = *pattern.get(at)?;
        }
        at += 1;
        let mut high = low;
        if pattern.get(at) == Some(&b'-') && !matches!(pattern.get(at + 1), None | Some(b']')) {
            high = *pattern.get(at + 1)?;
            at += 2;
        }
        let range = low..=high;
        found |= range.contains(&byte);
        if ignore_case {
            found |= range.contains(&byte.to_ascii_lowercase()) || range.contains(&byte.to_ascii_uppercase());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fnmatch;

    #[test]
    fn as_find_has_them() {
        for (pattern, name, is) in [
            ("*", "", true),
            ("*.c", "main.c", true),
            ("*.c", "main.h", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("[a-c]?", "bz", true),
            ("[!a-c]?", "bz", false),
            ("[[:upper:]_]*", "Ab", true),
            ("[[:upper:]_]*", "ab", false),
            ("[]x]", "]", true),
            ("[x", "[x", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("?", "", false),
            ("*a", "bbbbba", true),
        ] {
            assert_eq!(fnmatch(pattern.as_bytes(), name.as_bytes(), false), is, "{pattern} {name}");
        }
        assert!(fnmatch(b"READ*", b"readme", true));
        assert!(fnmatch(b"[R]eadme", b"README", true));
        assert!(fnmatch(b"*\xff*", b"a\xffb", false));
    }
}
