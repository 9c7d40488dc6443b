//! How much a namespace, or a host, may have in a second: commands, bytes, and the processors' time for
//! near-data work.
//!
//! Each is a bucket that fills steadily, up to [`BURST_NS`] worth of it. Who takes more than there is leaves
//! a debt, and goes on once that is paid: so over any time no more goes on than the rate gives in it, and a
//! full bucket. What has to wait stands before the drive (`Gate`), in order, one queue for each namespace of
//! a reactor; its head alone has taken what it needs, so that hosts that share a bucket take turns. A reactor
//! that has nothing else to do sleeps until its head's time has come, and not for less than `GRAIN_NS`:
//! what has come together by then goes on together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nearside_clock::Nanos;
use nearside_store::Operation;

use crate::io::Request;
use crate::queue::CompletionSlot;
use crate::traffic::Meter;

/// What a bucket holds at most: what comes in so long, and of commands at least one.
pub const BURST_NS: u64 = 100_000_000;
/// Who has to wait waits so long at least.
const GRAIN_NS: u64 = 1_000_000;
/// Commands that may wait at a reactor; above that it takes no new ones.
pub(crate) const MOST_HELD: usize = 4096;
/// Nanoseconds of a second, and parts of a token: a bucket counts in these, so that no rounding adds up.
const SECOND: i128 = 1_000_000_000;

/// What may be had in a second; `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Commands, but for flushes and near-data commands.
    pub commands: Option<u64>,
    /// Bytes that reads, writes and compares move.
    pub bytes: Option<u64>,
    /// Nanoseconds of processors' time for near-data work.
    pub near_data_ns: Option<u64>,
}

impl Quota {
    /// Whether it is none.
    pub fn is_none(&self) -> bool {
        *self == Quota::default()
    }
}

/// For whom a quota is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whom {
    /// All hosts together, on that namespace.
    Namespace(u32),
    /// All controllers of that host together, by its name.
    Host(String),
}

/// What comes in so much a second. Shared: reactors and threads take from it as they need.
#[derive(Debug)]
pub struct Bucket {
    per_second: u64,
    most: i128,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    /// Tokens times [`SECOND`]; below zero, what is owed.
    tokens: i128,
    at: Nanos,
}

impl Bucket {
    /// A full one. `least`: tokens that it holds at least.
    pub fn new(per_second: u64, least: u64) -> Bucket {
        let most = (i128::from(per_second) * i128::from(BURST_NS)).max(i128::from(least) * SECOND);
        Bucket { per_second, most, level: Mutex::new(Level { tokens: most, at: Nanos(0) }) }
    }

    fn with<R>(&self, now: Nanos, with: impl FnOnce(&mut Level) -> R) -> R {
        let mut level = self.level.lock().unwrap_or_else(|e| e.into_inner());
        // Another reactor's time may be later.
        let passed = now.since(level.at);
        level.tokens = (level.tokens + i128::from(passed) * i128::from(self.per_second)).min(self.most);
        level.at = level.at.max(now);
        with(&mut level)
    }

    /// When what is owed at `now` will have come in.
    fn paid(&self, level: &Level, now: Nanos) -> Nanos {
        let owed = u128::try_from(-level.tokens).unwrap_or(0);
        let ns = owed.div_ceil(u128::from(self.per_second.max(1)));
        now + u64::try_from(ns).unwrap_or(u64::MAX / 2).min(u64::MAX / 2)
    }

    /// Takes tokens; the time from which on whoever takes them may go on.
    pub fn take(&self, tokens: u64, now: Nanos) -> Nanos {
        self.with(now, |level| {
            level.tokens -= i128::from(tokens) * SECOND;
            self.paid(level, now)
        })
    }

    /// What was taken is not needed.
    pub fn give_back(&self, tokens: u64, now: Nanos) {
        self.with(now, |level| level.tokens = (level.tokens + i128::from(tokens) * SECOND).min(self.most));
    }
}

/// The buckets of a quota.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    commands: Option<Arc<Bucket>>,
    bytes: Option<Arc<Bucket>>,
    near_data: Option<Arc<Bucket>>,
}

impl Buckets {
    /// Where a rate stays as it was `before`, so does its bucket, and what is owed to it.
    pub(crate) fn of(quota: &Quota, before: &Buckets) -> Buckets {
        let bucket = |rate: Option<u64>, before: &Option<Arc<Bucket>>| {
            let stays = before.as_ref().filter(|bucket| Some(bucket.per_second) == rate).cloned();
            stays.or_else(|| rate.map(|rate| Arc::new(Bucket::new(rate, 1))))
        };
        Buckets {
            commands: bucket(quota.commands, &before.commands),
            bytes: bucket(quota.bytes, &before.bytes),
            near_data: bucket(quota.near_data_ns, &before.near_data),
        }
    }

    /// Takes so many commands and bytes; the time from which on whoever takes them may go on.
    pub(crate) fn take(&self, commands: u64, bytes: u64, now: Nanos) -> Nanos {
        let mut due = now;
        for (bucket, tokens) in [(&self.commands, commands), (&self.bytes, bytes)] {
            if let Some(bucket) = bucket
                && tokens > 0
            {
                due = due.max(bucket.take(tokens, now));
            }
        }
        due
    }

    /// The rates at which they fill.
    pub(crate) fn quota(&self) -> Quota {
        let rate = |bucket: &Option<Arc<Bucket>>| bucket.as_ref().map(|bucket| bucket.per_second);
        Quota {
            commands: rate(&self.commands),
            bytes: rate(&self.bytes),
            near_data_ns: rate(&self.near_data),
        }
    }
}

/// What the processors' time of a host's near-data work on a namespace is taken from. It follows where one of
/// them has another quota, for work that is at it as well.
#[derive(Debug, Default)]
pub struct Account {
    of: Mutex<Vec<Arc<Bucket>>>,
    /// Whether it has any.
    counts: AtomicBool,
    meter: Option<Arc<Meter>>,
}

impl Account {
    /// Of these buckets; nobody counts what waits for them.
    pub fn new(of: Vec<Arc<Bucket>>) -> Account {
        let account = Account::default();
        account.set(of);
        account
    }

    pub(crate) fn of(buckets: &[Arc<Buckets>], meter: Arc<Meter>) -> Arc<Account> {
        let account = Account { meter: Some(meter), ..Account::default() };
        account.change(buckets);
        Arc::new(account)
    }

    /// What holds from now on.
    pub(crate) fn change(&self, buckets: &[Arc<Buckets>]) {
        self.set(buckets.iter().filter_map(|buckets| buckets.near_data.clone()).collect());
    }

    /// As `change`, of these.
    pub fn set(&self, of: Vec<Arc<Bucket>>) {
        let mut held = self.of.lock().unwrap_or_else(|e| e.into_inner());
        self.counts.store(!of.is_empty(), Ordering::Release);
        *held = of;
    }

    /// Whether time is counted at all.
    #[inline]
    pub fn counts(&self) -> bool {
        self.counts.load(Ordering::Acquire)
    }

    /// Takes nanoseconds; the time from which on whoever takes them may go on.
    pub fn take(&self, ns: u64, now: Nanos) -> Nanos {
        if !self.counts() {
            return now;
        }
        let of = self.of.lock().unwrap_or_else(|e| e.into_inner());
        of.iter().map(|bucket| bucket.take(ns, now)).max().unwrap_or(now)
    }

    /// A command has waited so long in all.
    pub fn waited(&self, ns: u64) {
        if let Some(meter) = &self.meter {
            meter.throttled(ns);
        }
    }
}

/// What a command takes: commands, and bytes. `None`: it is not counted, and never waits.
fn cost(request: &Request) -> Option<(u64, u64)> {
    match *request {
        Request::Transfer { len, .. } | Request::Compare { len, .. } => Some((1, len as u64)),
        Request::Copy { len, .. } => Some((1, len)),
        Request::Plain { operation: Operation::Flush } | Request::FlushAll => Some((0, 0)),
        Request::Plain { .. } | Request::Deallocate { .. } | Request::Hints { .. } | Request::Fill { .. } => {
            Some((1, 0))
        }
        Request::NearData { .. } | Request::Reservation { .. } => None,
    }
}

/// A command that waits before the drive.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) slot: CompletionSlot,
    pub(crate) request: Request,
    /// When it was taken from its queue.
    pub(crate) begun: Nanos,
}

/// What stands before a namespace of a reactor whose namespace or host has a quota.
#[derive(Debug)]
pub(crate) struct Gate {
    of: Vec<Arc<Buckets>>,
    held: VecDeque<Held>,
    /// When the head may go on; `None`: it has taken nothing yet.
    due: Option<Nanos>,
}

impl Gate {
    pub(crate) fn new(of: Vec<Arc<Buckets>>) -> Gate {
        Gate { of, held: VecDeque::new(), due: None }
    }

    /// What holds from now on; whether there is anything to stand here for.
    pub(crate) fn change(&mut self, of: Vec<Arc<Buckets>>, now: Nanos) -> bool {
        // What the head has taken it takes anew.
        if let (Some(_), Some(head)) = (self.due, self.held.front()) {
            self.give_back(&head.request, now);
        }
        (self.of, self.due) = (of, None);
        !self.of.is_empty() || !self.held.is_empty()
    }

    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether nobody has a quota any more, and nothing waits.
    pub(crate) fn is_open(&self) -> bool {
        self.of.is_empty() && self.held.is_empty()
    }

    /// Takes what a command costs; when it may go on.
    fn take(&self, request: &Request, now: Nanos) -> Nanos {
        let (commands, bytes) = cost(request).unwrap_or((0, 0));
        let due = self.of.iter().map(|buckets| buckets.take(commands, bytes, now)).max().unwrap_or(now);
        // Those that wait for less go on together.
        if due > now { due.max(now + GRAIN_NS) } else { due }
    }

    fn give_back(&self, request: &Request, now: Nanos) {
        let (commands, bytes) = cost(request).unwrap_or((0, 0));
        for buckets in &self.of {
            for (bucket, tokens) in [(&buckets.commands, commands), (&buckets.bytes, bytes)] {
                if let Some(bucket) = bucket {
                    bucket.give_back(tokens, now);
                }
            }
        }
    }

    /// A command comes; it is given back where it may go on at once.
    pub(crate) fn pass(&mut self, held: Held) -> Option<Held> {
        if cost(&held.request).is_none() {
            return Some(held);
        }
        if self.held.is_empty() {
            let due = self.take(&held.request, held.begun);
            if due <= held.begun {
                return Some(held);
            }
            self.due = Some(due);
        }
        self.held.push_back(held);
        None
    }

    /// A command stands behind all that wait.
    pub(crate) fn push(&mut self, held: Held) {
        self.held.push_back(held);
    }

    /// The next one that may go on.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Held> {
        let due = match (self.due, self.held.front()) {
            (_, None) => return None,
            (Some(due), _) => due,
            (None, Some(head)) => self.take(&head.request, now),
        };
        self.due = Some(due);
        if due > now {
            return None;
        }
        self.due = None;
        self.held.pop_front()
    }

    /// When the head may go on.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Takes out the commands that `which` names.
    pub(crate) fn take_out(&mut self, now: Nanos, which: impl Fn(&Held) -> bool) -> Vec<Held> {
        if let Some(head) = self.held.front()
            && self.due.is_some()
            && which(head)
        {
            self.give_back(&head.request, now);
            self.due = None;
        }
        let (out, stay) = self.held.drain(..).partition(which);
        self.held = stay;
        Vec::from(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_rate_that_stays_keeps_its_bucket() {
        let quota = Quota { commands: Some(5), bytes: Some(7), near_data_ns: None };
        let before = Buckets::of(&quota, &Buckets::default());
        let after = Buckets::of(&Quota { bytes: Some(8), near_data_ns: Some(9), ..quota }, &before);
        let stays = |at: fn(&Buckets) -> &Option<Arc<Bucket>>| {
            at(&before).as_ref().zip(at(&after).as_ref()).is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        };
        assert!(stays(|b| &b.commands) && !stays(|b| &b.bytes) && after.near_data.is_some());
        assert_eq!((before.quota(), after.quota().bytes), (quota, Some(8)));
    }

    #[test]
    fn a_bucket_gives_its_rate_and_a_burst_and_no_more() {
        // Rates that divide nothing.
        for per_second in [1, 7, 999, 1_000_003, 3_333_333_333] {
            let bucket = Bucket::new(per_second, 1);
            let (mut now, mut given) = (Nanos(5), 0u64);
            let end = now + 10_000 * MS;
            let each = (per_second / 1_000).max(1);
            while now < end {
                now = now.max(bucket.take(each, now));
                given += u64::from(now < end) * each;
            }
            let burst = (per_second / 10).max(1);
            assert!(given <= 10 * per_second + burst, "{per_second}: {given}");
            assert!(given + each >= 10 * per_second, "{per_second}: {given}");
        }
    }

    #[test]
    fn what_is_not_used_is_kept_for_a_burst_only() {
        let bucket = Bucket::new(1_000, 1);
        let now = Nanos(3_600_000 * MS);
        assert_eq!(bucket.take(100, now), now);
        assert_eq!(bucket.take(1, now), now + MS);
        assert_eq!(bucket.take(1, now), now + 2 * MS);
        bucket.give_back(2, now);
        assert_eq!(bucket.take(1, now + MS), now + MS);
        // More than it ever holds is waited for, and paid for in full.
        let now = now + 1_000 * MS;
        assert_eq!(bucket.take(1_100, now), now + 1_000 * MS);
    }
}
