//! The papers' tables and figures, one file each: the paper's published values beside the model's in
//! simulated time and this machine's in real time.
//!
//! A [`Study`] is a plain function that is given a [`Run`] and tells it what it finds ([`finding`]): values,
//! pictures, remarks, and claims ([`claim`]), which say what of the values decides and carry no verdict. What
//! the papers state and what the models' numbers rest on are data ([`source`]), one list for each paper; what
//! a model's agreement is worth follows from them. What it told is a [`Record`], JSON lines in the format of
//! `make bench`; the page ([`page`]) and the table ([`table`]) are made from those lines and from nothing
//! else. What a paper's text does not state is left out: most of its figures are pictures.

#![warn(clippy::missing_errors_doc)]

mod applications;
pub mod claim;
pub mod dac23;
pub mod documents;
pub mod fast12;
pub mod finding;
mod flash;
pub mod page;
mod paging;
pub mod pieee17;
pub mod record;
mod run;
pub mod source;
pub mod table;

pub use claim::{Bound, Claim, Column, Quantity};
pub use finding::{Chart, Finding, Scale, Stated};
use nearside_dma::cpu;
pub use nearside_instrument::Failure;
pub use record::Record;
pub use run::{Run, Setting, Size};
pub use source::{Kind, Parameter, Relation};

/// One of the three papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// When Poll is Better than Interrupt.
    Fast12,
    /// Platform Storage Performance With 3D XPoint Technology.
    Pieee17,
    /// Optimizing the Performance of NDP Operations by Retrieving File Semantics in Storage.
    Dac23,
}

impl Paper {
    /// All of them, by age.
    pub const ALL: [Paper; 3] = [Paper::Fast12, Paper::Pieee17, Paper::Dac23];

    /// Its name on the command line and in a record's.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Fast12 => "fast12",
            Paper::Pieee17 => "pieee17",
            Paper::Dac23 => "dac23",
        }
    }

    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Fast12 => "FAST 2012: When Poll is Better than Interrupt",
            Paper::Pieee17 => "Proc. IEEE 2017: Platform Storage Performance With 3D XPoint Technology",
            Paper::Dac23 => {
                "DAC 2023: Optimizing the Performance of NDP Operations by Retrieving File Semantics in Storage"
            }
        }
    }

    /// Its studies, in its order.
    pub fn studies(self) -> &'static [Study] {
        match self {
            Paper::Fast12 => fast12::STUDIES,
            Paper::Pieee17 => pieee17::STUDIES,
            Paper::Dac23 => dac23::STUDIES,
        }
    }

    /// The numbers of its studies' models, with where each comes from.
    pub fn parameters(self) -> Vec<Parameter> {
        match self {
            Paper::Fast12 => fast12::parameters::all(),
            Paper::Pieee17 => pieee17::parameters::all(),
            Paper::Dac23 => dac23::parameters::all(),
        }
    }

    /// The study of that number: `3`, `fig3`, `Fig. 3`; `table1`; `3.4` for a section.
    pub fn study(self, number: &str) -> Option<&'static Study> {
        let wanted = plain(number);
        self.studies().iter().find(|study| plain(study.number) == wanted)
    }
}

/// A number without the words that one may leave out: "Fig. 3" is "3", "Table 1" is "table1".
pub fn plain(number: &str) -> String {
    let lower = number.to_lowercase();
    ["fig.", "figure", "fig", "section", " "].iter().fold(lower, |text, word| text.replace(word, ""))
}

/// A table, figure or section, and how it is studied.
pub struct Study {
    /// The paper's number for it: "Table 1", "Fig. 3", "Section 3.4".
    pub number: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// The paper's section.
    pub section: &'static str,
    /// Studies it, and tells the run what it finds.
    pub run: fn(&mut Run<'_>) -> Result<(), Failure>,
}

/// Runs studies one after another. The environment is asked from the machine; `unix_seconds` is now.
///
/// # Errors
/// The first that stops, by number.
pub fn run(studies: &[&Study], setting: &Setting<'_>, unix_seconds: u64) -> Result<Record, Failure> {
    let mut record = Record::new(nearside_loadgen::record::Environment::gather(unix_seconds));
    let cores = cpu::allowed_cores()?;
    for study in studies {
        let mut run = Run::new(study, setting);
        run.say(study.title);
        let ran = (study.run)(&mut run);
        // A study may keep this thread on one core: the next, and its record's environment, are not to know.
        cpu::pin_to_cores(&cores)?;
        ran.map_err(|e| format!("{}: {e}", study.number))?;
        record.rows.extend(run.into_rows());
    }
    let all: Vec<Parameter> = Paper::ALL.into_iter().flat_map(Paper::parameters).collect();
    let used = used(&record, &all)?;
    record.rows.extend(used.into_iter().map(record::Row::Parameter));
    Ok(record)
}

/// The parameters that the record's values rest on.
///
/// # Errors
/// A model's value that names none, or one that is in no list: nobody could say what it is worth.
fn used(record: &Record, all: &[Parameter]) -> Result<Vec<Parameter>, Failure> {
    let table = source::by_name(all);
    let mut names = std::collections::BTreeSet::new();
    for head in record.heads() {
        for finding in record.findings(&head.number).filter(|f| f.model.is_some()) {
            let named = finding.basis.as_ref().map(|basis| basis.resolve(&table)).unwrap_or_default();
            if named.is_empty() {
                let (study, name) = (&head.number, &finding.figure.name);
                return Err(format!("{study}: {name}: no known parameters of the model's value").into());
            }
            names.extend(named.iter().map(|p| (&*p.model, &*p.name)));
        }
    }
    Ok(all.iter().filter(|p| names.contains(&(&*p.model, &*p.name))).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Setting<'static> {
        let helper = &|| std::process::Command::new("true");
        Setting { size: Size::Small, say: &|_| (), helper, program: None }
    }

    #[test]
    fn no_study_keeps_the_next_one_on_its_core() {
        fn pins(_: &mut Run<'_>) -> Result<(), Failure> {
            let cores = cpu::allowed_cores()?;
            Ok(cpu::pin_to_core(cores[0])?)
        }
        let study = Study { number: "Fig. 0", title: "pins", section: "0", run: pins };
        let before = cpu::allowed_cores().unwrap();
        let setting = nothing();
        super::run(&[&study], &setting, 0).unwrap();
        assert_eq!(cpu::allowed_cores().unwrap(), before);
    }

    #[test]
    fn a_value_that_rests_on_nothing_is_refused() {
        fn tells(run: &mut Run<'_>) -> Result<(), Failure> {
            run.finding(Finding::new("value", "").model(1.0));
            Ok(())
        }
        fn misnames(run: &mut Run<'_>) -> Result<(), Failure> {
            run.finding(Finding::new("value", "").model(1.0).from(Relation::Arithmetic, &["nobody"]));
            Ok(())
        }
        let setting = nothing();
        for run in [tells, misnames] {
            let study = Study { number: "Fig. 0", title: "tells", section: "0", run };
            let refused = super::run(&[&study], &setting, 0).unwrap_err().to_string();
            assert_eq!(refused, "Fig. 0: value: no known parameters of the model's value");
        }
    }

    #[test]
    fn parameters_and_cells_have_names_of_their_own() {
        let all: Vec<Parameter> = Paper::ALL.into_iter().flat_map(Paper::parameters).collect();
        assert_eq!(source::by_name(&all).len(), all.len(), "a name is there twice");
        for p in &all {
            let rests = matches!(p.source, source::Source::Paper | source::Source::Fitted);
            assert!(!rests || !p.cells.is_empty(), "{}.{} names no cell", p.model, p.name);
            assert!(!p.how.is_empty(), "{}.{} does not say how", p.model, p.name);
        }
    }

    #[test]
    fn a_study_is_found_by_its_number_however_written() {
        for paper in Paper::ALL {
            let mut seen = std::collections::BTreeSet::new();
            for study in paper.studies() {
                assert_eq!(paper.study(study.number).map(|found| found.number), Some(study.number));
                assert!(seen.insert(plain(study.number)), "{} is there twice", study.number);
            }
            assert!(paper.study("Fig. 99").is_none());
        }
        assert_eq!(plain("Fig. 3"), plain("3"));
        assert_eq!(plain("Section 3.4"), plain("3.4"));
        assert_eq!(plain("TABLE 1"), plain("table1"));
    }
}
