//! Metadata in words: modes, times, sizes.

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use nearside_fsrlib::FileEntry;
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

/// A size as `ls -h` has it: powers of 1024, rounded up.
pub fn human(bytes: u64) -> String {
    let mut unit = 1u64;
    let mut suffix = "";
    for next in ["K", "M", "G", "T", "P", "E"] {
        if bytes / unit < 1024 {
            break;
        }
        unit <<= 10;
        suffix = next;
    }
    let whole = bytes.div_ceil(unit);
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(unit));
    match suffix {
        "" => bytes.to_string(),
        _ if tenths < 100 => format!("{}.{}{suffix}", tenths / 10, tenths % 10),
        _ => format!("{whole}{suffix}"),
    }
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

    /// A time (seconds and nanoseconds since 1970) in a form of strftime(3)'s, as jiff has them.
    pub fn strftime(&self, (seconds, nanoseconds): (i64, u32), form: &str) -> String {
        let at = i32::try_from(nanoseconds).ok().and_then(|ns| Timestamp::new(seconds, ns).ok());
        match at {
            Some(at) => at.to_zoned(self.zone.clone()).strftime(form).to_string(),
            None => format!("{seconds}.{nanoseconds:09}"),
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

    /// `2024-05-06 07:08`, as `ls -l --time-style=long-iso`.
    pub fn short(&self, time: (i64, u32)) -> String {
        self.strftime(time, "%Y-%m-%d %H:%M")
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
    fn sizes_round_up_as_ls_does() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1 << 30, "1.0G"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn times_in_utc() {
        let times = Times { zone: TimeZone::UTC };
        assert_eq!(times.full((0, 5)), "1970-01-01 00:00:00.000000005 +0000");
        assert_eq!(times.short((-1, 0)), "1969-12-31 23:59");
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
}
