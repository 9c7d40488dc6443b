#![doc = include_str!("../README.md")]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

use std::sync::OnceLock;

mod kernel;
mod psk;
mod stream;

pub use kernel::kernel_has_tls;
pub use stream::OpenSsl;

type Load = fn() -> Result<(), String>;

/// Who has OpenSSL at hand, where the program is not linked to it.
static LOADER: OnceLock<Load> = OnceLock::new();

/// OpenSSL is had at hand by this from now on, before its first use; the first one stays.
pub fn load_by(loader: Load) {
    let _ = LOADER.set(loader);
}

/// Has OpenSSL at hand: what connections do by themselves, done before somebody waits for one.
///
/// # Errors
/// What the system's loader says where the program is without OpenSSL.
pub fn load() -> Result<(), String> {
    LOADER.get().map_or(Ok(()), |load| load())
}
