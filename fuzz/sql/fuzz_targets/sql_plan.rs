//! See `crates/sql/tests/sql/hostile.rs`.
#![no_main]

#[path = "../../../crates/sql/tests/sql/hostile.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _came_of_it = hostile::run(input);
});
