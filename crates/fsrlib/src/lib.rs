#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! It has the three duties that the paper gives it: packaging the parameters of a
//! near-data task, constructing the command, and sending it. A whole operation on a path
//! is one command; what comes back is the answer.
//!
//! How a request passes: [`Session::stream`] (or [`Session::records`]) builds a [`Request`] -> its wire form
//! -> [`Transport::near_data`] (a queue pair of the driver; a connection over NVMe/TCP, which
//! [`Reconnecting`] makes again when it is lost; or a socket to an attached drive) -> the reply is decoded
//! and its records handed on -> where the reply says that there is more, the next command goes on from there.
//!
//! The same session also does what the paper compares with, over the same transport, so that what FSR saves
//! can be measured ([`Route`]): the existing near-data path (the host locates the file by reading the file
//! system's blocks, and sends the block list) and the operation wholly on the host.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod carrier;
mod describe;
mod error;
mod host;
mod identity;
pub mod kernel;
mod lists;
mod queue;
mod reconnecting;
mod session;
pub mod socket;
mod taking;
mod tcp;
mod transport;

pub use describe::{describe, errno, errno_name};
pub use error::Error;
pub use identity::own_credentials;
pub use kernel::KernelTransport;
pub use nearside_driver as driver;
pub use nearside_fsr::{Acl, Beneath, Deleted, Part, State};
pub use nearside_near_data::{
    Aggregate, Answer, BlockRange, Code, ColumnType, Comparison, Counters, Credentials, Cursor, Digest,
    EXTENT_INLINE, EXTENT_ZEROS, Element, Failure, FileEntry, Function, GatherOptions, Globs, Inodes,
    Language, Literal, MAX_COLUMNS, MAX_GROUPS, MAX_NEAREST, MAX_PARAMETERS, MAX_PATH, Measure,
    NearestOptions, Operation, ParseError, Pooling, ProgramOptions, Reading, Record, Recovered, Reply,
    Request, RowFormat, RuleParameters, SearchOptions, SearchTotals, SelectOptions, Table, Target, Term,
    Variable, VolumeRecord, fnmatch,
};
pub use nearside_spec::log::NearDataLog;
pub use queue::{Encoding, QueueTransport, VfioUserTransport};
pub use reconnecting::{Notice, Paths, Reconnecting, Then, Unopened};
pub use session::{Ask, InAll, Records, Route, Seen, Session, Summary, on_from};
pub use socket::SocketTransport;
pub use tcp::{TcpPaths, TcpTransport};
pub use transport::{Completion, Replies, Requests, Totals, Transport};
