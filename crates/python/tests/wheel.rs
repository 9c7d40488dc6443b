//! The package as Python sees it: maturin packs what this build has made of it, it is installed into an
//! environment of its own, and pytest runs `tests/*.py` there, with pyarrow, pandas, DuckDB and fsspec as
//! oracles. `NEARSIDE_PYTEST="-k fsspec -x"` runs some of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nearside_conformance::needs;
use nearside_conformance::volume::must;
use serde_json::json;

const NEEDED: &str = "import duckdb, fsspec, maturin, numpy, pandas, pyarrow, pytest, ray";

/// Python with all that the tests take: `scripts/setup.sh test` makes it.
fn python(test: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/oracles/bin/python");
    let python = std::env::var_os("NEARSIDE_ORACLES").map_or(own, PathBuf::from);
    let has = Command::new(&python).args(["-c", NEEDED]).output();
    if has.is_ok_and(|ran| ran.status.success()) {
        return Some(python);
    }
    needs::left_out(test, "no Python with maturin, pytest and what it compares with (scripts/setup.sh test)");
    None
}

/// What the build of this test has made of the package.
fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let folder = here.parent().unwrap();
    let places = [folder, folder.parent().unwrap()].map(|f| f.join("libnearside_python.so"));
    places.into_iter().find(|place| place.is_file()).unwrap()
}

/// What cargo prints.
fn cargo_says(arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    let said = must(cargo.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")));
    String::from_utf8(said.stdout).unwrap()
}

/// A cargo that has built the package already: another selection of packages than this build's would compile
/// the whole drive once more, with other features of what they share. Of what the workspace is made of it
/// says what this machine builds, since the rest need not be on it.
fn cargo(folder: &Path) -> PathBuf {
    let (home, cargo) = (env!("CARGO_MANIFEST_DIR"), env!("CARGO"));
    let artifact = json!({
        "reason": "compiler-artifact",
        "package_id": cargo_says(&["pkgid"]).trim_end(),
        "manifest_path": format!("{home}/Cargo.toml"),
        "target": {
            "kind": ["cdylib"], "crate_types": ["cdylib"], "name": "nearside_python", "edition": "2024",
            "src_path": format!("{home}/src/lib.rs"), "doc": false, "doctest": false, "test": false,
        },
        "profile": {
            "opt_level": "1", "debuginfo": 1, "debug_assertions": true, "overflow_checks": true, "test": false,
        },
        "features": ["default", "tls", "wasm", "yara"], "filenames": [library()], "executable": null, "fresh": true,
    });
    let ended = json!({ "reason": "build-finished", "success": true });
    let about = cargo_says(&["-vV"]);
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let script = format!(
        "#!/bin/sh\ncase $1 in\nrustc) cat <<'END'\n{artifact}\n{ended}\nEND\n;;\n\
         metadata) shift; exec '{cargo}' metadata --filter-platform {host} \"$@\" ;;\n\
         *) exec '{cargo}' \"$@\" ;;\nesac\n"
    );
    let cargo = folder.join("cargo");
    fs::write(&cargo, script).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    cargo
}

fn wheel(python: &Path, folder: &Path) -> PathBuf {
    let (cargo, out) = (cargo(folder), folder.join("wheels"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([folder.to_owned()].into_iter().chain(std::env::split_paths(&path)));
    let mut maturin = Command::new(python);
    maturin.args(["-m", "maturin", "build", "--locked", "--profile", "dev", "--auditwheel", "skip"]);
    maturin.args(["--compression-method", "stored", "--out"]).arg(&out).arg("--interpreter").arg(python);
    must(maturin.current_dir(env!("CARGO_MANIFEST_DIR")).env("PATH", path.unwrap()).env("CARGO", cargo));
    fs::read_dir(out).unwrap().next().unwrap().unwrap().path()
}

/// Where this Python finds packages.
fn packages(python: &Path) -> PathBuf {
    let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let said = must(Command::new(python).args(["-c", ask])).stdout;
    String::from_utf8(said).unwrap().trim_end().into()
}

/// An environment with the package, to which the oracles are visible.
fn installed(python: &Path, wheel: &Path, folder: &Path) -> PathBuf {
    let home = folder.join("environment");
    must(Command::new(python).args(["-m", "venv", "--without-pip"]).arg(&home));
    let own = home.join("bin/python");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--disable-pip-version-check", "--python"]).arg(&own);
    must(pip.args(["install", "-q", "--no-index", "--no-deps", "--no-compile"]).arg(wheel));
    let oracles = packages(python);
    fs::write(packages(&own).join("oracles.pth"), format!("{}\n", oracles.display())).unwrap();
    own
}

#[test]
fn python_asks_a_drive() {
    let test = "python::python_asks_a_drive";
    let Some(python) = python(test) else { return };
    let Some(folder) = needs::folder(test, &["mke2fs"]) else { return };
    let wheel = wheel(&python, folder.path());
    let python = installed(&python, &wheel, folder.path());
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "--basetemp"]).arg(folder.path().join("pytest"));
    let some = std::env::var("NEARSIDE_PYTEST").unwrap_or_default();
    pytest.args(some.split_whitespace()).arg("tests");
    // The command, for tests with drives that are served.
    let command = std::env::current_exe().unwrap().parent().unwrap().with_file_name("nearside");
    match command.is_file() {
        true => drop(pytest.env("NEARSIDE_COMMAND", command)),
        false => needs::left_out(test, "served drives: the command is not built (cargo build)"),
    }
    let ran = must(pytest.current_dir(env!("CARGO_MANIFEST_DIR")).env("PYTHONDONTWRITEBYTECODE", "1"));
    println!("{}", String::from_utf8_lossy(&ran.stdout));
}
