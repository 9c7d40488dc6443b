//! How an attached drive ends: no mount stays behind that nobody serves, and the operator's log says what
//! went wrong, and that only. Needs root.

use std::fs;
use std::path::Path;

use nearside_conformance::events::{Log, of_all_threads, one};
use nearside_conformance::needs;
use nearside_conformance::volume::Mounted;
use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_embedded::{AnyStore, Loopback};
use nearside_front_fuse::{AttachError, AttachOptions, attach};
use nearside_store::FileOptions;

/// What a drive over that store said to the log from its start to its end, at WARN and above.
fn said(log: &Log, store: &str, at: &Path, detach: bool) -> (Result<(), AttachError>, Vec<String>) {
    let store = AnyStore::open(store, FileOptions::serve()).unwrap();
    let drive = Loopback::threaded(store, (), Config::default(), Rest::default()).unwrap();
    let attached = attach(drive.function.clone(), &AttachOptions::new(at)).unwrap();
    assert!(attached.file().exists());
    let ended = if detach {
        attached.detach().map_err(|(e, _)| e)
    } else {
        drop(attached);
        Ok(())
    };
    assert_eq!(fs::read_dir(at).expect("the directory below the mount").count(), 0);
    drop(drive);
    let mut lines = log.lines();
    lines.retain(|line| line.contains("WARN") || line.contains("ERROR"));
    (ended, lines)
}

#[test]
fn the_mount_goes_whatever_the_last_flush_says() {
    const NAME: &str = "root_detach::the_mount_goes_whatever_the_last_flush_says";
    if !needs::root(NAME) || !needs::tools(NAME, &["umount"]) || !needs::fuse(NAME) {
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = dir.path().join("drive");
    fs::create_dir(&at).unwrap();
    let _mount = Mounted::of_another(at.clone());
    let log = of_all_threads();
    for detach in [true, false] {
        let (ended, lines) = said(&log, "dram:1MiB", &at, detach);
        ended.unwrap();
        assert_eq!(lines, Vec::<String>::new());
        let (ended, lines) = said(&log, "faulty:kind=flushes:dram:1MiB", &at, detach);
        assert!(!detach || matches!(ended, Err(AttachError::Flush(_))), "{ended:?}");
        one(&lines, &["ERROR", "nsid=1", "operation=\"flush\"", "the store failed a command"]);
    }
}
