//! The user's end of a command: SIGINT, SIGTERM and SIGHUP.
//!
//! Most commands end at once, as programs do, and their work with them: a drive in this process ends, one
//! behind a socket or a network sees its peer go. A drive behind this host's kernel sees nothing: it has to
//! be told first ([`to_cancel`]). What would leave something half done undoes that ([`to_end`]). What
//! measures shows what it has ([`until_told`]). What has made mounts and swap areas undoes them
//! ([`to_undo`]). A signal that the program was started to ignore, as by nohup, ends none of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nearside_dma::system::Termination;

use crate::failure::{Failure, INTERRUPTED};

/// What a drive has to take the cancellation in.
const GRACE: Duration = Duration::from_secs(1);

static TOLD: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// Whether what is under way is to be cancelled, and waited for.
static CANCELS: AtomicBool = AtomicBool::new(false);

/// Whether a signal has come, for one of those below.
pub fn is_told() -> bool {
    TOLD.load(Ordering::Relaxed)
}

fn listen(mut signal: impl FnMut(&str, bool) + Send + 'static) -> Result<Arc<AtomicBool>, Failure> {
    // Once it is blocked the system hands over a signal that is ignored as well.
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    let mut signals = Termination::new().map_err(|e| Failure::Message(format!("signals: {e}")))?;
    std::thread::spawn(move || {
        while let Ok(name) = signals.wait() {
            if !ignored.contains(&name) {
                signal(name, TOLD.swap(true, Ordering::Relaxed));
            }
        }
    });
    Ok(TOLD.clone())
}

/// Which of the signals a process ignores whose status that is (proc_pid_status(5)).
fn ignored(status: &str) -> Vec<&'static str> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let signals = [(1, "SIGHUP"), (2, "SIGINT"), (15, "SIGTERM")];
    signals.into_iter().filter(|(nr, _)| mask & (1 << (nr - 1)) != 0).map(|(_, name)| name).collect()
}

fn end() -> ! {
    std::process::exit(INTERRUPTED.into())
}

/// Set by a signal: the run ends, and what was measured so far is shown. A second one ends the program. Call
/// it before any other thread is there.
pub fn until_told() -> Result<Arc<AtomicBool>, Failure> {
    listen(|_, again| {
        if again {
            end();
        }
    })
}

/// A signal ends the applications that run on drives of this command's, and what was made for them (mounts,
/// swap areas, loop devices) is undone. Without any, and by a second signal, the program ends at once. Call
/// it before any other thread is there.
pub fn to_undo() -> Result<(), Failure> {
    let told = listen(|_, again| {
        if again || !nearside_apps::are_under_way() {
            end();
        }
        std::thread::spawn(nearside_apps::end);
    });
    told.map(drop)
}

/// Set by a signal: what is under way is cancelled, and the program ends; by itself after a second, as it may
/// be waiting for who reads its output. Call it before any other thread is there;
/// again, it listens no second time.
///
/// # Errors
/// Signals cannot be listened for.
pub fn to_cancel() -> Result<Arc<AtomicBool>, Failure> {
    CANCELS.store(true, Ordering::Relaxed);
    to_end(|| {})?;
    Ok(TOLD.clone())
}

/// A signal ends the program, after `undo`; where [`to_cancel`] was called as well, after what is under way
/// was cancelled, and by an exit status. Call it before any other thread is there; again, it listens no
/// second time.
///
/// # Errors
/// Signals cannot be listened for.
pub fn to_end(undo: impl Fn() + Send + 'static) -> Result<(), Failure> {
    static LISTENS: AtomicBool = AtomicBool::new(false);
    if LISTENS.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let told = listen(move |name, _| {
        let cancels = CANCELS.load(Ordering::Relaxed);
        if cancels {
            std::thread::sleep(GRACE);
        }
        undo();
        if cancels {
            end();
        }
        Termination::end_by(name);
    });
    told.map(drop)
}

#[cfg(test)]
mod tests {
    use super::ignored;

    #[test]
    fn what_nohup_has_ignored_is_known() {
        let status = |mask: &str| format!("Name:\tnearside\nSigBlk:\tffff\nSigIgn:\t{mask}\nSigCgt:\t0\n");
        assert_eq!(ignored(&status("0000000000001001")), ["SIGHUP"]);
        assert_eq!(ignored(&status("0000000000004007")), ["SIGHUP", "SIGINT", "SIGTERM"]);
        assert!(ignored(&status("0000000000001000")).is_empty() && ignored("").is_empty());
    }
}
