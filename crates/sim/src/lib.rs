//! Whole systems on simulated time: the same seed, the same result to the last byte.
//!
//! - [`drive`]: the real controller, the real driver and the real load generator on one thread, over a store at a medium's time.
//! - [`bare`]: a medium alone behind the generator, where the host's queues are not the subject.
//! - [`cpu`]: a model of the host's CPUs and of what completion models cost on them.
//!
//! Nothing here asks the machine for the time or for anything else.

pub mod bare;
pub mod cpu;
pub mod drive;
mod software;

pub use bare::Bare;
pub use drive::{Drive, DriveConfig, DriveError};
pub use software::Software;
