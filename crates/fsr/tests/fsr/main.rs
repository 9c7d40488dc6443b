//! Near-data commands on volumes: what they answer, in slices, to whom, and while a host writes.
//!
//! One program, since each links all that the crate is made of: a test that needs a process of its own is
//! beside it.

mod ahead;
mod attributes;
mod common;
mod f2fs_live;
mod large;
mod lists;
mod prefix;
mod programs;
mod slices;
mod sparse;
mod stale;
mod trees;
