//! What is wrong is said: what, and where; no panic, and exit status
//! 2 (1 for the commands whose models do so).

use std::fs;

use nearside_conformance::volume as make;

use crate::fixture::{nearside, on, small};

#[test]
fn paths_that_cannot_be() {
    let Some(volume) = small("paths_that_cannot_be") else { return };
    let long = format!("/{}", "x/".repeat(2100));
    let name = format!("/{}", "n".repeat(300));
    for (path, words) in [
        ("hello.txt", "hello.txt: Not an absolute path"),
        ("/missing", "/missing: No such file or directory"),
        ("/hello.txt/x", "/hello.txt/x: Not a directory"),
        ("/loop-a", "/loop-a: Too many levels of symbolic links"),
        ("/dangling", "/dangling: No such file or directory"),
        (&long, "File name too long"),
        (&name, "File name too long"),
    ] {
        for command in ["grep", "cat", "wc", "cksum", "stat", "ls"] {
            let args = if command == "grep" { vec!["x", path] } else { vec![path] };
            // stat and ls look at a link itself.
            if command == "stat" && (path == "/loop-a" || path == "/dangling") {
                continue;
            }
            if command == "ls" && (path == "/loop-a" || path == "/dangling") {
                continue;
            }
            let ran = volume.run(command, &args);
            assert!(ran.err.contains(words), "{command} {path}: {}", ran.err);
            assert!((1..=2).contains(&ran.code), "{command} {path}: {}", ran.code);
            assert!(ran.out.is_empty(), "{command} {path}");
        }
    }
    let ran = volume.run("cat", &["/logs"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "nearside: /logs: Is a directory\n"));
}

#[test]
fn permission_is_the_files_own() {
    let Some(volume) = small("permission_is_the_files_own") else { return };
    let stranger = ["--as", "12345:12345"];
    for (command, args) in [
        ("grep", vec!["ERROR", "/private"]),
        ("cat", vec!["/private"]),
        ("cat", vec!["/secret/key"]),
        ("ls", vec!["/secret"]),
        ("stat", vec!["/secret/key"]),
        ("cksum", vec!["/private"]),
    ] {
        let path = *args.last().unwrap();
        let ran = volume.run(command, &[&args[..], &stranger].concat());
        assert_eq!(ran.err, format!("nearside: {path}: Permission denied\n"), "{command} {path}");
        assert!((1..=2).contains(&ran.code) && ran.out.is_empty());
        let root = volume.run(command, &[&args[..], &["--as", "0:0"]].concat());
        assert_eq!(root.code, 0, "{command} {path}: {}", root.err);
    }
    // stat of a file that may not be read is allowed.
    assert_eq!(volume.run("stat", &[&["/private"][..], &stranger].concat()).code, 0);
    // A tree goes on after what it may not read, and says so.
    let ran = volume.run("grep", &[&["-rl", "ERROR", "/"][..], &stranger].concat());
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("/private: Permission denied") && ran.text().contains("/logs/a.log"),
        "{}",
        ran.err
    );
}

#[test]
fn patterns_that_do_not_compile() {
    let Some(volume) = small("patterns_that_do_not_compile") else { return };
    for pattern in ["(", "[z-a]", "*", "a{99999}{99999}", "\\"] {
        let ran = volume.run("grep", &["-e", pattern, "/hello.txt"]);
        assert_eq!(ran.code, 2, "{pattern}");
        assert!(ran.err.contains("Invalid pattern"), "{pattern}: {}", ran.err);
    }
}

#[test]
fn drives_that_are_none() {
    let Some(volume) = small("drives_that_are_none") else { return };
    let folder = volume.folder.path();
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let image = fs::read(&volume.image).unwrap();
    let mut torn = image.clone();
    torn[1024 + 0x18] = 0x77;
    for (path, words) in [
        (folder.join("nothing.img"), "No such file or directory"),
        (put("empty.img", b""), "empty.img: "),
        (put("zeros.img", &[0; 1 << 20]), "no file system"),
        (put("text.img", &b"not a volume\n".repeat(5000)), "no file system"),
        (put("short.img", &image[..1 << 20]), "short.img"),
        (put("torn.img", &torn), "orrupt"),
    ] {
        for args in [&["grep", "x", "/hello.txt"][..], &["ls", "/"], &["info"]] {
            let ran = on(&path, args[0], &args[1..]);
            let shown = path.display();
            assert!((1..=2).contains(&ran.code), "{args:?} {shown}: {} {}", ran.code, ran.err);
            assert!(ran.err.contains(words), "{args:?} {shown}: {}", ran.err);
            assert!(!ran.err.contains("panicked"), "{}", ran.err);
        }
    }
}

#[test]
fn a_volume_damaged_anywhere_is_an_error_and_no_crash() {
    let Some(volume) = small("a_volume_damaged_anywhere_is_an_error_and_no_crash") else { return };
    let image = fs::read(&volume.image).unwrap();
    let path = volume.folder.path().join("damaged.img");
    let mut state = 12345u32;
    for round in 0..40 {
        let mut damaged = image.clone();
        for _ in 0..64 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Mostly where the metadata is.
            let at = (state >> 4) as usize % (if round % 4 == 0 { damaged.len() } else { 2 << 20 });
            damaged[at] ^= (state >> 24) as u8 | 1;
        }
        fs::write(&path, &damaged).unwrap();
        for args in [&["grep", "-r", "ERROR", "/"][..], &["find", "/"], &["info"]] {
            let ran = on(&path, args[0], &args[1..]);
            assert!((0..=2).contains(&ran.code), "round {round} {args:?}: {} {}", ran.code, ran.err);
            assert!(!ran.err.contains("panicked"), "round {round}: {}", ran.err);
        }
    }
}

#[test]
fn command_lines_that_make_no_sense() {
    let Some(volume) = small("command_lines_that_make_no_sense") else { return };
    for args in [
        &["--as", "nobody", "x", "/"][..],
        &["--partition", "x", "x", "/"],
        &["--completion", "psychic", "x", "/"],
        &["--compute", "host", "x", "/"],
        &["-m", "-1", "x", "/"],
        &[],
        &["--unknown"],
    ] {
        let ran = volume.run("grep", args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert!(!ran.err.is_empty(), "{args:?}");
    }
    assert_eq!(nearside().output().unwrap().status.code(), Some(2));
    let ran = on(std::path::Path::new("unix:/nonexistent/drive.sock"), "ls", &["/"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("unix:/nonexistent/drive.sock"), "{}", ran.err);
}

#[test]
fn the_home_of_a_volume_that_needs_recovery_opens_with_a_warning() {
    let Some(volume) = small("the_home_of_a_volume_that_needs_recovery_opens_with_a_warning") else { return };
    let path = volume.folder.path().join("recover.img");
    make::ext(&path, 64, Some(&volume.tree), &["-t", "ext4", "-O", "^metadata_csum"]);
    assert_eq!(on(&path, "cat", &["/hello.txt"]).err, "");
    // As a power cut leaves it: feature_incompat bit 2 (needs_recovery).
    let mut bytes = fs::read(&path).unwrap();
    bytes[1024 + 0x60] |= 4;
    fs::write(&path, bytes).unwrap();
    for args in
        [&["cat", "/hello.txt"][..], &["grep", "hello", "/hello.txt"], &["ls", "-R", "/logs"], &["find", "/"]]
    {
        // Its journal holds nothing: what is recovered is all.
        assert_eq!(on(&path, args[0], &args[1..]).err, "", "{args:?}");
        let ran = on(&path, args[0], &[&args[1..], &["--home"]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        assert!(
            ran.err.starts_with("nearside: warning: ") && ran.err.contains("recovery"),
            "{args:?}: {}",
            ran.err
        );
        assert_eq!(ran.err.lines().count(), 1, "said once: {}", ran.err);
        assert!(!ran.out.is_empty());
    }
    let info = on(&path, "info", &["--json", "--home"]).json().remove(0);
    for says in ["needs_recovery", "unstable"] {
        assert_eq!(info["volumes"][0][says], true, "{says}");
        assert_eq!(on(&path, "info", &["--json"]).json()[0]["volumes"][0][says], false, "{says}");
    }
}

/// Without a journal, nothing says which of its blocks a volume that was not unmounted has given away.
#[test]
fn an_unclean_volume_without_a_journal_is_said_to_be_unstable() {
    let Some(volume) = small("an_unclean_volume_without_a_journal_is_said_to_be_unstable") else { return };
    let path = volume.folder.path().join("unclean.img");
    make::ext(&path, 64, Some(&volume.tree), &["-t", "ext2"]);
    let warnings = |args: &[&str]| {
        let ran = on(&path, args[0], &[&args[1..], &["--json"]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        let mut lines = ran.json();
        lines.retain(|line| line["type"] == "warning");
        lines
    };
    let asked =
        [&["cat", "/hello.txt"][..], &["grep", "hello", "/hello.txt"], &["ls", "/logs"], &["find", "/"]];
    for args in asked {
        assert!(warnings(args).is_empty(), "{args:?}: a clean volume");
    }
    // As a mount leaves it: s_state without bit 0 (cleanly unmounted).
    let mut bytes = fs::read(&path).unwrap();
    bytes[1024 + 0x3A] &= !1;
    fs::write(&path, bytes).unwrap();
    for args in asked {
        let said = warnings(args);
        assert_eq!(said.len(), 1, "{args:?}: {said:?}");
        assert_eq!(said[0]["unstable"], true, "{args:?}");
        assert!(said[0]["text"].as_str().unwrap().contains("has no journal"), "{args:?}: {said:?}");
    }
    let info = on(&path, "info", &["--json"]).json().remove(0);
    assert_eq!(info["volumes"][0]["unstable"], true);
    assert_eq!(info["volumes"][0]["needs_recovery"], false);
    let told = String::from_utf8(on::<&str>(&path, "info", &[]).out).unwrap();
    assert!(told.contains("\nstate            not unmounted cleanly\n"), "{told}");
    // Its content is root's alone.
    let other = on(&path, "cat", &["--as", "65534:65534", "/hello.txt"]);
    assert!(other.out.is_empty() && other.err.contains("the volume is unstable"), "{}", other.err);
}

/// An image with a committed transaction that is not at home yet: /hello.txt's block, as a journal of data
/// has it.
#[test]
fn an_image_is_shown_as_a_mount_would_recover_it() {
    let test = "an_image_is_shown_as_a_mount_would_recover_it";
    let Some(volume) = small(test) else { return };
    if !nearside_conformance::needs::tools(test, &["debugfs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, block) = (folder.path().join("crashed.img"), folder.path().join("block"));
    make::ext(&path, 64, Some(&volume.tree), &["-t", "ext4", "-b", "4096"]);
    let said = make::must(make::tool("debugfs").args(["-R", "blocks /hello.txt"]).arg(&path));
    let nr = String::from_utf8(said.stdout).unwrap();
    let mut bytes = fs::read(volume.tree.join("hello.txt")).unwrap();
    // A log escapes a block that begins with its own magic number.
    bytes[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    bytes.resize(4096, 0);
    fs::write(&block, &bytes).unwrap();
    let commands = format!("jo -c\njw -b {} {}\njc\n", nr.trim(), block.display());
    fs::write(folder.path().join("commands"), commands).unwrap();
    let script = folder.path().join("commands");
    make::must(make::tool("debugfs").args(["-w", "-f", script.to_str().unwrap()]).arg(&path));
    let before = fs::read(&path).unwrap();

    // For everybody, whom modes let, and by each way of locating.
    for way in
        [&[][..], &["--as", "65534:65534"], &["--locate", "host"], &["--locate", "host", "--compute", "host"]]
    {
        let shown = on(&path, "cat", &[way, &["/hello.txt"]].concat());
        assert_eq!((shown.code, shown.err.as_str()), (0, ""), "{way:?}");
        assert!(shown.out.starts_with(b"\xC0\x3B\x39\x98o world\n"), "{way:?}");
        let home = on(&path, "cat", &[way, &["--home", "/hello.txt"]].concat());
        if way.contains(&"--as") {
            assert!(home.out.is_empty() && home.err.contains("needs recovery"), "{}", home.err);
        } else {
            assert!(home.out.starts_with(b"hello world\n"), "{way:?}: {}", home.err);
        }
    }
    let state = |args: &[&str]| {
        let out = String::from_utf8(on(&path, "info", args).out).unwrap();
        out.lines().find_map(|line| line.strip_prefix("state            ").map(String::from)).unwrap()
    };
    assert_eq!(state(&[]), "recovered from 1 transaction (up to 1)");
    assert_eq!(state(&["--home"]), "needs recovery");
    let info = on(&path, "info", &["--json"]).json().remove(0);
    let recovered = serde_json::json!({"transactions": 1, "fast_commits": 0, "nodes": 0, "up_to": 1});
    assert_eq!(info["volumes"][0]["recovered"], recovered);
    assert_eq!(info["volumes"][0]["needs_recovery"], false);
    assert_eq!(volume.run("info", &["--json"]).json()[0]["volumes"][0]["recovered"], serde_json::Value::Null);
    assert!(fs::read(&path).unwrap() == before, "the image was written");
}
