//! Which connections are accepted: so many together, and so many from one address whose hosts have not said
//! who they are.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use nearside_clock::{Nanos, RateLimits};

use crate::poller::{Listening, Poller};
use crate::target::{Counters, Options};

/// How long nothing is accepted after that failed, unless a connection ends.
const PAUSE_NS: u64 = 250_000_000;
/// How often the log says the same of connections that cannot be taken.
const REPORT_EVERY_NS: u64 = 60_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    TurnedAway,
    NotAccepted,
}

/// Connections whose hosts have not said who they are, by where they come from. They are all on the thread
/// that accepts.
#[derive(Default)]
struct Unidentified {
    by_network: HashMap<IpAddr, usize>,
    count: usize,
}

/// What counts as one place: an address, or the network that one customer has at least (RFC 6177).
pub(crate) fn network(peer: &SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

impl Unidentified {
    /// One more, unless there are as many as may be.
    fn admit(&mut self, peer: &SocketAddr, options: &Options) -> bool {
        if self.count >= options.connections.div_ceil(2) {
            return false;
        }
        let network = network(peer);
        let here = self.by_network.get(&network).copied().unwrap_or(0);
        if here >= options.per_address {
            return false;
        }
        self.by_network.insert(network, here + 1);
        self.count += 1;
        true
    }

    fn leave(&mut self, peer: &SocketAddr) {
        let network = network(peer);
        let Some(here) = self.by_network.get_mut(&network) else {
            panic!("{peer} leaves, and none had come from there")
        };
        *here -= 1;
        if *here == 0 {
            self.by_network.remove(&network);
        }
        self.count -= 1;
    }
}

/// What a listener had.
pub(crate) enum Accepted {
    /// A connection: its socket, its peer, and which address of ours it came to.
    Connection(TcpStream, SocketAddr, SocketAddr),
    /// One that is not taken, or was gone before it could be.
    Dropped,
    /// Nothing more, or nothing that can be taken now.
    Nothing,
}

/// The listeners of a thread.
pub(crate) struct Acceptor {
    /// By their numbers.
    listeners: BTreeMap<usize, Listening>,
    unidentified: Unidentified,
    /// When connections are accepted again.
    paused_until: Option<Nanos>,
    /// What the log was told.
    reports: RateLimits<Trouble>,
}

impl Acceptor {
    pub(crate) fn new() -> Acceptor {
        let reports = RateLimits::new(REPORT_EVERY_NS);
        let (listeners, unidentified) = (BTreeMap::new(), Unidentified::default());
        Acceptor { listeners, unidentified, paused_until: None, reports }
    }

    /// Takes connections of another listener.
    pub(crate) fn listen(&mut self, number: usize, listener: TcpListener, poller: &Poller) -> io::Result<()> {
        self.listeners.insert(number, poller.listen(number, listener)?);
        if self.paused_until.is_some() {
            poller.set_accepting(&self.listeners, false);
        }
        Ok(())
    }

    /// Takes no more of that one.
    pub(crate) fn stop_listening(&mut self, number: usize) {
        self.listeners.remove(&number);
    }

    /// The next connection of a listener, counted as one whose host has not said who it is.
    pub(crate) fn accept(
        &mut self,
        listener: usize,
        poller: &Poller,
        options: &Options,
        counters: &Counters,
        now: Nanos,
    ) -> Accepted {
        let Some(listening) = self.listeners.get(&listener) else { return Accepted::Nothing };
        let (stream, peer) = match listening.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Accepted::Nothing,
                // It was gone before it was taken.
                io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => return Accepted::Dropped,
                _ => {
                    counters.not_accepted.fetch_add(1, Ordering::Relaxed);
                    self.pause(&error, poller, now);
                    return Accepted::Nothing;
                }
            },
        };
        let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        let Ok(address) = ready.and_then(|()| stream.local_addr()) else { return Accepted::Dropped };
        let open = counters.open.load(Ordering::Relaxed);
        if open >= options.connections as u64 || !self.unidentified.admit(&peer, options) {
            counters.turned_away.fetch_add(1, Ordering::Relaxed);
            if let Some(suppressed) = self.reports.admit(Trouble::TurnedAway, now) {
                tracing::warn!(%peer, open, suppressed, "there are too many connections, of all or from that address");
            }
            return Accepted::Dropped;
        }
        counters.connections.fetch_add(1, Ordering::Relaxed);
        counters.open.fetch_add(1, Ordering::Relaxed);
        Accepted::Connection(stream, peer, address)
    }

    /// A host has said who it is, or has gone.
    pub(crate) fn identified(&mut self, peer: &SocketAddr) {
        self.unidentified.leave(peer);
    }

    /// No connection can be accepted, for lack of descriptors or of memory: the poller would say again and
    /// again that there is one.
    fn pause(&mut self, error: &io::Error, poller: &Poller, now: Nanos) {
        if let Some(suppressed) = self.reports.admit(Trouble::NotAccepted, now) {
            tracing::warn!(%error, suppressed, "no connection can be accepted until another ends");
        }
        self.paused_until = Some(now + PAUSE_NS);
        poller.set_accepting(&self.listeners, false);
    }

    /// When connections are accepted again, where they are not now.
    pub(crate) fn paused_until(&self) -> Option<Nanos> {
        self.paused_until
    }

    /// Ends a pause.
    pub(crate) fn resume(&mut self, poller: &Poller) {
        if self.paused_until.take().is_some() {
            poller.set_accepting(&self.listeners, true);
        }
    }

    /// Accepts nothing any more.
    pub(crate) fn close(&mut self) {
        self.listeners.clear();
    }
}
