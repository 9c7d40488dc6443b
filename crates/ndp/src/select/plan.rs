//! What is done with a file, by what its beginning, or its footer, says of its columns: the columns that are
//! asked for, with their places and types, and what is answered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nearside_near_data::{ColumnType, MAX_FIELDS, RowFormat, SelectOptions, Term};

use super::filter::Filter;
use super::groups::Making;
use super::json::{self, Members};
use super::needed::{Needed, needed};
use super::rows::{Cut, Rows};
use super::value::Guess;
use super::{Fault, Selection, arrow, parquet};
use crate::fuel::Fuel;

/// Bytes of a file's beginning from which its columns and their types are known.
pub const SAMPLE: usize = 256 << 10;
/// Rows of it that are looked at for that.
pub const SAMPLE_ROWS: usize = 1000;
/// What is looked at within a slice: bytes of a file's beginning, and columns of a schema.
const LIGHT_HEAD: u64 = 4 << 10;
const LIGHT_SCHEMA: usize = 32;

impl Selection {
    /// Whether [`plan`](Selection::plan) takes no longer than a slice for a head of so many bytes.
    #[must_use]
    pub fn is_light(&self, head: u64) -> bool {
        head <= LIGHT_HEAD && self.options.schema.len() <= LIGHT_SCHEMA
    }

    /// Makes ready for a file that begins with `head`, of which that may be all. It takes milliseconds for a
    /// head of [`SAMPLE`] bytes, and cannot be cut.
    ///
    /// # Errors
    /// [`Fault::Table`]: a column is not there or of another type than the condition or an aggregate needs.
    pub fn plan(&self, head: &[u8], whole: bool) -> Result<Plan, Fault> {
        let options = &self.options;
        let (columns, start) = match options.format {
            RowFormat::JsonLines => (self.json_columns(head, whole)?, 0),
            RowFormat::Csv { header, .. } => self.csv_columns(head, whole, header)?,
            RowFormat::Parquet => {
                return Err(Fault::Table("no text: its columns are in its footer".to_owned()));
            }
        };
        Plan::bind(options, columns, start).map_err(Fault::Table)
    }

    /// Makes ready for a file of Parquet: by its end, from where [its footer begins](parquet::begins), which
    /// is at that byte. It takes tenths of a second for the largest, and cannot be cut.
    ///
    /// # Errors
    /// Those of [`plan`](Selection::plan); a footer that is none, or passes a bound.
    pub fn plan_of(&self, tail: &[u8], at: u64) -> Result<Plan, Fault> {
        let footer = tail.get(..tail.len().saturating_sub(8)).unwrap_or_default();
        let table = parquet::Columns::of(footer)?;
        let columns = table.each(|name| self.given.get(name).copied()).into_iter().map(|(name, kind)| {
            let (kind, refused) = match kind {
                Ok(kind) => (kind, None),
                Err(what) => (ColumnType::Utf8, Some(what)),
            };
            Column { name, kind, null: false, refused }
        });
        let mut plan = Plan::bind(&self.options, columns.collect(), 0).map_err(Fault::Table)?;
        let slots: Vec<_> = plan.slots.iter().map(|(place, _, kind)| (*place, *kind)).collect();
        let layout = table.layout(footer, at, &slots, (&plan.filter, &plan.needed, plan.asked))?;
        plan.parquet = Some(Arc::new(layout));
        Ok(plan)
    }

    /// A column by its name and by what its values in the head were like. Where that is the whole file, a
    /// column without a value is null, whatever its type.
    fn column(&self, name: String, guess: Guess, whole: bool) -> Column {
        let given = self.given.get(&name);
        let null = given.is_none() && whole && guess.is_none();
        Column { kind: given.map_or_else(|| guess.kind(), |kind| *kind), null, name, refused: None }
    }

    fn json_columns(&self, head: &[u8], whole: bool) -> Result<Vec<Column>, Fault> {
        let mut lines = head;
        if !whole {
            // A line that goes on is none yet.
            lines = memchr::memrchr(b'\n', head).and_then(|end| head.get(..end)).unwrap_or_default();
        }
        let (mut seen, mut rows) = (json::Seen::default(), 0);
        let rows_of =
            lines.split(|byte| *byte == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace));
        for line in rows_of.take(SAMPLE_ROWS) {
            seen.guess(line, MAX_FIELDS);
            rows += 1;
        }
        if rows == 0 && !whole && self.options.schema.is_empty() {
            return Err(no_row());
        }
        let mut columns: Vec<_> =
            seen.columns().map(|(name, guess)| self.column(name, guess, whole)).collect();
        let known: HashSet<String> = columns.iter().map(|column| column.name.clone()).collect();
        for (name, kind) in &self.options.schema {
            if columns.len() < MAX_FIELDS && !known.contains(name) {
                columns.push(Column { name: name.clone(), kind: *kind, null: false, refused: None });
            }
        }
        Ok(columns)
    }

    /// The columns, and where the rows begin.
    fn csv_columns(&self, head: &[u8], whole: bool, header: bool) -> Result<(Vec<Column>, u64), Fault> {
        let (mut rows, mut rest, mut start) = (Rows::new(self.options.format, true), head, 0);
        rows.set_skips(self.options.skip_bad && !header);
        let (mut names, mut guesses): (Option<Vec<String>>, Vec<Guess>) = (None, Vec::new());
        let mut seen = 0;
        while seen < SAMPLE_ROWS {
            let end = whole && rest.is_empty();
            match rows.cut(&mut rest, end, &mut Fuel::default()) {
                Ok(Cut::More) if !whole => break,
                Err(fault) if header && names.is_none() => {
                    return Err(Fault::Table(format!("the row of names: {fault}")));
                }
                // What is wrong with a row is said when its turn comes.
                Ok(Cut::End | Cut::Long) | Err(_) => break,
                Ok(Cut::More | Cut::Going | Cut::Bad) => continue,
                Ok(Cut::Row) => {}
            }
            let text = |nth: usize| {
                let (from, to) = rows.field(nth);
                rows.text().get(from..to).unwrap_or_default()
            };
            if header && names.is_none() {
                let all = (0..rows.fields()).map(|nth| String::from_utf8_lossy(text(nth)).into_owned());
                names = Some(all.collect());
                start = (head.len() - rest.len()) as u64;
                rows.set_skips(self.options.skip_bad);
                continue;
            }
            if seen == 0 {
                let fields = names.as_ref().map_or(rows.fields(), Vec::len);
                guesses.resize(fields, Guess::default());
            }
            // Rows with another number of fields say so when their turn comes.
            for (nth, guess) in guesses.iter_mut().enumerate().take(rows.fields()) {
                guess.text(text(nth));
            }
            seen += 1;
        }
        let schema = &self.options.schema;
        let names = match names {
            Some(names) => names,
            None if header && schema.is_empty() && whole => {
                return Err(Fault::Table("there is no row of names".to_owned()));
            }
            None if schema.is_empty() && !whole && seen == 0 => return Err(no_row()),
            None if !schema.is_empty() => schema.iter().map(|(name, _)| name.clone()).collect(),
            None => (1..=guesses.len()).map(|nth| format!("column_{nth}")).collect(),
        };
        if names.len() > MAX_FIELDS {
            return Err(Fault::Table(format!("a row has more than {MAX_FIELDS} fields")));
        }
        guesses.resize(names.len(), Guess::default());
        let columns = names.into_iter().zip(guesses).map(|(name, guess)| self.column(name, guess, whole));
        Ok((columns.collect(), start))
    }
}

/// A column of a table.
#[derive(Debug)]
struct Column {
    name: String,
    kind: ColumnType,
    /// The file is known to have no value of it.
    null: bool,
    /// Why it cannot be asked for.
    refused: Option<String>,
}

impl Column {
    fn is_read(&self) -> Result<&Column, String> {
        match &self.refused {
            Some(what) => Err(format!("column {} is {what}", self.name)),
            None => Ok(self),
        }
    }
}

fn no_row() -> Fault {
    Fault::Table(format!("no row ends within {} KiB: a schema says what columns there are", SAMPLE >> 10))
}

/// What is done with the rows of a file.
#[derive(Debug)]
pub struct Plan {
    /// How many fields a row of CSV has.
    pub(super) fields: usize,
    /// The columns that are asked for: their places in a row of CSV, names and types. Those of the condition
    /// come first.
    pub(super) slots: Vec<(usize, String, ColumnType)>,
    pub(super) asked: usize,
    pub(super) filter: Filter,
    /// Comparisons without which it does not hold, and whether they are all of it.
    pub(super) needed: (Vec<Needed>, bool),
    /// The slots that are answered, or that make groups.
    pub(super) output: Vec<usize>,
    pub(super) makings: Vec<Making>,
    /// Groups are answered, and not rows.
    pub(super) grouped: bool,
    /// What is answered.
    pub(super) answered: Vec<(String, ColumnType)>,
    pub(super) members: Members,
    /// The stream's schema.
    pub(super) schema: Vec<u8>,
    pub(super) start: u64,
    /// Where the rows of a file of Parquet lie.
    pub(super) parquet: Option<Arc<parquet::Layout>>,
}

impl Plan {
    fn bind(options: &SelectOptions, columns: Vec<Column>, start: u64) -> Result<Plan, String> {
        let mut slots = Slots::new(&columns);
        let mut slot = |name: &str| {
            let (at, column) = slots.named(name)?;
            Ok((at, Some(column.kind).filter(|_| !column.null)))
        };
        let filter = Filter::bind(&options.filter, &mut slot)?;
        let of_filter = options.filter.iter().filter_map(|term| match term {
            Term::Column(name) => Some(name),
            _ => None,
        });
        let asked = of_filter.collect::<std::collections::BTreeSet<_>>().len();
        let (mut output, mut answered) = (Vec::new(), Vec::new());
        let grouped = !options.aggregates.is_empty() || !options.group_by.is_empty();
        let wanted = match (grouped, options.columns.is_empty()) {
            (true, true) => &options.group_by,
            (true, false) => return Err("columns and groups cannot both be answered".to_owned()),
            (false, _) => &options.columns,
        };
        for name in wanted {
            let (at, column) = slots.named(name)?;
            output.push(at);
            answered.push((name.clone(), column.kind));
        }
        if !grouped && options.columns.is_empty() {
            columns.iter().try_for_each(|column| column.is_read().map(drop))?;
            // By their places: two may have one name.
            output = (0..columns.len()).map(|place| slots.at(place)).collect();
            answered = columns.iter().map(|column| (column.name.clone(), column.kind)).collect();
        }
        let mut makings = Vec::new();
        for aggregate in &options.aggregates {
            let (at, kind) = match &aggregate.column {
                Some(name) => {
                    let (at, column) = slots.named(name)?;
                    use nearside_near_data::Function::{Average, Sum};
                    let kind = match (aggregate.function, column.kind) {
                        (Sum | Average, _) if column.null => ColumnType::Int64,
                        (Sum | Average, ColumnType::Int64 | ColumnType::Float64) => column.kind,
                        (Sum | Average, kind) => {
                            return Err(format!("{aggregate}: {} is no number", kind.name()));
                        }
                        (_, kind) => kind,
                    };
                    (Some(at), kind)
                }
                None => (None, ColumnType::Int64),
            };
            let making = Making { function: aggregate.function, slot: at, kind };
            match &making.kinds()[..] {
                [sum, count] => {
                    answered.push((format!("{aggregate}.sum"), *sum));
                    answered.push((format!("{aggregate}.count"), *count));
                }
                kinds => answered.extend(kinds.iter().map(|kind| (aggregate.to_string(), *kind))),
            }
            makings.push(making);
        }
        let slots = slots.all;
        let members =
            slots.iter().enumerate().map(|(at, (_, name, kind))| (name.clone(), at, *kind)).collect();
        let mut schema = Vec::new();
        arrow::schema(answered.iter().map(|(name, kind)| (name.as_str(), *kind)), &mut schema);
        let (fields, members, parquet) = (columns.len(), Members::new(members), None);
        Ok(Plan {
            fields,
            slots,
            asked,
            needed: needed(&filter),
            filter,
            output,
            makings,
            grouped,
            answered,
            members,
            schema,
            start,
            parquet,
        })
    }

    /// Of Parquet, how many row groups are looked at, and how many there are.
    #[must_use]
    pub fn row_groups(&self) -> Option<(usize, usize)> {
        self.parquet.as_ref().map(|layout| layout.groups())
    }

    /// The byte of the file at which its rows begin.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn groups(&self) -> bool {
        self.grouped
    }

    /// Whether a short row is done with well within a slice.
    pub(super) fn is_narrow(&self) -> bool {
        const MOST: usize = 32;
        let made = self.output.len() + self.makings.len();
        self.slots.len() <= MOST && self.needed.0.len() <= MOST && made <= MOST
    }
}

/// Columns of a table as they come to be asked for.
struct Slots<'c> {
    columns: &'c [Column],
    /// Where a name stands first, and whether it stands there again.
    places: HashMap<&'c str, (usize, bool)>,
    /// Of each place, its slot.
    of: Vec<Option<usize>>,
    all: Vec<(usize, String, ColumnType)>,
}

impl<'c> Slots<'c> {
    fn new(columns: &'c [Column]) -> Slots<'c> {
        let mut places = HashMap::new();
        for (place, column) in columns.iter().enumerate() {
            places
                .entry(column.name.as_str())
                .and_modify(|(_, again)| *again = true)
                .or_insert((place, false));
        }
        Slots { columns, places, of: vec![None; columns.len()], all: Vec::new() }
    }

    fn named(&mut self, name: &str) -> Result<(usize, &'c Column), String> {
        match self.places.get(name) {
            None => Err(missing(name, self.columns)),
            Some((_, true)) => Err(format!("there is more than one column {name:?}")),
            Some((place, false)) => {
                let place = *place;
                let column = self.columns.get(place).ok_or_else(|| missing(name, self.columns))?;
                Ok((self.at(place), column.is_read()?))
            }
        }
    }

    fn at(&mut self, place: usize) -> usize {
        let (Some(slot), Some(column)) = (self.of.get_mut(place), self.columns.get(place)) else {
            return 0;
        };
        *slot.get_or_insert_with(|| {
            self.all.push((place, column.name.clone(), column.kind));
            self.all.len() - 1
        })
    }
}

/// Names that a message lists.
const LISTED: usize = 12;

fn missing(name: &str, columns: &[Column]) -> String {
    let mut known: Vec<&str> = columns.iter().take(LISTED).map(|column| column.name.as_str()).collect();
    if columns.len() > LISTED {
        known.push("...");
    }
    format!("there is no column {name:?} (there are: {})", known.join(", "))
}
