//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| nearside_hostile::run("tcp_pdu", input));
