//! A drive over the network: its blocks pass by a drive of this process without any firmware, and near-data
//! work is asked of it by everyone in their own name.

use std::fmt;
use std::sync::Arc;

use nearside_device::Config;
use nearside_device::runner::Rest;
use nearside_driver::Failure as Ended;
use nearside_driver::tcp::{Addresses, Options};
use nearside_embedded::{Loopback, Remote};
use nearside_front_fuse::{Elsewhere, HostError};
use nearside_fsrlib::{Error, Notice};
use nearside_store::Store;

use super::{AttachArgs, Drive};
use crate::failure::{Failure, complain};

/// The drive, as it is reached by addresses.
pub fn drive(args: &AttachArgs, addresses: &Addresses) -> Result<Drive, Failure> {
    let name = addresses.to_string();
    let refuse = |why: String| Failure::Message(format!("{name}: {why}"));
    for (given, option) in [
        (args.log_writes.is_some(), "--log-writes"),
        (args.risk_corruption, "--risk-corruption"),
        (args.allow_unrecovered, "--allow-unrecovered"),
        (args.near_data_threads.is_some(), "--near-data-threads"),
    ] {
        if given {
            return Err(refuse(format!("{option} is of a drive of this machine")));
        }
    }
    let options = Options { recovery: args.recovery.into(), ..args.host.options()? };
    let told = name.clone();
    let tell = move |notice: &Notice| complain(&format!("{told}: {notice}"));
    let remote = Remote::connect(addresses, options, tell).map_err(refuse)?;
    let (capacity, block_size) = (remote.capacity(), remote.block_size());
    if args.block_size.is_some_and(|asked| asked != block_size) {
        return Err(refuse(format!("its blocks have {block_size} bytes")));
    }
    let config = Config { lba_size: block_size, ..Config::default() };
    let drive = Loopback::threaded(remote.clone(), (), config, Rest::default());
    let drive = drive.map_err(|e| refuse(e.to_string()))?;
    let function = drive.function.clone();
    let elsewhere: Option<Arc<dyn Elsewhere>> = Some(Arc::new(Far(remote)));
    Ok(Drive { function, elsewhere, capacity, log: None, rest: Box::new(drive) })
}

struct Far(Remote);

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a drive over the network")
    }
}

impl Elsewhere for Far {
    fn near_data(&self, request: &[u8], room: usize, gone: &dyn Fn() -> bool) -> Result<Vec<u8>, HostError> {
        self.0.near_data(request, room, gone).map_err(|e| failed("near-data", request.len(), e))
    }

    fn statistics(&self, gone: &dyn Fn() -> bool) -> Result<Vec<u8>, HostError> {
        const WHAT: &str = "get log page";
        let none = || HostError::Driver { operation: WHAT, error: "it does no near-data work".into() };
        let page = self.0.statistics(gone).map_err(|e| failed(WHAT, 0, e))?;
        page.map(|page| page.0.to_vec()).ok_or_else(none)
    }

    fn give_up(&self) {
        self.0.give_up();
    }
}

fn failed(operation: &'static str, len: usize, error: Error) -> HostError {
    match error {
        Error::Nvme { status, .. } => {
            HostError::Command { operation, offset: 0, len: len as u64, failure: Ended::Status(status) }
        }
        error => HostError::Driver { operation, error: error.to_string() },
    }
}
