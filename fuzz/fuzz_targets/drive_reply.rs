//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("drive_reply"), |input: &[u8]| nearside_hostile::run("drive_reply", input));
