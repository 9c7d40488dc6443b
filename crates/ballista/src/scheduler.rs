//! The part of a cluster that takes queries.

use std::net::SocketAddr;
use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::extension::SessionConfigExt;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::start_server;
use clap::Args;
use datafusion::prelude::SessionConfig;
use nearside_cli::program::{Failure, Outcome};
use nearside_sql::program::threads;

use crate::address::{free, loopback, reached};
use crate::cluster::{self, signalled};

#[derive(Args)]
pub struct SchedulerArgs {
    /// Where it listens; port 0: any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = loopback(50050))]
    listen: SocketAddr,
    /// The host by which executors and queries reach it [default: the address]
    #[arg(long, value_name = "HOST")]
    external_host: Option<String>,
    /// Seconds after which an executor that says nothing is given up, and its tasks are given to others
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(10..))]
    executor_timeout: u64,
}

/// How often a task is tried: where a drive cannot be reached, or is lost, perhaps by another executor.
const TRIES: usize = 4;

pub fn run(args: &SchedulerArgs) -> Outcome {
    let listen = free(args.listen, 1)?;
    let host = reached(listen.ip(), args.external_host.as_deref())?;
    let config = SchedulerConfig {
        bind_host: listen.ip().to_string(),
        bind_port: listen.port(),
        external_host: host.clone(),
        scheduling_policy: TaskSchedulingPolicy::PushStaged,
        task_distribution: TaskDistributionPolicy::RoundRobin,
        executor_timeout_seconds: args.executor_timeout,
        expire_dead_executor_interval_seconds: args.executor_timeout.div_ceil(10),
        task_max_failures: TRIES,
        override_logical_codec: Some(cluster::logical()),
        override_physical_codec: Some(cluster::physical()),
        override_session_builder: Some(Arc::new(cluster::session)),
        override_config_producer: Some(Arc::new(|| cluster::config(SessionConfig::new_with_ballista()))),
        ..SchedulerConfig::default()
    };
    let failed = |error: ballista_core::error::BallistaError| Failure::Message(error.to_string());
    threads()?.block_on(async {
        let cluster = BallistaCluster::new_from_config(&config).await.map_err(failed)?;
        println!("{host}:{}", listen.port());
        tokio::select! {
            ended = start_server(cluster, listen, Arc::new(config)) => ended.map_err(failed),
            signalled = signalled() => Ok(signalled?),
        }
    })?;
    Ok(0)
}
