//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("posix_acl"), |input: &[u8]| nearside_hostile::run("posix_acl", input));
