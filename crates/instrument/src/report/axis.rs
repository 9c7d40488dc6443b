//! Axes: what they show, how they are divided, and how a value on one reads.

use serde_json::{Value, json};

use crate::words::show_time;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Log,
    Nines,
}

/// In what an axis's values are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    /// A time, of so many nanoseconds each.
    Time(f64),
    /// A count, in pieces of so many.
    Count(f64),
    /// What the title says.
    Other,
}

/// An axis: what it shows and how it is divided.
///
/// A unit that stands last in its title, after a comma, is taken from it: of times (`ns`, `us`, `µs`, `ms`,
/// `s`) and `thousands` the ticks say it themselves, so that 10,000 µs read 10ms.
#[derive(Clone, Debug)]
pub struct Axis {
    /// As it was given: the unit is in it.
    title: String,
    unit: Unit,
    scale: Scale,
}

impl Axis {
    fn new(title: &str, scale: Scale) -> Axis {
        let last = title.rsplit(", ").next().unwrap_or_default();
        let unit = match last {
            "ns" => Unit::Time(1.0),
            "us" | "µs" => Unit::Time(1e3),
            "ms" => Unit::Time(1e6),
            "s" | "seconds" => Unit::Time(1e9),
            "thousands" => Unit::Count(1e3),
            _ => Unit::Other,
        };
        Axis { title: title.to_owned(), unit, scale }
    }

    /// From zero, in equal steps.
    pub fn linear(title: &str) -> Axis {
        Axis::new(title, Scale::Linear)
    }

    /// In powers of ten; values of zero and below are not shown.
    pub fn log(title: &str) -> Axis {
        Axis::new(title, Scale::Log)
    }

    /// Percentiles, each further nine as far again: 90, 99, 99.9, ...
    /// Values are percentiles from 0 up to, not with, 100.
    pub fn nines() -> Axis {
        Axis::new("percentile", Scale::Nines)
    }

    /// The same quantity in powers of ten.
    pub(super) fn as_log(&self) -> Axis {
        Axis { scale: Scale::Log, ..self.clone() }
    }

    /// The title with the unit of the values: a column of data has it.
    pub(super) fn whole_title(&self) -> &str {
        &self.title
    }

    /// The title beside the axis, whose ticks have the unit.
    fn title(&self) -> &str {
        match (self.unit, self.title.rsplit_once(", ")) {
            (Unit::Other, _) => &self.title,
            (_, Some((title, _))) => title,
            (Unit::Time(_), None) => "time",
            (Unit::Count(_), None) => "count",
        }
    }

    /// Where a value is drawn, in seconds, pieces or nines; `None` where it cannot be.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let at = match (self.scale, self.unit) {
            (Scale::Nines, _) => -(1.0 - value / 100.0).log10(),
            (_, Unit::Time(ns)) => value * ns / 1e9,
            (_, Unit::Count(of)) => value * of,
            (_, Unit::Other) => value,
        };
        let shown = value.is_finite() && at.is_finite() && (self.scale != Scale::Log || at > 0.0);
        shown.then_some(at)
    }

    /// A value in words.
    pub(super) fn words(&self, value: f64) -> String {
        match (self.scale, self.unit) {
            (Scale::Nines, _) => format!("{}", (value * 1e6).round() / 1e6),
            (_, Unit::Time(ns)) => show_time(value * ns),
            (_, Unit::Count(of)) => nearside_loadgen::record::number(value * of),
            (_, Unit::Other) => nearside_loadgen::record::number(value),
        }
    }

    /// Across, labels need their width.
    pub(super) fn across(&self, places: impl Iterator<Item = f64>) -> Value {
        self.layout(places, 12.0)
    }

    /// Upwards there is room for more.
    pub(super) fn up(&self, places: impl Iterator<Item = f64>) -> Value {
        self.layout(places, 300.0)
    }

    /// The label of a place on an axis of powers of ten.
    fn tick(&self, place: f64) -> String {
        let (size, unit) = match self.unit {
            Unit::Time(_) => match place {
                p if p < 0.99e-6 => (place * 1e9, " ns"),
                p if p < 0.99e-3 => (place * 1e6, " µs"),
                p if p < 0.99 => (place * 1e3, " ms"),
                _ => (place, " s"),
            },
            _ => match place {
                p if p < 9_999.0 => (place, ""),
                p if p < 999_999.0 => (place / 1e3, "k"),
                p if p < 999_999_999.0 => (place / 1e6, "M"),
                _ => (place / 1e9, "G"),
            },
        };
        // Powers of ten have only so many digits.
        format!("{}{unit}", (size * 1e9).round() / 1e9)
    }

    /// The axis in the library's words, around what is placed on it: with more than the powers of ten where
    /// the greatest that is shown is less than `across` times the least.
    fn layout(&self, places: impl Iterator<Item = f64>, across: f64) -> Value {
        let (low, high) = places
            .filter(|p| *p != 0.0)
            .fold((f64::INFINITY, 0.0f64), |(low, high), p| (low.min(p.abs()), high.max(p.abs())));
        let mut axis = json!({
            "title": { "text": self.title(), "standoff": 10 },
            "automargin": true,
            "nticks": 8,
            // The labels of two axes stand apart where these meet.
            "ticks": "outside",
            "ticklen": 7,
            "tickcolor": "rgba(0,0,0,0)",
            "tickangle": 0,
            "type": if self.scale == Scale::Log { "log" } else { "linear" },
        });
        axis["tickformat"] = match self.unit {
            Unit::Time(_) => "~s".into(),
            _ if low >= 1.0 && high >= 1e4 => "~s".into(),
            _ => "~g".into(),
        };
        if matches!(self.unit, Unit::Time(_)) {
            axis["ticksuffix"] = "s".into();
        }
        match self.scale {
            Scale::Linear => axis["rangemode"] = "tozero".into(),
            Scale::Log if high > 0.0 => {
                // A picture within one decade needs its whole.
                let (from, to) = (low.log10().floor(), (high.log10() - 1e-9).ceil());
                let mut shown = high / low;
                if shown < 10.0 {
                    let to = to.max(from + 1.0);
                    axis["range"] = json!([from - 0.02, to + 0.02]);
                    // Two of them, where a power of ten lies within.
                    shown = 10f64.powf(to - from);
                }
                let steps: &[f64] = match shown / across {
                    ..1.0 => &[1.0, 2.0, 5.0],
                    ..3.0 => &[1.0, 3.0],
                    _ => &[1.0],
                };
                // Times have the longest labels: a narrow picture has room for every second decade's.
                let every = if matches!(self.unit, Unit::Time(_)) && shown > 5e5 { 2 } else { 1 };
                let decades = (from as i32 - 1)..=(to as i32 + 1);
                let ticks: Vec<f64> = decades
                    .filter(|decade| decade % every == 0)
                    .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
                    .collect();
                axis["ticktext"] = ticks.iter().map(|tick| self.tick(*tick)).collect::<Vec<_>>().into();
                axis["tickvals"] = ticks.into();
            }
            Scale::Log => {}
            Scale::Nines => {
                let nines: Vec<usize> = (0..=high.ceil() as usize).collect();
                axis["tickvals"] = nines.clone().into();
                axis["ticktext"] = nines.into_iter().map(nines_word).collect::<Vec<_>>().into();
                axis["rangemode"] = "tozero".into();
            }
        }
        axis
    }
}

fn nines_word(nines: usize) -> String {
    match nines {
        0 => "0".to_owned(),
        1 => "90".to_owned(),
        2 => "99".to_owned(),
        nines => format!("99.{}", "9".repeat(nines - 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_take_units_from_their_titles() {
        let axis = Axis::log("response time, µs");
        assert_eq!((axis.title(), axis.whole_title()), ("response time", "response time, µs"));
        assert_eq!(axis.place(10_000.0), Some(0.01), "in seconds");
        assert_eq!([0.1, 12.5, 10_000.0].map(|v| axis.words(v)), ["100 ns", "12.5 µs", "10.0 ms"]);
        assert_eq!((axis.place(0.0), axis.place(-1.0), axis.place(f64::NAN)), (None, None, None));
        let shown = axis.up([1e-6, 0.01].into_iter());
        assert_eq!((&shown["tickformat"], &shown["ticksuffix"]), (&"~s".into(), &"s".into()));
        assert_eq!((Axis::linear("us").title(), Axis::linear("us").place(2e6)), ("time", Some(2.0)));
        let thousands = Axis::linear("IOPS, thousands");
        assert_eq!((thousands.title(), thousands.place(250.0)), ("IOPS", Some(250_000.0)));
        // What is no unit stays.
        let saved = Axis::linear("saved, %");
        assert_eq!((saved.title(), saved.place(-3.0)), ("saved, %", Some(-3.0)));
        assert_eq!(saved.up([50.0].into_iter())["ticksuffix"], Value::Null);
    }

    #[test]
    fn nines_stand_as_far_apart_as_each_other() {
        let nines = Axis::nines();
        assert!((nines.place(99.9).unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(nines.place(100.0), None);
        let shown = nines.across([0.0, 4.2].into_iter());
        assert_eq!(shown["ticktext"], json!(["0", "90", "99", "99.9", "99.99", "99.999"]));
        assert_eq!((nines.words(99.9), nines.words(100.0 * (1.0 - 1e-5))), ("99.9".into(), "99.999".into()));
    }

    #[test]
    fn powers_of_ten_are_labelled_in_units() {
        let ticks = |axis: &Axis, low: f64, high: f64| {
            let shown = axis.across([low, high].into_iter());
            shown["ticktext"]
                .as_array()
                .unwrap()
                .iter()
                .map(|t| t.as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let times = ticks(&Axis::log("response time, µs"), 2e-7, 0.02);
        assert_eq!(times, ["10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
        let many = ticks(&Axis::log("us"), 5e-8, 0.3);
        assert_eq!(many, ["10 ns", "1 µs", "100 µs", "10 ms", "1 s"]);
        let few = ticks(&Axis::log("us"), 2e-5, 9e-5);
        assert!(few.contains(&"20 µs".to_owned()) && few.contains(&"50 µs".to_owned()), "{few:?}");
        // Beyond a decade labels are too wide for as many; two of these are always shown.
        let more = ticks(&Axis::log("us"), 4e-5, 6e-4);
        assert!(more.contains(&"300 µs".to_owned()) && !more.contains(&"200 µs".to_owned()), "{more:?}");
        let counts = ticks(&Axis::log("bytes"), 0.01, 1e6);
        assert_eq!(counts[..5], ["0.001", "0.01", "0.1", "1", "10"]);
        assert_eq!(counts[7..10], ["10k", "100k", "1M"].map(String::from)[..3]);
    }

    #[test]
    fn small_counts_have_no_prefix() {
        let format = |values: [f64; 2]| Axis::linear("x").up(values.into_iter())["tickformat"].clone();
        assert_eq!((format([0.001, 50.0]), format([10.0, 1e6])), ("~g".into(), "~s".into()));
    }
}
