//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("qcow2_image"), |input: &[u8]| nearside_hostile::run("qcow2_image", input));
