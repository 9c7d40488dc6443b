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

/// `4096`, `64KiB`, `1GiB`, in bytes.
pub fn size(word: &str) -> Option<u64> {
    let (number, unit) = split(word);
    let shift = match unit {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// `100ns`, `10us`, `5ms`, in nanoseconds.
pub fn time_ns(word: &str) -> Option<u64> {
    let (number, unit) = split(word);
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

fn split(word: &str) -> (&str, &str) {
    word.split_at(word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len()))
}

/// A count that is at least `least` and at most 4096: of things of which a model keeps one each.
pub(crate) fn count(word: &str, least: u32) -> Option<u32> {
    word.parse().ok().filter(|n| (least..=4096).contains(n))
}
