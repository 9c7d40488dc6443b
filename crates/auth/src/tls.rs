//! Pre-shared keys of TLS: `NVMeTLSkey-1:HH:` and, in Base64, the configured PSK and its CRC-32; the retained
//! PSK that a host has of it, the PSK that TLS takes, and the identity by which both ends name it (TCP
//! Transport 1.1, 3.6.1.3 to 3.6.1.5).

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::Hash;
use crate::interchange::{Form, KeyError, Secret};
use crate::response::Names;

const FORM: Form = Form {
    prefix: "NVMeTLSkey-1:",
    hashes: &[Hash::Sha256, Hash::Sha384],
    lengths: &[32, 48],
    says: "NVMeTLSkey-1:00:BASE64: with 00, 01 or 02 in the second place",
    says_lengths: "without a hash it can have 32 or 48, with SHA-256 (01) only 32, with SHA-384 (02) only 48",
};

/// A configured PSK. Its memory is overwritten when it goes, and nothing shows what it holds.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsKey(Secret);

/// What TLS takes.
#[derive(Clone)]
pub struct Psk {
    /// By which it is named to the other end.
    pub identity: String,
    /// Of its cipher suite: SHA-256, TLS_AES_128_GCM_SHA256, or SHA-384, TLS_AES_256_GCM_SHA384.
    pub hash: Hash,
    /// The secret.
    pub secret: Zeroizing<Vec<u8>>,
}

/// A PSK's identity, `NVMeVTHH HOSTNQN SUBNQN` and, of version 1, a digest of the PSK. T is R where it is
/// made of a key that both ends have, G where an exchange has generated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    hash: Hash,
    /// The host that is meant.
    pub host: &'a str,
    /// The subsystem that it means.
    pub subsystem: &'a str,
    digest: Option<&'a str>,
    is_generated: bool,
}

/// How HKDF-Expand-Label writes its label.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Labels {
    /// As RFC 8446, 7.1.
    Standard,
    /// Without the lengths of label and context, as libnvme does before 1.16 (`--compat` of nvme-cli later).
    Compat,
}

impl<'a> Identity<'a> {
    /// From its text; `None`: it is none.
    pub fn parse(text: &'a str) -> Option<Identity<'a>> {
        let mut words = text.split(' ');
        let (version, hash, is_generated) = match words.next()? {
            "NVMe0R01" => (0, Hash::Sha256, false),
            "NVMe0R02" => (0, Hash::Sha384, false),
            "NVMe1R01" => (1, Hash::Sha256, false),
            "NVMe1R02" => (1, Hash::Sha384, false),
            "NVMe1G01" => (1, Hash::Sha256, true),
            "NVMe1G02" => (1, Hash::Sha384, true),
            _ => return None,
        };
        let (host, subsystem) = (words.next()?, words.next()?);
        let digest = if version == 1 { Some(words.next()?) } else { None };
        words.next().is_none().then_some(Identity { hash, host, subsystem, digest, is_generated })
    }

    /// Whether an exchange has generated the PSK.
    pub fn is_generated(&self) -> bool {
        self.is_generated
    }

    /// The hash function of its cipher suite.
    pub fn hash(&self) -> Hash {
        self.hash
    }
}

impl TlsKey {
    /// A new one: of 32 or 48 bytes; with a hash, as many as that makes.
    ///
    /// # Errors
    /// [`KeyError::Length`]; the system has no random numbers.
    pub fn generate(hash: Option<Hash>, len: usize) -> Result<TlsKey, KeyError> {
        FORM.generate(hash, len).map(TlsKey)
    }

    /// As [`crate::Key::read`].
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<TlsKey, KeyError> {
        FORM.read(path).map(TlsKey)
    }

    /// In its form of interchange.
    pub fn interchange(&self) -> Zeroizing<String> {
        FORM.line(&self.0)
    }

    /// The hash function that makes the retained PSK of it and of the host's name; `None`: it is retained as
    /// it is.
    pub fn transform(&self) -> Option<Hash> {
        self.0.hash
    }

    /// Bits of its secret.
    pub fn bits(&self) -> usize {
        self.0.bytes.len() * 8
    }

    /// Of the cipher suite that it is for.
    pub fn hash(&self) -> Hash {
        if self.0.bytes.len() == Hash::Sha384.bytes() { Hash::Sha384 } else { Hash::Sha256 }
    }

    /// What a host offers a subsystem: an identity of version 1.
    pub fn psk(&self, host: &str, subsystem: &str) -> Psk {
        let hash = self.hash();
        let retained = self.retained(host, Labels::Standard);
        let digest = digest(hash, &retained, host, subsystem);
        let identity = format!("NVMe1R{:02} {host} {subsystem} {digest}", hash.id());
        let secret = tls_psk(hash, &retained, &format!("{:02} {digest}", hash.id()), Labels::Standard);
        Psk { identity, hash, secret: secret.unwrap_or_default() }
    }

    /// What a subsystem finds for an identity that names its host and itself; `None`: it is of another key.
    pub fn answering(&self, identity: &str) -> Option<Psk> {
        let Identity { hash, host, subsystem, digest: given, is_generated } = Identity::parse(identity)?;
        if hash != self.hash() || is_generated {
            return None;
        }
        let found = |secret| Psk { identity: identity.to_owned(), hash, secret };
        let Some(given) = given else {
            // Nothing of it says how it was made.
            let retained = self.retained(host, Labels::Standard);
            return tls_psk(hash, &retained, identity, Labels::Standard).map(found);
        };
        let mut labels = [Labels::Standard, Labels::Compat].into_iter();
        let (labels, retained) = labels.find_map(|labels| {
            let retained = self.retained(host, labels);
            (digest(hash, &retained, host, subsystem) == given).then_some((labels, retained))
        })?;
        tls_psk(hash, &retained, &format!("{:02} {given}", hash.id()), labels).map(found)
    }

    fn retained(&self, host: &str, labels: Labels) -> Zeroizing<Vec<u8>> {
        let Some(hash) = self.0.hash else { return self.0.bytes.clone() };
        // A name has at most 223 bytes.
        derive(hash, &self.0.bytes, "HostNQN", host, labels).unwrap_or_default()
    }
}

impl Psk {
    /// Of an exchange (Base 2.1, 8.3.5.5.9): of the secret that both ends have, and both challenges.
    pub(crate) fn generated(hash: Hash, shared: &[u8], challenges: [&[u8]; 2], names: &Names) -> Psk {
        let Names { host, subsystem } = names;
        let input = hash.mac(&hash.digest(shared), &challenges);
        let digest = digest(hash, &input, host, subsystem);
        let identity = format!("NVMe1G{:02} {host} {subsystem} {digest}", hash.id());
        let secret = tls_psk(hash, &input, &format!("{:02} {digest}", hash.id()), Labels::Standard);
        Psk { identity, hash, secret: secret.unwrap_or_default() }
    }
}

/// What an identity of version 1 says of a PSK.
fn digest(hash: Hash, retained: &[u8], host: &str, subsystem: &str) -> String {
    let parts = [host.as_bytes(), b" ", subsystem.as_bytes(), b" NVMe-over-Fabrics"];
    STANDARD.encode(&*hash.mac(retained, &parts))
}

fn tls_psk(hash: Hash, retained: &[u8], context: &str, labels: Labels) -> Option<Zeroizing<Vec<u8>>> {
    derive(hash, retained, "nvme-tls-psk", context, labels)
}

/// HKDF-Extract without a salt, then HKDF-Expand-Label for as many bytes as a hash has; `None`: the context
/// is too long.
fn derive(
    hash: Hash,
    secret: &[u8],
    label: &str,
    context: &str,
    labels: Labels,
) -> Option<Zeroizing<Vec<u8>>> {
    let key = hash.mac(&vec![0; hash.bytes()], &[secret]);
    expand(hash, &key, label, context, hash.bytes(), labels)
}

/// HKDF-Expand-Label, for no more bytes than a hash has; `None`: the context is too long.
fn expand(
    hash: Hash,
    key: &[u8],
    label: &str,
    context: &str,
    bytes: usize,
    labels: Labels,
) -> Option<Zeroizing<Vec<u8>>> {
    let (label, len) = (format!("tls13 {label}"), bytes as u16);
    let (label_len, context_len) = (label.len() as u8, u8::try_from(context.len()).ok()?);
    let (label, context) = (label.as_bytes(), context.as_bytes());
    let mut made = match labels {
        Labels::Standard => {
            hash.mac(key, &[&len.to_be_bytes(), &[label_len], label, &[context_len], context, &[1]])
        }
        Labels::Compat => hash.mac(key, &[&len.to_le_bytes(), label, context, &[1]]),
    };
    made.truncate(bytes);
    Some(made)
}

/// The key and the nonce of a direction's records, of its traffic secret (RFC 8446, 7.3): 16 bytes, or 32
/// where the suite's hash is SHA-384, and 12.
pub fn record_keys(hash: Hash, secret: &[u8]) -> [Zeroizing<Vec<u8>>; 2] {
    let of = |label, bytes| expand(hash, secret, label, "", bytes, Labels::Standard).unwrap_or_default();
    [of("key", if hash == Hash::Sha384 { 32 } else { 16 }), of("iv", 12)]
}

impl FromStr for TlsKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<TlsKey, KeyError> {
        FORM.parse(text).map(TlsKey)
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey").field("transform", &self.0.hash).finish_non_exhaustive()
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk").field("identity", &self.identity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8448, 3: the server's handshake traffic keys.
    #[test]
    fn keys_of_records() {
        let bytes = |hex: &str| -> Vec<u8> {
            let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            (0..hex.len()).step_by(2).map(digit).collect()
        };
        let secret = bytes("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38");
        let [key, iv] = record_keys(Hash::Sha256, &secret);
        assert_eq!(key[..], bytes("3fce516009c21727d0f2e4e86ee403bc"));
        assert_eq!(iv[..], bytes("5d313eb2671276ee13000b30"));
        let [key, iv] = record_keys(Hash::Sha384, &[0; 48]);
        assert_eq!((key.len(), iv.len()), (32, 12));
    }

    const HOST: &str = "nqn.2026-11.example:host";
    const DISKS: &str = "nqn.2026-11.example:disks";
    /// Bytes 0 to 31, and 0 to 47.
    const SHORT: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    const LONG: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

    /// Made by nvme-cli 2.16 (`nvme check-tls-key --insert`): what a key, a version (`C`: `--compat`) and the
    /// digest of the identity give.
    const OF_NVME_CLI: [(&str, &str, &str, &str, &str); 10] = [
        (
            "00",
            SHORT,
            "1",
            "8rJikHYYxEln+WuUXfeCXugTY6MqKG6xQNMg6lhA4SU=",
            "541b51b3b6e6d093549050ed30e7ab9b05c923e2641fddbddb587016df8486ef",
        ),
        ("00", SHORT, "0", "", "3f608869a96c5a6fff3ade4378dd7424cfb1047596e1b58de7082a94ac5cf4c5"),
        (
            "01",
            SHORT,
            "1",
            "aHQ0polnslkt1HKBGlUNTZvrwS2cealzaMYKN5eLQFE=",
            "bbddba217b14a720cd2f4db06153bb07285b927cbdbcd4ea82fbffcc1298f2a8",
        ),
        ("01", SHORT, "0", "", "31e758baa7576f6e69b68f763e5d97693dbacd0057cd3cd6b0ec8a243c7fa3df"),
        (
            "01",
            SHORT,
            "C",
            "26k5klAd4KhnOgTCOFrRcDt/0H3fK71m5T4uJ1EIP+8=",
            "9153dadde70556d2e26f36d50866ceed8c75e4908c85b513e26463d69639899b",
        ),
        (
            "02",
            LONG,
            "1",
            "ziZgBe9Y7pXs3JrbmuvfYm/JN5zXxceQjf3Y6UHYnL+GLy8k8YhIlcMvdDxhfD7h",
            "1481c67f0d62422e584e8674a066159c6219039fec6cbf48996855ba861316cae3d7ffe109e9b08651cc1363d552574e",
        ),
        (
            "02",
            LONG,
            "0",
            "",
            "a751635aba53b59bc8763271984e1cf80cfe291c9a8252a6de9528c27293b251e6bb2b80fca62ae27d021a4a4395081f",
        ),
        (
            "02",
            LONG,
            "C",
            "hhFn44zW4JMIklk/+2vXbDsM1N76BZCy3qxQxGpP4jTqa3LZALytf7+fDhiLuaaE",
            "79a406bc4e52684b301d3cc65feb3d63470c3f8db556ca72053efb4a42c9a6ec13d44939177cbe54eb9c45ca012e1f44",
        ),
        (
            "00",
            LONG,
            "1",
            "O9x1N/6cSBUUWjhHnHU8766GwqSOiLmU4FibGdzxYADIXRHUp8CZV0Eop2Gzo/ga",
            "d3534497f2f04e1aa4e412659525773ea712ffc1ec8db2ccdfa4cb3357d5f70e65eb2384631deec8f89b1f7e1e88feb1",
        ),
        (
            "00",
            LONG,
            "0",
            "",
            "4e48483ebbbb9f1892fda97e45a1d85223f7e3f270e04114bc05605a463453bed7a229dfda65c9a0f490adf0cf4735f8",
        ),
    ];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn psks_are_those_of_nvme_cli() {
        for (id, base64, version, digest, secret) in OF_NVME_CLI {
            let line = format!("NVMeTLSkey-1:{id}:{base64}");
            let key: TlsKey = line.parse().unwrap();
            assert_eq!(*key.interchange(), line);
            assert!(!format!("{key:?}{:?}", key.psk(HOST, DISKS)).contains("1, 2"));
            let hash = if base64 == SHORT { "01" } else { "02" };
            let identity = match version {
                "0" => format!("NVMe0R{hash} {HOST} {DISKS}"),
                _ => format!("NVMe1R{hash} {HOST} {DISKS} {digest}"),
            };
            let found = key.answering(&identity).unwrap();
            assert_eq!((hex(&found.secret), &found.identity), (secret.into(), &identity), "{line} {version}");
            if version == "1" {
                let offered = key.psk(HOST, DISKS);
                assert_eq!((hex(&offered.secret), offered.identity), (secret.into(), identity.clone()));
            }
            // Of other names, of another key, of another hash.
            let other = TlsKey::generate(key.transform(), key.bits() / 8).unwrap();
            assert!(version == "0" || other.answering(&identity).is_none());
            assert!(version == "0" || key.answering(&identity.replace("disks", "disk")).is_none());
            let swapped = identity.replace("R01", "R0x").replace("R02", "R01").replace("R0x", "R02");
            assert!(key.answering(&swapped).is_none());
        }
    }

    #[test]
    fn what_is_no_identity_is_none() {
        let parsed = Identity::parse("NVMe1R01 h s d").unwrap();
        assert_eq!((parsed.host, parsed.subsystem, parsed.hash()), ("h", "s", Hash::Sha256));
        for text in [
            "",
            "NVMe1R01",
            "NVMe1R01 h",
            "NVMe1R01 h s",
            "NVMe1R01 h s d e",
            "NVMe0R01 h s d",
            "NVMe2R01 h s d",
            "NVMe1R03 h s d",
            "NVMe0G01 h s",
            "nvme1r01 h s d",
        ] {
            assert_eq!(Identity::parse(text), None, "{text}");
        }
        // One whose name leaves no room for it has none; nothing ends badly.
        let key = TlsKey::generate(None, 32).unwrap();
        let long = "n".repeat(223);
        assert!(key.answering(&format!("NVMe0R01 {long} {long}")).is_none());
        assert!(key.answering(&key.psk(&long, &long).identity).is_some());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let wrong = |text: &str| text.parse::<TlsKey>().unwrap_err();
        assert!(matches!(wrong(&format!("NVMeTLSkey-1:03:{SHORT}")), KeyError::Form(_)));
        assert!(matches!(wrong(&format!("NVMeTLSkey-2:01:{SHORT}")), KeyError::Form(_)));
        assert!(matches!(wrong(&format!("DHHC-1:01:{SHORT}")), KeyError::Form(_)));
        assert!(matches!(wrong(&format!("NVMeTLSkey-1:02:{SHORT}")), KeyError::Length(32, _)));
        assert!(matches!(
            wrong(&format!("NVMeTLSkey-1:01:{}", SHORT.replace("AAEC", "AAED"))),
            KeyError::Crc
        ));
        assert!(matches!(TlsKey::generate(Some(Hash::Sha512), 64), Err(KeyError::Length(64, _))));
    }
}
