//! `nearside grep`: grep's flags become one search; what the drive finds is printed by [`print`].

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

use clap::{Args, ValueEnum};
use nearside_fsrlib::{Answer, Failure as Refusal, Operation, SearchOptions, SearchTotals};

use crate::args::{Color, DriveArgs};
use crate::drive::Drive;
use crate::failure::{Failure, Outcome, complain_of};
use crate::out::Out;

mod choose;
mod json;
mod pattern;
mod print;
mod walk;

const EXAMPLES: &str = "\
Examples:
  nearside grep -d disk.img -r ERROR /var/log                 # every line with ERROR below /var/log
  nearside grep -d disk.img -c -e WARN -e ERROR --glob '/var/log/*.log'
  nearside grep -d disk.img -rl -F 'BEGIN PRIVATE KEY' /      # the files that hold a secret
  nearside grep -d disk.img -rI -5 --exclude-dir=old --search-zip ERROR /var/log
  nearside grep -d disk.img -r -t config -g '!*.bak' -S timeout /etc
  nearside grep -d disk.img --as 1000:1000 -r secret /home
  nearside grep -d unix:/run/nearside.sock -ri timeout /etc --json
  nearside grep -d vfio-user:/run/nearside/vm1.sock -r ERROR /var/log
  nearside grep -d nvme+tcp://127.0.0.1:4420,127.0.0.2:4420/NQN/1 --ctrl-loss-tmo 60 -r ERROR /var/log   # by either address; a lost connection is made again

Flags mean what they mean in GNU grep, or in ripgrep where GNU grep has none of that name. Where the two differ, GNU grep's meaning
holds: -z is lines that end in NUL (ripgrep's -z is --search-zip here), -U does nothing, -s silences messages. -d names the drive, and
-T is ripgrep's.

Patterns have the regex crate's syntax (as ripgrep's), with Unicode unless --no-unicode is given. UTF-16 files (by their mark) are
passed over with a message, unless -a is given. Paths are absolute within the volume; with --glob a path is a pattern, which the
drive expands (names that begin with a dot match as well). Without a PATH the whole volume is searched.

GLOBs of --include and --exclude are find's (-name), those of -g are ripgrep's, and paths with --glob are the drive's.

With --search-zip a file that begins as gzip, xz or zstd make them is searched in what it holds, in the drive. Where a file
answers with more than a buffer of the drive's holds, it is decompressed again from its start for each that follows.

Exit status: 0 a line was found, 1 none, 2 an error (with -q, 0 as soon as a line was found).

--json prints one object per line, as ripgrep does: begin, match, context, end for each file with a match, and a
summary. Bytes that are not UTF-8 appear as {\"bytes\": BASE64} in place of {\"text\": ...}.";

/// Find lines in files
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct GrepArgs {
    /// PATTERN (unless -e or -f is given), then paths
    #[arg(value_name = "PATTERN|PATH")]
    words: Vec<OsString>,
    /// Search for this; may be given several times
    #[arg(short = 'e', long = "regexp", value_name = "PATTERN", allow_hyphen_values = true)]
    patterns: Vec<OsString>,
    /// Patterns from a file of the host, one a line
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pattern_files: Vec<OsString>,
    /// Patterns are strings, not regular expressions
    #[arg(short = 'F', long, overrides_with_all = ["perl_regexp", "extended_regexp"])]
    fixed_strings: bool,
    /// Patterns are regular expressions (they are anyway)
    #[arg(short = 'E', long, overrides_with_all = ["fixed_strings", "perl_regexp"], hide = true)]
    extended_regexp: bool,
    /// Patterns are Perl's, as far as the regex crate has them: others are refused
    #[arg(short = 'P', long, overrides_with_all = ["fixed_strings", "extended_regexp"])]
    perl_regexp: bool,
    /// Ignore case
    #[arg(short = 'i', visible_short_alias = 'y', long, overrides_with_all = ["smart_case", "no_ignore_case"])]
    ignore_case: bool,
    /// Ignore case where no pattern has a capital
    #[arg(short = 'S', long, overrides_with_all = ["ignore_case", "no_ignore_case"])]
    smart_case: bool,
    /// Do not ignore case
    #[arg(long, overrides_with_all = ["ignore_case", "smart_case"])]
    no_ignore_case: bool,
    /// Patterns are over bytes, not over Unicode's characters
    #[arg(long)]
    no_unicode: bool,
    /// Find the lines that do not match
    #[arg(short = 'v', long)]
    invert_match: bool,
    /// Match whole words only
    #[arg(short = 'w', long)]
    word_regexp: bool,
    /// Match whole lines only
    #[arg(short = 'x', long)]
    line_regexp: bool,

    /// Print only how many lines each file has
    #[arg(short = 'c', long)]
    count: bool,
    /// Print only the names of files with a match
    #[arg(short = 'l', long, overrides_with = "files_without_match")]
    files_with_matches: bool,
    /// Print only the names of files without one
    #[arg(short = 'L', long, overrides_with = "files_with_matches")]
    files_without_match: bool,
    /// Print only the matched parts of lines
    #[arg(short = 'o', long)]
    only_matching: bool,
    /// Print nothing; stop at the first match
    #[arg(short = 'q', long, visible_alias = "silent")]
    quiet: bool,
    /// Say nothing about files that are missing or cannot be read
    #[arg(short = 's', long)]
    no_messages: bool,
    /// Stop after this many lines in each file
    #[arg(short = 'm', long, value_name = "N")]
    max_count: Option<u64>,

    /// Print line numbers
    #[arg(short = 'n', long)]
    line_number: bool,
    /// Print the column of a line's first match, in bytes from 1, and line numbers (with -o: of each match)
    #[arg(long)]
    column: bool,
    /// Print byte offsets
    #[arg(short = 'b', long)]
    byte_offset: bool,
    /// Print file names
    #[arg(short = 'H', long, overrides_with = "no_filename")]
    with_filename: bool,
    /// Print no file names
    #[arg(short = 'h', long, overrides_with = "with_filename")]
    no_filename: bool,
    /// A zero byte after file names, in place of what follows them
    #[arg(short = 'Z', long)]
    null: bool,
    /// Print this many lines after each match
    #[arg(short = 'A', long, value_name = "N")]
    after_context: Option<u32>,
    /// Print this many lines before each match
    #[arg(short = 'B', long, value_name = "N")]
    before_context: Option<u32>,
    /// Print this many lines before and after; -N is the same
    #[arg(short = 'C', long, value_name = "N")]
    context: Option<u32>,
    /// Highlight matches
    #[arg(long, visible_alias = "colour", value_enum, default_value_t, value_name = "WHEN",
          num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    color: Color,

    /// Search all files below directories
    #[arg(short = 'r', long, visible_short_alias = 'R')]
    recursive: bool,
    /// Search binary files as if they were text
    #[arg(short = 'a', long, overrides_with_all = ["without_binary", "binary_files"])]
    text: bool,
    /// Binary files have no matches
    #[arg(short = 'I', overrides_with_all = ["text", "binary_files"])]
    without_binary: bool,
    /// What a binary file is taken for
    #[arg(long, value_enum, value_name = "TYPE", overrides_with_all = ["text", "without_binary"])]
    binary_files: Option<BinaryFiles>,
    /// Keep carriage returns, as in any case
    #[arg(short = 'U', long)]
    binary: bool,
    /// Lines end in NUL, and are printed so
    #[arg(short = 'z', long)]
    null_data: bool,
    /// Search what compressed files hold (gzip, xz, zstd)
    #[arg(long)]
    search_zip: bool,
    /// Write each line at once
    #[arg(long)]
    line_buffered: bool,
    /// Print at the end how much was searched and found (without the number of matches where lines do not
    /// come: -c, -l, -L, -q)
    #[arg(long)]
    stats: bool,

    #[command(flatten)]
    choice: choose::ChoiceArgs,
    #[command(flatten)]
    drive: DriveArgs,
}

/// What a file with NULs is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BinaryFiles {
    /// Where a line matches, that is said in place of it
    Binary,
    /// It is text
    Text,
    /// It has no matches
    WithoutMatch,
}

/// How the answer is shown.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub names: bool,
    /// But for a file of this path: with -r, a path that is itself a file has no name alone.
    pub unnamed: Option<Vec<u8>>,
    pub numbers: bool,
    pub column: bool,
    pub offsets: bool,
    pub stats: bool,
    /// What ends a line.
    pub end: u8,
    pub null: bool,
    pub count: bool,
    /// Only matched parts (`-o`).
    pub parts: bool,
    pub without_match: bool,
    pub groups: bool,
    pub color: bool,
    pub search: SearchOptions,
}

/// What a search over several paths has come to.
#[derive(Default)]
pub(crate) struct Tally {
    pub found: bool,
    pub failed: bool,
    totals: SearchTotals,
}

pub fn run(mut args: GrepArgs) -> Outcome {
    if args.choice.type_list {
        let mut out = Out::new();
        choose::list(&mut out)?;
        out.flush()?;
        return Ok(0);
    }
    let search = search_of(&mut args)?;
    let choice = choose::Choice::new(&args.choice)?;
    // As in GNU grep: without a pattern nothing is found, and nothing is looked at.
    if search.patterns.is_empty() && !args.invert_match && !args.files_without_match && !args.drive.json {
        return Ok(1);
    }
    let everything = args.words.is_empty();
    let recursive = args.recursive || everything;
    let mut paths: Vec<OsString> =
        if everything { vec!["/".into()] } else { std::mem::take(&mut args.words) };
    let mut drive = Drive::open_for(&args.drive, &mut paths)?;
    if args.search_zip {
        drive = drive.with_buffer(1 << 20);
    }
    let max_depth = args.choice.max_depth.unwrap_or(u32::MAX);
    let walk = walk::Walk { choice: &choice, recursive, named: !everything, max_depth };
    walk.expect(&paths, &mut drive)?;
    let several = recursive || paths.len() > 1;
    let mut out = Out::new();
    out.line_buffered = args.line_buffered;
    let mut style = style(&args, several, &search);
    if recursive && paths.len() == 1 && !args.with_filename {
        style.unnamed = Some(paths[0].as_encoded_bytes().to_vec());
    }
    let printer = match args.drive.json {
        true => Printer::Json(json::Json::new(&style)?),
        false => Printer::Text(print::Print::new(style)?),
    };
    let operation = Operation::Search(search);
    let (quiet, silent) = (args.quiet, args.no_messages);
    let mut found = Found { printer, out, tally: Tally::default(), quiet, silent };
    for path in &paths {
        walk.path(path, &operation, &mut drive, &mut found)?;
        if !quiet {
            found.printer.end_of_file(&mut found.out, &mut found.tally)?;
        }
        if quiet && found.tally.found {
            break;
        }
    }
    let Found { printer, mut out, tally, .. } = found;
    printer.end(&mut out, &drive)?;
    if args.stats && !args.drive.json {
        stats(&printer, &tally, &mut out, &drive)?;
    }
    drive.finish(&mut out)?;
    Ok(match tally {
        Tally { found: true, failed, .. } if args.quiet || !failed => 0,
        Tally { failed: true, .. } => 2,
        Tally { .. } => 1,
    })
}

fn style(args: &GrepArgs, several: bool, search: &SearchOptions) -> Style {
    Style {
        names: (several || args.with_filename) && !args.no_filename,
        unnamed: None,
        numbers: args.line_number || args.column,
        column: args.column,
        offsets: args.byte_offset,
        stats: args.stats,
        end: if args.null_data { 0 } else { b'\n' },
        null: args.null,
        count: args.count,
        parts: args.only_matching,
        without_match: args.files_without_match,
        groups: groups(args),
        color: args.color.on(),
        search: search.clone(),
    }
}

/// What was searched and found, as ripgrep says it.
fn stats(printer: &Printer, tally: &Tally, out: &mut Out, drive: &Drive) -> Result<(), Failure> {
    let printed = out.written;
    let SearchTotals { files, files_matched, matches } = tally.totals;
    let (bytes, searching_ns, all_ns) = drive.spent();
    writeln!(out)?;
    if let Printer::Text(print) = printer
        && let Some(parts) = print.matches()
    {
        writeln!(out, "{parts} matches")?;
    }
    writeln!(out, "{matches} matched lines")?;
    writeln!(out, "{files_matched} files contained matches")?;
    writeln!(out, "{files} files searched")?;
    writeln!(out, "{printed} bytes printed")?;
    writeln!(out, "{bytes} bytes searched")?;
    writeln!(out, "{:.6} seconds spent searching", searching_ns as f64 / 1e9)?;
    writeln!(out, "{:.6} seconds", all_ns as f64 / 1e9)?;
    Ok(())
}

/// What is found, on its way out.
struct Found {
    printer: Printer,
    out: Out,
    tally: Tally,
    quiet: bool,
    silent: bool,
}

impl Found {
    fn record(&mut self, record: nearside_fsrlib::Record) -> Result<(), Failure> {
        self.printer.record(record, &mut self.out, &mut self.tally, self.quiet, self.silent)
    }

    /// Whether no more is wanted.
    fn enough(&self) -> bool {
        self.quiet && self.tally.found
    }

    /// A path of the command line could not be searched.
    fn refused(&mut self, path: &[u8], refusal: &Refusal) {
        self.tally.failed = true;
        complain(path, refusal, self.silent);
    }
}

enum Printer {
    Text(print::Print),
    Json(json::Json),
}

impl Printer {
    fn record(
        &mut self,
        record: nearside_fsrlib::Record,
        out: &mut Out,
        tally: &mut Tally,
        quiet: bool,
        silent: bool,
    ) -> Result<(), Failure> {
        use nearside_fsrlib::Record;
        match record {
            Record::Failed { path, failure } => {
                tally.failed = true;
                if let Printer::Json(json) = self {
                    json.failed(&path, &failure, out)?;
                }
                complain(&path, &failure, silent);
                Ok(())
            }
            Record::Line { context: false, .. } | Record::BinaryMatches if quiet => {
                tally.found = true;
                Ok(())
            }
            // A line that was selected counts, also where only empty
            // parts of it match and nothing is printed.
            Record::Total(totals) => {
                tally.found |= totals.matches > 0;
                tally.totals.files += totals.files;
                tally.totals.files_matched += totals.files_matched;
                tally.totals.matches += totals.matches;
                Ok(())
            }
            Record::Matches(n) if quiet => {
                tally.found |= n > 0;
                Ok(())
            }
            _ if quiet => Ok(()),
            record => match self {
                Printer::Text(print) => print.record(record, out, tally),
                Printer::Json(json) => json.record(record, out, tally),
            },
        }
    }

    fn end_of_file(&mut self, out: &mut Out, tally: &mut Tally) -> Result<(), Failure> {
        match self {
            Printer::Text(print) => print.end_of_file(out, tally),
            Printer::Json(json) => json.end_of_file(out),
        }
    }

    fn end(&self, out: &mut Out, drive: &Drive) -> Result<(), Failure> {
        match self {
            Printer::Text(_) => Ok(()),
            Printer::Json(json) => json.end(out, drive),
        }
    }
}

fn complain(path: &[u8], refusal: &Refusal, silent: bool) {
    let of_the_file = matches!(
        refusal,
        Refusal::NotFound
            | Refusal::PermissionDenied
            | Refusal::DeniedAs(_)
            | Refusal::NotADirectory
            | Refusal::IsADirectory
    );
    if !(silent && of_the_file) {
        complain_of(path, refusal);
    }
}

/// The search that the flags mean. Takes the pattern off the words where it stands there.
fn search_of(args: &mut GrepArgs) -> Result<SearchOptions, Failure> {
    let mut patterns: Vec<Vec<u8>> =
        std::mem::take(&mut args.patterns).into_iter().map(OsStringExt::into_vec).collect();
    for name in &args.pattern_files {
        let text = std::fs::read(name).map_err(|e| format!("{}: {e}", name.to_string_lossy()))?;
        if text.is_empty() {
            // As in grep, not even the pattern that matches everything.
            continue;
        }
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        patterns.extend(text.split(|&b| b == b'\n').map(<[u8]>::to_vec));
    }
    if patterns.is_empty() && args.pattern_files.is_empty() {
        if args.words.is_empty() {
            return Err(Failure::Message("no pattern (nearside grep PATTERN PATH...; see --help)".into()));
        }
        patterns.push(args.words.remove(0).into_vec());
    }
    // As in grep, a pattern of several lines is several patterns.
    let patterns: Vec<Vec<u8>> =
        patterns.iter().flat_map(|p| p.split(|&b| b == b'\n')).map(<[u8]>::to_vec).collect();
    if args.perl_regexp {
        pattern::of_perl(&patterns)?;
    }
    let ignore_case = args.ignore_case || args.smart_case && pattern::is_low(&patterns, args.fixed_strings);
    let quiet = args.quiet || args.files_with_matches || args.files_without_match;
    let answer = match () {
        _ if quiet => Answer::Files,
        _ if args.count => Answer::Count,
        // With context, which lines touch is known by the lines alone: then their parts are found here.
        // Matches are numbered by columns and counted there, too.
        _ if args.only_matching
            && !args.invert_match
            && (args.drive.json || !(groups(args) || args.column || args.stats)) =>
        {
            Answer::Matches
        }
        _ => Answer::Lines,
    };
    let lines = answer == Answer::Lines && (!args.only_matching || groups(args));
    // Whether groups of lines touch is known by their numbers.
    let numbers = args.line_number || args.column || args.drive.json || groups(args);
    let binary = args.binary_files;
    Ok(SearchOptions {
        patterns,
        fixed: args.fixed_strings,
        bytes: args.no_unicode,
        ignore_case,
        invert: args.invert_match,
        word: args.word_regexp,
        line: args.line_regexp,
        answer,
        max_count: args.max_count,
        text: args.text || args.null_data || binary == Some(BinaryFiles::Text),
        without_binary: args.without_binary || binary == Some(BinaryFiles::WithoutMatch),
        null_data: args.null_data,
        decompress: args.search_zip,
        before: if lines { args.before_context.or(args.context).unwrap_or(0) } else { 0 },
        after: if lines { args.after_context.or(args.context).unwrap_or(0) } else { 0 },
        only_matching_files: !(args.count || args.files_without_match) || args.quiet,
        numbers,
    })
}

/// Whether a line stands between groups of lines.
fn groups(args: &GrepArgs) -> bool {
    args.context.or(args.after_context).or(args.before_context).is_some()
}
