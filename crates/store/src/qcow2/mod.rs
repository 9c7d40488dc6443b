//! A disk image in QEMU's format qcow2, read in place and never written.
//!
//! Versions 2 and 3 are read, with compressed clusters (zlib and Zstandard), clusters of zeros, extended L2
//! entries, internal snapshots by name or number, and backing files, raw or qcow2, as deep as QEMU's users
//! make them. What is encrypted, was not closed, is marked as corrupt, keeps its data elsewhere, or needs a
//! feature that is not known is refused when it is opened. All of it is untrusted: a table or cluster that
//! does not lie in its file fails the reads that need it, and memory is bounded whatever the file says.
//! Reference counts are not looked at, nor are bitmaps.
//!
//! Every operation is done when `submit` returns: tables and data are read through the page cache by the
//! reactor's own thread. The files are kept from writers as [`File`]s that are read are.

mod chain;
mod header;
mod part;
mod reader;
mod recent;
mod unpack;

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use nearside_dma::Memory;

use crate::reading::{ReadAt, ReadingChannel};
use crate::{Backing, File, FileOptions, Store};
use chain::Layer;
use reader::Reader;

/// A disk in a qcow2 image, which is read-only. Clones share its files.
#[derive(Clone, Debug)]
pub struct Qcow2 {
    layers: Arc<[Layer]>,
    capacity: u64,
    block_size: u32,
}

impl Qcow2 {
    /// Opens the image at `path`, as it is or as it was at the internal snapshot of that name, or else
    /// of that number. Of `options`, the size of blocks and beside whom count; beside a writer it is refused
    /// in any case.
    ///
    /// # Errors
    /// `InvalidData` for what contradicts itself or is not read; else those of [`File::open`]. All name the
    /// file, and the one that has it for its backing file.
    pub fn open(path: impl AsRef<Path>, snapshot: Option<&OsStr>, options: FileOptions) -> io::Result<Qcow2> {
        let file = File::open(path, part::to_read(options))?;
        let block_size = file.block_size();
        Qcow2::over(chain::chain(file, snapshot, options)?, block_size)
    }

    /// The image that an open file is by its first bytes; `None`: it begins otherwise.
    ///
    /// A guest can write those to a raw disk, whose owner then sees what the guest says: this is for what is
    /// read by a user in his own name. So that other files of this machine stay out of it, a backing file is
    /// refused unless the file's own name ends in `.qcow2` or `.qcow`, maybe before `.gz` or `.zst`; so it is
    /// of a backing file that was found so.
    ///
    /// # Errors
    /// As [`Qcow2::open`], and `PermissionDenied` for such a backing file.
    pub fn found_in(file: &File, options: FileOptions) -> io::Result<Option<Qcow2>> {
        let mut first = [0; header::MAGIC.len()];
        match file.inner.file.read_exact_at(&mut first, 0).is_ok() && first == header::MAGIC {
            true => Qcow2::over(chain::chain_found(file.clone(), options)?, file.block_size()).map(Some),
            false => Ok(None),
        }
    }

    fn over(layers: Vec<Layer>, block_size: u32) -> io::Result<Qcow2> {
        let size = layers.first().map_or(0, |top| top.size);
        let capacity = size - size % u64::from(block_size);
        if capacity == 0 {
            let path = layers.first().map_or(Path::new(""), |top| top.part.path()).display();
            let why = format!("{path}: the disk has {size} bytes: not one block");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Qcow2 { layers: layers.into(), capacity, block_size })
    }

    /// Reads it.
    pub(crate) fn reader(&self) -> Box<dyn ReadAt> {
        Box::new(Reader::new(self.layers.clone()))
    }

    /// The uppermost file.
    pub(crate) fn path(&self) -> &Path {
        self.layers.first().map_or(Path::new(""), |top| top.part.path())
    }
}

impl Store for Qcow2 {
    type Channel = ReadingChannel;

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn read_only(&self) -> bool {
        true
    }

    fn backing(&self) -> Option<Backing> {
        Some(Backing::Qcow2)
    }

    fn channel(&self, memory: Arc<Memory>) -> io::Result<ReadingChannel> {
        Ok(ReadingChannel::new(self.reader(), self.capacity, self.block_size, memory))
    }
}

impl ReadAt for Reader {
    fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.read(at, into)
    }
}
