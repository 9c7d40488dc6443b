//! See `crates/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: nearside_hostile::prepare("partition_table"), |input: &[u8]| nearside_hostile::run("partition_table", input));
