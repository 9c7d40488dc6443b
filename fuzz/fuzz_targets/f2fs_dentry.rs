//! Directory blocks and link blocks of a kernel's volume, with bytes changed.
#![no_main]

mod f2fs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| f2fs::fuzz(f2fs::Kind::Entries, data));
