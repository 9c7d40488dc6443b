//! Memory of a host that is reached only by asking the host for it, by messages.
//!
//! A drive asks ([`Remote::read`], [`Remote::write`]) and goes on with other work; whoever has the connection
//! sends what is asked ([`Remote::next`]) and hands in what the host says ([`Remote::answered`]); the drive
//! takes that when it looks again ([`Remote::take`]). Nobody waits for a host here, and nothing that a host
//! says is believed: an answer to nothing is nothing, one that does not fit what was asked is a failure, and
//! one that comes after the drive gave up keeps the name of its question until then.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Questions that a host is sent before it answers the first.
const WINDOW: usize = 64;
/// Bytes that a host is asked for before it gives the first. QEMU sends an answer by one write
/// (`vfio_user_send_qio`, hw/vfio-user/proxy.c), and loses what its socket of about 200 KiB has no room for.
const READING: usize = 64 << 10;
/// Questions that are kept, sent or not.
const MOST: usize = 1 << 15;
/// Reactors that can ask.
const REACTORS: usize = 64;

/// From here on addresses are no host's: drives keep there what the data of such memory go by.
pub const BOUNCE_IOVA: u64 = 1 << 63;

/// What a host is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Bytes of its memory.
    Read {
        /// Where.
        address: u64,
        /// How many.
        len: usize,
    },
    /// To write bytes to its memory.
    Write {
        /// Where.
        address: u64,
        /// Which.
        bytes: Vec<u8>,
    },
}

/// What became of a question: the bytes that were read (none of a write), or nothing, since the host did not
/// do it.
pub type Answered = Option<Vec<u8>>;

/// What a host says where it does what it was asked: where that was and of how many bytes, if it says so, and
/// the bytes that were read.
pub type Said = (Option<(u64, u64)>, Vec<u8>);

/// Memory of one host that is reached by messages.
#[derive(Default)]
pub struct Remote {
    /// Some is mapped.
    used: AtomicBool,
    /// Reactors that answers wait for, as bits.
    news: AtomicU64,
    /// Most bytes of one question.
    most: AtomicUsize,
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Default)]
struct State {
    ranges: BTreeMap<u64, Range>,
    questions: HashMap<u16, Question>,
    /// Questions that are not sent yet, in order.
    unsent: VecDeque<(u16, Ask)>,
    next: u16,
    /// Bytes of memory that the host was sent questions for.
    reading: usize,
    answers: HashMap<usize, Vec<(u64, Answered)>>,
    ended: bool,
}

struct Range {
    end: u64,
    readable: bool,
    writable: bool,
}

struct Question {
    reactor: usize,
    token: u64,
    address: u64,
    len: usize,
    is_write: bool,
    sent: bool,
    /// Somebody wants to know.
    wanted: bool,
}

impl Remote {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// From here on no question is of more bytes. Before any memory is mapped.
    pub fn limit(&self, bytes: usize) {
        self.most.store(bytes, Ordering::Relaxed);
    }

    /// Most bytes of one question.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Whether any memory is reached so.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether a range lies in memory that is reached so, and may be read, or written.
    pub fn holds(&self, iova: u64, len: usize, write: bool) -> bool {
        let Some(end) = iova.checked_add(len as u64).filter(|_| self.is_used()) else { return false };
        let state = self.state();
        let range = state.ranges.range(..=iova).next_back();
        range.is_some_and(|(_, r)| end <= r.end && if write { r.writable } else { r.readable })
    }

    pub(crate) fn map(&self, iova: u64, len: u64, readable: bool, writable: bool) {
        let end = iova.saturating_add(len);
        self.state().ranges.insert(iova, Range { end, readable, writable });
        self.used.store(true, Ordering::Relaxed);
    }

    /// What is asked of the range is not answered any more.
    pub(crate) fn unmap(&self, iova: u64) {
        let mut state = self.state();
        let Some(Range { end, .. }) = state.ranges.remove(&iova) else { return };
        self.used.store(!state.ranges.is_empty(), Ordering::Relaxed);
        self.give_up(&mut state, |q| q.address < end && iova < q.address + q.len as u64, true);
    }

    /// Asks for bytes, for a reactor and under its name for the question, which it gives none again. Whether
    /// that can be asked.
    pub fn read(&self, reactor: usize, token: u64, address: u64, len: usize) -> bool {
        self.holds(address, len, false) && self.ask(reactor, token, Ask::Read { address, len })
    }

    /// As [`Remote::read`], to write.
    pub fn write(&self, reactor: usize, token: u64, address: u64, bytes: Vec<u8>) -> bool {
        self.holds(address, bytes.len(), true) && self.ask(reactor, token, Ask::Write { address, bytes })
    }

    fn ask(&self, reactor: usize, token: u64, ask: Ask) -> bool {
        let mut state = self.state();
        if state.ended || state.questions.len() >= MOST || reactor >= REACTORS {
            return false;
        }
        let (address, len, is_write) = match &ask {
            Ask::Read { address, len } => (*address, *len, false),
            Ask::Write { address, bytes } => (*address, bytes.len(), true),
        };
        // Fewer than there are names.
        while state.questions.contains_key(&state.next) {
            state.next = state.next.wrapping_add(1);
        }
        let id = state.next;
        state.next = id.wrapping_add(1);
        let question = Question { reactor, token, address, len, is_write, sent: false, wanted: true };
        state.questions.insert(id, question);
        state.unsent.push_back((id, ask));
        drop(state);
        self.asked.notify_one();
        true
    }

    /// The reactor wants no answer any more to the questions that `which` names.
    pub fn forget(&self, reactor: usize, which: impl Fn(u64) -> bool) {
        self.give_up(&mut self.state(), |q| q.reactor == reactor && which(q.token), false);
    }

    /// The reactor wants nothing any more but to know what was written: how many writes the host has been
    /// sent and has not answered.
    pub fn settle(&self, reactor: usize) -> usize {
        let mut state = self.state();
        self.give_up(&mut state, |q| q.reactor == reactor && !(q.is_write && q.sent), false);
        state.questions.values().filter(|q| q.reactor == reactor && q.wanted).count()
    }

    /// All that is asked comes to nothing.
    pub fn give_up_all(&self) {
        self.give_up(&mut self.state(), |_| true, true);
    }

    /// Questions end that `which` names. Those that the host was sent keep their names until it answers.
    fn give_up(&self, state: &mut State, which: impl Fn(&Question) -> bool, tell: bool) {
        let State { questions, unsent, answers, .. } = state;
        questions.retain(|_, question| {
            if !question.wanted || !which(question) {
                return true;
            }
            question.wanted = false;
            if tell {
                answers.entry(question.reactor).or_default().push((question.token, None));
                self.news.fetch_or(1 << question.reactor, Ordering::Release);
            }
            question.sent
        });
        unsent.retain(|(id, _)| questions.contains_key(id));
    }

    /// The next question to send, with its name; waits for one. `None`: no more come.
    pub fn next(&self) -> Option<(u16, Ask)> {
        let mut state = self.state();
        loop {
            if state.ended {
                return None;
            }
            let out = state.questions.len() - state.unsent.len();
            let more = match state.unsent.front() {
                Some((_, Ask::Read { len, .. })) => *len,
                _ => 0,
            };
            if out < WINDOW
                && (state.reading == 0 || state.reading + more <= READING)
                && let Some((id, ask)) = state.unsent.pop_front()
            {
                state.reading += more;
                if let Some(question) = state.questions.get_mut(&id) {
                    question.sent = true;
                }
                return Some((id, ask));
            }
            state = self.asked.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// No more is asked; who waits in [`Remote::next`] goes.
    pub fn end(&self) {
        self.state().ended = true;
        self.asked.notify_all();
    }

    /// What the host says to a question; `None`: that it does not. What was read comes with what the host
    /// says of where it was, and how long; to a write it may say no more than that it is done. Whether
    /// anybody waited for it: the drive is to be woken then.
    pub fn answered(&self, id: u16, is_write: bool, said: Option<Said>) -> bool {
        let mut state = self.state();
        match state.questions.get(&id) {
            Some(question) if question.sent => {}
            _ => return false,
        }
        let Some(question) = state.questions.remove(&id) else { return false };
        state.reading -= if question.is_write { 0 } else { question.len };
        self.asked.notify_one();
        if !question.wanted {
            return false;
        }
        let asked = (question.address, question.len as u64);
        let fits = |(place, bytes): &Said| {
            let read = if is_write { 0 } else { question.len };
            is_write == question.is_write
                && place.map_or(is_write, |place| place == asked)
                && bytes.len() == read
        };
        let answer = said.filter(fits).map(|(_, bytes)| bytes);
        state.answers.entry(question.reactor).or_default().push((question.token, answer));
        self.news.fetch_or(1 << question.reactor, Ordering::Release);
        true
    }

    /// Whether answers wait for a reactor.
    #[inline]
    pub fn has_news(&self, reactor: usize) -> bool {
        self.news.load(Ordering::Acquire) & 1 << reactor != 0
    }

    /// The answers that came for a reactor, by its names for the questions.
    pub fn take(&self, reactor: usize) -> Vec<(u64, Answered)> {
        let mut state = self.state();
        self.news.fetch_and(!(1 << reactor), Ordering::Relaxed);
        state.answers.remove(&reactor).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote() -> Remote {
        let remote = Remote::default();
        remote.limit(4096);
        remote.map(0x1000, 0x3000, true, true);
        remote.map(0x8000, 0x1000, true, false);
        remote
    }

    #[test]
    fn only_what_is_mapped_is_asked_for() {
        let remote = remote();
        assert!(remote.read(0, 1, 0x1000, 0x3000) && remote.read(0, 2, 0x8fff, 1));
        assert!(!remote.read(0, 3, 0xfff, 1) && !remote.read(0, 3, 0x3fff, 2));
        assert!(!remote.read(0, 3, u64::MAX, 2) && !remote.write(0, 3, 0x8000, vec![1]));
        assert!(remote.write(0, 4, 0x2000, vec![1, 2]));
        let asked: Vec<_> = (0..3).map(|_| remote.next().unwrap()).collect();
        assert_eq!(asked[2], (2, Ask::Write { address: 0x2000, bytes: vec![1, 2] }));
        remote.end();
        assert_eq!(remote.next(), None);
        assert!(!remote.read(0, 5, 0x1000, 1));
    }

    /// Late, twice, of another command, of other bytes, too few, too many, to nothing.
    #[test]
    fn answers_that_are_none() {
        let remote = remote();
        let ask = |token| {
            assert!(remote.read(3, token, 0x1000, 2));
            remote.next().unwrap().0
        };
        let id = ask(1);
        assert!(!remote.answered(id + 1, false, Some((Some((0x1000, 2)), vec![1, 2]))));
        assert!(remote.answered(id, false, Some((Some((0x1000, 2)), vec![1, 2]))) && remote.has_news(3));
        assert!(!remote.answered(id, false, Some((Some((0x1000, 2)), vec![3, 4]))), "twice");
        assert_eq!(remote.take(3), [(1, Some(vec![1, 2]))]);
        assert!(!remote.has_news(3) && !remote.has_news(0));
        for (n, (is_write, said)) in [
            (true, Some((Some((0x1000, 2)), vec![]))),
            (false, Some((Some((0x1001, 2)), vec![1, 2]))),
            (false, Some((Some((0x1000, 1)), vec![1]))),
            (false, Some((Some((0x1000, 2)), vec![1]))),
            (false, Some((Some((0x1000, 2)), vec![1, 2, 3]))),
            (false, Some((None, vec![1, 2]))),
            (false, None),
        ]
        .into_iter()
        .enumerate()
        {
            let id = ask(10 + n as u64);
            assert!(remote.answered(id, is_write, said));
            assert_eq!(remote.take(3), [(10 + n as u64, None)]);
        }
        // One that nobody has been sent.
        assert!(remote.read(3, 20, 0x1000, 2));
        let id = remote.state().unsent[0].0;
        assert!(!remote.answered(id, false, Some((Some((0x1000, 2)), vec![1, 2]))));
        // Late: its name is not given again before.
        let (late, _) = remote.next().unwrap();
        remote.forget(3, |token| token == 20);
        for token in 0..1 << 17 {
            assert!(remote.read(3, token, 0x1000, 2));
            let (id, _) = remote.next().unwrap();
            assert_ne!(id, late);
            remote.answered(id, false, None);
        }
        remote.take(3);
        assert!(
            !remote.answered(late, false, Some((Some((0x1000, 2)), vec![1, 2]))) && remote.take(3).is_empty()
        );
    }

    #[test]
    fn what_is_unmapped_is_answered_with_nothing() {
        let remote = remote();
        assert!(remote.read(0, 1, 0x1000, 8) && remote.read(1, 2, 0x8000, 8));
        let (first, _) = remote.next().unwrap();
        assert!(remote.write(0, 3, 0x2000, vec![0; 8]));
        remote.unmap(0x1000);
        assert_eq!(remote.take(0).into_iter().collect::<BTreeMap<_, _>>(), [(1, None), (3, None)].into());
        assert!(remote.is_used() && !remote.read(0, 4, 0x1000, 8));
        // The write is not sent any more, and what was sent is answered to nobody.
        assert!(matches!(remote.next(), Some((_, Ask::Read { address: 0x8000, .. }))));
        assert!(!remote.answered(first, false, Some((Some((0x1000, 8)), vec![0; 8]))));
        remote.unmap(0x8000);
        assert!(!remote.is_used());
    }

    #[test]
    fn a_host_is_asked_for_so_many_bytes_at_a_time() {
        let remote = Remote::default();
        remote.map(0, 1 << 20, true, true);
        for token in 0..4 {
            assert!(remote.read(0, token, 0, READING / 2));
        }
        let (first, _) = remote.next().unwrap();
        remote.next().unwrap();
        std::thread::scope(|scope| {
            let third = scope.spawn(|| remote.next().unwrap().0);
            assert_eq!(remote.state().reading, READING);
            assert!(remote.answered(
                first,
                false,
                Some((Some((0, READING as u64 / 2)), vec![0; READING / 2]))
            ));
            assert_eq!(third.join().unwrap(), 2);
        });
        let state = remote.state();
        assert_eq!((state.reading, state.unsent.len()), (READING, 1));
    }

    #[test]
    fn a_host_that_says_nothing_is_asked_no_more_than_so_much() {
        let remote = remote();
        for token in 0..MOST as u64 {
            assert!(remote.write(0, token, 0x1000, vec![0]));
        }
        assert!(!remote.write(0, 1 << 40, 0x1000, vec![0]), "without end");
        (0..WINDOW).for_each(|_| drop(remote.next().unwrap()));
        assert_eq!(remote.settle(0), WINDOW);
        let id = remote.state().questions.keys().copied().next().unwrap();
        assert!(remote.answered(id, true, Some((Some((0x1000, 1)), vec![]))));
        assert_eq!(remote.settle(0), WINDOW - 1);
        remote.give_up_all();
        assert_eq!((remote.settle(0), remote.state().questions.len()), (0, WINDOW - 1));
    }
}
