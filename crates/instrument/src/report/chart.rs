//! The pictures. Axes are linear, logarithmic or in nines;
//! all three are linear in what is drawn, the labels say what it means.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

const SIZE: (u32, u32) = (760, 420);
const FONT: (&str, i32) = ("sans-serif", 14);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Log,
    Nines,
}

/// An axis: what it shows and how it is divided.
#[derive(Clone, Debug)]
pub struct Axis {
    title: String,
    scale: Scale,
}

impl Axis {
    /// From zero, in equal steps.
    pub fn linear(title: &str) -> Axis {
        Axis { title: title.to_owned(), scale: Scale::Linear }
    }

    /// In powers of ten; values of zero and below are not shown.
    pub fn log(title: &str) -> Axis {
        Axis { title: title.to_owned(), scale: Scale::Log }
    }

    /// Percentiles, each further nine as far again: 90, 99, 99.9, ...
    /// Values are percentiles from 0 up to, not with, 100.
    pub fn nines() -> Axis {
        Axis { title: "percentile".to_owned(), scale: Scale::Nines }
    }

    /// Where a value is drawn; `None` where it cannot be.
    fn place(&self, value: f64) -> Option<f64> {
        let at = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
            Scale::Nines => -(1.0 - value / 100.0).log10(),
        };
        (value.is_finite() && at.is_finite()).then_some(at)
    }

    /// The ends of the axis around these places.
    /// Those of powers of ten are whole, so that each has its label.
    fn ends(&self, places: impl Iterator<Item = f64>) -> (f64, f64) {
        let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), p| (l.min(p), h.max(p)));
        if low > high {
            return (0.0, 1.0);
        }
        match self.scale {
            Scale::Linear => (low.min(0.0), if high > 0.0 { high * 1.08 } else { 1.0 }),
            Scale::Log => (low.floor(), (high.floor() + 1.0).min(high.ceil().max(low.floor() + 1.0))),
            Scale::Nines => (0.0, high.ceil().max(1.0)),
        }
    }

    fn label(&self, place: f64) -> String {
        match self.scale {
            Scale::Linear => short(place),
            Scale::Log => short(10f64.powf(place)),
            Scale::Nines => match place.round() as usize {
                0 => "0".to_owned(),
                1 => "90".to_owned(),
                2 => "99".to_owned(),
                nines => format!("99.{}", "9".repeat(nines - 2)),
            },
        }
    }

    /// How many labels the axis has at most.
    fn labels(&self, (low, high): (f64, f64)) -> usize {
        if self.scale == Scale::Linear { 9 } else { (high - low).round() as usize + 1 }
    }
}

/// Few digits: `250 k`, `1.5 M`, `0.1`, `0.0001`.
fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, unit) = match size {
        s if s >= 999_999.5 => (value / 1e6, " M"),
        s if s >= 9_999.5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        s if s >= 99.95 || s == 0.0 => 0,
        s if s < 0.001 => (2.0 - s.log10().floor()).min(9.0) as usize,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    name: String,
    points: Vec<(f64, f64)>,
    weak: Vec<usize>,
    dashed: bool,
}

impl Line {
    /// A line through these points.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        Line { name: name.into(), points, weak: Vec::new(), dashed: false }
    }

    /// The points of these indices rest on too few samples: drawn hollow and grey.
    pub fn weak(mut self, indices: Vec<usize>) -> Line {
        self.weak = indices;
        self
    }

    /// What is not measured but given: a rule, a published value.
    pub fn dashed(mut self) -> Line {
        self.dashed = true;
        self
    }
}

/// One group of bars.
#[derive(Clone, Debug)]
pub struct Bar {
    name: String,
    parts: Vec<f64>,
}

impl Bar {
    /// What stands below it, and its parts in the order of the legend.
    pub fn new(name: impl Into<String>, parts: Vec<f64>) -> Bar {
        Bar { name: name.into(), parts }
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn picture(draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&area).and_then(|()| Ok(area.present()?)).map_err(|e| e.to_string())?;
    }
    Ok(svg)
}

/// Where a point is drawn, and its index in the line.
type Placed = ((f64, f64), usize);

pub(crate) fn lines(x: &Axis, y: &Axis, lines: &[Line]) -> Result<String, String> {
    let placed: Vec<Vec<Placed>> = lines
        .iter()
        .map(|line| {
            let points = line.points.iter().enumerate();
            points.filter_map(|(i, p)| Some(((x.place(p.0)?, y.place(p.1)?), i))).collect()
        })
        .collect();
    let all = || placed.iter().flatten();
    let (xs, ys) = (x.ends(all().map(|p| p.0.0)), y.ends(all().map(|p| p.0.1)));
    let names: Vec<&str> = lines.iter().map(|l| &*l.name).collect();
    picture(|area| {
        let area = below_legend(area, &names)?;
        let mut chart = plane(&area, Some(x), xs, y, ys)?;
        for (i, (line, points)) in lines.iter().zip(&placed).enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let style = colour.stroke_width(2);
            let places = points.iter().map(|p| p.0);
            if line.dashed {
                chart.draw_series(DashedLineSeries::new(places, 6, 4, style))?;
                continue;
            }
            chart.draw_series(LineSeries::new(places, style))?;
            let (weak, strong): (Vec<&Placed>, Vec<&Placed>) =
                points.iter().partition(|p| line.weak.contains(&p.1));
            chart.draw_series(strong.iter().map(|p| Circle::new(p.0, 3, colour.filled())))?;
            chart.draw_series(weak.iter().map(|p| Circle::new(p.0, 3, WHITE.filled())))?;
            chart.draw_series(
                weak.iter().map(|p| Circle::new(p.0, 3, RGBColor(150, 150, 150).stroke_width(1))),
            )?;
        }
        Ok(())
    })
}

/// The coordinate plane with its mesh. Without an x axis, what stands below is the caller's to write.
fn plane<'a, 'b>(
    area: &'a Area<'b>,
    x: Option<&Axis>,
    xs: (f64, f64),
    y: &Axis,
    ys: (f64, f64),
) -> Result<Plane<'a, 'b>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .margin_right(34)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(xs.0..xs.1, ys.0..ys.1)?;
    let (label_x, label_y) =
        (|place: &f64| x.map_or(String::new(), |x| x.label(*place)), |place: &f64| y.label(*place));
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE).label_style(FONT);
    mesh.y_desc(&y.title).y_labels(y.labels(ys)).y_label_formatter(&label_y);
    match x {
        Some(x) => mesh.x_desc(&x.title).x_labels(x.labels(xs)).x_label_formatter(&label_x),
        None => mesh.disable_x_mesh().x_labels(0),
    };
    mesh.draw()?;
    Ok(chart)
}

pub(crate) fn stacked_bars(y: &str, parts: &[&str], bars: &[Bar]) -> Result<String, String> {
    let y = Axis::linear(y);
    let tops = bars.iter().map(|b| b.parts.iter().filter(|p| p.is_finite()).sum());
    let ys = y.ends(tops);
    boxes(&y, ys, parts, bars, |bar, part| {
        let below: f64 = bar.parts.iter().take(part).filter(|p| p.is_finite()).sum();
        let height = bar.parts.get(part).copied().filter(|p| p.is_finite())?;
        Some([(0.18, below), (0.82, below + height)])
    })
}

pub(crate) fn grouped_bars(y: &Axis, parts: &[&str], bars: &[Bar]) -> Result<String, String> {
    let places = || bars.iter().flat_map(|b| &b.parts).filter_map(|v| y.place(*v));
    let mut ys = y.ends(places());
    if y.scale == Scale::Log && places().any(|p| p < ys.0 + 0.1) {
        // The lowest bar has some height as well.
        ys.0 -= 1.0;
    }
    let width = 0.76 / parts.len().max(1) as f64;
    boxes(y, ys, parts, bars, |bar, part| {
        let left = 0.12 + part as f64 * width;
        let top = y.place(*bar.parts.get(part)?)?;
        Some([(left, ys.0), (left + width * 0.92, top)])
    })
}

/// Bars side by side with their names below; `place` says where within its unit of width a bar's part stands.
fn boxes(
    y: &Axis,
    ys: (f64, f64),
    parts: &[&str],
    bars: &[Bar],
    place: impl Fn(&Bar, usize) -> Option<[(f64, f64); 2]>,
) -> Result<String, String> {
    let count = bars.len().max(1) as f64;
    picture(|area| {
        let area = below_legend(area, parts)?;
        let mut chart = plane(&area, None, (0.0, count), y, ys)?;
        for (p, _) in parts.iter().enumerate() {
            let colour = COLOURS[p % COLOURS.len()];
            let drawn = bars.iter().enumerate().filter_map(|(i, bar)| {
                let corners = place(bar, p)?.map(|(x, y)| (x + i as f64, y));
                Some(Rectangle::new(corners, colour.filled()))
            });
            chart.draw_series(drawn)?;
        }
        let style = TextStyle::from(("sans-serif", 13)).pos(Pos::new(HPos::Center, VPos::Top));
        let field = chart.plotting_area().strip_coord_spec();
        let (width, height) = field.dim_in_pixel();
        let (left, top) = field.get_base_pixel();
        let above = area.get_base_pixel().1;
        for (i, bar) in bars.iter().enumerate() {
            let x = left + ((i as f64 + 0.5) / count * f64::from(width)) as i32;
            area.draw(&Text::new(bar.name.clone(), (x, top + height as i32 + 8 - above), style.clone()))?;
        }
        Ok(())
    })
}

/// Writes the legend into rows at the top of the picture, and gives back what is left of it.
fn below_legend<'a>(area: &Area<'a>, names: &[&str]) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    const ROW: i32 = 20;
    const MARK: i32 = 14;
    let style = TextStyle::from(FONT).pos(Pos::new(HPos::Left, VPos::Center));
    let width = area.dim_in_pixel().0 as i32;
    let (mut x, mut y) = (20, ROW);
    let mut places = Vec::new();
    for name in names {
        let wide = MARK + 6 + area.estimate_text_size(name, &style)?.0 as i32 + 22;
        if x > 20 && x + wide > width {
            (x, y) = (20, y + ROW);
        }
        places.push((x, y));
        x += wide;
    }
    for (i, (name, (x, y))) in names.iter().zip(places).enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        area.draw(&Rectangle::new([(x, y - 4), (x + MARK, y + 4)], colour.filled()))?;
        area.draw(&Text::new((*name).to_owned(), (x + MARK + 6, y), style.clone()))?;
    }
    Ok(area.split_vertically(y + ROW / 2).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_label_what_they_place() {
        let log = Axis::log("µs");
        let ends = log.ends([3.0, 450.0, 0.0].iter().filter_map(|v| log.place(*v)));
        assert_eq!((ends, log.labels(ends)), ((0.0, 3.0), 4));
        assert_eq!([0.0, 1.0, 3.0, 5.0].map(|p| log.label(p)), ["1", "10", "1000", "100 k"]);
        let nines = Axis::nines();
        assert_eq!([0.0, 1.0, 2.0, 5.0].map(|p| nines.label(p)), ["0", "90", "99", "99.999"]);
        assert!((nines.place(99.9).unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(nines.place(100.0), None);
        assert_eq!(Axis::linear("").ends([2.0, 10.0].into_iter()).0, 0.0);
        assert_eq!(
            [0.0, 0.1, 12.5, 250.0, 9_999.0, 250_000.0, 1.5e6, 0.0005, 1e-4, 1e-17].map(short),
            ["0", "0.1", "12.5", "250", "9999", "250 k", "1.5 M", "0.0005", "0.0001", "0"]
        );
    }
}
