//! How a queue's doorbells are rung, and how a controller's registers are reached: of a drive in this process
//! and of one in another.
//!
//! In memory of both sides a doorbell is a store. A drive in this process that sleeps is woken by its
//! [`Wakeup`]. One in another process cannot be: it says in the event index of Doorbell Buffer Config (Base
//! 2.0, 5.8 and annex B.5) from where on it wants to be told, and is told by a message.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use nearside_dma::{DOORBELLS, Function, Memory, PAGE_SIZE, Region, Vector, Wakeup};
use nearside_spec::registers::{cq_head_doorbell, sq_tail_doorbell};

use crate::vfio_user::Device;
use crate::{DmaBuffer, Error, Failure};

/// Bytes of the page of shadow doorbells and of that of event indexes.
pub(crate) const SHADOW_BYTES: usize = 2 * PAGE_SIZE;
/// Queue pairs whose doorbells have room in a page, the admin queue's among them.
const SHADOWED: u64 = (PAGE_SIZE / 8) as u64;

/// The way to a controller.
pub(crate) enum Port {
    /// In this process.
    Local(Function),
    /// In another.
    Remote(Arc<Device>),
}

impl Port {
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        match self {
            Port::Local(function) => &function.memory,
            Port::Remote(device) => &device.memory,
        }
    }

    pub(crate) fn socket(&self) -> Option<&Path> {
        match self {
            Port::Local(_) => None,
            Port::Remote(device) => Some(&device.path),
        }
    }

    pub(crate) fn messages(&self) -> u64 {
        match self {
            Port::Local(_) => 0,
            Port::Remote(device) => device.messages(),
        }
    }

    pub(crate) fn vectors(&self) -> &[Vector] {
        match self {
            Port::Local(function) => &function.vectors,
            Port::Remote(device) => &device.vectors,
        }
    }

    /// Lets the controller reach a region that [`Port::memory`] has; `by_messages`: by asking for it.
    pub(crate) fn share(&self, region: &Region, iova: u64, by_messages: bool) -> Result<(), Error> {
        match self {
            Port::Local(_) => Ok(()),
            Port::Remote(device) => device.share(region, iova, by_messages),
        }
    }

    pub(crate) fn register(&self, offset: usize) -> u32 {
        match self {
            Port::Local(function) => function.registers.word32(offset).load(Ordering::Acquire),
            Port::Remote(device) => u32::from_le_bytes(device.register(offset)),
        }
    }

    pub(crate) fn wide_register(&self, offset: usize) -> u64 {
        match self {
            Port::Local(function) => function.registers.word64(offset).load(Ordering::Acquire),
            Port::Remote(device) => u64::from_le_bytes(device.register(offset)),
        }
    }

    pub(crate) fn set_register(&self, offset: usize, value: u32) {
        match self {
            Port::Local(function) => {
                // Release: queue addresses and attributes are in place before CC tells of them.
                function.registers.word32(offset).store(value, Ordering::Release);
                function.wakeup.wake();
            }
            Port::Remote(device) => device.set_register(offset, &value.to_le_bytes()),
        }
    }

    pub(crate) fn set_wide_register(&self, offset: usize, value: u64) {
        match self {
            Port::Local(function) => function.registers.word64(offset).store(value, Ordering::Relaxed),
            Port::Remote(device) => device.set_register(offset, &value.to_le_bytes()),
        }
    }

    /// I/O queue pairs whose doorbells can be rung.
    pub(crate) fn queue_pairs(&self) -> u16 {
        let pairs = match self {
            Port::Local(function) => ((function.registers.len() - DOORBELLS) / 8) as u64,
            Port::Remote(device) => ((device.registers_len() - DOORBELLS as u64) / 8).min(SHADOWED),
        };
        u16::try_from(pairs - 1).unwrap_or(u16::MAX)
    }

    /// Whether writes of doorbells may cost the host so much that it keeps them in memory, where the
    /// controller can read them there.
    pub(crate) fn wants_shadow(&self) -> bool {
        matches!(self, Port::Remote(_))
    }

    /// Why the controller cannot be reached any more, where that is so.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Port::Local(_) => Ok(()),
            Port::Remote(device) => device.check(),
        }
    }

    /// How commands that are out end, where the controller cannot be reached any more.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            Port::Local(_) => None,
            Port::Remote(device) => device.failure(),
        }
    }

    /// The doorbells of a queue that is about to be made; `shadow` is where the host keeps those of I/O
    /// queues.
    pub(crate) fn doorbells(&self, id: u16, shadow: Option<&DmaBuffer>) -> Doorbells {
        let (tail, head) = (sq_tail_doorbell(id), cq_head_doorbell(id));
        match self {
            Port::Local(function) => Doorbells::Registers {
                words: function.registers.clone(),
                tail,
                head,
                wakeup: Some(function.wakeup.clone()),
            },
            Port::Remote(device) => {
                let (first, device) = (tail - DOORBELLS, device.clone());
                match (shadow, device.page()) {
                    (Some(pages), _) if id > 0 => {
                        let (words, base) = pages.region();
                        let values = base + first;
                        // The queue begins: what one of this number has left there is none of it. An index at
                        // the beginning asks to be told of the first change.
                        for at in [values, values + 4, values + PAGE_SIZE, values + 4 + PAGE_SIZE] {
                            words.word32(at).store(0, Ordering::Release);
                        }
                        Doorbells::Shadow { words: words.clone(), values, id, device }
                    }
                    (_, Some(page)) if id > 0 && first + 8 <= page.len() => Doorbells::Registers {
                        words: page.clone(),
                        tail: first,
                        head: first + 4,
                        wakeup: None,
                    },
                    // Also the admin queue's: a word in memory wakes no server that sleeps.
                    _ => Doorbells::Messages { id, device },
                }
            }
        }
    }
}

/// The doorbells of one queue.
pub(crate) enum Doorbells {
    /// Registers in memory of both sides.
    Registers { words: Arc<Region>, tail: usize, head: usize, wakeup: Option<Arc<Wakeup>> },
    /// Shadow doorbells in memory of both sides; `values` is where the tail's is. The head's follows it, the
    /// event indexes lie a page behind.
    Shadow { words: Arc<Region>, values: usize, id: u16, device: Arc<Device> },
    /// By messages alone.
    Messages { id: u16, device: Arc<Device> },
}

impl Doorbells {
    /// The tail was `before` and is `now`.
    #[inline]
    pub(crate) fn tail(&self, before: u32, now: u32) {
        match self {
            Doorbells::Registers { words, tail, wakeup, .. } => {
                // Release: the drive's acquiring load of the doorbell makes it see the entries and lists
                // written before.
                words.word32(*tail).store(now, Ordering::Release);
                if let Some(wakeup) = wakeup {
                    wakeup.wake();
                }
            }
            Doorbells::Shadow { words, values, id, device } => {
                if shadow(words, *values, before, now) {
                    device.ring(sq_tail_doorbell(*id), now);
                }
            }
            Doorbells::Messages { id, device } => device.ring(sq_tail_doorbell(*id), now),
        }
    }

    /// The head was `before` and is `now`.
    #[inline]
    pub(crate) fn head(&self, before: u32, now: u32) {
        match self {
            // Release: what was read from the entries is read before the drive may overwrite them.
            Doorbells::Registers { words, head, .. } => words.word32(*head).store(now, Ordering::Release),
            Doorbells::Shadow { words, values, id, device } => {
                if shadow(words, *values + 4, before, now) {
                    device.ring(cq_head_doorbell(*id), now);
                }
            }
            Doorbells::Messages { id, device } => device.ring(cq_head_doorbell(*id), now),
        }
    }
}

/// Sets a shadow doorbell. Whether the controller wants to be told by its register.
#[inline]
fn shadow(words: &Region, at: usize, before: u32, now: u32) -> bool {
    // Release: as of a register.
    words.word32(at).store(now, Ordering::Release);
    // The controller sets the index, has a fence, and looks at the value: whichever fence comes second sees
    // the other's store.
    fence(Ordering::SeqCst);
    passes(words.word32(at + PAGE_SIZE).load(Ordering::Relaxed), before, now)
}

/// Whether a doorbell that goes from `before` to `now` passes the event index, all around its queue
/// (nvme_dbbuf_need_event, drivers/nvme/host/pci.c).
#[inline]
fn passes(event: u32, before: u32, now: u32) -> bool {
    let cut = |n: u32| n as u16;
    cut(now.wrapping_sub(event).wrapping_sub(1)) < cut(now.wrapping_sub(before))
}

#[cfg(test)]
mod tests {
    use super::passes;

    #[test]
    fn who_is_told() {
        // A controller that sleeps has its index where the doorbell is: whatever comes next tells it.
        for (before, now) in [(0, 1), (5, 6), (5, 31), (31, 0), (0, 31)] {
            assert!(passes(before, before, now), "{before} to {now}");
        }
        // One that looks has its index where the doorbell has just been.
        for (before, now) in [(1, 2), (5, 6), (5, 31)] {
            assert!(!passes(before - 1, before, now), "{before} to {now}");
        }
    }
}
