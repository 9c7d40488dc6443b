//! What hosts asked of a subsystem's namespaces, and how long it took.
//!
//! Each reactor counts on cache lines of its own, one `Meter` for each namespace that it has a way into;
//! who wants to know adds them up. What a reactor has counted stays when its host goes.

use std::array;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use nearside_store::Operation;

use crate::shared::add;

/// Hosts that are told apart by name at the same time; and as many that have gone.
const NAMED_HOSTS: usize = 128;
/// The name that the others have together.
const OTHERS: &str = "";

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read and Compare.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Write Zeroes and Dataset Management.
    Other,
    /// The near-data commands.
    NearData,
}

impl Kind {
    /// All.
    pub const ALL: [Kind; 5] = [Kind::Read, Kind::Write, Kind::Flush, Kind::Other, Kind::NearData];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        ["read", "write", "flush", "other", "near_data"][self as usize]
    }

    /// What an operation is of, and the bytes that it moves.
    #[inline]
    pub(crate) fn of(operation: &Operation) -> (Kind, u64) {
        match *operation {
            Operation::Read { len, .. } => (Kind::Read, len),
            Operation::Write { len, .. } => (Kind::Write, len),
            Operation::Flush => (Kind::Flush, 0),
            Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => (Kind::Other, 0),
        }
    }
}

/// Buckets of response times: four below `FINEST_NS` times four, then four to each doubling.
pub const BUCKETS: usize = 104;
/// Nanoseconds of the first bucket.
const FINEST_NS: u64 = 256;

/// The bucket of a response time.
#[inline]
fn bucket(ns: u64) -> usize {
    // A bucket has the time that it is named after, and none above.
    let units = ns.saturating_sub(1) / FINEST_NS;
    let at = match units.checked_ilog2() {
        Some(log @ 2..) => (log as usize - 1) * 4 + (units >> (log - 2) & 3) as usize,
        _ => units as usize,
    };
    at.min(BUCKETS - 1)
}

/// The longest time that a bucket counts, in nanoseconds; the last one has all that is longer as well.
pub fn bound_ns(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / 4, bucket as u64 % 4 + 1);
    match octave {
        0 => quarter * FINEST_NS,
        _ => (4 + quarter) << (octave - 1).min(32) << FINEST_NS.ilog2(),
    }
}

/// Commands of one kind that ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Bytes of data.
    pub bytes: u64,
    /// Nanoseconds of all together.
    pub total_ns: u64,
    /// Commands by how long they took; [`bound_ns`].
    pub buckets: [u64; BUCKETS],
}

impl Default for Timed {
    fn default() -> Timed {
        Timed { bytes: 0, total_ns: 0, buckets: [0; BUCKETS] }
    }
}

impl Timed {
    /// Commands.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// What has come since an earlier look.
    pub fn since(&self, earlier: &Timed) -> Timed {
        Timed {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            buckets: array::from_fn(|at| self.buckets[at].saturating_sub(earlier.buckets[at])),
        }
    }

    fn add(&mut self, other: &Timed) {
        self.bytes += other.bytes;
        self.total_ns += other.total_ns;
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(to, from)| *to += from);
    }

    /// Nanoseconds that so many of a hundred commands took at most, to within a quarter; `None` where there
    /// are none.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let rank = (self.count() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut below = 0;
        let reached = self.buckets.iter().position(|count| {
            below += count;
            below >= rank
        });
        reached.map(bound_ns)
    }
}

/// What was asked of a namespace, or by a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By [`Kind`], in the order of [`Kind::ALL`].
    pub kinds: [Timed; 5],
    /// Commands answered with an error.
    pub failed: u64,
    /// Commands that had to wait, since the namespace or the host had no more of its quota.
    pub throttled: u64,
    /// Nanoseconds that they waited.
    pub throttled_ns: u64,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: &Tally) {
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(to, from)| to.add(from));
        self.failed += other.failed;
        self.throttled += other.throttled;
        self.throttled_ns += other.throttled_ns;
    }
}

/// What was asked of a subsystem.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// By namespace.
    pub namespaces: BTreeMap<u32, Tally>,
    /// By the host's name. Of 128 hosts that are there and as many that have gone; the others together
    /// have an empty name.
    pub hosts: BTreeMap<String, Tally>,
}

#[derive(Debug)]
struct Counted {
    bytes: AtomicU64,
    total_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// What one reactor counts of one namespace: but for what waits, nobody else writes it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Meter {
    nsid: u32,
    host: String,
    kinds: [Counted; 5],
    failed: AtomicU64,
    throttled: AtomicU64,
    throttled_ns: AtomicU64,
    /// The length of the namespace, in blocks, that its reactor goes by and beyond which nothing of it is in
    /// flight; none yet.
    blocks: AtomicU64,
}

/// Of a reactor that has not looked yet.
const NO_BLOCKS: u64 = u64::MAX;

impl Meter {
    /// From now on nothing of its reactor is beyond the end of a namespace of so many blocks.
    pub(crate) fn is_within(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::Release);
    }

    pub(crate) fn is_known_within(&self, blocks: u64) -> bool {
        self.blocks.load(Ordering::Acquire) == blocks
    }

    /// A command has ended well.
    #[inline]
    pub(crate) fn ended(&self, kind: Kind, bytes: u64, ns: u64) {
        let counted = &self.kinds[kind as usize];
        add(&counted.bytes, bytes);
        add(&counted.total_ns, ns);
        add(&counted.buckets[bucket(ns)], 1);
    }

    pub(crate) fn failed(&self) {
        add(&self.failed, 1);
    }

    /// A command has waited for its quota. Near-data work says it on threads of its own.
    pub(crate) fn throttled(&self, ns: u64) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
        self.throttled_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn tally(&self) -> Tally {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let kinds = array::from_fn(|kind| {
            let Counted { bytes, total_ns, buckets } = &self.kinds[kind];
            let buckets = array::from_fn(|at| read(&buckets[at]));
            Timed { bytes: read(bytes), total_ns: read(total_ns), buckets }
        });
        let (throttled, throttled_ns) = (read(&self.throttled), read(&self.throttled_ns));
        Tally { kinds, failed: read(&self.failed), throttled, throttled_ns }
    }
}

/// A meter as its reactor has it. Dropped, what it counted stays in the ledger.
#[derive(Debug)]
pub(crate) struct OpenMeter {
    meter: Arc<Meter>,
    ledger: Arc<Ledger>,
}

impl OpenMeter {
    /// For who goes on beside the reactor.
    pub(crate) fn share(&self) -> Arc<Meter> {
        self.meter.clone()
    }
}

impl Deref for OpenMeter {
    type Target = Meter;

    #[inline]
    fn deref(&self) -> &Meter {
        &self.meter
    }
}

impl Drop for OpenMeter {
    fn drop(&mut self) {
        self.ledger.close(&self.meter);
    }
}

/// The meters of a subsystem.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    live: Vec<Arc<Meter>>,
    /// Of meters that are gone: by namespace; by host, the last to go last; of hosts that are named no more.
    namespaces: BTreeMap<u32, Tally>,
    hosts: VecDeque<(String, Tally)>,
    others: Tally,
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A meter for a reactor that works for a host.
    pub(crate) fn open(self: &Arc<Self>, nsid: u32, host: &str) -> OpenMeter {
        let mut books = self.books();
        let mut names: Vec<&str> = books.live.iter().map(|meter| &*meter.host).collect();
        names.sort_unstable();
        names.dedup();
        let named = names.len() < NAMED_HOSTS || names.binary_search(&host).is_ok();
        let counted = |_| Counted {
            bytes: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        };
        let meter = Arc::new(Meter {
            nsid,
            host: if named { host } else { OTHERS }.to_owned(),
            kinds: array::from_fn(counted),
            failed: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            throttled_ns: AtomicU64::new(0),
            blocks: AtomicU64::new(NO_BLOCKS),
        });
        books.live.push(meter.clone());
        OpenMeter { meter, ledger: self.clone() }
    }

    /// Whether nothing of any reactor is beyond the end of a namespace that has so many blocks now.
    pub(crate) fn all_within(&self, nsid: u32, blocks: u64) -> bool {
        self.books().live.iter().all(|meter| meter.nsid != nsid || meter.is_known_within(blocks))
    }

    /// Its reactor counts no more.
    fn close(&self, meter: &Arc<Meter>) {
        let mut books = self.books();
        books.live.retain(|other| !Arc::ptr_eq(other, meter));
        let tally = meter.tally();
        books.namespaces.entry(meter.nsid).or_default().add(&tally);
        let there = books.hosts.iter().position(|(host, _)| *host == meter.host);
        let before = there.and_then(|at| books.hosts.remove(at));
        let (host, mut sum) = before.unwrap_or((meter.host.clone(), Tally::default()));
        sum.add(&tally);
        books.hosts.push_back((host, sum));
        if books.hosts.len() > NAMED_HOSTS
            && let Some((_, tally)) = books.hosts.pop_front()
        {
            books.others.add(&tally);
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        // Reactors wait for the books where a host comes or goes: meters are read without them. One that is
        // closed meanwhile is not in these sums, and keeps what it counted.
        let (namespaces, closed, others, live) = {
            let books = self.books();
            (books.namespaces.clone(), books.hosts.clone(), books.others.clone(), books.live.clone())
        };
        let mut traffic = Traffic { namespaces, hosts: BTreeMap::new() };
        for (host, tally) in closed {
            traffic.hosts.entry(host).or_default().add(&tally);
        }
        if others != Tally::default() {
            traffic.hosts.entry(OTHERS.to_owned()).or_default().add(&others);
        }
        for meter in &live {
            let tally = meter.tally();
            traffic.namespaces.entry(meter.nsid).or_default().add(&tally);
            traffic.hosts.entry(meter.host.clone()).or_default().add(&tally);
        }
        traffic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_lies_in_the_bucket_of_its_bound() {
        let bounds: Vec<u64> = (0..BUCKETS).map(bound_ns).collect();
        assert_eq!(bounds[..9], [256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2560]);
        for (at, &bound) in bounds.iter().enumerate().take(BUCKETS - 1) {
            assert_eq!([bucket(bound), bucket(bound + 1)], [at, at + 1], "{bound}");
        }
        assert_eq!([bucket(0), bucket(u64::MAX)], [0, BUCKETS - 1]);
        let mut timed = Timed::default();
        assert_eq!(timed.percentile_ns(50.0), None);
        (timed.buckets[0], timed.buckets[4]) = (99, 1);
        assert_eq!(
            [50.0, 99.0, 99.5, 100.0].map(|p| timed.percentile_ns(p)),
            [256, 256, 1280, 1280].map(Some)
        );
    }

    #[test]
    fn hosts_that_come_and_go_lose_nothing_and_take_no_more_memory() {
        let ledger = Arc::new(Ledger::default());
        let stays = ledger.open(1, "stays");
        let work = |meter: &OpenMeter| meter.ended(Kind::Read, 512, 1000);
        for nth in 0..3 * NAMED_HOSTS as u64 {
            let meter = ledger.open(2, &format!("host {nth}"));
            work(&meter);
            work(&stays);
        }
        let all = 3 * NAMED_HOSTS as u64;
        let traffic = ledger.traffic();
        assert_eq!([1, 2].map(|nsid| traffic.namespaces[&nsid].kinds[0].count()), [all; 2]);
        assert_eq!(traffic.hosts["stays"].kinds[0].bytes, all * 512);
        assert_eq!(traffic.hosts[OTHERS].kinds[0].count(), all - NAMED_HOSTS as u64);
        assert_eq!(traffic.hosts.len(), NAMED_HOSTS + 2);
        // Those that are there at the same time beyond so many share a name.
        let there: Vec<_> = (0..2 * NAMED_HOSTS).map(|nth| ledger.open(1, &format!("new {nth}"))).collect();
        there.iter().for_each(work);
        let traffic = ledger.traffic();
        assert_eq!(traffic.hosts.keys().filter(|host| host.starts_with("new")).count(), NAMED_HOSTS - 1);
        assert_eq!(traffic.hosts.values().map(|tally| tally.kinds[0].count()).sum::<u64>(), 2 * all + 256);
        drop(there);
        assert_eq!(ledger.traffic().hosts.values().map(|t| t.kinds[0].count()).sum::<u64>(), 2 * all + 256);
    }
}
