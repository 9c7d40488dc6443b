#![doc = include_str!("../README.md")]
//!
//! [`Key`], [`Hash`](enum@Hash) and [`Group`] are what is agreed on; [`Authenticator`] is the controller's
//! end, [`Exchange`] the host's. Neither waits or sends: who has a connection does.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod controller;
mod group;
mod hash;
mod host;
mod interchange;
mod key;
mod keyring;
mod primes;
mod response;
mod tls;

pub use controller::{Authenticator, Credentials, Done, Fetched, Outcome, Work};
pub use group::Group;
pub use hash::Hash;
pub use host::{Exchange, Keys, ROOM, Refused};
pub use interchange::KeyError;
pub use key::Key;
pub use keyring::{add as add_to_keyring, in_keyring};
pub use nearside_spec::fabrics::authentication::Explanation;
pub use tls::{Identity, Psk, TlsKey, record_keys};

/// A number that is not zero, and not the same twice but by chance.
fn seqnum() -> std::io::Result<u32> {
    getrandom::u32().map(|number| number.max(1)).map_err(|e| std::io::Error::other(e.to_string()))
}

#[cfg(test)]
mod tests;
