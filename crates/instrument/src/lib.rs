#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A curve passes so: a [`Target`] opens to an engine of the load generator ([`Open`]) -> [`measure`] runs
//! one plan after another on it, in real time ([`Real`]) or simulated ([`Simulated`]) -> [`Curve`] ->
//! [`table`] and [`page`] show it. [`act`] certifies a drive as Aerospike does; [`report`] is the page that
//! all pictures are on.
//!
//! What the benchmarks, the demo and the studies measure with stands here once: [`completion`] paths over a
//! device time, [`calibrate`] (this machine's costs), [`dataset`]s and [`volume`]s, [`near_data`] by every
//! route, and the [`kernel`] beside it.

#![warn(clippy::missing_errors_doc)]

pub mod act;
pub mod calibrate;
pub mod completion;
pub mod csv;
mod curve;
pub mod dataset;
pub mod diff;
pub mod help;
pub mod kernel;
mod measure;
mod medium;
pub mod near_data;
mod page;
mod prepare;
pub mod report;
mod run;
pub mod sheet;
mod simulated;
pub mod table;
mod target;
pub mod volume;
pub mod words;

pub use curve::{Curve, Point};
pub use measure::{Ask, Event, measure, plan};
pub use medium::{ROUNDS, medium};
pub use page::page;
pub use prepare::{Steady, precondition, settle};
pub use run::{Real, RunError, Runner, Watch};
pub use simulated::Simulated;
pub use target::{Call, Needs, Open, OpenError, Target};

/// Any error of a measurement, in words.
pub type Failure = Box<dyn std::error::Error>;
