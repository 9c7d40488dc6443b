//! One self-contained HTML page: text, tables and pictures (SVG by plotters), no script, no outside file.

use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::prelude::*;

/// Colours that stay apart for colour-blind readers (Okabe and Ito).
pub const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

const SIZE: (u32, u32) = (760, 400);

/// A page in the making.
pub struct Page {
    body: String,
}

/// One line of a line chart.
pub struct Line {
    /// What the legend calls it.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// One group of stacked bars.
pub struct Bar {
    /// What stands below it.
    pub name: String,
    /// The parts, from the bottom up, as the legend's names go.
    pub parts: Vec<f64>,
}

impl Page {
    /// An empty page.
    pub fn new(title: &str, about: &str) -> Page {
        let mut page = Page { body: String::new() };
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
    pub fn table(&mut self, caption: &str, head: &[&str], rows: &[Vec<String>]) {
        let _ = write!(self.body, "<table><caption>{}</caption><tr>", escape(caption));
        for cell in head {
            let _ = write!(self.body, "<th>{}</th>", escape(cell));
        }
        for row in rows {
            self.body.push_str("</tr><tr>");
            for cell in row {
                let class = if cell.starts_with(|c: char| c.is_ascii_digit()) { " class=n" } else { "" };
                let _ = write!(self.body, "<td{class}>{}</td>", escape(cell));
            }
        }
        self.body.push_str("</tr></table>");
    }

    /// A chart of lines; the y axis begins at zero.
    pub fn lines(&mut self, caption: &str, x: &str, y: &str, lines: &[Line]) {
        self.figure(caption, |area| {
            let all = || lines.iter().flat_map(|l| &l.points);
            let x_max = all().map(|p| p.0).fold(1e-9, f64::max);
            let y_max = all().map(|p| p.1).fold(1e-9, f64::max) * 1.08;
            let mut chart = ChartBuilder::on(area)
                .margin(14)
                .x_label_area_size(44)
                .y_label_area_size(62)
                .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
            chart
                .configure_mesh()
                .light_line_style(WHITE)
                .x_desc(x)
                .y_desc(y)
                .label_style(("sans-serif", 14))
                .draw()?;
            for (i, line) in lines.iter().enumerate() {
                let colour = COLOURS[i % COLOURS.len()];
                chart
                    .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
                    .label(&line.name)
                    .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled()));
                chart.draw_series(line.points.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
            }
            legend(&mut chart)
        });
    }

    /// A chart of stacked bars.
    pub fn bars(&mut self, caption: &str, y: &str, parts: &[&str], bars: &[Bar]) {
        self.figure(caption, |area| {
            let y_max = bars.iter().map(|b| b.parts.iter().sum::<f64>()).fold(1e-9, f64::max) * 1.12;
            let count = bars.len() as f64;
            let mut chart = ChartBuilder::on(area)
                .margin(14)
                .x_label_area_size(44)
                .y_label_area_size(62)
                .build_cartesian_2d(0.0..count, 0.0..y_max)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(WHITE)
                .y_desc(y)
                .x_labels(0)
                .label_style(("sans-serif", 14))
                .draw()?;
            for (p, part) in parts.iter().enumerate() {
                let colour = COLOURS[p % COLOURS.len()];
                let boxes = bars.iter().enumerate().map(|(i, bar)| {
                    let below: f64 = bar.parts.iter().take(p).sum();
                    let height = bar.parts.get(p).copied().unwrap_or(0.0);
                    Rectangle::new(
                        [(i as f64 + 0.18, below), (i as f64 + 0.82, below + height)],
                        colour.filled(),
                    )
                });
                chart
                    .draw_series(boxes)?
                    .label(*part)
                    .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled()));
            }
            let style = TextStyle::from(("sans-serif", 13)).pos(plotters::style::text_anchor::Pos::new(
                plotters::style::text_anchor::HPos::Center,
                plotters::style::text_anchor::VPos::Top,
            ));
            let plane = chart.plotting_area().strip_coord_spec();
            let (width, height) = plane.dim_in_pixel();
            let (left, top) = plane.get_base_pixel();
            for (i, bar) in bars.iter().enumerate() {
                let x = left + ((i as f64 + 0.5) / count * f64::from(width)) as i32;
                area.draw(&Text::new(bar.name.clone(), (x, top + height as i32 + 8), style.clone()))?;
            }
            legend(&mut chart)
        });
    }

    fn figure(
        &mut self,
        caption: &str,
        draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn std::error::Error>>,
    ) {
        let mut svg = String::new();
        let drawn = {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            draw(&area).and_then(|()| Ok(area.present()?))
        };
        match drawn {
            Ok(()) => {
                let _ =
                    write!(self.body, "<figure>{svg}<figcaption>{}</figcaption></figure>", escape(caption));
            }
            Err(e) => self.text(&format!("({caption}: the picture could not be drawn: {e})")),
        }
    }

    /// The whole page.
    pub fn finish(self, title: &str) -> String {
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
             <title>{}</title><style>{STYLE}</style><main>{}</main></html>\n",
            escape(title),
            self.body
        )
    }
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;margin:0}\
main{max-width:820px;margin:0 auto;padding:24px}h1{font-size:28px;margin:8px 0}h2{margin-top:40px;border-top:1px solid #ddd;padding-top:20px}\
.about{color:#555}table{border-collapse:collapse;margin:18px 0;font-size:14px;width:100%}caption{text-align:left;font-weight:600;padding-bottom:6px}\
th,td{padding:4px 10px;border-bottom:1px solid #e4e4e4;text-align:left;white-space:nowrap}.n{text-align:right;font-variant-numeric:tabular-nums}\
figure{margin:18px 0}figure svg{max-width:100%;height:auto}figcaption{color:#555;font-size:14px}main{overflow-x:auto}";

type Plane<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

fn legend<'a, 'b: 'a>(chart: &mut Plane<'a, 'b>) -> Result<(), Box<dyn std::error::Error>> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 14))
        .draw()?;
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_its_pictures_and_escapes_its_words() {
        let mut page = Page::new("a < b", "x & y");
        page.lines("curve", "x", "y", &[Line { name: "one".into(), points: vec![(0.0, 1.0), (5.0, 2.0)] }]);
        page.bars("bars", "µs", &["p", "q"], &[Bar { name: "left".into(), parts: vec![1.0, 2.0] }]);
        page.table("t", &["a", "b"], &[vec!["x".into(), "1.5".into()]]);
        let html = page.finish("t");
        assert_eq!(html.matches("<svg").count(), 2);
        assert!(html.contains("a &lt; b") && html.contains("<td class=n>1.5</td>"));
        assert!(
            !html.contains("http://")
                || html.matches("http").count() == html.matches("http://www.w3.org").count()
        );
    }
}
