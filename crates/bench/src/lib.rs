//! Measurements, each beside its floor or peer in one run: what `make bench` records and `make demo` shows.

pub mod calibrate;
pub mod completion;
pub mod dataset;
pub mod kernel;
pub mod near_data;
pub mod sockets;
pub mod volume;
