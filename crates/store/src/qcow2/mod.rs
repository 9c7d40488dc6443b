//! A disk image in QEMU's format qcow2, read in place and never written.
//!
//! Versions 2 and 3 are read, with compressed clusters (zlib and Zstandard), clusters of zeros, extended L2
//! entries, internal snapshots by name, and backing files, raw or qcow2, as deep as QEMU's users make them.
//! What is encrypted, was not closed, is marked as corrupt, keeps its data elsewhere, or needs a feature that
//! is not known is refused when it is opened. All of it is untrusted: a table or cluster that does not lie in
//! its file fails the reads that need it, and memory is bounded whatever the file says. Reference counts are
//! not looked at, nor are bitmaps.
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

use nearside_clock::Nanos;
use nearside_dma::{Memory, Reach, Span};

use crate::check::check;
use crate::dram::UNMAPPED;
use crate::{
    Backing, Channel, Completion, Data, File, FileOptions, Operation, Store, StoreError, Submitted, Token,
};
use chain::Layer;
use reader::Reader;

/// Bytes on the way to a host's memory at a time.
const CHUNK: usize = 64 << 10;

/// A disk in a qcow2 image, which is read-only. Clones share its files.
#[derive(Clone, Debug)]
pub struct Qcow2 {
    layers: Arc<[Layer]>,
    capacity: u64,
    block_size: u32,
}

impl Qcow2 {
    /// Opens the image at `path`, as it is or as it was at the internal snapshot of that name. Of `options`,
    /// the size of blocks and beside whom count; beside a writer it is refused in any case.
    ///
    /// # Errors
    /// `InvalidData` for what contradicts itself or is not read; else those of [`File::open`]. All name the
    /// file, and the one that has it for its backing file.
    pub fn open(path: impl AsRef<Path>, snapshot: Option<&OsStr>, options: FileOptions) -> io::Result<Qcow2> {
        let file = File::open(path, part::to_read(options))?;
        Qcow2::over(file, snapshot, options)
    }

    /// The image in an open file; see [`Qcow2::open`].
    ///
    /// # Errors
    /// As [`Qcow2::open`].
    pub fn over(file: File, snapshot: Option<&OsStr>, options: FileOptions) -> io::Result<Qcow2> {
        let (path, block_size) = (file.path().to_owned(), file.block_size());
        let layers: Arc<[Layer]> = chain::chain(file, snapshot, options)?.into();
        let size = layers.first().map_or(0, |top| top.size);
        let capacity = size - size % u64::from(block_size);
        if capacity == 0 {
            let why = format!("{}: the disk has {size} bytes: not one block", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Qcow2 { layers, capacity, block_size })
    }

    /// Whether an open file begins as such an image does. A guest can write that to a raw disk, whose owner
    /// then sees what the guest says, other files of this machine as backing files among it: ask it of what
    /// is read by a user in his own name.
    pub fn is_in(file: &File) -> bool {
        let mut first = [0; header::MAGIC.len()];
        file.inner.file.read_exact_at(&mut first, 0).is_ok() && first == header::MAGIC
    }
}

impl Store for Qcow2 {
    type Channel = Qcow2Channel;

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

    fn channel(&self, memory: Arc<Memory>) -> io::Result<Qcow2Channel> {
        Ok(Qcow2Channel {
            reader: Reader::new(self.layers.clone()),
            capacity: self.capacity,
            block_size: self.block_size,
            reach: Reach::new(memory),
            chunk: Vec::new(),
        })
    }
}

/// A way into a [`Qcow2`].
pub struct Qcow2Channel {
    reader: Reader,
    capacity: u64,
    block_size: u32,
    reach: Reach,
    /// What is on its way to a host's memory.
    chunk: Vec<u8>,
}

impl Qcow2Channel {
    fn read(&mut self, operation: &Operation, at: u64, data: &mut Data<'_>) -> Result<(), StoreError> {
        match data {
            Data::None => Ok(()),
            Data::Owned(buffer) => self.reader.read(at, buffer).map_err(|e| operation.failed(e)),
            Data::Spans(spans) => {
                let mut at = at;
                for span in *spans {
                    self.read_span(operation, at, *span)?;
                    at += span.len() as u64;
                }
                Ok(())
            }
        }
    }

    fn read_span(&mut self, operation: &Operation, at: u64, span: Span) -> Result<(), StoreError> {
        for from in (0..span.len()).step_by(CHUNK) {
            self.chunk.resize(CHUNK.min(span.len() - from), 0);
            self.reader.read(at + from as u64, &mut self.chunk).map_err(|e| operation.failed(e))?;
            let Some((host, host_at)) = self.reach.locate(span) else {
                return Err(operation.failed(UNMAPPED));
            };
            host.write(host_at + from, &self.chunk);
            if host.has_failed() {
                return Err(operation.failed(UNMAPPED));
            }
        }
        Ok(())
    }
}

impl Channel for Qcow2Channel {
    fn submit(&mut self, operation: Operation, mut data: Data<'_>, _token: Token, _now: Nanos) -> Submitted {
        let result = check(&operation, &data, self.capacity, self.block_size, true);
        let result = result.and_then(|()| match operation {
            Operation::Read { offset, .. } => self.read(&operation, offset, &mut data),
            // What changes bytes was refused; nothing waits to be durable.
            _ => Ok(()),
        });
        Submitted::done(result, data)
    }

    fn poll(&mut self, _now: Nanos, _sink: &mut impl FnMut(Token, Completion)) -> Option<Nanos> {
        None
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn memory_changed(&mut self) {
        self.reach.let_go();
    }
}
