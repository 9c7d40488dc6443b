//! The files of an image, one call each.

use std::process::Command;

use nearside_conformance::needs;
use nearside_embedded::Drive;
use nearside_fsrlib::{
    Digest, Element, Error, Failure, GatherOptions, Measure, NearestOptions, Pooling, RowFormat,
    SelectOptions, Table,
};

#[test]
fn an_image_is_asked_for_its_files() {
    if !needs::tools("embedded::an_image_is_asked_for_its_files", &["mke2fs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, disk) = (folder.path().join("tree"), folder.path().join("disk.img"));
    std::fs::create_dir_all(tree.join("log/old")).unwrap();
    // A line longer than a reply, between two short ones.
    let long = format!("ERROR {}", "x".repeat(1 << 20));
    let text = format!("INFO\n{long}\nERROR\n");
    std::fs::write(tree.join("log/now.txt"), &text).unwrap();
    std::fs::write(tree.join("log/old/then.txt"), "ERROR of old\n").unwrap();
    std::fs::File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    let mut mke2fs = Command::new(needs::tool("mke2fs").unwrap());
    assert!(mke2fs.args(["-q", "-F", "-t", "ext4", "-d"]).args([&tree, &disk]).status().unwrap().success());

    let mut drive = Drive::open(&disk).unwrap();
    let lines = drive.grep("^ERROR", "/log").unwrap();
    let found: Vec<_> = lines.iter().map(|l| (l.path.to_str().unwrap(), l.number, l.text.len())).collect();
    assert_eq!(
        found,
        [("/log/now.txt", 2, long.len()), ("/log/now.txt", 3, 5), ("/log/old/then.txt", 1, 12)]
    );
    assert_eq!(lines[0].text, long.as_bytes());
    assert_eq!(drive.cat("/log/now.txt").unwrap(), text.as_bytes());
    let names: Vec<_> = drive.ls("/log").unwrap().into_iter().map(|e| e.path).collect();
    assert_eq!(names, [&b"now.txt"[..], b"old"]);
    let names: Vec<_> = drive.find("/log").unwrap().into_iter().map(|e| e.path).collect();
    assert_eq!(names, [&b"/log"[..], b"/log/now.txt", b"/log/old", b"/log/old/then.txt"]);
    assert_eq!(drive.stat("/log/now.txt").unwrap().size, text.len() as u64);
    let count = drive.count("/log/now.txt").unwrap();
    assert_eq!((count.lines, count.words, count.bytes), (3, 4, text.len() as u64));
    assert_eq!(drive.cksum("/log/now.txt", Digest::Crc32c).unwrap().len(), 4);
    // The text as rows of four bytes.
    let table = Table { raw: Some((Element::I8, 4)), scale: 0.5 };
    let rows =
        GatherOptions { table, pooling: Pooling::Sum, indices: vec![0, 2], ..GatherOptions::default() };
    let old = "/log/old/then.txt";
    assert!(
        matches!(drive.gather(old, rows.clone()), Err(Error::Refused(Failure::NotATable(_)))),
        "13 bytes"
    );
    let table = Table { raw: Some((Element::I8, 1)), scale: 0.5 };
    let sums = drive.gather(old, GatherOptions { table, ..rows }).unwrap();
    assert_eq!(sums, [[f32::from(b'E') / 2.0 + f32::from(b'R') / 2.0]]);
    let query = NearestOptions { table, measure: Measure::L2, count: 1, query: vec![16.0] };
    assert_eq!(drive.nearest(old, query).unwrap(), [(5, 0.0)]);
    let rows = SelectOptions {
        format: RowFormat::Csv { delimiter: b' ', quote: None, header: false },
        filter: SelectOptions::condition("column_1 = 'ERROR'").unwrap(),
        aggregates: SelectOptions::aggregates("count(*)").unwrap(),
        ..SelectOptions::default()
    };
    let streams = drive.select(old, rows).unwrap();
    assert!(streams.len() == 1 && streams[0].starts_with(&[0xff; 4]), "{streams:?}");
    assert!(matches!(drive.cat("/none"), Err(Error::Refused(Failure::NotFound))));
    assert!(matches!(drive.cat("/log"), Err(Error::Refused(Failure::IsADirectory))));
    assert!(matches!(drive.grep("(", "/"), Err(Error::Refused(Failure::InvalidPattern(_)))));
}

#[test]
fn an_image_that_becomes_shorter_is_an_error_and_nothing_else() {
    if !needs::tools("embedded::an_image_that_becomes_shorter", &["mke2fs"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, disk) = (folder.path().join("tree"), folder.path().join("disk.img"));
    std::fs::create_dir(&tree).unwrap();
    let text = "a line of an ordinary log\n".repeat(200_000);
    std::fs::write(tree.join("log"), &text).unwrap();
    let image = std::fs::File::create(&disk).unwrap();
    image.set_len(8 << 20).unwrap();
    let mut mke2fs = Command::new(needs::tool("mke2fs").unwrap());
    assert!(mke2fs.args(["-q", "-F", "-t", "ext4", "-d"]).args([&tree, &disk]).status().unwrap().success());

    // All of it into the page cache, holes too.
    assert_eq!(std::fs::read(&disk).unwrap().len(), 8 << 20);
    let mut drive = Drive::open(&disk).unwrap();
    let before = drive.count("/log").unwrap();
    assert_eq!(before.lines, 200_000);
    // What was scanned where the page cache has it is taken away, from the end on: first the file's last
    // bytes. Zeros have no lines, and none are counted.
    let mut len = 8 << 20;
    while let Ok(count) = drive.count("/log") {
        assert_eq!(count.lines, 200_000, "an image of {len} bytes");
        len -= 16 << 10;
        image.set_len(len).unwrap();
    }
    for _ in 0..2 {
        let error = drive.count("/log").unwrap_err().to_string();
        assert!(error.contains("shorter"), "{error}");
        assert!(drive.cat("/log").is_err());
        assert!(drive.grep("nothing of the kind", "/log").is_err());
    }
}
