//! What operations over tables have in common.

use nearside_ndp::npy;
use nearside_ndp::table::{Shape, TableError};
use nearside_near_data::{Failure, Table};

/// Bytes from which a header is known.
pub(super) const HEAD: u64 = npy::MAX_HEADER;

/// Where the rows of a file lie that begins with `head` and has so many bytes.
pub(super) fn shape_of(table: &Table, head: &[u8], size: u64) -> Result<Shape, Failure> {
    match table.raw {
        Some(raw) => Shape::raw(raw, size),
        None => npy::shape(head, size),
    }
    .map_err(table_failure)
}

/// Said of the file: of others of a tree it may not hold.
pub(super) fn table_failure(error: TableError) -> Failure {
    Failure::NotATable(format!("Not such a table: {error}"))
}
