//! Who encrypts connections, where this build has somebody who does.

use nearside_channel::Tls;

/// What is said where it has not.
#[cfg(not(feature = "tls"))]
const NONE: &str = "tls: this build has none (its feature `tls`)";

/// TLS by OpenSSL.
pub fn here() -> Result<Tls, String> {
    of_server(false)
}

/// TLS by OpenSSL, which is loaded now; what is sent after a handshake the kernel encrypts, where that is
/// wanted and it can.
#[cfg(feature = "tls")]
pub fn of_server(kernel: bool) -> Result<Tls, String> {
    let can = kernel && nearside_tls::kernel_has_tls();
    if kernel && !can {
        tracing::warn!("kernel-tls: this kernel has no TLS (modprobe tls): OpenSSL encrypts");
    }
    nearside_tls::load_by(nearside_openssl_loader::load);
    nearside_tls::load().map_err(|why| format!("tls: {why}"))?;
    Ok(Tls::new(nearside_tls::OpenSsl { kernel: can }))
}

/// None.
#[cfg(not(feature = "tls"))]
pub fn of_server(_kernel: bool) -> Result<Tls, String> {
    Err(NONE.to_owned())
}
