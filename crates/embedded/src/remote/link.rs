//! A connection that is made again by a thread beside: who works over it waits for nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

use nearside_fsrlib::{Error, Transport};

use super::{Way, Ways};

/// One that does not serve.
pub(super) struct Lost {
    pub(super) way: Way,
    pub(super) why: Error,
    /// Something was answered by it.
    pub(super) answered: bool,
}

/// The thread, which ends some time after this value.
pub(super) struct Link {
    asks: Sender<Option<Lost>>,
    found: Receiver<Result<Way, String>>,
}

impl Link {
    /// Over those ways; `stop` ends attempts.
    pub(super) fn start(mut ways: Ways, stop: Arc<AtomicBool>) -> io::Result<Link> {
        ways.set_stop(stop);
        let ((asks, asked), (finds, found)) = (mpsc::channel::<Option<Lost>>(), mpsc::channel());
        std::thread::Builder::new().name("reconnect".into()).spawn(move || {
            for lost in asked {
                let way = match lost {
                    Some(Lost { way, why, answered }) => ways.replace(way, why, answered),
                    None => ways.take(),
                };
                if finds.send(way.map_err(|e| e.to_string())).is_err() {
                    return;
                }
            }
        })?;
        Ok(Link { asks, found })
    }

    /// Asks for a way; in the place of one, where that is lost.
    pub(super) fn ask(&self, lost: Option<Lost>) {
        // Without the thread nothing is found, which is said then.
        let _ = self.asks.send(lost);
    }

    /// What was found; `None`: nothing yet.
    pub(super) fn found(&self) -> Option<Result<Way, String>> {
        match self.found.try_recv() {
            Ok(found) => Some(found),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("connections are made no more".into())),
        }
    }
}
