//! Whether a condition can hold for a row of which it is known between what its values lie: the condition's
//! own steps, over what each value may be. What is not known is possible, so that no row is lost.

use std::cmp::Ordering;

use super::super::filter::{Filter, Held, Step, compares, of_cell, order};
use super::super::value::Cell;
use super::footer::Statistics;
use super::kind::{Kind, Physical};

/// What a column's values are known to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// One is null.
    pub(super) null: bool,
    /// One is not.
    pub(super) value: bool,
    least: Option<Held>,
    most: Option<Held>,
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
struct May {
    null: bool,
    value: bool,
    least: Option<Held>,
    most: Option<Held>,
}

impl May {
    fn truth(no: bool, yes: bool, null: bool) -> May {
        let of = |first: bool| Some(Held::Bool(first));
        May { null, value: no || yes, least: of(!no), most: of(yes) }
    }

    /// Of a truth: whether it may be false, and true.
    fn truths(&self) -> (bool, bool) {
        let is = |held: Option<Held>, other: bool| !matches!(held, Some(Held::Bool(is)) if is == other);
        (self.value && is(self.least, true), self.value && is(self.most, false))
    }

    const ANY: May = May { null: true, value: true, least: None, most: None };
}

impl Known {
    /// By a chunk's statistics. Texts are put where [`may_hold`] finds them.
    pub(super) fn of(
        statistics: &Statistics,
        (kind, physical): (Kind, Physical),
        (optional, rows): (bool, u64),
        texts: &mut Vec<u8>,
    ) -> Known {
        let nulls = if optional { statistics.nulls } else { Some(0) };
        let mut bound = |bytes: &Option<Box<[u8]>>| {
            let bytes = bytes.as_deref()?;
            let cell = match physical {
                Physical::Bytes if kind == Kind::Text => {
                    let from = texts.len();
                    texts.extend_from_slice(bytes);
                    Cell::text(from, texts.len())
                }
                // No order of their bytes is that of their values.
                Physical::Bytes | Physical::Fixed(_) | Physical::Int96 => return None,
                Physical::Bool if bytes.len() == 1 => kind.cell(physical, bytes),
                physical if physical.width() == Some(bytes.len()) => kind.cell(physical, bytes),
                _ => return None,
            };
            match of_cell(cell) {
                Held::Null => None,
                Held::Float(float) if float.is_nan() => None,
                held => Some(held),
            }
        };
        let (least, most) = (bound(&statistics.min), bound(&statistics.max));
        // What is no number is greater than all that are, and in no statistics.
        let most = most.filter(|_| kind != Kind::Float);
        Known { null: nulls != Some(0), value: nulls != Some(rows), least, most }
    }
}

/// Whether a row can be one that the condition holds for.
pub(super) fn may_hold(filter: &Filter, slots: &[Known], texts: &[u8]) -> bool {
    let bytes = |held: Held| match held {
        Held::Row(from, to) => texts.get(from as usize..to as usize).unwrap_or_default(),
        Held::Own(nth) => filter.texts.get(nth as usize).map(String::as_bytes).unwrap_or_default(),
        _ => &[],
    };
    let mut stack: Vec<May> = Vec::new();
    for step in &filter.steps {
        let mut take = || stack.pop().unwrap_or(May::ANY);
        let may = match step {
            Step::Slot(slot) => slots.get(*slot).map_or(May::ANY, |known| {
                let Known { null, value, least, most } = *known;
                May { null, value, least, most }
            }),
            Step::Value(Held::Null) => May { null: true, value: false, least: None, most: None },
            Step::Value(held) => May { null: false, value: true, least: Some(*held), most: Some(*held) },
            Step::Compare(how) => {
                let (b, a) = (take(), take());
                let orders = orders(&a, &b, bytes);
                let any = |is: bool| {
                    a.value && b.value && orders.iter().flatten().any(|order| compares(*how, *order) == is)
                };
                May::truth(any(false), any(true), a.null || b.null)
            }
            Step::And => {
                let (b, a) = (take(), take());
                let ((a_no, a_yes), (b_no, b_yes)) = (a.truths(), b.truths());
                let null = a.null && (b_yes || b.null) || b.null && (a_yes || a.null);
                May::truth(a_no || b_no, a_yes && b_yes, null)
            }
            Step::Or => {
                let (b, a) = (take(), take());
                let ((a_no, a_yes), (b_no, b_yes)) = (a.truths(), b.truths());
                let null = a.null && (b_no || b.null) || b.null && (a_no || a.null);
                May::truth(a_no && b_no, a_yes || b_yes, null)
            }
            Step::Not => {
                let of = take();
                let (no, yes) = of.truths();
                May::truth(yes, no, of.null)
            }
            Step::IsNull => {
                let of = take();
                May::truth(of.value, of.null, false)
            }
            Step::In(count) => {
                let among = stack.split_off(stack.len().saturating_sub(*count));
                let value = stack.pop().unwrap_or(May::ANY);
                let equal = |one: &May| one.value && orders(&value, one, bytes)[1].is_some();
                let found = value.value && among.iter().any(equal);
                May::truth(true, found, value.null || among.iter().any(|one| one.null))
            }
            Step::Like(_) | Step::Regex(_) => {
                let of = take();
                May::truth(of.value, of.value, of.null)
            }
        };
        stack.push(may);
    }
    stack.pop().is_none_or(|may| may.truths().1)
}

/// How two values may compare: less, equal, greater.
fn orders<'t>(a: &May, b: &May, bytes: impl Fn(Held) -> &'t [u8] + Copy) -> [Option<Ordering>; 3] {
    let of = |a: Option<Held>, b: Option<Held>| order(a?, b?, bytes);
    // Between the least of the one and the most of the other, and the other way round.
    let (low, high) = (of(a.least, b.most), of(a.most, b.least));
    let less = low.is_none_or(Ordering::is_lt);
    let greater = high.is_none_or(Ordering::is_gt);
    let equal = low.is_none_or(Ordering::is_le) && high.is_none_or(Ordering::is_ge);
    [less.then_some(Ordering::Less), equal.then_some(Ordering::Equal), greater.then_some(Ordering::Greater)]
}
