//! A list of paths in one command: each is answered as if it were asked about alone, whatever stands beside
//! it and however little fits an answer.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::common::*;
use nearside_conformance::needs;
use nearside_conformance::volume::{must, tool};
use nearside_fsr::{Config, Full, Mark, MemoryMedia, Retriever, Sink};
use nearside_near_data::{
    Credentials, Cursor, Digest, Failure, Operation, Paths, Record, Request, SearchOptions, Target,
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

/// Directories below each other that not all may search, each with a file and a link, which lead up, down,
/// round and to nothing; their paths below the root.
fn make_thicket(root: &Path, rng: &mut Rng) -> Vec<String> {
    let mut made: Vec<String> = ["", "/a", "/a/b", "/a/c", "/a/b/a", "/a/c/a"].map(str::to_owned).to_vec();
    let long = "n".repeat(200);
    while made.len() < 70 {
        let lately = made.len() - rng.index(made.len().min(12)) - 1;
        let dir = format!("{}/{}", made[lately], rng.pick(&["a", "b", "c", "aa", &long[..]]));
        if dir.len() < 2000 && !made.contains(&dir) {
            made.push(dir);
        }
    }
    let at = |dir: &str| root.join(dir.trim_start_matches('/'));
    made.iter().for_each(|dir| fs::create_dir_all(at(dir)).unwrap());
    const TARGETS: [&str; 12] =
        [".", "..", "/", "a", "b", "../b", "../c/file", "file", "/a/b/a", "link", "none", "/a/../a/./c//a/"];
    for dir in &made {
        fs::write(at(dir).join("file"), dir).unwrap();
        symlink(rng.pick(&TARGETS), at(dir).join("link")).unwrap();
    }
    symlink(".", root.join("self")).unwrap();
    symlink("file", root.join("a/l0")).unwrap();
    (1..45).for_each(|n| symlink(format!("l{}", n - 1), root.join(format!("a/l{n}"))).unwrap());
    for dir in made.iter().skip(1).rev() {
        let mode = rng.pick(&[0o755, 0o755, 0o755, 0o755, 0o711, 0o744, 0o750, 0o700]);
        fs::set_permissions(at(dir), fs::Permissions::from_mode(mode)).unwrap();
    }
    made
}

/// A path near the one before, or one of these.
fn wander(rng: &mut Rng, at: &mut Vec<String>, made: &[String]) -> Vec<u8> {
    at.truncate(at.len().saturating_sub(rng.index(4)));
    if at.len() > 60 || rng.in_of(1, 12) {
        *at = made[rng.index(made.len())].split('/').skip(1).map(str::to_owned).collect();
    }
    for _ in 0..rng.index(4) {
        let long = "n".repeat(300);
        const STEPS: [&str; 12] = ["a", "a", "b", "c", "file", "link", "..", ".", "", "aa", "l39", "l41"];
        at.push(if rng.in_of(1, 30) { long } else { rng.pick(&STEPS).to_owned() });
    }
    if rng.in_of(1, 40) {
        *at = vec!["self".to_owned(); 36 + rng.index(8)];
    }
    let end = rng.pick(&["", "", "", "", "/", "//", "/."]);
    format!("/{}{end}", at.join("/")).into_bytes()
}

fn near_paths(test: &str, kind: &str) {
    let tools: &[&str] = if kind == "f2fs" { &["mkfs.f2fs"] } else { &["mke2fs"] };
    let Some(folder) = needs::folder(test, tools) else { return };
    let mut rng = Rng(77);
    let (mut well, mut kinds) = (0, std::collections::BTreeSet::new());
    for tree in 0..3 {
        let tree = folder.path().join(format!("tree{tree}"));
        let made = make_thicket(&tree, &mut rng);
        let image = if kind == "f2fs" { f2fs_image(&tree, 64) } else { ext_image(&tree, 16, &[]) };
        let media = MemoryMedia::new(image);
        let (listed, single) = (Retriever::new(Config::default()), Retriever::new(Config::default()));
        let mut at = Vec::new();
        for round in 0..200 {
            let paths: Vec<Vec<u8>> = (0..60).map(|_| wander(&mut rng, &mut at, &made)).collect();
            let (uid, gid) = [(0, 0), (1000, 1000), (1000, 0), (2000, 7)][round % 4];
            for operation in [Operation::Stat, Operation::Nop] {
                let target = Target::Paths(paths.iter().collect::<Paths>());
                let credentials = Credentials { uid, gid, groups: vec![] };
                let follow = rng.in_of(1, 2);
                let list = Request { credentials, follow, ..request(target, operation) };
                let right = alone(&single, &media, &list, &paths);
                // Once as it comes, and once where all is known.
                for _ in 0..2 {
                    let (got, answer) = ask(&listed, &media, &list);
                    assert_eq!((answer.failure, answer.more), (None, None));
                    assert!(
                        got == right,
                        "{uid} {:?}: {:?}",
                        list.operation,
                        first_unlike(&got, &right, &paths)
                    );
                }
                for got in right {
                    match got {
                        Got::Answered(Some(failure)) => drop(kinds.insert(failure.code().0)),
                        Got::Answered(None) => well += 1,
                        _ => {}
                    }
                }
            }
        }
    }
    assert!(well > 5_000 && kinds.is_superset(&[1, 2, 3, 6, 7].into()), "{well} {kinds:?}");
}

/// The path at which two answers part, and what they say there.
fn first_unlike<'a>(
    got: &'a [Got],
    right: &'a [Got],
    paths: &[Vec<u8>],
) -> (String, Option<&'a Got>, Option<&'a Got>) {
    let at =
        got.iter().zip(right).position(|(got, right)| got != right).unwrap_or(got.len().min(right.len()));
    let nth = right[..at].iter().filter(|got| matches!(got, Got::Answered(_))).count();
    let path = paths.get(nth).map(|path| String::from_utf8_lossy(path).into_owned());
    (path.unwrap_or_default(), got.get(at), right.get(at))
}

/// What a path is answered does not depend on the paths before it in its list, however much of the way they
/// share: links, names that lead up, and directories that may not be searched stand in between.
#[test]
fn paths_near_each_other_are_answered_as_each_alone_on_ext4() {
    near_paths("paths_near_each_other_are_answered_as_each_alone_on_ext4", "ext4");
}

#[test]
fn paths_near_each_other_are_answered_as_each_alone_on_f2fs() {
    near_paths("paths_near_each_other_are_answered_as_each_alone_on_f2fs", "f2fs");
}

/// Takes an answer, and has something happen when so many paths are answered.
struct Between<'a> {
    records: Records,
    left: usize,
    happens: &'a mut dyn FnMut(),
}

impl Sink for Between<'_> {
    fn push(&mut self, record: Record<'_>, path_len: usize) -> Result<(), Full> {
        let is_answered = matches!(record, Record::Answered(_));
        self.records.push(record, path_len)?;
        if is_answered {
            self.left = self.left.wrapping_sub(1);
            if self.left == 0 {
                (self.happens)();
            }
        }
        Ok(())
    }

    fn room(&self, path_len: usize) -> usize {
        self.records.room(path_len)
    }

    fn mark(&self) -> Mark {
        self.records.mark()
    }

    fn rollback(&mut self, mark: Mark) {
        self.records.rollback(mark);
    }
}

/// A directory on the way is shut to others, and two change their names, between two paths of a list: those
/// before are answered as it was, and those after as it is.
#[test]
fn what_changes_between_two_paths_of_a_list_shows_from_then_on() {
    let test = "what_changes_between_two_paths_of_a_list_shows_from_then_on";
    let Some(folder) = needs::folder(test, &["mke2fs", "debugfs"]) else { return };
    let mut rng = Rng(5);
    let tree = folder.path().join("tree");
    let made = make_thicket(&tree, &mut rng);
    for dir in ["a", "a/b", "a/c", "a/b/a", "a/c/a"] {
        fs::set_permissions(tree.join(dir), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let before = ext_image(&tree, 16, &["-t", "ext4", "-O", "^metadata_csum,^has_journal"]);
    let image = folder.path().join("image");
    let after = |requests: &[&str]| {
        fs::write(&image, &before).unwrap();
        requests
            .iter()
            .for_each(|request| drop(must(tool("debugfs").args(["-w", "-R", request]).arg(&image))));
        let mut after = fs::read(&image).unwrap();
        after[1024..2048].copy_from_slice(&before[1024..2048]);
        after
    };
    let shut = after(&["set_inode_field /a/b mode 040700"]);
    let swapped =
        after(&["ln /a/b /a/t", "unlink /a/b", "ln /a/c /a/b", "unlink /a/c", "ln /a/t /a/c", "unlink /a/t"]);
    let states = [before.clone(), shut, swapped];
    let (media, live) = (MemoryMedia::new(before), Retriever::new(Config::default()));
    let still =
        states.each_ref().map(|image| (MemoryMedia::new(image.clone()), Retriever::new(Config::default())));
    let (mut now_at, mut at, mut unlike) = (0, Vec::new(), 0);
    for _ in 0..400 {
        let then = (now_at + 1 + rng.index(2)) % 3;
        let near: Vec<Vec<u8>> = (0..30).map(|_| wander(&mut rng, &mut at, &made)).collect();
        // Most in those directories.
        let below = |path: Vec<u8>| [rng.pick(&[&b"/a/b"[..], b"/a/b", b"/a/c", b""]), &path[..]].concat();
        let mut paths: Vec<Vec<u8>> = near.into_iter().map(below).collect();
        if rng.in_of(1, 2) {
            // All in one: the next is found from where the last was.
            let dir = rng.pick(&["/a/b/a", "/a/c/a"]);
            let names = ["file", "link", "a", "b", "none"];
            paths.iter_mut().for_each(|path| *path = format!("{dir}/{}", rng.pick(&names)).into_bytes());
        }
        let target = Target::Paths(paths.iter().collect::<Paths>());
        let credentials = Credentials { uid: 1000, gid: 1000, groups: vec![] };
        let list = Request { credentials, ..request(target, Operation::Stat) };
        let answers = |state: usize, paths: &[Vec<u8>]| alone(&still[state].1, &still[state].0, &list, paths);
        let left = 1 + rng.index(paths.len());
        let mut right = answers(now_at, &paths[..left]);
        right.extend(answers(then, &paths[left..]));
        unlike += usize::from(right != answers(now_at, &paths));
        if rng.in_of(1, 2) {
            // All of it is known; else the parts, and no path as a whole.
            let _ = ask(&live, &media, &list);
        }
        let blocks = || states[now_at].chunks(512).zip(states[then].chunks(512)).enumerate();
        let mut happens = || {
            for (nth, (_, new)) in blocks().filter(|(_, (old, new))| old != new) {
                let offset = nth as u64 * 512;
                live.monitor().begin(offset, 512);
                media.write(offset, new);
                live.monitor().end(offset, 512, true);
            }
        };
        let records = Records::new(usize::MAX / 2);
        let mut sink = Between { records, left, happens: &mut happens };
        let answer = now(live.run(&media, &list, &mut sink));
        let got = sink.records.got;
        assert_eq!((answer.failure, answer.more), (None, None));
        assert!(got == right, "{now_at} {then} {left}: {:?}", first_unlike(&got, &right, &paths));
        now_at = then;
    }
    assert!(unlike > 100, "{unlike}");
}
