//! Every store and every wrapper, put to the suite.

use std::cell::{Cell, RefCell};
use std::path::Path;

use nearside_conformance::store::{Host, model, suite};
use nearside_dma::persistent::{Medium, WriteBack};
use nearside_random::Rng;
use nearside_store::write_log::{Logged, WriteLog};
use nearside_store::{
    Access, Backend, Data, Delay, Dram, Fault, Faulty, File, FileOptions, Kinds, Lossy, Modelled, Null,
    Operation, Pmem, Rule,
};

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
    files(dir, 400, FileOptions { block_size: 4096, access: Access::ServeBuffered, ..FileOptions::serve() });
}

#[test]
fn files_on_tmpfs() {
    for block_size in [512, 4096] {
        for access in [Access::Serve, Access::ServeBuffered] {
            for backend in [None, Some(Backend::Positioned)] {
                files(
                    Path::new("/dev/shm"),
                    2000,
                    FileOptions { block_size, access, backend, ..FileOptions::serve() },
                );
            }
        }
    }
}

/// Mapped files, in tmpfs and on a disk; as the kernel says of them, and by cache lines.
#[test]
fn persistent_memory() {
    let keep = RefCell::new(Vec::new());
    let open = |dir: &Path, block_size, medium: Option<Medium>| {
        let file = tempfile::NamedTempFile::new_in(dir).unwrap();
        file.as_file().set_len(BYTES + 100).unwrap();
        let options = FileOptions { block_size, ..FileOptions::serve() };
        let store = Pmem::open(file.path(), options).unwrap();
        let store = match medium {
            Some(medium) => store.taken_for(medium).unwrap(),
            None => store,
        };
        keep.borrow_mut().push(file);
        store
    };
    let memory = WriteBack::of_this_processor().map(Medium::Memory);
    let shm = Path::new("/dev/shm");
    for block_size in [512, 4096] {
        for medium in [None, memory] {
            suite(4, 3000, || open(shm, block_size, medium));
        }
    }
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    suite(1, 400, || open(disk, 512, None));
    suite(2, 1000, || Modelled::new(open(shm, 512, memory), Delay::units(3, 500).medium()));
    let rules = [Rule { per_million: 50_000, ..Rule::new(Kinds::Any, Fault::Torn) }];
    assert!(model(&Faulty::new(open(shm, 512, None), 3, rules), 3, 3000) > 50);
}

#[test]
fn with_a_write_log() {
    let dir = tempfile::tempdir().unwrap();
    let count = Cell::new(0);
    let log = |block_size| {
        count.set(count.get() + 1);
        WriteLog::create(dir.path().join(count.get().to_string()), block_size, BYTES).unwrap()
    };
    for block_size in [512, 4096] {
        let dram = || Dram::new(BYTES, block_size).unwrap();
        suite(2, 1000, || Logged::new(dram(), log(block_size)).unwrap());
        let slow = Delay { stall_every: 7, stall_ns: 5000, seed: 2, ..Delay::units(4, 900) };
        suite(2, 1000, || Logged::new(Modelled::new(dram(), slow.medium()), log(block_size)).unwrap());
    }
}

#[test]
fn delayed() {
    let dram = || Dram::new(BYTES, 512).unwrap();
    suite(2, 2000, || Modelled::new(dram(), Delay::fixed(0).medium()));
    suite(2, 2000, || {
        Modelled::new(dram(), Delay { stall_every: 10, stall_ns: 50_000, ..Delay::units(8, 1000) }.medium())
    });
    // Over a store that is itself pending.
    let options = FileOptions { access: Access::ServeBuffered, ..FileOptions::serve() };
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    suite(1, 1000, || {
        file.as_file().set_len(0).unwrap();
        file.as_file().set_len(BYTES).unwrap();
        Modelled::new(File::open(file.path(), options).unwrap(), Delay::units(3, 500).medium())
    });
}

#[test]
fn faulty_without_rules_is_the_store_below() {
    suite(2, 2000, || {
        Faulty::new(Modelled::new(Dram::new(BYTES, 512).unwrap(), Delay::fixed(100).medium()), 1, [])
    });
}

/// It owes refusals, tokens and buffers, and nothing of what it is told to keep.
#[test]
fn null_keeps_nothing() {
    let null = Null::new(BYTES, 512).unwrap();
    nearside_conformance::store::tokens(&Modelled::new(null, Delay::fixed(300).medium()));
    let mut host = Host::new(&Modelled::new(Null::new(1 << 44, 4096).unwrap(), Delay::fixed(300).medium()));
    host.write(1 << 43, 4096, 7, false).unwrap();
    assert!(host.read(1 << 43, 4096).unwrap().iter().all(|&b| b == 0xee), "the buffer stays as it was");
    for (offset, len) in [(1 << 44, 4096), (512, 4096), (0, 512)] {
        assert!(host.read(offset, len).is_err());
    }
    assert!(Null::new(5000, 512).is_err() && Null::new(0, 512).is_err() && Null::new(4096, 1024).is_err());
}

/// Point 6: failed and torn operations leave each block old or new, and the others alone.
#[test]
fn faults_leave_each_block_old_or_new() {
    for seed in 0..8 {
        let rules = [
            Rule { per_million: 50_000, ..Rule::new(Kinds::Any, Fault::Error) },
            Rule { per_million: 100_000, ..Rule::new(Kinds::Mutations, Fault::Torn) },
            Rule { per_million: 50_000, ..Rule::new(Kinds::Any, Fault::Busy) },
        ];
        let dram = Dram::new(BYTES, 512).unwrap();
        let store = Faulty::new(Modelled::new(dram, Delay::units(4, 700).medium()), seed, rules);
        let failed = model(&store, seed, 3000);
        assert_eq!(failed as u64, store.plan().lock().unwrap().failed());
        assert!(failed > 100, "{failed}");
    }
}

#[test]
fn faults_come_where_told() {
    let rule =
        Rule { range: Some(4096..8192), after: 1, times: Some(2), ..Rule::new(Kinds::Reads, Fault::Error) };
    let store = Faulty::new(Dram::new(BYTES, 512).unwrap(), 1, [rule]);
    let mut host = Host::new(&store);
    let mut fails = |offset| host.read(offset, 512).is_err();
    assert_eq!([fails(4096), fails(0), fails(4096), fails(8192), fails(7680), fails(4096)], {
        [false, false, true, false, true, false]
    });
    store.plan().lock().unwrap().add(Rule::new(Kinds::Flushes, Fault::Error));
    assert!(host.run(Operation::Flush, Data::None).result.is_err());
    store.plan().lock().unwrap().clear();
    assert!(host.run(Operation::Flush, Data::None).result.is_ok());
}

#[test]
fn lossy() {
    suite(2, 2000, || Lossy::new(BYTES, 512).unwrap());
    suite(1, 2000, || Modelled::new(Lossy::new(BYTES, 4096).unwrap(), Delay::fixed(300).medium()));
}

/// Point 4: after a crash each block is its durable version or one written since; both happen.
#[test]
fn a_crash_forgets_only_what_was_not_flushed() {
    const BLOCKS: usize = 64;
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..50 {
        let store = Lossy::new(1 << 20, 512).unwrap();
        let mut rng = Rng(seed);
        let mut host = Host::new(&store);
        let mut may: Vec<Vec<u8>> = vec![vec![0]; BLOCKS];
        for round in 0..3 {
            for _ in 0..100 {
                let block = rng.below(BLOCKS as u64) as usize;
                let (offset, len, byte, fua) = (block as u64 * 512, 512, rng.draw() as u8, rng.below(5) == 0);
                match rng.below(12) {
                    0 => {
                        host.run(Operation::Flush, Data::None).result.unwrap();
                        may.iter_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
                    }
                    1 => {
                        host.run(Operation::Deallocate { offset, len }, Data::None).result.unwrap();
                        may[block].push(0);
                    }
                    2 => {
                        host.run(Operation::WriteZeroes { offset, len, fua: true }, Data::None)
                            .result
                            .unwrap();
                        may[block] = vec![0];
                    }
                    _ => {
                        host.write(offset, len, byte, fua).unwrap();
                        if fua {
                            may[block].clear();
                        }
                        may[block].push(byte);
                    }
                }
            }
            store.crash(seed * 10 + round);
            assert_eq!(store.unflushed(), 0);
            for (block, versions) in may.iter_mut().enumerate() {
                let bytes = host.read(block as u64 * 512, 512).unwrap();
                assert!(bytes.iter().all(|&b| b == bytes[0]));
                let at = versions.iter().rposition(|&v| v == bytes[0]);
                let at =
                    at.unwrap_or_else(|| panic!("seed {seed}, block {block}: {} of {versions:?}", bytes[0]));
                if at + 1 < versions.len() {
                    lost += 1;
                } else if versions.len() > 1 {
                    kept += 1;
                }
                *versions = vec![bytes[0]];
            }
        }
    }
    assert!(lost > 100 && kept > 100, "{lost} lost, {kept} kept");
}
