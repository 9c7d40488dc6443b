//! The drive, held by its registers and queues.
//!
//! One program, since each links all that the crate is made of: a test that needs a process of its own is
//! beside it.

mod admin;
mod broken;
mod doorbells;
mod io;
mod memory;
mod paths;
mod quotas;
mod reservations;
mod resize;
mod rig;
mod subsystem;
mod tear;
