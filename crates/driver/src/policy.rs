//! Which completion path a command takes, and how long it may spin:
//! pure decisions over (operation, size, history, now).
//!
//! FAST'12 measures two paths and proposes a third policy over both (section 4): "the synchronous path is the
//! fast path for small transfers and often used, whereas the asynchronous path is the slow fallback path for
//! large transfers or hardware stalls". What makes a transfer large is the time that it takes, so the hybrid
//! keeps, for each operation and each power of two of bytes, the mean response time with its deviation.
//! (Linux had a hybrid polling from 4.10 to 6.3 with such buckets; it slept half the mean, which is too
//! little for steady devices and too much for unsteady ones.) Three zones follow:
//!
//! - **Spin at once**, where a sleep is not worth it: it would end after the completion, or take two thirds
//!   of the CPU time that spinning takes. Both are found by sleeping: by outcomes, and by the thread's CPU
//!   time over some of the sleeps (to fall asleep and to wake up takes 3 us on one machine and 15 us on
//!   another). So it is tried again, but after ever more commands, 4096 at last. Below 5 us it is not tried.
//! - **Sleep, then poll**, where it is. How long is found by outcomes alone, as in PAS, the sleeping part of
//!   DPAS (FAST'26); the module `sleep` has the rule. The rest is spun.
//! - **The asynchronous path**, where the mean is more than 32 wake-ups: then one adds a thirtieth. What a
//!   wake-up costs is the median of what sleeps took longer than asked, so that some that met a busy core
//!   do not count for more than others.
//!
//! **A stall** is a command that outlasts its spin budget: then the caller arms the interrupt and sleeps. The
//! budget is four times the mean but at least one wake-up, so that a stall never costs more than twice what
//! knowing it beforehand would have. A stall does not move the mean (it would push the next commands to the
//! wrong zone) unless four come in a row. A bucket unused for a second is asked anew: rare commands have no
//! history, and spin only a small default.

use nearside_clock::Nanos;

use crate::command::CommandKind;
use crate::sleep::Sleep;
pub use crate::sleep::Slept;

/// How completions are awaited. Switchable while commands are out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Always the synchronous path: spin until done; of a near-data command, which may take an hour, for
    /// [`NEAR_DATA_SPIN_NS`].
    Polled,
    /// Always the asynchronous path.
    Interrupt,
    /// Whichever costs less, by history.
    #[default]
    Hybrid,
}

impl Policy {
    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Polled => "polled",
            Policy::Interrupt => "interrupt",
            Policy::Hybrid => "hybrid",
        }
    }
}

impl std::str::FromStr for Policy {
    type Err = String;
    fn from_str(s: &str) -> Result<Policy, String> {
        [Policy::Polled, Policy::Interrupt, Policy::Hybrid]
            .into_iter()
            .find(|p| p.name() == s)
            .ok_or_else(|| format!("{s:?} is none of polled, interrupt, hybrid"))
    }
}

/// FAST'12's two paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Within the caller: build, ring, spin.
    Synchronous,
    /// Request queue, submission context, interrupt, handler, wake-up.
    Asynchronous,
}

/// What to do with one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The way it takes.
    pub path: Path,
    /// Nanoseconds to sleep after submission before spinning (synchronous path).
    pub sleep_ns: u64,
    /// Nanoseconds of spinning after which it is a stall; `u64::MAX`: never.
    pub spin_budget_ns: u64,
}

/// A spin without end.
pub const FOREVER: u64 = u64::MAX;
/// So long who polls spins for a near-data command, and sleeps between looks from then on: a wake-up is a
/// small part of what it takes longer, and the core is the host's, or that of a drive beside it.
pub const NEAR_DATA_SPIN_NS: u64 = 1_000_000;
/// A bucket unused for so long is asked anew.
const STALE_NS: u64 = 1_000_000_000;
/// Of what takes less in the mean no sleep is tried: one that is late would show in it.
const WORTH_TRYING_NS: u64 = 5_000;
/// Of so many sleeps one has its CPU time measured.
const CPU_MEASURED: u64 = 16;
/// Of more wake-ups than these, the asynchronous path.
const ASYNCHRONOUS_WAKES: u64 = 32;
/// Size buckets: 512 B and less, then each power of two, to 1 MiB and more.
pub const SIZES: usize = 12;

/// Which size bucket holds `bytes`.
#[inline]
pub fn size_bucket(bytes: usize) -> usize {
    let log2 = usize::BITS - bytes.saturating_sub(1).leading_zeros();
    (log2.saturating_sub(9) as usize).min(SIZES - 1)
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    samples: u64,
    mean_ns: u64,
    deviation_ns: u64,
    last: Nanos,
    outliers: u8,
    sleep: Sleep,
}

/// What the driver expects of a command of some kind and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// What it would do now.
    pub plan: Plan,
    /// Mean response time in nanoseconds, where there is a recent history.
    pub latency_ns: Option<u64>,
    /// Its mean deviation.
    pub deviation_ns: Option<u64>,
}

/// What one thread knows of its device's response times.
#[derive(Clone, Debug)]
pub struct History {
    buckets: [[Bucket; SIZES]; 4],
    wake_ns: u64,
    /// CPU time of a sleep in nanoseconds, as learned; 0: not known.
    sleep_cpu_ns: u64,
    /// Sleeps so far.
    sleeps: u64,
}

impl Default for History {
    fn default() -> Self {
        History::new(30_000)
    }
}

impl History {
    /// Nothing known but a first guess of what a wake-up costs, in nanoseconds.
    pub fn new(wake_ns: u64) -> History {
        let fresh = Bucket {
            samples: 0,
            mean_ns: 0,
            deviation_ns: 0,
            last: Nanos(0),
            outliers: 0,
            sleep: Sleep::new(),
        };
        History { buckets: [[fresh; SIZES]; 4], wake_ns: wake_ns.max(1), sleep_cpu_ns: 0, sleeps: 0 }
    }

    /// What a wake-up from sleep costs in response time, as learned.
    pub fn wake_ns(&self) -> u64 {
        self.wake_ns
    }

    fn bucket(&self, kind: CommandKind, bytes: usize) -> &Bucket {
        &self.buckets[kind as usize][size_bucket(bytes)]
    }

    /// Mean and mean deviation of the response time, where known and recent.
    pub fn expected(&self, kind: CommandKind, bytes: usize, now: Nanos) -> Option<(u64, u64)> {
        let b = self.bucket(kind, bytes);
        (b.samples > 0 && now.since(b.last) < STALE_NS).then_some((b.mean_ns, b.deviation_ns))
    }

    /// Takes in a response time. `exact` is false where the caller looked late,
    /// so that it is only an upper bound.
    pub fn record(&mut self, kind: CommandKind, bytes: usize, latency_ns: u64, exact: bool, now: Nanos) {
        let wake_ns = self.wake_ns;
        let b = &mut self.buckets[kind as usize][size_bucket(bytes)];
        let fresh = b.samples == 0 || now.since(b.last) >= STALE_NS;
        b.last = now;
        let over_ns = b.sleep.ended();
        if fresh {
            (b.samples, b.mean_ns, b.deviation_ns, b.outliers) = (1, latency_ns, latency_ns / 4, 0);
            b.sleep.anew(latency_ns);
            return;
        }
        if !exact && latency_ns > b.mean_ns {
            return;
        }
        b.samples += 1;
        if latency_ns > b.mean_ns.saturating_mul(8).max(1_000) && b.outliers < 3 {
            b.outliers += 1;
            return;
        }
        if b.outliers == 3 && latency_ns > b.mean_ns.saturating_mul(8) {
            // The fourth in a row: this is how the device is now.
            (b.mean_ns, b.deviation_ns, b.outliers) = (latency_ns, latency_ns / 4, 0);
            return;
        }
        b.outliers = 0;
        let off = latency_ns.abs_diff(b.mean_ns);
        // Rounded away from zero, so that small means do not stick.
        b.mean_ns =
            if latency_ns > b.mean_ns { b.mean_ns + off.div_ceil(8) } else { b.mean_ns - off.div_ceil(8) };
        b.deviation_ns = (b.deviation_ns * 7 + off) / 8;
        if exact {
            b.sleep.completed(latency_ns, over_ns, wake_ns, b.mean_ns);
        }
    }

    /// Whether the CPU time of the next sleep should be measured. Not of each: it takes two system calls.
    pub fn measures_cpu(&self, kind: CommandKind, bytes: usize) -> bool {
        self.sleeps.is_multiple_of(CPU_MEASURED) || self.bucket(kind, bytes).sleep.is_try()
    }

    /// Takes in how a sleep before polling went.
    pub fn slept(&mut self, kind: CommandKind, bytes: usize, slept: Slept) {
        self.sleeps += 1;
        self.learn_wake(slept.over_ns());
        if let Some(cpu_ns) = slept.cpu_ns {
            self.learn_cpu(cpu_ns.min(slept.took_ns));
        }
        let b = &mut self.buckets[kind as usize][size_bucket(bytes)];
        // Two thirds: with what is spun after it, nothing is left to save.
        let worth = b.mean_ns >= self.sleep_cpu_ns.saturating_mul(3) / 2;
        b.sleep.slept(slept, b.mean_ns, worth);
    }

    /// Takes in what one wake-up cost.
    pub fn learn_wake(&mut self, ns: u64) {
        // A step towards it, however far it is: this comes to their median.
        let step = (self.wake_ns / 16 + 1).min(ns.abs_diff(self.wake_ns));
        let next = if ns > self.wake_ns { self.wake_ns + step } else { self.wake_ns - step };
        self.wake_ns = next.clamp(1_000, 200_000);
    }

    /// Takes in what CPU time one sleep took.
    fn learn_cpu(&mut self, ns: u64) {
        // What comes beside it only ever adds: the lesser ones count for more.
        let learned = self.sleep_cpu_ns;
        self.sleep_cpu_ns = match learned {
            0 => ns,
            _ if ns > learned => learned + (ns - learned).min(learned) / 8,
            _ => learned - (learned - ns) / 2,
        };
    }

    /// What to expect of a command.
    pub fn expectation(&self, policy: Policy, kind: CommandKind, bytes: usize, now: Nanos) -> Expectation {
        let expected = self.expected(kind, bytes, now);
        Expectation {
            plan: self.decide(policy, kind, bytes, now),
            latency_ns: expected.map(|e| e.0),
            deviation_ns: expected.map(|e| e.1),
        }
    }

    /// The decision.
    pub fn decide(&self, policy: Policy, kind: CommandKind, bytes: usize, now: Nanos) -> Plan {
        match policy {
            Policy::Polled => {
                let spin_budget_ns = if kind == CommandKind::NearData { NEAR_DATA_SPIN_NS } else { FOREVER };
                Plan { path: Path::Synchronous, sleep_ns: 0, spin_budget_ns }
            }
            Policy::Interrupt => Plan { path: Path::Asynchronous, sleep_ns: 0, spin_budget_ns: 0 },
            Policy::Hybrid => self.hybrid(kind, bytes, now),
        }
    }

    fn hybrid(&self, kind: CommandKind, bytes: usize, now: Nanos) -> Plan {
        let spin = |sleep_ns, spin_budget_ns| Plan { path: Path::Synchronous, sleep_ns, spin_budget_ns };
        let Some((mean, _)) = self.expected(kind, bytes, now) else {
            // One wake-up, and a nanosecond per byte: what memory would take several times over.
            return spin(0, self.wake_ns.saturating_add(bytes as u64));
        };
        let budget = mean.saturating_mul(4).max(self.wake_ns);
        if mean > self.wake_ns.saturating_mul(ASYNCHRONOUS_WAKES) {
            return Plan { path: Path::Asynchronous, sleep_ns: 0, spin_budget_ns: 0 };
        }
        let tried = mean >= WORTH_TRYING_NS;
        spin(if tried { self.bucket(kind, bytes).sleep.next_ns().min(mean) } else { 0 }, budget)
    }
}

#[cfg(test)]
mod tests {
    use nearside_random::Random;

    use super::*;

    fn after(history: &mut History, kind: CommandKind, bytes: usize, latencies: &[u64]) -> Nanos {
        let mut now = Nanos(1_000_000);
        for &l in latencies {
            now = now + l;
            history.record(kind, bytes, l, true, now);
        }
        now
    }

    #[test]
    fn buckets() {
        assert_eq!(size_bucket(0), 0);
        assert_eq!(size_bucket(512), 0);
        assert_eq!(size_bucket(513), 1);
        assert_eq!(size_bucket(4096), 3);
        assert_eq!(size_bucket(1 << 20), 11);
        assert_eq!(size_bucket(usize::MAX), 11);
        assert!((0..SIZES).all(|b| size_bucket(512 << b) == b));
    }

    #[test]
    fn polled_and_interrupt_do_not_look_at_history() {
        let mut history = History::new(20_000);
        let now = after(&mut history, CommandKind::Read, 4096, &[1_000_000_000; 3]);
        assert_eq!(history.decide(Policy::Polled, CommandKind::Read, 4096, now).spin_budget_ns, FOREVER);
        assert_eq!(history.decide(Policy::Interrupt, CommandKind::Read, 512, now).path, Path::Asynchronous);
        let near_data = history.decide(Policy::Polled, CommandKind::NearData, 4096, now);
        assert_eq!((near_data.path, near_data.spin_budget_ns), (Path::Synchronous, NEAR_DATA_SPIN_NS));
    }

    /// What became of some reads of 4 KiB.
    #[derive(Clone, Copy, Debug, Default)]
    struct Went {
        slept: u32,
        late: u32,
        /// What spinning took, in the mean.
        spun_ns: u64,
        /// What the reads took longer than the device, in the mean.
        later_ns: u64,
    }

    /// A machine: what a sleep takes more than asked at least, and at most; its CPU time.
    #[derive(Clone, Copy, Debug)]
    struct Machine {
        over_ns: [u64; 2],
        cpu_ns: u64,
    }

    impl Machine {
        fn new(over_ns: u64) -> Machine {
            Machine { over_ns: [over_ns; 2], cpu_ns: 2_800 }
        }
    }

    /// So many reads, of `device_ns` and up to a tenth more or less.
    fn reads(history: &mut History, count: u32, device_ns: u64, machine: Machine) -> Went {
        let mut random = Random::new(device_ns);
        let mut went = Went::default();
        let (mut spun_ns, mut later_ns) = (0, 0);
        let mut now = history.bucket(CommandKind::Read, 4096).last;
        for _ in 0..count {
            let takes_ns = device_ns - device_ns / 10 + random.below(device_ns / 5 + 1);
            let plan = history.decide(Policy::Hybrid, CommandKind::Read, 4096, now);
            assert_eq!(plan.path, Path::Synchronous, "{history:?}");
            let asked_ns = plan.sleep_ns;
            let [least, most] = machine.over_ns;
            let took_ns = if asked_ns > 0 { asked_ns + least + random.below(most - least + 1) } else { 0 };
            let late = took_ns > takes_ns;
            let latency_ns = takes_ns.max(took_ns);
            now = now + latency_ns;
            if asked_ns > 0 {
                let cpu_ns = history.measures_cpu(CommandKind::Read, 4096).then_some(machine.cpu_ns);
                history.slept(CommandKind::Read, 4096, Slept { asked_ns, took_ns, cpu_ns, late });
                went.slept += 1;
                went.late += u32::from(late);
            }
            history.record(CommandKind::Read, 4096, latency_ns, !late, now);
            spun_ns += latency_ns - took_ns;
            later_ns += latency_ns - takes_ns;
        }
        went.spun_ns = spun_ns / u64::from(count);
        went.later_ns = later_ns / u64::from(count);
        went
    }

    #[test]
    fn three_zones() {
        let mut history = History::new(20_000);
        let now = after(&mut history, CommandKind::Read, 512, &[1_000; 50]);
        assert_eq!(
            history.decide(Policy::Hybrid, CommandKind::Read, 512, now),
            Plan { path: Path::Synchronous, sleep_ns: 0, spin_budget_ns: 20_000 }
        );
        reads(&mut history, 50, 200_000, Machine::new(20_000));
        let now = history.bucket(CommandKind::Read, 4096).last;
        let plan = history.decide(Policy::Hybrid, CommandKind::Read, 4096, now);
        assert_eq!(plan.path, Path::Synchronous);
        assert!((140_000..200_000).contains(&plan.sleep_ns), "{plan:?}");
        let now = after(&mut history, CommandKind::Read, 1 << 20, &[2_000_000; 50]);
        assert_eq!(history.decide(Policy::Hybrid, CommandKind::Read, 1 << 20, now).path, Path::Asynchronous);
        // Other operations and sizes know nothing of it.
        assert_eq!(history.decide(Policy::Hybrid, CommandKind::Write, 1 << 20, now).path, Path::Synchronous);
        // And it is forgotten.
        let later = now + 2 * STALE_NS;
        assert_eq!(history.decide(Policy::Hybrid, CommandKind::Read, 1 << 20, later).path, Path::Synchronous);
    }

    #[test]
    fn a_stall_does_not_change_the_zone_but_a_change_does() {
        let mut history = History::new(20_000);
        let now = after(&mut history, CommandKind::Read, 512, &[1_000; 50]);
        let before = history.decide(Policy::Hybrid, CommandKind::Read, 512, now);
        let now =
            after(&mut history, CommandKind::Read, 512, &[5_000_000, 1_000, 5_000_000, 5_000_000, 1_000]);
        assert_eq!(history.decide(Policy::Hybrid, CommandKind::Read, 512, now), before);
        let now = after(&mut history, CommandKind::Read, 512, &[5_000_000; 4]);
        assert_eq!(history.decide(Policy::Hybrid, CommandKind::Read, 512, now).path, Path::Asynchronous);
        let now = after(&mut history, CommandKind::Read, 512, &[1_000; 100]);
        assert_eq!(history.decide(Policy::Hybrid, CommandKind::Read, 512, now), before);
    }

    #[test]
    fn it_sleeps_until_shortly_before_the_completion_whatever_a_wake_up_costs() {
        // Also where the first guess of a wake-up is far off.
        for (guess_ns, over_ns) in
            [(1_000, 2_500), (200_000, 2_500), (30_000, 5_000), (2_000, 15_000), (5_000, 40_000)]
        {
            for device_ns in [20_000, 35_000, 50_000, 75_000, 100_000] {
                if over_ns > device_ns * 8 / 10 || device_ns > guess_ns.min(over_ns) * 30 {
                    continue;
                }
                let mut history = History::new(guess_ns);
                let machine = Machine::new(over_ns);
                let first = reads(&mut history, 32, device_ns, machine);
                let went = reads(&mut history, 1_000, device_ns, machine);
                let why = format!("{device_ns} ns, {over_ns} ns more: {first:?} {went:?}");
                assert!(first.late <= 8 && went.late <= 1_000 / 5, "{why}");
                assert!(went.slept == 1_000 && went.spun_ns < device_ns / 7, "{why}");
                assert!(went.later_ns <= device_ns / 100, "{why}");
            }
        }
    }

    #[test]
    fn a_change_of_the_mean_is_followed_within_32_commands() {
        const MEANS_NS: [u64; 5] = [100_000, 35_000, 75_000, 20_000, 50_000];
        for from_ns in MEANS_NS {
            for to_ns in MEANS_NS.into_iter().filter(|to_ns| *to_ns != from_ns) {
                for over_ns in [4_000, 12_000] {
                    let mut history = History::new(over_ns);
                    reads(&mut history, 2_000, from_ns, Machine::new(over_ns));
                    let change = reads(&mut history, 32, to_ns, Machine::new(over_ns));
                    let settled = reads(&mut history, 32, to_ns, Machine::new(over_ns));
                    let why = format!("{from_ns} to {to_ns} ns, {over_ns} ns more: {change:?} {settled:?}");
                    assert!(change.late <= 10 && settled.late <= 10, "{why}");
                    assert!(settled.spun_ns < to_ns / 4 && settled.later_ns < to_ns / 25, "{why}");
                }
            }
        }
    }

    #[test]
    fn never_more_than_a_quarter_of_the_commands_is_overslept() {
        for device_ns in [6_000, 10_000, 20_000, 35_000, 60_000, 120_000] {
            for least in [5_000, 12_000, 25_000, 38_000, 60_000] {
                for jitter in [0, 5_000, 20_000, 60_000] {
                    let mut history = History::new(10_000);
                    let machine = Machine { over_ns: [least, least + jitter], cpu_ns: 2_800 };
                    let went = reads(&mut history, 4_000, device_ns, machine);
                    assert!(went.late <= 1_000, "{device_ns} ns, {machine:?}: {went:?}");
                }
            }
        }
    }

    #[test]
    fn a_wake_up_that_was_taken_for_costly_is_tried_again() {
        let mut history = History::new(200_000);
        let cheap = Machine::new(8_000);
        let went = reads(&mut history, 1_000, 40_000, cheap);
        assert!(went.slept > 990 && history.wake_ns() < 10_000, "{went:?}, {} ns", history.wake_ns());
        // Cores were busy for some time: each sleep is late by far, and takes more CPU time. Most are spun.
        let busy = Machine { over_ns: [1_000_000, 4_000_000], cpu_ns: 60_000 };
        let went = reads(&mut history, 500, 40_000, busy);
        assert!((1..25).contains(&went.slept), "{went:?}");
        reads(&mut history, 700, 40_000, cheap);
        let went = reads(&mut history, 1_000, 40_000, cheap);
        assert!(went.slept == 1_000 && went.late <= 200, "{went:?}");
        // Where it is costly indeed, nearly all go on spinning.
        let mut history = History::new(5_000);
        let went = reads(&mut history, 20_000, 40_000, Machine::new(60_000));
        assert!((4..=20_000 / 1_000).contains(&went.slept), "{went:?}");
        // It is not tried with what takes some microseconds only.
        let went = reads(&mut History::new(1_000), 1_000, 4_000, Machine::new(1_000));
        assert_eq!(went.slept, 0);
    }

    #[test]
    fn a_sleep_that_takes_two_thirds_of_the_cpu_time_of_spinning_is_not_worth_it() {
        let of = |cpu_ns| Machine { over_ns: [14_000; 2], cpu_ns };
        let dear = reads(&mut History::new(4_000), 20_000, 20_000, of(14_000));
        assert!((4..=20_000 / 1_000).contains(&dear.slept), "{dear:?}");
        let cheap = reads(&mut History::new(4_000), 20_000, 20_000, of(12_000));
        assert!(cheap.slept > 19_000, "{cheap:?}");
        // Dear once: it was something else.
        let mut history = History::new(4_000);
        reads(&mut history, 3, 50_000, Machine { over_ns: [60_000; 2], cpu_ns: 50_000 });
        let went = reads(&mut history, 1_000, 50_000, of(14_000));
        assert!(went.slept > 800, "{went:?}");
    }

    #[test]
    fn a_slower_device_is_worth_a_sleep_at_once() {
        let mut history = History::new(20_000);
        // Ever fewer tries by now, the next more than 1,000 commands ahead.
        let fast = reads(&mut history, 3_000, 20_000, Machine::new(40_000));
        assert!(fast.slept < 16, "{fast:?}");
        reads(&mut history, 32, 75_000, Machine::new(40_000));
        let slow = reads(&mut history, 200, 75_000, Machine::new(40_000));
        assert!(slow.slept == 200 && slow.spun_ns < 75_000 / 5, "{slow:?}");
        // And what failed long ago does not count for what fails now: it begins with short pauses again.
        reads(&mut history, 16, 20_000, Machine::new(40_000));
        let fast = reads(&mut history, 100, 20_000, Machine::new(40_000));
        assert!((2..8).contains(&fast.slept), "{fast:?}");
    }

    #[test]
    fn the_cpu_time_of_a_sleep_is_found_beneath_what_comes_beside_it() {
        let mut history = History::new(30_000);
        for nth in 0..40 {
            history.learn_cpu(if nth % 4 == 0 { 60_000 } else { 14_000 });
        }
        assert!((14_000..18_000).contains(&history.sleep_cpu_ns), "{} ns", history.sleep_cpu_ns);
        // Where it became dearer, that is learned too.
        (0..40).for_each(|_| history.learn_cpu(25_000));
        assert!((24_000..=25_000).contains(&history.sleep_cpu_ns), "{} ns", history.sleep_cpu_ns);
    }

    #[test]
    fn who_waits_some_time_after_the_submission_sleeps_too() {
        let mut history = History::new(30_000);
        let mut now = Nanos(0);
        let mut slept = 0;
        for _ in 0..200 {
            let plan = history.decide(Policy::Hybrid, CommandKind::Read, 4096, now);
            // After 20 us of something else, of 80.
            let asked_ns = plan.sleep_ns.saturating_sub(20_000);
            let took_ns = asked_ns + 10_000;
            let late = asked_ns > 0 && 20_000 + took_ns > 80_000;
            if asked_ns > 0 {
                history.slept(CommandKind::Read, 4096, Slept { asked_ns, took_ns, cpu_ns: None, late });
                slept += 1;
            }
            now = now + 80_000;
            history.record(CommandKind::Read, 4096, 80_000, !late, now);
        }
        assert!(slept > 180, "{slept}");
        let plan = history.decide(Policy::Hybrid, CommandKind::Read, 4096, now);
        assert!((60_000..75_000).contains(&plan.sleep_ns), "{plan:?}");
    }

    #[test]
    fn a_wake_up_is_the_median_of_some() {
        let mut history = History::new(200_000);
        for nth in 0..1_000 {
            // A quarter of them meets a busy core.
            history.learn_wake(if nth % 4 == 0 { 3_000_000 } else { 14_000 });
        }
        assert!((13_000..17_000).contains(&history.wake_ns()), "{}", history.wake_ns());
    }

    #[test]
    fn a_late_look_only_lowers() {
        let mut history = History::new(20_000);
        let now = after(&mut history, CommandKind::Read, 512, &[10_000; 10]);
        history.record(CommandKind::Read, 512, 900_000, false, now);
        assert_eq!(history.expected(CommandKind::Read, 512, now).unwrap().0, 10_000);
        history.record(CommandKind::Read, 512, 2_000, false, now);
        assert!(history.expected(CommandKind::Read, 512, now).unwrap().0 < 10_000);
    }
}
