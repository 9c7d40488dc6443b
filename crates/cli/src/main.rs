//! The `nearside` command: all of it is in the library beside, where the tests find its definitions too.

use std::process::ExitCode;

fn main() -> ExitCode {
    nearside_cli::main()
}
