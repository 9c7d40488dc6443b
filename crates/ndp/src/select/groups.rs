//! Rows put together by what some of their columns hold: counts, sums, extremes. Bounded, and of one size
//! from the first group on, so that nothing is moved while it grows.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};

use nearside_near_data::{ColumnType, Function, MAX_ROW_GROUPS};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Fault;
use super::value::{Cell, floats};
use crate::fuel::Fuel;

/// Most results of all groups together.
const STATES: usize = 4 * MAX_ROW_GROUPS;
/// Bytes of all keys and texts.
const BYTES: usize = 4 << 20;
const SLOTS: usize = 2 * MAX_ROW_GROUPS;

/// What is made of which slot of a row, of which type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making {
    pub(super) function: Function,
    pub(super) slot: Option<usize>,
    pub(super) kind: ColumnType,
}

impl Making {
    /// Whether a value is kept.
    fn keeps(&self) -> bool {
        matches!(self.function, Function::Min | Function::Max)
    }

    /// The types of what comes of it.
    pub(super) fn kinds(&self) -> Vec<ColumnType> {
        match self.function {
            Function::Count => vec![ColumnType::Int64],
            Function::Sum | Function::Min | Function::Max => vec![self.kind],
            Function::Average => vec![ColumnType::Float64, ColumnType::Int64],
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    count: i64,
    int: i128,
    float: f64,
    best: Cell,
    /// Of a best text, how many bytes there are for others.
    room: u32,
}

/// The groups of a file.
pub(super) struct Groups {
    /// By hash, a group's number and 1.
    slots: Vec<u32>,
    seed: u64,
    /// Where each group's key lies among the texts.
    keys: Vec<(u32, u32)>,
    states: Vec<State>,
    texts: Vec<u8>,
    key: Vec<u8>,
}

impl Groups {
    pub(super) fn new() -> Groups {
        let seed = RandomState::new().build_hasher().finish();
        Groups {
            slots: Vec::new(),
            seed,
            keys: Vec::new(),
            states: Vec::new(),
            texts: Vec::new(),
            key: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(0);
        self.keys.clear();
        self.states.clear();
        self.texts.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Makes a group where there is none, even without a row.
    pub(super) fn at_least_one(&mut self, makings: &[Making]) -> Result<(), Fault> {
        if self.keys.is_empty() {
            self.key.clear();
            self.group(makings)?;
        }
        Ok(())
    }

    /// Adds a row.
    pub(super) async fn add(
        &mut self,
        by: &[usize],
        makings: &[Making],
        row: (&[Cell], &[u8]),
        fuel: &mut Fuel,
    ) -> Result<(), Fault> {
        self.key.clear();
        for slot in by {
            let before = self.key.len();
            put_key(&mut self.key, cell(row.0, *slot), row.1);
            fuel.spend_bytes(self.key.len() - before).await;
        }
        // It is hashed, compared and put among the texts.
        fuel.spend_bytes(3 * self.key.len()).await;
        for making in makings.iter().filter(|making| making.keeps()) {
            if let Cell::Text(from, to) = making.slot.map_or(Cell::Null, |slot| cell(row.0, slot)) {
                // It is compared and put among the texts, with room for a longer one.
                fuel.spend_bytes(3 * (to - from) as usize).await;
            }
        }
        self.put(makings, row)
    }

    /// Adds a row whose texts are short; how many units that takes.
    pub(super) fn add_short(
        &mut self,
        by: &[usize],
        makings: &[Making],
        row: (&[Cell], &[u8]),
    ) -> Result<u64, Fault> {
        self.key.clear();
        by.iter().for_each(|slot| put_key(&mut self.key, cell(row.0, *slot), row.1));
        self.put(makings, row)?;
        Ok((4 * self.key.len() + 3 * row.1.len() * makings.len()) as u64 / 32)
    }

    /// Adds a row to the group with the key at hand.
    fn put(&mut self, makings: &[Making], (cells, text): (&[Cell], &[u8])) -> Result<(), Fault> {
        let group = self.group(makings)?;
        for (nth, making) in (group * makings.len()..).zip(makings) {
            let Some(state) = self.states.get_mut(nth) else { continue };
            let Some(slot) = making.slot else {
                state.count += 1;
                continue;
            };
            let value = cell(cells, slot);
            if value == Cell::Null {
                continue;
            }
            state.count += 1;
            match (making.function, value) {
                (Function::Sum | Function::Average, Cell::Int(n)) => state.int += i128::from(n),
                (Function::Sum | Function::Average, Cell::Float(n)) => state.float += n,
                (Function::Min, _) => extreme(state, &mut self.texts, value, text, Ordering::Less)?,
                (Function::Max, _) => extreme(state, &mut self.texts, value, text, Ordering::Greater)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The number of the group with the key at hand.
    fn group(&mut self, makings: &[Making]) -> Result<usize, Fault> {
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, 0);
            self.keys.reserve_exact(MAX_ROW_GROUPS);
            self.states.reserve_exact(STATES);
        }
        let mut slot = xxh3_64_with_seed(&self.key, self.seed) as usize % SLOTS;
        loop {
            let found = self.slots.get(slot).copied().unwrap_or_default();
            let Some(group) = (found as usize).checked_sub(1) else { break };
            let key = self.keys.get(group).map(|(from, to)| *from as usize..*to as usize);
            if key.and_then(|key| self.texts.get(key)) == Some(&self.key) {
                return Ok(group);
            }
            slot = (slot + 1) % SLOTS;
        }
        let group = self.keys.len();
        if group == MAX_ROW_GROUPS || self.states.len() + makings.len() > STATES {
            return Err(Fault::Limit(format!("too many groups: more than {group}")));
        }
        let key = place(&mut self.texts, &self.key, self.key.len())?;
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = group as u32 + 1;
        }
        self.keys.push(key);
        self.states.resize(self.states.len() + makings.len(), State::default());
        Ok(group)
    }

    /// What texts of [`Groups::row`] lie in.
    pub(super) fn text(&self) -> &[u8] {
        &self.texts
    }

    /// Whether a group's sums have room in their types.
    pub(super) fn sums(&self, group: usize, makings: &[Making]) -> Result<(), Fault> {
        let states = self.states.iter().skip(group * makings.len());
        for (making, state) in makings.iter().zip(states) {
            if making.function == Function::Sum && making.kind == ColumnType::Int64 {
                sum(*state)?;
            }
        }
        Ok(())
    }

    /// A group's key, and what was made of it.
    pub(super) fn row(&self, group: usize, makings: &[Making], out: &mut Vec<Cell>) -> Result<(), Fault> {
        out.clear();
        let (from, to) = self.keys.get(group).copied().unwrap_or_default();
        let mut at = from as usize;
        while at < to as usize {
            let Some((cell, next)) = take_key(&self.texts, at) else { break };
            out.push(cell);
            at = next;
        }
        for (nth, making) in (group * makings.len()..).zip(makings) {
            let state = self.states.get(nth).copied().unwrap_or_default();
            let none = state.count == 0;
            match making.function {
                Function::Count => out.push(Cell::Int(state.count)),
                Function::Sum if none => out.push(Cell::Null),
                Function::Sum if making.kind == ColumnType::Float64 => out.push(Cell::Float(state.float)),
                Function::Sum => out.push(Cell::Int(sum(state)?)),
                Function::Min | Function::Max => out.push(state.best),
                Function::Average => {
                    let sum = if making.kind == ColumnType::Int64 { state.int as f64 } else { state.float };
                    out.push(if none { Cell::Null } else { Cell::Float(sum) });
                    out.push(Cell::Int(state.count));
                }
            }
        }
        Ok(())
    }
}

fn cell(cells: &[Cell], slot: usize) -> Cell {
    cells.get(slot).copied().unwrap_or_default()
}

fn sum(state: State) -> Result<i64, Fault> {
    let overflows = |_| Fault::Limit(format!("a sum overflows int64: {}", state.int));
    i64::try_from(state.int).map_err(overflows)
}

/// Room for a text, of which there is a bound.
fn place(texts: &mut Vec<u8>, text: &[u8], room: usize) -> Result<(u32, u32), Fault> {
    let from = texts.len();
    if from + room.max(text.len()) > BYTES {
        return Err(Fault::Limit(format!("too many groups: their texts have more than {} MiB", BYTES >> 20)));
    }
    if texts.capacity() == 0 {
        texts.reserve_exact(BYTES);
    }
    texts.extend_from_slice(text);
    texts.resize(from + room.max(text.len()), 0);
    Ok((from as u32, (from + text.len()) as u32))
}

/// Keeps a value where it is better than what there is.
fn extreme(
    state: &mut State,
    texts: &mut Vec<u8>,
    value: Cell,
    text: &[u8],
    better: Ordering,
) -> Result<(), Fault> {
    let Cell::Text(from, to) = value else {
        let order = match (value, state.best) {
            (_, Cell::Null) => better,
            (Cell::Bool(a), Cell::Bool(b)) => a.cmp(&b),
            (Cell::Int(a), Cell::Int(b)) | (Cell::Time(a), Cell::Time(b)) => a.cmp(&b),
            (Cell::Float(a), Cell::Float(b)) => floats(a, b),
            (Cell::Date(a), Cell::Date(b)) => a.cmp(&b),
            _ => Ordering::Equal,
        };
        if order == better {
            state.best = value;
        }
        return Ok(());
    };
    let own = text.get(from as usize..to as usize).unwrap_or_default();
    let Cell::Text(at, end) = state.best else {
        let (from, to) = place(texts, own, own.len())?;
        (state.best, state.room) = (Cell::Text(from, to), to - from);
        return Ok(());
    };
    if own.cmp(texts.get(at as usize..end as usize).unwrap_or_default()) != better {
        return Ok(());
    }
    if own.len() <= state.room as usize {
        if let Some(to) = texts.get_mut(at as usize..at as usize + own.len()) {
            to.copy_from_slice(own);
        }
        state.best = Cell::text(at as usize, at as usize + own.len());
        return Ok(());
    }
    let room = 2 * own.len();
    let (from, to) = place(texts, own, room)?;
    (state.best, state.room) = (Cell::Text(from, to), room as u32);
    Ok(())
}

/// A value as a part of a key.
fn put_key(key: &mut Vec<u8>, cell: Cell, text: &[u8]) {
    let mut put = |tag: u8, bytes: &[u8]| {
        key.push(tag);
        key.extend_from_slice(bytes);
    };
    match cell {
        Cell::Null | Cell::Bad(..) => put(0, &[]),
        Cell::Bool(is) => put(1, &[is.into()]),
        Cell::Int(n) => put(2, &n.to_le_bytes()),
        // Zeros are one, and so is what is no number.
        Cell::Float(0.0) => put(3, &0f64.to_le_bytes()),
        Cell::Float(n) if n.is_nan() => put(3, &f64::NAN.to_le_bytes()),
        Cell::Float(n) => put(3, &n.to_le_bytes()),
        Cell::Date(n) => put(4, &n.to_le_bytes()),
        Cell::Time(n) => put(5, &n.to_le_bytes()),
        Cell::Text(from, to) => {
            put(6, &(to - from).to_le_bytes());
            key.extend_from_slice(text.get(from as usize..to as usize).unwrap_or_default());
        }
    }
}

/// A part of a key as a value, and where the next begins.
fn take_key(texts: &[u8], at: usize) -> Option<(Cell, usize)> {
    let from = at + 1;
    let long = || texts.get(from..from + 8)?.try_into().ok();
    let short = || texts.get(from..from + 4)?.try_into().ok();
    Some(match texts.get(at)? {
        0 => (Cell::Null, from),
        1 => (Cell::Bool(texts.get(from) == Some(&1)), from + 1),
        2 => (Cell::Int(i64::from_le_bytes(long()?)), from + 8),
        3 => (Cell::Float(f64::from_le_bytes(long()?)), from + 8),
        4 => (Cell::Date(i32::from_le_bytes(short()?)), from + 4),
        5 => (Cell::Time(i64::from_le_bytes(long()?)), from + 8),
        _ => {
            let len = u32::from_le_bytes(short()?) as usize;
            (Cell::text(from + 4, from + 4 + len), from + 4 + len)
        }
    })
}
