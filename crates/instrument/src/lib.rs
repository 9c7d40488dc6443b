//! Response time against load: what `nearside bench` and `nearside sim` do.
//!
//! A curve passes so: a [`Target`] opens to an engine of the load generator ([`Open`]) -> [`measure`] runs one plan after another on it,
//! in real time ([`Real`]) -> [`Curve`] -> [`table`] and [`page`] show it. The measuring itself is [`nearside_loadgen`]'s.

mod curve;
mod measure;
mod page;
mod run;
pub mod table;
mod target;
pub mod words;

pub use curve::{Curve, Point};
pub use measure::{Ask, Bound, Event, measure};
pub use page::page;
pub use run::{Real, RunError, Runner, Watch};
pub use target::{Call, Needs, Open, OpenError, Target};
