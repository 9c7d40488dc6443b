//! A volume that another program writes while a drive has it. A child that another test starts has every lock
//! too, until it becomes another program: no other test stands here.

use std::ops::ControlFlow;
use std::sync::Arc;

use nearside_clock::TscClock;
use nearside_conformance::{needs, volume};
use nearside_embedded::{self as embedded, Options};
use nearside_fsrlib::{Ask, Operation, Record, Session};
use nearside_store::{File, FileOptions};

/// Names, inodes and blocks that one command has read are not what they were once somebody else has written:
/// here another volume, with the same inode numbers, in the place of the first.
#[test]
fn beside_a_writer_nothing_that_was_read_is_relied_on() {
    let test = "beside_a_writer_nothing_that_was_read_is_relied_on";
    let Some(folder) = needs::folder(test, &["mke2fs"]) else { return };
    let made = |name: &str, text: &str| {
        let tree = folder.path().join(format!("{name}.tree"));
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("public"), text).unwrap();
        let image = folder.path().join(name);
        volume::make("ext4", &image, 8, &tree);
        image
    };
    let (first, second) = (made("first", "one\n"), made("second", "two and more\n"));
    let serve = FileOptions::serve();
    let writer = File::open(&first, serve).unwrap();
    let drive = embedded::image(&first, &Options::default()).unwrap();
    assert_eq!(drive.namespace().store().writer(), Some("this process has it locked"));
    let mut session = Session::new(drive, Arc::new(TscClock::new()));
    let read = Ask::path(b"/public", Operation::Read { offset: 0, len: 100 });
    let content = |session: &mut Session<_>| {
        let mut content = None;
        let summary = session.stream(&read, |record| {
            if let Record::Data { bytes, .. } = record {
                content = Some(bytes.into_owned());
            }
            ControlFlow::Continue(())
        });
        summary.map(|_| content).unwrap()
    };
    for _ in 0..2 {
        assert_eq!(content(&mut session).as_deref(), Some(&b"one\n"[..]));
    }
    let bytes = std::fs::read(&second).unwrap();
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::File::options().write(true).open(&first).unwrap(),
        &bytes,
        0,
    )
    .unwrap();
    assert_eq!(content(&mut session).as_deref(), Some(&b"two and more\n"[..]));
    drop(writer);
    let alone = embedded::image(&first, &Options::default()).unwrap();
    assert_eq!(alone.namespace().store().writer(), None);
}
