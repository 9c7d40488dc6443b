//! The hash by which a directory chooses a bucket (S: fs/f2fs/hash.c): TEA over the name, 16 bytes at a time.
//! The fold of casefolded directories is not here: those are scanned.

/// The hash of a name; 0 for "." and "..".
pub(super) fn name_hash(name: &[u8]) -> u32 {
    if name == b"." || name == b".." {
        return 0;
    }
    let mut state = (0x6745_2301_u32, 0xEFCD_AB89_u32);
    let mut rest = name;
    loop {
        state = mix(state, words(rest));
        match rest.get(16..) {
            Some(after) if !after.is_empty() => rest = after,
            _ => return state.0,
        }
    }
}

/// The first 16 bytes as four words, each filled from its high end, padded with the length that is left.
fn words(bytes: &[u8]) -> [u32; 4] {
    let low = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let pad = low | low.wrapping_shl(8);
    let pad = pad | pad.wrapping_shl(16);
    let mut words = [pad; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(4)) {
        *word = chunk.iter().fold(pad, |word, byte| word.wrapping_shl(8).wrapping_add(u32::from(*byte)));
    }
    words
}

/// Sixteen rounds of TEA.
fn mix(state: (u32, u32), [a, b, c, d]: [u32; 4]) -> (u32, u32) {
    let (mut left, mut right) = state;
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        left = left.wrapping_add(
            right.wrapping_shl(4).wrapping_add(a)
                ^ right.wrapping_add(sum)
                ^ right.wrapping_shr(5).wrapping_add(b),
        );
        right = right.wrapping_add(
            left.wrapping_shl(4).wrapping_add(c)
                ^ left.wrapping_add(sum)
                ^ left.wrapping_shr(5).wrapping_add(d),
        );
    }
    (state.0.wrapping_add(left), state.1.wrapping_add(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_hash_to_zero() {
        assert_eq!(name_hash(b"."), 0);
        assert_eq!(name_hash(b".."), 0);
        assert_ne!(name_hash(b"..."), 0);
    }

    #[test]
    fn a_name_of_whole_chunks_takes_no_further_round() {
        assert_ne!(name_hash(&[b'a'; 16]), name_hash(&[b'a'; 17]));
        assert_ne!(name_hash(&[b'a'; 16]), name_hash(&[b'a'; 15]));
    }
}
