//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("vfio_user_message"), |input: &[u8]| nearside_hostile::run("vfio_user_message", input));
