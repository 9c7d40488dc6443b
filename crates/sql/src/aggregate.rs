//! Groups of rows, made in the drives.
//!
//! DataFusion makes groups in two steps: each part of a table by itself, then what has come of the parts. A
//! drive answers just that of each of its files, so the first step is the drive's where it knows how.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::compute::kernels::cmp::eq;
use datafusion::arrow::compute::{cast, nullif};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::config::ConfigOptions;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use futures::StreamExt;
use nearside_fsrlib::{
    Aggregate, Ask, ColumnType, Failure, Function, Operation, Record, SelectOptions, Target, Term,
};
use nearside_near_data::{MAX_AGGREGATES, MAX_ROW_GROUPS};

use crate::batch::{batch, batch_of, kind_of};
use crate::rows::{self, Chosen};
use crate::scan::{Asked, Emit, Scan, Work, left_out};
use crate::way::{Drives, Way};

/// Hands the first step of groups to the drives.
#[derive(Debug)]
pub(crate) struct InDrive;

impl PhysicalOptimizerRule for InDrive {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| {
            Ok(match in_drive(&node) {
                Some(scan) => Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &str {
        "groups_in_drive"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The first step of groups as what drives do; `None`: they cannot.
pub(crate) fn in_drive(node: &Arc<dyn ExecutionPlan>) -> Option<Scan> {
    let step = node.as_any().downcast_ref::<AggregateExec>()?;
    let scan = step.input().as_any().downcast_ref::<Scan>()?;
    let chosen = scan.work.as_any().downcast_ref::<Chosen>()?;
    let first = *step.mode() == AggregateMode::Partial && chosen.limit.is_none() && chosen.groups;
    let plain = step.group_expr().is_single();
    if !first || !plain || step.filter_expr().iter().any(Option::is_some) || step.limit_options().is_some() {
        return None;
    }
    let column = |expr: &Arc<dyn PhysicalExpr>| {
        let column = expr.as_any().downcast_ref::<Column>()?;
        let field = scan.schema().field(column.index()).clone();
        Some((column.index(), field))
    };
    let (mut group_by, mut drive_at) = (Vec::new(), None);
    for (nth, (expr, _)) in step.group_expr().expr().iter().enumerate() {
        let (index, field) = column(expr)?;
        if scan.drive_at == Some(index) {
            drive_at = Some(nth);
        } else if !makes_groups(field.data_type()) {
            return None;
        } else {
            group_by.push(field.name().clone());
        }
    }
    let named = |expr: &Arc<dyn PhysicalExpr>| {
        let (index, field) = column(expr)?;
        (scan.drive_at != Some(index)).then_some(field)
    };
    let made = step.aggr_expr().iter().map(|one| aggregate(one, &named)).collect::<Option<Vec<_>>>()?;
    // Of no rows a drive makes a group where no column makes any.
    if drive_at.is_some() && group_by.is_empty() {
        return None;
    }
    // Without either, a drive answers rows.
    if group_by.is_empty() && made.is_empty()
        || made.len() > MAX_AGGREGATES
        || group_by.len() > MAX_AGGREGATES
    {
        return None;
    }
    let mut fields: Vec<_> = step.schema().fields().iter().cloned().collect();
    if let Some(at) = drive_at {
        fields.remove(at);
    }
    let mut select =
        SelectOptions { columns: Vec::new(), group_by, aggregates: made, ..chosen.select.clone() };
    // DataFusion has a column twice among those of groups where it counts what is distinct of it.
    if select.named_twice().is_some() {
        return None;
    }
    let names = select.filter.iter().any(|term| matches!(term, Term::Column(_)))
        || select.aggregates.iter().any(|one| one.column.is_some())
        || !select.group_by.is_empty();
    let counted = if names { None } else { chosen.select.columns.first().cloned() };
    select
        .aggregates
        .extend(counted.map(|column| Aggregate { function: Function::Count, column: Some(column) }));
    let groups = Groups {
        select,
        schema: Arc::new(Schema::new(fields)),
        drive_at,
        chosen: chosen.clone(),
        rows: (scan.schema(), scan.drive_at),
        instead: node.clone(),
    };
    Some(Scan::with_schema(scan.drives.clone(), Arc::new(groups), drive_at, step.schema()))
}

/// Values that a drive tells apart as DataFusion does: of floating-point numbers they are not.
fn makes_groups(kind: &DataType) -> bool {
    kind_of(kind).is_some_and(|kind| kind != ColumnType::Float64)
}

fn has_order(kind: &DataType) -> bool {
    *kind == DataType::Float64 || *kind != DataType::Boolean && makes_groups(kind)
}

/// An aggregate in a drive's words. `named` says which column an expression is.
fn aggregate(
    one: &AggregateFunctionExpr,
    named: &dyn Fn(&Arc<dyn PhysicalExpr>) -> Option<datafusion::arrow::datatypes::Field>,
) -> Option<Aggregate> {
    if one.is_distinct() || !one.order_bys().is_empty() || one.ignore_nulls() {
        return None;
    }
    let arguments = one.expressions();
    let [argument] = &arguments[..] else { return None };
    let numbers = |kind: &DataType| matches!(kind, DataType::Int64 | DataType::Float64);
    let function = Function::ALL.into_iter().find(|function| function.name() == one.fun().name())?;
    let field = match function {
        Function::Count => match argument.as_any().downcast_ref::<Literal>() {
            Some(literal) if literal.value().is_null() => return None,
            Some(_) => return Some(Aggregate { function, column: None }),
            None => named(argument)?,
        },
        Function::Sum => named(argument).filter(|field| numbers(field.data_type()))?,
        Function::Min | Function::Max => named(argument).filter(|field| has_order(field.data_type()))?,
        // Of integers it is that of the numbers that they are.
        Function::Average => match argument.as_any().downcast_ref::<CastExpr>() {
            Some(cast) if *cast.cast_type() == DataType::Float64 => {
                named(cast.expr()).filter(|field| *field.data_type() == DataType::Int64)?
            }
            _ => named(argument).filter(|field| *field.data_type() == DataType::Float64)?,
        },
    };
    Some(Aggregate { function, column: Some(field.name().clone()) })
}

/// Groups of each file's rows, as the second step takes them.
#[derive(Debug)]
pub(crate) struct Groups {
    select: SelectOptions,
    /// Of its batches: without the drive's name.
    schema: SchemaRef,
    /// Where among the columns the drive's name is to be.
    drive_at: Option<usize>,
    /// The rows that groups are made of, with their columns and where among these the drive's name is.
    chosen: Chosen,
    rows: (SchemaRef, Option<usize>),
    /// DataFusion's own step over them: for files of which a drive cannot make groups within its bounds.
    pub instead: Arc<dyn ExecutionPlan>,
}

impl Groups {
    /// A batch of the drive's as the second step takes it: of an average first how many, then the sum.
    fn states(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        let mut at = self.select.group_by.len();
        for aggregate in &self.select.aggregates {
            let average = aggregate.function == Function::Average;
            if average && at + 1 < columns.len() {
                columns.swap(at, at + 1);
                // Of no values there is no mean.
                let none = eq(&columns[at], &Int64Array::new_scalar(0))?;
                columns[at] = nullif(&columns[at], &none)?;
            }
            at += if average { 2 } else { 1 };
        }
        // Behind them may be what the file had to have.
        if at != columns.len() || at < self.schema.fields().len() {
            return Err(exec_datafusion_err!("{} columns of groups where {at} are due", columns.len()));
        }
        columns.truncate(self.schema.fields().len());
        for (column, field) in columns.iter_mut().zip(self.schema.fields()) {
            let (from, to) = (column.data_type(), field.data_type());
            // How many there are has a sign in one of both.
            if from != to && (from, to) != (&DataType::Int64, &DataType::UInt64) {
                return Err(exec_datafusion_err!("{} is {from}, and not {to}", field.name()));
            }
            *column = cast(column, to)?;
        }
        batch_of(&self.schema, columns, batch.num_rows())
    }

    /// The groups of one file, made here of its rows.
    fn made_here(
        &self,
        way: &Arc<dyn Way>,
        path: &[u8],
        context: &Arc<TaskContext>,
        emit: Emit<'_>,
    ) -> Result<ControlFlow<()>> {
        let chosen = Chosen { target: Target::Path(path.to_vec()), ..self.chosen.clone() };
        let drives: Drives = Arc::new([way.clone()]);
        let (schema, drive_at) = self.rows.clone();
        let rows = Scan::with_schema(drives, Arc::new(chosen), drive_at, schema);
        let step = self.instead.clone().with_new_children(vec![Arc::new(rows)])?;
        let mut groups = step.execute(0, context.clone())?;
        while let Some(batch) = futures::executor::block_on(groups.next()) {
            let mut batch = batch?;
            if let Some(at) = self.drive_at {
                batch.remove_column(at);
            }
            if emit(batch_of(&self.schema, batch.columns().to_vec(), batch.num_rows())?)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Most files of a drive whose groups are made here.
const MOST_HERE: usize = 1 << 20;

/// Groups of the file at hand.
struct Held {
    path: Vec<u8>,
    batches: Vec<RecordBatch>,
    rows: usize,
}

impl Held {
    fn hold(&mut self, batch: RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        if self.rows > MAX_ROW_GROUPS {
            let path = String::from_utf8_lossy(&self.path);
            return Err(exec_datafusion_err!("{path}: more than {MAX_ROW_GROUPS} groups of a file"));
        }
        self.batches.push(batch);
        Ok(())
    }

    fn forget(&mut self) {
        (self.batches, self.rows) = (Vec::new(), 0);
    }

    /// A file is at hand, perhaps another than before.
    fn at(&mut self, path: &[u8], emit: Emit<'_>) -> Result<ControlFlow<()>> {
        if *path == self.path { Ok(ControlFlow::Continue(())) } else { self.hand_on(path, emit) }
    }

    /// The file has ended, and another is at hand.
    fn hand_on(&mut self, next: &[u8], emit: Emit<'_>) -> Result<ControlFlow<()>> {
        next.clone_into(&mut self.path);
        self.rows = 0;
        for batch in std::mem::take(&mut self.batches) {
            if emit(batch)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Work for Groups {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        rows::describe(&self.chosen.target, &self.select, f)
    }

    fn run(&self, drive: &mut Asked<'_>, context: &Arc<TaskContext>, emit: Emit<'_>) -> Result<()> {
        let operation = Operation::Select(Box::new(self.select.clone()));
        let ask = Ask { target: self.chosen.target.clone(), operation, follow: true };
        let way = drive.way.clone();
        let (mut here, mut bad) = (BTreeSet::new(), 0u64);
        // A file's groups count once it has failed no more.
        let mut held = Held { path: rows::name_of(&ask.target).to_vec(), batches: Vec::new(), rows: 0 };
        let refusal = drive.ask(&ask, |record| {
            match record {
                Record::File { path, .. } => return held.at(&path, emit),
                Record::Failed { path, failure } => {
                    if held.at(&path, emit)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    held.forget();
                    match failure {
                        // Too many groups, or a sum without room: DataFusion has other bounds.
                        Failure::InvalidRequest(_) if here.len() < MOST_HERE => {
                            here.insert(path.into_owned());
                        }
                        failure => left_out(&way, &path, &failure)?,
                    }
                }
                Record::Batch { stream, bad: more, .. } => {
                    bad = bad.saturating_add(more);
                    held.hold(self.states(&batch(&way, &stream)?)?)?;
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        match (refusal, &self.chosen.target) {
            (Some(Failure::InvalidRequest(_)), Target::Path(path)) => {
                held.forget();
                here.insert(path.clone());
            }
            (Some(failure), target) => {
                held.forget();
                left_out(&way, rows::name_of(target), &failure)?;
            }
            (None, _) => {}
        }
        rows::say_bad(&way, bad);
        let mut ended = held.hand_on(&[], emit)?.is_break();
        for path in here {
            ended = ended || self.made_here(&way, &path, context, emit)?.is_break();
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
