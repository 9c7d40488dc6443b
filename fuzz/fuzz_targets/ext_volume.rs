//! Patches of single bytes at the metadata of a seed volume, then everything is asked.
#![no_main]

mod ext;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((pick, records)) = data.split_first() else { return };
    let seed = ext::seed(*pick);
    let mut volume = ext::Patched::new(seed);
    // A block of those that a walk asks for, a place in it, an operation, a value.
    for record in records.as_chunks::<6>().0.iter().take(64) {
        let [block_low, block_high, at_low, at_high, operation, value] = *record;
        let block = usize::from(u16::from_le_bytes([block_low, block_high]));
        let (start, len) = seed.asked[block % seed.asked.len()];
        let at = start + u64::from(u16::from_le_bytes([at_low, at_high])) % u64::from(len);
        let old = volume.get(at, 1)[0];
        let new = match operation % 4 {
            0 => value,
            1 => old ^ (1 << (value % 8)),
            2 => old.wrapping_add(value),
            _ => 0xFF,
        };
        volume.put(at, &[new]);
    }
    volume.explore();
});
