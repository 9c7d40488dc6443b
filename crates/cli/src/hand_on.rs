//! A file's bytes as the kernel has them of the image: of one that nobody writes the drive says where they
//! lie, and the kernel hands them on from its page cache. Where that ends, for whatever reason, the drive
//! reads what follows.

use std::ops::ControlFlow;

use nearside_fsrlib::{Ask, EXTENT_INLINE, EXTENT_ZEROS, Operation, Record, Target};
use nearside_store::{File, Store};
use rustix::fs::{FileType, fstat};

use crate::drive::Drive;
use crate::failure::Failure;

/// Bytes that are handed on in one call: as far as progress is behind.
const PIECE: u64 = 1 << 20;

/// A piece of a file.
pub enum Piece<'a> {
    /// Bytes of the image from there on.
    Image(&'a File, u64),
    /// A hole, or what was never written.
    Zeros,
}

/// Hands `to` the pieces of a file from byte `offset` to `end`, but for the last `keep` bytes: where each
/// begins, how long it is, what it is; it says how many of its bytes it took. To where that went. What is
/// refused the drive is asked once more by who reads the rest, and says so.
pub fn hand_on(
    drive: &mut Drive,
    target: Target,
    follow: bool,
    (offset, end, keep): (u64, u64, u64),
    mut to: impl FnMut(u64, usize, Piece<'_>) -> Result<usize, Failure>,
) -> Result<u64, Failure> {
    let all = end.saturating_sub(offset);
    let Some(image) = drive.image().filter(|_| keep < all) else { return Ok(offset) };
    let seen = drive.seen();
    let (mut at, mut last) = (offset, 0);
    let ask = Ask { target, operation: Operation::Map, follow };
    let _refused = drive.ask(&ask, |record| {
        let (from, until, place) = match record {
            Record::File { size, .. } => {
                last = size.min(end).saturating_sub(keep);
                return Ok(ControlFlow::Continue(()));
            }
            Record::Extent { from, len, offset } => (from, from.saturating_add(len).min(last), offset),
            _ => return Ok(ControlFlow::Continue(())),
        };
        while (from..until).contains(&at) {
            let left = (until - at).min(PIECE) as usize;
            let handed = match place {
                EXTENT_INLINE => 0,
                EXTENT_ZEROS => to(at, left, Piece::Zeros)?,
                place => to(at, left, Piece::Image(&image, place.saturating_add(at - from)))?,
            };
            if handed == 0 {
                return Ok(ControlFlow::Break(()));
            }
            at += handed as u64;
            seen.add(0, handed as u64);
        }
        Ok(if at < last && at >= until { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(at)
}

/// Whether an image has become shorter: of the page in which it ends now, what was handed on of it may be
/// zeros.
pub fn is_cut(image: &File) -> bool {
    fstat(image).is_ok_and(|is| {
        let is_file = FileType::from_raw_mode(is.st_mode) == FileType::RegularFile;
        is_file && u64::try_from(is.st_size).is_ok_and(|size| size < image.capacity())
    })
}
