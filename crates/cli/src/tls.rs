//! Who encrypts connections, where this build has somebody who does.

use nearside_channel::Tls;

/// What is said where it has not.
pub const NONE: &str = "tls: this build has none (its feature `tls`)";

/// TLS by OpenSSL.
pub fn here() -> Result<Tls, String> {
    of_server(false)
}

/// TLS by OpenSSL, and after a handshake by the kernel where that is wanted and it can.
#[cfg(feature = "tls")]
pub fn of_server(kernel: bool) -> Result<Tls, String> {
    Ok(Tls::new(nearside_tls::OpenSsl { kernel }))
}

/// None.
#[cfg(not(feature = "tls"))]
pub fn of_server(_kernel: bool) -> Result<Tls, String> {
    Err(NONE.to_owned())
}
