//! One self-contained HTML page: text, tables and pictures, with no outside file.
//!
//! A [`Page`] is written from top to bottom; [`Page::finish`] gives the whole: the title, where it was
//! measured, the numbers that say it shortly, the contents, then what was written. Pictures are drawn in the
//! reader's browser by plotly.js, which the `plotly` crate ships; words and tables need no script. Numbers
//! are already what the reader is to see: nothing is measured or computed here.

mod axis;
mod chart;
mod series;

use std::fmt::Write as _;
use std::sync::LazyLock;

use nearside_loadgen::record::Environment;
use serde_json::json;

pub use axis::Axis;
use chart::Picture;
pub use series::{Bar, Interval, Kind, Line, Part};

/// A page in the making.
pub struct Page {
    title: String,
    about: String,
    place: String,
    numbers: String,
    headings: Vec<String>,
    pictures: usize,
    body: String,
    script: String,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    note: String,
    faint: bool,
    miss: bool,
}

impl Cell {
    /// A value that rests on too little to be relied on: shown grey.
    pub fn faint(text: impl Into<String>) -> Cell {
        Cell { faint: true, ..Cell::from(text) }
    }

    /// What ought to be otherwise: shown red.
    pub fn miss(text: impl Into<String>) -> Cell {
        Cell { miss: true, ..Cell::from(text) }
    }

    /// With small print below.
    pub fn note(self, note: impl Into<String>) -> Cell {
        Cell { note: note.into(), ..self }
    }

    /// Set right; a sentence or a list may begin with a digit.
    fn is_number(&self) -> bool {
        let short = self.text.chars().count() <= 28 && !self.text.contains(';');
        short && self.text.starts_with(|c: char| c.is_ascii_digit())
    }

    fn html(&self, label: Option<&str>) -> String {
        let Cell { text, note, faint, miss } = self;
        let classes = [("n", self.is_number()), ("faint", *faint), ("miss", *miss)];
        let classes: Vec<&str> = classes.iter().filter(|(_, is)| *is).map(|(class, _)| *class).collect();
        let class = match &classes[..] {
            [] => String::new(),
            [one] => format!(" class={one}"),
            more => format!(" class=\"{}\"", more.join(" ")),
        };
        let label = label.map(|l| format!(" data-label=\"{}\"", escape(l))).unwrap_or_default();
        let note = if note.is_empty() { String::new() } else { format!("<small>{}</small>", escape(note)) };
        // In a card the label stands beside all that the cell holds.
        let (open, close) = if label.is_empty() { ("", "") } else { ("<div>", "</div>") };
        format!("<td{class}{label}>{open}{}{note}{close}</td>", escape(text))
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }
}

impl Page {
    /// An empty page.
    pub fn new(title: &str, about: &str) -> Page {
        Page {
            title: title.to_owned(),
            about: about.to_owned(),
            place: String::new(),
            numbers: String::new(),
            headings: Vec::new(),
            pictures: 0,
            body: String::new(),
            script: String::new(),
        }
    }

    /// Where and when it was measured, and how: one line below the title, and the rest on demand.
    pub fn measured(&mut self, environment: &Environment, settings: &[(&str, String)]) {
        let e = environment;
        let memory = format!("{:.1} GiB", e.memory_mib as f64 / 1024.0);
        let line = format!(
            "{}, {} cores, {memory} · Linux {} · {} · commit {}",
            e.cpu, e.cores, e.kernel, e.date, e.commit
        );
        let machine = [
            ("CPU", e.cpu.clone()),
            ("cores", e.cores.to_string()),
            ("memory", format!("{} MiB", e.memory_mib)),
            ("kernel", e.kernel.clone()),
            ("frequency governor", e.governor.clone()),
            ("hypervisor", e.hypervisor.clone()),
            ("date", e.date.clone()),
            ("commit", e.commit.clone()),
            ("compiler", e.rustc.clone()),
        ];
        self.place(&line, machine.iter().chain(settings));
    }

    /// That it was computed in simulated time, and how.
    pub fn simulated(&mut self, settings: &[(&str, String)]) {
        let line = "In simulated time: the same seed gives the same figures, byte for byte";
        self.place(line, settings.iter());
    }

    fn place<'a>(&mut self, line: &str, rows: impl Iterator<Item = &'a (&'a str, String)>) {
        let cell = |(what, which): &(&str, String)| {
            format!("<tr><th scope=row>{}</th><td>{}</td></tr>", escape(what), escape(which))
        };
        let rows: String = rows.filter(|row| !row.1.is_empty()).map(cell).collect();
        let table = match rows.is_empty() {
            true => rows,
            false => format!("<table class=settings><tbody>{rows}</tbody></table>"),
        };
        let line = escape(line);
        self.place = format!("<details class=place><summary>{line}</summary>{table}</details>");
    }

    /// What the page says, in large numbers and a sentence each.
    pub fn numbers(&mut self, numbers: &[(String, String)]) {
        let one = |(number, sentence): &(String, String)| {
            format!("<div><b>{}</b><p>{}</p></div>", escape(number), escape(sentence))
        };
        self.numbers = format!("<div class=numbers>{}</div>", numbers.iter().map(one).collect::<String>());
    }

    /// Markup and the script that fills it in, of the caller's own: they stand as they are.
    pub fn live(&mut self, markup: &str, script: &str) {
        self.body.push_str(markup);
        let _ = write!(self.script, "<script>{script}</script>");
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        self.headings.push(text.to_owned());
        let _ = write!(self.body, "<h2 id=part-{}>{}</h2>", self.headings.len(), escape(text));
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        let _ = write!(self.body, "<p>{}</p>", escape(text));
    }

    /// A table; numbers are set right. Where a cell is a sentence, a narrow window shows a card for each row;
    /// other tables scroll below their first column.
    pub fn table<C: Clone + Into<Cell>>(&mut self, caption: &str, head: &[&str], rows: &[Vec<C>]) {
        const SENTENCE: usize = 30;
        let rows: Vec<Vec<Cell>> =
            rows.iter().map(|row| row.iter().map(|cell| cell.clone().into()).collect()).collect();
        let long = |cell: &Cell| cell.text.chars().count() > SENTENCE || !cell.note.is_empty();
        let cards = rows.iter().flatten().any(long);
        let class = if cards { " class=cards" } else { "" };
        let caption = escape(caption);
        let _ = write!(
            self.body,
            "<div class=wide tabindex=0><table{class}><caption>{caption}</caption><thead><tr>"
        );
        for (i, cell) in head.iter().enumerate() {
            // A head stands over its numbers.
            let number = rows.first().and_then(|row| row.get(i)).is_some_and(Cell::is_number);
            let class = if number { " class=n" } else { "" };
            let _ = write!(self.body, "<th{class}>{}</th>", escape(cell));
        }
        self.body.push_str("</tr></thead><tbody>");
        for row in &rows {
            self.body.push_str("<tr>");
            for (i, cell) in row.iter().enumerate() {
                let label = head.get(i).copied().filter(|_| cards && i > 0);
                self.body.push_str(&cell.html(label));
            }
            self.body.push_str("</tr>");
        }
        self.body.push_str("</tbody></table></div>");
    }

    /// A chart of lines.
    pub fn lines(&mut self, caption: &str, x: &Axis, y: &Axis, lines: &[Line]) {
        self.figure(caption, &chart::lines(x, y, lines));
    }

    /// A chart of bars, the parts of each one behind the other, on a linear axis. Where a part is too small
    /// to be seen, a second picture has all parts on an axis of powers of ten.
    pub fn stacked(&mut self, caption: &str, x: &str, parts: &[Part], bars: &[Bar]) {
        let x = Axis::linear(x);
        self.figure(caption, &chart::stacked(&x, parts, bars));
        if let Some(picture) = chart::small_parts(&x, parts, bars) {
            self.figure(&format!("{caption}: each part by itself, in powers of ten"), &picture);
        }
    }

    /// A chart of rows of marks: the parts of each row side by side, with their intervals.
    pub fn dots(&mut self, caption: &str, x: &Axis, parts: &[Part], bars: &[Bar]) {
        self.figure(caption, &chart::dots(x, parts, bars));
    }

    fn figure(&mut self, caption: &str, picture: &Picture) {
        self.pictures += 1;
        let drawn = json!({ "data": picture.traces, "layout": picture.layout }).to_string();
        let legend: String = picture
            .legend
            .iter()
            .map(|(name, swatch)| {
                format!("<li><button type=button aria-pressed=true>{swatch}{}</button></li>", escape(name))
            })
            .collect();
        let name = file_name(&self.title, caption);
        let (csv, json) = (encoded(&picture.data.csv()), encoded(&picture.data.json(caption)));
        let _ = write!(
            self.body,
            "<figure><figcaption>{}</figcaption><ul class=legend>{legend}</ul>\
             <div class=chart style=\"height:{}px\"></div><div class=data>The numbers: \
             <a download=\"{name}.csv\" href=\"data:text/csv;charset=utf-8,{csv}\">CSV</a> \
             <a download=\"{name}.json\" href=\"data:application/json;charset=utf-8,{json}\">JSON</a></div>\
             <script type=\"application/json\">{}</script></figure>",
            escape(caption),
            picture.height,
            // No text can end the script that it stands in.
            drawn.replace('<', "\\u003c"),
        );
    }

    /// The whole page.
    pub fn finish(self) -> String {
        let library = if self.pictures > 0 { &**LIBRARY } else { "" };
        let contents = match self.headings.len() {
            0..=2 => String::new(),
            _ => {
                let link =
                    |(i, text): (usize, &String)| format!("<a href=#part-{}>{}</a>", i + 1, escape(text));
                let links: String = self.headings.iter().enumerate().map(link).collect();
                format!("<nav aria-label=Contents>{links}</nav>")
            }
        };
        let title = escape(&self.title);
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8>\
             <meta name=viewport content=\"width=device-width,initial-scale=1\">\
             <title>{title}</title><style>{STYLE}</style>\
             <button class=theme type=button hidden title=\"light or dark\" aria-label=\"light or dark\">◐</button>\
             <main><h1>{title}</h1>{}<p class=about>{}</p>{}{contents}{}\
             <noscript><p>The pictures need JavaScript; their numbers are behind the links below each.</p></noscript>\
             </main>{library}<script>{SCRIPT}</script>{}</html>\n",
            self.place,
            escape(&self.about),
            self.numbers,
            self.body,
            self.script
        )
    }
}

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The charting library in its element. What the crate gives has a second element, for formulas:
/// there are none.
static LIBRARY: LazyLock<String> = LazyLock::new(|| {
    const END: &str = "</script>";
    let mut both = plotly::Plot::offline_js_sources();
    let end = both.find(END).map_or(0, |at| at + END.len());
    both.truncate(end);
    both
});

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// As part of an address (RFC 3986, 2.1).
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b',' | b':' => {
                out.push(byte.into());
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
        out
    })
}

/// Lower-case letters, digits and dashes, of some length.
fn file_name(title: &str, caption: &str) -> String {
    let words = format!("{title} {caption}").to_lowercase();
    let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of values that lie close, whose intervals do not: labels have the room that is drawn.
    #[test]
    fn intervals_take_room_on_their_axis() {
        let (x, time) = (Axis::linear("x"), Axis::log("time, ns"));
        let labels = |layout: &serde_json::Value, axis: &str| layout[axis]["ticktext"].to_string();
        let line = |high: f64| {
            let line = Line::new("l", vec![(1.0, 200.0), (2.0, 900.0)]);
            let picture = chart::lines(&x, &time, &[line.intervals(vec![None, Some((500.0, high))])]);
            labels(&picture.layout, "yaxis")
        };
        assert!(line(2_000.0).contains("200 ns") && !line(2e6).contains("200 ns"), "{}", line(2e6));
        let dots = |high: f64| {
            let bar = Bar::new("b", vec![200.0]).intervals(vec![Some((100.0, high))]);
            labels(&chart::dots(&time, &["p".into()], &[bar]).layout, "xaxis")
        };
        assert!(dots(900.0).contains("200 ns") && !dots(1e6).contains("200 ns"), "{}", dots(1e6));
    }

    /// What the pages' pictures are given to draw.
    fn drawn(html: &str) -> Vec<serde_json::Value> {
        let parts = html.split("<script type=\"application/json\">").skip(1);
        parts.map(|part| serde_json::from_str(part.split("</script>").next().unwrap()).unwrap()).collect()
    }

    #[test]
    fn the_library_is_one_whole_script() {
        assert!(LIBRARY.starts_with("<script"), "{}", &LIBRARY[..80]);
        assert!(LIBRARY.contains("plotly.js v") && !LIBRARY.contains("MathJax-script"));
        assert_eq!(LIBRARY.matches("<script type").count(), 1);
        assert!((3_000_000..5_500_000).contains(&LIBRARY.len()), "{}", LIBRARY.len());
    }

    #[test]
    fn a_page_holds_its_pictures_and_escapes_its_words() {
        let mut page = Page::new("a < b", "x & y");
        let (x, y) = (Axis::linear("x"), Axis::log("y"));
        page.lines("curve", &x, &y, &[Line::new("</script>", vec![(0.0, 1.0), (5.0, 2.0)])]);
        page.stacked("bars", "µs", &["p".into(), "q".into()], &[Bar::new("left", vec![1.0, 2.0])]);
        page.dots("dots", &y, &["p".into(), "q".into()], &[Bar::new("left", vec![1.0, 200.0])]);
        page.table("t", &["a", "b"], &[vec![Cell::from("x"), Cell::faint("1.5"), Cell::miss("no")]]);
        let html = page.finish();
        assert_eq!(html.matches("<figure>").count(), 3);
        assert!(html.contains("a &lt; b") && html.contains("<td class=\"n faint\">1.5</td>"));
        assert!(html.contains("<td class=miss>no</td>"));
        let drawn = drawn(&html);
        assert_eq!(drawn.len(), 3);
        assert_eq!(drawn[0]["data"][0]["y"], json!([1.0, 2.0]));
        assert_eq!(drawn[0]["data"][0]["name"], "&lt;/script&gt;");
        assert_eq!(drawn[2]["data"][1]["x"], json!([200.0]));
        // Without pictures there is no library.
        let plain = Page::new("t", "").finish();
        assert!(plain.len() < 20_000 && !plain.contains("plotly.js v"));
    }

    #[test]
    fn where_it_was_measured_stands_first() {
        let mut page = Page::new("title", "about");
        page.text("body");
        let environment = Environment {
            cpu: "a CPU <x>".into(),
            cores: 2,
            date: "2026-11-23".into(),
            ..Environment::default()
        };
        page.measured(&environment, &[("block size", "4096 B".to_owned())]);
        page.numbers(&[("5.0 ×".to_owned(), "so much".to_owned())]);
        let html = page.finish();
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}: {html}"));
        let order = [
            "<h1>",
            "a CPU &lt;x&gt;, 2 cores",
            "2026-11-23",
            "block size",
            "class=about",
            "5.0 ×",
            ">body<",
        ];
        assert!(order.map(at).is_sorted(), "{html}");
        let mut page = Page::new("", "");
        page.simulated(&[]);
        assert!(!page.finish().contains("<table class=settings"));
    }

    #[test]
    fn what_is_too_small_for_its_bar_has_a_picture_of_its_own() {
        let count = |parts: Vec<f64>| {
            let mut page = Page::new("t", "");
            page.stacked("b", "us", &["p".into(), "q".into()], &[Bar::new("x", parts)]);
            drawn(&page.finish()).len()
        };
        assert_eq!([count(vec![1.0, 2.0]), count(vec![0.1, 100.0]), count(vec![0.0, 100.0])], [1, 2, 1]);
    }

    #[test]
    fn the_numbers_of_a_picture_are_a_click_away() {
        let line = Line::new("a, \"b\"", vec![(1.0, 10.0), (2.0, f64::NAN), (3.0, 30.0)]);
        let line = line.intervals(vec![Some((9.0, 11.0))]).weak(vec![2]);
        let mut page = Page::new("t", "");
        page.lines("c & d", &Axis::linear("depth"), &Axis::log("time, us"), std::slice::from_ref(&line));
        let html = page.finish();
        let csv = chart::lines(&Axis::linear("depth"), &Axis::log("time, us"), &[line]).data.csv();
        let expected = "series,kind,depth,\"time, us\",low,high,few samples\n\
                        \"a, \"\"b\"\"\",measured,1.0,10.0,9.0,11.0,false\n\"a, \"\"b\"\"\",measured,3.0,30.0,,,true\n";
        assert_eq!(csv, expected);
        assert!(html.contains(&encoded(expected)));
        assert!(html.contains("download=\"t-c-d.csv\"") && html.contains("download=\"t-c-d.json\""));
        assert_eq!(encoded("a b\n%é"), "a%20b%0A%25%C3%A9");
    }

    #[test]
    fn pictures_of_nothing_and_of_odd_numbers_are_drawn() {
        let mut page = Page::new("t", "");
        for axis in [Axis::linear("x"), Axis::log("x"), Axis::nines()] {
            for points in
                [vec![], vec![(0.0, 0.0)], vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)], vec![(5.0, 5.0); 3]]
            {
                page.lines("odd", &axis, &Axis::log("y"), &[Line::new("l", points.clone())]);
                page.lines("odd", &Axis::linear("x"), &axis, &[Line::new("l", points)]);
            }
        }
        page.dots("none", &Axis::log("y"), &[], &[]);
        page.stacked("none", "y", &["a".into()], &[Bar::new("b", vec![f64::NAN])]);
        let html = page.finish();
        assert_eq!(drawn(&html).len(), 26);
        for picture in drawn(&html) {
            for trace in picture["data"].as_array().unwrap() {
                let places = trace["x"].as_array().unwrap().iter().chain(trace["y"].as_array().unwrap());
                assert!(places.clone().all(serde_json::Value::is_number), "{picture}");
            }
        }
    }
}
