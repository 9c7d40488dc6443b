//! Who has failed to prove who they are: by address, and how long the next try from there waits. Tries that
//! wait hold no thread. An address that nothing has failed from for a while is forgotten.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use nearside_clock::Nanos;

/// How often the wait is doubled.
const DOUBLED: u32 = 4;
/// A try that would wait for longer than so many of the longest waits is refused at once.
const PATIENCE: u64 = 3;
/// After so long without a failure all is forgotten.
const FORGOTTEN_NS: u64 = 60_000_000_000;
/// Addresses that are remembered.
const MOST: usize = 4096;

struct Failures {
    count: u32,
    /// When the next try may begin.
    next: Nanos,
}

/// One address: one that fails holds up no others of its network.
fn address(peer: &SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

/// The addresses.
pub(crate) struct Attempts {
    by_address: HashMap<IpAddr, Failures>,
    /// What the first failure costs; each further one twice as much, as long as that is doubled.
    step_ns: u64,
}

/// When a try may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Then.
    At(Nanos),
    /// Not at all: too many wait already.
    Never,
}

impl Attempts {
    /// With what the first failure costs.
    pub(crate) fn new(step_ns: u64) -> Attempts {
        Attempts { by_address: HashMap::new(), step_ns }
    }

    fn wait_ns(&self, count: u32) -> u64 {
        self.step_ns << count.saturating_sub(1).min(DOUBLED)
    }

    /// A try from an address begins.
    pub(crate) fn begin(&mut self, peer: &SocketAddr, now: Nanos) -> Begin {
        let place = address(peer);
        let known = self.by_address.get(&place).filter(|known| now.since(known.next) < FORGOTTEN_NS);
        let Some(Failures { count, next }) = known else { return Begin::At(now) };
        let at = (*next).max(now);
        if at.since(now) > PATIENCE * self.wait_ns(u32::MAX) {
            return Begin::Never;
        }
        // Those that come beside it wait for their turn.
        let failures = Failures { count: *count, next: at + self.wait_ns(*count) };
        self.by_address.insert(place, failures);
        Begin::At(at)
    }

    /// One has failed.
    pub(crate) fn failed(&mut self, peer: &SocketAddr, now: Nanos) {
        let all = &mut self.by_address;
        if all.len() >= MOST {
            all.retain(|_, failures| now.since(failures.next) < FORGOTTEN_NS);
        }
        if all.len() >= MOST
            && let Some(first) = all.iter().min_by_key(|(_, f)| f.next).map(|(place, _)| *place)
        {
            all.remove(&first);
        }
        let before = all.get(&address(peer)).filter(|failures| now.since(failures.next) < FORGOTTEN_NS);
        let (count, next) = before.map_or((0, now), |before| (before.count, before.next));
        let count = count.saturating_add(1);
        let next = next.max(now + self.wait_ns(count));
        self.by_address.insert(address(peer), Failures { count, next });
    }

    /// One has succeeded.
    pub(crate) fn succeeded(&mut self, peer: &SocketAddr) {
        self.by_address.remove(&address(peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn each_failure_makes_the_next_try_later() {
        let (mut attempts, start) = (Attempts::new(SECOND / 4), Nanos(100 * SECOND));
        let peer = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (one, same, other) = (peer("192.0.2.2:7"), peer("[::ffff:192.0.2.2]:8"), peer("192.0.2.1:7"));
        assert_eq!(attempts.begin(&one, start), Begin::At(start));
        for wait in [1, 2, 4, 8, 16, 16] {
            attempts.failed(&one, start);
            assert_eq!(attempts.by_address[&address(&one)].next, start + wait * SECOND / 4);
        }
        // From the same address: in turn, and those that would wait too long not at all.
        for wait in [4, 8, 12] {
            assert_eq!(attempts.begin(&same, start), Begin::At(start + wait * SECOND));
        }
        assert_eq!(attempts.begin(&one, start), Begin::Never);
        assert_eq!(attempts.begin(&other, start), Begin::At(start));
        let later = start + 100 * SECOND;
        assert_eq!(attempts.begin(&one, later), Begin::At(later));
        attempts.failed(&one, later);
        assert_eq!(attempts.by_address[&address(&one)].count, 1, "what is long ago is forgotten");
        attempts.succeeded(&same);
        assert_eq!(attempts.begin(&one, start), Begin::At(start));
        for nr in 0..MOST as u32 + 9 {
            attempts.failed(&SocketAddr::new(IpAddr::V4(nr.into()), 1), start);
        }
        assert_eq!(attempts.by_address.len(), MOST);
    }
}
