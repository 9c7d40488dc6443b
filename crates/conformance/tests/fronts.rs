//! The front in this process, put to the suite.

#[path = "fronts/looped.rs"]
mod looped;

use looped::Looped;
use nearside_conformance::front::suite;

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
