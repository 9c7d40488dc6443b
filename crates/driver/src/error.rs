//! What can go wrong, and how one command ended.

use nearside_spec::Status;
use nearside_spec::fabrics::pdu::Fatal;
use nearside_vfio_user::WireError;

/// How a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The controller answered with this status.
    #[error("the drive answered: {0}")]
    Status(Status),
    /// The controller was reset while the command was out; what became of it is unknown.
    #[error("the controller was reset while the command was outstanding")]
    Reset,
    /// The queue was deleted while the command was out; what became of it is unknown.
    #[error("the queue was deleted while the command was outstanding")]
    QueueDeleted,
    /// The controller neither answers nor stops. The buffer does not come back:
    /// the controller may still write to it.
    #[error("the controller neither answers nor stops")]
    Unresponsive,
    /// The connection ended while the command was out; what became of it is unknown.
    #[error("the connection was lost while the command was outstanding")]
    Lost,
    /// The drive said success, but moved fewer bytes than were asked for.
    #[error("the drive moved fewer bytes than were asked for")]
    Short,
    /// The data that came are not those that were sent.
    #[error("the digest of the data is wrong")]
    Digest,
}

/// Why the driver could not do something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A capability that this driver needs and the controller lacks.
    #[error("the controller cannot be used: {0}")]
    Unsupported(&'static str),
    /// CSTS.RDY did not become what was asked within CAP.TO.
    #[error("the controller did not become {wanted} within {timeout_ms} ms")]
    NotReady {
        /// "ready" or "disabled".
        wanted: &'static str,
        /// CAP.TO.
        timeout_ms: u64,
    },
    /// CSTS.CFS.
    #[error("the controller reports a fatal status")]
    Fatal,
    /// The controller was stopped or reset; make a new driver or restart this one.
    #[error("the controller has been stopped")]
    Stopped,
    /// A command failed.
    #[error("{command}: {failure}")]
    Command {
        /// Which.
        command: &'static str,
        /// How.
        failure: Failure,
    },
    /// No answer within the command timeout.
    #[error("{command}: no answer within {timeout_ms} ms")]
    TimedOut {
        /// Which.
        command: &'static str,
        /// The timeout in force.
        timeout_ms: u64,
    },
    /// The driver's memory for buffers and queues is spent.
    #[error("no room for {len} bytes in the driver's {pool} bytes of shared memory")]
    NoMemory {
        /// Asked for.
        len: usize,
        /// The pool's size.
        pool: usize,
    },
    /// All queue pairs that the controller grants are taken.
    #[error("all {0} I/O queue pairs are taken")]
    NoQueues(u16),
    /// The namespace does not exist or has a format that the driver cannot use.
    #[error("namespace {nsid}: {why}")]
    Namespace {
        /// Which.
        nsid: u32,
        /// Why not.
        why: &'static str,
    },
    /// What names a target is none.
    #[error("{0}")]
    Address(String),
    /// The target refused a host or a queue.
    #[error("{what}: {why}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// Its answer, and what may help.
        why: String,
    },
    /// The target closed the connection.
    #[error("the target closed the connection")]
    Closed,
    /// The target ended the connection, because it takes what was sent for an error.
    #[error("the target ended the connection: {0}")]
    Terminated(Fatal),
    /// The connection was ended, because the target broke the protocol.
    #[error("the target broke the protocol: {0}")]
    Protocol(Fatal),
    /// The connection was ended, because the server broke the protocol of vfio-user.
    #[error("the server broke the protocol: {0}")]
    Wire(WireError),
    /// The system refused memory, an eventfd, a thread or a connection.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Its answer.
        source: std::io::Error,
    },
}

/// A command that was not taken: nothing was sent, and its buffer is back.
#[derive(Debug)]
pub struct Rejected<B = crate::DmaBuffer> {
    /// The buffer.
    pub buffer: Option<B>,
    /// Why.
    pub reason: RejectReason,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// As many commands are out as the queue holds: poll, then submit again.
    #[error("the queue is full")]
    Full,
    /// The controller was stopped, or the queue deleted.
    #[error("the queue is dead")]
    Dead,
    /// The buffer is longer than the controller's largest transfer (MDTS), or comes from another driver.
    #[error("the buffer does not fit the controller")]
    Buffer,
}

impl<B> std::fmt::Display for Rejected<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.reason.fmt(f)
    }
}

impl<B: std::fmt::Debug> std::error::Error for Rejected<B> {}
