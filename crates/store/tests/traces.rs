//! What the operator hears of a file that is a store: each trouble at its level, the same no more than once
//! in ten seconds.

use std::io::Write;
use std::sync::{Arc, Mutex};

use nearside_clock::Nanos;
use nearside_dma::IoBuffer;
use nearside_store::{Backend, Channel, Data, File, FileOptions, Operation, Store, Submitted, Token};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_read_that_is_continued_and_fails() {
    let log = Log::default();
    let to = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .without_time()
        .with_writer(move || to.clone())
        .finish();
    let lines = || {
        let bytes = std::mem::take(&mut *log.0.lock().unwrap());
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let options = FileOptions { backend: Some(Backend::Positioned), ..FileOptions::read() };
    let mut channel = File::open(file.path(), options).unwrap().channel(Arc::default()).unwrap();
    file.as_file().set_len(4096).unwrap();
    tracing::subscriber::with_default(subscriber, || {
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
        let said = lines();
        assert_eq!(said.len(), 2, "{said:#?}");
        for (line, words) in said.iter().zip([[" INFO", "cut short"], ["ERROR", "has become shorter"]]) {
            for word in
                words.iter().chain(&[path.as_str(), "operation=\"read\"", "len=16384", "suppressed=0"])
            {
                assert!(line.contains(word), "{word}: {line}");
            }
        }
        read(1);
        read(9_999_999_999);
        assert_eq!(lines(), Vec::<String>::new());
        read(10_000_000_000);
        assert_eq!(lines().iter().filter(|line| line.contains("suppressed=2")).count(), 2);
    });
}
