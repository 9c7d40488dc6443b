//! A selection as a request's options.
#![deny(clippy::arithmetic_side_effects, clippy::as_conversions, clippy::indexing_slicing)]

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::wire::{Fault, Reader, WireError, small};

const HEADER: u32 = 1;
const SKIP_BAD: u32 = 1 << 1;
const LIMIT: u32 = 1 << 2;
const QUOTE: u32 = 1 << 3;
const FLAGS: u32 = HEADER | SKIP_BAD | LIMIT | QUOTE;

const CSV: u32 = 0;
const JSON_LINES: u32 = 1;
const PARQUET: u32 = 2;

mod term {
    pub const COLUMN: u32 = 0;
    pub const NULL: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const INT: u32 = 3;
    pub const FLOAT: u32 = 4;
    pub const TEXT: u32 = 5;
    pub const AND: u32 = 6;
    pub const OR: u32 = 7;
    pub const NOT: u32 = 8;
    pub const IS_NULL: u32 = 9;
    pub const IN: u32 = 10;
    pub const LIKE: u32 = 11;
    pub const ILIKE: u32 = 12;
    pub const REGEX: u32 = 13;
    /// The first of the comparisons.
    pub const COMPARE: u32 = 16;
}

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

/// Its place in a list, as a number from 0.
fn place<T: PartialEq>(all: &[T], one: &T) -> u32 {
    small(all.iter().position(|other| other == one).unwrap_or_default())
}

fn put_u32(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    numbers.into_iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_u32(out, [small(text.len())]);
    out.extend_from_slice(text.as_bytes());
}

fn put_term(out: &mut Vec<u8>, of: &Term) {
    match of {
        Term::Column(name) => {
            put_u32(out, [term::COLUMN]);
            put_text(out, name);
        }
        Term::Literal(Literal::Null) => put_u32(out, [term::NULL]),
        Term::Literal(Literal::Bool(value)) => put_u32(out, [term::BOOL, u32::from(*value)]),
        Term::Literal(Literal::Int(value)) => {
            put_u32(out, [term::INT]);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Term::Literal(Literal::Float(value)) => {
            put_u32(out, [term::FLOAT]);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Term::Literal(Literal::Text(text)) => {
            put_u32(out, [term::TEXT]);
            put_text(out, text);
        }
        Term::Compare(how) => put_u32(out, [term::COMPARE.saturating_add(place(&COMPARISONS, how))]),
        Term::And => put_u32(out, [term::AND]),
        Term::Or => put_u32(out, [term::OR]),
        Term::Not => put_u32(out, [term::NOT]),
        Term::IsNull => put_u32(out, [term::IS_NULL]),
        Term::In(count) => put_u32(out, [term::IN, *count]),
        Term::Like { pattern, ignore_case } => {
            put_u32(out, [if *ignore_case { term::ILIKE } else { term::LIKE }]);
            put_text(out, pattern);
        }
        Term::Regex(pattern) => {
            put_u32(out, [term::REGEX]);
            put_text(out, pattern);
        }
    }
}

fn invalid<T>(at: usize, what: &'static str) -> Result<T, WireError> {
    Err(WireError { at, what: Fault::Invalid(what) })
}

fn take_text(r: &mut Reader<'_>, most: usize, what: &'static str) -> Result<String, WireError> {
    let at = r.at;
    let len = r.len()?;
    if len > most {
        return invalid(at, what);
    }
    Ok(r.text(len)?.to_owned())
}

fn take_name(r: &mut Reader<'_>) -> Result<String, WireError> {
    take_text(r, MAX_COLUMN_NAME, "name of a column: too long")
}

fn take_pattern(r: &mut Reader<'_>) -> Result<String, WireError> {
    take_text(r, MAX_TERM_TEXT, "text of a condition: too long")
}

fn take_of<T: Copy>(all: &[T], from: u32, number: u32) -> Option<T> {
    let at = usize::try_from(number.checked_sub(from)?).ok()?;
    all.get(at).copied()
}

fn take_term(r: &mut Reader<'_>) -> Result<Term, WireError> {
    let at = r.at;
    Ok(match r.u32()? {
        term::COLUMN => Term::Column(take_name(r)?),
        term::NULL => Term::Literal(Literal::Null),
        term::BOOL => match r.u32()? {
            value @ (0 | 1) => Term::Literal(Literal::Bool(value == 1)),
            _ => return invalid(at, "truth"),
        },
        term::INT => Term::Literal(Literal::Int(r.u64()?.cast_signed())),
        term::FLOAT => Term::Literal(Literal::Float(f64::from_bits(r.u64()?))),
        term::TEXT => Term::Literal(Literal::Text(take_pattern(r)?)),
        term::AND => Term::And,
        term::OR => Term::Or,
        term::NOT => Term::Not,
        term::IS_NULL => Term::IsNull,
        term::IN => Term::In(r.u32()?),
        term::LIKE => Term::Like { pattern: take_pattern(r)?, ignore_case: false },
        term::ILIKE => Term::Like { pattern: take_pattern(r)?, ignore_case: true },
        term::REGEX => Term::Regex(take_pattern(r)?),
        number => match take_of(&COMPARISONS, term::COMPARE, number) {
            Some(how) => Term::Compare(how),
            None => return Err(WireError { at, what: Fault::Unknown("term", number) }),
        },
    })
}

/// So many of them, of which there are at most `most`.
fn take_all<T>(
    r: &mut Reader<'_>,
    most: usize,
    what: &'static str,
    mut take: impl FnMut(&mut Reader<'_>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let at = r.at;
    let count = r.len()?;
    if count > most {
        return invalid(at, what);
    }
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(take(r)?);
    }
    Ok(all)
}

fn take_type(r: &mut Reader<'_>) -> Result<ColumnType, WireError> {
    let at = r.at;
    let number = r.u32()?;
    take_of(&ColumnType::ALL, 1, number).ok_or(WireError { at, what: Fault::Unknown("column type", number) })
}

fn take_aggregate(r: &mut Reader<'_>) -> Result<Aggregate, WireError> {
    let at = r.at;
    let (number, named) = (r.u32()?, r.u32()?);
    let function = take_of(&Function::ALL, 1, number);
    let function = function.ok_or(WireError { at, what: Fault::Unknown("aggregate", number) })?;
    let column = match named {
        0 => None,
        1 => Some(take_name(r)?),
        _ => return invalid(at, "aggregate"),
    };
    if column.is_none() && function != Function::Count {
        return invalid(at, "aggregate: without a column");
    }
    Ok(Aggregate { function, column })
}

impl SelectOptions {
    /// Bits 0 to 2: formats; from bit 8 on: aggregates.
    pub(crate) const BITS: u32 = 0b111 | 0b1_1111 << 8;

    /// Format, delimiter, quote, flags, limit; then lists, each behind its length.
    pub(crate) fn put(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (format, delimiter, quote, header) = match self.format {
            RowFormat::Csv { delimiter, quote, header } => (CSV, delimiter, quote, header),
            RowFormat::JsonLines => (JSON_LINES, 0, None, false),
            RowFormat::Parquet => (PARQUET, 0, None, false),
        };
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let flags = flag(header, HEADER)
            | flag(self.skip_bad, SKIP_BAD)
            | flag(self.limit.is_some(), LIMIT)
            | flag(quote.is_some(), QUOTE);
        put_u32(&mut out, [format, delimiter.into(), quote.unwrap_or_default().into(), flags]);
        out.extend_from_slice(&self.limit.unwrap_or_default().to_le_bytes());
        put_u32(&mut out, [small(self.schema.len())]);
        for (name, kind) in &self.schema {
            put_u32(&mut out, [place(&ColumnType::ALL, kind).saturating_add(1)]);
            put_text(&mut out, name);
        }
        put_u32(&mut out, [small(self.columns.len())]);
        self.columns.iter().for_each(|name| put_text(&mut out, name));
        put_u32(&mut out, [small(self.filter.len())]);
        self.filter.iter().for_each(|term| put_term(&mut out, term));
        put_u32(&mut out, [small(self.group_by.len())]);
        self.group_by.iter().for_each(|name| put_text(&mut out, name));
        put_u32(&mut out, [small(self.aggregates.len())]);
        for Aggregate { function, column } in &self.aggregates {
            let function = place(&Function::ALL, function).saturating_add(1);
            put_u32(&mut out, [function, u32::from(column.is_some())]);
            column.iter().for_each(|name| put_text(&mut out, name));
        }
        out
    }

    pub(crate) fn take(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let at = r.at;
        let (format, delimiter, quote, flags) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        if flags & !FLAGS != 0 {
            return Err(WireError { at, what: Fault::UnknownFlags(flags & !FLAGS) });
        }
        let is = |flag| flags & flag != 0;
        let format = match (format, u8::try_from(delimiter), u8::try_from(quote)) {
            (CSV, Ok(delimiter), Ok(quote)) if is(QUOTE) || quote == 0 => {
                let quote = is(QUOTE).then_some(quote);
                let ends = |byte: u8| matches!(byte, b'\r' | b'\n');
                if ends(delimiter) || quote.is_some_and(|quote| ends(quote) || quote == delimiter) {
                    return invalid(at, "delimiter or quote");
                }
                RowFormat::Csv { delimiter, quote, header: is(HEADER) }
            }
            (JSON_LINES, Ok(0), Ok(0)) if !is(HEADER) && !is(QUOTE) => RowFormat::JsonLines,
            (PARQUET, Ok(0), Ok(0)) if !is(HEADER) && !is(QUOTE) => RowFormat::Parquet,
            (CSV | JSON_LINES | PARQUET, ..) => return invalid(at, "delimiter or quote"),
            (format, ..) => return Err(WireError { at, what: Fault::Unknown("row format", format) }),
        };
        let limit = r.u64()?;
        if !is(LIMIT) && limit != 0 {
            return invalid(at, "limit");
        }
        let schema = take_all(r, MAX_FIELDS, "schema: too many columns", |r| {
            let kind = take_type(r)?;
            Ok((take_name(r)?, kind))
        })?;
        let columns_at = r.at;
        let columns = take_all(r, MAX_FIELDS, "columns: too many", take_name)?;
        if twice(&columns).is_some() {
            return invalid(columns_at, "columns: one is named twice");
        }
        let terms_at = r.at;
        let filter = take_all(r, MAX_TERMS, "condition: too many terms", take_term)?;
        stack_of(&filter).or_else(|what| invalid(terms_at, what))?;
        if filter.iter().filter(|term| matches!(term, Term::Regex(_))).count() > MAX_REGEXES {
            return invalid(terms_at, "condition: too many regular expressions");
        }
        let groups_at = r.at;
        let group_by = take_all(r, MAX_AGGREGATES, "groups: too many columns", take_name)?;
        if twice(&group_by).is_some() {
            return invalid(groups_at, "groups: a column is named twice");
        }
        let aggregates = take_all(r, MAX_AGGREGATES, "aggregates: too many", take_aggregate)?;
        let limit = is(LIMIT).then_some(limit);
        let skip_bad = is(SKIP_BAD);
        Ok(SelectOptions { format, schema, columns, filter, limit, group_by, aggregates, skip_bad })
    }
}
