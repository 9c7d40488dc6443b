//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("model_file"), |input: &[u8]| nearside_hostile::run("model_file", input));
