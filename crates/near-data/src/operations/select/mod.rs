//! Rows of tables (CSV, JSON lines, Parquet), chosen by what they hold: columns, a condition, groups.
//!
//! A condition is a list of [`Term`]s in postfix order: each takes what it needs from a stack and puts its
//! value there. So it has no depth, and neither reading nor following it recurses.

use alloc::string::String;
use alloc::vec::Vec;

mod parse;
mod wire;

pub use parse::ParseError;

/// Most columns that a request names, and most fields of a row.
pub const MAX_FIELDS: usize = 1024;
/// Most terms of a condition.
pub const MAX_TERMS: usize = 1024;
/// Longest name of a column, in bytes.
pub const MAX_COLUMN_NAME: usize = 255;
/// Longest pattern or text in a condition, in bytes.
pub const MAX_TERM_TEXT: usize = 4096;
/// Most regular expressions in a condition: each has tables of some MiB.
pub const MAX_REGEXES: usize = 4;
/// Longest of them: a class of characters counts for about its ranges, which bounds what is read before
/// anything is compiled.
pub const MAX_REGEX_TEXT: usize = 1000;
/// Deepest of them.
pub const MAX_REGEX_NEST: u32 = 100;
/// Most groups of a file.
pub const MAX_ROW_GROUPS: usize = 16_384;
/// Most aggregates of a request, and most columns that make groups.
pub const MAX_AGGREGATES: usize = 64;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// `true` or `false`.
    Bool,
    /// A signed integer of 64 bits.
    Int64,
    /// IEEE 754, 64 bits.
    Float64,
    /// A day.
    Date,
    /// Microseconds, without a time zone: what a text says of its own is taken off.
    Timestamp,
    /// Text in UTF-8.
    Utf8,
}

impl ColumnType {
    /// All of them.
    pub const ALL: [ColumnType; 6] = [
        ColumnType::Bool,
        ColumnType::Int64,
        ColumnType::Float64,
        ColumnType::Date,
        ColumnType::Timestamp,
        ColumnType::Utf8,
    ];

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ColumnType::Bool => "bool",
            ColumnType::Int64 => "int64",
            ColumnType::Float64 => "float64",
            ColumnType::Date => "date",
            ColumnType::Timestamp => "timestamp",
            ColumnType::Utf8 => "utf8",
        }
    }
}

/// How a file is a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Fields with a byte between them, rows with the end of a line (RFC 4180).
    Csv {
        /// Between fields.
        delimiter: u8,
        /// Around fields that hold a delimiter, a quote (twice) or the end of a line; `None`: nothing does.
        quote: Option<u8>,
        /// The first row has the columns' names. Without it they are `column_1` and so on, or the schema's.
        header: bool,
    },
    /// A JSON object on each line.
    JsonLines,
    /// Apache Parquet, which says itself what columns there are.
    Parquet,
}

impl Default for RowFormat {
    fn default() -> Self {
        RowFormat::Csv { delimiter: b',', quote: Some(b'"'), header: true }
    }
}

/// A value that a condition names.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// Unknown.
    Null,
    /// A truth.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text; beside a date or a timestamp, one of these.
    Text(String),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// What says the same of the two the other way round.
    #[must_use]
    pub const fn turned(self) -> Comparison {
        match self {
            Comparison::Equal | Comparison::NotEqual => self,
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        }
    }
}

/// One step of a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// Puts a column's value.
    Column(String),
    /// Puts a value.
    Literal(Literal),
    /// Takes two, the second first, and puts how they compare; unknown where one is.
    Compare(Comparison),
    /// Takes two truths: SQL's three-valued `and`.
    And,
    /// Takes two truths: SQL's three-valued `or`.
    Or,
    /// Takes a truth.
    Not,
    /// Takes a value, and puts whether it is unknown.
    IsNull,
    /// Takes so many values, and before them one: whether that is among them.
    In(u32),
    /// Takes a text, and puts whether all of it is as a pattern with `%` and `_` says; after a backslash a
    /// character is itself.
    Like {
        /// The pattern.
        pattern: String,
        /// Case is ignored.
        ignore_case: bool,
    },
    /// Takes a text, and puts whether a regular expression matches somewhere in it.
    Regex(String),
}

impl Term {
    /// How many values it takes.
    #[must_use]
    pub const fn takes(&self) -> usize {
        match self {
            Term::Column(_) | Term::Literal(_) => 0,
            Term::Not | Term::IsNull | Term::Like { .. } | Term::Regex(_) => 1,
            Term::Compare(_) | Term::And | Term::Or => 2,
            Term::In(count) => (*count as usize).saturating_add(1),
        }
    }
}

/// What is made of the rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// How many: rows, or those whose column is not null.
    Count,
    /// The sum: of int64 an int64, which must not overflow; of float64 a float64, in the rows' order.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The mean, as two columns that can be put together: the sum as a float64, and how many.
    Average,
}

impl Function {
    /// All of them.
    pub const ALL: [Function; 5] =
        [Function::Count, Function::Sum, Function::Min, Function::Max, Function::Average];

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Function::Count => "count",
            Function::Sum => "sum",
            Function::Min => "min",
            Function::Max => "max",
            Function::Average => "avg",
        }
    }
}

/// An aggregate: a function and its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// What is made.
    pub function: Function,
    /// Of which column; `None`: of rows ([`Function::Count`]).
    pub column: Option<String>,
}

impl SelectOptions {
    /// A column that is named twice among those that are answered, or among those that make groups: no
    /// request may have one.
    #[must_use]
    pub fn named_twice(&self) -> Option<&str> {
        twice(&self.columns).or_else(|| twice(&self.group_by)).map(String::as_str)
    }
}

impl core::fmt::Display for Aggregate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}({})", self.function.name(), self.column.as_deref().unwrap_or("*"))
    }
}

/// Which rows, and what of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelectOptions {
    /// How a file is a table.
    pub format: RowFormat,
    /// Types of columns by their names; others are inferred from the first rows. Of a CSV without a header,
    /// the names in their order.
    pub schema: Vec<(String, ColumnType)>,
    /// Which columns are answered, in this order; empty: all.
    pub columns: Vec<String>,
    /// The condition in postfix order; empty: every row.
    pub filter: Vec<Term>,
    /// Most rows of a file.
    pub limit: Option<u64>,
    /// With aggregates: by which columns rows are groups.
    pub group_by: Vec<String>,
    /// What is made of the rows of each file's groups; empty: rows are answered.
    pub aggregates: Vec<Aggregate>,
    /// Rows that are not as the columns' types say are passed over and counted; without it they are errors.
    pub skip_bad: bool,
}

/// The first of these names that stands there twice: what is answered of a row is bounded by what a row
/// holds.
fn twice(names: &[String]) -> Option<&String> {
    let mut seen = alloc::collections::BTreeSet::new();
    names.iter().find(|name| !seen.insert(*name))
}

/// Whether terms are one condition: each finds what it takes, and one value is left. The most that the stack
/// holds, or why not.
pub(crate) fn stack_of(terms: &[Term]) -> Result<usize, &'static str> {
    let (mut held, mut most) = (0usize, 0usize);
    for term in terms {
        held = held.checked_sub(term.takes()).ok_or("condition: a term without its values")?;
        held = held.saturating_add(1);
        most = most.max(held);
    }
    match held {
        1 => Ok(most),
        0 if terms.is_empty() => Ok(0),
        _ => Err("condition: values left over"),
    }
}
