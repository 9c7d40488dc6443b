//! The package as Python sees it, beside the package `nearside` and Python's DataFusion.

use std::path::Path;

use nearside_conformance::needs;
use nearside_conformance::wheel::{Package, installed, pytest, python};

#[test]
fn python_asks_in_sql() {
    let test = "python_sql::python_asks_in_sql";
    let home = env!("CARGO_MANIFEST_DIR");
    let drive = format!("{home}/../python");
    let Some(python) = python(test) else { return };
    let Some(folder) = needs::folder(test, &["mke2fs"]) else { return };
    if !Path::new(home).join("../../target/oracles/datafusion/datafusion").is_dir() {
        return needs::left_out(test, "no DataFusion for Python (scripts/setup.sh test)");
    }
    let all = [
        Package {
            home: &drive,
            crate_name: "nearside_python",
            features: &["default", "tls", "wasm", "yara"],
        },
        Package { home, crate_name: "nearside_python_sql", features: &["default", "tls"] },
    ];
    let python = installed(&python, &all, &["datafusion"], folder.path());
    // With the other package's fixtures.
    let fixtures = format!("-o=pythonpath={drive}/tests");
    pytest(test, &python, home, &[&fixtures, "-p", "conftest"], folder.path());
}
