//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("fio_job"), |input: &[u8]| nearside_hostile::run("fio_job", input));
