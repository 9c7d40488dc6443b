//! Near-data work of a remote drive, asked for by many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use nearside_fsrlib::{Error, Transport};
use nearside_spec::log::NearDataLog;

use super::{Remote, Ways, lock};

/// How often it is looked whether whoever asked has gone.
const LOOK: Duration = Duration::from_millis(20);

impl Remote {
    /// One near-data command: the request's bytes in, at most `room` bytes of reply out. It is given up
    /// where `gone` says that nobody waits for the reply any more. Each of several at a time has a
    /// connection of its own.
    ///
    /// # Errors
    /// As [`Transport::near_data`].
    pub fn near_data(&self, request: &[u8], room: usize, gone: &dyn Fn() -> bool) -> Result<Vec<u8>, Error> {
        self.by_own(gone, |ways| {
            let mut reply = Vec::new();
            ways.near_data(request, room, &mut reply).map(|()| reply)
        })
    }

    /// What near-data work the drive can do, and its statistics (log page D5h); `None`: it is none of ours.
    ///
    /// # Errors
    /// As [`Transport::statistics`].
    pub fn statistics(&self, gone: &dyn Fn() -> bool) -> Result<Option<NearDataLog>, Error> {
        self.by_own(gone, Transport::statistics)
    }

    /// Does what waits, over a connection that nobody uses.
    fn by_own<R: Send>(
        &self,
        gone: &dyn Fn() -> bool,
        ask: impl FnOnce(&mut Ways) -> Result<R, Error> + Send,
    ) -> Result<R, Error> {
        let idle = lock(&self.0.idle).pop();
        let mut ways = idle.map_or_else(|| self.ways(), Ok).map_err(Error::Lost)?;
        let stop = Arc::new(AtomicBool::new(false));
        ways.set_stop(stop.clone());
        let answer = std::thread::scope(|scope| {
            let (says, hears) = mpsc::channel();
            let ways = &mut ways;
            scope.spawn(move || says.send(ask(ways)));
            loop {
                match hears.recv_timeout(LOOK) {
                    Ok(answer) => return answer,
                    Err(RecvTimeoutError::Timeout) => {
                        if gone() || self.0.stop.load(Ordering::Relaxed) {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Error::Driver("whoever asked the drive panicked".into()));
                    }
                }
            }
        });
        // One that was lost is no more use: the next is made when it is wanted.
        if !matches!(answer, Err(Error::Lost(_))) {
            lock(&self.0.idle).push(ways);
        }
        answer
    }
}
