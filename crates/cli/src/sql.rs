//! `nearside sql`: the program `nearside-sql` takes what is behind the word.
//!
//! It is a program of its own since what plans queries is larger than all the rest of this one.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

use crate::failure::{Failure, Outcome};

/// Its name, beside this program or where the shell finds programs.
const PROGRAM: &str = "nearside-sql";

const EXAMPLES: &str = "\
Examples:
  nearside sql -d disk.img \"select kind, count(*), sum(size) from files where path like '/usr/%' group by kind\"
  nearside sql -d disk.img \"select path, line, text from lines('/var/log/**') where text ~ 'ERROR|FATAL' limit 20\"";

/// Ask drives in SQL, by the program nearside-sql (`nearside sql --help` is its own)
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct SqlArgs {
    /// A query and options of nearside-sql
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<OsString>,
}

/// What is behind `nearside sql`; `None`: the command line is of another command.
pub fn words(mut line: impl Iterator<Item = OsString>) -> Option<SqlArgs> {
    let named = line.nth(1).is_some_and(|word| word == "sql");
    named.then(|| SqlArgs { words: line.collect() })
}

/// Becomes that program.
pub fn run(args: SqlArgs) -> Outcome {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let program = beside.filter(|beside| beside.exists()).unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program).args(args.words).exec();
    Err(Failure::Message(match error.kind() {
        ErrorKind::NotFound => format!(
            "sql: the program {PROGRAM} is not installed: the package of that name has it, or `make sql` \
             builds it and `make install` then installs it"
        ),
        _ => format!("{}: {error}", program.display()),
    }))
}
