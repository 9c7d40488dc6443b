//! Whose near-data command is next: there are fewer places in the drive than there may be askers.
//!
//! A user has at most a quarter of the places. Those whom the drive trusts (root and its own user) always
//! find a quarter that nobody else may have, and leave one to the others. Among users who wait, whoever has
//! the fewest commands in the drive is next; among equals, whoever has waited for a turn the longest: a
//! backlog of one user delays nobody else's first request by more than one of its own.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// Root, or the drive's own user.
    pub trusted: bool,
}

struct Waiting {
    ticket: u64,
    user: User,
}

#[derive(Default)]
struct ShareState {
    /// In order of arrival.
    waiting: Vec<Waiting>,
    /// Tickets that may go on and have not yet.
    called: Vec<u64>,
    /// Whose commands are in the drive.
    running: Vec<User>,
    /// When each user had its last turn.
    served: HashMap<u32, u64>,
    /// The next ticket or turn.
    next: u64,
}

/// Users whose last turn is remembered: with more, whoever comes back is new.
const REMEMBERED: usize = 1024;

impl ShareState {
    /// Who of those that wait is next, where there is a place for anybody.
    fn pick(&self, places: usize) -> Option<usize> {
        let quarter = (places / 4).max(1);
        let most = places.saturating_sub(quarter).max(1);
        let count = |which: &dyn Fn(&User) -> bool| self.running.iter().filter(|u| which(u)).count();
        if self.running.len() >= places {
            return None;
        }
        let may = |user: &User| {
            count(&|other| other.trusted == user.trusted) < most
                && (user.trusted || count(&|other| other.uid == user.uid) < quarter)
        };
        let rank = |(at, waiting): &(usize, &Waiting)| {
            let uid = waiting.user.uid;
            (count(&|other| other.uid == uid), self.served.get(&uid).copied().unwrap_or(0), *at)
        };
        let able = self.waiting.iter().enumerate().filter(|(_, waiting)| may(&waiting.user));
        able.min_by_key(rank).map(|(at, _)| at)
    }

    /// Calls all who may go on. Whether there were any.
    fn call(&mut self, places: usize) -> bool {
        let before = self.called.len();
        while let Some(at) = self.pick(places) {
            let Waiting { ticket, user } = self.waiting.remove(at);
            self.called.push(ticket);
            self.running.push(user);
            self.next += 1;
            if self.served.len() >= REMEMBERED {
                self.served.clear();
            }
            self.served.insert(user.uid, self.next);
        }
        self.called.len() > before
    }

    fn leave(&mut self, user: User) {
        if let Some(at) = self.running.iter().position(|other| *other == user) {
            self.running.swap_remove(at);
        }
    }
}

/// The places.
pub(crate) struct Shares {
    places: usize,
    state: Mutex<ShareState>,
    called: Condvar,
}

/// A place, until it is dropped.
pub(crate) struct SharePlace<'a> {
    shares: &'a Shares,
    user: User,
}

impl Shares {
    pub(crate) fn new(places: usize) -> Shares {
        Shares { places: places.max(1), state: Mutex::default(), called: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ShareState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A place for a user's command, once it has one; `None` when `gone` says that nobody waits for it, which
    /// is asked every `look`.
    pub(crate) fn enter(
        &self,
        user: User,
        look: Duration,
        gone: impl Fn() -> bool,
    ) -> Option<SharePlace<'_>> {
        let mut state = self.lock();
        state.next += 1;
        let ticket = state.next;
        state.waiting.push(Waiting { ticket, user });
        if state.call(self.places) {
            self.called.notify_all();
        }
        loop {
            if let Some(at) = state.called.iter().position(|called| *called == ticket) {
                state.called.swap_remove(at);
                return Some(SharePlace { shares: self, user });
            }
            if gone() {
                state.waiting.retain(|waiting| waiting.ticket != ticket);
                return None;
            }
            state = self.called.wait_timeout(state, look).unwrap_or_else(|e| e.into_inner()).0;
        }
    }
}

impl Drop for SharePlace<'_> {
    fn drop(&mut self) {
        let mut state = self.shares.lock();
        state.leave(self.user);
        if state.call(self.shares.places) {
            self.shares.called.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: User = User { uid: 0, trusted: true };

    fn user(uid: u32) -> User {
        User { uid, trusted: false }
    }

    fn ask(state: &mut ShareState, user: User, times: usize) {
        for _ in 0..times {
            state.next += 1;
            let ticket = state.next;
            state.waiting.push(Waiting { ticket, user });
        }
    }

    fn running(state: &ShareState, user: User) -> usize {
        state.running.iter().filter(|other| **other == user).count()
    }

    #[test]
    fn nobody_has_more_than_a_share_and_root_always_has_one() {
        let mut state = ShareState::default();
        for uid in 1..=20 {
            ask(&mut state, user(uid), 30);
            state.call(8);
            assert_eq!(running(&state, user(uid)), [0, 2, 2, 2].get(uid as usize).copied().unwrap_or(0));
        }
        ask(&mut state, ROOT, 30);
        state.call(8);
        assert_eq!((running(&state, ROOT), state.running.len()), (2, 8));
        // And root leaves something to the others.
        let mut state = ShareState::default();
        ask(&mut state, ROOT, 30);
        state.call(8);
        assert_eq!(running(&state, ROOT), 6);
        ask(&mut state, user(1), 30);
        state.call(8);
        assert_eq!((running(&state, user(1)), state.running.len()), (2, 8));
        // One place is enough for all, one after another.
        let mut state = ShareState::default();
        ask(&mut state, user(1), 2);
        ask(&mut state, ROOT, 1);
        state.call(1);
        assert_eq!(state.running, [user(1)]);
    }

    #[test]
    fn a_backlog_delays_others_by_one_turn() {
        let mut state = ShareState::default();
        ask(&mut state, user(1), 100);
        state.call(1);
        ask(&mut state, user(2), 3);
        ask(&mut state, user(3), 1);
        let mut order = Vec::new();
        while let Some(first) = state.running.first().copied() {
            order.push(first.uid);
            state.leave(first);
            state.call(1);
        }
        assert_eq!(order[..8], [1, 2, 3, 1, 2, 1, 2, 1]);
        assert_eq!(order.len(), 104);
        // Nobody overtakes for ever by being new each time.
        let mut state = ShareState::default();
        ask(&mut state, user(1), 1);
        state.call(1);
        ask(&mut state, user(2), 1);
        ask(&mut state, user(1), 1);
        state.leave(user(1));
        state.call(1);
        assert_eq!(state.running, [user(2)]);
    }

    #[test]
    fn who_has_gone_waits_no_more() {
        let shares = Shares::new(1);
        let look = Duration::from_millis(1);
        let first = shares.enter(user(1), look, || false).unwrap();
        assert!(shares.enter(user(2), look, || true).is_none());
        assert!(shares.lock().waiting.is_empty());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| shares.enter(user(2), Duration::from_secs(60), || false).is_some());
            while shares.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(shares.lock().running.is_empty());
    }
}
