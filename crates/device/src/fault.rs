//! Why a command failed: its status, and where in the command the reason lies.

use nearside_spec::Status;
use nearside_spec::command::Field;
use nearside_store::{Operation, StoreError};
use tracing::Level;

use crate::pointer::Elsewhere;

/// A command's failure. Where `at` is set, byte and bit of the offending field go to the error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: Status,
    /// Byte and bit of the submission entry.
    pub(crate) at: Option<(u8, u8)>,
    pub(crate) lba: u64,
    /// It may be that the host only has to be asked for what could not be reached.
    pub(crate) elsewhere: Option<Elsewhere>,
}

impl Fault {
    /// A failure that will come again if the same command does.
    pub(crate) const fn new(status: Status) -> Fault {
        Fault { status: status.dnr(), at: None, lba: 0, elsewhere: None }
    }

    /// One that may not.
    pub(crate) const fn transient(status: Status) -> Fault {
        Fault { status, at: None, lba: 0, elsewhere: None }
    }

    /// Because of the field at that byte and bit of the submission entry.
    pub(crate) const fn at(mut self, byte: u8, bit: u8) -> Fault {
        self.at = Some((byte, bit));
        self
    }

    /// Because of that logical block.
    pub(crate) const fn lba(mut self, lba: u64) -> Fault {
        self.lba = lba;
        self
    }

    /// Because of that field.
    pub(crate) const fn of<T>(self, field: Field<T>) -> Fault {
        let (byte, bit) = field.place();
        self.at(byte, bit)
    }

    /// Invalid Field in Command: that field.
    pub(crate) const fn field<T>(field: Field<T>) -> Fault {
        Fault::new(Status::INVALID_FIELD).of(field)
    }
}

/// What a store's error means: the host's status, and the level of the operator's log.
pub(crate) fn of_store(error: &StoreError, operation: &Operation) -> (Fault, Level) {
    match (error, operation) {
        // The command's range was checked: the store and its namespace do not agree.
        (StoreError::OutOfRange { .. }, _) => (Fault::new(Status::LBA_OUT_OF_RANGE), Level::ERROR),
        (StoreError::ReadOnly, _) => (Fault::new(Status::READ_ONLY_NAMESPACE), Level::DEBUG),
        // Again at once it would meet the same: a host that is told so says "no space left" and does not try.
        (StoreError::Full { .. }, _) => (Fault::new(Status::CAPACITY_EXCEEDED), Level::WARN),
        (StoreError::Busy, _) => (Fault::transient(Status::NAMESPACE_NOT_READY), Level::DEBUG),
        (StoreError::Medium { .. }, Operation::Read { .. }) => {
            (Fault::transient(Status::UNRECOVERED_READ), Level::ERROR)
        }
        (
            StoreError::Medium { .. },
            Operation::Write { .. }
            | Operation::Flush
            | Operation::WriteZeroes { .. }
            | Operation::Deallocate { .. },
        ) => (Fault::transient(Status::WRITE_FAULT), Level::ERROR),
    }
}
