//! Taking connections for ever: an error is no end, and no reason to spin.
//!
//! Out of descriptors or memory, `accept` fails at once and the connection stays in the queue: asked again at
//! once it fails again, at a core's cost. [`accept_each`] says it once, rests, and goes on when there is room
//! again.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// How long to rest before a connection is asked for again, where there was no room for the last one.
pub const REST: Duration = Duration::from_millis(100);

/// What gives connections.
pub trait Listener {
    /// A connection.
    type Stream;

    /// Waits for one.
    ///
    /// # Errors
    /// The system's, of accept(2).
    fn next(&self) -> io::Result<Self::Stream>;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn next(&self) -> io::Result<UnixStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn next(&self) -> io::Result<TcpStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

/// Ends the wait of whoever accepts on this listener, for good.
pub fn stop(listener: &impl AsFd) {
    // What is not there any more waits no more.
    let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
}

/// Hands every connection to `take`, until `ends` says so, which is asked whenever a wait is over ([`stop`]
/// ends one). Why there is no connection is said once, until there is one again. `rest` sleeps.
pub fn accept_each<L: Listener>(
    listener: &L,
    ends: impl Fn() -> bool,
    mut say: impl FnMut(&io::Error),
    mut rest: impl FnMut(Duration),
    mut take: impl FnMut(L::Stream),
) {
    let mut said = false;
    loop {
        let next = listener.next();
        if ends() {
            return;
        }
        match next {
            Ok(stream) => {
                said = false;
                take(stream);
            }
            // The peer has gone before it was taken, or a signal came: the next one may be there.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => {
                if !std::mem::replace(&mut said, true) {
                    say(&error);
                }
                rest(REST);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Gives what is written, one by one.
    struct Script(RefCell<Vec<Result<u8, i32>>>);

    impl Listener for Script {
        type Stream = u8;

        fn next(&self) -> io::Result<u8> {
            self.0.borrow_mut().remove(0).map_err(io::Error::from_raw_os_error)
        }
    }

    #[test]
    fn out_of_descriptors_it_rests_between_its_tries_and_says_it_once() {
        let (full, gone) = (libc::EMFILE, libc::ECONNABORTED);
        let mut script = vec![Ok(1), Err(gone)];
        script.extend([Err(full); 50]);
        script.extend([Ok(2), Err(full), Err(libc::EINTR), Ok(3), Ok(4)]);
        let listener = Script(RefCell::new(script));
        let (said, rests, taken) = (Cell::new(0), Cell::new(Duration::ZERO), RefCell::new(Vec::new()));
        accept_each(
            &listener,
            || taken.borrow().len() == 3,
            |_| said.set(said.get() + 1),
            |time| rests.set(rests.get() + time),
            |stream| taken.borrow_mut().push(stream),
        );
        assert_eq!((said.get(), rests.get(), &taken.borrow()[..]), (2, 51 * REST, &[1, 2, 3][..]));
    }

    #[test]
    fn a_wait_is_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = std::env::temp_dir().join(format!("nearside-accept-{}", std::process::id()));
        let local = UnixListener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (ended, waits) = (AtomicBool::new(false), AtomicUsize::new(0));
        let over = || ended.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                waits.fetch_add(1, Ordering::SeqCst);
                accept_each(&listener, over, |_| (), |_| (), drop);
            });
            scope.spawn(|| {
                waits.fetch_add(1, Ordering::SeqCst);
                accept_each(&local, over, |_| (), |_| (), drop);
            });
            while waits.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            ended.store(true, Ordering::SeqCst);
            stop(&listener);
            stop(&local);
        });
    }
}
