//! Where an instant is made.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nearside_dma::Memory;
use nearside_dma::file::{Call, Scratch, Transfer, is_unsupported, run};

/// The unit in which zeros are looked for: a block of most file systems.
const GRANULE: usize = 4096;
/// Zeros that are written at a time where no hole can be made.
const ZEROS: usize = 64 << 10;

/// Bytes that a log's entries change.
pub trait Image {
    /// Writes.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for bytes beyond its end.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// As [`Image::write`].
    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()>;
}

/// An image in memory.
impl Image for Vec<u8> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        part(self, offset, bytes.len() as u64)?.copy_from_slice(bytes);
        Ok(())
    }

    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()> {
        part(self, offset, len)?.fill(0);
        Ok(())
    }
}

fn part(image: &mut [u8], offset: u64, len: u64) -> io::Result<&mut [u8]> {
    let has = image.len() as u64;
    let part = offset.checked_add(len).and_then(|end| image.get_mut(offset as usize..end as usize));
    part.ok_or_else(|| beyond(offset, len, has))
}

fn beyond(offset: u64, len: u64, has: u64) -> io::Error {
    let reason = format!("{len} bytes at {offset} are beyond an image of {has} bytes");
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// An image in a file, sparse where the file system can: zeros become holes.
pub struct ImageFile {
    file: File,
    len: u64,
    holes: bool,
    scratch: Scratch,
}

impl ImageFile {
    /// Of a file that was opened for reading and writing; it has its size.
    ///
    /// # Errors
    /// The system's.
    pub fn new(file: File) -> io::Result<ImageFile> {
        let len = nearside_dma::file::size(&file)?;
        Ok(ImageFile { file, len, holes: true, scratch: Scratch::default() })
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(beyond(offset, len, self.len)),
        }
    }
}

impl Image for ImageFile {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len() as u64)?;
        let blank = |piece: &[u8]| piece.len() == GRANULE && piece.iter().all(|byte| *byte == 0);
        let mut at = 0;
        for pieces in bytes.chunks(GRANULE).collect::<Vec<_>>().chunk_by(|a, b| blank(a) == blank(b)) {
            let len: usize = pieces.iter().map(|piece| piece.len()).sum();
            if pieces.first().is_some_and(|piece| blank(piece)) {
                self.zero(offset + at as u64, len as u64)?;
            } else {
                self.file.write_all_at(&bytes[at..at + len], offset + at as u64)?;
            }
            at += len;
        }
        Ok(())
    }

    fn zero(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        if self.holes {
            let (memory, call) = (Memory::new(), Call::PunchHole { offset, len });
            match run(&self.file, &memory, call, Transfer::None, 0, false, &mut self.scratch) {
                Err(e) if is_unsupported(&e) => self.holes = false,
                done => return done.map(drop),
            }
        }
        let zeros = vec![0; ZEROS.min(usize::try_from(len).unwrap_or(ZEROS))];
        let mut done = 0;
        while done < len {
            let part = (len - done).min(zeros.len() as u64);
            self.file.write_all_at(&zeros[..part as usize], offset + done)?;
            done += part;
        }
        Ok(())
    }
}
