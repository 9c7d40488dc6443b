//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("ndp_search"), |input: &[u8]| nearside_hostile::run("ndp_search", input));
