//! Which of a tree's files are searched: GNU grep's --include and its like, ripgrep's -g, -t and -T.
//!
//! What only names files to take, by a star and letters, the drive is told. All else is decided here, about
//! names that the drive gives, directory by directory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use nearside_fsrlib::{Globs, Reading, fnmatch};

use crate::failure::Failure;
use crate::out::Out;
use crate::terminal;

/// Bytes of patterns that a drive is told: a request has room for as many again.
const MOST: usize = 64 << 10;
/// What a pattern takes of a request beside its bytes.
const BESIDE: usize = 16;

/// --include, --exclude and --exclude-from in the order in which they were given, which counts.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<(Rule, OsString)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Include,
    Exclude,
    ExcludeFrom,
}

const RULES: [(Rule, &str, &str, &str); 3] = [
    (
        Rule::Include,
        "include",
        "GLOB",
        "Only files whose name matches; of this and --exclude, the last that matches counts",
    ),
    (Rule::Exclude, "exclude", "GLOB", "No files whose name matches"),
    (
        Rule::ExcludeFrom,
        "exclude-from",
        "FILE",
        "No files whose name matches a line of this file of the host",
    ),
];

impl FromArgMatches for Rules {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Rules, clap::Error> {
        let mut rules = Vec::new();
        for (rule, name, ..) in RULES {
            let values = matches.get_many::<OsString>(name).into_iter().flatten();
            let places = matches.indices_of(name).into_iter().flatten();
            rules.extend(places.zip(values).map(|(at, value)| (at, (rule, value.clone()))));
        }
        rules.sort_by_key(|(at, _)| *at);
        Ok(Rules(rules.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Rules::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Rules {
    fn augment_args(command: Command) -> Command {
        command.args(RULES.map(|(_, name, value, help)| {
            let arg = Arg::new(name).long(name).value_name(value).help(help).action(ArgAction::Append);
            arg.value_parser(value_parser!(OsString))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Rules::augment_args(command)
    }
}

/// What ripgrep and GNU grep choose by.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Which files")]
pub struct ChoiceArgs {
    #[command(flatten)]
    rules: Rules,
    /// No directories whose name matches
    #[arg(long, value_name = "GLOB")]
    exclude_dir: Vec<OsString>,
    /// With -r: only files that match, or with ! before it, no files or directories that do; as in ripgrep,
    /// where --glob is another name for it. With a slash in it, it is from the volume's root on; the last
    /// that matches counts
    #[arg(short = 'g', value_name = "GLOB")]
    globs: Vec<OsString>,
    /// With -r: only files of this type, by their names (--type-list)
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// With -r: no files of this type
    #[arg(short = 'T', long = "type-not", value_name = "TYPE")]
    types_not: Vec<String>,
    /// Print the types and the names that they mean
    #[arg(long, exclusive = true)]
    pub type_list: bool,
    /// With -r: directories so many levels down, 1 for those that are named alone
    #[arg(long, value_name = "N", alias = "maxdepth")]
    pub max_depth: Option<u32>,
}

/// The choice that the arguments mean.
pub struct Choice {
    /// Patterns, and whether what matches is taken.
    files: Vec<(Vec<u8>, bool)>,
    directories: Vec<Vec<u8>>,
    globs: Override,
    types: Types,
}

impl Choice {
    /// Reads the files, and the patterns.
    pub fn new(args: &ChoiceArgs) -> Result<Choice, Failure> {
        let mut files = Vec::new();
        for (rule, value) in &args.rules.0 {
            if *rule != Rule::ExcludeFrom {
                files.push((value.as_bytes().to_vec(), *rule == Rule::Include));
                continue;
            }
            let text = std::fs::read(value).map_err(|e| format!("{}: {e}", value.to_string_lossy()))?;
            let lines =
                text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii_end).filter(|line| !line.is_empty());
            files.extend(lines.map(|line| (line.to_vec(), false)));
        }
        let directories = args.exclude_dir.iter().map(|glob| {
            let glob = glob.as_bytes();
            let end = glob.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
            glob[..end].to_vec()
        });
        let said = |e: ignore::Error| Failure::Message(e.to_string());
        let mut globs = OverrideBuilder::new("/");
        for glob in &args.globs {
            let text = glob.to_str().ok_or_else(|| format!("{glob:?}: -g takes UTF-8"))?;
            globs.add(text).map_err(said)?;
        }
        let mut types = TypesBuilder::new();
        // There are hundreds, which are only looked at where one is asked for.
        if !(args.types.is_empty() && args.types_not.is_empty()) {
            types.add_defaults();
        }
        args.types.iter().for_each(|name| _ = types.select(name));
        args.types_not.iter().for_each(|name| _ = types.negate(name));
        Ok(Choice {
            files,
            directories: directories.collect(),
            globs: globs.build().map_err(said)?,
            types: types.build().map_err(said)?,
        })
    }

    /// Whether all is taken.
    pub fn is_all(&self) -> bool {
        self.files.is_empty() && self.directories.is_empty() && self.globs.is_empty() && self.types.is_empty()
    }

    /// The patterns, where a file that matches any of them is meant and the drive reads them as they are
    /// meant.
    pub fn in_drive(&self) -> Option<Vec<Vec<u8>>> {
        let plain = |glob: &[u8]| {
            let special = |b: &u8| b"?[]{}\\/!".contains(b) || !b.is_ascii();
            !glob.iter().any(special) && !glob.windows(2).any(|two| two == b"**")
        };
        let mut bytes = 0;
        let mut files = self.files.iter();
        let taken = files.all(|(glob, takes)| {
            bytes += BESIDE + glob.len();
            *takes && plain(glob) && bytes <= MOST && Globs::default().with(glob).is_ok()
        });
        let alone = self.directories.is_empty() && self.globs.is_empty() && self.types.is_empty();
        (alone && taken).then(|| self.files.iter().map(|(glob, _)| glob.clone()).collect())
    }

    /// Whether a path of the command line is meant.
    pub fn takes_named(&self, path: &[u8], directory: bool) -> bool {
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at + 1);
        let parts: Vec<&[u8]> = std::iter::once(0).chain(ends).map(|at| &path[at..]).collect();
        let matches = |glob: &[u8]| parts.iter().any(|part| like(glob, part));
        match directory {
            true => !self.directories.iter().any(|glob| matches(glob)),
            false => self.by_rules(matches),
        }
    }

    /// Whether an entry of a tree is meant.
    pub fn takes(&self, path: &[u8], directory: bool) -> bool {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        let matches = |glob: &[u8]| like(glob, name);
        let by_rules = match directory {
            true => !self.directories.iter().any(|glob| matches(glob)),
            false => self.by_rules(matches),
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let glob = self.globs.matched(path, directory);
        let by_glob = match glob.is_none() {
            true => !self.types.matched(path, directory).is_ignore(),
            false => !glob.is_ignore(),
        };
        by_rules && by_glob
    }

    /// Of the rules the last that matches counts; where none does, the first says what is meant.
    fn by_rules(&self, matches: impl Fn(&[u8]) -> bool) -> bool {
        let last = self.files.iter().rev().find(|(glob, _)| matches(glob));
        match (last, self.files.first()) {
            (Some((_, takes)), _) => *takes,
            (None, Some((_, takes))) => !takes,
            (None, None) => true,
        }
    }
}

/// Whether a name matches a pattern of GNU grep's.
fn like(glob: &[u8], name: &[u8]) -> bool {
    fnmatch(glob, name, Reading { utf8: terminal::utf8(), ignore_case: false })
}

/// The types, as ripgrep lists them.
pub fn list(out: &mut Out) -> Result<(), Failure> {
    for definition in TypesBuilder::new().add_defaults().definitions() {
        out.line(format!("{}: {}", definition.name(), definition.globs().join(", ")).as_bytes())?;
    }
    Ok(())
}
