//! What the operator's log says of flash that does not work: at its level, the same no more than once in ten
//! seconds.

use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_conformance::events::{logged, one};
use nearside_dma::{IoBuffer, Memory};
use nearside_ftl::{Config, Cut, FlashStore};
use nearside_media::nand::cosmos_plus;
use nearside_store::{Channel, Data, Operation, Store, Submitted, Token};

const INTERVAL_NS: u64 = 10_000_000_000;
const CAPACITY: u64 = 4 << 20;

#[test]
fn flash_without_power_is_reported_and_not_each_time() {
    logged(|log| {
        let silent = || assert_eq!(log.lines(), Vec::<String>::new());
        let store = FlashStore::new(cosmos_plus().sized(CAPACITY), Config::default(), 4096).unwrap();
        let mut channel = store.channel(Arc::new(Memory::new())).unwrap();
        let mut fails = |operation: Operation, now: u64| {
            let data = match operation {
                Operation::Flush => Data::None,
                _ => Data::Owned(IoBuffer::new(4096).unwrap()),
            };
            match channel.submit(operation, data, Token(now), Nanos(now)) {
                Submitted::Done(completion) => completion.result.is_err(),
                Submitted::Pending => false,
            }
        };
        let write = |offset, fua| Operation::Write { offset, len: 4096, fua };
        assert!(!fails(write(0, false), 0));
        // What the caller does wrong is between it and the store.
        assert!(fails(write(CAPACITY, false), 1));
        silent();
        store.cut_after(Cut { after: 0, seed: 1 });
        assert!(fails(Operation::Flush, 2));
        let said = log.lines();
        one(&said, &[" WARN", "operation=\"flush\"", "the power was cut", "the flash does not work"]);
        assert!(!said[0].contains("suppressed"), "{said:?}");
        for now in 3..6 {
            assert!(fails(write(0, true), now));
        }
        silent();
        assert!(fails(write(0, true), 2 + INTERVAL_NS));
        one(&log.lines(), &[" WARN", "operation=\"write\"", "the power was cut", "suppressed=3"]);
    });
}
