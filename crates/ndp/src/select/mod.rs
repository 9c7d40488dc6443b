//! Rows of CSV, JSON lines and Parquet, chosen and put together: what [`SelectOptions`] ask of a file.
//!
//! How a file passes: its beginning says what columns there are, of which types ([`Selection::plan`]), or a
//! footer does ([`Selection::plan_of`]); its bytes are cut into rows (`rows`, `parquet`), of which the fields
//! that are asked for become values (`value`, `json`); the condition is asked (`filter`); what it holds for
//! goes into a batch (`arrow`) or a group (`groups`). A [`Selector`] does so piece by piece, and stops where
//! its caller has something to do ([`Step`]). Its futures are pending when a slice is spent.
//!
//! It holds a row ([`MAX_ROW`]), a batch (at most what its caller has room for), the groups (some MiB), what
//! regular expressions need (some MiB each, of which there are few), and pages of Parquet (`parquet`).

mod arrow;
mod filter;
mod groups;
mod json;
mod like;
mod merge;
mod needed;
pub mod parquet;
mod plan;
mod rows;
mod table;
mod value;

use std::collections::HashMap;
use std::sync::Arc;

use nearside_near_data::{ColumnType, MAX_REGEX_NEST, MAX_REGEX_TEXT, SelectOptions, Term};

use crate::automaton::Automaton;
use crate::fuel::Fuel;
use filter::Asking;
use groups::Groups;
use json::Parsed;
pub use merge::{Merge, MergeError};
use needed::{Needed, hold};
pub use plan::{Plan, SAMPLE, SAMPLE_ROWS};
use rows::{Cut, Rows};
pub use table::{NotArrow, Stored, Table, Value};
use value::{Cell, parse};

/// Longest row, in bytes.
pub const MAX_ROW: usize = 128 << 10;
/// Longer lines of JSON are read where nobody waits: reading one cannot be cut.
const LONG_LINE: usize = 4 << 10;
/// Bytes of texts of a row that is looked at in one step.
const SHORT_TEXTS: usize = 512;
/// Most bytes of a batch, about.
const BATCH: usize = 64 << 10;
/// Most bytes that a row's values have: JSON writes a number's digits out, and a column is answered once.
const MAX_ANSWER: usize = 8 * MAX_ROW;

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
            if pattern.len() > MAX_REGEX_TEXT {
                return Err(format!(
                    "a regular expression of a condition has at most {MAX_REGEX_TEXT} bytes"
                ));
            }
            let parsed = regex_syntax::ParserBuilder::new().nest_limit(MAX_REGEX_NEST).build().parse(pattern);
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
    /// Something takes long, and cannot be cut ([`Selector::long`]).
    Long,
}

/// What takes long, to be done elsewhere.
pub struct Long(Work);

enum Work {
    /// A line that is read.
    Line { plan: Arc<Plan>, line: Vec<u8>, row: Parsed, read: Result<(), String> },
    /// A step of Parquet's.
    Pages(Box<parquet::File>, Result<(), Fault>),
}

impl Long {
    /// Does it.
    #[must_use]
    pub fn read(self) -> Long {
        Long(match self.0 {
            Work::Line { plan, line, mut row, .. } => {
                let read = plan.members.read(&line, &mut row, plan.slots.len());
                Work::Line { plan, line, row, read }
            }
            Work::Pages(mut file, _) => {
                let done = file.work();
                Work::Pages(file, done)
            }
        })
    }
}

/// What becomes of the row that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// None is.
    None,
    /// It has to be looked at; a long line has been read.
    Cut { read: bool },
    /// The condition holds for it.
    Held,
    /// Its values are there, and it waits for room.
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

/// What a selector held of a file, to be given back.
pub struct Left {
    _rows: Rows,
    _plan: Option<Arc<Plan>>,
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
        let from = if plan.groups() { 0 } else { at.row };
        self.rows = match &plan.parquet {
            Some(layout) => Rows::Parquet(Box::new(parquet::File::new(layout, from))),
            None => Rows::new(self.selection.options.format, start),
        };
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

    /// Is done with the file. What it held of one of Parquet takes its time to give back.
    pub fn leave(&mut self) -> Option<Left> {
        if !matches!(self.rows, Rows::Parquet(_)) {
            return None;
        }
        let none = Rows::new(self.selection.options.format, true);
        Some(Left { _rows: std::mem::replace(&mut self.rows, none), _plan: self.plan.take() })
    }

    /// Which byte it wants first.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.here.offset
    }

    /// Of Parquet, which bytes of the file it wants next, from where to where, one after the other.
    #[must_use]
    pub fn wants(&self) -> Vec<(u64, u64)> {
        match &self.rows {
            Rows::Parquet(file) => file.wants(),
            Rows::Csv(_) | Rows::Json(_) => Vec::new(),
        }
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
                    let cut = self.rows.cut(piece, end, &mut self.fuel).map_err(|fault| match &self.rows {
                        // It says where in the file that is.
                        Rows::Parquet(_) => fault,
                        _ => self.named(fault, None),
                    });
                    let cut = cut.inspect_err(|_| self.failed = true)?;
                    let taken = before - piece.len();
                    self.next += taken as u64;
                    let units = match &mut self.rows {
                        Rows::Parquet(file) if cut != Cut::End => {
                            self.here.row = file.number();
                            20 + bytes_of(taken)
                        }
                        _ => 20 + 4 * taken as u64,
                    };
                    self.fuel.spend(units).await;
                    match cut {
                        Cut::More => return Ok(Step::More),
                        Cut::Going => {}
                        Cut::End => return Ok(Step::Done),
                        Cut::Long => return Ok(Step::Long),
                        Cut::Row if self.at_once(plan, piece)? => self.pass(),
                        Cut::Row => self.row = Row::Cut { read: false },
                        Cut::Bad => self.pass_bad(),
                    }
                }
                Row::Cut { read: false }
                    if matches!(self.rows, Rows::Json(_)) && self.rows.text().len() > LONG_LINE =>
                {
                    return Ok(Step::Long);
                }
                Row::Cut { read } => {
                    let holds = self.look(plan, read).await;
                    self.follow(holds, Row::Held)?;
                }
                Row::Held => {
                    if let Rows::Parquet(file) = &mut self.rows {
                        let before = piece.len();
                        let cut = file.others(piece, &mut self.fuel).inspect_err(|_| self.failed = true)?;
                        self.fuel.spend(bytes_of(before - piece.len())).await;
                        match cut {
                            Cut::Row => {}
                            Cut::Going => continue,
                            Cut::Long => return Ok(Step::Long),
                            _ => return Ok(Step::More),
                        }
                    }
                    let read = self.values(plan, plan.asked, plan.slots.len()).await;
                    self.follow(read.map(|()| true), Row::Chosen)?;
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

    /// Does all that there is to do of a row, if it is short and at hand: most are not wanted, others go to
    /// their groups. Whether it has: any other row goes its way in steps.
    fn at_once(&mut self, plan: &Plan, piece: &mut &[u8]) -> Result<bool, Fault> {
        let done = match self.rows {
            _ if !plan.is_narrow() => Ok(false),
            Rows::Csv(_) => self.csv_at_once(plan),
            Rows::Parquet(_) => self.parquet_at_once(plan, piece),
            Rows::Json(_) => Ok(false),
        };
        done.inspect_err(|_| self.failed = true)
    }

    /// A row of CSV is known to be unwanted by a comparison, and to be wanted where there are no others.
    fn csv_at_once(&mut self, plan: &Plan) -> Result<bool, Fault> {
        let Selector { rows, parsed, groups, fuel, .. } = self;
        let (text, (needed, exact)) = (rows.text(), &plan.needed);
        let adds = plan.groups() && (plan.filter.is_empty() || *exact);
        let decides = adds || !needed.is_empty();
        if !decides || text.len() > SHORT_TEXTS || rows.fields() != plan.fields {
            return Ok(false);
        }
        parsed.cells.clear();
        let read = |slots: &[(usize, String, ColumnType)], cells: &mut Vec<Cell>| {
            cells.extend(slots.iter().map(|(place, _, kind)| csv_cell(rows, *place, *kind)));
            !cells.iter().any(|cell| matches!(cell, Cell::Bad(..)))
        };
        let (asked, others) = plan.slots.split_at(plan.asked);
        fuel.take(15 * asked.len() as u64 + 8 * needed.len() as u64);
        if !read(asked, &mut parsed.cells) {
            return Ok(false);
        }
        let holds = |one: &Needed| {
            hold(std::slice::from_ref(one), parsed.cells.get(one.slot).copied().unwrap_or_default(), text)
        };
        if !needed.iter().all(holds) {
            return Ok(true);
        }
        if !adds || !read(others, &mut parsed.cells) {
            return Ok(false);
        }
        let units = groups.add_short(&plan.output, &plan.makings, (&parsed.cells, text))?;
        fuel.take(units + 60 + 20 * others.len() as u64);
        Ok(true)
    }

    /// A row of Parquet has been looked for, and is added if it is known to be wanted.
    fn parquet_at_once(&mut self, plan: &Plan, piece: &mut &[u8]) -> Result<bool, Fault> {
        let Selector { rows: Rows::Parquet(file), parsed, groups, fuel, .. } = self else { return Ok(false) };
        if !plan.groups() || !(plan.filter.is_empty() || file.holds()) {
            return Ok(false);
        }
        let before = piece.len();
        let cut = file.others(piece, fuel)?;
        fuel.take(bytes_of(before - piece.len()));
        if cut != Cut::Row {
            return Ok(false);
        }
        parsed.text.clear();
        parsed.cells.clear();
        for slot in 0..plan.slots.len() {
            let cell = match file.value(slot) {
                (Cell::Text(from, to), text) => {
                    let text = text.get(from as usize..to as usize).unwrap_or_default();
                    let at = parsed.text.len();
                    if at + text.len() > SHORT_TEXTS || std::str::from_utf8(text).is_err() {
                        return Ok(false);
                    }
                    parsed.text.extend_from_slice(text);
                    Cell::text(at, at + text.len())
                }
                (Cell::Bad(..), _) => return Ok(false),
                (cell, _) => cell,
            };
            parsed.cells.push(cell);
        }
        let units = groups.add_short(&plan.output, &plan.makings, (&parsed.cells, &parsed.text))?;
        fuel.take(units + 60 + 35 * plan.slots.len() as u64);
        Ok(true)
    }

    /// Goes on with the row at hand, or passes over it.
    fn follow(&mut self, chosen: Result<bool, Fault>, next: Row) -> Result<(), Fault> {
        match chosen {
            Ok(true) => self.row = next,
            Ok(false) => self.pass(),
            Err(Fault::Row(_)) if self.selection.options.skip_bad => self.pass_bad(),
            Err(fault) => {
                self.failed = true;
                return Err(fault);
            }
        }
        Ok(())
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

    /// The row at hand is passed over, and counted: once in all answers together.
    fn pass_bad(&mut self) {
        if !self.has_batch() && !self.plan.as_ref().is_some_and(|plan| plan.groups()) {
            // What is not answered with this batch is met again.
            self.first = Place { found: self.first.found, ..self.here };
        }
        self.bad += u64::from(!self.counted);
        self.pass();
    }

    /// Names a row, and a column of it, in what is wrong with it.
    fn named(&self, fault: Fault, column: Option<&str>) -> Fault {
        let Fault::Row(what) = fault else { return fault };
        let mut at = format!("row {}", self.here.row + 1);
        if !matches!(self.rows, Rows::Parquet(_)) {
            at.push_str(&format!(" (byte {})", self.here.offset));
        }
        Fault::Row(match column {
            Some(column) => format!("{at}, column {column}: {what}"),
            None => format!("{at}: {what}"),
        })
    }

    /// Reads what the condition needs of the row at hand, and asks it.
    async fn look(&mut self, plan: &Plan, read: bool) -> Result<bool, Fault> {
        match &self.rows {
            Rows::Json(_) if read => {}
            Rows::Json(_) => {
                let line = self.rows.text();
                let read = plan.members.read(line, &mut self.parsed, plan.slots.len());
                let units = 100 + 4 * line.len() as u64;
                self.fuel.spend(units).await;
                read.map_err(|what| self.named(Fault::Row(what), None))?;
            }
            Rows::Csv(_) | Rows::Parquet(_) => {
                let fields = self.rows.fields();
                if fields != plan.fields && plan.parquet.is_none() {
                    let what = format!("{fields} fields, and not {}", plan.fields);
                    return Err(self.named(Fault::Row(what), None));
                }
                self.parsed.text.clear();
                self.parsed.cells.clear();
                self.parsed.cells.resize(plan.slots.len(), Cell::Null);
            }
        }
        self.values(plan, 0, plan.asked).await?;
        let Selector { asking, selection, parsed, rows, fuel, .. } = self;
        let holds = plan.filter.is_empty() || matches!(rows, Rows::Parquet(file) if file.holds());
        let row = (&parsed.cells[..], text_of(rows, parsed));
        Ok(holds || asking.holds(&plan.filter, &selection.regexes, row, fuel).await)
    }

    /// Reads some of the columns.
    async fn values(&mut self, plan: &Plan, from: usize, to: usize) -> Result<(), Fault> {
        for (at, (place, name, kind)) in plan.slots.iter().enumerate().take(to).skip(from) {
            let cell = match &self.rows {
                Rows::Parquet(file) => {
                    let before = self.parsed.text.len();
                    let cell = parquet_cell(file, at, &mut self.parsed.text);
                    self.fuel.spend_bytes(self.parsed.text.len() - before).await;
                    cell.map_err(|fault| self.named(fault, None))?
                }
                Rows::Json(_) => self.parsed.cells.get(at).copied().unwrap_or_default(),
                Rows::Csv(_) => csv_cell(&self.rows, *place, *kind),
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

    /// What takes long.
    pub fn long(&mut self) -> Option<Long> {
        if let Rows::Parquet(_) = self.rows {
            let rows = std::mem::replace(&mut self.rows, Rows::Json(Default::default()));
            let Rows::Parquet(file) = rows else { return None };
            return Some(Long(Work::Pages(file, Ok(()))));
        }
        let line = self.rows.text().to_vec();
        let row = std::mem::take(&mut self.parsed);
        Some(Long(Work::Line { plan: self.plan.clone()?, line, row, read: Ok(()) }))
    }

    /// Takes it back, done.
    ///
    /// # Errors
    /// [`Fault::Row`]: a line that is no object, or pages that are none.
    pub fn take_long(&mut self, long: Long) -> Result<(), Fault> {
        let read = match long.0 {
            Work::Pages(file, done) => {
                self.rows = Rows::Parquet(file);
                self.failed |= done.is_err();
                return done;
            }
            Work::Line { row, read, .. } => {
                self.parsed = row;
                read
            }
        };
        self.row = Row::Cut { read: true };
        match read {
            Ok(()) => Ok(()),
            Err(_) if self.selection.options.skip_bad => {
                self.pass_bad();
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
        Rows::Json(_) | Rows::Parquet(_) => &parsed.text,
    }
}

/// A value of the row of CSV that is there.
fn csv_cell(rows: &Rows, place: usize, kind: ColumnType) -> Cell {
    let (from, to) = rows.field(place);
    let text = rows.text().get(from..to).unwrap_or_default();
    match kind {
        _ if text.is_empty() => Cell::Null,
        ColumnType::Utf8 if std::str::from_utf8(text).is_ok() => Cell::text(from, to),
        kind => parse(kind, text).unwrap_or(Cell::bad(from, to)),
    }
}

/// A value of Parquet's; a text goes to those of the row, which has a bound.
fn parquet_cell(file: &parquet::File, slot: usize, texts: &mut Vec<u8>) -> Result<Cell, Fault> {
    let from = texts.len();
    Ok(match file.value(slot) {
        (Cell::Text(at, end), of) => {
            let text = of.get(at as usize..end as usize).unwrap_or_default();
            if from + text.len() > MAX_ROW {
                return Err(Fault::wide());
            }
            texts.extend_from_slice(text);
            match std::str::from_utf8(text) {
                Ok(_) => Cell::text(from, texts.len()),
                Err(_) => Cell::bad(from, texts.len()),
            }
        }
        (Cell::Bad(low, high), _) => {
            texts.extend_from_slice(file.described(slot, low, high).as_bytes());
            Cell::bad(from, texts.len())
        }
        (cell, _) => cell,
    })
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
