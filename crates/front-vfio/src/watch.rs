//! Whether a client keeps the drive waiting by an eventfd of its own.
//!
//! An eventfd whose counter is full makes whoever raises it wait, and it is the client's: the flag that it
//! should not is the file's, which the client has as well. A thread of the function that waits so would
//! keep what its commands have taken, and no end would come. So a thread beside the session looks now and
//! then whether one raises the same interrupt for long, ends the client, and makes room in the counter
//! until all have gone on.

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
pub(crate) fn beside<T>(
    vectors: &[Vector],
    path: &Path,
    end: impl Fn() + Sync,
    work: impl FnOnce() -> T,
) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(vectors, path, &end, &done));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Release);
        watch.thread().unpark();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
    use std::sync::Mutex;

    use nearside_dma::EventFd;
    use rustix::fs::OFlags;

    use super::*;

    #[test]
    fn a_client_that_keeps_its_eventfd_full_is_ended() {
        let theirs = EventFd::new().unwrap();
        let given = EventFd::foreign(theirs.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let vectors = [Vector::new().unwrap(), Vector::new().unwrap()];
        vectors[1].deliver_to(Some(given));
        let flags = rustix::fs::fcntl_getfl(&theirs).unwrap();
        rustix::fs::fcntl_setfl(&theirs, flags - OFlags::NONBLOCK).unwrap();
        assert_eq!(rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()), Ok(8));
        let ended = Mutex::new(0);
        let raises = || (0..3).for_each(|_| vectors[1].signal());
        beside(&vectors, Path::new("/x.sock"), || *ended.lock().unwrap() += 1, raises);
        assert_eq!(ended.into_inner().unwrap(), 1);
        // One that is read is not.
        let ended = Mutex::new(0);
        beside(&vectors, Path::new("/x.sock"), || *ended.lock().unwrap() += 1, raises);
        assert_eq!((ended.into_inner().unwrap(), theirs.take() > 0), (0, true));
    }
}
