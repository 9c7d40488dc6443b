//! Deep paths asked for again and again, by several users, while directories on the way change: a retriever
//! that remembers answers as one that knows nothing.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use common::*;
use nearside_conformance::needs;
use nearside_conformance::volume::{must, tool};
use nearside_fsr::{Config, MemoryMedia, Outcome, Retriever};
use nearside_near_data::{Credentials, Failure, Operation, Request};

const PATHS: [&str; 12] = [
    // First, so that it is what a walk to that directory is remembered of.
    "/a/b/c/d/e/away",
    "/a/b/c/d/e/file",
    "/a/b/c/d/e/other",
    "/a/b/c/d/e/up",
    "/a/b/c/d/e/",
    "/a/b/c/d/e/..",
    "/a/b/c/d/e/.",
    "/a/b/c/d/e/none",
    "/a/b/../b/c/d/e/file",
    "/a/b/c/d/e//file",
    "/a/way/d/e/file",
    "/new/c/d/e/file",
];

fn users() -> [Credentials; 3] {
    [
        Credentials::default(),
        Credentials { uid: 1000, gid: 1000, groups: vec![] },
        Credentials { uid: 1000, gid: 1000, groups: vec![7] },
    ]
}

fn tree_of_directories(root: &Path) {
    let deep = root.join("a/b/c/d/e");
    fs::create_dir_all(&deep).unwrap();
    for dir in ["", "a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e"] {
        fs::set_permissions(root.join(dir), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for name in ["file", "other"] {
        fs::write(deep.join(name), name).unwrap();
        fs::set_permissions(deep.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    // What it means hangs on the directories above.
    symlink("../../d/e/other", deep.join("up")).unwrap();
    symlink("b/c", root.join("a/way")).unwrap();
    fs::create_dir_all(root.join("p/q/r/s/t")).unwrap();
    fs::write(root.join("p/q/r/s/t/file"), "away").unwrap();
    symlink("/p/q/r/s/t/file", deep.join("away")).unwrap();
}

fn stat(path: &str, credentials: &Credentials) -> Request {
    Request { credentials: credentials.clone(), ..request(common::path(path), Operation::Stat) }
}

type Answers = Vec<(Vec<Got>, Option<Failure>)>;

/// All paths by all users.
fn answers(ask: impl Fn(&Request) -> (Vec<Got>, Outcome)) -> Answers {
    let users = users();
    let all = PATHS.iter().flat_map(|path| users.iter().map(move |user| stat(path, user)));
    all.map(|request| {
        let (got, Outcome { failure, .. }) = ask(&request);
        (got, failure)
    })
    .collect()
}

/// Makes the volume that of the image, told to the monitor as a host's writes are.
fn change(retriever: &Retriever, media: &MemoryMedia, old: &mut Vec<u8>, new: Vec<u8>) {
    let changed: Vec<usize> =
        (0..new.len() / 4096).filter(|n| old[n * 4096..][..4096] != new[n * 4096..][..4096]).collect();
    assert!(!changed.is_empty());
    for block in changed {
        let at = block * 4096;
        retriever.monitor().begin(at as u64, 4096);
        media.write(at as u64, &new[at..at + 4096]);
        retriever.monitor().end(at as u64, 4096, true);
    }
    *old = new;
}

#[test]
fn what_changes_on_the_way_is_seen() {
    let test = "what_changes_on_the_way_is_seen";
    let Some(dir) = needs::folder(test, &["mke2fs", "debugfs"]) else { return };
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    fs::create_dir(&source).unwrap();
    tree_of_directories(&source);
    let mut bytes = ext_image(&source, 16, &["-t", "ext4", "-b", "4096"]);
    fs::write(&image, &bytes).unwrap();
    let media = MemoryMedia::new(bytes.clone());
    let retriever = Retriever::new(Config::default());
    let remembered = || answers(|request| ask(&retriever, &media, request));
    let anew = || answers(|request| ask(&Retriever::new(Config::default()), &media, request));
    let mut seen = Vec::new();
    for request in [
        // Closed to others, then to one with a group, in the middle and at the end.
        "set_inode_field /a/b mode 040710",
        "set_inode_field /a/b gid 7",
        "set_inode_field /a/b/c/d/e mode 040700",
        "set_inode_field /a/b/c/d/e uid 1000",
        // Another directory in its place, and it by another name.
        "link /a/b /new",
        "unlink /a/b",
        "link /a /a/b",
        "unlink /a/b",
        "link /new /a/b",
        // A file where a directory was.
        "set_inode_field /a/b/c/d mode 0100755",
        "set_inode_field /a/b/c/d mode 040755",
        // A name that was not there.
        "link /a/b/c/d/e/file /a/b/c/d/e/none",
        "unlink /a/b/c/d/e/file",
    ] {
        must(tool("debugfs").args(["-w", "-R", request]).arg(&image));
        // Thrice before: what the first finds, the second remembers, and the third uses.
        for _ in 0..3 {
            assert_eq!(remembered(), anew(), "before {request}");
        }
        change(&retriever, &media, &mut bytes, fs::read(&image).unwrap());
        let after = remembered();
        assert_eq!(after, anew(), "after {request}");
        assert!(seen.last() != Some(&after), "{request} changes nothing");
        seen.push(after);
    }
}

#[test]
fn a_deep_path_is_counted_as_if_it_were_walked() {
    let test = "a_deep_path_is_counted_as_if_it_were_walked";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    tree_of_directories(&source);
    let media = MemoryMedia::new(ext_image(&source, 16, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let ask = |path: &str| {
        let (_, answer) = ask(&retriever, &media, &stat(path, &Credentials::default()));
        (answer.counters.cache_hits, answer.counters.cache_misses)
    };
    ask(PATHS[1]);
    let walked = ask(PATHS[1]);
    assert_eq!((walked.1, walked == ask(PATHS[1])), (0, true), "{walked:?}");
    // A neighbour whose name is not known: its directory is.
    let (hits, misses) = ask(PATHS[2]);
    assert!(hits > 0 && misses > 0, "{hits} {misses}");
}
