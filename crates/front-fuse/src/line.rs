//! The server's end of a connection, and what time its peer has.
//!
//! A peer that says nothing, that sends half a frame or does not take its reply holds a thread and a place
//! that others may want. So the first byte has to come soon, and a transfer that has begun has its time,
//! however it is spread. Between requests a peer may rest for long: it may be a command whose output somebody
//! reads page by page.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nearside_clock::{Clock, Nanos, TscClock};
use nearside_dma::socket::{Timed, has_gone, wait_for_bytes};

/// What time a peer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until the first byte comes.
    pub greeting: Duration,
    /// For a frame and its bytes from its first byte on, and for each reply.
    pub transfer: Duration,
    /// Between two requests; those that the drive trusts may take longer.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let seconds = Duration::from_secs;
        Limits { greeting: seconds(10), transfer: seconds(30), idle: seconds(900) }
    }
}

/// A connection as [`serve`](crate::serve) uses it. By default the peer has all the time that reads and
/// writes give it, and never goes.
pub trait Line: Read + Write {
    /// Waits until the next request begins.
    ///
    /// # Errors
    /// `UnexpectedEof` where the peer has ended; `TimedOut`; else the system's.
    fn await_request(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// A reply begins.
    fn begin_reply(&mut self) {}

    /// Whether nobody waits for the answer any more.
    fn has_gone(&self) -> bool {
        false
    }
}

/// A connection with limits.
pub(crate) struct Connection<'a> {
    pub(crate) stream: &'a UnixStream,
    pub(crate) clock: TscClock,
    pub(crate) limits: Limits,
    /// Whether the peer may rest for ever.
    pub(crate) trusted: bool,
    /// Whether a request is under way.
    pub(crate) busy: &'a AtomicBool,
    /// Whether the peer has said something yet.
    pub(crate) greeted: bool,
    /// When a transfer has to be over.
    pub(crate) until: Nanos,
}

impl Connection<'_> {
    fn begin(&mut self) {
        self.until = self.clock.now() + self.limits.transfer.as_nanos() as u64;
    }

    fn timed(&mut self) -> Timed<'_, UnixStream, impl FnMut() -> Duration> {
        let (clock, until) = (self.clock, self.until);
        Timed { socket: self.stream, left: move || until - clock.now() }
    }
}

impl Line for Connection<'_> {
    fn await_request(&mut self) -> io::Result<()> {
        self.busy.store(false, Ordering::Relaxed);
        let limit = match (self.greeted, self.trusted) {
            (false, _) => self.limits.greeting,
            (true, false) => self.limits.idle,
            (true, true) => Duration::MAX,
        };
        let until = self.clock.now() + u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        loop {
            let left = until - self.clock.now();
            if wait_for_bytes(self.stream, left)? {
                break;
            }
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        self.greeted = true;
        self.busy.store(true, Ordering::Relaxed);
        self.begin();
        Ok(())
    }

    fn begin_reply(&mut self) {
        self.begin();
    }

    fn has_gone(&self) -> bool {
        has_gone(self.stream)
    }
}

impl Read for Connection<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.timed().read(into)
    }
}

impl Write for Connection<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.timed().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_rests_too_long_is_let_go_unless_it_is_trusted() {
        let (mut far, near) = UnixStream::pair().unwrap();
        let (clock, busy) = (TscClock::new(), AtomicBool::new(false));
        let limits = Limits { idle: Duration::from_millis(1), ..Limits::default() };
        let connection = |trusted, greeted| {
            let until = clock.now();
            Connection { stream: &near, clock, limits, trusted, busy: &busy, greeted, until }
        };
        let error = connection(false, true).await_request().unwrap_err();
        assert_eq!((error.kind(), busy.load(Ordering::Relaxed)), (io::ErrorKind::TimedOut, false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Who is trusted is waited for: the byte comes when the wait goes on for longer than the
                // others have.
                let begun = clock.now();
                while clock.now().since(begun) < 5_000_000 {
                    std::thread::yield_now();
                }
                far.write_all(b"x").unwrap();
            });
            let mut trusted = connection(true, true);
            trusted.await_request().unwrap();
            assert!(busy.load(Ordering::Relaxed));
            let mut byte = [0];
            trusted.read_exact(&mut byte).unwrap();
            assert_eq!(byte, *b"x");
        });
    }
}
