//! The part of a cluster that asks drives.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ballista_core::RuntimeProducer;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::error::BallistaError;
use ballista_core::extension::SessionConfigExt;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use clap::Args;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionConfig;
use nearside_cli::program::{Failure, Outcome};
use nearside_sql::program::{failed, threads};

use crate::address::{Place, free, loopback, reached};
use crate::cluster::{self, KEPT, MOST_BYTES, signalled};
use crate::engine::Engine;

#[derive(Args)]
pub struct ExecutorArgs {
    /// The cluster's scheduler
    #[arg(long, value_name = "HOST:PORT")]
    scheduler: Place,
    /// Where it listens, at this port for what it has made, and at the next for tasks; port 0: any that are
    /// free
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = loopback(50051))]
    listen: SocketAddr,
    /// The host by which others reach it [default: the address]
    #[arg(long, value_name = "HOST")]
    external_host: Option<String>,
    /// Tasks at the same time, of which each asks one drive [default: four for each core, since most wait for
    /// their drives]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    tasks: Option<u16>,
    /// Most memory for what is sorted, joined or put into groups here, of all tasks, in MiB: what is sorted
    /// or put into groups beyond that goes to temporary files, and a join that has no room fails
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(16..))]
    memory: u64,
    /// Where the folder is made for what tasks have made for others; it is removed at the end [default: that
    /// of temporary files]
    #[arg(long, value_name = "FOLDER")]
    work_dir: Option<PathBuf>,
}

/// Seconds between two signs of life.
const HEARTBEAT: u64 = 3;
/// It waits for its scheduler for as long as that takes: Ballista never sees these seconds pass.
const CONNECT: u16 = 1;
/// How often an executor is looked for that cannot be found, and for how long it waits between.
const LOOKED_FOR: usize = 20;
const HEARD: Duration = Duration::from_millis(100);
/// For how long tasks are waited for at the end.
const GRACE: Duration = Duration::from_secs(5);

/// Memory and temporary files of all tasks together.
fn shared(mib: u64, folder: &str) -> Result<RuntimeProducer, Failure> {
    let pool = Arc::new(FairSpillPool::new(usize::try_from(mib << 20).unwrap_or(usize::MAX)));
    let made = RuntimeEnvBuilder::new().with_memory_pool(pool).with_temp_file_path(folder).build_arc();
    let runtime = made.map_err(failed)?;
    Ok(Arc::new(move |_| Ok(runtime.clone())))
}

/// Does tasks until the end. Ballista's executor says that it is there before it listens: where the scheduler
/// looks in between, it says so once more.
async fn started(config: Arc<ExecutorProcessConfig>) -> Result<(), BallistaError> {
    for _ in 0..LOOKED_FOR {
        match start_executor_process(config.clone()).await {
            Err(error) if error.to_string().contains("Failed to register executor") => {
                tokio::time::sleep(HEARD).await;
            }
            ended => return ended,
        }
    }
    start_executor_process(config).await
}

pub fn run(args: &ExecutorArgs) -> Outcome {
    let listen = free(args.listen, 2)?;
    let place = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let made = tempfile::Builder::new().prefix("nearside-ballista-").tempdir_in(&place);
    let unmade = |error| Failure::Message(format!("--work-dir {}: {error}", place.display()));
    let folder = made.map_err(unmade)?;
    let unnamed = || Failure::Message(format!("--work-dir {}: no UTF-8", place.display()));
    let own = folder.path().to_str().map(str::to_owned).ok_or_else(unnamed)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let tasks = args.tasks.map_or(4 * cores, usize::from);
    let next = listen.port().checked_add(1);
    let grpc_port = next.ok_or_else(|| Failure::Message(format!("--listen {listen}: no port behind it")))?;
    let config = ExecutorProcessConfig {
        bind_host: listen.ip().to_string(),
        external_host: Some(reached(listen.ip(), args.external_host.as_deref())?),
        port: listen.port(),
        grpc_port,
        scheduler_host: args.scheduler.host.clone(),
        scheduler_port: args.scheduler.port,
        scheduler_connect_timeout_seconds: CONNECT,
        concurrent_tasks: tasks,
        task_scheduling_policy: TaskSchedulingPolicy::PushStaged,
        work_dir: Some(own.clone()),
        grpc_max_decoding_message_size: MOST_BYTES as u32,
        grpc_max_encoding_message_size: MOST_BYTES as u32,
        job_data_ttl_seconds: KEPT,
        job_data_clean_up_interval_seconds: KEPT / 4,
        executor_heartbeat_interval_seconds: HEARTBEAT,
        override_runtime_producer: Some(shared(args.memory, &own)?),
        override_execution_engine: Some(Arc::new(Engine::default())),
        override_function_registry: Some(Arc::new(cluster::functions())),
        override_logical_codec: Some(cluster::logical()),
        override_physical_codec: Some(cluster::physical()),
        override_config_producer: Some(Arc::new(|| cluster::config(SessionConfig::new_with_ballista()))),
        ..ExecutorProcessConfig::default()
    };
    println!("{listen}");
    let runtime = threads()?;
    // It ends by itself once its tasks have; of some it never hears that.
    let asked = AtomicBool::new(false);
    let given_up = async {
        signalled().await?;
        asked.store(true, Ordering::Relaxed);
        tokio::time::sleep(GRACE).await;
        Ok(())
    };
    let ended = runtime.block_on(async {
        tokio::select! {
            // First: the executor hears the same signal, and may have ended by when both are looked at.
            biased;
            given_up = given_up => given_up.map_err(BallistaError::IoError),
            ended = started(Arc::new(config)) => ended,
        }
    });
    // A drive that hangs is not waited for.
    runtime.shutdown_background();
    ended.map_err(|error| Failure::Message(format!("scheduler {}: {error}", args.scheduler)))?;
    if !asked.load(Ordering::Relaxed) {
        let why = format!("{listen}: it listens no more, or scheduler {} has given it up", args.scheduler);
        return Err(Failure::Message(format!("{why} (--verbose says more)")));
    }
    Ok(0)
}
