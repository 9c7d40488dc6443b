//! What is said on standard error of what happens: as much as NEARSIDE_LOG asks for, else as a server's file
//! does, else warnings. Keys are not said: what is quoted of a file may hold one that is there by mistake.

use std::borrow::Cow;
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

/// What keys begin with, of DH-HMAC-CHAP and of TLS, in their forms of interchange.
const KEYS: [&str; 2] = ["DHHC-1:", "NVMeTLSkey-1:"];

/// A text without what follows the beginning of a key, up to a space or a quote.
pub fn redacted(text: &str) -> Cow<'_, str> {
    let first = |text: &str| KEYS.into_iter().filter_map(|key| Some(text.find(key)? + key.len())).min();
    let Some(mut at) = first(text) else { return text.into() };
    let (mut left, mut safe) = (text, String::new());
    loop {
        let (before, key) = left.split_at(at);
        safe += before;
        safe += "...";
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
        left = key.find(ends).map_or("", |end| &key[end..]);
        match first(left) {
            Some(next) => at = next,
            None => return (safe + left).into(),
        }
    }
}

/// Standard error for lines, without keys.
struct Said;

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match redacted(&String::from_utf8_lossy(bytes)) {
            Cow::Borrowed(_) => terminal::Lines.write_all(bytes)?,
            Cow::Owned(safe) => terminal::Lines.write_all(safe.as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        terminal::Lines.flush()
    }
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
        kept.push_back(redacted(text.trim_end()).into_owned());
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
        let lines = fmt::layer().with_ansi(false).with_target(false).with_writer(|| Said);
        let kept = fmt::layer().with_ansi(false).with_target(false).with_writer(|| Kept);
        let kept = kept.with_filter(LevelFilter::WARN);
        let _ = registry().with(lines.with_filter(filter)).with(kept).try_init();
        Ok(Logs { level, set: set.is_some() })
    }

    /// Whether NEARSIDE_LOG says how much.
    pub fn is_set_by_environment(&self) -> bool {
        self.set
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
        // Here, since another test would write between these lines.
        let line = "serve.toml: 3 | key = \"DHHC-1:00:c2VjcmV0:\"\n";
        assert_eq!(Kept.write(line.as_bytes()).unwrap(), line.len());
        assert_eq!(super::recent()[0], "serve.toml: 3 | key = \"DHHC-1:...\"");
    }

    #[test]
    fn keys_are_not_said() {
        for (text, safe) in [
            ("", ""),
            ("no key", "no key"),
            ("DHHC-1:00:AAEC/+==:", "DHHC-1:..."),
            ("a 'DHHC-1:00:AAEC:' and", "a 'DHHC-1:...' and"),
            ("`NVMeTLSkey-1:01:AAEC:`, DHHC-1:01:x:\nnext", "`NVMeTLSkey-1:...`, DHHC-1:...\nnext"),
            ("DHHC-1:DHHC-1:x \u{e9}", "DHHC-1:... \u{e9}"),
        ] {
            assert_eq!(redacted(text), safe);
        }
        let error = toml::from_str::<toml::Table>("key = \"DHHC-1:00:c2VjcmV0:\" x").unwrap_err().to_string();
        assert!(error.contains("c2VjcmV0") && !redacted(&error).contains("c2VjcmV0"), "{error}");
    }
}
