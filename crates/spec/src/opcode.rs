//! Opcodes (Base 2.0, figures 138 and 390; NVM Command Set 1.0, figure 12; for Computational Programs and
//! Subsystem Local Memory Base 2.1, figure 92, and docs/NVME.md). Bits 1:0 give the data direction: 00b none,
//! 01b host to controller, 10b controller to host, 11b both.

/// Admin commands.
pub mod admin {
    /// Delete I/O Submission Queue.
    pub const DELETE_SQ: u8 = 0x00;
    /// Create I/O Submission Queue.
    pub const CREATE_SQ: u8 = 0x01;
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O Completion Queue.
    pub const DELETE_CQ: u8 = 0x04;
    /// Create I/O Completion Queue.
    pub const CREATE_CQ: u8 = 0x05;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Doorbell Buffer Config.
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;
    /// Load Program, of a compute namespace.
    pub const LOAD_PROGRAM: u8 = 0x85;
    /// Program Activation Management.
    pub const PROGRAM_ACTIVATION: u8 = 0x88;
    /// Memory Range Set Management.
    pub const MEMORY_RANGE_SET: u8 = 0x89;
}

/// I/O commands.
pub mod io {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Compare.
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Reservation Register.
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    /// Reservation Report.
    pub const RESERVATION_REPORT: u8 = 0x0e;
    /// Reservation Acquire.
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    /// Reservation Release.
    pub const RESERVATION_RELEASE: u8 = 0x15;
    /// Vendor: a near-data request whose reply overwrites the request's buffer (bidirectional). CDW10: bytes
    /// of the request; CDW11: bytes of the buffer; CDW12 bit 0: byte count and not dwords (always 1).
    pub const NEAR_DATA: u8 = 0xc3;
    /// Vendor: `execute`, the one-directional half that carries the request; CDW12 and CDW13 are the tag.
    pub const NEAR_DATA_EXECUTE: u8 = 0xc1;
    /// Vendor: `result`, the half that carries the reply of the tag in CDW12 and CDW13; CDW14:
    /// milliseconds to wait.
    pub const NEAR_DATA_RESULT: u8 = 0xc2;
    /// Vendor: `cancel` of the tag in CDW12 and CDW13.
    pub const NEAR_DATA_CANCEL: u8 = 0xc0;
}

/// I/O commands of a memory namespace (Subsystem Local Memory).
pub mod memory {
    /// Memory Copy, into it.
    pub const COPY: u8 = 0x01;
    /// Memory Read.
    pub const READ: u8 = 0x02;
    /// Memory Fill, by zeros.
    pub const FILL: u8 = 0x04;
    /// Memory Write.
    pub const WRITE: u8 = 0x05;
}

/// I/O commands of a compute namespace (Computational Programs).
pub mod compute {
    /// Execute Program.
    pub const EXECUTE: u8 = 0x01;
}

/// Fabrics commands, on admin and I/O queues of NVMe over Fabrics alike; see [`crate::fabrics::command`].
pub const FABRICS: u8 = 0x7f;

/// The vendor feature identifier under which Get Features carries DAC'23's own one-command encoding, and Set
/// Features with Get Features stock nvme-cli's.
pub const FEATURE_NEAR_DATA: u8 = 0xd5;
/// The vendor log page that says what near-data work the drive can do.
pub const LOG_NEAR_DATA: u8 = 0xd5;
