//! Values out of a page's bytes, one after the other (apache/parquet-format, Encodings.md). Every length that
//! is read is held to the bytes that are there; nothing is allocated for one.
#![deny(clippy::indexing_slicing)]

use super::super::MAX_ROW;
use super::super::needed::{Needed, cost, hold, hold_numbers};
use super::super::value::Cell;
use super::kind::{Kind, Physical};
use super::page::Encoding;
use super::thrift::{Thrift, Wrong};
use crate::fuel::Fuel;

const SHORT: Wrong = "values beyond its end";
const NO_LEVEL: Wrong = "a level that is none";

/// So many bits at a bit of the bytes, the lowest first; those beyond the end are none.
fn bits(bytes: &[u8], at: usize, width: u32) -> u64 {
    let (first, shift) = (at / 8, at as u32 % 8);
    let rest = bytes.get(first..).unwrap_or_default();
    let low = match rest.first_chunk::<8>() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => rest.iter().take(8).rev().fold(0, |all, byte| all << 8 | u64::from(*byte)),
    };
    let mut value = low >> shift;
    if shift + width > 64 {
        let ninth = rest.get(8).copied().unwrap_or_default();
        value |= u64::from(ninth) << (64 - shift);
    }
    if width < 64 { value & ((1 << width) - 1) } else { value }
}

/// Runs of one value, and of packed ones (RLE/bit-packing hybrid).
#[derive(Debug)]
pub(super) struct Runs {
    at: usize,
    end: usize,
    width: u32,
    left: u64,
    /// Of a run of one value.
    value: u32,
    /// The bit of the next, of packed ones.
    bit: Option<usize>,
}

impl Runs {
    pub(super) fn new(at: usize, end: usize, width: u32) -> Result<Runs, Wrong> {
        match width {
            0..=32 => Ok(Runs { at, end, width, left: 0, value: 0, bit: None }),
            _ => Err("values of more than 32 bits"),
        }
    }

    fn run(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        let rest = bytes.get(self.at..self.end).ok_or(SHORT)?;
        let mut r = Thrift::new(rest);
        let head = r.varint()?;
        self.at = self.end - r.left();
        let wide = self.width.div_ceil(8) as usize;
        if head & 1 == 0 {
            let value = bytes.get(self.at..self.end).and_then(|rest| rest.get(..wide)).ok_or(SHORT)?;
            self.value = value.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
            (self.left, self.bit, self.at) = (head >> 1, None, self.at + wide);
        } else {
            // Eights, of which the last may end early.
            let have = (self.end - self.at) as u64 * 8;
            let most = have.checked_div(self.width.into()).unwrap_or(u64::MAX);
            self.left = (head >> 1).saturating_mul(8).min(most);
            self.bit = Some(self.at * 8);
            let taken = (self.left * u64::from(self.width)).div_ceil(8);
            self.at += taken.min(have / 8) as usize;
        }
        match self.left {
            0 if self.at >= self.end => Err(SHORT),
            0 => Err("a run of no values"),
            _ => Ok(()),
        }
    }

    /// How many values are left of the run at hand, and which they are, where they are all the same.
    fn at_hand(&mut self, bytes: &[u8]) -> Result<(u64, Option<u32>), Wrong> {
        if self.left == 0 {
            self.run(bytes)?;
        }
        Ok((self.left, self.bit.is_none().then_some(self.value)))
    }

    /// Passes over values of the run at hand, which has so many.
    fn pass(&mut self, count: u64) {
        self.left -= count;
        if let Some(bit) = &mut self.bit {
            *bit += count as usize * self.width as usize;
        }
    }

    #[inline]
    fn next(&mut self, bytes: &[u8]) -> Result<u32, Wrong> {
        if self.left == 0 {
            self.run(bytes)?;
        }
        self.left -= 1;
        Ok(match &mut self.bit {
            None => self.value,
            Some(bit) => {
                let value = bits(bytes, *bit, self.width) as u32;
                *bit += self.width as usize;
                value
            }
        })
    }

    /// Passes over values, at most so many, up to one that is wanted or the end of the run at hand; over how
    /// many.
    fn pass_unwanted(
        &mut self,
        bytes: &[u8],
        most: u64,
        wanted: &[bool],
        fuel: &mut Fuel,
    ) -> Result<u64, Wrong> {
        let (left, same) = self.at_hand(bytes)?;
        let most = most.min(left);
        let passed = match (self.bit, same) {
            (Some(first), None) => {
                packed_unwanted((bytes, first, self.width), most.min(fuel.left() / 2), wanted)
            }
            (_, same) if same.is_some_and(|value| is_wanted(wanted, value.into())) => 0,
            _ => most,
        };
        fuel.take(if same.is_some() { 8 } else { 8 + 2 * passed });
        self.pass(passed);
        Ok(passed)
    }
}

/// Whether a number of a dictionary is wanted. One that it does not have is: what is wrong is said where
/// it is looked at.
#[inline(always)]
fn is_wanted(wanted: &[bool], number: u64) -> bool {
    wanted.get(number as usize).copied().unwrap_or(true)
}

/// Over how many packed values, at most so many, one comes from a bit on to the first that is wanted.
fn packed_unwanted(values: (&[u8], usize, u32), most: u64, wanted: &[bool]) -> u64 {
    // For each width a loop of its own, whose shifts are known.
    macro_rules! by_width {
        ($($width:literal)*) => {
            match values.2 {
                $($width => unwanted::<$width>(values, most, wanted),)*
                _ => unwanted::<0>(values, most, wanted),
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19)
}

/// The same of values of so many bits; of 0, which many are known only now.
#[inline(never)]
fn unwanted<const WIDTH: u32>((bytes, first, width): (&[u8], usize, u32), most: u64, wanted: &[bool]) -> u64 {
    let width = if WIDTH == 0 { width } else { WIDTH };
    // As many as eight bytes have, from a bit of the first on.
    let (at_once, mask) = (57 / width.max(1), (1u64 << width) - 1);
    let is = |word: u64, nth: u32| is_wanted(wanted, word >> (nth * width) & mask);
    let (mut bit, mut passed) = (first, 0);
    // Few words have one: no value has a branch of its own.
    while passed + u64::from(at_once) <= most {
        let word = bits(bytes, bit, 57);
        if (0..at_once).fold(false, |any, nth| any | is(word, nth)) {
            break;
        }
        passed += u64::from(at_once);
        bit += (at_once * width) as usize;
    }
    let word = bits(bytes, bit, 57);
    let rest = u64::from(at_once).min(most - passed) as u32;
    let before = (0..rest).find(|nth| is(word, *nth)).unwrap_or(rest);
    passed + u64::from(before)
}

/// Differences, in blocks (DELTA_BINARY_PACKED).
#[derive(Clone, Debug)]
struct Delta {
    at: usize,
    end: usize,
    /// Values of a block's parts, and how many parts it has.
    part: u64,
    parts: usize,
    left: u64,
    begun: bool,
    last: i64,
    least: i64,
    /// Where the parts' widths stand, and which part is at hand.
    widths: usize,
    nth: usize,
    in_part: u64,
    bit: usize,
    width: u32,
}

impl Delta {
    fn new(bytes: &[u8], at: usize, end: usize) -> Result<Delta, Wrong> {
        let mut r = Thrift::new(bytes.get(at..end).ok_or(SHORT)?);
        let (block, parts, left, last) = (r.varint()?, r.varint()?, r.varint()?, r.zigzag()?);
        let parts = usize::try_from(parts).ok().filter(|parts| (1..=MAX_ROW).contains(parts));
        let parts = parts.ok_or("a block of no parts, or of too many")?;
        let part = block / parts as u64;
        if !(8..=1 << 31).contains(&part) || !part.is_multiple_of(8) || block % parts as u64 != 0 {
            return Err("a block whose parts are no eights of values");
        }
        let at = end - r.left();
        let (least, widths, nth, in_part) = (0, 0, parts, 0);
        let (begun, bit, width) = (false, 0, 0);
        Ok(Delta { at, end, part, parts, left, begun, last, least, widths, nth, in_part, bit, width })
    }

    /// Begins with the next part of a block.
    fn next_part(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        self.nth += 1;
        if self.nth >= self.parts {
            let mut r = Thrift::new(bytes.get(self.at..self.end).ok_or(SHORT)?);
            self.least = r.zigzag()?;
            self.widths = self.end - r.left();
            self.at = self.widths.checked_add(self.parts).filter(|at| *at <= self.end).ok_or(SHORT)?;
            self.nth = 0;
        }
        self.width = bytes.get(self.widths + self.nth).copied().ok_or(SHORT)?.into();
        if self.width > 64 {
            return Err("differences of more than 64 bits");
        }
        self.bit = self.at * 8;
        let taken = self.part / 8 * u64::from(self.width);
        let at = usize::try_from(taken).ok().and_then(|taken| self.at.checked_add(taken));
        self.at = at.filter(|at| *at <= self.end).ok_or(SHORT)?;
        self.in_part = self.part;
        Ok(())
    }

    fn next(&mut self, bytes: &[u8]) -> Result<i64, Wrong> {
        self.left = self.left.checked_sub(1).ok_or("fewer values than the page has")?;
        if !std::mem::replace(&mut self.begun, true) {
            return Ok(self.last);
        }
        if self.in_part == 0 {
            self.next_part(bytes)?;
        }
        self.in_part -= 1;
        let difference = bits(bytes, self.bit, self.width).cast_signed();
        self.bit += self.width as usize;
        self.last = self.last.wrapping_add(self.least).wrapping_add(difference);
        Ok(self.last)
    }

    /// Where its bytes end.
    fn ends(&self, bytes: &[u8]) -> Result<usize, Wrong> {
        let mut walk = self.clone();
        let mut left = walk.left.saturating_sub(1);
        while left > 0 {
            walk.next_part(bytes)?;
            left = left.saturating_sub(walk.part);
        }
        Ok(walk.at)
    }

    /// A length that is none below zero.
    fn len(&mut self, bytes: &[u8]) -> Result<usize, Wrong> {
        usize::try_from(self.next(bytes)?).map_err(|_| "a length below zero")
    }
}

/// Comparisons of a dictionary's values that are made before there are rows.
const COMPARISONS: usize = 1 << 19;

/// What a chunk's values are numbers of.
#[derive(Debug)]
pub(super) struct Dictionary {
    bytes: Vec<u8>,
    /// Of texts, where they begin and the last ends.
    starts: Vec<u32>,
    count: usize,
    /// Of each, whether the comparisons of its column are true; of none where that is too much to look at.
    wanted: Vec<bool>,
}

impl Dictionary {
    /// Bytes that one of so many values has beside its page's.
    pub(super) fn beside(physical: Physical, values: u32, needed: &[Needed]) -> usize {
        let starts = if physical == Physical::Bytes { 4 * (values as usize + 1) } else { 0 };
        starts + if needed.is_empty() { 0 } else { (values as usize).min(COMPARISONS) }
    }

    /// What it holds.
    pub(super) fn held(&self) -> usize {
        self.bytes.len() + 4 * self.starts.len() + self.wanted.len()
    }

    /// Of a page of so many values, and of the comparisons without which no row is wanted.
    pub(super) fn new(
        bytes: Vec<u8>,
        values: u32,
        (kind, physical): (Kind, Physical),
        needed: &[Needed],
    ) -> Result<Dictionary, Wrong> {
        let count = values as usize;
        let mut starts = Vec::new();
        match physical.width() {
            Some(width) if count.checked_mul(width).is_none_or(|all| all > bytes.len()) => return Err(SHORT),
            Some(_) => {}
            None if physical == Physical::Bool => return Err("a dictionary of truths"),
            None => {
                // Each has its length before it.
                if count > bytes.len() / 4 {
                    return Err(SHORT);
                }
                starts.reserve_exact(count + 1);
                let mut at = 0;
                for _ in 0..count {
                    starts.push(at as u32);
                    at = plain_text(&bytes, at, bytes.len())?.1;
                }
                starts.push(at as u32);
            }
        }
        let mut new = Dictionary { bytes, starts, count, wanted: Vec::new() };
        let dear = if kind.is_dear() { 16 } else { 1 };
        if !needed.is_empty() && count.saturating_mul(needed.len()).saturating_mul(dear) <= COMPARISONS {
            let wanted = |cell: Cell| hold(needed, cell, &new.bytes);
            new.wanted = match physical.width() {
                Some(8) if (kind, physical) == (Kind::Float, Physical::Double) => {
                    let values = new.bytes.as_chunks().0.iter().take(count);
                    hold_numbers(needed, values.map(|value| f64::from_le_bytes(*value)))
                }
                Some(width @ 1..) => {
                    let values = new.bytes.chunks_exact(width).take(count);
                    values.map(|value| wanted(kind.cell(physical, value))).collect()
                }
                // What there is not is said where it is met.
                _ => {
                    (0..count as u32).map(|nth| new.cell(nth, kind, physical).map_or(true, wanted)).collect()
                }
            };
        }
        Ok(new)
    }

    /// The page that it was made of.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn cell(&self, nth: u32, kind: Kind, physical: Physical) -> Result<Cell, Wrong> {
        const NONE: Wrong = "a number that the dictionary does not have";
        let nth = nth as usize;
        if nth >= self.count {
            return Err(NONE);
        }
        match physical.width() {
            Some(width) => {
                let bytes = self.bytes.get(nth * width..(nth + 1) * width).ok_or(NONE)?;
                Ok(kind.cell(physical, bytes))
            }
            None => {
                let (from, to) = self.starts.get(nth).zip(self.starts.get(nth + 1)).ok_or(NONE)?;
                Ok(text(kind, physical, &self.bytes, *from as usize + 4, *to as usize))
            }
        }
    }
}

/// A text at a place, behind its length: where it begins and ends.
fn plain_text(bytes: &[u8], at: usize, end: usize) -> Result<(usize, usize), Wrong> {
    let len = bytes.get(at..end).and_then(|rest| rest.first_chunk::<4>()).ok_or(SHORT)?;
    let from = at + 4;
    let to = from.checked_add(u32::from_le_bytes(*len) as usize).filter(|to| *to <= end).ok_or(SHORT)?;
    Ok((from, to))
}

/// A value of bytes as a cell.
fn text(kind: Kind, physical: Physical, bytes: &[u8], from: usize, to: usize) -> Cell {
    match kind {
        Kind::Text => Cell::text(from, to),
        kind => kind.cell(physical, bytes.get(from..to).unwrap_or_default()),
    }
}

/// Where a page's values are.
#[derive(Debug)]
enum Values {
    Plain(usize),
    /// The next bit.
    Bits(usize),
    Truths(Runs),
    Numbers(Runs),
    Delta(Delta),
    DeltaLength(Delta, usize),
    DeltaText {
        kept: Delta,
        added: Delta,
        at: usize,
        before: Vec<u8>,
    },
    Split {
        from: usize,
        nth: usize,
        count: usize,
    },
}

impl Values {
    fn new(encoding: Encoding, physical: Physical, bytes: &[u8], at: usize) -> Result<Values, Wrong> {
        use Physical::{Bool, Bytes, Fixed, Int32, Int64};
        let end = bytes.len();
        Ok(match (encoding, physical) {
            (Encoding::Plain, Bool) => Values::Bits(at * 8),
            (Encoding::Plain, _) => Values::Plain(at),
            (Encoding::Rle, Bool) => {
                let (from, to) = plain_text(bytes, at, end)?;
                Values::Truths(Runs::new(from, to, 1)?)
            }
            (Encoding::Dictionary, _) => {
                // A page of nulls may have none.
                let width = bytes.get(at).copied().unwrap_or_default();
                Values::Numbers(Runs::new((at + 1).min(end), end, width.into())?)
            }
            (Encoding::Delta, Int32 | Int64) => Values::Delta(Delta::new(bytes, at, end)?),
            (Encoding::DeltaLength, Bytes) => {
                let lengths = Delta::new(bytes, at, end)?;
                let at = lengths.ends(bytes)?;
                Values::DeltaLength(lengths, at)
            }
            (Encoding::DeltaText, Bytes | Fixed(_)) => {
                let kept = Delta::new(bytes, at, end)?;
                let added = Delta::new(bytes, kept.ends(bytes)?, end)?;
                let at = added.ends(bytes)?;
                // A text has no byte that stands nowhere in the page.
                let before = Vec::with_capacity(Decoding::beside(encoding, end));
                Values::DeltaText { kept, added, at, before }
            }
            (Encoding::Split, physical) => match physical.width() {
                Some(width @ 1..) if physical != Physical::Int96 => {
                    Values::Split { from: at, nth: 0, count: (end - at) / width }
                }
                _ => return Err("split bytes of a type that has none"),
            },
            _ => return Err("an encoding that is none of the column's type"),
        })
    }
}

/// Values that are passed over at once, where each is looked at.
const AT_ONCE: u64 = 256;

impl Values {
    /// How many are passed over at once.
    fn at_once(&self, physical: Physical) -> u64 {
        match self {
            Values::Plain(_) if physical.width().is_none() => AT_ONCE,
            Values::Plain(_) | Values::Bits(_) | Values::Split { .. } => u64::MAX,
            Values::Truths(_) | Values::Numbers(_) | Values::Delta(_) | Values::DeltaLength(..) => AT_ONCE,
            // Each may have 128 KiB.
            Values::DeltaText { .. } => 1,
        }
    }

    /// Passes over so many; how many units that took.
    fn skip(&mut self, count: u64, physical: Physical, bytes: &[u8]) -> Result<u64, Wrong> {
        let on = |at: usize, by: u64, end: usize| {
            let at = usize::try_from(by).ok().and_then(|by| at.checked_add(by));
            at.filter(|at| *at <= end).ok_or(SHORT)
        };
        let mut units = 1;
        match self {
            Values::Plain(at) => match physical.width() {
                Some(width) => *at = on(*at, count.saturating_mul(width as u64), bytes.len())?,
                None => {
                    for _ in 0..count {
                        *at = plain_text(bytes, *at, bytes.len())?.1;
                    }
                    units += 10 * count;
                }
            },
            Values::Bits(bit) => *bit = on(*bit, count, bytes.len() * 8)?,
            Values::Truths(runs) | Values::Numbers(runs) => {
                let mut left = count;
                while left > 0 {
                    let part = runs.at_hand(bytes)?.0.min(left);
                    runs.pass(part);
                    left -= part;
                    units += 10;
                }
            }
            Values::Delta(delta) => {
                for _ in 0..count {
                    delta.next(bytes)?;
                }
                units += 6 * count;
            }
            Values::DeltaLength(lengths, at) => {
                for _ in 0..count {
                    *at = on(*at, lengths.len(bytes)? as u64, bytes.len())?;
                }
                units += 8 * count;
            }
            Values::DeltaText { kept, added, at, before } => {
                for _ in 0..count {
                    units += 20 + next_text((kept, added), at, before, bytes)? as u64 / 20;
                }
            }
            Values::Split { nth, count: all, .. } => *nth = on(*nth, count, *all)?,
        }
        Ok(units)
    }
}

/// Makes a text of the one before it; how many bytes are new.
fn next_text(
    (kept, added): (&mut Delta, &mut Delta),
    at: &mut usize,
    before: &mut Vec<u8>,
    bytes: &[u8],
) -> Result<usize, Wrong> {
    let (kept, added) = (kept.len(bytes)?, added.len(bytes)?);
    if kept > before.len() {
        return Err("a text that begins with more than the one before it has");
    }
    let new = bytes.get(*at..).and_then(|rest| rest.get(..added)).ok_or(SHORT)?;
    if kept + added > MAX_ROW {
        return Err("a value of more than 128 KiB");
    }
    *at += added;
    before.truncate(kept);
    before.extend_from_slice(new);
    Ok(added)
}

/// A page of values, in the making.
#[derive(Debug)]
pub(super) struct Decoding {
    bytes: Vec<u8>,
    /// Which rows have a value; `None`: all have.
    levels: Option<Runs>,
    values: Values,
    /// Rows that are left.
    pub(super) left: u32,
    kind: Kind,
    physical: Physical,
}

impl Decoding {
    /// What it holds beside its page, of which there are so many bytes.
    pub(super) fn beside(encoding: Encoding, page: usize) -> usize {
        if encoding == Encoding::DeltaText { page.min(MAX_ROW) } else { 0 }
    }

    /// Begins with a page. `levels`: their bytes, where a column may have nulls; of the first version of
    /// pages they lie behind their length.
    pub(super) fn new(
        bytes: Vec<u8>,
        (kind, physical): (Kind, Physical),
        (optional, levels): (bool, Option<usize>),
        encoding: Encoding,
        rows: u32,
    ) -> Result<Decoding, Wrong> {
        let (mut from, mut at) = (0, levels.unwrap_or(0));
        if levels.is_none() && optional {
            (from, at) = plain_text(&bytes, 0, bytes.len()).map_err(|_| "levels beyond its end")?;
        }
        let runs = if optional { Some(Runs::new(from, at, 1)?) } else { None };
        let empty = rows == 0 || at >= bytes.len();
        // Of nulls alone there is nothing, whatever the encoding.
        let encoding = if empty { Encoding::Plain } else { encoding };
        let values = Values::new(encoding, physical, &bytes, at)?;
        Ok(Decoding { bytes, levels: runs, values, left: rows, kind, physical })
    }

    /// Whether its values are numbers of a dictionary's.
    pub(super) fn wants_dictionary(&self) -> bool {
        matches!(self.values, Values::Numbers(_))
    }

    /// What it holds.
    pub(super) fn held(&self) -> usize {
        let before = if let Values::DeltaText { before, .. } = &self.values { before.capacity() } else { 0 };
        self.bytes.len() + before
    }

    /// The page.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What the text of the value that was taken last lies in.
    pub(super) fn text<'t>(&'t self, dictionary: Option<&'t Dictionary>) -> &'t [u8] {
        match (&self.values, dictionary) {
            (Values::Numbers(_), Some(dictionary)) => &dictionary.bytes,
            (Values::DeltaText { before, .. }, _) => before,
            _ => &self.bytes,
        }
    }

    /// Takes the value of a row, of which one is left.
    pub(super) fn take(&mut self, dictionary: Option<&Dictionary>, fuel: &mut Fuel) -> Result<Cell, Wrong> {
        self.left = self.left.checked_sub(1).ok_or(SHORT)?;
        fuel.take(if self.kind.is_dear() { 500 } else { 12 });
        match self.levels.as_mut().map(|levels| levels.next(&self.bytes)).transpose()? {
            None | Some(1) => self.value(dictionary, fuel),
            Some(0) => Ok(Cell::Null),
            Some(_) => Err(NO_LEVEL),
        }
    }

    /// Passes over rows, at most so many, until the slice is spent; over how many.
    pub(super) fn skip(&mut self, rows: u64, fuel: &mut Fuel) -> Result<u64, Wrong> {
        let most = rows.min(self.left.into());
        let mut passed = 0;
        while passed < most && !fuel.is_spent() {
            let (rows, values) = self.skip_levels((most - passed).min(self.values.at_once(self.physical)))?;
            let spent = self.values.skip(values, self.physical, &self.bytes)?;
            fuel.take(5 + spent);
            self.left -= rows as u32;
            passed += rows;
        }
        Ok(passed)
    }

    /// Passes over the levels of rows, at most so many: of how many, and of how many that have a value.
    fn skip_levels(&mut self, most: u64) -> Result<(u64, u64), Wrong> {
        let Some(levels) = &mut self.levels else { return Ok((most, most)) };
        let (left, same) = levels.at_hand(&self.bytes)?;
        let mut rows = most.min(left);
        let values = match same {
            Some(0) => 0,
            Some(1) => rows,
            Some(_) => return Err(NO_LEVEL),
            None => {
                rows = rows.min(64);
                let ones = levels.bit.map_or(0, |bit| bits(&self.bytes, bit, rows as u32).count_ones());
                ones.into()
            }
        };
        levels.pass(rows);
        Ok((rows, values))
    }

    /// Passes over rows for whose values the comparisons are not all true, at most so many, until the slice
    /// is spent: over how many, and the value of the row behind them, if it is wanted.
    pub(super) fn pass_unwanted(
        &mut self,
        rows: u64,
        needed: &[Needed],
        dictionary: Option<&Dictionary>,
        fuel: &mut Fuel,
    ) -> Result<(u64, Option<Cell>), Wrong> {
        let most = rows.min(self.left.into());
        let mut passed = 0;
        while passed < most && !fuel.is_spent() {
            let at_once = self.pass_at_once(most - passed, dictionary, fuel)?;
            passed += at_once;
            if at_once > 0 {
                continue;
            }
            let cell = self.take(dictionary, fuel)?;
            fuel.take(cost(needed, cell));
            if hold(needed, cell, self.text(dictionary)) {
                return Ok((passed, Some(cell)));
            }
            passed += 1;
        }
        Ok((passed, None))
    }

    /// The same without a look at values: nulls, of which no comparison is true, and numbers of a dictionary
    /// that has been compared; 0: the next row is looked at.
    fn pass_at_once(
        &mut self,
        most: u64,
        dictionary: Option<&Dictionary>,
        fuel: &mut Fuel,
    ) -> Result<u64, Wrong> {
        let (there, null) = match &mut self.levels {
            None => (most, false),
            Some(levels) => match levels.at_hand(&self.bytes)? {
                (left, Some(level @ 0..=1)) => (left.min(most), level == 0),
                _ => return Ok(0),
            },
        };
        let passed = match (&mut self.values, dictionary) {
            _ if null => {
                fuel.take(8);
                there
            }
            (Values::Numbers(numbers), Some(dictionary)) if !dictionary.wanted.is_empty() => {
                numbers.pass_unwanted(&self.bytes, there, &dictionary.wanted, fuel)?
            }
            _ => 0,
        };
        if let Some(levels) = &mut self.levels {
            levels.pass(passed);
        }
        self.left -= passed as u32;
        Ok(passed)
    }

    #[inline]
    fn value(&mut self, dictionary: Option<&Dictionary>, fuel: &mut Fuel) -> Result<Cell, Wrong> {
        let (kind, physical, bytes) = (self.kind, self.physical, &self.bytes[..]);
        Ok(match &mut self.values {
            Values::Plain(at) => match physical.width() {
                Some(width) => {
                    let value = bytes.get(*at..).and_then(|rest| rest.get(..width)).ok_or(SHORT)?;
                    *at += width;
                    kind.cell(physical, value)
                }
                None => {
                    let (from, to) = plain_text(bytes, *at, bytes.len())?;
                    *at = to;
                    text(kind, physical, bytes, from, to)
                }
            },
            Values::Bits(bit) => {
                let byte = bytes.get(*bit / 8).ok_or(SHORT)?;
                let is = byte >> (*bit % 8) & 1 == 1;
                *bit += 1;
                Cell::Bool(is)
            }
            Values::Truths(runs) => Cell::Bool(runs.next(bytes)? != 0),
            Values::Numbers(runs) => {
                let nth = runs.next(bytes)?;
                dictionary.ok_or("no dictionary before it")?.cell(nth, kind, physical)?
            }
            Values::Delta(delta) => {
                let raw = delta.next(bytes)?;
                // Differences of 32 bits go round there.
                let raw = if physical == Physical::Int32 { (raw as i32).into() } else { raw };
                kind.integer(physical, raw)
            }
            Values::DeltaLength(lengths, at) => {
                let to = lengths.len(bytes)?.checked_add(*at).filter(|to| *to <= bytes.len()).ok_or(SHORT)?;
                let from = std::mem::replace(at, to);
                text(kind, physical, bytes, from, to)
            }
            Values::DeltaText { kept, added, at, before } => {
                fuel.take(next_text((kept, added), at, before, bytes)? as u64 / 20);
                if physical.width().is_some_and(|width| width != before.len()) {
                    return Err("a value of another width than its type's");
                }
                text(kind, physical, before, 0, before.len())
            }
            Values::Split { from, nth, count } => {
                let width = physical.width().unwrap_or_default().min(16);
                let mut value = [0u8; 16];
                if *nth >= *count {
                    return Err(SHORT);
                }
                for (byte, to) in value.iter_mut().enumerate().take(width) {
                    *to = bytes.get(*from + byte * *count + *nth).copied().ok_or(SHORT)?;
                }
                *nth += 1;
                kind.cell(physical, value.get(..width).unwrap_or_default())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use nearside_random::Rng;

    use super::*;

    /// Numbers of every width, packed from a bit of a byte on, against a look at each.
    #[test]
    fn packed_values_are_passed_over_up_to_one_that_is_wanted() {
        const FIRST: usize = 3;
        let mut rng = Rng(3);
        for width in 0..=32u32 {
            let values = (1u64 << width).min(1000);
            let wanted: Vec<bool> = (0..values).map(|_| rng.below(30) == 0).collect();
            let numbers: Vec<u64> = (0..300).map(|_| rng.below(values)).collect();
            let each = numbers.iter().flat_map(|n| (0..width).map(move |bit| n >> bit & 1 == 1));
            let all: Vec<bool> = [false; FIRST].into_iter().chain(each).collect();
            let eight = |bits: &[bool]| bits.iter().rev().fold(0u8, |byte, bit| byte << 1 | u8::from(*bit));
            let bytes: Vec<u8> = all.chunks(8).map(eight).collect();
            for from in 0..numbers.len() {
                let most = rng.index(numbers.len() - from + 1);
                let mut rest = numbers.iter().skip(from).take(most);
                let expected = rest.position(|n| is_wanted(&wanted, *n)).unwrap_or(most) as u64;
                let at = FIRST + from * width as usize;
                let passed = packed_unwanted((&bytes, at, width), most as u64, &wanted);
                assert_eq!(passed, expected, "{width} bits, {most} from {from} on");
            }
        }
    }
}
