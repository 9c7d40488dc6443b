//! What the numbers of a file may be, so that no sum of a model leaves its type. An error names the value and
//! what is allowed; its place is the value's.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// An hour, the longest time of a model that adds with care.
const HOUR_NS: u64 = 3_600_000_000_000;
/// A second, the longest time of one operation of flash or of what lies around it.
const SECOND_NS: u64 = 1_000_000_000;

fn check<E: Error>(value: u64, low: u64, high: u64) -> Result<u64, E> {
    match (low..=high).contains(&value) {
        true => Ok(value),
        false => Err(E::custom(format_args!("{value} is not from {low} to {high}"))),
    }
}

/// A whole number that is not below zero.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let value = i64::deserialize(from)?;
    u64::try_from(value).map_err(|_| D::Error::custom(format_args!("{value} is below 0")))
}

/// From `LOW` to `HIGH`.
pub(crate) fn between<'de, D, T, const LOW: u64, const HIGH: u64>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let value = check(number(from)?, LOW, HIGH)?;
    T::try_from(value).map_err(|_| D::Error::custom(format_args!("{value} is too much")))
}

/// How many there are of things of which a model keeps one each.
pub(crate) fn things<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    between::<D, u32, 1, 4096>(from)
}

/// A time, in nanoseconds.
pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    between::<D, u64, 0, HOUR_NS>(from)
}

/// A byte on a link, in picoseconds.
pub(crate) fn byte<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    between::<D, u64, 0, 1_000_000_000>(from)
}

/// The time of one operation of flash, in nanoseconds.
pub(crate) fn flash_time<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    between::<D, u64, 0, SECOND_NS>(from)
}

/// The same, where it need not be there.
pub(crate) fn flash_time_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    flash_time(from).map(Some)
}

/// Of a lower page and of an upper page.
pub(crate) fn flash_times<'de, D: Deserializer<'de>>(from: D) -> Result<[u64; 2], D::Error> {
    #[derive(Deserialize)]
    struct Time(#[serde(deserialize_with = "flash_time")] u64);
    Ok(<[Time; 2]>::deserialize(from)?.map(|time| time.0))
}
