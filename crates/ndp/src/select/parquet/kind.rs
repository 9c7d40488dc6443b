//! What a column's values are: physical types and what the schema says that they mean (apache/parquet-format,
//! Types.md, Encodings.md and LogicalTypes.md), as cells.

use nearside_near_data::ColumnType;

use super::super::value::Cell;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Physical {
    Bool,
    Int32,
    Int64,
    /// Nanoseconds of a day, and a Julian day.
    Int96,
    Float,
    Double,
    Bytes,
    Fixed(u32),
}

impl Physical {
    pub(super) fn of(number: i64, len: u32) -> Option<Physical> {
        Some(match number {
            0 => Physical::Bool,
            1 => Physical::Int32,
            2 => Physical::Int64,
            3 => Physical::Int96,
            4 => Physical::Float,
            5 => Physical::Double,
            6 => Physical::Bytes,
            7 => Physical::Fixed(len),
            _ => return None,
        })
    }

    /// Bytes of a value of a fixed width.
    pub(super) fn width(self) -> Option<usize> {
        match self {
            Physical::Bool | Physical::Bytes => None,
            Physical::Int32 | Physical::Float => Some(4),
            Physical::Int64 | Physical::Double => Some(8),
            Physical::Int96 => Some(12),
            Physical::Fixed(len) => Some(len as usize),
        }
    }

    fn name(self) -> String {
        match self {
            Physical::Bool => "boolean".to_owned(),
            Physical::Int32 => "int32".to_owned(),
            Physical::Int64 => "int64".to_owned(),
            Physical::Int96 => "int96".to_owned(),
            Physical::Float => "float".to_owned(),
            Physical::Double => "double".to_owned(),
            Physical::Bytes => "binary".to_owned(),
            Physical::Fixed(len) => format!("fixed_len_byte_array({len})"),
        }
    }
}

/// A part of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Millis,
    Micros,
    Nanos,
}

/// What the schema says of a column beside its physical type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    None,
    Text,
    Date,
    Timestamp(Unit),
    Integer {
        signed: bool,
    },
    Decimal {
        precision: i64,
        scale: i64,
    },
    /// One that no type of a selection's is like.
    Other(&'static str),
}

/// A column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Unsigned,
    Float,
    Date,
    Timestamp(Unit),
    /// A timestamp of 96 bits.
    Int96,
    Text,
    /// Of so many digits behind the point.
    Decimal(u32),
}

impl Kind {
    /// What a column is, of which the request may say that it is to be of a type; or what stands in the way.
    pub(super) fn of(
        physical: Physical,
        meaning: Meaning,
        given: Option<ColumnType>,
    ) -> Result<Kind, String> {
        use Physical::{Bool, Bytes, Double, Fixed, Float, Int32, Int64, Int96};
        let kind = match (physical, meaning) {
            (Bool, Meaning::None) => Kind::Bool,
            (Int32 | Int64, Meaning::None | Meaning::Integer { signed: true }) => Kind::Int,
            (Int32 | Int64, Meaning::Integer { signed: false }) => Kind::Unsigned,
            (Float | Double, Meaning::None) => Kind::Float,
            (Int32, Meaning::Date) => Kind::Date,
            (Int64, Meaning::Timestamp(unit)) => Kind::Timestamp(unit),
            (Int96, Meaning::None) => Kind::Int96,
            (Bytes, Meaning::Text) => Kind::Text,
            (Bytes, Meaning::None) if given == Some(ColumnType::Utf8) => Kind::Text,
            (Bytes, Meaning::None) => {
                return Err("binary, which is read where a schema says that it is utf8".to_owned());
            }
            (Int32 | Int64 | Bytes | Fixed(1..=16), Meaning::Decimal { precision, scale }) => {
                match u32::try_from(scale).ok().filter(|_| scale <= precision && precision <= 38) {
                    Some(scale) if given == Some(ColumnType::Float64) => Kind::Decimal(scale),
                    _ => {
                        return Err(format!(
                            "decimal({precision},{scale}), which is read where a schema says that it is float64"
                        ));
                    }
                }
            }
            (_, Meaning::Other(what)) => return Err(format!("{what}, which is not read")),
            (physical, _) => return Err(format!("{}, which is not read", physical.name())),
        };
        match given {
            Some(given) if given != kind.column_type() => {
                Err(format!("{}, and not {}", kind.column_type().name(), given.name()))
            }
            _ => Ok(kind),
        }
    }

    /// As a selection has it.
    pub(super) fn column_type(self) -> ColumnType {
        match self {
            Kind::Bool => ColumnType::Bool,
            Kind::Int | Kind::Unsigned => ColumnType::Int64,
            Kind::Float | Kind::Decimal(_) => ColumnType::Float64,
            Kind::Date => ColumnType::Date,
            Kind::Timestamp(_) | Kind::Int96 => ColumnType::Timestamp,
            Kind::Text => ColumnType::Utf8,
        }
    }

    /// Whether making a value may take some hundred nanoseconds.
    pub(super) fn is_dear(self) -> bool {
        matches!(self, Kind::Decimal(_))
    }

    /// A value from its bytes as they are stored; of texts, nothing.
    #[inline]
    pub(super) fn cell(self, physical: Physical, bytes: &[u8]) -> Cell {
        let short = || bytes.try_into().map_or(0, i32::from_le_bytes);
        let long = || bytes.try_into().map_or(0, i64::from_le_bytes);
        match physical {
            Physical::Bool => Cell::Bool(bytes.first().is_some_and(|byte| byte & 1 == 1)),
            Physical::Int32 => self.integer(physical, short().into()),
            Physical::Int64 => self.integer(physical, long()),
            Physical::Float => Cell::Float(f32::from_bits(short().cast_unsigned()).into()),
            Physical::Double => Cell::Float(f64::from_bits(long().cast_unsigned())),
            Physical::Int96 => int96(bytes),
            Physical::Bytes | Physical::Fixed(_) => match self {
                Kind::Decimal(scale) => decimal(bytes, scale),
                _ => Cell::Null,
            },
        }
    }

    /// A value from an integer; of 32 bits its sign is extended.
    #[inline]
    pub(super) fn integer(self, physical: Physical, raw: i64) -> Cell {
        match self {
            Kind::Unsigned if physical == Physical::Int32 => Cell::Int(raw & 0xffff_ffff),
            Kind::Unsigned if raw < 0 => bad(raw),
            Kind::Date => i32::try_from(raw).map_or_else(|_| bad(raw), Cell::Date),
            Kind::Timestamp(Unit::Millis) => raw.checked_mul(1000).map_or_else(|| bad(raw), Cell::Time),
            Kind::Timestamp(Unit::Nanos) if raw % 1000 != 0 => bad(raw),
            Kind::Timestamp(Unit::Nanos) => Cell::Time(raw / 1000),
            Kind::Timestamp(Unit::Micros) => Cell::Time(raw),
            Kind::Decimal(scale) => quotient(raw.into(), scale),
            _ => Cell::Int(raw),
        }
    }

    /// The number that a [`Cell::Bad`] of an integer stands for, as text.
    pub(super) fn described(self, low: u32, high: u32) -> String {
        let raw = u64::from(high) << 32 | u64::from(low);
        match self {
            Kind::Unsigned => raw.to_string(),
            Kind::Int96 | Kind::Timestamp(Unit::Nanos) => format!("{} ns", raw.cast_signed()),
            _ => raw.cast_signed().to_string(),
        }
    }
}

/// An integer that is no value of its column's type.
fn bad(raw: i64) -> Cell {
    let raw = raw.cast_unsigned();
    Cell::Bad(raw as u32, (raw >> 32) as u32)
}

/// Of 1970-01-01.
const JULIAN_DAY: i64 = 2_440_588;

fn int96(bytes: &[u8]) -> Cell {
    let Some((nanos, day)) = bytes.split_first_chunk::<8>() else { return Cell::Null };
    let nanos = i64::from_le_bytes(*nanos);
    let day = i64::from(day.try_into().map_or(0, i32::from_le_bytes)) - JULIAN_DAY;
    let micros = day.checked_mul(super::super::value::DAY_US).and_then(|day| day.checked_add(nanos / 1000));
    match micros {
        Some(micros) if nanos % 1000 == 0 => Cell::Time(micros),
        _ => bad(nanos),
    }
}

/// Two's complement, the first byte first.
fn decimal(bytes: &[u8], scale: u32) -> Cell {
    let Some(first) = bytes.first().filter(|_| bytes.len() <= 16) else { return bad(0) };
    let sign = if first & 0x80 == 0 { 0 } else { -1i128 };
    quotient(bytes.iter().fold(sign, |all, byte| all << 8 | i128::from(*byte)), scale)
}

/// The number that is nearest.
fn quotient(unscaled: i128, scale: u32) -> Cell {
    const EXACT: u128 = 1 << 53;
    if unscaled.unsigned_abs() <= EXACT && scale <= 22 {
        // Both are exact, and division rounds once.
        return Cell::Float(unscaled as f64 / 10f64.powi(scale as i32));
    }
    Cell::Float(format!("{unscaled}e-{scale}").parse().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_their_bytes_mean() {
        let of = |kind: Kind, physical, bytes: &[u8]| kind.cell(physical, bytes);
        use Physical::{Bytes, Fixed, Int32, Int64, Int96};
        assert_eq!(of(Kind::Unsigned, Int32, &[0xff; 4]), Cell::Int(4_294_967_295));
        let Cell::Bad(low, high) = of(Kind::Unsigned, Int64, &[0xff; 8]) else { panic!("it has no room") };
        assert_eq!(Kind::Unsigned.described(low, high), "18446744073709551615");
        let nanos = Kind::Timestamp(Unit::Nanos);
        assert_eq!(nanos.integer(Int64, -3000), Cell::Time(-3));
        let Cell::Bad(low, high) = nanos.integer(Int64, -3001) else { panic!("no whole microsecond") };
        assert_eq!(nanos.described(low, high), "-3001 ns");
        assert!(matches!(Kind::Timestamp(Unit::Millis).integer(Int64, i64::MAX / 2), Cell::Bad(..)));
        let mut day = [0u8; 12];
        day[..8].copy_from_slice(&5000i64.to_le_bytes());
        day[8..].copy_from_slice(&2_440_589i32.to_le_bytes());
        assert_eq!(of(Kind::Int96, Int96, &day), Cell::Time(86_400_000_005));
        assert_eq!(of(Kind::Decimal(2), Fixed(3), &[0xff, 0xff, 0x85]), Cell::Float(-1.23));
        assert_eq!(
            of(Kind::Decimal(0), Bytes, &[0x7f; 16]),
            Cell::Float(i128::from_be_bytes([0x7f; 16]) as f64)
        );
        assert!(matches!(of(Kind::Decimal(0), Bytes, &[1; 17]), Cell::Bad(..)));
        assert_eq!(quotient(i128::MIN, 38), Cell::Float(-1.7014118346046923));
    }
}
