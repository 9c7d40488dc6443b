//! The target of NVMe/TCP, against hosts that keep to the rules and such that do not.
//!
//! One program, since each links all that the crate is made of: a test that needs a process of its own is
//! beside it.

mod abandoned;
mod controller;
mod encryption;
mod nonsense;
mod raw;
mod replay;
mod sending;
mod slow;
mod target;
