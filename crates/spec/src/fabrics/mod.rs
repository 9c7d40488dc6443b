//! NVMe over Fabrics (Base 2.0, chapters 3.3.2, 4.2 and 6) and its TCP transport (TCP Transport 1.0).
//!
//! [`pdu`] has what goes over a connection; [`command`] the commands that only fabrics have;
//! [`authentication`] the messages by which hosts prove who they are; [`capsule`] where a capsule's data are;
//! [`discovery`] the log page by which hosts find subsystems; [`nqn`] names. State is not here: which PDU may
//! come when, and whether a transfer fits its command, is for both ends' connections to know.

pub mod authentication;
pub mod capsule;
pub mod command;
pub mod discovery;
pub mod nqn;
pub mod pdu;
pub mod status;

/// The port that IANA gave to NVMe/TCP I/O controllers.
pub const PORT: u16 = 4420;
/// The port that it gave to discovery.
pub const DISCOVERY_PORT: u16 = 8009;

/// Values of Identify Controller's CNTRLTYPE.
pub mod controller_type {
    /// I/O controller.
    pub const IO: u8 = 1;
    /// Discovery controller.
    pub const DISCOVERY: u8 = 2;
}

/// Identify's IOCCSZ for in-capsule data of `bytes` (a multiple of 16): capsule and data, in 16-byte units.
pub const fn ioccsz(bytes: u32) -> u32 {
    4 + bytes / 16
}

/// In-capsule data bytes of an I/O queue, by IOCCSZ and ICDOFF (16-byte units).
pub const fn in_capsule(ioccsz: u32, icdoff: u16) -> u32 {
    ioccsz.saturating_sub(4).saturating_sub(icdoff as u32).saturating_mul(16)
}

/// IORCSZ: a response capsule is a completion entry.
pub const IORCSZ: u32 = 1;
/// In-capsule data bytes that every admin queue and every Connect command takes (TCP Transport 1.0, 3.2).
pub const ADMIN_IN_CAPSULE: u32 = 8192;

/// Bits of SGLS in Identify Controller that fabrics need:
/// SGLs without alignment, the transport data block, in-capsule offsets.
pub mod sgls {
    /// Bits 1:0: supported, no alignment.
    pub const SUPPORTED: u32 = 1;
    /// Bit 20: the address of a data block may be an offset into the capsule.
    pub const OFFSET: u32 = 1 << 20;
    /// Bit 21: the transport SGL data block.
    pub const TRANSPORT: u32 = 1 << 21;
}

const _: () = assert!(in_capsule(ioccsz(ADMIN_IN_CAPSULE), 0) == ADMIN_IN_CAPSULE && in_capsule(0, 9) == 0);
