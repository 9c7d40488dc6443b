//! SQL over the files of drives that understand files: tables of DataFusion whose projection, conditions,
//! limits and groups are worked out in the drives, where that is exact.
//!
//! | table | rows |
//! | --- | --- |
//! | `files` | what is known of every file, directory and link of the volume |
//! | `lines('/var/log/**')` | lines of text files |
//! | `csv('/data/*.csv')`, `tsv(...)`, `json(...)`, `parquet(...)` | rows of files |
//!
//! How a query passes: [`context`] makes a session of DataFusion's with these tables -> a table (`files`,
//! `lines`, `rows`) takes from the plan what the drive can do (`condition`, `pattern`), and what is left is
//! DataFusion's; `aggregate` hands groups of rows to the drive -> [`Scan`] opens each drive in a thread of
//! its own, asks it by FSRLib, and hands on its records as batches of Arrow's.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod aggregate;
mod batch;
#[cfg(feature = "codec")]
mod codec;
mod condition;
mod files;
mod function;
mod lines;
mod pattern;
#[cfg(feature = "program")]
pub mod program;
mod rows;
mod scan;
#[cfg(feature = "codec")]
mod sendable;
mod way;
#[cfg(feature = "codec")]
mod whole;

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};

#[cfg(feature = "codec")]
pub use codec::{Codec, Finds};
pub use function::{all as functions, table};
pub use scan::Scan;
#[cfg(feature = "codec")]
pub use sendable::sendable;
pub use way::{Drives, Way};
#[cfg(feature = "codec")]
pub use whole::Whole;

/// The column that says which drive a row is of, where there are several.
pub(crate) const DRIVE: &str = "drive";

/// How queries are planned.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Conditions, limits and groups go to the drives. Without it they answer rows, and DataFusion does all
    /// else.
    pub push_down: bool,
    /// Partitions in which DataFusion does its own part.
    pub partitions: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { push_down: true, partitions: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

/// A session of DataFusion's with the tables of these drives.
///
/// # Errors
/// DataFusion takes a table's name for another's.
pub fn context(drives: Drives, runtime: Arc<RuntimeEnv>, options: Options) -> Result<SessionContext> {
    let config =
        SessionConfig::new().with_target_partitions(options.partitions).with_information_schema(true);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_physical_optimizer_rules(rules())
        .build();
    let context = SessionContext::new_with_state(state);
    context.register_table("files", files(&drives, options))?;
    for (name, function) in functions(&drives, options) {
        context.register_udtf(name, function);
    }
    Ok(context)
}

/// DataFusion's rules for plans, and the one by which drives make groups.
pub fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    // Before partial and final groups become one.
    rules.insert(0, Arc::new(aggregate::InDrive));
    rules
}

/// What a query may say: nothing on this host is read or written.
pub fn only_asked() -> SQLOptions {
    SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false)
}

/// The table `files`, for any session of DataFusion's.
pub fn files(drives: &Drives, options: Options) -> Arc<dyn TableProvider> {
    Arc::new(files::Files::new(drives.clone(), options))
}
