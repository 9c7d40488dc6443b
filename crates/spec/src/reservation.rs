//! Reservations (Base 2.0, 7.2 to 7.5 and 8.19): a namespace that hosts share, kept by one of them or by
//! those that are registered.

use crate::layout::layout;

/// Values of RREGA, what Reservation Register does.
pub mod register {
    /// The host becomes a registrant with the key NRKEY.
    pub const REGISTER: u8 = 0;
    /// It is none any more.
    pub const UNREGISTER: u8 = 1;
    /// Its key becomes NRKEY.
    pub const REPLACE: u8 = 2;
}

/// Values of RACQA, what Reservation Acquire does.
pub mod acquire {
    /// The host becomes the holder, where there is none.
    pub const ACQUIRE: u8 = 0;
    /// Registrants of a key are unregistered, and the holder's reservation taken over.
    pub const PREEMPT: u8 = 1;
    /// The same, and their commands have ended once it is answered.
    pub const PREEMPT_AND_ABORT: u8 = 2;
}

/// Values of RRELA, what Reservation Release does.
pub mod release {
    /// The holder's reservation ends.
    pub const RELEASE: u8 = 0;
    /// It ends, and all registrations.
    pub const CLEAR: u8 = 1;
}

/// Bits of RESCAP, what a namespace can do.
pub mod capability {
    /// Persist Through Power Loss.
    pub const PERSISTS: u8 = 1;
    /// All six kinds.
    pub const KINDS: u8 = 0x7e;
    /// Ignore Existing Key is as NVM Express 1.3 and later define it.
    pub const IGNORE_KEY: u8 = 1 << 7;
}

/// Kinds of reservations, figure 441.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The holder writes.
    WriteExclusive,
    /// The holder reads and writes.
    ExclusiveAccess,
    /// Registrants write.
    WriteExclusiveRegistrants,
    /// Registrants read and write.
    ExclusiveAccessRegistrants,
    /// Registrants write, and all of them are holders.
    WriteExclusiveAll,
    /// Registrants read and write, and all of them are holders.
    ExclusiveAccessAll,
}

impl Kind {
    /// From RTYPE.
    pub const fn from_field(value: u8) -> Option<Kind> {
        Some(match value {
            1 => Kind::WriteExclusive,
            2 => Kind::ExclusiveAccess,
            3 => Kind::WriteExclusiveRegistrants,
            4 => Kind::ExclusiveAccessRegistrants,
            5 => Kind::WriteExclusiveAll,
            6 => Kind::ExclusiveAccessAll,
            _ => return None,
        })
    }

    /// As RTYPE.
    pub const fn to_field(self) -> u8 {
        match self {
            Kind::WriteExclusive => 1,
            Kind::ExclusiveAccess => 2,
            Kind::WriteExclusiveRegistrants => 3,
            Kind::ExclusiveAccessRegistrants => 4,
            Kind::WriteExclusiveAll => 5,
            Kind::ExclusiveAccessAll => 6,
        }
    }

    /// Whether reads are kept from others, too.
    pub const fn keeps_readers_out(self) -> bool {
        self.to_field().is_multiple_of(2)
    }

    /// Whether registrants that are not the holder may do what the holder may.
    pub const fn admits_registrants(self) -> bool {
        self.to_field() > 2
    }

    /// Whether every registrant is a holder.
    pub const fn is_of_all(self) -> bool {
        self.to_field() > 4
    }
}

/// What a host is told of a reservation that it had a part in: types of the notification's log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Another host unregistered it.
    RegistrationPreempted,
    /// A reservation that registrants share was released.
    Released,
    /// Another host cleared the reservation it had a part in.
    Preempted,
}

impl Notice {
    /// As the log page's type; also the bit of the notification mask.
    pub const fn to_field(self) -> u8 {
        match self {
            Notice::RegistrationPreempted => 1,
            Notice::Released => 2,
            Notice::Preempted => 3,
        }
    }
}

layout! {
    /// What Register (NRKEY second), Acquire (PRKEY second) and, by its first half, Release are given.
    ReservationKeys, 16 {
        /// CRKEY: the host's key.
        current(set_current): u64 = 0;
        /// NRKEY or PRKEY: the key it is to have, or that of those whom it preempts.
        other(set_other): u64 = 8;
    }
}

layout! {
    /// What Reservation Report begins with, figures 447 and 448; of the first form only 24 bytes.
    ReservationStatus, 64 {
        /// GEN: changes of registrations so far.
        generation(set_generation): u32 = 0;
        /// RTYPE; 0 where there is no reservation.
        kind(set_kind): u8 = 4;
        /// REGCTL: entries that follow.
        controllers(set_controllers): u16 = 5;
        /// PTPLS: whether it outlives a loss of power.
        persists(set_persists): u8 = 9;
    }
}

impl ReservationStatus {
    /// Bytes of the form with host identifiers of eight bytes.
    pub const SHORT: usize = 24;
}

layout! {
    /// A registered controller with a host identifier of eight bytes, figure 449.
    RegisteredController, 24 {
        /// CNTLID; FFFFh where the host has none now.
        cntlid(set_cntlid): u16 = 0;
        /// RCSTS: bit 0 where its host holds the reservation.
        status(set_status): u8 = 2;
        /// HOSTID.
        host(set_host): [u8; 8] = 8;
        /// RKEY.
        key(set_key): u64 = 16;
    }
}

layout! {
    /// A registered controller with a host identifier of 16 bytes, figure 450.
    RegisteredControllerExtended, 64 {
        /// CNTLID; FFFFh where the host has none now.
        cntlid(set_cntlid): u16 = 0;
        /// RCSTS: bit 0 where its host holds the reservation.
        status(set_status): u8 = 2;
        /// RKEY.
        key(set_key): u64 = 8;
        /// HOSTID.
        host(set_host): [u8; 16] = 16;
    }
}

layout! {
    /// Reservation Notification, log page 80h, figure 261.
    ReservationNotification, 64 {
        /// Its number; 0 where there is none.
        count(set_count): u64 = 0;
        /// [`Notice::to_field`].
        kind(set_kind): u8 = 8;
        /// Further ones that are not read yet, at most 255.
        more(set_more): u8 = 9;
        /// The namespace.
        nsid(set_nsid): u32 = 12;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_as_their_fields() {
        for field in 0..=u8::MAX {
            assert_eq!(
                Kind::from_field(field).map(Kind::to_field),
                (1..=6).contains(&field).then_some(field)
            );
        }
        assert!(!Kind::WriteExclusiveAll.keeps_readers_out() && Kind::ExclusiveAccessAll.keeps_readers_out());
        assert!(!Kind::ExclusiveAccess.admits_registrants() && Kind::WriteExclusiveAll.is_of_all());
    }

    #[test]
    fn golden() {
        let mut status = ReservationStatus::default();
        status.set_generation(1).set_kind(2).set_controllers(0x0304).set_persists(1);
        assert_eq!(status.0[..10], [1, 0, 0, 0, 2, 4, 3, 0, 0, 1]);
    }
}
