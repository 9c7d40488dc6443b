//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("ext_journal"), |input: &[u8]| nearside_hostile::run("ext_journal", input));
