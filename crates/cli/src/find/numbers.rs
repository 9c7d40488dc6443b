//! What find's tests say in numbers: counts, sizes, ages and permission bits.

use std::cmp::Ordering;
use std::str::FromStr;

/// `N`, `+N` (more), `-N` (fewer).
fn sign(text: &str) -> (Ordering, &str) {
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => (Ordering::Greater, rest),
        (_, Some(rest)) => (Ordering::Less, rest),
        _ => (Ordering::Equal, text),
    }
}

/// Digits only: no second sign.
pub fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A test of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    order: Ordering,
    count: u64,
}

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Number, String> {
        let (order, rest) = sign(text);
        let count = digits(rest).ok_or("not a number ([+-]N)")?;
        Ok(Number { order, count })
    }
}

impl Number {
    /// That number and no other.
    pub fn exactly(count: u64) -> Number {
        Number { order: Ordering::Equal, count }
    }

    pub fn holds(&self, value: u64) -> bool {
        value.cmp(&self.count) == self.order
    }
}

/// A test of sizes, in units, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    number: Number,
    unit: u64,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let (order, rest) = sign(text);
        let (number, unit) = match rest.char_indices().next_back() {
            Some((at, 'c')) => (&rest[..at], 1),
            Some((at, 'w')) => (&rest[..at], 2),
            Some((at, 'b')) => (&rest[..at], 512),
            Some((at, 'k')) => (&rest[..at], 1 << 10),
            Some((at, 'M')) => (&rest[..at], 1 << 20),
            Some((at, 'G')) => (&rest[..at], 1 << 30),
            _ => (rest, 512),
        };
        let count = digits(number).ok_or("not a size ([+-]N[cwbkMG])")?;
        Ok(Size { number: Number { order, count }, unit })
    }
}

impl Size {
    pub fn holds(&self, bytes: u64) -> bool {
        self.number.holds(bytes.div_ceil(self.unit))
    }
}

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;
const MINUTE: i128 = 60 * SECOND;

/// A test of how long ago something was, by the arithmetic of find/parser.c (findutils): a time is held
/// against a reference, which without a sign has a unit behind it in which the time has to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    order: Ordering,
    reference: i128,
    unit: i128,
}

impl Age {
    /// `-mtime` and its like: `text` in days before `now` (nanoseconds since 1970).
    pub fn days(text: &str, now: i128) -> Result<Age, String> {
        let origin = match sign(text).0 {
            Ordering::Less => now - SECOND,
            _ => now - DAY,
        };
        Age::of(text, origin, DAY)
    }

    /// `-mmin` and its like: in minutes.
    pub fn minutes(text: &str, now: i128) -> Result<Age, String> {
        Age::of(text, now, MINUTE)
    }

    fn of(text: &str, origin: i128, unit: i128) -> Result<Age, String> {
        let (order, number) = sign(text);
        let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let units: f64 = number.parse().ok().filter(|_| plain).ok_or("not a number ([+-]N)")?;
        let back = (units.trunc() as i128).saturating_mul(unit) + (units.fract() * unit as f64) as i128;
        Ok(Age { order, reference: origin.saturating_sub(back), unit })
    }

    pub fn holds(&self, time: i128) -> bool {
        let later = time.saturating_sub(self.reference);
        match self.order {
            Ordering::Greater => later < 0,
            Ordering::Less => later > 0,
            Ordering::Equal => later > 0 && later <= self.unit,
        }
    }
}

/// A test of permission bits; those of a directory may be others, since `X` asks what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Perm {
    form: Form,
    file: u16,
    directory: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Exactly,
    All,
    Any,
}

impl FromStr for Perm {
    type Err = String;

    fn from_str(text: &str) -> Result<Perm, String> {
        let (form, mode) = match (text.strip_prefix('-'), text.strip_prefix('/')) {
            (Some(rest), _) => (Form::All, rest),
            (_, Some(rest)) => (Form::Any, rest),
            _ => (Form::Exactly, text),
        };
        match (bits(mode, false), bits(mode, true)) {
            // Any of none is all of none.
            (Some(0), Some(0)) if form == Form::Any => Ok(Perm { form: Form::All, file: 0, directory: 0 }),
            (Some(file), Some(directory)) => Ok(Perm { form, file, directory }),
            _ => Err("not a mode in octal or in chmod's letters ([-/]MODE)".into()),
        }
    }
}

impl Perm {
    pub fn holds(&self, mode: u16, directory: bool) -> bool {
        let mode = mode & 0o7777;
        let bits = if directory { self.directory } else { self.file };
        match self.form {
            Form::Exactly => mode == bits,
            Form::All => mode & bits == bits,
            Form::Any => mode & bits != 0,
        }
    }
}

/// What a mode says (octal, or chmod(1)'s clauses over no bits and without a umask), as gnulib's
/// modechange.c.
fn bits(text: &str, directory: bool) -> Option<u16> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let octal = text.bytes().all(|b| b.is_ascii_digit());
        return u16::from_str_radix(text, 8).ok().filter(|bits| octal && *bits <= 0o7777);
    }
    text.split(',').try_fold(0, |mode, clause| changed(mode, clause, directory))
}

/// A mode after a clause: `[ugoa]*([-+=]([rwxXst]*|[ugo]))+`.
fn changed(mut mode: u16, clause: &str, directory: bool) -> Option<u16> {
    let operator = clause.find(['+', '-', '='])?;
    let (who, mut rest) = clause.split_at(operator);
    let mut affected = 0;
    for letter in who.chars() {
        affected |= match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    let affected = if affected == 0 { 0o7777 } else { affected };
    while let Some(operator) = rest.chars().next() {
        let said = &rest[1..];
        let end = said.find(['+', '-', '=']).unwrap_or(said.len());
        let value = permissions(&said[..end], mode, directory)? & affected;
        mode = match operator {
            '+' => mode | value,
            '-' => mode & !value,
            _ => mode & !affected | value,
        };
        rest = &said[end..];
    }
    Some(mode)
}

/// The bits that stand behind an operator, for all users.
fn permissions(letters: &str, mode: u16, directory: bool) -> Option<u16> {
    let spread = |bits: u16| [0o444, 0o222, 0o111].into_iter().filter(|m| bits & m != 0).sum();
    match letters {
        "u" => return Some(spread(mode & 0o700)),
        "g" => return Some(spread(mode & 0o070)),
        "o" => return Some(spread(mode & 0o007)),
        _ => {}
    }
    let mut bits = 0;
    for letter in letters.chars() {
        bits |= match letter {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            'X' if directory || mode & 0o111 != 0 => 0o111,
            'X' => 0,
            's' => 0o6000,
            't' => 0o1000,
            _ => return None,
        };
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_find_has_them() {
        let size = |text: &str| text.parse::<Size>().unwrap();
        assert!(size("1").holds(1) && size("1").holds(512) && !size("1").holds(513));
        assert!(size("+1k").holds(1025) && !size("+1k").holds(1024));
        assert!(size("-1M").holds(0) && !size("-1M").holds(1));
        assert!(size("5c").holds(5));
        for bad in ["x", "+", "5é", "+-5", "", "k"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    #[test]
    fn modes_as_find_has_them() {
        let perm = |text: &str| text.parse::<Perm>().unwrap();
        assert!(perm("644").holds(0o100_644, false));
        assert!(perm("-4000").holds(0o104_755, false));
        assert!(perm("/22").holds(0o100_620, false) && perm("/0").holds(0o100_000, false));
        for (text, file, directory) in [
            ("u=rw,go=r", 0o644, 0o644),
            ("a+X", 0, 0o111),
            ("u+x,a+X", 0o111, 0o111),
            ("u+s,g+s,+t", 0o7000, 0o7000),
            ("u=rwx,g=u,o=g-w", 0o775, 0o775),
            ("+rw-w", 0o444, 0o444),
        ] {
            assert_eq!((bits(text, false), bits(text, true)), (Some(file), Some(directory)), "{text}");
        }
        for bad in ["9", "-+7", "u", "u+q", "z+r", "", "u+r,"] {
            assert!(bad.parse::<Perm>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ages_as_find_has_them() {
        let now = 1000 * DAY;
        let days = |text: &str, ago: i128| Age::days(text, now).unwrap().holds(now - ago);
        assert!(days("0", 1) && days("0", DAY - 1) && !days("0", DAY));
        assert!(days("1", DAY) && !days("1", 2 * DAY) && !days("+1", 2 * DAY) && days("+1", 2 * DAY + 1));
        assert!(days("-1", DAY) && days("-1", DAY + SECOND - 1) && !days("-1", DAY + SECOND));
        let minutes = |text: &str, ago: i128| Age::minutes(text, now).unwrap().holds(now - ago);
        assert!(minutes("1", 0) && minutes("1", MINUTE - 1) && !minutes("1", MINUTE));
        assert!(minutes("+0.5", MINUTE / 2 + 1) && !minutes("+0.5", MINUTE / 2) && minutes("-2", MINUTE));
        for bad in ["", "x", "+", "1e3", "--1", "inf"] {
            assert!(Age::days(bad, now).is_err(), "{bad}");
        }
    }
}
