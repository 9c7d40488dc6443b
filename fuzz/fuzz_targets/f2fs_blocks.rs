//! A block of any bytes as each structure in turn: inode, node address table, directory block, checkpoint.
#![no_main]

mod f2fs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    f2fs::replace(*which, bytes);
});
