//! Values: read from text, compared, and guessed at. The guesses are those of arrow-csv and arrow-json,
//! which DataFusion infers types by: what is like a truth, an integer, a number, a day or an instant in
//! every row is one, an integer among numbers is a number, and all else is text.

use std::cmp::Ordering;

use nearside_near_data::ColumnType;

/// A value of a row; texts lie in a buffer of the row's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Cell {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Days since 1970.
    Date(i32),
    /// Microseconds since 1970.
    Time(i64),
    Text(u32, u32),
    /// What stands there is not of the column's type.
    Bad(u32, u32),
}

impl Cell {
    pub(super) fn text(from: usize, to: usize) -> Cell {
        Cell::Text(from as u32, to as u32)
    }

    pub(super) fn bad(from: usize, to: usize) -> Cell {
        Cell::Bad(from as u32, to as u32)
    }
}

/// Longer texts are no numbers.
const LONGEST_NUMBER: usize = 400;
pub(super) const DAY_US: i64 = 86_400_000_000;

/// A text as a value of that type; `None`: it is not one. Not for texts themselves.
pub(super) fn parse(kind: ColumnType, text: &[u8]) -> Option<Cell> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= LONGEST_NUMBER)?;
    Some(match kind {
        ColumnType::Bool if text.eq_ignore_ascii_case("true") => Cell::Bool(true),
        ColumnType::Bool if text.eq_ignore_ascii_case("false") => Cell::Bool(false),
        ColumnType::Bool | ColumnType::Utf8 => return None,
        ColumnType::Int64 => Cell::Int(text.parse().ok()?),
        ColumnType::Float64 => Cell::Float(text.parse().ok()?),
        ColumnType::Date => Cell::Date(date(text.as_bytes())?),
        // A day among instants is its midnight.
        ColumnType::Timestamp => match timestamp(text.as_bytes()) {
            Some(time) => Cell::Time(time),
            None => Cell::Time(i64::from(date(text.as_bytes())?) * DAY_US),
        },
    })
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0i64, |n, byte| {
        byte.is_ascii_digit().then(|| n.wrapping_mul(10).wrapping_add(i64::from(byte - b'0')))
    })
}

/// Days since 1970 of `YYYY-MM-DD`.
pub(super) fn date(text: &[u8]) -> Option<i32> {
    let [y @ .., b'-', m1, m2, b'-', d1, d2] = text else { return None };
    if y.len() != 4 {
        return None;
    }
    let (year, month, day) = (digits(y)?, digits(&[*m1, *m2])?, digits(&[*d1, *d2])?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    (1..=days).contains(&day).then(|| days_of(year, month, day) as i32)
}

/// Days since 1970 of a day of the Gregorian calendar (H. Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", days_from_civil).
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The day of so many since 1970: year, month, day (`civil_from_days` there).
pub(super) fn day_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let of_years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_years + of_years / 4 - of_years / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = of_years + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// Microseconds since 1970 of `YYYY-MM-DD`, `T` or a space, `HH:MM:SS`, up to six digits of a second, and `Z`
/// or an offset, which is taken off.
pub(super) fn timestamp(text: &[u8]) -> Option<i64> {
    let (day, rest) = text.split_at_checked(10)?;
    let days = i64::from(date(day)?);
    let [b'T' | b' ', h1, h2, b':', m1, m2, b':', s1, s2, rest @ ..] = rest else { return None };
    let (hour, minute, second) = (digits(&[*h1, *h2])?, digits(&[*m1, *m2])?, digits(&[*s1, *s2])?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (fraction, zone) = match rest {
        [b'.', rest @ ..] => {
            let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (fraction, zone) = rest.split_at(len);
            if !(1..=6).contains(&len) {
                return None;
            }
            (digits(fraction)? * 10i64.pow(6 - len as u32), zone)
        }
        zone => (0, zone),
    };
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset(zone)?;
    Some(seconds * 1_000_000 + fraction)
}

/// Seconds of an offset.
fn offset(zone: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match zone {
        [] | [b'Z' | b'z'] => return Some(0),
        [sign, h1, h2] => (sign, digits(&[*h1, *h2])?, 0),
        [sign, h1, h2, b':', m1, m2] | [sign, h1, h2, m1, m2] => {
            (sign, digits(&[*h1, *h2])?, digits(&[*m1, *m2])?)
        }
        _ => return None,
    };
    let seconds = hours * 3600 + minutes * 60;
    match sign {
        b'+' if hours < 24 && minutes < 60 => Some(seconds),
        b'-' if hours < 24 && minutes < 60 => Some(-seconds),
        _ => None,
    }
}

/// Numbers in order: a number that is none is as great as itself, and greater than all others.
pub(super) fn floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// What the values of a column have been like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guess(u8);

const BOOL: u8 = 1;
const INT: u8 = 2;
const FLOAT: u8 = 4;
const DATE: u8 = 8;
const TIME: u8 = 16;
const TEXT: u8 = 32;

impl Guess {
    /// Takes a text; empty ones are null.
    pub(super) fn text(&mut self, text: &[u8]) {
        self.0 |= match text {
            [] => 0,
            b"NaN" | b"nan" | b"inf" | b"-inf" => FLOAT,
            _ if parse(ColumnType::Bool, text).is_some() => BOOL,
            _ if is_integer(text) && parse(ColumnType::Int64, text).is_some() => INT,
            _ if is_number(text) => FLOAT,
            _ if date(text).is_some() => DATE,
            _ if timestamp(text).is_some() => TIME,
            _ => TEXT,
        };
    }

    /// Takes a value of JSON.
    pub(super) fn json(&mut self, value: &serde_json::Value) {
        use serde_json::Value;
        self.0 |= match value {
            Value::Null => 0,
            Value::Bool(_) => BOOL,
            Value::Number(number) if number.is_i64() => INT,
            Value::Number(_) => FLOAT,
            Value::String(_) | Value::Array(_) | Value::Object(_) => TEXT,
        };
    }

    /// Whether there was no value.
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) fn kind(self) -> ColumnType {
        match self.0 {
            BOOL => ColumnType::Bool,
            INT => ColumnType::Int64,
            seen if seen & !(INT | FLOAT) == 0 && seen != 0 => ColumnType::Float64,
            DATE => ColumnType::Date,
            seen if seen & !(DATE | TIME) == 0 && seen != 0 => ColumnType::Timestamp,
            _ => ColumnType::Utf8,
        }
    }
}

/// `-?\d+`
fn is_integer(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// `-?((\d*\.\d+|\d+\.\d*)([eE][-+]?\d+)?|\d+([eE][-+]?\d+))`: an integer that has no room in one is text.
fn is_number(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let run = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = run(text);
    let mut rest = text.get(whole..).unwrap_or_default();
    let mut point = false;
    if let Some(behind) = rest.strip_prefix(b".") {
        let fraction = run(behind);
        if whole + fraction == 0 {
            return false;
        }
        (point, rest) = (true, behind.get(fraction..).unwrap_or_default());
    } else if whole == 0 {
        return false;
    }
    match rest {
        [] => point,
        [b'e' | b'E', b'-' | b'+', digits @ ..] | [b'e' | b'E', digits @ ..] => {
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_instants() {
        assert_eq!(date(b"1970-01-01"), Some(0));
        assert_eq!(date(b"2000-02-29"), Some(11_016));
        assert_eq!(date(b"0001-01-01"), Some(-719_162));
        for no in [
            &b"1900-02-29"[..],
            b"2020-13-01",
            b"2020-00-01",
            b"2020-1-1",
            b"20200-01-01",
            b"2020-04-31",
            b"",
        ] {
            assert_eq!(date(no), None, "{no:?}");
        }
        for days in (-800_000..800_000).step_by(97) {
            let (year, month, day) = day_of(days);
            assert_eq!(days_of(year, month, day), days);
        }
        let at = |text: &str| timestamp(text.as_bytes());
        assert_eq!(at("1970-01-02T00:00:00"), Some(DAY_US));
        assert_eq!(parse(ColumnType::Timestamp, b"1970-01-02"), Some(Cell::Time(DAY_US)));
        assert_eq!(parse(ColumnType::Timestamp, b"1970-02-30"), None);
        assert_eq!(at("1970-01-01 00:00:01.5"), Some(1_500_000));
        assert_eq!(at("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(at("1969-12-31T19:00:00.000001-0500"), Some(1));
        for no in [
            "1970-01-01T24:00:00",
            "1970-01-01T00:00:00.",
            "1970-01-01T00:00:00.1234567",
            "1970-01-01T00:00:00x",
        ] {
            assert_eq!(at(no), None, "{no}");
        }
    }

    #[test]
    fn guesses_are_arrows() {
        let of = |texts: &[&str]| {
            let mut guess = Guess::default();
            texts.iter().for_each(|text| guess.text(text.as_bytes()));
            guess.kind()
        };
        assert_eq!(of(&["1", "-2", "007", ""]), ColumnType::Int64);
        assert_eq!(of(&["1", "2."]), ColumnType::Float64);
        assert_eq!(of(&["1e5", ".5", "NaN", "-inf", "1.5E-3"]), ColumnType::Float64);
        assert_eq!(of(&["9223372036854775808"]), ColumnType::Utf8);
        assert_eq!(of(&["9223372036854775807"]), ColumnType::Int64);
        assert_eq!(of(&["true", "FALSE"]), ColumnType::Bool);
        assert_eq!(of(&["true", "1"]), ColumnType::Utf8);
        assert_eq!(of(&["2020-01-01"]), ColumnType::Date);
        assert_eq!(of(&["2020-01-01", "2020-01-01T00:00:00.25"]), ColumnType::Timestamp);
        assert_eq!(of(&["2020-01-01", "1"]), ColumnType::Utf8);
        // What is read where a type is given is more than what is taken for one.
        for (kind, text) in [
            (ColumnType::Int64, "+5"),
            (ColumnType::Float64, "+1"),
            (ColumnType::Float64, "Infinity"),
            (ColumnType::Float64, "-INF"),
            (ColumnType::Float64, "NAN"),
        ] {
            assert!(parse(kind, text.as_bytes()).is_some(), "{text}");
            assert_eq!(of(&[text]), ColumnType::Utf8, "{text}");
        }
        for text in ["", ".", "-", "e5", "1e", "+1", "1 ", "0x1"] {
            assert_eq!(of(&[text]), ColumnType::Utf8, "{text}");
        }
    }
}
