//! The page of a record: for each study its claims, its pictures, its remarks and every number.

use nearside_instrument::report::{Bar, Line, Page};
use nearside_loadgen::record::number;

use crate::finding::{Chart, Claim, Drawn, Finding, Place, Published};
use crate::record::{Head, Record};
use crate::table::percent;

/// Makes it.
pub fn page(title: &str, record: &Record) -> String {
    let about = "For each table and figure: what the paper's text states, what the model says in simulated time, what this machine measured \
                 in real time. What the text does not state is left out; what was not measured is a dash.";
    let mut page = Page::new(title, about);
    for head in record.heads() {
        study(&mut page, record, head);
    }
    page.heading("Where it was measured");
    let e = &record.environment;
    let rows = [
        ("CPU", e.cpu.clone()),
        ("cores", e.cores.to_string()),
        ("memory", format!("{} MiB", e.memory_mib)),
        ("kernel", e.kernel.clone()),
        ("frequency governor", e.governor.clone()),
        ("hypervisor", e.hypervisor.clone()),
        ("date", e.date.clone()),
        ("commit", e.commit.clone()),
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(what, which)| vec![what.to_owned(), which]).collect();
    page.table("The machine", &["what", "which"], &rows);
    page.finish()
}

fn study(page: &mut Page, record: &Record, head: &Head) {
    page.heading(&format!("{}: {}", head.number, head.title));
    let size = if head.small { " A small run: seconds, with wide spreads." } else { "" };
    page.text(&format!("The paper's section {}.{size}", head.section));
    let rows: Vec<Vec<String>> = record.claims(&head.number).map(claim).collect();
    if !rows.is_empty() {
        page.table("What the paper claims", &["claim", "section", "model", "this machine"], &rows);
    }
    for claim in record.claims(&head.number).filter(|c| !c.because.is_empty()) {
        page.text(&format!("{}: {}", claim.text, claim.because));
    }
    for chart in record.charts(&head.number) {
        let drawn = |f: &&Finding| f.point.as_ref().is_some_and(|p| p.chart == chart.name);
        draw(page, chart, &record.findings(&head.number).filter(drawn).collect::<Vec<_>>());
    }
    for note in record.notes(&head.number) {
        page.text(note);
    }
    let rows: Vec<Vec<String>> = record.findings(&head.number).map(finding).collect();
    if !rows.is_empty() {
        let columns = [
            "what",
            "unit",
            "paper",
            "model",
            "this machine",
            "spread (runs)",
            "beside",
            "paper",
            "model",
            "machine",
        ];
        page.table(
            "Every value; the last three columns are ratios to what it stands beside",
            &columns,
            &rows,
        );
    }
}

fn claim(claim: &Claim) -> Vec<String> {
    // A line of a table is not broken: long statements are, by hand.
    vec![claim.text.clone(), claim.section.clone(), holds(claim.model).into(), holds(claim.machine).into()]
}

/// A verdict in words.
pub(crate) fn holds(verdict: Option<bool>) -> &'static str {
    match verdict {
        Some(true) => "holds",
        Some(false) => "does not hold",
        None => "–",
    }
}

fn finding(f: &Finding) -> Vec<String> {
    let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), number);
    let ratio = |value: Option<f64>| value.map_or("–".to_owned(), |r| format!("{r:.2}"));
    let spread = |v: [f64; 2]| {
        format!("{} to {} ({}){}", number(v[0]), number(v[1]), f.figure.runs, f.figure.resolved())
    };
    vec![
        f.figure.name.clone(),
        f.figure.unit.clone(),
        f.paper.as_ref().map_or("–".to_owned(), |p| format!("{} ({})", published(p), p.section)),
        or_dash(f.model) + &percent(f).map(|p| format!(" ({p})")).unwrap_or_default(),
        or_dash(f.measured()),
        f.measured().map_or("–".to_owned(), |_| spread(f.figure.spread)),
        f.figure.beside.clone().unwrap_or_default(),
        ratio(f.paper_ratio),
        ratio(f.model_ratio),
        ratio(f.figure.ratio),
    ]
}

/// A published value or range.
pub(crate) fn published(p: &Published) -> String {
    p.to.map_or(number(p.value), |to| format!("{} to {}", number(p.value), number(to)))
}

/// Whose value.
#[derive(Clone, Copy)]
enum Source {
    Paper,
    Model,
    Machine,
}

const SOURCES: [(Source, &str); 3] =
    [(Source::Paper, "paper"), (Source::Model, "model"), (Source::Machine, "this machine")];

fn value(f: &Finding, source: Source) -> Option<f64> {
    match source {
        Source::Paper => f.paper.as_ref().map(|p| p.value),
        Source::Model => f.model,
        Source::Machine => f.measured(),
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

fn draw(page: &mut Page, chart: &Chart, findings: &[&Finding]) {
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
                    let values: Vec<(f64, f64)> = of_line
                        .filter_map(|(f, p)| match p.at {
                            Place::Number(x) => {
                                let own = p.machine_at.filter(|_| matches!(source, Source::Machine));
                                Some((own.unwrap_or(x), value(f, source)?))
                            }
                            Place::Name(_) => None,
                        })
                        .collect();
                    if !values.is_empty() {
                        let line = Line::new(format!("{name}, {word}"), values);
                        lines.push(if matches!(source, Source::Paper) { line.dashed() } else { line });
                    }
                }
            }
            page.lines(&chart.caption, &x.axis(), &y.axis(), &lines);
        }
        Drawn::Stacked { y } => {
            for (source, word) in SOURCES {
                let bars: Vec<Bar> = places
                    .iter()
                    .filter(|place| names.iter().any(|name| at(name, place, source).is_some()))
                    // A paper that does not state all parts states no bar.
                    // Of what was measured, a part that is missing is none.
                    .filter(|place| {
                        !matches!(source, Source::Paper)
                            || names.iter().all(|name| at(name, place, source).is_some())
                    })
                    .map(|place| {
                        let parts = names.iter().map(|name| at(name, place, source).unwrap_or(0.0));
                        Bar::new(label(place), parts.collect())
                    })
                    .collect();
                if !bars.is_empty() {
                    page.stacked_bars(&format!("{}: {word}", chart.caption), y, &names, &bars);
                }
            }
        }
        Drawn::Sides { y } => {
            let mut parts = Vec::new();
            for name in &names {
                for (source, word) in SOURCES {
                    if places.iter().any(|place| at(name, place, source).is_some()) {
                        let both = if names.len() > 1 { format!("{name}, {word}") } else { word.to_owned() };
                        parts.push((both, *name, source));
                    }
                }
            }
            let bars: Vec<Bar> = places
                .iter()
                .map(|place| {
                    let values = parts.iter().map(|(_, name, source)| at(name, place, *source));
                    Bar::new(label(place), values.map(|v| v.unwrap_or(f64::NAN)).collect())
                })
                .collect();
            let words: Vec<&str> = parts.iter().map(|(word, _, _)| &**word).collect();
            page.grouped_bars(&chart.caption, &y.axis(), &words, &bars);
        }
    }
}

fn label(place: &Place) -> String {
    match place {
        Place::Number(x) => number(*x),
        Place::Name(name) => name.clone(),
    }
}
