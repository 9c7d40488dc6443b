//! What a host sees of a controller: its registers, the memory that it can reach, its interrupts.

use std::sync::Arc;

use crate::{EventFd, Memory, Region};

/// A controller's function, as a front hands it to a driver.
///
/// Registers and doorbells lie in `registers` (NVMe Base 2.0, 3.1; the doorbells from byte 0x1000 on, stride 4 bytes), which both sides
/// reach as atomics. After writing a doorbell or a register the host checks [`Wakeup::ring`].
#[derive(Clone)]
pub struct Function {
    /// The registers and doorbells: `REGISTERS_SIZE` bytes or more.
    pub registers: Arc<Region>,
    /// The IOVA table: the host maps its queues and buffers here.
    pub memory: Arc<Memory>,
    /// Interrupt vectors (MSI-X table entries), raised by the controller.
    pub vectors: Arc<[EventFd]>,
    /// How a sleeping drive is woken.
    pub wakeup: Arc<Wakeup>,
}

/// Byte offset of the first doorbell.
pub const DOORBELLS: usize = 0x1000;
/// Bytes of registers and doorbells: 0x1000 and 64 queue pairs with stride 4, rounded up.
pub const REGISTERS_SIZE: usize = 0x2000;

/// A drive that has found nothing for a while arms this and sleeps; whoever gives it work rings.
#[derive(Debug)]
pub struct Wakeup {
    armed: std::sync::atomic::AtomicBool,
    event: EventFd,
}

impl Wakeup {
    /// A fresh one, not armed.
    pub fn new() -> std::io::Result<Wakeup> {
        Ok(Wakeup { armed: false.into(), event: EventFd::new()? })
    }
}

impl Wakeup {
    /// Host side, after a doorbell or register write: wakes the drive if it sleeps. Costs one fence and one load
    /// when it does not.
    #[inline]
    pub fn ring(&self) {
        use std::sync::atomic::{Ordering, fence};
        // The doorbell store before must not pass the load of `armed`: pairs with the fence in `sleep`.
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed) {
            self.event.signal();
        }
    }

    /// Drive side: arms, asks `nothing_to_do` once more, and sleeps until rung or `timeout` is over.
    pub fn sleep(&self, timeout: Option<std::time::Duration>, nothing_to_do: impl FnOnce() -> bool) {
        use std::sync::atomic::{Ordering, fence};
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if nothing_to_do() {
            self.event.wait(timeout);
        }
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Readable when rung: for a drive that waits on several things.
    pub fn event(&self) -> &EventFd {
        &self.event
    }
}
