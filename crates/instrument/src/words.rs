//! Numbers as people say them: `4k`, `50k`, `30s`. In bytes a k is 1,024, as in fio;
//! in operations per second it is 1,000.

pub use nearside_media::words::human;
use nearside_media::words::{size, split, time_ns};

/// `4k`, `4KiB`, `1G`, `512`, in bytes: one or more.
///
/// # Errors
/// That it is none.
pub fn bytes(word: &str) -> Result<u64, String> {
    offset(word).and_then(|bytes| if bytes > 0 { Ok(bytes) } else { Err(no_size(word)) })
}

/// The same, or 0.
///
/// # Errors
/// That it is none.
pub fn offset(word: &str) -> Result<u64, String> {
    size(word).ok_or_else(|| no_size(word))
}

fn no_size(word: &str) -> String {
    format!("{word:?} is no size in bytes (as 4k, 128KiB, 1G)")
}

/// `50k`, `1.2M`, `300`, per second; at most one per nanosecond.
///
/// # Errors
/// That it is none.
pub fn rate(word: &str) -> Result<f64, String> {
    let wrong = || format!("{word:?} is no rate in operations per second (as 300, 50k, 1.2M)");
    let (number, unit) = split(word);
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Some(number * scale).filter(|rate| *rate > 0.0 && *rate <= 1e9).ok_or_else(wrong)
}

/// `30s`, `500ms`, `2m`, `1h`; a number alone is seconds, as in fio. In nanoseconds.
///
/// # Errors
/// That it is none.
pub fn time(word: &str) -> Result<u64, String> {
    let ns = if split(word).1.is_empty() { time_ns(&format!("{word}s")) } else { time_ns(word) };
    ns.filter(|ns| (1..=1_000_000_000_000_000_000).contains(ns))
        .ok_or_else(|| format!("{word:?} is no time (as 30s, 500ms, 2m)"))
}

/// `99.999`, in per cent.
///
/// # Errors
/// That it is none that can be reached.
pub fn percent(word: &str) -> Result<f64, String> {
    let percent = word.parse::<f64>().ok().filter(|percent| (0.0..=99.999_999).contains(percent));
    percent.ok_or_else(|| format!("{word:?} is no percentile from 0 to 99.999999"))
}

/// Nanoseconds with a unit that fits.
#[must_use]
pub fn show_time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999_500.0 => (ns / 1e3, "µs"),
        ns if ns < 999_500_000.0 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Per second, with a unit that fits.
#[must_use]
pub fn show_rate(rate: f64) -> String {
    match rate {
        r if r < 999.5 => digits(r),
        r if r < 999_500.0 => format!("{} k", digits(r / 1e3)),
        r => format!("{} M", digits(r / 1e6)),
    }
}

/// Three digits that mean something.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 || v == 0.0 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_say_them() {
        assert_eq!(
            ["512", "4k", "4KiB", "128K", "1G", "2T"].map(|w| bytes(w).unwrap()),
            [512, 4096, 4096, 131_072, 1 << 30, 2 << 40]
        );
        assert_eq!(["300", "50k", "1.5M"].map(|w| rate(w).unwrap()), [300.0, 50_000.0, 1.5e6]);
        assert_eq!(
            ["30", "30s", "500ms", "2m", "1.5us"].map(|w| time(w).unwrap()),
            [30_000_000_000, 30_000_000_000, 500_000_000, 120_000_000_000, 1_500]
        );
        for wrong in ["", "k", "4x", "-1", "0", "1e9", "99999999999999999999", "1..2", "0s", "NaN", "inf"] {
            assert!(bytes(wrong).is_err() && rate(wrong).is_err() && time(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(
            [0.0, 999.4, 1_000.0, 12_345.0, 999_900.0, 2.5e9].map(show_time),
            ["0 ns", "999 ns", "1.00 µs", "12.3 µs", "1.00 ms", "2.50 s"]
        );
        assert_eq!([12.0, 999.9, 50_000.0, 1.234e6].map(show_rate), ["12.0", "1.00 k", "50.0 k", "1.23 M"]);
    }
}
