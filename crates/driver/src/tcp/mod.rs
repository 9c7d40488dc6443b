//! NVMe/TCP, the host's end: an association with a controller, and queues that are connections.
//!
//! - [`Address`] is the name of a target (`nvme+tcp://HOST:PORT/SUBSYSTEM_NQN/NSID`), [`Addresses`] are
//!   several of one subsystem, [`Options`] what a host says of itself.
//! - [`Association`] is the [`crate::Controller`] here: its admin queue is kept alive by a thread.
//! - [`Queue`] is the [`crate::Transport`]: a connection.
//! - [`Initiator`] waits on one as a [`crate::Policy`] says:
//!   spinning on the socket, asleep until the kernel wakes it, or by history.
//! - [`discover`] reads a discovery controller's log page, [`namespaces`] a subsystem's list of namespaces.
//!
//! A read passes so: `Initiator::submit` -> `Queue::submit` puts a capsule into the outbox -> `Queue::ring`
//! writes it to the socket -> the target -> `Queue::poll` reads PDUs into the inbox, copies (or reads) the
//! data into the command's buffer, and hands on the completion.
//!
//! Nothing of the target is trusted: a PDU that does not decode, names a command that is not out, or moves
//! data that were not asked for ends the connection with the specified termination request; every command
//! then ends as [`crate::Failure::Lost`]. An association that was lost stays so; what is to outlive it makes
//! another: [`Error::is_loss`](crate::Error::is_loss) and [`Error::may_pass`](crate::Error::may_pass) say
//! when.

mod address;
mod association;
mod authentication;
mod discovery;
mod host;
mod identifiers;
mod open;
mod queue;
mod slot;
mod stream;

pub use address::{Address, Addresses};
pub use association::Association;
pub use discovery::{discover, namespaces};
pub use host::{Options, Recovery};
pub use queue::Queue;

/// An initiator over NVMe/TCP. Commands that were submitted between two looks go out together.
pub type Initiator<C> = crate::Initiator<crate::Threaded, C, Association>;

// What a discovery log page's entries are made of.
pub use nearside_spec::fabrics::discovery::{DiscoveryEntry, TCP, subtype};
pub use nearside_spec::fabrics::nqn;
