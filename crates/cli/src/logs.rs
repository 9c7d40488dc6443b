//! What is said on standard error of what happens: as much as NEARSIDE_LOG asks for, else as a server's file
//! does, else warnings.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::failure::Failure;
use crate::terminal;

/// The words for how much is said.
pub const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// The newest warnings and errors, however much is said: so many lines, of so many bytes at most.
static RECENT: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());
const LINES: usize = 64;
const LONGEST: usize = 1024;

fn kept() -> MutexGuard<'static, VecDeque<String>> {
    RECENT.lock().unwrap_or_else(|e| e.into_inner())
}

/// The newest warnings and errors, newest first, as they were written.
pub fn recent() -> Vec<String> {
    kept().iter().rev().cloned().collect()
}

/// Keeps the lines that are written to it, one at a time.
struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]);
        let mut kept = kept();
        if kept.len() == LINES {
            kept.pop_front();
        }
        kept.push_back(text.trim_end().to_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How much is said; it can be changed.
pub struct Logs {
    level: reload::Handle<LevelFilter, Registry>,
    /// By NEARSIDE_LOG.
    set: bool,
}

/// How much a word asks for.
pub fn level(word: &str) -> Option<LevelFilter> {
    LEVELS.contains(&word).then(|| word.parse().ok())?
}

impl Logs {
    /// Begins to say as much as is asked for.
    pub fn begin(asked: Option<LevelFilter>) -> Result<Logs, Failure> {
        let set = match std::env::var("NEARSIDE_LOG") {
            Err(std::env::VarError::NotPresent) => None,
            word => {
                let word = word.unwrap_or_default();
                let why = || format!("NEARSIDE_LOG is {word:?}: error, warn, info, debug, trace or off");
                Some(word.parse::<LevelFilter>().map_err(|_| why())?)
            }
        };
        let (filter, level) = reload::Layer::new(set.or(asked).unwrap_or(LevelFilter::WARN));
        let lines = fmt::layer().with_ansi(false).with_target(false).with_writer(|| terminal::Lines);
        let kept = fmt::layer().with_ansi(false).with_target(false).with_writer(|| Kept);
        let kept = kept.with_filter(LevelFilter::WARN);
        let _ = registry().with(lines.with_filter(filter)).with(kept).try_init();
        Ok(Logs { level, set: set.is_some() })
    }

    /// Says as much as is asked for from now on, unless NEARSIDE_LOG says how much.
    pub fn change(&self, asked: Option<LevelFilter>) {
        if !self.set {
            let _ = self.level.reload(asked.unwrap_or(LevelFilter::WARN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept_and_no_more() {
        for nth in 0..3 * LINES {
            let line = format!("line {nth} {}\n", "\u{e9}".repeat(LONGEST));
            assert_eq!(Kept.write(line.as_bytes()).unwrap(), line.len());
        }
        let recent = recent();
        assert!(recent.len() == LINES && recent[0].starts_with("line 191 "), "{recent:?}");
        assert!(recent.iter().all(|line| line.len() <= LONGEST + 3));
    }
}
