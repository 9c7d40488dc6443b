//! A disk image that is compressed by gzip or Zstandard, unpacked whole into a temporary file without a name.
//!
//! Zeros become holes there. How much it may be is bounded, and so is the memory that unpacking takes beside
//! the file, which is memory, too, where the folder for temporary files is a tmpfs.
//! Members and frames may follow each other, and their checksums are held to what they are of.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;

use flate2::bufread::GzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use xxhash_rust::xxh64::Xxh64;

use crate::{File, FileOptions};

/// Bytes of an unpacked image at most.
const MOST: u64 = 8 << 30;
/// Bytes that a frame of Zstandard may look back at: what its own program allows without being told.
const WINDOW: u64 = 128 << 20;
/// Bytes at a time, which become a hole where all are zero.
const PIECE: usize = 64 << 10;

/// How a file is compressed, as its first bytes say.
#[derive(Clone, Copy, Debug)]
enum Packed {
    Gzip,
    Zstd,
}

impl Packed {
    fn of(file: &fs::File) -> Option<Packed> {
        let mut first = [0; 4];
        file.read_exact_at(&mut first, 0).ok()?;
        match first {
            [0x1f, 0x8b, 8, _] => Some(Packed::Gzip),
            // A frame that is to be skipped may be the first, as pzstd has it.
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Packed::Zstd),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Packed::Gzip => "gzip",
            Packed::Zstd => "Zstandard",
        }
    }

    fn unpacker(self) -> &'static str {
        match self {
            Packed::Gzip => "gunzip",
            Packed::Zstd => "unzstd",
        }
    }
}

impl File {
    /// What an open file holds, where its name ends in `.gz` or `.zst` and its bytes begin as gzip's or
    /// Zstandard's do; else the file itself. Its bytes alone do not say so: the first of a raw disk are its
    /// guest's. The file stays open, and locked, as long as what it holds is read.
    ///
    /// # Errors
    /// `InvalidData` where it is damaged; `FileTooLarge` where it holds more than 8 GiB; `ResourceBusy` where
    /// somebody writes it; else those of the temporary file. All name the file.
    pub fn unpacked(self, options: FileOptions) -> io::Result<File> {
        match self.path().extension().is_some_and(|name| name == "gz" || name == "zst") {
            true => unpacked(self, options, MOST),
            false => Ok(self),
        }
    }
}

fn unpacked(file: File, options: FileOptions, most: u64) -> io::Result<File> {
    let Some(packed) = Packed::of(&file.inner.file) else { return Ok(file) };
    let failed = |e: io::Error| {
        let (path, how) = (file.path().display(), packed.name());
        io::Error::new(e.kind(), format!("{path}: compressed by {how}: {e}"))
    };
    if let Some(writer) = file.writer() {
        let why = format!("{writer}: it is unpacked while nobody writes it");
        return Err(failed(io::Error::new(io::ErrorKind::ResourceBusy, why)));
    }
    let folder = std::env::temp_dir();
    let in_folder =
        |e: io::Error| io::Error::new(e.kind(), format!("unpacking into {}: {e}", folder.display()));
    let target = tempfile::tempfile_in(&folder).map_err(|e| failed(in_folder(e)))?;
    let mut out = Out { file: &target, piece: Vec::new(), at: 0, most, by: packed.unpacker(), failed: None };
    let source = BufReader::with_capacity(PIECE, At { file: &file.inner.file, at: 0 });
    let ended = match packed {
        Packed::Gzip => members(source, &mut out),
        Packed::Zstd => frames(source, &mut out),
    };
    // What the target said comes first: a decoder may have put it in words of its own.
    let ended = match out.failed.take() {
        Some(e) if e.kind() == io::ErrorKind::FileTooLarge => Err(e),
        Some(e) => Err(in_folder(e)),
        None => ended.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
    };
    ended.and_then(|()| out.end().map_err(in_folder)).map_err(failed)?;
    File::nameless(target, &file, options)
}

/// A file from its beginning, whatever others do with its descriptor.
struct At<'a> {
    file: &'a fs::File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(into, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// The unpacked bytes on their way to the file.
struct Out<'a> {
    file: &'a fs::File,
    piece: Vec<u8>,
    at: u64,
    most: u64,
    by: &'static str,
    failed: Option<io::Error>,
}

impl Out<'_> {
    fn put(&mut self) -> io::Result<()> {
        let len = self.piece.len() as u64;
        if len > self.most - self.at {
            let why = format!("it holds more than {} bytes: unpack it first ({})", self.most, self.by);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        if self.piece.iter().any(|byte| *byte != 0) {
            self.file.write_all_at(&self.piece, self.at)?;
        }
        self.at += len;
        self.piece.clear();
        Ok(())
    }

    /// The last piece, and the file's length where it ends in a hole.
    fn end(mut self) -> io::Result<()> {
        self.put()?;
        self.file.set_len(self.at)
    }
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let here = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..here]);
        if self.piece.len() == PIECE
            && let Err(e) = self.put()
        {
            let (kind, said) = (e.kind(), e.to_string());
            self.failed = Some(e);
            return Err(io::Error::new(kind, said));
        }
        Ok(here)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Members of gzip, one after another. As its own program has it, zeros may follow the last.
fn members(mut source: BufReader<At<'_>>, out: &mut Out<'_>) -> io::Result<()> {
    loop {
        io::copy(&mut GzDecoder::new(&mut source), out)?;
        match source.fill_buf()? {
            [] => return Ok(()),
            [0, ..] => break,
            _ => {}
        }
    }
    while let [_, ..] = source.fill_buf()? {
        if source.buffer().iter().any(|byte| *byte != 0) {
            return Err(io::Error::other("something else follows its end"));
        }
        source.consume(source.buffer().len());
    }
    Ok(())
}

/// Frames of Zstandard, one after another; those that are to be skipped are.
fn frames(mut source: BufReader<At<'_>>, out: &mut Out<'_>) -> io::Result<()> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(WINDOW);
    let mut buffer = vec![0; PIECE];
    while !source.fill_buf()?.is_empty() {
        match decoder.reset(&mut source) {
            Ok(()) => {}
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let skipped = io::copy(&mut source.by_ref().take(length.into()), &mut io::sink())?;
                if skipped < u64::from(length) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                continue;
            }
            Err(e) => return Err(io::Error::other(e)),
        }
        let mut sum = Xxh64::new(0);
        loop {
            let ended = decoder
                .decode_blocks(&mut source, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(io::Error::other)?;
            loop {
                let n = decoder.read(&mut buffer)?;
                if n == 0 {
                    break;
                }
                sum.update(&buffer[..n]);
                out.write_all(&buffer[..n])?;
            }
            if ended {
                break;
            }
        }
        // Its lower half is what a frame has.
        if decoder.get_checksum_from_data().is_some_and(|said| u64::from(said) != sum.digest() & 0xffff_ffff)
        {
            return Err(io::Error::other("its checksum is another"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Disk, Store};

    fn packed(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        file
    }

    /// Who would write it keeps out while what it holds is read.
    #[test]
    fn what_is_unpacked_is_locked() {
        let file = packed(&gzip(&disk()));
        let options = FileOptions::read();
        let reading = unpacked(File::open(file.path(), options).unwrap(), options, 1 << 20).unwrap();
        let write = || File::open(file.path(), FileOptions { access: Access::ServeBuffered, ..options });
        assert_eq!(write().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(reading);
        write().unwrap();
    }

    fn open(file: &tempfile::NamedTempFile, most: u64) -> io::Result<Vec<u8>> {
        let options = FileOptions::read();
        let file = unpacked(File::open(file.path(), options)?, options, most)?;
        let mut all = vec![0; file.capacity() as usize];
        Disk::File(file).reader().read_at(0, &mut all)?;
        Ok(all)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// A frame that is to be skipped, as long as a block of the store.
    fn skipped() -> Vec<u8> {
        [&[0x50, 0x2a, 0x4d, 0x18, 0, 2, 0, 0][..], &[7; 512]].concat()
    }

    /// A frame with blocks of one byte each, repeated: 128 KiB of it. One follows that is to be skipped.
    fn frame(blocks: &[u8], sum: Option<u32>) -> Vec<u8> {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, if sum.is_some() { 4 } else { 0 }, 0x38];
        for (nr, byte) in (1..).zip(blocks) {
            let header = u32::from(nr == blocks.len()) | 1 << 1 | (128 << 10) << 3;
            frame.extend_from_slice(&header.to_le_bytes()[..3]);
            frame.push(*byte);
        }
        frame.extend(sum.into_iter().flat_map(u32::to_le_bytes));
        frame.extend(skipped());
        frame
    }

    fn disk() -> Vec<u8> {
        let mut disk = vec![0; 1 << 20];
        disk[70_000..90_000].fill(7);
        disk[600_000..700_000].fill(9);
        disk
    }

    #[test]
    fn members_and_frames_follow_each_other() {
        let disk = disk();
        let gz = [gzip(&disk[..300_000]), gzip(b""), gzip(&disk[300_000..])].concat();
        assert!(open(&packed(&gz), 1 << 20).unwrap() == disk);
        // As gzip reads it, whose tapes and disks have blocks.
        let padded = [&gz[..], &[0; 3 * PIECE]].concat();
        assert!(open(&packed(&padded), 1 << 20).unwrap() == disk);
        let zst = [skipped(), frame(&[3, 0], None), frame(&[0], None)].concat();
        let mut expected = vec![0; 384 << 10];
        expected[..128 << 10].fill(3);
        assert!(open(&packed(&zst), 1 << 20).unwrap() == expected);
        // What is not compressed is itself.
        assert!(open(&packed(&disk), 0).unwrap() == disk);
    }

    #[test]
    fn what_is_damaged_or_too_much_is_refused() {
        let gz = gzip(&disk());
        let mut flipped = gz.clone();
        let sum_at = gz.len() - 8;
        flipped[sum_at] ^= 1;
        let wide = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0xf8][..], &[0; 600]].concat();
        let too_much = "it holds more than 1048575 bytes: unpack it first";
        for (bytes, most, says) in [
            (gz.clone(), (1 << 20) - 1, too_much),
            (frame(&[0; 8], None), (1 << 20) - 1, too_much),
            (frame(&[0; 50_000], None), 1 << 20, "it holds more than 1048576 bytes"),
            (flipped, 1 << 20, "compressed by gzip: corrupt gzip stream does not have a matching checksum"),
            (gz[..gz.len() / 2].to_vec(), 1 << 20, "compressed by gzip: "),
            ([&gz[..], &[0; 600], &gz[..]].concat(), 1 << 20, "compressed by gzip: something else follows"),
            ([&gz[..], b"other"].concat(), 1 << 20, "compressed by gzip: "),
            (frame(&[1, 2], Some(5)), 1 << 20, "compressed by Zstandard: its checksum is another"),
            (frame(&[1, 2], None)[..520].to_vec(), 1 << 20, "compressed by Zstandard: "),
            (wide, 1 << 20, "compressed by Zstandard: "),
        ] {
            let file = packed(&bytes);
            let refused = open(&file, most).unwrap_err().to_string();
            let named = format!("{}: ", file.path().display());
            assert!(refused.starts_with(&named) && refused.contains(says), "{refused}");
        }
    }
}
