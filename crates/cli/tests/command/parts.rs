//! Trees in parts: on however many threads, the answer is byte for byte that of one command.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use nearside_conformance::needs;
use nearside_random::Rng;

use crate::fixture::{Ran, Volume, ext4, on, small};

/// A tree in which files stand among directories, alone, in hundreds, and where some may not come.
fn motley(test: &str) -> Option<Volume> {
    if !needs::tools(test, &["mke2fs", "mkfifo"]) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let mut random = Rng(11);
    let mut put = |path: &str| {
        let at = tree.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        let lines = random.below(9);
        let text: String =
            (0..lines).map(|n| format!("{n} {} {path}\n", random.pick(&["a", "ERROR"]))).collect();
        fs::write(at, text).unwrap();
    };
    for n in 0..1100 {
        put(&format!("many/{n:04}"));
    }
    for n in 0..600 {
        put(&format!("leaves/{:02}/{n:03}.log", n % 40));
    }
    for path in ["mixed/a", "mixed/b", "mixed/m/1", "mixed/m/2", "mixed/m/n/x", "mixed/z", "mixed/zz", "top"]
    {
        put(path);
    }
    for path in ["alone/only", "beside/1", "beside/2", "beside-it/1", "bars/file", "bars/sub/below", "shut/x"]
    {
        put(path);
    }
    fs::create_dir_all(tree.join("nothing/in/it")).unwrap();
    symlink("file", tree.join("bars/link")).unwrap();
    symlink("/leaves", tree.join("way")).unwrap();
    let fifos = [tree.join("bars/pipe"), tree.join("mixed/pipe")];
    assert!(std::process::Command::new("mkfifo").args(fifos).status().unwrap().success());
    let mode =
        |path: &str, bits| fs::set_permissions(tree.join(path), fs::Permissions::from_mode(bits)).unwrap();
    mode("", 0o755);
    mode("bars", 0o744);
    mode("shut", 0o700);
    mode("mixed/m/1", 0o600);
    Some(ext4(folder, tree, 64))
}

/// What a command says, less what is different each time.
fn said(ran: &Ran) -> (i32, Vec<String>, &str) {
    let timed = |line: &&str| !line.starts_with("{\"data\":{\"elapsed") && !line.contains("\"summary\"");
    (ran.code, ran.text().lines().filter(timed).map(str::to_owned).collect(), &ran.err)
}

#[track_caller]
fn alike(volume: &Volume, command: &str, args: &[&str]) {
    let one = on(&volume.image, command, &[&["--threads", "1"], args].concat());
    for threads in [&["--threads", "2"][..], &["--threads", "3"], &["--threads", "16"], &[]] {
        let parts = on(&volume.image, command, &[threads, args].concat());
        assert!(
            said(&parts) == said(&one),
            "{command} {args:?} on {threads:?}: {:?}, not {:?}",
            said(&parts),
            said(&one)
        );
    }
}

#[test]
fn a_tree_in_parts_is_answered_as_by_one_command() {
    let Some(volume) = motley("a_tree_in_parts_is_answered_as_by_one_command") else { return };
    for root in ["/", "/leaves", "/way", "/way/", "/mixed", "/many", "/top", "/nothing", "/nowhere", "/alone"]
    {
        for who in [&["--as", "0:0"], &["--as", "1000:1000"]] {
            for args in [&["-rn", "ERROR"][..], &["-rc", "ERROR"], &["-rL", "ERROR"], &["-rho", "ERROR"]] {
                alike(&volume, "grep", &[&who[..], args, &[root]].concat());
            }
        }
    }
    let more: [&[&str]; 6] = [
        &["-rvn", "ERROR", "/leaves", "/mixed", "/nowhere"],
        &["-r", "-A1", "-m2", "ERROR", "/"],
        &["-rq", "ERROR", "/"],
        &["-r", "(", "/"],
        &["-r", "--json", "ERROR", "/mixed"],
        &["-r", "ERROR", "/", "--include", "*.log", "--exclude", "mixed/m"],
    ];
    for args in more {
        alike(&volume, "grep", args);
    }
    for args in [&["-r", "/"][..], &["-r", "--as", "1000:1000", "/bars", "/shut", "/mixed"]] {
        alike(&volume, "wc", args);
        alike(&volume, "cksum", args);
    }
}

/// Counting cuts a file where lines end, wherever these are.
#[test]
fn a_large_file_in_parts_is_counted_as_by_one_command() {
    let test = "a_large_file_in_parts_is_counted_as_by_one_command";
    if !needs::tools(test, &["mke2fs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(&tree).unwrap();
    let mut random = Rng(5);
    let mut text = Vec::new();
    while text.len() < 40 << 20 {
        let word = random.pick(&["ERROR", "ok", "warn"]);
        text.extend(
            format!("{:x} {word} {}\n", random.draw(), "x".repeat(random.below(300) as usize)).bytes(),
        );
    }
    fs::write(tree.join("text"), &text).unwrap();
    // Without a line that ends there is nowhere to cut; with a mark it is UTF-16; holes are no blocks.
    fs::write(tree.join("one-line"), vec![b'E'; 20 << 20]).unwrap();
    fs::write(tree.join("utf16"), [&[0xFF, 0xFE][..], &text].concat()).unwrap();
    text[1 << 20..30 << 20].fill(0);
    text[25 << 20] = b'\n';
    fs::write(tree.join("holes"), &text).unwrap();
    let volume = ext4(folder, tree, 256);
    for name in ["/text", "/one-line", "/utf16", "/holes", "/nowhere", "/"] {
        for args in
            [&["-c", "ERROR"][..], &["-vc", "ERROR"], &["-cF", "ERROR"], &["-c", "("], &["-c", "-m3", "o"]]
        {
            alike(&volume, "grep", &[args, &[name]].concat());
        }
    }
    alike(&volume, "grep", &["-c", "--json", "ERROR", "/text"]);
    for args in [
        &["/text"][..],
        &["/holes", "/nowhere", "/one-line", "/"],
        &["--offset", "5", "--len", "9M", "/text"],
        &["--offset", "999999", "--len", "28000001", "/holes"],
    ] {
        alike(&volume, "cat", args);
    }
    alike(&volume, "cat", &["--offset", "1G", "/text"]);
    alike(&volume, "cat", &["--json", "--len", "2M", "/text"]);
    assert!(volume.run("cat", &["/text"]).out == fs::read(volume.tree.join("text")).unwrap());
    let grep = volume.tool("grep", &["-c", "ERROR", "/text"]).good();
    assert_eq!(volume.run("grep", &["--threads", "2", "-c", "ERROR", "/text"]).good(), grep);
}

#[test]
fn long_answers_keep_their_order() {
    let Some(volume) = small("long_answers_keep_their_order") else { return };
    alike(volume, "grep", &["-rn", "took", "/"]);
    let bad = volume.run("grep", &["--threads", "0", "-r", "x", "/"]);
    assert_eq!(bad.code, 2);
    assert!(bad.err.contains("no number from 1 to"), "{}", bad.err);
}
