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
/// Longer lines of JSON are read where nobody waits: reading one cannot be cut.
const LONG_LINE: usize = 4 << 10;
/// Most bytes of a batch, about.
const BATCH: usize = 64 << 10;
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
    regexes: Vec<Automaton>,
}

impl Selection {
    /// Compiles its regular expressions. Time and memory are bounded, by tenths of a second and tens of MiB.
    ///
    /// # Errors
    /// An expression that is not valid or too large; for the user.
    pub fn compile(options: SelectOptions) -> Result<Selection, String> {
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
        Ok(Selection { options, regexes })
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

    /// Makes ready for a file that begins with `head`, of which that may be all. It takes milliseconds for a
    /// head of [`SAMPLE`] bytes, and cannot be cut.
    ///
    /// # Errors
    /// [`Fault::Table`]: a column is not there or of another type than the condition or an aggregate needs.
    pub fn plan(&self, head: &[u8], whole: bool) -> Result<Plan, Fault> {
        let options = &self.options;
        let (columns, start) = match options.format {
            RowFormat::JsonLines => (self.json_columns(head, whole), 0),
            RowFormat::Csv { header, .. } => self.csv_columns(head, whole, header)?,
        };
        Plan::bind(options, columns, start).map_err(Fault::Table)
    }

    fn typed(&self, name: &str, guess: Guess) -> ColumnType {
        let given = self.options.schema.iter().find(|(given, _)| given == name);
        given.map_or_else(|| guess.kind(), |(_, kind)| *kind)
    }

    fn json_columns(&self, head: &[u8], whole: bool) -> Vec<(String, ColumnType)> {
        let mut lines = head;
        if !whole && let Some(end) = memchr::memrchr(b'\n', head) {
            lines = head.get(..end).unwrap_or_default();
        }
        let mut seen: Vec<(String, Guess)> = Vec::new();
        for line in lines.split(|byte| *byte == b'\n').take(SAMPLE_ROWS) {
            json::guess(line, &mut seen, MAX_FIELDS);
        }
        let mut columns: Vec<_> = seen
            .into_iter()
            .map(|(name, guess)| (self.typed(&name, guess), name))
            .map(|(k, n)| (n, k))
            .collect();
        for (name, kind) in &self.options.schema {
            if columns.len() < MAX_FIELDS && !columns.iter().any(|(known, _)| known == name) {
                columns.push((name.clone(), *kind));
            }
        }
        columns
    }

    /// The columns, and where the rows begin.
    fn csv_columns(
        &self,
        head: &[u8],
        whole: bool,
        header: bool,
    ) -> Result<(Vec<(String, ColumnType)>, u64), Fault> {
        let (mut rows, mut rest, mut start) = (Rows::new(self.options.format, true), head, 0);
        let (mut names, mut guesses): (Option<Vec<String>>, Vec<Guess>) = (None, Vec::new());
        let mut seen = 0;
        while seen < SAMPLE_ROWS {
            let end = whole && rest.is_empty();
            match rows.cut(&mut rest, end) {
                Ok(Cut::More) if !whole => break,
                // What is wrong with a row is said when its turn comes.
                Ok(Cut::End) | Err(_) => break,
                Ok(Cut::More | Cut::Going) => continue,
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
                continue;
            }
            guesses.resize(guesses.len().max(rows.fields()), Guess::default());
            // Rows with another number of fields say so when their turn comes.
            for (nth, guess) in guesses.iter_mut().enumerate().take(rows.fields()) {
                guess.text(text(nth));
            }
            seen += 1;
        }
        let schema = &self.options.schema;
        let names = match names {
            Some(names) => names,
            None if header && schema.is_empty() => {
                return Err(Fault::Table(match whole {
                    true => "there is no row of names".to_owned(),
                    false => format!("no row ends within {} KiB", SAMPLE >> 10),
                }));
            }
            None if !schema.is_empty() => schema.iter().map(|(name, _)| name.clone()).collect(),
            None => (1..=guesses.len()).map(|nth| format!("column_{nth}")).collect(),
        };
        if names.len() > MAX_FIELDS {
            return Err(Fault::Table(format!("a row has more than {MAX_FIELDS} fields")));
        }
        guesses.resize(names.len(), Guess::default());
        let columns = names.into_iter().zip(guesses).map(|(name, guess)| {
            let kind = self.typed(&name, guess);
            (name, kind)
        });
        Ok((columns.collect(), start))
    }
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
    fn bind(options: &SelectOptions, columns: Vec<(String, ColumnType)>, start: u64) -> Result<Plan, String> {
        let mut slots: Vec<(usize, String, ColumnType)> = Vec::new();
        let mut slot = |name: &str| -> Result<(usize, ColumnType), String> {
            if let Some(at) = slots.iter().position(|(_, known, _)| known == name) {
                return Ok((at, slots.get(at).map_or(ColumnType::Utf8, |(.., kind)| *kind)));
            }
            let found = columns.iter().enumerate().find(|(_, (column, _))| column == name);
            let Some((place, (_, kind))) = found else { return Err(missing(name, &columns)) };
            slots.push((place, name.to_owned(), *kind));
            Ok((slots.len() - 1, *kind))
        };
        let filter = Filter::bind(&options.filter, &mut slot)?;
        let of_filter = options.filter.iter().filter_map(|term| match term {
            Term::Column(name) => Some(name),
            _ => None,
        });
        let asked = of_filter.collect::<std::collections::BTreeSet<_>>().len();
        let (mut output, mut answered) = (Vec::new(), Vec::new());
        let grouped = !options.aggregates.is_empty() || !options.group_by.is_empty();
        let all: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        let wanted = match (grouped, options.columns.is_empty()) {
            (true, true) => &options.group_by,
            (true, false) => return Err("columns and groups cannot both be answered".to_owned()),
            (false, true) => &all,
            (false, false) => &options.columns,
        };
        for name in wanted {
            let (at, kind) = slot(name)?;
            output.push(at);
            answered.push((name.clone(), kind));
        }
        let mut makings = Vec::new();
        for aggregate in &options.aggregates {
            let (at, kind) = match &aggregate.column {
                Some(name) => slot(name).map(|(at, kind)| (Some(at), kind))?,
                None => (None, ColumnType::Int64),
            };
            use nearside_near_data::Function::{Average, Sum};
            if matches!(aggregate.function, Sum | Average)
                && !matches!(kind, ColumnType::Int64 | ColumnType::Float64)
            {
                return Err(format!("{aggregate}: {} is no number", kind.name()));
            }
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

/// Names that a message lists.
const LISTED: usize = 12;

fn missing(name: &str, columns: &[(String, ColumnType)]) -> String {
    let mut known: Vec<&str> = columns.iter().take(LISTED).map(|(name, _)| name.as_str()).collect();
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
            if plan.groups() {
                self.first = self.here;
            }
        }
        if self.failed || !plan.groups() {
            return Ok(Step::Done);
        }
        let room = room.min(BATCH).saturating_sub(plan.schema.len() + arrow::overhead(self.columns.len()));
        while (self.first.found as usize).saturating_add(self.in_batch) < self.groups.len() {
            let group = self.first.found as usize + self.in_batch;
            self.groups.row(group, &plan.makings, &mut self.group)?;
            let weight: usize = self.columns.iter().zip(&self.group).map(|(c, cell)| c.weight(*cell)).sum();
            if self.in_batch > 0 && self.weight + weight > room {
                return Ok(Step::Batch);
            }
            for (column, cell) in self.columns.iter_mut().zip(&self.group) {
                column.push(*cell, self.groups.text());
            }
            (self.in_batch, self.weight) = (self.in_batch + 1, self.weight + weight);
            self.fuel.spend(50 + weight as u64).await;
        }
        Ok(Step::Done)
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
                            self.bad += 1;
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
                    let added = self.groups.add(&plan.output, &plan.makings, row);
                    added.inspect_err(|_| self.failed = true)?;
                    self.fuel.spend(40 + 20 * (plan.output.len() + plan.makings.len()) as u64).await;
                    self.pass();
                }
                Row::Chosen => {
                    if !self.keep(plan, room) {
                        return Ok(Step::Batch);
                    }
                    self.fuel.spend(10 + 10 * plan.output.len() as u64).await;
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
        self.values(plan, 0, plan.asked)?;
        self.fuel.spend(15 * plan.slots.len() as u64).await;
        if !plan.filter.is_empty() {
            let Selector { asking, selection, parsed, rows, fuel, .. } = self;
            let row = (&parsed.cells[..], text_of(rows, parsed));
            if !asking.holds(&plan.filter, &selection.regexes, row, fuel).await {
                return Ok(false);
            }
        }
        self.values(plan, plan.asked, plan.slots.len())?;
        Ok(true)
    }

    /// Reads some of the columns.
    fn values(&mut self, plan: &Plan, from: usize, to: usize) -> Result<(), Fault> {
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
        }
        Ok(())
    }

    /// Adds the row at hand to the batch; `false`: it has no room beside what is there.
    fn keep(&mut self, plan: &Plan, room: usize) -> bool {
        let cell = |slot: &usize| self.parsed.cells.get(*slot).copied().unwrap_or_default();
        let weight: usize = self.columns.iter().zip(&plan.output).map(|(c, slot)| c.weight(cell(slot))).sum();
        let room = room.min(BATCH).saturating_sub(plan.schema.len() + arrow::overhead(self.columns.len()));
        if self.in_batch > 0 && (self.weight + weight > room || self.in_batch == arrow::MAX_ROWS) {
            return false;
        }
        if self.in_batch == 0 {
            self.first = Place { found: self.first.found, ..self.here };
        }
        let text = text_of(&self.rows, &self.parsed);
        for (column, slot) in self.columns.iter_mut().zip(&plan.output) {
            column.push(cell(slot), text);
        }
        (self.in_batch, self.weight) = (self.in_batch + 1, self.weight + weight);
        true
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
                self.bad += 1;
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
