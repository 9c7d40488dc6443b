//! What subsystems there are: the Discovery log page of a discovery controller.

use std::sync::Arc;

use nearside_clock::Clock;
use nearside_spec::fabrics::discovery::{DiscoveryEntry, DiscoveryHeader, LID};

use super::{Address, Association, Options};
use crate::{Controller, Error, Host};

/// Most entries that are read.
const MOST: u64 = 4096;
/// How often the page is read again because it changed meanwhile.
const AGAIN: usize = 10;

/// Reads the whole page, the same before and after. `at` is a discovery subsystem ([`Address::discovery`]).
///
/// # Errors
/// [`Error`]: there is no connection, the target refused, or the page kept changing.
pub fn discover(at: &Address, options: Options, clock: Arc<dyn Clock>) -> Result<Vec<DiscoveryEntry>, Error> {
    let options = Options { keep_alive_ms: 0, ..options };
    let mut host = Host::threaded(clock.clone());
    let controller = Association::connect(at, options, clock)?;
    let mut read = |at, len| controller.log_page(LID, 0, at, len, &mut host);
    let mut before = DiscoveryHeader::from_bytes(&read(0, DiscoveryHeader::SIZE)?);
    for _ in 0..AGAIN {
        let mut entries = Vec::new();
        for nr in 0..before.numrec().min(MOST) {
            let at = (nr + 1) * DiscoveryEntry::SIZE as u64;
            entries.push(DiscoveryEntry::from_bytes(&read(at, DiscoveryEntry::SIZE)?));
        }
        let after = DiscoveryHeader::from_bytes(&read(0, DiscoveryHeader::SIZE)?);
        if after.genctr() == before.genctr() {
            return Ok(entries);
        }
        before = after;
    }
    Err(Error::Unsupported("its discovery log page changes all the time"))
}
