//! Steps of plans whose bytes say less than they do, or that an engine of many hosts does otherwise, as
//! others that do the same.
//!
//! DataFusion's bytes have no word for a step that hands on no column of its rows, which is read as one that
//! hands on all, or for the limit of a hash join. What else they may lack is found by reading them again.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result, not_impl_err};
use datafusion::config::ConfigOptions;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, PartitionMode,
};
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, displayable};
use datafusion_proto::physical_plan::{AsExecutionPlan, PhysicalExtensionCodec};
use datafusion_proto::protobuf::PhysicalPlanNode;

use crate::sendable::too_deep;

/// Behind all other rules, for plans that become bytes: what cannot be read again is refused, before who is
/// to do it finds that.
#[derive(Debug)]
pub struct Whole {
    codec: Arc<dyn PhysicalExtensionCodec>,
    context: Arc<TaskContext>,
}

impl Whole {
    /// Plans become bytes by this codec, and are read with the functions of this context.
    pub fn new(codec: Arc<dyn PhysicalExtensionCodec>, context: Arc<TaskContext>) -> Whole {
        Whole { codec, context }
    }

    /// What is read of a plan's bytes, with as many steps above it as its parts may have.
    fn read_again(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let above = |plan, _| Arc::new(CoalescePartitionsExec::new(plan)) as Arc<dyn ExecutionPlan>;
        let plan = (0..ABOVE).fold(plan, above);
        let message = PhysicalPlanNode::try_from_physical_plan(plan, self.codec.as_ref())?;
        let mut bytes = Vec::new();
        message.try_encode(&mut bytes)?;
        let message = PhysicalPlanNode::try_decode(&bytes).map_err(too_deep)?;
        let mut again = message.try_into_physical_plan(&self.context, self.codec.as_ref())?;
        for _ in 0..ABOVE {
            let [below] = again.children()[..] else { return not_impl_err!("{UNSENT}") };
            again = below.clone();
        }
        Ok(again)
    }
}

/// Steps that an engine puts above a part of a plan.
const ABOVE: usize = 6;
/// What is said of a plan that is not what was read of it.
const UNSENT: &str = "a step of this query cannot be sent to a cluster";

/// A step, and only these of its columns.
fn with_columns_of(step: Arc<dyn ExecutionPlan>, columns: &[usize]) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = step.schema();
    let column = |at: &usize| {
        let name = schema.field(*at).name();
        ProjectionExpr { expr: Arc::new(Column::new(name, *at)), alias: name.clone() }
    };
    Ok(Arc::new(ProjectionExec::try_new(columns.iter().map(column), step)?))
}

/// A join of all rows of its left with each part of its right, which says of rows of the left that no part
/// has their like: where each part is done elsewhere, none knows of the others. `None`: it says nothing, or
/// has one part.
fn with_one_part(step: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let any = step.as_any();
    let collected = any
        .downcast_ref::<HashJoinExec>()
        .filter(|join| *join.partition_mode() == PartitionMode::CollectLeft);
    let kind = collected.map(HashJoinExec::join_type);
    let Some(kind) = kind.or(any.downcast_ref::<NestedLoopJoinExec>().map(NestedLoopJoinExec::join_type))
    else {
        return Ok(None);
    };
    let says = matches!(
        kind,
        JoinType::Left | JoinType::Full | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark
    );
    let [left, right] = step.children()[..] else { return Ok(None) };
    if !says || right.output_partitioning().partition_count() < 2 {
        return Ok(None);
    }
    let right = Arc::new(CoalescePartitionsExec::new(right.clone()));
    Ok(Some(step.clone().with_new_children(vec![left.clone(), right])?))
}

/// A join of all rows of its left with each part of its right, where each part is done elsewhere: the left is
/// made once. `None`: it is, or there is one part.
fn with_one_left(step: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let joins = step.as_any().is::<CrossJoinExec>() || step.as_any().is::<NestedLoopJoinExec>();
    let [left, right] = step.children()[..] else { return Ok(None) };
    let parts = right.output_partitioning().partition_count();
    if !joins || parts < 2 || left.as_any().is::<CoalescePartitionsExec>() {
        return Ok(None);
    }
    // Where parts are put together, a stage ends.
    let left = Arc::new(CoalescePartitionsExec::new(left.clone()));
    Ok(Some(step.clone().with_new_children(vec![left, right.clone()])?))
}

/// A window over rows that are in its order because they are one, or alike, or were sorted for another: what
/// is known of them is not known where it is done. `None`: it is over what is sorted for it, or over none.
fn with_its_order(step: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let any = step.as_any();
    let plain = any.downcast_ref::<WindowAggExec>().map(WindowAggExec::window_expr);
    let Some([first, ..]) =
        plain.or(any.downcast_ref::<BoundedWindowAggExec>().map(|step| step.window_expr()))
    else {
        return Ok(None);
    };
    let [input] = step.children()[..] else { return Ok(None) };
    let keys = first.partition_by().iter().map(|key| PhysicalSortExpr::new_default(key.clone()));
    let order = LexOrdering::new(keys.chain(first.order_by().iter().cloned()));
    let Some(order) = order.filter(|_| !input.as_any().is::<SortExec>()) else { return Ok(None) };
    let sorted = SortExec::new(order, input.clone());
    let sorted = sorted.with_preserve_partitioning(input.output_partitioning().partition_count() > 1);
    Ok(Some(step.clone().with_new_children(vec![Arc::new(sorted)])?))
}

fn whole(step: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let any = step.as_any();
    // Where no step needs the order, an engine that looks at the order of its stages forgets the limit.
    if let Some(merge) = any.downcast_ref::<SortPreservingMergeExec>()
        && merge.fetch().is_some()
    {
        let together = Arc::new(CoalescePartitionsExec::new(merge.input().clone()));
        let sorted = SortExec::new(merge.expr().clone(), together).with_fetch(merge.fetch());
        return Ok(Some(Arc::new(sorted)));
    }
    if let Some(source) = any.downcast_ref::<DataSourceExec>()
        && let Some(values) = source.data_source().as_any().downcast_ref::<MemorySourceConfig>()
        && values.projection().as_ref().is_some_and(Vec::is_empty)
    {
        let all = MemorySourceConfig::try_new(values.partitions(), values.original_schema(), None)?;
        let all = DataSourceExec::from_data_source(all.with_limit(values.fetch()));
        return Ok(Some(with_columns_of(all, &[])?));
    }
    if let Some(groups) = any.downcast_ref::<AggregateExec>() {
        // Two functions that are each other read backwards need no word for it.
        let lost = |one: &Arc<AggregateFunctionExpr>| {
            one.is_reversed() && !["first_value", "last_value"].contains(&one.fun().name())
        };
        if groups.aggr_expr().iter().any(lost) {
            return not_impl_err!("an aggregate in two orders cannot be sent to a cluster");
        }
    }
    if let Some(filter) = any.downcast_ref::<FilterExec>()
        && filter.projection().as_ref().is_some_and(|columns| columns.is_empty())
    {
        // A projection that is applied is put before the one that is there.
        let all = FilterExecBuilder::new(filter.predicate().clone(), filter.input().clone())
            .with_default_selectivity(filter.default_selectivity())
            .with_fetch(filter.fetch())
            .build()?;
        return Ok(Some(with_columns_of(Arc::new(all), &[])?));
    }
    // An engine that exchanges the sides of a join takes its columns for those of the other side.
    if let Some(join) = any.downcast_ref::<HashJoinExec>() {
        if join.projection.is_none() && join.fetch().is_none() {
            return Ok(None);
        }
        let builder = join.builder().with_fetch(None).with_projection_ref(None);
        let mut step: Arc<dyn ExecutionPlan> = Arc::new(builder.recompute_properties().build()?);
        if let Some(columns) = &join.projection {
            step = with_columns_of(step, columns)?;
        }
        if let Some(rows) = join.fetch() {
            step = Arc::new(LocalLimitExec::new(step, rows));
        }
        return Ok(Some(step));
    }
    if let Some(join) = any.downcast_ref::<NestedLoopJoinExec>()
        && let Some(columns) = join.projection()
    {
        let all = NestedLoopJoinExecBuilder::from(join).with_projection_ref(None).build()?;
        return Ok(Some(with_columns_of(Arc::new(all), columns)?));
    }
    Ok(None)
}

/// Whether each step has the columns of its like.
fn has_columns_of(plan: &Arc<dyn ExecutionPlan>, other: &Arc<dyn ExecutionPlan>) -> bool {
    let (steps, others) = (plan.children(), other.children());
    plan.schema() == other.schema()
        && steps.len() == others.len()
        && steps.into_iter().zip(others).all(|(step, other)| has_columns_of(step, other))
}

impl PhysicalOptimizerRule for Whole {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|step| {
            let (mut step, mut changed) = (step, false);
            for rule in [with_one_part, with_one_left, with_its_order, whole] {
                if let Some(other) = rule(&step)? {
                    (step, changed) = (other, true);
                }
            }
            Ok(if changed { Transformed::yes(step) } else { Transformed::no(step) })
        })?;
        let again = self.read_again(changed.data.clone())?;
        let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
        if shown(&again) != shown(&changed.data) || !has_columns_of(&again, &changed.data) {
            return not_impl_err!("{UNSENT}");
        }
        Ok(changed.data)
    }

    fn name(&self) -> &str {
        "whole_as_bytes"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
