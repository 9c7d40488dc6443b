//! Hints to the cache.

/// Asks for the line at `at`, by a hint that reads nothing; where it `writes`, for its own, so that no other
/// core's cache has to be asked when it is written.
#[inline(always)]
pub fn prefetch<T>(at: *const T, writes: bool) {
    #[cfg(target_arch = "x86_64")]
    if writes {
        // Without the instruction's own feature bit a processor of this architecture takes it for a no-op.
        // SAFETY: a hint never faults, and changes no byte.
        unsafe { std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly)) };
    } else {
        // SAFETY: a hint never faults, and changes no byte.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, writes);
}
