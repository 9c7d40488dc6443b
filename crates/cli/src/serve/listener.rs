//! A server's small listeners (control, HTTP):
//! whoever connects asks one thing, is answered, and the connection ends.
//!
//! Each is answered on a thread of its own, so that a slow one keeps nobody else waiting; at most [`MOST`] at
//! a time, of which the oldest gives way to a new one. Who gives way is cut off at once, but what was being
//! worked out for him goes on to its end: with [`THREADS`] at work nobody else is met. A peer has one limit
//! for all the time that it takes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nearside_dma::accept::{self, Listener};
use nearside_dma::socket::Timed;
use nearside_dma::system;

/// Connections that are answered at a time.
const MOST: usize = 8;
/// Threads of a listener that answer, those whose connections gave way among them.
const THREADS: usize = 16;
/// What time a peer has to ask and to take its answer.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that another thread may end.
pub trait Stream: AsFd + Send + 'static {
    fn duplicate(&self) -> io::Result<Self>
    where
        Self: Sized;

    fn end(&self);

    /// Whether whoever is at its other end may ask anything.
    fn is_admitted(&self) -> bool {
        true
    }
}

impl Stream for TcpStream {
    fn duplicate(&self) -> io::Result<TcpStream> {
        self.try_clone()
    }

    fn end(&self) {
        let _ = self.shutdown(std::net::Shutdown::Both);
    }
}

/// Of this machine only the server's own user asks, and root: whatever the mode of the socket has become.
impl Stream for UnixStream {
    fn is_admitted(&self) -> bool {
        system::peer(self).is_ok_and(|peer| peer.uid == 0 || peer.uid == system::effective_ids().0)
    }

    fn duplicate(&self) -> io::Result<UnixStream> {
        self.try_clone()
    }

    fn end(&self) {
        let _ = self.shutdown(std::net::Shutdown::Both);
    }
}

/// What is read and written within a peer's time.
pub trait Peer: Read + Write {}

impl<T: Read + Write> Peer for T {}

/// Those that are being answered, the oldest first.
struct Answered<S>(Mutex<Vec<(u64, S)>>);

impl<S: Stream> Answered<S> {
    fn with<R>(&self, with: impl FnOnce(&mut Vec<(u64, S)>) -> R) -> R {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn enter(&self, id: u64, stream: &S) -> io::Result<()> {
        let stream = stream.duplicate()?;
        self.with(|all| {
            while all.len() >= MOST {
                all.remove(0).1.end();
            }
            all.push((id, stream));
        });
        Ok(())
    }

    fn leave(&self, id: u64) {
        self.with(|all| all.retain(|(other, _)| *other != id));
    }
}

/// A thread that lives, or is about to.
struct Living(Arc<AtomicUsize>);

impl Living {
    /// One more; `None` where there are as many as may be.
    fn begin(all: &Arc<AtomicUsize>) -> Option<Living> {
        let before = all.fetch_add(1, Ordering::Relaxed);
        // Dropped where it is one too many, it is counted no more.
        let living = Living(all.clone());
        (before < THREADS).then_some(living)
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers who connects, on threads of its own, for as long as the program runs.
pub fn open<L>(
    name: &'static str,
    listener: L,
    patience: Duration,
    answer: impl Fn(&mut dyn Peer) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()>
where
    L: Listener<Stream: Stream> + Send + 'static,
{
    let answered = Arc::new(Answered(Mutex::new(Vec::new())));
    let answer = Arc::new(answer);
    let threads = Arc::new(AtomicUsize::new(0));
    let mut id = 0;
    let mut meet = move |stream: L::Stream| -> io::Result<()> {
        if !stream.is_admitted() {
            return Err(io::Error::other("another user asks"));
        }
        let Some(living) = Living::begin(&threads) else { return Ok(()) };
        id += 1;
        answered.enter(id, &stream)?;
        let (all, answer, until) = (answered.clone(), answer.clone(), Instant::now() + patience);
        let spawned = std::thread::Builder::new().name(name.into()).spawn(move || {
            let left = || until.saturating_duration_since(Instant::now());
            if let Err(error) = answer(&mut Timed { socket: &stream, left }) {
                tracing::info!(%error, name);
            }
            all.leave(id);
            drop(living);
        });
        spawned.map(drop).inspect_err(|_| answered.leave(id))
    };
    let take = move |stream| {
        if let Err(error) = meet(stream) {
            tracing::warn!(%error, name);
        }
    };
    let say = move |error: &io::Error| tracing::warn!(%error, name, "nobody can connect");
    let serve = move || accept::accept_each(&listener, || false, say, std::thread::sleep, take);
    std::thread::Builder::new().name(name.into()).spawn(serve)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::AtomicBool;

    /// A listener that gives back each line; its address, and how many it is at work for.
    fn echoes(patience: Duration) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let at_work = Arc::new(AtomicUsize::new(0));
        let counted = at_work.clone();
        let answer = move |peer: &mut dyn Peer| {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut line = Vec::new();
            let mut byte = [0];
            let read = loop {
                match peer.read_exact(&mut byte) {
                    Ok(()) if byte == *b"\n" => break Ok(()),
                    Ok(()) => line.extend(byte),
                    Err(e) => break Err(e),
                }
            };
            let done = read.and_then(|()| peer.write_all(&line));
            counted.fetch_sub(1, Ordering::SeqCst);
            done
        };
        open("echo", listener, patience, answer).unwrap();
        (address, at_work)
    }

    /// What is said to a line; nothing where there is no room.
    fn ask(address: std::net::SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(b"hello\n");
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said
    }

    #[test]
    fn those_who_say_nothing_keep_nobody_waiting() {
        let (address, at_work) = echoes(Duration::from_secs(3600));
        let silent = || {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(b"hel");
            stream
        };
        let mut first = silent();
        let others: Vec<TcpStream> = (1..3 * MOST).map(|_| silent()).collect();
        // While those that gave way are still ending, there may be no room.
        while ask(address) != "hello" {}
        // The oldest were ended, and never are there more than may be.
        assert_eq!(first.read(&mut [0]).unwrap_or(0), 0);
        while at_work.load(Ordering::SeqCst) >= MOST {
            std::thread::yield_now();
        }
        // The newest goes on where it was.
        let goes_on = || {
            let mut last = silent();
            let _ = last.write_all(b"lo\n");
            let mut said = String::new();
            let _ = last.read_to_string(&mut said);
            said == "hello"
        };
        while !goes_on() {}
        drop(others);
    }

    #[test]
    fn work_that_nobody_waits_for_has_a_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (at_work, may_end) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ends) = (at_work.clone(), may_end.clone());
        let answer = move |peer: &mut dyn Peer| {
            counted.fetch_add(1, Ordering::SeqCst);
            while !ends.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            counted.fetch_sub(1, Ordering::SeqCst);
            peer.write_all(b"done")
        };
        open("work", listener, Duration::from_secs(3600), answer).unwrap();
        let asked: Vec<TcpStream> = (0..THREADS).map(|_| TcpStream::connect(address).unwrap()).collect();
        while at_work.load(Ordering::SeqCst) < THREADS {
            std::thread::yield_now();
        }
        // One more finds no room, and costs nobody his.
        let mut more = TcpStream::connect(address).unwrap();
        assert_eq!(more.read(&mut [0]).unwrap_or(0), 0);
        assert_eq!(at_work.load(Ordering::SeqCst), THREADS);
        may_end.store(true, Ordering::SeqCst);
        let said = |mut stream: TcpStream| {
            let mut said = String::new();
            let _ = stream.read_to_string(&mut said);
            said
        };
        let answered = asked.into_iter().map(said).filter(|said| said == "done").count();
        assert_eq!(answered, MOST);
        while said(TcpStream::connect(address).unwrap()) != "done" {}
    }

    #[test]
    fn a_byte_now_and_then_renews_nothing() {
        let (address, at_work) = echoes(Duration::from_millis(20));
        let mut slow = TcpStream::connect(address).unwrap();
        slow.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        while slow.write_all(b"x").is_ok() {
            // Until the next one: nothing is said here.
            let _ = slow.read(&mut [0]);
        }
        while at_work.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}
