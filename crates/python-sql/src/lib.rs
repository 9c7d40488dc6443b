//! What `import nearside_sql` stands on: `nearside-sql`'s tables, over drives as `nearside.open` opens them.
//!
//! How a query passes: `drives::Drives` has it planned and run by the DataFusion of this library, and hands
//! over what comes of it as a stream of Arrow's -> or `table::Table` hands a table to the DataFusion of
//! Python's package of that name, which plans and runs it, by the interface that datafusion-ffi is.

mod drives;
mod running;
mod table;
mod way;

/// The native half of the package `nearside_sql`.
#[pyo3::pymodule]
mod _tables {
    #[pymodule_export]
    use crate::drives::{Answer, Drives};
    #[pymodule_export]
    use crate::table::{Function, Table};

    #[pymodule_export]
    use crate::way::at_exit;

    /// The major version of DataFusion whose tables these are.
    #[pymodule_export]
    const DATAFUSION: u64 = crate::table::VERSION;
}
