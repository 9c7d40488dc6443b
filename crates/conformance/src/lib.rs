//! Suites that every store, every front and every file-system view must pass, and the twin of every
//! search.

#![warn(clippy::missing_errors_doc)]

pub mod browser;
pub mod drive;
pub mod events;
pub mod explore;
pub mod front;
pub mod help;
pub mod naive;
pub mod needs;
pub mod parquet;
pub mod programs;
pub mod record;
pub mod store;
pub mod today;
pub mod view;
pub mod volume;
pub mod wheel;
