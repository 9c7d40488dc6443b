//! `cksum`: sums, and lists of them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nearside_conformance::record;
use nearside_conformance::volume::{must, tool};
use nearside_random::Rng;

use super::{Both, cases, shown};

/// Those that coreutils has as well, but for `crc`, of which there are no lists.
const ALGORITHMS: [&str; 7] = ["md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b"];

/// What is no file, directories last.
const OTHERS: [&str; 5] = ["/missing", "/dangling", "/loop", "/one", "/empty"];

const CHECKS: [&str; 5] = ["--ignore-missing", "--strict", "--quiet", "-w", "--status"];

#[test]
fn random_flags_sum_what_cksum_sums() {
    let Some(both) = Both::make("root_gnu::random_flags_sum_what_cksum_sums", &["cksum"]) else { return };
    let files = both.files(1 << 20);
    let mut unlike = Vec::new();
    for seed in 0..cases() {
        let mut random = Rng(seed);
        let crc = random.in_of(1, 8);
        let algorithm = if crc { "crc" } else { random.pick(&ALGORITHMS) };
        let mut flags = vec!["-a", algorithm];
        // Of those that contradict each other the last counts; where there is none, GNU cksum's lines are
        // tagged, and ours are not.
        if !crc {
            flags.extend((0..1 + random.below(2)).map(|_| random.pick(&["--tag", "--untagged"])));
        }
        // GNU cksum says of a directory that it is one, and prints that sum nonetheless.
        let others = &OTHERS[..if crc { 3 } else { OTHERS.len() }];
        let mut paths: Vec<&OsStr> = Vec::new();
        for _ in 0..1 + random.below(4) {
            paths.push(match random.in_of(1, 6) {
                true => OsStr::new(random.pick(others)),
                false => &files[random.index(files.len())],
            });
        }
        let ran = both.run_and_hear("cksum", (&flags, &flags), &paths, &[]);
        unlike.extend(ran.err().map(|why| format!("seed {seed}: {why}")));
    }
    record::alike("random_flags_sum_what_cksum_sums", cases(), 0, &unlike);
}

/// A line that is no longer what it was, or still is.
fn spoil(random: &mut Rng, line: &mut Vec<u8>) {
    match random.below(14) {
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
}

/// A list as cksum writes it, of one algorithm or of several, spoiled here and there.
fn list(random: &mut Rng, both: &Both, files: &[OsString], algorithm: Option<&str>) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..1 + random.below(3) {
        // Lines that name none are of -a's; where that is not given, each command has another in mind.
        let (algorithm, style) = match algorithm {
            Some(algorithm) => (algorithm, random.pick(&["--tag", "--untagged"])),
            None => (random.pick(&ALGORITHMS), "--tag"),
        };
        let mut cksum = tool("cksum");
        cksum.current_dir(both.mount.path()).args(["-a", algorithm, style]);
        // Of no fewer, so that what is spoiled at its beginning is spoiled in the sum.
        if algorithm == "blake2b" {
            cksum.args(["--length", random.pick(&["128", "136", "256", "512"])]);
        }
        cksum.arg("--");
        for _ in 0..1 + random.below(3) {
            let name = &files[random.index(files.len())].as_bytes()[1..];
            // A name that is cut to a dash is standard input.
            let before = if name[0] == b'-' { "./" } else { random.pick(&["", "./"]) };
            cksum.arg(OsStr::from_bytes(&[before.as_bytes(), name].concat()));
        }
        let whole = must(&mut cksum).stdout;
        for line in whole.split_inclusive(|b| *b == b'\n') {
            let mut line = line[..line.len() - 1].to_vec();
            spoil(random, &mut line);
            text.extend(line);
            text.push(b'\n');
            if random.in_of(1, 8) {
                text.extend(random.pick(&[&b"\n"[..], b"\r\n", b" \n"]));
            }
        }
    }
    if random.in_of(1, 4) {
        text.pop();
    }
    text
}

/// Whether this machine's cksum says a name as lists have it; those before 9.2 or so escape line feeds alone.
fn says_names_as_listed(folder: &Path) -> bool {
    let folder = folder.join("names");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a\\b"), "").unwrap();
    let list = must(tool("cksum").current_dir(&folder).args(["-a", "md5", "--untagged", "a\\b"])).stdout;
    fs::write(folder.join("list"), list).unwrap();
    must(tool("cksum").current_dir(&folder).args(["-a", "md5", "-c", "list"])).stdout.starts_with(b"\\")
}

/// What is said of lists, without the program's name. Of the files in them each has words of its own.
fn of_lists(said: &[u8], folder: &Path) -> Vec<String> {
    let said = String::from_utf8_lossy(said);
    let folder = folder.to_str().expect("a folder's name in UTF-8");
    let words = said.lines().filter_map(|line| line.split_once(": ").map(|(_, words)| words));
    let of_one = |words: &&str| words.starts_with("WARNING: ") || words.starts_with(folder);
    words.filter(of_one).map(str::to_owned).collect()
}

#[test]
fn random_lists_are_checked_as_cksum_checks_them() {
    let test = "root_gnu::random_lists_are_checked_as_cksum_checks_them";
    let Some(both) = Both::make(test, &["cksum"]) else { return };
    let mut files = both.files(1 << 20);
    if !says_names_as_listed(both.folder.path()) {
        files.retain(|name| !name.as_bytes().iter().any(|byte| b"\\\r".contains(byte)));
    }
    let [first, second, missing] = ["first", "second", "none"]
        .map(|name| both.folder.path().join(name).to_str().expect("a folder's name in UTF-8").to_owned());
    let none: [&str; 0] = [];
    let (mut unlike, mut codes) = (Vec::new(), [0u64; 2]);
    for seed in 0..cases() {
        let mut random = Rng(seed);
        let algorithm = (!random.in_of(1, 4)).then(|| random.pick(&ALGORITHMS));
        let mut flags: Vec<&str> = algorithm.map_or(vec![], |algorithm| vec!["-a", algorithm]);
        // Of the last three the last counts.
        flags.extend((0..random.below(4)).map(|_| random.pick(&CHECKS)));
        flags.push("-c");
        let mut texts = Vec::new();
        for place in [&first, &second].into_iter().take(1 + random.index(2)) {
            let text = list(&mut random, &both, &files, algorithm);
            fs::write(place, &text).unwrap();
            flags.push(place);
            texts.push(text.escape_ascii().to_string());
        }
        if random.in_of(1, 10) {
            flags.push(&missing);
        }
        let (outputs, said) = both.outputs("cksum", (&flags, &flags), &none, &[]);
        let folder = both.folder.path();
        let heard = outputs.each_ref().map(|ran| (ran.stderr.is_empty(), of_lists(&ran.stderr, folder)));
        let [ours, theirs] = outputs.each_ref().map(|ran| both.answer(ran));
        if ours == theirs && heard[0] == heard[1] {
            codes[usize::from(ours.code != Some(0))] += 1;
        } else {
            let answers = shown(&said, &ours, &theirs);
            unlike.push(format!("seed {seed}: {}\n{answers}", texts.join("\n")));
        }
    }
    record::alike("random_lists_are_checked_as_cksum_checks_them", cases(), 0, &unlike);
    assert!(codes.iter().all(|n| *n >= cases() / 8), "{codes:?}");
}
