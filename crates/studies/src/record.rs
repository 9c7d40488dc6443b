//! The record of a run: lines of JSON, the first the environment, each other one what a study found.
//!
//! It is a record as `make bench` writes it ([`nearside_loadgen::record`]): a finding is one of its
//! figures with the paper's and the model's values as further fields, and a reader of figures passes over
//! the kinds of lines that it does not know.

use std::io;
use std::path::{Path, PathBuf};

use nearside_loadgen::record::{Environment, save};
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::claim::{Claim, Column, Figures};
use crate::finding::{Chart, Finding};
use crate::source::{Kind, Parameter, Table, by_name, claim_kind};

/// Which study the lines that follow are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The paper's number for it.
    pub number: String,
    /// In a few words.
    pub title: String,
    /// The paper's section.
    pub section: String,
    /// It had seconds only.
    pub small: bool,
}

/// A remark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// The study's number.
    pub study: String,
    /// In words.
    pub text: String,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Row {
    /// Where and when.
    Environment(Environment),
    /// A study begins.
    Study(Head),
    /// A value.
    Figure(Box<Finding>),
    /// A checked statement.
    Claim(Claim),
    /// A picture.
    Chart(Chart),
    /// A remark.
    Note(Note),
    /// A number of a model.
    Parameter(Parameter),
}

/// What studies found, where and when.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Where and when.
    pub environment: Environment,
    /// What, in the order in which it was found.
    pub rows: Vec<Row>,
}

impl Record {
    /// Without findings yet.
    pub fn new(environment: Environment) -> Record {
        Record { environment, rows: Vec::new() }
    }

    /// The studies.
    pub fn heads(&self) -> impl Iterator<Item = &Head> {
        self.rows.iter().filter_map(|row| if let Row::Study(head) = row { Some(head) } else { None })
    }

    /// Whether a study of that number is in it.
    pub fn has(&self, number: &str) -> bool {
        self.heads().any(|head| head.number == number)
    }

    /// The findings of a study.
    pub fn findings<'a>(&'a self, number: &'a str) -> impl Iterator<Item = &'a Finding> {
        let findings =
            self.rows.iter().filter_map(|row| if let Row::Figure(f) = row { Some(&**f) } else { None });
        findings.filter(move |f| f.study == number)
    }

    /// The finding of that name in any study.
    pub fn get(&self, name: &str) -> Option<&Finding> {
        self.heads().flat_map(|head| self.findings(&head.number)).find(|f| f.figure.name == name)
    }

    /// The findings of a study by name.
    pub fn figures<'a>(&'a self, number: &'a str) -> Figures<'a> {
        self.findings(number).map(|f| (&*f.figure.name, f)).collect()
    }

    /// Whether a claim holds in a column, by the figures of its study.
    pub fn verdict(&self, claim: &Claim, column: Column) -> Option<bool> {
        claim.verdict(&self.figures(&claim.study), column)
    }

    /// What the model's verdict is worth.
    pub fn kind(&self, claim: &Claim) -> Option<Kind> {
        claim_kind(claim, &self.figures(&claim.study), &self.table())
    }

    /// The numbers of the models that the studies used.
    pub fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.rows.iter().filter_map(|row| if let Row::Parameter(p) = row { Some(p) } else { None })
    }

    /// The same by name.
    pub fn table(&self) -> Table<'_> {
        by_name(self.parameters())
    }

    /// The claims of a study.
    pub fn claims<'a>(&'a self, number: &'a str) -> impl Iterator<Item = &'a Claim> {
        let claims = self.rows.iter().filter_map(|row| if let Row::Claim(c) = row { Some(c) } else { None });
        claims.filter(move |c| c.study == number)
    }

    /// The pictures of a study.
    pub fn charts<'a>(&'a self, number: &'a str) -> impl Iterator<Item = &'a Chart> {
        let charts = self.rows.iter().filter_map(|row| if let Row::Chart(c) = row { Some(c) } else { None });
        charts.filter(move |c| c.study == number)
    }

    /// The remarks of a study.
    pub fn notes<'a>(&'a self, number: &'a str) -> impl Iterator<Item = &'a str> {
        let notes = self.rows.iter().filter_map(|row| if let Row::Note(n) = row { Some(n) } else { None });
        notes.filter(move |n| n.study == number).map(|n| &*n.text)
    }

    /// The record as JSON lines.
    ///
    /// # Errors
    /// None: the rows are plain data.
    pub fn to_lines(&self) -> Result<String, Failure> {
        let mut lines = serde_json::to_string(&Row::Environment(self.environment.clone()))? + "\n";
        for row in &self.rows {
            lines += &(serde_json::to_string(row)? + "\n");
        }
        Ok(lines)
    }

    /// From JSON lines.
    ///
    /// # Errors
    /// Which line is none of a study's record.
    pub fn from_lines(lines: &str) -> Result<Record, Failure> {
        let mut record = None;
        for (index, line) in lines.lines().enumerate() {
            let row: Row = serde_json::from_str(line).map_err(|e| format!("line {}: {e}", index + 1))?;
            match (row, &mut record) {
                (Row::Environment(environment), None) => record = Some(Record::new(environment)),
                (Row::Environment(_), Some(_)) | (_, None) => {
                    let line = index + 1;
                    return Err(
                        format!("line {line}: the environment is the first line, and only that").into()
                    );
                }
                (row, Some(record)) => record.rows.push(row),
            }
        }
        record.ok_or_else(|| "a record has at least its environment".into())
    }

    /// Writes it under `root` as a record of that name.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, root: &Path, name: &str) -> Result<PathBuf, Failure> {
        let path = self.environment.record_path(root, name);
        let said = |e: io::Error| format!("{}: {e}", path.display());
        save(&path, &self.to_lines()?).map_err(said)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Stated;
    use crate::source::Parameters;
    use crate::{Bound, Relation, Scale};

    fn record() -> Record {
        let study = || "Fig. 1".to_owned();
        let head = Head { number: study(), title: "t".into(), section: "3".into(), small: false };
        let chart =
            Chart { study: study(), ..Chart::lines("c", "caption", Scale::linear("x"), Scale::log("y")) };
        let [floor, value, share, far] = [
            Stated::equal("P 3: floor", 2.0),
            Stated::equal("P 3: value", 3.0),
            Stated::range("P 3.4: share", 0.6, 0.7),
            Stated::below("P 3.5: far", 8.0),
        ];
        let of = |finding: Finding| Finding { study: study(), ..finding.from(Relation::Simulated, &["m"]) };
        let floor = of(Finding::new("floor", "us").paper(&floor).model(2.5));
        let finding = Finding::new("value", "us").paper(&value).model(5.0).machine(&[7.0, 8.0, 6.0]);
        let finding = of(finding.beside(&floor).point("c", "line", 4.0).machine_at(4.5));
        let range = of(Finding::new("share", "").paper(&share));
        let far = of(Finding::new("far", "us").paper(&far).model(9.0).point("c", "line", 5.0));
        let far = far.reckoned(6.5, &[value]);
        let mut claim = Claim::new("it is so", "3").both(finding.ratio(), Bound::Above(1.5)).because("5 > 2");
        let mut miss = Claim::new("it is near", "3").model(&far, Bound::Below(8.0));
        (claim.study, miss.study) = (study(), study());
        let parameter = Parameters::of("m").fitted("a_ns", 4u64, &[value], "somehow").list().remove(0);
        let note = Note { study: study(), text: "a <remark>".into() };
        Record {
            environment: Environment::gather(0),
            rows: vec![
                Row::Study(head),
                Row::Chart(chart),
                Row::Figure(Box::new(floor)),
                Row::Figure(Box::new(finding)),
                Row::Figure(Box::new(range)),
                Row::Figure(Box::new(far)),
                Row::Claim(claim),
                Row::Claim(miss),
                Row::Note(note),
                Row::Parameter(parameter),
            ],
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let record = record();
        let lines = record.to_lines().unwrap();
        assert_eq!(Record::from_lines(&lines).unwrap(), record);
        let value = record.get("value").unwrap();
        assert_eq!((value.paper_ratio, value.model_ratio, value.figure.ratio), (Some(1.5), Some(2.0), None));
        assert_eq!(record.get("floor").unwrap().measured(), None);
        // Whoever reads figures reads these.
        let figures = nearside_loadgen::record::Record::from_lines(&lines).unwrap().figures;
        assert_eq!(figures.iter().map(|f| &*f.name).collect::<Vec<_>>(), ["floor", "value", "share", "far"]);
        assert_eq!((figures[1].value, figures[1].runs), (7.0, 3));
        assert!(Record::from_lines("").is_err() && Record::from_lines(&lines[1..]).is_err());
        let (_, headless) = lines.split_once('\n').unwrap();
        assert!(Record::from_lines(headless).is_err());
    }

    #[test]
    fn page_and_table_show_what_is_in_it() {
        let page = crate::page::page("title", &record());
        for shown in [
            "3.00 (3)",
            "5.00 (+67 %)",
            "0.60 to 0.70 (3.4)",
            "7.00",
            "6.00 to 8.00 (3)",
            "1.50",
            "holds",
            // A miss stands in its claim's own row.
            "<td>it is near</td>",
            "<td class=miss data-label=\"model\"><div>does not hold<small>far 9.00 (below 8.00: a miss)</small>",
            "<div>&lt; 8.00 us</div>",
            // A bound is a bound: no percentage, no point, but words below the picture.
            "<td>&lt; 8.00 (3.5)</td><td class=n>6.50 (P 3: value)</td><td class=n>9.00</td><td>predicted</td>",
            "caption. The paper's text: far &lt; 8.00",
            "<td>m.a_ns</td><td class=n>4</td><td>fitted: P 3: value</td><td>somehow</td>",
            "<small>(value) over (floor) 2.00 (above 1.50)</small>",
            "<td>it is so<small>5 &gt; 2</small></td>",
            "a &lt;remark&gt;",
            "line, paper",
            "line, model",
            "line, this machine",
        ] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        for name in ["floor", "value", "share"] {
            let cells = page.matches(&format!(">{name}</td>")).count();
            assert!(cells >= 1, "{name}: {page}");
        }
        // A bound is a series of its own, and no point of the paper's.
        let series = |page: &str, name: &str| {
            let drawn = page.split("<script type=\"application/json\">").nth(1).unwrap();
            let drawn: serde_json::Value =
                serde_json::from_str(drawn.split("</script>").next().unwrap()).unwrap();
            let traces = drawn["data"].as_array().unwrap().clone();
            traces
                .into_iter()
                .find(|trace| trace["name"] == name)
                .unwrap_or_else(|| panic!("{name}: {drawn}"))
        };
        assert_eq!(series(&page, "line, paper")["x"], serde_json::json!([4.0]));
        assert_eq!(series(&page, "line, paper")["mode"], "markers");
        let bound = series(&page, "line, paper: less than");
        assert_eq!((&bound["x"], &bound["y"]), (&serde_json::json!([5.0]), &serde_json::json!([8.0])));
        assert_eq!(bound["marker"]["symbol"][0], "triangle-down");
        assert_eq!(series(&page, "line, model")["line"]["dash"], "dash");
        let machine = series(&page, "line, this machine");
        assert_eq!((&machine["x"], &machine["line"]["dash"]), (&serde_json::json!([4.5]), &"solid".into()));
        // This machine's values stand where they came out.
        let mut moved = record();
        for row in &mut moved.rows {
            if let Row::Figure(finding) = row
                && let Some(point) = &mut finding.point
            {
                point.machine_at = None;
            }
        }
        assert_ne!(crate::page::page("title", &moved), page);
        let table = crate::table::table(&record());
        let so = "it is so (3): model: holds (fitted) [model: (value) over (floor) 2.00 (above 1.50). 5 > 2]";
        assert!(table.contains(so), "{table}");
        let near = "it is near (3): model: does not hold (predicted) [model: far 9.00 (below 8.00: a miss)]";
        assert!(table.contains(near), "{table}");
        assert!(table.contains("2.50 us (+25 %)"), "{table}");
        // A line's points are left to the page.
        assert!(table.contains("\n  floor") && !table.contains("\n  value"), "{table}");
    }
}
