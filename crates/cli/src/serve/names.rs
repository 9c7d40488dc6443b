//! Names that stay the same over restarts: of a subsystem, of its namespaces.
//! Made from this machine and from what is served.

use std::path::Path;

use nearside_embedded::AnyStore;
use xxhash_rust::xxh3::xxh3_128;

/// A UUID (version 8, RFC 9562) and an NGUID of a namespace.
pub struct Identifiers {
    pub uuid: [u8; 16],
    pub nguid: [u8; 16],
}

fn hash(parts: &[&str]) -> [u8; 16] {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    xxh3_128(&bytes).to_be_bytes()
}

fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    read("/etc/machine-id").or_else(|| read("/etc/hostname")).unwrap_or_default()
}

/// A store's word with its file's path made absolute, so that it does
/// not depend on where the server is started.
fn canonical(store: &str) -> String {
    let store = AnyStore::word_from(&std::env::current_dir().unwrap_or_default(), store);
    let (before, path) = store.rsplit_once(':').unwrap_or(("", &store));
    match Path::new(path).canonicalize() {
        Ok(path) if before.is_empty() || before.ends_with("file") => path.display().to_string(),
        Ok(path) if before.ends_with("pmem") => format!("{before}:{}", path.display()),
        _ => store,
    }
}

/// The subsystem that serves `store`, where none was named.
pub fn subsystem(store: &str) -> String {
    let hash = hash(&["subsystem", &machine(), &canonical(store)]);
    let digits: String = hash[..6].iter().map(|b| format!("{b:02x}")).collect();
    format!("nqn.2026-11.dev.nearside:{digits}")
}

/// The serial number of a subsystem.
pub fn serial(nqn: &str) -> String {
    let hash = hash(&["serial", &machine(), nqn]);
    hash[..8].iter().map(|b| format!("{b:02X}")).collect()
}

/// The namespace of that number of a subsystem that lies in `store`.
pub fn identifiers(nqn: &str, nsid: u32, store: &str) -> Identifiers {
    let parts = [&machine(), nqn, &nsid.to_string(), &canonical(store)];
    let of = |kind: &str| hash(&[kind, parts[0], parts[1], parts[2], parts[3]]);
    let mut uuid = of("uuid");
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Identifiers { uuid, nguid: of("nguid") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_and_differ() {
        let nqn = subsystem("dram:1GiB");
        nearside_spec::fabrics::nqn::check(&nqn).unwrap();
        assert_eq!((&nqn, serial(&nqn).len()), (&subsystem("dram:1GiB"), 16));
        assert_ne!(nqn, subsystem("dram:2GiB"));
        let (a, b) = (identifiers(&nqn, 1, "dram:1GiB"), identifiers(&nqn, 2, "dram:1GiB"));
        assert_eq!(a.uuid, identifiers(&nqn, 1, "dram:1GiB").uuid);
        assert!(a.uuid != b.uuid && a.nguid != b.nguid && a.uuid != a.nguid);
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(identifiers(&nqn, 1, path).uuid, identifiers(&nqn, 1, &format!("file:{path}")).uuid);
        let (folder, name) = path.rsplit_once('/').unwrap();
        let mapped = |path: &str| identifiers(&nqn, 1, &format!("pmem:{path}")).uuid;
        assert_eq!(mapped(path), mapped(&format!("{folder}/../{folder}/./{name}")));
    }
}
