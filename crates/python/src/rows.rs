//! Rows of text tables, as streams of Arrow's, and rows of tables of numbers.

use std::collections::VecDeque;
use std::sync::Arc;

use nearside_fsrlib::{
    Ask, Element, GatherOptions, Measure, NearestOptions, Operation, ParseError, Pooling, Record, RowFormat,
    SelectOptions, Table as Numbers, Target,
};
use nearside_ndp::select::{Merge, MergeError, Table};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::answer::Answer;
use crate::failure;
use crate::lanes::Lanes;

/// Names of columns, or aggregates.
#[derive(FromPyObject)]
pub(crate) enum Words {
    /// As the command has them, with commas between them.
    Text(String),
    /// One by one.
    List(Vec<String>),
}

/// What `Drive.select` is called with.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SelectArgs {
    paths: Vec<Vec<u8>>,
    recursive: bool,
    include: Vec<Vec<u8>>,
    columns: Option<Words>,
    condition: Option<String>,
    limit: Option<u64>,
    group_by: Option<Words>,
    aggregate: Option<Words>,
    /// "csv", "tsv", "jsonl" or "parquet".
    format: String,
    schema: Option<String>,
    header: bool,
    delimiter: Option<u8>,
    quote: Option<u8>,
    skip_bad: bool,
    onerror: Option<Py<PyAny>>,
}

impl SelectArgs {
    fn format(&self) -> PyResult<RowFormat> {
        let delimiter = match self.format.as_str() {
            "jsonl" => return Ok(RowFormat::JsonLines),
            "parquet" => return Ok(RowFormat::Parquet),
            "csv" => b',',
            "tsv" => b'\t',
            other => {
                let what = format!("format {other:?} is none of csv, tsv, jsonl, parquet");
                return Err(PyValueError::new_err(what));
            }
        };
        let delimiter = self.delimiter.unwrap_or(delimiter);
        if self.quote == Some(delimiter) {
            return Err(PyValueError::new_err("the delimiter and the quote are the same"));
        }
        Ok(RowFormat::Csv { delimiter, quote: self.quote, header: self.header })
    }

    fn options(&self, py: Python<'_>) -> PyResult<SelectOptions> {
        let grouped = self.group_by.is_some() || self.aggregate.is_some();
        if grouped && self.columns.is_some() {
            return Err(PyValueError::new_err("columns are not chosen of groups"));
        }
        let names = |option, words: &Option<Words>| match words {
            None => Ok(Vec::new()),
            Some(Words::List(names)) => Ok(names.clone()),
            Some(Words::Text(text)) => parsed(py, option, text, SelectOptions::names),
        };
        let aggregates = match &self.aggregate {
            None => Vec::new(),
            Some(Words::List(all)) => parsed(py, "aggregate", &all.join(", "), SelectOptions::aggregates)?,
            Some(Words::Text(text)) => parsed(py, "aggregate", text, SelectOptions::aggregates)?,
        };
        let condition =
            self.condition.as_ref().map(|text| parsed(py, "where", text, SelectOptions::condition));
        let schema = self.schema.as_ref().map(|text| parsed(py, "schema", text, SelectOptions::schema));
        Ok(SelectOptions {
            format: self.format()?,
            schema: schema.transpose()?.unwrap_or_default(),
            columns: names("columns", &self.columns)?,
            filter: condition.transpose()?.unwrap_or_default(),
            limit: self.limit.filter(|_| !grouped),
            group_by: names("group_by", &self.group_by)?,
            aggregates,
            skip_bad: self.skip_bad,
        })
    }
}

fn parsed<T>(
    py: Python<'_>,
    option: &str,
    text: &str,
    parse: fn(&str) -> Result<T, ParseError>,
) -> PyResult<T> {
    parse(text).map_err(|error| failure::of_word(py, &format!("{option}: {error}")))
}

/// Streams of Arrow's, each a schema and one batch.
#[pyclass(module = "nearside")]
pub(crate) struct Streams {
    lanes: Arc<Lanes>,
    operation: Operation,
    /// What is still to be asked about.
    targets: VecDeque<(Vec<u8>, Target)>,
    answer: Option<Answer>,
    onerror: Option<Py<PyAny>>,
    /// Groups are put together, and then are these streams.
    merge: Option<Merge>,
    merged: VecDeque<Vec<u8>>,
    left: u64,
    bad: u64,
    /// The file at hand.
    path: Vec<u8>,
    /// It is of other columns than those before: that was said.
    unfit: bool,
    /// The columns of the first file with rows.
    names: Option<Vec<String>>,
    /// What columns there are, where there is no row.
    empty: Option<Vec<u8>>,
}

impl Streams {
    pub fn of(py: Python<'_>, lanes: &Arc<Lanes>, args: SelectArgs) -> PyResult<Streams> {
        let options = args.options(py)?;
        let grouped = !options.aggregates.is_empty() || !options.group_by.is_empty();
        let target = |path: &Vec<u8>| match args.recursive {
            true => Target::Tree {
                root: path.clone(),
                include: args.include.clone(),
                exclude: Vec::new(),
                max_depth: u32::MAX,
            },
            false => Target::Path(path.clone()),
        };
        Ok(Streams {
            lanes: lanes.clone(),
            targets: args.paths.iter().map(|path| (path.clone(), target(path))).collect(),
            answer: None,
            onerror: args.onerror,
            merge: grouped.then(|| Merge::new(&options)),
            merged: VecDeque::new(),
            operation: Operation::Select(Box::new(options)),
            left: args.limit.unwrap_or(u64::MAX),
            bad: 0,
            path: Vec::new(),
            unfit: false,
            names: None,
            empty: None,
        })
    }

    /// The next batch; its file is then at hand.
    fn batch(&mut self, py: Python<'_>) -> PyResult<Option<(u64, Vec<u8>)>> {
        loop {
            let Some(answer) = &mut self.answer else {
                let Some((path, target)) = self.targets.pop_front() else { return Ok(None) };
                let ask = Ask { target, operation: self.operation.clone(), follow: true };
                let onerror = self.onerror.as_ref().map(|onerror| onerror.clone_ref(py));
                self.answer = Some(Answer::new(&self.lanes, &path, ask, onerror));
                (self.path, self.unfit) = (path, false);
                continue;
            };
            match answer.next(py)? {
                None => self.answer = None,
                Some(Record::File { path, .. }) => {
                    self.unfit &= self.path == *path;
                    self.path = path.into_owned();
                }
                Some(Record::Batch { bad, stream, .. }) => return Ok(Some((bad, stream.into_owned()))),
                Some(_) => {}
            }
        }
    }

    /// Says, once for a file, that it does not fit.
    fn does_not_fit(&mut self, py: Python<'_>, what: &str) -> PyResult<()> {
        if std::mem::replace(&mut self.unfit, true) {
            return Ok(());
        }
        let error = failure::of_table(py, &self.path, what);
        match &self.answer {
            Some(answer) => answer.tell(py, error),
            None => Err(error),
        }
    }

    fn read<'b>(&self, py: Python<'_>, stream: &'b [u8]) -> PyResult<Table<'b>> {
        Table::read(stream).map_err(|error| failure::of_table(py, &self.path, &error.to_string()))
    }

    /// Takes all groups in, of all files.
    fn merge(&mut self, py: Python<'_>, mut merge: Merge) -> PyResult<()> {
        while let Some((bad, stream)) = self.batch(py)? {
            let table = self.read(py, &stream)?;
            match merge.add(&table) {
                Ok(()) => self.bad = self.bad.saturating_add(bad),
                Err(MergeError::Unfit(what)) => self.does_not_fit(py, &what)?,
                Err(error) => return Err(failure::of_table(py, &self.path, &error.to_string())),
            }
        }
        let streams = merge.streams(self.left);
        let streams = streams.map_err(|error| failure::of_table(py, &self.path, &error.to_string()))?;
        self.merged = streams.into();
        self.left = 0;
        Ok(())
    }
}

#[pymethods]
impl Streams {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if let Some(merge) = self.merge.take() {
            self.merge(py, merge)?;
        }
        if let Some(stream) = self.merged.pop_front() {
            return Ok(Some(PyBytes::new(py, &stream)));
        }
        while self.left > 0 {
            let Some((bad, stream)) = self.batch(py)? else {
                self.left = 0;
                return Ok(self.empty.take().map(|stream| PyBytes::new(py, &stream)));
            };
            let table = self.read(py, &stream)?;
            if table.rows() > 0
                && let Some(known) = &self.names
                && let Err(what) = table.has_columns(known.iter().map(String::as_str))
            {
                self.does_not_fit(py, &what.to_string())?;
                continue;
            }
            self.bad = self.bad.saturating_add(bad);
            if table.rows() == 0 {
                if self.names.is_none() {
                    self.empty.get_or_insert_with(|| stream.clone());
                }
                continue;
            }
            if self.names.is_none() {
                self.names = Some(table.columns().iter().map(|(name, _)| (*name).to_owned()).collect());
                self.empty = None;
            }
            let rows = self.left.min(table.rows() as u64);
            self.left -= rows;
            return Ok(Some(match rows as usize == table.rows() {
                true => PyBytes::new(py, &stream),
                false => PyBytes::new(py, &table.first(rows as usize)),
            }));
        }
        Ok(None)
    }

    /// Rows that were passed over so far, since they are not as the others.
    #[getter]
    fn skipped(&self) -> u64 {
        self.bad
    }
}

/// Most rows that one command asks for, and most bags: so many have room in a request.
const ROWS: usize = 8192;
const BAGS: usize = 4096;

/// How a file's bytes are rows of numbers.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NumbersArgs {
    /// "f32", "f16", "bf16" or "i8"; none: the file has NumPy's header.
    element: Option<String>,
    columns: u32,
    scale: f32,
}

impl NumbersArgs {
    fn table(&self) -> PyResult<Numbers> {
        let element = match self.element.as_deref() {
            None => return Ok(Numbers { raw: None, scale: self.scale }),
            Some("f32") => Element::F32,
            Some("f16") => Element::F16,
            Some("bf16") => Element::Bf16,
            Some("i8") => Element::I8,
            Some(other) => {
                return Err(PyValueError::new_err(format!("{other:?} is none of f32, f16, bf16, i8")));
            }
        };
        Ok(Numbers { raw: Some((element, self.columns)), scale: self.scale })
    }
}

/// What `Drive.gather` is called with.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GatherArgs {
    table: NumbersArgs,
    pooling: Option<String>,
    rows: Vec<u64>,
    bags: Option<Vec<u32>>,
    weights: Option<Vec<f32>>,
    path: Vec<u8>,
}

impl GatherArgs {
    fn pooling(&self) -> PyResult<Pooling> {
        let pooling = match self.pooling.as_deref() {
            None => Pooling::None,
            Some("sum") => Pooling::Sum,
            Some("mean") => Pooling::Mean,
            Some("weighted") => Pooling::Weighted,
            Some(other) => {
                return Err(PyValueError::new_err(format!("{other:?} is none of sum, mean, weighted")));
            }
        };
        let weighted = pooling == Pooling::Weighted;
        let weights = self.weights.as_ref().map_or(0, Vec::len);
        if weights != if weighted { self.rows.len() } else { 0 } {
            return Err(PyValueError::new_err("weights are of pooling=\"weighted\", one for each row"));
        }
        match &self.bags {
            Some(_) if pooling == Pooling::None => Err(PyValueError::new_err("bags are of a pooling")),
            Some(bags) if bags.iter().map(|n| u64::from(*n)).sum::<u64>() != self.rows.len() as u64 => {
                Err(PyValueError::new_err("bags do not add up to the rows"))
            }
            _ => Ok(pooling),
        }
    }

    /// As many requests as it takes: none has more rows, or bags, than have room.
    fn requests(&self) -> PyResult<Vec<GatherOptions>> {
        let (table, pooling) = (self.table.table()?, self.pooling()?);
        let options = GatherOptions { table, pooling, ..GatherOptions::default() };
        if pooling == Pooling::None {
            let part = |rows: &[u64]| GatherOptions { indices: rows.to_vec(), ..options.clone() };
            return Ok(self.rows.chunks(ROWS).map(part).collect());
        }
        let one = [self.rows.len() as u32];
        let (mut all, mut at): (Vec<GatherOptions>, usize) = (Vec::new(), 0);
        for bag in self.bags.as_deref().unwrap_or(&one) {
            let len = *bag as usize;
            if len > ROWS {
                return Err(PyValueError::new_err(format!("a bag has more than {ROWS} rows")));
            }
            let fits = |part: &GatherOptions| part.indices.len() + len <= ROWS && part.bags.len() < BAGS;
            if !all.last().is_some_and(fits) {
                all.push(options.clone());
            }
            if let Some(part) = all.last_mut() {
                part.bags.push(*bag);
                part.indices.extend_from_slice(&self.rows[at..at + len]);
                if let Some(weights) = &self.weights {
                    part.weights.extend_from_slice(&weights[at..at + len]);
                }
            }
            at += len;
        }
        Ok(all)
    }

    /// How many rows there are, and their numbers.
    pub fn run<'py>(self, py: Python<'py>, lanes: &Arc<Lanes>) -> PyResult<(u64, Bound<'py, PyBytes>)> {
        let (mut rows, mut bytes) = (0, Vec::new());
        for options in self.requests()? {
            let ask = Ask::path(self.path.as_slice(), Operation::Gather(options));
            let mut answer = Answer::new(lanes, &self.path, ask, None);
            while let Some(record) = answer.next(py)? {
                if let Record::Row { values, .. } = record {
                    rows += 1;
                    bytes.extend_from_slice(&values);
                }
            }
        }
        Ok((rows, PyBytes::new(py, &bytes)))
    }
}

/// What `Drive.nearest` is called with.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NearestArgs {
    table: NumbersArgs,
    path: Vec<u8>,
    query: Vec<f32>,
    count: u32,
    l2: bool,
}

impl NearestArgs {
    /// The rows' numbers and scores, the nearest first.
    pub fn run(self, py: Python<'_>, lanes: &Arc<Lanes>) -> PyResult<Vec<(u64, f32)>> {
        let measure = if self.l2 { Measure::L2 } else { Measure::InnerProduct };
        let (table, count, query) = (self.table.table()?, self.count, self.query);
        if count > nearside_fsrlib::MAX_NEAREST {
            let why = format!("count: at most {}", nearside_fsrlib::MAX_NEAREST);
            return Err(PyValueError::new_err(why));
        }
        let options = NearestOptions { table, measure, count, query };
        let ask = Ask::path(self.path.as_slice(), Operation::Nearest(options));
        let mut answer = Answer::new(lanes, &self.path, ask, None);
        let mut near = Vec::new();
        while let Some(record) = answer.next(py)? {
            if let Record::Near { row, score } = record {
                near.push((row, score));
            }
        }
        Ok(near)
    }
}
