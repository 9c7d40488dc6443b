#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A run passes so: a [`Plan`] (streams of a [`Workload`] with [`Arrivals`]) -> [`Generator`], a state
//! machine that a runner of [`run`] steps in real or simulated time -> an [`Engine`] -> [`Outcome`], response
//! times from when operations were due.
//!
//! A benchmark measures its [`floor`]s in the same run (a cache-line round trip, a raw copy, a
//! wake-up), keeps response times in a [`Latency`] histogram, and writes what came out as a [`record`]:
//! JSON lines by machine and date, and a table.
//!
//! Logic here takes time from a [`Clock`](nearside_clock::Clock) that the caller hands in;
//! the date comes from the caller as well.

mod arrivals;
pub mod batches;
pub mod cost;
pub mod engine;
pub mod fio_job;
pub mod fio_json;
pub mod floor;
mod generator;
mod hist;
pub mod hlog;
pub mod interval;
mod outcome;
mod plan;
pub mod record;
pub mod run;
pub mod safety;
mod stall;
pub mod steady;
pub mod summary;
pub mod sweep;
pub mod trace;
pub mod verify;
mod workload;
mod zipf;

pub use arrivals::{Arrivals, Schedule};
pub use engine::Engine;
pub use generator::{Generator, Step, Wake};
pub use hist::{Latency, PERCENTILES, Percentile};
pub use outcome::{Outcome, StreamOutcome, Tally};
pub use plan::{Plan, PlanError, Stream};
pub use stall::{Stall, StallLog};
pub use summary::Summary;
pub use workload::{Direction, Distribution, Places, Rw, Think, Trigger, Workload, WorkloadError};
