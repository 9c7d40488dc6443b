//! The name of a target, as libnvme writes it.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use nearside_spec::fabrics::discovery::DiscoveryEntry;
use nearside_spec::fabrics::{DISCOVERY_PORT, PORT, nqn};

use crate::Error;

/// What the name of a target begins with.
const SCHEME: &str = "nvme+tcp://";

/// `nvme+tcp://HOST[:PORT]/SUBSYSTEM_NQN[/NSID]`. An IPv6 address stands in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The subsystem's NQN.
    pub subsystem: String,
    /// The namespace; none: the first.
    pub nsid: Option<u32>,
}

/// The addresses of one subsystem, of which any leads to it:
/// `nvme+tcp://HOST[:PORT][,HOST[:PORT]...]/SUBSYSTEM_NQN[/NSID]`. There is one at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<Address>);

impl Addresses {
    /// Each by itself, in order.
    pub fn each(&self) -> &[Address] {
        &self.0
    }
}

impl From<Address> for Addresses {
    fn from(address: Address) -> Addresses {
        Addresses(vec![address])
    }
}

impl Address {
    /// HOST:PORT, an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Whether a word is meant to be one.
    pub fn is_meant(word: &str) -> bool {
        word.starts_with(SCHEME)
    }

    /// The addresses to try.
    pub(super) fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let host = &self.host;
        let found = (host.as_str(), self.port).to_socket_addrs();
        let found = found.map_err(|e| Error::Address(format!("{host}: {e}")))?.collect::<Vec<_>>();
        if found.is_empty() { Err(Error::Address(format!("{host} has no address"))) } else { Ok(found) }
    }

    /// The discovery subsystem at `HOST[:PORT]`, an IPv6 address in brackets.
    ///
    /// # Errors
    /// [`Error`]: the authority is no address.
    pub fn discovery(authority: &str) -> Result<Address, Error> {
        let (host, port) = host_and_port(authority, DISCOVERY_PORT)?;
        Ok(Address { host, port, subsystem: nqn::DISCOVERY.into(), nsid: None })
    }

    /// The subsystem that an entry of a discovery log page leads to, whatever its kind.
    ///
    /// # Errors
    /// [`Error`]: what the entry says is no address.
    pub fn of_entry(entry: &DiscoveryEntry) -> Result<Address, Error> {
        let field = entry.subnqn();
        let address = Address {
            host: entry.address(),
            port: entry.port().parse().unwrap_or(0),
            subsystem: nqn::from_field(&field).unwrap_or_default().to_owned(),
            nsid: None,
        };
        // A target's words: as a name they have to mean this and nothing else, on a terminal as well.
        let name = address.to_string();
        let is_text = address.host.bytes().all(|byte| byte.is_ascii_graphic());
        match name.parse::<Address>() {
            Ok(read) if is_text && read == address => Ok(address),
            _ => Err(Error::Address(format!("{name:?}, which it lists, is no address of a subsystem"))),
        }
    }
}

/// `HOST[:PORT]`, an IPv6 address in brackets.
fn host_and_port(authority: &str, usual: u16) -> Result<(String, u16), Error> {
    let wrong = || Error::Address(format!("{authority:?} is no HOST:PORT"));
    let (host, rest) = match authority.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or_else(wrong)?,
        None => authority.find(':').map_or((authority, ""), |at| authority.split_at(at)),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| wrong())?,
        None if rest.is_empty() => usual,
        None => return Err(wrong()),
    };
    if host.is_empty() || port == 0 { Err(wrong()) } else { Ok((host.to_owned(), port)) }
}

/// What is wrong with a name.
fn wrong(word: &str, why: &str) -> Error {
    Error::Address(format!("{word}: {why} ({SCHEME}HOST:PORT/SUBSYSTEM_NQN/NSID)"))
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(word: &str) -> Result<Address, Error> {
        let Addresses(mut all) = word.parse()?;
        match (all.pop(), all.is_empty()) {
            (Some(address), true) => Ok(address),
            _ => Err(wrong(word, "one address is wanted here, not several")),
        }
    }
}

impl FromStr for Addresses {
    type Err = Error;

    fn from_str(word: &str) -> Result<Addresses, Error> {
        let wrong = |why: &str| wrong(word, why);
        let rest = word.strip_prefix(SCHEME).ok_or_else(|| wrong("not the name of an NVMe/TCP target"))?;
        let (authority, path) = rest.split_once('/').ok_or_else(|| wrong("no subsystem"))?;
        let numeric = |nsid: &str| !nsid.is_empty() && nsid.bytes().all(|b| b.is_ascii_digit());
        let (subsystem, nsid) = match path.trim_end_matches('/').rsplit_once('/') {
            Some((subsystem, nsid)) if numeric(nsid) => {
                let nsid = nsid.parse().ok().filter(|n| (1..u32::MAX).contains(n));
                (subsystem, Some(nsid.ok_or_else(|| wrong("no such namespace identifier"))?))
            }
            _ => (path.trim_end_matches('/'), None),
        };
        nqn::check(subsystem).map_err(|e| wrong(&e.to_string()))?;
        let one = |authority: &str| {
            let (host, port) = host_and_port(authority, PORT)?;
            Ok(Address { host, port, subsystem: subsystem.to_owned(), nsid })
        };
        authority.split(',').map(one).collect::<Result<_, _>>().map(Addresses)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.authority(), self.subsystem)?;
        self.nsid.map_or(Ok(()), |nsid| write!(f, "/{nsid}"))
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((last, before)) = self.0.split_last() else { return Ok(()) };
        f.write_str(SCHEME)?;
        before.iter().try_for_each(|address| write!(f, "{},", address.authority()))?;
        f.write_str(last.to_string().trim_start_matches(SCHEME))
    }
}

#[cfg(test)]
mod tests {
    use nearside_spec::fabrics::discovery::subtype;

    use super::*;

    #[test]
    fn names() {
        let read = |word: &str| word.parse::<Address>();
        let name = "nqn.2014-08.org.example:a";
        let full = Address { host: "h".into(), port: 7, subsystem: name.into(), nsid: Some(3) };
        assert_eq!(read(&format!("nvme+tcp://h:7/{name}/3")).unwrap(), full);
        assert_eq!(read(&full.to_string()).unwrap(), full);
        let short = Address { host: "::1".into(), port: 4420, subsystem: name.into(), nsid: None };
        assert_eq!(read(&format!("nvme+tcp://[::1]/{name}")).unwrap(), short);
        assert_eq!(read(&short.to_string()).unwrap(), short);
        let several = format!("nvme+tcp://h:7,[::1]:9,k/{name}/3");
        let all: Addresses = several.parse().unwrap();
        assert_eq!(
            all.each().iter().map(Address::authority).collect::<Vec<_>>(),
            ["h:7", "[::1]:9", "k:4420"]
        );
        assert!(all.each().iter().all(|one| one.subsystem == name && one.nsid == Some(3)));
        assert_eq!(all.to_string(), format!("nvme+tcp://h:7,[::1]:9,k:4420/{name}/3"));
        assert_eq!(all.to_string().parse::<Addresses>().unwrap(), all);
        assert_eq!(full.to_string().parse::<Addresses>().unwrap(), full.clone().into());
        assert!(read(&several).unwrap_err().to_string().contains("one address is wanted here"));
        for bad in ["h:7,", ",h:7", "h:7,,k", "h:7,[::1", "h:7,k:0"] {
            assert!(format!("nvme+tcp://{bad}/{name}").parse::<Addresses>().is_err(), "{bad}");
        }
        for bad in [
            "tcp://h/x",
            "nvme+tcp://h:7",
            &format!("nvme+tcp:///{name}"),
            &format!("nvme+tcp://h:x/{name}"),
            &format!("nvme+tcp://h:0/{name}"),
            &format!("nvme+tcp://[::1/{name}"),
            &format!("nvme+tcp://[::1]7/{name}"),
            &format!("nvme+tcp://h/{name}/0"),
            &format!("nvme+tcp://h/{name}/4294967295"),
            "nvme+tcp://h/other/1",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn entries_of_a_log_page_are_looked_at() {
        let name = "nqn.2014-08.org.example:a";
        let of = |host: &str, port: &str, name: &str| {
            Address::of_entry(&DiscoveryEntry::tcp(subtype::NVM, name, host.contains(':'), host, port))
        };
        for (host, port) in [("192.0.2.7", "4420"), ("2001:db8::7", "1"), ("disks.example", "65535")] {
            let address = of(host, port, name).unwrap();
            let port = port.parse().unwrap();
            let expected = Address { host: host.into(), port, subsystem: name.into(), nsid: None };
            assert_eq!(address, expected);
            assert_eq!(address.to_string().parse::<Address>().unwrap(), expected);
        }
        for (host, port, name) in [
            ("", "4420", name),
            ("a,b", "4420", name),
            ("a/b", "4420", name),
            ("a b", "4420", name),
            ("h", "", name),
            ("h", "0", name),
            ("h", "65536", name),
            ("h", "4420", "other"),
            ("h", "4420", "nqn.2014-08.org.example:a/3"),
            ("h", "4420", "nqn.2014-08.org.example:a/"),
        ] {
            let said = of(host, port, name).unwrap_err().to_string();
            assert!(said.contains("which it lists"), "{said}");
        }
        // What no target of ours writes.
        let mut entry = DiscoveryEntry::tcp(subtype::NVM, name, false, "h", "4420");
        let mut host = [b' '; 256];
        host[..5].copy_from_slice(b"a\x1b[2J");
        entry.set_traddr(host);
        let said = Address::of_entry(&entry).unwrap_err().to_string();
        assert!(said.contains("which it lists") && !said.contains('\u{1b}'), "{said}");
    }
}
