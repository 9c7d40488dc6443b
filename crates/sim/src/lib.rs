#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! - [`drive`]: the real controller, the real driver and the real load generator on one thread,
//!   over a store at a medium's time.
//! - [`bare`]: a medium alone behind the generator, where the host's queues are not the subject.
//! - [`near_data`]: the drive with its firmware and FSRLib, over a medium,
//!   with what the drive's processor and the host take as numbers.
//! - [`cpu`]: a model of the host's CPUs and of what completion models cost on them.
//!
//! Nothing here asks the machine for the time or for anything else.

pub mod bare;
pub mod cpu;
pub mod drive;
pub mod near_data;
mod software;

pub use bare::Bare;
pub use drive::{Drive, DriveConfig, DriveError};
pub use near_data::{Core, NearData, NearDataConfig};
pub use software::Software;
