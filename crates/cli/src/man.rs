//! `nearside man`: manual pages, from the command's own definitions.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::Man;

use crate::failure::{Failure, Outcome};
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside man > nearside.1
  nearside man --out man1                           # nearside.1, nearside-grep.1 and so on: one for each command";

/// Print the manual page, or write one for each command
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct ManArgs {
    /// A folder for the pages of all commands; without it, the program's own is printed
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub fn run(args: ManArgs) -> Outcome {
    let program = crate::definitions();
    let Some(folder) = args.out else {
        let mut out = Out::new();
        out.write_all(&page(&program)?)?;
        out.flush()?;
        return Ok(0);
    };
    let failed = |e: io::Error| Failure::Message(format!("{}: {e}", folder.display()));
    fs::create_dir_all(&folder).map_err(failed)?;
    let mut commands = vec![program];
    while let Some(command) = commands.pop() {
        let path = folder.join(Man::new(command.clone()).get_filename());
        fs::write(path, page(&command)?).map_err(failed)?;
        commands.extend(command.get_subcommands().filter(|c| c.get_name() != "help").cloned());
    }
    Ok(0)
}

/// One command's page. Its examples stand as they are typed.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone().disable_help_subcommand(true));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let Some(text) = command.get_after_long_help() else { return Ok(page) };
    let text = text.to_string();
    let (heading, text) = match text.strip_prefix("Examples:\n") {
        Some(rest) => ("EXAMPLES", rest),
        None => ("NOTES", &*text),
    };
    writeln!(page, ".SH {heading}")?;
    for line in text.lines() {
        let set = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        match line.as_bytes() {
            [] => writeln!(page, ".PP")?,
            [b' ', ..] => writeln!(page, ".nf\n\\&{set}\n.fi")?,
            [..] => writeln!(page, "\\&{set}")?,
        }
    }
    Ok(page)
}
