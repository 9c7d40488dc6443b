//! The program `nearside-sql`, which `nearside sql` starts.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches, Parser};
use nearside_cli::program::{Failure, Outcome, Progress, exit, explain, flowing, to_cancel};
use nearside_sql::program::{QueryArgs, Said, drives, failed, of_several, threads};
use nearside_sql::{Drives, context};

const EXAMPLES: &str = "\
Examples:
  nearside sql -d disk.img \"select kind, count(*), sum(size) from files where path like '/usr/%' group by kind\"
  nearside sql -d disk.img \"select path, line, text from lines('/var/log/**') where text ~ 'ERROR|FATAL' limit 20\"
  nearside sql -d disk.img \"select city, avg(price) from csv('/var/data/trips.csv') where price > 10 group by city\"
  nearside sql -d disk.img -d other.img \"select drive, sum(size) from files group by drive\"
  nearside sql -d images/ \"select drive, count(*) from lines('/var/log/**') where text like '%ERROR%' group by drive\"
  nearside sql -d disk.img \"explain select count(*) from parquet('/var/data/trips.parquet') where price >= 99\"
  nearside sql -d disk.img --file report.sql --output csv > report.csv

Tables: files; lines('/path'), csv('/path'), tsv('/path'), json('/path') (an object on each line) and parquet('/path'), of one file, of \
those that a pattern matches ('/data/*.csv'), or of all below a directory ('/data/**'). With several drives each table has a part of \
each, and a column drive; a folder is all images in it, and discover:HOST[:PORT] every namespace that a discovery service there \
lists for this host. docs/SQL.md has the columns, the options of tables ('no-header', 'delimiter=;', 'schema=id utf8'), and what \
is worked out in the drives; explain shows it of a query. Exit status: 0 all was answered, 1 something could not be read, 2 an error.";

/// Ask drives in SQL: files, lines, and rows of CSV, JSON lines and Parquet
///
/// What a drive can do exactly (columns, conditions, limits, groups) it does, and the rest is done here, by
/// DataFusion.
#[derive(Parser)]
#[command(name = "nearside sql", version, max_term_width = 100, args_override_self = true, after_long_help = flowing(EXAMPLES))]
struct Cli {
    #[command(flatten)]
    query: QueryArgs,
}

async fn answer(query: &QueryArgs, drives: Drives, progress: Progress) -> Result<(), Failure> {
    let context = context(drives, query.runtime()?, query.options()).map_err(failed)?;
    query.answer(&context, progress, |_| {}).await
}

fn run() -> Outcome {
    let read = of_several(Cli::command()).try_get_matches();
    let read = read.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (Cli { query }, matches) = match read {
        Ok(read) => read,
        Err(said) => return explain(&said),
    };
    let said = Arc::new(Said::default());
    let drives = drives(&matches, &said, true)?;
    // Before there is another thread: a drive of this host's kernel has to be told that nobody waits.
    if drives.iter().any(|drive| drive.name().starts_with("/dev/")) {
        to_cancel()?;
    }
    let runtime = threads()?;
    let so_far = said.clone();
    let progress = Progress::new("in the drives", move || so_far.so_far());
    let answered = runtime.block_on(answer(&query, drives, progress));
    // A drive that hangs is not waited for where the answer has ended.
    runtime.shutdown_background();
    answered?;
    Ok(u8::from(said.failed()))
}

fn main() -> ExitCode {
    exit(run())
}
