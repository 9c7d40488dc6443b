//! What stands between a host and its drives: the three interfaces of PIEEE'17's Fig. 3.
//!
//! [`Platform`] puts one or more drives behind an adapter. A request passes the adapter (`command_ns` each,
//! one after the other), `added_ns` that nobody else waits for, its drive's own port, and the adapter's link
//! to the host. A port or link limits the rate: the wait for it is found when the request passes the adapter,
//! so that a request that ends early never waits for a slow one before it.

use crate::words::{WordError, count, size, time_ns};
use crate::{Medium, Request, RequestKind, moving_ns};

/// An interface's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// How long a request occupies the adapter, in nanoseconds.
    pub command_ns: u64,
    /// What the adapter adds to every request's time, in nanoseconds.
    pub added_ns: u64,
    /// A byte on a drive's port, in picoseconds; both directions share it.
    pub port_byte_ps: u64,
    /// A byte between host and adapter, in picoseconds, each direction for itself.
    pub host_byte_ps: u64,
    /// Bytes that lie together on one drive, where there are several.
    pub stripe: u64,
}

impl Interface {
    /// A drive on PCIe, without adapter. Section III-B: "near PCIe theoretical maximum (about 800 000 4-kB
    /// IOPS)" of a 4 GB/s link (Gen3 x4): 1.25 us / 4096 B = 305 ps, 3.28 GB/s of data beside the packets'
    /// heads.
    pub const PCIE: Interface =
        Interface { command_ns: 0, added_ns: 0, port_byte_ps: 0, host_byte_ps: 305, stripe: 1 << 20 };

    /// The integrated AHCI adapter. A port has 6 Gb/s at 10 bits per byte: 600 MB/s, 1,667 ps. A command
    /// costs four reads of registers that are not cached, 2,000 cycles each: 2.5 us (the NVM Express
    /// overview's comparison with AHCI; the paper says only that AHCI relies on "host-initiated status
    /// register reads").
    pub const AHCI: Interface = Interface { command_ns: 2_500, port_byte_ps: 1_667, ..Interface::PCIE };

    /// The SAS adapter (Broadcom SAS 9207-8i). Section III-A: it "added about 25 us of latency". Ports as of
    /// SATA drives; its data sheet's 700,000 requests per second: 1.43 us each.
    pub const SAS: Interface =
        Interface { command_ns: 1_430, added_ns: 25_000 - 1_430, port_byte_ps: 1_667, ..Interface::PCIE };

    /// `pcie`, `ahci` or `sas`.
    pub fn named(name: &str) -> Option<Interface> {
        match name {
            "pcie" => Some(Interface::PCIE),
            "ahci" | "sata" => Some(Interface::AHCI),
            "sas" => Some(Interface::SAS),
            _ => None,
        }
    }
}

/// Drives behind an interface.
#[derive(Clone, Debug)]
pub struct Platform<M> {
    interface: Interface,
    drives: Vec<M>,
    adapter_free: u64,
    port_free: Vec<u64>,
    host_free: [u64; 2],
}

impl<M: Medium> Platform<M> {
    /// `drives` behind `interface`, with bytes dealt out to them in stripes. None: every request ends at the
    /// interface.
    pub fn new(interface: Interface, drives: Vec<M>) -> Platform<M> {
        let stripe = interface.stripe.max(4096);
        let port_free = vec![0; drives.len()];
        Platform {
            interface: Interface { stripe, ..interface },
            drives,
            adapter_free: 0,
            port_free,
            host_free: [0; 2],
        }
    }

    /// Reads and writes, stripe by stripe.
    fn on_drives(&mut self, request: Request, now_ns: u64) -> u64 {
        let Interface { stripe, port_byte_ps, .. } = self.interface;
        let drives = self.drives.len() as u64;
        let (mut at, end, mut finish) = (request.offset, request.offset.saturating_add(request.len), now_ns);
        while at < end && drives > 0 {
            let (nth, within) = (at / stripe, at % stripe);
            let len = if drives == 1 { end - at } else { (stripe - within).min(end - at) };
            let (drive, offset) = ((nth % drives) as usize, nth / drives * stripe + within);
            let wait = queue(&mut self.port_free[drive], now_ns, moving_ns(len, port_byte_ps)) - now_ns;
            let own = self.drives[drive].finish(Request { offset, len, ..request }, now_ns);
            finish = finish.max(own.saturating_add(wait));
            at += len;
        }
        finish
    }
}

/// `busy_ns` of something that serves one at a time; when they end.
fn queue(free_at: &mut u64, from_ns: u64, busy_ns: u64) -> u64 {
    *free_at = from_ns.max(*free_at).saturating_add(busy_ns);
    *free_at
}

impl<M: Medium> Medium for Platform<M> {
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        let Interface { command_ns, added_ns, host_byte_ps, .. } = self.interface;
        let passed = queue(&mut self.adapter_free, now_ns, command_ns);
        let finish = match request.kind {
            RequestKind::Read | RequestKind::Write => {
                let host = &mut self.host_free[usize::from(request.kind == RequestKind::Write)];
                let wait = queue(host, passed, moving_ns(request.len, host_byte_ps)) - passed;
                self.on_drives(request, passed).saturating_add(wait)
            }
            // A flush is every drive's; so is a deallocation, of which each drive has its share.
            RequestKind::Flush | RequestKind::Deallocate => {
                let share = self.drives.len().max(1) as u64;
                let part = Request { offset: request.offset / share, len: request.len / share, ..request };
                self.drives.iter_mut().map(|drive| drive.finish(part, passed)).max().unwrap_or(passed)
            }
        };
        finish.saturating_add(added_ns)
    }
}

impl Interface {
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), WordError> {
        let bad = || WordError::option("an interface", &format!("{name}={value}"));
        match name {
            "command" => self.command_ns = time_ns(value).ok_or_else(bad)?,
            "added" => self.added_ns = time_ns(value).ok_or_else(bad)?,
            "port-byte-ps" => self.port_byte_ps = value.parse().map_err(|_| bad())?,
            "host-byte-ps" => self.host_byte_ps = value.parse().map_err(|_| bad())?,
            "stripe" => self.stripe = size(value).ok_or_else(bad)?,
            _ => return Err(bad()),
        }
        Ok(())
    }

    /// The interface and the number of drives that words name: `pcie`, `ahci` or `sas` first, then
    /// `drives=N`, `command=TIME`, `added=TIME`, `port-byte-ps=N`, `host-byte-ps=N`, `stripe=SIZE`, with
    /// commas between.
    ///
    /// # Errors
    /// [`WordError`] names the part of the list that is wrong.
    pub fn parse(list: &str) -> Result<(Interface, u32), WordError> {
        let mut words = list.split(',');
        let name = words.next().unwrap_or_default();
        let mut interface = Interface::named(name)
            .ok_or_else(|| WordError::new(format!("{name:?} is no interface: pcie, ahci, sas")))?;
        let mut drives = 1;
        for option in words {
            let bad = || WordError::option("an interface", option);
            match option.split_once('=').ok_or_else(bad)? {
                ("drives", n) => drives = count(n, 1).ok_or_else(bad)?,
                (name, value) => interface.set(name, value)?,
            }
        }
        Ok((interface, drives))
    }
}
