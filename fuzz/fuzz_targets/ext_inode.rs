//! Inodes of any bytes: the root's, and those of the first files.
#![no_main]

mod ext;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(([pick, which, from], bytes)) = data.split_first_chunk::<3>() else { return };
    // Without checksums, so that every byte counts.
    let seed = ext::seed(pick % 2);
    let mut volume = ext::Patched::new(seed);
    let group = u64::from(u32::from_le_bytes(volume.get(2048 + 8, 4).try_into().unwrap()));
    let nr = [1, 11, 12, 13, 14, 15, 16, 20][usize::from(which % 8)];
    let at = group * 1024 + nr * 256 + u64::from(*from);
    volume.put(at, &bytes[..bytes.len().min(256 - usize::from(*from))]);
    volume.explore();
});
