//! Who the calling process is: what FSRLib sends with each request (DAC'23 III-B).

use nearside_near_data::{Credentials, MAX_GROUPS};

/// The effective user and group of this process, and its supplementary groups.
///
/// # Errors
/// The system's.
pub fn own_credentials() -> std::io::Result<Credentials> {
    let groups = rustix::process::getgroups()?;
    Ok(Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|gid| gid.as_raw()).take(MAX_GROUPS).collect(),
    })
}
