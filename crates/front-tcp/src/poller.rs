//! The poller of a thread (epoll): sockets by their keys, listeners, and the thread's own wake-up.

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use nearside_dma::Wakeup;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;

const WAKEUP: u64 = u64::MAX;
const LISTENERS: u64 = 1 << 48;
/// Events taken at once.
const EVENTS: usize = 64;

/// What happened.
#[derive(Clone, Copy)]
pub(crate) enum PollEvent {
    /// Another thread or a reactor has something for this one.
    Wakeup,
    /// A listener, by its number, has a connection.
    Listener(usize),
    /// A socket, by its key, has something or has room.
    Socket {
        key: usize,
        /// Both directions have ended.
        ended: bool,
    },
}

/// Which readiness of a socket is reported: for reading, for writing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Interest {
    pub(crate) const READ: Interest = Interest { read: true, write: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }
}

/// An epoll instance.
pub(crate) struct Poller {
    epoll: Arc<OwnedFd>,
}

/// A listener whose connections are told of until it is dropped.
pub(crate) struct Listening {
    pub(crate) listener: TcpListener,
    epoll: Arc<OwnedFd>,
}

impl Drop for Listening {
    /// By itself the kernel forgets a socket only when nobody has it open any more: a service manager may.
    fn drop(&mut self) {
        let _ = epoll::delete(&self.epoll, &self.listener);
    }
}

impl Poller {
    /// With a thread's wake-up.
    pub(crate) fn new(wakeup: &Wakeup, thread: usize) -> io::Result<Poller> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, wakeup.event_of(thread), EventData::new_u64(WAKEUP), EventFlags::IN)?;
        Ok(Poller { epoll: Arc::new(epoll) })
    }

    /// Another listener, whose connections are told of.
    pub(crate) fn listen(&self, number: usize, listener: TcpListener) -> io::Result<Listening> {
        listener.set_nonblocking(true)?;
        let data = EventData::new_u64(LISTENERS + number as u64);
        epoll::add(&self.epoll, &listener, data, EventFlags::IN)?;
        Ok(Listening { listener, epoll: self.epoll.clone() })
    }

    /// A new socket, reported when it is ready for reading.
    pub(crate) fn add(&self, key: usize, stream: &TcpStream) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, stream, EventData::new_u64(key as u64), Interest::READ.flags())?)
    }

    pub(crate) fn modify(&self, key: usize, stream: &TcpStream, interest: Interest) {
        let _ = epoll::modify(&self.epoll, stream, EventData::new_u64(key as u64), interest.flags());
    }

    pub(crate) fn remove(&self, stream: &TcpStream) {
        let _ = epoll::delete(&self.epoll, stream);
    }

    /// Whether it tells of connections that wait to be accepted.
    pub(crate) fn set_accepting(&self, listeners: &BTreeMap<usize, Listening>, accepting: bool) {
        let flags = if accepting { EventFlags::IN } else { EventFlags::empty() };
        for (number, listening) in listeners {
            let data = EventData::new_u64(LISTENERS + *number as u64);
            if let Err(error) = epoll::modify(&self.epoll, &listening.listener, data, flags) {
                tracing::error!(%error, "epoll");
            }
        }
    }

    /// What has happened, or happens within the timeout; none where it fails.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> impl Iterator<Item = PollEvent> + use<> {
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as _, tv_nsec: t.subsec_nanos() as _ });
        let count = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => {
                tracing::error!(%error, "epoll");
                0
            }
        };
        events.into_iter().take(count).map(|event| match event.data.u64() {
            WAKEUP => PollEvent::Wakeup,
            listener @ LISTENERS.. => PollEvent::Listener((listener - LISTENERS) as usize),
            key => {
                let (key, flags) = (key as usize, event.flags);
                PollEvent::Socket { key, ended: flags.intersects(EventFlags::HUP | EventFlags::ERR) }
            }
        })
    }
}
