//! Whole trees by one request: what the drive answers is what the source tree says.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::*;
use nearside_conformance::needs;
use nearside_fsr::{Config, MemoryMedia, Retriever};
use nearside_near_data::{Answer, Digest, Operation, Request, SearchOptions};
use nearside_random::Rng;

/// A tree with what trees have: depth, many names, large and empty files, holes, links, no newline at the
/// end.
fn make_tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut put = |path: String, bytes: Vec<u8>| {
        let at = root.join(&path[1..]);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, &bytes).unwrap();
        files.insert(path, bytes);
    };
    let mut random = Rng(7);
    for n in 0..300u64 {
        let mut text = Vec::new();
        for line in 0..random.below(400) {
            text.extend(format!("line {line} of file {n} {:x}", random.draw()).bytes());
            if random.below(37) == 0 {
                text.extend(b" ERROR here");
            }
            text.push(b'\n');
        }
        put(format!("/many/dir{}/file{n}.txt", n % 7), text);
    }
    let deep: String = (0..20).map(|n| format!("/level{n}")).collect();
    put(format!("{deep}/leaf"), b"an ERROR without a newline at the end".to_vec());
    put("/empty".into(), vec![]);
    put(
        "/large".into(),
        (0..3_000_000u32).flat_map(|n| format!("{n} ERROR\n").into_bytes()).take(9 << 20).collect(),
    );
    put("/small".into(), b"x\n".to_vec());
    put("/odd name \u{e4}\n".into(), b"ERROR\n".to_vec());
    let mut sparse = vec![0u8; 3 << 20];
    sparse[1 << 20..][..6].copy_from_slice(b"ERROR\n");
    // mke2fs -d cuts a hole at the end of a file where inline_data is on.
    *sparse.last_mut().unwrap() = b'x';
    put("/sparse".into(), sparse);
    files
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = if bytes.ends_with(b"\n") { bytes.len() - 1 } else { bytes.len() };
    bytes[..end].split(|b| *b == b'\n').filter(move |_| !bytes.is_empty())
}

fn has_error(line: &[u8]) -> bool {
    line.windows(5).any(|w| w == b"ERROR")
}

fn search(answer: Answer) -> Operation {
    let options = SearchOptions {
        patterns: vec![b"ERROR".to_vec()],
        fixed: true,
        answer,
        text: true,
        numbers: true,
        only_matching_files: true,
        ..Default::default()
    };
    Operation::Search(options)
}

fn check_all(files: &BTreeMap<String, Vec<u8>>, image: Vec<u8>) {
    let tree = Tree { files, media: MemoryMedia::new(image), retriever: Retriever::new(Config::default()) };
    for round in 0..2 {
        tree.counts(round);
        tree.lines();
        tree.files_by_path();
        tree.contents();
        tree.lists(round);
        tree.names();
    }
    assert_eq!(tree.retriever.monitor().counters().invalidated, 0);
}

/// What was put on a volume, and who is asked for it.
struct Tree<'a> {
    files: &'a BTreeMap<String, Vec<u8>>,
    media: MemoryMedia,
    retriever: Retriever,
}

impl Tree<'_> {
    /// In byte order of names in each directory.
    fn paths(&self) -> Vec<&String> {
        let mut paths: Vec<&String> = self.files.keys().collect();
        paths.sort_by_key(|p| p.split('/').map(str::as_bytes).map(<[u8]>::to_vec).collect::<Vec<_>>());
        paths
    }

    fn counts(&self, round: u32) {
        let (got, answer) = ask(&self.retriever, &self.media, &request(tree("/"), search(Answer::Count)));
        assert_eq!(answer.failure, None);
        let mut expected = Vec::new();
        let (mut all, mut matched, mut total) = (0, 0, 0);
        for path in self.paths() {
            let bytes = &self.files[path];
            let n = lines(bytes).filter(|l| has_error(l)).count() as u64;
            (all, total) = (all + 1, total + n);
            if n > 0 {
                matched += 1;
                expected.push(Got::File(path.clone(), bytes.len() as u64));
                expected.push(Got::Matches(n));
            }
        }
        expected.push(Got::Total(nearside_near_data::SearchTotals {
            files: all,
            files_matched: matched,
            matches: total,
        }));
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got, expected, "round {round}");
        }
        assert_eq!(got.len(), expected.len());
    }

    /// With small buffers as well.
    fn lines(&self) {
        let request = request(tree("/many"), search(Answer::Lines));
        let (whole, answer) = ask(&self.retriever, &self.media, &request);
        assert_eq!(answer.failure, None);
        let mut expected = Vec::new();
        for path in self.paths().iter().filter(|p| p.starts_with("/many")) {
            let mut offset = 0;
            for (n, line) in lines(&self.files[*path]).enumerate() {
                if has_error(line) {
                    expected.push((n as u64 + 1, offset, line.to_vec()));
                }
                offset += line.len() as u64 + 1;
            }
        }
        let only_lines = |got: &[Got]| -> Vec<(u64, u64, Vec<u8>)> {
            let line = |g: &Got| match g {
                Got::Line { number, offset, bytes, continues: false, .. } => {
                    Some((*number, *offset, bytes.clone()))
                }
                _ => None,
            };
            got.iter().filter_map(line).collect()
        };
        assert_eq!(only_lines(&whole), expected);
        for limit in [700, 1000, 4096, 65536] {
            let (parts, answer, commands) = ask_in_parts(&self.retriever, &self.media, &request, limit);
            assert_eq!(answer.failure, None);
            assert!(commands > 1 || limit > 4096);
            assert_eq!(only_lines(&parts), expected, "by {limit} bytes");
            assert_eq!(parts.last(), whole.last(), "the totals");
        }
    }

    /// Checksums and counts.
    fn files_by_path(&self) {
        for (path, bytes) in self.files {
            let ask =
                |operation| ask(&self.retriever, &self.media, &request(crate::common::path(path), operation));
            for digest in [Digest::Crc32c, Digest::Sha256] {
                let mut expected = nearside_ndp::Checksum::new(digest);
                expected.feed(bytes);
                let (got, answer) = ask(Operation::Checksum(digest));
                assert_eq!(answer.failure, None, "{path}");
                let [Got::File(..), Got::Digest(value)] = &got[..] else { panic!("{got:?}") };
                assert_eq!(*value, expected.value(), "{path}");
            }
            let (got, _) = ask(Operation::Count);
            let newlines = bytes.iter().filter(|b| **b == b'\n').count() as u64;
            let [Got::File(_, _), Got::Count(counted, _, size)] = got[..] else { panic!("{got:?}") };
            assert_eq!((counted, size), (newlines, bytes.len() as u64));
        }
    }

    fn contents(&self) {
        for path in ["/large", "/sparse", "/small", "/empty"] {
            let read = request(crate::common::path(path), Operation::Read { offset: 0, len: u64::MAX });
            for limit in [1000, 100_000, 1 << 30] {
                if limit == 1000 && self.files[path].len() > 1 << 20 {
                    continue;
                }
                let (parts, answer, _) = ask_in_parts(&self.retriever, &self.media, &read, limit);
                assert_eq!(answer.failure, None);
                let mut whole = Vec::new();
                for part in parts {
                    if let Got::Data(offset, bytes) = part {
                        assert_eq!(offset, whole.len() as u64);
                        whole.extend(bytes);
                    }
                }
                assert!(whole == self.files[path], "{path} by {limit}");
            }
        }
    }

    fn lists(&self, round: u32) {
        let request = request(tree("/"), Operation::List);
        let (whole, answer) = ask(&self.retriever, &self.media, &request);
        assert_eq!(answer.failure, None);
        let listed: Vec<String> = whole
            .iter()
            .filter_map(|g| match g {
                Got::Entry { path, mode, .. } if mode & 0o170000 == 0o100000 => Some(path.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(listed.iter().collect::<Vec<_>>(), self.paths());
        for limit in [1000, 4096] {
            let (parts, ..) = ask_in_parts(&self.retriever, &self.media, &request, limit);
            assert_eq!(parts, whole, "by {limit}");
        }
        if round == 1 {
            assert!(answer.counters.blocks_read == 0, "a warm list reads nothing: {:?}", answer.counters);
        }
    }

    /// Names and types are those of the list, without the inodes of files.
    fn names(&self) {
        let cold = |operation| {
            let request = request(tree("/"), operation);
            let (got, answer) = ask(&Retriever::new(Config::default()), &self.media, &request);
            assert_eq!(answer.failure, None);
            (got, answer.counters, request)
        };
        let (list, reads, _) = cold(Operation::List);
        let (names, fewer, request) = cold(Operation::Names);
        let expected: Vec<Got> = list
            .into_iter()
            .map(|got| match got {
                Got::Entry { path, mode, .. } => Got::Name(path, mode & 0o170000),
                other => other,
            })
            .collect();
        assert_eq!(names, expected);
        assert!(fewer.blocks_read < reads.blocks_read, "{fewer:?} and {reads:?}");
        assert_eq!(fewer.files, reads.files);
        for limit in [1000, 4096] {
            let (parts, ..) = ask_in_parts(&self.retriever, &self.media, &request, limit);
            assert_eq!(parts, expected, "by {limit}");
        }
    }
}

fn check_ext(test: &str, options: &[&str]) {
    let Some(dir) = needs::folder(test, &["mke2fs"]) else { return };
    let files = make_tree(dir.path());
    check_all(&files, ext_image(dir.path(), 64, options));
}

#[test]
fn ext4_of_4k_blocks() {
    check_ext("ext4_of_4k_blocks", &["-t", "ext4", "-b", "4096"]);
}

#[test]
fn ext4_of_1k_blocks_with_inline_data() {
    check_ext("ext4_of_1k_blocks_with_inline_data", &["-t", "ext4", "-b", "1024", "-O", "inline_data"]);
}

#[test]
fn ext2() {
    check_ext("ext2", &["-t", "ext2"]);
}

#[test]
fn a_request_can_move_between_threads() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let retriever = Retriever::new(Config::default());
    let media = MemoryMedia::new(vec![0; 1 << 20]);
    let request = request(tree("/"), Operation::List);
    let mut records = Records::new(1000);
    let answer = now(is_send(retriever.run(&media, &request, &mut records)));
    assert!(matches!(answer.failure, Some(nearside_near_data::Failure::NoVolume(_))));
}

#[test]
fn f2fs() {
    let Some(dir) = needs::folder("f2fs", &["mkfs.f2fs", "sload.f2fs"]) else { return };
    let mut files = make_tree(dir.path());
    // sload.f2fs writes no holes; and a name with a newline is beyond it.
    fs::remove_file(dir.path().join("odd name \u{e4}\n")).unwrap();
    files.remove("/odd name \u{e4}\n");
    check_all(&files, f2fs_image(dir.path(), 128));
}

/// Puts volumes behind a partition table: an MBR of primary partitions.
fn partitioned(volumes: &[&[u8]]) -> Vec<u8> {
    let mut drive = vec![0u8; 1 << 20];
    for (n, volume) in volumes.iter().enumerate() {
        let at = drive.len();
        drive.extend_from_slice(volume);
        drive.resize(drive.len().next_multiple_of(1 << 20), 0);
        let entry = &mut drive[446 + 16 * n..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&((at / 512) as u32).to_le_bytes());
        entry[12..16].copy_from_slice(&((volume.len() / 512) as u32).to_le_bytes());
    }
    drive[510..512].copy_from_slice(&[0x55, 0xaa]);
    drive
}

#[test]
fn partitions_are_found_or_listed() {
    let Some(dir) = needs::folder("partitions_are_found_or_listed", &["mke2fs"]) else { return };
    fs::write(dir.path().join("one"), "ERROR\n").unwrap();
    let first = ext_image(dir.path(), 4, &["-t", "ext4"]);
    fs::write(dir.path().join("two"), "ERROR\n").unwrap();
    let second = ext_image(dir.path(), 4, &["-t", "ext2"]);
    let names = |media: &MemoryMedia, partition| {
        let retriever = Retriever::new(Config::default());
        let mut request = request(crate::common::path("/"), Operation::List);
        request.partition = partition;
        let (got, answer) = ask(&retriever, media, &request);
        let name = |g: &Got| match g {
            Got::Entry { path, .. } if path != "lost+found" => Some(path.clone()),
            _ => None,
        };
        (got.iter().filter_map(name).collect::<Vec<_>>(), answer.failure)
    };
    let unknown = vec![7u8; 4 << 20];
    let both = MemoryMedia::new(partitioned(&[&first, &unknown, &second]));
    assert_eq!(names(&both, 1), (vec!["one".to_owned()], None));
    assert_eq!(names(&both, 3), (vec!["one".to_owned(), "two".to_owned()], None));
    for partition in [0, 2, 4] {
        let (_, failure) = names(&both, partition);
        let Some(nearside_near_data::Failure::NoVolume(text)) = failure else { panic!("{failure:?}") };
        if partition == 0 {
            assert!(text.contains("1: ext4") && text.contains("3: ext2"), "{text}");
        }
    }
    let one = MemoryMedia::new(partitioned(&[&unknown, &second]));
    assert_eq!(names(&one, 0).0, ["one", "two"]);
}

#[test]
fn globs_mean_what_a_shell_means() {
    let Some(dir) = needs::folder("globs_mean_what_a_shell_means", &["mke2fs"]) else { return };
    for path in [
        "var/log/a.log",
        "var/log/b.txt",
        "var/log/app/a.log",
        "var/log/app/deep/c.log",
        "var/lib/a.log",
        "home/u1/x.log",
        "home/u2/y.log",
        "home/u2/sub/z.log",
    ] {
        let at = dir.path().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, "ERROR\n").unwrap();
    }
    symlink("var/log", dir.path().join("now")).unwrap();
    let media = MemoryMedia::new(ext_image(dir.path(), 8, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let files = |target: nearside_near_data::Target| {
        let (got, answer) = ask(&retriever, &media, &request(target, search(Answer::Files)));
        let name = |g: &Got| match g {
            Got::File(path, _) => Some(path.clone()),
            _ => None,
        };
        (got.iter().filter_map(name).collect::<Vec<_>>(), answer.failure)
    };
    let glob = |g: &str| files(nearside_near_data::Target::Glob(g.as_bytes().to_vec()));
    assert_eq!(glob("/var/log/*.log").0, ["/var/log/a.log"]);
    assert_eq!(
        glob("/var/log/**/*.log").0,
        ["/var/log/a.log", "/var/log/app/a.log", "/var/log/app/deep/c.log"]
    );
    assert_eq!(glob("/home/*/?.log").0, ["/home/u1/x.log", "/home/u2/y.log"]);
    assert_eq!(glob("/home/u[13]/*").0, ["/home/u1/x.log"]);
    assert_eq!(glob("/var/log/a.log").0, ["/var/log/a.log"]);
    assert_eq!(glob("/*/*/a.log").0, ["/var/lib/a.log", "/var/log/a.log"]);
    assert_eq!(glob("/var/{lib,log/app}/*.log").0, ["/var/lib/a.log", "/var/log/app/a.log"]);
    assert_eq!(glob("/var/log{,/app}/a.log").0, ["/var/log/a.log", "/var/log/app/a.log"]);
    assert_eq!(glob("/var/[[:alpha:]]ib/*").0, ["/var/lib/a.log"]);
    // A link is followed before the first name that is a pattern, as a shell does, and nowhere behind it.
    assert_eq!(glob("/now/*.log").0, ["/now/a.log"]);
    let glob_of_links = nearside_near_data::Target::Glob(b"/now/*.log".to_vec());
    let of_links = Request { follow: false, ..request(glob_of_links, search(Answer::Files)) };
    assert_eq!(ask(&retriever, &media, &of_links).1.failure, None);
    assert_eq!(glob("/n*/*.log").1, Some(nearside_near_data::Failure::NotFound));
    // Nothing is below a file.
    assert_eq!(glob("/var/log/a.log/*").1, Some(nearside_near_data::Failure::NotFound));
    assert_eq!(glob("/var/log/a.log/**").1, Some(nearside_near_data::Failure::NotFound));
    assert_eq!(glob("/nothing/*").1, Some(nearside_near_data::Failure::NotFound));
    assert_eq!(glob("/var/log/*.c").1, Some(nearside_near_data::Failure::NotFound));
    assert_eq!(glob("var/*").1, Some(nearside_near_data::Failure::NotAbsolute));
    // Longer than what any name may be written with.
    let long = format!("/{}", "*a".repeat(9_000));
    assert!(matches!(glob(&long).1, Some(nearside_near_data::Failure::InvalidPattern(_))));
    assert!(matches!(glob("/a[").1, Some(nearside_near_data::Failure::InvalidPattern(_))));
    let tree = |include: &[&str], exclude: &[&str], max_depth| {
        let list = |l: &[&str]| l.iter().map(|g| g.as_bytes().to_vec()).collect();
        let (include, exclude) = (list(include), list(exclude));
        files(nearside_near_data::Target::Tree { root: b"/var".to_vec(), include, exclude, max_depth }).0
    };
    assert_eq!(tree(&["*.txt"], &[], u32::MAX), ["/var/log/b.txt"]);
    assert_eq!(tree(&["log/*.log"], &[], u32::MAX), ["/var/log/a.log"]);
    assert_eq!(tree(&["*.log"], &["app"], u32::MAX), ["/var/lib/a.log", "/var/log/a.log"]);
    assert_eq!(tree(&[], &["log/app", "lib"], u32::MAX), ["/var/log/a.log", "/var/log/b.txt"]);
    assert_eq!(tree(&[], &[], 2), ["/var/lib/a.log", "/var/log/a.log", "/var/log/b.txt"]);
}

#[test]
fn a_path_is_that_path() {
    let Some(dir) = needs::folder("a_path_is_that_path", &["mke2fs"]) else { return };
    let names = ["[", "[id].tsx", "i.tsx", "a*", "ab", "{x,y}", "x", "b\\?", "b?"];
    for name in names {
        fs::write(dir.path().join(name), name).unwrap();
    }
    let media = MemoryMedia::new(ext_image(dir.path(), 8, &["-t", "ext4"]));
    let retriever = Retriever::new(Config::default());
    let read = |target| {
        let operation = Operation::Read { offset: 0, len: u64::MAX };
        let (got, answer) = ask(&retriever, &media, &request(target, operation));
        assert_eq!(answer.failure, None, "{got:?}");
        let data = |g: &Got| match g {
            Got::Data(_, bytes) => Some(String::from_utf8(bytes.clone()).unwrap()),
            _ => None,
        };
        got.iter().filter_map(data).collect::<Vec<_>>()
    };
    for name in names {
        assert_eq!(read(crate::common::path(&format!("/{name}"))), [name]);
    }
    let glob = |glob: &str| read(nearside_near_data::Target::Glob(glob.as_bytes().to_vec()));
    assert_eq!(glob("/[id].tsx"), ["i.tsx"]);
    assert_eq!(glob("/\\[id\\].tsx"), ["[id].tsx"]);
    assert_eq!(glob("/{x,[[]}"), ["[", "x"]);
}

/// A directory that cannot be read is said once, and shown once, wherever an answer ends.
#[test]
fn a_directory_that_cannot_be_read_is_shown_once() {
    let test = "a_directory_that_cannot_be_read_is_shown_once";
    let Some(folder) = needs::folder(test, &["mke2fs"]) else { return };
    for nth in 0..4 {
        fs::create_dir_all(folder.path().join(format!("top/dir{nth}"))).unwrap();
        fs::write(folder.path().join(format!("top/dir{nth}/the only name of {nth}")), "x").unwrap();
    }
    let whole = ext_image(folder.path(), 8, &["-t", "ext4", "-O", "metadata_csum"]);
    for damaged in ["the only name of 1", "the only name of 2", "dir3"] {
        let mut image = whole.clone();
        let names = || image.windows(damaged.len()).enumerate().filter(|(_, w)| *w == damaged.as_bytes());
        let places: Vec<usize> = names().map(|(at, _)| at).collect();
        assert!(!places.is_empty());
        places.iter().for_each(|at| image[*at] ^= 1);
        let media = MemoryMedia::new(image);
        let retriever = Retriever::new(Config::default());
        for root in ["/", "/top"] {
            for operation in [Operation::List, Operation::Names, Operation::Stat] {
                let request = request(tree(root), operation);
                let (all, answer) = ask(&retriever, &media, &request);
                assert_eq!(answer.failure, None);
                let failed = all.iter().filter(|got| matches!(got, Got::Failed(..))).count();
                assert_eq!(failed, 1, "{all:?}");
                for limit in 600..1800 {
                    let (parts, answer, _) = ask_in_parts(&retriever, &media, &request, limit);
                    assert_eq!(answer.failure, None, "{limit}");
                    assert_eq!(parts, all, "{damaged:?} {root} {:?} {limit}", request.operation);
                }
            }
        }
    }
}

/// A large directory that cannot be read from some block on is shown as far as it can be, and said once,
/// wherever an answer ends.
#[test]
fn a_large_directory_is_shown_up_to_where_it_can_be_read() {
    let test = "a_large_directory_is_shown_up_to_where_it_can_be_read";
    let Some(folder) = needs::folder(test, &["mke2fs"]) else { return };
    let long = format!("top/{}", "d".repeat(200));
    fs::create_dir_all(folder.path().join(&long)).unwrap();
    fs::write(folder.path().join("top/e"), "x").unwrap();
    let names: Vec<String> = (0..5000).map(|nth| format!("a name like many {nth:04}")).collect();
    names.iter().for_each(|name| drop(fs::File::create(folder.path().join(&long).join(name)).unwrap()));
    let mut image = ext_image(folder.path(), 32, &["-t", "ext4", "-O", "metadata_csum"]);
    let damaged = names[2500].as_bytes();
    let places: Vec<usize> =
        image.windows(damaged.len()).enumerate().filter(|(_, w)| *w == damaged).map(|(at, _)| at).collect();
    places.iter().for_each(|at| image[*at] ^= 1);
    let media = MemoryMedia::new(image);
    let retriever = Retriever::new(Config::default());
    // The last is the directory itself.
    for root in ["/", "/top", &format!("/{long}")] {
        for (operation, most) in [(Operation::Names, 20_000), (Operation::Stat, 120_000)] {
            let request = request(tree(root), operation);
            let (all, answer) = ask(&retriever, &media, &request);
            assert_eq!(answer.failure, None);
            let failed = all.iter().filter(|got| matches!(got, Got::Failed(..))).count();
            assert!(failed == 1 && (100..4990).contains(&all.len()), "{failed} {}", all.len());
            for limit in (most..most + 1000).step_by(40) {
                let (parts, answer, _) = ask_in_parts(&retriever, &media, &request, limit);
                assert_eq!(answer.failure, None, "{limit}");
                assert!(
                    parts == all,
                    "{root} {:?} {limit}: {} {}",
                    request.operation,
                    parts.len(),
                    all.len()
                );
            }
        }
    }
}
