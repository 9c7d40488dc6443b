//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("lvm_group"), |input: &[u8]| nearside_hostile::run("lvm_group", input));
