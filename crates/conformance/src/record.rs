//! Records of long runs in which what the drive shows was held to a kernel's own work.
//!
//! With the environment variable `NEARSIDE_RECORD` (the full path of `studies/record`) a test that can run
//! long adds a line for each part of its run to `MACHINE/DATE-NAME.jsonl` there: after the environment, as in
//! every record, lines of `"kind":"oracle"` with the test's name, the commit, and what the part was (its
//! configuration and seed) and came to (points or copies, and how many of them were `unlike`).

use std::fs::{File, create_dir_all};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nearside_loadgen::record::{Environment, Record};
use serde_json::{Map, Value};
use tempfile::NamedTempFile;

/// Adds a line of so many random cases that were asked of a tool as well, from that seed on, none of which
/// was unlike.
///
/// # Panics
/// As [`add`]; and where one was.
pub fn alike(test: &str, cases: u64, seed: u64, unlike: &[String]) {
    assert!(unlike.is_empty(), "{} are unlike\n{}", unlike.len(), unlike.join("\n\n"));
    add("gnu", test, &[("cases", cases.into()), ("seed", seed.into()), ("unlike", 0.into())]);
}

/// Adds a line to the record of this day and name, where the environment asks for records.
///
/// # Panics
/// Where it asks for one that cannot be written.
pub fn add(name: &str, test: &str, fields: &[(&str, Value)]) {
    let Some(root) = std::env::var_os("NEARSIDE_RECORD").filter(|root| !root.is_empty()) else { return };
    let now = SystemTime::UNIX_EPOCH.elapsed().as_ref().map_or(0, Duration::as_secs);
    let environment = Environment::gather(now);
    append(Path::new(&root), name, environment, test, fields)
        .unwrap_or_else(|e| panic!("the record below {}: {e}", root.display()));
}

fn append(
    root: &Path,
    name: &str,
    environment: Environment,
    test: &str,
    fields: &[(&str, Value)],
) -> io::Result<()> {
    let own = [("kind", "oracle"), ("test", test), ("commit", &environment.commit)];
    let mut line: Map<String, Value> =
        own.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
    line.extend(fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    let path = environment.record_path(root, name);
    if !path.exists() {
        let folder = path.parent().unwrap_or(root);
        create_dir_all(folder)?;
        let mut fresh = NamedTempFile::new_in(folder)?;
        fresh.write_all(Record::new(environment).to_lines().as_bytes())?;
        // Of several tests that run at a time one begins it.
        match fresh.persist_noclobber(&path) {
            Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists => return Err(e.error),
            _ => {}
        }
    }
    let mut file = File::options().append(true).open(&path)?;
    file.write_all(format!("{}\n", Value::from(line)).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_behind_one_environment() {
        let folder = tempfile::tempdir().unwrap();
        let environment = Environment {
            cpu: "A CPU".into(),
            cores: 2,
            date: "2026-01-02".into(),
            ..Environment::default()
        };
        for seed in 1..3u64 {
            let fields = [("configuration", "1k".into()), ("seed", seed.into()), ("unlike", 0.into())];
            append(folder.path(), "view", environment.clone(), "a_test", &fields).unwrap();
        }
        let read = std::fs::read_to_string(folder.path().join("a-cpu-2c/2026-01-02-view.jsonl")).unwrap();
        assert_eq!(Record::from_lines(&read).unwrap().environment, environment);
        let lines: Vec<Value> = read.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!((&lines[1]["kind"], &lines[2]["seed"]), (&"oracle".into(), &2.into()));
    }

    #[test]
    fn the_records_that_are_kept_say_how_much_was_unlike() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/record");
        let mut lines = 0;
        for machine in std::fs::read_dir(root).unwrap() {
            for file in std::fs::read_dir(machine.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                if !["-view.jsonl", "-fuzz.jsonl", "-gnu.jsonl"]
                    .iter()
                    .any(|end| path.to_str().unwrap().ends_with(end))
                {
                    continue;
                }
                let read = std::fs::read_to_string(&path).unwrap();
                assert!(Record::from_lines(&read).unwrap().environment.is_clean(), "{}", path.display());
                for line in read.lines().skip(1) {
                    let line: Value = serde_json::from_str(line).unwrap();
                    assert!(line["unlike"].is_u64() && line["seed"].is_u64(), "{line}");
                    assert!(line["commit"].as_str().is_some_and(|commit| !commit.contains('-')), "{line}");
                    lines += 1;
                }
            }
        }
        assert!(lines > 0, "no record of what is shown is kept");
    }
}
