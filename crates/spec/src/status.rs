//! Status codes (Base 2.0, 3.3.3.2.1; NVM Command Set 1.0, 3.1; of programs and memory Base 2.2, figure 104).

/// The status field of a completion, without the phase tag:
/// bits 7:0 SC, 10:8 SCT, 12:11 CRD, 13 More, 14 Do Not Retry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// From type and code.
    pub const fn new(sct: u8, sc: u8) -> Status {
        Status((sct as u16) << 8 | sc as u16)
    }

    /// This status with Do Not Retry set.
    pub const fn dnr(self) -> Status {
        Status(self.0 | 1 << 14)
    }

    /// Status code type.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// Status code.
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Whether it means success.
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// Type and code alone, for comparison.
    pub const fn code(self) -> Status {
        Status(self.0 & 0x7ff)
    }
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $sct:literal, $sc:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* #[doc = $text] pub const $name: Status = Status::new($sct, $sc);)*

            /// The specification's name for it.
            pub const fn name(self) -> &'static str {
                match (self.sct(), self.sc()) {
                    $(($sct, $sc) => $text,)*
                    _ => "unknown status",
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, 0x00, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error";
    POWER_LOSS_ABORT = 0, 0x05, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0, 0x06, "Internal Error";
    ABORT_REQUESTED = 0, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0, 0x08, "Command Aborted due to SQ Deletion";
    INVALID_NAMESPACE = 0, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0, 0x0d, "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = 0, 0x0e, "Invalid Number of SGL Descriptors";
    INVALID_SGL_LENGTH = 0, 0x0f, "Data SGL Length Invalid";
    INVALID_SGL_METADATA_LENGTH = 0, 0x10, "Metadata SGL Length Invalid";
    INVALID_SGL_TYPE = 0, 0x11, "SGL Descriptor Type Invalid";
    INVALID_CMB = 0, 0x12, "Invalid Use of Controller Memory Buffer";
    INVALID_PRP_OFFSET = 0, 0x13, "PRP Offset Invalid";
    INVALID_SGL_OFFSET = 0, 0x16, "SGL Offset Invalid";
    KEEP_ALIVE_EXPIRED = 0, 0x19, "Keep Alive Timer Expired";
    READ_ONLY_NAMESPACE = 0, 0x20, "Namespace is Write Protected";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "Transient Transport Error";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0, 0x83, "Reservation Conflict";
    INVALID_CQ = 1, 0x00, "Completion Queue Invalid";
    INVALID_QUEUE_ID = 1, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = 1, 0x03, "Abort Command Limit Exceeded";
    AER_LIMIT_EXCEEDED = 1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_INTERRUPT_VECTOR = 1, 0x08, "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = 1, 0x09, "Invalid Log Page";
    INVALID_FORMAT = 1, 0x0a, "Invalid Format";
    INVALID_QUEUE_DELETION = 1, 0x0c, "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f, "Feature Not Namespace Specific";
    CONFLICTING_ATTRIBUTES = 1, 0x80, "Conflicting Attributes";
    WRITE_TO_READ_ONLY_RANGE = 1, 0x82, "Attempted Write to Read Only Range";
    SIZE_LIMIT_EXCEEDED = 1, 0x83, "Command Size Limit Exceeded";
    INCOMPATIBLE_NAMESPACE = 1, 0x85, "Incompatible Namespace or Format";
    FAST_COPY_NOT_POSSIBLE = 1, 0x86, "Fast Copy Not Possible";
    OVERLAPPING_IO_RANGE = 1, 0x87, "Overlapping I/O Range";
    INSUFFICIENT_PROGRAM_RESOURCES = 1, 0x8a, "Insufficient Program Resources";
    INVALID_MEMORY_NAMESPACE = 1, 0x8b, "Invalid Memory Namespace";
    INVALID_MEMORY_RANGE_SET = 1, 0x8c, "Invalid Memory Range Set";
    INVALID_MEMORY_RANGE_SET_ID = 1, 0x8d, "Invalid Memory Range Set Identifier";
    INVALID_PROGRAM_DATA = 1, 0x8e, "Invalid Program Data";
    INVALID_PROGRAM_INDEX = 1, 0x8f, "Invalid Program Index";
    INVALID_PROGRAM_TYPE = 1, 0x90, "Invalid Program Type";
    MEMORY_RANGES_EXCEEDED = 1, 0x91, "Maximum Memory Ranges Exceeded";
    MEMORY_RANGE_SETS_EXCEEDED = 1, 0x92, "Maximum Memory Range Sets Exceeded";
    PROGRAMS_ACTIVATED = 1, 0x93, "Maximum Programs Activated";
    PROGRAM_BYTES_EXCEEDED = 1, 0x94, "Maximum Program Bytes Exceeded";
    MEMORY_RANGE_SET_IN_USE = 1, 0x95, "Memory Range Set In Use";
    NO_PROGRAM = 1, 0x96, "No Program";
    OVERLAPPING_MEMORY_RANGES = 1, 0x97, "Overlapping Memory Ranges";
    PROGRAM_NOT_ACTIVATED = 1, 0x98, "Program Not Activated";
    PROGRAM_IN_USE = 1, 0x99, "Program In Use";
    PROGRAM_TOO_BIG = 1, 0x9b, "Program Too Big";
    WRITE_FAULT = 2, 0x80, "Write Fault";
    UNRECOVERED_READ = 2, 0x81, "Unrecovered Read Error";
    COMPARE_FAILURE = 2, 0x85, "Compare Failure";
    ANA_PERSISTENT_LOSS = 3, 0x01, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 3, 0x02, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 3, 0x03, "Asymmetric Access Transition";
}

impl core::fmt::Debug for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} (SCT {}, SC {:#04x})", self.name(), self.sct(), self.sc())
    }
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self, f)
    }
}
