#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! - [`Transport`] is one queue, for one thread: submit, ring, poll. It never waits unless told
//!   to, and takes the time as a parameter. [`Controller`] makes them, and passes admin commands.
//!   Two transports implement it: [`QueuePair`] and [`Driver`] over shared memory, a connection
//!   and an association over NVMe/TCP ([`tcp`]).
//! - A [`Driver`] drives a controller in this process ([`Driver::start`]) or an NVMe function in another, by
//!   [`vfio_user`] ([`Driver::connect`]). `doorbells` is all in which the two differ.
//! - [`policy`] decides how to wait: pure functions of operation, size, history and now. `sleep` finds how
//!   long to sleep before spinning, by how the sleeps went.
//! - [`Initiator`] is one thread's way over both of FAST'12's completion paths, over any transport;
//!   [`Service`] is the asynchronous path's other contexts.
//! - [`Peer`] is the drive, where it runs on the caller's thread; [`Host`] is that with the clock.
//!
//! A read passes so: `Initiator::submit` -> `History::decide` -> `Transport::submit` and `ring` -> the
//! drive -> `Transport::poll` -> `Initiator::wait` returns the buffer. The driver knows the wire,
//! shared memory and time; it knows no drive.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod buffer;
mod command;
mod controller;
mod doorbells;
mod error;
mod initiator;
mod peer;
pub mod policy;
mod queue;
mod service;
mod sleep;
pub mod tcp;
mod timeout;
mod transport;
pub mod vfio_user;

pub use buffer::{BufferPool, DmaBuffer};
pub use command::{Command, CommandKind};
pub use controller::{Driver, DriverConfig, QueueConfig, is_status};
pub use error::{Error, Failure, RejectReason, Rejected};
pub use initiator::{Account, CompletionModel, Finished, Handle, Initiator, InitiatorConfig};
pub use peer::{Host, Peer, Threaded, Turn};
pub use policy::{Expectation, Policy};
pub use queue::QueuePair;
pub use service::{Service, ServiceCounts, ServiceHandle};
pub use transport::{Answer, Buffer, BufferOf, Completed, Controller, NamespaceInfo, QueueCounts, Transport};
