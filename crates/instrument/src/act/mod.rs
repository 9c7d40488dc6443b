//! Aerospike's certification tool, ACT: does a drive keep up with a real-time database's load,
//! at how many times the unit load?
//!
//! A run passes so: a [`Load`] (by a profile's multiple, or from ACT's own [`config`] file) ->
//! [`Load::plan`], three streams for the load generator: small reads that are measured, large reads and large
//! writes beside them, as a log-structured store's defragmentation makes them -> the generator's outcome ->
//! [`Report::of`], the share of reads above each bound in each slice of time -> [`Rule::judge`]. [`largest`]
//! finds the largest multiple that passes, [`page`] shows it.
//!
//! Sources: Proc. IEEE 2017, section V-B, for its unit load, rule and tightened rule; Aerospike's act_storage
//! and its README for today's unit load, the configuration file, and the table by slice.

pub mod config;
mod judge;
mod load;
mod page;
mod search;

pub use judge::{Failed, Report, Rule, Slice};
pub use load::{Load, LoadError, Profile};
pub use page::{Certified, page};
pub use search::{Largest, Tried, largest};
