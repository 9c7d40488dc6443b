//! Metadata in words: modes, times, sizes.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use nearside_fsrlib::FileEntry;
pub use nearside_instrument::words::human;
use serde_json::{Value, json};

use crate::out::text;

/// `S_IFMT` and its values.
const KINDS: [(u16, char, &str); 7] = [
    (0o100_000, '-', "regular file"),
    (0o040_000, 'd', "directory"),
    (0o120_000, 'l', "symbolic link"),
    (0o020_000, 'c', "character special file"),
    (0o060_000, 'b', "block special file"),
    (0o010_000, 'p', "fifo"),
    (0o140_000, 's', "socket"),
];

fn kind(mode: u16) -> (u16, char, &'static str) {
    *KINDS.iter().find(|k| k.0 == mode & 0o170_000).unwrap_or(&(0, '?', "weird file"))
}

/// `-`, `d`, `l`, ... as `ls -l` begins a line; `find -type` calls a regular file `f`.
pub fn letter(mode: u16) -> char {
    kind(mode).1
}

/// "regular file" and so on, as stat says; an empty regular file is one of its own.
pub fn kind_name(entry: &FileEntry) -> &'static str {
    match kind(entry.mode) {
        (0o100_000, ..) if entry.size == 0 => "regular empty file",
        (_, _, name) => name,
    }
}

/// Whether it is a directory.
pub fn is_directory(mode: u16) -> bool {
    kind(mode).1 == 'd'
}

/// Whether it is a device.
pub fn is_device(mode: u16) -> bool {
    matches!(kind(mode).1, 'c' | 'b')
}

/// `drwxr-xr-x`.
pub fn mode(mode: u16) -> String {
    let mut text = String::from(letter(mode));
    for (shift, special, with, without) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => with,
            (false, true) => without,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Times in the caller's zone.
pub struct Times {
    zone: TimeZone,
}

impl Times {
    /// The zone of `TZ`, or the machine's.
    pub fn new() -> Times {
        Times { zone: TimeZone::try_system().unwrap_or(TimeZone::UTC) }
    }

    /// A time (seconds and nanoseconds since 1970) in a form of strftime(3)'s, as jiff has them; one that
    /// the form cannot show, in seconds.
    pub fn strftime(&self, (seconds, nanoseconds): (i64, u32), form: &str) -> String {
        let at = i32::try_from(nanoseconds).ok().and_then(|ns| Timestamp::new(seconds, ns).ok());
        let mut text = String::new();
        match at.map(|at| write!(text, "{}", at.to_zoned(self.zone.clone()).strftime(form))) {
            Some(Ok(())) => text,
            _ => format!("{seconds}.{nanoseconds:09}"),
        }
    }

    /// A time that a person wrote: `2024-05-06`, with a time of day behind a blank or `T`, or `@SECONDS`.
    pub fn of_text(&self, text: &str) -> Option<(i64, u32)> {
        if let Some(seconds) = text.strip_prefix('@') {
            return Some((seconds.parse().ok()?, 0));
        }
        let local = |at: civil::DateTime| at.to_zoned(self.zone.clone()).ok().map(|zoned| zoned.timestamp());
        let at: Timestamp = text.parse().ok().or_else(|| text.parse().ok().and_then(local))?;
        Some((at.as_second(), u32::try_from(at.subsec_nanosecond()).ok()?))
    }

    /// `2024-05-06 07:08:09.123456789 +0000`, as stat.
    pub fn full(&self, time: (i64, u32)) -> String {
        self.strftime(time, "%Y-%m-%d %H:%M:%S.%9f %z")
    }
}

/// Seconds and nanoseconds since 1970, in nanoseconds.
pub fn nanoseconds((seconds, nanoseconds): (i64, u32)) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

/// What time it is, in nanoseconds since 1970.
pub fn now() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i128
}

/// What a letter of strftime(3)'s stands for in the C locale, where that is more than one field.
pub fn c_locale(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'c' => "%a %b %e %H:%M:%S %Y",
        b'D' | b'x' => "%m/%d/%y",
        b'F' => "%Y-%m-%d",
        b'h' => "%b",
        b'r' => "%I:%M:%S %p",
        b'R' => "%H:%M",
        b'T' | b'X' => "%H:%M:%S",
        _ => return None,
    })
}

/// A form as date(1) has it in the C locale, for [`Times::strftime`]; where seconds since 1970 are to stand
/// (`%s`, which jiff cuts off toward 1970), a zero byte, of which a word of a command line has none.
fn date_form(text: &str) -> Result<String, String> {
    const FIELDS: &str = "%aAbBdeGHIjklmMnNpPStuUVwWyYzZ";
    let mut form = String::new();
    let mut rest = text;
    while let Some((plain, field)) = rest.split_once('%') {
        let end = field.find(|c: char| !"-_0^#".contains(c) && !c.is_ascii_digit()).unwrap_or(field.len());
        let (flags, after) = field.split_at(end);
        let letter = after.chars().next().ok_or("a % at its end")?;
        let long = u8::try_from(letter).ok().and_then(c_locale).filter(|_| flags.is_empty());
        form.push_str(plain);
        match long {
            Some(long) => form.push_str(long),
            None if (flags, letter) == ("", 's') => form.push('\0'),
            None if FIELDS.contains(letter) => form.extend(["%", flags, &after[..1]]),
            None => return Err(format!("no time %{flags}{letter}")),
        }
        rest = &after[letter.len_utf8()..];
    }
    Ok(form + rest)
}

/// How `ls -l` shows times: those of the last half year, and others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeStyle {
    recent: String,
    other: String,
}

/// Half of a Gregorian year, in nanoseconds.
const RECENT: i128 = 31_556_952 / 2 * 1_000_000_000;

impl Default for TimeStyle {
    /// The C locale's.
    fn default() -> TimeStyle {
        TimeStyle { recent: "%b %e %H:%M".into(), other: "%b %e  %Y".into() }
    }
}

impl FromStr for TimeStyle {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeStyle, String> {
        let both = |form: &str| TimeStyle { recent: form.into(), other: form.into() };
        Ok(match text {
            "full-iso" => both("%Y-%m-%d %H:%M:%S.%N %z"),
            "long-iso" => both("%Y-%m-%d %H:%M"),
            "iso" => TimeStyle { recent: "%m-%d %H:%M".into(), other: "%Y-%m-%d ".into() },
            "locale" => TimeStyle::default(),
            // Meant for other locales than C.
            text if text.starts_with("posix-") => TimeStyle::default(),
            text => {
                let form = text.strip_prefix('+').ok_or("not full-iso, long-iso, iso, locale or +FORMAT")?;
                let (other, recent) = form.split_once('\n').unwrap_or((form, form));
                if recent.contains('\n') {
                    return Err("of more than two lines".into());
                }
                TimeStyle { recent: date_form(recent)?, other: date_form(other)? }
            }
        })
    }
}

impl TimeStyle {
    /// A time, where it is `now` (nanoseconds since 1970).
    pub fn show(&self, times: &Times, time: (i64, u32), now: i128) -> String {
        let ago = now - nanoseconds(time);
        let form = if ago > 0 && ago < RECENT { &self.recent } else { &self.other };
        times.strftime(time, &form.replace('\0', &time.0.to_string()))
    }
}

/// Metadata as a JSON object. Times are seconds and nanoseconds since 1970.
pub fn entry_json(path: &[u8], entry: &FileEntry) -> Value {
    let time = |(s, ns): (i64, u32)| json!({ "seconds": s, "nanoseconds": ns });
    let [atime, mtime, ctime] = entry.times.map(time);
    json!({
        "type": "entry",
        "path": text(path),
        "inode": entry.ino,
        "kind": kind(entry.mode).2,
        "mode": entry.mode,
        "permissions": mode(entry.mode),
        "links": entry.links,
        "uid": entry.uid,
        "gid": entry.gid,
        "size": entry.size,
        "sectors": entry.sectors,
        "rdev": if is_device(entry.mode) { json!([entry.rdev.0, entry.rdev.1]) } else { Value::Null },
        "atime": atime,
        "mtime": mtime,
        "ctime": ctime,
        "birth": entry.birth.map(time),
        "link": entry.link.as_deref().map(text),
    })
}

/// A name of which no more is to be had, as JSON.
pub fn name_json(path: &[u8], kind_bits: u16) -> Value {
    json!({ "type": "name", "path": text(path), "kind": kind(kind_bits).2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        assert_eq!(mode(0o100_644), "-rw-r--r--");
        assert_eq!(mode(0o041_777), "drwxrwxrwt");
        assert_eq!(mode(0o104_711), "-rws--x--x");
        assert_eq!(mode(0o102_644), "-rw-r-Sr--");
        assert_eq!(mode(0o120_777), "lrwxrwxrwx");
    }

    #[test]
    fn times_in_utc() {
        let times = Times { zone: TimeZone::UTC };
        assert_eq!(times.full((0, 5)), "1970-01-01 00:00:00.000000005 +0000");
        assert_eq!(times.strftime((-1, 0), "%Y-%m-%d %H:%M"), "1969-12-31 23:59");
        for (text, is) in [
            ("1970-01-02", Some((86_400, 0))),
            ("1970-01-01 00:01", Some((60, 0))),
            ("1970-01-01T00:00:01.5", Some((1, 500_000_000))),
            ("@7", Some((7, 0))),
            ("yesterday", None),
        ] {
            assert_eq!(times.of_text(text), is, "{text}");
        }
    }

    #[test]
    fn forms_of_times_are_refused_by_name() {
        for (form, is) in [("%c", "%a %b %e %H:%M:%S %Y"), ("a%-d%%%3N%zé", "a%-d%%%3N%zé")] {
            assert_eq!(date_form(form).as_deref(), Ok(is));
        }
        let why = |style: &str| style.parse::<TimeStyle>().unwrap_err();
        assert_eq!(
            (&*why("+%E"), &*why("+%5é"), &*why("+x%")),
            ("no time %E", "no time %5é", "a % at its end")
        );
        assert!(why("+a\nb\nc").contains("two lines") && why("isolated").contains("full-iso"));
        // What is no time is shown all the same.
        assert_eq!(Times::new().strftime((i64::MAX, 5), "%Y"), "9223372036854775807.000000005");
    }
}
