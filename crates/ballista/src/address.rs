//! Where parts of a cluster listen, and where they are found.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use nearside_cli::program::Failure;

/// A host and a port, as a scheduler is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub host: String,
    pub port: u16,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let (host, port) = text.rsplit_once(':').ok_or("HOST:PORT is wanted")?;
        let port = port.parse().map_err(|_| format!("{port:?} is no port"))?;
        let bare = host.starts_with('[') == host.ends_with(']');
        if host.is_empty() || !bare || host.contains(['/', '@', ' ']) {
            return Err(format!("{host:?} is no host"));
        }
        Ok(Place { host: host.to_owned(), port })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Ports that the kernel gives to nobody who does not ask for them (net.ipv4.ip_local_port_range begins
/// above): what is free among them stays so.
const UNASKED: std::ops::Range<u16> = 20_000..32_000;

/// An address whose port is free, and those behind it, `so_many` in all; any such port where it says 0.
pub fn free(address: SocketAddr, so_many: u16) -> Result<SocketAddr, Failure> {
    let is_free = |port: u16| {
        let all = port..port.checked_add(so_many)?;
        all.map(|port| TcpListener::bind((address.ip(), port)).ok()).collect::<Option<Vec<_>>>().map(|_| port)
    };
    if address.port() > 0 {
        for port in (address.port()..=u16::MAX).take(usize::from(so_many)) {
            let taken = |error| Failure::Message(format!("--listen {}:{port}: {error}", address.ip()));
            TcpListener::bind((address.ip(), port)).map_err(taken)?;
        }
        return Ok(address);
    }
    // Others look, too: each begins elsewhere.
    let span = UNASKED.end - UNASKED.start;
    let first = std::process::id().wrapping_mul(7919) % u32::from(span);
    let places = (0..u32::from(span)).step_by(usize::from(so_many));
    let ports = places.map(|at| UNASKED.start + ((first + at) % u32::from(span)) as u16);
    let found = ports.into_iter().find_map(is_free);
    let port = found.ok_or_else(|| Failure::Message(format!("--listen {address}: no port is free")))?;
    Ok(SocketAddr::new(address.ip(), port))
}

/// A host by which others reach what listens at an address.
pub fn reached(address: IpAddr, said: Option<&str>) -> Result<String, Failure> {
    match (said, address) {
        (Some(host), _) => Ok(host.to_owned()),
        (None, ip) if ip.is_unspecified() => {
            let why = format!("--external-host: by which host is {ip} reached?");
            Err(Failure::Message(why))
        }
        (None, IpAddr::V6(ip)) => Ok(format!("[{ip}]")),
        (None, IpAddr::V4(ip)) => Ok(ip.to_string()),
    }
}

/// This machine alone.
pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
