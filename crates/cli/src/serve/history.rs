//! How the drive did lately: what hosts asked in the last seconds, and in each ten seconds of the last hour.

use std::array;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nearside_device::traffic::{Kind, Tally, Timed};
use serde::Serialize;

use super::drive::Seen;

/// How often it is looked.
const TICK: Duration = Duration::from_secs(2);
/// Looks of a point of the past, and points that are kept.
const TICKS: u32 = 5;
const POINTS: usize = 360;

/// What was asked in some time, of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub operation: &'static str,
    pub commands: u64,
    pub per_second: f64,
    pub bytes_per_second: f64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub longest_ns: u64,
    /// Commands that were under way, on average.
    pub depth: f64,
}

impl Figures {
    /// Of what came in so many seconds.
    pub fn of(kind: Kind, timed: &Timed, seconds: f64) -> Figures {
        let commands = timed.count();
        let at = |percent| timed.percentile_ns(percent).unwrap_or(0);
        Figures {
            operation: kind.name(),
            commands,
            per_second: commands as f64 / seconds,
            bytes_per_second: timed.bytes as f64 / seconds,
            mean_ns: timed.total_ns as f64 / commands.max(1) as f64,
            p50_ns: at(50.0),
            p99_ns: at(99.0),
            longest_ns: at(100.0),
            depth: timed.total_ns as f64 / (seconds * 1e9),
        }
    }
}

/// What was asked in some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since 1970, at its end.
    pub at: u64,
    pub seconds: f64,
    /// Of the kinds that there were.
    pub operations: Vec<Figures>,
    pub failed: u64,
}

impl Point {
    /// What came between two looks.
    fn between(earlier: &Tally, later: &Tally, at: u64, seconds: f64) -> Point {
        let came: [Timed; 5] = array::from_fn(|kind| later.kinds[kind].since(&earlier.kinds[kind]));
        let there = Kind::ALL.into_iter().zip(&came).filter(|(_, timed)| timed.count() > 0);
        Point {
            at,
            seconds,
            operations: there.map(|(kind, timed)| Figures::of(kind, timed, seconds)).collect(),
            failed: later.failed.saturating_sub(earlier.failed),
        }
    }
}

#[derive(Debug, Default)]
struct Looks {
    last: Tally,
    seconds: f64,
    /// Where the next point of the past begins.
    base: Tally,
    base_seconds: f64,
    ticks: u32,
    now: Point,
    past: VecDeque<Point>,
}

impl Looks {
    /// `seconds` since the server began.
    fn look(&mut self, total: Tally, seconds: f64, at: u64) {
        let least = |seconds: f64| seconds.max(1e-3);
        self.now = Point::between(&self.last, &total, at, least(seconds - self.seconds));
        self.ticks += 1;
        if self.ticks == TICKS {
            if self.past.len() == POINTS {
                self.past.pop_front();
            }
            let length = least(seconds - self.base_seconds);
            self.past.push_back(Point::between(&self.base, &total, at, length));
            (self.base, self.base_seconds, self.ticks) = (total.clone(), seconds, 0);
        }
        (self.last, self.seconds) = (total, seconds);
    }
}

/// What is kept, in memory that does not grow.
pub struct History {
    begun: Instant,
    looks: Mutex<Looks>,
}

impl History {
    /// Looks from now on, on a thread of its own, for as long as the program runs.
    pub fn start(seen: Arc<Seen>) -> std::io::Result<Arc<History>> {
        let history = Arc::new(History { begun: Instant::now(), looks: Mutex::default() });
        let looks = history.clone();
        let run = move || {
            loop {
                std::thread::sleep(TICK);
                let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                let seconds = looks.begun.elapsed().as_secs_f64();
                looks.looks().look(total(&seen), seconds, at);
            }
        };
        std::thread::Builder::new().name("history".into()).spawn(run)?;
        Ok(history)
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The last seconds, the last hour, and how long it is that the server began.
    pub fn tell(&self) -> (Point, Vec<Point>, Duration) {
        let looks = self.looks();
        (looks.now.clone(), looks.past.iter().cloned().collect(), self.begun.elapsed())
    }
}

/// What was asked of all subsystems.
fn total(seen: &Seen) -> Tally {
    let mut total = Tally::default();
    for offer in seen.target.offers() {
        offer.subsystem.traffic().namespaces.values().for_each(|tally| total.add(tally));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hour_is_kept_and_no_more() {
        let (mut looks, mut total) = (Looks::default(), Tally::default());
        // A read of 4096 bytes each second, half a second long.
        let bucket = (0..).find(|&at| nearside_device::traffic::bound_ns(at) >= 500_000_000).unwrap();
        for tick in 1..=2 * POINTS as u64 * u64::from(TICKS) {
            let reads = &mut total.kinds[Kind::Read as usize];
            (reads.bytes, reads.total_ns) = (reads.bytes + 2 * 4096, reads.total_ns + 1_000_000_000);
            reads.buckets[bucket] += 2;
            total.failed += 1;
            looks.look(total.clone(), 2.0 * tick as f64, 2 * tick);
        }
        assert_eq!((looks.past.len(), looks.past[0].at), (POINTS, 3610));
        let Point { at, seconds, operations, failed } = looks.past.back().unwrap();
        assert_eq!((*at, *seconds, *failed, operations.len()), (7200, 10.0, 5, 1));
        let Figures { operation, commands, per_second, bytes_per_second, mean_ns, depth, .. } = operations[0];
        assert_eq!((operation, commands, per_second, bytes_per_second), ("read", 10, 1.0, 4096.0));
        assert_eq!((mean_ns, depth), (5e8, 0.5));
        assert!((500_000_000..625_000_000).contains(&operations[0].p50_ns));
        assert_eq!((looks.now.seconds, looks.now.failed, looks.now.operations[0].commands), (2.0, 1, 2));
    }
}
