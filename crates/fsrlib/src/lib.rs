//! FSRLib: the host library for near-data commands, in Rust and C
