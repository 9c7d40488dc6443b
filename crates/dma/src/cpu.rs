//! Which core a thread runs on, and what CPU time it has used: the load generator's view of the machine.

use std::cell::Cell;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::os::unix::thread::JoinHandleExt;
use std::process::{Child, ExitStatus};
use std::sync::OnceLock;
use std::thread::JoinHandle;

/// A CPU clock of the scheduler: how long a thread, or the process, has run so far, user and system time
/// together, in nanoseconds. (getrusage(2) brings its sums up to date at ticks only, steps of 1 to 10 ms, and
/// splits them by what each tick met.)
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// The process's, threads that have ended included.
    pub fn process() -> CpuClock {
        CpuClock(libc::CLOCK_PROCESS_CPUTIME_ID)
    }

    /// Another thread's, for as long as it runs (pthread_getcpuclockid).
    ///
    /// # Errors
    /// Those of pthread_getcpuclockid(3).
    pub fn of<T>(thread: &JoinHandle<T>) -> io::Result<CpuClock> {
        let mut id = 0;
        // SAFETY: a thread that nobody has joined yet keeps its handle valid; the clock's id is owned here.
        match unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t() as libc::pthread_t, &mut id) } {
            0 => Ok(CpuClock(id)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Nanoseconds so far.
    ///
    /// # Errors
    /// Those of clock_gettime(2): the thread has ended.
    pub fn now_ns(self) -> io::Result<u64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: clock_gettime writes one timespec, owned here.
        if unsafe { libc::clock_gettime(self.0, &mut time) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// CPU time of the calling thread in nanoseconds (CLOCK_THREAD_CPUTIME_ID).
///
/// # Errors
/// Those of clock_gettime(2).
pub fn thread_cpu_ns() -> io::Result<u64> {
    CpuClock(libc::CLOCK_THREAD_CPUTIME_ID).now_ns()
}

thread_local! {
    /// What other threads have done for this one.
    static ELSEWHERE: Cell<u64> = const { Cell::new(0) };
}

/// CPU time that another thread has used for the calling one, in nanoseconds: it is its
/// [work](thread_work_ns).
pub fn worked_elsewhere(ns: u64) {
    ELSEWHERE.with(|all| all.set(all.get().saturating_add(ns)));
}

/// CPU time in nanoseconds of the calling thread's work, what was [done elsewhere](worked_elsewhere) for it
/// included; where the system does not say it, that alone.
pub fn thread_work_ns() -> u64 {
    thread_cpu_ns().unwrap_or(0).saturating_add(ELSEWHERE.get())
}

/// The least time in nanoseconds that two readings of a thread's CPU clock tell apart on this machine: the
/// median distance of readings in a row, so what one of them takes, or the clock's step where that is longer.
/// Found once.
pub fn cpu_clock_resolution_ns() -> u64 {
    static FOUND: OnceLock<u64> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // Where the clock moves in steps, readings that see none are left out.
        let mut steps = Vec::with_capacity(101);
        let mut last = thread_cpu_ns().unwrap_or(0);
        for _ in 0..100_000 {
            let now = thread_cpu_ns().unwrap_or(0);
            if now > last {
                steps.push(now - last);
            }
            last = now;
            if steps.len() == 101 {
                break;
            }
        }
        steps.sort_unstable();
        steps.get(steps.len() / 2).copied().unwrap_or(u64::MAX)
    })
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

/// Page faults of a thread (getrusage).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Those that waited for a device.
    pub major: u64,
    /// Those that did not.
    pub minor: u64,
}

impl Faults {
    /// What came since.
    #[must_use]
    pub fn since(self, before: Faults) -> Faults {
        Faults { major: self.major.wrapping_sub(before.major), minor: self.minor.wrapping_sub(before.minor) }
    }
}

/// The page faults of the calling thread so far (getrusage, RUSAGE_THREAD).
///
/// # Errors
/// Those of getrusage(2).
pub fn thread_faults() -> io::Result<Faults> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage writes one rusage, owned here.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, which is valid for a struct of integers, and then written.
    let usage = unsafe { usage.assume_init() };
    let count = |n| u64::try_from(n).unwrap_or(0);
    Ok(Faults { major: count(usage.ru_majflt), minor: count(usage.ru_minflt) })
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

/// How many cores the machine may have, those that are off or not there yet counted.
///
/// # Errors
/// The system's, or `InvalidData` where it does not say so.
pub fn possible_cores() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    listed(text.trim()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("cores {text:?}")))
}

/// Of a list as "0-3,8", how many it has.
fn listed(list: &str) -> Option<usize> {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').try_fold(0usize, |sum, part| sum.checked_add(count(part)?))
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
    // SAFETY: all of it are integers. Of which there are more in musl's: a priority of 0, and nothing else.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads one sched_param, owned here; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets threads that others wait for go before the calling one, by a nice value 10 higher: where both want a
/// core, it has about a tenth of it. A system that does not allow it leaves it as it is.
pub fn be_behind() {
    let _ = rustix::process::nice(10);
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
    fn a_list_of_cores_is_counted() {
        assert_eq!([listed("0"), listed("0-1"), listed("0-3,8,10-11")], [Some(1), Some(2), Some(7)]);
        assert_eq!([listed(""), listed("3-1"), listed("a"), listed("0-18446744073709551615,1")], [None; 4]);
        assert!(possible_cores().unwrap() >= allowed_cores().unwrap().len());
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
        let (go, told) = std::sync::mpsc::channel();
        let idle = std::thread::spawn(move || told.recv());
        let clock = CpuClock::of(&idle).unwrap();
        // The process first: what is taken from a thread between two readings counts as its time.
        let (process, before) = (CpuClock::process().now_ns().unwrap(), thread_cpu_ns().unwrap());
        let mut sum = 0u64;
        while thread_cpu_ns().unwrap() < before + 3_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(CpuClock::process().now_ns().unwrap() >= process + 3_000_000);
        assert!(clock.now_ns().unwrap() < thread_cpu_ns().unwrap() - before);
        go.send(()).unwrap();
        idle.join().unwrap().unwrap();
        assert!(clock.now_ns().is_err());
    }

    /// The counter that stood here before moved at ticks: a thread that worked for a tenth of one had used
    /// nothing, or a whole one.
    #[test]
    fn short_work_is_told_from_none() {
        let resolution = cpu_clock_resolution_ns();
        let begin = thread_cpu_ns().unwrap();
        let mut last = begin;
        let mut steps = 0;
        while last < begin + 1_000_000 {
            let now = thread_cpu_ns().unwrap();
            steps += u32::from(now > last);
            last = now;
        }
        assert!(resolution < 100_000 && steps > 10, "{steps} steps in a millisecond; {resolution} ns");
    }
}
