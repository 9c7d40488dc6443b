//! The measuring instrument's parts: what figures stand beside.
//!
//! A benchmark measures its [`floor`]s in the same run (a cache-line round trip, a raw copy, a wake-up), keeps response times in a
//! [`Latency`] histogram, and writes what came out as a [`record`]: JSON lines by machine and date, and a table.
//!
//! Logic here takes time from a [`Clock`](nearside_clock::Clock) that the caller hands in; the date comes from the caller as well.

pub mod floor;
mod hist;
pub mod record;

pub use hist::{Latency, Percentile};
