//! The system's limits, as far as a server needs more than it was started with.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of a connection: its socket, and its part of its controller's ways into the stores.
const PER_CONNECTION: u64 = 4;
/// Of all else.
const BESIDE: u64 = 1024;

/// Raises the limit of open descriptors to what so many connections need.
/// What the user should know, where that may not be.
pub fn raise_descriptors(connections: usize) -> Option<String> {
    let wanted = (connections as u64).saturating_mul(PER_CONNECTION).saturating_add(BESIDE);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return None;
    }
    let most = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum });
    let have = if raised.is_ok() { Some(most) } else { current };
    let few = have.filter(|have| *have < wanted)?;
    Some(format!(
        "{few} descriptors may be open, and {connections} connections may need {wanted}: see ulimit -Hn"
    ))
}
