//! Where each of a model's numbers comes from, and what that makes of the values that rest on them.
//!
//! A [`Parameter`] names its [`Source`] and the cells of the paper that it was taken from; a finding names
//! the parameters that its model's value was computed from ([`Basis`]); the paper's value names its own
//! cell. What kind of agreement that is ([`Kind`]) follows from those three, and from nothing that a study
//! says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Column, Figures};
use crate::finding::{Finding, Stated};

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The paper states it, or it is solved from cells that the paper states.
    Paper,
    /// A data sheet, a specification or a review.
    DataSheet,
    /// Chosen so that the model meets cells of the paper.
    Fitted,
    /// Assumed; where cells are named, it is how they are read that is assumed.
    Assumed,
    /// Measured on this machine.
    Measured,
}

impl Source {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Source::Paper => "from the paper",
            Source::DataSheet => "data sheet",
            Source::Fitted => "fitted",
            Source::Assumed => "assumed",
            Source::Measured => "measured here",
        }
    }
}

/// A number of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Which model's.
    pub model: String,
    /// Its name in the code; its unit stands last in it.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Where that comes from.
    pub source: Source,
    /// The cells of the papers that it rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<String>,
    /// How it comes from there.
    pub how: String,
}

/// The numbers of one model, in the making.
pub struct Parameters {
    model: &'static str,
    list: Vec<Parameter>,
}

impl Parameters {
    /// None yet.
    pub fn of(model: &'static str) -> Parameters {
        Parameters { model, list: Vec::new() }
    }

    fn add(mut self, name: &str, value: f64, source: Source, cells: &[Stated], how: &str) -> Parameters {
        self.list.push(Parameter {
            model: self.model.to_owned(),
            name: name.to_owned(),
            value,
            source,
            cells: cells.iter().map(|stated| stated.cell.to_owned()).collect(),
            how: how.to_owned(),
        });
        self
    }

    /// The paper states it, or it is solved from these cells.
    pub fn paper(self, name: &str, value: impl Number, cells: &[Stated], how: &str) -> Parameters {
        self.add(name, value.number(), Source::Paper, cells, how)
    }

    /// Chosen to meet these cells.
    pub fn fitted(self, name: &str, value: impl Number, cells: &[Stated], how: &str) -> Parameters {
        self.add(name, value.number(), Source::Fitted, cells, how)
    }

    /// By a data sheet, a specification or a review, which `how` names.
    pub fn data_sheet(self, name: &str, value: impl Number, how: &str) -> Parameters {
        self.add(name, value.number(), Source::DataSheet, &[], how)
    }

    /// Assumed.
    pub fn assumed(self, name: &str, value: impl Number, how: &str) -> Parameters {
        self.add(name, value.number(), Source::Assumed, &[], how)
    }

    /// These cells, read by an assumption.
    pub fn assumed_from(self, name: &str, value: impl Number, cells: &[Stated], how: &str) -> Parameters {
        self.add(name, value.number(), Source::Assumed, cells, how)
    }

    /// All of them.
    pub fn list(self) -> Vec<Parameter> {
        self.list
    }
}

/// What a model's number is made of.
pub trait Number {
    /// As the record has it.
    fn number(self) -> f64;
}

impl Number for u64 {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for u32 {
    fn number(self) -> f64 {
        f64::from(self)
    }
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// How a value comes from its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Relation {
    /// By sums and products that one can write down: nothing waits for anything else.
    Arithmetic,
    /// By what the simulation does: queues, turns, draws, caches, layouts.
    Simulated,
}

/// From what a model's value was computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// How.
    pub relation: Relation,
    /// From which parameters: `model.name`, or all of a `model`.
    pub parameters: Vec<String>,
}

/// What a model's agreement with the paper is worth; the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The paper's value went into the model.
    Given,
    /// The model was fitted to it.
    Fitted,
    /// Sums and products of numbers that went in, some of them a paper's or fitted to others of its.
    Arithmetic,
    /// None of these.
    Predicted,
}

impl Kind {
    /// All, the least first.
    pub const ALL: [Kind; 4] = [Kind::Given, Kind::Fitted, Kind::Arithmetic, Kind::Predicted];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Given => "given",
            Kind::Fitted => "fitted",
            Kind::Arithmetic => "arithmetic of given numbers",
            Kind::Predicted => "predicted",
        }
    }
}

/// Parameters by their whole name.
pub type Table<'a> = BTreeMap<String, &'a Parameter>;

/// Parameters as a [`Table`].
pub fn by_name<'a>(parameters: impl IntoIterator<Item = &'a Parameter>) -> Table<'a> {
    parameters.into_iter().map(|p| (format!("{}.{}", p.model, p.name), p)).collect()
}

impl Basis {
    /// The parameters that it names. Empty where one of the names is none's.
    pub fn resolve<'a>(&self, table: &Table<'a>) -> Vec<&'a Parameter> {
        let mut found = Vec::new();
        for name in &self.parameters {
            let whole = format!("{name}.");
            let of_it: Vec<_> = table
                .iter()
                .filter(|(key, _)| *key == name || key.starts_with(&whole))
                .map(|(_, p)| *p)
                .collect();
            if of_it.is_empty() {
                return Vec::new();
            }
            found.extend(of_it);
        }
        found
    }
}

/// What kind the model's value of a finding is; none where there is no such value, or no known basis.
pub fn kind(finding: &Finding, table: &Table<'_>) -> Option<Kind> {
    finding.model?;
    let basis = finding.basis.as_ref()?;
    let parameters = basis.resolve(table);
    if parameters.is_empty() {
        return None;
    }
    let target = finding.paper.as_ref().map(|paper| &*paper.cell).filter(|cell| !cell.is_empty());
    let rests = |p: &&&Parameter| target.is_some_and(|target| p.cells.iter().any(|cell| cell == target));
    // What the paper does not state itself, but other cells of it come to: whoever was fitted to one of
    // them, or was given it, has not predicted it.
    let reckoned = finding.reckoned.as_ref().filter(|_| target.is_none()).map_or(&[][..], |r| &r.cells);
    if parameters.iter().any(|p| p.cells.iter().any(|cell| reckoned.contains(cell))) {
        return Some(Kind::Fitted);
    }
    if parameters.iter().filter(rests).any(|p| p.source != Source::Fitted) {
        return Some(Kind::Given);
    }
    if parameters.iter().any(|p| rests(&p)) {
        return Some(Kind::Fitted);
    }
    let sums = basis.relation == Relation::Arithmetic && parameters.iter().any(|p| !p.cells.is_empty());
    Some(if sums { Kind::Arithmetic } else { Kind::Predicted })
}

/// What kind the model's verdict of a claim is: the least of the figures' that it rests on.
pub fn claim_kind(claim: &Claim, figures: &Figures<'_>, table: &Table<'_>) -> Option<Kind> {
    claim.verdict(figures, Column::Model)?;
    let names = claim.of(Column::Model).flat_map(|check| check.of.names());
    let kinds: Option<Vec<Kind>> = names.map(|name| kind(figures.get(name)?, table)).collect();
    kinds?.into_iter().min()
}

/// Parameters as a table in Markdown, as the documents have it; those of one source in one row.
pub fn markdown(parameters: &[Parameter]) -> String {
    let mut out = String::from("| model | parameters | source | how |\n| --- | --- | --- | --- |\n");
    let same = |a: &Parameter, b: &Parameter| {
        (&a.model, a.source, &a.cells, &a.how) == (&b.model, b.source, &b.cells, &b.how)
    };
    for (at, p) in parameters.iter().enumerate() {
        if parameters[..at].iter().any(|before| same(before, p)) {
            continue;
        }
        let alike = parameters[at..].iter().filter(|other| same(other, p));
        let values: Vec<String> = alike.map(|p| format!("`{}` {}", p.name, p.value)).collect();
        let cells = if p.cells.is_empty() { String::new() } else { format!(": {}", p.cells.join("; ")) };
        let (values, source) = (values.join(", "), p.source.name());
        out += &format!("| {} | {values} | {source}{cells} | {} |\n", p.model, p.how);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Stated = Stated::equal("A", 1.0);
    const B: Stated = Stated::equal("B", 2.0);

    #[test]
    fn the_kind_follows_from_the_parameters() {
        let all = Parameters::of("m")
            .paper("a", 1u64, &[A], "")
            .fitted("b", 2u64, &[B], "")
            .assumed("c", 3u64, "")
            .data_sheet("d", 4u64, "")
            .list();
        let table = by_name(&all);
        let of = |paper: Option<Stated>, relation, from: &[&str]| {
            let finding = Finding::new("f", "").model(1.0).from(relation, from);
            kind(&paper.map_or(finding.clone(), |stated| finding.paper(&stated)), &table)
        };
        use Relation::{Arithmetic, Simulated};
        assert_eq!(of(Some(A), Simulated, &["m.a"]), Some(Kind::Given));
        assert_eq!(of(Some(A), Simulated, &["m"]), Some(Kind::Given), "one of a model's is enough");
        assert_eq!(of(Some(B), Simulated, &["m.b"]), Some(Kind::Fitted));
        assert_eq!(of(Some(B), Arithmetic, &["m.a", "m.c"]), Some(Kind::Arithmetic));
        assert_eq!(of(Some(B), Simulated, &["m.a"]), Some(Kind::Predicted));
        assert_eq!(of(Some(B), Arithmetic, &["m.a", "m.d"]), Some(Kind::Arithmetic));
        assert_eq!(of(Some(B), Arithmetic, &["m.c", "m.d"]), Some(Kind::Predicted), "nothing of the paper's");
        assert_eq!(
            of(Some(A), Arithmetic, &["m.b"]),
            Some(Kind::Arithmetic),
            "a sum of what was fitted elsewhere"
        );
        assert_eq!(of(Some(A), Simulated, &["m.b"]), Some(Kind::Predicted));
        assert_eq!(of(None, Arithmetic, &["m.a"]), Some(Kind::Arithmetic));
        assert_eq!(of(None, Simulated, &["m.unknown"]), None);
        let reckoned = |from: &str| {
            let finding = Finding::new("f", "").model(1.0).from(Simulated, &[from]).reckoned(1.5, &[A, B]);
            kind(&finding, &table)
        };
        assert_eq!(reckoned("m.b"), Some(Kind::Fitted), "one of the cells that it comes from is enough");
        assert_eq!(reckoned("m.c"), Some(Kind::Predicted));
        assert_eq!(kind(&Finding::new("f", "").model(1.0), &table), None, "no basis");
        assert_eq!(kind(&Finding::new("f", "").from(Simulated, &["m.a"]), &table), None, "no value");
    }

    #[test]
    fn a_claim_is_worth_its_least_figure() {
        use crate::claim::{Bound, Quantity};
        let all = Parameters::of("m").paper("a", 1u64, &[A], "").list();
        let given = Finding::new("given", "").model(1.0).paper(&A).from(Relation::Simulated, &["m"]);
        let predicted = Finding::new("predicted", "").model(1.0).paper(&B).from(Relation::Simulated, &["m"]);
        let figures: Figures<'_> = [("given", &given), ("predicted", &predicted)].into();
        let claim = Claim::new("", "").model(Quantity::named("predicted"), Bound::Above(0.0));
        assert_eq!(claim_kind(&claim, &figures, &by_name(&all)), Some(Kind::Predicted));
        let claim = claim.model(Quantity::named("given"), Bound::Above(0.0));
        assert_eq!(claim_kind(&claim, &figures, &by_name(&all)), Some(Kind::Given));
    }
}
