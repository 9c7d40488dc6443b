//! A query, by a cluster.

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use ballista_core::execution_plans::DistributedQueryExec;
use ballista_core::extension::{SessionConfigExt, SessionStateExt};
use ballista_core::planner::BallistaQueryPlanner;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    CancelJobParams, CleanJobDataParams, GetJobStatusParams, RemoveSessionParams, job_status,
};
use clap::{ArgMatches, Args};
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::source_as_provider;
use datafusion::error::DataFusionError;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionContext;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::protobuf::LogicalPlanNode;
use futures::FutureExt;
use futures::future::FusedFuture;
use nearside_cli::program::{Failure, Outcome, Progress};
use nearside_sql::program::{QueryArgs, Said, drives, failed, threads};
use nearside_sql::{Drives, context, sendable};

use crate::address::Place;
use crate::cluster::{self, signalled};

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

impl Planner {
    /// Whether a plan has a drive to ask.
    fn asks(&self, plan: &LogicalPlan) -> Result<bool, DataFusionError> {
        plan.exists(|node| {
            let LogicalPlan::TableScan(scan) = node else { return Ok(false) };
            let Ok(table) = source_as_provider(&scan.source) else { return Ok(false) };
            Ok(self.codec.try_encode_table_provider(&scan.table_name, table, &mut Vec::new()).is_ok())
        })
    }
}

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        if !self.asks(plan)? {
            return self.here.create_physical_plan(plan, state).await;
        }
        let plan = sendable(plan, self.codec.as_ref(), &state.task_ctx())?;
        self.engine.create_physical_plan(&plan, state).await
    }
}

/// A query's session at its scheduler.
struct Asked<'a> {
    scheduler: &'a str,
    session: String,
    steps: OnceLock<Arc<dyn ExecutionPlan>>,
}

/// For how long a scheduler is told that nobody waits: it may be at planning.
const FAREWELL: Duration = Duration::from_secs(30);
/// How often it is looked for a query's name.
const OFTEN: Duration = Duration::from_millis(10);

impl Asked<'_> {
    /// By which name the scheduler knows the query; `None`: it has not said so, or does not know it.
    fn job(&self) -> Option<String> {
        let steps = self.steps.get()?.as_any();
        steps.downcast_ref::<DistributedQueryExec<LogicalPlanNode>>()?.job_id()
    }

    /// Tells the scheduler that the session is over, its query where that is not, and that nobody wants any
    /// more what was made for it.
    async fn end(&self, over: bool) -> Result<(), Box<dyn Error>> {
        let mut scheduler = SchedulerGrpcClient::connect(self.scheduler.to_owned()).await?;
        if let Some(job_id) = self.job() {
            if !over {
                // A scheduler that still plans it would not give it up, and do it afterwards.
                loop {
                    let job = GetJobStatusParams { job_id: job_id.clone() };
                    let said = scheduler.get_job_status(job).await?.into_inner().status;
                    match said.and_then(|said| said.status) {
                        Some(job_status::Status::Queued(_)) => tokio::time::sleep(OFTEN).await,
                        _ => break,
                    }
                }
                scheduler.cancel_job(CancelJobParams { job_id: job_id.clone() }).await?;
            }
            scheduler.clean_job_data(CleanJobDataParams { job_id }).await?;
        }
        scheduler.remove_session(RemoveSessionParams { session_id: self.session.clone() }).await?;
        Ok(())
    }
}

/// The answer; `None`: nobody waits for it any more.
async fn answer(args: &SqlArgs, drives: Drives, progress: Progress) -> Result<Option<()>, Failure> {
    let plain = context(drives, args.query.runtime()?, args.query.options()).map_err(failed)?.state();
    // The tables are there.
    let config = cluster::config(plain.config().clone()).with_create_default_catalog_and_schema(false);
    let (scheduler, codec) = (format!("http://{}", args.scheduler), cluster::logical());
    let engine =
        BallistaQueryPlanner::with_extension(scheduler.clone(), config.ballista_config(), codec.clone());
    let planner = Planner { engine, codec, here: DefaultPhysicalPlanner::default() };
    let config = config.with_ballista_query_planner(Arc::new(planner));
    let state = SessionStateBuilder::new_from_existing(plain).with_config(config).build();
    let state = state.upgrade_for_ballista(scheduler.clone()).map_err(failed)?;
    let config = cluster::settings(state.config().clone());
    let state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
    let context = SessionContext::new_with_state(state);
    let asked = Asked { scheduler: &scheduler, session: context.session_id(), steps: OnceLock::new() };
    let begun = |steps: &Arc<dyn ExecutionPlan>| drop(asked.steps.set(steps.clone()));
    let answering = pin!(args.query.answer(&context, progress, begun));
    let mut answering = answering.fuse();
    let answered = tokio::select! {
        answered = &mut answering => answered.map_err(|failure| plainly(failure, args)).map(Some),
        signalled = signalled() => signalled.map(|()| None).map_err(Failure::from),
    };
    // What has no name yet cannot be given up.
    let named = async {
        while asked.job().is_none() && !answering.is_terminated() {
            let _over = tokio::time::timeout(OFTEN, &mut answering).await;
        }
    };
    if matches!(answered, Ok(None)) {
        let _named = tokio::time::timeout(FAREWELL, named).await;
    }
    if asked.steps.get().is_some() {
        let over = matches!(answered, Ok(Some(())));
        let _gone_or_told = tokio::time::timeout(FAREWELL, asked.end(over)).await;
    }
    answered
}

/// An engine's words around those of a step that has failed, without these: as it was said there.
fn plainly(failure: Failure, args: &SqlArgs) -> Failure {
    let Failure::Message(mut text) = failure else { return failure };
    if let Some(said) = unreached(&text, &args.scheduler) {
        return Failure::Message(said);
    }
    while let Some(within) = innermost(&text) {
        text = within;
    }
    // What a rule says behind its own name.
    let last = text.rsplit("caused by\n").next().unwrap_or(&text).trim_end();
    Failure::Message(last.to_owned())
}

/// Stands before the address of an executor that should have a part of the answer.
const EXECUTOR: &str = "Ballista scheduler or executor at http://";

/// Who does not answer, where a connection is refused.
fn unreached(text: &str, scheduler: &Place) -> Option<String> {
    if !text.contains("tonic::transport::Error") || !text.contains("ConnectError") {
        return None;
    }
    let executor = text.split_once(EXECUTOR).and_then(|(_, behind)| behind.split_once(": "));
    Some(match executor {
        Some((at, _)) => format!("{at}: no executor answers there, which has a part of the answer"),
        None => format!("{scheduler}: no scheduler answers there"),
    })
}

/// Words for an error of a step, before what it says.
const WORDS: [&str; 8] = [
    "Execution(\"",
    "error: \"",
    "reason: \"",
    "Plan(\"",
    "NotImplemented(\"",
    "CastError(\"",
    "ArgumentError(\"",
    "ComputeError(\"",
];

/// What stands between quotes behind the last word for an error of a step.
fn innermost(text: &str) -> Option<String> {
    let from = WORDS.into_iter().filter_map(|word| Some(text.rfind(word)? + word.len())).max()?;
    let mut said = String::new();
    let mut left = text[from..].chars();
    loop {
        match left.next()? {
            '"' => return Some(said),
            '\\' => match left.next()? {
                'n' => said.push('\n'),
                't' => said.push('\t'),
                'u' => {
                    let digits: String = left.by_ref().skip(1).take_while(|digit| *digit != '}').collect();
                    said.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                other => said.push(other),
            },
            other => said.push(other),
        }
    }
}

/// Exit status of what a signal has ended.
const SIGNALLED: u8 = 130;

pub fn run(args: &SqlArgs, matches: &ArgMatches) -> Outcome {
    let said = Arc::new(Said::default());
    let drives = drives(matches, &said, args.leave_out)?;
    let runtime = threads()?;
    let so_far = said.clone();
    let progress = Progress::new("in the drives", move || so_far.so_far());
    let answered = runtime.block_on(answer(args, drives, progress));
    runtime.shutdown_background();
    Ok(answered?.map_or(SIGNALLED, |()| u8::from(said.failed())))
}

#[cfg(test)]
mod tests {
    use super::{innermost, unreached};

    #[test]
    fn a_step_says_what_it_said() {
        let wrapped = r#"Arrow error: External error: Execution error: Job a failed: Job failed due to stage 1 failed: Task failed due to runtime execution error: DataFusionError(Execution("a \"b\": c\\d\u{1b}"))"#;
        assert_eq!(innermost(wrapped).as_deref(), Some("a \"b\": c\\d\u{1b}"));
        let lost = r#"Task failed due to DataFusion IO error: IoError(Custom { kind: Other, error: "x.img: gone" })"#;
        assert_eq!(innermost(lost).as_deref(), Some("x.img: gone"));
        assert_eq!(innermost("Schema error: No field named x."), None);
        assert_eq!(innermost("Execution(\"without an end"), None);
    }

    /// As Ballista's client has them of its scheduler, and of an executor.
    #[test]
    fn who_does_not_answer_is_named() {
        let scheduler = "10.0.0.1:50050".parse().unwrap();
        let refused = r#"tonic::transport::Error(Transport, ConnectError(ConnectError("tcp connect error", 127.0.0.1:1, Os { code: 111 })))"#;
        let said = |text: &str| unreached(text, &scheduler);
        let asked = format!("Arrow error: External error: Execution error: {refused}");
        assert_eq!(said(&asked).as_deref(), Some("10.0.0.1:50050: no scheduler answers there"));
        for at in ["10.0.0.2:50051", "[::1]:50051"] {
            let fetched = format!(
                "Execution error: GrpcConnectionError(\"Error connecting to Ballista scheduler or executor at http://{at}: {refused}\")"
            );
            let expected = format!("{at}: no executor answers there, which has a part of the answer");
            assert_eq!(said(&fetched), Some(expected));
        }
        assert_eq!(said("Schema error: No field named x."), None);
    }
}
