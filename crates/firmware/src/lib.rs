#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! [`Fsr`] is what [`nearside_device`] is generic over: its worker on each reactor decodes a request
//! ([`FsrWorker`]), the executor runs it in slices, on the reactor between looks at its I/O or on threads of
//! their own ([`Workers`]), and the retriever's answer goes back through the controller, which knows where
//! the host wants it.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod compute;
mod executor;
mod fsr;
mod helper;
mod identity;
mod lanes;
mod mailbox;
mod meters;
mod tags;
mod worker;
mod workers;

pub use compute::{Compute, WEB_ASSEMBLY};
pub use fsr::{Fsr, TaskPlace};
pub use meters::{Held, LOOKS_PER_SAMPLE, Looks, SLICE_NS, Slices, Use, ViewCost};
pub use nearside_fsr::{Breakdown, Config, MonitorCounters, State, Trace, TracePart};
pub use worker::FsrWorker;
pub use workers::{WorkerHandle, Workers};
