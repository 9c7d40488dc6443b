//! `nearside find` against GNU find on the tree that the volume was made of: random expressions of all that
//! both have. NEARSIDE_FIND_CASES says how many.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use nearside_conformance::{needs, record};
use nearside_random::Rng;

use crate::fixture::{Ran, Volume, ext4, nearside, replace};

/// Names of the tree, below each of its folders. Of line ends one is enough: it would be none in a list.
const NAMES: [&[u8]; 12] = [
    b"a.c",
    b"b.h",
    b"README",
    b"readme.txt",
    b".hidden",
    b"with space",
    b"quote\"d",
    b"back\\slash",
    b"bytes-\xff",
    b"new\nline",
    b"x(1)",
    b"long.tar.gz",
];
const FOLDERS: [&str; 8] = ["", "src", "src/lib", "src/lib/deep", "Doc", "Doc/old", "empty", "secret"];

/// A tree of some hundred entries: sizes from nothing to 3 MiB, modes, owners where that is allowed, links,
/// and times that lie half a day from each whole day, so that it is no matter how long a test takes.
fn make() -> Volume {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let top = tree.join("top");
    let mut random = Rng(1);
    for below in FOLDERS {
        fs::create_dir_all(top.join(below)).unwrap();
        for name in NAMES.iter().filter(|_| below != "empty") {
            if random.in_of(1, 3) {
                continue;
            }
            let path = top.join(below).join(std::ffi::OsStr::from_bytes(name));
            let len = random.pick(&[0, 0, 1, 511, 512, 513, 1024, 5000, 1 << 20, 3 << 20]);
            fs::write(&path, vec![7; len]).unwrap();
            let mode = random.pick(&[0o644, 0o600, 0o755, 0o4755, 0o2711, 0o444, 0o666, 0o640]);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            if random.in_of(1, 3) {
                let id = random.pick(&[1, 65_534, 54_321]);
                let _only_root_may = lchown(&path, Some(id), Some(id));
            }
            if random.in_of(1, 8) {
                fs::hard_link(&path, top.join(below).join(format!("hard-{}", random.below(1000)))).unwrap();
            }
        }
    }
    for (link, to) in
        [("link", "src"), ("Doc/up", "../README"), ("src/dangling", "/nowhere"), ("loop", "loop")]
    {
        symlink(to, top.join(link)).unwrap();
    }
    fs::set_permissions(top.join("Doc/old"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(top.join("secret"), fs::Permissions::from_mode(0o2700)).unwrap();
    touch(&top, fs::metadata(&top).unwrap().modified().unwrap(), &mut random);
    ext4(folder, tree, 64)
}

/// Gives what lies below a time of whole seconds, some days and half a day ago.
fn touch(path: &Path, now: SystemTime, random: &mut Rng) {
    let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries.into_iter().filter(|entry| !entry.is_symlink()) {
        if entry.is_dir() {
            touch(&entry, now, random);
        }
        let ago = Duration::from_secs(random.pick(&[0, 1, 2, 6, 7, 30, 100, 400, 3000]) * 86_400 + 43_200);
        let since = (now - ago).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(since);
        fs::File::open(&entry).unwrap().set_modified(time).unwrap();
    }
}

fn volume(test: &str) -> Option<&'static Volume> {
    static VOLUME: OnceLock<Volume> = OnceLock::new();
    needs::tools(test, &["mke2fs", "find"]).then(|| VOLUME.get_or_init(make))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// A test. Patterns do not match what of a path is the tree's place on this machine. What the two file
/// systems have each in its own way (sizes and links of directories, times of links) is asked of files only.
fn test(random: &mut Rng) -> Vec<String> {
    let of_files = |line: &str| words(&format!("( -type f {line} )"));
    match random.below(16) {
        0 | 1 => words(&format!(
            "{} {}",
            random.pick(&["-name", "-iname"]),
            random.pick(&[
                "*.c",
                "*.[ch]",
                "README",
                "r*",
                "*[!a-z]*",
                "[[:upper:]]*",
                "?.?",
                "*\\**",
                ".*",
                "*(1)"
            ])
        )),
        2 => words(&format!(
            "{} {}",
            random.pick(&["-path", "-ipath", "-wholename"]),
            random.pick(&["*/src/*", "*/doc*", "/top/src*", "*lib/deep", "/top"])
        )),
        3 => words(&format!("-type {}", random.pick(&["f", "d", "l", "f,l", "d,l", "p"]))),
        4 => of_files(&format!(
            "-size {}",
            random
                .pick(&["0", "1", "+1", "-2", "+1k", "-1M", "1M", "+1M", "512c", "+511c", "2b", "-4w", "1G"])
        )),
        5 => words(&format!(
            "-perm {}",
            random.pick(&[
                "644",
                "-444",
                "/111",
                "-4000",
                "/6000",
                "u=rw,go=r",
                "-u+x",
                "/g=w",
                "-a=rX",
                "/0",
                "1777",
                "-+t",
                "g=u"
            ])
        )),
        6 if random.in_of(1, 2) => words(&format!(
            "-mtime {}",
            random.pick(&["1", "-1", "+1", "-2", "-7", "6", "+6", "0", "30", "+0.5"])
        )),
        6 => words(&format!("-mmin {}", random.pick(&["-1", "0", "+1440", "-1440", "-2880", "+144000"]))),
        7 => words(&format!(
            "-newer {}",
            random.pick(&["/top/src", "/top/Doc/old", "/top/empty", "/top/src/lib"])
        )),
        8 => {
            words(&format!("-newermt {}", random.pick(&["2001-01-01", "@1000000000", "2038-01-01T00:00:00"])))
        }
        nth => other_test(nth, random),
    }
}

fn other_test(nth: u64, random: &mut Rng) -> Vec<String> {
    match nth {
        9 => words(random.pick(&[
            "-user root",
            "-group root",
            "-nouser",
            "-nogroup",
            "-user 1",
            "-uid +0",
            "-gid 54321",
        ])),
        10 => words(&format!(
            "-regextype {} {} {}",
            random.pick(&["emacs", "posix-extended", "posix-basic", "sed"]),
            random.pick(&["-regex", "-iregex"]),
            random.pick(&[
                r".*\.c",
                r".*/[a-z]\.\(c\|h\)",
                r".*/[a-z]\.(c|h)",
                r".*/src/?.*",
                r".*/top.*r+e\{1,2\}.*",
                r".*/top.*e{1,}.*",
                r".*/top.*[[:upper:]]+.*",
                r".*[\]slash",
                r".*/top.*\bold\b.*",
                r"*",
                r".*bytes-.",
                r".*new.line",
                r".*(1)",
                r".*/[a-e]\+\.[ch]",
                r"\+x\?",
                r".*/READ\(ME\)\?",
                r".*/[^/]*"
            ])
        )),
        11 => words(random.pick(&[
            "-empty",
            "-empty",
            "-true",
            "-false",
            "-xdev",
            "-mount",
            "-samefile /top/src",
        ])),
        12 => words(random.pick(&["( -type f -links 1 )", "( -type f -links +1 )", "( -type f -links -2 )"])),
        13 => words(random.pick(&["-uid -2", "-gid +1", "-uid 54321", "-perm 600"])),
        14 => words(random.pick(&["-lname *", "-lname ../*", "-ilname SRC", "-lname src"])),
        _ => words(random.pick(&["-type d", "-type f", "-name *.c", "-perm -200"])),
    }
}

fn action(random: &mut Rng) -> Vec<String> {
    match random.below(9) {
        0 | 1 => words("-prune"),
        2 | 3 => words(random.pick(&["-print", "-print0"])),
        4 => words(random.pick(&[
            "-exec true ;",
            "-exec false ;",
            "-exec echo x{}y {} ;",
            "-exec printf %s\\n {} +",
            "-exec false {} +",
        ])),
        _ => format(random),
    }
}

fn format(random: &mut Rng) -> Vec<String> {
    let mut format = String::new();
    for _ in 0..=random.below(4) {
        format += random.pick(&[
            "%p", "%f", "%h", "%P", "%H", "%d", "%3d", "%-4d|", "%03d", "%+d", "%m", "%#m", "%05m", "%M",
            "%y", "%u", "%g", "%-9U|", "%G", "%l", "%10f", "%-20P|", "%.3f", "%%", "\\t", "\\101", "\\\\",
            "text", "%8.2y",
        ]);
    }
    let end = random.pick(&["\\n", "\\0", "\\n", "\\n\\c"]);
    if random.in_of(1, 3) {
        let more = random.pick(&[
            "%s",
            "%9s",
            "%n",
            "%t",
            "%T@",
            "%T+",
            "%TY-%Tm-%Td",
            "%TH:%TM:%TS",
            "%TT",
            "%Tc",
            "%Ta%TA%Tb%TB%Tj%TU%Tw%TW",
            "%Tk%Tl%TI%Tp%Tr%Tx%TX%TD%TF%Ty%Th%TZ",
        ]);
        return vec!["-type".into(), "f".into(), "-printf".into(), format + more + end];
    }
    vec!["-printf".into(), format + end]
}

/// Alternatives of tests and actions. They are not nested, and there is no list: find's optimiser takes tests
/// of names before what was written first, also before what has an action within parentheses (findutils 4.9).
fn acting(random: &mut Rng) -> Vec<String> {
    let mut all = Vec::new();
    for nth in 0..=random.below(3) {
        if nth > 0 {
            all.extend(words("-o"));
        }
        for _ in 0..random.below(3) {
            if random.in_of(1, 5) {
                all.extend(words("!"));
            }
            all.extend(test(random));
        }
        for _ in 0..=random.below(2) {
            all.extend(action(random));
        }
    }
    all
}

/// Tests, as deep as that.
fn expression(random: &mut Rng, deep: u64) -> Vec<String> {
    let mut all = Vec::new();
    for nth in 0..=random.below(3) {
        if nth > 0 {
            all.extend(words(random.pick(&["-a", "-o", "-o", "-and", "-or", ""])));
        }
        if random.in_of(1, 5) {
            all.push(random.pick(&["!", "-not"]).to_owned());
        }
        if deep > 0 && random.in_of(1, 3) {
            all.push("(".into());
            all.extend(expression(random, deep - 1));
            all.push(")".into());
        } else {
            all.extend(test(random));
        }
    }
    all.retain(|word| !word.is_empty());
    all
}

/// Lines, each with its end, in an order of their own: the tools have each its own.
fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<_> = text.split_inclusive(|b| b"\n\0".contains(b)).map(<[u8]>::to_vec).collect();
    lines.sort();
    lines
}

fn both(volume: &Volume, paths: &[&str], expression: &[String]) -> (Ran, Ran) {
    let mut ours = nearside();
    ours.arg("find").arg("-d").arg(&volume.image).arg("--names=host").args(paths).args(expression);
    let mut theirs = Command::new("find");
    theirs.env("LC_ALL", "C").env("TZ", "UTC").current_dir(&volume.tree);
    let tree = volume.tree.to_str().unwrap();
    for word in paths.iter().copied().chain(expression.iter().map(String::as_str)) {
        match word.starts_with("/top") {
            true => theirs.arg(format!("{tree}{word}")),
            false => theirs.arg(word),
        };
    }
    let mut theirs = Ran::from(theirs.output().unwrap());
    theirs.out = replace(&theirs.out, tree.as_bytes());
    (Ran::from(ours.output().unwrap()), theirs)
}

#[test]
fn random_expressions_mean_what_find_means() {
    let Some(volume) = volume("command::random_expressions_mean_what_find_means") else { return };
    let cases = std::env::var("NEARSIDE_FIND_CASES").map_or(400, |n| n.parse().expect("a number"));
    let (mut refused, mut silent, mut unlike) = (0, 0, Vec::new());
    for seed in 0..cases {
        let mut random = Rng(seed);
        let acts = random.in_of(1, 3);
        let mut expression = if acts { acting(&mut random) } else { expression(&mut random, 2) };
        if random.in_of(1, 3) {
            let first =
                ["-maxdepth 1", "-maxdepth 2", "-mindepth 2", "-maxdepth 0", "-depth", "-xdev", "-true"];
            expression.splice(0..0, [words(random.pick(&first)), words("(")].concat());
            expression.push(")".into());
        }
        let whole = !random.in_of(1, 8);
        if !whole {
            // One that may be none: then it matters whether it is taken.
            let at = random.index(expression.len());
            match random.in_of(1, 2) {
                true => drop(expression.remove(at)),
                false => expression.insert(at, random.pick(&["!", "(", ")", "-o", "-a", "x"]).to_owned()),
            }
        }
        let paths = random.pick(&[&["/top"][..], &["/top"], &["/top/src", "/top/Doc"]]);
        let (ours, theirs) = both(volume, paths, &expression);
        let what = format!("seed {seed}: {paths:?} {}\n{}{}", expression.join(" "), ours.err, theirs.err);
        if (ours.code == 0) != (theirs.code == 0) {
            unlike.push(format!("{what}ends with {}, find with {}", ours.code, theirs.code));
        } else if ours.code < 2 && whole {
            let (ours, theirs) = (lines(&ours.out), lines(&theirs.out));
            let show = |lines: &[Vec<u8>]| lines.concat().escape_ascii().to_string();
            if ours != theirs {
                unlike.push(format!("{what}ours {}\nfind {}", show(&ours), show(&theirs)));
            }
            silent += u32::from(ours.is_empty());
        } else {
            refused += 1;
        }
    }
    record::alike("random_expressions_mean_what_find_means", cases, 0, &unlike);
    assert!(
        refused * 3 < cases && u64::from(silent) * 3 < 2 * cases,
        "{refused} refused, {silent} without a word"
    );
}

#[test]
fn what_chance_seldom_tries() {
    let Some(volume) = volume("command::what_chance_seldom_tries") else { return };
    for line in [
        "-name deep -print -quit",
        "-quit",
        "-mtime -1",
        "-mtime 1",
        "-mmin -1440",
        "-regextype posix-basic -regex .*/[a-e]\\+\\.[ch]",
        "-exec false ; -o -print",
        "! -exec true ; -o ( -name *.c -printf %f\\n )",
        "-name deep -quit",
        "-path */deep -exec echo {} + -quit",
        "-depth -name deep -print -quit",
        "-name deep -print , -quit",
        "-name *.c -print , -type f -printf %f\\n",
        "( -print , -false ) -print0",
        "( -print , -false , -print0 ) -printf x%p\\n",
        "-name *.c -o -type d -print , -name R* -print0",
    ] {
        let (ours, theirs) = both(volume, &["/top"], &words(line));
        assert_eq!((ours.code, &*ours.err, lines(&ours.out)), (0, "", lines(&theirs.out)), "{line}");
    }
    // Inode numbers and blocks are each volume's own, columns become as wide as what stands in them.
    let (ours, theirs) = both(volume, &["/top"], &words("-type f -ls"));
    let rest = |ran: &Ran| {
        let rest = |line: &[u8]| {
            let line = line.escape_ascii().to_string();
            line.split_whitespace().skip(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut lines: Vec<_> = ran.out.split(|b| *b == b'\n').map(rest).collect();
        lines.sort();
        lines
    };
    assert_eq!(rest(&ours), rest(&theirs));
    assert!(rest(&ours).len() > 20);
    // A directory is shown after what it holds, and what is not gone into is not shown.
    let shown = |line: &str| both(volume, &["/top/src"], &words(line)).0.good();
    assert!(shown("-depth -type d").ends_with("/top/src/lib/deep\n/top/src/lib\n/top/src\n"));
    assert_eq!(shown("-name lib -prune -o -type d -print"), "/top/src\n");
    // The volume's own users, where nobody says whose: it has none.
    let image = &volume.image;
    let ran =
        nearside().args(["find", "-d"]).arg(image).args(["/top/src", "-user", "root"]).output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(2), "{err}");
    assert!(err.contains("/etc/passwd: No such file") && err.contains("no user that is known"), "{err}");
    // What a volume says of an inode, find finds.
    let number = nearside().args(["ls", "-iD", "-d"]).arg(image).arg("/top/src/lib").output().unwrap();
    let number = String::from_utf8_lossy(&number.stdout).split_whitespace().next().unwrap().to_owned();
    let (ours, _) = both(volume, &["/top"], &words(&format!("-inum {number}")));
    assert_eq!(ours.good(), "/top/src/lib\n");
}

#[test]
fn programs_are_given_paths() {
    let Some(volume) = volume("command::programs_are_given_paths") else { return };
    let mut find = Command::new(env!("CARGO_BIN_EXE_nearside"));
    find.arg("find").arg("-d").arg(&volume.image).args(["/top", "-name", "lib", "-exec"]);
    find.arg(env!("CARGO_BIN_EXE_nearside")).args(["ls", "-D", "-d"]).arg(&volume.image).args(["{}", ";"]);
    assert_eq!(Ran::from(find.args(["-print"]).output().unwrap()).good(), "/top/src/lib\n/top/src/lib\n");
    let (ours, theirs) =
        both(volume, &["/top"], &words("-name lib -exec no-such-program {} ; -o -type d -name old -print"));
    assert_eq!((ours.code, ours.text()), (theirs.code, theirs.text()));
    assert!(ours.err.contains("no-such-program"), "{}", ours.err);
}
