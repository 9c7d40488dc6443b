//! `nearside grep`: grep's flags become one search; what the drive finds is printed by [`print`].

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Args;
use nearside_fsrlib::{Answer, Ask, Failure as Refusal, Operation, SearchOptions, Target, describe};

use crate::args::{Color, DriveArgs};
use crate::drive::{self, Drive};
use crate::failure::{Failure, Outcome, complain_about};
use crate::out::Out;

mod json;
mod print;

const EXAMPLES: &str = "\
Examples:
  nearside grep -d disk.img -r ERROR /var/log                 # every line with ERROR below /var/log
  nearside grep -d disk.img -c -e WARN -e ERROR --glob '/var/log/*.log'
  nearside grep -d disk.img -rl -F 'BEGIN PRIVATE KEY' /      # the files that hold a secret
  nearside grep -d disk.img --as 1000:1000 -r secret /home
  nearside grep -d unix:/run/nearside.sock -ri timeout /etc --json
  nearside grep -d vfio-user:/run/nearside/vm1.sock -r ERROR /var/log

Patterns have the regex crate's syntax (as ripgrep's), with Unicode unless --no-unicode is given. UTF-16 files (by their mark) are
passed over with a message, unless -a is given. Paths are absolute within the volume; a path with
*, ?, [...] or ** is a glob, which the drive expands (names that begin with a dot match as well). Without a PATH the whole volume is searched.

Exit status: 0 a line was found, 1 none, 2 an error (with -q, 0 as soon as a line was found).

--json prints one object per line, as ripgrep does: begin, match, context, end for each file with a match, and a
summary. Bytes that are not UTF-8 appear as {\"bytes\": BASE64} in place of {\"text\": ...}.";

/// Find lines in files
#[derive(Args)]
#[command(after_help = EXAMPLES)]
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
    #[arg(short = 'F', long)]
    fixed_strings: bool,
    /// Patterns are regular expressions (they are anyway)
    #[arg(short = 'E', long, overrides_with = "fixed_strings", hide = true)]
    extended_regexp: bool,
    /// Ignore case
    #[arg(short = 'i', long)]
    ignore_case: bool,
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
    /// Print this many lines before and after
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
    #[arg(short = 'a', long)]
    text: bool,
    /// With -r: only files whose name matches
    #[arg(long, value_name = "GLOB")]
    include: Vec<OsString>,
    /// With -r: no files or directories whose name matches
    #[arg(long, visible_alias = "exclude-dir", value_name = "GLOB")]
    exclude: Vec<OsString>,

    #[command(flatten)]
    drive: DriveArgs,
}

/// How the answer is shown.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub names: bool,
    pub numbers: bool,
    pub offsets: bool,
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
}

pub fn run(mut args: GrepArgs) -> Outcome {
    let search = search_of(&mut args)?;
    // As in GNU grep: without a pattern nothing is found, and nothing is looked at.
    if search.patterns.is_empty() && !args.invert_match && !args.files_without_match && !args.drive.json {
        return Ok(1);
    }
    let everything = args.words.is_empty();
    let recursive = args.recursive || everything;
    let mut paths: Vec<OsString> =
        if everything { vec!["/".into()] } else { std::mem::take(&mut args.words) };
    let mut drive = Drive::open_for(&args.drive, &mut paths)?;
    let several = recursive || paths.len() > 1;
    let mut out = Out::new();
    let style = Style {
        names: (several || args.with_filename) && !args.no_filename,
        numbers: args.line_number,
        offsets: args.byte_offset,
        null: args.null,
        count: args.count,
        parts: args.only_matching,
        without_match: args.files_without_match,
        groups: groups(&args),
        color: args.color.on(),
        search: search.clone(),
    };
    let mut printer = if args.drive.json {
        Printer::Json(json::Json::new(&style)?)
    } else {
        Printer::Text(print::Print::new(style)?)
    };
    let mut tally = Tally::default();
    for path in &paths {
        let ask = Ask {
            target: target(&args, path, recursive),
            operation: Operation::Search(search.clone()),
            follow: true,
        };
        let answer = drive.ask(&ask, |record| {
            printer.record(record, &mut out, &mut tally, args.quiet, args.no_messages)?;
            let enough = args.quiet && tally.found;
            Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if !args.quiet {
            printer.end_of_file(&mut out, &mut tally)?;
        }
        if let Err(refusal) = answer {
            tally.failed = true;
            complain(path.as_bytes(), &refusal, args.no_messages);
        }
        if args.quiet && tally.found {
            break;
        }
    }
    printer.end(&mut out, &drive)?;
    drive.finish(&mut out)?;
    Ok(match tally {
        Tally { found: true, failed } if args.quiet || !failed => 0,
        Tally { failed: true, .. } => 2,
        Tally { .. } => 1,
    })
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

    fn end(&mut self, out: &mut Out, drive: &Drive) -> Result<(), Failure> {
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
        complain_about(path, &describe(refusal));
    }
}

fn target(args: &GrepArgs, path: &OsString, recursive: bool) -> Target {
    if !recursive {
        return drive::target(path);
    }
    let bytes = |globs: &[OsString]| globs.iter().map(|g| g.as_bytes().to_vec()).collect();
    Target::Tree {
        root: path.as_bytes().to_vec(),
        include: bytes(&args.include),
        exclude: bytes(&args.exclude),
        max_depth: u32::MAX,
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
    let patterns = patterns.iter().flat_map(|p| p.split(|&b| b == b'\n')).map(<[u8]>::to_vec).collect();
    let quiet = args.quiet || args.files_with_matches || args.files_without_match;
    let answer = match () {
        _ if quiet => Answer::Files,
        _ if args.count => Answer::Count,
        // With context, which lines touch is known by the lines alone: then their parts are found here.
        _ if args.only_matching && !args.invert_match && (args.drive.json || !groups(args)) => {
            Answer::Matches
        }
        _ => Answer::Lines,
    };
    let lines = answer == Answer::Lines && (!args.only_matching || groups(args));
    // Whether groups of lines touch is known by their numbers.
    let numbers = args.line_number || args.drive.json || groups(args);
    Ok(SearchOptions {
        patterns,
        fixed: args.fixed_strings,
        bytes: args.no_unicode,
        ignore_case: args.ignore_case,
        invert: args.invert_match,
        word: args.word_regexp,
        line: args.line_regexp,
        answer,
        max_count: args.max_count,
        text: args.text,
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
