//! Data pointers of every shape; see `tests/rig/hostile.rs` of the device.
#![no_main]

#[path = "../../crates/device/tests/rig/hostile.rs"]
mod hostile;
#[path = "../../crates/device/tests/rig/mod.rs"]
mod rig;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hostile::run(input, true));
