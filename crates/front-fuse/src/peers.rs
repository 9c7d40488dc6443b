//! Who is connected, and who gets in when there is no room.
//!
//! Those whom the drive trusts have places of their own, which no number of others can take. Of the others
//! one user has at most [`MAX_OF_ONE_USER`]; when all places of the others are taken, a user with fewer
//! connections than another gets one of that user's.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::share::User;

/// Connections at a time of those whom the drive trusts; and of all others together as many. More are closed
/// at once.
pub const MAX_CONNECTIONS: usize = 64;
/// Connections of one user of the others.
pub const MAX_OF_ONE_USER: usize = 16;

/// A connection.
struct OpenConnection<S> {
    id: usize,
    user: User,
    /// Whether a request is under way.
    busy: Arc<AtomicBool>,
    stream: S,
}

/// What becomes of who comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Enter,
    /// In the place of the connection with that index.
    InPlaceOf(usize),
    Refuse,
}

/// The connections that are open, each with what closes it.
pub(crate) struct Peers<S = UnixStream> {
    /// In the order in which they came.
    open: Mutex<Vec<OpenConnection<S>>>,
}

fn judge<S>(open: &[OpenConnection<S>], user: User) -> Verdict {
    let alike = || open.iter().filter(move |peer| peer.user.trusted == user.trusted);
    let of = |uid: u32| alike().filter(move |peer| peer.user.uid == uid).count();
    let own = of(user.uid);
    if !user.trusted && own >= MAX_OF_ONE_USER {
        return Verdict::Refuse;
    }
    if alike().count() < MAX_CONNECTIONS {
        return Verdict::Enter;
    }
    let Some(most) =
        alike().map(|peer| of(peer.user.uid)).max().filter(|most| !user.trusted && *most > own + 1)
    else {
        return Verdict::Refuse;
    };
    // The one that rests since the longest; if all work, the one that came last.
    let theirs =
        || open.iter().enumerate().filter(move |(_, peer)| !peer.user.trusted && of(peer.user.uid) == most);
    let resting = theirs().find(|(_, peer)| !peer.busy.load(Ordering::Relaxed));
    resting.or_else(|| theirs().last()).map_or(Verdict::Refuse, |(at, _)| Verdict::InPlaceOf(at))
}

impl<S> Peers<S> {
    pub(crate) fn new() -> Peers<S> {
        Peers { open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Vec<OpenConnection<S>>> {
        self.open.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Enters a connection; its flag, by which it says whether a request is under way. `None`: there is no
    /// room. Who has to make room is handed to `close`.
    pub(crate) fn enter(
        &self,
        id: usize,
        user: User,
        stream: S,
        close: impl FnOnce(S),
    ) -> Option<Arc<AtomicBool>> {
        let mut open = self.open();
        match judge(&open, user) {
            Verdict::Enter => {}
            Verdict::InPlaceOf(at) => close(open.remove(at).stream),
            Verdict::Refuse => return None,
        }
        let busy = Arc::new(AtomicBool::new(false));
        open.push(OpenConnection { id, user, busy: busy.clone(), stream });
        Some(busy)
    }

    pub(crate) fn leave(&self, id: usize) {
        self.open().retain(|peer| peer.id != id);
    }

    /// Hands all to `close`.
    pub(crate) fn end(&self, close: impl Fn(S)) {
        self.open().drain(..).for_each(|peer| close(peer.stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: User = User { uid: 0, trusted: true };

    fn user(uid: u32) -> User {
        User { uid, trusted: false }
    }

    /// Connections whose streams are their numbers, and which were closed.
    #[derive(Default)]
    struct Acceptor {
        peers: Peers<usize>,
        closed: Mutex<Vec<usize>>,
        next: usize,
    }

    impl<S> Default for Peers<S> {
        fn default() -> Self {
            Peers::new()
        }
    }

    impl Acceptor {
        fn come(&mut self, user: User, times: usize) -> Vec<Option<Arc<AtomicBool>>> {
            (0..times)
                .map(|_| {
                    self.next += 1;
                    self.peers.enter(self.next, user, self.next, |id| self.closed.lock().unwrap().push(id))
                })
                .collect()
        }
    }

    #[test]
    fn four_users_with_all_their_connections_lock_nobody_out() {
        let mut acceptor = Acceptor::default();
        for uid in 1..=4 {
            let entered = acceptor.come(user(uid), 40);
            assert_eq!(entered.iter().flatten().count(), MAX_OF_ONE_USER, "user {uid}");
            // All work but one.
            entered.iter().flatten().skip(1).for_each(|busy| busy.store(true, Ordering::Relaxed));
        }
        // Root, and the drive's own user.
        assert!(acceptor.come(ROOT, 10).iter().all(Option::is_some));
        assert!(acceptor.come(User { uid: 77, trusted: true }, 10).iter().all(Option::is_some));
        assert!(acceptor.closed.lock().unwrap().is_empty());
        // A fifth user: those that rest make room first, one user after another; then those that came last.
        assert!(acceptor.come(user(5), 6).iter().all(Option::is_some));
        assert_eq!(*acceptor.closed.lock().unwrap(), [1, 41, 81, 121, 136, 96]);
        // Nobody gains by it in the end.
        let entered = acceptor.come(user(5), 20);
        assert!(entered.iter().flatten().count() < 10, "{}", entered.iter().flatten().count());
        for uid in 1..=4 {
            let left = acceptor.peers.open().iter().filter(|peer| peer.user.uid == uid).count();
            assert!((12..=13).contains(&left), "user {uid}: {left}");
        }
        // And trusted ones have a bound as well.
        assert_eq!(acceptor.come(ROOT, 100).iter().flatten().count(), MAX_CONNECTIONS - 20);
        assert_eq!(acceptor.peers.open().len(), 2 * MAX_CONNECTIONS);
        acceptor.peers.leave(1);
        acceptor.peers.end(|_| ());
        assert!(acceptor.peers.open().is_empty());
    }
}
