//! Programs by NVMe's own commands, with nothing but nvme-cli: as docs/PROGRAMS.md has it, line by line.

use std::path::Path;
use std::process::Command;

use nearside_conformance::programs::program;

use crate::guest::Guest;
use crate::{Server, image};

/// What the section says is to be typed in the guest.
fn lines() -> Vec<String> {
    let told = include_str!("../../../../docs/PROGRAMS.md");
    let (_, section) = told.split_once("## By NVMe's own commands").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    lines.filter(|line| !line.starts_with("nearside serve ")).map(str::to_owned).collect()
}

/// A program is loaded, blocks are copied to where it finds them, and it counts words as `wc` does.
pub fn runs_programs(guest: &mut Guest, test: &str, folder: &Path, port: u16, connect: &str) {
    let Some(words) = program(test, "words") else { return };
    let mut text: Vec<u8> = b"one two  three\nfour five\n".repeat(200);
    text.truncate(4096);
    let disk = folder.join("words.img");
    let store = image(&disk, 8);
    std::fs::write(&disk, [&text[..], &vec![0; (8 << 20) - text.len()]].concat()).unwrap();
    let server = Server::start(port, &["--store", &store, "--programs", "--compute", "64MiB"]);
    guest.sh(connect);
    guest.until("[ -b /dev/nvme0n1 -a -c /dev/ng0n2 -a -c /dev/ng0n3 ]");
    let code = Command::new("base64").arg("-w0").arg(words).output().unwrap();
    let code = String::from_utf8(code.stdout).unwrap();
    guest.sh(&format!("mkdir -p /tmp/p && echo {code} | base64 -d > /tmp/p/words.wasm"));
    // One shell: a line may say what the next needs.
    let typed = lines().join("\n");
    assert!(typed.lines().filter(|line| line.starts_with("nvme ")).count() >= 6, "{typed}");
    guest.sh(&format!("cd /tmp/p && set -e\n{typed}"));
    let plain = folder.join("words.txt");
    std::fs::write(&plain, &text).unwrap();
    let counted = Command::new("wc").env("LC_ALL", "C").arg(&plain).output().unwrap();
    let counted = String::from_utf8(counted.stdout).unwrap();
    let numbers = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(numbers(&guest.sh("cat /tmp/p/answer")), numbers(&counted));
    // The block side is a drive as any other, and what is refused is refused by its name.
    guest.sh("dd if=/dev/nvme0n1 of=/dev/null bs=4k count=4 iflag=direct");
    let refused = guest.refused("nvme io-passthru /dev/ng0n3 -o 1 -n 3 --cdw2=0x10009");
    assert!(refused.to_lowercase().contains("program") || refused.contains("196"), "{refused}");
    guest.sh(&format!("nvme disconnect -n {}", crate::NQN));
    server.stop();
}
