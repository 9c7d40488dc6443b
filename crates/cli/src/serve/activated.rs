//! Sockets that a service manager hands over, by the protocol of sd_listen_fds(3): as many descriptors from 3
//! on as LISTEN_FDS says, where LISTEN_PID is this process. Each stands for the address that it is bound to.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use super::plan::Plan;

/// What was handed over, by its address. It is kept for as long as the server runs, as the manager keeps its
/// own: nobody could bind an address that was taken away and comes back.
pub struct Activated(BTreeMap<SocketAddr, TcpListener>);

impl Activated {
    /// Takes what is there, and the variables that say so, which children see no more: call it before any
    /// other thread is there.
    ///
    /// # Errors
    /// Something that is no listening TCP socket, or that listens where the plan does not.
    pub fn take(plan: &Plan) -> Result<Activated, String> {
        // Without LISTEN_PID the crate would believe LISTEN_FDS.
        let ours = std::env::var("LISTEN_PID").is_ok_and(|pid| pid.parse::<u32>() == Ok(std::process::id()));
        let mut handed = if ours { ListenFd::from_env() } else { ListenFd::empty() };
        let named = plan.addresses()?;
        let mut all = BTreeMap::new();
        for nth in 0..handed.len() {
            let other =
                || format!("systemd hands over descriptor {}, which is no listening TCP socket", 3 + nth);
            let (at, listener) = listening(&mut handed, nth).ok_or_else(other)?;
            if !named.contains(&at) {
                return Err(format!("systemd hands over {at}, which neither listen nor discovery names"));
            }
            if all.insert(at, listener).is_some() {
                return Err(format!("systemd hands over {at} more than once"));
            }
        }
        Ok(Activated(all))
    }

    /// What awaits hosts at an address: what was handed over, or a socket that is bound now.
    ///
    /// # Errors
    /// The system's.
    pub fn listener(&self, at: SocketAddr) -> io::Result<TcpListener> {
        self.0.get(&at).map_or_else(|| TcpListener::bind(at), TcpListener::try_clone)
    }
}

/// A listening TCP socket, and where it is bound.
fn listening(handed: &mut ListenFd, nth: usize) -> Option<(SocketAddr, TcpListener)> {
    let listener = handed.take_tcp_listener(nth).ok()??;
    let listens = socket_acceptconn(&listener) == Ok(true);
    listener.local_addr().ok().filter(|_| listens).map(|at| (at, listener))
}
