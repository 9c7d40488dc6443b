//! The fronts that need nothing of the machine, put to the suite: in this process, and over vfio-user.

#[path = "fronts/looped.rs"]
mod looped;
#[path = "fronts/vfio.rs"]
mod vfio;

use looped::Looped;
use nearside_conformance::front::suite;
use vfio::Vfio;

#[test]
fn inline() {
    for lba_size in [512, 4096] {
        suite(&Looped { lba_size, reactors: 0 });
    }
}

#[test]
fn threaded() {
    for (lba_size, reactors) in [(512, 1), (4096, 2)] {
        suite(&Looped { lba_size, reactors });
    }
}

#[test]
fn a_function_whose_doorbells_trap() {
    for (lba_size, threads) in [(512, 1), (4096, 2)] {
        suite(&Vfio { lba_size, threads, mapped_doorbells: false, by_messages: false });
    }
}

#[test]
fn a_function_whose_doorbells_are_mapped() {
    suite(&Vfio { lba_size: 512, threads: 1, mapped_doorbells: true, by_messages: false });
}

/// Queues, lists and data lie in memory that the drive is given no descriptor of.
#[test]
fn a_function_whose_client_keeps_its_memory() {
    suite(&Vfio { lba_size: 512, threads: 2, mapped_doorbells: false, by_messages: true });
}
