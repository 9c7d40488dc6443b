//! The views of ext and F2FS volumes, against the file systems' own tools and kernels.
//!
//! One program, since each links all that the crate is made of: a test that needs a process of its own is
//! beside it.

mod ext_contradictions;
mod ext_fast;
mod ext_hostile;
mod ext_images;
mod ext_journal;
mod ext_partition;
mod ext_tree;
mod f2fs_damaged;
mod f2fs_first_run;
mod f2fs_hostile;
mod f2fs_kernel;
mod f2fs_log;
mod f2fs_payload;
mod f2fs_sload;
mod f2fs_support;
mod magic;
mod trace_replay;
