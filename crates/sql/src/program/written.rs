//! An answer as it is written: as `nearside select` writes its own, or as a stream of Arrow's with all of
//! DataFusion's types.

use std::io::Write;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use nearside_cli::program::{Failure, Form, Out, Writer};
use nearside_ndp::select::Table;

/// Rows that are written at a time.
const ROWS: usize = 8192;

/// Writes an answer's batches.
pub enum Written {
    Arrow(StreamWriter<Out>),
    /// A plan, for who reads it.
    Plan(Out),
    Text {
        writer: Writer,
        out: Out,
        schema: SchemaRef,
    },
}

fn failed(error: ArrowError) -> Failure {
    match error {
        // Whoever read the output may have gone.
        ArrowError::IoError(_, error) => error.into(),
        error => Failure::Message(error.to_string()),
    }
}

/// As what a column is written: types that drives do not know as texts, unless their numbers have room in
/// those that they do.
fn kind_of(kind: &DataType) -> DataType {
    use DataType::{
        Boolean, Date32, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Timestamp, UInt8, UInt16,
        UInt32, UInt64,
    };
    match kind {
        Boolean | Date32 => kind.clone(),
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => Int64,
        Float16 | Float32 | Float64 => Float64,
        Timestamp(TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond, None) => {
            Timestamp(TimeUnit::Microsecond, None)
        }
        _ => DataType::Utf8,
    }
}

/// A column as it is written; what has no room there is an error.
fn as_written(column: &ArrayRef, kind: &DataType) -> Result<ArrayRef, ArrowError> {
    use DataType::{LargeUtf8, Utf8, Utf8View};
    if *kind != Utf8 || matches!(column.data_type(), Utf8 | LargeUtf8 | Utf8View) {
        return cast_with_options(column, kind, &CastOptions { safe: false, ..CastOptions::default() });
    }
    let options = FormatOptions::new();
    let text = ArrayFormatter::try_new(column, &options)?;
    let nulls = column.logical_nulls();
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let texts = (0..column.len()).map(|row| (!is_null(row)).then(|| text.value(row).to_string()));
    Ok(Arc::new(texts.collect::<StringArray>()))
}

impl Written {
    /// Of a plan, for who reads it.
    pub fn plan() -> Written {
        Written::Plan(Out::new())
    }

    pub fn new(form: Form, typed: bool, schema: &SchemaRef) -> Result<Written, Failure> {
        let out = Out::new();
        if form == Form::Arrow {
            return StreamWriter::try_new(out, schema).map(Written::Arrow).map_err(failed);
        }
        let fields = schema.fields().iter();
        let fields: Vec<_> = fields.map(|f| Field::new(f.name(), kind_of(f.data_type()), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let mut written = Written::Text { writer: Writer::new(form, typed), out, schema: schema.clone() };
        // Of an answer without rows, which columns it has.
        written.write(&RecordBatch::new_empty(schema))?;
        Ok(written)
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let (writer, out, schema) = match self {
            Written::Arrow(writer) => return writer.write(batch).map_err(failed),
            Written::Plan(out) => return plan(out, batch),
            Written::Text { writer, out, schema } => (writer, out, schema),
        };
        let mut from = 0;
        loop {
            let part = batch.slice(from, ROWS.min(batch.num_rows() - from));
            let columns = part.columns().iter().zip(schema.fields());
            let columns = columns.map(|(column, field)| as_written(column, field.data_type()));
            let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>().map_err(failed)?;
            let options = RecordBatchOptions::new().with_row_count(Some(part.num_rows()));
            let part =
                RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(failed)?;
            let mut stream = StreamWriter::try_new(Vec::new(), schema).map_err(failed)?;
            stream.write(&part).map_err(failed)?;
            let stream = stream.into_inner().map_err(failed)?;
            let table = Table::read(&stream).map_err(|error| Failure::Message(error.to_string()))?;
            writer.table(out, &table, table.rows())?;
            from += part.num_rows();
            if from >= batch.num_rows() {
                return Ok(());
            }
        }
    }

    pub fn end(self) -> Result<(), Failure> {
        match self {
            Written::Arrow(mut writer) => {
                writer.finish().map_err(failed)?;
                Ok(writer.get_mut().flush()?)
            }
            Written::Plan(mut out) => Ok(out.flush()?),
            Written::Text { mut writer, mut out, .. } => {
                writer.end(&mut out)?;
                Ok(out.flush()?)
            }
        }
    }
}

/// The steps of each plan below its name.
fn plan(out: &mut Out, batch: &RecordBatch) -> Result<(), Failure> {
    let texts = |column: usize| ArrayFormatter::try_new(batch.column(column), &FormatOptions::new());
    let (names, plans) = (texts(0).map_err(failed)?, texts(1).map_err(failed)?);
    for row in 0..batch.num_rows() {
        out.lines(&format!("{}:", names.value(row)))?;
        let plan = plans.value(row).to_string();
        out.lines(&plan.lines().map(|step| format!("  {step}\n")).collect::<String>())?;
    }
    Ok(())
}
