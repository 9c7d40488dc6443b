//! A file's bytes where the page cache has them.
//!
//! Who scans a file that is in the page cache spends most of the time on copying it out of there. Mapped, it
//! is read where it lies. What is not in the page cache is not lent: a page fault would wait for the medium,
//! where a read does not. A file that becomes shorter under its mapping raises no signal that anybody sees:
//! the mapping is under guard ([`crate::guest`]), reads as zeros from then on and says that it has failed.
//! Who has used bytes that were lent therefore asks for [`CachedFile::has_failed`] before believing them. Of
//! the page in which the new end falls the rest becomes zeros, and nothing faults there: so the file's last
//! page, which goes with any such end before it, is looked at then, and is never lent itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use crate::{PAGE_SIZE, Region};

/// What is looked up in the page cache and mapped at a time: what the kernel maps around a page fault.
const WINDOW: usize = 64 << 10;

/// A file, mapped for reading. See the module.
pub struct CachedFile {
    region: Region,
    /// Where the file's last page begins, behind all that is lent.
    last_page: usize,
    /// Whether any was.
    lent: AtomicBool,
    /// One bit for each window that was found in the page cache and is mapped.
    mapped: Box<[AtomicU64]>,
}

impl CachedFile {
    /// Maps the first `len` bytes of a file, which must have them now.
    ///
    /// # Errors
    /// `PermissionDenied` where this process may not know what the page cache holds of the file (mincore(2)
    /// tells its owner and who may write it); else the system's, of mmap(2): no room for as many addresses.
    pub fn map(file: &File, len: u64) -> io::Result<CachedFile> {
        let is = file.metadata()?;
        let me = rustix::process::geteuid();
        if !me.is_root() && is.uid() != me.as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let region = Region::guarded_view(file, len)?;
        let words = len.div_ceil(WINDOW).div_ceil(64);
        let last_page = len.saturating_sub(1) / PAGE_SIZE * PAGE_SIZE;
        let mapped = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(CachedFile { region, last_page, lent: AtomicBool::new(false), mapped })
    }

    /// Whether bytes were lent that are the file's no more: it has become shorter, or its medium failed.
    /// Not where it has grown again by then.
    pub fn has_failed(&self) -> bool {
        // The kernel takes the pages behind a new end away before it clears the rest of the page before them:
        // who has seen that sees this.
        fence(Ordering::Acquire);
        if self.lent.load(Ordering::Relaxed) && !self.region.has_failed() {
            // SAFETY: a byte of the mapping, since some of it was lent; it can be read whatever becomes of
            // the file.
            let _looked_at = unsafe { self.region.pointer(self.last_page, 1).read_volatile() };
        }
        self.region.has_failed()
    }

    fn is_mapped(&self, window: usize) -> bool {
        self.mapped[window / 64].load(Ordering::Relaxed) & (1 << (window % 64)) != 0
    }

    /// `len` bytes at `offset` where they lie; `None` where they are not all in the page cache, or not
    /// before the file's last page.
    ///
    /// They are the file's while nobody writes it, which is the caller's to know. Where somebody does all the
    /// same, they are of two times, as a read's may be.
    pub fn lend(self: &Arc<CachedFile>, offset: u64, len: usize) -> Option<LentBytes> {
        let at = usize::try_from(offset).ok()?;
        let end = at.checked_add(len).filter(|end| *end <= self.last_page && !self.region.has_failed())?;
        let mut window = at / WINDOW;
        while window * WINDOW < end {
            if self.is_mapped(window) {
                window += 1;
                continue;
            }
            // All that follow and are needed, by one call.
            let mut until = window + 1;
            while until * WINDOW < end && !self.is_mapped(until) {
                until += 1;
            }
            let from = window * WINDOW;
            let to = (until * WINDOW).min(self.region.len());
            if self.region.make_resident(from, to - from) {
                for window in window..until {
                    self.mapped[window / 64].fetch_or(1 << (window % 64), Ordering::Relaxed);
                }
            } else {
                // Beside them there may be a hole, which the page cache never holds.
                let from = from.max(at / PAGE_SIZE * PAGE_SIZE);
                let to = to.min(end.next_multiple_of(PAGE_SIZE));
                if !self.region.make_resident(from, to - from) {
                    return None;
                }
            }
            window = until;
        }
        if !self.lent.load(Ordering::Relaxed) {
            self.lent.store(true, Ordering::Relaxed);
        }
        Some(LentBytes { file: self.clone(), at, len })
    }
}

impl std::fmt::Debug for CachedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CachedFile({} bytes)", self.region.len())
    }
}

/// Bytes of a [`CachedFile`], which lives as long as they do.
pub struct LentBytes {
    file: Arc<CachedFile>,
    at: usize,
    len: usize,
}

impl AsRef<[u8]> for LentBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `lend` has seen that the range lies in the mapping, which lives with `file`. Its pages can
        // be read whatever becomes of the file (a guard sees to it). As with every mapped file, a program
        // that nobody keeps from it could change bytes under the borrow; those who scan them take each for
        // a byte and nothing more (`Channel::lend`).
        unsafe { std::slice::from_raw_parts(self.file.region.pointer(self.at, self.len), self.len) }
    }
}

impl std::fmt::Debug for LentBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LentBytes({} at {})", self.len, self.at)
    }
}

/// Pages of one look-up in the page cache.
pub(crate) const RESIDENT_MOST: usize = 512;
const _: () = assert!(RESIDENT_MOST * PAGE_SIZE >= WINDOW);

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i / 7 + i) as u8).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn what_is_lent_is_the_files() {
        let bytes = pattern(3 * WINDOW + PAGE_SIZE + 512);
        let cached = Arc::new(CachedFile::map(&file(&bytes), bytes.len() as u64).unwrap());
        let lent = 3 * WINDOW + PAGE_SIZE;
        for (at, len) in [(0, 512), (WINDOW - 1, 2), (5, 3 * WINDOW), (lent - 512, 512), (lent, 0)] {
            let lent = cached.lend(at as u64, len).unwrap();
            assert_eq!(lent.as_ref(), &bytes[at..at + len], "{len} bytes at {at}");
        }
        for (at, len) in [(lent as u64, 1), (lent as u64 - 512, 513), (u64::MAX, 1), (1, usize::MAX)] {
            assert!(cached.lend(at, len).is_none(), "{len} bytes at {at}");
        }
        assert!(!cached.has_failed());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn what_the_page_cache_lacks_is_not_lent() {
        let file = file(&pattern(4 * WINDOW));
        file.sync_all().unwrap();
        // SAFETY: an open descriptor; advice changes no byte.
        let rc = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(rc, 0);
        let cached = Arc::new(CachedFile::map(&file, 4 * WINDOW as u64).unwrap());
        if rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994 {
            return; // tmpfs has nowhere else to leave pages.
        }
        assert!(cached.lend(WINDOW as u64, 512).is_none());
        let mut once = vec![0; 4 * WINDOW];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut once, 0).unwrap();
        assert_eq!(cached.lend(WINDOW as u64, 512).unwrap().as_ref(), &once[WINDOW..WINDOW + 512]);
        // What lies beside a hole that nobody has read.
        file.set_len(8 * WINDOW as u64).unwrap();
        let at = 7 * WINDOW as u64 + PAGE_SIZE as u64;
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 2 * PAGE_SIZE], at).unwrap();
        let cached = Arc::new(CachedFile::map(&file, 8 * WINDOW as u64).unwrap());
        assert_eq!(cached.lend(at, 2 * PAGE_SIZE).unwrap().as_ref(), [7; 2 * PAGE_SIZE]);
        assert!(cached.lend(at - 1, 2).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn a_file_that_becomes_shorter_fails_and_raises_nothing() {
        let bytes = pattern(4 * WINDOW);
        let file = file(&bytes);
        let cached = Arc::new(CachedFile::map(&file, bytes.len() as u64).unwrap());
        let most = bytes.len() - PAGE_SIZE;
        let lent = cached.lend(0, most).unwrap();
        assert_eq!(lent.as_ref(), &bytes[..most]);
        assert!(!cached.has_failed());
        file.set_len(WINDOW as u64).unwrap();
        assert_eq!(lent.as_ref()[2 * WINDOW], 0);
        assert!(cached.has_failed());
        assert!(cached.lend(0, 512).is_none());
        drop(lent);
        // A window that was not asked for before is not there.
        let cached = Arc::new(CachedFile::map(&file, bytes.len() as u64).unwrap());
        assert!(cached.lend(2 * WINDOW as u64, 512).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn an_end_within_a_page_that_is_lent_is_noticed() {
        let bytes = vec![7; 4 * WINDOW];
        for end in [1, WINDOW + 5, 4 * WINDOW - PAGE_SIZE - 1, 4 * WINDOW - PAGE_SIZE] {
            let file = file(&bytes);
            let cached = Arc::new(CachedFile::map(&file, bytes.len() as u64).unwrap());
            let page = end / PAGE_SIZE * PAGE_SIZE;
            // Where the end is the last page's, there is nothing of it to be lent.
            let lent = cached.lend(page as u64, PAGE_SIZE.min(4 * WINDOW - PAGE_SIZE - page)).unwrap();
            assert!(lent.as_ref().iter().all(|byte| *byte == 7));
            file.set_len(end as u64).unwrap();
            // What is behind it in the page is cleared, and reading it raises nothing.
            assert!(lent.as_ref().iter().skip(end - page).all(|byte| *byte == 0));
            assert!(cached.has_failed(), "an end at {end}");
            assert!(cached.lend(0, 1).is_none());
        }
    }
}
