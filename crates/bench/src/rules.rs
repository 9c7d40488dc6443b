//! Rules of YARA over a tree: the whole command, beside `yara` on a mount of the same image, both with one
//! thread and the page cache warm.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nearside_instrument::Failure;
use nearside_instrument::kernel::LoopMount;
use nearside_instrument::volume::{self, Kind};
use nearside_random::Rng;

use crate::figures::Sink;
use crate::tables::{ORACLES, Ours, Peer, contest, on_one_cpu};

/// Bytes of a file.
const FILE: usize = 25_000;
/// What the peer does at each line that it is told: a whole process over the mounted tree, as ours is one.
const YARA: &str = r#"
import subprocess, sys, time
for path in map(str.strip, sys.stdin):
    begun = time.perf_counter()
    ran = subprocess.run(['yara', '-p', '1', '-r', sys.argv[1], path], capture_output=True, text=True, check=True)
    took = time.perf_counter() - begun
    print(took * 1e3, ';'.join(sorted(ran.stdout.replace(path, '').splitlines())), flush=True)
"#;

/// So many rules: of each three strings, one literal, one with a wildcard, one a regular expression.
fn write_rules(count: usize) -> String {
    let mut rules = String::new();
    for n in 0..count {
        let digits: Vec<String> = format!("{n:04}").bytes().map(|digit| format!("{digit:02x}")).collect();
        let _ = writeln!(
            rules,
            "rule r{n:04} {{ strings: $a = \"marker-{n:04}\" $b = {{ 73 69 67 ?? {} }} $c = /token-[0-9]{{2,6}}-{n:04}/ \
             condition: any of them }}",
            digits.join(" ")
        );
    }
    rules
}

/// So many files of words; in each about one that a rule looks for.
fn write_files(root: &Path, count: usize, rules: usize) -> Result<(), Failure> {
    let mut rng = Rng(1_000);
    let words: Vec<String> =
        (0..2_000).map(|_| format!("{:x} ", rng.draw() >> (24 + rng.below(32)))).collect();
    for n in 0..count {
        let mut text = String::with_capacity(FILE + 32);
        while text.len() < FILE {
            text.push_str(&words[rng.index(words.len())]);
            if rng.in_of(1, 2_500) {
                let rule = rng.below(rules as u64);
                let _ = match rng.below(3) {
                    0 => write!(text, "marker-{rule:04} "),
                    1 => write!(text, "sig/{rule:04} "),
                    _ => write!(text, "token-{}-{rule:04} ", 10 + rng.below(100_000)),
                };
            }
        }
        let folder = root.join(format!("folder-{:02}", n / 200));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("file-{n:05}.txt")), text)?;
    }
    Ok(())
}

/// Lines, sorted.
fn lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join(";")
}

/// Rules over files.
pub fn rules(fast: bool, sink: Sink<'_>) -> Result<(), Failure> {
    let (files, count, rounds) = if fast { (1_000, 1_000, 3) } else { (10_000, 1_000, 7) };
    if !Command::new("yara").arg("--version").stdout(Stdio::null()).status().is_ok_and(|ran| ran.success()) {
        eprintln!("  left out: yara is not installed (scripts/setup.sh bench)");
        return Ok(());
    }
    let folder = tempfile::tempdir_in("target")?;
    let (tree, image) = (folder.path().join("tree"), folder.path().join("rules.img"));
    let rules = folder.path().join("rules.yar");
    eprintln!("yara: making a volume of {files} files ...");
    write_files(&tree, files, count)?;
    fs::write(&rules, write_rules(count))?;
    volume::make(Kind::Ext4, &image, &tree, 1 << 30)?;
    fs::remove_dir_all(&tree)?;
    let Some(ours) = Ours::over(&image)? else { return Ok(()) };
    let mount = match LoopMount::new(&image) {
        Ok(mount) => mount,
        Err(e) => {
            eprintln!("  left out: no loop mount to stand beside: {e}");
            return Ok(());
        }
    };
    let at = rules.to_string_lossy().into_owned();
    let asked = ["yara", "-r", &at, "/"];
    let mut command = Command::new(ORACLES);
    command.args(["-c", YARA, &at]);
    on_one_cpu(|| {
        let mut peers: Vec<Peer> = Peer::of("yara", command).into_iter().collect();
        let work = format!("{count} rules over {files} files of 25 KB, whole process, one CPU");
        contest(&work, &mut || ours.run(&asked, lines), &mut peers, &mount.path("/"), rounds, sink)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_look_for_what_files_hold() {
        let folder = tempfile::tempdir().unwrap();
        write_files(folder.path(), 3, 10).unwrap();
        let text = fs::read_to_string(folder.path().join("folder-00/file-00002.txt")).unwrap();
        assert!(text.len() >= FILE && text.len() < FILE + 32);
        assert!(["marker-000", "sig/000", "token-"].iter().any(|word| text.contains(word)));
        let rules = write_rules(10);
        assert_eq!(rules.lines().count(), 10);
        assert!(
            rules.contains(
                "$a = \"marker-0007\" $b = { 73 69 67 ?? 30 30 30 37 } $c = /token-[0-9]{2,6}-0007/"
            )
        );
    }
}
