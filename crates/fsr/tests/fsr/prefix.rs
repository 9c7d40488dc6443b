//! Deep paths asked for again and again, by several users, while directories on the way change: a retriever
//! that remembers answers as one that knows nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use crate::common::*;
use nearside_conformance::needs;
use nearside_conformance::volume::{must, tool};
use nearside_fsr::{Beneath, Config, MemoryMedia, Outcome, Retriever};
use nearside_near_data::{Counters, Credentials, Failure, Operation, Paths, Request, Target};
use nearside_random::Rng;

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
    Request { credentials: credentials.clone(), ..request(crate::common::path(path), Operation::Stat) }
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

/// Makes the volume that of the image, told to the monitor as a host's writes are. Whether it is another.
fn change(retriever: &Retriever, media: &MemoryMedia, old: &mut Vec<u8>, new: Vec<u8>) -> bool {
    let changed: Vec<usize> =
        (0..new.len() / 4096).filter(|n| old[n * 4096..][..4096] != new[n * 4096..][..4096]).collect();
    for block in &changed {
        let at = block * 4096;
        retriever.monitor().begin(at as u64, 4096);
        media.write(at as u64, &new[at..at + 4096]);
        retriever.monitor().end(at as u64, 4096, true);
    }
    *old = new;
    !changed.is_empty()
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
        assert!(change(&retriever, &media, &mut bytes, fs::read(&image).unwrap()), "{request}");
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

const DIRECTORIES: [&str; 8] = ["", "/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b/c/d/e", "/p", "/p/q/r"];
const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "file", "other", "up", "way"];

fn any<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.index(of.len())]
}

/// A path that may be there.
fn any_path(rng: &mut Rng) -> String {
    let path = format!("{}/{}", any(rng, &DIRECTORIES), any(rng, &NAMES));
    let way = match rng.below(8) {
        0 => format!("/a/way/d/e/{}", any(rng, &NAMES)),
        1 => format!("{}/../{}", path, any(rng, &NAMES)),
        _ => path,
    };
    way + any(rng, &["", "", "", "/", "/.", "/file"])
}

/// What a host does to the volume, as debugfs has it.
fn any_change(rng: &mut Rng) -> String {
    let path = format!("{}/{}", any(rng, &DIRECTORIES), any(rng, &NAMES));
    let directory = any(rng, &DIRECTORIES[1..]);
    match rng.below(12) {
        0..=3 => {
            let mode = any(rng, &["0755", "0700", "0750", "0705", "0711", "0070"]);
            format!("set_inode_field {directory} mode 04{mode}")
        }
        4 => format!("set_inode_field {path} mode 010{}", any(rng, &["0644", "0600", "0640", "0004"])),
        5 => format!("set_inode_field {directory} uid {}", any(rng, &["0", "1000", "1001"])),
        6 => format!("set_inode_field {directory} gid {}", any(rng, &["0", "7", "1000"])),
        7 => format!("unlink {path}"),
        8 => format!("link {} {path}", any(rng, &DIRECTORIES[1..])),
        9 => format!("link /p/q/r/s/t/file {path}"),
        10 => format!("symlink {path} {}{}", any(rng, &DIRECTORIES), any(rng, &["/file", "/c", ""])),
        _ => format!("mkdir {path}"),
    }
}

/// One path, or several in a list.
fn any_question(rng: &mut Rng) -> Request {
    let target = match rng.below(4) {
        0 => Target::Paths((0..20).map(|_| any_path(rng)).collect::<Paths>()),
        _ => crate::common::path(&any_path(rng)),
    };
    let users = [
        Credentials::default(),
        Credentials { uid: 1000, gid: 1000, groups: vec![] },
        Credentials { uid: 1000, gid: 1000, groups: vec![7] },
        Credentials { uid: 1000, gid: 7, groups: vec![] },
        Credentials { uid: 1001, gid: 1000, groups: vec![7, 8] },
    ];
    let operation =
        [Operation::Stat, Operation::Stat, Operation::Nop, Operation::Count][rng.index(4)].clone();
    let credentials = users[rng.index(users.len())].clone();
    Request { credentials, follow: rng.below(2) == 0, ..request(target, operation) }
}

/// As the drive does it: at once, where that is possible. Whether it was.
fn ask_of_a_drive(
    retriever: &Retriever,
    media: &MemoryMedia,
    request: &Request,
) -> ((Vec<Got>, Option<Failure>), Counters, bool) {
    let at_once = retriever.run_at_once(request, || 0, || Records::new(usize::MAX / 2));
    let was = at_once.is_some();
    let (got, outcome) = match at_once {
        Some((records, outcome)) => (records.got, outcome),
        None => ask(retriever, media, request),
    };
    assert_eq!(outcome.more, None);
    ((got, outcome.failure), outcome.counters, was)
}

/// What may be wrong with the bytes is warned of with each answer, also where that comes at once. Where there
/// is no volume that could say as of when they are, that is a warning as well.
#[test]
fn what_is_known_of_the_bytes_is_said_with_answers() {
    let test = "what_is_known_of_the_bytes_is_said_with_answers";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    tree_of_directories(dir.path());
    let media = MemoryMedia::new(ext_image(dir.path(), 16, &["-t", "ext4", "-b", "4096"]));
    let retriever = Retriever::new(Config::default());
    let [unsure, known] = ["may be old", "as of then"].map(|text| vec![text.to_owned()]);
    retriever.set_beneath(Arc::new(Beneath { unsure, known }));
    let [unsure, known] = ["may be old", "as of then"].map(|text| Got::Warning(text.to_owned(), false));
    let asked = stat("/p/q/r/s/t/file", &Credentials::default());
    let answers = [(); 4].map(|()| ask_of_a_drive(&retriever, &media, &asked));
    for ((got, failure), ..) in &answers {
        let is_entry = matches!(got.get(1), Some(Got::Entry { .. }));
        assert!(got.len() == 2 && got[0] == unsure && is_entry && failure.is_none(), "{got:?} {failure:?}");
    }
    let [(_, _, first), .., (_, _, last)] = answers;
    assert!(!first && last);
    retriever.forget();
    let none = MemoryMedia::new(vec![0; 1 << 20]);
    let (got, outcome) = ask(&retriever, &none, &request(Target::Volume, Operation::Info));
    assert_eq!(got, [unsure, known]);
    assert!(matches!(outcome.failure, Some(Failure::NoVolume(_))), "{:?}", outcome.failure);
}

/// Changes of any kind to a tree, and between them questions by several users, again and again: what is
/// remembered of whole paths is never what a walk that knows nothing would not find.
#[test]
fn whatever_changes_what_is_remembered_is_what_a_walk_finds() {
    let test = "whatever_changes_what_is_remembered_is_what_a_walk_finds";
    let Some(dir) = needs::folder(test, &["mke2fs", "debugfs"]) else { return };
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    fs::create_dir(&source).unwrap();
    tree_of_directories(&source);
    let (mut at_once, mut refused, mut changes, mut answers_changed) = (0, 0, 0, 0);
    for seed in 0..3 {
        let mut rng = Rng(seed);
        let mut bytes = ext_image(&source, 16, &["-t", "ext4", "-b", "4096"]);
        fs::write(&image, &bytes).unwrap();
        let media = MemoryMedia::new(bytes.clone());
        let retriever = Retriever::new(Config::default());
        let questions: Vec<Request> = (0..60).map(|_| any_question(&mut rng)).collect();
        let mut last = Vec::new();
        for step in 0..60 {
            let mut right = Vec::new();
            for question in &questions {
                let (got, answer) = ask(&Retriever::new(Config::default()), &media, question);
                refused += usize::from(answer.failure.is_some());
                right.push((got, answer.failure));
            }
            // What the first finds, the second remembers, and the third uses; others ask between them.
            for round in 0..3 {
                for (question, right) in questions.iter().zip(&right) {
                    let (got, counters, was) = ask_of_a_drive(&retriever, &media, question);
                    assert_eq!(&got, right, "seed {seed}, step {step}, round {round}: {question:?}");
                    assert!(!was || counters.cache_misses == 0 && counters.blocks_read == 0);
                    at_once += usize::from(was);
                }
            }
            answers_changed += usize::from(last != right);
            last = right;
            let request = any_change(&mut rng);
            must(tool("debugfs").args(["-w", "-R", &request]).arg(&image));
            changes += usize::from(change(&retriever, &media, &mut bytes, fs::read(&image).unwrap()));
        }
    }
    assert!(at_once > 1000 && refused > 1000, "{at_once} at once, {refused} refused");
    assert!(changes > 60 && answers_changed > 40, "{changes} changes, {answers_changed} of them seen");
}

/// A user with another group, or another user's groups: none has what the other was let to.
#[test]
fn what_one_may_is_not_what_another_may() {
    let test = "what_one_may_is_not_what_another_may";
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    tree_of_directories(&source);
    fs::set_permissions(source.join("a/b"), fs::Permissions::from_mode(0o700)).unwrap();
    let media = MemoryMedia::new(ext_image(&source, 16, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let (root, user) = (Credentials::default(), Credentials { uid: 54321, gid: 54321, groups: vec![] });
    for _ in 0..3 {
        assert_eq!(ask_of_a_drive(&retriever, &media, &stat(PATHS[1], &root)).0.1, None);
        let (answer, _, at_once) = ask_of_a_drive(&retriever, &media, &stat(PATHS[1], &user));
        assert_eq!((answer.1, at_once), (Some(Failure::PermissionDenied), false));
    }
    assert!(ask_of_a_drive(&retriever, &media, &stat(PATHS[1], &root)).2, "nothing is remembered");
    // And what is forgotten is walked to again.
    retriever.forget_files();
    assert!(!ask_of_a_drive(&retriever, &media, &stat(PATHS[1], &root)).2);
}
