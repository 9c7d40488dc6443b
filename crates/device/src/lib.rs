#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A read passes: a front's queue -> [`Reactor::step`] -> `io` (one checked request) -> [`Access`] -> the
//! store -> back. The controller knows no front (it sees a [`nearside_dma::Function`]), no medium (it sees a
//! [`nearside_store::Store`]) and no file system (it sees a [`Firmware`]). It never waits, sleeps or asks a
//! clock: a [`runner`] does.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod admin;
mod ana;
mod attached;
mod bounce;
mod config;
mod controller;
mod doorbell;
pub mod fabric;
mod fault;
pub mod firmware;
mod flush_order;
mod io;
mod namespace;
mod pointer;
mod queue;
mod reactor;
mod reservation;
pub mod runner;
mod shared;
mod stripes;
mod subsystem;
pub mod throttle;
pub mod traffic;
pub mod turns;

pub use ana::{AnaState, MAX_ANA_GROUP, PortStates};
pub use config::{Config, Fabric, Host, Identity};
pub use controller::Controller;
pub use firmware::{Firmware, Observer};
pub use namespace::{Access, CommandSet, MEMORY_GRANULARITY, Namespace};
pub use queue::lost_commands;
pub use reactor::{BATCH, Reactor, Step};
pub use reservation::{HostId, Keep, Kept, Ticket};
pub use subsystem::{AddError, MAX_NSID, Subsystem};
