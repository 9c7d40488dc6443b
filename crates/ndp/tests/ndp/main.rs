//! What is computed near the data, held against twins of it and against the tools that users know.
//!
//! One program, since each links all that the crate is made of: a test that needs a process of its own is
//! beside it.

mod agree;
mod holes;
mod parquet;
mod select;
mod slices;
mod tools;
mod unordered;
