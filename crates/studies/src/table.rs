//! A record as a table for a terminal: paper, model, machine, ratio; then what holds.

use nearside_loadgen::record::number;

use crate::claim::Column;
use crate::finding::{Drawn, Finding};
use crate::page::{holds, published};
use crate::record::Record;

/// Makes it. Points of lines are left to the page.
pub fn table(record: &Record) -> String {
    let mut out = String::new();
    for head in record.heads() {
        out += &format!("\n{}: {} (section {})\n", head.number, head.title, head.section);
        let lines: Vec<&str> = record
            .charts(&head.number)
            .filter(|chart| matches!(chart.drawn, Drawn::Lines { .. }))
            .map(|chart| &*chart.name)
            .collect();
        let in_line = |f: &&Finding| f.point.as_ref().is_some_and(|p| lines.contains(&&*p.chart));
        let findings: Vec<&Finding> = record.findings(&head.number).filter(|f| !in_line(f)).collect();
        let head_row = ["", "paper", "model", "machine", "ratio to", "paper", "model", "machine"];
        let mut rows = vec![head_row.map(str::to_owned)];
        rows.extend(findings.iter().map(|f| row(f)));
        if rows.len() > 1 {
            out += &set(&rows);
        }
        for claim in record.claims(&head.number) {
            let worth = record.kind(claim).map(|kind| format!(" ({})", kind.name())).unwrap_or_default();
            let verdicts: Vec<String> = [(Column::Model, "model", &*worth), (Column::Machine, "machine", "")]
                .into_iter()
                .map(|(column, who, worth)| (record.verdict(claim, column), who, worth))
                .filter(|(verdict, ..)| verdict.is_some())
                .map(|(verdict, who, worth)| format!("{who}: {}{worth}", holds(verdict)))
                .collect();
            out += &format!("  {} ({}): {}", claim.text, claim.section, verdicts.join(", "));
            let decided = claim.decided(&record.figures(&head.number));
            out += &if decided.is_empty() { "\n".to_owned() } else { format!(" [{decided}]\n") };
        }
    }
    out
}

fn row(f: &Finding) -> [String; 8] {
    let unit = &f.figure.unit;
    let with_unit = |value: String| if unit.is_empty() { value } else { format!("{value} {unit}") };
    let ratio = |value: Option<f64>| value.map(|r| format!("{r:.2}")).unwrap_or_default();
    let model = f.model.map(|v| with_unit(number(v))).unwrap_or_default();
    [
        f.figure.name.clone(),
        f.paper.as_ref().map(|p| with_unit(published(p))).unwrap_or_default(),
        model + &percent(f).map(|p| format!(" ({p})")).unwrap_or_default(),
        f.measured().map(|v| with_unit(number(v))).unwrap_or_default(),
        f.figure.beside.clone().unwrap_or_default(),
        ratio(f.paper_ratio),
        ratio(f.model_ratio),
        ratio(f.figure.ratio),
    ]
}

/// Columns as wide as their widest cell; words to the left, values to the right.
fn set(rows: &[[String; 8]]) -> String {
    let mut widths = [0; 8];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let mut line = String::from("  ");
        for (column, (cell, width)) in row.iter().zip(widths).enumerate().filter(|(_, (_, width))| *width > 0)
        {
            line += &match column {
                0 | 4 => format!("{cell:<width$}  "),
                _ => format!("{cell:>width$}  "),
            };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// How far the model is from the paper.
pub(crate) fn percent(f: &Finding) -> Option<String> {
    let paper = f.paper.as_ref().filter(|p| p.is_number() && p.value != 0.0)?;
    // Rounded first: there is no "-0".
    let percent = ((f.model? / paper.value - 1.0) * 100.0).round() as i64;
    Some(format!("{percent:+} %"))
}
