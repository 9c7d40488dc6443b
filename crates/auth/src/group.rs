//! The finite-field groups of RFC 7919: exponentials, in constant time.

use std::sync::OnceLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::Zeroizing;

use crate::primes;

/// A Diffie-Hellman group of DH-HMAC-CHAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// No exchange: responses hang on the key and the challenge alone.
    Null,
    /// ffdhe2048.
    Ffdhe2048,
    /// ffdhe3072.
    Ffdhe3072,
    /// ffdhe4096.
    Ffdhe4096,
    /// ffdhe6144.
    Ffdhe6144,
    /// ffdhe8192.
    Ffdhe8192,
}

/// Groups, their identifiers and names.
const GROUPS: [(Group, u8, &str); 6] = [
    (Group::Null, 0, "null"),
    (Group::Ffdhe2048, 1, "ffdhe2048"),
    (Group::Ffdhe3072, 2, "ffdhe3072"),
    (Group::Ffdhe4096, 3, "ffdhe4096"),
    (Group::Ffdhe6144, 4, "ffdhe6144"),
    (Group::Ffdhe8192, 5, "ffdhe8192"),
];

/// A prime in hexadecimal, and its numbers once they are made.
struct Field {
    prime: &'static str,
    params: OnceLock<BoxedMontyParams>,
}

impl Field {
    const fn new(prime: &'static str) -> Field {
        Field { prime, params: OnceLock::new() }
    }

    const fn bits(&self) -> u32 {
        self.prime.len() as u32 * 4
    }

    fn params(&self) -> &BoxedMontyParams {
        self.params.get_or_init(|| {
            let prime = BoxedUint::from_be_hex(self.prime, self.bits()).into_option();
            let odd = prime.and_then(|prime| Odd::new(prime).into_option());
            BoxedMontyParams::new(odd.expect("a prime of this file"))
        })
    }

    /// `base` to the power of the exponent, as many bytes as the prime has.
    fn power(&self, base: BoxedUint, exponent: &[u8]) -> Zeroizing<Vec<u8>> {
        let bits = exponent.len() as u32 * 8;
        let exponent = BoxedUint::from_be_slice_truncated(exponent, bits);
        let exponent = Zeroizing::new(exponent);
        let power = Zeroizing::new(BoxedMontyForm::new(base, self.params()).pow_bounded_exp(&exponent, bits));
        let power = Zeroizing::new(power.retrieve());
        Zeroizing::new(power.to_be_bytes().into_vec())
    }
}

static FIELDS: [Field; 5] = [
    Field::new(primes::FFDHE2048),
    Field::new(primes::FFDHE3072),
    Field::new(primes::FFDHE4096),
    Field::new(primes::FFDHE6144),
    Field::new(primes::FFDHE8192),
];

impl Group {
    /// All, the most wanted first: exchanges before none, and of those the cheapest, which is strong enough.
    pub const ALL: [Group; 6] = [
        Group::Ffdhe2048,
        Group::Ffdhe3072,
        Group::Ffdhe4096,
        Group::Ffdhe6144,
        Group::Ffdhe8192,
        Group::Null,
    ];

    /// Its DHgID.
    pub fn id(self) -> u8 {
        GROUPS.iter().find(|(group, ..)| *group == self).map_or(0, |(_, id, _)| *id)
    }

    /// By its DHgID.
    pub fn of_id(id: u8) -> Option<Group> {
        GROUPS.iter().find(|(_, other, _)| *other == id).map(|(group, ..)| *group)
    }

    /// Its name, as Linux has it.
    pub fn name(self) -> &'static str {
        GROUPS.iter().find(|(group, ..)| *group == self).map_or("", |(.., name)| name)
    }

    /// By its name.
    pub fn of_name(name: &str) -> Option<Group> {
        GROUPS.iter().find(|(.., other)| *other == name).map(|(group, ..)| *group)
    }

    fn field(self) -> Option<&'static Field> {
        FIELDS.get(usize::from(self.id().checked_sub(1)?))
    }

    /// Bytes of an exponential; 0 without an exchange.
    pub(crate) fn len(self) -> usize {
        self.field().map_or(0, |field| field.prime.len() / 2)
    }

    /// Bytes of a secret exponent: twice the strength of the group and more (RFC 7919, 5.2).
    fn exponent_len(self) -> usize {
        match self {
            Group::Null => 0,
            Group::Ffdhe2048 => 32,
            Group::Ffdhe3072 => 40,
            Group::Ffdhe4096 | Group::Ffdhe6144 => 48,
            Group::Ffdhe8192 => 56,
        }
    }

    /// A secret exponent and its exponential; both empty without an exchange.
    pub(crate) fn secret(self) -> Result<(Secret, Vec<u8>), getrandom::Error> {
        let mut exponent = Zeroizing::new(vec![0; self.exponent_len()]);
        getrandom::fill(&mut exponent)?;
        let secret = Secret { group: self, exponent };
        let public = secret.public();
        Ok((secret, public))
    }
}

/// A secret exponent.
pub(crate) struct Secret {
    group: Group,
    exponent: Zeroizing<Vec<u8>>,
}

impl Secret {
    fn public(&self) -> Vec<u8> {
        let Some(field) = self.group.field() else { return Vec::new() };
        let two = BoxedUint::from_be_slice_truncated(&[2], field.bits());
        field.power(two, &self.exponent).to_vec()
    }

    /// The secret that both ends have; `None`: `theirs` has another length, or is none that an honest end
    /// makes (1, or its negative, or beyond the prime). Without an exchange both are empty.
    pub(crate) fn shared(&self, theirs: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let Some(field) = self.group.field() else {
            return theirs.is_empty().then(Zeroizing::default);
        };
        if theirs.len() != self.group.len() {
            return None;
        }
        let theirs = BoxedUint::from_be_slice_truncated(theirs, field.bits());
        let two = BoxedUint::from_be_slice_truncated(&[2], field.bits());
        let most = field.params().modulus().as_ref().wrapping_sub(&two);
        // Of a safe prime, all other elements have a large order.
        (theirs >= two && theirs <= most).then(|| field.power(theirs, &self.exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn hashed(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Exponentials and secrets that OpenSSL made of the exponents 01 to 20 and 65 to 84 (hexadecimal).
    #[test]
    fn exponentials_are_those_of_openssl() {
        for (group, public, shared) in [
            (Group::Ffdhe2048, "2e26cf10a1d144863e17441ad415e321", "a85e4e22b45f65ac6f13b6023d09a501"),
            (Group::Ffdhe3072, "4071842fedf58116a8122a33024fd7e1", "c7e764c9ad26c3cd863f628a8eea97da"),
            (Group::Ffdhe4096, "a489839a8cf360813861709b4ba3c789", "df2c1125e2229e475701ec0c3d426f61"),
            (Group::Ffdhe6144, "baadabe3b9dc5eb308134fc9800a20ef", "97df6f5d028b0b589bfd426c0ff8a739"),
            (Group::Ffdhe8192, "eeba41e558e989de240b550fef7f99df", "d944a7c1001649a115313d00fffb3600"),
        ] {
            let secret = |from: u8| Secret { group, exponent: Zeroizing::new((from..from + 32).collect()) };
            let theirs = secret(101).public();
            assert_eq!((theirs.len(), hashed(&theirs).as_str()), (group.len(), public), "{group:?}");
            assert_eq!(hashed(&secret(1).shared(&theirs).unwrap()), shared, "{group:?}");
        }
    }

    #[test]
    fn what_no_honest_end_makes_is_refused() {
        let (secret, public) = Group::Ffdhe2048.secret().unwrap();
        let number = |last: u8| [vec![0; 255], vec![last]].concat();
        let prime: Vec<u8> = primes::FFDHE2048
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let below = |by: u8| [&prime[..255], &[255 - by]].concat();
        for bad in [
            number(0),
            number(1),
            below(1),
            prime.clone(),
            vec![255; 256],
            vec![9; 255],
            vec![],
            vec![9; 257],
        ] {
            assert!(secret.shared(&bad).is_none());
        }
        assert!(secret.shared(&number(2)).is_some() && secret.shared(&below(2)).is_some());
        assert!(secret.shared(&public).is_some());
        let (null, nothing) = Group::Null.secret().unwrap();
        assert!(nothing.is_empty() && null.shared(&[]).is_some() && null.shared(&[1]).is_none());
    }
}
