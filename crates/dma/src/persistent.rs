//! Files whose bytes are memory: mapped, and made durable without the block layer.
//!
//! A file is mapped so that stores to the mapping are stores to the file ([`Region::of_file`]). How they
//! become durable depends on what lies under the mapping ([`Medium`]). On persistent memory, which the kernel
//! has said to map without a cache between (MAP_SYNC of a DAX file system, or a Device-DAX character device),
//! the processor's write-back of cache lines and a fence do ([`Region::write_back`]), or stores that pass by
//! the cache ([`Region::write_streaming`]). Elsewhere the pages are the page cache's, and only the kernel can
//! write them out ([`Region::sync`]).
//!
//! A file that becomes shorter, or a medium that fails, raises SIGBUS in whoever touches the page: mappings
//! made here are under guard ([`crate::guest`]), read as zeros from then on and say so
//! ([`Region::has_failed`]). [`Region::populate`] asks first.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::ptr::NonNull;

use crate::file::{Call, allocate_mode};
use crate::{PAGE_SIZE, Region};

/// Bytes of a cache line.
const LINE: usize = 64;

/// How this processor writes a cache line back to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// clwb: the line may stay in the cache.
    Clwb,
    /// clflushopt: it is gone from the cache.
    Clflushopt,
    /// clflush: the same, one line after the other.
    Clflush,
}

impl WriteBack {
    /// What this processor has; `None`: nothing that is known here.
    pub fn of_this_processor() -> Option<WriteBack> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{__cpuid, __cpuid_count};
            #[allow(unused_unsafe, reason = "safe functions from Rust 1.94 on, unsafe ones before")]
            // SAFETY: CPUID exists on every x86-64.
            let (leaves, features) = unsafe { (__cpuid(0).eax, __cpuid_count(7, 0).ebx) };
            return Some(match leaves >= 7 {
                true if features & 1 << 24 != 0 => WriteBack::Clwb,
                true if features & 1 << 23 != 0 => WriteBack::Clflushopt,
                _ => WriteBack::Clflush,
            });
        }
        #[allow(unreachable_code, reason = "on other processors it is all there is")]
        None
    }

    /// Its instruction.
    pub fn name(self) -> &'static str {
        match self {
            WriteBack::Clwb => "clwb",
            WriteBack::Clflushopt => "clflushopt",
            WriteBack::Clflush => "clflush",
        }
    }
}

/// What lies under a mapping, and so how a store to it becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory, mapped as it is: by cache lines.
    Memory(WriteBack),
    /// Pages of the page cache: by the kernel, in the time of what the file lies on.
    PageCache,
}

impl Region {
    /// Maps the first `len` bytes of a file or of a Device-DAX character device so that stores are the
    /// file's, under guard; with what lies under it. One that is not to be written must not be.
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0; else the system's, of mmap(2).
    pub fn of_file(file: &File, len: usize, writable: bool) -> io::Result<(Region, Medium)> {
        let whole = len.checked_next_multiple_of(PAGE_SIZE).filter(|len| *len > 0);
        let len = whole.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no bytes to map"))?;
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let map = |flags| {
            // SAFETY: a fresh mapping at an address of the kernel's choice.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            NonNull::new(at.cast::<u8>()).ok_or_else(|| io::Error::other("mmap returned the null page"))
        };
        // A Device-DAX mapping is never anything but the memory, with the flag or without.
        let is_device = file.metadata()?.file_type().is_char_device();
        let (base, is_memory) = match map(libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) {
            Ok(base) => (base, true),
            Err(_) => (map(libc::MAP_SHARED)?, is_device),
        };
        let medium = match WriteBack::of_this_processor().filter(|_| is_memory) {
            Some(by) => Medium::Memory(by),
            None => Medium::PageCache,
        };
        Ok((Region::shared_mapping(base, len)?, medium))
    }

    /// Writes the cache lines of a range back to memory, and waits until they are there (a fence). Panics
    /// outside the region.
    ///
    /// The lines may have been written by any thread whose stores this one sees.
    pub fn write_back(&self, offset: usize, len: usize, by: WriteBack) {
        let from = self.pointer(offset, len);
        if len > 0 {
            // SAFETY: in bounds by `pointer`, and rounded to lines that hold bytes of the range.
            unsafe { machine::write_back(from, len, by) };
        }
        machine::fence();
    }

    /// Copies bytes in, by stores that pass by the cache where the processor has them, and waits until they
    /// are in memory. The parts of lines at both ends are stored and written back. Panics outside the region.
    pub fn write_streaming(&self, offset: usize, from: &[u8], by: WriteBack) {
        let to = self.pointer(offset, from.len());
        let head = to.align_offset(LINE).min(from.len());
        let body = (from.len() - head) / LINE * LINE;
        let tail = head + body;
        for part in [0..head, tail..from.len()] {
            self.write(offset + part.start, &from[part.clone()]);
            if !part.is_empty() {
                // SAFETY: part of the range that `pointer` has checked.
                unsafe { machine::write_back(to.add(part.start), part.len(), by) };
            }
        }
        // SAFETY: whole lines within the range; `from` is not in the region, or is copied as it is read.
        unsafe { machine::stream(from.as_ptr().add(head), to.add(head), body) };
        machine::fence();
    }

    /// Makes the pages of a range durable as the kernel does (msync, MS_SYNC). Panics outside the region.
    ///
    /// # Errors
    /// The system's: what was written there may be lost.
    pub fn sync(&self, offset: usize, len: usize) -> io::Result<()> {
        let start = offset / PAGE_SIZE * PAGE_SIZE;
        let len = len + (offset - start);
        let from = self.pointer(start, len);
        // SAFETY: pages of our own mapping; no byte of it changes.
        match unsafe { libc::msync(from.cast(), len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sees to it that the pages of a range are there to be read, or written, without a signal. Panics
    /// outside the region.
    ///
    /// # Errors
    /// The system's: the file has no such bytes any more, no room for them, or its medium failed. Before
    /// Linux 5.14 nothing is asked, and all is well.
    pub fn populate(&self, offset: usize, len: usize, to_write: bool) -> io::Result<()> {
        let start = offset / PAGE_SIZE * PAGE_SIZE;
        let end = (offset + len).next_multiple_of(PAGE_SIZE).min(self.len());
        let from = self.pointer(start, end - start);
        let advice = if to_write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        // SAFETY: pages of our own mapping; the advice changes no byte.
        match unsafe { libc::madvise(from.cast(), end - start, advice) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                e => Err(e),
            },
        }
    }
}

/// Has the file system set room aside for bytes of a file, which stay as they are.
///
/// # Errors
/// The system's: no room ([`crate::file::is_full`]), or a file system without this call
/// ([`crate::file::is_unsupported`]).
pub fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    allocate(file, libc::FALLOC_FL_KEEP_SIZE, offset, len)
}

/// Frees the room of a file's bytes, which read as zeros from then on, in mappings too.
///
/// # Errors
/// The system's: a file system without this call ([`crate::file::is_unsupported`]), or what failed.
pub fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    allocate(file, allocate_mode(Call::PunchHole { offset, len }), offset, len)
}

fn allocate(file: &File, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    loop {
        // SAFETY: no memory is involved.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as libc::off_t, len as libc::off_t) } == 0
        {
            return Ok(());
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => {}
            e => return Err(e),
        }
    }
}

/// Bytes of a file, or of a Device-DAX character device (/dev/dax0.0), that can be mapped.
///
/// # Errors
/// `InvalidInput` for what is neither; else the system's.
pub fn mappable(file: &File) -> io::Result<u64> {
    let is = file.metadata()?;
    if is.is_file() {
        return Ok(is.len());
    }
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    if !is.file_type().is_char_device() {
        return Err(invalid("neither a regular file nor a Device-DAX character device"));
    }
    let (major, minor) = (libc::major(is.rdev()), libc::minor(is.rdev()));
    let folder = format!("/sys/dev/char/{major}:{minor}");
    let of_dax = std::fs::read_link(format!("{folder}/subsystem")).is_ok_and(|to| to.ends_with("dax"));
    if !of_dax {
        return Err(invalid("a character device that is no Device-DAX"));
    }
    let size = std::fs::read_to_string(format!("{folder}/size"))?;
    size.trim().parse().map_err(|_| invalid("its size in /sys is no number"))
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod machine {
    use std::arch::asm;

    use super::{LINE, WriteBack};

    /// Asks for the lines of `len` bytes to be written back; a fence waits for it.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, which are not none.
    pub(super) unsafe fn write_back(from: *const u8, len: usize, by: WriteBack) {
        let first = from.addr() / LINE * LINE;
        let end = from.addr() + len;
        let mut line = from.wrapping_sub(from.addr() - first);
        while line.addr() < end {
            // SAFETY: the line holds bytes of the range, so that it is mapped; the instruction changes none.
            // It is not told to be without memory effects: stores to the line come before it.
            unsafe {
                match by {
                    WriteBack::Clwb => {
                        asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags))
                    }
                    WriteBack::Clflushopt => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
                    }
                    WriteBack::Clflush => {
                        asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags))
                    }
                }
            }
            line = line.wrapping_add(LINE);
        }
    }

    /// Waits for the write-backs and streaming stores of this thread.
    pub(super) fn fence() {
        // SAFETY: a fence touches no memory.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// Copies whole lines by stores that pass by the cache.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `len` bytes, a multiple of lines; `to` is aligned to one.
    pub(super) unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
        for at in (0..len).step_by(16) {
            // SAFETY: within both ranges, which the caller says are readable and writable; movntdq wants 16
            // aligned bytes, which a part of a line is.
            unsafe {
                asm!(
                    "movdqu {value}, [{from}]",
                    "movntdq [{to}], {value}",
                    value = out(xmm_reg) _,
                    from = in(reg) from.add(at),
                    to = in(reg) to.add(at),
                    options(nostack, preserves_flags),
                );
            }
        }
    }
}

/// Where nothing is known of cache lines nobody gets a [`WriteBack`]: there, this is only compiled.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod machine {
    use super::WriteBack;

    pub(super) unsafe fn write_back(_: *const u8, _: usize, _: WriteBack) {}

    pub(super) fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    pub(super) unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's word.
        unsafe { crate::copy::copy(from, to, len) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn mapped(len: u64) -> (File, Region) {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(len).unwrap();
        let (region, medium) = Region::of_file(&file, len as usize, true).unwrap();
        // tmpfs is memory, and has no MAP_SYNC: its pages are the page cache's.
        assert_eq!(medium, Medium::PageCache);
        (file, region)
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn stores_by_every_way_are_the_files() {
        let Some(own) = WriteBack::of_this_processor() else { return };
        let (file, region) = mapped(4 * PAGE_SIZE as u64);
        let bytes: Vec<u8> = (0..3 * PAGE_SIZE).map(|i| (i * 7 + i / 251) as u8).collect();
        for (round, (at, len)) in
            [(0, 64), (0, 0), (1, 62), (63, 2), (100, 4096), (4096, 4096), (5, 3 * 4096), (130, 1)]
                .into_iter()
                .enumerate()
        {
            let from = &bytes[round..][..len.min(bytes.len() - round)];
            let mut got = vec![0; from.len()];
            for streams in [false, true] {
                region.fill(0, region.len(), 0xa5);
                match streams {
                    true => region.write_streaming(at, from, own),
                    false => {
                        region.write(at, from);
                        region.write_back(at, from.len(), own);
                    }
                }
                file.read_exact_at(&mut got, at as u64).unwrap();
                assert_eq!(got, from, "{len} bytes at {at}, {streams}");
                let mut beside = [0; 1];
                file.read_exact_at(&mut beside, (at + from.len()) as u64).unwrap();
                assert_eq!(beside, [0xa5], "a byte beside {len} at {at}, {streams}");
            }
        }
        region.sync(4000, 200).unwrap();
        assert!(!region.has_failed());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn what_is_gone_is_asked_for_without_a_signal() {
        let (file, region) = mapped(1 << 20);
        region.populate(0, 1 << 20, true).unwrap();
        file.set_len(8192).unwrap();
        region.populate(100, 8000, false).unwrap();
        for to_write in [false, true] {
            assert!(region.populate(8000, 4096, to_write).is_err());
        }
        assert!(!region.has_failed(), "it was only asked");
        let mut byte = [9];
        region.read(9000, &mut byte);
        assert!(byte == [0] && region.has_failed());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps a file")]
    fn holes_and_room() {
        let (file, region) = mapped(1 << 20);
        region.fill(0, 1 << 20, 7);
        punch(&file, 4096, 8192).unwrap();
        let mut bytes = [1; 3];
        for (at, want) in [(4095, [7, 0, 0]), (12286, [0, 0, 7])] {
            region.read(at, &mut bytes);
            assert_eq!(bytes, want);
        }
        reserve(&file, 0, 1 << 20).unwrap();
        assert_eq!(mappable(&file).unwrap(), 1 << 20);
        assert!(mappable(&File::open("/dev/null").unwrap()).is_err());
        assert!(mappable(&File::open("/dev/shm").unwrap()).is_err());
        assert!(Region::of_file(&file, 0, true).is_err());
    }
}
