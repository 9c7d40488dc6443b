//! Rows of Parquet files (apache/parquet-format): only the chunks of the columns that are asked for are read,
//! of row groups in which the condition may hold, and of pages with a row that is wanted.
//!
//! How a file passes: its end says where the footer lies ([`begins`]), the footer what columns there are and
//! where (`footer`), and statistics which row groups cannot matter (`prune`). Then there are rows, in order:
//! the columns of the condition are decoded some thousand rows at a time (`column`, `page`, `decode`), the
//! others where it holds. A `File` is handed bytes that it wants (`wants`), and works (`work`)
//! in steps, where nobody waits.
//!
//! # What it holds
//! Of a footer (`footer::MAX_FOOTER`) what is asked for (`footer::MAX_CHUNKS`); of each column that is
//! asked for a page and a dictionary, each of at most `page::MAX_PAGE`, and all of them together at most
//! `BUDGET`; for one of them the window of its decompressor (32 MiB).

mod column;
mod decode;
mod footer;
mod kind;
mod page;
mod prune;
mod thrift;

use std::sync::Arc;

use nearside_near_data::ColumnType;

use super::Fault;
use super::filter::Filter;
use super::rows::Cut;
use super::value::Cell;
use column::{Asked, Column, Now, Turn};
use footer::{Group, Wanted};
use kind::{Kind, Meaning};

/// Bytes of pages and dictionaries of all columns together.
const BUDGET: usize = 128 << 20;
/// Bytes that are made in a step of work, about.
const WORK: usize = 1 << 20;
/// Rows that are decoded at once.
const ROWS: usize = 4096;
/// Values that are, of all columns.
const VALUES: usize = 1 << 16;
/// Bytes of texts that are made at once, about: of a column, and of all.
const TEXT: usize = 1 << 20;
const TEXTS: usize = 32 << 20;
/// Bytes that are read of a column beyond those that are known to be wanted.
const AHEAD: u64 = 64 << 10;

/// Rows that are passed over at once.
pub(super) const NEAR: u64 = 64;

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
        (filter, asked): (&Filter, usize),
    ) -> Result<Layout, Fault> {
        let (mut columns, mut wanted) = (Vec::new(), Vec::new());
        for (nth, (place, kind)) in slots.iter().enumerate() {
            let leaf = self.schema.columns.get(*place);
            let Some((leaf, place)) = leaf.and_then(|leaf| leaf.place.map(|place| (leaf, place))) else {
                return Err(Fault::Table("a column that is not there".to_owned()));
            };
            let kind = Kind::of(leaf.physical, leaf.meaning, Some(*kind)).map_err(Fault::Table)?;
            let (name, physical, optional) = (leaf.name.clone(), leaf.physical, leaf.optional);
            columns.push(Asked { name, kind, physical, optional });
            wanted.push(Wanted { place, name: &leaf.name, statistics: nth < asked });
        }
        let mut groups = footer::groups(footer, self.schema.leaves, &wanted, end)?;
        let all = groups.len();
        groups.retain(|group| may_hold(filter, group, columns.get(..asked)));
        Ok(Layout { columns, asked, groups, all, needed: prune::needed(filter) })
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
    needed: Vec<prune::Needed>,
}

impl Layout {
    /// Row groups that are looked at, and all.
    pub(super) fn groups(&self) -> (usize, usize) {
        (self.groups.len(), self.all)
    }
}

/// What columns that are decoded together wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Nothing,
    Work,
    Bytes,
}

/// Columns that are decoded together: those of the condition, or the others.
#[derive(Default)]
struct Side {
    columns: Vec<Column>,
    /// Rows of the group whose values are there.
    from: u64,
    to: u64,
    doing: Doing,
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
    sides: [Side; 2],
}

impl File {
    /// From a row on.
    pub(super) fn new(layout: &Arc<Layout>, from: u64) -> File {
        let layout = Arc::clone(layout);
        let before = |group: &Group| group.first.saturating_add(group.rows) <= from;
        let group = layout.groups.partition_point(before);
        let row = layout.groups.get(group).map_or(0, |group| from.saturating_sub(group.first));
        File { layout, group, opened: false, row, done: false, sides: Default::default() }
    }

    /// The number of the row at hand, from 0 on.
    pub(super) fn number(&self) -> u64 {
        let first = self.layout.groups.get(self.group).map_or(0, |group| group.first);
        first + self.row
    }

    /// Begins with the group.
    fn open(&mut self) {
        let Some(group) = self.layout.groups.get(self.group) else { return };
        let of = |chunks: &[footer::Chunk]| Side {
            columns: chunks.iter().map(|chunk| Column::new(chunk, group.rows)).collect(),
            // Without a column all rows are there.
            to: if chunks.is_empty() { group.rows } else { 0 },
            ..Side::default()
        };
        let (condition, others) = group.chunks.split_at(self.layout.asked.min(group.chunks.len()));
        self.sides = [of(condition), of(others)];
        self.opened = true;
    }

    /// The next row, with the values of the condition's columns. Takes wanted bytes off the front of a piece.
    pub(super) fn next(&mut self, piece: &mut &[u8]) -> Cut {
        if std::mem::take(&mut self.done) {
            self.row += 1;
        }
        if self.opened && self.layout.groups.get(self.group).is_some_and(|group| self.row >= group.rows) {
            (self.group, self.row, self.opened) = (self.group + 1, 0, false);
        }
        if !self.opened {
            // What the last one had is given back then, too.
            return if self.group < self.layout.groups.len() { Cut::Long } else { Cut::End };
        }
        let mut cut = self.sides[0].seek(self.row, piece);
        if cut == Cut::Row && !self.layout.needed.is_empty() {
            cut = self.pass_over();
        }
        self.done = cut == Cut::Row;
        cut
    }

    /// Goes on to a row that the comparisons hold for which the condition needs, if that is near.
    fn pass_over(&mut self) -> Cut {
        // As many comparisons as of one with so many rows.
        let near = (NEAR / self.layout.needed.len() as u64).max(1);
        let most = self.sides[0].to.min(self.row.saturating_add(near));
        while self.row < most {
            let holds = |needed: &prune::Needed| needed.holds(self.value(needed.slot).0);
            if self.layout.needed.iter().all(holds) {
                return Cut::Row;
            }
            self.row += 1;
        }
        Cut::Going
    }

    /// Comparisons that each row that is passed over takes.
    pub(super) fn needed(&self) -> u64 {
        self.layout.needed.len() as u64
    }

    /// The values of the other columns of the row at hand.
    pub(super) fn others(&mut self, piece: &mut &[u8]) -> Cut {
        self.sides[1].seek(self.row, piece)
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
        let row = self.row.checked_sub(side.from).and_then(|row| usize::try_from(row).ok());
        match side.columns.get(nth).zip(row) {
            Some((column, row)) => (column.cell(row), column.text()),
            None => (Cell::Null, &[]),
        }
    }

    /// A number that is none of its column's type, as text.
    pub(super) fn described(&self, slot: usize, low: u32, high: u32) -> String {
        self.layout.columns.get(slot).map(|column| column.kind.described(low, high)).unwrap_or_default()
    }

    /// A step of what is to be done: milliseconds, or some tens of them for a page that is decompressed at
    /// once.
    pub(super) fn work(&mut self) -> Result<(), Fault> {
        if !self.opened {
            self.open();
            return Ok(());
        }
        let held = self.sides.iter().flat_map(|side| &side.columns).map(Column::held).sum();
        let columns = self.layout.columns.len().max(1);
        let File { layout, sides, group, .. } = self;
        let number = layout.groups.get(*group).map_or(0, |group| group.number);
        let [condition, others] = sides;
        let (asked, rest) = layout.columns.split_at(layout.asked.min(columns).min(layout.columns.len()));
        let mut turn = Turn {
            left: WORK,
            room: 0,
            rows: (VALUES / columns).clamp(64, ROWS),
            ahead: (16 * AHEAD / columns as u64).clamp(4 << 10, AHEAD),
            texts: (TEXTS / columns).min(TEXT),
        };
        for (side, asked) in [(condition, asked), (others, rest)] {
            if side.doing == Doing::Work {
                side.work(asked, held, &mut turn, number)?;
            }
        }
        Ok(())
    }
}

impl Side {
    /// Whether the values of a row are there, which is no row before the one asked for last.
    fn seek(&mut self, row: u64, piece: &mut &[u8]) -> Cut {
        if row < self.to {
            return Cut::Row;
        }
        match self.doing {
            Doing::Nothing => {
                let passed = row - self.from;
                self.columns.iter_mut().for_each(|column| column.pass(passed));
                (self.from, self.to, self.doing) = (row, row, Doing::Work);
            }
            Doing::Work => {}
            Doing::Bytes => {
                self.columns.iter_mut().for_each(|column| column.give(piece));
                if self.columns.iter().any(|column| column.wants().is_some()) {
                    return Cut::More;
                }
                self.doing = Doing::Work;
            }
        }
        Cut::Long
    }

    fn work(&mut self, asked: &[Asked], held: usize, turn: &mut Turn, group: usize) -> Result<(), Fault> {
        let mut held = held;
        let (mut bytes, mut later) = (false, false);
        for (column, asked) in self.columns.iter_mut().zip(asked) {
            let own = column.held();
            turn.room = (BUDGET + own).saturating_sub(held);
            let now = column
                .advance(asked, turn)
                .map_err(|what| Fault::Row(format!("row group {group}, column {}: {what}", asked.name)))?;
            held = (held + column.held()).saturating_sub(own);
            bytes |= now == Now::Bytes;
            later |= now == Now::Later;
        }
        self.doing = match (bytes, later) {
            (true, _) => Doing::Bytes,
            (false, true) => Doing::Work,
            (false, false) => {
                let ready = self.columns.iter().map(Column::ready).min().unwrap_or(0);
                self.to = self.from + ready as u64;
                Doing::Nothing
            }
        };
        Ok(())
    }
}
