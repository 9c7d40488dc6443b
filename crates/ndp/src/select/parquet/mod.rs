//! Rows of Parquet files (apache/parquet-format): only the chunks of the columns that are asked for are read,
//! of row groups in which the condition may hold, and of pages with a row that is wanted.
//!
//! How a file passes: its end says where the footer lies ([`begins`]), the footer what columns there are and
//! where (`footer`), and statistics which row groups cannot matter (`prune`). Then there are rows, in order:
//! those that the first column which the condition compares with values excludes are passed over where they
//! lie in their page (`column`, `decode`), by the numbers of a dictionary where that has been compared.
//! Values are made of the others. A `File` is handed bytes that it wants (`wants`), and makes its pages of
//! them (`work`, `page`) in steps, where nobody waits.
//!
//! # What it holds
//! Of a footer (`footer::MAX_FOOTER`) what is asked for (`footer::MAX_CHUNKS`); of each column that is
//! asked for a page and a dictionary, each of at most `page::MAX_PAGE`, and all of them together at most
//! `BUDGET`, and small ones an eighth to a quarter more; for one of them the window of its decompressor
//! (32 MiB); of what is done with some buffers for what comes next (`spare`).

mod column;
mod decode;
mod footer;
mod kind;
mod page;
mod prune;
mod spare;
mod thrift;

use std::collections::BTreeMap;
use std::sync::Arc;

use nearside_near_data::ColumnType;

use super::Fault;
use super::filter::Filter;
use super::needed::{Needed, cost, hold};
use super::rows::Cut;
use super::value::Cell;
use crate::fuel::Fuel;
use column::{Asked, Column, Doing, Now, Turn};
use footer::{Group, Wanted};
use kind::{Kind, Meaning};
use spare::Spares;

/// Bytes of pages and dictionaries of all columns together.
const BUDGET: usize = 128 << 20;
/// Bytes that are made in a step of work, about.
const WORK: usize = 1 << 20;
/// Bytes that are read of a column beyond those that are known to be wanted.
const AHEAD: u64 = 64 << 10;

/// Where the footer begins of a file that ends so.
///
/// # Errors
/// [`Fault::Table`]: it is no Parquet, or a footer is too large or encrypted.
pub fn begins(tail: &[u8], size: u64) -> Result<u64, Fault> {
    footer::begins(tail, size)
}

/// Bytes of a file's end in which its footer is looked for.
pub const TAIL: u64 = 64 << 10;

/// A table's columns, as its footer has them.
#[derive(Debug)]
pub(super) struct Columns {
    schema: footer::Schema,
}

impl Columns {
    pub(super) fn of(footer: &[u8]) -> Result<Columns, Fault> {
        Ok(Columns { schema: footer::schema(footer)? })
    }

    /// Their names, and their types or why they have none.
    pub(super) fn each(
        &self,
        given: impl Fn(&str) -> Option<ColumnType>,
    ) -> Vec<(String, Result<ColumnType, String>)> {
        let kind = |leaf: &footer::Leaf| match leaf.meaning {
            // Whatever is said of it.
            Meaning::Other(what) => Err(format!("{what}, which is not read")),
            meaning => Kind::of(leaf.physical, meaning, given(&leaf.name)).map(Kind::column_type),
        };
        self.schema.columns.iter().map(|leaf| (leaf.name.clone(), kind(leaf))).collect()
    }

    /// Where the rows lie. `slots`: the places and types of the columns that are asked for, those of the
    /// condition first.
    pub(super) fn layout(
        &self,
        footer: &[u8],
        end: u64,
        slots: &[(usize, ColumnType)],
        (filter, (needed, exact), asked): (&Filter, &(Vec<Needed>, bool), usize),
    ) -> Result<Layout, Fault> {
        let (mut columns, mut wanted) = (Vec::new(), Vec::new());
        let lead = needed.first().map(|needed| needed.slot);
        let mut others: BTreeMap<usize, Vec<Needed>> = BTreeMap::new();
        needed.iter().cloned().for_each(|one| others.entry(one.slot).or_default().push(one));
        let mut own = lead.and_then(|lead| others.remove(&lead));
        for (nth, (place, kind)) in slots.iter().enumerate() {
            let leaf = self.schema.columns.get(*place);
            let Some((leaf, place)) = leaf.and_then(|leaf| leaf.place.map(|place| (leaf, place))) else {
                return Err(Fault::Table("a column that is not there".to_owned()));
            };
            let kind = Kind::of(leaf.physical, leaf.meaning, Some(*kind)).map_err(Fault::Table)?;
            let (name, physical, optional) = (leaf.name.clone(), leaf.physical, leaf.optional);
            let needed = own.take_if(|_| lead == Some(nth)).unwrap_or_default();
            columns.push(Asked { name, kind, physical, optional, needed });
            wanted.push(Wanted { place, name: &leaf.name, statistics: nth < asked });
        }
        let mut groups = footer::groups(footer, self.schema.leaves, &wanted, end)?;
        let all = groups.len();
        groups.retain(|group| may_hold(filter, group, columns.get(..asked)));
        Ok(Layout { columns, asked, groups, all, lead, others, exact: *exact })
    }
}

/// Whether the condition may hold for a row of a group.
fn may_hold(filter: &Filter, group: &Group, asked: Option<&[Asked]>) -> bool {
    let mut texts = Vec::new();
    let known = |(chunk, column): (&footer::Chunk, &Asked)| {
        let of = (column.kind, column.physical);
        prune::Known::of(&chunk.statistics, of, (column.optional, group.rows), &mut texts)
    };
    let known: Vec<_> = group.chunks.iter().zip(asked.unwrap_or_default()).map(known).collect();
    prune::may_hold(filter, &known, &texts)
}

/// Where the rows of a file lie that may be wanted.
#[derive(Debug)]
pub(super) struct Layout {
    columns: Vec<Asked>,
    asked: usize,
    groups: Vec<Group>,
    /// Row groups of the file.
    all: usize,
    /// The column that rows are looked for by, and those of other columns' comparisons without which none is
    /// wanted.
    lead: Option<usize>,
    others: BTreeMap<usize, Vec<Needed>>,
    /// They are all of the condition.
    exact: bool,
}

impl Layout {
    /// Row groups that are looked at, and all.
    pub(super) fn groups(&self) -> (usize, usize) {
        (self.groups.len(), self.all)
    }
}

/// Columns that go on together: those of the condition, or the others.
#[derive(Default)]
struct Side {
    columns: Vec<Column>,
    /// The row at hand of the group.
    at: u64,
    /// What one of them waits for, or more.
    doing: Doing,
}

/// Whose columns they are: what is asked for, and the number of their row group.
#[derive(Clone, Copy)]
struct Whose<'l> {
    asked: &'l [Asked],
    group: usize,
}

impl Whose<'_> {
    /// Names a column of theirs in what is wrong with it.
    fn named(self, nth: usize, what: thrift::Wrong) -> Fault {
        let name = self.asked.get(nth).map_or("", |asked| &asked.name);
        Fault::Row(format!("row group {}, column {name}: {what}", self.group))
    }
}

/// A file's rows.
pub(super) struct File {
    layout: Arc<Layout>,
    group: usize,
    opened: bool,
    /// The row at hand of the group.
    row: u64,
    /// It has been seen.
    done: bool,
    /// The condition holds for it, and need not be asked.
    holds: bool,
    sides: [Side; 2],
    spares: Spares,
}

impl File {
    /// From a row on.
    pub(super) fn new(layout: &Arc<Layout>, from: u64) -> File {
        let layout = Arc::clone(layout);
        let before = |group: &Group| group.first.saturating_add(group.rows) <= from;
        let group = layout.groups.partition_point(before);
        let row = layout.groups.get(group).map_or(0, |group| from.saturating_sub(group.first));
        let (sides, spares) = Default::default();
        File { layout, group, opened: false, row, done: false, holds: false, sides, spares }
    }

    /// The number of the row at hand, from 0 on.
    pub(super) fn number(&self) -> u64 {
        let first = self.layout.groups.get(self.group).map_or(0, |group| group.first);
        first + self.row
    }

    /// Begins with the group, and with the columns whose values are wanted first.
    fn open(&mut self) {
        let Some(group) = self.layout.groups.get(self.group) else { return };
        let of = |chunks: &[footer::Chunk]| {
            let mut columns: Vec<_> = chunks.iter().map(|chunk| Column::new(chunk, group.rows)).collect();
            columns.iter_mut().for_each(|column| column.pass(self.row));
            Side { columns, at: self.row, doing: Doing::Nothing }
        };
        let (condition, others) = group.chunks.split_at(self.layout.asked.min(group.chunks.len()));
        let before = std::mem::replace(&mut self.sides, [of(condition), of(others)]);
        before.into_iter().flat_map(|side| side.columns).for_each(|column| column.end_with(&mut self.spares));
        if let Some(side) = self.sides.iter_mut().find(|side| !side.columns.is_empty()) {
            let first = |nth: usize| self.layout.lead.is_none_or(|lead| lead == nth);
            side.columns.iter_mut().enumerate().for_each(|(nth, column)| column.lacks = first(nth));
            side.doing = Doing::Work;
        }
        self.opened = true;
    }

    /// The next row for which the condition may hold, with the values of its columns. Takes wanted bytes off
    /// the front of a piece.
    pub(super) fn next(&mut self, piece: &mut &[u8], fuel: &mut Fuel) -> Result<Cut, Fault> {
        if std::mem::take(&mut self.done) {
            self.row += 1;
        }
        let rows = self.layout.groups.get(self.group).map_or(0, |group| group.rows);
        if self.opened && self.row >= rows {
            (self.group, self.row, self.opened) = (self.group + 1, 0, false);
        }
        if !self.opened {
            // What the last one had is given back then, too.
            return Ok(if self.group < self.layout.groups.len() { Cut::Long } else { Cut::End });
        }
        let cut = self.next_wanted(rows, piece, fuel);
        self.done = cut == Ok(Cut::Row);
        cut
    }

    /// Goes on to a row of the group for which the comparisons hold without which the condition does not.
    fn next_wanted(&mut self, rows: u64, piece: &mut &[u8], fuel: &mut Fuel) -> Result<Cut, Fault> {
        let group = self.group_number();
        let File { layout, sides: [condition, _], row, holds, .. } = self;
        let whose = Whose { asked: &layout.columns, group };
        if let Some(lead) = layout.lead {
            let (passed, cut) = condition.find(*row, (lead, rows), piece, fuel, whose)?;
            *row += passed;
            if cut != Cut::Row {
                return Ok(cut);
            }
        }
        let cut = condition.seek(*row, piece, fuel, whose)?;
        if cut == Cut::Row {
            // Of what is no value, and of most texts, the condition itself says what is wrong with it.
            let plain = |column: &Column| !matches!(column.value(), Cell::Bad(..) | Cell::Text(..));
            *holds = layout.exact && condition.columns.iter().all(plain);
            for (slot, needed) in &layout.others {
                let Some(column) = condition.columns.get(*slot) else {
                    *holds = false;
                    continue;
                };
                if fuel.is_spent() {
                    // The condition itself is asked in slices.
                    *holds = false;
                    break;
                }
                fuel.take(cost(needed, column.value()));
                if !hold(needed, column.value(), column.text()) {
                    *row += 1;
                    return Ok(Cut::Going);
                }
            }
        }
        Ok(cut)
    }

    /// Whether it is known that the condition holds for the row at hand.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// The number that the group has in the file.
    fn group_number(&self) -> usize {
        self.layout.groups.get(self.group).map_or(0, |group| group.number)
    }

    /// The values of the other columns of the row at hand.
    pub(super) fn others(&mut self, piece: &mut &[u8], fuel: &mut Fuel) -> Result<Cut, Fault> {
        let group = self.group_number();
        let asked = self.layout.columns.get(self.sides[0].columns.len()..).unwrap_or_default();
        self.sides[1].seek(self.row, piece, fuel, Whose { asked, group })
    }

    /// Which bytes of the file it waits for, from where to where, in the order in which it takes them.
    pub(super) fn wants(&self) -> Vec<(u64, u64)> {
        let waits = |side: &&Side| side.doing == Doing::Bytes;
        self.sides.iter().filter(waits).flat_map(|side| &side.columns).filter_map(Column::wants).collect()
    }

    /// The value of a slot in the row at hand: and, of a text, what it lies in.
    pub(super) fn value(&self, slot: usize) -> (Cell, &[u8]) {
        let [condition, others] = &self.sides;
        let (side, nth) = match slot.checked_sub(condition.columns.len()) {
            None => (condition, slot),
            Some(nth) => (others, nth),
        };
        side.columns.get(nth).map_or((Cell::Null, &[]), |column| (column.value(), column.text()))
    }

    /// A number that is none of its column's type, as text.
    pub(super) fn described(&self, slot: usize, low: u32, high: u32) -> String {
        self.layout.columns.get(slot).map(|column| column.kind.described(low, high)).unwrap_or_default()
    }

    /// A step of what is to be done: milliseconds, or some tens of them for a page that is decompressed or a
    /// dictionary that is compared at once.
    pub(super) fn work(&mut self) -> Result<(), Fault> {
        if !self.opened {
            self.open();
        }
        // Pages of columns that were passed over, too.
        let working = self.sides.iter_mut().filter(|side| side.doing == Doing::Work);
        working.flat_map(|side| &mut side.columns).for_each(|column| column.drop_page(&mut self.spares));
        let held = self.sides.iter().flat_map(|side| &side.columns).map(Column::held).sum();
        let group = self.group_number();
        let File { layout, sides, spares, .. } = self;
        let columns = layout.columns.len().max(1);
        let (asked, rest) = layout.columns.split_at(layout.asked.min(layout.columns.len()));
        let ahead = (16 * AHEAD / columns as u64).clamp(4 << 10, AHEAD);
        let mut turn = Turn { left: WORK, room: 0, ahead, spares };
        for (side, asked) in sides.iter_mut().zip([asked, rest]) {
            if side.doing == Doing::Work {
                side.work(held, &mut turn, Whose { asked, group })?;
            }
        }
        Ok(())
    }
}

impl Side {
    /// The row at hand is that, which is none before it.
    fn go_to(&mut self, row: u64, fuel: &mut Fuel) {
        let passed = row.saturating_sub(self.at);
        if passed == 0 {
            return;
        }
        // Each is touched once more, to take a value.
        fuel.take(4 * self.columns.len() as u64);
        self.columns.iter_mut().for_each(|column| column.pass(passed));
        self.at += passed;
    }

    /// What it waits for, which may be in the piece.
    fn waits(&mut self, piece: &mut &[u8]) -> Option<Cut> {
        match self.doing {
            Doing::Nothing => None,
            Doing::Work => Some(Cut::Long),
            Doing::Bytes => {
                self.columns.iter_mut().for_each(|column| column.give(piece));
                if self.columns.iter().any(|column| column.wants().is_some()) {
                    return Some(Cut::More);
                }
                self.doing = Doing::Work;
                Some(Cut::Long)
            }
        }
    }

    /// Goes on to a row of the group, which has so many, that a column's comparisons hold for: over how many
    /// it went, and whether that row is there.
    fn find(
        &mut self,
        row: u64,
        (lead, rows): (usize, u64),
        piece: &mut &[u8],
        fuel: &mut Fuel,
        whose: Whose<'_>,
    ) -> Result<(u64, Cut), Fault> {
        self.go_to(row, fuel);
        if let Some(cut) = self.waits(piece) {
            return Ok((0, cut));
        }
        let needed = whose.asked.get(lead).map(|asked| &asked.needed[..]).unwrap_or_default();
        let Some(column) = self.columns.get_mut(lead) else { return Ok((0, Cut::Row)) };
        let found = column.find(rows.saturating_sub(row), needed, fuel);
        let (passed, now) = found.map_err(|what| whose.named(lead, what))?;
        if passed > 0 {
            fuel.take(self.columns.len() as u64);
            let others = self.columns.iter_mut().enumerate().filter(|(nth, _)| *nth != lead);
            others.for_each(|(_, column)| column.pass(passed));
            self.at += passed;
        }
        Ok((passed, self.comes_to(now)))
    }

    /// The values of a row, which is none before the one at hand.
    fn seek(&mut self, row: u64, piece: &mut &[u8], fuel: &mut Fuel, whose: Whose<'_>) -> Result<Cut, Fault> {
        self.go_to(row, fuel);
        if let Some(cut) = self.waits(piece) {
            return Ok(cut);
        }
        let mut all = Cut::Row;
        for nth in 0..self.columns.len() {
            let Some(column) = self.columns.get_mut(nth) else { continue };
            let now = column.take(fuel).map_err(|what| whose.named(nth, what))?;
            match self.comes_to(now) {
                Cut::Row => {}
                Cut::Going if all == Cut::Long => {}
                cut => all = cut,
            }
        }
        Ok(all)
    }

    /// What a column's state comes to.
    fn comes_to(&mut self, now: Now) -> Cut {
        match now {
            Now::Ready => Cut::Row,
            Now::Going => Cut::Going,
            Now::Page => {
                self.doing = Doing::Work;
                Cut::Long
            }
        }
    }

    /// A step of the pages that its columns lack.
    fn work(&mut self, held: usize, turn: &mut Turn<'_>, whose: Whose<'_>) -> Result<(), Fault> {
        let mut held = held;
        self.doing = Doing::Nothing;
        let columns = self.columns.iter_mut().zip(whose.asked).enumerate();
        for (nth, (column, asked)) in columns.filter(|(_, (column, _))| column.lacks) {
            let own = column.held();
            turn.room = (BUDGET + own).saturating_sub(held);
            let doing = column.advance(asked, turn).map_err(|what| whose.named(nth, what))?;
            held = (held + column.held()).saturating_sub(own);
            self.doing = self.doing.max(doing);
        }
        Ok(())
    }
}
