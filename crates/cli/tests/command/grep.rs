//! `nearside grep` against GNU grep and ripgrep, on the same tree.

use std::collections::BTreeMap;
use std::process::Command;

use nearside_conformance::{needs, record, volume};
use nearside_random::Rng;

use crate::fixture::{self, TEXTS, Volume, small};

/// Counts by path, from lines `PATH:COUNT`.
fn counts(text: &[u8]) -> BTreeMap<Vec<u8>, u64> {
    text.split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            let at = line.iter().rposition(|&b| b == b':').unwrap();
            (line[..at].to_vec(), String::from_utf8_lossy(&line[at + 1..]).parse().unwrap())
        })
        .collect()
}

fn same_counts(volume: &Volume, pattern: &str, flags: &[&str]) {
    let ours = volume.run("grep", &[flags, &["-rac", pattern, "/"]].concat());
    assert_eq!(ours.err, "", "{pattern}");
    let ours = counts(&ours.out);
    let grep = volume.tool("grep", &[flags, &["-raEc", "--", pattern, "/"]].concat());
    let theirs: BTreeMap<_, _> = counts(&grep.out)
        .into_iter()
        .map(|(path, n)| (path.strip_prefix(b"/").map_or(path.clone(), |p| [b"/", p].concat()), n))
        .collect();
    assert!(ours.len() > 5);
    for (path, n) in &theirs {
        let path_text = String::from_utf8_lossy(path);
        assert_eq!(ours.get(path), Some(n), "{pattern} {flags:?} in {path_text} (grep)");
    }
    assert_eq!(ours.len(), theirs.len(), "{pattern}");
    if needs::tool("rg").is_some() {
        // ripgrep leaves files without a match out.
        let flags: Vec<_> = flags.iter().filter(|f| **f != "-E").copied().collect();
        let rg = volume.tool(
            "rg",
            &[&flags[..], &["-a", "--no-ignore", "--hidden", "-c", "-H", "--", pattern, "/"]].concat(),
        );
        let some: BTreeMap<_, _> = ours.into_iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(counts(&rg.out), some, "{pattern} {flags:?} (ripgrep)");
    }
}

const PATTERNS: [(&str, &[&str]); 7] = [
    ("define", &[]),
    ("[a-z]+_[a-z]+\\(", &[]),
    ("copyright", &["-i"]),
    ("the", &["-w"]),
    ("^$", &[]),
    ("e", &["-v"]),
    ("(foo|struct|include)[^;]*$", &[]),
];

#[test]
fn counts_over_a_real_tree_equal_grep_and_ripgrep() {
    let test = "counts_over_a_real_tree_equal_grep_and_ripgrep";
    if !needs::tools(test, &["mke2fs", "grep", "rg"]) {
        return;
    }
    let Some((folder, tree)) = fixture::real_tree() else {
        needs::left_out(test, "too few files in /usr/include and /usr/share/doc");
        return;
    };
    let volume = fixture::ext4(folder, tree, 96);
    for (pattern, flags) in PATTERNS {
        same_counts(&volume, pattern, flags);
    }
    // And by the two ways that DAC'23 compares with.
    let drive = volume.run("grep", &["-rac", "define", "/"]);
    for ways in [&["--locate", "host"][..], &["--locate", "host", "--compute", "host", "--host-cache"]] {
        let host = volume.run("grep", &[ways, &["-rac", "define", "/"]].concat());
        assert_eq!(
            (host.code, counts(&host.out)),
            (drive.code, counts(&drive.out)),
            "{ways:?}: {}",
            host.err
        );
    }
}

#[test]
fn counts_on_f2fs_equal_grep_and_ripgrep() {
    let test = "counts_on_f2fs_equal_grep_and_ripgrep";
    if !needs::tools(test, &["mkfs.f2fs", "sload.f2fs", "grep", "rg"]) {
        return;
    }
    let Some((folder, tree)) = fixture::real_tree() else {
        needs::left_out(test, "too few files in /usr/include and /usr/share/doc");
        return;
    };
    let image = folder.path().join("f2fs.img");
    volume::make("f2fs", &image, 128, &tree);
    let volume = Volume { folder, tree, image };
    for (pattern, flags) in &PATTERNS[..4] {
        same_counts(&volume, pattern, flags);
    }
}

/// Our output and exit status are those of the machine's own grep;
/// what each says on standard error, in our name.
#[track_caller]
fn as_grep(volume: &Volume, syntax: &str, args: &[&str]) -> (String, String) {
    let ours = volume.run("grep", args);
    let grep = volume.tool("grep", &[&[syntax], args].concat());
    assert_eq!((ours.text(), ours.code), (grep.text(), grep.code), "{args:?}: {}", ours.err);
    (ours.err, grep.err.replace("grep: ", "nearside: "))
}

#[test]
fn output_is_that_of_grep() {
    let Some(volume) = small("output_is_that_of_grep") else { return };
    let flag_sets: [&[&str]; 36] = [
        &[],
        &["-n"],
        &["-b"],
        &["-nb"],
        &["-c"],
        &["-l"],
        &["-L"],
        &["-h"],
        &["-v", "-m", "3"],
        &["-i"],
        &["-w"],
        &["-x"],
        &["-o"],
        &["-ob"],
        &["-on"],
        &["-m", "2"],
        &["-A", "1", "-m", "5"],
        &["-B", "2", "-n", "-m", "5"],
        &["-C", "1", "-b", "-m", "5"],
        &["-C", "1", "-m", "4", "-v", "-n"],
        &["-Z", "-l"],
        &["-cv"],
        &["-A", "0", "-m", "4"],
        &["--color=always", "-n", "-m", "3"],
        &["--color=always", "-o", "-m", "3"],
        &["-a", "-c"],
        &["-o", "-A", "1"],
        &["-o", "-B", "1", "-n"],
        &["-ob", "-C", "2", "-H"],
        &["-o", "-v", "-A", "1"],
        &["-o", "-A", "0", "--color=always"],
        &["-l", "-L"],
        &["-L", "-l"],
        &["-ox"],
        &["-ow", "-C", "1"],
        &["-o", "-m", "1", "-A", "2"],
    ];
    for flags in flag_sets {
        for pattern in ["ERROR", "hello", "h?ello|unit-[0-3] ", "nothing at all", "x*"] {
            let files = [&["--", pattern][..], &TEXTS[..]].concat();
            as_grep(volume, "-E", &[flags, &files[..]].concat());
        }
    }
}

#[test]
fn one_file_has_no_name_and_a_binary_one_no_lines() {
    let Some(volume) = small("one_file_has_no_name_and_a_binary_one_no_lines") else { return };
    for args in [
        &["hello", "/hello.txt"][..],
        &["-H", "hello", "/hello.txt"],
        &["ERROR", "/binary"],
        &["-c", "ERROR", "/binary"],
        &["-a", "ERROR", "/binary"],
        &["-l", "ERROR", "/binary"],
        &["-I", "ERROR", "/binary"],
        &["-Ic", "ERROR", "/binary"],
        &["-IL", "ERROR", "/binary"],
        &["-I", "--binary-files=binary", "ERROR", "/binary"],
        &["--binary-files=without-match", "-a", "ERROR", "/binary"],
        &["-o", "RROR", "/binary"],
        &["-e", "hello", "-e", "ERROR", "/hello.txt", "/no-newline"],
        &["-F", "hello,", "/hello.txt"],
        &["-F", "-e", "hello\nagain", "/hello.txt"],
        &["-q", "hello", "/hello.txt"],
        &["hello", "/link"],
    ] {
        let (ours, grep) = as_grep(volume, if args.contains(&"-F") { "-F" } else { "-E" }, args);
        assert_eq!(ours, grep, "{args:?}");
    }
}

#[test]
fn messages_and_exit_status_are_those_of_grep() {
    let Some(volume) = small("messages_and_exit_status_are_those_of_grep") else { return };
    for args in [
        &["x", "/missing"][..],
        &["-s", "x", "/missing"],
        &["x", "/logs"],
        &["hello", "/missing", "/hello.txt"],
        &["-q", "hello", "/missing", "/hello.txt"],
        &["-q", "hello", "/hello.txt", "/missing"],
        &["x", "/hello.txt/below"],
        &["x", "/loop-a"],
        &["x", "/dangling"],
    ] {
        let (ours, grep) = as_grep(volume, "-E", args);
        assert_eq!(ours, grep, "{args:?}");
    }
}

#[test]
fn trees_globs_and_name_filters() {
    let Some(volume) = small("trees_globs_and_name_filters") else { return };
    let names = |args: &[&str]| {
        let ran = volume.run("grep", args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        ran.text()
    };
    assert_eq!(
        names(&["-rl", "ERROR", "/logs"]),
        "/logs/.hidden.log\n/logs/a.log\n/logs/b.log\n/logs/old/c.log\n"
    );
    assert_eq!(names(&["-rl", "ERROR", "/logs", "--include", "[ab].log"]), "/logs/a.log\n/logs/b.log\n");
    assert_eq!(
        names(&["-rl", "ERROR", "/logs", "--exclude-dir", "old", "--exclude", ".*"]),
        "/logs/a.log\n/logs/b.log\n"
    );
    // As many as a drive is told, and more than that.
    for count in [3000, 5000] {
        let include = std::iter::repeat_n("--include=a.log", count);
        let args: Vec<&str> = ["-rl", "ERROR", "/logs"].into_iter().chain(include).collect();
        assert_eq!(names(&args), "/logs/a.log\n", "{count}");
    }
    assert_eq!(names(&["-l", "ERROR", "--glob", "/logs/?.log"]), "/logs/a.log\n/logs/b.log\n");
    assert_eq!(
        names(&["-l", "ERROR", "--glob", "/logs/*.log"]),
        "/logs/.hidden.log\n/logs/a.log\n/logs/b.log\n"
    );
    assert_eq!(names(&["-l", "bottom", "--glob", "/deep/**/*.txt"]), "/deep/1/2/3/4/5/6/7/8/9/leaf.txt\n");
    // Without a path, the whole volume.
    assert_eq!(names(&["-l", "bottom"]), "/deep/1/2/3/4/5/6/7/8/9/leaf.txt\n");
    assert!(volume.run("grep", &["-l", "not UTF-8"]).out.starts_with(b"/bytes-\xff-name\n"));
}

#[test]
fn one_search_is_one_command_by_every_way() {
    let Some(volume) = small("one_search_is_one_command_by_every_way") else { return };
    let reference = volume.run("grep", &["-n", "WARN", "/logs/b.log"]);
    assert_eq!(reference.code, 0);
    for ways in [
        &["--completion", "polled"][..],
        &["--completion", "interrupt"],
        &["--completion", "hybrid"],
        &["--threads", "threaded"],
        &["--get-features"],
        &["--locate", "host"],
        &["--locate", "host", "--compute", "host"],
    ] {
        let args = [ways, &["-n", "WARN", "/logs/b.log"]].concat();
        assert_eq!(volume.run("grep", &args).good(), reference.text(), "{ways:?}");
        let timed = volume.run("grep", &[&args[..], &["--timing", "--json"]].concat());
        let timing = timed.json().pop().unwrap();
        assert_eq!(timing["type"], "timing");
        let commands =
            (timing["near_data_commands"].as_u64().unwrap(), timing["read_commands"].as_u64().unwrap());
        match ways {
            ["--locate", "host"] => assert!(commands.0 == 1 && commands.1 > 3, "{ways:?} {commands:?}"),
            ["--locate", ..] => assert!(commands.0 == 0 && commands.1 > 3, "{ways:?} {commands:?}"),
            _ => assert_eq!(commands, (1, 0), "{ways:?}"),
        }
    }
    let table = volume.run("grep", &["--timing", "-c", "WARN", "/logs/b.log"]);
    for word in ["locating", "computing", "commands", "1 near-data", "to the drive", "from the drive"] {
        assert!(table.err.contains(word), "{word}: {}", table.err);
    }
}

#[test]
fn answers_longer_than_a_buffer_are_whole() {
    let Some(volume) = small("answers_longer_than_a_buffer_are_whole") else { return };
    let ours = volume.run("grep", &["-n", "took", "/logs/a.log"]);
    let grep = volume.tool("grep", &["-n", "took", "/logs/a.log"]);
    assert!(grep.out.len() > 1 << 20);
    assert!(ours.out == grep.out, "{} bytes, {} by grep", ours.out.len(), grep.out.len());
}

#[test]
fn json_is_that_of_ripgrep() {
    let Some(volume) = small("json_is_that_of_ripgrep") else { return };
    let lines = volume.run("grep", &["--json", "hello", "/hello.txt"]).json();
    let kinds: Vec<_> = lines.iter().map(|l| l["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["begin", "match", "match", "end", "summary"]);
    assert_eq!(lines[2]["data"]["lines"]["text"], "hello, hello\n");
    assert_eq!(lines[2]["data"]["line_number"], 5);
    assert_eq!(lines[2]["data"]["absolute_offset"], 33);
    assert_eq!(lines[2]["data"]["submatches"][1]["start"], 7);
    assert_eq!(lines[4]["data"]["stats"]["matched_lines"], 2);
    let lines = volume.run("grep", &["--json", "-r", "not UTF-8", "/"]).json();
    assert_eq!(lines[0]["data"]["path"]["bytes"], "L2J5dGVzLf8tbmFtZQ==");
}

#[test]
fn a_pipe_that_closes_ends_it_quietly() {
    use std::io::Read;
    use std::process::Stdio;
    let Some(volume) = small("a_pipe_that_closes_ends_it_quietly") else { return };
    let mut child = fixture::nearside()
        .args(["grep", "-d"])
        .arg(&volume.image)
        .args(["took", "/logs/a.log"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(141), vec![]));
}

#[test]
fn patterns_from_a_file() {
    let Some(volume) = small("patterns_from_a_file") else { return };
    let file = volume.folder.path().join("patterns");
    std::fs::write(&file, "goodbye\nagain\n").unwrap();
    let file = file.to_str().unwrap();
    let ours = volume.run("grep", &["-f", file, "/hello.txt"]);
    let grep = Command::new("grep").arg("-f").arg(file).arg(volume.tree.join("hello.txt")).output().unwrap();
    assert_eq!(ours.out, grep.stdout);
}

#[test]
fn a_file_without_patterns_finds_nothing() {
    let Some(volume) = small("a_file_without_patterns_finds_nothing") else { return };
    let path = volume.folder.path().join("patterns");
    let file = path.to_str().unwrap();
    for (text, flags) in [
        ("", &[][..]),
        ("", &["-v"]),
        ("", &["-c"]),
        ("", &["-F"]),
        ("", &["-e", "again"]),
        ("\n", &[]),
        ("\n", &["-F", "-c"]),
        ("again\n\n", &["-n"]),
    ] {
        std::fs::write(&path, text).unwrap();
        let ours = volume.run("grep", &[flags, &["-f", file, "/hello.txt"]].concat());
        let grep = Command::new("grep")
            .args(flags)
            .arg("-f")
            .arg(file)
            .arg(volume.tree.join("hello.txt"))
            .output()
            .unwrap();
        assert_eq!(
            (ours.out, ours.code),
            (grep.stdout, grep.status.code().unwrap_or(-1)),
            "{text:?} {flags:?}"
        );
    }
}

#[test]
fn selected_lines_decide_the_exit_status_also_where_nothing_is_printed() {
    let Some(volume) = small("selected_lines_decide_the_exit_status_also_where_nothing_is_printed") else {
        return;
    };
    for flags in [&["-ox"][..], &["-o"], &["-o", "-v"], &["-ow"], &["-oc"], &["-o", "-A1"], &["-oq"]] {
        for pattern in ["x*", "z*", "absent"] {
            let args = [flags, &[pattern, "/hello.txt", "/no-newline"]].concat();
            as_grep(volume, "-E", &args);
        }
    }
}

#[test]
fn characters_are_matched_unless_bytes_are_asked_for() {
    let test = "characters_are_matched_unless_bytes_are_asked_for";
    let Some(folder) = needs::folder(test, &["mke2fs"]) else { return };
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("text"), "a héllo b\n").unwrap();
    let utf16: Vec<u8> = "\u{feff}hello\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(tree.join("utf16"), utf16).unwrap();
    let volume = fixture::ext4(folder, tree, 8);
    for (flags, shown) in [
        (&["-i", "HÉLLO"][..], "a héllo b\n"),
        (&["h.llo"], "a héllo b\n"),
        (&["-o", r"\w+"], "a\nhéllo\nb\n"),
        (&["-o", "[é]"], "é\n"),
        (&["-F", "-i", "É"], "a héllo b\n"),
        (&["-w", "h"], ""),
        (&["--no-unicode", "h.llo"], ""),
        (&["--no-unicode", "-ow", "h"], "h\n"),
        (&["(?-u)h..llo"], "a héllo b\n"),
        (&["--column", "llo|b"], "1:6:a héllo b\n"),
    ] {
        let ours = volume.run("grep", &[flags, &["/text"]].concat());
        let code = i32::from(shown.is_empty());
        assert_eq!((ours.text().as_str(), ours.code, ours.err.as_str()), (shown, code, ""), "{flags:?}");
    }
    let ours = volume.run("grep", &["-r", "llo", "/"]);
    assert_eq!((ours.text().as_str(), ours.code), ("/text:a héllo b\n", 2));
    assert!(ours.err.contains("/utf16: ") && ours.err.contains("UTF-16"), "{}", ours.err);
    assert_eq!(volume.run("grep", &["-ac", "h", "/utf16"]).text(), "1\n");
}

/// A volume for flags: names that globs tell apart, binary files, lines that end in NUL, compressed files.
fn for_flags(test: &str) -> Option<Volume> {
    let folder = needs::folder(test, &["mke2fs", "gzip", "xz", "zstd"])?;
    let tree = folder.path().join("tree");
    let mut random = Rng(11);
    let mut text = |end: u8, lines: usize| -> Vec<u8> {
        let words = ["foo", "Foo", "bar", "a", "b", "fooo", "x.y", "axb", "", "FOO bar", "baz\tfoo"];
        let line = |random: &mut Rng| -> Vec<u8> {
            let words: Vec<&str> = (0..random.below(5)).map(|_| random.pick(&words)).collect();
            [words.join(" ").as_bytes(), &[end]].concat()
        };
        (0..lines).flat_map(|_| line(&mut random)).collect()
    };
    let put = |path: &str, bytes: &[u8]| {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for path in
        ["a.c", "b.h", "Makefile", "old", "sub/x.c", "sub/old/y.rs", "sub/deep/er/z.c", "two words.txt"]
    {
        put(path, &text(b'\n', 40));
    }
    for path in ["UPPER.C", "[x].c", ".hidden.c", "old.d/c.rs", "many"] {
        put(path, &text(b'\n', if path == "many" { 9000 } else { 12 }));
    }
    put("empty", b"");
    put("early.bin", &[b"foo\0", &text(b'\n', 20)[..]].concat());
    put("late.bin", &[&text(b'\n', 30)[..], b"foo\0a\n", &text(b'\n', 9)].concat());
    put("records", &[&text(0, 30)[..], b"foo\nbar\0", &text(b'\n', 5), b"\0foo without its end"].concat());
    put("crlf.txt", b"foo\r\nbar\r\nfoo");
    for (maker, ending) in [("gzip -c", "gz"), ("xz -c", "xz"), ("zstd -qc", "zst")] {
        let line = format!(
            "{maker} many >packed.{ending}; {maker} a.c >one; cat one one >sub/twice.{ending}; rm one"
        );
        volume::must(volume::tool("sh").arg("-c").arg(line).current_dir(&tree));
    }
    Some(fixture::ext4(folder, tree, 16))
}

/// The files of it that are not compressed.
const PLAIN: [&str; 14] = [
    "/a.c",
    "/b.h",
    "/Makefile",
    "/old",
    "/sub/x.c",
    "/two words.txt",
    "/UPPER.C",
    "/[x].c",
    "/.hidden.c",
    "/empty",
    "/early.bin",
    "/late.bin",
    "/records",
    "/crlf.txt",
];

fn cases() -> u64 {
    std::env::var("NEARSIDE_GNU_CASES").map_or(50, |n| n.parse().expect("a number"))
}

/// Lines in any order, whatever ends them: GNU grep goes through directories in their own.
fn sorted(text: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = text.split(|b| matches!(b, 0 | b'\n')).collect();
    lines.sort_unstable();
    lines
}

/// GNU grep's flags: how lines are found and shown.
#[rustfmt::skip]
const FLAGS: [&str; 31] = [
    "-n", "-b", "-o", "-v", "-i", "-w", "-x", "-h", "-H", "-Z", "-s", "-a", "-I", "-z", "-y", "-U",
    "--line-buffered", "-m1", "-m3", "-A1", "-B1", "-C2", "-2", "-n1", "-10", "--binary-files=text",
    "-zU", "--binary-files=without-match", "--color=always", "--no-ignore-case", "-zo",
];

/// Which files.
#[rustfmt::skip]
const CHOICE: [&str; 11] = [
    "--include=*.c", "--include=[!a]*", "--include=old", "--exclude=*.h", "--exclude=old",
    "--exclude=[[:upper:]]*", "--exclude-dir=sub", "--exclude-dir=old.d/", "--exclude-dir=o*",
    "--exclude=sub/x.c", "--include=x.c",
];

#[test]
fn random_flags_mean_what_they_do_in_gnu_grep() {
    let test = "random_flags_mean_what_they_do_in_gnu_grep";
    let Some(volume) = for_flags(test) else { return };
    let globs = volume.folder.path().join("globs");
    std::fs::write(&globs, "*.rs\n\nold  \nU*\n").unwrap();
    let from = format!("--exclude-from={}", globs.display());
    as_grep(&volume, "-E", &["-ac", &from, "foo", "/old", "/b.h", "/UPPER.C"]);
    let answers = ["-c", "-l", "-L", "-q"];
    let mut unlike = Vec::new();
    let mut random = Rng(3);
    for _ in 0..cases() {
        let mut args: Vec<&str> = FLAGS.iter().copied().filter(|_| random.in_of(1, 9)).collect();
        args.extend(answers.iter().filter(|_| random.in_of(1, 10)));
        args.extend(CHOICE.iter().chain([&from.as_str()]).filter(|_| random.in_of(1, 9)));
        // Unless it is told what to take binary files for, GNU grep has lines end at NULs as well.
        let told = |arg: &&str| {
            arg.contains("text") || arg.contains("without") || ["-a", "-I", "-z", "-zU", "-zo"].contains(arg)
        };
        if !args.iter().any(told) {
            args.push(random.pick(&["-a", "-I"]));
        }
        let tree = random.in_of(1, 3);
        if tree {
            args.push("-r");
        }
        let pattern = random.pick(&["foo", "^a", "b$", "fo+", "[a-c]x", "x.y", "r|z", "^$", "F", "o b"]);
        // With -o GNU grep prints nothing of what is empty; but with -w and -x, twice what ends it.
        let is_odd = pattern == "^$" && ["-w", "-x"].iter().all(|flag| args.contains(flag));
        args.extend(["-e", if is_odd { "F" } else { pattern }]);
        let paths: Vec<&str> = match tree {
            true => vec![random.pick(&["/", "/sub", "/sub/old/y.rs"])],
            false => PLAIN.iter().copied().filter(|_| random.in_of(1, 4)).chain(["/sub/x.c"]).collect(),
        };
        args.push("--");
        args.extend(paths);
        // Of bytes that are no text, as compressed ones are, it knows those of the C locale alone.
        let bytes: &[&str] = if tree { &["--no-unicode"] } else { &[] };
        let ours = volume.run("grep", &[bytes, &args[..]].concat());
        let theirs = volume.tool("grep", &[&["-E"], &args[..]].concat());
        let same = if tree { sorted(&ours.out) == sorted(&theirs.out) } else { ours.out == theirs.out };
        if !same || ours.code != theirs.code {
            unlike.push(format!(
                "{args:?}\n{}\n{:?} {}\n{:?}",
                ours.err,
                ours.code,
                ours.text(),
                theirs.text()
            ));
        }
    }
    record::alike(test, cases(), 3, &unlike);
}

/// What the two print alike: times are not the same twice, ripgrep's names are of where the tree really
/// lies, of what is compressed it counts what is in it, and with -l the drive is done with a file at its
/// first match.
fn kept(text: &[u8], args: &[&str]) -> Vec<Vec<u8>> {
    let mut ends: Vec<&[u8]> = vec![&b" seconds"[..], &b"spent searching"[..], &b"bytes printed"[..]];
    // Beside lines of context it counts as searched what it has not read to the end of its buffer.
    if args.iter().any(|arg| matches!(*arg, "--search-zip" | "-A1" | "-C2")) {
        ends.push(b"bytes searched");
    }
    if args.contains(&"-l") {
        ends.extend([&b" matches"[..], b"matched lines", b"printed", b"searched"]);
    }
    let alike = |line: &&[u8]| !ends.iter().any(|end| line.ends_with(end));
    text.split(|b| *b == b'\n').filter(alike).map(<[u8]>::to_vec).collect()
}

/// ripgrep's flags.
#[rustfmt::skip]
const RG_FLAGS: [&str; 18] = [
    "-n", "-b", "-o", "-v", "-i", "-x", "-S", "--column", "--stats", "-A1", "-C2", "-l", "-y",
    "--null-data", "--search-zip", "--no-ignore-case", "--line-buffered", "-F",
];

/// And which files.
#[rustfmt::skip]
const RG_CHOICE: [&str; 17] = [
    "-g*.c", "-g!*.h", "-gsub/*.c", "-g/sub/**", "-g!sub", "-g!old/", "-gold", "-g{a,b}.?", "-g**/old/*",
    "-tc", "-Tc", "-trust", "-Tmake", "--max-depth=1", "--max-depth=2", "--max-depth=0", "-g!**/er/**",
];

#[test]
fn random_flags_mean_what_they_do_in_ripgrep() {
    let test = "random_flags_mean_what_they_do_in_ripgrep";
    if !needs::tools(test, &["rg"]) {
        return;
    }
    let Some(volume) = for_flags(test) else { return };
    let mut unlike = Vec::new();
    let mut random = Rng(5);
    for _ in 0..cases() {
        let mut args: Vec<&str> = RG_FLAGS.iter().copied().filter(|_| random.in_of(1, 6)).collect();
        args.extend(RG_CHOICE.iter().filter(|_| random.in_of(1, 7)));
        // What the two print of these together differs, and ours is GNU grep's.
        if args.contains(&"-o") {
            args.retain(|arg| !matches!(*arg, "-v" | "-A1" | "-C2"));
        }
        let pattern = random.pick(&["foo", "Foo", "^a", "b$", "[A-Z]oo", "\\bfo+", "x.y", "\\S+oo", "o b"]);
        if args.contains(&"-C2") {
            args.retain(|arg| *arg != "-A1");
        }
        if args.contains(&"-v") && args.iter().any(|arg| matches!(*arg, "-A1" | "-C2")) {
            args.retain(|arg| *arg != "--column");
        }
        if args.contains(&"--null-data") {
            args.retain(|arg| !matches!(*arg, "-A1" | "-C2"));
            // There, it has lines begin and end at newlines, and ends names by NUL.
            let anchored = pattern.contains(['^', '$']);
            args.retain(|arg| !(matches!(*arg, "-x" | "-l") || *arg == "--null-data" && anchored));
        }
        let path = random.pick(&["/", "/sub", "/a.c", "/packed.gz"]);
        let ours = volume.run("grep", &[&args[..], &["-raH", "-e", pattern, "--", path]].concat());
        let theirs: Vec<&str> = args
            .iter()
            .map(|arg| match *arg {
                "-y" => "-i",
                "--no-ignore-case" => "-s",
                other => other,
            })
            .collect();
        let common =
            ["--no-config", "-a", "-H", "--no-ignore", "--hidden", "--sort=path", "-e", pattern, "--", path];
        let theirs = volume.tool("rg", &[&theirs[..], &common].concat());
        // What ripgrep prints has longer names.
        let text = ours.text();
        if args.contains(&"--stats") && !args.contains(&"--null-data") {
            let stats = text.rsplit_once("\n\n").map_or(&text[..], |(_, stats)| stats);
            // In bytes, of which not all are text.
            let printed = ours.out.len().saturating_sub(stats.len() + 1);
            assert!(stats.contains(&format!("\n{printed} bytes printed\n")), "{args:?} {text}");
        }
        if kept(&ours.out, &args) != kept(&theirs.out, &args) || ours.code != theirs.code {
            unlike.push(format!(
                "{args:?} {pattern} {path}\n{}\n{:?} {}\n{:?} {}",
                ours.err,
                ours.code,
                ours.text(),
                theirs.code,
                theirs.text()
            ));
        }
    }
    record::alike(test, cases(), 5, &unlike);
}

/// Classes and escapes have no capitals of a pattern's own; ranges have.
#[test]
fn smart_case_is_ripgreps() {
    let test = "smart_case_is_ripgreps";
    if !needs::tools(test, &["rg"]) {
        return;
    }
    let Some(volume) = for_flags(test) else { return };
    for (pattern, flags) in [
        ("foo", &[][..]),
        ("Foo", &[]),
        ("\\S+oo", &[]),
        ("\\Bo+\\B", &[]),
        ("[A-Z]oo", &[]),
        ("[f-g]oo", &[]),
        ("[[:upper:]]oo", &[]),
        ("\\p{Lu}oo", &[]),
        ("\\x46oo", &[]),
        ("foo bar", &["-F"]),
        ("Foo", &["-F"]),
    ] {
        let args = [flags, &["-Snao", "-e", pattern, "/a.c", "/b.h", "/many"]].concat();
        let (ours, theirs) = (volume.run("grep", &args), volume.tool("rg", &args));
        assert_eq!((sorted(&ours.out), ours.code), (sorted(&theirs.out), theirs.code), "{args:?}");
    }
}

#[test]
fn types_of_files_need_no_drive() {
    let ran = crate::fixture::Ran::from(fixture::nearside().args(["grep", "--type-list"]).output().unwrap());
    let listed = ran.good();
    assert!(listed.lines().any(|line| line == "rust: *.rs"), "{listed}");
    let unknown = crate::fixture::on("x".as_ref(), "grep", &["-r", "-t", "nonsense", "x", "/"]);
    assert!(unknown.code == 2 && unknown.err.contains("nonsense"), "{}", unknown.err);
}

#[test]
fn perls_patterns_are_gnu_greps_or_refused() {
    let test = "perls_patterns_are_gnu_greps_or_refused";
    let Some(volume) = for_flags(test) else { return };
    for pattern in [r"\d", r"fo{2,}?\b", r"(?i)FOO\s+b", r"^(?:a|b)\b", r"\Aa", "x[.]y$", r"(?<name>o+)"] {
        let args = ["-Pon", pattern, "/a.c", "/b.h"];
        let (ours, theirs) = (volume.run("grep", &args), volume.tool("grep", &args));
        assert_eq!((ours.text(), ours.code), (theirs.text(), theirs.code), "{pattern}: {}", ours.err);
    }
    for pattern in ["foo(?=x)", "(?<!a)b", r"(a)\1", "fo++", "(?>fo+)o", r"fo\Ko"] {
        let refused = volume.run("grep", &["-P", pattern, "/a.c"]);
        assert_eq!((refused.code, refused.text().as_str()), (2, ""), "{pattern}");
        assert!(refused.err.contains("look-around") && refused.err.contains("grep -P"), "{}", refused.err);
    }
}

#[test]
fn corrupt_compressed_files_are_named_and_answers_do_not_depend_on_the_way() {
    let test = "corrupt_compressed_files_are_named_and_answers_do_not_depend_on_the_way";
    let Some(folder) = needs::folder(test, &["mke2fs", "gzip"]) else { return };
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let text: String = (0..60_000).map(|n| format!("{n} foo {:x}\n", n * 31)).collect();
    std::fs::write(tree.join("log"), &text).unwrap();
    volume::must(
        volume::tool("sh")
            .args(["-c", "gzip -c log >log.gz; head -c 9999 log.gz >cut.gz; echo foo | gzip >own.gz"])
            .current_dir(&tree),
    );
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(tree.join("own.gz"), own).unwrap();
    let good = volume::tool("gzip").arg("-dc").arg(tree.join("cut.gz")).output().unwrap().stdout;
    let good = String::from_utf8(good).unwrap().matches("foo").count();
    let volume = fixture::ext4(folder, tree, 32);
    let plain = volume.run("grep", &["-hnb", "foo", "/log"]);
    for ways in [
        &[][..],
        &["--threads", "threaded"],
        &["--locate", "host"],
        &["--locate", "host", "--compute", "host"],
    ] {
        let ours = volume.run("grep", &[ways, &["-hnb", "--search-zip", "foo", "/log.gz"]].concat());
        assert!(ours.out == plain.out && ours.err.is_empty(), "{ways:?}: {}", ours.err);
        let cut = volume.run("grep", &[ways, &["-c", "--search-zip", "foo", "/cut.gz"]].concat());
        let said = "nearside: /cut.gz: Corrupt file: gzip data: it ends too early\n";
        assert_eq!(
            (cut.code, cut.text().as_str(), cut.err.as_str()),
            (2, format!("{good}\n").as_str(), said),
            "{ways:?}"
        );
        let all = volume.run("grep", &[ways, &["-rc", "--search-zip", "foo", "/"]].concat());
        assert_eq!(
            (all.code, all.text().as_str(), all.err.as_str()),
            (2, format!("/cut.gz:{good}\n/log:60000\n/log.gz:60000\n/own.gz:1\n").as_str(), said)
        );
        let other = ["-c", "--search-zip", "--as", "4242:4242", "foo", "/own.gz"];
        let other = volume.run("grep", &[ways, &other].concat());
        let denied = "nearside: /own.gz: Permission denied\n";
        assert_eq!((other.code, other.text().as_str(), other.err.as_str()), (2, "", denied), "{ways:?}");
    }
}
