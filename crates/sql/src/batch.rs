//! Batches of a drive's as batches of Arrow's.
//!
//! A drive may be anybody's. What says where its values lie is looked through in bounds by the project's own
//! reader, and Arrow is given the values alone.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, RecordBatchOptions,
    StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result, exec_datafusion_err};
use nearside_fsrlib::ColumnType;
use nearside_ndp::select::Table;

use crate::way::Way;

/// A batch of so many rows, which may have no columns.
pub(crate) fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// The batch of a record.
pub(crate) fn batch(way: &Arc<dyn Way>, stream: &[u8]) -> Result<RecordBatch> {
    let failed = |why: String| exec_datafusion_err!("{}: {why}", way.name());
    let table = Table::read(stream).map_err(|error| failed(error.to_string()))?;
    let rows = table.rows();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for ((name, kind), stored) in table.columns().iter().zip(table.stored()) {
        let nulls = (!stored.valid.is_empty()).then(|| NullBuffer::new(bits(stored.valid, rows)));
        let column: ArrayRef = match kind {
            ColumnType::Bool => Arc::new(BooleanArray::new(bits(stored.data, rows), nulls)),
            ColumnType::Int64 => Arc::new(Int64Array::new(numbers(stored.data, rows), nulls)),
            ColumnType::Float64 => Arc::new(Float64Array::new(numbers(stored.data, rows), nulls)),
            ColumnType::Date => Arc::new(Date32Array::new(numbers(stored.data, rows), nulls)),
            ColumnType::Timestamp => {
                Arc::new(TimestampMicrosecondArray::new(numbers(stored.data, rows), nulls))
            }
            ColumnType::Utf8 => {
                if i32::try_from(stored.data.len()).is_err() {
                    return Err(failed("a batch of more than 2 GiB".to_owned()));
                }
                let ends = OffsetBuffer::new(numbers(stored.ends, rows + 1));
                let texts = StringArray::try_new(ends, Buffer::from_slice_ref(stored.data), nulls);
                Arc::new(texts.map_err(|error| failed(error.to_string()))?)
            }
        };
        fields.push(Field::new(*name, column.data_type().clone(), true));
        columns.push(column);
    }
    batch_of(&Arc::new(Schema::new(fields)), columns, rows)
}

fn bits(bytes: &[u8], rows: usize) -> BooleanBuffer {
    BooleanBuffer::new(Buffer::from_slice_ref(bytes), 0, rows)
}

/// As many numbers as there are rows, of which there are enough.
fn numbers<T: datafusion::arrow::datatypes::ArrowNativeType>(bytes: &[u8], rows: usize) -> ScalarBuffer<T> {
    ScalarBuffer::new(Buffer::from_slice_ref(bytes), 0, rows)
}

/// The type of a column that drives know, where they do.
pub(crate) fn kind_of(kind: &DataType) -> Option<ColumnType> {
    use datafusion::arrow::datatypes::TimeUnit;
    Some(match kind {
        DataType::Boolean => ColumnType::Bool,
        DataType::Int64 => ColumnType::Int64,
        DataType::Float64 => ColumnType::Float64,
        DataType::Date32 => ColumnType::Date,
        DataType::Timestamp(TimeUnit::Microsecond, None) => ColumnType::Timestamp,
        DataType::Utf8 => ColumnType::Utf8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::ipc::writer::StreamWriter;
    use nearside_fsrlib::{Failure, Session, Transport};

    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl Way for Nobody {
        fn name(&self) -> &str {
            "nobody"
        }

        fn open(&self) -> Result<Session<Box<dyn Transport>>, String> {
            Err("nobody is there".to_owned())
        }

        fn warn(&self, _text: &str) {}

        fn failed(&self, _path: &[u8], _failure: &Failure) -> std::result::Result<(), String> {
            Ok(())
        }
    }

    fn sample() -> RecordBatch {
        let columns: [(&str, ArrayRef); 6] = [
            ("b", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
            ("i", Arc::new(Int64Array::from(vec![1, i64::MIN, 3]))),
            ("f", Arc::new(Float64Array::from(vec![Some(f64::NAN), None, Some(-0.0)]))),
            ("d", Arc::new(Date32Array::from(vec![Some(-1), Some(0), None]))),
            ("w", Arc::new(TimestampMicrosecondArray::from(vec![None, Some(5), Some(-5)]))),
            ("t", Arc::new(StringArray::from(vec![Some("ü"), None, Some("")]))),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    }

    /// A drive's bytes, whatever they are: a batch that Arrow finds whole, or an error.
    #[test]
    fn no_stream_is_taken_on_trust() {
        let way: Arc<dyn Way> = Arc::new(Nobody);
        let whole = sample();
        let mut stream = StreamWriter::try_new(Vec::new(), &whole.schema()).unwrap();
        stream.write(&whole).unwrap();
        let stream = stream.into_inner().unwrap();
        assert_eq!(batch(&way, &stream).unwrap(), whole);
        let mut taken = 0;
        for at in 0..stream.len() {
            for with in [0, 1, 0x7f, 0x80, 0xff] {
                let mut stream = stream.clone();
                stream[at] = with;
                if let Ok(batch) = batch(&way, &stream) {
                    batch.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
                    taken += 1;
                }
            }
            assert!(batch(&way, &stream[..at]).is_err() || at + 8 >= stream.len(), "{at} bytes");
        }
        assert!(taken > 100, "{taken}");
    }
}
