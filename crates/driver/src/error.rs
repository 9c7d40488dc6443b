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

impl Failure {
    /// Whether the way to the drive was lost, and not the command refused or failed there: it can be sent
    /// again over another, if doing it twice does no harm.
    pub fn is_loss(self) -> bool {
        match self {
            Failure::Reset | Failure::Unresponsive | Failure::Lost => true,
            // What the connection delivers is not what the drive sent, so another connection is wanted.
            // (The kernel sends the command once more over the same.)
            Failure::Digest => true,
            // The drive's own word; what the host did itself; a drive that says less than the truth, which it
            // would say again.
            Failure::Status(_) | Failure::QueueDeleted | Failure::Short => false,
        }
    }
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
        /// Whether the same may be asked again: its answer had no Do Not Retry.
        again: bool,
    },
    /// The connection was not made, or the system lost it.
    #[error("{what}: {source}")]
    Connection {
        /// "connecting", or "the connection".
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
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
    /// The system refused memory, an eventfd, a thread or a socket.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Its answer.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether the connection or the controller was lost: where the kernel begins its error recovery.
    pub fn is_loss(&self) -> bool {
        match self {
            Error::Command { failure, .. } => failure.is_loss(),
            // The peer is gone, or does not answer in time; the controller says that it is broken, or was
            // stopped because of one of these.
            Error::Closed | Error::Connection { .. } | Error::TimedOut { .. } => true,
            Error::Fatal | Error::NotReady { .. } | Error::Stopped => true,
            // Either side takes what came for wrong, as after damage on the way. The connection is over.
            Error::Terminated(_) | Error::Protocol(_) | Error::Wire(_) => true,
            // It is there, and says no.
            Error::Refused { .. } | Error::Unsupported(_) | Error::Namespace { .. } => false,
            // This host's own limits and mistakes.
            Error::NoMemory { .. } | Error::NoQueues(_) | Error::Address(_) | Error::System { .. } => false,
        }
    }

    /// Whether a connection that was not made for this reason may be made later. The kernel ends its attempts
    /// at a status with Do Not Retry and at a failed authentication.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Refused { again, .. } => *again,
            Error::Command { failure: Failure::Status(status), .. } => *status != status.dnr(),
            // What the target can and has, which it says of itself.
            Error::Unsupported(_) | Error::Namespace { .. } => false,
            // A name that is not resolved now, or a host without memory, may be better later.
            _ => true,
        }
    }
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

#[cfg(test)]
mod tests {
    use nearside_spec::Status;

    use super::*;

    #[test]
    fn what_is_lost_and_what_is_refused() {
        let of = |failure| Error::Command { command: "a read", failure };
        let refused = |again| Error::Refused { what: "connect", why: String::new(), again };
        let reset = || Error::Connection {
            what: "the connection",
            source: std::io::ErrorKind::ConnectionReset.into(),
        };
        let late = Error::TimedOut { command: "a read", timeout_ms: 1 };
        let busy = Status::NAMESPACE_NOT_READY;
        // Whether it is a loss, and whether a connection may be made later.
        for (error, is_loss, may_pass) in [
            (Error::Closed, true, true),
            (reset(), true, true),
            (late, true, true),
            (Error::Fatal, true, true),
            (Error::Protocol(Fatal::SEQUENCE), true, true),
            (Error::Terminated(Fatal::SEQUENCE), true, true),
            (of(Failure::Lost), true, true),
            (of(Failure::Digest), true, true),
            (of(Failure::Short), false, true),
            (of(Failure::Status(busy)), false, true),
            (of(Failure::Status(busy.dnr())), false, false),
            (refused(true), false, true),
            (refused(false), false, false),
            (Error::Namespace { nsid: 1, why: "" }, false, false),
            (Error::Address(String::new()), false, true),
        ] {
            assert_eq!((error.is_loss(), error.may_pass()), (is_loss, may_pass), "{error:?}");
        }
    }
}
