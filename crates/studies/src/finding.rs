//! What a study finds: values, claims, pictures and remarks. Each is a line of the record.

use nearside_instrument::report::Axis;
use nearside_loadgen::record::Figure;
use serde::{Deserialize, Serialize};

/// A value that the paper's text states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The value; the least, where it states a range.
    pub value: f64,
    /// The greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
    /// Where it stands: a section, a table, a caption.
    pub section: String,
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
    /// The model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<f64>,
    /// The paper's over what it stands beside, or as its text states the ratio.
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

    /// What the paper states, and where.
    pub fn paper(self, value: f64, section: &str) -> Finding {
        let section = section.to_owned();
        Finding { paper: Some(Published { value, to: None, section }), ..self }
    }

    /// A range that the paper states.
    pub fn paper_range(self, [value, to]: [f64; 2], section: &str) -> Finding {
        let section = section.to_owned();
        Finding { paper: Some(Published { value, to: Some(to), section }), ..self }
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
        let single = |f: &Finding| f.paper.as_ref().filter(|p| p.to.is_none()).map(|p| p.value);
        self.paper_ratio = ratio(single(&self), single(other));
        self.model_ratio = ratio(self.model, other.model);
        self.figure.ratio = ratio(self.measured(), other.measured());
        self.figure.beside = Some(other.figure.name.clone());
        self
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

/// A statement of the paper, checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The study's number.
    pub study: String,
    /// The statement.
    pub text: String,
    /// Where the paper states it.
    pub section: String,
    /// Whether it holds on the model; `None` where that says nothing about it.
    pub model: Option<bool>,
    /// Whether it holds on this machine.
    pub machine: Option<bool>,
    /// The numbers that decided.
    pub because: String,
}

impl Claim {
    /// A statement and where the paper makes it.
    pub fn new(text: &str, section: &str) -> Claim {
        Claim {
            study: String::new(),
            text: text.to_owned(),
            section: section.to_owned(),
            model: None,
            machine: None,
            because: String::new(),
        }
    }

    /// Whether it holds on the model.
    pub fn model(self, holds: bool) -> Claim {
        Claim { model: Some(holds), ..self }
    }

    /// Whether it holds on this machine.
    pub fn machine(self, holds: bool) -> Claim {
        Claim { machine: Some(holds), ..self }
    }

    /// The numbers that decided.
    pub fn because(self, because: impl Into<String>) -> Claim {
        Claim { because: because.into(), ..self }
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
