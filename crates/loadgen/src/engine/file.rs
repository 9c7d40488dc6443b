//! Files and block devices as targets, and what the engines over them share.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nearside_dma::file::{self as system, Lock};
use nearside_dma::{IoBuffer, in_use};

use super::{Failure, Io};
use crate::verify::Verifier;
use crate::workload::Direction;

/// How a target is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// For writing too, and then for this process alone:
    /// by a lock, and a block device with O_EXCL, which a mounted one refuses.
    pub write: bool,
}

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The system's answer.
    #[error("{path}: {source}")]
    Io {
        /// The target.
        path: PathBuf,
        /// What was wrong.
        source: io::Error,
    },
    /// O_DIRECT is refused.
    #[error(
        "{path}: its file system cannot go past the page cache (O_DIRECT); use buffered reads and writes"
    )]
    NoDirect {
        /// The target.
        path: PathBuf,
    },
    /// IOPOLL is refused.
    #[error(
        "{path}: it cannot be polled: polling needs O_DIRECT on a device with queues for it (NVMe: the module's parameter \
         poll_queues), below a file system that passes it on"
    )]
    NoPolling {
        /// The target.
        path: PathBuf,
    },
    /// io_uring itself.
    #[error("io_uring: {0}")]
    Ring(io::Error),
    /// Memory for buffers.
    #[error("memory for buffers: {0}")]
    Memory(io::Error),
}

/// An open file or block device.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where.
    pub path: PathBuf,
    /// Open.
    pub file: Arc<File>,
    /// Bytes.
    pub size: u64,
    /// How it was opened.
    pub mode: OpenMode,
}

impl Target {
    /// Opens it.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, TargetError> {
        let fail = |source| TargetError::Io { path: path.to_owned(), source };
        let kind = std::fs::metadata(path).map_err(fail)?.file_type();
        let device = kind.is_block_device();
        if !device && !kind.is_file() {
            // Opening anything else might wait.
            let why = "neither a regular file nor a block device";
            return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let mut flags = 0;
        if mode.direct {
            flags |= system::O_DIRECT;
        }
        if device && mode.write {
            flags |= system::O_EXCL;
        }
        let file = OpenOptions::new().read(true).write(mode.write).custom_flags(flags).open(path);
        let file = file.map_err(|e| match e.kind() {
            io::ErrorKind::InvalidInput if mode.direct => TargetError::NoDirect { path: path.to_owned() },
            _ => fail(e),
        })?;
        if mode.write {
            in_use::take(&file, Lock::Exclusive).map_err(fail)?;
        }
        let size = system::size(&file).map_err(fail)?;
        Ok(Self { path: path.to_owned(), file: Arc::new(file), size, mode })
    }
}

/// Buffers by token, and the check of what is in them.
pub(super) struct Buffers {
    buffers: Vec<Option<IoBuffer>>,
    verifier: Option<Verifier>,
}

impl Buffers {
    /// `depth` buffers of `bytes` each, of bytes that do not compress.
    pub(super) fn new(depth: usize, bytes: u32, verifier: Option<Verifier>) -> Result<Self, TargetError> {
        let mut random = nearside_random::Random::new(bytes.into());
        let one = |_| {
            let mut buffer = IoBuffer::new(bytes as usize)?;
            buffer.chunks_mut(8).for_each(|word| {
                let len = word.len();
                word.copy_from_slice(&random.bits().to_le_bytes()[..len]);
            });
            Ok(Some(buffer))
        };
        let buffers = (0..depth).map(one).collect::<io::Result<_>>().map_err(TargetError::Memory)?;
        Ok(Self { buffers, verifier })
    }

    /// The buffer of an operation that begins;
    /// `None` where the token is in use or the operation is longer than a buffer.
    #[inline]
    pub(super) fn take(&mut self, io: &Io) -> Option<IoBuffer> {
        let place = self.buffers.get_mut(io.token as usize)?;
        let mut buffer = place.take_if(|buffer| buffer.capacity() >= io.len as usize)?;
        buffer.set_len(io.len as usize);
        if let Some(bytes) = self.verifier.as_mut().and_then(|verifier| verifier.before(io)) {
            buffer.copy_from_slice(bytes);
        }
        Some(buffer)
    }

    /// Takes the buffer of an operation that has ended back;
    /// what became of the operation, which moved so many bytes or failed.
    #[inline]
    pub(super) fn put(
        &mut self,
        token: u32,
        buffer: IoBuffer,
        moved: io::Result<usize>,
    ) -> Result<(), Failure> {
        let result = match moved {
            Ok(moved) if moved == buffer.len() => Ok(()),
            Ok(moved) => Err(Failure::Short { moved: moved as u32 }),
            Err(e) => Err(Failure::Errno(e.raw_os_error().unwrap_or(0))),
        };
        let right = match &mut self.verifier {
            None => true,
            Some(verifier) => verifier.after(token, result.is_ok(), |into| into.copy_from_slice(&buffer)),
        };
        if let Some(place) = self.buffers.get_mut(token as usize) {
            *place = Some(buffer);
        }
        if right { result } else { Err(Failure::Data) }
    }

    /// Takes back the buffer of an operation that was not sent.
    pub(super) fn put_back(&mut self, token: u32, buffer: IoBuffer) {
        if let Some(verifier) = &mut self.verifier {
            verifier.withdraw(token);
        }
        if let Some(place) = self.buffers.get_mut(token as usize) {
            *place = Some(buffer);
        }
    }
}

/// What io_uring and positioned calls are asked for an operation.
pub(super) fn call(io: &Io) -> system::Call {
    match io.direction {
        Direction::Read => system::Call::Read { offset: io.offset },
        Direction::Write => system::Call::Write { offset: io.offset, durable: false },
    }
}
