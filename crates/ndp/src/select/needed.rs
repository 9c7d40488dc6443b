//! Comparisons without which a condition does not hold: rows are looked for by them, and most that are not
//! wanted are known by the first.

use nearside_near_data::Comparison;

use super::filter::{Filter, Held, Step, compares, of_cell, order};
use super::value::{Cell, floats};

/// A comparison of a slot's value with another, without which the condition does not hold.
#[derive(Clone, Debug)]
pub(super) struct Needed {
    pub(super) slot: usize,
    how: Comparison,
    with: Held,
    /// The text that it is compared with, if it is one.
    text: Box<str>,
}

/// Longer texts are looked at, whatever they are compared with.
const LONG: u32 = 4 << 10;

/// Whether all comparisons are true of a value, whose text lies there. What is no value, or no text, is to be
/// looked at, and they are true of it.
#[inline]
pub(super) fn hold(needed: &[Needed], cell: Cell, text: &[u8]) -> bool {
    let text = match cell {
        Cell::Text(from, to) => text.get(from as usize..to as usize).unwrap_or_default(),
        _ => &[],
    };
    let is = |needed: &Needed| {
        let bytes = |held: Held| if let Held::Own(_) = held { needed.text.as_bytes() } else { text };
        order(of_cell(cell), needed.with, bytes).is_some_and(|order| compares(needed.how, order))
    };
    match cell {
        Cell::Bad(..) => true,
        Cell::Text(from, to) if to - from > LONG => true,
        Cell::Text(..) => needed.iter().all(is) || std::str::from_utf8(text).is_err(),
        _ => needed.iter().all(is),
    }
}

/// Of each number, whether all comparisons are true of it: [`hold`], by a loop for each.
pub(super) fn hold_numbers(needed: &[Needed], numbers: impl Iterator<Item = f64> + Clone) -> Vec<bool> {
    let mut all: Vec<bool> = numbers.clone().map(|_| true).collect();
    for Needed { how, with, .. } in needed {
        let with = match with {
            Held::Float(with) => *with,
            Held::Int(with) => *with as f64,
            // No number compares with it.
            _ => {
                all.fill(false);
                break;
            }
        };
        let orders = numbers.clone().map(|number| floats(number, with));
        let each = all.iter_mut().zip(orders);
        match how {
            Comparison::Equal => each.for_each(|(all, order)| *all &= order.is_eq()),
            Comparison::NotEqual => each.for_each(|(all, order)| *all &= order.is_ne()),
            Comparison::Less => each.for_each(|(all, order)| *all &= order.is_lt()),
            Comparison::LessOrEqual => each.for_each(|(all, order)| *all &= order.is_le()),
            Comparison::Greater => each.for_each(|(all, order)| *all &= order.is_gt()),
            Comparison::GreaterOrEqual => each.for_each(|(all, order)| *all &= order.is_ge()),
        }
    }
    all
}

/// Units of that.
pub(super) fn cost(needed: &[Needed], cell: Cell) -> u64 {
    let text = match cell {
        Cell::Text(from, to) => u64::from((to - from).min(LONG)),
        _ => 0,
    };
    8 * needed.len() as u64 + text / 2
}

/// Those that a condition needs: which stand by themselves, or in an `and`. And whether it is nothing else.
pub(super) fn needed(filter: &Filter) -> (Vec<Needed>, bool) {
    enum Part {
        Slot(usize),
        Value(Held),
        All(Vec<Needed>),
    }
    let mut stack = Vec::new();
    for step in &filter.steps {
        let mut take = || stack.pop().unwrap_or(Part::All(Vec::new()));
        let part = match step {
            Step::Slot(slot) => Part::Slot(*slot),
            Step::Value(held) => Part::Value(*held),
            Step::Compare(how) => {
                let (b, a) = (take(), take());
                let (how, parts) = match (a, b) {
                    (a @ Part::Value(_), b @ Part::Slot(_)) => (how.turned(), (b, a)),
                    parts => (*how, parts),
                };
                match parts {
                    (Part::Slot(slot), Part::Value(with)) => {
                        let text = match with {
                            Held::Own(nth) => filter.texts.get(nth as usize).cloned().unwrap_or_default(),
                            _ => String::new(),
                        };
                        Part::All(vec![Needed { slot, how, with, text: text.into() }])
                    }
                    _ => Part::All(Vec::new()),
                }
            }
            Step::And => {
                let (b, a) = (take(), take());
                let parts = [a, b].into_iter().filter_map(|part| match part {
                    Part::All(all) => Some(all),
                    Part::Slot(_) | Part::Value(_) => None,
                });
                Part::All(parts.flatten().collect())
            }
            Step::In(count) => {
                stack.truncate(stack.len().saturating_sub(count.saturating_add(1)));
                Part::All(Vec::new())
            }
            Step::Or => {
                let _both = (take(), take());
                Part::All(Vec::new())
            }
            Step::Not | Step::IsNull | Step::Like(_) | Step::Regex(_) => {
                let _one = take();
                Part::All(Vec::new())
            }
        };
        stack.push(part);
    }
    let needed = match stack.pop() {
        Some(Part::All(all)) => all,
        _ => Vec::new(),
    };
    let compared = filter.steps.iter().filter(|step| matches!(step, Step::Compare(_))).count();
    let all = |step: &Step| matches!(step, Step::Slot(_) | Step::Value(_) | Step::Compare(_) | Step::And);
    let exact = needed.len() == compared && compared > 0 && filter.steps.iter().all(all);
    (needed, exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers by a loop of each comparison's own, against a look at each.
    #[test]
    fn numbers_hold_as_one_by_one() {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let numbers = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.0, 99.0, 99.5, 1e300, f64::INFINITY, f64::NAN];
        let all = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
        let withs = numbers.map(Held::Float).into_iter();
        let withs =
            withs.chain([Held::Int(99), Held::Int(i64::MAX), Held::Null, Held::Own(0), Held::Date(1)]);
        let of = |how, with| Needed { slot: 0, how, with, text: "".into() };
        let each: Vec<_> = withs.flat_map(|with| all.map(|how| of(how, with))).collect();
        for first in &each {
            for more in [&[][..], &each[14..15], &each[21..23]] {
                let needed = [std::slice::from_ref(first), more].concat();
                let one_by_one = numbers.map(|number| hold(&needed, Cell::Float(number), &[]));
                assert_eq!(hold_numbers(&needed, numbers.into_iter()), one_by_one, "{needed:?}");
            }
        }
    }
}
