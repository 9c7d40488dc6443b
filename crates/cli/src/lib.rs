//! The `nearside` command. [`main`] is the map of the program: one match, one module per command.
//!
//! How a command passes: [`words`] and [`args`] (clap) -> the command's module builds an `Ask` -> [`drive`] opens the drive (embedded, over
//! the network, or behind a socket) and carries it by FSRLib -> the module prints the records as they arrive through [`out`].

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

mod act;
mod args;
mod attach;
mod bench;
mod cat;
mod cksum;
mod demo;
mod discover;
mod doctor;
mod drive;
mod failure;
mod find;
mod fnmatch;
mod format;
mod grep;
mod in_use;
mod info;
mod interrupt;
mod ls;
mod mounted;
mod open;
mod out;
mod progress;
mod serve;
mod sim;
mod stat;
mod status;
mod study;
mod terminal;
mod timing;
mod users;
mod wc;
mod words;

use args::{Cli, Command};

/// Runs the program.
pub fn main() -> ExitCode {
    let words = match words::of(std::env::args_os()) {
        Ok(words) => words,
        Err(failure) => return failure::exit(Err(failure)),
    };
    let cli = Cli::parse_from(words);
    failure::exit(match cli.command {
        Command::Grep(a) => grep::run(a),
        Command::Ls(a) => ls::run(a),
        Command::Stat(a) => stat::run(a),
        Command::Find(a) => find::run(a),
        Command::Cat(a) => cat::run(a),
        Command::Wc(a) => wc::run(a),
        Command::Cksum(a) => cksum::run(a),
        Command::Info(a) => info::run(a),
        Command::Discover(a) => discover::run(a),
        Command::Attach(a) => attach::run(a),
        Command::Serve(a) => serve::run(a),
        Command::Status(a) => status::run(a),
        Command::Namespace(a) => status::namespace(a),
        Command::Doctor(a) => doctor::run(a),
        Command::Demo(a) => demo::run(a),
        Command::Bench(a) => bench::run(a),
        Command::Sim(a) => sim::run(a),
        Command::Act(a) => act::run(a),
        Command::Study(a) => study::run(a),
    })
}

/// All that can be said on the command line.
pub fn definitions() -> clap::Command {
    Cli::command()
}

/// Whether a command line, the program's name first, can be understood; otherwise why not.
pub fn understands<W: Into<std::ffi::OsString>>(words: impl IntoIterator<Item = W>) -> Result<(), String> {
    let words = words::of(words.into_iter().map(Into::into)).map_err(|failure| match failure {
        failure::Failure::Message(text) => text,
        failure::Failure::Pipe | failure::Failure::Interrupted => String::new(),
    })?;
    Cli::try_parse_from(words).map(drop).map_err(|e| e.to_string())
}
