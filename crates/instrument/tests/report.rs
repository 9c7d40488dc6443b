//! A page with every kind of picture, as Chromium shows it.

use nearside_conformance::browser::{Shown, shows};
use nearside_instrument::report::{Axis, Bar, Cell, Kind, Line, Page, Part};

fn page() -> String {
    let mut page = Page::new("Every kind of picture", "With names and numbers as long as they come.");
    page.heading("Curves");
    let curve =
        |scale: f64| (1..=12).map(|i| (f64::from(i) * 5e4, scale * 1.5f64.powi(i))).collect::<Vec<_>>();
    let lines = [
        Line::new("3D XPoint, 99.999th percentile", curve(9.0)).weak(vec![0, 3, 11]),
        Line::new("NAND, average", curve(90.0)),
        Line::new("the model", curve(60.0)).of("NAND").kind(Kind::Modelled),
        Line::new("the paper", vec![(2e5, 400.0)]).of("NAND").kind(Kind::Published),
        Line::new("less than", vec![(3e5, 4000.0)]).of("NAND").kind(Kind::Below),
        Line::new("the rule", vec![(0.0, 1000.0), (6e5, 1000.0)]).kind(Kind::Rule),
    ];
    page.lines(
        "Response time against load",
        &Axis::linear("I/Os per second"),
        &Axis::log("response time, µs"),
        &lines,
    );
    let spectrum = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999].map(|p| (p, 10.0 + p)).to_vec();
    page.lines("Spectrum", &Axis::nines(), &Axis::log("response time, µs"), &[Line::new("one", spectrum)]);
    let band = (1..=12).map(|i| (f64::from(i), 10.0, 1e4 * f64::from(i))).collect();
    let lines = [
        Line::band("median to p99", band).of("median"),
        Line::new("one", (1..=12).map(|i| (f64::from(i), 1e4)).collect()),
    ];
    page.lines("Linear", &Axis::linear("time, s"), &Axis::linear("µs"), &lines);
    let many: Vec<Line> = (1..=20)
        .map(|i| Line::new(format!("series {i}"), vec![(1.0, f64::from(i)), (2.0, f64::from(i * i))]))
        .collect();
    page.lines("Many", &Axis::linear("x"), &Axis::log("y"), &many);
    page.heading("Bars");
    let bars = ["512 B, sync", "512 B, async", "4096 B, sync", "4096 B, async"]
        .map(|n| Bar::new(n, vec![1.0, 20.0, 300.0]));
    page.stacked("Stacked", "µs", &["software", "copy", "spinning"].map(Part::from), &bars);
    let small = [Bar::new("a row whose name is long enough for three lines", vec![0.1, 90.0])];
    page.stacked("Small beside large", "µs", &["a layer".into(), "another".into()], &small);
    let bars = bars.map(|bar| bar.intervals(vec![None, Some((15.0, 30.0)), Some((200.0, 900.0))]));
    page.dots("Side by side", &Axis::log("µs"), &["average", "p99", "p99.999"].map(Part::from), &bars);
    let row = (0..14)
        .map(|i| if i % 3 == 0 { Cell::faint(format!("{i}.123")) } else { Cell::from(format!("cell {i}")) });
    let row: Vec<Cell> = row.collect();
    page.table("A wide table", &["column"; 14], &[row.clone(), row]);
    let claim = |n: u32, verdict: Cell| {
        vec![
            Cell::from(format!("{n}: a sentence that a narrow window cannot hold in one line")),
            "3.4".into(),
            verdict,
        ]
    };
    let rows =
        [claim(2, Cell::from("holds").note("4.4 us (below 5)")), claim(1, Cell::miss("does not hold"))];
    page.table("Claims", &["claim", "section", "this machine"], &rows);
    page.finish()
}

#[test]
fn a_browser_shows_every_kind_of_picture() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(keep) = std::env::var_os("NEARSIDE_KEEP_PAGE") {
        std::fs::write(keep, page()).unwrap();
    }
    if let Some(shown) = shows("instrument::a_browser_shows_every_kind_of_picture", &page(), folder.path()) {
        assert_eq!(shown, Shown { pictures: 9, tables: 2 });
    }
}

/// Times from 60 us on, up to so many times as much, on both axes, by so many series.
#[test]
fn labels_of_any_range_stand_apart() {
    let mut page = Page::new("Ranges", "Both axes in powers of ten.");
    for ratio in [1.5, 4.0, 9.0, 15.0, 19.5, 40.0, 99.0, 200.0, 299.0, 400.0] {
        for series in [1, 7] {
            let of = |nth: usize| {
                let to = 60.0 * ratio;
                Line::new(format!("series {nth}, 99.9th percentile"), vec![(60.0, to), (to, 60.0)])
            };
            let lines: Vec<Line> = (0..series).map(of).collect();
            let title = format!("{ratio} times, {series} series");
            page.lines(&title, &Axis::log("response time, µs"), &Axis::log("device time, µs"), &lines);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    shows("instrument::labels_of_any_range_stand_apart", &page.finish(), folder.path());
}

/// A page that is wrong in one way; the browser has to find it.
fn wrong(test: &str, body: &str) {
    let html = Page::new("A page", "with a fault").finish().replace("</main>", &format!("{body}</main>"));
    let folder = tempfile::tempdir().unwrap();
    if shows(test, &html, folder.path()).is_none() {
        // Where there is no browser these are left out: each says what it would have found.
        panic!("writes to its console; it loads http; is wider than its place; points of 1");
    }
}

#[test]
#[should_panic(expected = "writes to its console")]
fn a_page_that_complains_is_found() {
    wrong(
        "instrument::a_page_that_complains_is_found",
        "<script>console.error('writes to its console')</script>",
    );
}

#[test]
#[should_panic(expected = "it loads http")]
fn a_page_that_asks_the_network_is_found() {
    wrong(
        "instrument::a_page_that_asks_the_network_is_found",
        "<img src=\"http://127.0.0.1:9/x.png\" alt=x>",
    );
}

#[test]
#[should_panic(expected = "is wider than its place")]
fn a_table_that_is_cut_off_is_found() {
    let cell =
        "<p style=\"width:50px;white-space:nowrap;overflow:hidden\">a long sentence without a break</p>";
    wrong("instrument::a_table_that_is_cut_off_is_found", cell);
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
