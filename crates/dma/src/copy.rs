//! Copies of memory that another party writes at the same time.
//!
//! A plain copy is one that the compiler may take apart: it may read the source again instead of the copy, so
//! that what was checked is not what is used. Here the compiler sees an instruction that it knows nothing of,
//! which reads and writes memory once, at that place: on x86-64 a call of the system's `memmove` (`memset`)
//! from assembly, for queue entries 16-byte moves; elsewhere, and in Miri, relaxed atomic words.
//! `benches/copy.rs` measures that it costs what a plain copy does.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod machine {
    use std::arch::asm;
    use std::arch::x86_64::__m128i;

    /// Copies `len` bytes; the ranges may overlap.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `len` bytes, whoever else writes them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: `memmove` needs what this function demands. The assembler is told all that a C call may
        // change, and has the stack aligned for one (no `nostack`).
        unsafe {
            asm!(
                "call {memmove}",
                memmove = sym libc::memmove,
                inout("rdi") to => _,
                inout("rsi") from => _,
                inout("rdx") len => _,
                clobber_abi("C"),
            );
        }
    }

    /// Sets `len` bytes.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, whoever else writes them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn fill(to: *mut u8, len: usize, byte: u8) {
        // SAFETY: as for `copy`.
        unsafe {
            asm!(
                "call {memset}",
                memset = sym libc::memset,
                inout("rdi") to => _,
                inout("rsi") u64::from(byte) => _,
                inout("rdx") len => _,
                clobber_abi("C"),
            );
        }
    }

    /// Copies an array of words out of memory that others write, as 16-byte moves.
    ///
    /// # Safety
    /// `from` is readable for the array's bytes; it need not be aligned.
    #[inline(always)]
    pub(crate) unsafe fn load<const N: usize>(from: *const u8) -> [u32; N] {
        let mut words = [0u32; N];
        let (whole, rest) = words.as_chunks_mut::<4>();
        let rest_at = whole.len() * 16;
        for (at, chunk) in whole.iter_mut().enumerate() {
            let value: __m128i;
            // SAFETY: within the array's bytes, which the caller says are readable.
            unsafe {
                asm!(
                    "movdqu {value}, [{from}]",
                    value = lateout(xmm_reg) value,
                    from = in(reg) from.add(at * 16),
                    options(nostack, preserves_flags),
                );
                chunk.as_mut_ptr().cast::<__m128i>().write_unaligned(value);
            }
        }
        for (at, word) in rest.iter_mut().enumerate() {
            // SAFETY: as above; the register is as wide as the word.
            unsafe {
                asm!(
                    "mov {word:e}, [{from}]",
                    word = lateout(reg) *word,
                    from = in(reg) from.add(rest_at + at * 4),
                    options(nostack, preserves_flags),
                );
            }
        }
        words
    }

    /// Copies an array of words into memory that others read.
    ///
    /// # Safety
    /// `to` is writable for the array's bytes; it need not be aligned.
    #[inline(always)]
    pub(crate) unsafe fn store<const N: usize>(words: &[u32; N], to: *mut u8) {
        let (whole, rest) = words.as_chunks::<4>();
        let rest_at = whole.len() * 16;
        for (at, chunk) in whole.iter().enumerate() {
            // SAFETY: within the array's bytes, which the caller says are writable.
            unsafe {
                let value = chunk.as_ptr().cast::<__m128i>().read_unaligned();
                asm!(
                    "movdqu [{to}], {value}",
                    value = in(xmm_reg) value,
                    to = in(reg) to.add(at * 16),
                    options(nostack, preserves_flags),
                );
            }
        }
        for (at, word) in rest.iter().enumerate() {
            // SAFETY: as above.
            unsafe {
                asm!(
                    "mov [{to}], {word:e}",
                    word = in(reg) *word,
                    to = in(reg) to.add(rest_at + at * 4),
                    options(nostack, preserves_flags),
                );
            }
        }
    }
}

/// Relaxed atomics: bytes, and words of 8 where both sides are aligned for them.
#[cfg(any(not(target_arch = "x86_64"), miri, test))]
#[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(dead_code, reason = "there, only the tests use it"))]
mod atomic {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

    fn is_aligned(at: *const u8) -> bool {
        at.addr().is_multiple_of(8)
    }

    /// Copies `len` bytes; the ranges may overlap.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for `len` bytes; others may write either meanwhile.
    pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        let byte = |at: usize| {
            // SAFETY: within both ranges by the loops' bounds; an atomic may be shared with whoever writes
            // there.
            let (from, to) =
                unsafe { (AtomicU8::from_ptr(from.cast_mut().add(at)), AtomicU8::from_ptr(to.add(at))) };
            to.store(from.load(Relaxed), Relaxed);
        };
        let word = |at: usize| {
            // SAFETY: as above, and aligned as was looked.
            let (from, to) = unsafe {
                (AtomicU64::from_ptr(from.cast_mut().add(at).cast()), AtomicU64::from_ptr(to.add(at).cast()))
            };
            to.store(from.load(Relaxed), Relaxed);
        };
        // Backwards where the source would be overwritten before it is read.
        let backwards = to.addr() > from.addr() && to.addr() - from.addr() < len;
        let words = if is_aligned(from) && is_aligned(to) { len / 8 } else { 0 };
        if backwards {
            (words * 8..len).rev().for_each(byte);
            (0..words).rev().for_each(|n| word(n * 8));
        } else {
            (0..words).for_each(|n| word(n * 8));
            (words * 8..len).for_each(byte);
        }
    }

    /// Sets `len` bytes to `byte`.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes; others may write there meanwhile.
    pub(crate) unsafe fn fill(to: *mut u8, len: usize, byte: u8) {
        let words = if is_aligned(to) { len / 8 } else { 0 };
        for n in 0..words {
            // SAFETY: as for `copy`.
            unsafe { AtomicU64::from_ptr(to.add(n * 8).cast()) }
                .store(u64::from_ne_bytes([byte; 8]), Relaxed);
        }
        for at in words * 8..len {
            // SAFETY: as for `copy`.
            unsafe { AtomicU8::from_ptr(to.add(at)) }.store(byte, Relaxed);
        }
    }

    /// Reads `N` words.
    ///
    /// # Safety
    /// `from` is readable for `N` words; others may write there meanwhile.
    pub(crate) unsafe fn load<const N: usize>(from: *const u8) -> [u32; N] {
        let mut words = [0u32; N];
        // SAFETY: the caller's word for `from`; `words` is ours.
        unsafe { copy(from, words.as_mut_ptr().cast(), size_of::<[u32; N]>()) };
        words
    }

    /// Writes `N` words.
    ///
    /// # Safety
    /// `to` is writable for `N` words; others may write there meanwhile.
    pub(crate) unsafe fn store<const N: usize>(words: &[u32; N], to: *mut u8) {
        let mut words = *words;
        // SAFETY: the caller's word for `to`; `words` is ours, and may be written as the atomics would have
        // it.
        unsafe { copy(words.as_mut_ptr().cast(), to, size_of::<[u32; N]>()) };
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(crate) use atomic::*;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use machine::*;

#[cfg(test)]
mod tests {
    use super::*;

    type Copy = unsafe fn(*const u8, *mut u8, usize);
    type Fill = unsafe fn(*mut u8, usize, u8);

    const WAYS: [(Copy, Fill); 2] = [(copy, fill), (atomic::copy, atomic::fill)];

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn every_way_is_a_plain_copy_of_memory_that_stands_still() {
        let lengths =
            if cfg!(miri) { vec![0, 1, 7, 8, 9, 64] } else { (0..300).chain([512, 4096, 9001]).collect() };
        for (copy, fill) in WAYS {
            for &len in &lengths {
                for (from, to) in [(0, 0), (1, 0), (0, 3), (5, 5), (8, 16)] {
                    let source = pattern(len + 32);
                    let (mut got, mut want) = (vec![0xaa; len + 32], vec![0xaa; len + 32]);
                    want[to..to + len].copy_from_slice(&source[from..from + len]);
                    // SAFETY: both vectors are longer than the ranges.
                    unsafe { copy(source.as_ptr().add(from), got.as_mut_ptr().add(to), len) };
                    assert_eq!(got, want, "{len} bytes from {from} to {to}");
                    // Within one, which overlaps.
                    let mut want = source.clone();
                    want.copy_within(from..from + len, to);
                    let mut got = source.clone();
                    let base = got.as_mut_ptr();
                    // SAFETY: as above.
                    unsafe { copy(base.add(from), base.add(to), len) };
                    assert_eq!(got, want, "{len} bytes from {from} to {to} within");
                    got[to..to + len].fill(0x5c);
                    let mut filled = want;
                    // SAFETY: as above.
                    unsafe { fill(filled.as_mut_ptr().add(to), len, 0x5c) };
                    assert_eq!(filled, got);
                }
            }
        }
    }

    fn words<const N: usize>() {
        let source = pattern(N * 4 + 8);
        for at in [0, 1, 4] {
            let want: [u32; N] =
                std::array::from_fn(|n| u32::from_ne_bytes(source[at + n * 4..][..4].try_into().unwrap()));
            // SAFETY: the vectors are longer than the array.
            unsafe {
                assert_eq!(load::<N>(source.as_ptr().add(at)), want);
                assert_eq!(atomic::load::<N>(source.as_ptr().add(at)), want);
                let (mut a, mut b) = (vec![0u8; N * 4 + 8], vec![0u8; N * 4 + 8]);
                store(&want, a.as_mut_ptr().add(at));
                atomic::store(&want, b.as_mut_ptr().add(at));
                assert_eq!(
                    (&a[at..at + N * 4], &b[at..at + N * 4]),
                    (&source[at..at + N * 4], &source[at..at + N * 4])
                );
                assert_eq!((a[at + N * 4], b[at + N * 4]), (0, 0));
            }
        }
    }

    #[test]
    fn entries_go_in_and_out_word_by_word() {
        words::<1>();
        words::<2>();
        words::<3>();
        words::<4>();
        words::<7>();
        words::<16>();
    }
}
