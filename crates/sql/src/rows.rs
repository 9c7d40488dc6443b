//! Rows of CSV, JSON-lines and Parquet files, which the drives choose (`nearside select`).

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, Result, exec_datafusion_err, plan_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExecBuilder;
use nearside_fsrlib::{Ask, Failure, Operation, Record, RowFormat, SelectOptions, Target, Term};

use crate::batch::{batch, batch_of, kind_of};
use crate::scan::{Asked, Emit, Scan, Work, left_out, refused, wanted, with_drive};
use crate::way::{Drives, Way};
use crate::{DRIVE, Options, condition};

/// Files as a table, each drive's as a part of it.
#[derive(Debug)]
pub(crate) struct Rows {
    pub drives: Drives,
    pub options: Options,
    pub asked: Chosen,
    /// Behind the files' columns the drive's name, where there are several.
    schema: SchemaRef,
}

/// Of which files, and what of them.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub target: Target,
    pub select: SelectOptions,
    /// Most rows of a drive.
    pub limit: Option<u64>,
    /// The drive may make groups of the rows.
    pub groups: bool,
    /// Columns of its batches.
    pub schema: SchemaRef,
}

/// The operation's files as messages name them.
pub(crate) fn name_of(target: &Target) -> &[u8] {
    match target {
        Target::Path(path) | Target::Glob(path) | Target::Tree { root: path, .. } => path,
        _ => b"/",
    }
}

impl Rows {
    /// A table, of the columns that the first file has that says so: of drive after drive.
    pub fn open(
        drives: &Drives,
        options: Options,
        target: Target,
        mut select: SelectOptions,
    ) -> Result<Rows> {
        // Without names a column is its place among all.
        let wanted = match select.format {
            RowFormat::Csv { header: false, .. } => std::mem::take(&mut select.columns),
            _ => Vec::new(),
        };
        let named = || String::from_utf8_lossy(name_of(&target));
        let (mut found, mut why, mut any) = (None::<RecordBatch>, None, false);
        let first = Operation::Select(Box::new(SelectOptions { limit: Some(1), ..select.clone() }));
        let ask = Ask { target: target.clone(), operation: first, follow: true };
        // A file without a row does not say of which types its columns are.
        let says = |found: &Option<RecordBatch>| found.as_ref().is_some_and(|batch| batch.num_rows() > 0);
        for way in drives.iter() {
            let mut drive = Asked::open(way)?;
            let refusal = drive.ask(&ask, |record| {
                match record {
                    Record::Batch { stream, .. } => {
                        let batch = batch(way, &stream)?;
                        any = true;
                        let better = found.as_ref().is_none_or(|found| found.num_columns() == 0);
                        if better && batch.num_columns() > 0 || batch.num_rows() > 0 {
                            found = Some(batch);
                        }
                    }
                    // What is wrong with a file is said when its rows are asked for.
                    Record::Failed { path, failure } if why.is_none() => {
                        why = Some(refused(way, &path, &failure));
                    }
                    _ => {}
                }
                Ok(if says(&found) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            if says(&found) {
                break;
            }
            // Another drive may have such files.
            let refusal = refusal.filter(|failure| *failure != Failure::NotFound);
            why = why.or(refusal.map(|failure| refused(way, name_of(&target), &failure)));
        }
        let columns = match (found, why) {
            (Some(batch), _) => batch.schema(),
            (None, Some(why)) => return Err(why),
            (None, None) if any => return plan_err!("{}: no file has a row", named()),
            (None, None) => return plan_err!("{}: no such file", named()),
        };
        Rows::of(
            drives,
            options,
            Chosen { target, select, limit: None, groups: options.push_down, schema: columns },
            &wanted,
        )
    }

    /// With the columns that are wanted; none: all.
    fn of(drives: &Drives, options: Options, mut asked: Chosen, wanted: &[String]) -> Result<Rows> {
        // Other files' columns are of the same types: one of Parquet's that has others is not of this table.
        let typed = asked.schema.fields().iter().map(|field| {
            let kind = kind_of(field.data_type());
            kind.map(|kind| (field.name().clone(), kind))
                .ok_or_else(|| exec_datafusion_err!("a column of the type {}", field.data_type()))
        });
        asked.select.schema = typed.collect::<Result<_>>()?;
        if !wanted.is_empty() {
            let places = wanted.iter().map(|name| asked.schema.index_of(name));
            asked.schema = Arc::new(asked.schema.project(&places.collect::<Result<Vec<_>, _>>()?)?);
        }
        if drives.len() > 1 && asked.schema.column_with_name(DRIVE).is_some() {
            return plan_err!("a column {DRIVE} stands beside that of several drives");
        }
        Ok(Rows::with(drives.clone(), options, asked))
    }

    /// With just these columns.
    pub fn with(drives: Drives, options: Options, asked: Chosen) -> Rows {
        let schema = with_drive(&drives, &asked.schema);
        Rows { drives, options, asked, schema }
    }
}

#[async_trait]
impl TableProvider for Rows {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        match self.options.push_down {
            true => Ok(condition::split(filters, &self.asked.schema)),
            false => Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()]),
        }
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let own = &self.asked.schema;
        let (held, left) = match self.options.push_down {
            true => condition::held_to(filters, own),
            false => (Vec::new(), filters.iter().collect()),
        };
        let wide = self.with_columns_of(projection, &left)?;
        let (columns, drive_at) = wanted(Some(&wide), &self.schema, own.fields().len());
        let mut asked = self.asked.clone();
        asked.schema = Arc::new(own.project(&columns)?);
        asked.select.columns = asked.schema.fields().iter().map(|field| field.name().clone()).collect();
        asked.select.filter = held;
        if asked.select.columns.is_empty() {
            asked.select.columns.extend(asked.counted_by(own));
        }
        asked.forget_types();
        // DataFusion says a limit only where it leaves no condition to itself; nor may one be left here.
        asked.limit = limit.map(|rows| rows as u64).filter(|_| self.options.push_down && left.is_empty());
        asked.select.limit = asked.limit;
        let scan = Arc::new(Scan::new(self.drives.clone(), Arc::new(asked), drive_at));
        let Some(asked_here) = conjunction(left.into_iter().cloned()) else { return Ok(scan) };
        let schema = DFSchema::try_from(scan.schema())?;
        let filter = FilterExecBuilder::new(state.create_physical_expr(asked_here, &schema)?, scan);
        let promised = projection.map_or(self.schema.fields().len(), Vec::len);
        Ok(Arc::new(filter.apply_projection(Some((0..promised).collect()))?.build()?))
    }
}

impl Rows {
    /// Columns that a plan wants, and behind them those of conditions that are asked here.
    fn with_columns_of(&self, projection: Option<&Vec<usize>>, left: &[&Expr]) -> Result<Vec<usize>> {
        let mut columns = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        for column in left.iter().flat_map(|filter| filter.column_refs()) {
            let at = self.schema.index_of(&column.name)?;
            if !columns.contains(&at) {
                columns.push(at);
            }
        }
        Ok(columns)
    }
}

impl Chosen {
    /// By which column rows are counted of which none is wanted: a file without it is not of this table.
    fn counted_by(&self, own: &Schema) -> Option<String> {
        let asked = self.select.filter.iter().find_map(|term| match term {
            Term::Column(name) => Some(name.clone()),
            _ => None,
        });
        asked.or_else(|| own.fields().first().map(|field| field.name().clone()))
    }

    /// Types of columns that nobody asks for need not be sent; of a CSV without names all stand for their
    /// places.
    fn forget_types(&mut self) {
        let SelectOptions { format, schema, columns, filter, .. } = &mut self.select;
        if matches!(format, RowFormat::Csv { header: false, .. }) {
            return;
        }
        let asked = |name: &String| {
            columns.contains(name)
                || filter.iter().any(|term| matches!(term, Term::Column(own) if own == name))
        };
        schema.retain(|(name, _)| asked(name));
    }

    pub fn operation(&self) -> Operation {
        Operation::Select(Box::new(self.select.clone()))
    }

    /// A batch of the drive's with the columns that are promised, or what is wrong with it.
    fn fitting(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let Some((at, own)) = batch.schema_ref().column_with_name(field.name()) else {
                return Err(format!("it has no column {}", field.name()));
            };
            if own.data_type() != field.data_type() {
                let (here, there) = (own.data_type(), field.data_type());
                return Err(format!("column {} is {here}, and {there} in the first file", field.name()));
            }
            columns.push(batch.column(at).clone());
        }
        batch_of(&self.schema, columns, batch.num_rows()).map_err(|error| error.to_string())
    }
}

impl Work for Chosen {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(&self.target, &self.select, f)
    }

    fn run(&self, drive: &mut Asked<'_>, _context: &Arc<TaskContext>, emit: Emit<'_>) -> Result<()> {
        let ask = Ask { target: self.target.clone(), operation: self.operation(), follow: true };
        let mut name = name_of(&self.target).to_vec();
        let (mut left, mut unfit, mut bad) = (self.limit.unwrap_or(u64::MAX), false, 0u64);
        let way = drive.way.clone();
        if left == 0 {
            return Ok(());
        }
        let refusal = drive.ask(&ask, |record| {
            match record {
                Record::File { path, .. } => {
                    unfit &= name == *path;
                    path.as_ref().clone_into(&mut name);
                }
                Record::Failed { path, failure } => left_out(&way, &path, &failure)?,
                Record::Batch { stream, bad: more, .. } => {
                    bad = bad.saturating_add(more);
                    let batch = batch(&way, &stream)?;
                    if batch.num_rows() > 0 {
                        let rows = left.min(batch.num_rows() as u64);
                        match self.fitting(&batch.slice(0, rows as usize)) {
                            Err(_) if unfit => {}
                            Err(what) => {
                                unfit = true;
                                let failure = Failure::NotATable(format!("Not such a table: {what}"));
                                left_out(&way, &name, &failure)?;
                            }
                            Ok(batch) => {
                                left -= rows;
                                if emit(batch)?.is_break() || left == 0 {
                                    return Ok(ControlFlow::Break(()));
                                }
                            }
                        }
                    }
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(failure) = refusal {
            left_out(&way, name_of(&self.target), &failure)?;
        }
        say_bad(&way, bad);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Says how many rows were passed over.
pub(crate) fn say_bad(way: &Arc<dyn Way>, bad: u64) {
    if bad > 0 {
        way.warn(&format!("passed over {bad} rows that are not as the others"));
    }
}

/// What a plan shows of a selection: in the words of `nearside select`.
pub(crate) fn describe(target: &Target, select: &SelectOptions, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let format = match select.format {
        RowFormat::Csv { .. } => "csv",
        RowFormat::JsonLines => "json",
        RowFormat::Parquet => "parquet",
    };
    write!(f, "{format} {}", String::from_utf8_lossy(name_of(target)))?;
    if !select.group_by.is_empty() {
        write!(f, ", group-by=[{}]", select.group_by.join(", "))?;
    }
    if !select.aggregates.is_empty() {
        let all: Vec<_> = select.aggregates.iter().map(ToString::to_string).collect();
        write!(f, ", aggregate=[{}]", all.join(", "))?;
    }
    if select.group_by.is_empty() && select.aggregates.is_empty() {
        write!(f, ", columns=[{}]", select.columns.join(", "))?;
    }
    if !select.filter.is_empty() {
        write!(f, ", where={}", condition::Shown(&select.filter))?;
    }
    select.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
}
