//! Aerospike's certification tool, ACT: does a drive keep up with a real-time database's load,
//! at how many times the unit load?
//!
//! A run passes so: a [`Load`] (by a profile's multiple, or from ACT's own [`config`] file, by the arithmetic
//! of its act_storage) -> [`Load::plan`], streams for the load generator: reads of records, which are
//! measured; large reads and large writes beside them, as a log-structured store's defragmentation makes
//! them; where a file asks for them, writes that commit and the tomb raider -> the generator's outcome ->
//! [`Report::of`], for each of ACT's histograms the share above each bound in each slice of time ->
//! [`Rule::judge`], and [`Report::text`], ACT's tables. [`largest`] finds the largest multiple that passes,
//! [`page`] shows it.
//!
//! Where it differs from ACT: operations start when they are due, whatever is in flight, where each of ACT's
//! threads waits for its own; so there is a second table beside ACT's, from the due moment. A run that is too
//! short to lag by `max-lag-sec` fails by what it left undone. A file's load is put on one drive, as its
//! share of the devices. Not built: act_index.
//!
//! Sources: Proc. IEEE 2017, section V-B, for its unit load, rule and tightened rule; Aerospike's act
//! repository for today's unit load, the configuration file, what act_storage derives from it, the rules of
//! certification and act_latency.py's table.

pub mod config;
mod derive;
mod judge;
mod load;
mod page;
mod report;
mod search;
mod table;

pub use derive::Derived;
pub use judge::{Failed, Rule};
pub use load::{Load, LoadError, Profile};
pub use page::{Certified, page};
pub use report::{Host, Report, Slice, Stalled, Table};
pub use search::{Largest, Tried, largest};
