//! A condition, made ready for a table's columns, and asked of rows: SQL's three-valued logic. Nothing
//! recurses, and what a text may make long (patterns) pauses when a slice is spent.

use std::cmp::Ordering;
use std::task::Poll;

use nearside_near_data::{ColumnType, Comparison, Literal, Term};

use super::like::Like;
use super::value::{Cell, DAY_US, date, floats, timestamp};
use crate::automaton::{Automaton, Machine, Want};
use crate::fuel::Fuel;

/// A value on the stack; texts lie in the row, or among those of the condition.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Date(i32),
    Time(i64),
    Row(u32, u32),
    Own(u32),
}

#[derive(Debug)]
pub(super) enum Step {
    /// A slot of the row.
    Slot(usize),
    Value(Held),
    Compare(Comparison),
    And,
    Or,
    Not,
    IsNull,
    In(usize),
    Like(Like),
    /// Which of the selection's expressions.
    Regex(usize),
}

/// A condition for a table.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) steps: Vec<Step>,
    pub(super) texts: Vec<String>,
}

/// What is known of a value before there are rows.
struct Known {
    /// Its type; `None`: null.
    kind: Option<ColumnType>,
    /// The step that puts it, where that is a text of the condition's.
    text: Option<usize>,
    name: String,
}

impl Known {
    fn is(&self, kind: ColumnType) -> bool {
        self.kind.is_none_or(|is| is == kind)
    }

    fn describe(&self) -> String {
        match self.kind {
            None => "null".to_owned(),
            Some(kind) => format!("{} ({})", self.name, kind.name()),
        }
    }
}

const TRUTH: Known = Known { kind: Some(ColumnType::Bool), text: None, name: String::new() };

impl Filter {
    /// Makes it ready. `slot` gives a column's place in a row, and its type; `None`: it is always null.
    ///
    /// # Errors
    /// A column that is not there, or a value of the wrong type; in a sentence.
    pub(super) fn bind(
        terms: &[Term],
        mut slot: impl FnMut(&str) -> Result<(usize, Option<ColumnType>), String>,
    ) -> Result<Filter, String> {
        let mut filter = Filter::default();
        let mut stack: Vec<Known> = Vec::new();
        let mut regexes = 0;
        for term in terms {
            let below =
                stack.len().checked_sub(term.takes()).ok_or("a term of the condition lacks its values")?;
            let taken = stack.split_off(below);
            let truths = |of: &[Known]| match of.iter().find(|known| !known.is(ColumnType::Bool)) {
                Some(other) => Err(format!("{} is neither true nor false", other.describe())),
                None => Ok(()),
            };
            let text = |of: &[Known]| match of.iter().find(|known| !known.is(ColumnType::Utf8)) {
                Some(other) => Err(format!("{} is no text", other.describe())),
                None => Ok(()),
            };
            let (step, known) = match term {
                Term::Column(name) => {
                    let (slot, kind) = slot(name)?;
                    (Step::Slot(slot), Known { kind, text: None, name: name.clone() })
                }
                Term::Literal(literal) => filter.literal(literal),
                Term::Compare(how) => {
                    if let [a, b] = &taken[..] {
                        filter.meet(a, b)?;
                    }
                    (Step::Compare(*how), TRUTH)
                }
                Term::And | Term::Or => {
                    truths(&taken)?;
                    (if *term == Term::And { Step::And } else { Step::Or }, TRUTH)
                }
                Term::Not => {
                    truths(&taken)?;
                    (Step::Not, TRUTH)
                }
                Term::IsNull => (Step::IsNull, TRUTH),
                Term::In(count) => {
                    if let [value, among @ ..] = &taken[..] {
                        among.iter().try_for_each(|one| filter.meet(value, one))?;
                        alike(value, among)?;
                    }
                    (Step::In(*count as usize), TRUTH)
                }
                Term::Like { pattern, ignore_case } => {
                    text(&taken)?;
                    (Step::Like(Like::new(pattern, *ignore_case)), TRUTH)
                }
                Term::Regex(_) => {
                    text(&taken)?;
                    regexes += 1;
                    (Step::Regex(regexes - 1), TRUTH)
                }
            };
            filter.steps.push(step);
            stack.push(known);
        }
        match &stack[..] {
            [] => Ok(filter),
            [one] if one.is(ColumnType::Bool) => Ok(filter),
            [one, ..] => Err(format!("the condition is neither true nor false: {}", one.describe())),
        }
    }

    fn literal(&mut self, literal: &Literal) -> (Step, Known) {
        let (value, kind, name) = match literal {
            Literal::Null => (Held::Null, None, "null".to_owned()),
            Literal::Bool(is) => (Held::Bool(*is), Some(ColumnType::Bool), is.to_string()),
            Literal::Int(int) => (Held::Int(*int), Some(ColumnType::Int64), int.to_string()),
            Literal::Float(float) => (Held::Float(*float), Some(ColumnType::Float64), float.to_string()),
            Literal::Text(text) => {
                self.texts.push(text.clone());
                let value = Held::Own(self.texts.len() as u32 - 1);
                (value, Some(ColumnType::Utf8), format!("{text:?}"))
            }
        };
        let text = matches!(literal, Literal::Text(_)).then_some(self.steps.len());
        (Step::Value(value), Known { kind, text, name })
    }

    /// Whether two values can be compared: a text of the condition's beside a day or an instant becomes one.
    fn meet(&mut self, a: &Known, b: &Known) -> Result<(), String> {
        use ColumnType::*;
        let (Some(left), Some(right)) = (a.kind, b.kind) else { return Ok(()) };
        let alike = |pair: [ColumnType; 2]| pair.contains(&left) && pair.contains(&right);
        if left == right || alike([Int64, Float64]) || alike([Date, Timestamp]) {
            return Ok(());
        }
        for (known, other) in [(a, right), (b, left)] {
            let (Some(step), Date | Timestamp) = (known.text, other) else { continue };
            let nth = match self.steps.get(step) {
                Some(Step::Value(Held::Own(nth))) => nth,
                // It met one before.
                Some(Step::Value(Held::Date(_) | Held::Time(_))) => return Ok(()),
                _ => continue,
            };
            let text = self.texts.get(*nth as usize).map(String::as_bytes).unwrap_or_default();
            let value = date(text).map(Held::Date).or_else(|| timestamp(text).map(Held::Time));
            let Some(value) = value else {
                return Err(format!("{} is neither a date nor a timestamp", known.name));
            };
            if let Some(step) = self.steps.get_mut(step) {
                *step = Step::Value(value);
            }
            return Ok(());
        }
        Err(format!("{} and {} cannot be compared", a.describe(), b.describe()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// A text of the condition's that becomes a day or an instant is no text beside another of those that it may
/// be.
fn alike(value: &Known, among: &[Known]) -> Result<(), String> {
    let first =
        |kinds: &[ColumnType]| among.iter().find(|one| one.kind.is_some_and(|kind| kinds.contains(&kind)));
    let time = first(&[ColumnType::Date, ColumnType::Timestamp]).filter(|_| value.text.is_some());
    match time.zip(first(&[ColumnType::Utf8])) {
        Some((time, text)) => Err(format!("{} and {} cannot be compared", text.describe(), time.describe())),
        None => Ok(()),
    }
}

/// What it takes to ask.
#[derive(Debug, Default)]
pub(super) struct Asking {
    pub(super) machines: Vec<Machine>,
    stack: Vec<Held>,
}

impl Asking {
    pub(super) fn new(regexes: &[Automaton]) -> Asking {
        Asking { machines: regexes.iter().map(Automaton::machine).collect(), stack: Vec::new() }
    }

    /// Whether the condition holds for a row.
    pub(super) async fn holds(
        &mut self,
        filter: &Filter,
        regexes: &[Automaton],
        (cells, text): (&[Cell], &[u8]),
        fuel: &mut Fuel,
    ) -> bool {
        let Asking { machines, stack } = self;
        stack.clear();
        let bytes = |held: Held| match held {
            Held::Row(from, to) => text.get(from as usize..to as usize).unwrap_or_default(),
            Held::Own(nth) => filter.texts.get(nth as usize).map(String::as_bytes).unwrap_or_default(),
            _ => &[],
        };
        for step in &filter.steps {
            if !fuel.take(8) {
                fuel.pause().await;
            }
            let mut take = || stack.pop().unwrap_or(Held::Null);
            let value = match step {
                Step::Slot(slot) => of_cell(cells.get(*slot).copied().unwrap_or_default()),
                Step::Value(value) => *value,
                Step::Compare(how) => {
                    let (b, a) = (take(), take());
                    fuel.spend_bytes(bytes(a).len().min(bytes(b).len())).await;
                    truth(order(a, b, bytes).map(|order| compares(*how, order)))
                }
                Step::And => match (truth_of(take()), truth_of(take())) {
                    (Some(false), _) | (_, Some(false)) => Held::Bool(false),
                    (Some(true), Some(true)) => Held::Bool(true),
                    _ => Held::Null,
                },
                Step::Or => match (truth_of(take()), truth_of(take())) {
                    (Some(true), _) | (_, Some(true)) => Held::Bool(true),
                    (Some(false), Some(false)) => Held::Bool(false),
                    _ => Held::Null,
                },
                Step::Not => truth(truth_of(take()).map(|is| !is)),
                Step::IsNull => Held::Bool(matches!(take(), Held::Null)),
                Step::In(count) => {
                    let at = stack.len().saturating_sub(*count);
                    let value = at.checked_sub(1).and_then(|at| stack.get(at)).copied().unwrap_or(Held::Null);
                    let (mut found, mut unknown) = (false, matches!(value, Held::Null) && *count > 0);
                    for one in stack.get(at..).unwrap_or_default() {
                        fuel.spend_bytes(bytes(value).len().min(bytes(*one).len())).await;
                        match order(value, *one, bytes) {
                            Some(order) => found |= order == Ordering::Equal,
                            None => unknown = true,
                        }
                    }
                    stack.truncate(at.saturating_sub(1));
                    truth(if found || !unknown { Some(found) } else { None })
                }
                Step::Like(like) => match take() {
                    Held::Null => Held::Null,
                    held => Held::Bool(like.is(bytes(held), fuel).await),
                },
                Step::Regex(nth) => match (take(), regexes.get(*nth).zip(machines.get_mut(*nth))) {
                    (Held::Null, _) | (_, None) => Held::Null,
                    (held, Some((regex, machine))) => {
                        Held::Bool(matches(regex, machine, bytes(held), fuel).await)
                    }
                },
            };
            stack.push(value);
        }
        match stack.pop() {
            None => true,
            Some(held) => truth_of(held) == Some(true),
        }
    }
}

/// Whether an expression matches somewhere in a text.
async fn matches(regex: &Automaton, machine: &mut Machine, text: &[u8], fuel: &mut Fuel) -> bool {
    machine.stop();
    loop {
        match regex.find(machine, text, 0..text.len(), Want::First, fuel) {
            Poll::Ready(found) => return found.is_some(),
            Poll::Pending => fuel.pause().await,
        }
    }
}

pub(super) fn of_cell(cell: Cell) -> Held {
    match cell {
        Cell::Null | Cell::Bad(..) => Held::Null,
        Cell::Bool(is) => Held::Bool(is),
        Cell::Int(int) => Held::Int(int),
        Cell::Float(float) => Held::Float(float),
        Cell::Date(days) => Held::Date(days),
        Cell::Time(time) => Held::Time(time),
        Cell::Text(from, to) => Held::Row(from, to),
    }
}

fn truth(is: Option<bool>) -> Held {
    is.map_or(Held::Null, Held::Bool)
}

fn truth_of(held: Held) -> Option<bool> {
    match held {
        Held::Bool(is) => Some(is),
        _ => None,
    }
}

/// How two values compare; `None`: one is unknown.
#[inline]
pub(super) fn order<'t>(a: Held, b: Held, bytes: impl Fn(Held) -> &'t [u8]) -> Option<Ordering> {
    use Held::*;
    // Days reach further than microseconds.
    let time = |days: i32| i128::from(days) * i128::from(DAY_US);
    Some(match (a, b) {
        (Bool(a), Bool(b)) => a.cmp(&b),
        (Int(a), Int(b)) => a.cmp(&b),
        (Float(a), Float(b)) => floats(a, b),
        (Int(a), Float(b)) => floats(a as f64, b),
        (Float(a), Int(b)) => floats(a, b as f64),
        (Date(a), Date(b)) => a.cmp(&b),
        (Time(a), Time(b)) => a.cmp(&b),
        (Date(a), Time(b)) => time(a).cmp(&b.into()),
        (Time(a), Date(b)) => i128::from(a).cmp(&time(b)),
        (Row(..) | Own(_), Row(..) | Own(_)) => bytes(a).cmp(bytes(b)),
        _ => return None,
    })
}

#[inline]
pub(super) fn compares(how: Comparison, order: Ordering) -> bool {
    match how {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_held_against_an_instant_however_far_it_is() {
        let order = |a, b| order(a, b, |_| &[]).unwrap();
        for (day, is) in
            [(i32::MAX, Ordering::Greater), (110_000_000, Ordering::Greater), (i32::MIN, Ordering::Less)]
        {
            for instant in [i64::MIN / 8, 0, i64::MAX / 8] {
                assert_eq!(order(Held::Date(day), Held::Time(instant)), is, "{day} {instant}");
                assert_eq!(order(Held::Time(instant), Held::Date(day)), is.reverse(), "{instant} {day}");
            }
        }
        assert_eq!(order(Held::Date(-1), Held::Time(-DAY_US)), Ordering::Equal);
    }
}
