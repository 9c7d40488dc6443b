//! A superblock of any bytes, its magic (and, where the input asks for it, much of a real one) kept.
#![no_main]

mod ext;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(([pick, from_low, from_high], bytes)) = data.split_first_chunk::<3>() else { return };
    let mut volume = ext::Patched::new(ext::seed(*pick));
    let from = u64::from(u16::from_le_bytes([*from_low, *from_high]) % 1024);
    let room = bytes.len().min(1024 - from as usize);
    volume.put(1024 + from, &bytes[..room]);
    volume.put(1024 + 0x38, &0xEF53u16.to_le_bytes());
    volume.explore();
});
