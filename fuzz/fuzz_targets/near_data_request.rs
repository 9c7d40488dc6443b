//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("near_data_request"), |input: &[u8]| nearside_hostile::run("near_data_request", input));
