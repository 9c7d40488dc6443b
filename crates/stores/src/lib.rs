//! Stores by name. [`AnyStore::open`] takes a word from a command line; [`Model`] is the medium behind `model:` words, for whoever wants the
//! time without the bytes; [`models`] lists what can be named.

mod any;
mod model;

pub use any::{AnyChannel, AnyStore};
pub use model::{Model, ModelHelp, models, models_help};
