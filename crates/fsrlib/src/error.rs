//! Why a command could not be carried, or was answered with a refusal.

use nearside_near_data::Failure;
use nearside_spec::Status;

use crate::describe;

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
    /// This way to the drive cannot do that.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
