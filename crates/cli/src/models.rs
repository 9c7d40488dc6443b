//! `nearside models`: the models of media by name, their files, and what they show beside what their data
//! sheets say.

use std::io::Write;
use std::path::Path;

use clap::Args;
use nearside_embedded::{model_file, models};
use nearside_instrument::sheet::{self, Shown};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside models                                   # the names, as model:NAME:SIZE takes them
  nearside models nand-p3700 > mine.toml            # a file to begin with: model:mine.toml:SIZE
  nearside models optane-p4800x --check             # its data sheet's figures beside the model's
  nearside models mine.toml --check --json";

/// The models of media: their names, their files, and their data sheets beside them
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct ModelsArgs {
    /// A model's name, or a file that ends in .toml
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    /// Run the figures of its data sheet in simulated time; exit 1 where one is not as the file says
    #[arg(long, requires = "model")]
    check: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn run(args: ModelsArgs) -> Outcome {
    let mut out = Out::new();
    let code = match &args.model {
        None => list(args.json, &mut out)?,
        Some(word) => one(word, &args, &mut out)?,
    };
    out.flush()?;
    Ok(code)
}

fn list(json: bool, out: &mut Out) -> Outcome {
    for model in models() {
        match json {
            true => out.json(&json!({
                "type": "model", "name": model.name, "about": model.about, "options": model.options,
            }))?,
            false => out.lines(&format!("{:<17} {}", model.name, model.about))?,
        }
    }
    Ok(0)
}

fn one(word: &str, args: &ModelsArgs, out: &mut Out) -> Outcome {
    let failed = |e: &dyn std::fmt::Display| Failure::Message(format!("{word}: {e}"));
    let read;
    let (text, file) = match word.ends_with(".toml") {
        true => {
            read = nearside_embedded::read_model(Path::new(word)).map_err(|e| failed(&e))?;
            (read.0.as_str(), &read.1)
        }
        false => {
            let names = || models().map(|m| m.name).collect::<Vec<_>>().join(", ");
            model_file(word)
                .ok_or_else(|| failed(&format!("no model: there are {}, and files (FILE.toml)", names())))?
        }
    };
    if !args.check {
        match args.json {
            true => out.json(&json!({ "type": "model", "name": word, "about": file.about, "toml": text }))?,
            false => out.lines(text)?,
        }
        return Ok(0);
    }
    let shown = sheet::check(word, file).map_err(|e| failed(&e))?;
    for it in &shown {
        figure(it, args.json, out)?;
    }
    if shown.is_empty() && !args.json {
        out.lines(&format!("{word} has no figures to check"))?;
    }
    Ok(u8::from(!shown.iter().all(Shown::as_said)))
}

fn figure(it: &Shown, json: bool, out: &mut Out) -> Result<(), Failure> {
    if json {
        out.json(&json!({
            "type": "figure",
            "what": it.figure.what,
            "run": it.run(),
            "unit": it.unit(),
            "sheet": it.figure.value,
            "within_percent": it.figure.within_percent,
            "model": it.model,
            "as_said": it.as_said(),
            "missed": it.figure.missed,
            "source": it.figure.source,
        }))?;
        return Ok(());
    }
    let (run, says, unit, shows) = (it.run(), it.says(), it.unit(), it.shows());
    out.lines(&format!("{run:<42} {says:>20} {unit:<12} {shows:>9}  {}", it.verdict()))?;
    Ok(())
}
