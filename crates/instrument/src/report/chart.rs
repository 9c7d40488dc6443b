//! The pictures, in the words of the charting library (plotly.js): what is drawn, its legend, and its data.

use serde_json::{Value, json};

use super::axis::Axis;
use super::series::{Bar, Interval, Kind, Line, Mark, Part, Shape, Style};

/// A picture: what the library draws, what tells its series apart, and the numbers behind it.
pub(super) struct Picture {
    pub(super) traces: Vec<Value>,
    pub(super) layout: Value,
    /// For each trace its name and a few pixels of it.
    pub(super) legend: Vec<(String, String)>,
    pub(super) data: Data,
    /// In CSS pixels.
    pub(super) height: usize,
}

/// The numbers of a picture, in the units of its axes' titles.
pub(super) struct Data {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Value>>,
}

impl Data {
    fn new(columns: &[&str]) -> Data {
        Data { columns: columns.iter().map(|c| (*c).to_owned()).collect(), rows: Vec::new() }
    }

    /// As CSV (RFC 4180), the columns' names first.
    pub(super) fn csv(&self) -> String {
        let quoted = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let cell = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => quoted(text),
            other => other.to_string(),
        };
        let head = self.columns.iter().map(|c| quoted(c)).collect::<Vec<_>>().join(",");
        let rows = self.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(","));
        std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n") + "\n"
    }

    /// As JSON: the caption, the columns' names, the rows.
    pub(super) fn json(&self, caption: &str) -> String {
        json!({ "caption": caption, "columns": self.columns, "rows": self.rows }).to_string()
    }
}

/// What a weak point is drawn in.
const GREY: &str = "#9aa0a6";

/// What is said of it.
const FEW: &str = "<br>rests on fewer than ten samples beyond it";

/// The library reads a few tags and entities in texts; a quote's is not among them.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// In lines of so many characters at most, broken where a word ends.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive([' ', ',', ':', '/', '=']) {
        let length = word.trim_end().chars().count();
        if lines.last().is_some_and(|line| !line.is_empty() && line.chars().count() + length > width) {
            lines.push(String::new());
        }
        for c in word.chars() {
            if lines.last().is_some_and(|line| line.chars().count() >= width) {
                lines.push(String::new());
            }
            lines.last_mut().into_iter().for_each(|line| line.push(c));
        }
    }
    lines.iter().map(|line| plain(line.trim())).collect::<Vec<_>>().join("<br>")
}

/// A number, as far as it means anything.
fn value(v: f64) -> Value {
    if v.is_finite() { json!(v) } else { Value::Null }
}

fn layout(x: Value, y: Value) -> Value {
    json!({
        "xaxis": x,
        "yaxis": y,
        "font": { "family": "system-ui, sans-serif", "size": 13 },
        // Above lies the bar of buttons, which else covers a point in the corner.
        "margin": { "l": 12, "r": 18, "t": 34, "b": 12 },
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": false,
        "hovermode": "closest",
        "hoverlabel": { "align": "left", "namelength": -1 },
        "autosize": true,
        "modebar": { "bgcolor": "rgba(0,0,0,0)" },
    })
}

/// The number of each series' group, in the order in which they first come.
fn groups<'a>(names: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let mut seen: Vec<&str> = Vec::new();
    names
        .map(|name| {
            seen.iter().position(|s| *s == name).unwrap_or_else(|| {
                seen.push(name);
                seen.len() - 1
            })
        })
        .collect()
}

/// "12.0 µs (11.5 µs to 12.6 µs)".
fn words(axis: &Axis, at: f64, interval: Interval) -> String {
    let between = |(low, high): (f64, f64)| format!(" ({} to {})", axis.words(low), axis.words(high));
    axis.words(at) + &interval.map(between).unwrap_or_default()
}

/// How far an interval's ends are from where its point is drawn.
fn arms(axis: &Axis, intervals: impl Iterator<Item = (f64, Interval)>) -> (Vec<f64>, Vec<f64>, bool) {
    let (mut up, mut down, mut any) = (Vec::new(), Vec::new(), false);
    for (v, interval) in intervals {
        let place = |value| axis.place(value).unwrap_or(0.0);
        let ends = interval.map(|(low, high)| (place(v) - place(low), place(high) - place(v)));
        any |= ends.is_some();
        let (below, above) = ends.unwrap_or_default();
        down.push(below.max(0.0));
        up.push(above.max(0.0));
    }
    (up, down, any)
}

/// Marks in the library's words: their shapes and colours, weak ones hollow and grey.
fn marker(style: &Style, kind: Kind, weak: impl Iterator<Item = bool> + Clone) -> Value {
    let open = |symbol: &str| format!("{}-open", symbol.trim_end_matches("-open"));
    let symbols = weak.clone().map(|w| if w { open(&style.symbol) } else { style.symbol.clone() });
    let colours = weak.map(|w| if w { GREY } else { style.colour });
    let size = match kind {
        Kind::Published | Kind::Below | Kind::Above => 11,
        Kind::Modelled => 8,
        Kind::Measured | Kind::Rule => 7,
    };
    json!({
        "symbol": symbols.collect::<Vec<_>>(),
        "color": colours.collect::<Vec<_>>(),
        "size": size,
        "line": { "width": if kind == Kind::Modelled { 1.6 } else { 1.0 } },
    })
}

pub(super) fn lines(x: &Axis, y: &Axis, lines: &[Line]) -> Picture {
    let mut data =
        Data::new(&["series", "kind", x.whole_title(), y.whole_title(), "low", "high", "few samples"]);
    let (mut traces, mut legend) = (Vec::new(), Vec::new());
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    for (line, group) in lines.iter().zip(groups(lines.iter().map(|l| &*l.group))) {
        let style = Style::of(group, line.kind);
        let placed: Vec<(f64, f64, &Mark)> =
            line.points.iter().filter_map(|p| Some((x.place(p.x)?, y.place(p.y)?, p))).collect();
        xs.extend(placed.iter().map(|p| p.0));
        ys.extend(placed.iter().flat_map(|p| drawn(y, p.2.y, p.2.interval)));
        for (_, _, p) in &placed {
            let (low, high) = p.interval.map_or((Value::Null, Value::Null), |(l, h)| (value(l), value(h)));
            data.rows.push(vec![
                line.name.clone().into(),
                line.kind.word().into(),
                value(p.x),
                value(p.y),
                low,
                high,
                p.weak.into(),
            ]);
        }
        let joined = line.shape == Shape::Joined && !is_stated(line.kind);
        let swatch = match line.shape {
            Shape::Band => style.ground(),
            _ => style.swatch(joined, line.kind != Kind::Rule),
        };
        legend.push((line.name.clone(), swatch));
        traces.push(match line.shape {
            Shape::Band => band(line, &style, y, &placed),
            _ => joined_or_not(line, &style, (x, y), &placed, joined),
        });
    }
    let layout = layout(x.across(xs.into_iter()), y.up(ys.into_iter()));
    Picture { traces, layout, legend, data, height: 450 }
}

/// A paper's numbers are marks: it says nothing of what lies between them.
fn is_stated(kind: Kind) -> bool {
    matches!(kind, Kind::Published | Kind::Below | Kind::Above)
}

fn joined_or_not(
    line: &Line,
    style: &Style,
    (x, y): (&Axis, &Axis),
    placed: &[(f64, f64, &Mark)],
    joined: bool,
) -> Value {
    let texts = placed.iter().map(|(_, _, p)| {
        let weak = if p.weak { FEW } else { "" };
        let sign = sign(line.kind);
        let (x, y) = (x.words(p.x), words(y, p.y, p.interval));
        format!("<b>{}</b><br>{sign}{} at {}{weak}", plain(&line.name), plain(&y), plain(&x))
    });
    let mode = match (line.kind, joined) {
        (Kind::Rule, _) => "lines",
        (_, true) => "lines+markers",
        (_, false) => "markers",
    };
    let mut trace = json!({
        "type": "scatter",
        "mode": mode,
        "name": plain(&line.name),
        "x": placed.iter().map(|p| p.0).collect::<Vec<_>>(),
        "y": placed.iter().map(|p| p.1).collect::<Vec<_>>(),
        "customdata": texts.collect::<Vec<_>>(),
        "hovertemplate": "%{customdata}<extra></extra>",
        "line": { "color": style.colour, "dash": style.dash, "width": 2 },
        "marker": marker(style, line.kind, placed.iter().map(|p| p.2.weak)),
    });
    let (up, down, any) = arms(y, placed.iter().map(|p| (p.2.y, p.2.interval)));
    if any {
        trace["error_y"] = json!({ "type": "data", "array": up, "arrayminus": down, "symmetric": false,
            "thickness": 1.2, "width": 4, "color": style.colour });
    }
    trace
}

/// What stands before a bound.
fn sign(kind: Kind) -> &'static str {
    match kind {
        Kind::Below => "less than ",
        Kind::Above => "more than ",
        _ => "",
    }
}

/// Where there is something of a value on an axis: itself, and the ends of its interval.
fn drawn(axis: &Axis, value: f64, interval: Interval) -> impl Iterator<Item = f64> {
    let (low, high) = interval.unwrap_or((value, value));
    [value, low, high].into_iter().filter_map(|end| axis.place(end))
}

/// A band is its outline, filled.
fn band(line: &Line, style: &Style, y: &Axis, placed: &[(f64, f64, &Mark)]) -> Value {
    let ends = |p: &Mark| p.interval.unwrap_or((p.y, p.y));
    let there = placed.iter().map(|p| (p.0, y.place(ends(p.2).1).unwrap_or(p.1)));
    let back = placed.iter().rev().map(|p| (p.0, y.place(ends(p.2).0).unwrap_or(p.1)));
    let (xs, ys): (Vec<f64>, Vec<f64>) = there.chain(back).unzip();
    json!({
        "type": "scatter", "mode": "lines", "fill": "toself", "hoverinfo": "skip", "opacity": 0.35,
        "name": plain(&line.name), "x": xs, "y": ys, "line": { "color": style.colour, "width": 1 },
    })
}

/// The axis of rows' names, the first at the top.
fn rows(names: &[&str]) -> Value {
    json!({
        "type": "linear",
        "tickvals": (0..names.len()).collect::<Vec<_>>(),
        "ticktext": names.iter().map(|name| wrapped(name, 18)).collect::<Vec<_>>(),
        "range": [names.len() as f64 - 0.5, -0.5],
        "automargin": true,
        "showgrid": false,
        "zeroline": false,
        "fixedrange": true,
    })
}

/// Every second row has a ground of its own.
fn stripes(count: usize) -> Value {
    let stripe = |row: usize| {
        json!({ "type": "rect", "layer": "below", "xref": "paper", "x0": 0, "x1": 1, "yref": "y",
            "y0": row as f64 - 0.5, "y1": row as f64 + 0.5, "line": { "width": 0 },
            "fillcolor": "rgba(128,128,128,0.09)" })
    };
    (0..count).step_by(2).map(stripe).collect()
}

/// How many lines the tallest of the names takes.
fn tallest(names: &[&str]) -> usize {
    names.iter().map(|name| wrapped(name, 18).matches("<br>").count() + 1).max().unwrap_or(1)
}

/// Bars that lie, the parts of each one behind the other.
pub(super) fn stacked(x: &Axis, parts: &[Part], bars: &[Bar]) -> Picture {
    let mut data = Data::new(&["row", "part", "kind", x.whole_title()]);
    let (mut traces, mut legend) = (Vec::new(), Vec::new());
    for ((p, part), group) in parts.iter().enumerate().zip(groups(parts.iter().map(|p| &*p.group))) {
        let style = Style::of(group, Kind::Measured);
        let of = |bar: &Bar| bar.parts.get(p).copied().filter(|v| v.is_finite());
        let there: Vec<(usize, &Bar, f64)> =
            bars.iter().enumerate().filter_map(|(row, bar)| Some((row, bar, of(bar)?))).collect();
        for (_, bar, v) in &there {
            data.rows.push(vec![
                bar.name.clone().into(),
                part.name.clone().into(),
                bar.kind.word().into(),
                value(*v),
            ]);
        }
        let text = |(_, bar, v): &(usize, &Bar, f64)| {
            let (bar, part) = (plain(&bar.name), plain(&part.name));
            format!("<b>{bar}</b><br>{part}: {}", plain(&x.words(*v)))
        };
        legend.push((
            part.name.clone(),
            Style { symbol: "square".into(), ..style.clone() }.swatch(false, true),
        ));
        traces.push(json!({
            "type": "bar",
            "orientation": "h",
            "name": plain(&part.name),
            "x": there.iter().map(|t| x.place(t.2)).collect::<Vec<_>>(),
            "y": there.iter().map(|t| t.0).collect::<Vec<_>>(),
            "customdata": there.iter().map(text).collect::<Vec<_>>(),
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": { "color": style.colour },
        }));
    }
    let names: Vec<&str> = bars.iter().map(|b| &*b.name).collect();
    let total = |bar: &Bar| x.place(bar.parts.iter().filter(|v| v.is_finite()).sum());
    let mut layout = layout(x.across(bars.iter().filter_map(total)), rows(&names));
    layout["barmode"] = "stack".into();
    layout["bargap"] = json!(0.3);
    let height = bars.len() * (16 + 17 * tallest(&names)).max(38) + 100;
    Picture { traces, layout, legend, data, height }
}

/// Rows of marks, one for each part, with their intervals.
pub(super) fn dots(x: &Axis, parts: &[Part], bars: &[Bar]) -> Picture {
    let mut data = Data::new(&["row", "series", "kind", x.whole_title(), "low", "high"]);
    let (mut traces, mut legend, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let apart = (0.8 / parts.len().max(1) as f64).min(0.2);
    for ((p, part), group) in parts.iter().enumerate().zip(groups(parts.iter().map(|p| &*p.group))) {
        let style = Style::of(group, part.kind);
        let offset = (p as f64 - (parts.len() as f64 - 1.0) / 2.0) * apart;
        let interval = |bar: &Bar| bar.intervals.get(p).copied().flatten();
        let there: Vec<(f64, &Bar, f64, Interval, f64)> = bars
            .iter()
            .enumerate()
            .filter_map(|(row, bar)| {
                let v = *bar.parts.get(p)?;
                Some((row as f64 + offset, bar, v, interval(bar), x.place(v)?))
            })
            .collect();
        all.extend(there.iter().flat_map(|t| drawn(x, t.2, t.3)));
        for (_, bar, v, interval, _) in &there {
            let (low, high) = interval.map_or((Value::Null, Value::Null), |(l, h)| (value(l), value(h)));
            let (bar, part_name) = (bar.name.clone().into(), part.name.clone().into());
            data.rows.push(vec![bar, part_name, part.kind.word().into(), value(*v), low, high]);
        }
        let texts = there.iter().map(|(_, bar, v, interval, _)| {
            let (row, name) = (plain(&bar.name), plain(&part.name));
            let few = if bar.weak.get(p) == Some(&true) { FEW } else { "" };
            format!("<b>{row}</b><br>{name}: {}{}{few}", sign(part.kind), plain(&words(x, *v, *interval)))
        });
        let mut trace = json!({
            "type": "scatter",
            "mode": "markers",
            "name": plain(&part.name),
            "x": there.iter().map(|t| t.4).collect::<Vec<_>>(),
            "y": there.iter().map(|t| t.0).collect::<Vec<_>>(),
            "customdata": texts.collect::<Vec<_>>(),
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": marker(&style, part.kind, there.iter().map(|t| t.1.weak.get(p) == Some(&true))),
        });
        trace["marker"]["size"] = json!(11);
        let (up, down, any) = arms(x, there.iter().map(|t| (t.2, t.3)));
        if any {
            trace["error_x"] = json!({ "type": "data", "array": up, "arrayminus": down, "symmetric": false,
                "thickness": 1.4, "width": 4, "color": style.colour });
        }
        legend.push((part.name.clone(), style.swatch(false, true)));
        traces.push(trace);
    }
    let names: Vec<&str> = bars.iter().map(|b| &*b.name).collect();
    let mut layout = layout(x.across(all.into_iter()), rows(&names));
    layout["shapes"] = stripes(bars.len());
    let height = bars.len() * (14 + 17 * tallest(&names)).max(9 * parts.len() + 14) + 100;
    Picture { traces, layout, legend, data, height }
}

/// The parts of stacked bars side by side on an axis of powers of ten, where one of them is too small to be
/// seen in its bar.
pub(super) fn small_parts(x: &Axis, parts: &[Part], bars: &[Bar]) -> Option<Picture> {
    const SEEN: f64 = 0.02;
    let total = |bar: &Bar| bar.parts.iter().filter(|v| v.is_finite()).sum::<f64>();
    let widest = bars.iter().map(total).fold(0.0, f64::max);
    let small = |v: &f64| *v > 0.0 && *v < SEEN * widest;
    if parts.len() < 2 || !bars.iter().flat_map(|b| &b.parts).any(small) {
        return None;
    }
    let series: Vec<Part> = bars.iter().map(|b| Part::new(&*b.name, &*b.name, b.kind)).collect();
    let row = |(p, part): (usize, &Part)| {
        let of = |bar: &Bar| bar.parts.get(p).copied().unwrap_or(f64::NAN);
        Bar::new(&*part.name, bars.iter().map(of).collect())
    };
    let rows: Vec<Bar> = parts.iter().enumerate().map(row).collect();
    Some(dots(&x.as_log(), &series, &rows))
}
