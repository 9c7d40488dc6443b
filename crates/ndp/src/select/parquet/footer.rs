//! A file's footer: the schema, and where the chunks of columns lie (apache/parquet-format, parquet.thrift).
//!
//! It is gone through twice, once for the schema and once for the row groups: of these only what is asked for
//! is kept, so that what a footer takes is bounded by its bytes and by [`MAX_CHUNKS`].
#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use nearside_near_data::MAX_FIELDS;

use super::super::Fault;
use super::kind::{Meaning, Physical, Unit};
use super::thrift::{OTHER, Thrift, Wire, Wrong, is};

/// Most bytes of a footer.
pub(super) const MAX_FOOTER: u64 = 16 << 20;
/// Most row groups of a file.
pub(super) const MAX_GROUPS: usize = 1 << 16;
/// Most chunks of the columns that are asked for.
pub(super) const MAX_CHUNKS: usize = 1 << 18;
/// Most columns, those within others too.
const MAX_LEAVES: usize = 1 << 14;
/// Most rows of a file: so many, and so many more for each of its bytes. Runs of one value take next to none.
const MAX_ROWS: u64 = 1 << 26;
const ROWS_OF_A_BYTE: u64 = 4096;
/// Longer extremes are not kept: they exclude nothing.
const LONGEST_EXTREME: usize = 256;

/// A column of a table.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) name: String,
    /// Its place among the chunks of a row group; `None`: it holds other columns.
    pub(super) place: Option<usize>,
    pub(super) physical: Physical,
    pub(super) meaning: Meaning,
    pub(super) optional: bool,
}

/// A table's columns.
#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) columns: Vec<Leaf>,
    /// How many chunks a row group has.
    pub(super) leaves: usize,
}

/// How pages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
    Gzip,
    Zstd,
    Lz4,
}

/// What a footer says of a chunk's values.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    pub(super) nulls: Option<u64>,
    pub(super) min: Option<Box<[u8]>>,
    pub(super) max: Option<Box<[u8]>>,
}

/// A column's pages of a row group.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) codec: Codec,
    pub(super) statistics: Statistics,
}

/// Rows, and the chunks of the columns that are asked for, in their order.
#[derive(Debug)]
pub(super) struct Group {
    /// Its number, from 1 on.
    pub(super) number: usize,
    /// Rows before it.
    pub(super) first: u64,
    pub(super) rows: u64,
    pub(super) chunks: Vec<Chunk>,
}

/// Where the footer of a file begins that has so many bytes and ends so.
pub(super) fn begins(tail: &[u8], size: u64) -> Result<u64, Fault> {
    let no = |what: &str| Err(Fault::Table(what.to_owned()));
    let Some((rest, end)) = tail.split_last_chunk::<8>() else {
        return no("no Parquet: it has less than 12 bytes");
    };
    let [a, b, c, d, magic @ ..] = *end;
    match &magic {
        b"PAR1" => {}
        b"PARE" => return no("Parquet whose footer is encrypted, which is not read"),
        _ => return no("no Parquet: it does not end in PAR1"),
    }
    let len = u64::from(u32::from_le_bytes([a, b, c, d]));
    if len > MAX_FOOTER {
        return no(&format!("a footer of {len} bytes: at most {} MiB are read", MAX_FOOTER >> 20));
    }
    // PAR1 stands at the beginning too.
    match size.checked_sub(12).and_then(|most| most.checked_sub(len)) {
        Some(before) => Ok(before.saturating_add(4)),
        None => no(&format!("a footer of {len} bytes, and {} before its length", rest.len())),
    }
}

fn unfit(what: Wrong) -> Fault {
    Fault::Table(format!("the footer: {what}"))
}

/// An element of the schema.
#[derive(Debug, Default)]
struct Element<'b> {
    name: &'b str,
    physical: Option<i64>,
    len: u32,
    repetition: i64,
    children: Option<u64>,
    converted: Option<i64>,
    scale: i64,
    precision: i64,
    meaning: Option<Meaning>,
}

impl<'b> Element<'b> {
    fn read(r: &mut Thrift<'b>) -> Result<Element<'b>, Wrong> {
        let mut element = Element::default();
        r.fields(|r, number, wire| {
            match number {
                1 => element.physical = Some(r.int(wire)?),
                2 => element.len = u32::try_from(r.int(wire)?).map_err(|_| "a length of a type")?,
                3 => element.repetition = r.int(wire)?,
                4 => {
                    is(wire, Wire::Binary)?;
                    element.name = r.text()?;
                }
                5 => element.children = Some(r.size(wire)?).filter(|count| *count > 0),
                6 => element.converted = Some(r.int(wire)?),
                7 => element.scale = r.int(wire)?,
                8 => element.precision = r.int(wire)?,
                10 => {
                    is(wire, Wire::Struct)?;
                    element.meaning = Some(logical(r)?);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(element)
    }

    /// What its values mean: by its logical type, else by that of before.
    fn meaning(&self) -> Meaning {
        if let Some(meaning) = self.meaning {
            return meaning;
        }
        match self.converted {
            None => Meaning::None,
            Some(0 | 4 | 19) => Meaning::Text,
            Some(5) => Meaning::Decimal { precision: self.precision, scale: self.scale },
            Some(6) => Meaning::Date,
            Some(7 | 8) => Meaning::Other("a time of day"),
            Some(9) => Meaning::Timestamp(Unit::Millis),
            Some(10) => Meaning::Timestamp(Unit::Micros),
            Some(11..=14) => Meaning::Integer { signed: false },
            Some(15..=18) => Meaning::Integer { signed: true },
            Some(20) => Meaning::Other("BSON"),
            Some(21) => Meaning::Other("an interval"),
            Some(_) => Meaning::Other("of a type that is not known"),
        }
    }
}

/// The union of logical types.
fn logical(r: &mut Thrift<'_>) -> Result<Meaning, Wrong> {
    let mut meaning = Meaning::Other("of a type that is not known");
    r.fields(|r, number, wire| {
        is(wire, Wire::Struct)?;
        meaning = match number {
            1 | 4 | 12 => Meaning::Text,
            5 => {
                let (mut scale, mut precision) = (0, 0);
                r.fields(|r, number, wire| {
                    match number {
                        1 => scale = r.int(wire)?,
                        2 => precision = r.int(wire)?,
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?;
                meaning = Meaning::Decimal { precision, scale };
                return Ok(true);
            }
            6 => Meaning::Date,
            7 => Meaning::Other("a time of day"),
            8 => {
                meaning = timestamp(r)?;
                return Ok(true);
            }
            10 => {
                let mut signed = true;
                r.fields(|_, number, wire| {
                    if number == 2 {
                        signed = wire == Wire::True;
                    }
                    Ok(false)
                })?;
                meaning = Meaning::Integer { signed };
                return Ok(true);
            }
            11 => Meaning::Other("null"),
            13 => Meaning::Other("BSON"),
            14 => Meaning::Other("a UUID"),
            15 => Meaning::Other("float16"),
            16 => Meaning::Other("a variant"),
            17 | 18 => Meaning::Other("a geometry"),
            _ => Meaning::Other("of a type that is not known"),
        };
        Ok(false)
    })?;
    Ok(meaning)
}

fn timestamp(r: &mut Thrift<'_>) -> Result<Meaning, Wrong> {
    let mut unit = None;
    r.fields(|r, number, wire| {
        if number != 2 {
            return Ok(false);
        }
        is(wire, Wire::Struct)?;
        r.fields(|_, number, _| {
            unit = match number {
                1 => Some(Unit::Millis),
                2 => Some(Unit::Micros),
                3 => Some(Unit::Nanos),
                _ => None,
            };
            Ok(false)
        })?;
        Ok(true)
    })?;
    Ok(unit.map_or(Meaning::Other("a timestamp of an unknown unit"), Meaning::Timestamp))
}

/// The table's columns.
pub(super) fn schema(footer: &[u8]) -> Result<Schema, Fault> {
    let (mut schema, mut encrypted, mut seen) = (Schema::default(), false, false);
    let read = Thrift::new(footer).fields(|r, number, wire| {
        match number {
            2 => {
                is(wire, Wire::List)?;
                schema = elements(r)?;
                seen = true;
                return Ok(true);
            }
            8 => encrypted = true,
            _ => {}
        }
        Ok(false)
    });
    read.and(if seen { Ok(()) } else { Err("it has no schema") }).map_err(unfit)?;
    match encrypted {
        true => Err(Fault::Table("encrypted Parquet, which is not read".to_owned())),
        false => Ok(schema),
    }
}

/// The tree of columns, depth first: the root, and what lies in it.
fn elements(r: &mut Thrift<'_>) -> Result<Schema, Wrong> {
    const TREE: Wrong = "a schema that is no tree";
    let (count, of) = r.list()?;
    if count > 0 {
        is(of, Wire::Struct)?;
    }
    if count > MAX_LEAVES {
        return Err("a schema of more than 16,384 elements");
    }
    let mut schema = Schema::default();
    // Elements that are still to come within the column at hand.
    let (mut top, mut within) = (None, 0u64);
    for nth in 0..count {
        let element = Element::read(r)?;
        let children = element.children.unwrap_or(0);
        if nth == 0 {
            top = Some(children);
            continue;
        }
        let place = schema.leaves;
        let physical = match children {
            0 => {
                schema.leaves = place.saturating_add(1);
                let number = element.physical.ok_or("a column without a type")?;
                Physical::of(number, element.len).ok_or("a column of an unknown type")?
            }
            _ => Physical::Bytes,
        };
        if within > 0 {
            within = within.saturating_sub(1).saturating_add(children);
            continue;
        }
        let left = top.and_then(|left| left.checked_sub(1)).ok_or(TREE)?;
        (top, within) = (Some(left), children);
        if schema.columns.len() == MAX_FIELDS {
            return Err("more than 1,024 columns");
        }
        let meaning = match (children, element.repetition) {
            (0, 0 | 1) => element.meaning(),
            _ => Meaning::Other("nested"),
        };
        schema.columns.push(Leaf {
            name: element.name.to_owned(),
            place: Some(place).filter(|_| children == 0),
            physical,
            meaning,
            optional: element.repetition != 0,
        });
    }
    if within > 0 || top.is_none_or(|left| left > 0) {
        return Err(TREE);
    }
    Ok(schema)
}

/// A chunk as the footer has it.
#[derive(Default)]
struct Stored {
    elsewhere: bool,
    encrypted: bool,
    codec: i64,
    values: u64,
    size: u64,
    data: u64,
    dictionary: u64,
    statistics: Statistics,
}

impl Stored {
    fn read(&mut self, r: &mut Thrift<'_>, statistics: bool) -> Result<(), Wrong> {
        r.fields(|r, number, wire| {
            match number {
                1 => self.elsewhere = true,
                3 => {
                    is(wire, Wire::Struct)?;
                    self.metadata(r, statistics)?;
                    return Ok(true);
                }
                8 => self.encrypted = true,
                _ => {}
            }
            Ok(false)
        })
    }

    fn metadata(&mut self, r: &mut Thrift<'_>, statistics: bool) -> Result<(), Wrong> {
        r.fields(|r, number, wire| {
            match number {
                4 => self.codec = r.int(wire)?,
                5 => self.values = r.size(wire)?,
                7 => self.size = r.size(wire)?,
                9 => self.data = r.size(wire)?,
                11 => self.dictionary = r.size(wire)?,
                12 if statistics => {
                    is(wire, Wire::Struct)?;
                    self.statistics = Statistics::read(r)?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    /// Where it lies, in a file whose pages end there.
    fn chunk(self, rows: u64, end: u64) -> Result<Chunk, String> {
        if self.encrypted {
            return Err("encrypted, which is not read".to_owned());
        }
        if self.elsewhere {
            return Err("in another file, which is not read".to_owned());
        }
        if self.values != rows {
            return Err(format!("{} values for {rows} rows", self.values));
        }
        let codec = match self.codec {
            0 => Codec::None,
            1 => Codec::Snappy,
            2 => Codec::Gzip,
            6 => Codec::Zstd,
            7 => Codec::Lz4,
            other => {
                let name = match other {
                    3 => "LZO",
                    4 => "Brotli",
                    5 => "LZ4 in Hadoop's frames",
                    _ => "a codec that is not known",
                };
                return Err(format!("compressed by {name}, which is not read"));
            }
        };
        let from = match self.dictionary {
            before if before > 0 && before < self.data => before,
            _ => self.data,
        };
        match from.checked_add(self.size).filter(|to| from >= 4 && *to <= end) {
            Some(to) => Ok(Chunk { from, to, codec, statistics: self.statistics }),
            None => Err(format!("{} bytes at {from}, and the pages end at byte {end}", self.size)),
        }
    }
}

impl Statistics {
    fn read(r: &mut Thrift<'_>) -> Result<Statistics, Wrong> {
        let mut all = Statistics::default();
        r.fields(|r, number, wire| {
            match number {
                3 => all.nulls = Some(r.size(wire)?),
                // Those of before (1 and 2) are of an order that differs by writers.
                5 | 6 => {
                    is(wire, Wire::Binary)?;
                    let value = Some(r.binary()?).filter(|value| value.len() <= LONGEST_EXTREME);
                    let value = value.map(Box::from);
                    if number == 5 { all.max = value } else { all.min = value }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(all)
    }
}

/// A column that is asked for.
pub(super) struct Wanted<'n> {
    pub(super) place: usize,
    pub(super) name: &'n str,
    /// What its values are like is of use.
    pub(super) statistics: bool,
}

/// The row groups, of which the pages end where the footer begins.
pub(super) fn groups(
    footer: &[u8],
    leaves: usize,
    wanted: &[Wanted<'_>],
    end: u64,
) -> Result<Vec<Group>, Fault> {
    let mut slots = vec![None; leaves];
    for (slot, one) in wanted.iter().enumerate() {
        if let Some(to) = slots.get_mut(one.place) {
            *to = Some(slot);
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    let (mut fault, mut first) = (None, 0u64);
    // Where nothing is said of the order they are of none.
    let mut orders = vec![false; leaves];
    let read = Thrift::new(footer).fields(|r, number, wire| {
        if number == 7 {
            is(wire, Wire::List)?;
            orders_of(r, &mut orders)?;
            return Ok(true);
        }
        if number != 4 {
            return Ok(false);
        }
        is(wire, Wire::List)?;
        let (count, of) = r.list()?;
        let all = groups.len().saturating_add(count);
        if all > MAX_GROUPS || all.saturating_mul(wanted.len()) > MAX_CHUNKS {
            return Err("more than 65,536 row groups, or than 262,144 chunks of the columns asked for");
        }
        for nth in 0..count {
            is(of, Wire::Struct)?;
            let number = nth.saturating_add(1);
            let (rows, stored) = row_group(r, &slots, wanted)?;
            if rows == 0 {
                continue;
            }
            let mut chunks = Vec::new();
            for (stored, one) in stored.into_iter().zip(wanted) {
                match stored.chunk(rows, end) {
                    Ok(chunk) => chunks.push(chunk),
                    Err(what) => {
                        fault =
                            fault.take().or(Some(format!("row group {number}, column {}: {what}", one.name)));
                    }
                }
            }
            groups.push(Group { number, first, rows, chunks });
            let most = end.saturating_mul(ROWS_OF_A_BYTE).saturating_add(MAX_ROWS);
            first = first.saturating_add(rows);
            if first > most {
                return Err("more than 67,108,864 rows, and 4,096 more for each of the file's bytes");
            }
        }
        Ok(true)
    });
    read.map_err(unfit)?;
    if let Some(what) = fault {
        return Err(Fault::Table(what));
    }
    for group in &mut groups {
        for (chunk, one) in group.chunks.iter_mut().zip(wanted) {
            if orders.get(one.place) != Some(&true) {
                (chunk.statistics.min, chunk.statistics.max) = (None, None);
            }
        }
    }
    Ok(groups)
}

/// Which columns' extremes are in the order of their types.
fn orders_of(r: &mut Thrift<'_>, orders: &mut [bool]) -> Result<(), Wrong> {
    let (count, of) = r.list()?;
    for nth in 0..count {
        is(of, Wire::Struct)?;
        let mut known = false;
        r.fields(|_, number, _| {
            known = number == 1;
            Ok(false)
        })?;
        if let Some(order) = orders.get_mut(nth) {
            *order = known;
        }
    }
    Ok(())
}

/// Rows, and the chunks of what is asked for.
fn row_group(
    r: &mut Thrift<'_>,
    slots: &[Option<usize>],
    wanted: &[Wanted<'_>],
) -> Result<(u64, Vec<Stored>), Wrong> {
    let (mut rows, mut seen) = (None, false);
    let mut stored: Vec<Stored> = wanted.iter().map(|_| Stored::default()).collect();
    r.fields(|r, number, wire| {
        match number {
            1 => {
                if wire != Wire::List || seen {
                    return Err(OTHER);
                }
                seen = true;
                let (count, of) = r.list()?;
                if count != slots.len() {
                    return Err("a row group with other columns than the schema's");
                }
                for slot in slots {
                    is(of, Wire::Struct)?;
                    match slot.and_then(|slot| stored.get_mut(slot).zip(wanted.get(slot))) {
                        Some((stored, one)) => stored.read(r, one.statistics)?,
                        None => r.fields(|_, _, _| Ok(false))?,
                    }
                }
            }
            3 => rows = Some(r.size(wire)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    match rows.filter(|_| seen || slots.is_empty()) {
        Some(rows) => Ok((rows, stored)),
        None => Err("a row group without rows or columns"),
    }
}
