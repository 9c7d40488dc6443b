//! Images and devices that somebody uses already:
//! what the commands say, and the options that go on all the same.

use std::io;

use clap::Args;

/// Beside whom a store is opened.
#[derive(Args, Clone, Copy, Debug)]
pub struct InUse {
    /// With --read-only: serve an image although others write it. Nothing that was read for one request is
    /// used for the next; what changes while a request runs may show in its answer half old, half new
    #[arg(long, requires = "read_only")]
    pub shared_image: bool,
    /// Write to an image although it is mounted or a loop device lies over it:
    /// both write, and what is on it may be destroyed
    #[arg(long, conflicts_with = "read_only")]
    pub risk_corruption: bool,
}

/// Why a store was not opened, and what helps where it is in use.
pub fn words(error: &io::Error, read_only: bool) -> String {
    match (error.kind(), read_only) {
        (io::ErrorKind::ResourceBusy, true) => {
            format!(
                "{error}; who reads it beside that answers with what it was: end that first, or see --shared-image"
            )
        }
        (io::ErrorKind::ResourceBusy, false) => {
            format!(
                "{error}; who writes it beside that destroys what is on it: unmount or end that first (--risk-corruption \
                 goes on despite a mount)"
            )
        }
        _ => error.to_string(),
    }
}
