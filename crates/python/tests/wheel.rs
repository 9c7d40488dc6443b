//! The package as Python sees it: pytest runs `tests/*.py` beside pyarrow, pandas, DuckDB and fsspec as
//! oracles.

use nearside_conformance::needs;
use nearside_conformance::wheel::{Package, installed, pytest, python};

#[test]
fn python_asks_a_drive() {
    let (test, home) = ("python::python_asks_a_drive", env!("CARGO_MANIFEST_DIR"));
    let Some(python) = python(test) else { return };
    let Some(folder) = needs::folder(test, &["mke2fs"]) else { return };
    let features = &["default", "tls", "wasm", "yara"];
    let package = Package { home, crate_name: "nearside_python", features };
    let python = installed(&python, &[package], &[], folder.path());
    pytest(test, &python, home, &[], folder.path());
}
