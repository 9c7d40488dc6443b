//! The part of a cluster that takes queries.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::BallistaCodec;
use ballista_core::serde::protobuf::UpdateTaskStatusParams;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use ballista_scheduler::cluster::{BallistaCluster, ClusterState};
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::metrics::default_metrics_collector;
use ballista_scheduler::scheduler_process::start_grpc_service;
use ballista_scheduler::scheduler_server::SchedulerServer;
use clap::Args;
use datafusion::prelude::SessionConfig;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use nearside_cli::program::{Failure, Outcome};
use nearside_sql::program::threads;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tonic::Request;

use crate::address::{free, loopback, reached};
use crate::cluster::{self, KEPT, MOST_BYTES, signalled};
use crate::launcher::Launcher;

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

/// How often a scheduler is reminded of what waits.
const REMINDED: Duration = Duration::from_secs(1);

/// Tells a scheduler of tasks that were refused, and that something has happened: tasks of an executor that
/// is gone wait for that before they are given to others.
async fn reminded(
    scheduler: SchedulerServer<LogicalPlanNode, PhysicalPlanNode>,
    state: Arc<dyn ClusterState>,
    mut refused: UnboundedReceiver<UpdateTaskStatusParams>,
) {
    loop {
        if let Ok(Some(refused)) = tokio::time::timeout(REMINDED, refused.recv()).await {
            let _told = scheduler.update_task_status(Request::new(refused)).await;
            continue;
        }
        if scheduler.running_job_number() == 0 && scheduler.pending_job_number() == 0 {
            continue;
        }
        for executor_id in state.executor_heartbeats().into_keys() {
            let nothing = UpdateTaskStatusParams { executor_id, task_status: Vec::new() };
            let _told = scheduler.update_task_status(Request::new(nothing)).await;
        }
    }
}

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
        finished_job_data_clean_up_interval_seconds: KEPT,
        grpc_server_max_decoding_message_size: MOST_BYTES as u32,
        grpc_server_max_encoding_message_size: MOST_BYTES as u32,
        override_session_builder: Some(Arc::new(cluster::session)),
        override_config_producer: Some(Arc::new(|| cluster::config(SessionConfig::new_with_ballista()))),
        ..SchedulerConfig::default()
    };
    let failed = |error: ballista_core::error::BallistaError| Failure::Message(error.to_string());
    threads()?.block_on(async {
        let cluster = BallistaCluster::new_from_config(&config).await.map_err(failed)?;
        let state = cluster.cluster_state();
        let (refuses, refused) = unbounded_channel();
        let launcher = Arc::new(Launcher { scheduler: config.scheduler_name(), refused: refuses });
        let codec = BallistaCodec::new(cluster::logical(), cluster::physical());
        let metrics = default_metrics_collector().map_err(failed)?;
        let (name, config) = (config.scheduler_name(), Arc::new(config));
        let mut scheduler =
            SchedulerServer::new_with_task_launcher(name, cluster, codec, config, metrics, launcher);
        scheduler.init().await.map_err(failed)?;
        println!("{host}:{}", listen.port());
        tokio::select! {
            ended = start_grpc_service(listen, scheduler.clone()) => ended.map_err(failed),
            () = reminded(scheduler, state, refused) => Ok(()),
            signalled = signalled() => Ok(signalled?),
        }
    })?;
    Ok(0)
}
