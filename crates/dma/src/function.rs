//! What a host sees of a controller: its registers, the memory that it can reach, its interrupts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::arming::Arming;
use crate::{EventFd, Memory, Region};

/// A controller's function, as a front hands it to a driver.
///
/// Registers and doorbells lie in `registers` (NVMe Base 2.0, 3.1; the doorbells from byte 0x1000 on, stride
/// 4 bytes), which both sides reach as atomics. After writing a doorbell or a register the host checks
/// [`Wakeup::wake`].
#[derive(Clone)]
pub struct Function {
    /// The registers and doorbells: `REGISTERS_SIZE` bytes or more.
    pub registers: Arc<Region>,
    /// The IOVA table: the host maps its queues and buffers here.
    pub memory: Arc<Memory>,
    /// Interrupt vectors (MSI-X table entries): the controller signals them after posting completions.
    pub vectors: Arc<[Vector]>,
    /// How a sleeping drive is woken.
    pub wakeup: Arc<Wakeup>,
}

/// Byte offset of the first doorbell.
pub const DOORBELLS: usize = 0x1000;
/// Bytes of registers and doorbells: 0x1000 and 64 queue pairs with stride 4, rounded up.
pub const REGISTERS_SIZE: usize = 0x2000;

/// An interrupt vector: an eventfd with the mask bit of an MSI-X table entry. Unmasked when fresh.
///
/// While the host has it masked, a signal costs the controller a fence and a load and is lost: the host looks
/// at the completion queue after unmasking ([`Vector::sleep`] does so), which is all that a pending bit would
/// tell it.
///
/// A host in another process has eventfds of its own ([`Vector::deliver_to`]); what is raised while it has
/// given none is pending, as in the table of an MSI-X capability.
#[derive(Debug)]
pub struct Vector {
    unmasked: Arming,
    event: EventFd,
    /// The host is in another process.
    elsewhere: AtomicBool,
    delivery: Mutex<Delivery>,
}

#[derive(Debug, Default)]
struct Delivery {
    event: Option<Arc<ForeignEvent>>,
    /// Those that it was before, as long as somebody raises them.
    old: Vec<Weak<ForeignEvent>>,
    pending: bool,
}

/// An eventfd of another process.
#[derive(Debug)]
struct ForeignEvent {
    event: EventFd,
    /// Threads that raise it just now, and how often that was done.
    raising: AtomicU32,
    raised: AtomicU32,
}

impl ForeignEvent {
    /// Who has it as well can make that wait: it fills the counter and takes O_NONBLOCK away. So one that
    /// is full is left as it is, no lock is held meanwhile, and whoever serves the other process looks for
    /// it ([`Vector::is_raised_since`]).
    fn raise(&self) {
        if !self.event.has_room() {
            return;
        }
        self.raising.fetch_add(1, Ordering::Relaxed);
        self.event.signal();
        self.raised.fetch_add(1, Ordering::Relaxed);
        self.raising.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Vector {
    /// A fresh one, unmasked.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn new() -> std::io::Result<Vector> {
        Ok(Vector {
            unmasked: Arming::new(true),
            event: EventFd::new()?,
            elsewhere: AtomicBool::new(false),
            delivery: Mutex::default(),
        })
    }

    fn delivery(&self) -> MutexGuard<'_, Delivery> {
        self.delivery.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// From here on interrupts go to that eventfd of another process; what is pending goes there now. `None`:
    /// they stay pending until there is one.
    pub fn deliver_to(&self, event: Option<EventFd>) {
        let mut delivery = self.delivery();
        self.elsewhere.store(true, Ordering::Release);
        let foreign = |event| ForeignEvent { event, raising: AtomicU32::new(0), raised: AtomicU32::new(0) };
        let event = event.map(|event| Arc::new(foreign(event)));
        let before = std::mem::replace(&mut delivery.event, event.clone());
        delivery.old.retain(|old| old.strong_count() > 0);
        delivery.old.extend(before.as_ref().map(Arc::downgrade));
        if let Some(event) = event.filter(|_| delivery.pending) {
            delivery.pending = false;
            drop(delivery);
            event.raise();
        }
    }

    /// All eventfds of the other process that somebody may be raising.
    fn foreign_events(&self) -> Vec<Arc<ForeignEvent>> {
        let delivery = self.delivery();
        delivery.event.iter().cloned().chain(delivery.old.iter().filter_map(Weak::upgrade)).collect()
    }

    /// How often another process's eventfds were raised, where somebody is about to raise one once more:
    /// who is still at it at a later look waits for the other process.
    pub fn is_raised_since(&self) -> Option<u32> {
        let of = |event: &Arc<ForeignEvent>| {
            let raising = event.raising.load(Ordering::Relaxed) > 0;
            raising.then(|| event.raised.load(Ordering::Relaxed))
        };
        self.foreign_events().iter().filter_map(of).min()
    }

    /// Takes the counts of another process's eventfds, so that whoever waits to raise one goes on.
    pub fn relieve(&self) {
        for foreign in self.foreign_events() {
            foreign.event.take();
        }
    }

    /// Whether an interrupt was raised that no eventfd was there for (MSI-X: the pending bit).
    pub fn is_pending(&self) -> bool {
        self.delivery().pending
    }

    /// Controller side, after posting completions (once for a batch): raises the interrupt unless it is
    /// masked.
    #[inline]
    pub fn signal(&self) {
        if !self.unmasked.is_armed() {
            return;
        }
        if !self.elsewhere.load(Ordering::Acquire) {
            return self.event.signal();
        }
        let mut delivery = self.delivery();
        match delivery.event.clone() {
            Some(event) => {
                drop(delivery);
                event.raise();
            }
            None => delivery.pending = true,
        }
    }

    /// Host side: asks for no interrupts.
    pub fn mask(&self) {
        self.unmasked.disarm();
    }

    /// Host side: asks for interrupts. Look at the completion queue after it, before sleeping.
    pub fn unmask(&self) {
        self.unmasked.arm();
    }

    /// Host side: unmasks, asks `nothing_to_do` once more, sleeps until the interrupt or until `timeout` is
    /// over (`None`: for ever), masks. Returns whether it slept.
    pub fn sleep(&self, timeout: Option<std::time::Duration>, nothing_to_do: impl FnOnce() -> bool) -> bool {
        self.unmask();
        let sleeps = nothing_to_do();
        if sleeps {
            self.event.wait(timeout);
        }
        self.mask();
        sleeps
    }

    /// Readable when raised: for a host that waits on several things.
    pub fn event(&self) -> &EventFd {
        &self.event
    }
}

/// A drive that has found nothing for a while arms this and sleeps; whoever gives it work wakes it. A drive
/// with several threads has a sleeper for each; one wake is for all that sleep.
#[derive(Debug)]
pub struct Wakeup {
    sleepers: Box<[Sleeper]>,
}

#[derive(Debug)]
struct Sleeper {
    arming: Arming,
    event: EventFd,
}

impl Wakeup {
    /// A fresh one for one thread, not armed.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn new() -> std::io::Result<Wakeup> {
        Wakeup::for_sleepers(1)
    }

    /// A fresh one for several threads (at least one).
    ///
    /// # Errors
    /// The system's: no descriptors are left.
    pub fn for_sleepers(count: usize) -> std::io::Result<Wakeup> {
        let sleeper = || Ok(Sleeper { arming: Arming::new(false), event: EventFd::new()? });
        Ok(Wakeup { sleepers: (0..count.max(1)).map(|_| sleeper()).collect::<std::io::Result<_>>()? })
    }

    /// Host side, after a doorbell or register write: wakes the drive if it sleeps. Costs one fence and one
    /// load (for each thread of the drive) when it does not.
    #[inline]
    pub fn wake(&self) {
        for sleeper in &self.sleepers {
            if sleeper.arming.claim() {
                sleeper.event.signal();
            }
        }
    }

    /// Drive side: arms, asks `nothing_to_do` once more, and sleeps until rung or `timeout` is over.
    pub fn sleep(&self, timeout: Option<std::time::Duration>, nothing_to_do: impl FnOnce() -> bool) {
        self.sleep_as(0, timeout, nothing_to_do);
    }

    /// Sleeps as [`Wakeup::sleep`] does, as the drive's thread `index`. Panics where there is no such
    /// sleeper.
    pub fn sleep_as(
        &self,
        index: usize,
        timeout: Option<std::time::Duration>,
        nothing_to_do: impl FnOnce() -> bool,
    ) {
        let Sleeper { arming, event } = &self.sleepers[index];
        arming.arm();
        if nothing_to_do() {
            event.wait(timeout);
        }
        arming.disarm();
    }

    /// For a sleeper that waits on several things: from here on [`Wakeup::wake`] raises the event. Look for
    /// work once more before sleeping; [`Wakeup::disarm`] when awake.
    pub fn arm(&self) {
        self.arm_as(0);
    }

    /// Arms the wake-up of the drive's thread `index`. Panics where there is no such sleeper.
    pub fn arm_as(&self, index: usize) {
        self.sleepers[index].arming.arm();
    }

    /// Ends what [`Wakeup::arm`] began.
    pub fn disarm(&self) {
        self.disarm_as(0);
    }

    /// Ends what [`Wakeup::arm_as`] began.
    pub fn disarm_as(&self, index: usize) {
        self.sleepers[index].arming.disarm();
    }

    /// Readable when rung: for a drive that waits on several things.
    pub fn event(&self) -> &EventFd {
        self.event_of(0)
    }

    /// That of the drive's thread `index`.
    pub fn event_of(&self, index: usize) -> &EventFd {
        &self.sleepers[index].event
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it makes eventfds")]
    fn what_nobody_is_there_for_is_pending() {
        let vector = Vector::new().unwrap();
        vector.signal();
        assert!(!vector.is_pending() && vector.event().take() == 1);
        vector.deliver_to(None);
        vector.signal();
        assert!(vector.is_pending() && vector.event().take() == 0);
        let there = EventFd::new().unwrap();
        let given = EventFd::foreign(there.as_fd().try_clone_to_owned().unwrap()).unwrap();
        vector.deliver_to(Some(given));
        assert!(!vector.is_pending() && there.take() == 1);
        vector.signal();
        assert_eq!(there.take(), 1);
    }
}
