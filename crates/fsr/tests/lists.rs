//! A list of paths in one command: each is answered as if it were asked about alone, whatever stands beside
//! it and however little fits an answer.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use common::*;
use nearside_conformance::needs;
use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_near_data::{
    Credentials, Cursor, Digest, Failure, Operation, Paths, Request, SearchOptions, Target,
};
use nearside_random::Rng;

/// Directories that may be searched and that may not, files, links to both and to nothing.
fn make(root: &Path) {
    let deep = root.join("a/b/c/d/e");
    fs::create_dir_all(&deep).unwrap();
    for n in 0..40 {
        fs::write(deep.join(format!("f{n}")), format!("{n} words\n").repeat(n)).unwrap();
    }
    fs::create_dir_all(root.join("closed/in")).unwrap();
    fs::write(root.join("closed/in/f"), "x").unwrap();
    fs::write(root.join("secret"), "not for all").unwrap();
    symlink("a/b/c/d/e/f7", root.join("to-file")).unwrap();
    symlink("/a/b/c/d", root.join("to-dir")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("/none", root.join("to-none")).unwrap();
    symlink("f3", deep.join("near")).unwrap();
    // As deep as the way to the link, by other directories.
    fs::create_dir_all(root.join("g/h/i/j/k/l")).unwrap();
    fs::write(root.join("g/h/i/j/k/l/f"), "far\n").unwrap();
    symlink("/g/h/i/j/k/l/f", deep.join("far")).unwrap();
    fs::set_permissions(root.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
}

/// Any path, also such as are none.
fn path(rng: &mut Rng) -> Vec<u8> {
    const FIRST: [&str; 8] = [
        "/a/b/c/d/e",
        "/a/b/c/d/e",
        "/a/b/c/d/e",
        "/a/b/c/d",
        "/to-dir/e",
        "/closed/in",
        "/a//b/../b/c/d/e",
        "",
    ];
    let first = FIRST[rng.below(FIRST.len() as u64) as usize];
    let last = match rng.below(16) {
        0 => "/none".to_owned(),
        1 => "/..".to_owned(),
        2 => "/.".to_owned(),
        3 => ["/near", "/far"][rng.below(2) as usize].to_owned(),
        4 => "/f2/".to_owned(),
        5 => "/f2/x".to_owned(),
        6 => String::new(),
        7 => format!("/{}", "n".repeat(300)),
        8 => {
            return [&b"/secret"[..], b"/to-file", b"/loop", b"/to-none", b"/", b"", b"a", b"/a/\0/\xff"]
                [rng.below(8) as usize]
                .to_vec();
        }
        9 => return vec![b'/'; 4096],
        _ => format!("/f{}", rng.below(40)),
    };
    format!("{first}{last}").into_bytes()
}

fn operations() -> [Operation; 5] {
    let checksum = |digest| Operation::Checksum(digest);
    [Operation::Stat, Operation::Nop, Operation::Count, checksum(Digest::Crc32c), checksum(Digest::Sha256)]
}

/// What the list must be answered: each path's own answer, its name left out.
fn alone(retriever: &Retriever, media: &MemoryMedia, list: &Request, paths: &[Vec<u8>]) -> Vec<Got> {
    let mut all = Vec::new();
    for path in paths {
        let one = Request { target: Target::Path(path.clone()), ..list.clone() };
        let (got, answer) = ask(retriever, media, &one);
        all.extend(got.into_iter().map(|got| match got {
            Got::Entry { ino, mode, size, uid, link, .. } => {
                Got::Entry { path: String::new(), ino, mode, size, uid, link }
            }
            Got::File(_, size) => Got::File(String::new(), size),
            got => got,
        }));
        all.push(Got::Answered(answer.failure));
    }
    all
}

fn image(test: &str, kind: &str) -> Option<MemoryMedia> {
    let tool = if kind == "f2fs" { "mkfs.f2fs" } else { "mke2fs" };
    let folder = needs::folder(test, &[tool])?;
    let tree = folder.path().join("tree");
    make(&tree);
    let image = if kind == "f2fs" { f2fs_image(&tree, 64) } else { ext_image(&tree, 16, &[]) };
    Some(MemoryMedia::new(image))
}

fn lists_are_as_single_paths(test: &str, kind: &str) {
    let Some(media) = image(test, kind) else { return };
    let mut rng = Rng(18);
    let warm = Retriever::new(Config::default());
    let (mut parts, mut failed, mut kinds) = (0, 0, std::collections::BTreeSet::new());
    for round in 0..60 {
        let retriever = match round % 3 {
            0 => &Retriever::new(Config::default()),
            // One that forgets at once.
            1 => &Retriever::new(Config { block_bytes: 0, names: 2, inodes: 2, ..Config::default() }),
            _ => &warm,
        };
        let mut paths: Vec<Vec<u8>> = (0..rng.below(120)).map(|_| path(&mut rng)).collect();
        if let [first, .., last] = &mut paths[..] {
            last.clone_from(first);
        }
        for operation in operations() {
            for (uid, follow) in [(0, true), (1000, false), (1000, true)] {
                let target = Target::Paths(paths.iter().collect::<Paths>());
                let credentials = Credentials { uid, gid: uid, groups: vec![] };
                let list = Request { credentials, follow, ..request(target, operation.clone()) };
                let right = alone(retriever, &media, &list, &paths);
                let (got, answer) = ask(retriever, &media, &list);
                assert_eq!((answer.failure, answer.more), (None, None));
                assert_eq!(got, right, "{operation:?} {uid} {follow}");
                let (got, answer, commands) = ask_in_parts(retriever, &media, &list, 400);
                assert_eq!((answer.failure, got), (None, right.clone()), "{operation:?} {uid} {follow}");
                parts += commands - 1;
                for got in right {
                    if let Got::Answered(Some(failure)) = got {
                        failed += 1;
                        kinds.insert(failure.code().0);
                    }
                }
            }
        }
    }
    // Missing, denied, no directory, a directory, a loop, too long a name or path, not absolute.
    assert!(parts > 1000 && failed > 1000, "{parts} {failed}");
    assert!(kinds.is_superset(&[1, 2, 3, 4, 6, 7, 8].into()), "{kinds:?}");
}

#[test]
fn a_list_of_paths_is_answered_as_each_alone_on_ext4() {
    lists_are_as_single_paths("a_list_of_paths_is_answered_as_each_alone_on_ext4", "ext4");
}

#[test]
fn a_list_of_paths_is_answered_as_each_alone_on_f2fs() {
    lists_are_as_single_paths("a_list_of_paths_is_answered_as_each_alone_on_f2fs", "f2fs");
}

/// What a list cannot be asked, and cursors that no reply gives, are refused whole.
#[test]
fn lists_that_make_no_sense_are_refused() {
    let Some(media) = image("lists_that_make_no_sense_are_refused", "ext4") else { return };
    let retriever = Retriever::new(Config::default());
    let paths: Paths = ["/secret", "/none", "/a"].iter().collect();
    let list = request(Target::Paths(paths), Operation::Stat);
    let refused = |request: &Request| {
        let (got, answer) = ask(&retriever, &media, request);
        got.is_empty() && matches!(answer.failure, Some(Failure::InvalidRequest(_)))
    };
    for operation in [
        Operation::List,
        Operation::Names,
        Operation::Map,
        Operation::Read { offset: 0, len: 1 },
        Operation::Search(SearchOptions::default()),
    ] {
        assert!(refused(&Request { operation: operation.clone(), ..list.clone() }), "{operation:?}");
    }
    let at = |nth: u32| Cursor { places: nth.to_le_bytes().to_vec(), ..Cursor::default() };
    for bad in [
        Cursor::default(),
        at(3),
        at(u32::MAX),
        Cursor { offset: 1, ..at(1) },
        Cursor { path: b"/a".to_vec(), ..at(1) },
        Cursor { places: vec![1; 5], ..Cursor::default() },
    ] {
        assert!(refused(&cursor(&list, bad.clone())), "{bad:?}");
    }
    let (got, answer) = ask(&retriever, &media, &cursor(&list, at(1)));
    assert_eq!(answer.failure, None);
    assert!(matches!(
        &got[..],
        [Got::Answered(Some(Failure::NotFound)), Got::Entry { .. }, Got::Answered(None)]
    ));
    // No volume: each path is told, as it would be alone.
    let nothing = MemoryMedia::new(vec![0; 1 << 20]);
    let (got, answer) = ask(&Retriever::new(Config::default()), &nothing, &list);
    assert_eq!((answer.failure, got.len()), (None, 3));
    assert!(got.iter().all(|got| matches!(got, Got::Answered(Some(Failure::NoVolume(_))))), "{got:?}");
    // Nothing has room: said, not asked again for ever.
    let mut sink = nearside_fsr::WireSink::new(128, None);
    let outcome = now(retriever.run(&media, &list, &mut sink));
    assert!(matches!(outcome.failure, Some(Failure::InvalidRequest(_))), "{outcome:?}");
}
