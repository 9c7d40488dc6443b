#![doc = include_str!("../README.md")]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[cfg(loads_openssl)]
mod loader;

/// Has OpenSSL at hand from now on. Who has failed may try again.
///
/// # Errors
/// What the system's loader says: the library is not installed, or lacks a function.
pub fn load() -> Result<(), String> {
    #[cfg(loads_openssl)]
    loader::load()?;
    Ok(())
}
