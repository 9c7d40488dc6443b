//! Which completion path a command takes, and how long it may spin:
//! pure decisions over (operation, size, history, now).
//!
//! FAST'12 measures two paths and proposes a third policy over both (section 4): "the synchronous path is the
//! fast path for small transfers and often used, whereas the asynchronous path is the slow fallback path for
//! large transfers or hardware stalls". What makes a transfer large is the time that it takes, so the hybrid
//! keeps, for each operation and each power of two of bytes, the mean response time with its deviation.
//! (Linux had a hybrid polling from 4.10 to 6.3 with such buckets; it slept half the mean, which is too
//! little for steady devices and too much for unsteady ones.) Three zones follow from the mean `m` and from
//! what a sleep costs here (`wake_ns`, learned):
//!
//! - `m` up to one and a half wake-ups: **spin at once**. Sleeping would end after the completion. So it
//!   does up to 25 us: a sleep takes up to 15 us of CPU time itself. But what a wake-up costs is learned by
//!   sleeping only: one command in 256 sleeps a little, so that a first guess that is too long, or a time at
//!   which cores were busy, does not keep it spinning for ever.
//! - up to twenty wake-ups: **sleep, then poll**. It sleeps `m` less two deviations, less the
//!   expected oversleep, times a factor that adapts by the outcome alone, as in PAS, the sleeping
//!   part of DPAS (FAST'26): woke after the completion, and the factor shrinks by a fifth; woke
//!   before, and it grows by a fiftieth. The rest is spun.
//! - beyond: **the asynchronous path**; the wake-up is less than a twentieth of the whole.
//!
//! **A stall** is a command that outlasts its spin budget: then the caller arms the interrupt and sleeps. The
//! budget is four times the mean but at least one wake-up, so that a stall never costs more than twice what
//! knowing it beforehand would have. A stall does not move the mean (it would push the next commands to the
//! wrong zone) unless four come in a row. A bucket unused for a second is asked anew: rare commands have no
//! history, and spin only a small default.

use nearside_clock::Nanos;

use crate::command::CommandKind;

/// How completions are awaited. Switchable while commands are out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Always the synchronous path: spin until done.
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
/// A bucket unused for so long is asked anew.
const STALE_NS: u64 = 1_000_000_000;
/// Sleeps shorter than this are not worth their two context switches.
const MIN_SLEEP_NS: u64 = 5_000;
/// One command in so many sleeps where the others spin, if it is expected to take [`WORTH_NS`] at least.
const EXPLORE: u64 = 256;
/// Less than this is spun everywhere: to fall asleep and to wake up takes up to 15 us of CPU time.
const WORTH_NS: u64 = 25_000;
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
    /// Of 1000: how much of the computed sleep is slept.
    factor: u16,
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
}

/// How a timed sleep before polling went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slept {
    /// Asked for.
    pub asked_ns: u64,
    /// What it became.
    pub took_ns: u64,
    /// The completion was there already.
    pub late: bool,
}

impl Default for History {
    fn default() -> Self {
        History::new(30_000)
    }
}

impl History {
    /// Nothing known but a first guess of what a wake-up costs, in nanoseconds.
    pub fn new(wake_ns: u64) -> History {
        let fresh =
            Bucket { samples: 0, mean_ns: 0, deviation_ns: 0, last: Nanos(0), outliers: 0, factor: 900 };
        History { buckets: [[fresh; SIZES]; 4], wake_ns: wake_ns.max(1) }
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
        let b = &mut self.buckets[kind as usize][size_bucket(bytes)];
        let fresh = b.samples == 0 || now.since(b.last) >= STALE_NS;
        b.last = now;
        if fresh {
            (b.samples, b.mean_ns, b.deviation_ns, b.outliers) = (1, latency_ns, latency_ns / 4, 0);
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
    }

    /// Takes in how a sleep before polling went.
    pub fn slept(&mut self, kind: CommandKind, bytes: usize, slept: Slept) {
        let b = &mut self.buckets[kind as usize][size_bucket(bytes)];
        b.factor = if slept.late { (b.factor - b.factor / 5).max(100) } else { (b.factor + 20).min(1000) };
        self.learn_wake(slept.took_ns.saturating_sub(slept.asked_ns));
    }

    /// Takes in what one wake-up cost.
    pub fn learn_wake(&mut self, ns: u64) {
        // Bounded: a wake-up that met a busy core says nothing of the next.
        let ns = ns.clamp(1_000, 200_000);
        self.wake_ns = (self.wake_ns * 15 + ns) / 16;
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
            Policy::Polled => Plan { path: Path::Synchronous, sleep_ns: 0, spin_budget_ns: FOREVER },
            Policy::Interrupt => Plan { path: Path::Asynchronous, sleep_ns: 0, spin_budget_ns: 0 },
            Policy::Hybrid => self.hybrid(kind, bytes, now),
        }
    }

    fn hybrid(&self, kind: CommandKind, bytes: usize, now: Nanos) -> Plan {
        let spin = |sleep_ns, spin_budget_ns| Plan { path: Path::Synchronous, sleep_ns, spin_budget_ns };
        let Some((mean, deviation)) = self.expected(kind, bytes, now) else {
            // One wake-up, and a nanosecond per byte: what memory would take several times over.
            return spin(0, self.wake_ns.saturating_add(bytes as u64));
        };
        let budget = mean.saturating_mul(4).max(self.wake_ns);
        if mean <= (self.wake_ns.saturating_mul(3) / 2).max(WORTH_NS) {
            let explores = mean > WORTH_NS && self.bucket(kind, bytes).samples % EXPLORE == EXPLORE - 1;
            return spin(if explores { mean / 4 } else { 0 }, budget);
        }
        if mean > self.wake_ns.saturating_mul(20) {
            return Plan { path: Path::Asynchronous, sleep_ns: 0, spin_budget_ns: 0 };
        }
        let room = mean.saturating_sub(deviation.saturating_mul(2)).saturating_sub(self.wake_ns);
        let sleep = room.saturating_mul(u64::from(self.bucket(kind, bytes).factor)) / 1000;
        spin(if sleep < MIN_SLEEP_NS { 0 } else { sleep }, budget)
    }
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn three_zones() {
        let mut history = History::new(20_000);
        let now = after(&mut history, CommandKind::Read, 4096, &[1_000; 50]);
        assert_eq!(
            history.decide(Policy::Hybrid, CommandKind::Read, 4096, now),
            Plan { path: Path::Synchronous, sleep_ns: 0, spin_budget_ns: 20_000 }
        );
        let now = after(&mut history, CommandKind::Read, 65536, &[200_000; 50]);
        let plan = history.decide(Policy::Hybrid, CommandKind::Read, 65536, now);
        assert_eq!(plan.path, Path::Synchronous);
        assert!((100_000..180_000).contains(&plan.sleep_ns), "{plan:?}");
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
    fn oversleeping_shortens_the_sleep_and_undersleeping_lengthens_it() {
        let mut history = History::new(20_000);
        let now = after(&mut history, CommandKind::Write, 65536, &[150_000; 50]);
        let sleep = |h: &History| h.decide(Policy::Hybrid, CommandKind::Write, 65536, now).sleep_ns;
        let first = sleep(&history);
        history.slept(
            CommandKind::Write,
            65536,
            Slept { asked_ns: first, took_ns: first + 20_000, late: true },
        );
        let shorter = sleep(&history);
        assert!(shorter < first);
        for _ in 0..50 {
            history.slept(
                CommandKind::Write,
                65536,
                Slept { asked_ns: first, took_ns: first + 20_000, late: false },
            );
        }
        assert!(sleep(&history) > shorter);
    }

    #[test]
    fn a_wake_up_that_was_taken_for_costly_is_tried_again() {
        // How many of 20,000 commands sleep where each takes 40 us, after a first guess of 30 us for a
        // wake-up.
        let slept = |wake_ns: u64| {
            let mut history = History::new(30_000);
            let mut slept = 0;
            for _ in 0..20_000 {
                let now = after(&mut history, CommandKind::Read, 4096, &[40_000]);
                let asked_ns = history.decide(Policy::Hybrid, CommandKind::Read, 4096, now).sleep_ns;
                if asked_ns > 0 {
                    slept += 1;
                    let took_ns = asked_ns + wake_ns;
                    let late = took_ns > 40_000;
                    history.slept(CommandKind::Read, 4096, Slept { asked_ns, took_ns, late });
                }
            }
            (slept, history.wake_ns())
        };
        let (often, learned) = slept(8_000);
        assert!(often > 10_000 && learned < 10_000, "{often} slept, {learned} ns");
        // Where it is costly indeed, nearly all go on spinning.
        let (seldom, _) = slept(60_000);
        assert!((1..=20_000 / EXPLORE).contains(&seldom), "{seldom}");
        // Nor is it tried with what takes a few microseconds only, however short a wake-up is.
        let mut history = History::new(1_000);
        for latency_ns in [3_000, 10_000, 24_000] {
            for _ in 0..1_000 {
                let now = after(&mut history, CommandKind::Read, 512, &[latency_ns]);
                assert_eq!(history.decide(Policy::Hybrid, CommandKind::Read, 512, now).sleep_ns, 0);
            }
        }
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
