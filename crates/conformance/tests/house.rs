//! The rules of the house that a machine can hold: who may know whom, how long a file may be, where `unsafe` may stand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Who may know whom. A crate that is not here does not exist; a folder without a line fails the test.
/// Programs and measurements (`cli`, `demo`, `bench`, `studies`, `conformance`) may know all below them, and nobody may know `cli`.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("spec", &[]),
    ("dma", &[]),
    ("clock", &["dma"]),
    ("media", &[]),
    ("store", &["dma", "clock", "media"]),
    ("ftl", &["dma", "clock", "media", "store"]),
    ("stores", &["dma", "clock", "media", "store", "ftl"]),
    ("fsview", &[]),
    ("near-data", &[]),
    ("ndp", &["near-data"]),
    ("fsr", &["near-data", "fsview", "ndp"]),
    ("device", &["spec", "near-data", "dma", "clock", "store"]),
    ("firmware", &["device", "spec", "near-data", "dma", "clock", "store", "fsr"]),
    ("driver", &["spec", "dma", "clock"]),
    ("front-loop", &["device", "driver", "dma", "clock", "store"]),
    ("front-tcp", &["device", "spec", "dma", "clock", "store"]),
    ("front-fuse", &["device", "driver", "front-loop", "spec", "near-data", "dma", "clock", "store"]),
    // FSRLib's two other ways (the host locates; the host does it all) are the drive's own retriever over a medium of reads: one
    // walk, one permission check, one glob, so that what is compared is where the work is done.
    ("fsrlib", &["driver", "spec", "near-data", "dma", "clock", "fsr"]),
    ("embedded", &["device", "firmware", "front-loop", "driver", "fsrlib", "store", "clock"]),
    ("fsrlib-c", &["fsrlib", "embedded", "device", "driver", "store", "clock", "spec"]),
    ("loadgen", &["dma", "clock", "driver"]),
    ("act", &["loadgen", "report"]),
    (
        "sim",
        &[
            "clock",
            "dma",
            "device",
            "firmware",
            "driver",
            "front-loop",
            "fsrlib",
            "loadgen",
            "media",
            "store",
            "ftl",
            "stores",
        ],
    ),
    ("report", &[]),
    // A target is a whole drive with its driver: the instrument begins where `embedded` does.
    (
        "instrument",
        &[
            "loadgen",
            "report",
            "sim",
            "media",
            "device",
            "front-loop",
            "driver",
            "store",
            "stores",
            "dma",
            "clock",
        ],
    ),
];

const PROGRAMS: &[&str] = &["conformance", "hostile", "bench", "studies", "demo", "cli"];

fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let short = |name: &str| name.strip_prefix("nearside-").map(str::to_owned);
    let packages = json["packages"].as_array().unwrap().iter();
    packages
        .map(|p| {
            let deps = p["dependencies"].as_array().unwrap().iter();
            let known = deps
                .filter(|d| d["kind"].is_null()) // neither dev- nor build-dependencies
                .filter_map(|d| short(d["name"].as_str().unwrap()))
                .collect();
            (short(p["name"].as_str().unwrap()).unwrap(), known)
        })
        .collect()
}

#[test]
fn knowledge_flows_one_way() {
    let found = dependencies();
    assert!(found.len() > 10, "cargo metadata shows the workspace");
    for (name, knows) in &found {
        assert!(!knows.contains("cli"), "{name} knows cli");
        if PROGRAMS.contains(&name.as_str()) {
            continue;
        }
        let Some((_, may)) = MAY_KNOW.iter().find(|(n, _)| n == name) else {
            panic!("crate {name} has no line in MAY_KNOW: say whom it may know");
        };
        for known in knows {
            assert!(may.contains(&known.as_str()), "{name} may not know {known}");
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().unwrap() != "target" {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("crates"), &mut found);
    found
}

#[test]
fn files_stay_readable() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= 1000, "{} has {lines} lines: it holds more than one idea", path.display());
        let documented = text.starts_with("//!") || text.starts_with("#!");
        assert!(documented, "{} does not begin with what it is", path.display());
    }
}

#[test]
fn unsafe_lives_in_its_crates() {
    for (path, text) in sources() {
        let name = path.strip_prefix(root().join("crates")).unwrap().iter().next().unwrap().to_owned();
        if name == "dma" || name == "fsrlib-c" || path.ends_with("house.rs") {
            continue;
        }
        let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
        for line in code {
            assert!(!line.contains("allow(unsafe_code"), "{} allows unsafe code", path.display());
        }
    }
}

#[test]
fn every_dependency_has_its_reason() {
    let reasons = std::fs::read_to_string(root().join("docs/DEPENDENCIES.md")).unwrap();
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let outside = manifest
        .lines()
        .skip_while(|l| *l != "[workspace.dependencies]")
        .skip(1)
        .take_while(|l| !l.starts_with('['));
    for line in outside.filter(|l| !l.starts_with("nearside-") && !l.starts_with('#') && l.contains('=')) {
        let name = line.split('=').next().unwrap().trim();
        assert!(reasons.contains(name), "{name} has no line in docs/DEPENDENCIES.md");
    }
}
