//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("select_parquet"), |input: &[u8]| nearside_hostile::run("select_parquet", input));
