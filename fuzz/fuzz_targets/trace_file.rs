//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("trace_file"), |input: &[u8]| nearside_hostile::run("trace_file", input));
