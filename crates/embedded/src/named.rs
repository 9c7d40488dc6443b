//! From the name of a drive to a way to it: the names that the command and the C library take.
//!
//! ```text
//! NAME = "unix:" PATH                       the socket of a drive that `nearside attach` serves
//!      | "nvme+tcp://" HOST ":" PORT ["," HOST ":" PORT]... "/" NQN "/" NSID
//!                                          over the network, by any of these addresses
//!      | "vfio-user:" PATH                  an NVMe function in another process
//!      | PATH                               a device of a kernel's that drives a Nearside drive, or else an
//!                                           image or a block device, for a drive in this process
//!      | "qcow2:" PATH ... | "lvm:" PATH ... | "file:" PATH
//!                                          an image by its kind ([`crate::open_image`])
//! ```
//!
//! Where several drives are asked, one name may stand for many: [`crate::drives_of`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nearside_clock::TscClock;
use nearside_driver::tcp::{Address, Addresses};
use nearside_driver::{Driver, Policy, tcp, vfio_user};
use nearside_fsrlib::kernel::Found;
use nearside_fsrlib::{
    Encoding, KernelTransport, Notice, Reconnecting, SocketTransport, TcpPaths, Transport, VfioUserTransport,
    socket,
};

use crate::{Options, many};

/// What a name means.
#[derive(Clone, Debug)]
pub enum Place<'n> {
    /// The socket of an attached drive.
    Socket(&'n Path),
    /// A namespace over the network.
    Network(Addresses),
    /// The socket of an NVMe function in another process.
    Process(&'n Path),
    /// A device file: the kernel may drive a Nearside drive by it.
    Device(&'n Path),
    /// An image, or what is none of these.
    Image(&'n Path),
}

/// Gives what a kernel's commands are given up by; or says why there is nothing.
pub type GivesStop = fn() -> Result<Arc<AtomicBool>, String>;

/// Takes a drive's name, and what became of the connection to it.
pub type Tells = fn(&str, &Notice);

/// How a drive outside this process is reached.
#[derive(Clone, Debug)]
pub struct Way {
    /// How completions are awaited.
    pub policy: Policy,
    /// What this host says of itself to a target over the network, and how a lost connection is made again.
    pub network: tcp::Options,
    /// Who is told meanwhile.
    pub tell: Option<Tells>,
    /// How near-data commands are carried to an NVMe function in another process.
    pub encoding: Encoding,
    /// What a kernel's commands are given up by: asked for where it drives a Nearside drive.
    pub stop: Option<GivesStop>,
}

impl<'n> Place<'n> {
    /// Reads a name.
    ///
    /// # Errors
    /// What is wrong with a name that is meant to be an address.
    pub fn of(name: &'n OsStr) -> Result<Place<'n>, String> {
        if let Some(path) = socket_of(name) {
            return Ok(Place::Socket(path));
        }
        if let Some(address) = name.to_str().filter(|name| Address::is_meant(name)) {
            let address = address.parse().map_err(|e| failed(name, e))?;
            return Ok(Place::Network(address));
        }
        if let Some(path) = vfio_user::socket_of(name) {
            return Ok(Place::Process(path));
        }
        if many::service_of(name).is_some() {
            let why =
                "a discovery service has many drives, and this asks one (`nearside discover` lists them)";
            return Err(format!("{}: {why}", name.display()));
        }
        let path = Path::new(name);
        let device = std::fs::metadata(path)
            .is_ok_and(|m| m.file_type().is_block_device() || m.file_type().is_char_device());
        Ok(if device { Place::Device(path) } else { Place::Image(path) })
    }

    /// The way to a drive that runs elsewhere. `None`: that is an image or a block device, for a drive in
    /// this process ([`crate::image`]).
    ///
    /// # Errors
    /// Why it is not reached, with its name.
    pub fn reach(&self, way: Way) -> Result<Option<Box<dyn Transport>>, String> {
        let Way { policy, network, tell, encoding, stop } = way;
        Ok(Some(match self {
            Place::Socket(path) => Box::new(SocketTransport::connect(path).map_err(|e| e.to_string())?),
            Place::Network(addresses) => {
                let (clock, recovery) = (TscClock::new(), network.recovery);
                let paths = TcpPaths::new(addresses.clone(), network, policy, clock);
                let name = addresses.to_string();
                let told = name.clone();
                let tell = move |notice: &Notice| tell.iter().for_each(|tell| tell(&told, notice));
                let transport = Reconnecting::connect(paths, recovery, clock, tell);
                Box::new(transport.map_err(|why| format!("{name}: {why}"))?)
            }
            Place::Process(path) => {
                let name = format!("{}{}", vfio_user::PREFIX, path.display());
                let clock = TscClock::new();
                let driver = Driver::connect(path, Options::default().driver, clock)
                    .map_err(|e| failed(name.as_ref(), e))?;
                let transport = VfioUserTransport::over(&driver, policy, clock);
                let mut transport = transport.map_err(|e| format!("{name}: {e}"))?;
                transport.set_encoding(encoding);
                Box::new(transport)
            }
            Place::Device(path) => match KernelTransport::find(path).map_err(|e| e.to_string())? {
                Found::Drive(mut transport) => {
                    if let Some(stop) = stop {
                        transport.set_stop(stop()?);
                    }
                    transport
                }
                Found::Other(model) if !is_block_device(path) => {
                    return Err(format!("{}: {model:?} is no Nearside drive", path.display()));
                }
                // Read-only, as any block device, in a drive of this process.
                Found::Other(_) | Found::Unknown => return Ok(None),
            },
            Place::Image(_) => return Ok(None),
        }))
    }
}

/// The socket's path, where the name is one of an attached drive.
pub fn socket_of(drive: &OsStr) -> Option<&Path> {
    drive.as_bytes().strip_prefix(socket::PREFIX.as_bytes()).map(|path| Path::new(OsStr::from_bytes(path)))
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

fn failed(name: &OsStr, error: nearside_driver::Error) -> String {
    match error {
        nearside_driver::Error::Address(why) => why,
        error => format!("{}: {error}", name.display()),
    }
}
