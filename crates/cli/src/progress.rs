//! A sign of life on standard error for what takes over two seconds, where a person watches and nothing else
//! is shown: what was done and how fast; and where it is known how much there is, how long it still takes.
//!
//! It is one line. What comes to the output is sign enough, and the line is gone before that ([`give_way`]);
//! a message comes above it ([`above`]). How much there is may be found out beside the work, and only once
//! the line shows ([`Progress::count`]). Where that is not to be had, the volume may say about how many files
//! there are, or can be: the line then says it so, and nothing of it where there turn out to be more.

use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use nearside_fsrlib::{InAll, Seen};

use crate::terminal;

/// What ends before that shows nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// From then on it is told anew so often.
const PERIOD: Duration = Duration::from_millis(100);

/// The line on the terminal.
struct Line {
    shown: Option<ProgressBar>,
    /// It has given way.
    over: bool,
    /// What it showed last.
    bytes: u64,
}

static LINE: Mutex<Line> = Mutex::new(Line { shown: None, over: false, bytes: 0 });

/// Who has it is alone on the terminal.
fn line() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    fn clear(&mut self) {
        if let Some(bar) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

/// Before something is written to the output: where that is the terminal, the line is gone for good.
pub fn give_way() {
    if terminal::output() {
        let mut line = line();
        line.over = true;
        line.clear();
    }
}

/// Writes to the terminal what is to stand above the line.
pub fn above<T>(write: impl FnOnce() -> T) -> T {
    match &line().shown {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Waits in a thread of its own; gone without a trace when it ends. The default shows nothing.
#[derive(Default)]
pub struct Progress {
    shown: Option<(Sender<()>, JoinHandle<()>)>,
    /// Each ends a thread that counts, when it comes to look. That may be long after: nobody waits for it.
    counting: Vec<Sender<()>>,
}

impl Progress {
    /// Starts to wait, where standard error is a terminal: files and bytes so far, and what became of them.
    pub fn new(done: &'static str, seen: impl Fn() -> (u64, u64) + Send + 'static) -> Progress {
        Progress::watch(done, move || (seen(), None))
    }

    /// The same of what may know how much there is in all ([`Seen::begin`]).
    pub fn of(done: &'static str, seen: Arc<Seen>) -> Progress {
        Progress::watch(done, move || (seen.get(), seen.all()))
    }

    fn watch(done: &'static str, far: impl Fn() -> ((u64, u64), Option<InAll>) + Send + 'static) -> Progress {
        let shown = terminal::errors().then(|| {
            let (end, ended) = channel();
            let thread = std::thread::spawn(move || {
                let mut wait = PATIENCE;
                while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) && show(done, far()) {
                    wait = PERIOD;
                }
                line().clear();
            });
            (end, thread)
        });
        Progress { shown, counting: Vec::new() }
    }

    /// Where a person watches, and once it shows: has `count` find out in a thread of its own how much there
    /// is, as long as that is wanted, which it is told.
    pub fn count(&mut self, count: impl FnOnce(&dyn Fn() -> bool) + Send + 'static) {
        if self.is_watched() {
            let (end, ended) = channel();
            self.counting.push(end);
            std::thread::spawn(move || {
                let is_wanted = || ended.try_recv() == Err(TryRecvError::Empty) && !line().over;
                if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) && is_wanted() {
                    count(&is_wanted);
                }
            });
        }
    }

    /// Whether a person may come to see it.
    pub fn is_watched(&self) -> bool {
        self.shown.is_some()
    }

    /// The end.
    pub fn end(&mut self) {
        self.counting.clear();
        if let Some((end, thread)) = self.shown.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Shows how far it is; false where the line has given way.
fn show(done: &str, (seen, all): ((u64, u64), Option<InAll>)) -> bool {
    let mut line = line();
    if line.over {
        return false;
    }
    // Who counts anew begins anew, and its rate with it.
    let anew = std::mem::replace(&mut line.bytes, seen.1) > seen.1;
    let bar = line.shown.get_or_insert_with(|| ProgressBar::new_spinner().with_elapsed(PATIENCE));
    if anew {
        bar.reset_elapsed();
    }
    // Of what turned out to be more nothing is known.
    let all = all.map(|all| (all, part(seen, all))).filter(|(_, (so_far, all))| so_far <= all);
    let template = match all {
        Some(_) => "{spinner} {bar:16} {wide_msg}",
        None => "{spinner} {wide_msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    if let Some((_, (so_far, all))) = all {
        bar.set_length(all);
        bar.set_position(so_far);
    }
    bar.set_message(words(done, seen, all.map(|(all, _)| all), bar.elapsed()));
    bar.tick();
    true
}

/// How many of how many are seen, of what is known of all.
fn part((files, bytes): (u64, u64), all: InAll) -> (u64, u64) {
    match all {
        InAll::Bytes(all) => (bytes, all),
        InAll::Files(all) | InAll::FilesAtMost(all) => (files, all),
    }
}

/// What the line says after so long.
fn words(done: &str, seen: (u64, u64), all: Option<InAll>, so_far: Duration) -> String {
    let (files, bytes) = seen;
    let seconds = so_far.as_secs_f64().max(0.1);
    let each_second = |n: u64| (n as f64 / seconds) as u64;
    // Files, of how many, and where bytes of them are seen, how many.
    let counted = |of: &str| match bytes {
        0 => format!("{}{of} files {done}", HumanCount(files)),
        _ => format!("{}{of} files, {} {done}", HumanCount(files), HumanBytes(bytes)),
    };
    let rate = match bytes {
        0 => HumanCount(each_second(files)).to_string(),
        _ => HumanBytes(each_second(bytes)).to_string(),
    };
    let Some(all) = all else { return format!("{}, {rate}/s", counted("")) };
    let (how, of) = match all {
        InAll::Bytes(all) => ("", format!("{} of {} {done}", HumanBytes(bytes), HumanBytes(all))),
        InAll::Files(all) => ("about ", counted(&format!(" of about {}", HumanCount(all)))),
        InAll::FilesAtMost(all) => ("at most ", counted(&format!(" of at most {}", HumanCount(all)))),
    };
    let (so_many, all) = part(seen, all);
    // As fast as so far; of what has not begun that is not known.
    match Duration::try_from_secs_f64(seconds * all.saturating_sub(so_many) as f64 / so_many as f64) {
        Ok(left) => format!("{how}{:#} left, {of}, {rate}/s", HumanDuration(left)),
        Err(_) => format!("{:#} so far, {of}", HumanDuration(so_far)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_said() {
        const GIB: u64 = 1 << 30;
        let after = |seconds, seen, all| words("in the drive", seen, all, Duration::from_secs(seconds));
        let known = Some(InAll::Bytes(4 * GIB));
        assert_eq!(after(4, (1, GIB), known), "12s left, 1.00 GiB of 4.00 GiB in the drive, 256.00 MiB/s");
        assert_eq!(after(600, (1, GIB), known), "30m left, 1.00 GiB of 4.00 GiB in the drive, 1.71 MiB/s");
        assert_eq!(after(4, (0, 0), known), "4s so far, 0 B of 4.00 GiB in the drive");
        assert_eq!(after(4, (12_345, 0), None), "12,345 files in the drive, 3,086/s");
        assert_eq!(after(4, (3, GIB), None), "3 files, 1.00 GiB in the drive, 256.00 MiB/s");
        // Whatever sizes a volume gives its files.
        let most = Some(InAll::Bytes(u64::MAX));
        assert_eq!(after(2, (1, 1), most), "2s so far, 1 B of 16.00 EiB in the drive");
    }

    #[test]
    fn what_is_known_about_is_said_so() {
        const GIB: u64 = 1 << 30;
        let after = |seconds, seen, all| words("in the drive", seen, Some(all), Duration::from_secs(seconds));
        let (about, most) = (InAll::Files(12_000), InAll::FilesAtMost(12_000));
        assert_eq!(
            after(4, (3000, 0), about),
            "about 12s left, 3,000 of about 12,000 files in the drive, 750/s"
        );
        assert_eq!(
            after(4, (3000, GIB), most),
            "at most 12s left, 3,000 of at most 12,000 files, 1.00 GiB in the drive, 256.00 MiB/s"
        );
        assert_eq!(after(4, (0, 0), about), "4s so far, 0 of about 12,000 files in the drive");
        assert_eq!(after(4, (0, GIB), most), "4s so far, 0 of at most 12,000 files, 1.00 GiB in the drive");
        assert_eq!((part((7, 9), most), part((7, 9), InAll::Bytes(10))), ((7, 12_000), (9, 10)));
    }

    #[test]
    fn nothing_is_counted_where_nobody_watches() {
        let kept = Arc::new(());
        let its_own = kept.clone();
        Progress::default().count(move |_| drop(its_own));
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
