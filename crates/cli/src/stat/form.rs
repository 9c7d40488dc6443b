//! What `-c` and `--printf` print of an entry, as GNU stat prints it.

use std::io::Write;

use nearside_fsrlib::FileEntry;
use rustix::fs::makedev;

use crate::directive::Directive;
use crate::failure::{Failure, complain};
use crate::format::{self, Times};
use crate::out::Out;
use crate::terminal;
use crate::users::Users;

/// A format.
pub struct Form {
    pieces: Vec<Piece>,
    /// What stands behind all of it.
    end: &'static [u8],
}

enum Piece {
    Text(Vec<u8>),
    Field(Directive),
    /// `%Hr` and `%Lr`; of the volume, `%Hd` and `%Ld`.
    DeviceNumber {
        minor: bool,
        volume: bool,
        directive: Directive,
    },
}

/// What entries are shown with.
pub struct With<'a> {
    pub users: &'a Users,
    pub times: &'a Times,
    /// Bytes of the volume's blocks, where the form asks for them.
    pub block_size: u32,
    /// The numbers of the device that is mounted, where the form asks for them.
    pub device: (u32, u32),
    /// The file's SELinux context, where the form asks for it and the file has one.
    pub context: Option<&'a [u8]>,
}

impl Form {
    /// Of a word of the command line, with escapes or without.
    pub fn of(text: &[u8], escapes: bool) -> Result<Form, Failure> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'\\' if escapes => plain.push(escape(&mut rest)),
                b'%' => {
                    let field = field(&mut rest)?;
                    match field {
                        Piece::Text(text) => plain.extend(text),
                        field => pieces.extend([Piece::Text(std::mem::take(&mut plain)), field]),
                    }
                }
                byte => plain.push(byte),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Form { pieces, end: if escapes { b"" } else { b"\n" } })
    }

    /// Whether one of these is in it.
    pub fn asks(&self, letters: &[u8]) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Text(_) => false,
            Piece::Field(directive) => letters.contains(&directive.letter),
            Piece::DeviceNumber { volume, .. } => *volume && letters.contains(&b'd'),
        })
    }

    /// Prints it of an entry.
    pub fn print(&self, entry: &FileEntry, with: &With<'_>, out: &mut Out) -> Result<(), Failure> {
        for piece in &self.pieces {
            let shown = match piece {
                Piece::Text(text) => text.clone(),
                Piece::Field(directive) => shown(directive, entry, with, out),
                Piece::DeviceNumber { minor, volume, directive } => {
                    let (high, low) = if *volume { with.device } else { entry.rdev };
                    number(directive, if *minor { low } else { high })
                }
            };
            out.write_all(&shown)?;
        }
        Ok(out.write_all(self.end)?)
    }
}

/// What a backslash and what follows it stand for.
fn escape(rest: &mut &[u8]) -> u8 {
    let digits = |rest: &[u8], most: usize, base: u32| {
        rest.iter().take(most).take_while(|b| char::from(**b).is_digit(base)).count()
    };
    let value = |digits: &[u8], base: u32| {
        let digit = |b: &u8| char::from(*b).to_digit(base).unwrap_or(0);
        digits.iter().fold(0u32, |value, b| value * base + digit(b)) as u8
    };
    let octal = digits(rest, 3, 8);
    if octal > 0 {
        let (number, after) = rest.split_at(octal);
        *rest = after;
        return value(number, 8);
    }
    let Some((&letter, after)) = rest.split_first() else {
        complain("warning: a backslash at the end of the format");
        return b'\\';
    };
    *rest = after;
    match letter {
        b'x' if digits(after, 2, 16) > 0 => {
            let (number, after) = after.split_at(digits(after, 2, 16));
            *rest = after;
            value(number, 16)
        }
        b'a' => 7,
        b'b' => 8,
        b'e' => 27,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'"' | b'\\' => letter,
        letter => {
            complain(&format!("warning: no escape \\{}", char::from(letter)));
            letter
        }
    }
}

/// What a percent sign and what follows it ask for.
fn field(rest: &mut &[u8]) -> Result<Piece, Failure> {
    if rest.is_empty() {
        return Ok(Piece::Text(b"%".to_vec()));
    }
    let directive =
        Directive::of(rest, b"'I").ok_or_else(|| "stat: a % at the end of the format".to_owned())?;
    Ok(match directive.letter {
        b'%' if directive.is_plain() => Piece::Text(b"%".to_vec()),
        b'%' => return Err("stat: %% takes no width".to_owned().into()),
        b'H' | b'L' if matches!(rest.first(), Some(b'r' | b'd')) => {
            let volume = rest.first() == Some(&b'd');
            *rest = &rest[1..];
            Piece::DeviceNumber { minor: directive.letter == b'L', volume, directive }
        }
        known if b"naAbBCdDfFgGhimNorRstTuUwWxXyYzZ".contains(&known) => Piece::Field(directive),
        _ => Piece::Text(b"?".to_vec()),
    })
}

fn number(directive: &Directive, value: impl ToString) -> Vec<u8> {
    directive.number("", &value.to_string())
}

/// In hexadecimal, where flags ask for it with what says so.
fn hexadecimal(directive: &Directive, value: impl Into<u64>) -> Vec<u8> {
    let value = value.into();
    directive.number(if directive.alternate && value != 0 { "0x" } else { "" }, &format!("{value:x}"))
}

fn shown(directive: &Directive, entry: &FileEntry, with: &With<'_>, out: &Out) -> Vec<u8> {
    let text = |text: &str| directive.text(text.as_bytes());
    let name = |known: bool, name: String| match known {
        true => directive.text(&out.shown(name.as_bytes())),
        false => text("UNKNOWN"),
    };
    let [atime, mtime, ctime] = entry.times;
    let rdev = makedev(entry.rdev.0, entry.rdev.1);
    let device = makedev(with.device.0, with.device.1);
    match directive.letter {
        b'n' => directive.text(&out.shown(&entry.path)),
        b'N' => {
            // As coreutils 9.1 has it: with a flag, a width or a precision there are no quotes.
            let quoted = |name: &[u8]| match directive.is_plain() {
                true => terminal::in_quotes(name),
                false => directive.text(&out.shown(name)),
            };
            let link = entry.link.as_ref().map(|link| [b" -> ", &quoted(link)[..]].concat());
            [quoted(&entry.path), link.unwrap_or_default()].concat()
        }
        b'a' => directive.octal(entry.mode & 0o7777),
        b'A' => text(&format::mode(entry.mode)),
        b'b' => number(directive, entry.sectors),
        b'B' => number(directive, 512),
        b'C' => directive.text(&out.shown(with.context.unwrap_or(b"?"))),
        b'd' => number(directive, device),
        b'D' => hexadecimal(directive, device),
        b'f' => hexadecimal(directive, entry.mode),
        b'F' => text(format::kind_name(entry)),
        b'g' => number(directive, entry.gid),
        b'G' => name(with.users.has_group(entry.gid), with.users.group(entry.gid)),
        b'h' => number(directive, entry.links),
        b'i' => number(directive, entry.ino),
        b'm' => text("/"),
        b'o' => number(directive, with.block_size),
        b'r' => number(directive, rdev),
        b'R' => hexadecimal(directive, rdev),
        b's' => directive.number(directive.sign(false), &entry.size.to_string()),
        b't' => hexadecimal(directive, entry.rdev.0),
        b'T' => hexadecimal(directive, entry.rdev.1),
        b'u' => number(directive, entry.uid),
        b'U' => name(with.users.has_user(entry.uid), with.users.user(entry.uid)),
        b'w' => text(&entry.birth.map_or("-".into(), |birth| with.times.full(birth))),
        b'W' => seconds(directive, entry.birth.unwrap_or((0, 0))),
        b'x' => text(&with.times.full(atime)),
        b'X' => seconds(directive, atime),
        b'y' => text(&with.times.full(mtime)),
        b'Y' => seconds(directive, mtime),
        b'z' => text(&with.times.full(ctime)),
        b'Z' => seconds(directive, ctime),
        _ => Vec::new(),
    }
}

/// Seconds since 1970, with as many digits of their parts as the precision says; cut off as GNU stat does.
fn seconds(directive: &Directive, (seconds, nanoseconds): (i64, u32)) -> Vec<u8> {
    let digits = match directive.precision {
        None => 0,
        Some(_) if directive.open => 9,
        Some(digits) => digits,
    };
    let unit = 10u32.pow(9 - digits.min(9) as u32);
    let nanoseconds = nanoseconds.min(999_999_999);
    let (mut whole, mut parts) = (seconds, nanoseconds / unit);
    if seconds < 0 && nanoseconds != 0 {
        // They count on from the second before; a number with a sign counts back.
        parts = (1_000_000_000 / unit - parts).saturating_sub(u32::from(nanoseconds % unit != 0));
        whole += i64::from(parts != 0);
    }
    let point = if digits > 0 { digits + 1 } else { 0 };
    let whole_wide = if directive.left { 0 } else { directive.width.saturating_sub(point) };
    let before = Directive { width: whole_wide, precision: None, ..*directive };
    let mut shown = before.number(directive.sign(seconds < 0), &whole.unsigned_abs().to_string());
    if digits > 0 {
        let most = digits.min(9);
        shown.extend(format!(".{parts:0most$}{:0<1$}", "", digits - most).bytes());
    }
    directive.padded(&shown)
}
