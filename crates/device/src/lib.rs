//! The controller: registers, admin, queues, I/O, near-data commands and the namespace.
//!
//! A read passes: a front's queue -> `io` (one checked request, one dispatch) -> [`Access`] -> the store -> back.

pub mod firmware;
mod namespace;
mod slab;
mod stripes;

pub use firmware::{Firmware, Observer};
pub use namespace::{Access, Namespace};
