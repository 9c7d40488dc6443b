//! Extended attributes, which debugfs writes: those that each user may have, in answers of any size.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::*;
use nearside_conformance::needs;
use nearside_conformance::volume::{must, tool};
use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_near_data::{Credentials, Failure, Operation, Request};

/// A volume of one block size with attributes in inodes, in blocks, and in inodes of their own.
fn volume(folder: &Path) -> Option<Vec<u8>> {
    let tree = folder.join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for (name, mode) in [("open", 0o644), ("closed", 0o600), ("d/plain", 0o644), ("long", 0o644)] {
        fs::write(tree.join(name), name).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let image = folder.join("image");
    fs::write(&image, ext_image(&tree, 16, &["-t", "ext4", "-b", "4096", "-O", "ea_inode"])).unwrap();
    fs::write(folder.join("large"), large()).unwrap();
    for request in [
        "ea_set /open user.a one",
        "ea_set /open user.empty \"\"",
        "ea_set /open trusted.t two",
        "ea_set /open security.s three",
        "ea_set /closed user.a four",
        "ea_set /closed security.s five",
        "ea_set /d user.d six",
        &format!("ea_set /long user.filler {}", "f".repeat(400)),
        &format!("ea_set -f {} /long user.large", folder.join("large").display()),
        "ea_set /long user.last seven",
    ] {
        must(tool("debugfs").args(["-w", "-R", request]).arg(&image));
    }
    fs::read(&image).ok()
}

/// As much as debugfs takes: a block, which has room in an inode of its own alone.
fn large() -> Vec<u8> {
    (0..4096u32).map(|n| (n % 251) as u8).collect()
}

fn as_user(uid: u32, target: nearside_near_data::Target) -> Request {
    let credentials = Credentials { uid, gid: uid, groups: vec![] };
    Request { credentials, ..request(target, Operation::Attributes) }
}

/// The attributes of an answer, those that came in parts put together, each behind its file.
fn whole(got: Vec<Got>) -> Vec<(String, String, Vec<u8>)> {
    let mut all: Vec<(String, String, Vec<u8>)> = Vec::new();
    let mut file = String::new();
    for record in got {
        match record {
            Got::File(path, _) => file = path,
            Got::Attribute(name, 0, value) => all.push((file.clone(), name, value)),
            Got::Attribute(name, offset, value) => {
                let last = all.last_mut().unwrap();
                assert_eq!((&last.0, &last.1, last.2.len() as u64), (&file, &name, offset));
                last.2.extend(value);
            }
            other => panic!("{other:?}"),
        }
    }
    all
}

#[test]
fn each_has_those_that_the_kernel_would_let_him_read() {
    let test = "each_has_those_that_the_kernel_would_let_him_read";
    let Some(folder) = needs::folder(test, &["mke2fs", "debugfs"]) else { return };
    let media = MemoryMedia::new(volume(folder.path()).unwrap());
    let retriever = Retriever::new(Config::default());
    let names = |uid, of: &str| {
        let (got, outcome) = ask(&retriever, &media, &as_user(uid, path(of)));
        assert_eq!(outcome.failure, None, "{of}");
        let mut names: Vec<String> = whole(got).into_iter().map(|(_, name, _)| name).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(names(0, "/open"), "security.s trusted.t user.a user.empty");
    assert_eq!(names(1000, "/open"), "security.s user.a user.empty");
    assert_eq!(names(0, "/closed"), "security.s user.a");
    assert_eq!(names(1000, "/closed"), "security.s");
    assert_eq!(names(0, "/d/plain"), "");
    let (_, outcome) = ask(&retriever, &media, &as_user(0, path("/none")));
    assert_eq!(outcome.failure, Some(Failure::NotFound));
}

#[test]
fn answers_of_any_size_say_the_same() {
    let test = "answers_of_any_size_say_the_same";
    let Some(folder) = needs::folder(test, &["mke2fs", "debugfs"]) else { return };
    let media = MemoryMedia::new(volume(folder.path()).unwrap());
    let retriever = Retriever::new(Config::default());
    let request = as_user(0, tree("/"));
    let all = whole(ask(&retriever, &media, &request).0);
    let of = |path: &str, name: &str| {
        let found: Vec<_> = all.iter().filter(|(p, n, _)| p == path && n == name).collect();
        assert_eq!(found.len(), 1, "{path} {name}");
        found[0].2.clone()
    };
    assert_eq!(of("/long", "user.large"), large());
    assert_eq!(of("/long", "user.filler"), "f".repeat(400).into_bytes());
    assert_eq!(of("/long", "user.last"), b"seven");
    assert_eq!(of("/d", "user.d"), b"six");
    assert_eq!(of("/open", "user.empty"), b"");
    assert_eq!(all.len(), 10);
    for limit in [420, 500, 700, 1100, 3000, 30_000] {
        let (got, outcome, commands) = ask_in_parts(&retriever, &media, &request, limit);
        assert_eq!(outcome.failure, None, "{limit}");
        assert_eq!(whole(got), all, "{limit}");
        assert!(commands > 1 || limit == 30_000, "{limit}");
    }
    // Where not even a name has room, that is said, and nothing goes round.
    let mut records = Records::new(250);
    let outcome = now(retriever.run(&media, &as_user(0, path("/long")), &mut records));
    assert!(matches!(outcome.failure, Some(Failure::InvalidRequest(_))), "{outcome:?}");
}

/// A value that has been changed in an inode of its own, and an inode that holds none.
#[test]
fn a_damaged_value_is_said() {
    let test = "a_damaged_value_is_said";
    let Some(folder) = needs::folder(test, &["mke2fs", "debugfs"]) else { return };
    let bytes = volume(folder.path()).unwrap();
    let start = large();
    let at =
        bytes.windows(64).position(|window| window == &start[..64]).expect("the value lies in one place");
    let retriever = Retriever::new(Config::default());
    let mut damaged = bytes.clone();
    damaged[at + 5] ^= 1;
    let (_, outcome) = ask(&retriever, &MemoryMedia::new(damaged), &as_user(0, path("/long")));
    let Some(Failure::CorruptVolume(what)) = outcome.failure else { panic!("{outcome:?}") };
    assert!(what.contains("ea_inode") && what.contains("checksum"), "{what}");
}
