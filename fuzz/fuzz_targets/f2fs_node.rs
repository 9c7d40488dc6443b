//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("f2fs_node"), |input: &[u8]| nearside_hostile::run("f2fs_node", input));
