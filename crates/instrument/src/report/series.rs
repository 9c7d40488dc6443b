//! What pictures are made of: lines, bars and their parts, and how each is told from the others.

/// What a series is. How it is drawn says so: what was measured is solid, what a model says is dashed with
/// open marks, what a paper states are marks alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Measured in this run.
    #[default]
    Measured,
    /// By a model.
    Modelled,
    /// Stated by a paper: numbers, or ranges as intervals.
    Published,
    /// Stated as an upper bound: the value lies below.
    Below,
    /// Stated as a lower bound: the value lies above.
    Above,
    /// A rule: given, not found.
    Rule,
}

impl Kind {
    /// In a column of data.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Measured => "measured",
            Kind::Modelled => "model",
            Kind::Published => "paper",
            Kind::Below => "paper, upper bound",
            Kind::Above => "paper, lower bound",
            Kind::Rule => "rule",
        }
    }
}

/// From where to where a value may be.
pub type Interval = Option<(f64, f64)>;

/// A point of a line, or a part of a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) interval: Interval,
    pub(super) weak: bool,
}

/// How a line's points are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Joined,
    Marks,
    Band,
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) kind: Kind,
    pub(super) shape: Shape,
    pub(super) points: Vec<Mark>,
}

impl Line {
    /// A line through these points, each (x, y).
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        let points = points.into_iter().map(|(x, y)| Mark { x, y, interval: None, weak: false }).collect();
        let name = name.into();
        Line { group: name.clone(), name, kind: Kind::Measured, shape: Shape::Joined, points }
    }

    /// A band, each (x, lower end, upper end).
    pub fn band(name: impl Into<String>, points: Vec<(f64, f64, f64)>) -> Line {
        let mark = |(x, low, high)| Mark { x, y: high, interval: Some((low, high)), weak: false };
        let points = points.into_iter().map(mark).collect();
        Line { shape: Shape::Band, points, ..Line::new(name, Vec::new()) }
    }

    /// What it is.
    pub fn kind(self, kind: Kind) -> Line {
        Line { kind, ..self }
    }

    /// Lines of one group have one colour.
    pub fn of(self, group: impl Into<String>) -> Line {
        Line { group: group.into(), ..self }
    }

    /// The points are not joined.
    pub fn marks(self) -> Line {
        Line { shape: Shape::Marks, ..self }
    }

    /// The points of these indices rest on too few samples: drawn hollow and grey.
    pub fn weak(mut self, indices: Vec<usize>) -> Line {
        for index in indices {
            self.points.get_mut(index).into_iter().for_each(|point| point.weak = true);
        }
        self
    }

    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The points' intervals, in their order.
    pub fn intervals(mut self, intervals: Vec<Interval>) -> Line {
        for (point, interval) in self.points.iter_mut().zip(intervals) {
            point.interval = interval;
        }
        self
    }
}

/// A part of bars, or what stands beside others in each row.
#[derive(Clone, Debug)]
pub struct Part {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) kind: Kind,
}

impl Part {
    /// Of one kind; parts of one group have one colour.
    pub fn new(name: impl Into<String>, group: impl Into<String>, kind: Kind) -> Part {
        Part { name: name.into(), group: group.into(), kind }
    }
}

impl From<&str> for Part {
    fn from(name: &str) -> Part {
        Part::new(name, name, Kind::Measured)
    }
}

/// A row of values: one for each part.
#[derive(Clone, Debug)]
pub struct Bar {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) parts: Vec<f64>,
    pub(super) intervals: Vec<Interval>,
    pub(super) weak: Vec<bool>,
}

impl Bar {
    /// What stands beside it, and its values in the order of the parts; not a number: there is none.
    pub fn new(name: impl Into<String>, parts: Vec<f64>) -> Bar {
        Bar { name: name.into(), kind: Kind::Measured, parts, intervals: Vec::new(), weak: Vec::new() }
    }

    /// Whose values they are.
    pub fn kind(self, kind: Kind) -> Bar {
        Bar { kind, ..self }
    }

    /// The values' intervals, in their order.
    pub fn intervals(self, intervals: Vec<Interval>) -> Bar {
        Bar { intervals, ..self }
    }

    /// Which values rest on too few samples, in their order: drawn hollow and grey.
    pub fn weak(self, weak: Vec<bool>) -> Bar {
        Bar { weak, ..self }
    }
}

/// Colours that stay apart for colour-blind readers (after Okabe and Ito), on white and on black.
/// Red is left for what misses.
const COLOURS: [&str; 8] =
    ["#2f7fc1", "#d9741a", "#149a70", "#c45a9d", "#b58900", "#29a3bd", "#8a6bd6", "#7d858c"];
/// Fewer than the colours, by one: fifty-six groups have no two alike.
const SYMBOLS: [&str; 7] = ["circle", "square", "cross", "x", "pentagon", "star", "hexagon"];
const DASHES: [&str; 4] = ["solid", "dashdot", "longdashdot", "dot"];

/// How one series is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) colour: &'static str,
    pub(super) symbol: String,
    pub(super) dash: &'static str,
}

impl Style {
    /// Of a group, by its number.
    pub(super) fn of(group: usize, kind: Kind) -> Style {
        let (colour, own) = (COLOURS[group % COLOURS.len()], SYMBOLS[group % SYMBOLS.len()]);
        let (symbol, dash) = match kind {
            Kind::Measured => (own.to_owned(), DASHES[group / COLOURS.len() % DASHES.len()]),
            Kind::Modelled => (format!("{own}-open"), "dash"),
            Kind::Published => ("diamond".to_owned(), "solid"),
            Kind::Below => ("triangle-down".to_owned(), "solid"),
            Kind::Above => ("triangle-up".to_owned(), "solid"),
            Kind::Rule => (own.to_owned(), "longdash"),
        };
        Style { colour, symbol, dash }
    }

    /// A few pixels of a band.
    pub(super) fn ground(&self) -> String {
        let colour = self.colour;
        format!(
            "<svg class=swatch viewBox=\"-14 -7 28 14\" aria-hidden=true>\
             <rect x=-14 y=-5 width=28 height=10 fill=\"{colour}\" opacity=\".35\" /></svg>"
        )
    }

    /// A few pixels of it, for a legend.
    pub(super) fn swatch(&self, line: bool, mark: bool) -> String {
        let mut svg = String::from("<svg class=swatch viewBox=\"-14 -7 28 14\" aria-hidden=true>");
        if line {
            let dash = match self.dash {
                "solid" => "",
                "dash" => " stroke-dasharray=\"6 3\"",
                "dot" => " stroke-dasharray=\"2 3\"",
                _ => " stroke-dasharray=\"9 2 2 2\"",
            };
            svg += &format!("<path d=\"M-14 0H14\" stroke=\"{}\" stroke-width=2{dash} />", self.colour);
        }
        if mark {
            let (name, open) = match self.symbol.strip_suffix("-open") {
                Some(name) => (name, true),
                None => (&*self.symbol, false),
            };
            let fill = if open { "var(--paper)" } else { self.colour };
            let points = outline(name).map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
            svg += &format!("<polygon points=\"{points}\" fill=\"{fill}\" stroke=\"{}\" />", self.colour);
        }
        svg + "</svg>"
    }
}

/// The corners of a mark about five pixels from its centre.
fn outline(symbol: &str) -> impl Iterator<Item = (f64, f64)> {
    let (corners, turn, inner) = match symbol {
        "square" => (4, 0.5, 1.0),
        "diamond" => (4, 0.0, 1.0),
        "triangle-up" => (3, 0.0, 1.0),
        "triangle-down" => (3, 0.5, 1.0),
        "cross" => (4, 0.0, 0.35),
        "x" => (4, 0.5, 0.35),
        "pentagon" => (5, 0.0, 1.0),
        "star" => (5, 0.0, 0.45),
        "hexagon" => (6, 0.5, 1.0),
        _ => (16, 0.0, 1.0),
    };
    // A star has a corner further in between two further out.
    let all = if inner < 1.0 { 2 * corners } else { corners };
    (0..all).map(move |i| {
        let step = std::f64::consts::TAU / f64::from(all);
        let whole = std::f64::consts::TAU / f64::from(corners);
        let angle = f64::from(i) * step + turn * whole;
        let radius = if inner < 1.0 && i % 2 == 1 { 5.0 * inner } else { 5.0 };
        (radius * angle.sin(), -radius * angle.cos())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_many_series_look_alike() {
        let kinds = [Kind::Measured, Kind::Modelled];
        let styles: Vec<Style> = (0..56).flat_map(|group| kinds.map(|kind| Style::of(group, kind))).collect();
        for (i, style) in styles.iter().enumerate() {
            assert!(!styles[..i].contains(style), "{i}: {style:?}");
        }
        let swatches: Vec<String> = styles[..28].iter().map(|style| style.swatch(true, true)).collect();
        for (i, swatch) in swatches.iter().enumerate() {
            assert!(!swatches[..i].contains(swatch), "{i}: {swatch}");
        }
    }
}
