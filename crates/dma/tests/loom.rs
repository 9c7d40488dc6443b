//! The protocols between two threads, in every order of their steps that the memory model allows.
//!
//! The wake-up is the very source that the crate ships (`src/arming.rs`), compiled against loom's atomics.
//! The queue is a model with the same words and orders as the driver and the controller use: entry, doorbell,
//! completion, phase tag.

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};
}

#[path = "../src/arming.rs"]
#[allow(dead_code, reason = "the model uses a part of it")]
mod arming;

use arming::Arming;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::thread;

/// Publisher: store the work, then claim. Sleeper: arm, then look. One of them must notice the other.
#[test]
fn no_wakeup_is_lost() {
    loom::model(|| {
        let arming = Arc::new(Arming::new(false));
        let work = Arc::new(AtomicU32::new(0));
        let (a, w) = (arming.clone(), work.clone());
        let publisher = thread::spawn(move || {
            w.store(1, Ordering::Release);
            a.claim()
        });
        arming.arm();
        let sleeps = work.load(Ordering::Acquire) == 0;
        let woken = publisher.join().unwrap();
        assert!(!sleeps || woken, "asleep with work, and nobody rang");
    });
}

/// The same for an interrupt vector, which stays armed: the second completion finds it armed as well.
#[test]
fn no_interrupt_is_lost() {
    loom::model(|| {
        let arming = Arc::new(Arming::new(false));
        let work = Arc::new(AtomicU32::new(0));
        let (a, w) = (arming.clone(), work.clone());
        let publisher = thread::spawn(move || {
            let mut signals = 0;
            for n in 1..=2 {
                w.store(n, Ordering::Release);
                signals += u32::from(a.is_armed());
            }
            signals
        });
        arming.arm();
        let seen = work.load(Ordering::Acquire);
        let signals = publisher.join().unwrap();
        // What the last look did not see is signalled.
        assert!(seen + signals >= 2, "{seen} seen, {signals} signals");
    });
}

/// The model can fail: without the sleeper's fence the wake-up is lost in some order.
#[test]
#[should_panic(expected = "asleep")]
fn without_the_fence_it_is_lost() {
    loom::model(|| {
        let armed = Arc::new(AtomicBool::new(false));
        let work = Arc::new(AtomicU32::new(0));
        let (a, w) = (armed.clone(), work.clone());
        let publisher = thread::spawn(move || {
            w.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            a.load(Ordering::Relaxed)
        });
        armed.store(true, Ordering::Relaxed);
        let sleeps = work.load(Ordering::Acquire) == 0;
        let woken = publisher.join().unwrap();
        assert!(!sleeps || woken, "asleep with work, and nobody rang");
    });
}

/// A queue pair of two entries: the words of both queues, both doorbells.
struct Queues {
    entries: [AtomicU32; 2],
    tail: AtomicU32,
    data: [AtomicU32; 2],
    /// Completions: command identifier in the upper bits, phase tag in bit 0.
    completions: [AtomicU32; 2],
    result: [AtomicU32; 2],
    head: AtomicU32,
}

fn words() -> [AtomicU32; 2] {
    [AtomicU32::new(0), AtomicU32::new(0)]
}

/// Three commands through two entries (so that the phase turns over): each entry is read whole, each
/// completion belongs to its command and has its data.
#[test]
fn entries_doorbells_and_phase_tags() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let q = Arc::new(Queues {
            entries: words(),
            tail: AtomicU32::new(0),
            data: words(),
            completions: words(),
            result: words(),
            head: AtomicU32::new(0),
        });
        let d = q.clone();
        const TOTAL: u32 = 3;
        let drive = thread::spawn(move || {
            let (mut head, mut done) = (0usize, 0u32);
            while done < TOTAL {
                let tail = d.tail.load(Ordering::Acquire) as usize;
                // One entry of the completion queue stays free.
                let told = d.head.load(Ordering::Acquire) as usize;
                if tail == head || (head + 1) % 2 == told {
                    thread::yield_now();
                    continue;
                }
                let command = d.entries[head].load(Ordering::Relaxed);
                assert_eq!(command, done + 1, "an entry read before it was written");
                d.data[head].store(command * 10, Ordering::Relaxed);
                d.result[head].store(command * 100, Ordering::Relaxed);
                let phase = 1 - (done / 2) % 2;
                d.completions[head].store(command << 1 | phase, Ordering::Release);
                head = (head + 1) % 2;
                done += 1;
            }
        });
        let (mut at, mut phase) = (0usize, 1);
        for command in 1..=TOTAL {
            q.entries[at].store(command, Ordering::Relaxed);
            q.tail.store((at as u32 + 1) % 2, Ordering::Release);
            loop {
                let word = q.completions[at].load(Ordering::Acquire);
                if word & 1 == phase && word != 0 {
                    assert_eq!(word >> 1, command);
                    break;
                }
                thread::yield_now();
            }
            assert_eq!(q.result[at].load(Ordering::Relaxed), command * 100);
            assert_eq!(q.data[at].load(Ordering::Relaxed), command * 10);
            at = (at + 1) % 2;
            if at == 0 {
                phase = 1 - phase;
            }
            q.head.store(at as u32, Ordering::Release);
        }
        drive.join().unwrap();
    });
}
