//! The documents' tables and figures, from the records that are kept and from the models' parameters.
//!
//! A document has places for them, `<!-- filled: WHAT PAPER [STUDY] -->` to `<!-- end -->`, in a table's cell
//! or over many lines. [`fill`] writes what belongs there; what stands between is nobody's to edit. WHAT is
//! one of:
//!
//! | what | is |
//! | --- | --- |
//! | `record` | which record the figures are of |
//! | `claims` | each claim with its verdicts and the figures that decided |
//! | `values` | each value that the paper states, beside the model's and this machine's |
//! | `result` | one study's claims in a few words |
//! | `parameters` | the models' numbers, by the code |

use std::path::Path;

use nearside_loadgen::record::number;

use crate::claim::{Claim, Column};
use crate::finding::Finding;
use crate::page::{holds, published};
use crate::record::Record;
use crate::table::percent;
use crate::{Failure, Paper, source};

/// A record that is kept.
pub struct Kept {
    /// `MACHINE/DATE-study-PAPER.jsonl`, below `studies/record`.
    pub file: String,
    /// What is in it.
    pub record: Record,
    /// Records of single studies that the paper's has not: `MACHINE/DATE-study-PAPER-STUDY.jsonl`.
    pub parts: Vec<Kept>,
}

/// The newest record of a whole paper below `root`, by the date in its name, with the newest records of
/// single studies that it has not; none where there is none.
///
/// # Errors
/// The file system's, or what is wrong with the record, by its name.
pub fn newest(root: &Path, paper: Paper) -> Result<Option<Kept>, Failure> {
    let Some(mut whole) = newest_called(root, paper.name())? else { return Ok(None) };
    for study in paper.studies().iter().filter(|study| !whole.record.has(study.number)) {
        let name = format!("{}-{}", paper.name(), crate::plain(study.number));
        whole.parts.extend(newest_called(root, &name)?.filter(|part| part.record.has(study.number)));
    }
    Ok(Some(whole))
}

/// The newest record of that name.
fn newest_called(root: &Path, name: &str) -> Result<Option<Kept>, Failure> {
    let ending = format!("-study-{name}.jsonl");
    let mut found = Vec::new();
    for machine in std::fs::read_dir(root).map_err(|e| format!("{}: {e}", root.display()))? {
        let machine = machine?;
        if !machine.file_type()?.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(machine.path())? {
            let name = file?.file_name().to_string_lossy().into_owned();
            // A part's record is called otherwise: DATE-study-PAPER-3.jsonl.
            if let Some(date) = name.strip_suffix(&ending).map(str::to_owned) {
                found.push((date, format!("{}/{name}", machine.file_name().to_string_lossy())));
            }
        }
    }
    let Some((_, file)) = found.into_iter().max() else { return Ok(None) };
    let read = std::fs::read_to_string(root.join(&file)).map_err(|e| format!("{file}: {e}"))?;
    let record = Record::from_lines(&read).map_err(|e| format!("{file}: {e}"))?;
    Ok(Some(Kept { file, record, parts: Vec::new() }))
}

impl Kept {
    /// The paper's and its parts'.
    fn records(&self) -> impl Iterator<Item = &Record> {
        std::iter::once(self).chain(&self.parts).map(|kept| &kept.record)
    }
}

const OLDER: &str = "; its form is an older one: verdicts without what decided and what they are worth, and in the paper's \
                     column also what the paper does not state itself";
const BEGIN: &str = "<!-- filled: ";
const BEGUN: &str = " -->";
const END: &str = "<!-- end -->";

/// The document with every place filled. `kept` gives a paper's record.
///
/// # Errors
/// A place that does not end, or asks for what there is not; it is named.
pub fn fill(document: &str, kept: &dyn Fn(Paper) -> Result<Kept, Failure>) -> Result<String, Failure> {
    each_place(document, &mut |asked, _| contents(asked, kept))
}

/// The document without what was filled in.
///
/// # Errors
/// A place that does not end.
pub fn prose(document: &str) -> Result<String, Failure> {
    each_place(document, &mut |_, _| Ok(String::new()))
}

type Filling<'a> = dyn FnMut(&str, &str) -> Result<String, Failure> + 'a;

fn each_place(document: &str, with: &mut Filling<'_>) -> Result<String, Failure> {
    let (mut out, mut rest) = (String::new(), document);
    while let Some((before, from)) = rest.split_once(BEGIN) {
        let (asked, from) = from.split_once(BEGUN).ok_or("a place to be filled has no head's end")?;
        let (there, after) = from.split_once(END).ok_or_else(|| format!("{asked:?}: no {END}"))?;
        if there.contains(BEGIN) {
            return Err(format!("{asked:?}: no {END} before the next place").into());
        }
        out += &format!("{before}{BEGIN}{asked}{BEGUN}{}{END}", with(asked, there)?);
        rest = after;
    }
    Ok(out + rest)
}

fn contents(asked: &str, kept: &dyn Fn(Paper) -> Result<Kept, Failure>) -> Result<String, Failure> {
    let unknown = || Failure::from(format!("{asked:?}: nothing is called so"));
    let mut words = asked.splitn(3, ' ');
    let (what, named) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let paper = Paper::ALL.into_iter().find(|paper| paper.name() == named).ok_or_else(unknown)?;
    match (what, words.next()) {
        ("parameters", None) => Ok(format!("\n{}", source::markdown(&paper.parameters()))),
        ("record", None) => Ok(from_where(&kept(paper)?)),
        ("claims", None) => Ok(format!("\n{}", claims(&kept(paper)?))),
        ("values", None) => Ok(format!("\n{}", values(&kept(paper)?))),
        (what @ ("result" | "study"), Some(number)) => {
            let study = paper.study(number).ok_or_else(unknown)?;
            let kept = kept(paper)?;
            let has = |record: &&Record| record.has(study.number);
            Ok(match kept.records().find(has) {
                Some(record) if what == "study" => format!("\n{}", of_study(record, study.number)),
                Some(record) => result(record, study.number),
                None => format!("{}: no record yet", study.number),
            })
        }
        _ => Err(unknown()),
    }
}

/// Which record, of which commit, on what.
fn from_where(kept: &Kept) -> String {
    let parts = kept.parts.iter().map(|part| {
        let studies: Vec<&str> = part.record.heads().map(|head| &*head.number).collect();
        format!("; {} of {}", studies.join(", "), of_one(part))
    });
    of_one(kept) + &parts.collect::<String>()
}

fn of_one(Kept { file, record, .. }: &Kept) -> String {
    let e = &record.environment;
    let commit = match e.commit.strip_suffix("-dirty") {
        Some(commit) => format!("commit {commit} **with changes that were not committed**"),
        None => format!("commit {}", e.commit),
    };
    let kinds = match record.parameters().next() {
        Some(_) => "",
        None => OLDER,
    };
    format!("`{file}`: {commit}, {}, {} cores, Linux {}{kinds}", e.cpu, e.cores, e.kernel)
}

/// A cell's text: no line's end, and no bar that would end the cell.
fn cell(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('|', "\\|").replace('<', "&lt;")
}

fn claims(kept: &Kept) -> String {
    let mut out = String::from("| study | the paper | model | worth | this machine |\n");
    out += "| --- | --- | --- | --- | --- |\n";
    for (record, head) in kept.records().flat_map(|record| record.heads().map(move |head| (record, head))) {
        for claim in record.claims(&head.number) {
            let [model, machine] = Column::BOTH.map(|column| judged(record, claim, column));
            let worth = record.kind(claim).map_or("", |kind| kind.name());
            let study = format!("{} ({})", head.number, claim.section);
            let text = cell(&claim.text);
            out += &format!("| {} | {text} | {model} | {worth} | {machine} |\n", cell(&study));
        }
    }
    out
}

/// The verdict with the figure that decided, or how many did and which of them miss.
fn judged(record: &Record, claim: &Claim, column: Column) -> String {
    /// So many misses are named.
    const NAMED: usize = 2;
    let Some(verdict) = record.verdict(claim, column) else { return "–".into() };
    let figures = record.figures(&claim.study);
    let verdict = if verdict { holds(Some(true)).to_owned() } else { "**misses**".to_owned() };
    let time = match (column, claim.in_models_time) {
        (Column::Machine, true) => ", in the model's time",
        _ => "",
    };
    let checks: Vec<_> = claim.of(column).collect();
    let said = match &checks[..] {
        [] => String::new(),
        [check] => {
            let value = check.of.value(&figures, column).map(number).unwrap_or_default();
            format!(": {value} ({})", check.must.text())
        }
        all => {
            let values = all.iter().filter_map(|check| Some((check, check.of.value(&figures, column)?)));
            let missed: Vec<_> = values.filter(|(check, value)| !check.must.holds(*value)).collect();
            let named = missed.iter().take(NAMED).map(|(check, value)| {
                format!("{} {} ({})", check.of.text(), number(*value), check.must.text())
            });
            let named: Vec<String> = named.collect();
            let more = if missed.len() > NAMED { ", ..." } else { "" };
            match named.is_empty() {
                true => format!(", {} figures", all.len()),
                false => format!(", {} of {}: {}{more}", missed.len(), all.len(), named.join(", ")),
            }
        }
    };
    format!("{verdict}{}{time}", cell(&said))
}

fn values(kept: &Kept) -> String {
    let mut out = String::from("| study | value | paper | model | worth | this machine |\n");
    out += "| --- | --- | --- | --- | --- | --- |\n";
    for (record, head) in kept.records().flat_map(|record| record.heads().map(move |head| (record, head))) {
        let table = record.table();
        for f in record.findings(&head.number).filter(|f| f.paper.is_some() || f.reckoned.is_some()) {
            let percent = percent(f).map(|percent| format!(" ({percent})")).unwrap_or_default();
            let model = f.model.map_or("–".into(), |value| with_unit(f, number(value)) + &percent);
            let worth = source::kind(f, &table).map_or("", |kind| kind.name());
            let machine = f.measured().map_or("–".into(), |value| with_unit(f, number(value)));
            let (study, name, paper) = (cell(&head.number), cell(&f.figure.name), cell(&paper(f)));
            out += &format!("| {study} | {name} | {paper} | {model} | {worth} | {machine} |\n");
        }
    }
    out
}

/// All values of a study of which the paper has none.
fn of_study(record: &Record, study: &str) -> String {
    let mut out = String::from("| value | model | this machine |\n| --- | --- | --- |\n");
    for f in record.findings(study) {
        let [model, machine] = [f.model, f.measured()]
            .map(|value| value.map_or("–".into(), |value| with_unit(f, number(value))));
        out += &format!("| {} | {model} | {machine} |\n", cell(&f.figure.name));
    }
    out
}

fn with_unit(f: &Finding, value: String) -> String {
    let unit = &f.figure.unit;
    if unit.is_empty() { value } else { format!("{value} {unit}") }
}

/// What the paper states, or what its other numbers come to.
fn paper(f: &Finding) -> String {
    let stated = f.paper.as_ref().map(|p| with_unit(f, published(p)));
    let reckoned =
        f.reckoned.as_ref().map(|r| format!("by its other numbers {}", with_unit(f, number(r.value))));
    stated.into_iter().chain(reckoned).collect::<Vec<_>>().join("; ")
}

/// How many claims hold, and which do not.
fn result(record: &Record, number: &str) -> String {
    let of = |column| {
        let claims = record.claims(number);
        claims.filter_map(move |claim| Some((claim, record.verdict(claim, column)?))).collect::<Vec<_>>()
    };
    let mut parts = Vec::new();
    for (column, who) in [(Column::Model, "model"), (Column::Machine, "this machine")] {
        let judged = of(column);
        let missed: Vec<String> = judged
            .iter()
            .filter(|(_, holds)| !holds)
            .map(|(claim, _)| format!("\"{}\"", claim.text))
            .collect();
        let (all, held) = (judged.len(), judged.len() - missed.len());
        match (all, missed.is_empty()) {
            (0, _) => (),
            (_, true) => parts.push(format!("{who}: {held} of {all} claims hold")),
            _ => parts.push(format!("{who}: {held} of {all} claims hold; missed: {}", missed.join(", "))),
        }
    }
    if parts.is_empty() {
        parts.push("no claim is judged".to_owned());
    }
    cell(&format!("{number}: {}", parts.join(". ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stated;
    use crate::claim::{Bound, Quantity};
    use crate::record::{Head, Row};
    use crate::source::{Parameters, Relation};

    fn kept(_: Paper) -> Result<Kept, Failure> {
        const A: Stated = Stated::equal("FAST'12 Fig. 1: a", 2.0);
        let study = || "Fig. 1".to_owned();
        let head = Head { number: study(), title: "t".into(), section: "3".into(), small: false };
        let of = |finding: Finding| Row::Figure(Box::new(Finding { study: study(), ..finding }));
        let parameter = Parameters::of("m").paper("a_ns", 4u64, &[A], "stated").list().remove(0);
        let a = Finding::new("a | b", "us").model(3.0).paper(&A).from(Relation::Simulated, &["m"]);
        let other = Finding::new("other", "us").model(9.0).machine(&[7.0]).from(Relation::Simulated, &["m"]);
        let one = Claim::new("a is near", "3").model(Quantity::named("a | b"), Bound::about(2.0));
        let two = Claim::new("other", "3").both(Quantity::named("other"), Bound::Above(1.0));
        let two = two.model(Quantity::named("a | b"), Bound::Above(0.0)).in_models_time();
        let [one, two] = [one, two].map(|mut claim| {
            claim.study = study();
            Row::Claim(claim)
        });
        let mut record = Record::default();
        record.environment.commit = "abc-dirty".into();
        record.rows = vec![Row::Study(head), of(a), of(other), one, two, Row::Parameter(parameter)];
        Ok(Kept { file: "m/d.jsonl".into(), record, parts: Vec::new() })
    }

    #[test]
    fn every_place_is_filled_and_nothing_else_is_touched() {
        let document = "a <!-- filled: result fast12 Fig. 1 -->old 5<!-- end --> b\n<!-- filled: claims fast12 -->\
                        <!-- end -->\n<!-- filled: values fast12 -->\n<!-- end -->\n<!-- filled: record fast12 --><!-- end -->";
        let filled = fill(document, &kept).unwrap();
        let result = "a <!-- filled: result fast12 Fig. 1 -->Fig. 1: model: 1 of 2 claims hold; missed: \"a is near\". \
                      this machine: 1 of 1 claims hold<!-- end --> b\n";
        assert!(filled.starts_with(result), "{filled}");
        for row in [
            "\n| Fig. 1 (3) | a is near | **misses**: 3.00 (1.80 to 2.20) | given | – |\n",
            "\n| Fig. 1 (3) | other | holds, 2 figures | given | holds: 7.00 (above 1.00), in the model's time |\n",
            "\n| Fig. 1 | a \\| b | 2.00 us | 3.00 us (+50 %) | given | – |\n<!-- end -->",
            "`m/d.jsonl`: commit abc **with changes that were not committed**",
        ] {
            assert!(filled.contains(row), "{row}: {filled}");
        }
        assert!(!filled.contains("| other | – |"), "what the paper does not state is the page's");
        assert_eq!(fill(&filled, &kept).unwrap(), filled);
        assert!(!prose(&filled).unwrap().contains("claims hold"));
        let none = fill("<!-- filled: result fast12 Fig. 2 -->old<!-- end -->", &kept).unwrap();
        assert_eq!(none, "<!-- filled: result fast12 Fig. 2 -->Fig. 2: no record yet<!-- end -->");
    }

    #[test]
    fn a_study_that_came_later_has_a_record_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("m");
        std::fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, number: &str| {
            let mut record = kept(Paper::Fast12).unwrap().record;
            record.rows.iter_mut().for_each(|row| match row {
                Row::Study(head) => head.number = number.into(),
                Row::Figure(finding) => finding.study = number.into(),
                Row::Claim(claim) => claim.study = number.into(),
                _ => (),
            });
            std::fs::write(folder.join(format!("{name}.jsonl")), record.to_lines().unwrap()).unwrap();
        };
        put("2026-01-02-study-fast12", "Fig. 1");
        put("2026-01-01-study-fast12-3", "Fig. 3");
        put("2026-01-03-study-fast12-3", "Fig. 3");
        // The paper's own has it.
        put("2026-01-09-study-fast12-1", "Fig. 1");
        let found = |paper| newest(root.path(), paper)?.ok_or_else(|| "none".into());
        let parts = found(Paper::Fast12).unwrap().parts;
        assert_eq!(
            parts.iter().map(|part| &*part.file).collect::<Vec<_>>(),
            ["m/2026-01-03-study-fast12-3.jsonl"]
        );
        let filled = |asked: &str| fill(&format!("<!-- filled: {asked} --><!-- end -->"), &found).unwrap();
        assert!(filled("result fast12 Fig. 3").contains("model: 1 of 2 claims hold"));
        for study in ["Fig. 1", "Fig. 3"] {
            assert!(filled("claims fast12").contains(&format!("| {study} (3) |")), "{study}");
            assert!(filled("values fast12").contains(&format!("| {study} |")), "{study}");
        }
        let of = filled("record fast12");
        assert!(
            of.contains("m/2026-01-02") && of.contains("; Fig. 3 of `m/2026-01-03-study-fast12-3.jsonl`"),
            "{of}"
        );
    }

    #[test]
    fn a_place_that_asks_for_nothing_is_named() {
        for (document, said) in [
            ("<!-- filled: claims fast13 --><!-- end -->", "claims fast13"),
            ("<!-- filled: verdicts fast12 --><!-- end -->", "verdicts fast12"),
            ("<!-- filled: result fast12 Fig. 99 --><!-- end -->", "Fig. 99"),
            ("<!-- filled: claims fast12 -->", "no <!-- end -->"),
            (
                "<!-- filled: claims fast12 --> <!-- filled: claims fast12 --><!-- end -->",
                "before the next place",
            ),
        ] {
            let error = fill(document, &kept).unwrap_err().to_string();
            assert!(error.contains(said), "{document}: {error}");
        }
    }

    #[test]
    fn the_newest_whole_record_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let lines = |date: &str| {
            let mut kept = kept(Paper::Fast12).unwrap();
            kept.record.environment.date = date.into();
            kept.record.to_lines().unwrap()
        };
        for (machine, name) in [
            ("b", "2026-01-02-study-fast12"),
            ("a", "2026-01-03-study-fast12"),
            ("b", "2026-01-09-study-fast12-3"),
            ("b", "2026-01-09-study-dac23"),
        ] {
            let folder = root.path().join(machine);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(format!("{name}.jsonl")), lines(&name[..10])).unwrap();
        }
        let found = newest(root.path(), Paper::Fast12).unwrap().unwrap();
        assert_eq!(found.file, "a/2026-01-03-study-fast12.jsonl");
        assert_eq!(found.record.environment.date, "2026-01-03");
        assert!(newest(root.path(), Paper::Pieee17).unwrap().is_none());
    }
}
