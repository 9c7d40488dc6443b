//! SQL over drives: the library and the program, beside DataFusion's own reading, DuckDB and GNU find.

#[cfg(feature = "codec")]
mod codec;
mod conditions;
mod discovery;
mod fixture;
#[cfg(feature = "codec")]
mod hostile;
mod local;
mod program;
mod questions;
mod tables;
