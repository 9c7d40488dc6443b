//! What is said on standard error of what happens: as much as NEARSIDE_LOG asks for, else as a server's file
//! does, else warnings.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

use crate::failure::Failure;
use crate::terminal;

/// The words for how much is said.
pub const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

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
        let _ = registry().with(filter).with(lines).try_init();
        Ok(Logs { level, set: set.is_some() })
    }

    /// Says as much as is asked for from now on, unless NEARSIDE_LOG says how much.
    pub fn change(&self, asked: Option<LevelFilter>) {
        if !self.set {
            let _ = self.level.reload(asked.unwrap_or(LevelFilter::WARN));
        }
    }
}
