//! What `-printf` and `-ls` print of an entry, as GNU find prints it.

use std::io::Write;

use nearside_fsrlib::FileEntry;

use super::Visit;
use crate::directive::{Directive, take};
use crate::failure::Failure;
use crate::format::{self, TimeStyle};
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

/// A directive, of times with a letter of their own (0: none).
#[derive(Debug)]
struct Field {
    directive: Directive,
    time: u8,
}

/// The form of a time's letter, for strftime; seconds have their fraction with them, in ten digits.
fn time_form(letter: u8) -> Option<String> {
    Some(match letter {
        b'@' => String::new(),
        b'+' => "%Y-%m-%d+%H:%M:%S.%9f0".into(),
        b'S' => "%S.%9f0".into(),
        b'T' | b'X' => "%H:%M:%S.%9f0".into(),
        b'r' | b'c' | b'x' | b'D' | b'F' | b'h' => format::c_locale(letter)?.into(),
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
        self.0.iter().any(|piece| matches!(piece, Piece::Field(field) if is(field.directive.letter)))
    }

    /// Whether it asks for more than a name and a type.
    pub fn needs_attributes(&self) -> bool {
        self.has(|letter| !b"pfhPHdyF".contains(&letter))
    }

    /// Whether it asks what file system it is.
    pub fn needs_file_system(&self) -> bool {
        self.has(|letter| letter == b'F')
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
                Piece::Field(field) => {
                    let shown = field.of_entry(entry, visit, out);
                    out.write_all(&shown)?;
                }
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
        let directive = Directive::of(rest, b"").ok_or("a % at the end")?;
        let letter = char::from(directive.letter);
        let mut time = 0;
        match directive.letter {
            b'A' | b'B' | b'C' | b'T' => {
                time = take(rest).ok_or("a time without its letter")?;
                if time_form(time).is_none() {
                    return Err(format!("no time %{letter}{}", char::from(time)));
                }
            }
            b'D' | b'Y' | b'Z' => {
                return Err(format!("find has %{letter}, this command does not"));
            }
            known if b"pfhPHdyaTbcFgGiklmMnsStuU".contains(&known) => {}
            _ => return Err(format!("no directive %{letter}")),
        }
        Ok(Field { directive, time })
    }

    fn of_entry(&self, entry: &FileEntry, visit: &Visit<'_>, out: &Out) -> Vec<u8> {
        let directive = &self.directive;
        let slash = entry.path.iter().rposition(|b| *b == b'/');
        let path = match directive.letter {
            b'd' => {
                let sign = directive.sign(false);
                return directive.number(sign, &visit.depth(&entry.path).to_string());
            }
            b'm' => return directive.octal(entry.mode & 0o7777),
            b'p' => &*entry.path,
            b'f' => super::expression::base(&entry.path),
            b'h' => slash.map_or(&b"."[..], |slash| &entry.path[..slash]),
            b'H' => visit.root,
            b'P' => {
                let below = entry.path.strip_prefix(visit.root).unwrap_or_default();
                below.strip_prefix(b"/").unwrap_or(below)
            }
            b'l' => entry.link.as_deref().unwrap_or_default(),
            b'g' => return directive.text(&out.shown(visit.users.group(entry.gid).as_bytes())),
            b'u' => return directive.text(&out.shown(visit.users.user(entry.uid).as_bytes())),
            _ => return directive.text(self.value(entry, visit).as_bytes()),
        };
        directive.text(&out.shown(path))
    }

    fn value(&self, entry: &FileEntry, visit: &Visit<'_>) -> String {
        let [atime, mtime, ctime] = entry.times;
        let ctime_form = |time| visit.times.strftime(time, CTIME);
        match self.directive.letter {
            b'a' => ctime_form(atime),
            b'c' => ctime_form(ctime),
            b't' => ctime_form(mtime),
            b'A' => self.time(Some(atime), visit),
            b'B' => self.time(entry.birth, visit),
            b'C' => self.time(Some(ctime), visit),
            b'T' => self.time(Some(mtime), visit),
            b'b' => entry.sectors.to_string(),
            b'k' => entry.sectors.div_ceil(2).to_string(),
            b'F' => visit.file_system.to_owned(),
            b'S' => sparseness(entry),
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
}

/// How much of what a file is long lies on the volume.
fn sparseness(entry: &FileEntry) -> String {
    match (entry.size, entry.sectors) {
        (0, 0) => "1".to_owned(),
        (0, _) => "inf".to_owned(),
        (size, sectors) => general(sectors as f64 * 512.0 / size as f64),
    }
}

/// A number of at least 0 as printf's `%g` shows it: six digits that mean something, without zeros at the
/// end.
fn general(number: f64) -> String {
    let scientific = format!("{number:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent @ -4..6 => short(&format!("{number:.*}", (5 - exponent) as usize)),
        exponent if exponent < 0 => format!("{}e-{:02}", short(digits), -exponent),
        exponent => format!("{}e+{exponent:02}", short(digits)),
    }
}

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
    let time = TimeStyle::default().show(visit.times, entry.times[1], visit.now);
    write!(out, "{time} ")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_printf_has_them() {
        for (number, shown) in [
            (0.0, "0"),
            (1.0, "1"),
            (2.819, "2.819"),
            (3.8147e-6, "3.8147e-06"),
            (0.0001, "0.0001"),
            (999_999.6, "1e+06"),
            (123_456.7, "123457"),
            (1e20, "1e+20"),
        ] {
            assert_eq!(general(number), shown);
        }
    }
}
