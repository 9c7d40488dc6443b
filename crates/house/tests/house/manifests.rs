//! What the manifests say: who depends on whom, on what, and under which lints.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::sources::{read, root, sources};

pub struct Manifest {
    /// The crate's folder: `crates/ndp`, `fuzz`.
    pub home: String,
    table: Table,
}

/// Everything but the workspace's own.
pub fn manifests() -> Vec<Manifest> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let mut homes: Vec<_> =
        crates.map(|c| format!("crates/{}", c.unwrap().file_name().to_str().unwrap())).collect();
    homes.push("fuzz".to_owned());
    homes.sort();
    homes.into_iter().map(|home| Manifest { table: parsed(&format!("{home}/Cargo.toml")), home }).collect()
}

fn parsed(path: &str) -> Table {
    read(path).parse().unwrap_or_else(|e| panic!("{path}: {e}"))
}

impl Manifest {
    pub fn short(&self) -> &str {
        self.home.strip_prefix("crates/").unwrap_or(&self.home)
    }

    /// The names in this section: `dependencies` or `dev-dependencies`.
    pub fn names(&self, section: &str) -> BTreeSet<String> {
        let table = self.table.get(section).and_then(Value::as_table);
        table.into_iter().flat_map(Table::keys).cloned().collect()
    }

    /// The crates of the workspace that the crate itself, tests aside, is built on.
    pub fn knows(&self) -> BTreeSet<String> {
        let all = self.names("dependencies").into_iter();
        all.filter_map(|d| d.strip_prefix("nearside-").map(str::to_owned)).collect()
    }
}

/// The crates in which `unsafe` may stand: memory that a drive shares, a C ABI, what Python's DataFusion
/// hands over, callbacks of OpenSSL, and jumps to it.
const WITH_UNSAFE: &[&str] =
    &["crates/dma", "crates/fsrlib-c", "crates/openssl-loader", "crates/python-sql", "crates/tls"];

#[test]
fn everything_is_built_under_the_lints_of_the_workspace() {
    let lints = parsed("Cargo.toml")["workspace"]["lints"].clone();
    let mut with_unsafe = lints.clone();
    with_unsafe["rust"].as_table_mut().unwrap().remove("unsafe_code");
    for Manifest { home, table } in manifests() {
        let own = table.get("lints").unwrap_or_else(|| panic!("{home}: no lints.workspace = true"));
        if WITH_UNSAFE.contains(&home.as_str()) {
            assert_eq!(*own, with_unsafe, "{home}: may hold unsafe code, and has every other lint");
        } else {
            let taken = own.get("workspace").and_then(Value::as_bool) == Some(true);
            assert!(taken, "{home}: a crate without lints.workspace = true is checked by nobody");
        }
        if let Some(workspace) = table.get("workspace") {
            assert_eq!(
                workspace["lints"], lints,
                "{home}: a workspace of its own has the lints of the other"
            );
        }
    }
}

#[test]
fn unsafe_lives_in_its_crates() {
    for source in sources().iter().filter(|s| !WITH_UNSAFE.contains(&s.home())) {
        let mut code = source.text.lines().filter(|l| !l.trim_start().starts_with("//"));
        let allows = code.any(|line| line.contains(concat!("allow(", "unsafe_code")));
        assert!(!allows, "{} allows unsafe code: it belongs into {WITH_UNSAFE:?}", source.path);
    }
}

/// What is built without a program for the tests within it has none.
#[test]
fn no_test_is_never_run() {
    let (sources, mark) = (sources(), concat!("#[", "test]"));
    for Manifest { home, table } in manifests() {
        let library = table.get("lib").map(|lib| (lib, "src/"));
        let programs = table.get("bin").and_then(Value::as_array).into_iter().flatten();
        let programs = programs.filter_map(|bin| Some((bin, bin.get("path")?.as_str()?)));
        for (target, place) in library.into_iter().chain(programs) {
            let untested = target.get("test").and_then(Value::as_bool) == Some(false);
            let place = format!("{home}/{place}");
            let within = sources.iter().find(|s| s.path.starts_with(&place) && s.text.contains(mark));
            assert!(!untested || within.is_none(), "{}: tests that never run", within.unwrap().path);
        }
    }
}

/// Found by name, in code and in examples of the documentation.
#[test]
fn no_dependency_is_unused() {
    let sources = sources();
    let mut unused = Vec::new();
    for manifest in manifests() {
        let (mut product, mut rest) = (BTreeSet::new(), BTreeSet::new());
        for source in sources.iter().filter(|s| s.home() == manifest.home) {
            let inside = &source.path[manifest.home.len() + 1..];
            let is_rest = inside.starts_with("tests/") || inside.starts_with("benches/");
            if is_rest { &mut rest } else { &mut product }.extend(source.words());
        }
        rest.extend(product.iter().cloned());
        for (section, words) in [("dependencies", product), ("dev-dependencies", rest)] {
            let idle = manifest.names(section).into_iter().filter(|name| !words.contains(&library(name)));
            unused.extend(idle.map(|name| format!("{}: {section}.{name}", manifest.home)));
        }
        let twice = &manifest.names("dependencies") & &manifest.names("dev-dependencies");
        unused.extend(twice.into_iter().filter(|name| !manifest.adds_features(name)).map(|name| {
            format!("{}: dev-dependencies.{name}, which is among its dependencies already", manifest.home)
        }));
    }
    assert!(
        unused.is_empty(),
        "what nobody uses is built and audited for nothing; what only tests use is a dev-dependency:\n{}",
        unused.join("\n")
    );
}

/// What code calls the package.
fn library(package: &str) -> String {
    match package {
        "md-5" => "md5".to_owned(),
        "perf-event2" => "perf_event".to_owned(),
        "nearside-fsrlib-c" => "nearside".to_owned(),
        _ => package.replace('-', "_"),
    }
}

impl Manifest {
    fn adds_features(&self, name: &str) -> bool {
        self.table["dev-dependencies"][name].get("features").is_some()
    }
}

/// How many crates the column names before it says "many".
const NAMED: usize = 8;

#[test]
fn every_dependency_has_its_reason_and_its_users() {
    let document = read("docs/DEPENDENCIES.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter(|l| l.starts_with("| "))
        .skip(1)
        .map(|l| l.trim_matches('|').split('|').map(str::trim).collect())
        .filter(|row: &Vec<&str>| !row[0].starts_with("---"))
        .collect();
    let manifests = manifests();
    let mut outside = BTreeSet::new();
    for manifest in &manifests {
        let names = manifest.names("dependencies").into_iter().chain(manifest.names("dev-dependencies"));
        outside.extend(names.filter(|name| !name.starts_with("nearside-")));
    }
    let mut wrong = Vec::new();
    for name in &outside {
        let users = users(name, &manifests);
        match rows.iter().find(|row| row[0] == name) {
            None => wrong.push(format!("{name} has no line: say why it and not our own code")),
            Some(row) if row[1] != users => {
                wrong.push(format!("{name} is used by \"{users}\", not by \"{}\"", row[1]));
            }
            Some(_) => {}
        }
    }
    let gone = rows.iter().filter(|row| !outside.contains(row[0]));
    wrong.extend(gone.map(|row| format!("{} has a line, and no user", row[0])));
    let listed = parsed("Cargo.toml")["workspace"]["dependencies"].as_table().unwrap().clone();
    let idle = listed.keys().filter(|n| !n.starts_with("nearside-") && !outside.contains(*n));
    wrong.extend(idle.map(|name| format!("{name} stands in the workspace's manifest, and in no other")));
    assert!(wrong.is_empty(), "docs/DEPENDENCIES.md:\n{}", wrong.join("\n"));
}

/// `cli, dma; tests of act`
fn users(name: &str, manifests: &[Manifest]) -> String {
    let of = |section| {
        let users = manifests.iter().filter(|m| m.names(section).contains(name));
        users.map(Manifest::short).collect::<BTreeSet<_>>()
    };
    let (products, tests) = (of("dependencies"), of("dev-dependencies"));
    let said = |users: &BTreeSet<&str>| match users.len() {
        0 => None,
        1..=NAMED => Some(users.iter().copied().collect::<Vec<_>>().join(", ")),
        _ => Some("many".to_owned()),
    };
    let tests = said(&(&tests - &products)).map(|tests| format!("tests of {tests}"));
    said(&products).into_iter().chain(tests).collect::<Vec<_>>().join("; ")
}
