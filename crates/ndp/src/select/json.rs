//! A line of JSON as a row: the members of an object that are asked for.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use nearside_near_data::ColumnType;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::value::{Cell, Guess, parse};

/// Members by their names, in the names' order: each with its place and type.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<(String, usize, ColumnType)>);

/// A row.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) cells: Vec<Cell>,
    pub(super) text: Vec<u8>,
}

impl Members {
    pub(super) fn new(mut all: Vec<(String, usize, ColumnType)>) -> Members {
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Members(all)
    }

    fn find(&self, name: &str) -> Option<(usize, ColumnType)> {
        let at = self.0.binary_search_by(|(other, ..)| other.as_str().cmp(name)).ok()?;
        self.0.get(at).map(|(_, place, kind)| (*place, *kind))
    }

    /// Reads a line into `row`, which has as many cells as there are places.
    pub(super) fn read(&self, line: &[u8], row: &mut Parsed, places: usize) -> Result<(), String> {
        row.cells.clear();
        row.cells.resize(places, Cell::Null);
        row.text.clear();
        each(
            line,
            |name| self.find(name),
            |(place, kind), value| {
                let cell = cell(kind, &value, &mut row.text);
                if let Some(place) = row.cells.get_mut(place) {
                    *place = cell;
                }
            },
        )
    }
}

/// A value as one of that type.
fn cell(kind: ColumnType, value: &Value, text: &mut Vec<u8>) -> Cell {
    let from = text.len();
    let known = match (kind, value) {
        (_, Value::Null) => Some(Cell::Null),
        (ColumnType::Bool, Value::Bool(is)) => Some(Cell::Bool(*is)),
        (ColumnType::Int64, Value::Number(number)) => number.as_i64().map(Cell::Int),
        (ColumnType::Float64, Value::Number(number)) => number.as_f64().map(Cell::Float),
        (ColumnType::Date | ColumnType::Timestamp, Value::String(text)) => parse(kind, text.as_bytes()),
        _ => None,
    };
    if let Some(known) = known {
        return known;
    }
    match value {
        Value::String(value) => text.extend_from_slice(value.as_bytes()),
        value => text.extend_from_slice(value.to_string().as_bytes()),
    }
    match kind {
        ColumnType::Utf8 => Cell::text(from, text.len()),
        _ => Cell::bad(from, text.len()),
    }
}

/// Hands on the members of an object that `wanted` names.
fn each<W>(
    line: &[u8],
    wanted: impl FnMut(&str) -> Option<W>,
    take: impl FnMut(W, Value),
) -> Result<(), String> {
    struct Object<A, B>(A, B);
    impl<'de, W, A: FnMut(&str) -> Option<W>, B: FnMut(W, Value)> Visitor<'de> for Object<A, B> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
            while let Some(name) = map.next_key::<Name<'de>>()? {
                match (self.0)(&name.0) {
                    Some(wanted) => (self.1)(wanted, map.next_value()?),
                    None => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(())
        }
    }
    let mut reader = serde_json::Deserializer::from_slice(line);
    reader.deserialize_map(Object(wanted, take)).and_then(|()| reader.end()).map_err(|error| {
        // A line has no lines.
        let text = error.to_string();
        text.replacen(" at line 1 column ", " at byte ", 1)
    })
}

/// A name, borrowed where it has no escapes.
struct Name<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        reader.deserialize_str(Text)
    }
}

/// What members lines have had, in the order in which they came first.
#[derive(Debug, Default)]
pub(super) struct Seen {
    names: Vec<String>,
    guesses: Vec<Guess>,
    places: HashMap<String, usize>,
}

impl Seen {
    /// Adds what a line's members are like, of at most so many names. A line that is none adds those before
    /// its fault, which is said when its turn comes.
    pub(super) fn guess(&mut self, line: &[u8], most: usize) {
        let Seen { names, guesses, places } = self;
        let _later = each(
            line,
            |name| match places.get(name) {
                Some(place) => Some(*place),
                None if names.len() < most => {
                    places.insert(name.to_owned(), names.len());
                    names.push(name.to_owned());
                    Some(names.len() - 1)
                }
                None => None,
            },
            |place, value| {
                guesses.resize(guesses.len().max(place + 1), Guess::default());
                if let Some(guess) = guesses.get_mut(place) {
                    guess.json(&value);
                }
            },
        );
        // A name whose value was none.
        if names.len() > guesses.len() {
            names.pop().and_then(|name| places.remove(&name));
        }
    }

    pub(super) fn columns(self) -> impl Iterator<Item = (String, Guess)> {
        self.names.into_iter().zip(self.guesses)
    }
}
