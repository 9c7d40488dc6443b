//! Response time against load: what `nearside bench` and `nearside sim` do.
//!
//! A curve passes so: a [`Target`] opens to an engine of the load generator ([`Open`]) -> [`measure`] runs one plan after another on it,
//! in real time ([`Real`]) or simulated ([`Simulated`]) -> [`Curve`] -> [`table`] and [`page`] show it. The measuring itself is [`nearside_loadgen`]'s.

mod curve;
mod measure;
mod medium;
mod page;
mod prepare;
mod run;
mod simulated;
pub mod table;
mod target;
pub mod words;

pub use curve::{Curve, Point};
pub use measure::{Ask, Event, measure, plan};
pub use medium::medium;
pub use page::page;
pub use prepare::{Steady, precondition, settle};
pub use run::{Real, RunError, Runner, Watch};
pub use simulated::Simulated;
pub use target::{Call, Needs, Open, OpenError, Target};
