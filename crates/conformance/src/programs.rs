//! The example programs of `programs/`, compiled as docs/PROGRAMS.md says.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::needs;

/// Target for which programs are compiled.
const TARGET: &str = "wasm32v1-none";
const NAMES: [&str; 4] = ["words", "log", "thumbnail", "kmeans"];

/// All of them, in a folder; why they are not.
fn compile() -> Result<TempDir, String> {
    let folder = tempfile::tempdir().unwrap();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../programs");
    for name in NAMES {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "--target", TARGET, "--crate-type", "cdylib", "-C", "opt-level=3"]);
        rustc.args(["-C", "panic=abort", "-C", "strip=debuginfo", "-D", "warnings"]);
        let ran = rustc.arg(format!("{sources}/{name}.rs")).arg("-o").arg(program_in(&folder, name)).output();
        let ran = ran.map_err(|error| format!("rustc: {error}"))?;
        let said = String::from_utf8_lossy(&ran.stderr);
        if said.contains("can't find crate for `core`") {
            return Err(format!("Rust's {TARGET} is not installed"));
        }
        assert!(ran.status.success(), "{said}");
    }
    Ok(folder)
}

fn program_in(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join(name).with_extension("wasm")
}

/// A compiled example; `None`: there are none here, which leaves `test` out.
///
/// # Panics
/// One is wrong.
pub fn program(test: &str, name: &str) -> Option<PathBuf> {
    static PROGRAMS: OnceLock<Result<TempDir, String>> = OnceLock::new();
    match PROGRAMS.get_or_init(compile) {
        Ok(folder) => Some(program_in(folder, name)),
        Err(why) => {
            needs::left_out(test, why);
            None
        }
    }
}
