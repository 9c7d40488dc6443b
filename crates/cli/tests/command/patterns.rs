//! Patterns held against those whose they are: the C library's fnmatch, find, and bash (docs/PATTERNS.md).

use std::collections::BTreeSet;
use std::fs::{self, File};

use nearside_conformance::needs;
use nearside_conformance::volume::{must, tool};
use nearside_fsrlib::{Reading, fnmatch};
use nearside_random::Rng;

use crate::fixture::{Volume, ext4, nearside};

/// What patterns are made of here. They are whole: of those that are not, C libraries think differently.
const PATTERNS: &str = "a b A 5 - . / ! ^ ] } , * ** ? [ab] [!a] [^a] [a-c] [A-C] []a] [a-] [!]] [\\]a] [a-\\z] \
    [[:alpha:]] [![:upper:]_] [[:lower:]] [[:digit:]5a] [[:punct:]] [[:space:]] [[:alnum:]] \\* \\[ \\a \\\\ é É 世 \
    [à-ï] [!é] [É]";
const NAMES: &str = "a b c A C z 5 - . / ! ] [ * \\ _ é É 世 ü";

fn drawn(random: &mut Rng, pieces: &str, most: u64) -> Vec<u8> {
    let pieces: Vec<&str> = pieces.split_whitespace().collect();
    let count = random.below(most + 1);
    let mut text: Vec<u8> = (0..count).flat_map(|_| random.pick(&pieces).bytes()).collect();
    if random.in_of(1, 8) {
        text.extend(random.pick(&[&b"\xff"[..], b" "]));
    }
    text
}

/// Reads lines of a pattern, a name and flags, and says of each whether they match.
const LIBRARY: &str = "\
import ctypes, locale, sys
locale.setlocale(locale.LC_ALL, '')
fnmatch = ctypes.CDLL(None).fnmatch
for line in sys.stdin:
    pattern, name, flags = line.split(' ')
    print(int(fnmatch(bytes.fromhex(pattern), bytes.fromhex(name), int(flags)) == 0))
";
const FNM_CASEFOLD: u32 = 1 << 4;

#[test]
fn fnmatch_is_the_c_librarys() {
    let Some(folder) = needs::folder("command::fnmatch_is_the_c_librarys", &["python3"]) else { return };
    let mut random = Rng(1);
    let cases: Vec<(Vec<u8>, Vec<u8>, bool)> = (0..20_000)
        .map(|_| {
            let pattern = drawn(&mut random, PATTERNS, 5);
            (pattern, drawn(&mut random, NAMES, 4), random.in_of(1, 3))
        })
        .collect();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines = cases.iter().map(|(pattern, name, ignore_case)| {
        let flags = if *ignore_case { FNM_CASEFOLD } else { 0 };
        format!("{} {} {flags}\n", hex(pattern), hex(name))
    });
    let file = folder.path().join("cases");
    fs::write(&file, lines.collect::<String>()).unwrap();
    for (locale, utf8) in [("C", false), ("C.UTF-8", true)] {
        let mut library = tool("python3");
        library.args(["-c", LIBRARY]).env("LC_ALL", locale).stdin(File::open(&file).unwrap());
        let said = must(&mut library).stdout;
        assert_eq!(said.len(), 2 * cases.len());
        let mut matching = 0;
        for ((pattern, name, ignore_case), said) in cases.iter().zip(said.chunks(2)) {
            let ours = fnmatch(pattern, name, Reading { utf8, ignore_case: *ignore_case });
            let texts = [pattern, name].map(|bytes| String::from_utf8_lossy(bytes));
            assert_eq!(ours, said == b"1\n", "{locale} {texts:?} ignoring case: {ignore_case}");
            matching += u32::from(ours);
        }
        assert!(matching > 500, "{matching}");
    }
}

const TREE: [&str; 9] = ["a", "b", "ab", ".h", "é", "*", "x", "x.log", "[id]"];

/// A volume of files by random paths of these names, all in `/top`.
fn volume(test: &str) -> Option<Volume> {
    let folder = needs::folder(test, &["mke2fs", "bash", "find"])?;
    let tree = folder.path().join("tree");
    let mut random = Rng(3);
    for _ in 0..120 {
        let names: Vec<&str> = (0..=random.below(4)).map(|_| random.pick(&TREE)).collect();
        let file = tree.join("top").join(names.join("/"));
        // A file that stands where a directory would, and the reverse, stays.
        let _ = fs::create_dir_all(file.parent().unwrap()).and_then(|()| fs::write(&file, "x"));
    }
    Some(ext4(folder, tree, 16))
}

/// Paths, each of which ends so.
fn paths(text: &[u8], end: u8) -> BTreeSet<String> {
    let paths = text.split(|byte| *byte == end).map(|path| String::from_utf8(path.to_vec()).unwrap());
    paths.filter(|path| !path.is_empty()).collect()
}

/// Expands each line as a pattern; what belongs together ends with a byte of 1.
const SHELL: &str = "cd \"$0\" && shopt -s globstar dotglob nullglob && while IFS= read -r pattern; do \
    eval \"set -- $pattern\"; printf '/%s\\0' \"$@\"; printf '\\1'; done";

#[test]
fn our_own_patterns_are_a_shells() {
    let Some(volume) = volume("command::our_own_patterns_are_a_shells") else { return };
    let components = "* ? a* [ab]* [!a]* {a,b} {a,{b,ab}} .h *.log x{,.log} [[:alpha:]]* [[:alpha:]] é [à-ï] \\* \
        \\[id\\] {a/b,b/*,x} ** **";
    let components: Vec<&str> = components.split_whitespace().collect();
    let mut random = Rng(5);
    let mut pattern = || {
        let mut names: Vec<&str> = (0..=random.below(3)).map(|_| random.pick(&components)).collect();
        // At the end `**` is what is below for us, and for a shell the directory as well.
        if names.ends_with(&["**"]) {
            names.push("*");
        }
        format!("top/{}", names.join("/"))
    };
    let patterns: Vec<String> = (0..60).map(|_| pattern()).collect();
    let file = volume.folder.path().join("patterns");
    fs::write(&file, patterns.join("\n") + "\n").unwrap();
    let mut shell = tool("bash");
    shell.args(["--norc", "-c", SHELL]).arg(&volume.tree).env("LC_ALL", "C.UTF-8");
    let expanded = must(shell.stdin(File::open(&file).unwrap())).stdout;
    let expanded: Vec<&[u8]> = expanded.split(|byte| *byte == 1).collect();
    assert_eq!(expanded.len(), patterns.len() + 1);
    let mut matching = 0;
    for (pattern, theirs) in patterns.iter().zip(expanded) {
        let mut theirs = paths(theirs, 0);
        // What has no pattern in it, braces being gone, is a word for a shell, whatever there is.
        theirs.retain(|path| path != "/" && volume.tree.join(&path[1..]).symlink_metadata().is_ok());
        let mut ours = nearside();
        ours.env("LC_ALL", "C.UTF-8").args(["ls", "-D", "--glob", "-d"]).arg(&volume.image);
        let listed = ours.arg(format!("/{pattern}")).output().unwrap();
        let listed = paths(&listed.stdout, b'\n');
        assert_eq!(listed, theirs, "{pattern}");
        matching += listed.len();
    }
    assert!(matching > 200, "{matching}");
}

#[test]
fn find_has_the_characters_of_the_locale() {
    let Some(volume) = volume("command::find_has_the_characters_of_the_locale") else { return };
    for locale in ["C", "C.UTF-8"] {
        for test in ["-name ?", "-name ??", "-name [!a-z]", "-iname É", "-name [[:alpha:]]*", "-path */é/?"]
        {
            let test: Vec<&str> = test.split(' ').collect();
            let mut theirs = tool("find");
            theirs.env("LC_ALL", locale).current_dir(&volume.tree).arg("top").args(&test);
            let theirs = paths(&must(theirs.args(["-printf", "/%p\\n"])).stdout, b'\n');
            let mut ours = nearside();
            ours.env("LC_ALL", locale).args(["find", "-d"]).arg(&volume.image);
            let ours = paths(&must(ours.arg("/top").args(&test)).stdout, b'\n');
            assert_eq!(ours, theirs, "{locale} {test:?}");
        }
    }
}
