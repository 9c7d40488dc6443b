//! A sign of life on standard error for what takes over two seconds,
//! where a person watches and nothing else is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use crate::terminal;

/// Waits in a thread of its own; gone without a trace when ended.
pub struct Progress {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    quiet: Arc<AtomicBool>,
    output_is_terminal: bool,
}

impl Progress {
    /// Starts to wait, where standard error is a terminal: files and bytes so far, and what became of them.
    pub fn new(done: &'static str, seen: impl Fn() -> (u64, u64) + Send + 'static) -> Progress {
        let quiet = Arc::new(AtomicBool::new(false));
        let thread = terminal::errors().then(|| {
            let (end, ended) = channel();
            let silenced = quiet.clone();
            let thread = std::thread::spawn(move || {
                let mut bar: Option<ProgressBar> = None;
                let mut wait = Duration::from_secs(2);
                while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    wait = Duration::from_millis(100);
                    if silenced.load(Ordering::Relaxed) {
                        break;
                    }
                    let bar = bar.get_or_insert_with(|| {
                        let style = ProgressStyle::with_template("{spinner} {msg}");
                        ProgressBar::new_spinner()
                            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
                    });
                    let (files, bytes) = seen();
                    bar.set_message(format!("{} files, {} {done}", HumanCount(files), HumanBytes(bytes)));
                    bar.tick();
                }
                if let Some(bar) = bar {
                    bar.finish_and_clear();
                }
            });
            (end, thread)
        });
        Progress { thread, quiet, output_is_terminal: terminal::output() }
    }

    /// Where records do not go to the output, what is on the terminal is this alone.
    pub fn beside_output(mut self, used: bool) -> Progress {
        self.output_is_terminal &= used;
        self
    }

    /// A record goes to the output: where that is the terminal, it is sign enough.
    pub fn record(&mut self) {
        if self.output_is_terminal && self.thread.is_some() {
            self.stop();
        }
    }

    /// The end.
    pub fn end(&mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.quiet.store(true, Ordering::Relaxed);
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}
