//! What each fuzz target does with an input, and where its seeds come from.
//!
//! A target is a function of bytes that panics where the program breaks its word. `fuzz/` gives each of them
//! to libFuzzer, one binary each; the tests here run every one over its seeds, over what fuzzing has found
//! (`fuzz/regressions`) and over a few thousand seeded changes. Seeds are real: structures of volumes that
//! mke2fs and a kernel wrote, partition tables by sfdisk, disk images by qemu-img, a
//! physical volume by lvm2, requests by FSRLib.
//!
//! File systems: [`volumes`] has the volumes, in memory; [`sites`] finds where their
//! structures lie by watching what a question reads; [`patched`] lays an input over one of
//! them, and the same question is asked again.

#![warn(clippy::missing_errors_doc)]

pub mod acl;
pub mod authentication;
pub mod disk;
pub mod echo;
pub mod fabrics;
pub mod files;
pub mod fuse;
pub mod journal;
pub mod logical;
pub mod mend;
pub mod near_data;
pub mod nvme;
pub mod parquet;
pub mod partition;
pub mod patched;
pub mod pointers;
pub mod rig;
pub mod search;
pub mod select;
pub mod sites;
pub mod sockets;
pub mod structure;
pub mod vfio_user;
pub mod volumes;

/// A fuzz target.
pub struct Target {
    /// Its name, also that of its binary and its folder of regressions.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "drive_reply", run: sockets::reply, seeds: sockets::reply_seeds },
    Target { name: "ext_dir", run: structure::ext_dir, seeds: structure::ext_dir_seeds },
    Target { name: "ext_extent", run: structure::ext_extent, seeds: structure::ext_extent_seeds },
    Target { name: "ext_inode", run: structure::ext_inode, seeds: structure::ext_inode_seeds },
    Target { name: "ext_journal", run: journal::ext_journal, seeds: journal::ext_journal_seeds },
    Target { name: "ext_superblock", run: structure::ext_superblock, seeds: structure::ext_superblock_seeds },
    Target { name: "ext_volume", run: structure::ext_volume, seeds: structure::ext_volume_seeds },
    Target {
        name: "f2fs_checkpoint",
        run: structure::f2fs_checkpoint,
        seeds: structure::f2fs_checkpoint_seeds,
    },
    Target { name: "f2fs_dentry", run: structure::f2fs_dentry, seeds: structure::f2fs_dentry_seeds },
    Target { name: "f2fs_inode", run: structure::f2fs_inode, seeds: structure::f2fs_inode_seeds },
    Target { name: "f2fs_node", run: structure::f2fs_node, seeds: structure::f2fs_node_seeds },
    Target {
        name: "f2fs_superblock",
        run: structure::f2fs_superblock,
        seeds: structure::f2fs_superblock_seeds,
    },
    Target { name: "f2fs_volume", run: structure::f2fs_volume, seeds: structure::f2fs_volume_seeds },
    Target { name: "fio_job", run: files::job, seeds: files::job_seeds },
    Target { name: "fuse_request", run: fuse::run, seeds: fuse::seeds },
    Target { name: "lvm_group", run: logical::run, seeds: logical::seeds },
    Target { name: "model_file", run: files::model, seeds: files::model_seeds },
    Target { name: "ndp_search", run: search::run, seeds: search::seeds },
    Target { name: "near_data_request", run: near_data::run, seeds: near_data::seeds },
    Target { name: "nvme_command", run: nvme::run, seeds: nvme::seeds },
    Target { name: "partition_table", run: partition::run, seeds: partition::seeds },
    Target { name: "posix_acl", run: acl::run, seeds: acl::seeds },
    Target { name: "prp_sgl", run: pointers::run, seeds: pointers::seeds },
    Target { name: "qcow2_image", run: disk::run, seeds: disk::seeds },
    Target { name: "select_parquet", run: parquet::run, seeds: parquet::seeds },
    Target { name: "select_rows", run: select::run, seeds: select::seeds },
    Target { name: "socket_peer", run: sockets::peer, seeds: sockets::peer_seeds },
    Target { name: "tcp_auth", run: authentication::run, seeds: authentication::seeds },
    Target { name: "tcp_capsule", run: fabrics::capsule, seeds: fabrics::capsule_seeds },
    Target { name: "tcp_pdu", run: fabrics::pdu, seeds: fabrics::pdu_seeds },
    Target { name: "trace_file", run: files::trace, seeds: files::trace_seeds },
    Target { name: "vfio_user_message", run: vfio_user::run, seeds: vfio_user::seeds },
];

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target {name}"))
}

/// What a target does once, such as to unpack its volumes: before the time of its inputs is watched.
pub fn prepare(name: &str) {
    let target = target(name);
    if let Some(seed) = (target.seeds)().first() {
        (target.run)(seed);
    }
}

/// Runs an input on the target of that name. Panics where there is none.
pub fn run(name: &str, input: &[u8]) {
    (target(name).run)(input);
}
