//! The `nearside` command: `main` is the map of the program.

fn main() {}
