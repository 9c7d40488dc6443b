//! `cksum -c`: lists of checksums, of this host's files, held against the files of the volume.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nearside_fsrlib::{Ask, Failure as Refusal, Operation, Record};
use serde_json::json;

use super::sum::Algorithm;
use super::{CksumArgs, in_a_line};
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome, complain, complain_about, words};
use crate::out::{self, Out};

/// Bytes of a line at most: a path's, escaped, beside the longest checksum.
const LINE: u64 = 16 << 10;

/// A line of a list.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    algorithm: Algorithm,
    value: Vec<u8>,
    name: Vec<u8>,
}

/// What became of a list's lines.
#[derive(Default)]
struct Tally {
    formed: u64,
    malformed: u64,
    unread: u64,
    unlike: u64,
    alike: u64,
}

/// What an escaped name stands for.
fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            0 => return None,
            byte => *byte,
        });
    }
    Some(plain)
}

fn of_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_chunks::<2>();
    if !pairs.1.is_empty() {
        return None;
    }
    pairs.0.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

/// A line without what it may begin with: whether a backslash says that its name is escaped, and the rest.
fn begun(line: &[u8]) -> (bool, &[u8]) {
    let line = line.trim_ascii_start();
    match line.strip_prefix(b"\\") {
        Some(line) => (true, line),
        None => (false, line),
    }
}

/// The algorithm that a line names, whatever else is in it.
fn named(line: &[u8]) -> Option<Algorithm> {
    let (_, line) = begun(line);
    let (algorithm, _) = Algorithm::of_tag(line.split(|b| b" \t-(".contains(b)).next()?)?;
    (algorithm != Algorithm::Crc).then_some(algorithm)
}

/// A line's algorithm, the bytes of its value, that value in digits, and the name, which may be escaped.
type Parts<'a> = (Algorithm, usize, &'a [u8], &'a [u8]);

impl Listed {
    /// `ALGORITHM (NAME) = VALUE`, or `VALUE  NAME` of the algorithm that is meant where none is named.
    /// `bsd`: whether lines of that form have one space, as BSD's `-r` writes them; `None`: the first will
    /// say it.
    fn of(line: &[u8], meant: Algorithm, bsd: &mut Option<bool>) -> Option<Listed> {
        let (escaped, line) = begun(line);
        let parts = Listed::tagged(line).or_else(|| Listed::plain(line, meant, bsd));
        let (algorithm, len, value, name) = parts?;
        let name = if escaped { unescaped(name)? } else { name.to_vec() };
        let value = of_hex(value).filter(|value| value.len() == len && algorithm.may_have(len))?;
        // A sum of cksum's own has no such list.
        (algorithm != Algorithm::Crc).then_some(Listed { algorithm, value, name })
    }

    fn tagged(line: &[u8]) -> Option<Parts<'_>> {
        let open = line.iter().position(|b| *b == b'(')?;
        let (algorithm, len) = Algorithm::of_tag(line[..open].trim_ascii_end())?;
        let close = line.iter().rposition(|b| *b == b')').filter(|close| *close > open)?;
        let value = line[close + 1..].trim_ascii_start().strip_prefix(b"=")?;
        Some((algorithm, len, value.trim_ascii_start(), &line[open + 1..close]))
    }

    fn plain<'a>(line: &'a [u8], meant: Algorithm, bsd: &mut Option<bool>) -> Option<Parts<'a>> {
        let len = match meant {
            // As many as there are: nothing else says it.
            Algorithm::Blake2b => line.iter().take_while(|b| b.is_ascii_hexdigit()).count() / 2,
            meant => meant.tag().1,
        };
        let (value, rest) = line.split_at_checked(len * 2)?;
        let rest = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"\t"))?;
        if !value.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        // A star says that the file was read as binary. Of the two forms there is but one in all lists: else
        // whoever names a file could have another checked in its place.
        let name = match rest {
            [b' ' | b'*', name @ ..] if !name.is_empty() => match bsd.get_or_insert(false) {
                true => rest,
                false => name,
            },
            _ => bsd.get_or_insert(true).then_some(rest)?,
        };
        Some((meant, len, value, name))
    }
}

/// A path of the volume: what is relative begins at its root.
fn path(name: &[u8]) -> OsString {
    match name {
        [b'/', ..] => OsStr::from_bytes(name).to_owned(),
        name => OsString::from_vec([b"/", name].concat()),
    }
}

/// The next line, without its end. `Some(None)`: one that is too long to be any.
fn line(from: &mut impl BufRead) -> io::Result<Option<Option<Vec<u8>>>> {
    let mut line = Vec::new();
    if from.by_ref().take(LINE).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.len() as u64 == LINE && !line.ends_with(b"\n") {
        from.skip_until(b'\n')?;
        return Ok(Some(None));
    }
    let text = line.strip_suffix(b"\n").unwrap_or(&line);
    Ok(Some(Some(text.strip_suffix(b"\r").unwrap_or(text).to_vec())))
}

pub fn run(args: &CksumArgs) -> Outcome {
    let mut out = Out::new();
    let mut drive = Drive::open(&args.drive)?.with_buffer(1 << 20);
    let mut code = 0;
    // Of what a line is said to be no checksum, where -a does not tell: of what was named last.
    let mut tag = Algorithm::Crc.tag().0;
    let mut bsd = None;
    for list in &args.paths {
        let named = list.as_bytes();
        let opened: io::Result<Box<dyn Read>> = match named {
            b"-" => Ok(Box::new(io::stdin())),
            _ => File::open(list).map(|file| Box::new(file) as Box<dyn Read>),
        };
        let good = match opened {
            Ok(list) => check(args, named, BufReader::new(list), (&mut tag, &mut bsd), &mut drive, &mut out)?,
            Err(error) => {
                complain_about(named, &words(&error));
                false
            }
        };
        if !good {
            code = 1;
        }
    }
    drive.finish(&mut out)?;
    Ok(code)
}

/// Checks a list; whether all in it is well.
fn check(
    args: &CksumArgs,
    list: &[u8],
    mut from: impl BufRead,
    (tag, bsd): (&mut &'static str, &mut Option<bool>),
    drive: &mut Drive,
    out: &mut Out,
) -> Result<bool, Failure> {
    let mut tally = Tally::default();
    let mut number = 0u64;
    loop {
        let line = match line(&mut from) {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => {
                complain_about(list, &words(&error));
                return Ok(false);
            }
        };
        number += 1;
        if line.as_ref().is_some_and(|line| line.is_empty() || line.starts_with(b"#")) {
            continue;
        }
        if let Some(algorithm) = args.algorithm.or_else(|| line.as_deref().and_then(named)) {
            *tag = algorithm.tag().0;
        }
        match line.and_then(|line| Listed::of(&line, args.algorithm.unwrap_or_default(), bsd)) {
            Some(listed) => {
                tally.formed += 1;
                tally.check(args, &listed, drive, out)?;
            }
            None => {
                tally.malformed += 1;
                if args.warn {
                    complain_about(list, &format!("{number}: improperly formatted {tag} checksum line"));
                }
            }
        }
    }
    out.flush()?;
    Ok(tally.end(args, list))
}

impl Tally {
    fn check(
        &mut self,
        args: &CksumArgs,
        listed: &Listed,
        drive: &mut Drive,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let (path, is_none) = (path(&listed.name), listed.name.is_empty());
        if args.ignore_missing && (is_none || is_missing(drive, &path)?) {
            return Ok(());
        }
        let mut alike = None;
        if is_none {
            complain_about(b"", "No such file or directory");
        } else {
            listed.algorithm.of_files(listed.value.len(), drive, &[path], false, |sum| {
                alike = Some(sum.value == listed.value);
                Ok(())
            })?;
        }
        let (count, said) = match alike {
            None => (&mut self.unread, "FAILED open or read"),
            Some(false) => (&mut self.unlike, "FAILED"),
            Some(true) => (&mut self.alike, "OK"),
        };
        *count += 1;
        if args.drive.json {
            let (tag, _) = listed.algorithm.tag();
            return Ok(out.json(&json!({
                "type": "check", "path": out::text(&listed.name), "algorithm": tag, "matches": alike,
            }))?);
        }
        if args.status || args.quiet && alike == Some(true) {
            return Ok(());
        }
        let (mark, name) = match out.terminal {
            true => ("", out.shown(&listed.name)),
            false => in_a_line(&listed.name),
        };
        write!(out, "{mark}")?;
        out.write_all(&name)?;
        Ok(writeln!(out, ": {said}")?)
    }

    /// What is said at the end of a list.
    fn end(&self, args: &CksumArgs, list: &[u8]) -> bool {
        if self.formed == 0 {
            complain_about(list, "no properly formatted checksum lines found");
            return false;
        }
        let warn = |count: u64, one: &str, several: &str| {
            if count > 0 && !args.status {
                complain(&format!("WARNING: {count} {}", if count == 1 { one } else { several }));
            }
        };
        warn(self.malformed, "line is improperly formatted", "lines are improperly formatted");
        warn(self.unread, "listed file could not be read", "listed files could not be read");
        warn(self.unlike, "computed checksum did NOT match", "computed checksums did NOT match");
        if args.ignore_missing && self.alike == 0 && !args.status {
            complain_about(list, "no file was verified");
        }
        self.alike > 0 && self.unlike + self.unread == 0 && (self.malformed == 0 || !args.strict)
    }
}

/// Whether nothing has that path.
fn is_missing(on: &mut Drive, path: &OsStr) -> Result<bool, Failure> {
    let ask = Ask { target: drive::target(path), operation: Operation::Stat, follow: true };
    let mut missing = false;
    let answer = on.ask(&ask, |record| {
        missing |= matches!(record, Record::Failed { failure: Refusal::NotFound, .. });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(missing || answer == Err(Refusal::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_lists() {
        let of = |line: &[u8]| {
            let listed = Listed::of(line, Algorithm::Crc32c, &mut Some(false));
            listed.map(|l| (l.algorithm, l.value, l.name))
        };
        let crc = |name: &[u8]| Some((Algorithm::Crc32c, vec![1, 0x23, 0xab, 0xcd], name.to_vec()));
        assert_eq!(of(b"0123abCD  a b "), crc(b"a b "));
        assert_eq!(of(b" 0123abcd *x"), crc(b"x"));
        assert_eq!(of(b"\\0123abcd  a\\nb\\\\"), crc(b"a\nb\\"));
        assert_eq!(of(b"CRC32C (a) (b)) = 0123abcd"), crc(b"a) (b)"));
        assert_eq!(of(b"\\CRC32C (\\r) = 0123abcd"), crc(b"\r"));
        let md5 = of(b"MD5 (x) = 00000000000000000000000000000000").unwrap();
        assert_eq!((md5.0, md5.1.len()), (Algorithm::Md5, 16));
        for bad in [
            &b""[..],
            b"0123abcd",
            b"0123abcd  ",
            b"0123abcdx",
            b"0123abc  x",
            b"0123abcg  x",
            b"\\0123abcd  a\\x",
            b"\\0123abcd  a\\",
            b"CRC32C (x) = 0123ab",
            b"CRC32C )x( = 0123abcd",
            b"CRC (x) = 0123abcd",
            b"CRC32C (x) = 0123abcd ",
            b"CRC32C-32 (x) = 0123abcd",
            b"BLAKE2b-16 (x) = 01",
            b"BLAKE2b-12 (x) = 012",
            b"BLAKE2b-0 (x) = ",
            b"BLAKE2b-16x (x) = 0123",
            b"BLAKE2b (x) = 0123",
            b"WHAT (x) = 0123abcd",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(of(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn one_space_is_bsds_in_all_lists_or_in_none() {
        let name = |line: &str, bsd: &mut Option<bool>| {
            Listed::of(line.as_bytes(), Algorithm::Crc32c, bsd).map(|l| String::from_utf8(l.name).unwrap())
        };
        let mut bsd = None;
        assert_eq!(name("CRC32C (x) = 0123abcd", &mut bsd), Some("x".into()));
        assert_eq!((name("0123abcg x", &mut bsd), bsd), (None, None));
        assert_eq!((name("0123abcd x", &mut bsd), bsd), (Some("x".into()), Some(true)));
        assert_eq!(name("0123abcd  x", &mut bsd), Some(" x".into()));
        let mut bsd = None;
        assert_eq!((name("0123abcd  x", &mut bsd), bsd), (Some("x".into()), Some(false)));
        assert_eq!(name("0123abcd x", &mut bsd), None);
        // As in coreutils.
        assert_eq!(name("0123abcd  ", &mut None), Some(" ".into()));
        assert_eq!(name("0123abcd ", &mut None), Some(String::new()));
    }

    #[test]
    fn blake2b_of_as_many_bytes_as_a_line_has() {
        let of = |line: &[u8]| {
            let listed = Listed::of(line, Algorithm::Blake2b, &mut None);
            listed.map(|l| (l.algorithm, l.value, l.name))
        };
        let two = Some((Algorithm::Blake2b, vec![1, 0x23], b"x".to_vec()));
        assert_eq!(of(b"0123  x"), two);
        assert_eq!(of(b"BLAKE2b-16 (x) = 0123"), two);
        let longest = [&[b'a'; 128][..], b"  x"].concat();
        assert_eq!(of(&longest).map(|(_, value, _)| value.len()), Some(64));
        let longer = [&longest[..2], &longest[..]].concat();
        for bad in [&b"012  x"[..], b"  x", b"x", &longer[..]] {
            assert_eq!(of(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn what_a_line_names() {
        assert_eq!(named(b" \\MD5 (x) = 0"), Some(Algorithm::Md5));
        assert_eq!(named(b"BLAKE2b-7"), Some(Algorithm::Blake2b));
        for none in [&b""[..], b"CRC (x) = 0", b"md5 (x) = 0", b"MD5x"] {
            assert_eq!(named(none), None, "{}", none.escape_ascii());
        }
    }
}
