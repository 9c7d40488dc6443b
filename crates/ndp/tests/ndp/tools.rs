//! The answers are those of grep, ripgrep, wc and the sum tools, file by file over real trees.
//!
//! Where a tool is missing the test says so and is left out; in CI it fails.

use nearside_ndp::{
    Answer, Checksum, Counter, Digest, Flow, Line, Search, SearchOptions, Searcher, Sink, Taken,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Enough for a fair sample, little enough for a test.
const FILES: usize = 1500;
const PIECE: usize = 40_000;

fn have(test: &str, tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        assert!(std::env::var_os("CI").is_none(), "{test} needs {tool}");
        eprintln!("LEFT OUT: {test}: no {tool} on this machine");
    }
    found
}

/// Real text, and some binary files: regular files, each with its bytes.
fn tree() -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let roots = ["/usr/share/doc", "/usr/include", "/usr/bin", env!("CARGO_MANIFEST_DIR")];
    for root in roots {
        let mut wait = vec![PathBuf::from(root)];
        let end = files.len() + FILES / roots.len();
        while let Some(folder) = wait.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            let mut entries: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
            entries.sort();
            for path in entries {
                let Ok(kind) = path.symlink_metadata() else { continue };
                if kind.is_dir() {
                    wait.push(path);
                } else if kind.is_file() && kind.len() < 2 << 20 && files.len() < end {
                    let bytes = std::fs::read(&path).unwrap();
                    files.push((path, bytes));
                }
            }
        }
    }
    files
}

fn lines_of(tool: &str, arguments: &[&str], files: &[(PathBuf, Vec<u8>)]) -> Vec<u8> {
    let mut all = Vec::new();
    for some in files.chunks(400) {
        let out = Command::new(tool)
            .env("LC_ALL", "C")
            .args(arguments)
            .args(some.iter().map(|(path, _)| path))
            .output()
            .unwrap();
        all.extend_from_slice(&out.stdout);
    }
    all
}

/// `PATH\0COUNT` lines.
fn counts(bytes: &[u8]) -> BTreeMap<PathBuf, u64> {
    let mut counts = BTreeMap::new();
    let mut rest = bytes;
    while let Some(nul) = rest.iter().position(|b| *b == 0) {
        let path = Path::new(OsStr::from_bytes(&rest[..nul])).to_owned();
        let end = rest[nul..].iter().position(|b| *b == b'\n').unwrap() + nul;
        counts.insert(path, std::str::from_utf8(&rest[nul + 1..end]).unwrap().parse().unwrap());
        rest = &rest[end + 1..];
    }
    counts
}

fn feed(searcher: &mut Searcher, bytes: &[u8], sink: &mut impl Sink) {
    searcher.begin(nearside_ndp::Position::default());
    for piece in bytes.chunks(PIECE) {
        if searcher.feed(piece, sink).unwrap() != Flow::More {
            return;
        }
    }
    assert_eq!(searcher.finish(sink).unwrap(), Flow::Done);
}

#[test]
fn counts_are_ripgreps_and_greps() {
    let files = tree();
    let same = |tool: &str, options: SearchOptions, arguments: &[&str]| {
        let expected = counts(&lines_of(tool, arguments, &files));
        let search = Arc::new(Search::compile(SearchOptions { answer: Answer::Count, ..options }).unwrap());
        let mut searcher = Searcher::new(&search);
        let mut some = 0;
        for (path, bytes) in &files {
            feed(&mut searcher, bytes, &mut ());
            let expected = expected.get(path).copied().unwrap_or(0);
            assert_eq!(searcher.found(), expected, "{tool} {arguments:?} {}", path.display());
            some += u64::from(expected > 0);
        }
        assert!(some > 0, "{arguments:?} finds nothing: a poor test");
    };
    let options = |patterns: &[&str]| SearchOptions {
        patterns: patterns.iter().map(|p| p.as_bytes().to_vec()).collect(),
        text: true,
        // Of files that are no text in no tool's sense; the C locale's for grep.
        bytes: true,
        ..SearchOptions::default()
    };
    if have("counts_are_ripgreps_and_greps", "rg") {
        let rg = |more: &[&str], options: SearchOptions| {
            let mut arguments = vec![
                "-a",
                "--no-ignore",
                "--hidden",
                "--no-unicode",
                "--no-config",
                "-c",
                "-0",
                "--with-filename",
            ];
            arguments.extend_from_slice(more);
            same("rg", options, &arguments);
        };
        rg(&["-F", "-e", "the"], SearchOptions { fixed: true, ..options(&["the"]) });
        rg(&["-F", "-e", "struct"], SearchOptions { fixed: true, ..options(&["struct"]) });
        let words = ["copyright", "license", "gnu"];
        rg(
            &["-F", "-i", "-e", words[0], "-e", words[1], "-e", words[2]],
            SearchOptions { fixed: true, ignore_case: true, ..options(&words) },
        );
        rg(&["-w", "-e", "int|the|e"], SearchOptions { word: true, ..options(&["int|the|e"]) });
        rg(&["-v", "-e", "^.*[aeiou]"], SearchOptions { invert: true, ..options(&["^.*[aeiou]"]) });
        rg(&["-x", "-e", r"\s*|#.*"], SearchOptions { line: true, ..options(&[r"\s*|#.*"]) });
        rg(&["-m", "3", "-e", "e$"], SearchOptions { max_count: Some(3), ..options(&["e$"]) });
        for regex in [
            r"[A-Z]{4,}_\w+\s*\(",
            r"\bfor\b.*\bthe\b",
            r"^\s*#\s*define\s+\w+\s+\d+$",
            r"[\x80-\xff]{3}",
            "^$",
            r"\w+@\w+\.(org|com)",
        ] {
            rg(&["-e", regex], options(&[regex]));
        }
    }
    if have("counts_are_ripgreps_and_greps", "grep") {
        let grep = |more: &[&str], options: SearchOptions| {
            let mut arguments = vec!["-a", "-c", "-Z", "-H"];
            arguments.extend_from_slice(more);
            same("grep", options, &arguments);
        };
        grep(&["-F", "-e", "include"], SearchOptions { fixed: true, ..options(&["include"]) });
        grep(&["-F", "-x", "-e", "}"], SearchOptions { fixed: true, line: true, ..options(&["}"]) });
        grep(
            &["-E", "-i", "-e", "(warn|err)(ing|or)s?"],
            SearchOptions { ignore_case: true, ..options(&["(warn|err)(ing|or)s?"]) },
        );
        grep(&["-E", "-v", "-e", "^[ a-z]*$"], SearchOptions { invert: true, ..options(&["^[ a-z]*$"]) });
        grep(&["-F", "-w", "-e", "a"], SearchOptions { fixed: true, word: true, ..options(&["a"]) });
    }
}

/// Characters, not bytes: words, classes, case and parts as ripgrep has them.
#[test]
fn unicode_is_ripgreps() {
    if !have("unicode_is_ripgreps", "rg") {
        return;
    }
    let text = "Héllo wörld, HÉLLO\nstraße STRASSE straſſe\nнаука и Наука\n漢字 kanji\nK kelvin k\ne\u{301}galite\né\n\nnaïve-ly _é_ xéx\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes = [text.as_bytes(), b"half \xc3\nraw \xff\xe9 byte \x80a\n"].concat();
    std::fs::write(file.path(), &bytes).unwrap();
    let patterns = [
        "héllo",
        "h.llo",
        "H[ÉÈ]LLO",
        r"\w+",
        r"\b\w\b",
        "[é]",
        "é",
        "straße",
        "strasse",
        "k",
        r"^.$",
        r".",
        r"\pL{2,}",
        "наука",
        r"\W+",
        r"\bé\b",
        r"(?-u)\xff",
        r"(?-u:\w)+",
        r"\d*é",
        r"[^\w\s]+",
        r"\w\B",
    ];
    // Before 14, a word's match took the character before it as well (ripgrep's change log, 14.0.0: `-w` uses
    // half boundaries).
    let version = String::from_utf8(Command::new("rg").arg("--version").output().unwrap().stdout).unwrap();
    let major = version.split([' ', '.']).nth(1).and_then(|major| major.parse::<u32>().ok());
    let older = major.is_none_or(|major| major < 14);
    for pattern in patterns {
        for flags in [
            &[][..],
            &["-i"],
            &["-w"],
            &["-x"],
            &["-F", "-i"],
            &["--no-unicode"],
            &["--no-unicode", "-i", "-w"],
        ] {
            if flags.contains(&"-w") && older {
                continue;
            }
            for answer in [Answer::Lines, Answer::Matches] {
                as_ripgrep(file.path(), &bytes, pattern, flags, answer);
            }
        }
    }
}

/// Searches the file's bytes, and has ripgrep search the file.
fn as_ripgrep(path: &Path, bytes: &[u8], pattern: &str, flags: &[&str], answer: Answer) {
    let has = |flag| flags.contains(&flag);
    let options = SearchOptions {
        patterns: vec![pattern.as_bytes().to_vec()],
        bytes: has("--no-unicode"),
        fixed: has("-F"),
        ignore_case: has("-i"),
        word: has("-w"),
        line: has("-x"),
        text: true,
        numbers: true,
        answer,
        ..SearchOptions::default()
    };
    let mut arguments = vec!["-a", "--no-config", "--no-heading", "-n", "-b", "--color=never"];
    arguments.extend_from_slice(flags);
    if answer == Answer::Matches {
        arguments.push("-o");
    }
    let out = Command::new("rg").args(arguments).args(["-e", pattern]).arg(path).output().unwrap();
    let Ok(search) = Search::compile(options) else {
        assert_eq!(out.status.code(), Some(2), "{pattern} {flags:?}");
        return;
    };
    if out.status.code() == Some(2) {
        // An older one refuses letters that are not ASCII where Unicode is off.
        assert!(has("--no-unicode") && !pattern.is_ascii(), "{pattern} {flags:?}");
        return;
    }
    let mut sink = Printed { path: Vec::new(), out: Vec::new(), grouped: false, last: 0, first: true };
    feed(&mut Searcher::new(&Arc::new(search)), bytes, &mut sink);
    // Ours begins with the path's separator.
    let ours: Vec<u8> = sink
        .out
        .split_inclusive(|b| *b == b'\n')
        .flat_map(|line| line.strip_prefix(b":").unwrap_or(line).to_vec())
        .collect();
    assert_eq!(
        String::from_utf8_lossy(&ours),
        String::from_utf8_lossy(&out.stdout),
        "{pattern} {flags:?} {answer:?}"
    );
}

/// Writes what grep writes.
struct Printed {
    path: Vec<u8>,
    out: Vec<u8>,
    /// Separates groups of context.
    grouped: bool,
    last: u64,
    first: bool,
}

impl Sink for Printed {
    fn line(&mut self, line: Line<'_>) -> Taken {
        if self.grouped && !self.first && line.number != self.last + 1 {
            self.out.extend_from_slice(b"--\n");
        }
        self.first = false;
        self.last = line.number;
        self.out.extend_from_slice(&self.path);
        let mark = if line.context { '-' } else { ':' };
        self.out.extend_from_slice(format!("{mark}{}{mark}{}{mark}", line.number, line.offset).as_bytes());
        self.out.extend_from_slice(line.bytes);
        self.out.push(b'\n');
        Taken::Yes
    }

    fn binary(&mut self) -> Taken {
        self.out.extend_from_slice(&[b"grep: ", self.path.as_slice(), b": binary file matches\n"].concat());
        Taken::Yes
    }
}

#[test]
fn lines_are_greps() {
    if !have("lines_are_greps", "grep") {
        return;
    }
    let files = tree();
    let base = |patterns: &str| SearchOptions {
        patterns: vec![patterns.as_bytes().to_vec()],
        bytes: true,
        numbers: true,
        ..SearchOptions::default()
    };
    let cases: [(SearchOptions, &[&str]); 6] = [
        (base("error"), &["-e", "error"]),
        (
            SearchOptions { before: 2, after: 1, text: true, ..base("free") },
            &["-a", "-B2", "-A1", "-e", "free"],
        ),
        (
            SearchOptions { invert: true, before: 1, text: true, ..base("[a-z]") },
            &["-a", "-v", "-B1", "-e", "[a-z]"],
        ),
        (SearchOptions { max_count: Some(2), after: 3, ..base("the") }, &["-m2", "-A3", "-e", "the"]),
        (
            SearchOptions { answer: Answer::Matches, text: true, ..base("[0-9]+\\.[0-9]+") },
            &["-a", "-o", "-e", "[0-9]+\\.[0-9]+"],
        ),
        (
            SearchOptions { answer: Answer::Matches, word: true, ..base("a|an|and") },
            &["-o", "-w", "-e", "a|an|and"],
        ),
    ];
    for (options, arguments) in cases {
        let grouped = options.before + options.after > 0;
        let search = Arc::new(Search::compile(options).unwrap());
        let mut searcher = Searcher::new(&search);
        let mut some = 0;
        // One file at a time costs a process each: a tenth will do.
        for (path, bytes) in files.iter().step_by(10) {
            let out = Command::new("grep")
                .env("LC_ALL", "C")
                .args(["-E", "-n", "-b", "-H"])
                .args(arguments)
                .arg(path)
                .output()
                .unwrap();
            let path = path.as_os_str().as_bytes().to_vec();
            let mut sink = Printed { path: path.clone(), out: Vec::new(), grouped, last: 0, first: true };
            feed(&mut searcher, bytes, &mut sink);
            // grep says that a file is binary on its error output, or on its output in older versions.
            let mut expected = out.stdout;
            expected.extend_from_slice(&out.stderr);
            let plain = String::from_utf8_lossy(&expected).replace("Binary file ", "grep: ");
            let got = String::from_utf8_lossy(&sink.out);
            assert!(
                got == plain,
                "{arguments:?} {}\n{}",
                String::from_utf8_lossy(&path),
                first_difference(&got, &plain)
            );
            some += usize::from(!sink.out.is_empty());
        }
        assert!(some > 3, "{arguments:?} finds little: a poor test");
    }
}

fn first_difference(a: &str, b: &str) -> String {
    let at = a
        .lines()
        .zip(b.lines())
        .position(|(a, b)| a != b)
        .unwrap_or(a.lines().count().min(b.lines().count()));
    format!("line {at}: ours {:?}, theirs {:?}", a.lines().nth(at), b.lines().nth(at))
}

/// coreutils 9.5 and later take a byte that cannot be printed for a part of a word; 9.1, which we follow, did
/// not.
fn wc_counts_unprintable_words() -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"\x01").unwrap();
    let out = Command::new("wc").env("LC_ALL", "C").arg("-w").arg(file.path()).output().unwrap();
    out.stdout.trim_ascii_start().starts_with(b"1")
}

#[test]
fn words_are_wcs() {
    if !have("words_are_wcs", "wc") {
        return;
    }
    let files = tree();
    let out = String::from_utf8_lossy(&lines_of("wc", &["-lwc"], &files)).into_owned();
    let rows: Vec<Vec<u64>> = out
        .lines()
        .filter(|row| !row.trim_end().ends_with(" total"))
        .map(|row| row.split_whitespace().take(3).map(|n| n.parse().unwrap()).collect())
        .collect();
    assert_eq!(rows.len(), files.len());
    let mut counter = Counter::default();
    let newer = wc_counts_unprintable_words();
    for ((path, bytes), row) in files.iter().zip(rows) {
        if newer && !bytes.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace() || *b == 0x0b) {
            continue;
        }
        counter.begin();
        bytes.chunks(PIECE).for_each(|piece| counter.feed(piece));
        let counted = counter.counted();
        assert_eq!(vec![counted.lines, counted.words, counted.bytes], row, "{}", path.display());
    }
}

#[test]
fn sums_are_sha256sums() {
    if !have("sums_are_sha256sums", "sha256sum") {
        return;
    }
    let files = tree();
    let out = String::from_utf8_lossy(&lines_of("sha256sum", &["-b"], &files)).into_owned();
    let mut sum = Checksum::new(Digest::Sha256);
    for ((path, bytes), row) in files.iter().zip(out.lines()) {
        sum.begin();
        bytes.chunks(PIECE).for_each(|piece| sum.feed(piece));
        let hex: String = sum.value().iter().map(|b| format!("{b:02x}")).collect();
        assert!(row.starts_with(&hex), "{}", path.display());
    }
}
