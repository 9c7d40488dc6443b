//! A page with every kind of picture, as Chromium shows it.

use nearside_conformance::browser::{Shown, shows};
use nearside_instrument::report::{Axis, Bar, Cell, Line, Page};

fn page() -> String {
    let mut page = Page::new("Every kind of picture", "With names and numbers as long as they come.");
    page.heading("Curves");
    let curve =
        |scale: f64| (1..=12).map(|i| (f64::from(i) * 5e4, scale * 1.5f64.powi(i))).collect::<Vec<_>>();
    let lines = [
        Line::new("3D XPoint, 99.999th percentile", curve(9.0)).weak(vec![0, 3, 11]),
        Line::new("NAND, average", curve(90.0)),
        Line::new("the rule", vec![(0.0, 1000.0), (6e5, 1000.0)]).dashed(),
    ];
    page.lines(
        "Response time against load",
        &Axis::linear("I/Os per second"),
        &Axis::log("response time, µs"),
        &lines,
    );
    let spectrum = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999].map(|p| (p, 10.0 + p)).to_vec();
    page.lines("Spectrum", &Axis::nines(), &Axis::log("response time, µs"), &[Line::new("one", spectrum)]);
    page.lines("Linear", &Axis::linear("s"), &Axis::linear("µs"), &[Line::new("one", curve(1e4))]);
    page.heading("Bars");
    let bars = ["512 B, sync", "512 B, async", "4096 B, sync", "4096 B, async"]
        .map(|n| Bar::new(n, vec![1.0, 20.0, 300.0]));
    page.stacked_bars("Stacked", "µs", &["software", "copy", "spinning"], &bars);
    page.grouped_bars("Grouped", &Axis::log("µs"), &["average", "p99", "p99.999"], &bars);
    let row = (0..14)
        .map(|i| if i % 3 == 0 { Cell::faint(format!("{i}.123")) } else { Cell::from(format!("cell {i}")) });
    page.table("A wide table", &["column"; 14], &[row.collect()]);
    page.finish()
}

#[test]
fn a_browser_shows_every_kind_of_picture() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(keep) = std::env::var_os("NEARSIDE_KEEP_PAGE") {
        std::fs::write(keep, page()).unwrap();
    }
    if let Some(shown) = shows("instrument::a_browser_shows_every_kind_of_picture", &page(), folder.path()) {
        assert_eq!(shown, Shown { pictures: 5, tables: 1 });
    }
}

#[test]
#[should_panic(expected = "lie on top of each other")]
fn a_page_with_text_over_text_is_found() {
    let svg = "<svg width=400 height=300>".to_owned()
        + &["a", "b", "c", "d"].map(|t| format!("<text x=50 y=50>some words {t}</text>")).concat()
        + "</svg>";
    let html = format!("<!doctype html><html><body>{svg}</body></html>");
    let folder = tempfile::tempdir().unwrap();
    if shows("instrument::a_page_with_text_over_text_is_found", &html, folder.path()).is_none() {
        panic!("left out, so it may: lie on top of each other");
    }
}
