//! `wc`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nearside_conformance::record;
use nearside_conformance::volume::{must, tool};
use nearside_random::Rng;

use super::{Both, cases};

const FLAGS: [[&str; 2]; 5] =
    [["-l", "--lines"], ["-w", "--words"], ["-m", "--chars"], ["-c", "--bytes"], ["-L", "--max-line-length"]];

/// White space of all kinds, characters of several bytes and widths, and bytes that are none.
const PIECES: [&[u8]; 18] = [
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
    "\u{4e16}\u{754c}e\u{301}".as_bytes(),
    "\u{1f600}".as_bytes(),
    "\u{a0}".as_bytes(),
    b"\xff",
    b"\xf0\x9f\x98",
    b"\xc3",
];

/// Pieces of each text.
const TEXTS: [usize; 6] = [0, 1, 20, 400, 30_000, 100_000];

/// A link, and what is no file, but for devices: GNU wc reads them, and we do not.
const OTHERS: [&str; 7] = ["/missing", "/dangling", "/loop", "/text/link", "/one", "/empty/", "/to-folder"];

/// Texts: what the tree's files hold has no words.
fn write_texts(root: &Path) {
    let folder = root.join("text");
    fs::create_dir(&folder).unwrap();
    let mut random = Rng(3);
    for (nth, pieces) in TEXTS.into_iter().enumerate() {
        let text: Vec<u8> = (0..pieces).flat_map(|_| random.pick(&PIECES)).copied().collect();
        fs::write(folder.join(nth.to_string()), text).unwrap();
    }
    symlink("3", folder.join("link")).unwrap();
}

#[test]
fn random_flags_count_what_wc_counts() {
    let test = "root_gnu::random_flags_count_what_wc_counts";
    let Some(both) = Both::with(test, &["wc"], write_texts) else { return };
    let files = both.files(1 << 20);
    let texts: Vec<OsString> = (0..TEXTS.len()).map(|nth| format!("/text/{nth}").into()).collect();
    // From coreutils 9.5 on what cannot be printed is part of a word, and before it is not, as here.
    let new_words = {
        let printed = must(tool("sh").args(["-c", "printf '\\377' | LC_ALL=C wc -w"]));
        printed.stdout.trim_ascii() == b"1"
    };
    let mut unlike = Vec::new();
    for seed in 0..cases() {
        let mut random = Rng(seed);
        let mut flags = Vec::new();
        for names in FLAGS {
            if random.in_of(2, 5) {
                flags.push(random.pick(&names));
            }
        }
        // Words are those of the C locale here, whatever the locale is.
        let words = flags.is_empty() || flags.iter().any(|flag| ["-w", "--words"].contains(flag));
        let locale = if words { "C" } else { random.pick(&["C", "C.UTF-8"]) };
        let mut paths: Vec<&OsStr> = Vec::new();
        for _ in 0..1 + random.below(4) {
            paths.push(match random.below(6) {
                0 => OsStr::new(random.pick(&OTHERS)),
                1 | 2 => &files[random.index(files.len())],
                _ if words && new_words => &files[random.index(files.len())],
                _ => &texts[random.index(texts.len())],
            });
        }
        let ran = both.run_and_hear("wc", (&flags, &flags), &paths, &[("LC_ALL", locale)]);
        unlike.extend(ran.err().map(|why| format!("seed {seed}: {why}")));
    }
    record::alike("random_flags_count_what_wc_counts", cases(), 0, &unlike);
}
