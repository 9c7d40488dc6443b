//! How long a ring that is dropped waits for what the kernel still has of it.
//!
//! The memory of calls in flight may be freed only after they have ended. A kernel that cannot be entered
//! tells of no end: who waits for it would spin for ever. So the wait is over after so many refusals in a
//! row, at once where the refusal is one that stays, and what the kernel may still write to is then never
//! used again.

use std::io;
use std::time::Duration;

/// Refusals in a row, a millisecond apart.
const MOST: u32 = 5_000;

#[derive(Debug, Default)]
pub(crate) struct Patience {
    refused: u32,
}

impl Patience {
    /// Whether to go on after the kernel was entered. `ended`: whether a call has ended since the last time.
    pub(crate) fn lasts(&mut self, entered: &io::Result<()>, ended: bool) -> bool {
        match entered {
            Ok(()) => self.refused = 0,
            _ if ended => self.refused = 0,
            Err(e) => match e.raw_os_error() {
                Some(libc::EINTR | libc::ETIME) => {}
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    self.refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return false,
            },
        }
        self.refused < MOST
    }
}

/// What is said when it is over.
pub(crate) fn given_up(in_flight: usize, why: &io::Result<()>) {
    let why = why.as_ref().err().map_or(String::new(), ToString::to_string);
    eprintln!(
        "nearside: {in_flight} calls of an io_uring cannot be waited for ({why}): their memory is given up"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends() {
        let refused = |errno| Err(io::Error::from_raw_os_error(errno));
        assert!(!Patience::default().lasts(&refused(libc::EBADF), false));
        assert!(Patience::default().lasts(&refused(libc::EBADF), true));
        let mut patience = Patience { refused: MOST - 2 };
        assert!(patience.lasts(&refused(libc::EINTR), false));
        assert!(patience.lasts(&refused(libc::EAGAIN), false));
        assert!(!patience.lasts(&refused(libc::EBUSY), false));
        let mut patience = Patience { refused: MOST - 1 };
        assert!(patience.lasts(&Ok(()), false));
        assert!(patience.lasts(&refused(libc::EAGAIN), false));
    }
}
