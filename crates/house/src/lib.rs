//! The rules of the house are this crate's test: `cargo test -p nearside-house` builds nothing else.
