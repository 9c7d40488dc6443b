//! Every store and every wrapper, put to the suite.

use std::cell::RefCell;
use std::path::Path;

use nearside_conformance::store::suite;
use nearside_store::{Access, Backend, Dram, File, FileOptions};

const BYTES: u64 = 4 << 20;

#[test]
fn dram() {
    for block_size in [512, 4096] {
        suite(4, 3000, || Dram::new(BYTES, block_size).unwrap());
    }
}

/// The suite over fresh files in `dir`.
fn files(dir: &Path, operations: usize, options: FileOptions) {
    let keep = RefCell::new(Vec::new());
    suite(2, operations, || {
        let file = tempfile::NamedTempFile::new_in(dir).unwrap();
        // Not whole blocks: the rest is not part of the store.
        file.as_file().set_len(BYTES + 100).unwrap();
        let store = File::open(file.path(), options).unwrap();
        keep.borrow_mut().push(file);
        store
    });
}

#[test]
fn files_on_disk() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    files(dir, 400, FileOptions::serve());
    files(dir, 400, FileOptions { block_size: 4096, access: Access::ServeBuffered, backend: None });
}

#[test]
fn files_on_tmpfs() {
    for block_size in [512, 4096] {
        for access in [Access::Serve, Access::ServeBuffered] {
            for backend in [None, Some(Backend::Positioned)] {
                files(Path::new("/dev/shm"), 2000, FileOptions { block_size, access, backend });
            }
        }
    }
}
