//! Ways to wait for a completion: the two paths, the hybrid, and three rules that others have used or
//! published. PAS and DPAS ("DPAS: A Prompt, Accurate and Safe I/O Completion Method for SSDs", FAST'26) are
//! made after what their authors show of them: the four update rules and the modes with their windows
//! (<https://yongsoojoo.github.io/demo/pas_sim.html>, <https://dpas-lab.pages.dev/en/dpas-intro.html>).
//! The sizes of the steps and the shortest sleep are not said there; those here are ours. The variant that
//! adapts the steps is not here, nor DPAS's interrupt mode: it is for queues deeper than the studies' one.

use nearside_clock::Nanos;
use nearside_driver::policy::{History, Path, Slept};
use nearside_driver::{CommandKind, Policy};

/// How one waits.
#[derive(Clone, Debug)]
pub enum Rule {
    /// The driver's own policies: both paths, and the hybrid.
    Own(Policy, Box<History>),
    /// Linux's hybrid polling, 4.10 to 6.3 (block/blk-mq.c):
    /// sleep half the mean time of such requests, then spin.
    HalfMean {
        /// Their mean, in nanoseconds.
        mean_ns: f64,
    },
    /// PAS (FAST'26): sleep, then spin; the next sleep by whether the last two ended too late.
    Pas(Pas),
    /// DPAS (FAST'26): PAS, or spinning alone, by what the last requests were like.
    Dpas(Dpas),
}

/// What to do with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Ask the asynchronous path.
    pub asynchronous: bool,
    /// Else sleep so long before spinning.
    pub sleep_ns: u64,
    /// Spin at most so long, then sleep until the interrupt.
    pub spin_ns: u64,
}

impl Rule {
    /// All of them, with their names. A wake-up is first guessed to cost `wake_ns`.
    pub fn all(wake_ns: u64) -> [(&'static str, Rule); 6] {
        let own = |policy| Rule::Own(policy, Box::new(History::new(wake_ns)));
        [
            ("synchronous", own(Policy::Polled)),
            ("asynchronous", own(Policy::Interrupt)),
            ("hybrid", own(Policy::Hybrid)),
            ("half the mean", Rule::HalfMean { mean_ns: 0.0 }),
            ("PAS", Rule::Pas(Pas::default())),
            ("DPAS", Rule::Dpas(Dpas::default())),
        ]
    }

    /// The driver's policy, where it is one.
    pub fn policy(&self) -> Option<Policy> {
        if let Rule::Own(policy, _) = self { Some(*policy) } else { None }
    }

    /// What to do with a read of so many bytes.
    pub fn decide(&self, bytes: usize, now: Nanos) -> Decision {
        match self {
            Rule::Own(policy, history) => {
                let plan = history.decide(*policy, CommandKind::Read, bytes, now);
                let asynchronous = plan.path == Path::Asynchronous;
                Decision { asynchronous, sleep_ns: plan.sleep_ns, spin_ns: plan.spin_budget_ns }
            }
            Rule::HalfMean { mean_ns } => spin_after(mean_ns / 2.0),
            Rule::Pas(pas) => spin_after(pas.sleep_ns),
            Rule::Dpas(dpas) if dpas.mode == Mode::Spin => spin_after(0.0),
            Rule::Dpas(dpas) => spin_after(dpas.pas.sleep_ns),
        }
    }

    /// How it went: the whole time, and the sleep before the spin.
    pub fn learn(&mut self, bytes: usize, took_ns: u64, slept: Option<Slept>, exact: bool, now: Nanos) {
        match self {
            Rule::Own(_, history) => {
                if let Some(slept) = slept {
                    history.slept(CommandKind::Read, bytes, slept);
                }
                history.record(CommandKind::Read, bytes, took_ns, exact, now);
            }
            // As the kernel's statistics of a window do.
            Rule::HalfMean { mean_ns } if *mean_ns == 0.0 => *mean_ns = took_ns as f64,
            Rule::HalfMean { mean_ns } => *mean_ns += (took_ns as f64 - *mean_ns) / 64.0,
            Rule::Pas(pas) => {
                if let Some(slept) = slept {
                    pas.learn(slept.late);
                }
            }
            Rule::Dpas(dpas) => dpas.learn(slept),
        }
    }
}

fn spin_after(sleep_ns: f64) -> Decision {
    Decision { asynchronous: false, sleep_ns: sleep_ns as u64, spin_ns: u64::MAX }
}

/// The sleeping part of DPAS for one kind of request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pas {
    /// The next sleep, in nanoseconds.
    pub sleep_ns: f64,
    /// What the last sleep was multiplied with.
    adjust: f64,
    /// The last sleep ended after the completion.
    late: bool,
}

/// A step up, of the whole.
const UP: f64 = 0.01;
/// A step down.
const DOWN: f64 = 0.1;
/// The shortest sleep, and the first one, in nanoseconds.
const SHORTEST_NS: f64 = 1_000.0;

impl Default for Pas {
    fn default() -> Self {
        Pas { sleep_ns: SHORTEST_NS, adjust: 1.0, late: false }
    }
}

impl Pas {
    /// Takes in whether a sleep ended after the completion. Returns whether the next would be shorter than
    /// the shortest.
    fn learn(&mut self, late: bool) -> bool {
        self.adjust = match (self.late, late) {
            (false, false) => self.adjust + UP,
            (false, true) => 1.0 - DOWN,
            (true, false) => 1.0 + UP,
            (true, true) => self.adjust - DOWN,
        };
        // Ten late ones on end.
        if self.adjust <= DOWN / 2.0 {
            self.adjust = 1.0;
        }
        self.late = late;
        self.sleep_ns *= self.adjust;
        let floor = self.sleep_ns < SHORTEST_NS;
        self.sleep_ns = self.sleep_ns.max(SHORTEST_NS);
        floor
    }
}

/// What DPAS does with requests for the time being.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Sleep as PAS does.
    #[default]
    Sleep,
    /// Spin at once.
    Spin,
    /// As [`Mode::Sleep`], until it is known how deep the queue is.
    Overloaded,
}

/// DPAS at queue depth 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dpas {
    pas: Pas,
    mode: Mode,
    /// Requests in this mode.
    requests: u32,
    /// Of those, how many would have slept less than the shortest.
    floored: u32,
}

/// Requests after which a mode in which it sleeps is looked at.
const WINDOW: u32 = 100;
/// Requests that it spins for.
const SPINS: u32 = 1_000;

impl Dpas {
    fn learn(&mut self, slept: Option<Slept>) {
        self.requests += 1;
        self.floored += u32::from(slept.is_some_and(|slept| self.pas.learn(slept.late)));
        let next = match self.mode {
            Mode::Sleep if self.requests >= WINDOW && self.floored > 0 => Mode::Overloaded,
            // Of requests that are alone, sleeping adds to the time: spun.
            Mode::Sleep if self.requests >= WINDOW => Mode::Spin,
            Mode::Overloaded if self.requests >= WINDOW => Mode::Sleep,
            Mode::Spin if self.requests >= SPINS => Mode::Sleep,
            _ => return,
        };
        *self = Dpas { pas: self.pas, mode: next, requests: 0, floored: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pas_steps_by_its_last_two_sleeps() {
        let mut pas = Pas { sleep_ns: 10_000.0, ..Pas::default() };
        let steps = [
            (false, 10_100.0),
            // Faster while it goes the same way.
            (false, 10_100.0 * 1.02),
            (true, 10_100.0 * 1.02 * 0.9),
            (true, 10_100.0 * 1.02 * 0.9 * 0.8),
            (false, 10_100.0 * 1.02 * 0.9 * 0.8 * 1.01),
        ];
        for (late, sleep_ns) in steps {
            assert!(!pas.learn(late));
            assert!((pas.sleep_ns - sleep_ns).abs() < 1e-6, "{late}: {} for {sleep_ns}", pas.sleep_ns);
        }
        // Never below the shortest, and each try is told.
        let floored = (0..100).filter(|_| pas.learn(true)).count();
        assert!(pas.sleep_ns == SHORTEST_NS && floored > 80, "{} {floored}", pas.sleep_ns);
    }

    /// How many of so many requests slept, of a device's time, where a wake-up takes 2 us.
    fn sleeps(rule: &mut Rule, device_ns: u64, requests: usize) -> usize {
        let mut slept = 0;
        for _ in 0..requests {
            let asked_ns = rule.decide(4096, Nanos(0)).sleep_ns;
            let took_ns = asked_ns + 2_000;
            slept += usize::from(asked_ns > 0);
            let late = took_ns > device_ns;
            let sleep = (asked_ns > 0).then_some(Slept { asked_ns, took_ns, cpu_ns: None, late });
            rule.learn(4096, device_ns, sleep, true, Nanos(0));
        }
        slept
    }

    #[test]
    fn pas_comes_to_what_the_device_takes_less_a_wake_up() {
        let mut rule = Rule::Pas(Pas::default());
        for device_ns in [80_000, 20_000, 50_000] {
            assert_eq!(sleeps(&mut rule, device_ns, 500), 500);
            let sleep_ns = rule.decide(4096, Nanos(0)).sleep_ns;
            let part = sleep_ns as f64 / (device_ns - 2_000) as f64;
            assert!((0.75..1.2).contains(&part), "{sleep_ns} of {device_ns}");
        }
    }

    #[test]
    fn dpas_spins_ten_in_eleven_where_requests_are_alone() {
        let mut rule = Rule::Dpas(Dpas::default());
        assert_eq!(sleeps(&mut rule, 50_000, 100), 100);
        assert_eq!(sleeps(&mut rule, 50_000, 1_000), 0);
        assert_eq!(sleeps(&mut rule, 50_000, 1_100), 100);
        // Shorter than any sleep: it never comes to spin, as PAS is floored in each window.
        let mut rule = Rule::Dpas(Dpas::default());
        assert_eq!(sleeps(&mut rule, 1_500, 1_000), 1_000);
    }
}
