//! Waiting on a CPU for a short while: the CPU's own pause, and its timed waits on a cache line where it has
//! them.
//!
//! A spinning waiter alternates looks at a word with a pause. `pause` costs 20 to 150 ns and tells a sibling
//! thread that it may have the core. Intel's WAITPKG (UMONITOR and UMWAIT, TPAUSE) and AMD's MONITORX with
//! MWAITX go further: the core rests in a light sleep state until the watched line is written or a deadline
//! of the time-stamp counter has passed (FAST'12, 3.4: "a device driver using synchronous completion can
//! directly construct its spin-wait loop using instructions with power-state hints, such as mwait"). All work
//! in user mode where CPUID shows them.

use std::sync::OnceLock;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Region;

/// How this CPU waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// PAUSE (or the architecture's like of it) between looks.
    Pause,
    /// UMONITOR and UMWAIT on the line.
    Umwait,
    /// MONITORX and MWAITX on the line.
    Mwaitx,
}

impl WaitKind {
    /// What this CPU offers, asked once. Neither is used where the counter is not steady, since deadlines are
    /// its ticks.
    pub fn detect() -> WaitKind {
        static KIND: OnceLock<WaitKind> = OnceLock::new();
        *KIND.get_or_init(detect)
    }

    /// The instruction's name.
    pub fn name(self) -> &'static str {
        match self {
            WaitKind::Pause => "pause",
            WaitKind::Umwait => "umwait",
            WaitKind::Mwaitx => "mwaitx",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> WaitKind {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if !crate::tsc::is_steady() {
        return WaitKind::Pause;
    }
    #[allow(unused_unsafe, reason = "safe functions from Rust 1.94 on, unsafe ones before")]
    // SAFETY: CPUID exists on every x86-64; leaves beyond the maximum are not asked.
    let (waitpkg, monitorx) = unsafe {
        (
            __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & 1 << 5 != 0,
            __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).ecx & 1 << 29 != 0,
        )
    };
    match (waitpkg, monitorx) {
        (true, _) => WaitKind::Umwait,
        (_, true) => WaitKind::Mwaitx,
        _ => WaitKind::Pause,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> WaitKind {
    WaitKind::Pause
}

/// Rests until the word at `offset` no longer reads `seen`, or some ticks of the counter have passed, or
/// (always allowed) earlier. With [`WaitKind::Pause`] this is one pause. Panics where `Region::word32` does.
#[inline]
pub fn rest(kind: WaitKind, region: &Region, offset: usize, seen: u32, ticks: u32) {
    let word = region.word32(offset);
    match kind {
        WaitKind::Pause => std::hint::spin_loop(),
        #[cfg(target_arch = "x86_64")]
        WaitKind::Umwait => umwait(word, seen, ticks),
        #[cfg(target_arch = "x86_64")]
        WaitKind::Mwaitx => mwaitx(word, seen, ticks),
        #[cfg(not(target_arch = "x86_64"))]
        _ => {
            let _ = (word, seen, ticks);
            std::hint::spin_loop()
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn umwait(word: &AtomicU32, seen: u32, ticks: u32) {
    let deadline = crate::tsc::read().wrapping_add(u64::from(ticks));
    // SAFETY: only called where CPUID shows WAITPKG (`detect`). UMONITOR reads one byte of valid memory; the
    // value is looked at again between monitor and wait, so a write before the monitor is not missed. Control
    // 1 asks for C0.1, from which the core is back soonest.
    unsafe {
        std::arch::asm!("umonitor {}", in(reg) word.as_ptr(), options(nostack, preserves_flags));
        if word.load(Ordering::Acquire) == seen {
            std::arch::asm!("umwait {:e}", in(reg) 1u32, in("edx") (deadline >> 32) as u32, in("eax") deadline as u32, options(nostack));
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn mwaitx(word: &AtomicU32, seen: u32, ticks: u32) {
    // SAFETY: only called where CPUID shows MONITORX (`detect`). As in `umwait`; EBX, which LLVM keeps for
    // itself, is saved around. ECX bit 1 turns the timer on, EBX is its length in ticks; EAX F0h asks for C0,
    // no deeper state.
    unsafe {
        std::arch::asm!("monitorx", in("rax") word.as_ptr(), in("ecx") 0u32, in("edx") 0u32, options(nostack, preserves_flags));
        if word.load(Ordering::Acquire) == seen {
            std::arch::asm!(
                "xchg {t:r}, rbx",
                "mwaitx",
                "xchg {t:r}, rbx",
                t = inout(reg) u64::from(ticks) => _,
                in("eax") 0xf0u32,
                in("ecx") 2u32,
                options(nostack)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_comes_back() {
        let region = Region::anonymous(4096).unwrap();
        for kind in [WaitKind::Pause, WaitKind::detect()] {
            rest(kind, &region, 64, 0, 2000);
            rest(kind, &region, 64, 1, u32::MAX);
        }
    }
}
