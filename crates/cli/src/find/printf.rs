//! What `-printf` and `-ls` print of an entry, as GNU find prints it.

use std::io::Write;

use nearside_fsrlib::FileEntry;

use super::Visit;
use crate::failure::Failure;
use crate::format;
use crate::out::Out;

/// A format of `-printf`.
#[derive(Debug)]
pub struct Format(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(Vec<u8>),
    Field(Field),
    /// `\c`: nothing after it is printed.
    End,
}

/// A directive: `%[-+ 0#]*[WIDTH][.PRECISION]LETTER`, of times with a letter of their own (0: none).
#[derive(Debug, Default)]
struct Field {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    letter: u8,
    time: u8,
}

/// The form of a time's letter, for strftime; seconds have their fraction with them, in ten digits.
fn time_form(letter: u8) -> Option<String> {
    Some(match letter {
        b'@' => String::new(),
        b'+' => "%Y-%m-%d+%H:%M:%S.%9f0".into(),
        b'S' => "%S.%9f0".into(),
        b'T' | b'X' => "%H:%M:%S.%9f0".into(),
        b'r' => "%I:%M:%S %p".into(),
        b'c' => "%a %b %e %H:%M:%S %Y".into(),
        b'x' | b'D' => "%m/%d/%y".into(),
        b'F' => "%Y-%m-%d".into(),
        b'h' => "%b".into(),
        b'H' | b'I' | b'k' | b'l' | b'M' | b'p' | b'Z' | b'a' | b'A' | b'b' | b'B' | b'd' | b'j' | b'm'
        | b'U' | b'w' | b'W' | b'y' | b'Y' => format!("%{}", char::from(letter)),
        _ => return None,
    })
}

/// The form of `%a`, `%c`, `%t`: ctime(3)'s, with the fraction.
const CTIME: &str = "%a %b %e %H:%M:%S.%9f0 %Y";

impl Format {
    /// Of a word of the command line.
    pub fn of(text: &[u8]) -> Result<Format, String> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'\\' if rest.first() == Some(&b'c') => {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::End);
                    return Ok(Format(pieces));
                }
                b'\\' => plain.push(escape(&mut rest)?),
                b'%' if rest.first() == Some(&b'%') => {
                    plain.push(b'%');
                    rest = &rest[1..];
                }
                b'%' => {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::Field(Field::of(&mut rest)?));
                }
                byte => plain.push(byte),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Format(pieces))
    }

    fn has(&self, is: impl Fn(u8) -> bool) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Field(field) if is(field.letter)))
    }

    /// Whether it asks for more than a name and a type.
    pub fn needs_attributes(&self) -> bool {
        self.has(|letter| !b"pfhPHdy".contains(&letter))
    }

    /// Whether it asks for names of users or groups.
    pub fn needs_names(&self) -> bool {
        self.has(|letter| b"ug".contains(&letter))
    }

    /// Prints it of an entry.
    pub fn print(&self, entry: &FileEntry, visit: &Visit<'_>, out: &mut Out) -> Result<(), Failure> {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.write_all(text)?,
                Piece::Field(field) => field.print(entry, visit, out)?,
                Piece::End => return Ok(out.flush()?),
            }
        }
        Ok(())
    }
}

/// What a backslash and what follows it stand for.
fn escape(rest: &mut &[u8]) -> Result<u8, String> {
    let octal = rest.iter().take(3).take_while(|b| (b'0'..b'8').contains(b)).count();
    if octal > 0 {
        let (digits, after) = rest.split_at(octal);
        *rest = after;
        return Ok(digits.iter().fold(0, |value, digit| value << 3 | (digit - b'0')));
    }
    let (letter, after) = rest.split_first().ok_or("a backslash at the end")?;
    *rest = after;
    Ok(match letter {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' => b'\\',
        other => return Err(format!("no escape \\{}", char::from(*other))),
    })
}

impl Field {
    fn of(rest: &mut &[u8]) -> Result<Field, String> {
        let mut field = Field::default();
        let mut byte = take(rest);
        loop {
            match byte {
                Some(b'-') => field.left = true,
                Some(b'+') => field.plus = true,
                Some(b' ') => field.space = true,
                Some(b'0') => field.zero = true,
                Some(b'#') => field.alternate = true,
                _ => break,
            }
            byte = take(rest);
        }
        field.width = number(rest, &mut byte);
        if byte == Some(b'.') {
            byte = take(rest);
            field.precision = Some(number(rest, &mut byte));
        }
        field.letter = byte.ok_or("a % at the end")?;
        match field.letter {
            b'A' | b'B' | b'C' | b'T' => {
                field.time = take(rest).ok_or("a time without its letter")?;
                if time_form(field.time).is_none() {
                    return Err(format!("no time %{}{}", char::from(field.letter), char::from(field.time)));
                }
            }
            b'D' | b'F' | b'S' | b'Y' | b'Z' => {
                return Err(format!("find has %{}, this command does not", char::from(field.letter)));
            }
            letter if b"pfhPHdyaTbcgGiklmMnstuU".contains(&letter) => {}
            letter => return Err(format!("no directive %{}", char::from(letter))),
        }
        Ok(field)
    }

    fn print(&self, entry: &FileEntry, visit: &Visit<'_>, out: &mut Out) -> Result<(), Failure> {
        match self.letter {
            b'd' => return self.number(visit.depth(&entry.path).to_string(), out),
            b'm' => {
                let bits = entry.mode & 0o7777;
                let mark = if self.alternate && bits != 0 { "0" } else { "" };
                return self.number(format!("{mark}{bits:o}"), out);
            }
            _ => {}
        }
        let slash = entry.path.iter().rposition(|b| *b == b'/');
        let path = match self.letter {
            b'p' => Some(&*entry.path),
            b'f' => Some(super::expression::base(&entry.path)),
            b'h' => Some(slash.map_or(&b"."[..], |slash| &entry.path[..slash])),
            b'H' => Some(visit.root),
            b'P' => {
                let below = entry.path.strip_prefix(visit.root).unwrap_or_default();
                Some(below.strip_prefix(b"/").unwrap_or(below))
            }
            b'l' => Some(entry.link.as_deref().unwrap_or_default()),
            _ => None,
        };
        if let Some(path) = path {
            let shown = out.shown(path).into_owned();
            return self.text(&shown, out);
        }
        let text = self.value(entry, visit);
        self.text(text.as_bytes(), out)
    }

    fn value(&self, entry: &FileEntry, visit: &Visit<'_>) -> String {
        let [atime, mtime, ctime] = entry.times;
        let ctime_form = |time| visit.times.strftime(time, CTIME);
        match self.letter {
            b'a' => ctime_form(atime),
            b'c' => ctime_form(ctime),
            b't' => ctime_form(mtime),
            b'A' => self.time(Some(atime), visit),
            b'B' => self.time(entry.birth, visit),
            b'C' => self.time(Some(ctime), visit),
            b'T' => self.time(Some(mtime), visit),
            b'b' => entry.sectors.to_string(),
            b'k' => entry.sectors.div_ceil(2).to_string(),
            b'g' => visit.users.group(entry.gid),
            b'u' => visit.users.user(entry.uid),
            b'G' => entry.gid.to_string(),
            b'U' => entry.uid.to_string(),
            b'i' => entry.ino.to_string(),
            b'M' => format::mode(entry.mode),
            b'n' => entry.links.to_string(),
            b's' => entry.size.to_string(),
            b'y' => super::expression::kind(entry.mode).to_string(),
            _ => String::new(),
        }
    }

    fn time(&self, time: Option<(i64, u32)>, visit: &Visit<'_>) -> String {
        let Some(time) = time else { return String::new() };
        match self.time {
            b'@' => format!("{}.{:09}0", time.0, time.1),
            letter => visit.times.strftime(time, &time_form(letter).unwrap_or_default()),
        }
    }

    /// Digits, as printf(3)'s `%d` and `%o` pad them.
    fn number(&self, mut digits: String, out: &mut Out) -> Result<(), Failure> {
        let sign = match self.letter {
            b'd' if self.plus => "+",
            b'd' if self.space => " ",
            _ => "",
        };
        let most = match self.precision {
            Some(precision) => precision,
            None if self.zero && !self.left => self.width.saturating_sub(sign.len()),
            None => 0,
        };
        digits = format!("{sign}{digits:0>most$}");
        self.padded(digits.as_bytes(), out)
    }

    fn text(&self, text: &[u8], out: &mut Out) -> Result<(), Failure> {
        self.padded(&text[..self.precision.unwrap_or(usize::MAX).min(text.len())], out)
    }

    fn padded(&self, text: &[u8], out: &mut Out) -> Result<(), Failure> {
        let wide = self.width.saturating_sub(text.len());
        if !self.left {
            write!(out, "{:wide$}", "")?;
        }
        out.write_all(text)?;
        if self.left {
            write!(out, "{:wide$}", "")?;
        }
        Ok(())
    }
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    Some(byte)
}

/// A number that begins with a byte that was taken, which becomes that behind the number.
fn number(rest: &mut &[u8], byte: &mut Option<u8>) -> usize {
    const MOST: usize = 1 << 16;
    let mut value = 0usize;
    while let Some(digit) = byte.filter(u8::is_ascii_digit) {
        value = (value * 10 + usize::from(digit - b'0')).min(MOST);
        *byte = take(rest);
    }
    value
}

/// Half of a Gregorian year: a time that is further away is shown with its year.
const RECENT: i128 = 31_556_952 / 2 * 1_000_000_000;

/// A line of `-ls`.
pub fn line(entry: &FileEntry, visit: &Visit<'_>, out: &mut Out) -> Result<(), Failure> {
    let FileEntry { ino, sectors, links, uid, gid, .. } = *entry;
    let (blocks, mode) = (sectors.div_ceil(2), format::mode(entry.mode));
    let (user, group) = (visit.users.user(uid), visit.users.group(gid));
    out.text(&format!("{ino:>9} {blocks:>6} {mode} {links:>3} {user:<8} {group:<8} "))?;
    match format::is_device(entry.mode) {
        true => write!(out, "{:>3}, {:>3} ", entry.rdev.0, entry.rdev.1)?,
        false => write!(out, "{:>8} ", entry.size)?,
    }
    let ago = visit.now - super::numbers::nanoseconds(entry.times[1]);
    let recent = (0..=RECENT).contains(&ago);
    let form = if recent { "%b %e %H:%M" } else { "%b %e  %Y" };
    write!(out, "{} ", visit.times.strftime(entry.times[1], form))?;
    out.write_all(&escaped(&entry.path))?;
    if let Some(link) = &entry.link {
        out.write_all(b" -> ")?;
        out.write_all(&escaped(link))?;
    }
    Ok(out.line(b"")?)
}

/// A name in a line of `-ls`: blanks, quotes and what does not print stand behind a backslash.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\\' | b' ' | b'"' => text.extend([b'\\', byte]),
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            b'\t' => text.extend(b"\\t"),
            8 => text.extend(b"\\b"),
            12 => text.extend(b"\\f"),
            b'!'..=b'~' => text.push(byte),
            byte => text.extend(format!("\\{byte:03o}").bytes()),
        }
    }
    text
}
