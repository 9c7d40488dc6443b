//! The hashes of names that directory indexes are sorted by: legacy, half MD4 and TEA, each with signed or
//! unsigned characters. (Siphash, version 6, belongs to encrypted casefolded directories, which are refused.)

/// A hash function and the signedness of its characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    kind: HashKind,
    signed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashKind {
    Legacy,
    HalfMd4,
    Tea,
}

/// The seed of half MD4 and TEA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seed([u32; 4]);

impl Seed {
    /// From the superblock's words; all zeros mean MD4's own start.
    pub(super) fn new(words: [u32; 4]) -> Seed {
        if words == [0; 4] { Seed([0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476]) } else { Seed(words) }
    }
}

impl Version {
    /// From the byte in an index root; `unsigned` is the superblock's flag, which versions 0 to 2 heed.
    pub(super) fn new(version: u8, unsigned: bool) -> Option<Version> {
        let kind = match version {
            0 | 3 => HashKind::Legacy,
            1 | 4 => HashKind::HalfMd4,
            2 | 5 => HashKind::Tea,
            _ => return None,
        };
        Some(Version { kind, signed: version < 3 && !unsigned })
    }

    /// The hash of a name, its lowest bit clear (that bit marks continued collisions in an index).
    pub(super) fn hash(self, name: &[u8], seed: Seed) -> u32 {
        let hash = match self.kind {
            HashKind::Legacy => self.legacy(name),
            HashKind::HalfMd4 => {
                let mut state = seed.0;
                for chunk in Tails::<32>(name) {
                    half_md4(&mut state, self.words::<8>(chunk));
                }
                let [_, hash, _, _] = state;
                hash
            }
            HashKind::Tea => {
                let mut state = seed.0;
                for chunk in Tails::<16>(name) {
                    tea(&mut state, self.words::<4>(chunk));
                }
                let [hash, _, _, _] = state;
                hash
            }
        };
        // The top value means "end of directory" to the kernel.
        if hash & !1 == 0xFFFF_FFFE { 0xFFFF_FFFC } else { hash & !1 }
    }

    fn widen(self, byte: u8) -> u32 {
        if self.signed {
            let signed = i8::from_le_bytes([byte]);
            u32::from_le_bytes(i32::from(signed).to_le_bytes())
        } else {
            u32::from(byte)
        }
    }

    fn legacy(self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12A3_FE2Du32, 0x37AB_E8F9u32);
        for byte in name {
            let mixed = before.wrapping_add(last ^ self.widen(*byte).wrapping_mul(7_152_373));
            let next = if mixed & 0x8000_0000 != 0 { mixed.wrapping_sub(0x7FFF_FFFF) } else { mixed };
            before = last;
            last = next;
        }
        last.wrapping_shl(1)
    }

    /// Big-endian words of the characters, filled up with the (whole rest's) length.
    fn words<const N: usize>(self, rest: &[u8]) -> [u32; N] {
        let [len, ..] = rest.len().to_le_bytes();
        let pad = u32::from_le_bytes([len; 4]);
        let mut words = [pad; N];
        for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
            for byte in bytes {
                *word = word.wrapping_shl(8).wrapping_add(self.widen(*byte));
            }
        }
        words
    }
}

/// The name, then the name without its first N bytes, and so on while something is left.
struct Tails<'a, const N: usize>(&'a [u8]);

impl<'a, const N: usize> Iterator for Tails<'a, N> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let all = self.0;
        self.0 = all.get(N..).unwrap_or(&[]);
        Some(all)
    }
}

/// MD4's compression cut to 24 steps of 8 words.
fn half_md4(state: &mut [u32; 4], words: [u32; 8]) {
    // For each round: its function, its constant, the order of words, the rotations.
    type Round = (fn(u32, u32, u32) -> u32, u32, [usize; 8], [u32; 4]);
    const ROUNDS: [Round; 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), 0x5A82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (|x, y, z| x ^ y ^ z, 0x6ED9_EBA1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (function, constant, order, rotations) in ROUNDS {
        for (word, rotation) in order.iter().zip(rotations.iter().cycle()) {
            let word = words.get(*word).copied().unwrap_or(0).wrapping_add(constant);
            let mixed = a.wrapping_add(function(b, c, d)).wrapping_add(word).rotate_left(*rotation);
            (a, b, c, d) = (d, mixed, b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

/// Sixteen rounds of TEA; the key is the words, the state's first half is what is mixed.
fn tea(state: &mut [u32; 4], [a, b, c, d]: [u32; 4]) {
    let [first, second, ..] = state;
    let (mut x, mut y, mut sum) = (*first, *second, 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        let mix = |v: u32, k: u32, l: u32| {
            v.wrapping_shl(4).wrapping_add(k) ^ v.wrapping_add(sum) ^ v.wrapping_shr(5).wrapping_add(l)
        };
        x = x.wrapping_add(mix(y, a, b));
        y = y.wrapping_add(mix(x, c, d));
    }
    *first = first.wrapping_add(x);
    *second = second.wrapping_add(y);
}
