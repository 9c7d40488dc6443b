//! The time-stamp counter, raw. `nearside-clock` turns it into nanoseconds.

/// The counter. Only differences mean something, and only where [`is_steady`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn read() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 and touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The counter. Only differences mean something, and only where [`is_steady`].
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn read() -> u64 {
    let ticks: u64;
    // SAFETY: the virtual counter may be read in user mode on Linux and touches no memory.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// The counter. Only differences mean something, and only where [`is_steady`].
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn read() -> u64 {
    0
}

/// Whether the counter runs at one rate in all power states and agrees between cores (x86: CPUID 8000_0007h
/// EDX bit 8, invariant TSC).
pub fn is_steady() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        #[allow(unused_unsafe, reason = "a safe function from Rust 1.94 on, an unsafe one before")]
        // SAFETY: CPUID exists on every x86-64.
        unsafe {
            __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        cfg!(target_arch = "aarch64")
    }
}
