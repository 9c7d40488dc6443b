//! What the operator's log says of a file that is a store: each trouble at its level, the same no more than
//! once in ten seconds.

use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_conformance::events::logged;
use nearside_dma::IoBuffer;
use nearside_store::{Backend, Channel, Data, File, FileOptions, Operation, Store, Submitted, Token};

#[test]
fn a_read_that_is_continued_and_fails() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let options = FileOptions { backend: Some(Backend::Positioned), ..FileOptions::read() };
    let mut channel = File::open(file.path(), options).unwrap().channel(Arc::default()).unwrap();
    file.as_file().set_len(4096).unwrap();
    logged(|log| {
        let mut read = |now| {
            let data = Data::Owned(IoBuffer::new(16384).unwrap());
            let operation = Operation::Read { offset: 0, len: 16384 };
            match channel.submit(operation, data, Token(1), Nanos(now)) {
                Submitted::Done(completion) => assert!(completion.result.is_err()),
                Submitted::Pending => panic!("a positioned read waits for nothing"),
            }
        };
        read(0);
        let path = format!("path={}", file.path().display());
        let said = log.lines();
        assert_eq!(said.len(), 2, "{said:#?}");
        for (line, words) in said.iter().zip([[" INFO", "cut short"], ["ERROR", "has become shorter"]]) {
            for word in words.iter().chain(&[path.as_str(), "operation=\"read\"", "len=16384"]) {
                assert!(line.contains(word), "{word}: {line}");
            }
        }
        read(1);
        read(9_999_999_999);
        assert_eq!(log.lines(), Vec::<String>::new());
        read(10_000_000_000);
        assert_eq!(log.lines().iter().filter(|line| line.contains("suppressed=2")).count(), 2);
    });
}
