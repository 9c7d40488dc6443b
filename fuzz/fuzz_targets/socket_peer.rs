//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("socket_peer"), |input: &[u8]| nearside_hostile::run("socket_peer", input));
