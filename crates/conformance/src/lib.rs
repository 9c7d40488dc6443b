//! Suites that every store, every front and every file-system view must pass

#![warn(clippy::missing_errors_doc)]

pub mod browser;
pub mod drive;
pub mod events;
pub mod explore;
pub mod front;
pub mod needs;
pub mod store;
pub mod view;
pub mod volume;
