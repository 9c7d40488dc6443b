//! Disk images: edits of small qcow2 images are the input.
//!
//! ```text
//! 0 which image u8
//! 1.. pieces: place u32 (within the image), length u8, bytes
//! ```

use std::ffi::OsStr;
use std::io::{Seek, Write};
use std::sync::Arc;

use nearside_clock::Nanos;
use nearside_dma::IoBuffer;
use nearside_store::{Channel, Data, FileOptions, Operation, Qcow2, Store, Submitted, Token};

use crate::volumes::gunzip;

const IMAGES: [&[u8]; 3] = [
    include_bytes!("../../../fuzz/images/packed.qcow2.gz"),
    include_bytes!("../../../fuzz/images/subclusters.qcow2.gz"),
    include_bytes!("../../../fuzz/images/version2.qcow2.gz"),
];
/// Bytes of a read, and how many there are in one disk.
const READ: u64 = 16 << 10;
const READS: u64 = 32;

/// Opens the image as it is and as its snapshot was, and reads its beginning, its end and places between.
pub fn run(input: &[u8]) {
    thread_local! {
        static SEEDS: Vec<Vec<u8>> = IMAGES.iter().map(|packed| gunzip(packed)).collect();
    }
    let Some(([which], mut rest)) = input.split_first_chunk::<1>() else { return };
    let mut image = SEEDS.with(|seeds| seeds[usize::from(*which) % seeds.len()].clone());
    while let Some(([a, b, c, d, len], after)) = rest.split_first_chunk::<5>() {
        let at = u32::from_le_bytes([*a, *b, *c, *d]) as usize % image.len();
        let (bytes, after) = after.split_at(usize::from(*len).min(after.len()));
        let here = bytes.len().min(image.len() - at);
        image[at..at + here].copy_from_slice(&bytes[..here]);
        rest = after;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.rewind().and_then(|()| file.write_all(&image)).unwrap();
    for snapshot in [None, Some(OsStr::new("s"))] {
        let Ok(store) = Qcow2::open(file.path(), snapshot, FileOptions::read()) else { continue };
        let mut channel = store.channel(Arc::default()).unwrap();
        let capacity = store.capacity();
        let last = capacity.saturating_sub(READ);
        for n in 0..READS {
            let offset = if n < READS / 2 { n * READ } else { last / READS * n } & !511;
            let len = READ.min(capacity.saturating_sub(offset));
            let data = Data::Owned(IoBuffer::new(len as usize).unwrap());
            let done = channel.submit(Operation::Read { offset, len }, data, Token(n), Nanos(0));
            let Submitted::Done(end) = done else { panic!("a read of {len} bytes at {offset} is pending") };
            assert!(end.buffer.is_some_and(|buffer| buffer.len() as u64 == len));
        }
    }
}

/// The images with nothing changed, and with words of theirs in the place of the same: of the header, and of
/// whatever begins a cluster.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (which, packed) in (0u8..).zip(IMAGES) {
        let image = gunzip(packed);
        seeds.push(vec![which]);
        let heads = (0..image.len()).step_by(512).filter(|at| image[*at..].iter().take(64).any(|b| *b != 0));
        for at in (8..112).step_by(16).chain(heads) {
            let bytes = &image[at..(at + 32).min(image.len())];
            let mut seed = vec![which];
            seed.extend((at as u32).to_le_bytes());
            seed.push(bytes.len() as u8);
            seed.extend_from_slice(bytes);
            seeds.push(seed);
        }
    }
    seeds
}
