//! Who encrypts connections, where this build has somebody who does.

use nearside_channel::Tls;

/// What is said where it has not.
pub const NONE: &str = "tls: this build has none (its feature `tls`)";

/// TLS by OpenSSL.
#[cfg(feature = "tls")]
pub fn here() -> Result<Tls, String> {
    Ok(Tls::new(nearside_tls::OpenSsl))
}

/// None.
#[cfg(not(feature = "tls"))]
pub fn here() -> Result<Tls, String> {
    Err(NONE.to_owned())
}
