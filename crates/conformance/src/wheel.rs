//! Packages for Python as Python sees them: maturin packs what this build has made of each, they are
//! installed into an environment of their own, and pytest runs their tests there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::needs;
use crate::volume::{install, must};

const NEEDED: &str = "import duckdb, fsspec, maturin, numpy, pandas, pyarrow, pytest, ray";

/// A package that is built with the test which packs it.
#[derive(Clone, Copy, Debug)]
pub struct Package<'a> {
    /// Its crate's folder.
    pub home: &'a str,
    /// What cargo calls what it makes of it.
    pub crate_name: &'a str,
    /// What it is built with.
    pub features: &'a [&'a str],
}

/// Where the oracles of Python's are: `scripts/setup.sh test` makes it.
fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/oracles")
}

/// Python with all that the tests take; otherwise leaves the test out.
pub fn python(test: &str) -> Option<PathBuf> {
    let python = std::env::var_os("NEARSIDE_ORACLES").map_or(oracles().join("bin/python"), PathBuf::from);
    let has = Command::new(&python).args(["-c", NEEDED]).output();
    if has.is_ok_and(|ran| ran.status.success()) {
        return Some(python);
    }
    needs::left_out(test, "no Python with maturin, pytest and what it compares with (scripts/setup.sh test)");
    None
}

impl Package<'_> {
    /// What this build has made of it.
    fn built(&self) -> PathBuf {
        let here = std::env::current_exe().unwrap();
        let folder = here.parent().unwrap();
        let places = [folder, folder.parent().unwrap()].map(|f| f.join(format!("lib{}.so", self.crate_name)));
        places.into_iter().find(|place| place.is_file()).unwrap()
    }

    /// What cargo prints.
    fn cargo_says(&self, arguments: &[&str]) -> String {
        let said = must(Command::new(env!("CARGO")).args(arguments).current_dir(self.home));
        String::from_utf8(said.stdout).unwrap()
    }

    /// A cargo that has built the package already: another selection of packages than this build's would
    /// compile the whole drive once more, with other features of what they share. Of what the workspace is
    /// made of it says what this machine builds, since the rest need not be on it.
    fn cargo(&self, folder: &Path) -> PathBuf {
        let (home, cargo) = (self.home, env!("CARGO"));
        let artifact = json!({
            "reason": "compiler-artifact",
            "package_id": self.cargo_says(&["pkgid"]).trim_end(),
            "manifest_path": format!("{home}/Cargo.toml"),
            "target": {
                "kind": ["cdylib"], "crate_types": ["cdylib"], "name": self.crate_name, "edition": "2024",
                "src_path": format!("{home}/src/lib.rs"), "doc": false, "doctest": false, "test": false,
            },
            "profile": {
                "opt_level": "1", "debuginfo": 1, "debug_assertions": true, "overflow_checks": true, "test": false,
            },
            "features": self.features, "filenames": [self.built()], "executable": null, "fresh": true,
        });
        let ended = json!({ "reason": "build-finished", "success": true });
        let about = self.cargo_says(&["-vV"]);
        let host = about.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        let script = format!(
            "#!/bin/sh\ncase $1 in\nrustc) cat <<'END'\n{artifact}\n{ended}\nEND\n;;\n\
             metadata) shift; exec '{cargo}' metadata --filter-platform {host} \"$@\" ;;\n\
             *) exec '{cargo}' \"$@\" ;;\nesac\n"
        );
        let (written, cargo) = (folder.join("script"), folder.join("cargo"));
        fs::write(&written, script).unwrap();
        install(&written, &cargo);
        cargo
    }

    /// Packed, in a folder of its own within `folder`.
    fn wheel(&self, python: &Path, folder: &Path) -> PathBuf {
        let folder = folder.join(self.crate_name);
        fs::create_dir(&folder).unwrap();
        let (cargo, out) = (self.cargo(&folder), folder.join("wheels"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&path)));
        let mut maturin = Command::new(python);
        maturin.args(["-m", "maturin", "build", "--locked", "--profile", "dev"]);
        maturin.args(["--compression-method", "stored", "--out"]).arg(&out).arg("--interpreter").arg(python);
        must(maturin.current_dir(self.home).env("PATH", path.unwrap()).env("CARGO", cargo));
        fs::read_dir(out).unwrap().next().unwrap().unwrap().path()
    }
}

/// Where this Python finds packages.
fn packages(python: &Path) -> PathBuf {
    let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let said = must(Command::new(python).args(["-c", ask])).stdout;
    String::from_utf8(said).unwrap().trim_end().into()
}

/// The Python of an environment with these, to which the oracles are visible, and what is in those of their
/// folders that are named.
pub fn installed(python: &Path, all: &[Package<'_>], others: &[&str], folder: &Path) -> PathBuf {
    let home = folder.join("environment");
    must(Command::new(python).args(["-m", "venv", "--without-pip"]).arg(&home));
    let own = home.join("bin/python");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--disable-pip-version-check", "--python"]).arg(&own);
    pip.args(["install", "-q", "--no-index", "--no-deps", "--no-compile"]);
    must(pip.args(all.iter().map(|package| package.wheel(python, folder))));
    let visible = others.iter().map(|other| oracles().join(other)).chain([packages(python)]);
    let lines: String = visible.map(|place| format!("{}\n", place.display())).collect();
    fs::write(packages(&own).join("oracles.pth"), lines).unwrap();
    own
}

/// Runs the tests of a package in such an environment; `NEARSIDE_PYTEST="-k fsspec -x"` runs some of them.
pub fn pytest(test: &str, python: &Path, home: &str, arguments: &[&str], folder: &Path) {
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "--basetemp"]).arg(folder.join("pytest")).args(arguments);
    let some = std::env::var("NEARSIDE_PYTEST").unwrap_or_default();
    pytest.args(some.split_whitespace()).arg("tests");
    // The command, for tests with drives that are served.
    let command = std::env::current_exe().unwrap().parent().unwrap().with_file_name("nearside");
    match command.is_file() {
        true => drop(pytest.env("NEARSIDE_COMMAND", command)),
        false => needs::left_out(test, "served drives: the command is not built (cargo build)"),
    }
    let ran = must(pytest.current_dir(home).env("PYTHONDONTWRITEBYTECODE", "1"));
    println!("{}", String::from_utf8_lossy(&ran.stdout));
}
