//! Tasks as Ballista's executor does them, and a drive that is lost as what may be tried again.

use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use ballista_core::serde::protobuf::ShuffleWritePartition;
use ballista_executor::execution_engine::{DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor};
use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::prelude::SessionConfig;
use futures::FutureExt;

/// Ballista's engine. What writes a task's rows makes an error of one kind of all that stops it, by which the
/// scheduler would give the query up.
#[derive(Default)]
pub struct Engine(DefaultExecutionEngine);

impl ExecutionEngine for Engine {
    fn create_query_stage_exec(
        &self,
        job: String,
        stage: usize,
        partition: usize,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let own = self.0.create_query_stage_exec(job, stage, partition, plan, work_dir, config)?;
        Ok(Arc::new(Stage(own)))
    }
}

/// A stage of a query.
#[derive(Debug)]
struct Stage(Arc<dyn QueryStageExecutor>);

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lost drive, as it is written within another error.
const LOST: &str = "IoError(Custom { kind: Other, error: ";

#[async_trait]
impl QueryStageExecutor for Stage {
    async fn execute_query_stage(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        // The scheduler waits for ever for a task of whose end nobody tells it.
        let ended = AssertUnwindSafe(self.0.execute_query_stage(partition, context)).catch_unwind().await;
        let ended = ended.unwrap_or_else(|_| {
            exec_err!("a step of this query has panicked: a fault of DataFusion's, or of Nearside's")
        });
        ended.map_err(|error| match error {
            DataFusionError::Execution(said) if said.contains(LOST) => {
                DataFusionError::IoError(io::Error::other(said))
            }
            error => error,
        })
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.0.collect_plan_metrics()
    }
}
