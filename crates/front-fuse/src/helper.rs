//! Requests that are no single command of whole blocks, one at a time on a thread of their own: they read
//! blocks before they write them, and exclude other writes meanwhile. Whoever serves the kernel goes on.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;

use nearside_dma::{EventFd, system};
use nearside_driver::DmaBuffer;

use crate::host::{Host, HostError};

/// What is to be done, with the bytes at a buffer's start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chore {
    Read { offset: u64, len: usize },
    Write { offset: u64, len: usize, fua: bool },
    Zero { offset: u64, len: u64, free: bool },
}

/// What has become of it: of which request, how, and its buffer.
pub(crate) type Done = (usize, Result<(), HostError>, DmaBuffer);

struct Outbox {
    done: Mutex<VecDeque<Done>>,
    event: EventFd,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Done>> {
        self.done.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// The thread; it ends with this value.
pub(crate) struct Helper {
    chores: Option<mpsc::Sender<(usize, Chore, DmaBuffer)>>,
    outbox: Arc<Outbox>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    pub(crate) fn start(host: Arc<Host>) -> io::Result<Helper> {
        let outbox = Arc::new(Outbox { done: Mutex::default(), event: EventFd::new()? });
        let (chores, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new().name("fuse-helper".into()).spawn({
            let outbox = outbox.clone();
            move || {
                system::serve_writeback();
                for (slot, chore, mut buffer) in inbox {
                    let result = run(&host, chore, &mut buffer);
                    outbox.lock().push_back((slot, result, buffer));
                    outbox.event.signal();
                }
            }
        })?;
        Ok(Helper { chores: Some(chores), outbox, thread: Some(thread) })
    }

    /// Gives it something to do; the buffer back, where it has ended.
    pub(crate) fn give(&self, slot: usize, chore: Chore, buffer: DmaBuffer) -> Result<(), DmaBuffer> {
        let Some(chores) = &self.chores else { return Err(buffer) };
        chores.send((slot, chore, buffer)).map_err(|mpsc::SendError((_, _, buffer))| buffer)
    }

    pub(crate) fn take(&self) -> Option<Done> {
        self.outbox.lock().pop_front()
    }

    /// Raised when something is done.
    pub(crate) fn event(&self) -> &EventFd {
        &self.outbox.event
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.chores = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(host: &Host, chore: Chore, buffer: &mut DmaBuffer) -> Result<(), HostError> {
    match chore {
        Chore::Read { offset, len } => {
            let mut bytes = vec![0; len];
            host.read(offset, &mut bytes)?;
            buffer.set_len(len);
            buffer.write(0, &bytes);
            Ok(())
        }
        Chore::Write { offset, len, fua } => {
            buffer.set_len(len);
            host.write(offset, &buffer.to_vec(), fua)
        }
        Chore::Zero { offset, len, free } => host.zero(offset, len, free),
    }
}
