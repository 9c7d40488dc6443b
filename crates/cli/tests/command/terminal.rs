//! What reaches a terminal: names, labels, link targets and texts of volumes whose makers mean ill, on a
//! pseudo-terminal; GNU ls says how names are quoted there. To a pipe, bytes go as they are.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use indicatif::{HumanBytes, HumanCount};
use nearside_conformance::{needs, volume};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::fixture::{Volume, ext4, nearside, small};

/// Written to a terminal after a command's last byte; no command writes it.
const END: &[u8] = b"\0end\0";

/// A terminal: our end, and the one for a command.
fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let ours = openpt(flags | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = File::from(ioctl_tiocgptpeer(&ours, flags | OpenptFlags::CLOEXEC).unwrap());
    // No line end is made two bytes: what is read is what was written.
    let mut modes = tcgetattr(&theirs).unwrap();
    modes.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &modes).unwrap();
    (File::from(ours), theirs)
}

/// What a command writes to a terminal, and its exit status.
fn on_a_terminal(command: &mut Command) -> (Vec<u8>, i32) {
    let (mut ours, theirs) = terminal();
    let end = theirs.try_clone().unwrap();
    command.stdin(Stdio::null()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // The other end stays open until all is read: where its last owner has gone, Linux 6.18 now and
    // then answers EIO while lines are still on their way. What the child wrote comes before the mark.
    let ended = thread::spawn(move || {
        let code = child.wait().unwrap().code().unwrap_or(-1);
        (&end).write_all(END).unwrap();
        (code, end)
    });
    let (mut written, mut piece) = (Vec::new(), [0; 4096]);
    while !written.ends_with(END) {
        match ours.read(&mut piece) {
            Ok(n) => written.extend(&piece[..n]),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Interrupted, "{e}"),
        }
    }
    written.truncate(written.len() - END.len());
    (written, ended.join().unwrap().0)
}

/// Names that GNU ls and we show alike.
const NAMES: [&[u8]; 19] = [
    b"plain",
    b"esc-\x1b]0;owned\x07\x1b[31m",
    b"line\nbreak",
    b"\nfirst",
    b"not-utf8-\xff\xfe",
    b"cut-\xe4\xb8",
    b"c1-\xc2\x9b31m",
    b"tab\there",
    b"cr\rx",
    b"it's",
    b"it's $5",
    b"two words",
    b"back\\slash",
    b"del-\x7f",
    "h\u{e9}llo-\u{4e16}\u{754c}".as_bytes(),
    b"$(reboot)",
    b"quote\"",
    b"#hash",
    b"~home",
];
/// Names that ls shows, and that turn what stands around them or cannot be seen.
const STRICTER: [&str; 3] = ["bidi-\u{202e}gpj.exe", "isolate-\u{2067}x", "invisible-\u{200b}x"];

const LABEL: &str = "lab\x1b[31m\x07";
const TARGET: &[u8] = b"\x1b[2Jaway";

fn hostile(test: &str) -> Option<Volume> {
    let folder = needs::folder(test, &["mke2fs"])?;
    let (tree, image) = (folder.path().join("tree"), folder.path().join("hostile.img"));
    let within = |folder: &str, name: &[u8]| tree.join(folder).join(OsStr::from_bytes(name));
    for folder in ["same", "strict", "links", "etc", "shut"] {
        fs::create_dir_all(tree.join(folder)).unwrap();
    }
    for name in NAMES {
        fs::write(within("same", name), "word\n").unwrap();
        fs::write(within("shut", name), "word\n").unwrap();
        fs::set_permissions(within("shut", name), fs::Permissions::from_mode(0o0)).unwrap();
    }
    for name in STRICTER {
        fs::write(within("strict", name.as_bytes()), "word\n").unwrap();
    }
    fs::create_dir(within("strict", b"folder\x1b[H")).unwrap();
    fs::write(within("strict", b"folder\x1b[H").join("leaf"), "word\n").unwrap();
    for name in [&b"link"[..], b"li\x1bnk", b"other"] {
        let target = if name == b"other" { b"elsewhere" } else { TARGET };
        symlink(OsStr::from_bytes(target), within("links", name)).unwrap();
    }
    let uid = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&tree).unwrap());
    fs::write(tree.join("etc/passwd"), format!("ev\x1b[31mil:x:{uid}:0::/:/bin/sh\n")).unwrap();
    fs::write(tree.join("etc/group"), "gr\u{9b}oup:x:0:\n").unwrap();
    volume::ext(&image, 32, Some(&tree), &["-t", "ext4", "-L", LABEL]);
    Some(Volume { folder, tree, image })
}

fn ours(volume: &Volume, locale: &str, command: &str, args: &[&str]) -> Command {
    let mut run = nearside();
    run.env("LC_ALL", locale).env("TERM", "dumb").arg(command).arg("-d").arg(&volume.image).args(args);
    run
}

/// Nothing but characters that show themselves, and line ends (and stat's own tabs).
#[track_caller]
fn harmless(written: &[u8], what: &dyn std::fmt::Debug) {
    let text = std::str::from_utf8(written)
        .unwrap_or_else(|e| panic!("{what:?}: {e}: {}", String::from_utf8_lossy(written)));
    let turns = ['\u{200b}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{61c}'];
    let bad = |c: char| {
        c.is_control() && c != '\n' && c != '\t'
            || turns.contains(&c)
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
    };
    if let Some(at) = text.find(bad) {
        panic!("{what:?} writes {:?}", &text[at..text.len().min(at + 20)]);
    }
}

#[test]
fn nothing_of_a_volume_reaches_a_terminal_raw() {
    let Some(volume) = hostile("nothing_of_a_volume_reaches_a_terminal_raw") else { return };
    let stranger = ["--as", "12345:12345"];
    for (command, args) in [
        ("ls", &["/same"][..]),
        ("ls", &["-R", "/"]),
        ("ls", &["-laRi", "--names", "/"]),
        ("ls", &["-l", "/links", "/no\x1bsuch"]),
        ("ls", &["-lFsi", "--color=never", "/same", "/links"]),
        ("stat", &["--names", "--glob", "/same/*", "/links/*"]),
        ("stat", &["-c", "%n %N %U:%G", "--glob", "/same/*", "/links/*"]),
        ("find", &["/"]),
        ("find", &["/", "-print0"]),
        ("find", &["/", "-printf", "%p %u %g %l\\n"]),
        ("grep", &["-r", "word", "/"]),
        ("grep", &["-rnC1", "word", "/"]),
        ("grep", &["-rl", "word", "/"]),
        ("grep", &["-rL", "nothing", "/"]),
        ("grep", &["-rcZ", "word", "/"]),
        ("wc", &["-r", "/"]),
        ("cksum", &["-r", "/"]),
        ("cksum", &["-r", "--tag", "/"]),
        ("cksum", &["-r", "-a", "md5", "/"]),
        ("wc", &["-rL", "/"]),
        ("diff", &["/same", "/proc/self/ns"]),
        ("cat", &["--glob", "/no\u{9b}31m", "/same/no\nsuch\x1b[m", "/strict/*"]),
        ("info", &[]),
    ] {
        let mut runs = vec![args.to_vec()];
        if command != "info" {
            runs.push([args, &stranger[..]].concat());
        }
        // A form is no JSON.
        if !args.contains(&"-c") {
            let json: Vec<_> = runs.iter().map(|args| [&args[..], &["--json"]].concat()).collect();
            runs.extend(json);
        }
        for args in runs {
            for locale in ["C.UTF-8", "C"] {
                let (written, _) = on_a_terminal(&mut ours(&volume, locale, command, &args));
                assert!(!written.is_empty(), "{command} {args:?}");
                // -print0 ends paths by zero bytes, and -Z names.
                let own: Vec<u8> = written.into_iter().filter(|b| *b != 0).collect();
                harmless(&own, &(locale, command, args.clone()));
            }
        }
    }
    // Colours are the command's own.
    let mut colored = ours(&volume, "C.UTF-8", "grep", &["-rn", "--color=always", "word", "/"]);
    let (written, code) = on_a_terminal(&mut colored);
    let mut text = String::from_utf8(written).unwrap();
    assert!(code == 0 && text.contains("\x1b[35m"), "{text:?}");
    for own in ["\x1b[35m\x1b[K", "\x1b[36m\x1b[K", "\x1b[32m\x1b[K", "\x1b[01;31m\x1b[K", "\x1b[m\x1b[K"] {
        text = text.replace(own, "");
    }
    harmless(text.as_bytes(), &"grep in colours");
    // And a name can be told from another: the stricter ones are shown by their bytes.
    let (written, _) = on_a_terminal(&mut ours(&volume, "C.UTF-8", "ls", &["/strict"]));
    let text = String::from_utf8(written).unwrap();
    assert!(text.contains("'bidi-'$'\\342\\200\\256''gpj.exe'\n"), "{text}");
    let (written, _) = on_a_terminal(&mut ours(&volume, "C.UTF-8", "info", &[]));
    assert!(String::from_utf8(written).unwrap().contains("'lab'$'\\033''[31m'$'\\a'\n"));
}

fn lines(written: &[u8]) -> BTreeSet<&[u8]> {
    written.split(|b| *b == b'\n').filter(|line| !line.is_empty()).collect()
}

#[test]
fn names_are_quoted_as_gnu_ls_quotes_them() {
    let Some(volume) = hostile("names_are_quoted_as_gnu_ls_quotes_them") else { return };
    for locale in ["C.UTF-8", "C"] {
        let ls = |args: &[&str], folder: &str| {
            let mut ls = Command::new("ls");
            ls.env("LC_ALL", locale).env("TERM", "dumb").env("TZ", "UTC").env_remove("QUOTING_STYLE");
            on_a_terminal(ls.args(args).arg(".").current_dir(volume.tree.join(folder))).0
        };
        let theirs = ls(&["-1"], "same");
        let (shown, code) = on_a_terminal(&mut ours(&volume, locale, "ls", &["/same"]));
        assert_eq!((code, lines(&shown).len()), (0, NAMES.len()));
        let text = |written: &BTreeSet<&[u8]>| {
            written.iter().map(|l| String::from_utf8_lossy(l).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(text(&lines(&shown)), text(&lines(&theirs)), "{locale}");
        // Long lines: aligned, and targets quoted as well.
        // From the time on, since owners and dates are others.
        for folder in ["same", "links"] {
            let theirs = ls(&["-l", "--time-style=long-iso"], folder);
            let (shown, _) = on_a_terminal(&mut ours(&volume, locale, "ls", &["-l", &format!("/{folder}")]));
            let names = |written: &[u8]| -> Vec<String> {
                let lines = String::from_utf8(written.to_vec()).unwrap();
                let mut names: Vec<_> = lines
                    .lines()
                    .filter(|line| !line.starts_with("total"))
                    .map(|line| line[line.find(':').unwrap() + 3..].to_owned())
                    .collect();
                names.sort();
                names
            };
            assert_eq!(names(&shown), names(&theirs), "{locale} {folder}");
        }
    }
}

#[test]
fn a_pipe_gets_bytes_as_they_are() {
    let Some(volume) = hostile("a_pipe_gets_bytes_as_they_are") else { return };
    let run = |command: &str, args: &[&str]| volume.run(command, args);
    let mut names: Vec<Vec<u8>> = NAMES.iter().map(|name| name.to_vec()).collect();
    names.sort();
    let joined: Vec<u8> = names.iter().flat_map(|name| [&name[..], b"\n"].concat()).collect();
    assert_eq!(run("ls", &["/same"]).out, joined);
    let found = run("find", &["/same", "-type", "f", "-print0"]).out;
    let expected: Vec<u8> = names.iter().flat_map(|name| [b"/same/", &name[..], b"\0"].concat()).collect();
    assert_eq!(found, expected);
    let links = run("ls", &["-l", "/links"]).out;
    assert!(links.windows(TARGET.len()).any(|w| w == TARGET));
    let denied =
        ours(&volume, "C.UTF-8", "grep", &["-r", "--as", "12345:12345", "word", "/shut"]).output().unwrap();
    assert!(denied.stderr.windows(NAMES[4].len()).any(|w| w == NAMES[4]));
    // As JSON, every name can be had back.
    let listed = run("ls", &["--json", "/same"]).json();
    let cut = listed.iter().find(|entry| entry["path"]["bytes"].is_string()).unwrap();
    assert!(cut["path"]["text"].is_null());
    assert_eq!(listed.iter().filter(|entry| entry["path"]["bytes"].is_string()).count(), 2);
    assert!(listed.iter().any(|entry| entry["path"]["text"] == "/same/line\nbreak"));
    // Lists of checksums can be checked: sha256sum reads its own form back.
    let sums = run("cksum", &["/same/line\nbreak", "/same/back\\slash", "/same/plain", "/same/cr\rx"]);
    assert_eq!(sums.code, 0, "{}", sums.err);
    let theirs =
        volume.tool("sha256sum", &["/same/line\nbreak", "/same/back\\slash", "/same/plain", "/same/cr\rx"]);
    let escaped = |path: &Path| path.to_str().unwrap().to_owned();
    assert!(!escaped(&volume.tree).contains('\\'));
    assert_eq!(sums.text(), theirs.text());
    let counts = run("wc", &["/same/line\nbreak", "/same/plain"]);
    let theirs = volume.tool("wc", &["/same/line\nbreak", "/same/plain"]);
    assert_eq!(counts.text(), theirs.text());
}

/// Runs a command that waits for whoever reads what it writes. So many bytes of that are read, then what it
/// says meanwhile until that holds `words`, then all; what it wrote.
#[track_caller]
fn said_meanwhile(volume: &Volume, args: &[&str], first: usize, words: &str) -> Vec<u8> {
    let (mut ours, theirs) = terminal();
    let mut command = nearside();
    command.env("TERM", "xterm").args(args).arg("-d").arg(&volume.image).stdout(Stdio::piped());
    let mut child = command.stderr(theirs.try_clone().unwrap()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut bytes = vec![0; first];
    out.read_exact(&mut bytes).unwrap();
    let (mut said, mut piece, patience) = (String::new(), [0; 4096], Timespec { tv_sec: 300, tv_nsec: 0 });
    while !said.contains(words) {
        let more = poll(&mut [PollFd::new(&ours, PollFlags::IN)], Some(&patience)).unwrap();
        // As much as it says in some minutes.
        assert!(more > 0 && said.len() < 256 << 10, "{args:?}: {words:?} in {said:?}");
        let n = ours.read(&mut piece).unwrap();
        said.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
    assert!(said.contains(" left, "), "{args:?}: {said:?}");
    // It is not to wait for whoever reads that.
    thread::spawn(move || io::copy(&mut ours, &mut io::sink()));
    out.read_to_end(&mut bytes).unwrap();
    assert!(child.wait().unwrap().success(), "{args:?}");
    bytes
}

#[test]
fn what_takes_long_says_how_long_it_still_takes() {
    let Some(volume) = small("what_takes_long_says_how_long_it_still_takes") else { return };
    let bytes = said_meanwhile(volume, &["cat", "/large"], 4 << 20, " MiB of 11.44 MiB in the drive, ");
    assert!(bytes == fs::read(volume.tree.join("large")).unwrap());
}

/// Bytes of all files in a folder.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let of = |entry: DirEntry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => size(&entry.path()),
        kind if kind.is_file() => entry.metadata().unwrap().len(),
        _ => 0,
    };
    entries.map(of).sum()
}

/// Trees, of which nobody knows how much is in them before it is counted.
#[test]
fn trees_are_counted_while_they_are_read() {
    let Some(volume) = small("trees_are_counted_while_they_are_read") else { return };
    let all = HumanBytes(size(&volume.tree));
    let grep = ["grep", "--as", "0:0", "-r", "-n", "-a", "-e", "", "/"];
    let one_thread = [&grep[..], &["--threads", "1"]].concat();
    let seen = format!(" of {all} in the drive, ");
    let lines = said_meanwhile(volume, &grep, 4 << 20, &seen);
    assert!(lines == said_meanwhile(volume, &one_thread, 4 << 20, &seen));
    let copied = format!(" of {all} copied, ");
    said_meanwhile(volume, &["cp", "--as", "0:0", "--tar", "-", "/"], 4 << 20, &copied);
}

/// Trees of all that a volume has, of which the volume knows about how many files are in them.
#[test]
fn a_whole_volume_says_about_how_many_files_there_are() {
    let test = "a_whole_volume_says_about_how_many_files_there_are";
    let Some(folder) = needs::folder(test, &["mke2fs", "dumpe2fs"]) else { return };
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    // More names than one reply holds, and than a pipe does beside the command's own buffer.
    (0..3000).for_each(|nr| drop(File::create(tree.join(format!("{nr:0200}"))).unwrap()));
    let many = ext4(folder, tree, 32);
    let used = |volume: &Volume| HumanCount(volume::ext_inodes(&volume.image).1);
    let of = format!(" of about {} files in the drive, ", used(&many));
    let found = said_meanwhile(&many, &["find", "--as", "0:0", "/"], 300_000, &of);
    // The root, and lost+found.
    assert_eq!(lines(&found).len(), 3002);
    // Files that the host reads, which nobody counts beside that.
    let Some(small) = small(test) else { return };
    let grep = ["grep", "--as", "0:0", "-r", "-n", "-a", "-e", "", "/"];
    let on_the_host = [&grep[..], &["--locate", "host", "--compute", "host"]].concat();
    said_meanwhile(small, &on_the_host, 4 << 20, &format!(" of at most {} files, ", used(small)));
}

/// Files that are named, by commands that make more of them than lines.
#[test]
fn what_is_computed_says_how_long_it_still_takes() {
    let Some(volume) = small("what_is_computed_says_how_long_it_still_takes") else { return };
    let len = |path: &str| fs::metadata(volume.tree.join(path)).unwrap().len();
    let (long, short) = (len("logs/a.log"), len("logs/b.log"));
    let of = |bytes: u64| format!(" of {} in the drive, ", HumanBytes(bytes));
    let run = |args: &[&str], more: &[&str], first: usize, bytes: u64| {
        said_meanwhile(volume, &[args, more].concat(), first, &of(bytes))
    };
    // What columns there are is looked for in the first 256 KiB.
    let columns = long.min(256 << 10);
    run(&["select", "--no-header"], &["/logs/a.log"; 3], 1_500_000, 3 * (long + columns));
    let nearest = ["nearest", "--type", "int8", "--columns", "1", "--query", "1", "-k", "2000"];
    run(&nearest, &["/logs/b.log"; 30], 100_000, 30 * short);
    let rules = volume.folder.path().join("progress.yar");
    let text = "rule r { strings: $a = \"unit-\" $b = \"took \" condition: all of them }";
    fs::write(&rules, text).unwrap();
    run(&["yara", "-s", rules.to_str().unwrap()], &["/logs/b.log"; 40], 20_000, 40 * short);
    // Ten numbers of four bytes are a row.
    let rows: Vec<String> = (0..20_000).map(|row: u32| row.to_string()).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let gather = ["gather", "--raw", "--type", "f32", "--columns", "10", "/large"];
    let bytes = run(&gather, &rows, 400_000, 800_000);
    assert!(bytes[..] == fs::read(volume.tree.join("large")).unwrap()[..800_000]);
}
