//! Whether a client keeps the drive waiting by an eventfd of its own.
//!
//! An eventfd whose counter is full makes whoever raises it wait, and it is the client's: the flag that it
//! should not is the file's, which the client has as well. A thread of the function that waits so would
//! keep what its commands have taken, and no end would come. So a thread beside the session looks now and
//! then whether one raises the same interrupt for long, ends the client, and makes room in the counter
//! until all have gone on.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nearside_dma::Vector;

/// How often is looked.
const LOOK: Duration = Duration::from_millis(200);
/// Looks at which a thread was seen at the same interrupt before its client is ended.
const LOOKS: u32 = 5;
/// How often is made room once that is so.
const RELIEF: Duration = Duration::from_millis(1);

/// Does `work`, and looks at the interrupts meanwhile; `end` ends the client.
///
/// # Errors
/// The system has no thread for it.
pub(crate) fn beside<T>(
    vectors: &[Vector],
    path: &Path,
    end: impl Fn() + Sync,
    work: impl FnOnce() -> T,
) -> io::Result<T> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = std::thread::Builder::new()
            .name("vfio-user-watch".into())
            .spawn_scoped(scope, || watch(vectors, path, &end, &done))?;
        let result = catch_unwind(AssertUnwindSafe(work));
        done.store(true, Ordering::Release);
        watch.thread().unpark();
        Ok(result.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

fn watch(vectors: &[Vector], path: &Path, end: &impl Fn(), done: &AtomicBool) {
    let mut seen = vec![(0, 0); vectors.len()];
    let is_done = || done.load(Ordering::Acquire);
    while !is_done() {
        std::thread::park_timeout(LOOK);
        let mut waits = false;
        for (vector, (raised, looks)) in vectors.iter().zip(&mut seen) {
            match vector.is_raised_since() {
                Some(now) if now == *raised => *looks += 1,
                Some(now) => (*raised, *looks) = (now, 1),
                None => *looks = 0,
            }
            waits |= *looks >= LOOKS;
        }
        if waits && !is_done() {
            tracing::warn!(path = %path.display(), "a client lets the drive wait for its eventfd, and is ended");
            end();
            while !is_done() {
                vectors.iter().for_each(Vector::relieve);
                std::thread::park_timeout(RELIEF);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicU32;

    use nearside_dma::EventFd;
    use rustix::fs::OFlags;

    use super::*;

    /// Fills the counter between the drive's look whether it has room and its raise, and leaves it so.
    fn fill_in_between(theirs: &EventFd, vector: &Vector, begun: &AtomicU32, done: &AtomicU32) {
        for round in 1.. {
            theirs.take();
            begun.store(round, Ordering::SeqCst);
            (0..round % 64).for_each(|_| std::hint::spin_loop());
            // Where the raise came first, this waits until the drive's side has taken the count.
            assert_eq!(rustix::io::write(theirs, &(u64::MAX - 1).to_ne_bytes()), Ok(8));
            while done.load(Ordering::SeqCst) != round {
                if vector.is_raised_since().is_some() {
                    return;
                }
            }
        }
    }

    #[test]
    fn a_client_that_keeps_its_eventfd_full_is_ended() {
        let theirs = EventFd::new().unwrap();
        let given = || EventFd::foreign(theirs.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let vectors = [Vector::new().unwrap(), Vector::new().unwrap()];
        let vector = &vectors[1];
        let ended = AtomicU32::new(0);
        let end = || {
            ended.fetch_add(1, Ordering::SeqCst);
        };
        for replaced in [false, true] {
            vector.deliver_to(Some(given()));
            let flags = rustix::fs::fcntl_getfl(&theirs).unwrap();
            rustix::fs::fcntl_setfl(&theirs, flags - OFlags::NONBLOCK).unwrap();
            let (begun, done) = (AtomicU32::new(0), AtomicU32::new(0));
            let raises = || {
                for round in 1.. {
                    while begun.load(Ordering::SeqCst) < round && ended.load(Ordering::SeqCst) == 0 {
                        std::hint::spin_loop();
                    }
                    if ended.load(Ordering::SeqCst) > 0 {
                        return;
                    }
                    vector.signal();
                    theirs.take();
                    done.store(round, Ordering::SeqCst);
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    fill_in_between(&theirs, vector, &begun, &done);
                    if replaced {
                        // Whoever waits for the old one waits on.
                        vector.deliver_to(None);
                    }
                });
                beside(&vectors, Path::new("/x.sock"), end, raises).unwrap();
            });
            assert_eq!(ended.swap(0, Ordering::SeqCst), 1, "replaced: {replaced}");
        }
        // One that is full is left as it is, and one that is read is raised.
        vector.deliver_to(Some(given()));
        theirs.take();
        rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        vector.signal();
        assert_eq!(theirs.take(), u64::MAX - 1);
        beside(&vectors, Path::new("/x.sock"), end, || (0..3).for_each(|_| vector.signal())).unwrap();
        assert_eq!((ended.into_inner(), theirs.take()), (0, 3));
    }
}
