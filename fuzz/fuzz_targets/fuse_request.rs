//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("fuse_request"), |input: &[u8]| nearside_hostile::run("fuse_request", input));
