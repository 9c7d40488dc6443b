//! A drive in this process: what stores can be named ([`AnyStore`]), the drive with who runs it
//! ([`Loopback`]), and the whole with its firmware, its driver and FSRLib's transport ([`Embedded`]). The
//! command, the C library, the instrument, the demo and the tests all begin here. What the name of a drive
//! means is in [`named`], and [`drives_of`] has the drives of names that stand for many. [`Drive`] is for
//! whoever wants only the files of an image:
//!
//! ```
//! # use std::{fs, path::Path, process::Command};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (tree, disk) = (folder.path().join("tree"), folder.path().join("disk.img"));
//! # fs::create_dir_all(tree.join("var/log"))?;
//! # fs::write(tree.join("var/log/syslog"), "INFO all is well\nERROR no room\n")?;
//! # fs::File::create(&disk)?.set_len(16 << 20)?;
//! # let mke2fs = ["/sbin/mke2fs", "/usr/sbin/mke2fs"].into_iter().find(|tool| Path::new(tool).exists());
//! # let Some(mke2fs) = mke2fs else { return Ok(eprintln!("left out: mke2fs is missing")) };
//! # let made = Command::new(mke2fs).args(["-q", "-F", "-t", "ext4", "-d"]).args([&tree, &disk]).status()?;
//! # assert!(made.success());
//! use nearside_embedded::Drive;
//!
//! let lines = Drive::open(&disk)?.grep("ERROR", "/var/log")?;
//! assert_eq!(lines[0].path.to_str(), Some("/var/log/syslog"));
//! assert_eq!((lines[0].number, &lines[0].text[..]), (2, &b"ERROR no room"[..]));
//! # Ok(())
//! # }
//! ```

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod any;
mod drive;
mod embedded;
mod logical;
mod loopback;
mod many;
mod model;
pub mod named;
pub mod partition;
mod remote;

pub use any::{AnyChannel, AnyStore};
pub use drive::{Count, Drive, Line};
pub use embedded::{Embedded, EmbeddedTransport, Error, Options, firmware, image, image_over, open_image};
pub use logical::LogicalVolume;
pub use loopback::{Loopback, Runner};
pub use many::{drives_of, images_in};
pub use model::{Model, ModelHelp, model_file, models, models_help, read_model};
pub use remote::{Remote, RemoteChannel};
