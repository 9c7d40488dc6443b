//! Features (Base 2.0, 5.27.1, figure 317; NVM Command Set 1.0, 4.1.4).

/// Feature identifiers.
pub mod fid {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery (of a namespace).
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Interrupt Coalescing.
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    /// Interrupt Vector Configuration.
    pub const INTERRUPT_VECTOR: u8 = 0x09;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT: u8 = 0x0b;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 0x0e;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE: u8 = 0x0f;
    /// Host Behavior Support.
    pub const HOST_BEHAVIOR: u8 = 0x16;
    /// Host Identifier.
    pub const HOST_IDENTIFIER: u8 = 0x81;
    /// Reservation Notification Mask (of a namespace).
    pub const RESERVATION_MASK: u8 = 0x82;
    /// Reservation Persistence (of a namespace).
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
}

/// SEL of Get Features, CDW10 bits 10:8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The value in force.
    Current,
    /// The value after a reset.
    Default,
    /// The value saved.
    Saved,
    /// What can be done with it: DW0 bit 0 saveable, 1 of a namespace, 2 changeable.
    Capabilities,
}

impl Select {
    /// From the field.
    pub const fn from_field(value: u32) -> Option<Select> {
        match value {
            0 => Some(Select::Current),
            1 => Some(Select::Default),
            2 => Some(Select::Saved),
            3 => Some(Select::Capabilities),
            _ => None,
        }
    }
}
