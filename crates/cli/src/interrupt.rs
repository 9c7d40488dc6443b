//! The user's end of a command: SIGINT, SIGTERM and SIGHUP.
//!
//! Most commands end at once, as programs do, and their work with them: a drive in this process ends, one
//! behind a socket or a network sees its peer go. A drive behind this host's kernel sees nothing: it has to
//! be told first ([`to_cancel`]). What measures shows what it has ([`until_told`]). What has made mounts and
//! swap areas undoes them ([`to_undo`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nearside_dma::system::Termination;

use crate::failure::{Failure, INTERRUPTED};

/// What a drive has to take the cancellation in.
const GRACE: Duration = Duration::from_secs(1);

static TOLD: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether a signal has come, for one of the two below.
pub fn is_told() -> bool {
    TOLD.load(Ordering::Relaxed)
}

fn listen(mut signal: impl FnMut(bool) + Send + 'static) -> Result<Arc<AtomicBool>, Failure> {
    let mut signals = Termination::new().map_err(|e| Failure::Message(format!("signals: {e}")))?;
    std::thread::spawn(move || {
        while signals.wait().is_ok() {
            signal(TOLD.swap(true, Ordering::Relaxed));
        }
    });
    Ok(TOLD.clone())
}

fn end() -> ! {
    std::process::exit(INTERRUPTED.into())
}

/// Set by a signal: the run ends, and what was measured so far is shown. A second one ends the program. Call
/// it before any other thread is there.
pub fn until_told() -> Result<Arc<AtomicBool>, Failure> {
    listen(|again| {
        if again {
            end();
        }
    })
}

/// A signal ends the applications that run on drives of this command's, and what was made for them (mounts,
/// swap areas, loop devices) is undone. Without any, and by a second signal, the program ends at once. Call
/// it before any other thread is there.
pub fn to_undo() -> Result<(), Failure> {
    let told = listen(|again| {
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
    static LISTENS: AtomicBool = AtomicBool::new(false);
    if LISTENS.swap(true, Ordering::Relaxed) {
        return Ok(TOLD.clone());
    }
    listen(|_| {
        std::thread::sleep(GRACE);
        end();
    })
}
