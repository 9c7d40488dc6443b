#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! The front is a host to the drive. For each association it makes a controller of `nearside-device`, whose
//! queue pairs lie in memory as for any host; it copies each capsule's entry into a submission queue with its
//! SGL naming a staging buffer, steps the reactor on the same thread, and sends what the completion queue
//! says. So the drive knows nothing of TCP.
//!
//! A read passes: `thread` -> `connection` (the capsule, checked) -> `queue` -> the drive's reactor ->
//! `connection` (C2HData) -> `output`. Hosts are not believed: a peer that breaks the rules, or that stops
//! half-way, loses its connection with the specified termination request, and nothing else. Nobody waits for
//! a peer without end (`patience`), hosts with a key prove who they are before anything else of theirs is
//! taken (`authentication`; `attempts` slows those that fail), over connections that are encrypted where they
//! have a key for that (`encryption`; `generated` has what their other keys agreed on), and what hosts share
//! (staging buffers, connections) is shared out by host (`pool`, `hosts`).
//!
//! Modules import one way: `thread` owns all and knows `mail`, `acceptor` and `connection`; a connection
//! knows `authentication`, `encryption`, `fabrics`, `queue`, `output` and `target`; a target knows
//! `generated` and `association`, that knows `offer`.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod acceptor;
mod association;
mod attempts;
mod authentication;
mod connection;
mod encryption;
mod fabrics;
mod generated;
mod hosts;
mod mail;
mod offer;
mod output;
mod patience;
mod poller;
mod pool;
mod queue;
mod target;
mod thread;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;

use nearside_clock::Clock;
use nearside_device::Firmware;
use nearside_dma::cpu::CpuClock;
use nearside_store::Store;

pub use offer::Offer;
pub use target::{Connected, Counters, Options, Target};

/// A target's threads. Dropped, it stops them: what was taken is finished and answered first.
pub struct Server<S: Store, F: Firmware<S>> {
    target: Arc<Target<S, F>>,
    mailboxes: Arc<mail::Mailboxes<S, F>>,
    threads: Vec<JoinHandle<()>>,
}

impl<S: Store, F: Firmware<S>> Server<S, F> {
    /// Listens and serves.
    ///
    /// # Errors
    /// The system's: a listener without an address, no descriptors, no thread. Threads already started are
    /// stopped.
    pub fn start(
        target: Arc<Target<S, F>>,
        listeners: Vec<TcpListener>,
        clock: impl Clock + Clone + 'static,
    ) -> io::Result<Server<S, F>> {
        let mailboxes = Arc::new(mail::Mailboxes::new(target.options.threads, target.wakeup.clone()));
        let mut server = Server { target: target.clone(), mailboxes: mailboxes.clone(), threads: Vec::new() };
        // The first thread accepts, once it runs. All pools are known before it does.
        for listener in listeners {
            server.listen(listener)?;
        }
        let (ask, jobs) = mpsc::channel();
        let mut made = Vec::new();
        for index in 0..target.options.threads {
            made.push(thread::Thread::new(
                index,
                target.clone(),
                mailboxes.clone(),
                clock.clone(),
                ask.clone(),
            )?);
        }
        for (index, thread) in made.into_iter().enumerate() {
            let builder = std::thread::Builder::new().name(format!("tcp{index}"));
            server.threads.push(builder.spawn(move || thread.run())?);
        }
        // The last: it ends when they have.
        let builder = std::thread::Builder::new().name("tcp-auth".into());
        server.threads.push(builder.spawn(move || authentication::work(jobs, mailboxes))?);
        Ok(server)
    }

    /// Where hosts are awaited.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening().into_values().collect()
    }

    /// Where hosts are awaited, by the numbers by which discovery knows them.
    pub fn listening(&self) -> BTreeMap<usize, SocketAddr> {
        self.target.listening()
    }

    /// Awaits hosts at another address as well; its number.
    ///
    /// # Errors
    /// The system's: the listener has no address.
    pub fn listen(&self, listener: TcpListener) -> io::Result<usize> {
        let number = self.target.listen(listener.local_addr()?);
        self.mailboxes.post(0, mail::Mail::Listen(number, listener));
        Ok(number)
    }

    /// Awaits no more hosts at an address. Who is connected stays.
    pub fn stop_listening(&self, number: usize) {
        self.target.stop_listening(number);
        self.mailboxes.post(0, mail::Mail::StopListening(number));
    }

    /// Offers a subsystem no more, and ends the connections of the hosts that use it. Returns what was
    /// offered.
    pub fn withdraw(&self, nqn: &str) -> Option<Arc<Offer<S, F>>> {
        let withdrawn = self.target.withdraw(nqn)?;
        self.end(|association| association.offer.is_some() && association.nqn == nqn);
        Some(withdrawn)
    }

    /// Ends the connections of a host to a subsystem; how many controllers it had.
    pub fn disconnect(&self, nqn: &str, host: &str) -> usize {
        self.end(|association| {
            association.offer.is_some() && association.nqn == nqn && association.host_nqn == host
        })
    }

    fn end(&self, which: impl Fn(&association::Association<S, F>) -> bool) -> usize {
        let all = self.target.associations(which);
        all.iter().for_each(|association| thread::end(&self.target, &self.mailboxes, association));
        all.len()
    }

    /// CPU time that its threads have taken so far, in nanoseconds.
    ///
    /// # Errors
    /// Those of clock_gettime(2).
    pub fn cpu_ns(&self) -> io::Result<u64> {
        self.threads.iter().map(|thread| CpuClock::of(thread)?.now_ns()).sum()
    }

    /// What it serves.
    pub fn target(&self) -> &Arc<Target<S, F>> {
        &self.target
    }
}

impl<S: Store, F: Firmware<S>> Drop for Server<S, F> {
    fn drop(&mut self) {
        // A wake-up after the store: a thread that sleeps sees `stopping` when it wakes, one that is about to
        // sleep sees it before.
        self.target.stopping.store(true, Ordering::SeqCst);
        self.target.wakeup.wake();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a thread of the target panicked");
            }
        }
    }
}
