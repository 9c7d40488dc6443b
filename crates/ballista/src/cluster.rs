//! What all parts of a cluster have in common: how plans over drives become bytes, and how they are planned.

use std::io;
use std::sync::Arc;

use ballista_core::extension::{
    SessionConfigExt, ballista_aggregate_functions, ballista_scalar_functions, ballista_window_functions,
};
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::{BallistaLogicalExtensionCodec, BallistaPhysicalExtensionCodec};
use datafusion::error::Result;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::SessionConfig;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::PhysicalExtensionCodec;
use nearside_sql::program::{Named, Said};
use nearside_sql::{Codec, Finds, Way, Whole, rules};
use tokio::signal::unix::{SignalKind, signal};

/// Ends with the first signal that asks for the program's end.
///
/// # Errors
/// The system has none to wait for.
pub async fn signalled() -> io::Result<()> {
    let (mut ends, mut interrupts) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = ends.recv() => {}
        _ = interrupts.recv() => {}
    }
    Ok(())
}

/// Drives as executors find them; what is left out of an answer, and warnings, are said on their standard
/// error.
fn finds() -> Arc<Finds> {
    let said = Arc::new(Said::default());
    Arc::new(move |name: &str, words: &[String]| {
        Named::found(name, words, &said).map(|named| Arc::new(named) as Arc<dyn Way>)
    })
}

/// Tables as bytes.
pub fn logical() -> Arc<dyn LogicalExtensionCodec> {
    let engine: Arc<dyn LogicalExtensionCodec> = Arc::new(BallistaLogicalExtensionCodec::default());
    Arc::new(Codec::new(finds(), engine))
}

/// Steps as bytes.
pub fn physical() -> Arc<dyn PhysicalExtensionCodec> {
    let engine: Arc<dyn PhysicalExtensionCodec> = Arc::new(BallistaPhysicalExtensionCodec::default());
    Arc::new(Codec::new(finds(), engine))
}

/// The settings of a session that knows drives.
pub fn config(config: SessionConfig) -> SessionConfig {
    settings(config)
        .with_ballista_logical_extension_codec(logical())
        .with_ballista_physical_extension_codec(physical())
}

/// Longest message between parts of a cluster: a task names where each part of what it reads lies, of all
/// drives.
pub const MOST_BYTES: usize = 256 << 20;

/// Seconds for which what executors have made is kept where nobody has said that it is not wanted any more.
pub const KEPT: u64 = 24 * 3600;

/// How queries are planned, on the side that asks and on the side that plans: what Ballista sets for itself
/// gives other answers than one process does.
pub fn settings(config: SessionConfig) -> SessionConfig {
    // In one part, a side that is made whole would be exchanged with one whose order is relied on.
    let parts = config.target_partitions().max(2);
    config
        .with_target_partitions(parts)
        // Sort-merge joins take -0.0 for 0.0, and know fewer types.
        .set_bool("datafusion.optimizer.prefer_hash_join", true)
        // What is sorted in parts is merged, and the limit of a merge is forgotten (`Whole`).
        .set_bool("datafusion.optimizer.repartition_sorts", false)
        // A side would be made whole once `Whole` has looked at the plan.
        .with_ballista_broadcast_join_threshold_bytes(0)
        .with_ballista_grpc_client_max_message_size(MOST_BYTES)
        // A query has a name once it is accepted, and not when its first stage has ended.
        .set_bool("ballista.client.pull", true)
}

/// A session with all functions that plans may name, without rules of its own.
fn plain(config: SessionConfig) -> SessionStateBuilder {
    SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_scalar_functions(ballista_scalar_functions())
        .with_aggregate_functions(ballista_aggregate_functions())
        .with_window_functions(ballista_window_functions())
}

/// A session that plans what a client has asked.
pub fn session(config: SessionConfig) -> Result<SessionState> {
    let config = settings(config);
    let context = plain(config.clone()).build().task_ctx();
    let mut rules = rules();
    rules.push(Arc::new(Whole::new(physical(), context)));
    Ok(plain(config).with_physical_optimizer_rules(rules).build())
}

/// The functions of an executor: those that the scheduler plans with.
pub fn functions() -> BallistaFunctionRegistry {
    (&plain(SessionConfig::new_with_ballista()).build()).into()
}
