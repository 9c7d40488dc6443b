//! A mapped piece of memory that another party may write at any time.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::cached::RESIDENT_MOST;
use crate::guest::{self, Guard};
use crate::{PAGE_SIZE, copy, prefetch};

/// A huge page of this architecture's most common size.
const HUGE_PAGE_SIZE: usize = 2 << 20;

/// A mapping of `len` bytes, unmapped when dropped. Bytes move in and out by copies; words by atomics.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    /// What is mapped: more than the region where pages are huge.
    whole: (NonNull<u8>, usize),
    guard: Option<Guard>,
    shared: bool,
    fd: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to no thread, and all access is by opaque copies or atomics (see the methods).
unsafe impl Send for Region {}
// SAFETY: as above; concurrent copies may see torn bytes, never invalid memory.
unsafe impl Sync for Region {}

impl Region {
    /// Shared memory behind a memfd, which another process can map by [`Region::fd`] and whose length nobody
    /// changes (it is sealed). Length rounds up to pages.
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0 or a name with a NUL; else the system's.
    pub fn shared(name: &str, len: usize) -> io::Result<Region> {
        if cfg!(miri) {
            // Miri knows no memfd; its threads are all of this process, which a private mapping serves.
            return Region::anonymous(len);
        }
        let name = std::ffi::CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: a valid C string and known flags.
        let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` is a descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let len = round_up(len)?;
        let file = File::from(fd);
        file.set_len(len as u64)?;
        guest::seal(&file)?;
        Region::map(OwnedFd::from(file), len)
    }

    /// Maps the first `len` bytes of a descriptor that another party handed over.
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0; else the system's, of mmap(2).
    pub fn map(fd: OwnedFd, len: usize) -> io::Result<Region> {
        let len = round_up(len)?;
        let base = mmap(len, libc::MAP_SHARED, fd.as_raw_fd())?;
        Ok(Region { base, len, whole: (base, len), guard: None, shared: true, fd: Some(fd) })
    }

    /// Maps memory that another process shares, which is not believed: `len` bytes of its file from `offset`
    /// on (whole pages). Where the file becomes shorter than that, the region reads as zeros from then on and
    /// says so ([`Region::has_failed`]). The descriptor is closed.
    ///
    /// # Errors
    /// `InvalidInput` where the file has not these bytes, or is none; else the system's.
    pub fn foreign(fd: OwnedFd, offset: u64, len: usize) -> io::Result<Region> {
        let guest::Mapping { base, whole, guard } = guest::map(&fd, offset, len)?;
        Ok(Region { base, len, whole, guard: Some(guard), shared: true, fd: None })
    }

    /// Whether another process has taken memory away that it shared ([`Region::foreign`]).
    pub fn has_failed(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::has_failed)
    }

    /// Maps the first `len` bytes of a file for reading it: what is written here stays here (MAP_PRIVATE).
    /// The file must have these bytes for as long as this lives: reading a page that is gone ends the process
    /// (SIGBUS).
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0; else the system's, of mmap(2).
    pub fn view(file: &File, len: usize) -> io::Result<Region> {
        let len = round_up(len)?;
        let base = mmap(len, libc::MAP_PRIVATE | libc::MAP_NORESERVE, file.as_raw_fd())?;
        Ok(Region { base, len, whole: (base, len), guard: None, shared: false, fd: None })
    }

    /// Maps the first `len` bytes of a file for reading it. Where the file becomes shorter than that, the
    /// region reads as zeros from then on and says so ([`Region::has_failed`]).
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0; else the system's, of mmap(2).
    pub(crate) fn guarded_view(file: &File, len: usize) -> io::Result<Region> {
        let mut region = Region::view(file, len)?;
        region.guard = Some(Guard::new(region.base, region.len)?);
        Ok(region)
    }

    /// A mapping that was made of a whole file, put under guard.
    pub(crate) fn shared_mapping(base: NonNull<u8>, len: usize) -> io::Result<Region> {
        let mut region = Region { base, len, whole: (base, len), guard: None, shared: true, fd: None };
        region.guard = Some(Guard::new(base, len)?);
        Ok(region)
    }

    /// Maps those pages of a file that the page cache holds, if it holds them all; whether it does. Range in
    /// whole pages, within the region.
    pub(crate) fn make_resident(&self, offset: usize, len: usize) -> bool {
        let mut pages = [0u8; RESIDENT_MOST];
        let mut at = offset;
        while at < offset + len {
            let part = (offset + len - at).min(RESIDENT_MOST * PAGE_SIZE);
            let from = self.pointer(at, part).cast::<libc::c_void>();
            let pages = &mut pages[..part.div_ceil(PAGE_SIZE)];
            // SAFETY: pages of our own mapping, and as many bytes to say of each whether it is there.
            if unsafe { libc::mincore(from, part, pages.as_mut_ptr()) } != 0
                || pages.iter().any(|page| page & 1 == 0)
            {
                return false;
            }
            // Without it (before Linux 5.14) each page faults when it is read. What is gone is said here.
            // SAFETY: as above; the advice changes no byte.
            let populated = unsafe { libc::madvise(from, part, libc::MADV_POPULATE_READ) };
            if populated != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL) {
                return false;
            }
            at += part;
        }
        true
    }

    /// Private zeroed memory; pages take room only once they are written.
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0; else the system's: no memory.
    pub fn anonymous(len: usize) -> io::Result<Region> {
        let len = round_up(len)?;
        // Miri knows no lazy memory either.
        let lazy = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
        let base = mmap(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | lazy, -1)?;
        Ok(Region { base, len, whole: (base, len), guard: None, shared: false, fd: None })
    }

    /// Asks for pages of 2 MiB (MADV_HUGEPAGE) where the region has room for one: a copy from a random place
    /// then misses the address translation cache less often. What is touched first takes 2 MiB instead of
    /// 4 KiB. Returns whether the kernel will try; it goes on with small pages where it has no others.
    pub fn prefer_huge_pages(&self) -> bool {
        if cfg!(miri) || self.len < HUGE_PAGE_SIZE {
            return false;
        }
        // SAFETY: our own mapping, whole; the advice changes no byte of it.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_HUGEPAGE) == 0 }
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: an empty region cannot be made.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The descriptor behind a shared region.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// The aligned 32-bit word at `offset`.
    ///
    /// # Panics
    /// Outside the region or unaligned: offsets are ours, never a peer's.
    #[inline]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset <= self.len - 4, "word32 at {offset} of {}", self.len);
        // SAFETY: in bounds and aligned by the assertion (the base is page-aligned); an atomic may be shared
        // with other writers, and the mapping lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The aligned 64-bit word at `offset`.
    ///
    /// # Panics
    /// As [`Region::word32`].
    #[inline]
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset <= self.len - 8, "word64 at {offset} of {}", self.len);
        // SAFETY: as in `word32`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Copies bytes out, once; a concurrent writer can make them a mixture of old and new, so check them
    /// after, not before: the compiler cannot read them again (`crate::copy`). Panics outside the region.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: in bounds by `check`; `into` is ours.
        unsafe { copy::copy(self.base.as_ptr().add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in. Panics outside the region.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: as in `read`.
        unsafe { copy::copy(from.as_ptr(), self.base.as_ptr().add(offset), from.len()) }
    }

    /// Copies 32-bit words in (queue entries; little-endian machines only hold the wire's order, which is all
    /// we run on). Panics outside the region.
    #[inline]
    pub fn write_words<const N: usize>(&self, offset: usize, from: &[u32; N]) {
        self.check(offset, size_of_val(from));
        // SAFETY: in bounds by `check`.
        unsafe { copy::store(from, self.base.as_ptr().add(offset)) }
    }

    /// Copies 32-bit words out; as [`Region::read`].
    #[inline]
    pub fn read_words<const N: usize>(&self, offset: usize) -> [u32; N] {
        self.check(offset, size_of::<[u32; N]>());
        // SAFETY: in bounds by `check`.
        unsafe { copy::load(self.base.as_ptr().add(offset)) }
    }

    /// Sets bytes. Panics outside the region.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        self.check(offset, len);
        // SAFETY: in bounds by `check`.
        unsafe { copy::fill(self.base.as_ptr().add(offset), len, byte) }
    }

    /// Copies between two regions (or within one; the ranges may overlap), as [`Region::read`]. Panics
    /// outside either.
    #[inline]
    pub fn copy(from: &Region, from_offset: usize, to: &Region, to_offset: usize, len: usize) {
        from.check(from_offset, len);
        to.check(to_offset, len);
        // SAFETY: both in bounds by `check`.
        unsafe { copy::copy(from.base.as_ptr().add(from_offset), to.base.as_ptr().add(to_offset), len) }
    }

    /// Gives whole pages inside the range back to the system (private regions only); they read as zeros
    /// after.
    pub fn discard(&self, offset: usize, len: usize) {
        self.check(offset, len);
        let start = offset.next_multiple_of(PAGE_SIZE);
        let end = (offset + len) / PAGE_SIZE * PAGE_SIZE;
        if cfg!(miri) {
            self.fill(start, end.saturating_sub(start), 0);
        } else if !self.shared && end > start {
            // SAFETY: whole pages of our own private mapping; MADV_DONTNEED leaves them mapped and zero.
            unsafe { libc::madvise(self.base.as_ptr().add(start).cast(), end - start, libc::MADV_DONTNEED) };
        }
    }

    /// Asks the cache for the line at `offset` (clamped to the region): a hint that reads nothing.
    #[inline(always)]
    pub fn prefetch(&self, offset: usize, writes: bool) {
        prefetch(self.base.as_ptr().wrapping_add(offset.min(self.len - 1)), writes);
    }

    pub(crate) fn pointer(&self, offset: usize, len: usize) -> *mut u8 {
        self.check(offset, len);
        // SAFETY: in bounds by `check`.
        unsafe { self.base.as_ptr().add(offset) }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "{len} bytes at {offset} of a region of {}",
            self.len
        );
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Before the addresses may become another's.
        self.guard = None;
        let (at, len) = self.whole;
        // SAFETY: the mapping is ours, and no pointer into it outlives `self` (see `Memory`).
        unsafe { libc::munmap(at.as_ptr().cast(), len) };
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes, {})", self.len, if self.shared { "shared" } else { "private" })
    }
}

fn round_up(len: usize) -> io::Result<usize> {
    match len.checked_next_multiple_of(PAGE_SIZE) {
        Some(len) if len > 0 && len <= isize::MAX as usize => Ok(len),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a region cannot have {len} bytes"))),
    }
}

fn mmap(len: usize, flags: i32, fd: i32) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap returned the null page"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the mapping that begins where the region does, as proc(5) has them.
    fn flags(region: &Region) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let base = region.base.as_ptr() as usize;
        let of = |line: &str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
        };
        let mut lines =
            maps.lines().skip_while(|line| !of(line).is_some_and(|(a, b)| (a..b).contains(&base)));
        lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap().to_owned()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it asks the kernel")]
    fn huge_pages_are_asked_for_where_one_fits() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            eprintln!("LEFT OUT: this kernel has no transparent huge pages");
            return;
        }
        let huge = |region: &Region| flags(region).split_whitespace().any(|flag| flag == "hg");
        for region in [Region::anonymous(8 << 20).unwrap(), Region::shared("huge", 8 << 20).unwrap()] {
            assert!(!huge(&region), "{}", flags(&region));
            assert!(region.prefer_huge_pages() && huge(&region), "{}", flags(&region));
            // The bytes are as they were, and go back as before.
            region.fill(4096, 4096, 7);
            region.discard(0, 8192);
            let mut byte = [9];
            region.read(4096, &mut byte);
            assert_eq!(byte[0], if region.fd().is_some() { 7 } else { 0 });
        }
        assert!(!Region::anonymous(1 << 20).unwrap().prefer_huge_pages());
    }
}
