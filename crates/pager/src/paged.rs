//! The memory, as its user has it.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use nearside_clock::Clock;
use nearside_dma::userfault::Served;
use nearside_dma::{EventFd, Region};
use nearside_driver::{Initiator, Peer};

use crate::pager::{Config, Counts, Pager};
use crate::{Error, wire};

enum Server {
    /// A thread of this process, and what ends it.
    Thread(Arc<EventFd>, Option<JoinHandle<Result<Counts, Error>>>),
    /// Another process, and the thread that hears of its end.
    Process(UnixStream, Option<JoinHandle<()>>),
}

/// Memory whose pages are served by a [`Pager`], which ends with it.
pub struct Paged {
    served: Arc<Served>,
    server: Server,
}

impl Paged {
    /// `len` bytes, served by a thread of this process from a namespace of `room` bytes, which it
    /// overwrites.
    ///
    /// # Errors
    /// As [`Served::new`] and [`Pager::new`].
    pub fn here<P, C>(len: usize, io: Initiator<P, C>, room: u64, config: Config) -> Result<Paged, Error>
    where
        P: Peer + Send + 'static,
        C: Clock + Send + 'static,
    {
        let served = Arc::new(Served::new(len).map_err(Error::system("userfaultfd"))?);
        let (faults, memory) = served.hand_over().map_err(Error::system("descriptors"))?;
        let mut pager = Pager::new(io, faults, memory, room, config)?;
        let stop = Arc::new(EventFd::new().map_err(Error::system("an eventfd"))?);
        let told = stop.clone();
        let thread = std::thread::Builder::new().name("nearside-pager".into());
        let thread = thread.spawn(move || pager.run(&*told)).map_err(Error::system("a thread"))?;
        Ok(Paged { served, server: Server::Thread(stop, Some(thread)) })
    }

    /// `len` bytes, `budget` pages of them in memory, served by a process that awaits such at a socket
    /// ([`wire::accept`]), from its drive.
    ///
    /// # Errors
    /// As [`Served::new`]; the socket's, or what the other process says.
    pub fn elsewhere(len: usize, budget: usize, socket: &Path) -> Result<Paged, Error> {
        let served = Arc::new(Served::new(len).map_err(Error::system("userfaultfd"))?);
        let stream = UnixStream::connect(socket).map_err(Error::system("the pager's socket"))?;
        let (faults, memory) = served.hand_over().map_err(Error::system("descriptors"))?;
        wire::hand_over(&stream, &faults, &memory, budget)?;
        let (other, given_up) = (stream.try_clone().map_err(Error::system("descriptors"))?, served.clone());
        let thread = std::thread::Builder::new().name("nearside-paged".into());
        let thread = thread.spawn(move || {
            wire::wait_for_end(&other);
            given_up.give_up();
        });
        let thread = thread.map_err(Error::system("a thread"))?;
        Ok(Paged { served, server: Server::Process(stream, Some(thread)) })
    }

    /// The memory. It may be kept beyond this: what is in memory by then stays, all else is poisoned.
    pub fn region(&self) -> &Arc<Region> {
        self.served.region()
    }

    /// Whether system calls that are handed the memory are served as well; else they end in EFAULT where a
    /// page is not there.
    pub fn serves_system_calls(&self) -> bool {
        self.served.serves_system_calls()
    }

    /// Ends the pager; what it has done, where it was a thread of this process.
    ///
    /// # Errors
    /// What ended it before.
    pub fn end(mut self) -> Result<Option<Counts>, Error> {
        self.stop()
    }

    fn stop(&mut self) -> Result<Option<Counts>, Error> {
        match &mut self.server {
            Server::Thread(stop, thread) => {
                stop.signal();
                let Some(thread) = thread.take() else { return Ok(None) };
                thread.join().map_err(|_| Error::Drive("the pager panicked".into()))?.map(Some)
            }
            Server::Process(stream, thread) => {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                if let Some(thread) = thread.take() {
                    let _ = thread.join();
                }
                Ok(None)
            }
        }
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
