//! One self-contained HTML page: text, tables and pictures (SVG by plotters), no script, no outside file.
//!
//! A [`Page`] is written from top to bottom; [`Page::finish`] gives the whole. Pictures are drawn by `chart`,
//! from numbers that are already what the reader is to see: nothing is measured or computed here.

mod chart;

use std::fmt::Write as _;

pub use chart::{Axis, Bar, Line};

/// A page in the making.
pub struct Page {
    title: String,
    body: String,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    faint: bool,
    miss: bool,
}

impl Cell {
    /// A value that rests on too little to be relied on: shown grey.
    pub fn faint(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), faint: true, miss: false }
    }

    /// What ought to be otherwise: shown red.
    pub fn miss(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), faint: false, miss: true }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), faint: false, miss: false }
    }
}

impl Page {
    /// An empty page.
    pub fn new(title: &str, about: &str) -> Page {
        let mut page = Page { title: title.to_owned(), body: String::new() };
        let _ = write!(page.body, "<h1>{}</h1><p class=about>{}</p>", escape(title), escape(about));
        page
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        let _ = write!(self.body, "<h2>{}</h2>", escape(text));
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        let _ = write!(self.body, "<p>{}</p>", escape(text));
    }

    /// A table; numbers are set right.
    pub fn table<C: Clone + Into<Cell>>(&mut self, caption: &str, head: &[&str], rows: &[Vec<C>]) {
        let _ = write!(self.body, "<div class=wide><table><caption>{}</caption><tr>", escape(caption));
        for cell in head {
            let _ = write!(self.body, "<th>{}</th>", escape(cell));
        }
        for row in rows {
            self.body.push_str("</tr><tr>");
            for cell in row {
                let Cell { text, faint, miss } = cell.clone().into();
                let number = text.starts_with(|c: char| c.is_ascii_digit());
                let classes = [("n", number), ("faint", faint), ("miss", miss)];
                let classes: Vec<&str> =
                    classes.iter().filter(|(_, is)| *is).map(|(class, _)| *class).collect();
                let class = match &classes[..] {
                    [] => String::new(),
                    [one] => format!(" class={one}"),
                    more => format!(" class=\"{}\"", more.join(" ")),
                };
                let _ = write!(self.body, "<td{class}>{}</td>", escape(&text));
            }
        }
        self.body.push_str("</tr></table></div>");
    }

    /// A chart of lines.
    pub fn lines(&mut self, caption: &str, x: &Axis, y: &Axis, lines: &[Line]) {
        self.figure(caption, chart::lines(x, y, lines));
    }

    /// A chart of bars, the parts of each one on top of the other. The axis is linear.
    pub fn stacked_bars(&mut self, caption: &str, y: &str, parts: &[&str], bars: &[Bar]) {
        self.figure(caption, chart::stacked_bars(y, parts, bars));
    }

    /// A chart of bars, the parts of each side by side.
    pub fn grouped_bars(&mut self, caption: &str, y: &Axis, parts: &[&str], bars: &[Bar]) {
        self.figure(caption, chart::grouped_bars(y, parts, bars));
    }

    fn figure(&mut self, caption: &str, drawn: Result<String, String>) {
        match drawn {
            Ok(svg) => {
                let _ =
                    write!(self.body, "<figure>{svg}<figcaption>{}</figcaption></figure>", escape(caption));
            }
            Err(e) => self.text(&format!("({caption}: the picture could not be drawn: {e})")),
        }
    }

    /// The whole page.
    pub fn finish(self) -> String {
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
             <title>{}</title><style>{STYLE}</style><main>{}</main></html>\n",
            escape(&self.title),
            self.body
        )
    }
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;margin:0}\
main{max-width:820px;margin:0 auto;padding:24px}h1{font-size:28px;margin:8px 0}h2{margin-top:40px;border-top:1px solid #ddd;padding-top:20px}\
.about{color:#555}.wide{overflow-x:auto}table{border-collapse:collapse;margin:18px 0;font-size:14px;width:100%}caption{text-align:left;font-weight:600;padding-bottom:6px}\
th,td{padding:4px 10px;border-bottom:1px solid #e4e4e4;text-align:left;white-space:nowrap}.n{text-align:right;font-variant-numeric:tabular-nums}.faint{color:#999}.miss{color:#b00020;font-weight:600}\
figure{margin:18px 0}figure svg{max-width:100%;height:auto}figcaption{color:#555;font-size:14px}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_its_pictures_and_escapes_its_words() {
        let mut page = Page::new("a < b", "x & y");
        let (x, y) = (Axis::linear("x"), Axis::log("y"));
        page.lines("curve", &x, &y, &[Line::new("one", vec![(0.0, 1.0), (5.0, 2.0)])]);
        page.stacked_bars("bars", "µs", &["p", "q"], &[Bar::new("left", vec![1.0, 2.0])]);
        page.grouped_bars("bars", &y, &["p", "q"], &[Bar::new("left", vec![1.0, 200.0])]);
        page.table("t", &["a", "b"], &[vec![Cell::from("x"), Cell::faint("1.5"), Cell::miss("no")]]);
        let html = page.finish();
        assert_eq!(html.matches("<svg").count(), 3);
        assert!(html.contains("a &lt; b") && html.contains("<td class=\"n faint\">1.5</td>"));
        assert!(html.contains("<td class=miss>no</td>"));
        assert_eq!(html.matches("http").count(), html.matches("http://www.w3.org").count());
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
        page.grouped_bars("none", &Axis::log("y"), &[], &[]);
        page.stacked_bars("none", "y", &["a"], &[Bar::new("b", vec![f64::NAN])]);
        let html = page.finish();
        assert_eq!(html.matches("<svg").count(), 26, "{html}");
        assert!(!html.contains("NaN") && !html.contains("inf"));
    }
}
