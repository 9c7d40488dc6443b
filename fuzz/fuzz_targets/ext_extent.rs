//! A node of an extent tree, or an indirect block, of any bytes.
#![no_main]

mod ext;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(([pick, low, high], bytes)) = data.split_first_chunk::<3>() else { return };
    let seed = ext::seed(pick % 2);
    let (at, len) = ext::node_at(seed, b"comb", 300_000);
    let mut volume = ext::Patched::new(seed);
    let from = u32::from(u16::from_le_bytes([*low, *high])) % len;
    volume.put(at + u64::from(from), &bytes[..bytes.len().min((len - from) as usize)]);
    volume.explore();
});
