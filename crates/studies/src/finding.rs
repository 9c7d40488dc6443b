//! What a study finds: values, pictures and remarks, and what the paper states of them. Each is a line of the
//! record.

use nearside_instrument::report::Axis;
use nearside_loadgen::record::Figure;
use serde::{Deserialize, Serialize};

use crate::claim::Quantity;
use crate::source::{Basis, Relation};

/// What the paper's text says of a value: the number itself, or a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Says {
    /// It is that.
    #[default]
    Equal,
    /// It is about that.
    About,
    /// It is less.
    Below,
    /// It is more.
    Above,
}

impl Says {
    /// Whether it is a bound, which is no value that one could be so many percent off.
    pub fn is_bound(self) -> bool {
        matches!(self, Says::Below | Says::Above)
    }

    fn is_equal(&self) -> bool {
        *self == Says::Equal
    }
}

/// A number that a paper's text, table or caption states: one place for each, which studies, parameters and
/// claims refer to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// Where it stands, a colon, and what it is of: no other of the three papers is called so.
    pub cell: &'static str,
    /// The number; the least, where it is a range.
    pub value: f64,
    /// The greatest.
    pub to: Option<f64>,
    /// What the text says of it.
    pub says: Says,
}

impl Stated {
    const fn new(cell: &'static str, value: f64, to: Option<f64>, says: Says) -> Stated {
        Stated { cell, value, to, says }
    }

    /// The number itself.
    pub const fn equal(cell: &'static str, value: f64) -> Stated {
        Stated::new(cell, value, None, Says::Equal)
    }

    /// From one number to another.
    pub const fn range(cell: &'static str, from: f64, to: f64) -> Stated {
        Stated::new(cell, from, Some(to), Says::Equal)
    }

    /// About so much.
    pub const fn about(cell: &'static str, value: f64) -> Stated {
        Stated::new(cell, value, None, Says::About)
    }

    /// Less.
    pub const fn below(cell: &'static str, value: f64) -> Stated {
        Stated::new(cell, value, None, Says::Below)
    }

    /// More.
    pub const fn above(cell: &'static str, value: f64) -> Stated {
        Stated::new(cell, value, None, Says::Above)
    }
}

/// What the paper states of a value, as a record has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The value; the least, where it states a range.
    pub value: f64,
    /// The greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
    /// What the text says of it.
    #[serde(default, skip_serializing_if = "Says::is_equal")]
    pub says: Says,
    /// Where it stands: a section, a table, a caption.
    pub section: String,
    /// The whole name of the cell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cell: String,
}

impl From<&Stated> for Published {
    fn from(stated: &Stated) -> Published {
        // "FAST'12 3.4: the prototype's limit": the paper is the page's.
        let place = stated.cell.split(':').next().unwrap_or_default();
        let section = place.split_once(' ').map_or(place, |(_, section)| section).to_owned();
        let Stated { cell, value, to, says } = *stated;
        Published { value, to, says, section, cell: cell.to_owned() }
    }
}

impl Published {
    /// Whether it is one number, which others may be compared with.
    pub fn is_number(&self) -> bool {
        self.to.is_none() && !self.says.is_bound()
    }
}

/// What a value would be by other numbers of the same paper: computed here, and not in its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reckoned {
    /// The value.
    pub value: f64,
    /// What the text says of the numbers that it is made of.
    #[serde(default, skip_serializing_if = "Says::is_equal")]
    pub says: Says,
    /// Of which cells.
    pub cells: Vec<String>,
}

/// Where a finding stands in a picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The [`Chart`]'s name.
    pub chart: String,
    /// Which line; of stacked bars, which part.
    pub line: String,
    /// Where on the x axis.
    pub at: Place,
    /// Where this machine's value stands, where it came out elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_at: Option<f64>,
}

/// A place on the x axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// Of a line.
    Number(f64),
    /// Below a bar.
    Name(String),
}

impl From<f64> for Place {
    fn from(x: f64) -> Place {
        Place::Number(x)
    }
}

impl From<&str> for Place {
    fn from(name: &str) -> Place {
        Place::Name(name.to_owned())
    }
}

/// One quantity: the paper's, the model's in simulated time, this machine's in real time.
/// Any of them may be missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The study's number.
    pub study: String,
    /// This machine's, with runs and spread; without runs it was not measured.
    /// `ratio` is this machine's over what it stands beside.
    #[serde(flatten)]
    pub figure: Figure,
    /// The paper's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Published>,
    /// By other numbers of the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reckoned: Option<Reckoned>,
    /// The model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<f64>,
    /// From what the model's value was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
    /// The paper's over what it stands beside: computed, of two of its numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper_ratio: Option<f64>,
    /// The model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_ratio: Option<f64>,
    /// In which picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
}

impl Finding {
    /// A quantity that nobody has given a value yet.
    pub fn new(name: impl Into<String>, unit: &str) -> Finding {
        Finding { figure: Figure::of(&name.into(), unit, &[]), ..Finding::default() }
    }

    /// What the paper states.
    pub fn paper(self, stated: &Stated) -> Finding {
        Finding { paper: Some(stated.into()), ..self }
    }

    /// What other numbers of the paper come to.
    pub fn reckoned(self, value: f64, cells: &[Stated]) -> Finding {
        let says = cells.iter().map(|stated| stated.says).find(|says| says.is_bound()).unwrap_or_default();
        let cells = cells.iter().map(|stated| stated.cell.to_owned()).collect();
        Finding { reckoned: Some(Reckoned { value, says, cells }), ..self }
    }

    /// From which parameters the model's value is computed, and how: `model.name`, or all of a `model`.
    pub fn from(self, relation: Relation, parameters: &[&str]) -> Finding {
        let parameters = parameters.iter().map(|name| (*name).to_owned()).collect();
        Finding { basis: Some(Basis { relation, parameters }), ..self }
    }

    /// What the model says.
    pub fn model(self, value: f64) -> Finding {
        Finding { model: Some(value), ..self }
    }

    /// What this machine's runs measured.
    pub fn machine(self, runs: &[f64]) -> Finding {
        let figure = Figure::of(&self.figure.name, &self.figure.unit, runs);
        Finding { figure, ..self }
    }

    /// What this machine's clock or counter tells apart, in the finding's unit.
    pub fn resolved_to(self, resolution: f64) -> Finding {
        Finding { figure: self.figure.resolved_to(resolution), ..self }
    }

    /// This machine's value, where it was measured.
    pub fn measured(&self) -> Option<f64> {
        (self.figure.runs > 0).then_some(self.figure.value)
    }

    /// Puts it beside another: the ratios of all columns that both have. Comes after the values.
    pub fn beside(mut self, other: &Finding) -> Finding {
        let ratio = |own: Option<f64>, other: Option<f64>| Some(own? / other.filter(|v| *v != 0.0)?);
        let single = |f: &Finding| f.paper.as_ref().filter(|p| p.is_number()).map(|p| p.value);
        self.paper_ratio = ratio(single(&self), single(other));
        self.model_ratio = ratio(self.model, other.model);
        self.figure.ratio = ratio(self.measured(), other.measured());
        self.figure.beside = Some(other.figure.name.clone());
        self
    }

    /// It over what it stands beside, for a claim.
    pub fn ratio(&self) -> Quantity {
        Quantity::from(self).over(Quantity::named(self.figure.beside.clone().unwrap_or_default()))
    }

    /// Its place in a picture.
    pub fn point(self, chart: &str, line: &str, at: impl Into<Place>) -> Finding {
        let at = at.into();
        let point = Point { chart: chart.to_owned(), line: line.to_owned(), at, machine_at: None };
        Finding { point: Some(point), ..self }
    }

    /// This machine's place in the picture's line, where it is not the model's.
    /// Comes after [`Finding::point`].
    pub fn machine_at(mut self, x: f64) -> Finding {
        if let Some(point) = &mut self.point {
            point.machine_at = Some(x);
        }
        self
    }
}

/// An axis: what it shows, and how it is divided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    title: String,
    log: bool,
}

impl Scale {
    /// From zero, in equal steps.
    pub fn linear(title: &str) -> Scale {
        Scale { title: title.to_owned(), log: false }
    }

    /// In powers of ten.
    pub fn log(title: &str) -> Scale {
        Scale { title: title.to_owned(), log: true }
    }

    /// The axis that the page draws.
    pub fn axis(&self) -> Axis {
        if self.log { Axis::log(&self.title) } else { Axis::linear(&self.title) }
    }
}

/// How a picture is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "drawn", rename_all = "lowercase")]
pub enum Drawn {
    /// A line for each line name and source (paper, model, machine).
    Lines {
        /// Across.
        x: Scale,
        /// Up.
        y: Scale,
    },
    /// A picture for each source; in each a bar for each place, the lines' values on top of each other.
    Stacked {
        /// Up.
        y: String,
    },
    /// For each place a bar of each line and source, side by side.
    Sides {
        /// Up.
        y: Scale,
    },
}

/// A picture; its points are the findings that name it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// The study's number.
    pub study: String,
    /// By which its points name it.
    pub name: String,
    /// What stands below it.
    pub caption: String,
    /// How it is drawn.
    #[serde(flatten)]
    pub drawn: Drawn,
}

impl Chart {
    fn new(name: &str, caption: &str, drawn: Drawn) -> Chart {
        Chart { study: String::new(), name: name.to_owned(), caption: caption.to_owned(), drawn }
    }

    /// Of lines.
    pub fn lines(name: &str, caption: &str, x: Scale, y: Scale) -> Chart {
        Chart::new(name, caption, Drawn::Lines { x, y })
    }

    /// Of bars made of parts.
    pub fn stacked(name: &str, caption: &str, y: &str) -> Chart {
        Chart::new(name, caption, Drawn::Stacked { y: y.to_owned() })
    }

    /// Of bars side by side.
    pub fn sides(name: &str, caption: &str, y: Scale) -> Chart {
        Chart::new(name, caption, Drawn::Sides { y })
    }
}
