//! Bytes of plans, and words of tables, of any kind: what comes of them is whole, or an error. A test runs
//! this over changes of seeds (`codec`), and libFuzzer over its own (`fuzz/sql`).

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, ident, lit};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionContext;
use datafusion_proto::logical_plan::{DefaultLogicalExtensionCodec, LogicalExtensionCodec};
use datafusion_proto::physical_plan::{DefaultPhysicalExtensionCodec, PhysicalExtensionCodec};
use nearside_fsrlib::{Failure, Session, Transport};
use nearside_sql::{Codec, Drives, Finds, Options, Way, table};

/// A drive that is named, and is not there.
#[derive(Debug)]
struct Nobody {
    name: String,
    words: Vec<String>,
}

impl Way for Nobody {
    fn name(&self) -> &str {
        &self.name
    }

    fn words(&self) -> Option<Vec<String>> {
        Some(self.words.clone())
    }

    fn open(&self) -> Result<Session<Box<dyn Transport>>, String> {
        Err(format!("{}: nobody is there", self.name))
    }

    fn warn(&self, _text: &str) {}

    fn failed(&self, _path: &[u8], _failure: &Failure) -> Result<(), String> {
        Ok(())
    }
}

fn nobody(name: &str, words: &[String]) -> Arc<dyn Way> {
    Arc::new(Nobody { name: name.to_owned(), words: words.to_vec() })
}

fn finds() -> Arc<Finds> {
    Arc::new(|name: &str, words: &[String]| Ok::<Arc<dyn Way>, String>(nobody(name, words)))
}

/// A session, whose own functions plans may name.
static SESSION: LazyLock<SessionContext> = LazyLock::new(SessionContext::new);

fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(true).to_string()
}

/// A step, as an executor reads it.
fn step(bytes: &[u8]) -> bool {
    let engine: Arc<dyn PhysicalExtensionCodec> = Arc::new(DefaultPhysicalExtensionCodec {});
    let codec: Codec<dyn PhysicalExtensionCodec> = Codec::new(finds(), engine);
    let task = SESSION.task_ctx();
    let Ok(step) = codec.try_decode(bytes, &[], &task) else { return false };
    let mut again = Vec::new();
    codec.try_encode(step.clone(), &mut again).unwrap();
    let again = codec.try_decode(&again, &[], &task).unwrap();
    assert_eq!(shown(&again), shown(&step));
    true
}

/// A condition of each of the first columns.
fn conditions(schema: &Schema) -> Vec<Expr> {
    let conditions = schema.fields().iter().take(8).map(|field| {
        let column = ident(field.name());
        match field.data_type() {
            DataType::Boolean => column,
            DataType::Int64 => column.gt(lit(3i64)),
            DataType::Float64 => column.lt(lit(0.0f64)),
            DataType::Utf8 => column.like(lit("a%")),
            _ => column.is_not_null(),
        }
    });
    conditions.collect()
}

/// What drives would be asked for some rows of a table.
fn asked(table: &Arc<dyn TableProvider>) -> Result<String, String> {
    let conditions = conditions(&table.schema());
    let each: Vec<&Expr> = conditions.iter().collect();
    let taken = table.supports_filters_pushdown(&each).map_err(|error| error.strip_backtrace())?;
    let taken =
        each.into_iter().zip(taken).filter(|(_, how)| *how != TableProviderFilterPushDown::Unsupported);
    let taken: Vec<Expr> = taken.map(|(condition, _)| condition.clone()).collect();
    let state = SESSION.state();
    let step = futures::executor::block_on(table.scan(&state, None, &taken, Some(3)));
    step.map(|step| shown(&step)).map_err(|error| error.strip_backtrace())
}

/// A table, as a scheduler reads it.
fn of_a_plan(bytes: &[u8]) -> bool {
    let engine: Arc<dyn LogicalExtensionCodec> = Arc::new(DefaultLogicalExtensionCodec {});
    let codec: Codec<dyn LogicalExtensionCodec> = Codec::new(finds(), engine);
    let (name, none, task) = (TableReference::bare("t"), Arc::new(Schema::empty()), SESSION.task_ctx());
    let read = |bytes: &[u8]| codec.try_decode_table_provider(bytes, &name, none.clone(), &task);
    let Ok(table) = read(bytes) else { return false };
    let mut again = Vec::new();
    codec.try_encode_table_provider(&name, table.clone(), &mut again).unwrap();
    let again = read(&again).unwrap();
    assert_eq!(again.schema(), table.schema());
    assert_eq!(asked(&again), asked(&table));
    true
}

/// A table's function, and behind it a line for each of its words, as a query has them.
fn of_words(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut words = text.split('\n').map(str::to_owned);
    let function = words.next().unwrap_or_default();
    let drives: Drives = Arc::new([nobody("one", &[])]);
    let options = Options { push_down: true, partitions: 1 };
    match table(&drives, options, &function, words.collect()) {
        Ok(table) => asked(&table).is_ok(),
        Err(_why) => false,
    }
}

/// What an input is: its first byte says it.
pub const STEP: u8 = 0;
pub const TABLE: u8 = 1;
pub const WORDS: u8 = 2;

/// Runs an input: whether something came of it.
pub fn run(input: &[u8]) -> bool {
    match input.split_first() {
        Some((&STEP, bytes)) => step(bytes),
        Some((&TABLE, bytes)) => of_a_plan(bytes),
        Some((&WORDS, bytes)) => of_words(bytes),
        _ => false,
    }
}
