//! Tables by a seed, as files in a folder of this host: of every form that drives read, with what is awkward
//! in each. DataFusion reads them there by itself, of types that it is told or that it infers.

use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::datasource::MemTable;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::prelude::{
    CsvReadOptions, JsonReadOptions, ParquetReadOptions, SessionConfig, SessionContext,
};
use nearside_random::Rng;

use crate::fixture::literal;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integers whose sums and means are exact in any order.
    Few,
    /// Integers whose sums wrap around.
    Int,
    /// Numbers whose sums are exact in any order.
    Exact,
    /// Numbers of which neither sums nor the least are.
    Odd,
    Text,
    Day,
    Time,
    Truth,
}

impl Kind {
    pub const ALL: [Kind; 8] =
        [Kind::Few, Kind::Int, Kind::Exact, Kind::Odd, Kind::Text, Kind::Day, Kind::Time, Kind::Truth];

    /// As a file of texts has them. By the first one its type is known.
    fn values(self) -> &'static [&'static str] {
        match self {
            Kind::Few => &["1", "0", "2", "3", "-3", "7", "41", "1000"],
            Kind::Int => &["5", "0", "-1", "9223372036854775807", "-9223372036854775808", "1000000"],
            Kind::Exact => &["0.5", "0.25", "-2.5", "1.5", "-1.5", "3.75", "2", "0.0"],
            Kind::Odd => &[
                "0.5",
                "-0.0",
                "0.0",
                "NaN",
                "inf",
                "-inf",
                "1e300",
                "0.1",
                "-123456.789",
                "5e-324",
                "0.30000000000000004",
            ],
            Kind::Text => &[
                "first",
                "",
                "a",
                "A",
                "ab",
                "aB%",
                "a_b",
                "50%",
                "x\\y",
                "new\nline",
                "cr\r\nlf",
                "comma, here",
                "say \"x\"",
                "it's",
                "semi;colon",
                "tab\there",
                "Zürich",
                "\u{fffd}",
                "日本",
                " a ",
                "ß",
                "NULL",
                "5",
                "true",
            ],
            Kind::Day => &["2020-02-29", "1969-12-31", "2024-07-01", "9999-12-31", "0001-01-01"],
            Kind::Time => &[
                "2020-02-29T12:00:00",
                "2020-02-29T12:00:00.000001",
                "1969-12-31T23:59:59.999999",
                "2024-07-01T00:00:00",
            ],
            Kind::Truth => &["true", "false"],
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Kind::Few | Kind::Int => DataType::Int64,
            Kind::Exact | Kind::Odd => DataType::Float64,
            Kind::Text => DataType::Utf8,
            Kind::Day => DataType::Date32,
            Kind::Time => DataType::Timestamp(TimeUnit::Microsecond, None),
            Kind::Truth => DataType::Boolean,
        }
    }

    /// As the option `schema` names it.
    fn word(self) -> &'static str {
        match self {
            Kind::Few | Kind::Int => "int64",
            Kind::Exact | Kind::Odd => "float64",
            Kind::Text => "utf8",
            Kind::Day => "date",
            Kind::Time => "timestamp",
            Kind::Truth => "bool",
        }
    }

    /// A value as it stands in JSON, which has no word for some numbers.
    fn in_json(self, value: &str) -> String {
        match self {
            Kind::Text | Kind::Day | Kind::Time => serde_json::to_string(value).unwrap(),
            Kind::Odd if value.parse::<f64>().is_ok_and(|number| !number.is_finite()) => "null".to_owned(),
            _ => value.to_owned(),
        }
    }
}

/// A column of a table's.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// What conditions speak of.
    pub values: Vec<String>,
}

impl Column {
    fn new(name: &str, kind: Kind) -> Column {
        let values = kind.values().iter().map(|&value| value.to_owned()).collect();
        Column { name: name.to_owned(), kind, values }
    }
}

/// How rows stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Csv,
    Tsv,
    /// CSV without names, with other marks.
    Nameless,
    Json,
    Parquet,
}

impl Form {
    const ALL: [Form; 5] = [Form::Csv, Form::Parquet, Form::Json, Form::Nameless, Form::Tsv];

    fn end(self) -> &'static str {
        match self {
            Form::Csv | Form::Nameless => "csv",
            Form::Tsv => "tsv",
            Form::Json => "jsonl",
            Form::Parquet => "parquet",
        }
    }

    fn function(self) -> &'static str {
        if self == Form::Json { "json" } else { self.end() }
    }

    /// What stands between fields, and around one.
    fn marks(self) -> (char, char) {
        match self {
            Form::Nameless => (';', '\''),
            Form::Tsv => ('\t', '"'),
            _ => (',', '"'),
        }
    }
}

/// Where a table is.
#[derive(Debug)]
enum Lies {
    /// In files of a folder; DataFusion is told their types unless it infers them.
    Rows { form: Form, infers: bool },
    /// In the lines of files.
    Lines,
    /// In the names of all files.
    Tree,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// As DataFusion has it that reads the files of this host; it is its folder's name as well.
    pub theirs: String,
    /// As drives have it.
    pub ours: String,
    pub columns: Vec<Column>,
    /// The place of the column by which it is joined.
    pub key: usize,
    lies: Lies,
}

const NAMES: [&str; 11] =
    ["n", "City", "a b", "x.y", "größe", "it's", "say \"x\"", "select", "N", "comma, name", "drive"];

/// A name as it stands in a query.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A row: a value of each column.
type Row = Vec<Option<&'static str>>;

fn columns(form: Form, rng: &mut Rng) -> Vec<Column> {
    let from = rng.index(NAMES.len());
    let mut columns = vec![Column::new("k", Kind::Few)];
    for nth in 0..4 + rng.index(4) {
        let kind = match (nth, rng.pick(&Kind::ALL)) {
            (0, _) => Kind::Text,
            // JSON has no word for these.
            (_, Kind::Day | Kind::Time) if form == Form::Json => Kind::Truth,
            (_, kind) => kind,
        };
        columns.push(Column::new(NAMES[(from + nth) % NAMES.len()], kind));
    }
    if form == Form::Nameless {
        let named = columns.iter_mut().enumerate();
        named.for_each(|(nth, column)| column.name = format!("column_{}", nth + 1));
    }
    columns
}

/// Rows of a file, of which the first has a value of each column.
fn rows(columns: &[Column], rng: &mut Rng) -> Vec<Row> {
    let mut rows = Vec::new();
    for nth in 0..1 + rng.index(80) {
        let mut row = Row::new();
        for column in columns {
            let values = column.kind.values();
            row.push(match rng.below(6) {
                _ if nth == 0 => Some(values[0]),
                0 => None,
                _ => Some(rng.pick(values)),
            });
        }
        rows.push(row);
    }
    rows
}

/// A field, in quotes where it has to be, and sometimes where not.
fn field(text: &str, (delimiter, quote): (char, char), rng: &mut Rng) -> String {
    let must = text.contains([delimiter, quote, '\n', '\r']);
    match must || rng.below(8) == 0 {
        true => format!("{quote}{}{quote}", text.replace(quote, &format!("{quote}{quote}"))),
        false => text.to_owned(),
    }
}

fn csv(form: Form, columns: &[Column], rows: &[Row], rng: &mut Rng) -> String {
    let marks = form.marks();
    let names = columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>();
    let header = Some(names).filter(|_| form != Form::Nameless);
    let texts = |row: &Row| row.iter().map(|value| value.unwrap_or_default()).collect::<Vec<&str>>();
    let values = rows.iter().map(texts);
    let mut lines = Vec::new();
    for row in header.into_iter().chain(values) {
        let fields: Vec<String> = row.into_iter().map(|text| field(text, marks, rng)).collect();
        lines.push(fields.join(&marks.0.to_string()));
    }
    let end = rng.pick(&["\n", "\r\n"]);
    let last = if rng.below(3) == 0 { "" } else { end };
    lines.join(end) + last
}

fn json(columns: &[Column], rows: &[Row], rng: &mut Rng) -> String {
    let mut text = String::new();
    for row in rows {
        let mut members = Vec::new();
        for (column, value) in columns.iter().zip(row) {
            let value = match value {
                Some(value) => column.kind.in_json(value),
                None if rng.below(2) == 0 => continue,
                None => "null".to_owned(),
            };
            members.push(format!("{}:{value}", serde_json::to_string(&column.name).unwrap()));
        }
        writeln!(text, "{{{}}}", members.join(",")).unwrap();
    }
    text
}

fn schema(columns: &[Column]) -> SchemaRef {
    let fields = columns.iter().map(|column| Field::new(&column.name, column.kind.data_type(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A file of Parquet, of one group of rows or of several.
fn parquet(path: &Path, columns: &[Column], rows: &[Row], rng: &mut Rng) {
    let schema = schema(columns);
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (nth, column) in columns.iter().enumerate() {
        let texts: StringArray = rows.iter().map(|row| row[nth]).collect();
        let array = cast(&texts, &column.kind.data_type()).unwrap();
        assert_eq!(array.null_count(), texts.null_count(), "{column:?}");
        arrays.push(array);
    }
    let batch = RecordBatch::try_new(schema.clone(), arrays).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), schema, None).unwrap();
    let most = rng.pick(&[7, 30, 1000]);
    for from in (0..rows.len()).step_by(most) {
        writer.write(&batch.slice(from, most.min(rows.len() - from))).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

/// The options of a table's function: its types, where they are said.
fn words(form: Form, columns: &[Column], rng: &mut Rng) -> String {
    let mut words = String::new();
    if form == Form::Nameless {
        words += &format!(", 'no-header', 'delimiter=;', {}", literal("quote='"));
    }
    if form != Form::Parquet && rng.below(2) == 0 {
        let typed = columns.iter().map(|column| format!("{} {}", quoted(&column.name), column.kind.word()));
        let typed = typed.collect::<Vec<_>>().join(", ");
        words += &format!(", {}", literal(&format!("schema={typed}")));
    }
    words
}

fn of_files(tree: &Path, nth: usize, rng: &mut Rng) -> Table {
    let form = Form::ALL[nth % Form::ALL.len()];
    let (theirs, end) = (format!("t{nth}"), form.end());
    let columns = columns(form, rng);
    let folder = tree.join(&theirs);
    fs::create_dir(&folder).unwrap();
    let files = 1 + rng.index(2);
    for file in 0..files {
        let (path, rows) = (folder.join(format!("{file}.{end}")), rows(&columns, rng));
        match form {
            Form::Parquet => parquet(&path, &columns, &rows, rng),
            Form::Json => fs::write(path, json(&columns, &rows, rng)).unwrap(),
            _ => fs::write(path, csv(form, &columns, &rows, rng)).unwrap(),
        }
    }
    // It infers instants of other units, and cuts at line ends within other quotes.
    let other = |column: &Column| {
        column.kind == Kind::Time || form != Form::Json && column.kind == Kind::Odd || form == Form::Nameless
    };
    let infers = rng.below(2) == 0 && !columns.iter().any(other);
    let path = match rng.below(2) {
        0 if files == 1 => format!("/{theirs}/0.{end}"),
        0 => format!("/{theirs}/*.{end}"),
        _ => format!("/{theirs}/**"),
    };
    let ours = format!("{}({}{})", form.function(), literal(&path), words(form, &columns, rng));
    Table { theirs, ours, columns, key: 0, lies: Lies::Rows { form, infers } }
}

const LOGS: [(&str, &str); 3] = [
    ("a.log", "fine\nERROR one\n\ntab\there\nZürich\nx\\y\nlast without an end"),
    ("b.log", ""),
    ("sub/c.txt", "two\r\nERROR 50% a_b\n\u{fffd}\n日本\nerror\n 5 \n"),
];

fn column(name: &str, kind: Kind, values: &[&str]) -> Column {
    let mut column = Column::new(name, kind);
    if !values.is_empty() {
        column.values = values.iter().map(|&value| value.to_owned()).collect();
    }
    column
}

fn lines() -> Table {
    let columns = vec![
        column("path", Kind::Text, &["/logs/a.log", "/logs/sub/c.txt", "/logs/"]),
        column("line", Kind::Few, &[]),
        column("text", Kind::Text, &["fine", "ERROR one", "two\r", "", "\u{fffd}", "error", "x\\y"]),
    ];
    let (theirs, ours) = ("logs".to_owned(), "lines('/logs/**')".to_owned());
    Table { theirs, ours, columns, key: 1, lies: Lies::Lines }
}

/// What is known of files by their names, and is the same on a volume.
const KNOWN: &str = "path, name, kind, size, mode, uid, gid, target";

fn files() -> Table {
    let columns = vec![
        column("path", Kind::Text, &["/t0/0.csv", "/logs/a.log", "/links/to", "/logs/sub", "/none"]),
        column("name", Kind::Text, &["0.csv", "a.log", "to", "c.txt"]),
        column("kind", Kind::Text, &["file", "link", "directory"]),
        column("size", Kind::Few, &["0", "14", "100", "1000", "5000"]),
        column("mode", Kind::Few, &["420", "511", "0"]),
        column("uid", Kind::Few, &["0", "1000"]),
        column("gid", Kind::Few, &["0", "1000"]),
        column("target", Kind::Text, &["../logs/a.log", "/nowhere", ""]),
    ];
    let ours = format!("(select {KNOWN} from files where kind <> 'directory')");
    Table { theirs: "tree".to_owned(), ours, columns, key: 3, lies: Lies::Tree }
}

/// Makes tables in a folder: so many of rows, one of lines, and one of files.
pub fn fill(tree: &Path, so_many: usize, rng: &mut Rng) -> Vec<Table> {
    let mut tables: Vec<Table> = (0..so_many).map(|nth| of_files(tree, nth, rng)).collect();
    fs::create_dir_all(tree.join("logs/sub")).unwrap();
    for (name, text) in LOGS {
        fs::write(tree.join("logs").join(name), text).unwrap();
    }
    fs::create_dir(tree.join("links")).unwrap();
    symlink("../logs/a.log", tree.join("links/to")).unwrap();
    symlink("/nowhere", tree.join("links/dangling")).unwrap();
    tables.extend([lines(), files()]);
    tables
}

/// All that is below a folder and is none.
fn walk(at: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap().is_dir() {
            true => walk(&path, found),
            false => found.push(path),
        }
    }
}

/// A file's path on a volume of this tree.
fn on_volume(tree: &Path, path: &Path) -> String {
    format!("/{}", path.strip_prefix(tree).unwrap().to_str().unwrap())
}

fn held(fields: &[(&str, DataType, bool)], columns: Vec<ArrayRef>) -> MemTable {
    let fields = fields.iter().map(|(name, kind, null)| Field::new(*name, kind.clone(), *null));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
    MemTable::try_new(schema, vec![vec![batch]]).unwrap()
}

fn lines_of(tree: &Path) -> MemTable {
    let mut found = Vec::new();
    walk(&tree.join("logs"), &mut found);
    let (mut paths, mut numbers, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for path in found {
        for (number, line) in (1i64..).zip(fs::read_to_string(&path).unwrap().split_terminator('\n')) {
            paths.push(on_volume(tree, &path));
            numbers.push(number);
            texts.push(line.to_owned());
        }
    }
    let fields =
        [("path", DataType::Utf8, false), ("line", DataType::Int64, false), ("text", DataType::Utf8, false)];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(paths)),
        Arc::new(Int64Array::from(numbers)),
        Arc::new(StringArray::from(texts)),
    ];
    held(&fields, columns)
}

fn files_of(tree: &Path) -> MemTable {
    let mut found = Vec::new();
    walk(tree, &mut found);
    let known: Vec<_> = found.iter().map(|path| path.symlink_metadata().unwrap()).collect();
    let number = |of: fn(&fs::Metadata) -> u64| -> ArrayRef {
        Arc::new(known.iter().map(|known| i64::try_from(of(known)).ok()).collect::<Int64Array>())
    };
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let target = |path: &PathBuf| fs::read_link(path).ok().map(|target| target.to_str().unwrap().to_owned());
    let kinds = known.iter().map(|known| if known.is_symlink() { "link" } else { "file" });
    let columns: Vec<ArrayRef> = vec![
        Arc::new(found.iter().map(|path| Some(on_volume(tree, path))).collect::<StringArray>()),
        Arc::new(found.iter().map(|path| Some(name(path))).collect::<StringArray>()),
        Arc::new(kinds.map(Some).collect::<StringArray>()),
        number(|known| known.size()),
        number(|known| u64::from(known.mode() & 0o7777)),
        number(|known| known.uid().into()),
        number(|known| known.gid().into()),
        Arc::new(found.iter().map(target).collect::<StringArray>()),
    ];
    let (text, whole) = (DataType::Utf8, DataType::Int64);
    let fields = [
        ("path", text.clone(), false),
        ("name", text.clone(), false),
        ("kind", text.clone(), true),
        ("size", whole.clone(), true),
        ("mode", whole.clone(), true),
        ("uid", whole.clone(), true),
        ("gid", whole, true),
        ("target", text, true),
    ];
    held(&fields, columns)
}

async fn register(context: &SessionContext, tree: &Path, table: &Table) -> datafusion::common::Result<()> {
    let (form, infers) = match table.lies {
        Lies::Rows { form, infers } => (form, infers),
        Lies::Lines => return context.register_table(&table.theirs, Arc::new(lines_of(tree))).map(drop),
        Lies::Tree => return context.register_table(&table.theirs, Arc::new(files_of(tree))).map(drop),
    };
    let (name, path) = (&table.theirs, format!("{}/{}/", tree.display(), table.theirs));
    let (typed, end) = (schema(&table.columns), format!(".{}", form.end()));
    let said = Some(&*typed).filter(|_| !infers);
    match form {
        Form::Parquet => context.register_parquet(name, path, ParquetReadOptions::default()).await,
        Form::Json => {
            let options =
                JsonReadOptions { schema: said, file_extension: &end, ..JsonReadOptions::default() };
            context.register_json(name, path, options).await
        }
        form => {
            let (delimiter, quote) = form.marks();
            let options = CsvReadOptions {
                schema: said,
                file_extension: &end,
                delimiter: delimiter as u8,
                quote: quote as u8,
                has_header: form != Form::Nameless,
                newlines_in_values: true,
                ..CsvReadOptions::new()
            };
            context.register_csv(name, path, options).await
        }
    }
}

/// DataFusion's own reading of the tables, by nothing but their rows: what stands in Parquet beside them has
/// another order of numbers than conditions have.
pub fn beside(tree: &Path, tables: &[Table]) -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_collect_statistics(false)
        .set_bool("datafusion.execution.parquet.pruning", false)
        // The types of drives.
        .set_bool("datafusion.execution.parquet.schema_force_view_types", false);
    let context = SessionContext::new_with_config(config);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for table in tables {
            register(&context, tree, table).await.unwrap_or_else(|error| panic!("{table:?}: {error}"));
        }
    });
    context
}
