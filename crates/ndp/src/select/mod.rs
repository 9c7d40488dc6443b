//! Rows of CSV and JSON lines, chosen and put together: what [`SelectOptions`] ask of a file.
//!
//! How a file passes: its beginning says what columns there are and of which types ([`Selection::plan`]); its
//! bytes are cut into rows (`rows`), of which the fields that are asked for become values (`value`, `json`);
//! the condition is asked (`filter`); what it holds for goes into a batch (`arrow`) or a group (`groups`).
//! A [`Selector`] does so piece by piece, and stops where its caller has something to do ([`Step`]). Its
//! futures are pending when a slice is spent.
//!
//! It holds a row ([`MAX_ROW`]), a batch (at most what its caller has room for), the groups (some MiB), and
//! what regular expressions need (some MiB each, of which there are few).

mod arrow;
mod filter;
mod groups;
mod json;
mod like;
mod merge;
mod rows;
mod table;
mod value;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nearside_near_data::{ColumnType, MAX_FIELDS, RowFormat, SelectOptions, Term};

use crate::automaton::Automaton;
use crate::fuel::Fuel;
use filter::{Asking, Filter};
use groups::{Groups, Making};
use json::{Members, Parsed};
pub use merge::{Merge, MergeError};
use rows::{Cut, Rows};
pub use table::{NotArrow, Table, Value};
use value::{Cell, Guess, parse};

/// Longest row, in bytes.
pub const MAX_ROW: usize = 128 << 10;
/// Bytes of a file's beginning from which its columns and their types are known.
pub const SAMPLE: usize = 256 << 10;
/// Rows of it that are looked at for that.
pub const SAMPLE_ROWS: usize = 1000;
/// What is looked at within a slice: bytes of a file's beginning, and columns of a schema.
const LIGHT_HEAD: u64 = 4 << 10;
const LIGHT_SCHEMA: usize = 32;
/// Longer lines of JSON are read where nobody waits: reading one cannot be cut.
const LONG_LINE: usize = 4 << 10;
/// Most bytes of a batch, about.
const BATCH: usize = 64 << 10;
/// Most bytes that a row's values have: JSON writes a number's digits out, and a column is answered once.
const MAX_ANSWER: usize = 8 * MAX_ROW;
/// A class of characters counts for about its ranges: a bound on what is read before anything is compiled.
const LONGEST_REGEX: usize = 1000;

/// Why a file is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It has no such columns, or other ones; in a sentence.
    #[error("{0}")]
    Table(String),
    /// A row is not as the others; which, and why.
    #[error("{0}")]
    Row(String),
    /// The answer passes a bound; which.
    #[error("{0}")]
    Limit(String),
}

impl Fault {
    fn wide() -> Fault {
        Fault::Row(format!("longer than {} KiB", MAX_ROW >> 10))
    }
}

/// A selection, compiled once for a command.
#[derive(Debug)]
pub struct Selection {
    options: SelectOptions,
    /// The types that the schema gives.
    given: HashMap<String, ColumnType>,
    regexes: Vec<Automaton>,
}

impl Selection {
    /// Compiles its regular expressions. Time and memory are bounded, by tenths of a second and tens of MiB.
    ///
    /// # Errors
    /// An expression that is not valid or too large; for the user.
    pub fn compile(options: SelectOptions) -> Result<Selection, String> {
        if let Some(name) = options.named_twice() {
            return Err(format!("the column {name:?} is named twice"));
        }
        let mut regexes = Vec::new();
        for term in &options.filter {
            let Term::Regex(pattern) = term else { continue };
            if pattern.len() > LONGEST_REGEX {
                return Err(format!("a regular expression of a condition has at most {LONGEST_REGEX} bytes"));
            }
            let parsed = regex_syntax::ParserBuilder::new().nest_limit(100).build().parse(pattern);
            let hir = parsed.map_err(|error| error.to_string())?;
            regexes.push(Automaton::new(&hir, false)?);
        }
        let given = options.schema.iter().rev().cloned().collect();
        Ok(Selection { options, given, regexes })
    }

    /// Whether [`compile`](Selection::compile) takes no longer than a slice.
    #[must_use]
    pub fn is_cheap(options: &SelectOptions) -> bool {
        !options.filter.iter().any(|term| matches!(term, Term::Regex(_)))
    }

    /// What it was compiled from.
    #[must_use]
    pub fn options(&self) -> &SelectOptions {
        &self.options
    }

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
        };
        Plan::bind(options, columns, start).map_err(Fault::Table)
    }

    /// A column by its name and by what its values in the head were like. Where that is the whole file, a
    /// column without a value is null, whatever its type.
    fn column(&self, name: String, guess: Guess, whole: bool) -> Column {
        let given = self.given.get(&name);
        let null = given.is_none() && whole && guess.is_none();
        Column { kind: given.map_or_else(|| guess.kind(), |kind| *kind), null, name }
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
                columns.push(Column { name: name.clone(), kind: *kind, null: false });
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
            match rows.cut(&mut rest, end) {
                Ok(Cut::More) if !whole => break,
                Err(fault) if header && names.is_none() => {
                    return Err(Fault::Table(format!("the row of names: {fault}")));
                }
                // What is wrong with a row is said when its turn comes.
                Ok(Cut::End) | Err(_) => break,
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
}

fn no_row() -> Fault {
    Fault::Table(format!("no row ends within {} KiB: a schema says what columns there are", SAMPLE >> 10))
}

/// What is done with the rows of a file.
#[derive(Debug)]
pub struct Plan {
    /// How many fields a row of CSV has.
    fields: usize,
    /// The columns that are asked for: their places in a row of CSV, names and types. Those of the condition
    /// come first.
    slots: Vec<(usize, String, ColumnType)>,
    asked: usize,
    filter: Filter,
    /// The slots that are answered, or that make groups.
    output: Vec<usize>,
    makings: Vec<Making>,
    /// Groups are answered, and not rows.
    grouped: bool,
    /// What is answered.
    answered: Vec<(String, ColumnType)>,
    members: Members,
    /// The stream's schema.
    schema: Vec<u8>,
    start: u64,
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
        let (fields, members) = (columns.len(), Members::new(members));
        Ok(Plan { fields, slots, asked, filter, output, makings, grouped, answered, members, schema, start })
    }

    /// The byte of the file at which its rows begin.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    fn groups(&self) -> bool {
        self.grouped
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
                Ok((self.at(place), column))
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

/// Where a selection begins, or goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Byte of the file at which a row begins; 0: at the first.
    pub offset: u64,
    /// Rows before it.
    pub row: u64,
    /// Rows of them that were answered, or groups.
    pub found: u64,
}

/// What a [`Selector`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// The next piece, or the end.
    More,
    /// Nothing: all is answered but what is left for the [end](Selector::end).
    Done,
    /// A batch is [there](Selector::batch), to be taken.
    Batch,
    /// A line is there that takes long to read ([`Selector::long`]).
    Long,
}

/// A line that takes long to read, to be read elsewhere.
#[derive(Debug)]
pub struct Long {
    plan: Arc<Plan>,
    line: Vec<u8>,
    row: Parsed,
    read: Result<(), String>,
}

impl Long {
    /// Reads it.
    #[must_use]
    pub fn read(mut self) -> Long {
        self.read = self.plan.members.read(&self.line, &mut self.row, self.plan.slots.len());
        self
    }
}

/// What becomes of the row that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// None is.
    None,
    /// It has to be looked at; a long line has been read.
    Cut { read: bool },
    /// It is chosen, and waits for room.
    Chosen,
}

/// Selects from files, one after the other.
pub struct Selector {
    selection: Arc<Selection>,
    asking: Asking,
    plan: Option<Arc<Plan>>,
    rows: Rows,
    row: Row,
    parsed: Parsed,
    /// Where the row at hand began, and the next begins.
    here: Place,
    next: u64,
    /// Where the batch began.
    first: Place,
    columns: Vec<arrow::Column>,
    weight: usize,
    in_batch: usize,
    /// Rows passed over since the last batch.
    bad: u64,
    /// They were counted with groups that were answered before.
    counted: bool,
    groups: Groups,
    group: Vec<Cell>,
    ended: bool,
    /// A fault has been said: what it has is no answer.
    failed: bool,
    stream: Vec<u8>,
    fuel: Fuel,
}

impl Selector {
    /// A selector without a file.
    #[must_use]
    pub fn new(selection: &Arc<Selection>) -> Selector {
        Selector {
            asking: Asking::new(&selection.regexes),
            rows: Rows::new(selection.options.format, true),
            selection: Arc::clone(selection),
            plan: None,
            row: Row::None,
            parsed: Parsed::default(),
            here: Place::default(),
            next: 0,
            first: Place::default(),
            columns: Vec::new(),
            weight: 0,
            in_batch: 0,
            bad: 0,
            counted: false,
            groups: Groups::new(),
            group: Vec::new(),
            ended: false,
            failed: false,
            stream: Vec::new(),
            fuel: Fuel::default(),
        }
    }

    /// Units of a slice from now on.
    pub fn set_slice(&mut self, units: u64) {
        self.fuel.set_slice(units);
    }

    /// The most units between two pauses, and all of them.
    #[must_use]
    pub fn spent(&self) -> (u64, u64) {
        self.fuel.spent()
    }

    /// What it selects.
    #[must_use]
    pub fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }

    /// Begins with a file, at a place that [`stopped`](Selector::stopped) gave.
    pub fn begin(&mut self, plan: Arc<Plan>, at: Place) {
        let start = at.offset <= plan.start && plan.start == 0;
        self.rows = Rows::new(self.selection.options.format, start);
        self.rows.set_skips(self.selection.options.skip_bad);
        self.counted = plan.groups() && at.found > 0;
        self.columns = plan.answered.iter().map(|(_, kind)| arrow::Column::new(*kind)).collect();
        self.groups.clear();
        self.here = Place { offset: at.offset.max(plan.start), ..at };
        if plan.groups() {
            // Groups are made anew, and those that were answered are left out.
            self.here = Place { offset: plan.start, row: 0, found: at.found };
        }
        (self.next, self.first) = (self.here.offset, self.here);
        (self.row, self.in_batch, self.weight, self.bad) = (Row::None, 0, 0, 0);
        (self.ended, self.failed) = (false, false);
        self.plan = Some(plan);
    }

    /// Which byte it wants first.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.here.offset
    }

    /// Where another selector can go on: before the batch that is there.
    #[must_use]
    pub fn stopped(&self) -> Place {
        self.first
    }

    /// Takes bytes off the front of a piece; `room` is the most bytes that a batch may have.
    ///
    /// # Errors
    /// [`Fault`]: a row is not as the others, or a bound is passed.
    pub async fn feed(&mut self, piece: &mut &[u8], room: usize) -> Result<Step, Fault> {
        self.go(piece, false, room).await
    }

    /// After the last piece: until it is [done](Step::Done).
    ///
    /// # Errors
    /// Those of [`feed`](Selector::feed).
    pub async fn end(&mut self, room: usize) -> Result<Step, Fault> {
        let Some(plan) = self.plan.clone() else { return Ok(Step::Done) };
        if !self.ended && !self.failed {
            match self.go(&mut &[][..], true, room).await? {
                Step::Done | Step::More => self.ended = true,
                step => return Ok(step),
            }
            if plan.groups() && plan.output.is_empty() {
                self.groups.at_least_one(&plan.makings)?;
            }
            if let Err(fault) = self.sums(&plan).await {
                self.failed = true;
                return Err(fault);
            }
            if plan.groups() || !self.has_batch() {
                self.first = Place { found: self.first.found, ..self.here };
            }
        }
        if self.failed || !plan.groups() {
            return Ok(Step::Done);
        }
        let room = room.saturating_sub(plan.schema.len() + arrow::overhead(self.columns.len())).min(BATCH);
        while (self.first.found as usize).saturating_add(self.in_batch) < self.groups.len() {
            let group = self.first.found as usize + self.in_batch;
            self.groups.row(group, &plan.makings, &mut self.group)?;
            let weight: usize = self.columns.iter().zip(&self.group).map(|(c, cell)| c.weight(*cell)).sum();
            self.bounded(weight)?;
            if self.in_batch > 0 && self.weight + weight > room {
                return Ok(Step::Batch);
            }
            self.fuel.spend(50).await;
            for (column, cell) in self.columns.iter_mut().zip(&self.group) {
                self.fuel.spend(10 + bytes_of(column.weight(*cell))).await;
                column.push(*cell, self.groups.text());
            }
            (self.in_batch, self.weight) = (self.in_batch + 1, self.weight + weight);
        }
        Ok(Step::Done)
    }

    /// Looks at all sums before a group is answered.
    async fn sums(&mut self, plan: &Plan) -> Result<(), Fault> {
        for group in 0..self.groups.len() {
            self.groups.sums(group, &plan.makings)?;
            self.fuel.spend(5 + 5 * plan.makings.len() as u64).await;
        }
        Ok(())
    }

    async fn go(&mut self, piece: &mut &[u8], end: bool, room: usize) -> Result<Step, Fault> {
        let Some(plan) = self.plan.clone() else { return Ok(Step::Done) };
        let plan = &*plan;
        let limit = self.selection.options.limit.unwrap_or(u64::MAX);
        loop {
            if !plan.groups() && self.here_found() >= limit {
                return Ok(Step::Done);
            }
            match self.row {
                Row::None => {
                    let before = piece.len();
                    let cut = self.rows.cut(piece, end).map_err(|fault| self.named(fault, None));
                    let cut = cut.inspect_err(|_| self.failed = true)?;
                    let taken = before - piece.len();
                    self.next += taken as u64;
                    self.fuel.spend(20 + 4 * taken as u64).await;
                    match cut {
                        Cut::More => return Ok(Step::More),
                        Cut::Going => {}
                        Cut::End => return Ok(Step::Done),
                        Cut::Row => self.row = Row::Cut { read: false },
                        Cut::Bad => {
                            self.count_bad();
                            self.pass();
                        }
                    }
                }
                Row::Cut { read: false }
                    if matches!(self.rows, Rows::Json(_)) && self.rows.text().len() > LONG_LINE =>
                {
                    return Ok(Step::Long);
                }
                Row::Cut { read } => {
                    let chosen = match self.look(plan, read).await {
                        Ok(chosen) => chosen,
                        Err(Fault::Row(_)) if self.selection.options.skip_bad => {
                            self.count_bad();
                            false
                        }
                        Err(fault) => {
                            self.failed = true;
                            return Err(fault);
                        }
                    };
                    if chosen {
                        self.row = Row::Chosen;
                    } else {
                        self.pass();
                    }
                }
                Row::Chosen if plan.groups() => {
                    let row = (&self.parsed.cells[..], text_of(&self.rows, &self.parsed));
                    let added = self.groups.add(&plan.output, &plan.makings, row, &mut self.fuel).await;
                    added.inspect_err(|_| self.failed = true)?;
                    self.fuel.spend(40 + 20 * (plan.output.len() + plan.makings.len()) as u64).await;
                    self.pass();
                }
                Row::Chosen => {
                    if !self.has_room(plan, room)? {
                        return Ok(Step::Batch);
                    }
                    self.keep(plan).await;
                    self.pass();
                }
            }
        }
    }

    fn here_found(&self) -> u64 {
        self.first.found.saturating_add(self.in_batch as u64)
    }

    /// The row at hand is done with.
    fn pass(&mut self) {
        self.row = Row::None;
        self.here.row += 1;
        self.here.offset = self.next;
    }

    /// The row at hand is passed over: once in all answers together.
    fn count_bad(&mut self) {
        if !self.has_batch() && !self.plan.as_ref().is_some_and(|plan| plan.groups()) {
            // What is not answered with this batch is met again.
            self.first = Place { found: self.first.found, ..self.here };
        }
        self.bad += u64::from(!self.counted);
    }

    /// Names a row, and a column of it, in what is wrong with it.
    fn named(&self, fault: Fault, column: Option<&str>) -> Fault {
        let Fault::Row(what) = fault else { return fault };
        let (row, byte) = (self.here.row + 1, self.here.offset);
        Fault::Row(match column {
            Some(column) => format!("row {row} (byte {byte}), column {column}: {what}"),
            None => format!("row {row} (byte {byte}): {what}"),
        })
    }

    /// Reads the values of the row at hand, and asks the condition.
    async fn look(&mut self, plan: &Plan, read: bool) -> Result<bool, Fault> {
        if let Rows::Json(_) = self.rows {
            if !read {
                let line = self.rows.text();
                let read = plan.members.read(line, &mut self.parsed, plan.slots.len());
                let units = 100 + 4 * line.len() as u64;
                self.fuel.spend(units).await;
                read.map_err(|what| self.named(Fault::Row(what), None))?;
            }
        } else {
            let fields = self.rows.fields();
            if fields != plan.fields {
                let what = format!("{fields} fields, and not {}", plan.fields);
                return Err(self.named(Fault::Row(what), None));
            }
            self.parsed.cells.clear();
            self.parsed.cells.resize(plan.slots.len(), Cell::Null);
        }
        self.values(plan, 0, plan.asked).await?;
        if !plan.filter.is_empty() {
            let Selector { asking, selection, parsed, rows, fuel, .. } = self;
            let row = (&parsed.cells[..], text_of(rows, parsed));
            if !asking.holds(&plan.filter, &selection.regexes, row, fuel).await {
                return Ok(false);
            }
        }
        self.values(plan, plan.asked, plan.slots.len()).await?;
        Ok(true)
    }

    /// Reads some of the columns.
    async fn values(&mut self, plan: &Plan, from: usize, to: usize) -> Result<(), Fault> {
        for (at, (place, name, kind)) in plan.slots.iter().enumerate().take(to).skip(from) {
            let cell = match &self.rows {
                Rows::Json(_) => self.parsed.cells.get(at).copied().unwrap_or_default(),
                Rows::Csv(_) => {
                    let (from, to) = self.rows.field(*place);
                    let text = self.rows.text().get(from..to).unwrap_or_default();
                    match kind {
                        _ if text.is_empty() => Cell::Null,
                        ColumnType::Utf8 if std::str::from_utf8(text).is_ok() => Cell::text(from, to),
                        kind => parse(*kind, text).unwrap_or(Cell::bad(from, to)),
                    }
                }
            };
            if let Cell::Bad(from, to) = cell {
                let text = text_of(&self.rows, &self.parsed).get(from as usize..to as usize);
                let what = format!("{} is no {}", shown(text.unwrap_or_default()), kind.name());
                return Err(self.named(Fault::Row(what), Some(name)));
            }
            if let Some(to) = self.parsed.cells.get_mut(at) {
                *to = cell;
            }
            if !self.fuel.take(15) {
                self.fuel.pause().await;
            }
        }
        Ok(())
    }

    /// Whether the row at hand has room beside what is in the batch. The first is answered alone if need be.
    fn has_room(&mut self, plan: &Plan, room: usize) -> Result<bool, Fault> {
        let cell = |slot: &usize| self.parsed.cells.get(*slot).copied().unwrap_or_default();
        let weight: usize = self.columns.iter().zip(&plan.output).map(|(c, slot)| c.weight(cell(slot))).sum();
        self.bounded(weight)?;
        let room = room.saturating_sub(plan.schema.len() + arrow::overhead(self.columns.len())).min(BATCH);
        Ok(self.in_batch == 0 || self.weight + weight <= room && self.in_batch < arrow::MAX_ROWS)
    }

    /// A row is answered in one piece, for which a command has room.
    fn bounded(&mut self, weight: usize) -> Result<(), Fault> {
        if weight <= MAX_ANSWER {
            return Ok(());
        }
        self.failed = true;
        Err(Fault::Limit(format!("a row's values have more than {} KiB", MAX_ANSWER >> 10)))
    }

    /// Adds the row at hand to the batch.
    async fn keep(&mut self, plan: &Plan) {
        if !self.has_batch() {
            self.first = Place { found: self.first.found, ..self.here };
        }
        let text = text_of(&self.rows, &self.parsed);
        for (column, slot) in self.columns.iter_mut().zip(&plan.output) {
            let cell = self.parsed.cells.get(*slot).copied().unwrap_or_default();
            let weight = column.weight(cell);
            self.fuel.spend(10 + bytes_of(weight)).await;
            column.push(cell, text);
            self.weight += weight;
        }
        self.in_batch += 1;
        self.fuel.spend(10).await;
    }

    /// The line that takes long.
    pub fn long(&mut self) -> Option<Long> {
        let line = self.rows.text().to_vec();
        let row = std::mem::take(&mut self.parsed);
        Some(Long { plan: self.plan.clone()?, line, row, read: Ok(()) })
    }

    /// Takes it back, read.
    ///
    /// # Errors
    /// [`Fault::Row`]: it is no object.
    pub fn take_long(&mut self, long: Long) -> Result<(), Fault> {
        self.parsed = long.row;
        self.row = Row::Cut { read: true };
        match long.read {
            Ok(()) => Ok(()),
            Err(_) if self.selection.options.skip_bad => {
                self.count_bad();
                self.pass();
                Ok(())
            }
            Err(what) => {
                self.failed = true;
                Err(self.named(Fault::Row(what), None))
            }
        }
    }

    /// The batch that is there, which may have no rows: how many, how many were passed over since the one
    /// before, and a stream of Arrow's.
    pub fn batch(&mut self) -> (u64, u64, &[u8]) {
        self.stream.clear();
        if let Some(plan) = &self.plan {
            self.stream.extend_from_slice(&plan.schema);
        }
        arrow::batch(&self.columns, self.in_batch, &mut self.stream);
        // Those that come next wait for it.
        let _spent = self.fuel.take(bytes_of(self.stream.len()));
        (self.in_batch as u64, self.bad, &self.stream)
    }

    /// Whether there is a row in it, or one was passed over.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.in_batch > 0 || self.bad > 0
    }

    /// Whether what it has is no answer.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The batch was taken: the next begins.
    pub fn taken(&mut self) {
        self.columns.iter_mut().for_each(arrow::Column::clear);
        self.first.found += self.in_batch as u64;
        if !self.plan.as_ref().is_some_and(|plan| plan.groups()) {
            self.first = Place { found: self.first.found, ..self.here };
        }
        (self.in_batch, self.weight, self.bad) = (0, 0, 0);
    }
}

/// Units of copying so many bytes.
fn bytes_of(bytes: usize) -> u64 {
    bytes as u64 / 32
}

fn text_of<'r>(rows: &'r Rows, parsed: &'r Parsed) -> &'r [u8] {
    match rows {
        Rows::Csv(_) => rows.text(),
        Rows::Json(_) => &parsed.text,
    }
}

/// The beginning of a text, quoted.
fn shown(text: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(text.get(..MOST + 4).unwrap_or(text));
    let (cut, more) = match text.char_indices().nth(MOST) {
        Some((at, _)) => (text.get(..at).unwrap_or_default(), "..."),
        None => (&*text, ""),
    };
    format!("{cut:?}{more}")
}
