//! What subsystems there are: the Discovery log page of a discovery controller. And what namespaces one has.

use std::sync::Arc;

use nearside_clock::Clock;
use nearside_spec::fabrics::discovery::{DiscoveryEntry, DiscoveryHeader, LID};
use nearside_spec::identify::cns;

use super::{Address, Association, Options};
use crate::{Controller, Error, Host};

/// Most entries that are read, and most namespaces of a subsystem.
const MOST: u64 = 4096;
/// Namespaces in one answer to Identify.
const AT_ONCE: usize = 1024;
/// How often the page is read again because it changed meanwhile.
const AGAIN: usize = 10;

/// Reads the whole page, the same before and after. `at` is a discovery subsystem ([`Address::discovery`]).
///
/// # Errors
/// [`Error`]: there is no connection, the target refused, or the page is too long or kept changing.
pub fn discover(at: &Address, options: Options, clock: Arc<dyn Clock>) -> Result<Vec<DiscoveryEntry>, Error> {
    let options = Options { keep_alive_ms: 0, ..options };
    let mut host = Host::threaded(clock.clone());
    let controller = Association::connect(at, options, clock)?;
    let mut read = |at, len| controller.log_page(LID, 0, at, len, &mut host);
    let mut before = DiscoveryHeader::from_bytes(&read(0, DiscoveryHeader::SIZE)?);
    for _ in 0..AGAIN {
        if before.numrec() > MOST {
            return Err(Error::Unsupported("its discovery log page has more than 4,096 entries"));
        }
        let mut entries = Vec::new();
        for nr in 0..before.numrec() {
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

/// The identifiers of the active namespaces that a subsystem has for this host, in their order. It is
/// connected to for that.
///
/// # Errors
/// [`Error`]: there is no connection, the target refused, or its list is too long or no list.
pub fn namespaces(at: &Address, options: Options, clock: Arc<dyn Clock>) -> Result<Vec<u32>, Error> {
    let mut host = Host::threaded(clock.clone());
    let controller = Association::connect(at, options, clock)?;
    let mut all: Vec<u32> = Vec::new();
    loop {
        let before = all.len();
        let page = controller.identify(cns::ACTIVE_NAMESPACES, last(&all), &mut host)?;
        let ids = page.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
        for id in ids.take_while(|id| *id != 0) {
            if id <= last(&all) || id == u32::MAX {
                return Err(Error::Unsupported("its list of namespaces is in disorder"));
            }
            all.push(id);
        }
        if all.len() - before < AT_ONCE {
            return Ok(all);
        }
        if all.len() as u64 >= MOST {
            return Err(Error::Unsupported("it has 4,096 namespaces, or more"));
        }
    }
}

/// The greatest identifier so far.
fn last(ids: &[u32]) -> u32 {
    ids.last().copied().unwrap_or(0)
}
