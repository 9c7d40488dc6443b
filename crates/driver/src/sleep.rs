//! How long to sleep before spinning, for one kind of command: found by how the sleeps went, not by what a
//! wake-up is thought to cost.
//!
//! A sleep should end shortly before the completion comes. When it does hangs on the device's time and on the
//! overshoot of the sleep, which changes with the machine and with what else its cores do. So the next sleep
//! is found by outcomes, as in PAS, the sleeping part of DPAS (FAST'26); but where PAS asks only whether a
//! sleep ended too late, the spin that follows an early one says how much longer it could have been:
//!
//! - *Too late*: a sixteenth of the mean time shorter, and twice as much for each further late one in a row.
//!   A device that has become faster is met after some commands.
//! - *Early*: a ninety-sixth longer. By these steps it stays beside a steady device's completions; about one
//!   sleep in seven is late there, by little.
//! - *Early six times in a row, each by more*: longer at once by the least of what they had to spare, less a
//!   sixteenth. A device that has become slower is met after six commands.
//!
//! Where even the shortest sleep is late, or one takes two thirds of the CPU time that spinning would, it is
//! not worth it: then some commands are spun, twice as many after each further such try. Where the mean time
//! has risen by a quarter it is tried at once.

/// The shortest sleep: what one tries first, in nanoseconds. What it overshoots is not a part of it.
pub(crate) const SHORTEST_NS: u64 = 1_000;
/// A late sleep shortens the next by the mean over this.
const DOWN: u64 = 16;
/// An early one lengthens it by the mean over this.
const UP: u64 = 96;
/// So often does the step down double.
const DOUBLINGS: u8 = 4;
/// After so many early ones in a row, what the least of them had to spare is slept.
const RUN: u8 = 6;
/// Commands that are spun after a try that was not worth it, and after the last of many in a row.
const PAUSE: [u32; 2] = [4, 4_096];

/// How a timed sleep before polling went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slept {
    /// Asked for, in nanoseconds.
    pub asked_ns: u64,
    /// What it became, in nanoseconds.
    pub took_ns: u64,
    /// CPU time that falling asleep and waking up took, in nanoseconds, where it was measured.
    pub cpu_ns: Option<u64>,
    /// The completion was there already.
    pub late: bool,
}

impl Slept {
    /// What it took more than asked, in nanoseconds.
    pub fn over_ns(&self) -> u64 {
        self.took_ns.saturating_sub(self.asked_ns)
    }
}

/// The next sleep, and what it was found by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    /// From submission, overshoot not included.
    aim_ns: u64,
    /// Late ones in a row.
    lates: u8,
    /// Early ones in a row, and the longest sleep that would have been early in each.
    earlies: u8,
    least_ns: u64,
    /// What the last one took more than asked, if it was early and its command is still out.
    over_ns: Option<u64>,
    /// Commands to be spun yet.
    pause: u32,
    /// Tries that were not worth it, less those that were.
    failures: u8,
    /// The mean time at the last of them.
    failed_at_ns: u64,
}

impl Sleep {
    pub(crate) const fn new() -> Sleep {
        Sleep {
            aim_ns: SHORTEST_NS,
            lates: 0,
            earlies: 0,
            least_ns: u64::MAX,
            over_ns: None,
            pause: 0,
            failures: 0,
            failed_at_ns: 0,
        }
    }

    /// Nanoseconds; 0: spin.
    pub(crate) fn next_ns(&self) -> u64 {
        if self.pause > 0 { 0 } else { self.aim_ns }
    }

    /// The next is a try after some that were not worth it.
    pub(crate) fn is_try(&self) -> bool {
        self.failures > 0
    }

    /// Begins again with a device whose first time is this, in nanoseconds.
    pub(crate) fn anew(&mut self, latency_ns: u64) {
        let aim_ns = self.aim_ns.min(latency_ns / 2).max(SHORTEST_NS);
        *self = Sleep { aim_ns, lates: 0, earlies: 0, least_ns: u64::MAX, over_ns: None, ..*self };
    }

    /// Takes in how a sleep went, of commands of this mean time in nanoseconds. `worth`: it costs little
    /// enough CPU time, if it is early.
    pub(crate) fn slept(&mut self, slept: Slept, mean_ns: u64, worth: bool) {
        self.over_ns = (!slept.late).then_some(slept.over_ns());
        if slept.late {
            (self.earlies, self.least_ns) = (0, u64::MAX);
        }
        if !worth || slept.late && self.aim_ns <= SHORTEST_NS {
            return self.failed(mean_ns);
        }
        if slept.late {
            let step = (mean_ns / DOWN).max(1) << self.lates.min(DOUBLINGS);
            self.aim_ns = self.aim_ns.saturating_sub(step).max(SHORTEST_NS);
            self.lates = self.lates.saturating_add(1);
        } else {
            self.lates = 0;
            self.failures = self.failures.saturating_sub(1);
        }
    }

    fn failed(&mut self, mean_ns: u64) {
        let [least, most] = PAUSE;
        self.pause = (least << self.failures).min(most);
        self.failures = (self.failures + 1).min((most / least).ilog2() as u8);
        (self.aim_ns, self.lates, self.failed_at_ns) = (SHORTEST_NS, 0, mean_ns);
    }

    /// A command has ended. What its sleep took more than asked, if that was early.
    pub(crate) fn ended(&mut self) -> Option<u64> {
        self.over_ns.take()
    }

    /// Takes in a completion that was seen when it came, `latency_ns` after its submission; `mean_ns` is the
    /// mean with it, `over_ns` what [`Sleep::ended`] gave. Where its caller waited too late to sleep, or did
    /// not want to, what a sleep would have taken more is `wake_ns`.
    pub(crate) fn completed(&mut self, latency_ns: u64, over_ns: Option<u64>, wake_ns: u64, mean_ns: u64) {
        if self.pause > 0 {
            self.pause -= 1;
            if mean_ns > self.failed_at_ns.saturating_add(self.failed_at_ns / 4) {
                self.pause = 0;
            }
        }
        if self.pause > 0 {
            return;
        }
        if over_ns.is_some() {
            self.aim_ns += (mean_ns / UP).max(1);
        }
        self.earlies += 1;
        self.least_ns = self.least_ns.min(latency_ns.saturating_sub(over_ns.unwrap_or(wake_ns)));
        if self.earlies >= RUN {
            self.aim_ns = self.aim_ns.max(self.least_ns.saturating_sub(mean_ns / DOWN));
            (self.earlies, self.least_ns) = (0, u64::MAX);
        }
        // Beyond it, half of them are late whatever is overslept.
        self.aim_ns = self.aim_ns.min(mean_ns).max(SHORTEST_NS);
    }
}
