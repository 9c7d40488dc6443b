//! The page of a record of figures: each beside what it was measured beside, their ratio and its spread.

use nearside_instrument::report::{Axis, Bar, Cell, Interval, Page, Part};
use nearside_loadgen::record::{Figure, Record, number};

use crate::targets;

/// Makes it.
pub fn page(record: &Record) -> String {
    let about = "Each figure is the median of its runs; its spread goes from the least run to the greatest. A ratio is the figure over what \
                 was measured beside it in the same run: the bare machine, or a peer.";
    let mut page = Page::new("Nearside: the figures", about);
    page.measured(&record.environment, &[]);
    let beside: Vec<&Figure> = record.figures.iter().filter(|f| f.ratio.is_some()).collect();
    if !beside.is_empty() {
        let rows: Vec<Vec<Cell>> = beside.iter().map(|f| row(record, f)).collect();
        let head = ["figure", "value", "beside", "its value", "ratio", "must reach", "spread", "runs"];
        page.heading("Beside the bare machine, and beside peers");
        page.table("Each figure and what it stands beside", &head, &rows);
        let bars: Vec<Bar> = beside.iter().filter_map(|f| Some(bar(f, f.ratio?))).collect();
        let caption = "Each figure over what it stands beside; at 1 they are equal";
        page.dots(caption, &Axis::log("ratio"), &[Part::from("ratio")], &bars);
    }
    let alone: Vec<Vec<String>> = record.figures.iter().filter(|f| f.ratio.is_none()).map(single).collect();
    if !alone.is_empty() {
        page.heading("Figures by themselves");
        page.table(
            "What the machine takes, and what has no peer",
            &["figure", "value", "spread", "runs"],
            &alone,
        );
    }
    page.finish()
}

fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value))
}

fn spread(f: &Figure) -> String {
    format!("{} to {} {}{}", number(f.spread[0]), number(f.spread[1]), f.unit, f.resolved())
}

fn row(record: &Record, f: &Figure) -> Vec<Cell> {
    let beside = f.beside.clone().unwrap_or_default();
    let ratio = f.ratio.unwrap_or(f64::NAN);
    // What it stands beside need not be a figure of its own.
    let other = record.get(&beside).map_or(f.value / ratio, |other| other.value);
    let target = targets::of(f);
    let missed = target.is_some_and(|(_, met)| !met);
    let bound = target.map_or("–".to_owned(), |(bound, _)| bound.to_string());
    vec![
        f.name.clone().into(),
        with_unit(f.value, &f.unit).into(),
        beside.into(),
        with_unit(other, &f.unit).into(),
        format!("{ratio:.2}").into(),
        if missed { Cell::miss(bound) } else { bound.into() },
        spread(f).into(),
        f.runs.to_string().into(),
    ]
}

fn single(f: &Figure) -> Vec<String> {
    vec![f.name.clone(), with_unit(f.value, &f.unit), spread(f), f.runs.to_string()]
}

/// The ratio, with the figure's own spread.
fn bar(f: &Figure, ratio: f64) -> Bar {
    let over = |value: f64| value * ratio / f.value;
    let interval: Interval = (f.value != 0.0 && f.spread[0] < f.spread[1]).then(|| {
        let [low, high] = f.spread.map(over);
        (low, high)
    });
    Bar::new(&*f.name, vec![ratio]).intervals(vec![interval])
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside_loadgen::record::Environment;

    #[test]
    fn each_figure_stands_beside_its_reference() {
        let mut record = Record::new(Environment { cpu: "a CPU".into(), ..Environment::default() });
        let bare = record.add(Figure::of("bare ring, one thread", "ns", &[100.0]));
        let peer = Figure::of("a peer", "ns", &[50.0]);
        record.add(Figure::of("drive <QD1>", "ns", &[130.0, 120.0, 125.0]).beside(&bare));
        record.add(Figure::of("other", "ns", &[25.0]).beside(&peer));
        let html = page(&record);
        let row = "<td>drive &lt;QD1&gt;</td><td class=n>125 ns</td><td>bare ring, one thread</td><td class=n>100 ns</td>\
                   <td class=n>1.25</td><td>–</td><td class=n>120 to 130 ns</td>";
        assert!(html.contains(row), "{html}");
        assert!(html.contains("<td>a peer</td><td class=n>50.0 ns</td><td class=n>0.50</td>"));
        assert!(
            html.contains(
                "<td>bare ring, one thread</td><td class=n>100 ns</td><td class=n>100 to 100 ns</td>"
            )
        );
        // A rate that is too small beside its peer is red.
        let rate = |value: f64| {
            let mut record = Record::default();
            record.add(Figure::of("read 512 QD32", "M/s", &[value]).beside(&Figure::of(
                "ring",
                "M/s",
                &[8.0],
            )));
            page(&record)
        };
        assert!(rate(1.0).contains("<td class=miss>at least 0.50</td>"), "{}", rate(1.0));
        assert!(rate(7.0).contains("<td>at least 0.50</td>"));
        assert!(html.contains("drive%20%3CQD1%3E,ratio,measured,1.25,1.2,1.3"), "{html}");
        assert!(html.find("a CPU") < html.find("drive &lt;"));
        assert!(!page(&Record::default()).contains("<table><caption>"));
    }
}
