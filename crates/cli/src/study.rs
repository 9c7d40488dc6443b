//! `nearside study`: the papers' tables and figures, each as a study;
//! a record, a page for each paper, and a table.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use nearside_loadgen::record::Environment;
use nearside_studies::{Paper, Record, Setting, Size, Study, fast12, page, table};

use crate::failure::{Failure, Outcome, complain};
use crate::interrupt::{is_told, to_undo};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside study --list                     # every table and figure
  nearside study fast12 --fast              # one paper's, seconds each
  nearside study fast12 --figure 3          # Fig. 3 only
  nearside study fast12 --figure table1     # Table 1 only
  nearside study all                        # what `make studies` runs
  nearside study dac23 --from studies/record/amd-epyc-2c/2026-11-22-study-dac23.jsonl   # the page of a record

A paper's record goes to studies/record/MACHINE/DATE-study-PAPER.jsonl (of a part, or of a fast run, below OUT/record), its page to
OUT/PAPER.html. What goes to studies/record is of a clean commit: on a tree with changes --record DIR says where else. Paper, model and
machine are three columns; a ratio stands beside each where the paper argues from one.";

/// The papers' tables and figures: paper beside model beside this machine
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct StudyArgs {
    /// Whose
    #[arg(value_enum, required_unless_present_any = ["list", "second"])]
    paper: Option<Which>,
    /// This table or figure only: 3, table1, 3.4
    #[arg(long, value_name = "N")]
    figure: Option<String>,
    /// Show what there is
    #[arg(long)]
    list: bool,
    /// Seconds for each, with wider spreads
    #[arg(long)]
    fast: bool,
    /// Make the page and the table of a record that is there; nothing is run
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["fast", "figure", "list", "record"])]
    from: Option<PathBuf>,
    /// Print the record's lines instead of the table
    #[arg(long)]
    json: bool,
    /// Where the pages go
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Where records are kept [default: studies/record; of a part or a fast run: OUT/record]
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// The second process of some studies
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    second: Option<Vec<String>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    /// When Poll is Better than Interrupt
    Fast12,
    /// Platform Storage Performance With 3D XPoint Technology
    Pieee17,
    /// Optimizing the Performance of NDP Operations by Retrieving File Semantics in Storage
    Dac23,
    /// All three
    All,
}

impl Which {
    fn papers(self) -> &'static [Paper] {
        match self {
            Which::Fast12 => &[Paper::Fast12],
            Which::Pieee17 => &[Paper::Pieee17],
            Which::Dac23 => &[Paper::Dac23],
            Which::All => &Paper::ALL,
        }
    }
}

/// Runs it.
pub fn run(args: StudyArgs) -> Outcome {
    if let Some(words) = &args.second {
        return fast12::second::main(words).map_err(|e| Failure::Message(e.to_string())).map(|()| 0);
    }
    let papers = args.paper.map_or(&Paper::ALL[..], Which::papers);
    let mut out = Out::new();
    if args.list {
        for paper in papers {
            out.line(paper.title().as_bytes())?;
            for study in paper.studies() {
                let line = format!("  {:8} {:12} {}", paper.name(), study.number, study.title);
                out.line(line.as_bytes())?;
            }
        }
        out.flush()?;
        return Ok(0);
    }
    if let Some(from) = &args.from {
        let [paper] = papers else {
            return Err(Failure::Message("--from: a record is of one paper: say which".into()));
        };
        let said = |e: &dyn std::fmt::Display| Failure::Message(format!("{}: {e}", from.display()));
        let lines = std::fs::read_to_string(from).map_err(|e| said(&e))?;
        let record = Record::from_lines(&lines).map_err(|e| said(&e))?;
        if let Some(head) = record.heads().find(|head| paper.study(&head.number).is_none()) {
            return Err(said(&format!("{} is no study of {}", head.number, paper.name())));
        }
        let shown = show(&args, *paper, &record, &mut out)?;
        complain(&format!("{}: the page is {}", paper.name(), shown.display()));
        return Ok(0);
    }
    to_undo()?;
    for paper in papers {
        let studies: Vec<&Study> = match &args.figure {
            None => paper.studies().iter().collect(),
            Some(number) => paper.study(number).into_iter().collect(),
        };
        if studies.is_empty() {
            if let Some(number) = &args.figure {
                let all: Vec<&str> = paper.studies().iter().map(|s| s.number).collect();
                let has = all.join(", ");
                return Err(Failure::Message(format!("{} has no {number}; it has {has}", paper.name())));
            }
            continue;
        }
        one(&args, *paper, &studies, &mut out)?;
    }
    Ok(0)
}

fn one(args: &StudyArgs, paper: Paper, studies: &[&Study], out: &mut Out) -> Result<(), Failure> {
    let stopped = |e: &dyn std::fmt::Display| Failure::Message(format!("{}: {e}", paper.name()));
    let program = std::env::current_exe().map_err(|e| stopped(&e))?;
    let setting = Setting {
        size: if args.fast { Size::Small } else { Size::Long },
        helper: &|| {
            let mut helper = Command::new(&program);
            helper.args(["study", "--second"]);
            helper
        },
        program: Some(&program),
        say: &|text| complain(&format!("{} {text}", paper.name())),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| stopped(&e))?.as_secs();
    let part = args.fast || args.figure.is_some();
    if args.record.is_none() && !part {
        may_be_kept(&Environment::gather(now)).map_err(|e| stopped(&e))?;
    }
    let record = nearside_studies::run(studies, &setting, now).map_err(|e| match is_told() {
        true => Failure::Interrupted,
        false => stopped(&e),
    })?;

    let name = match &args.figure {
        None => format!("study-{}", paper.name()),
        Some(_) => format!("study-{}-{}", paper.name(), nearside_studies::plain(studies[0].number)),
    };
    let root = match &args.record {
        Some(root) => root.clone(),
        None if part => args.out.join("record"),
        None => PathBuf::from("studies/record"),
    };
    let path = record.write(&root, &name).map_err(|e| stopped(&e))?;
    let shown = show(args, paper, &record, out)?;
    complain(&format!("{}: the record is {}, the page {}", paper.name(), path.display(), shown.display()));
    Ok(())
}

/// What is kept names the commit that it was measured on: asked before the hours, not after.
fn may_be_kept(environment: &Environment) -> Result<(), String> {
    if environment.is_clean() {
        return Ok(());
    }
    let commit = &environment.commit;
    Err(format!(
        "a record below studies/record is of a clean commit, and this is {commit}: commit what is changed, or say --record DIR"
    ))
}

/// Writes a record's page, and prints its table or lines; where the page is.
fn show(args: &StudyArgs, paper: Paper, record: &Record, out: &mut Out) -> Result<PathBuf, Failure> {
    let stopped = |e: &dyn std::fmt::Display| Failure::Message(format!("{}: {e}", paper.name()));
    let shown = args.out.join(format!("{}.html", paper.name()));
    std::fs::create_dir_all(&args.out)
        .and_then(|()| std::fs::write(&shown, page::page(paper.title(), record)))
        .map_err(|e| stopped(&format!("{}: {e}", shown.display())))?;
    match args.json {
        true => out.lines(&record.to_lines().map_err(|e| stopped(&e))?)?,
        false => out.lines(&table::table(record))?,
    }
    out.flush()?;
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_of_a_clean_commit() {
        let of =
            |commit: &str| may_be_kept(&Environment { commit: commit.to_owned(), ..Environment::default() });
        assert_eq!(of("0123456789ab"), Ok(()));
        for commit in ["0123456789ab-dirty", "unknown", ""] {
            let refused = of(commit).unwrap_err();
            assert!(refused.contains(commit) && refused.contains("--record DIR"), "{refused}");
        }
    }
}
