//! Records what libFuzzer came to, where `NEARSIDE_RECORD` asks for records (`conformance::record`):
//! `cargo run -p nearside-hostile --example record -- TARGET.log...`, as `scripts/fuzz.sh` leaves them, adds
//! a line for each to `MACHINE/DATE-fuzz.jsonl`.

use std::path::Path;

use nearside_conformance::record;

/// The number behind the last of those words in a log.
fn number(log: &str, words: &str) -> Option<u64> {
    let behind = log.rsplit_once(words)?.1.trim_start();
    behind.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args_os().skip(1) {
        let log = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        let target = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let found =
            |words: &str| number(&log, words).ok_or_else(|| format!("{target}: no \"{words}\" in its log"));
        // A finding ends the run: what libFuzzer and the sanitizers say then has one such line.
        let unlike = log.lines().filter(|line| line.starts_with("SUMMARY: ")).count();
        record::add(
            "fuzz",
            "libfuzzer",
            &[
                ("configuration", target.as_str().into()),
                ("seed", found("INFO: Seed: ")?.into()),
                ("inputs", found("stat::number_of_executed_units:")?.into()),
                ("seconds", found(" runs in ")?.into()),
                ("edges", found(" cov: ")?.into()),
                ("unlike", unlike.into()),
            ],
        );
    }
    Ok(())
}
