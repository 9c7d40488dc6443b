//! Who runs the drive while the driver waits.

use nearside_clock::Nanos;

/// What became of a turn given to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The drive did something; it may have more to do at once.
    Worked,
    /// The drive, on this thread, has nothing to do before the given time (`None`: before it is given work,
    /// or before something outside tells it).
    Idle {
        /// When it next has something to do.
        until: Option<Nanos>,
    },
    /// The drive runs on threads of its own: this thread may sleep until its interrupt.
    Elsewhere,
}

/// The other side of the queues, as far as this thread has to run it.
/// The driver gives it turns while it waits.
pub trait Peer {
    /// One turn at time `now`.
    fn pump(&mut self, now: Nanos) -> Turn;

    /// After [`Turn::Idle`], where the completion policy is not to spin: rest until shortly before
    /// `until` or until something outside tells the drive (or not at all). A runner on real time may
    /// sleep here; one on simulated time lets it pass.
    fn rest(&mut self, _now: Nanos, _until: Option<Nanos>) {
        std::hint::spin_loop();
    }
}

/// A drive with threads of its own (or in another process).
#[derive(Clone, Copy, Debug, Default)]
pub struct Threaded;

impl Peer for Threaded {
    #[inline(always)]
    fn pump(&mut self, _now: Nanos) -> Turn {
        Turn::Elsewhere
    }
}

impl<P: Peer + ?Sized> Peer for &mut P {
    #[inline]
    fn pump(&mut self, now: Nanos) -> Turn {
        (**self).pump(now)
    }
    fn rest(&mut self, now: Nanos, until: Option<Nanos>) {
        (**self).rest(now, until);
    }
}

impl<P: Peer + ?Sized> Peer for Box<P> {
    #[inline]
    fn pump(&mut self, now: Nanos) -> Turn {
        (**self).pump(now)
    }
    fn rest(&mut self, now: Nanos, until: Option<Nanos>) {
        (**self).rest(now, until);
    }
}

/// Several queue pairs of one thread share the drive that runs on it.
impl<P: Peer + ?Sized> Peer for std::rc::Rc<std::cell::RefCell<P>> {
    #[inline]
    fn pump(&mut self, now: Nanos) -> Turn {
        self.borrow_mut().pump(now)
    }
    fn rest(&mut self, now: Nanos, until: Option<Nanos>) {
        self.borrow_mut().rest(now, until);
    }
}

/// What a wait needs: the clock that bounds it, and who runs the drive meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Host<C, P> {
    /// The time.
    pub clock: C,
    /// The drive, as far as this thread runs it.
    pub peer: P,
}

impl<C, P> Host<C, P> {
    /// Of both.
    pub fn new(clock: C, peer: P) -> Host<C, P> {
        Host { clock, peer }
    }
}

impl<C> Host<C, Threaded> {
    /// Of a drive that runs elsewhere.
    pub fn threaded(clock: C) -> Host<C, Threaded> {
        Host { clock, peer: Threaded }
    }
}
