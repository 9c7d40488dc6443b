//! The page of a record: for each study its claims, its pictures, its remarks and every number.

use std::collections::BTreeMap;

use nearside_instrument::report::{Bar, Cell, Interval, Kind as Series, Line, Page, Part};
use nearside_loadgen::record::number;

use crate::claim::{Claim, Column, Figures, Quantity};
use crate::finding::{Chart, Drawn, Finding, Place, Published, Reckoned, Says};
use crate::record::{Head, Record};
use crate::source::{Kind, Parameter, Table, kind};
use crate::table::percent;

/// Makes it.
pub fn page(title: &str, record: &Record) -> String {
    let about = "For each table and figure: what the paper's text states (diamonds; triangles are bounds), what the model says in simulated \
                 time (dashed, open marks), what this machine measured in real time (solid). What the text does not state is left out; what \
                 was not measured is a dash.";
    let mut page = Page::new(title, about);
    page.measured(&record.environment, &[("how", size(record).to_owned())]);
    claims(&mut page, record);
    for head in record.heads() {
        study(&mut page, record, head);
    }
    deviations(&mut page, record);
    page.finish()
}

fn size(record: &Record) -> &'static str {
    match record.heads().any(|head| head.small) {
        true => "small runs: seconds, with wide spreads",
        false => "whole runs",
    }
}

/// Every claim of every study, a row each: what is missed is seen first.
fn claims(page: &mut Page, record: &Record) {
    let of_study = |head: &Head| {
        let figures = record.figures(&head.number);
        let row = |c| claim(record, head, &figures, c);
        record.claims(&head.number).map(row).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<Cell>> = record.heads().flat_map(of_study).collect();
    if rows.is_empty() {
        return;
    }
    page.heading("What the paper claims");
    let all = || record.heads().flat_map(|head| record.claims(&head.number));
    for (column, who) in [(Column::Model, "The model"), (Column::Machine, "This machine")] {
        let verdicts: Vec<bool> = all().filter_map(|c| record.verdict(c, column)).collect();
        if !verdicts.is_empty() {
            let hold = verdicts.iter().filter(|holds| **holds).count();
            page.text(&format!("{who}: {hold} of {} claims hold.", verdicts.len()));
        }
    }
    let columns = ["claim", "section", "paper", "model", "the model's agreement is", "this machine"];
    page.table("Every claim, and whether it holds", &columns, &rows);
}

fn study(page: &mut Page, record: &Record, head: &Head) {
    page.heading(&format!("{}: {}", head.number, head.title));
    let size = if head.small { " A small run: seconds, with wide spreads." } else { "" };
    page.text(&format!("The paper's section {}.{size}", head.section));
    for chart in record.charts(&head.number) {
        let drawn = |f: &&Finding| f.point.as_ref().is_some_and(|p| p.chart == chart.name);
        draw(page, chart, &record.findings(&head.number).filter(drawn).collect::<Vec<_>>());
    }
    for note in record.notes(&head.number) {
        page.text(note);
    }
    values(page, record, head);
    parameters(page, record, head);
}

fn values(page: &mut Page, record: &Record, head: &Head) {
    let table = record.table();
    let rows: Vec<Vec<String>> = record.findings(&head.number).map(|f| finding(f, &table)).collect();
    if rows.is_empty() {
        return;
    }
    let columns = [
        "what",
        "unit",
        "paper",
        "by its other numbers",
        "model",
        "which is",
        "this machine",
        "spread (runs)",
        "beside",
        "paper",
        "model",
        "machine",
    ];
    page.table("Every value; the last three columns are ratios to what it stands beside", &columns, &rows);
}

/// What the study's model's values rest on.
fn parameters(page: &mut Page, record: &Record, head: &Head) {
    let table = record.table();
    let of_study = record.findings(&head.number).filter_map(|f| f.basis.as_ref());
    let used: Vec<String> = of_study.flat_map(|basis| basis.resolve(&table)).map(whole_name).collect();
    let row = |p: &Parameter| {
        let from = if p.cells.is_empty() { String::new() } else { format!(": {}", p.cells.join("; ")) };
        vec![whole_name(p), p.value.to_string(), format!("{}{from}", p.source.name()), p.how.clone()]
    };
    let rows: Vec<Vec<String>> =
        record.parameters().filter(|p| used.contains(&whole_name(p))).map(row).collect();
    if !rows.is_empty() {
        page.table(
            "The model's numbers, and where each comes from",
            &["parameter", "value", "source", "how"],
            &rows,
        );
    }
}

fn whole_name(p: &Parameter) -> String {
    format!("{}.{}", p.model, p.name)
}

/// How far the model is from the paper's numbers, by what its agreement is worth: what went in beside what
/// came out.
fn deviations(page: &mut Page, record: &Record) {
    let table = record.table();
    // A number that several studies have is one number.
    let mut by_kind: BTreeMap<Kind, BTreeMap<&str, f64>> = BTreeMap::new();
    for f in record.heads().flat_map(|head| record.findings(&head.number)) {
        let number = f.paper.as_ref().filter(|p| p.is_number() && p.value != 0.0);
        if let (Some(paper), Some(model), Some(kind)) = (number, f.model, kind(f, &table)) {
            let off = by_kind.entry(kind).or_default().entry(&paper.cell).or_default();
            *off = off.max((model / paper.value - 1.0).abs() * 100.0);
        }
    }
    let row = |(kind, off): (&Kind, &BTreeMap<&str, f64>)| {
        let most = off.values().copied().fold(0.0, f64::max);
        let mean = off.values().sum::<f64>() / off.len() as f64;
        vec![kind.name().to_owned(), off.len().to_string(), format!("{mean:.1} %"), format!("{most:.1} %")]
    };
    let rows: Vec<Vec<String>> = by_kind.iter().map(row).collect();
    if !rows.is_empty() {
        page.heading("How far the model is from the paper's numbers");
        let columns = ["the model's value is", "numbers", "off in the mean", "at most"];
        page.table("By what the agreement is worth; bounds and ranges are not in it", &columns, &rows);
    }
}

fn claim(record: &Record, head: &Head, figures: &Figures<'_>, claim: &Claim) -> Vec<Cell> {
    let verdict = |column| {
        let verdict = claim.verdict(figures, column);
        let replayed = column == Column::Machine && claim.in_models_time && verdict.is_some();
        let text = holds(verdict).to_owned() + if replayed { ", in the model's time" } else { "" };
        let cell = if verdict == Some(false) { Cell::miss(text) } else { Cell::from(text) };
        cell.note(claim.decided_in(figures, column))
    };
    vec![
        Cell::from(claim.text.clone()).note(claim.because.clone()),
        Cell::from(claim.section.clone()).note(head.number.clone()),
        stated(figures, claim).into(),
        verdict(Column::Model),
        record.kind(claim).map_or("–", Kind::name).into(),
        verdict(Column::Machine),
    ]
}

/// What the paper states of the figures that decide a claim.
fn stated(figures: &Figures<'_>, claim: &Claim) -> String {
    let of = |quantity: &Quantity| match quantity {
        Quantity::Value(name) => {
            let finding = figures.get(&**name)?;
            Some(format!("{} {}", published(finding.paper.as_ref()?), finding.figure.unit).trim().to_owned())
        }
        _ => paper_value(figures, quantity).map(|value| format!("computed: {}", number(value))),
    };
    let all = distinct(claim.checks.iter().filter_map(|check| of(&check.of)));
    if all.is_empty() { "–".to_owned() } else { all.join("; ") }
}

/// By the paper's own numbers.
fn paper_value(figures: &Figures<'_>, quantity: &Quantity) -> Option<f64> {
    let of = |quantity: &Quantity| paper_value(figures, quantity);
    match quantity {
        Quantity::Value(name) => {
            figures.get(&**name)?.paper.as_ref().filter(|p| p.is_number()).map(|p| p.value)
        }
        Quantity::Over(both) => Some(of(&both[0])? / of(&both[1]).filter(|v| *v != 0.0)?),
        Quantity::Less(both) => Some(of(&both[0])? - of(&both[1])?),
    }
}

/// A verdict in words.
pub(crate) fn holds(verdict: Option<bool>) -> &'static str {
    match verdict {
        Some(true) => "holds",
        Some(false) => "does not hold",
        None => "–",
    }
}

fn finding(f: &Finding, table: &Table<'_>) -> Vec<String> {
    let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), number);
    let ratio = |value: Option<f64>| value.map_or("–".to_owned(), |r| format!("{r:.2}"));
    let spread = |v: [f64; 2]| {
        format!("{} to {} ({}){}", number(v[0]), number(v[1]), f.figure.runs, f.figure.resolved())
    };
    vec![
        f.figure.name.clone(),
        f.figure.unit.clone(),
        f.paper.as_ref().map_or("–".to_owned(), |p| format!("{} ({})", published(p), p.section)),
        f.reckoned.as_ref().map_or("–".to_owned(), reckoned),
        or_dash(f.model) + &percent(f).map(|p| format!(" ({p})")).unwrap_or_default(),
        kind(f, table).map_or("–", Kind::name).to_owned(),
        or_dash(f.measured()),
        f.measured().map_or("–".to_owned(), |_| spread(f.figure.spread)),
        f.figure.beside.clone().unwrap_or_default(),
        ratio(f.paper_ratio),
        ratio(f.model_ratio),
        ratio(f.figure.ratio),
    ]
}

/// What the paper says: a number, a range or a bound.
pub(crate) fn published(p: &Published) -> String {
    let value = p.to.map_or(number(p.value), |to| format!("{} to {}", number(p.value), number(to)));
    format!("{}{value}", sign(p.says))
}

fn reckoned(r: &Reckoned) -> String {
    format!("{}{} ({})", sign(r.says), number(r.value), r.cells.join("; "))
}

fn sign(says: Says) -> &'static str {
    match says {
        Says::Equal => "",
        Says::About => "about ",
        Says::Below => "< ",
        Says::Above => "> ",
    }
}

/// Whose value, and how it is drawn.
const SOURCES: [(Series, &str); 5] = [
    (Series::Published, "paper"),
    (Series::Below, "paper: less than"),
    (Series::Above, "paper: more than"),
    (Series::Modelled, "model"),
    (Series::Measured, "this machine"),
];

/// A value, and from where to where it lies: a stated range, or a measurement's spread.
fn value(f: &Finding, source: Series) -> Option<(f64, Interval)> {
    let paper = |says: fn(Says) -> bool| f.paper.as_ref().filter(|p| says(p.says));
    match source {
        Series::Published => paper(|says| !says.is_bound()).map(|p| match p.to {
            Some(to) => (f64::midpoint(p.value, to), Some((p.value, to))),
            None => (p.value, None),
        }),
        Series::Below => paper(|says| says == Says::Below).map(|p| (p.value, None)),
        Series::Above => paper(|says| says == Says::Above).map(|p| (p.value, None)),
        Series::Modelled => f.model.map(|v| (v, None)),
        Series::Measured => {
            f.measured().map(|v| (v, Some(f.figure.spread).filter(|s| s[0] < s[1]).map(|s| (s[0], s[1]))))
        }
        Series::Rule => None,
    }
}

/// The values in the order in which they first come.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut seen, value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
        seen
    })
}

/// A picture's caption, with what the paper's text bounds in it.
fn caption(chart: &Chart, findings: &[&Finding]) -> String {
    let bounds: Vec<String> = findings
        .iter()
        .filter_map(|f| Some((f, f.paper.as_ref().filter(|p| !p.is_number())?)))
        .map(|(f, p)| format!("{} {}", f.figure.name, published(p)))
        .collect();
    match bounds.is_empty() {
        true => chart.caption.clone(),
        false => format!("{}. The paper's text: {}", chart.caption, bounds.join("; ")),
    }
}

fn draw(page: &mut Page, chart: &Chart, findings: &[&Finding]) {
    let caption = caption(chart, findings);
    let points = || findings.iter().filter_map(|f| Some((*f, f.point.as_ref()?)));
    let names = distinct(points().map(|(_, p)| &*p.line));
    let places = distinct(points().map(|(_, p)| &p.at));
    let at = |line: &str, place: &Place, source| {
        points().find(|(_, p)| p.line == line && p.at == *place).and_then(|(f, _)| value(f, source))
    };
    match &chart.drawn {
        Drawn::Lines { x, y } => {
            let mut lines = Vec::new();
            for name in names {
                for (source, word) in SOURCES {
                    let of_line = points().filter(|(_, p)| p.line == name);
                    let values: Vec<(f64, (f64, Interval))> = of_line
                        .filter_map(|(f, p)| match p.at {
                            Place::Number(x) => {
                                let own = p.machine_at.filter(|_| source == Series::Measured);
                                Some((own.unwrap_or(x), value(f, source)?))
                            }
                            Place::Name(_) => None,
                        })
                        .collect();
                    if !values.is_empty() {
                        let places = values.iter().map(|(x, (y, _))| (*x, *y)).collect();
                        let intervals = values.iter().map(|(_, (_, interval))| *interval).collect();
                        let line = Line::new(format!("{name}, {word}"), places).intervals(intervals);
                        lines.push(line.of(name).kind(source));
                    }
                }
            }
            page.lines(&caption, &x.axis(), &y.axis(), &lines);
        }
        Drawn::Stacked { y } => {
            let bars: Vec<Bar> = places
                .iter()
                .flat_map(|place| SOURCES.map(|(source, word)| (place, source, word)))
                .filter_map(|(place, source, word)| {
                    let parts: Vec<Option<f64>> =
                        names.iter().map(|name| at(name, place, source).map(|v| v.0)).collect();
                    // A paper that does not state all parts states no bar.
                    // Of what was measured, a part that is missing is none.
                    let whole = parts.iter().all(Option::is_some);
                    let some = matches!(source, Series::Modelled | Series::Measured)
                        && parts.iter().any(Option::is_some);
                    let parts = parts.into_iter().map(|v| v.unwrap_or(0.0)).collect();
                    (whole || some).then(|| Bar::new(format!("{}: {word}", label(place)), parts).kind(source))
                })
                .collect();
            let parts: Vec<Part> = names.iter().map(|name| Part::from(*name)).collect();
            page.stacked(&caption, y, &parts, &bars);
        }
        Drawn::Sides { y } => {
            let mut parts = Vec::new();
            for name in &names {
                for (source, word) in SOURCES {
                    if places.iter().any(|place| at(name, place, source).is_some()) {
                        let (both, group) = match names.len() {
                            1 => (word.to_owned(), word),
                            _ => (format!("{name}, {word}"), *name),
                        };
                        parts.push((Part::new(both, group, source), *name, source));
                    }
                }
            }
            let bars: Vec<Bar> = places
                .iter()
                .map(|place| {
                    let values = parts.iter().map(|(_, name, source)| at(name, place, *source));
                    let (values, intervals) = values.map(|v| v.unwrap_or((f64::NAN, None))).unzip();
                    Bar::new(label(place), values).intervals(intervals)
                })
                .collect();
            let parts: Vec<Part> = parts.into_iter().map(|(part, _, _)| part).collect();
            page.dots(&caption, &y.axis(), &parts, &bars);
        }
    }
}

fn label(place: &Place) -> String {
    match place {
        Place::Number(x) => number(*x),
        Place::Name(name) => name.clone(),
    }
}
