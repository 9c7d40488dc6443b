//! `wc` and `cksum` against coreutils, on texts and lists that chance makes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use nearside_conformance::needs;
use nearside_random::Rng;

use crate::fixture::{Ran, Volume, ext4, nearside, small};

/// Words, white space, characters of several bytes and widths, and bytes that are none.
const PIECES: [&[u8]; 20] = [
    b"word",
    b"x",
    b" ",
    b"\t",
    b"\n",
    b"\n\n",
    b"\r",
    b"\x0c",
    b"\x0b",
    b"\0",
    b"\x1b[m",
    "\u{e9}".as_bytes(),
    "\u{4e16}\u{754c}".as_bytes(),
    "e\u{301}".as_bytes(),
    "\u{1f600}".as_bytes(),
    "\u{a0}".as_bytes(),
    b"\xff",
    b"\xe4\xb8",
    b"\xf0\x9f\x98",
    b"\xc3",
];

const TEXTS: [&str; 6] = ["/0", "/1", "/2", "/3", "/4", "/5"];

fn make() -> Volume {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut random = Rng(3);
    for (name, pieces) in TEXTS.iter().zip([0, 1, 20, 400, 30_000, 300_000]) {
        let text: Vec<u8> = (0..pieces).flat_map(|_| random.pick(&PIECES)).copied().collect();
        fs::write(tree.join(&name[1..]), text).unwrap();
    }
    ext4(folder, tree, 32)
}

fn texts(test: &str) -> Option<&'static Volume> {
    static TEXTS: OnceLock<Volume> = OnceLock::new();
    needs::tools(test, &["mke2fs", "wc"]).then(|| TEXTS.get_or_init(make))
}

#[test]
fn wc_counts_characters_and_columns_as_wc_does() {
    let Some(volume) = texts("command::wc_counts_characters_and_columns_as_wc_does") else { return };
    for locale in ["C", "C.UTF-8"] {
        for flags in
            [&["-m"][..], &["-L"], &["-c"], &["-mc"], &["-lL"], &["-lmcL"], &["--chars", "--max-line-length"]]
        {
            for files in [&TEXTS[..], &TEXTS[..2], &TEXTS[3..4], &TEXTS[5..]] {
                let mut ours = nearside();
                ours.env("LC_ALL", locale).arg("wc").arg("-d").arg(&volume.image).args(flags).args(files);
                let mut theirs = Command::new("wc");
                theirs.env("LC_ALL", locale).current_dir(&volume.tree).args(flags);
                theirs.args(files.iter().map(|file| &file[1..]));
                let ours = Ran::from(ours.output().unwrap()).good();
                let theirs = Ran::from(theirs.output().unwrap()).good();
                assert_eq!(ours.replace('/', ""), theirs, "{locale} {flags:?} {files:?}");
            }
        }
    }
    // In the C locale words are those of C, whoever counts.
    let flags = ["-wL", "/2", "/3", "/4"];
    assert_eq!(volume.run("wc", &flags).good(), volume.tool("wc", &flags).text());
    let below = volume.run("wc", &["-rL", "/"]).good();
    assert_eq!(below.replace('/', ""), volume.tool("wc", &["-L", "0", "1", "2", "3", "4", "5"]).text());
    let json = volume.run("wc", &["--json", "-L", "/0"]).json().remove(0);
    assert_eq!(json["max_line_length"], 0);
    assert_eq!((&json["bytes"], &json["chars"]), (&0.into(), &serde_json::Value::Null));
}

/// Each algorithm, and the tool that has it.
const SUMS: [(&str, &str); 7] = [
    ("md5", "md5sum"),
    ("sha1", "sha1sum"),
    ("sha224", "sha224sum"),
    ("sha256", "sha256sum"),
    ("sha384", "sha384sum"),
    ("sha512", "sha512sum"),
    ("blake2b", "b2sum"),
];

const FILES: [&str; 5] = ["/hello.txt", "/large", "/empty", "/logs/a.log", "/binary"];

#[test]
fn checksums_are_those_of_the_tools() {
    let Some(volume) = small("command::checksums_are_those_of_the_tools") else { return };
    for (algorithm, tool) in SUMS {
        for flags in [&[][..], &["--tag"]] {
            let ours = volume.run("cksum", &[&["-a", algorithm], flags, &FILES].concat());
            assert_eq!(
                ours.good(),
                volume.tool(tool, &[flags, &FILES].concat()).text(),
                "{algorithm} {flags:?}"
            );
        }
    }
    assert_eq!(
        volume.run("cksum", &[&["-a", "crc"], &FILES[..]].concat()).good(),
        volume.tool("cksum", &FILES).text()
    );
    // What is a directory has none, and the others have theirs.
    let ran = volume.run("cksum", &["-a", "md5", "--tag", "--untagged", "/logs", "/empty"]);
    assert_eq!((ran.code, &*ran.text()), (1, "d41d8cd98f00b204e9800998ecf8427e  /empty\n"));
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    let tree = volume.run("cksum", &["-a", "sha1", "-r", "/logs"]).good();
    let same = volume
        .tool("sha1sum", &["/logs/.hidden.log", "/logs/a.log", "/logs/b.log", "/logs/old/c.log"])
        .text();
    assert_eq!(tree, same);
}

/// A list as a tool writes it, spoiled here and there.
fn list(random: &mut Rng, volume: &Volume, tool: &str) -> Vec<u8> {
    let flags: &[&str] = if random.in_of(1, 2) { &["--tag"] } else { &[] };
    let files = ["hello.txt", "logs/b.log", "empty", "binary", "no-newline"];
    let whole = volume.tool(tool, &[flags, &files].concat()).out;
    let mut text = Vec::new();
    for line in whole.split_inclusive(|b| *b == b'\n') {
        let mut line = line[..line.len() - 1].to_vec();
        match random.below(12) {
            0 => line[random.index(20)..].rotate_left(1),
            1 => line.truncate(random.index(line.len())),
            2 => line.extend(b"-that-is-not-there"),
            3 => line.insert(0, b'#'),
            4 => line.insert(0, b'\\'),
            5 => line.insert(0, b' '),
            6 => line.push(b'\r'),
            7 => line.make_ascii_uppercase(),
            8 => {
                let digit = line.iter().rposition(|b| b.is_ascii_digit()).unwrap();
                line[digit] = b'0' + (line[digit] - b'0' + 1) % 10;
            }
            _ => {}
        }
        text.extend(line);
        text.push(b'\n');
        if random.in_of(1, 8) {
            text.extend(random.pick(&[&b"\n"[..], b"\r\n", b" \n"]));
        }
    }
    if random.in_of(1, 4) {
        text.pop();
    }
    text
}

#[test]
fn lists_are_checked_as_the_tools_check_them() {
    let Some(volume) = small("command::lists_are_checked_as_the_tools_check_them") else { return };
    let path: PathBuf = volume.folder.path().join("list");
    let path = path.to_str().unwrap();
    let mut codes = [0; 2];
    for seed in 0..60 {
        let mut random = Rng(seed);
        let (algorithm, tool) = random.pick(&SUMS);
        let text = list(&mut random, volume, tool);
        fs::write(path, &text).unwrap();
        // Of the last three the last counts.
        let mut flags: Vec<&str> = (0..random.below(4))
            .map(|_| random.pick(&["--ignore-missing", "--strict", "--quiet", "-w", "--status"]))
            .collect();
        flags.push("-c");
        let ours = volume.run("cksum", &[&["-a", algorithm], &flags[..], &[path]].concat());
        let theirs =
            Command::new(tool).env("LC_ALL", "C").current_dir(&volume.tree).args(&flags).arg(path).output();
        let theirs = Ran::from(theirs.unwrap());
        let what =
            format!("seed {seed}: {tool} {flags:?}\n{}\n{}\n{}", text.escape_ascii(), ours.err, theirs.err);
        assert_eq!((ours.code, ours.text()), (theirs.code, theirs.text()), "{what}");
        assert_eq!(ours.err.is_empty(), theirs.err.is_empty(), "{what}");
        codes[ours.code as usize] += 1;
    }
    assert!(codes.iter().all(|n| *n > 5), "{codes:?}");
    // By standard input, with what only this command has; a list that is none of this host's.
    let own = volume.run("cksum", &["-a", "xxh3", "--tag", "/hello.txt", "/large"]).out;
    fs::write(path, own).unwrap();
    let mut stdin = nearside();
    stdin.args(["cksum", "--json", "-c", "-", "-d"]).arg(&volume.image).stdin(fs::File::open(path).unwrap());
    let checked = Ran::from(stdin.output().unwrap());
    assert!(
        checked.code == 0 && checked.json().iter().all(|line| line["matches"] == true),
        "{}",
        checked.err
    );
    let ran = volume.run("cksum", &["-c", "/hello.txt"]);
    assert_eq!((ran.code, ran.text()), (1, String::new()));
}
