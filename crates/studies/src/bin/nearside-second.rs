//! The studies' second process as a program of its own, for their tests; `nearside` starts itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match nearside_studies::fast12::second::main(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("nearside-second: {e}");
            ExitCode::from(2)
        }
    }
}
