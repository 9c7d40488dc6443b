#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! A [`Medium`] takes a request and the time, and gives the time at which a device of its kind would finish
//! it. It allocates nothing once it has grown to its load. The same model paces a store in real time and a
//! simulation in made-up time.

mod delay;
pub mod dram;
pub mod file;
pub mod nand;
pub mod platform;
mod preset;
pub mod words;
pub mod xpoint;

pub use delay::{Delay, Parametric};
pub use platform::Platform;
pub use preset::{AnyMedium, Chosen, PRESETS, Preset, behind, path_len};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Bytes leave the medium.
    Read,
    /// Bytes reach the medium.
    Write,
    /// What was written becomes durable.
    Flush,
    /// Bytes are forgotten, or zeroed without data.
    Deallocate,
}

/// One operation, as a medium sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub kind: RequestKind,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub len: u64,
}

impl Request {
    /// A read.
    pub fn read(offset: u64, len: u64) -> Request {
        Request { kind: RequestKind::Read, offset, len }
    }

    /// A write.
    pub fn write(offset: u64, len: u64) -> Request {
        Request { kind: RequestKind::Write, offset, len }
    }

    /// A flush.
    pub const FLUSH: Request = Request { kind: RequestKind::Flush, offset: 0, len: 0 };
}

/// A device's time.
pub trait Medium: Send + 'static {
    /// When `request` ends that arrives at `now_ns`. Never before `now_ns`, which never lies before that of
    /// the call before.
    fn finish(&mut self, request: Request, now_ns: u64) -> u64;
}

impl<M: Medium + ?Sized> Medium for Box<M> {
    #[inline]
    fn finish(&mut self, request: Request, now_ns: u64) -> u64 {
        (**self).finish(request, now_ns)
    }
}

/// How long so many bytes take at so many picoseconds each, in nanoseconds.
#[inline]
pub(crate) fn moving_ns(bytes: u64, byte_ps: u64) -> u64 {
    bytes.saturating_mul(byte_ps) / 1000
}
