//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("nvme_command"), |input: &[u8]| nearside_hostile::run("nvme_command", input));
