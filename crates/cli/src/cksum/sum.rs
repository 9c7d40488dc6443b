//! The checksums: those that the drive knows, which it computes, and the others, computed here of what it
//! reads.

use std::ffi::OsString;

use blake2::Blake2bVarCore;
use blake2::digest::Output;
use blake2::digest::block_api::{Buffer, UpdateCore, VariableOutputCore};
use clap::ValueEnum;
use nearside_fsrlib::{Digest, Operation, Record};
use sha2::digest::DynDigest;

use crate::drive::Drive;
use crate::failure::{Failure, Outcome};

/// A checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// CRC-32C (Castagnoli)
    Crc32c,
    /// XXH3, 64 bits
    Xxh3,
    /// SHA-256
    #[default]
    Sha256,
    /// SHA-224
    Sha224,
    /// SHA-384
    Sha384,
    /// SHA-512
    Sha512,
    /// SHA-1
    Sha1,
    /// MD5
    Md5,
    /// BLAKE2b, 512 bits
    Blake2b,
    /// BLAKE3, 256 bits
    Blake3,
    /// POSIX cksum's, with the file's length
    Crc,
}

/// One that is computed here.
enum Hasher {
    Crypto(Box<dyn DynDigest>),
    Blake2b(Box<Blake2b>),
    Blake3(Box<blake3::Hasher>),
    Crc { crc: u32, len: u64 },
}

/// BLAKE2b whose value has as many bytes as a list says. Its crate's other types have to know that when they
/// are compiled.
struct Blake2b {
    core: Blake2bVarCore,
    buffer: Buffer<Blake2bVarCore>,
    len: usize,
}

/// A file whose bytes are on their way.
struct File {
    name: Vec<u8>,
    size: u64,
    fed: u64,
    hasher: Hasher,
}

/// A file and its checksum.
pub struct Sum<'a> {
    pub name: &'a [u8],
    /// Bytes of the file; not of what the drive computed.
    pub size: u64,
    pub value: &'a [u8],
}

impl Algorithm {
    /// Its name in lists, with the bytes of its value.
    pub fn tag(self) -> (&'static str, usize) {
        match self {
            Algorithm::Crc32c => ("CRC32C", 4),
            Algorithm::Xxh3 => ("XXH3", 8),
            Algorithm::Sha256 => ("SHA256", 32),
            Algorithm::Sha224 => ("SHA224", 28),
            Algorithm::Sha384 => ("SHA384", 48),
            Algorithm::Sha512 => ("SHA512", 64),
            Algorithm::Sha1 => ("SHA1", 20),
            Algorithm::Md5 => ("MD5", 16),
            Algorithm::Blake2b => ("BLAKE2b", 64),
            Algorithm::Blake3 => ("BLAKE3", 32),
            Algorithm::Crc => ("CRC", 4),
        }
    }

    /// What has this name in lists, with the bytes of its value: BLAKE2b's may say them (`BLAKE2b-256`).
    pub fn of_tag(tag: &[u8]) -> Option<(Algorithm, usize)> {
        if let Some(bits) = tag.strip_prefix(b"BLAKE2b-") {
            let bits: usize = std::str::from_utf8(bits).ok()?.parse().ok()?;
            return bits.is_multiple_of(8).then_some((Algorithm::Blake2b, bits / 8));
        }
        let is_it = |algorithm: &Algorithm| algorithm.tag().0.as_bytes() == tag;
        let algorithm = Algorithm::value_variants().iter().copied().find(is_it)?;
        Some((algorithm, algorithm.tag().1))
    }

    /// Whether a value of it may have so many bytes.
    pub fn may_have(self, len: usize) -> bool {
        let (_, whole) = self.tag();
        len == whole || self == Algorithm::Blake2b && (1..whole).contains(&len)
    }

    /// The drive's, where it knows it.
    pub fn in_the_drive(self) -> Option<Digest> {
        Some(match self {
            Algorithm::Crc32c => Digest::Crc32c,
            Algorithm::Xxh3 => Digest::Xxh3,
            Algorithm::Sha256 => Digest::Sha256,
            _ => return None,
        })
    }

    fn hasher(self, len: usize) -> Hasher {
        Hasher::Crypto(match self {
            Algorithm::Crc32c | Algorithm::Xxh3 | Algorithm::Crc => return Hasher::Crc { crc: 0, len: 0 },
            Algorithm::Blake2b => return Hasher::Blake2b(Box::new(Blake2b::new(len))),
            Algorithm::Blake3 => return Hasher::Blake3(Box::default()),
            Algorithm::Sha256 => Box::new(sha2::Sha256::default()),
            Algorithm::Sha224 => Box::new(sha2::Sha224::default()),
            Algorithm::Sha384 => Box::new(sha2::Sha384::default()),
            Algorithm::Sha512 => Box::new(sha2::Sha512::default()),
            Algorithm::Sha1 => Box::new(sha1::Sha1::default()),
            Algorithm::Md5 => Box::new(md5::Md5::default()),
        })
    }

    /// The sums of files, of `len` bytes, each to `sink`. What cannot be read is said on standard error; the
    /// exit status.
    pub fn of_files(
        self,
        len: usize,
        drive: &mut Drive,
        paths: &[OsString],
        recursive: bool,
        mut sink: impl FnMut(Sum<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        if let Some(digest) = self.in_the_drive() {
            return drive.each_file(
                paths,
                recursive,
                &Operation::Checksum(digest),
                |name, record| match record {
                    Record::Digest { value, .. } => sink(Sum { name, size: 0, value: &value }),
                    _ => Ok(()),
                },
            );
        }
        let read = Operation::Read { offset: 0, len: u64::MAX };
        let mut file: Option<File> = None;
        let code = drive.each_file(paths, recursive, &read, |name, record| {
            match record {
                // A long file comes in several answers.
                Record::File { .. } if file.as_ref().is_some_and(|file| file.goes_on(name)) => {}
                Record::File { size, .. } => {
                    let next = File { name: name.to_vec(), size, fed: 0, hasher: self.hasher(len) };
                    if let Some(file) = file.replace(next) {
                        file.end(&mut sink)?;
                    }
                }
                Record::Data { bytes, .. } => {
                    if let Some(file) = &mut file {
                        file.fed += bytes.len() as u64;
                        file.hasher.feed(&bytes);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        if let Some(file) = file {
            file.end(&mut sink)?;
        }
        Ok(code)
    }
}

impl File {
    fn goes_on(&self, name: &[u8]) -> bool {
        self.name == name && self.fed < self.size
    }

    /// Of what was read in part, which was said, there is no sum.
    fn end(self, sink: &mut impl FnMut(Sum<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let File { name, size, fed, hasher } = self;
        match fed == size {
            true => sink(Sum { name: &name, size, value: &hasher.value() }),
            false => Ok(()),
        }
    }
}

/// The polynomial of POSIX cksum, by bytes: remainders of each byte in the highest place.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc(crc: u32, byte: u8) -> u32 {
    crc << 8 ^ TABLE[usize::from((crc >> 24) as u8 ^ byte)]
}

impl Blake2b {
    fn new(len: usize) -> Blake2b {
        // Without salt, personalization and key.
        let core = Blake2bVarCore::new_with_params(&[], &[], 0, len);
        Blake2b { core, buffer: Buffer::<Blake2bVarCore>::default(), len }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let Blake2b { core, buffer, .. } = self;
        buffer.digest_blocks(bytes, |blocks| core.update_blocks(blocks));
    }

    fn value(mut self) -> Vec<u8> {
        let mut whole = Output::<Blake2bVarCore>::default();
        self.core.finalize_variable_core(&mut self.buffer, &mut whole);
        whole[..self.len].to_vec()
    }
}

impl Hasher {
    fn feed(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Crypto(hasher) => hasher.update(bytes),
            Hasher::Blake2b(hasher) => hasher.feed(bytes),
            Hasher::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Hasher::Crc { crc: sum, len } => {
                *sum = bytes.iter().fold(*sum, |sum, byte| crc(sum, *byte));
                *len += bytes.len() as u64;
            }
        }
    }

    fn value(self) -> Vec<u8> {
        match self {
            Hasher::Crypto(hasher) => hasher.finalize().into_vec(),
            Hasher::Blake2b(hasher) => hasher.value(),
            Hasher::Blake3(hasher) => hasher.finalize().as_bytes().to_vec(),
            // POSIX, cksum: the length follows, its lowest byte first, without its zeros.
            Hasher::Crc { crc: sum, len } => {
                let bytes = (8 - len.leading_zeros() / 8) as usize;
                let sum = len.to_le_bytes()[..bytes].iter().fold(sum, |sum, byte| crc(sum, *byte));
                (!sum).to_be_bytes().to_vec()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::hex;

    fn by_pieces(algorithm: Algorithm, len: usize, bytes: &[u8]) -> String {
        let mut hasher = algorithm.hasher(len);
        bytes.chunks(7).for_each(|piece| hasher.feed(piece));
        hex(&hasher.value())
    }

    /// By the BLAKE3 team's test vectors (0, 1 and 1025 bytes that count up to 250), and the example of
    /// POSIX's rationale.
    #[test]
    fn those_that_coreutils_does_not_have() {
        let of = |algorithm: Algorithm, bytes: &[u8]| by_pieces(algorithm, algorithm.tag().1, bytes);
        let counting: Vec<u8> = (0..1025u32).map(|n| (n % 251) as u8).collect();
        for (len, sum) in [
            (0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
            (1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
            (1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"),
        ] {
            assert_eq!(of(Algorithm::Blake3, &counting[..len]), sum, "{len}");
        }
        assert_eq!(of(Algorithm::Crc, b""), format!("{:08x}", 4_294_967_295u32));
        assert_eq!(of(Algorithm::Crc, b"123456789"), format!("{:08x}", 930_766_865u32));
    }

    /// By `b2sum -l`, and Python's hashlib, of bytes that count up: as many as a block has, and one more.
    #[test]
    fn blake2b_of_other_lengths() {
        for (len, sum) in [
            (1, "6b"),
            (16, "cf4ab791c62b8d2b2109c90275287816"),
            (32, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"),
        ] {
            assert_eq!(by_pieces(Algorithm::Blake2b, len, b"abc"), sum, "{len}");
        }
        let counting: Vec<u8> = (0..129).collect();
        for (len, sum) in [
            (0, "3345524abf6bbe1809449224b5972c41790b6cf2"),
            (128, "e6992372ab022447b34f6d6032fbab707a11adef"),
            (129, "a7bf25f1599102ab631e3052e8303a2c097d1a7e"),
        ] {
            assert_eq!(by_pieces(Algorithm::Blake2b, 20, &counting[..len]), sum, "{len}");
        }
    }
}
