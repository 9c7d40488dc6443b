//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("prp_sgl"), |input: &[u8]| nearside_hostile::run("prp_sgl", input));
