//! The host's side of the queues: a controller's initialisation, queue pairs, completion policies, initiators.
//!
//! - [`Driver`] brings a controller up and passes admin commands; [`Driver::queue`] makes a [`QueuePair`].
//! - [`QueuePair`] is the mechanism, for one thread: submit, ring, reap. It never waits and takes the time as a parameter.
//! - [`policy`] decides how to wait: pure functions of operation, size, history and now.
//! - [`Initiator`] is one thread's door over both of FAST'12's completion paths; [`Service`] is the asynchronous path's
//!   other contexts.
//! - [`Peer`] is the drive, where it runs on the caller's thread.
//! - [`tcp`] is the same over NVMe/TCP: an association, queues that are connections, the same policies.
//!
//! A read passes so: `Initiator::submit` -> `History::decide` -> `QueuePair::submit` and `ring` -> the drive -> `QueuePair::reap` ->
//! `Initiator::wait` returns the buffer. The driver knows the wire, shared memory and time; it knows no drive.

mod buffer;
mod command;
mod controller;
mod error;
mod initiator;
mod peer;
pub mod policy;
mod queue;
mod service;
pub mod tcp;

pub use buffer::{BufferPool, DmaBuffer};
pub use command::{Command, Kind};
pub use controller::{Driver, DriverConfig, NamespaceInfo, QueueConfig, is_status};
pub use error::{Error, Failure, RejectReason, Rejected};
pub use initiator::{Account, CompletionModel, Finished, Handle, Initiator, InitiatorConfig};
pub use peer::{Peer, Threaded, Turn};
pub use policy::{Expectation, Policy};
pub use queue::{Completed, QueueCounts, QueuePair};
pub use service::{Service, ServiceCounts, ServiceHandle};
