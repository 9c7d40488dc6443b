#![doc = include_str!("../README.md")]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod kernel;
mod psk;
mod stream;

pub use kernel::kernel_has_tls;
pub use stream::OpenSsl;
