//! How tasks come to executors.

use async_trait::async_trait;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::failed_task::FailedReason;
use ballista_core::serde::protobuf::{
    ExecutionError, FailedTask, MultiTaskDefinition, TaskStatus, UpdateTaskStatusParams, task_status,
};
use ballista_core::serde::scheduler::ExecutorMetadata;
use ballista_scheduler::state::executor_manager::ExecutorManager;
use ballista_scheduler::state::task_manager::TaskLauncher;
use tokio::sync::mpsc::UnboundedSender;

/// Hands tasks to executors. Of one that an executor cannot read the query has failed: Ballista takes the
/// executor for gone, and has the next one try, and all others' queries wait with it.
pub struct Launcher {
    pub scheduler: String,
    /// Tasks that have failed so, for the scheduler.
    pub refused: UnboundedSender<UpdateTaskStatusParams>,
}

/// What a task's end would be if the executor had begun it.
fn failed(task: &MultiTaskDefinition, error: &str) -> Vec<TaskStatus> {
    let each = task.task_ids.iter().map(|id| TaskStatus {
        task_id: id.task_id,
        job_id: task.job_id.clone(),
        stage_id: task.stage_id,
        stage_attempt_num: task.stage_attempt_num,
        partition_id: id.partition_id,
        launch_time: task.launch_time,
        start_exec_time: task.launch_time,
        end_exec_time: task.launch_time,
        metrics: Vec::new(),
        status: Some(task_status::Status::Failed(FailedTask {
            error: error.to_owned(),
            retryable: false,
            count_to_failures: false,
            failed_reason: Some(FailedReason::ExecutionError(ExecutionError {})),
        })),
    });
    each.collect()
}

/// The codes of answers to a task that was not read: it was not understood, or is too long.
const UNREAD: [&str; 2] = ["InvalidArgument", "OutOfRange"];

#[async_trait]
impl TaskLauncher for Launcher {
    async fn launch_tasks(
        &self,
        executor: &ExecutorMetadata,
        tasks: Vec<MultiTaskDefinition>,
        executors: &ExecutorManager,
    ) -> Result<()> {
        // Each by itself: one that is refused is no other's matter.
        for task in tasks {
            let launched =
                executors.launch_multi_task(&executor.id, vec![task.clone()], self.scheduler.clone());
            match launched.await.map_err(|error| (error.to_string(), error)) {
                Err((why, _)) if UNREAD.iter().any(|code| why.contains(code)) => {
                    let task_status = failed(&task, &why);
                    let refused = UpdateTaskStatusParams { executor_id: executor.id.clone(), task_status };
                    let _the_scheduler_has_ended = self.refused.send(refused);
                }
                launched => launched.map_err(|(_, error)| error)?,
            }
        }
        Ok(())
    }
}
