//! One step of a plan that asks drives: each is a partition, and is asked in a thread of its own.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, stream};
use nearside_fsrlib::{Ask, Error, Failure, Record, Session, Transport};

use crate::batch::batch_of;
use crate::way::{Drives, Way};

/// Batches that wait for who takes them.
const AHEAD: usize = 2;

/// A drive cannot be reached, or is lost: who has another way to it may try that.
fn lost(why: String) -> DataFusionError {
    DataFusionError::IoError(io::Error::other(why))
}

/// An open drive, and how it came to be.
pub(crate) struct Asked<'a> {
    pub way: &'a Arc<dyn Way>,
    session: Session<Box<dyn Transport>>,
    /// Nobody takes what comes any more.
    is_over: Box<dyn Fn() -> bool>,
}

impl Asked<'_> {
    pub fn open(way: &Arc<dyn Way>) -> Result<Asked<'_>> {
        let session = way.open().map_err(lost)?;
        // Answers are long.
        Ok(Asked { way, session: session.with_buffer(1 << 20), is_over: Box::new(|| false) })
    }

    /// Asks, and hands each record but warnings on, until `sink` breaks or fails. What was refused.
    pub fn ask(
        &mut self,
        ask: &Ask,
        mut sink: impl FnMut(Record<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Failure>> {
        let mut failed = None;
        let answered = self.session.stream(ask, |record| match record {
            _ if (self.is_over)() => ControlFlow::Break(()),
            Record::Warning { text, .. } => {
                self.way.warn(&text);
                ControlFlow::Continue(())
            }
            record => sink(record).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            }),
        });
        match (failed, answered) {
            (Some(error), _) => Err(error),
            (None, Ok(_)) => Ok(None),
            (None, Err(Error::Refused(failure))) => Ok(Some(failure)),
            (None, Err(error)) => Err(lost(format!("{}: {error}", self.way.name()))),
        }
    }
}

/// Takes batches, until it breaks.
pub(crate) type Emit<'e> = &'e mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>;

/// What each drive is asked, and how its records become batches.
pub(crate) trait Work: fmt::Debug + Send + Sync {
    /// Of its batches.
    fn schema(&self) -> SchemaRef;

    /// What a plan shows of it.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Asks one drive.
    fn run(&self, drive: &mut Asked<'_>, context: &Arc<TaskContext>, emit: Emit<'_>) -> Result<()>;

    fn as_any(&self) -> &dyn Any;
}

/// A step of a plan that asks drives.
#[derive(Debug)]
pub struct Scan {
    pub(crate) drives: Drives,
    pub(crate) work: Arc<dyn Work>,
    /// Where among the columns the drive's name is.
    pub(crate) drive_at: Option<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// The column with the drive's name.
fn drive_field() -> Field {
    Field::new(crate::DRIVE, DataType::Utf8, false)
}

/// A table's columns: those of its files, and behind them the drive's name where there are several.
pub(crate) fn with_drive(drives: &Drives, own: &Schema) -> SchemaRef {
    let drive = (drives.len() > 1).then(|| Arc::new(drive_field()));
    Arc::new(Schema::new(own.fields().iter().cloned().chain(drive).collect::<Vec<_>>()))
}

/// Which of its files' columns, of so many, a plan wants, and where among them the drive's name.
pub(crate) fn wanted(
    projection: Option<&Vec<usize>>,
    table: &Schema,
    own: usize,
) -> (Vec<usize>, Option<usize>) {
    let all: Vec<usize> = (0..table.fields().len()).collect();
    let wanted = projection.unwrap_or(&all);
    let drive_at = wanted.iter().position(|column| *column >= own);
    (wanted.iter().copied().filter(|column| *column < own).collect(), drive_at)
}

impl Scan {
    /// Of each drive the work's batches, with the drive's name among the columns where it is wanted.
    pub(crate) fn new(drives: Drives, work: Arc<dyn Work>, drive_at: Option<usize>) -> Scan {
        let mut fields: Vec<_> = work.schema().fields().iter().cloned().collect();
        if let Some(at) = drive_at {
            fields.insert(at, Arc::new(drive_field()));
        }
        Scan::with_schema(drives, work, drive_at, Arc::new(Schema::new(fields)))
    }

    /// The same with names and types that another step has promised.
    pub(crate) fn with_schema(
        drives: Drives,
        work: Arc<dyn Work>,
        drive_at: Option<usize>,
        schema: SchemaRef,
    ) -> Scan {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(drives.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Scan { drives, work, drive_at, schema, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// A batch of the work's as one of this step's.
    fn whole(&self, name: &str, batch: RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = batch.columns().to_vec();
        if let Some(at) = self.drive_at {
            let names: ArrayRef = Arc::new(StringArray::from_iter_values(std::iter::repeat_n(name, rows)));
            columns.insert(at, names);
        }
        batch_of(&self.schema, columns, rows)
    }
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: drives={}, ", Scan::static_name(), self.drives.len())?;
        self.work.describe(f)
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &str {
        Scan::static_name()
    }

    fn static_name() -> &'static str {
        "InDrive"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let way = self.drives.get(partition).cloned();
        let way = way.ok_or_else(|| exec_datafusion_err!("there is no drive {partition}"))?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let again =
            Scan::with_schema(self.drives.clone(), self.work.clone(), self.drive_at, self.schema.clone());
        let schema = self.schema.clone();
        // Who asks for the first batch has threads; who begins a plan of another library's has none yet.
        let begun = async move {
            let mut builder = RecordBatchReceiverStream::builder(again.schema.clone(), AHEAD);
            let batches = builder.tx();
            builder.spawn_blocking(move || {
                let asked = || {
                    let mut drive = Asked::open(&way)?;
                    let taken = batches.clone();
                    drive.is_over = Box::new(move || taken.is_closed());
                    again.work.run(&mut drive, &context, &mut |batch| {
                        let batch = again.whole(way.name(), batch)?.record_output(&metrics);
                        Ok(match batches.blocking_send(Ok(batch)) {
                            Ok(()) => ControlFlow::Continue(()),
                            Err(_nobody_takes_it) => ControlFlow::Break(()),
                        })
                    })
                };
                // Whose query it is may be of another library, through which a panic does not pass.
                let panicked = |_| Err(exec_datafusion_err!("{}: a fault of Nearside's", way.name()));
                catch_unwind(AssertUnwindSafe(asked)).unwrap_or_else(panicked)
            });
            builder.build()
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::once(begun).flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// A file could not be read; where there is to be no answer without it, that is an error.
pub(crate) fn left_out(way: &Arc<dyn Way>, path: &[u8], failure: &Failure) -> Result<()> {
    way.failed(path, failure).map_err(|why| exec_datafusion_err!("{why}"))
}

/// What a drive refuses of all of a table, as an error.
pub(crate) fn refused(way: &Arc<dyn Way>, path: &[u8], failure: &Failure) -> DataFusionError {
    let path = String::from_utf8_lossy(path);
    exec_datafusion_err!("{}: {path}: {}", way.name(), nearside_fsrlib::describe(failure))
}
