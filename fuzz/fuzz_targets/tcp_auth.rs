//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("tcp_auth"), |input: &[u8]| nearside_hostile::run("tcp_auth", input));
