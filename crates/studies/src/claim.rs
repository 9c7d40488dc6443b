//! A statement of the paper, and what decides whether it holds: comparisons of figures that the record has.
//!
//! A [`Claim`] carries no verdict. It carries [`Check`]s, each a figure of the same study and a [`Bound`],
//! and whoever reads the record judges ([`Claim::verdict`]): other figures are another verdict, on the page
//! as well. One rule serves for the model's column and for this machine's.

use std::collections::BTreeMap;

use nearside_loadgen::record::number;
use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Says, Stated};

/// How far a value may be from a number that the paper states as such, as a part of it.
pub const WITHIN: f64 = 0.1;

/// Whose figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Column {
    /// The model's.
    Model,
    /// This machine's.
    Machine,
}

impl Column {
    /// Both.
    pub const BOTH: [Column; 2] = [Column::Model, Column::Machine];

    /// A finding's value in it.
    pub fn of(self, finding: &Finding) -> Option<f64> {
        match self {
            Column::Model => finding.model,
            Column::Machine => finding.measured(),
        }
    }
}

/// A figure of the study, or what two of them make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// The finding of that name.
    Value(String),
    /// The first over the second.
    Over(Box<[Quantity; 2]>),
    /// The first less the second.
    Less(Box<[Quantity; 2]>),
}

impl From<&Finding> for Quantity {
    fn from(finding: &Finding) -> Quantity {
        Quantity::Value(finding.figure.name.clone())
    }
}

impl Quantity {
    /// The finding of that name.
    pub fn named(name: impl Into<String>) -> Quantity {
        Quantity::Value(name.into())
    }

    /// This over another.
    pub fn over(self, other: impl Into<Quantity>) -> Quantity {
        Quantity::Over(Box::new([self, other.into()]))
    }

    /// This less another.
    pub fn less(self, other: impl Into<Quantity>) -> Quantity {
        Quantity::Less(Box::new([self, other.into()]))
    }

    /// Its value; none where a figure is missing, or divides by zero.
    pub fn value(&self, figures: &Figures<'_>, column: Column) -> Option<f64> {
        let of = |quantity: &Quantity| quantity.value(figures, column);
        match self {
            Quantity::Value(name) => column.of(figures.get(&**name)?),
            Quantity::Over(both) => Some(of(&both[0])? / of(&both[1]).filter(|v| *v != 0.0)?),
            Quantity::Less(both) => Some(of(&both[0])? - of(&both[1])?),
        }
    }

    /// The findings that it is made of.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Quantity::Value(name) => vec![name],
            Quantity::Over(both) | Quantity::Less(both) => both.iter().flat_map(Quantity::names).collect(),
        }
    }

    /// In words.
    pub fn text(&self) -> String {
        match self {
            Quantity::Value(name) => name.clone(),
            Quantity::Over(both) => format!("({}) over ({})", both[0].text(), both[1].text()),
            Quantity::Less(both) => format!("({}) less ({})", both[0].text(), both[1].text()),
        }
    }
}

/// A study's findings by name.
pub type Figures<'a> = BTreeMap<&'a str, &'a Finding>;

/// What a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Below it.
    Below(f64),
    /// It or less.
    AtMost(f64),
    /// Above it.
    Above(f64),
    /// It or more.
    AtLeast(f64),
    /// One of the two, or between them.
    Between([f64; 2]),
}

impl Bound {
    /// Within [`WITHIN`] of a number.
    pub fn about(value: f64) -> Bound {
        Bound::Between([value * (1.0 - WITHIN), value * (1.0 + WITHIN)])
    }

    /// What the paper says: within [`WITHIN`] of a number, within a range, on the right side of a bound.
    pub fn stated(stated: &Stated) -> Bound {
        match (stated.says, stated.to) {
            (Says::Below, _) => Bound::Below(stated.value),
            (Says::Above, _) => Bound::Above(stated.value),
            (Says::Equal | Says::About, Some(to)) => Bound::Between([stated.value, to]),
            (Says::Equal | Says::About, None) => Bound::about(stated.value),
        }
    }

    /// Whether a value is.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Bound::Below(bound) => value < bound,
            Bound::AtMost(bound) => value <= bound,
            Bound::Above(bound) => value > bound,
            Bound::AtLeast(bound) => value >= bound,
            Bound::Between([low, high]) => (low..=high).contains(&value),
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Bound::Below(bound) => format!("below {}", number(bound)),
            Bound::AtMost(bound) => format!("at most {}", number(bound)),
            Bound::Above(bound) => format!("above {}", number(bound)),
            Bound::AtLeast(bound) => format!("at least {}", number(bound)),
            Bound::Between([low, high]) => format!("{} to {}", number(low), number(high)),
        }
    }
}

/// A comparison: one of those that decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// In which column.
    pub column: Column,
    /// What is compared.
    pub of: Quantity,
    /// With what.
    pub must: Bound,
}

/// A statement of the paper, checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The study's number.
    pub study: String,
    /// The statement.
    pub text: String,
    /// Where the paper states it.
    pub section: String,
    /// What decides.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// This machine's drive takes the model's time in real time: its verdict is of our drive and driver in
    /// that time, and no second witness.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_models_time: bool,
    /// What else a reader wants to know of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// The model's verdict in a record of before the checks were kept.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "model")]
    told_model: Option<bool>,
    /// This machine's.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "machine")]
    told_machine: Option<bool>,
}

impl Claim {
    /// A statement and where the paper makes it.
    pub fn new(text: &str, section: &str) -> Claim {
        Claim {
            study: String::new(),
            text: text.to_owned(),
            section: section.to_owned(),
            checks: Vec::new(),
            in_models_time: false,
            because: String::new(),
            told_model: None,
            told_machine: None,
        }
    }

    /// What has to hold of a column.
    pub fn check(mut self, column: Column, of: impl Into<Quantity>, must: Bound) -> Claim {
        self.checks.push(Check { column, of: of.into(), must });
        self
    }

    /// What has to hold of the model.
    pub fn model(self, of: impl Into<Quantity>, must: Bound) -> Claim {
        self.check(Column::Model, of, must)
    }

    /// What has to hold of this machine.
    pub fn machine(self, of: impl Into<Quantity>, must: Bound) -> Claim {
        self.check(Column::Machine, of, must)
    }

    /// What has to hold of both.
    pub fn both(self, of: impl Into<Quantity>, must: Bound) -> Claim {
        let of = of.into();
        self.model(of.clone(), must).machine(of, must)
    }

    /// This machine's drive takes the model's time.
    pub fn in_models_time(self) -> Claim {
        Claim { in_models_time: true, ..self }
    }

    /// What else a reader wants to know.
    pub fn because(self, because: impl Into<String>) -> Claim {
        Claim { because: because.into(), ..self }
    }

    /// The checks of a column.
    pub fn of(&self, column: Column) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.column == column)
    }

    /// Whether it holds in a column, by its study's figures: not, where one of its checks does not; none
    /// where there is nothing to check, or a figure is missing.
    pub fn verdict(&self, figures: &Figures<'_>, column: Column) -> Option<bool> {
        if self.checks.is_empty() {
            return match column {
                Column::Model => self.told_model,
                Column::Machine => self.told_machine,
            };
        }
        let judged = |check: &Check| Some(check.must.holds(check.of.value(figures, column)?));
        let verdicts: Vec<Option<bool>> = self.of(column).map(judged).collect();
        if verdicts.contains(&Some(false)) {
            return Some(false);
        }
        (!verdicts.is_empty() && verdicts.iter().all(Option::is_some)).then_some(true)
    }

    /// The figures that decided in a column, with what they had to be.
    pub fn decided_in(&self, figures: &Figures<'_>, column: Column) -> String {
        let said: Vec<String> = self
            .of(column)
            .filter_map(|check| {
                let value = check.of.value(figures, column)?;
                let miss = if check.must.holds(value) { "" } else { ": a miss" };
                Some(format!("{} {} ({}{miss})", check.of.text(), number(value), check.must.text()))
            })
            .collect();
        said.join("; ")
    }

    /// The figures that decided in both, and what else a reader wants to know.
    pub fn decided(&self, figures: &Figures<'_>) -> String {
        let said = [(Column::Model, "model"), (Column::Machine, "this machine")]
            .map(|(column, who)| (self.decided_in(figures, column), who));
        let said = said.into_iter().filter(|(said, _)| !said.is_empty());
        let mut parts: Vec<String> = said.map(|(said, who)| format!("{who}: {said}")).collect();
        if !self.because.is_empty() {
            parts.push(self.because.clone());
        }
        parts.join(". ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(claim: &Claim, findings: &[Finding], column: Column) -> Option<bool> {
        claim.verdict(&findings.iter().map(|f| (&*f.figure.name, f)).collect(), column)
    }

    #[test]
    fn a_verdict_is_a_function_of_the_figures() {
        let of = |a: f64, b: f64| [Finding::new("a", "").model(a), Finding::new("b", "").model(b)];
        let claim = Claim::new("a is more than b", "1")
            .both(Quantity::named("a").over(Quantity::named("b")), Bound::Above(1.0));
        assert_eq!(judge(&claim, &of(2.0, 1.0), Column::Model), Some(true));
        assert_eq!(judge(&claim, &of(1.0, 1.0), Column::Model), Some(false));
        assert_eq!(judge(&claim, &of(f64::NAN, 1.0), Column::Model), Some(false));
        assert_eq!(judge(&claim, &of(1.0, 0.0), Column::Model), None);
        assert_eq!(judge(&claim, &of(2.0, 1.0), Column::Machine), None, "nothing was measured");
        assert_eq!(judge(&claim, &of(2.0, 1.0)[..1], Column::Model), None, "a figure is missing");
        let also = claim.model(Quantity::named("b"), Bound::AtMost(0.5));
        assert_eq!(judge(&also, &of(2.0, 1.0), Column::Model), Some(false), "all have to hold");
        let more = also.model(Quantity::named("c"), Bound::AtMost(0.5));
        assert_eq!(judge(&more, &of(2.0, 0.1), Column::Model), None, "what is missing is not taken to hold");
        assert_eq!(judge(&more, &of(2.0, 1.0), Column::Model), Some(false));
        let less =
            Claim::new("", "").model(Quantity::named("a").less(Quantity::named("b")), Bound::Below(1.0));
        assert_eq!(judge(&less, &of(2.0, 1.5), Column::Model), Some(true));
        assert_eq!(judge(&less, &of(2.0, 0.5), Column::Model), Some(false));
    }

    #[test]
    fn bounds_are_what_the_paper_says() {
        let about = Bound::stated(&Stated::about("c", 10.0));
        assert!(about.holds(9.1) && about.holds(10.9) && !about.holds(8.9) && !about.holds(11.1));
        let range = Bound::stated(&Stated::range("c", 0.6, 0.7));
        assert!(range.holds(0.6) && range.holds(0.7) && !range.holds(0.59) && !range.holds(0.71));
        assert!(Bound::stated(&Stated::below("c", 8.0)).holds(7.9));
        assert!(!Bound::stated(&Stated::below("c", 8.0)).holds(8.0));
        assert!(Bound::stated(&Stated::above("c", 48.0)).holds(48.1));
        assert!(!Bound::stated(&Stated::above("c", 48.0)).holds(48.0));
        assert!(!about.holds(f64::NAN) && !Bound::Above(1.0).holds(f64::NAN));
    }

    #[test]
    fn old_records_keep_their_verdicts() {
        let line = r#"{"study":"s","text":"t","section":"1","model":true,"machine":null,"because":"5 > 2"}"#;
        let claim: Claim = serde_json::from_str(line).unwrap();
        assert_eq!(judge(&claim, &[], Column::Model), Some(true));
        assert_eq!(judge(&claim, &[], Column::Machine), None);
        assert_eq!(claim.decided(&Figures::new()), "5 > 2");
    }
}
