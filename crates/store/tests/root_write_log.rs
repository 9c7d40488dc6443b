//! A write log whose file system is full: it ends whole, says so, and the store goes on.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_conformance::events::logged;
use nearside_conformance::needs;
use nearside_dma::IoBuffer;
use nearside_store::write_log::{Entry, Flags, LogReader, Logged, WriteLog};
use nearside_store::{Channel, Data, Dram, Operation, Store, Submitted, Token};

struct Tmpfs<'a>(&'a Path);

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

fn submit(channel: &mut impl Channel, operation: Operation) {
    let data = match operation {
        Operation::Write { len, .. } => Data::Owned(IoBuffer::new(len as usize).unwrap()),
        _ => Data::None,
    };
    let Submitted::Done(done) = channel.submit(operation, data, Token(1), Nanos(0)) else { panic!() };
    done.result.unwrap();
}

#[test]
fn a_log_that_finds_no_room_ends_whole() {
    let test = "a_log_that_finds_no_room_ends_whole";
    if !needs::root(test) || !needs::tools(test, &["mount", "umount"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return needs::left_out(test, "no tmpfs can be mounted");
    }
    let _tmpfs = Tmpfs(dir.path());
    let path = dir.path().join("log");
    let store = Dram::new(1 << 20, 512).unwrap();
    let store = Logged::new(store, WriteLog::create(&path, 512, 1 << 20).unwrap()).unwrap();
    let mut channel = store.channel(Arc::default()).unwrap();
    logged(|log| {
        // Of the log's 64 KiB, each takes 8 KiB and a half.
        for nr in 0..7 {
            submit(&mut channel, Operation::Write { offset: nr * 8192, len: 8192, fua: false });
        }
        assert_eq!((store.log().trouble(), log.lines()), (None, vec![]));
        for nr in 7..12 {
            submit(&mut channel, Operation::Write { offset: nr * 8192, len: 8192, fua: false });
            submit(&mut channel, Operation::Flush);
        }
        let said = log.lines();
        assert_eq!(
            said.iter().filter(|line| line.starts_with("ERROR") || line.contains(" ERROR")).count(),
            1
        );
        let trouble = store.log().trouble().unwrap();
        for word in [path.to_str().unwrap(), "after 8 entries", "No space left"] {
            assert!(trouble.contains(word) && said[0].contains(word), "{word}: {trouble}\n{said:?}");
        }
    });
    let reader = LogReader::open(&path).unwrap();
    let entries: Vec<Entry> = reader.entries().map(Result::unwrap).collect();
    assert_eq!(entries.len(), 9);
    assert!(entries[1..8].iter().zip(0..).all(|(entry, nr)| (entry.sector, entry.sectors) == (nr * 16, 16)));
    assert!(entries[8].flags.has(Flags::MARK));
    assert!(reader.mark(&entries[8]).unwrap().starts_with(b"nearside: the log ends here"));
}
