//! What a study is given: how much it may do, whom it tells what it finds.

use std::path::Path;
use std::process::Command;

use crate::Study;
use crate::claim::Claim;
use crate::finding::{Chart, Finding};
use crate::record::{Head, Note, Row};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Seconds, with wide spreads: what the tests run.
    Small,
    /// What is recorded.
    Long,
}

/// What is the same for all studies of a run.
pub struct Setting<'a> {
    /// How much.
    pub size: Size,
    /// Starts a second process: this program with what makes it call [`crate::fast12::second::main`].
    pub helper: &'a dyn Fn() -> Command,
    /// The `nearside` program, which attaches the drives of applications; without one, studies of
    /// applications leave this machine's column out.
    pub program: Option<&'a Path>,
    /// Is told what is going on, line by line.
    pub say: &'a dyn Fn(&str),
}

/// A study under way.
pub struct Run<'a> {
    study: &'a Study,
    setting: &'a Setting<'a>,
    rows: Vec<Row>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(study: &'a Study, setting: &'a Setting<'a>) -> Run<'a> {
        let Study { number, title, section, .. } = study;
        let head = Head {
            number: (*number).to_owned(),
            title: (*title).to_owned(),
            section: (*section).to_owned(),
            small: setting.size == Size::Small,
        };
        Run { study, setting, rows: vec![Row::Study(head)] }
    }

    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    /// Whether it has seconds only.
    pub fn small(&self) -> bool {
        self.setting.size == Size::Small
    }

    /// One thing where it has seconds only, another where it has time.
    pub fn sized<T>(&self, small: T, long: T) -> T {
        if self.small() { small } else { long }
    }

    /// A command that starts the second process.
    pub fn helper(&self) -> Command {
        (self.setting.helper)()
    }

    /// The `nearside` program.
    pub fn program(&self) -> Option<&'a Path> {
        self.setting.program
    }

    /// A sign of life.
    pub fn say(&self, text: &str) {
        (self.setting.say)(&format!("{}: {text}", self.study.number));
    }

    fn number(&self) -> String {
        self.study.number.to_owned()
    }

    /// A value was found. It is given back, for others to stand beside.
    pub fn finding(&mut self, finding: Finding) -> Finding {
        let finding = Finding { study: self.number(), ..finding };
        self.rows.push(Row::Figure(Box::new(finding.clone())));
        finding
    }

    /// A statement was checked.
    pub fn claim(&mut self, mut claim: Claim) {
        claim.study = self.number();
        self.rows.push(Row::Claim(claim));
    }

    /// A picture is to be drawn of the findings that name it.
    pub fn chart(&mut self, chart: Chart) {
        let chart = Chart { study: self.number(), ..chart };
        self.rows.push(Row::Chart(chart));
    }

    /// What the reader has to know: what a number rests on, what this machine lacks.
    pub fn note(&mut self, text: impl Into<String>) {
        self.rows.push(Row::Note(Note { study: self.number(), text: text.into() }));
    }
}
