//! Which core a thread runs on, and what CPU time it has used: the load generator's view of the machine.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

/// CPU time of a thread or a process, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

impl CpuTimes {
    /// What was used since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: CpuTimes) -> CpuTimes {
        CpuTimes {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    /// Both together.
    #[must_use]
    pub fn total_ns(self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

/// CPU times of the calling thread (getrusage with RUSAGE_THREAD). The kernel splits by what its accounting
/// saw: exact in sum, by ticks in the split on kernels without precise accounting.
///
/// # Errors
/// Those of getrusage(2).
pub fn thread_times() -> io::Result<CpuTimes> {
    times(libc::RUSAGE_THREAD)
}

/// CPU times of the process, threads that have ended included.
///
/// # Errors
/// Those of getrusage(2).
pub fn process_times() -> io::Result<CpuTimes> {
    times(libc::RUSAGE_SELF)
}

fn times(who: libc::c_int) -> io::Result<CpuTimes> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage writes one rusage to memory that is large enough and owned here.
    if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, which is valid for a struct of integers, and then written.
    let usage = unsafe { usage.assume_init() };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Ok(CpuTimes { user_ns: ns(usage.ru_utime), system_ns: ns(usage.ru_stime) })
}

/// Waits for a child to end; with its status the most memory that it had resident at a time, in bytes
/// (wait4). What its output pipes hold is to be read before.
///
/// # Errors
/// Those of wait4(2).
pub fn wait_with_peak(child: Child) -> io::Result<(ExitStatus, u64)> {
    let id = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let mut status = 0;
    // SAFETY: wait4 writes a status and one rusage, both owned here. `child` is taken, so nobody else waits
    // for the process.
    while unsafe { libc::wait4(id, &mut status, 0, usage.as_mut_ptr()) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroed, which is valid for a struct of integers, and then written.
    let usage = unsafe { usage.assume_init() };
    Ok((ExitStatus::from_raw(status), u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024)))
}

/// CPU time of the calling thread, user and system together, to the nanosecond (CLOCK_THREAD_CPUTIME_ID).
///
/// # Errors
/// Those of clock_gettime(2).
pub fn thread_cpu_ns() -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec, owned here.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The cores that the calling thread may run on, in order.
///
/// # Errors
/// Those of sched_getaffinity(2).
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the kernel writes at most the size given to memory of that size, owned here.
    let status =
        unsafe { libc::sched_getaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, which is a valid (empty) set, and then written.
    let set = unsafe { set.assume_init() };
    // SAFETY: CPU_ISSET reads a bit of the set; the index is below the set's size.
    let has = |core: &usize| unsafe { libc::CPU_ISSET(*core, &set) };
    Ok((0..libc::CPU_SETSIZE as usize).filter(has).collect())
}

/// Keeps the calling thread on some cores.
///
/// # Errors
/// Those of sched_setaffinity(2); a core that the set cannot name is `InvalidInput`.
pub fn pin_to_cores(cores: &[usize]) -> io::Result<()> {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    for core in cores {
        if *core >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no core {core}")));
        }
        // SAFETY: zeroed is a valid (empty) set; the index is below the set's size.
        unsafe { libc::CPU_SET(*core, &mut *set.as_mut_ptr()) };
    }
    // SAFETY: the kernel reads the set, which is initialised and of the size given.
    let status = unsafe { libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), set.as_ptr()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps the calling thread on one core.
///
/// # Errors
/// Those of [`pin_to_cores`].
pub fn pin_to_core(core: usize) -> io::Result<()> {
    pin_to_cores(&[core])
}

/// Lets every other thread of the core go before the calling one (SCHED_IDLE): it gets what time is left, and
/// is preempted at once.
///
/// # Errors
/// Those of sched_setscheduler(2).
pub fn be_idle_priority() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads one sched_param, owned here; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_on_that_core_only() {
        let cores = allowed_cores().unwrap();
        assert!(!cores.is_empty());
        std::thread::spawn(move || {
            let last = *cores.last().unwrap();
            pin_to_core(last).unwrap();
            assert_eq!(allowed_cores().unwrap(), [last]);
            pin_to_cores(&cores).unwrap();
            assert_eq!(allowed_cores().unwrap(), cores);
            assert!(pin_to_core(usize::MAX).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_childs_memory_is_known() {
        let peak = |command: &str| {
            let child = std::process::Command::new("sh").args(["-c", command]).spawn().unwrap();
            wait_with_peak(child).unwrap()
        };
        let (status, small) = peak("exit 3");
        assert_eq!(status.code(), Some(3));
        let (status, large) = peak("head -c 50000000 /dev/zero | tr '\\0' x | tail -c 50000000 > /dev/null");
        assert!(status.success());
        assert!(small > 100_000 && large >= small, "{small} {large}");
    }

    #[test]
    fn cpu_time_grows_with_work_and_belongs_to_its_thread() {
        let before = thread_cpu_ns().unwrap();
        let idle = std::thread::spawn(thread_cpu_ns);
        let mut sum = 0u64;
        while thread_cpu_ns().unwrap() < before + 3_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(process_times().unwrap().total_ns() > 0);
        assert!(
            thread_times().unwrap().total_ns() >= thread_times().unwrap().since(CpuTimes::default()).user_ns
        );
        assert!(idle.join().unwrap().unwrap() < thread_cpu_ns().unwrap());
    }
}
