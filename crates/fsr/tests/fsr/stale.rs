//! What is given of a volume whose home locations are older than its data, and to whom; and of a directory
//! that may be read and not searched.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::common::*;
use nearside_conformance::needs;
use nearside_conformance::volume::{must, tool};
use nearside_fsr::{Config, FileKind, MemoryMedia, Retriever, State};
use nearside_near_data::{
    Answer, Credentials, Digest, Element, Failure, GatherOptions, NearestOptions, Operation, Request,
    SearchOptions, Table, Target,
};

fn nobody(target: Target, operation: Operation) -> Request {
    let credentials = Credentials { uid: 65534, gid: 65534, groups: vec![] };
    Request { credentials, ..request(target, operation) }
}

/// A volume as a live mount leaves it in home locations: marked, with its tree.
fn marked(test: &str, options: &[&str], mark: &str, make: impl FnOnce(&Path)) -> Option<MemoryMedia> {
    let dir = needs::folder(test, &["mke2fs", "debugfs"])?;
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    make(&source);
    let image = dir.path().join("image");
    fs::write(&image, ext_image(&source, 16, options)).unwrap();
    for mark in mark.split(';').filter(|mark| !mark.is_empty()) {
        must(tool("debugfs").args(["-w", "-R", mark]).arg(&image));
    }
    Some(MemoryMedia::new(fs::read(&image).unwrap()))
}

fn files(root: &Path) {
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join("public"), "SECRET\n").unwrap();
    fs::set_permissions(root.join("public"), fs::Permissions::from_mode(0o644)).unwrap();
    symlink("public", root.join("fast")).unwrap();
    symlink(format!("{}public", "./".repeat(60)), root.join("slow")).unwrap();
}

fn content() -> [Operation; 8] {
    let options = SearchOptions {
        patterns: vec![b"SECRET".to_vec()],
        answer: Answer::Lines,
        only_matching_files: true,
        ..SearchOptions::default()
    };
    let table = Table { raw: Some((Element::I8, 1)), ..Table::default() };
    [
        Operation::Search(options),
        Operation::Read { offset: 0, len: u64::MAX },
        Operation::Count,
        Operation::Checksum(Digest::Sha256),
        Operation::Map,
        Operation::Gather(GatherOptions { table, indices: vec![0], ..GatherOptions::default() }),
        Operation::Nearest(NearestOptions { table, count: 1, query: vec![1.0], ..NearestOptions::default() }),
        Operation::Select(Box::default()),
    ]
}

#[test]
fn content_that_may_be_another_files_is_for_root_and_by_the_owners_word() {
    let test = "content_that_may_be_another_files_is_for_root_and_by_the_owners_word";
    let journal = "feature needs_recovery";
    let dirty = "set_super_value state 0";
    for (options, mark) in [
        (&["-t", "ext4", "-O", "metadata_csum"][..], journal),
        (&["-t", "ext4", "-O", "^metadata_csum"], journal),
        (&["-t", "ext2"], dirty),
        (&["-t", "ext4", "-O", "^has_journal,metadata_csum"], dirty),
    ] {
        let Some(media) = marked(test, options, mark, files) else { return };
        let checked = !(options.contains(&"ext2") || options.contains(&"^metadata_csum"));
        for (allow_unrecovered, refused) in [(false, true), (true, false)] {
            let retriever =
                Retriever::new(Config { allow_unrecovered, state: State::Home, ..Config::default() });
            for operation in content() {
                for target in [path("/public"), path("/fast")] {
                    // Root has it, and what root's walk has left in the caches gives it to nobody else.
                    let (got, answer) = ask(&retriever, &media, &request(target.clone(), operation.clone()));
                    assert_eq!(answer.failure, None, "{options:?} {operation:?}");
                    assert!(!got.is_empty());
                    let (got, answer) = ask(&retriever, &media, &nobody(target, operation.clone()));
                    match answer.failure {
                        Some(Failure::NeedsRecovery(_)) if refused => {
                            assert!(!got.iter().any(|g| !matches!(g, Got::Warning(..))), "{got:?}");
                        }
                        None if !refused => {}
                        other => panic!("{options:?} {operation:?} {allow_unrecovered}: {other:?}"),
                    }
                }
                let (got, answer) = ask(&retriever, &media, &nobody(tree("/"), operation.clone()));
                let denied =
                    |g: &Got| matches!(g, Got::Failed(p, Failure::NeedsRecovery(_)) if p == "/public");
                if checked {
                    assert_eq!((answer.failure.as_ref(), got.iter().any(denied)), (None, refused), "{got:?}");
                } else {
                    assert_eq!(matches!(answer.failure, Some(Failure::NeedsRecovery(_))), refused);
                }
            }
            // A link whose target lies in a block: neither its target nor what it leads to.
            ask(&retriever, &media, &request(path("/slow"), Operation::Stat));
            let (_, answer) = ask(&retriever, &media, &nobody(path("/slow"), Operation::Stat));
            assert_eq!(matches!(answer.failure, Some(Failure::NeedsRecovery(_))), refused);
            if checked {
                let stat = Request { follow: false, ..nobody(path("/slow"), Operation::Stat) };
                let (got, answer) = ask(&retriever, &media, &stat);
                assert_eq!(answer.failure, None);
                let target = got.iter().find_map(|g| match g {
                    Got::Entry { link, .. } => Some(link.is_some()),
                    _ => None,
                });
                assert_eq!(target, Some(!refused));
                // Names and attributes are the volume's own, and told.
                let (_, answer) = ask(&retriever, &media, &nobody(path("/public"), Operation::Stat));
                assert_eq!(answer.failure, None);
            }
        }
    }
    // On a volume that was unmounted, or whose journal is taken in, all is as modes say; not on one that has
    // none to take in, or whose data are written without regard to it.
    for (options, mark, refused) in [
        (&["-t", "ext4"][..], "", false),
        (&["-t", "ext4"], journal, false),
        (&["-t", "ext4"], "feature needs_recovery;set_super_value default_mount_opts 0x60", true),
        (&["-t", "ext4"], "feature needs_recovery;set_super_value mount_opts noatime,data=writeback", true),
        (&["-t", "ext2"], dirty, true),
    ] {
        let Some(media) = marked(test, options, mark, files) else { return };
        let retriever = Retriever::new(Config::default());
        for operation in content() {
            let (got, answer) = ask(&retriever, &media, &nobody(path("/slow"), operation));
            let unstable = got.iter().any(|g| matches!(g, Got::Warning(_, true)));
            assert_eq!(unstable, refused, "{options:?} {mark}: {got:?} {:?}", answer.failure);
            let withheld = matches!(answer.failure, Some(Failure::NeedsRecovery(_)));
            assert_eq!((withheld, answer.failure.is_some()), (refused, refused), "{options:?} {mark}");
        }
    }
}

#[test]
fn a_directory_that_may_be_read_and_not_searched_has_names() {
    let test = "a_directory_that_may_be_read_and_not_searched_has_names";
    let make = |root: &Path| {
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        let dir = root.join("d");
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("file"), "x\n").unwrap();
        symlink("file", dir.join("link")).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o744)).unwrap();
    };
    let Some(media) = marked(test, &["-t", "ext4"], "", make) else { return };
    let retriever = Retriever::new(Config::default());
    let name = |path: &str, kind| Got::Name(path.to_owned(), nearside_fsr::FileKind::mode(kind));
    let (got, answer) = ask(&retriever, &media, &nobody(path("/d"), Operation::List));
    assert_eq!(answer.failure, None);
    let kinds = [("file", FileKind::Regular), ("link", FileKind::Symlink), ("sub", FileKind::Directory)];
    assert_eq!(got, kinds.map(|(path, kind)| name(path, kind)));
    let (got, answer) = ask(&retriever, &media, &nobody(tree("/d"), Operation::List));
    assert_eq!(answer.failure, None);
    assert!(matches!(&got[0], Got::Entry { path, .. } if path == "/d"));
    assert_eq!(got[1..], kinds.map(|(path, kind)| name(&format!("/d/{path}"), kind)));
    // Names alone: and that the directory in it is not gone into.
    let (got, answer) = ask(&retriever, &media, &nobody(tree("/d"), Operation::Names));
    assert_eq!(answer.failure, None);
    let mut named = vec![name("/d", FileKind::Directory)];
    named.extend(kinds.map(|(path, kind)| name(&format!("/d/{path}"), kind)));
    named.push(Got::Failed("/d/sub".into(), Failure::PermissionDenied));
    assert_eq!(got, named);
    let (parts, ..) = ask_in_parts(&retriever, &media, &nobody(tree("/d"), Operation::Names), 400);
    assert_eq!(parts, named);
    let (got, _) = ask(&retriever, &media, &nobody(path("/d"), Operation::Names));
    assert_eq!(got, kinds.map(|(path, kind)| name(path, kind)));
    // Of content there is none.
    let (got, answer) = ask(&retriever, &media, &nobody(tree("/d"), Operation::Count));
    assert_eq!(answer.failure, None);
    assert_eq!(
        got,
        ["file", "link", "sub"].map(|n| Got::Failed(format!("/d/{n}"), Failure::PermissionDenied))
    );
    let (_, answer) = ask(&retriever, &media, &nobody(path("/d/file"), Operation::Count));
    assert_eq!(answer.failure, Some(Failure::PermissionDenied));
    // Every name once, in the smallest pieces.
    let (parts, answer, commands) =
        ask_in_parts(&retriever, &media, &nobody(tree("/d"), Operation::List), 400);
    assert_eq!(answer.failure, None);
    assert!(commands > 1 && parts.len() == 4, "{parts:?}");
    // Who owns it has all.
    let (got, _) = ask(&retriever, &media, &request(path("/d"), Operation::List));
    assert_eq!(got.len(), 3);
    assert!(got.iter().all(|g| matches!(g, Got::Entry { .. })));
}
