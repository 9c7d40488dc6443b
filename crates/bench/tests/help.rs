//! The program's help.

use nearside_conformance::help::examples_are_whole;

#[test]
fn each_example_is_a_line() {
    examples_are_whole(env!("CARGO_BIN_EXE_nearside-bench"), "  nearside-bench --");
}
