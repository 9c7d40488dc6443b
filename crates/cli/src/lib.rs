//! The `nearside` command. [`main`] is the map of the program: one match, one module per command.
//!
//! How a command passes: `words`, then clap (`Cli`) -> the command's module builds an `Ask` -> `drive` opens
//! the drive (embedded, over the network, or behind a socket) and carries it by FSRLib -> the module prints
//! the records as they arrive through `out`.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod act;
mod app;
mod args;
mod attach;
mod bench;
mod cat;
mod cksum;
mod completions;
mod control;
mod cp;
mod demo;
mod diff;
mod directive;
mod discover;
mod doctor;
mod drive;
mod du;
mod failure;
mod find;
mod format;
mod gather;
mod grep;
mod hand_on;
mod in_use;
mod info;
mod interrupt;
mod key;
mod logs;
mod ls;
mod man;
mod models;
mod mounted;
mod nearest;
mod open;
mod out;
mod parts;
mod progress;
mod run;
mod select;
mod select_out;
mod serve;
mod server;
mod sim;
mod sql;
mod stat;
mod status;
mod study;
mod table;
mod terminal;
mod timeline;
mod timing;
mod tls;
mod users;
mod wc;
mod words;
mod writes;
mod yara;

/// What programs beside this one are made of that ask drives, too: which drive, and what is said of it.
pub mod program {
    pub use crate::args::{DriveArgs, explain, flowing};
    pub use crate::drive::session;
    pub use crate::failure::{Failure, Outcome, complain, complain_of, exit};
    pub use crate::interrupt::to_cancel;
    pub use crate::open::credentials;
    pub use crate::out::Out;
    pub use crate::progress::Progress;
    pub use crate::select_out::{Form, Writer};
    pub use nearside_embedded::drives_of;
}

/// Searches, lists and hashes files by path inside the drive that holds them, without mounting.
///
/// DRIVE is an image file or a block device (opened read-only, in a drive embedded in this process), raw or
/// qcow2 with its backing files, if its name ends in .qcow2; qcow2:PATH, a qcow2 image of any name, and
/// qcow2:PATH?snapshot=NAME, the same as it was at an internal snapshot; lvm:PATH?volume=VG/LV, a logical
/// volume of one; file:PATH, a raw one, whatever it begins with;
/// unix:PATH, the socket of a drive that `nearside attach` serves;
/// nvme+tcp://HOST:PORT/SUBSYSTEM_NQN/NSID, a namespace over the network (with HOST:PORT,HOST:PORT by any of
/// these addresses; a connection that is lost is made again); vfio-user:PATH, the socket of an
/// NVMe function in another process (that `nearside serve --vfio-user` serves); or /dev/ngXnY (by io_uring)
/// or /dev/nvmeXnY (by ioctl), a Nearside drive that this host's kernel is connected to (as root; without
/// --as, permissions are checked for whom sudo was called by). With --mounted, paths are this host's, and the
/// drive is found.
#[derive(Parser)]
#[command(
    name = "nearside",
    version,
    disable_help_flag = true,
    args_override_self = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help, global = true)]
    help: Option<bool>,
    /// Print help in short
    #[arg(short = 'h', action = clap::ArgAction::HelpShort)]
    short_help: Option<bool>,
    /// The same of a command, where -h is nothing else: what `words` makes of it
    #[arg(long, action = clap::ArgAction::HelpShort, global = true, hide = true)]
    help_in_short: Option<bool>,
}

/// The commands. What each can be told is made up only once a command line names it: what is said here of a
/// command, its own arguments say again, since of the two texts theirs is then the last.
#[derive(Subcommand)]
#[command(defer = true)]
enum Command {
    /// Find lines in files
    Grep(grep::GrepArgs),
    /// List directories
    Ls(ls::LsArgs),
    /// Show what is known about files
    Stat(stat::StatArgs),
    /// Find files in a tree
    Find(find::FindArgs),
    /// Write files to standard output
    Cat(cat::CatArgs),
    /// Copy files and trees to this host, or into a tar archive
    Cp(cp::CpArgs),
    /// Count lines, words, characters and bytes
    Wc(wc::WcArgs),
    /// Print checksums
    Cksum(cksum::CksumArgs),
    /// Read rows of a table by their numbers, as they are or pooled
    Gather(gather::GatherArgs),
    /// Find the rows of tables that are nearest to a query
    Nearest(nearest::NearestArgs),
    /// Choose rows of CSV, JSON-lines and Parquet files, and put them together
    Select(select::SelectArgs),
    /// Ask drives in SQL, by the program nearside-sql (`nearside sql --help` is its own)
    Sql(sql::SqlArgs),
    /// Run a program over files, in the drive
    Run(run::RunArgs),
    /// Match rules of YARA against files, in the drive
    Yara(yara::YaraArgs),
    /// Say what trees take of the volume
    Du(du::DuArgs),
    /// Say when files were read, changed and made, in a form that mactime reads
    Timeline(timeline::TimelineArgs),
    /// Say what has changed between two volumes, or a volume and a directory of this host
    Diff(diff::DiffArgs),
    /// Say what the volume is, and which completion model holds
    Info(info::InfoArgs),
    /// List the subsystems that a target over the network has for this host
    Discover(discover::DiscoverArgs),
    /// Serve a drive: its namespace as a file, and a socket for the other commands
    Attach(attach::AttachArgs),
    /// Serve a drive to hosts on the network, as an NVMe/TCP target, and to virtual machines, as a PCIe
    /// function
    Serve(serve::ServeArgs),
    /// Say what a server serves, and to whom
    Status(status::StatusArgs),
    /// Change what a server serves, while hosts use it
    Control(control::ControlArgs),
    /// Make and check the keys by which hosts prove who they are (DH-HMAC-CHAP, TLS)
    Key(key::KeyArgs),
    /// Add namespaces to a server, or take them away, while hosts use it
    Namespace(control::NamespaceArgs),
    /// List what a drive's write log holds, and make images of any instant of it
    Writes(writes::WritesArgs),
    /// Say what this machine offers and lacks, and what that costs
    Doctor(doctor::DoctorArgs),
    /// Print what completes this command's words in a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write one for each command
    Man(man::ManArgs),
    /// The papers' system in three acts, with tables and a page of pictures
    Demo(demo::DemoArgs),
    /// Measure response time against load
    Bench(bench::BenchArgs),
    /// Measure models of media in simulated time
    Sim(sim::SimArgs),
    /// The models of media: their names, their files, and their data sheets beside them
    Models(models::ModelsArgs),
    /// Aerospike's certification: how many times the unit load a drive can take
    Act(act::ActArgs),
    /// The papers' tables and figures: paper beside model beside this machine
    Study(study::StudyArgs),
    /// Run an application on a drive: a database, a cache, the kernel's paging
    App(app::AppArgs),
}

/// Runs the program.
pub fn main() -> ExitCode {
    // Its words are another program's.
    if let Some(args) = sql::words(std::env::args_os()) {
        return failure::exit(sql::run(args));
    }
    let words = match words::of(Cli::command, std::env::args_os().collect()) {
        Ok(words) => words,
        Err(failure) => return failure::exit(Err(failure)),
    };
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(said) => return failure::exit(args::explain(&said)),
    };
    // A server runs what hosts send only where its operator says so.
    if !matches!(cli.command, Command::Serve(_)) {
        run::install();
        yara::install();
    }
    failure::exit(match cli.command {
        Command::Grep(a) => grep::run(a),
        Command::Ls(a) => ls::run(a),
        Command::Stat(a) => stat::run(a),
        Command::Find(a) => find::run(a),
        Command::Cat(a) => cat::run(a),
        Command::Cp(a) => cp::run(a),
        Command::Wc(a) => wc::run(a),
        Command::Cksum(a) => cksum::run(a),
        Command::Gather(a) => gather::run(a),
        Command::Nearest(a) => nearest::run(a),
        Command::Select(a) => select::run(a),
        Command::Sql(a) => sql::run(a),
        Command::Run(a) => run::run(a),
        Command::Yara(a) => yara::run(a),
        Command::Du(a) => du::run(a),
        Command::Timeline(a) => timeline::run(a),
        Command::Diff(a) => diff::run(a),
        Command::Info(a) => info::run(a),
        Command::Discover(a) => discover::run(a),
        Command::Attach(a) => attach::run(a),
        Command::Serve(a) => serve::run(a),
        Command::Status(a) => status::run(a),
        Command::Control(a) => control::run(a),
        Command::Key(a) => key::run(a),
        Command::Namespace(a) => control::namespace(a),
        Command::Writes(a) => writes::run(a),
        Command::Doctor(a) => doctor::run(a),
        Command::Completions(a) => completions::run(a),
        Command::Man(a) => man::run(a),
        Command::Demo(a) => demo::run(a),
        Command::Bench(a) => bench::run(a),
        Command::Sim(a) => sim::run(a),
        Command::Models(a) => models::run(a),
        Command::Act(a) => act::run(a),
        Command::Study(a) => study::run(a),
        Command::App(a) => app::run(a),
    })
}

/// All that can be said on the command line, of every command.
pub fn definitions() -> clap::Command {
    let mut all = Cli::command();
    all.build();
    as_typed(all)
}

/// With the examples of its help, and of those below it, as they are typed.
fn as_typed(command: clap::Command) -> clap::Command {
    let help = command.get_after_long_help().map(|help| args::as_typed(&help.to_string()));
    let command = command.mut_subcommands(as_typed);
    match help {
        Some(help) => command.after_long_help(help),
        None => command,
    }
}

/// Whether a command line, the program's name first, can be understood.
///
/// # Errors
/// The text for standard error: an unknown command or option, a value that cannot be read, one that is
/// missing. `--help` and `--version` are among them, as clap has it.
pub fn understands<W: Into<std::ffi::OsString>>(words: impl IntoIterator<Item = W>) -> Result<(), String> {
    let words = words.into_iter().map(Into::into).collect();
    let words = words::of(Cli::command, words).map_err(|failure| match failure {
        failure::Failure::Message(text) => text,
        failure::Failure::Pipe | failure::Failure::Interrupted => String::new(),
    })?;
    Cli::try_parse_from(words).map(drop).map_err(|e| args::as_typed(&e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_says_of_itself_what_the_list_says() {
        let all = definitions();
        for listed in Cli::command().get_subcommands() {
            let itself = all.find_subcommand(listed.get_name()).unwrap();
            let said = |c: &clap::Command| (c.get_about().unwrap().to_string(), c.get_long_about().is_some());
            assert_eq!(said(itself), said(listed), "{}", listed.get_name());
        }
    }

    #[test]
    fn only_what_is_named_is_defined() {
        let options = |command: &clap::Command| {
            let below = command.get_subcommands().filter(|c| c.get_name() != "help");
            below.map(|c| c.get_arguments().count()).collect::<Vec<_>>()
        };
        assert!(options(&Cli::command()).iter().all(|n| *n == 0));
        assert!(options(&definitions()).iter().all(|n| *n > 0), "{:?}", options(&definitions()));
    }
}
