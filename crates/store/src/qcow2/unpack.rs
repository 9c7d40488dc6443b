//! A compressed cluster.

#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use std::io::Read;

use flate2::{Decompress, FlushDecompress};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// How clusters are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Raw DEFLATE.
    Deflate,
    /// A frame of Zstandard.
    Zstd,
}

/// A cluster of `len` bytes from the whole sectors that begin with it. It takes no memory beyond them but for
/// two of the method's blocks, whatever it is told.
pub(super) fn unpack(packing: Packing, packed: &[u8], len: usize) -> Result<Vec<u8>, String> {
    let mut cluster = vec![0; len];
    match packing {
        Packing::Deflate => inflate(packed, &mut cluster)?,
        Packing::Zstd => frame(packed, &mut cluster)?,
    }
    Ok(cluster)
}

fn inflate(packed: &[u8], cluster: &mut [u8]) -> Result<(), String> {
    let mut state = Decompress::new(false);
    state.decompress(packed, cluster, FlushDecompress::Finish).map_err(|e| e.to_string())?;
    match state.total_out() == super::part::long(cluster.len()) {
        true => Ok(()),
        false => Err(format!("it ends after {} bytes", state.total_out())),
    }
}

fn frame(packed: &[u8], cluster: &mut [u8]) -> Result<(), String> {
    let (mut decoder, mut source) = (FrameDecoder::new(), packed);
    let failed = |e| format!("{e}");
    decoder.init(&mut source).map_err(failed)?;
    decoder.decode_blocks(&mut source, BlockDecodingStrategy::UptoBytes(cluster.len())).map_err(failed)?;
    if !decoder.is_finished() {
        // One that is empty may be the last.
        decoder.decode_blocks(&mut source, BlockDecodingStrategy::UptoBlocks(1)).map_err(failed)?;
    }
    if !decoder.is_finished() || decoder.can_collect() != cluster.len() {
        return Err(format!("its frame is not one of {} bytes", cluster.len()));
    }
    decoder.read_exact(cluster).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames whose blocks of four bytes are 128 KiB each, and whose headers promise a window of 128 MiB,
    /// or of terabytes.
    #[test]
    fn a_frame_takes_no_more_than_its_cluster() {
        let header = |window: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, window];
        let (large, endless) = (0x88, 0xf8);
        let block = |last: u32| -> Vec<u8> {
            let header = last | 1 << 1 | (128 << 10) << 3;
            [&header.to_le_bytes()[..3], &[7]].concat()
        };
        let of = |window, blocks: usize| {
            let mut frame = header(window).to_vec();
            (1..blocks).for_each(|_| frame.extend(block(0)));
            frame.extend(block(1));
            frame
        };
        let unpacked = unpack(Packing::Zstd, &of(large, 4), 512 << 10);
        assert!(unpacked.is_ok_and(|bytes| bytes == vec![7; 512 << 10]));
        for (blocks, len) in [(3, 512 << 10), (5, 512 << 10), (500_000, 64 << 10), (1, 100)] {
            assert!(unpack(Packing::Zstd, &of(large, blocks), len).is_err(), "{blocks} blocks");
        }
        assert!(unpack(Packing::Zstd, &of(endless, 4), 512 << 10).is_err());
    }
}
