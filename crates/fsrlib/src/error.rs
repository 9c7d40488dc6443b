//! Why a command could not be carried, or was answered with a refusal.

use nearside_near_data::Failure;
use nearside_spec::Status;

use crate::describe;

/// The status code type of what concerns the path to a namespace.
const PATH_RELATED: u8 = 3;

/// An error of a session. What became of one file among several is no error but a
/// [`Record::Failed`](nearside_near_data::Record::Failed).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The drive completed the command with an NVMe status other than success: carriage or form.
    #[error("the drive refused {what}: {status}")]
    Nvme {
        /// Which command.
        what: &'static str,
        /// The completion's status.
        status: Status,
    },
    /// The drive understood the request and refused it as a whole.
    #[error("{}", describe(.0))]
    Refused(Failure),
    /// A request that cannot be put on the wire, or a reply that is none.
    #[error("near-data {what}: {reason}")]
    Form {
        /// "request" or "reply".
        what: &'static str,
        /// What is wrong, and where.
        reason: String,
    },
    /// The way to the drive failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with what.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The driver failed.
    #[error("driver: {0}")]
    Driver(String),
    /// The connection to the drive, or its controller, was lost: whether the command was done is unknown.
    /// Another way may lead there, which [`Reconnecting`](crate::Reconnecting) goes; from there it says that
    /// none does.
    #[error("{0}")]
    Lost(String),
    /// This way to the drive cannot do that.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Whether it says nothing of the command, but that this way to the drive does not serve it: the way was
    /// lost, or the status is path related (Base 2.0, 3.3.3.2.1.4) and may be another elsewhere, or later.
    pub fn is_of_the_way(&self) -> bool {
        match self {
            Error::Lost(_) => true,
            Error::Nvme { status, .. } => status.sct() == PATH_RELATED && *status != status.dnr(),
            _ => false,
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
