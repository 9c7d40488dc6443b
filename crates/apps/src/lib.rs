//! The papers' applications, unmodified, on a drive: RocksDB, the kernel's swap, memcached, Redis,
//! PostgreSQL.
//!
//! A [`Drive`] is attached by a process of its own (`nearside attach`) and lies below a loop device; a
//! [`Volume`] is a file system on it, a [`Swap`](swap::Swap) the kernel's paging. Each application is the
//! program that people run, from the system's packages; what it prints of itself is its figure, and the
//! kernel's counters of the block device stand beside it. What each checks of its own data is checked:
//! block checksums, the content of pages and values, what a database was told to be committed.
//!
//! All of it needs root, a FUSE device and loop devices ([`lacks`]). Everything that is made (mounts, loop
//! devices, control groups, processes, settings of the kernel) is undone when its value goes; of a run that
//! its user ends before its time, too ([`end`]).

#![warn(clippy::missing_errors_doc)]

mod drive;
mod ending;
mod group;
pub mod memcached;
mod near_data;
pub mod page_cache;
pub mod postgres;
mod program;
pub mod redis;
pub mod rocksdb;
pub mod swap;
mod values;
mod volume;
mod wait;

use std::path::Path;

pub use drive::{Counters, Drive};
pub use ending::{are_under_way, end};
pub use group::{Group, in_group};
pub use near_data::Asked;
pub use nearside_instrument::Failure;
pub use program::missing;
pub use volume::{Kind, Volume};

/// What this machine lacks for any application on a drive, apart from the application; none: nothing.
pub fn lacks() -> Option<String> {
    if nearside_dma::system::effective_ids().0 != 0 {
        return Some("needs root: for loop devices and mounts".into());
    }
    let device = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|path| !Path::new(path).exists());
    device.map(|path| format!("no {path}")).or_else(|| missing(&["mount", "umount"]))
}

/// What the second process of an application does that is this program: its first word says which. Gives what
/// it says.
///
/// # Errors
/// Its own; a word that means none.
pub fn second(words: &[String]) -> Result<String, Failure> {
    match words.split_first() {
        Some((first, words)) if first == "pages" => swap::pages(words),
        _ => Err(format!("no process of an application: {words:?}").into()),
    }
}
