//! A query, by a cluster.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ballista_core::extension::{SessionConfigExt, SessionStateExt};
use ballista_core::planner::BallistaQueryPlanner;
use clap::{ArgMatches, Args};
use datafusion::common::tree_node::TreeNode;
use datafusion::error::DataFusionError;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionContext;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::protobuf::LogicalPlanNode;
use nearside_cli::program::{Failure, Outcome, Progress};
use nearside_sql::program::{QueryArgs, Said, drives, failed, threads};
use nearside_sql::{Drives, context, sendable};

use crate::address::Place;
use crate::cluster;

#[derive(Args)]
pub struct SqlArgs {
    /// The cluster's scheduler
    #[arg(long, env = "NEARSIDE_SCHEDULER", value_name = "HOST:PORT")]
    scheduler: Place,
    /// Leave files that cannot be read out of the answer: executors say on their standard error which.
    /// Without it there is no answer where one cannot be read
    #[arg(long)]
    leave_out: bool,
    #[command(flatten)]
    query: QueryArgs,
}

/// Hands plans to a scheduler that stay what they are on their way. What asks no drive is done here.
struct Planner {
    engine: BallistaQueryPlanner<LogicalPlanNode>,
    codec: Arc<dyn LogicalExtensionCodec>,
    here: DefaultPhysicalPlanner,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// Whether a plan has a table to ask.
fn asks(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::TableScan(_))))
}

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        if !asks(plan)? {
            return self.here.create_physical_plan(plan, state).await;
        }
        let plan = sendable(plan, self.codec.as_ref(), &state.task_ctx())?;
        self.engine.create_physical_plan(&plan, state).await
    }
}

async fn answer(args: &SqlArgs, drives: Drives, progress: Progress) -> Result<(), Failure> {
    let plain = context(drives, args.query.runtime()?, args.query.options()).map_err(failed)?.state();
    // The tables are there.
    let config = cluster::config(plain.config().clone()).with_create_default_catalog_and_schema(false);
    let (scheduler, codec) = (format!("http://{}", args.scheduler), cluster::logical());
    let engine =
        BallistaQueryPlanner::with_extension(scheduler.clone(), config.ballista_config(), codec.clone());
    let config = config.with_ballista_query_planner(Arc::new(Planner {
        engine,
        codec,
        here: DefaultPhysicalPlanner::default(),
    }));
    let state = SessionStateBuilder::new_from_existing(plain).with_config(config).build();
    let state = state.upgrade_for_ballista(scheduler).map_err(failed)?;
    args.query.answer(&SessionContext::new_with_state(state), progress).await
}

pub fn run(args: &SqlArgs, matches: &ArgMatches) -> Outcome {
    let said = Arc::new(Said::default());
    let drives = drives(matches, &said, args.leave_out)?;
    let runtime = threads()?;
    let so_far = said.clone();
    let progress = Progress::new("in the drives", move || so_far.so_far());
    let answered = runtime.block_on(answer(args, drives, progress));
    runtime.shutdown_background();
    answered?;
    Ok(u8::from(said.failed()))
}
