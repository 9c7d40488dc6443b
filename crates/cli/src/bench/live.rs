//! How far a measurement is. The thread that measures only stores numbers; another one draws.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use nearside_instrument::Event;
use nearside_loadgen::Generator;

use crate::terminal;

#[derive(Default)]
struct Shown {
    /// Runs that were begun, of how many.
    step: AtomicU64,
    steps: AtomicU64,
    /// Operations of this run.
    operations: AtomicU64,
    words: Mutex<String>,
}

/// A line on standard error, where a person watches.
pub struct Live {
    shown: Arc<Shown>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Live {
    /// Begins to draw, where standard error is a terminal.
    pub fn new() -> Live {
        let shown = Arc::new(Shown::default());
        let thread = terminal::errors().then(|| {
            let (end, ended) = channel();
            let shown = shown.clone();
            let thread = std::thread::spawn(move || {
                let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
                let bar =
                    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                while ended.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
                    bar.set_length(shown.steps.load(Ordering::Relaxed));
                    bar.set_position(shown.step.load(Ordering::Relaxed));
                    let words = shown.words.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let operations = HumanCount(shown.operations.load(Ordering::Relaxed));
                    bar.set_message(format!("{words}: {operations} I/Os"));
                }
                bar.finish_and_clear();
            });
            (end, thread)
        });
        Live { shown, thread }
    }

    /// What is being done.
    pub fn begins(&self, step: usize, steps: usize, words: String) {
        self.shown.step.store(step as u64, Ordering::Relaxed);
        self.shown.steps.store(steps as u64, Ordering::Relaxed);
        self.shown.operations.store(0, Ordering::Relaxed);
        *self.shown.words.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    /// How many operations there were so far.
    pub fn counts(&self, operations: u64) {
        self.shown.operations.store(operations, Ordering::Relaxed);
    }

    /// How far a run is.
    pub fn runs(&self, generator: &Generator) {
        let (_, streams) = generator.progress();
        let operations = streams.map(|s| s.reads.response.count() + s.writes.response.count()).sum();
        self.counts(operations);
    }

    /// How far a curve is; `before` runs of other curves on the picture went before,
    /// and there are `all` of them.
    pub fn event(&self, event: &Event<'_>, name: &str, before: usize, all: usize) {
        match event {
            Event::Begins(step, steps, words) => {
                self.begins(before * steps + step, all * steps, format!("{name}, {words}"));
            }
            Event::Runs(generator) => self.runs(generator),
            Event::Ended(..) => {}
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            let _ = end.send(());
            let _ = thread.join();
        }
    }
}
