//! A session with a whole embedded drive: the drive's own count of commands,
//! and the three routes of DAC'23 agree.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_conformance::{needs, volume};
use nearside_embedded::Options;
use nearside_fsrlib::{
    Answer, Ask, Digest, Encoding, Error, Failure, Operation, Record, Route, SearchOptions, Session, Summary,
    Transport,
};
use tempfile::TempDir;

fn image(test: &str, kind: &str) -> Option<(TempDir, PathBuf)> {
    let folder = needs::folder(test, volume::tools(kind))?;
    let tree = folder.path().join("tree");
    let deep = tree.join("a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s");
    std::fs::create_dir_all(&deep).unwrap();
    let text: String = (0..20_000).map(|i| format!("{i} {}\n", ["INFO", "ERROR", "WARN"][i % 3])).collect();
    std::fs::write(deep.join("leaf"), &text).unwrap();
    std::fs::write(tree.join("a/tiny"), "ERROR\n").unwrap();
    std::fs::write(tree.join("a/empty"), "").unwrap();
    let sparse = std::fs::File::create(tree.join("a/sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"\nERROR\n", 2 << 20).unwrap();
    let image = folder.path().join("disk.img");
    volume::make(kind, &image, 96, &tree);
    Some((folder, image))
}

fn session(image: &Path) -> Session<impl Transport> {
    let drive = nearside_embedded::image(image, &Options::default()).unwrap();
    Session::new(drive, Arc::new(TscClock::new()))
}

fn ask<T: Transport>(session: &mut Session<T>, ask: &Ask) -> (Vec<Record<'static>>, Summary) {
    let mut records = Vec::new();
    let summary = session.stream(ask, |record| {
        records.push(record.into_owned());
        ControlFlow::Continue(())
    });
    (records, summary.unwrap())
}

fn search(answer: Answer) -> Operation {
    let patterns = vec![b"ERROR".to_vec()];
    Operation::Search(SearchOptions {
        patterns,
        answer,
        only_matching_files: true,
        text: true,
        numbers: true,
        ..SearchOptions::default()
    })
}

const LEAF: &str = "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/leaf";

fn routes_agree(kind: &str) {
    let Some((_folder, image)) = image(&format!("routes_agree_{kind}"), kind) else { return };
    let mut session = session(&image);
    let asks = [
        Ask::path(LEAF, search(Answer::Count)),
        Ask::path(LEAF, search(Answer::Lines)),
        Ask::path("/a/sparse", search(Answer::Lines)),
        Ask::path("/a/tiny", search(Answer::Matches)),
        Ask::path("/a/empty", Operation::Count),
        Ask::path("/a/sparse", Operation::Checksum(Digest::Sha256)),
        Ask::tree("/", search(Answer::Count)),
        Ask::tree("/a", Operation::Count),
        Ask::tree("/a", Operation::Checksum(Digest::Crc32c)),
    ];
    for asked in asks {
        session.set_route(Route::Drive);
        let (drive, by_drive) = ask(&mut session, &asked);
        assert!(!drive.is_empty());
        assert_eq!(by_drive.moved.read_commands, 0);
        for route in [Route::Blocks, Route::Host] {
            session.set_route(route);
            let (host, by_host) = ask(&mut session, &asked);
            assert_eq!(lines(host), lines(drive.clone()), "{route:?} {asked:?}");
            assert!(by_host.moved.read_commands > 0);
            assert!(by_host.moved.bytes_in > 0);
        }
    }
}

/// Records with the pieces that a full buffer cut joined, and a file's name said once.
fn lines(records: Vec<Record>) -> Vec<Record> {
    let mut out: Vec<Record> = Vec::new();
    let mut file = None;
    for record in records {
        if let Record::File { path, .. } = &record {
            if file.as_ref() == Some(path) {
                continue;
            }
            file = Some(path.clone());
        }
        out.push(record);
    }
    out
}

#[test]
fn routes_agree_on_ext4() {
    routes_agree("ext4");
}

#[test]
fn routes_agree_on_ext2() {
    routes_agree("ext2");
}

#[test]
fn routes_agree_on_f2fs() {
    routes_agree("f2fs");
}

/// Twelve thousand runs, data and holes in turn, where a request of 128 KiB names eight thousand.
#[test]
fn a_file_of_more_runs_than_a_request_names_is_the_same_by_every_route() {
    let Some(folder) = needs::folder("a_file_of_more_runs_than_a_request_names", &["mke2fs"]) else { return };
    std::fs::create_dir(folder.path().join("tree")).unwrap();
    let file = std::fs::File::create(folder.path().join("tree/runs")).unwrap();
    for run in 0..6_000u64 {
        let text = format!("{run} ERROR\n").repeat(600);
        std::os::unix::fs::FileExt::write_all_at(&file, &text.as_bytes()[..4096], run * 8192).unwrap();
    }
    file.set_len(6_000 * 8192).unwrap();
    let image = folder.path().join("disk.img");
    volume::make("ext4", &image, 96, &folder.path().join("tree"));
    let mut session = session(&image);
    session.set_route(Route::Drive);
    let (map, _) = ask(&mut session, &Ask::path("/runs", Operation::Map));
    assert!(map.len() > 12_000, "{}", map.len());
    // What is read comes in pieces as they fit: joined.
    let joined = |records: Vec<Record<'static>>| {
        let (mut first, mut data) = (None, Vec::new());
        let others = records.into_iter().filter_map(|record| match record {
            Record::Data { offset, bytes } => {
                assert_eq!(offset, *first.get_or_insert(offset) + data.len() as u64);
                data.extend_from_slice(&bytes);
                None
            }
            other => Some(other),
        });
        (lines(others.collect()), first, data)
    };
    for operation in [
        search(Answer::Count),
        Operation::Count,
        Operation::Checksum(Digest::Sha256),
        Operation::Read { offset: 4000, len: u64::MAX },
        Operation::Read { offset: 0, len: 0 },
        // All of it behind the first part.
        Operation::Read { offset: 4000 + (40 << 20), len: 5000 },
    ] {
        let asked = Ask::path("/runs", operation);
        session.set_route(Route::Drive);
        let drive = joined(ask(&mut session, &asked).0);
        for route in [Route::Blocks, Route::Host] {
            session.set_route(route);
            assert!(joined(ask(&mut session, &asked).0) == drive, "{route:?} {asked:?}");
        }
    }
}

#[test]
fn the_drive_counts_one_command() {
    let Some((_folder, image)) = image("the_drive_counts_one_command", "ext4") else { return };
    let mut session = session(&image);
    assert_eq!(session.transport_mut().taken().unwrap(), Some(0));
    let (records, summary) = ask(&mut session, &Ask::path(LEAF, search(Answer::Count)));
    assert!(records.contains(&Record::Matches(6_667)), "{records:?}");
    assert_eq!(summary.moved.near_data_commands, 1);
    assert_eq!(session.transport_mut().taken().unwrap(), Some(1));
    assert!(summary.moved.bytes_in < 512, "only the answer crosses the wire");
}

#[test]
fn the_longest_links_are_told_by_the_longest_paths() {
    let test = "the_longest_links_are_told_by_the_longest_paths";
    let Some(folder) = needs::folder(test, volume::tools("ext4")) else { return };
    let tree = folder.path().join("tree");
    let name = "n".repeat(200);
    let deep = tree.join(&name).join(&name).join(&name).join(&name);
    std::fs::create_dir_all(&deep).unwrap();
    let target = "x/".repeat(2047);
    std::os::unix::fs::symlink(&target, deep.join("link")).unwrap();
    let image = folder.path().join("image");
    volume::ext(&image, 32, Some(&tree), &["-t", "ext4", "-b", "4096"]);
    let mut session = session(&image);
    let below = format!("/{name}/{name}/{name}/{name}");
    // Of paths that say the same, with a buffer of two pages and with one of all.
    for path in [format!("{below}/link"), format!("{}{below}/link", "/".repeat(3200))] {
        let asked = Ask { follow: false, ..Ask::path(path.as_str(), Operation::Stat) };
        let (records, summary) = ask(&mut session, &asked);
        let [Record::Entry(entry)] = &records[..] else { panic!("{records:?}") };
        assert_eq!((&*entry.path, entry.link.as_deref()), (path.as_bytes(), Some(target.as_bytes())));
        assert_eq!(summary.moved.near_data_commands, 1);
    }
}

/// A list of operations, by each way, beside the same ones alone.
#[test]
fn operations_that_are_under_way_together_are_answered_as_alone() {
    let test = "operations_that_are_under_way_together_are_answered_as_alone";
    let Some((_folder, image)) = image(test, "ext4") else { return };
    let paths = [LEAF, "/a", "/a/none", "/a/tiny", "/a/tiny/none", "/a/empty", "/a/sparse"];
    let operations = [Operation::Stat, Operation::Nop, Operation::Count, search(Answer::Lines)];
    // More than are under way together, some with answers of several commands.
    let asks: Vec<Ask> = (0..70)
        .map(|n| Ask::path(paths[n % paths.len()], operations[n / paths.len() % operations.len()].clone()))
        .collect();
    type Came = Vec<(usize, Result<Record<'static>, Failure>)>;
    fn alone<T: Transport>(session: &mut Session<T>, asks: &[Ask]) -> Came {
        let mut came = Vec::new();
        for (nth, ask) in asks.iter().enumerate() {
            let answer = session.stream(ask, |record| {
                came.push((nth, Ok(record.into_owned())));
                ControlFlow::Continue(())
            });
            match answer {
                Err(Error::Refused(failure)) => came.push((nth, Err(failure))),
                other => drop(other.unwrap()),
            }
        }
        came
    }
    fn together<T: Transport>(session: &mut Session<T>, asks: &[Ask]) -> Came {
        let mut came = Vec::new();
        let summary = session.stream_each(asks, |nth, answer| {
            came.push((nth, answer.map(Record::into_owned)));
            ControlFlow::Continue(())
        });
        summary.unwrap();
        came
    }
    let expected = alone(&mut session(&image).with_buffer(64 << 10), &asks);
    assert!(expected.iter().any(|(_, answer)| answer.is_err()) && expected.len() > asks.len());
    let mut vendor = session(&image).with_buffer(64 << 10);
    assert!(together(&mut vendor, &asks) == expected);
    // The answers that go on were asked once more, behind those that were under way with them.
    assert!(vendor.totals().near_data_commands >= 70);
    for route in [Route::Blocks, Route::Host] {
        let session = || session(&image).with_buffer(64 << 10).with_route(route);
        assert!(together(&mut session(), &asks) == alone(&mut session(), &asks), "{route:?}");
    }
    let mut paper = nearside_embedded::image(&image, &Options::default()).unwrap();
    paper.transport().set_encoding(Encoding::GetFeatures);
    let mut paper = Session::new(paper, Arc::new(TscClock::new())).with_buffer(64 << 10);
    assert!(together(&mut paper, &asks) == expected);
    // A driver with memory for three such buffers.
    let mut options = Options::default();
    options.driver.pool_bytes = 4 << 20;
    let drive = nearside_embedded::image(&image, &options).unwrap();
    let mut small = Session::new(drive, Arc::new(TscClock::new())).with_buffer(1 << 20);
    let searches = vec![Ask::path(LEAF, search(Answer::Lines)); 9];
    assert!(together(&mut small, &searches) == alone(&mut session(&image).with_buffer(1 << 20), &searches));
    // They are so many at a time, and none is left.
    let stats: Vec<Ask> =
        (0..100).map(|n| Ask { follow: n % 2 == 0, ..Ask::path(LEAF, Operation::Stat) }).collect();
    let mut drive = session(&image);
    let mut heard = 0;
    let summary = drive.stream_each(&stats, |_, _| {
        heard += 1;
        if heard == 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let sent = summary.unwrap().moved.near_data_commands;
    assert_eq!((heard, sent), (20, 20 + 15));
    assert_eq!(drive.transport_mut().taken().unwrap(), Some(sent));
    assert_eq!(together(&mut drive, &stats).len(), 100);
}

/// Asks that differ by their paths alone are few commands; each is answered as alone, by each way, also where
/// replies have little room.
#[test]
fn many_paths_are_few_commands() {
    let Some((_folder, image)) = image("many_paths_are_few_commands", "ext4") else { return };
    let paths = [LEAF, "/a", "/a/none", "/a/tiny", "/a/tiny/none", "/a/empty", "a", "/a/sparse"];
    let operations = [
        Operation::Stat,
        Operation::Nop,
        Operation::Count,
        Operation::Checksum(nearside_fsrlib::Digest::Xxh3),
    ];
    for operation in operations {
        let asks: Vec<Ask> = (0..300).map(|n| Ask::path(paths[n % paths.len()], operation.clone())).collect();
        type Came = Vec<(usize, Result<Record<'static>, Failure>)>;
        fn each<T: Transport>(session: &mut Session<T>, asks: &[Ask]) -> (Came, u64) {
            let mut came = Came::new();
            let summary = session.stream_each(asks, |nth, answer| {
                came.push((nth, answer.map(Record::into_owned)));
                ControlFlow::Continue(())
            });
            (came, summary.unwrap().moved.near_data_commands)
        }
        let mut right = Came::new();
        let mut alone = session(&image);
        for (nth, ask) in asks.iter().enumerate() {
            let (came, _) = each(&mut alone, std::slice::from_ref(ask));
            right.extend(came.into_iter().map(|(_, answer)| (nth, answer)));
        }
        assert_eq!(alone.totals().near_data_commands, 300);
        let (came, commands) = each(&mut session(&image), &asks);
        assert!(came == right, "{operation:?}");
        assert_eq!(commands, 300_u64.div_ceil(300_u64.div_ceil(16)), "{operation:?}");
        for buffer in [4096, 9 << 10, 16 << 10] {
            let (came, _) = each(&mut session(&image).with_buffer(buffer), &asks);
            assert!(came == right, "{operation:?} {buffer}");
        }
        let mut paper = nearside_embedded::image(&image, &Options::default()).unwrap();
        paper.transport().set_encoding(Encoding::GetFeatures);
        let (came, commands) = each(&mut Session::new(paper, Arc::new(TscClock::new())), &asks);
        assert!(came == right && commands <= 5, "{operation:?}: {commands}");
    }
}

#[test]
fn get_features_gives_the_same_answer() {
    let Some((_folder, image)) = image("get_features_gives_the_same_answer", "ext4") else { return };
    let mut drive = nearside_embedded::image(&image, &Options::default()).unwrap();
    drive.transport().set_encoding(Encoding::GetFeatures);
    let mut paper = Session::new(drive, Arc::new(TscClock::new()));
    let mut vendor = session(&image);
    let asked = Ask::path(LEAF, search(Answer::Lines));
    let (by_paper, summary) = ask(&mut paper, &asked);
    let (by_vendor, _) = ask(&mut vendor, &asked);
    assert_eq!(by_paper, by_vendor);
    assert_eq!(paper.transport_mut().taken().unwrap(), Some(summary.moved.near_data_commands));
}

#[test]
fn the_example_searches_by_one_command() {
    let Some((_folder, image)) = image("the_example_searches_by_one_command", "ext4") else { return };
    let here = std::env::current_exe().unwrap();
    let example = here.parent().unwrap().parent().unwrap().join("examples/search");
    let run = |path: &str, pattern: &str| {
        let output = Command::new(&example).arg(&image).args([path, pattern]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, err) = run(LEAF, "^19999 ");
    assert_eq!((code, out.as_str()), (Some(0), &*format!("{LEAF}:20000:19999 ERROR\n")), "{err}");
    assert!(err.starts_with("commands: 1 (the drive counted 1), reads: 0, "), "{err}");
    let (code, _, err) = run("/missing", "x");
    assert_eq!((code, err.as_str()), (Some(2), "/missing: No such file or directory\n"));
}
