//! `nearside attach`: a drive that stays: its namespace as a file for `mount -o loop`, and a socket for the other commands.

use std::ffi::OsString;

use clap::Args;

use crate::failure::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples:
  nearside attach --store file:disk.img /run/drive &
  mount -o loop /run/drive/namespace /mnt           a live host on the drive
  nearside grep -d unix:/run/drive.sock -r ERROR /var/log
  umount /mnt; umount /run/drive                    ends it

The socket lies beside the mount point, named MOUNTPOINT.sock, unless --socket says otherwise.";

/// Serves a drive: its namespace as a file, and a socket for the other commands
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AttachArgs {
    /// What holds the drive's bytes: file:PATH (an image or a block device) or dram:SIZE (such as dram:1G)
    #[arg(long, value_name = "STORE")]
    store: OsString,
    /// Where the socket is made
    #[arg(long, value_name = "PATH")]
    socket: Option<OsString>,
    /// An empty directory
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: OsString,
}

pub fn run(_args: AttachArgs) -> Outcome {
    Err(Failure::Message("pending".into()))
}
