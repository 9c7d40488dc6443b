//! The table of lines of text files, which the drives search (`nearside grep`).

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int64Builder, RecordBatch, StringBuilder, StringDictionaryBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, exec_datafusion_err, plan_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use nearside_fsrlib::{Answer, Ask, Failure, Operation, Record, SearchOptions, Target};

use crate::Options;
use crate::batch::batch_of;
use crate::pattern;
use crate::rows::name_of;
use crate::scan::{Asked, Emit, Scan, Work, left_out, wanted, with_drive};
use crate::way::Drives;

/// Rows of a batch, and bytes of its texts, about.
const BATCH: usize = 8192;
const BYTES: usize = 1 << 20;

/// Longest line that a drive answers.
const LONGEST: usize = 64 << 20;
/// Longest pattern that a drive is given: what stands for many characters takes some KiB.
const LONGEST_PATTERN: usize = 32 << 10;

const PATH: &str = "path";
const LINE: &str = "line";
const TEXT: &str = "text";
const COLUMNS: usize = 3;

/// The table.
#[derive(Debug)]
pub(crate) struct Lines {
    pub drives: Drives,
    pub options: Options,
    pub target: Target,
    pub search: SearchOptions,
    schema: SchemaRef,
}

/// Its columns, without the drive's name.
fn own_schema() -> Schema {
    Schema::new(vec![
        Field::new(PATH, DataType::Utf8, false),
        Field::new(LINE, DataType::Int64, false),
        Field::new(TEXT, DataType::Utf8, false),
    ])
}

impl Lines {
    pub fn new(drives: &Drives, options: Options, target: Target, words: &[&str]) -> Result<Lines> {
        let mut search = SearchOptions {
            // Every line matches it.
            patterns: vec![Vec::new()],
            answer: Answer::Lines,
            without_binary: true,
            only_matching_files: true,
            numbers: true,
            ..SearchOptions::default()
        };
        for word in words {
            match *word {
                "binary" => (search.text, search.without_binary) = (true, false),
                "search-zip" => search.decompress = true,
                _ => return plan_err!("lines: {word:?} is no option of it"),
            }
        }
        Ok(Lines::with(drives.clone(), options, target, search))
    }

    /// Of a search whose every line is a row.
    pub fn with(drives: Drives, options: Options, target: Target, search: SearchOptions) -> Lines {
        let schema = with_drive(&drives, &own_schema());
        Lines { drives, options, target, search, schema }
    }
}

#[async_trait]
impl TableProvider for Lines {
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
        let each = filters.iter().map(|filter| match pattern::line(TEXT, filter) {
            Some(_) if self.options.push_down => TableProviderFilterPushDown::Inexact,
            _ => TableProviderFilterPushDown::Unsupported,
        });
        Ok(each.collect())
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (columns, drive_at) = wanted(projection, &self.schema, COLUMNS);
        let mut search = self.search.clone();
        // One that says more finds less; DataFusion asks all of them again.
        let patterns = filters.iter().filter_map(|filter| pattern::line(TEXT, filter));
        let patterns = patterns.map(|hir| (hir.properties().minimum_len(), hir.to_string()));
        let patterns = patterns.filter(|(_, pattern)| pattern.len() <= LONGEST_PATTERN);
        if let Some((_, best)) = patterns.max_by_key(|(least, _)| *least) {
            search.patterns = vec![best.into_bytes()];
        }
        search.numbers = columns.contains(&1);
        let limit = limit.map(|rows| rows as u64).filter(|_| self.options.push_down);
        search.max_count = limit;
        let asked = Search::new(self.target.clone(), search, columns, limit)?;
        Ok(Arc::new(Scan::new(self.drives.clone(), Arc::new(asked), drive_at)))
    }
}

/// A search.
#[derive(Debug)]
pub(crate) struct Search {
    pub target: Target,
    pub search: SearchOptions,
    pub columns: Vec<usize>,
    schema: SchemaRef,
    pub limit: Option<u64>,
}

/// A batch in the making.
#[derive(Default)]
struct Building {
    paths: StringDictionaryBuilder<Int32Type>,
    lines: Int64Builder,
    texts: StringBuilder,
    rows: usize,
    bytes: usize,
}

impl Building {
    fn push(&mut self, path: &[u8], line: u64, text: &[u8]) {
        self.rows += 1;
        self.bytes += text.len();
        self.paths.append_value(String::from_utf8_lossy(path));
        self.lines.append_value(i64::try_from(line).unwrap_or(i64::MAX));
        self.texts.append_value(String::from_utf8_lossy(text));
    }

    fn is_full(&self) -> bool {
        self.rows >= BATCH || self.bytes >= BYTES
    }

    fn finish(&mut self, columns: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let all: [ArrayRef; COLUMNS] = [
            cast(&self.paths.finish(), &DataType::Utf8)?,
            Arc::new(self.lines.finish()),
            Arc::new(self.texts.finish()),
        ];
        batch_of(schema, columns.iter().filter_map(|column| all.get(*column).cloned()).collect(), rows)
    }
}

impl Work for Search {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(
            f,
            "lines {}, columns=[{}]",
            String::from_utf8_lossy(name_of(&self.target)),
            names.join(", ")
        )?;
        for pattern in self.search.patterns.iter().filter(|pattern| !pattern.is_empty()) {
            write!(f, ", pattern={}", String::from_utf8_lossy(pattern))?;
        }
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }

    fn run(&self, drive: &mut Asked<'_>, _context: &Arc<TaskContext>, emit: Emit<'_>) -> Result<()> {
        let refusal = match self.search(drive, &self.search, emit)? {
            // Where a drive has other bounds than is thought here, it answers all lines.
            Some(Failure::InvalidPattern(_)) => {
                let all = SearchOptions { patterns: vec![Vec::new()], ..self.search.clone() };
                self.search(drive, &all, emit)?
            }
            refusal => refusal,
        };
        if let Some(failure) = refusal {
            left_out(drive.way, name_of(&self.target), &failure)?;
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Search {
    /// With these columns of the table's.
    pub fn new(
        target: Target,
        search: SearchOptions,
        columns: Vec<usize>,
        limit: Option<u64>,
    ) -> Result<Search> {
        let schema = Arc::new(own_schema().project(&columns)?);
        Ok(Search { target, search, columns, schema, limit })
    }

    /// Hands on the lines that a search finds. What was refused.
    fn search(
        &self,
        drive: &mut Asked<'_>,
        search: &SearchOptions,
        emit: Emit<'_>,
    ) -> Result<Option<Failure>> {
        let mut left = self.limit.unwrap_or(u64::MAX);
        if left == 0 {
            return Ok(None);
        }
        let operation = Operation::Search(search.clone());
        let ask = Ask { target: self.target.clone(), operation, follow: true };
        let way = drive.way.clone();
        let mut path = name_of(&self.target).to_vec();
        let (mut rows, mut ended, mut line) = (Building::default(), false, Vec::new());
        let refusal = drive.ask(&ask, |record| {
            match record {
                // One that is at hand is named again where an answer goes on, within a line, too.
                Record::File { path: file, .. } if *file != path => {
                    file.as_ref().clone_into(&mut path);
                    line.clear();
                }
                Record::Failed { path, failure } => {
                    left_out(&way, &path, &failure)?;
                    // It may have ended within a line.
                    line.clear();
                }
                Record::Line { bytes, continues: true, .. } => {
                    if line.len() + bytes.len() > LONGEST {
                        return Err(exec_datafusion_err!("{}: a line without an end", way.name()));
                    }
                    line.extend_from_slice(&bytes);
                }
                Record::Line { number, bytes, .. } => {
                    match line.is_empty() {
                        true => rows.push(&path, number, &bytes),
                        false => {
                            line.extend_from_slice(&bytes);
                            rows.push(&path, number, &line);
                            line = Vec::new();
                        }
                    }
                    left -= 1;
                    if rows.is_full() {
                        ended = emit(rows.finish(&self.columns, &self.schema)?)?.is_break();
                    }
                }
                _ => {}
            }
            Ok(if left == 0 || ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if rows.rows > 0 && !ended {
            let _no_more = emit(rows.finish(&self.columns, &self.schema)?)?;
        }
        Ok(refusal)
    }
}
