//! Plans of tables whose bytes say less than they do, as others that ask the same.
//!
//! DataFusion's bytes have no word for a join in which null is null, for `not in` where there are nulls, or
//! for the columns of no rows. What else they may lack is found by reading them again.

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    DataFusionError, JoinConstraint, JoinType, NullEquality, Result, ScalarValue, TableReference,
    not_impl_err, plan_datafusion_err,
};
use datafusion::execution::TaskContext;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::NullTreatment;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    EmptyRelation, Expr, Join, Limit, LogicalPlan, LogicalPlanBuilder, Operator, TableScan, Union,
    binary_expr, ident, lit,
};
use datafusion_proto::logical_plan::{AsLogicalPlan, LogicalExtensionCodec};
use datafusion_proto::protobuf::LogicalPlanNode;

/// A plan that stays what it is as bytes, and asks the same as this one.
///
/// # Errors
/// There is none that is known: a part of the query has no bytes. One that has no bytes at all is left to who
/// makes them.
pub fn sendable(
    plan: &LogicalPlan,
    codec: &dyn LogicalExtensionCodec,
    context: &TaskContext,
) -> Result<LogicalPlan> {
    let plan = plan.clone().transform_up(|node| match node {
        LogicalPlan::Join(join) => whole_join(join),
        // The bytes of a step lack it.
        LogicalPlan::Window(window) if window.window_expr.iter().any(is_of_some) => not_impl_err!(
            "`filter` and `ignore nulls` of a window cannot be sent to a cluster: say `case when`"
        ),
        LogicalPlan::EmptyRelation(nothing) if !nothing.produce_one_row => {
            with_columns(&nothing).map(Transformed::yes)
        }
        other => Ok(Transformed::no(other)),
    })?;
    let asked = match &plan.data {
        LogicalPlan::Explain(explain) => &explain.plan,
        LogicalPlan::Analyze(analyze) => &analyze.input,
        plan => plan,
    };
    if let Ok(message) = LogicalPlanNode::try_from_logical_plan(asked, codec) {
        let mut bytes = Vec::new();
        message.try_encode(&mut bytes)?;
        let again = LogicalPlanNode::try_decode(&bytes).map_err(too_deep)?;
        let again = again.try_into_logical_plan(context, codec)?;
        let (again, asked) = (alike(again)?, alike(asked.clone())?);
        if again != asked {
            return not_impl_err!("a part of this query cannot be sent to a cluster");
        }
    }
    Ok(plan.data)
}

/// What makes bytes that nobody reads: messages within messages, of which there may be a hundred.
pub(crate) fn too_deep(_why: DataFusionError) -> DataFusionError {
    plan_datafusion_err!("a part of this query is nested too deep to be sent to a cluster")
}

/// A plan as its bytes have it where they have other words for the same: a scan's own limit, which stands
/// above the scan as well, what a limit does not say, and unions of unions.
fn alike(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up(|node| {
        Ok(match node {
            LogicalPlan::TableScan(scan) => {
                Transformed::yes(LogicalPlan::TableScan(TableScan { fetch: None, ..scan }))
            }
            LogicalPlan::Limit(Limit { skip, fetch, input }) => {
                let or = |said: Option<Box<Expr>>, none: i64| said.or_else(|| Some(Box::new(lit(none))));
                let (skip, fetch) = (or(skip, 0), or(fetch, i64::MAX));
                Transformed::yes(LogicalPlan::Limit(Limit { skip, fetch, input }))
            }
            LogicalPlan::Union(Union { inputs, schema }) => {
                let within = |input: Arc<LogicalPlan>| match Arc::unwrap_or_clone(input) {
                    LogicalPlan::Union(union) if union.schema == schema => union.inputs,
                    other => vec![Arc::new(other)],
                };
                let inputs = inputs.into_iter().flat_map(within).collect();
                Transformed::yes(LogicalPlan::Union(Union { inputs, schema }))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(changed.data)
}

/// Of some rows of its window alone.
fn is_of_some(function: &Expr) -> bool {
    let some = |expr: &Expr| {
        let Expr::WindowFunction(function) = expr else { return Ok(false) };
        let params = &function.params;
        Ok(params.filter.is_some() || params.null_treatment == Some(NullTreatment::IgnoreNulls))
    };
    function.exists(some).is_ok_and(|is| is)
}

/// No rows, with the columns that they would have.
fn with_columns(nothing: &EmptyRelation) -> Result<LogicalPlan> {
    let null = |(qualifier, field): (Option<&TableReference>, &FieldRef)| {
        let null = Expr::Literal(ScalarValue::try_from(field.data_type())?, None);
        Ok(null.alias_qualified(qualifier.cloned(), field.name()))
    };
    let columns = nothing.schema.iter().map(null).collect::<Result<Vec<_>>>()?;
    LogicalPlanBuilder::empty(true).filter(lit(false))?.project(columns)?.build()
}

fn whole_join(join: Join) -> Result<Transformed<LogicalPlan>> {
    if join.null_aware {
        return without_nulls(join).map(Transformed::yes);
    }
    let null_is_null = join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty();
    if !null_is_null && join.join_constraint == JoinConstraint::On {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    // By names of columns is read with columns of its own.
    let mut join = Join { join_constraint: JoinConstraint::On, ..join };
    if null_is_null {
        // Who plans finds pairs of columns in conditions.
        let same = |(left, right)| binary_expr(left, Operator::IsNotDistinctFrom, right);
        join.filter = conjunction(join.on.drain(..).map(same).chain(join.filter.take()));
        join.null_equality = NullEquality::NullEqualsNothing;
    }
    Ok(Transformed::yes(LogicalPlan::Join(join)))
}

/// `left not in (right)` in words of joins that know no nulls: rows without their like, where there is
/// nothing to be like, or where neither is null.
fn without_nulls(join: Join) -> Result<LogicalPlan> {
    let ([(own, other)], JoinType::LeftAnti, None) = (&join.on[..], join.join_type, &join.filter) else {
        return not_impl_err!("`not in` of this kind cannot be sent to a cluster: say `not exists`");
    };
    // It is asked twice, and has to be the same both times.
    if !join.right.exists(|node| Ok(is_another_each_time(node)))? {
        return without_nulls_of(&join, own.clone(), other.clone());
    }
    not_impl_err!("`not in` of what may be other rows each time cannot be sent to a cluster")
}

/// Rows that are chosen by chance, or by which come first.
fn is_another_each_time(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Limit(_)) || node.expressions().iter().any(Expr::is_volatile)
}

fn without_nulls_of(join: &Join, own: Expr, other: Expr) -> Result<LogicalPlan> {
    let (rows, values) = ("__nearside_rows", "__nearside_values");
    let counted = LogicalPlanBuilder::from(join.right.as_ref().clone())
        .aggregate(Vec::<Expr>::new(), vec![count(lit(1)).alias(rows), count(other).alias(values)])?
        .build()?;
    let columns: Vec<Expr> = join.left.schema().columns().into_iter().map(Expr::Column).collect();
    let unlike =
        LogicalPlan::Join(Join { null_aware: false, join_constraint: JoinConstraint::On, ..join.clone() });
    let nothing = ident(rows).eq(lit(0i64));
    let no_nulls = own.is_not_null().and(ident(rows).eq(ident(values)));
    LogicalPlanBuilder::from(unlike)
        .cross_join(counted)?
        .filter(nothing.or(no_nulls))?
        .project(columns)?
        .build()
}
