//! Models in words: `name=value` options, sizes and times.

use std::fmt;

/// What is wrong with a word, and which word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordError(String);

impl WordError {
    pub(crate) fn option(model: &str, option: &str) -> WordError {
        WordError(format!("{option:?} is no option of {model}, or has no such value"))
    }

    pub(crate) fn new(reason: String) -> WordError {
        WordError(reason)
    }
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WordError {}

/// `512`, `64k`, `64KiB`, `1G`, `1GiB`, in bytes, with units in any case: a k is 1,024, as in fio.
pub fn size(word: &str) -> Option<u64> {
    let (number, unit) = split(word);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
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

/// `100ns`, `1.5us`, `5ms`, `30s`, `2m`, `1h`, in nanoseconds.
pub fn time_ns(word: &str) -> Option<u64> {
    let (number, unit) = split(word);
    let scale = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(number) => number.checked_mul(scale),
        Err(_) => {
            Some(number.parse::<f64>().ok()? * scale as f64).filter(|ns| *ns < 1e18).map(|ns| ns as u64)
        }
    }
}

/// A number's digits, and the unit behind them.
pub fn split(word: &str) -> (&str, &str) {
    let digits = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    word.split_at(digits)
}

/// A count that is at least `least` and at most 4096: of things of which a model keeps one each.
pub(crate) fn count(word: &str, least: u32) -> Option<u32> {
    word.parse().ok().filter(|n| (least..=4096).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn sizes_and_times() {
        for mebibytes in ["64m", "64M", "64MiB", "64mib", "65536k", "65536KiB", "67108864", "67108864B"] {
            assert_eq!(size(mebibytes), Some(64 << 20), "{mebibytes}");
        }
        assert_eq!(["0", "1G", "2T"].map(size), [Some(0), Some(1 << 30), Some(2 << 40)]);
        assert_eq!(
            ["0ns", "100ns", "1.5us", "10µs", "5ms", "30s", "2m", "0.5h"].map(|word| time_ns(word).unwrap()),
            [0, 100, 1_500, 10_000, 5_000_000, 30_000_000_000, 120_000_000_000, 1_800_000_000_000]
        );
        let wrong = ["", "k", "4x", "4 k", "-1", "1e9", "1..2", "99999999999999999999", "NaN", "inf"];
        assert!(wrong.iter().all(|word| size(word).is_none() && time_ns(word).is_none()));
        assert!(size("1.5k").is_none() && size("16777216T").is_none());
        assert!(["30", ".s", "6000000h", "9999999999.5h"].iter().all(|word| time_ns(word).is_none()));
    }
}
