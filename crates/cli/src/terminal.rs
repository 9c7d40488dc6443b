//! What a terminal is given, and whether there is one: decided here, for all commands.
//!
//! What comes from a volume or from a peer (names, labels, link targets, the texts of errors) may hold
//! control sequences, line ends and characters that turn the writing around. To a file or a pipe it goes as
//! it is; on a terminal names are quoted as GNU ls quotes them there ([`quoted`], which a shell understands),
//! and texts have their unprintable characters escaped ([`escaped`]). What a file holds (`cat`, the lines of
//! `grep`) is printed as `cat` and `grep` do: as it is.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

/// Whether a person reads standard output.
pub fn output() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| io::stdout().is_terminal())
}

/// Whether a person reads standard error.
pub fn errors() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| io::stderr().is_terminal())
}

/// Whether text is UTF-8 here, by the locale's variables in POSIX's order.
pub fn utf8() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    *IS.get_or_init(|| {
        let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let name = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find(set);
        let value = name.and_then(std::env::var_os).unwrap_or_default();
        let value = value.to_string_lossy().to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

/// Whether a character shows itself and nothing else: no control (C0, C1), no character of format
/// (those that turn the direction of writing among them, which GNU ls lets pass), no line or
/// paragraph separator, none that is not assigned.
pub fn printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\x7f' => false,
        '\u{2028}' | '\u{2029}' => false,
        c if c.is_control() => false,
        c if c.is_whitespace() => true,
        c => {
            // Not at the beginning: there the standard library escapes
            // what combines with a character before it.
            let mut both = [0; 5];
            both[0] = b'a';
            let end = 1 + c.encode_utf8(&mut both[1..]).len();
            std::str::from_utf8(&both[..end]).is_ok_and(|text| text.escape_debug().count() == 2)
        }
    }
}

/// A part of a name.
enum NamePart {
    /// One character that can be shown, by its length in bytes.
    Shown(char),
    /// A byte that cannot.
    Hidden(u8),
}

fn parts(bytes: &[u8], utf8: bool) -> impl Iterator<Item = NamePart> {
    let shown = move |c: char| printable(c) && (utf8 || c.is_ascii());
    bytes.utf8_chunks().flat_map(move |chunk| {
        let valid = chunk.valid().chars().flat_map(move |c| {
            let mut bytes = [0; 4];
            let len = if shown(c) { 0 } else { c.encode_utf8(&mut bytes).len() };
            let hidden = bytes.into_iter().take(len).map(NamePart::Hidden);
            shown(c).then_some(NamePart::Shown(c)).into_iter().chain(hidden)
        });
        valid.chain(chunk.invalid().iter().map(|b| NamePart::Hidden(*b)))
    })
}

/// A byte as C and the shell's `$'...'` write it.
fn escape(byte: u8, to: &mut Vec<u8>) {
    to.push(b'\\');
    match byte {
        7 => to.push(b'a'),
        8 => to.push(b'b'),
        9 => to.push(b't'),
        10 => to.push(b'n'),
        11 => to.push(b'v'),
        12 => to.push(b'f'),
        13 => to.push(b'r'),
        _ => to.extend([b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)]),
    }
}

/// A name for a terminal, as GNU ls shows it there (quoting style `shell-escape`): as it is where a shell
/// would take it for one word, else in quotes, with what cannot be shown as `$'\033'`.
pub fn quoted(name: &[u8]) -> Cow<'_, [u8]> {
    quoted_for(name, utf8(), b"")
}

/// A name in quotes, whatever it is (quoting style `shell-escape-always`).
pub fn in_quotes(name: &[u8]) -> Vec<u8> {
    match quoted(name) {
        Cow::Borrowed(name) => [b"'", name, b"'"].concat(),
        Cow::Owned(quoted) => quoted,
    }
}

/// A name that a colon follows, quoted where it has to be: also where it has a colon itself.
pub fn quoted_before_colon(name: &[u8]) -> Cow<'_, [u8]> {
    quoted_for(name, utf8(), b":")
}

/// By the rules of gnulib's quotearg.c; `also` are characters that have to be quoted as well.
fn quoted_for<'a>(name: &'a [u8], utf8: bool, also: &[u8]) -> Cow<'a, [u8]> {
    // Special to a shell wherever it stands; at the beginning; alone.
    const SPECIAL: &[u8] = b" !\"$&'()*;<=>?[\\^`|";
    let plain = !name.is_empty()
        && !matches!(name, [b'#' | b'~', ..] | b"{" | b"}")
        && parts(name, utf8).all(|part| match part {
            NamePart::Shown(c) => {
                !c.is_ascii() || !SPECIAL.contains(&(c as u8)) && !also.contains(&(c as u8))
            }
            NamePart::Hidden(_) => false,
        });
    if plain {
        return Cow::Borrowed(name);
    }
    // An apostrophe among what C's quotes leave alone: in double quotes.
    let same_in_c = |(at, byte): (usize, &u8)| match byte {
        b'#' | b'~' => at == 0,
        byte => byte.is_ascii_alphanumeric() || b" '%+,-./:@]_".contains(byte),
    };
    if name.contains(&b'\'') && name.iter().enumerate().all(same_in_c) {
        return Cow::Owned([b"\"", name, b"\""].concat());
    }
    let mut text = b"'".to_vec();
    let mut escaping = false;
    for part in parts(name, utf8) {
        match part {
            NamePart::Hidden(byte) => {
                if !escaping {
                    text.extend(b"'$'");
                }
                escaping = true;
                escape(byte, &mut text);
            }
            NamePart::Shown('\'') => {
                text.extend(b"'\\''");
                escaping = false;
            }
            NamePart::Shown(c) => {
                if escaping {
                    text.extend(b"''");
                }
                escaping = false;
                text.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    text.push(b'\'');
    Cow::Owned(text)
}

/// A text for a terminal: what cannot be shown is escaped as in C. One line stays one line.
pub fn escaped(text: &[u8]) -> Cow<'_, [u8]> {
    escaped_for(text, utf8())
}

fn escaped_for(text: &[u8], utf8: bool) -> Cow<'_, [u8]> {
    if parts(text, utf8).all(|part| matches!(part, NamePart::Shown(_))) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 8);
    for part in parts(text, utf8) {
        match part {
            NamePart::Shown(c) => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            NamePart::Hidden(byte) => escape(byte, &mut out),
        }
    }
    Cow::Owned(out)
}

/// A text of several lines, escaped. All but the first are indented, so that none can be taken for another's.
pub fn escaped_lines(text: &[u8]) -> Vec<u8> {
    let lines: Vec<Cow<'_, [u8]>> = text.split(|b| *b == b'\n').map(escaped).collect();
    lines.join(&b"\n  "[..])
}

/// Standard error for lines that others write (a log): each with its end, escaped where a person reads it.
pub struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut to = io::stderr().lock();
        if errors() {
            for line in bytes.split_inclusive(|b| *b == b'\n') {
                let text = line.strip_suffix(b"\n").unwrap_or(line);
                to.write_all(&escaped(text))?;
                to.write_all(&line[text.len()..])?;
            }
        } else {
            to.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// JSON for a terminal: in strings, what cannot be shown stands as `\u` and four digits,
/// which means the same.
pub struct JsonForTerminal;

impl serde_json::ser::Formatter for JsonForTerminal {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        for c in fragment.chars() {
            if printable(c) {
                to.write_all(c.encode_utf8(&mut [0; 4]).as_bytes())?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(to, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_gnu_ls_quotes_them() {
        for (name, shown) in [
            (&b"plain-1.0_x@y:z,%+"[..], &b"plain-1.0_x@y:z,%+"[..]),
            (b"", b"''"),
            (b"a b", b"'a b'"),
            (b"it's", b"\"it's\""),
            (b"it's $5", b"'it'\\''s $5'"),
            (b"it's\n", b"'it'\\''s'$'\\n'"),
            (b"a\nb", b"'a'$'\\n''b'"),
            (b"\x1b[31mred\x07", b"''$'\\033''[31mred'$'\\a'"),
            (b"\xff\xfe", b"''$'\\377\\376'"),
            ("h\u{e9}llo \u{4e16}".as_bytes(), "'h\u{e9}llo \u{4e16}'".as_bytes()),
            ("\u{9b}31m".as_bytes(), b"''$'\\302\\233''31m'"),
            ("a\u{202e}b".as_bytes(), b"'a'$'\\342\\200\\256''b'"),
            ("e\u{301}".as_bytes(), "e\u{301}".as_bytes()),
            (b"back\\slash", b"'back\\slash'"),
            (b"#x", b"'#x'"),
            (b"x#~", b"x#~"),
            (b"{", b"'{'"),
            (b"{}", b"{}"),
        ] {
            let got = quoted_for(name, true, b"");
            assert_eq!(got, shown, "{}", String::from_utf8_lossy(&got));
        }
        assert_eq!(quoted_for("\u{e9}".as_bytes(), false, b""), &b"''$'\\303\\251'"[..]);
        assert_eq!(quoted_for(b"a:b", true, b":"), &b"'a:b'"[..]);
    }

    #[test]
    fn texts_stay_lines() {
        assert_eq!(escaped_for("plain \u{e9}".as_bytes(), true), "plain \u{e9}".as_bytes());
        assert_eq!(
            escaped_for(b"a\x1b]0;x\x07\nnearside: b\xff", true),
            &b"a\\033]0;x\\a\\nnearside: b\\377"[..]
        );
    }

    #[test]
    fn json_says_the_same() {
        let value = serde_json::json!({ "a\u{9b}": "\u{1b}[m\u{202e}\u{1f600}\u{e0001}\u{e9}\"\\" });
        let mut text = Vec::new();
        serde::Serialize::serialize(
            &value,
            &mut serde_json::Serializer::with_formatter(&mut text, JsonForTerminal),
        )
        .unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.chars().all(printable), "{text}");
        assert!(
            text.contains('\u{e9}') && text.contains('\u{1f600}') && text.contains("\\udb40\\udc01"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
