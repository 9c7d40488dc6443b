//! Messages of in-band authentication (Base 2.0, 8.13.4 and 8.13.5: DH-HMAC-CHAP), which Authentication Send
//! and Receive carry. What stands behind a message's fixed part (challenges, responses, exponentials) follows
//! it at once.

use crate::layout::layout;

/// AUTH_TYPE of messages that all protocols have.
pub const COMMON: u8 = 0;
/// AUTH_TYPE of DH-HMAC-CHAP's own.
pub const DHCHAP: u8 = 1;

/// Values of AUTH_ID.
pub mod id {
    /// AUTH_Negotiate, of the host.
    pub const NEGOTIATE: u8 = 0x00;
    /// DH-HMAC-CHAP_Challenge, of the controller.
    pub const CHALLENGE: u8 = 0x01;
    /// DH-HMAC-CHAP_Reply, of the host.
    pub const REPLY: u8 = 0x02;
    /// DH-HMAC-CHAP_Success1, of the controller.
    pub const SUCCESS1: u8 = 0x03;
    /// DH-HMAC-CHAP_Success2, of the host.
    pub const SUCCESS2: u8 = 0x04;
    /// AUTH_Failure2, of the host.
    pub const FAILURE2: u8 = 0xf0;
    /// AUTH_Failure1, of the controller.
    pub const FAILURE1: u8 = 0xf1;
}

/// Identifier of DH-HMAC-CHAP in a protocol descriptor.
pub const PROTOCOL: u8 = 1;
/// Values of SC_C: the secure channel that is to be made after an exchange.
pub mod channel {
    /// None.
    pub const NONE: u8 = 0;
    /// TLS, with a PSK that the exchange generates.
    pub const NEW_TLS_PSK: u8 = 2;
    /// TLS as before, with a new PSK in the place of the one that is used.
    pub const REPLACE_TLS_PSK: u8 = 3;
}

/// Reason code of every failure: authentication failure.
pub const REASON: u8 = 1;
/// Hash functions, and groups, that a descriptor names at most.
pub const LISTED: usize = 30;

/// What a failure message says of its reason (figure "Authentication failure reason code explanations").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation(pub u8);

macro_rules! explanations {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl Explanation {
            $(#[doc = $text] pub const $name: Explanation = Explanation($code);)*

            /// In the specification's words.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "an unknown reason",
                }
            }
        }
    };
}

explanations! {
    FAILED = 1, "Authentication failed";
    NOT_USABLE = 2, "Authentication protocol not usable";
    CONCATENATION_MISMATCH = 3, "Secure channel concatenation mismatch";
    HASH_NOT_USABLE = 4, "Hash function not usable";
    GROUP_NOT_USABLE = 5, "DH group not usable";
    INCORRECT_PAYLOAD = 6, "Incorrect payload";
    INCORRECT_MESSAGE = 7, "Incorrect protocol message";
}

layout! {
    /// What every message begins with.
    Head, 6 {
        /// AUTH_TYPE.
        kind(set_kind): u8 = 0;
        /// AUTH_ID.
        id(set_id): u8 = 1;
        /// T_ID, which the host chooses and every message of a transaction has.
        t_id(set_t_id): u16 = 4;
    }
}

layout! {
    /// AUTH_Negotiate; descriptors follow it.
    Negotiate, 8 {
        /// AUTH_TYPE.
        kind(set_kind): u8 = 0;
        /// AUTH_ID.
        id(set_id): u8 = 1;
        /// T_ID.
        t_id(set_t_id): u16 = 4;
        /// SC_C: see [`channel`].
        sc_c(set_sc_c): u8 = 6;
        /// NAPD: descriptors.
        napd(set_napd): u8 = 7;
    }
}

layout! {
    /// A protocol descriptor of DH-HMAC-CHAP.
    Descriptor, 64 {
        /// AUTHID: [`PROTOCOL`].
        authid(set_authid): u8 = 0;
        /// HALEN: hash functions.
        halen(set_halen): u8 = 2;
        /// DHLEN: groups.
        dhlen(set_dhlen): u8 = 3;
        /// Identifiers of hash functions, most wanted first.
        hashes(set_hashes): [u8; 30] = 4;
        /// Identifiers of groups, most wanted first.
        groups(set_groups): [u8; 30] = 34;
    }
}

layout! {
    /// DH-HMAC-CHAP_Challenge; the challenge (HL bytes) and the exponential (DHVLEN bytes) follow it.
    Challenge, 16 {
        /// AUTH_TYPE.
        kind(set_kind): u8 = 0;
        /// AUTH_ID.
        id(set_id): u8 = 1;
        /// T_ID.
        t_id(set_t_id): u16 = 4;
        /// HL: bytes of a hash.
        hl(set_hl): u8 = 6;
        /// HashID.
        hash(set_hash): u8 = 8;
        /// DHgID.
        group(set_group): u8 = 9;
        /// DHVLEN: bytes of the exponential.
        dhvlen(set_dhvlen): u16 = 10;
        /// SEQNUM: S1.
        seqnum(set_seqnum): u32 = 12;
    }
}

layout! {
    /// DH-HMAC-CHAP_Reply; the response and the host's challenge (HL bytes each, whether or not there is a
    /// challenge) and the exponential (DHVLEN bytes) follow it.
    Reply, 16 {
        /// AUTH_TYPE.
        kind(set_kind): u8 = 0;
        /// AUTH_ID.
        id(set_id): u8 = 1;
        /// T_ID.
        t_id(set_t_id): u16 = 4;
        /// HL.
        hl(set_hl): u8 = 6;
        /// CVALID: 1 where the controller has to authenticate itself.
        cvalid(set_cvalid): u8 = 8;
        /// DHVLEN.
        dhvlen(set_dhvlen): u16 = 10;
        /// SEQNUM: S2.
        seqnum(set_seqnum): u32 = 12;
    }
}

layout! {
    /// DH-HMAC-CHAP_Success1; where RVALID says so, the controller's response (HL bytes) follows it.
    Success1, 16 {
        /// AUTH_TYPE.
        kind(set_kind): u8 = 0;
        /// AUTH_ID.
        id(set_id): u8 = 1;
        /// T_ID.
        t_id(set_t_id): u16 = 4;
        /// HL.
        hl(set_hl): u8 = 6;
        /// RVALID.
        rvalid(set_rvalid): u8 = 8;
    }
}

layout! {
    /// DH-HMAC-CHAP_Success2.
    Success2, 16 {
        /// AUTH_TYPE.
        kind(set_kind): u8 = 0;
        /// AUTH_ID.
        id(set_id): u8 = 1;
        /// T_ID.
        t_id(set_t_id): u16 = 4;
    }
}

layout! {
    /// AUTH_Failure1 and AUTH_Failure2.
    Failure, 8 {
        /// AUTH_TYPE.
        kind(set_kind): u8 = 0;
        /// AUTH_ID.
        id(set_id): u8 = 1;
        /// T_ID.
        t_id(set_t_id): u16 = 4;
        /// [`REASON`].
        reason(set_reason): u8 = 6;
        /// [`Explanation`].
        explanation(set_explanation): u8 = 7;
    }
}

impl Failure {
    /// The message of a transaction, `id` saying whose.
    pub fn new(id: u8, t_id: u16, why: Explanation) -> Failure {
        let mut failure = Failure::default();
        failure.set_kind(COMMON).set_id(id).set_t_id(t_id).set_reason(REASON).set_explanation(why.0);
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let failure = Failure::new(id::FAILURE1, 0x1234, Explanation::HASH_NOT_USABLE);
        assert_eq!(failure.0, [0, 0xf1, 0, 0, 0x34, 0x12, 1, 4]);
        let mut challenge = Challenge::default();
        challenge.set_kind(DHCHAP).set_id(id::CHALLENGE).set_t_id(7).set_hl(48).set_hash(2).set_group(5);
        challenge.set_dhvlen(0x0400).set_seqnum(0x0102_0304);
        assert_eq!(challenge.0, [1, 1, 0, 0, 7, 0, 48, 0, 2, 5, 0, 4, 4, 3, 2, 1]);
        let mut reply = Reply::default();
        reply
            .set_kind(DHCHAP)
            .set_id(id::REPLY)
            .set_t_id(7)
            .set_hl(32)
            .set_cvalid(1)
            .set_dhvlen(256)
            .set_seqnum(9);
        assert_eq!(reply.0, [1, 2, 0, 0, 7, 0, 32, 0, 1, 0, 0, 1, 9, 0, 0, 0]);
        let mut descriptor = Descriptor::default();
        descriptor
            .set_authid(PROTOCOL)
            .set_halen(1)
            .set_dhlen(2)
            .set_hashes([3; LISTED])
            .set_groups([4; LISTED]);
        assert_eq!(
            (descriptor.0[..5].to_vec(), descriptor.0[33..35].to_vec()),
            ([1, 0, 1, 2, 3].into(), [3, 4].into())
        );
    }
}
