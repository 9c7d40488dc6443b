//! Command-specific status of Fabrics commands (Base 2.0, figure 98). The codes overlap with the I/O command
//! sets' own: their meaning hangs on the command.

use super::command::at;
use crate::Status;

macro_rules! statuses {
    ($($name:ident = $sc:literal, $text:literal;)*) => {
        $(#[doc = $text] pub const $name: Status = Status::new(1, $sc);)*

        /// The specification's name for the status of a Fabrics command.
        pub const fn name(status: Status) -> &'static str {
            match (status.sct(), status.sc()) {
                $((1, $sc) => $text,)*
                _ => status.name(),
            }
        }
    };
}

statuses! {
    INCOMPATIBLE_FORMAT = 0x80, "Connect Incompatible Format";
    CONTROLLER_BUSY = 0x81, "Connect Controller Busy";
    INVALID_PARAMETERS = 0x82, "Connect Invalid Parameters";
    RESTART_DISCOVERY = 0x83, "Connect Restart Discovery";
    INVALID_HOST = 0x84, "Connect Invalid Host";
    INVALID_QUEUE_TYPE = 0x85, "Invalid Queue Type";
    DISCOVER_RESTART = 0x90, "Discover Restart";
    AUTHENTICATION_REQUIRED = 0x91, "Authentication Required";
}

/// DW0 of a completion with [`INVALID_PARAMETERS`] (figure 388):
/// the offending byte, in the entry or in the data.
pub const fn invalid_parameter(offset: u16, in_data: bool) -> u32 {
    offset as u32 | (in_data as u32) << 16
}

/// What DW0 of such a completion names, in words; `None`: no field that Connect has.
pub const fn parameter(dw0: u32) -> Option<&'static str> {
    const IN_DATA: u32 = 1 << 16;
    const fn data(offset: u16) -> u32 {
        offset as u32 | IN_DATA
    }
    const QID: u32 = at::QID as u32;
    const SQSIZE: u32 = at::SQSIZE as u32;
    const HOSTID: u32 = data(at::HOSTID);
    const CNTLID: u32 = data(at::CNTLID);
    const SUBNQN: u32 = data(at::SUBNQN);
    const HOSTNQN: u32 = data(at::HOSTNQN);
    match dw0 {
        QID => Some("the queue identifier (QID)"),
        SQSIZE => Some("the queue size (SQSIZE)"),
        HOSTID => Some("the host identifier (HOSTID)"),
        CNTLID => Some("the controller identifier (CNTLID)"),
        SUBNQN => Some("the subsystem's name (SUBNQN)"),
        HOSTNQN => Some("the host's name (HOSTNQN)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        assert_eq!(INVALID_HOST.0, 0x184);
        assert_eq!(name(INVALID_PARAMETERS.dnr()), "Connect Invalid Parameters");
        assert_eq!(name(Status::INVALID_FIELD), "Invalid Field in Command");
        assert_eq!(invalid_parameter(256, true), 0x1_0100);
        let named = |offset, in_data| parameter(invalid_parameter(offset, in_data));
        assert_eq!(named(at::HOSTNQN, true), Some("the host's name (HOSTNQN)"));
        assert_eq!(named(at::HOSTID, true), Some("the host identifier (HOSTID)"));
        assert_eq!((named(at::HOSTNQN, false), named(at::QID, true)), (None, None));
    }
}
