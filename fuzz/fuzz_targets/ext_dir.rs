//! A directory block of any bytes: the root's, an index root, an inline directory's inode.
#![no_main]

mod ext;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(([pick, which, low, high], bytes)) = data.split_first_chunk::<4>() else { return };
    let seed = ext::seed(pick % 2);
    let (at, len) = ext::directory_at(seed, [None, Some(&b"indexed"[..]), Some(&b"small"[..])][usize::from(which % 3)]);
    let mut volume = ext::Patched::new(seed);
    let from = u32::from(u16::from_le_bytes([*low, *high])) % len;
    volume.put(at + u64::from(from), &bytes[..bytes.len().min((len - from) as usize)]);
    volume.explore();
});
